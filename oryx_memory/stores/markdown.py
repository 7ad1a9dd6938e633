"""The markdown backend: MEMORY.md, its retired file beside it, and the lock that guards both.

An append reads the file for its headings and adds one line at the end; everything else goes through one rewrite.
Retiring writes the record first and MEMORY.md second, restoring the other way round: what stands in MEMORY.md is
live, so a writer that is killed in between has neither lost nor doubled anything.
"""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from oryx_memory import files
from oryx_memory.changes import Change, Copy, Plan, Snapshot, find, new_run
from oryx_memory.document import (
    Layout,
    Located,
    MemoryDocument,
    Splice,
    around,
    backwards,
    decode,
    piece,
    scan,
    spans,
    streamed,
)
from oryx_memory.entry import BLANKS, Entry, Scope
from oryx_memory.errors import NothingFound, OryxMemoryWarning
from oryx_memory.journal import Copies, Journal, Line
from oryx_memory.matching import Keyword
from oryx_memory.retired import Record, came_back, live_snapshot, outstanding, parse, with_retired
from oryx_memory.stores.base import Clock, LongTermMemoryStore, Tail
from oryx_memory.stores.records import (
    Deed,
    append_records,
    copies_after,
    doomed,
    given,
    leaving,
    records_of,
    records_of_change,
    unsaid,
    without,
)
from oryx_memory.window import MAX_CHARS, Memory, load, oryxos_text
from oryx_memory.workspace import Workspace

if TYPE_CHECKING:
    from hashlib import blake2b

    from oryx_memory.stores.spool import Lacking, Spool


class MarkdownStore(LongTermMemoryStore):
    """One agent's MEMORY.md."""

    def __init__(self, workspace: Workspace, agent: str | None, clock: Clock, *, lock_timeout: float = 10.0) -> None:
        super().__init__(agent, clock)
        self.workspace = workspace
        self.path = workspace.memory_file(agent)
        self.lock_timeout = lock_timeout

    @property
    def retired_path(self) -> Path:
        """MEMORY.retired.md, beside the file that MEMORY.md is or links to."""
        return self._paths().retired

    @property
    def resource(self) -> str:
        return str(self.workspace.lock_file(self._paths().memory))

    def stamp(self) -> str:
        paths = self._paths()
        return f"{files.stamp(paths.memory)} {files.stamp(paths.retired)}"

    def settled_stamp(self) -> str | None:
        return files.settled(self.stamp())

    def archival_since(self, mark: str | None) -> Tail:
        data = self._data()
        known = _Prefix.of(mark)
        digest = _digest(data, known.end)
        if known.end and digest.hexdigest() == known.digest:
            # From the line end above, so that a byte order mark at the start of the line makes no heading of it.
            following = scan((data[known.start - 1 :],)).headings
            body = known.start, known.start - 1 + following[0].start if following else len(data)
        else:
            known, digest = _Prefix(), _digest(data, 0)
            body = scan((data,)).body(Scope.ARCHIVAL) or (0, 0)
        places = list(spans(data, *body))
        entries = [Entry(decode(data[place.start : place.end])) for place in places]
        if any("\ufffd" in entry.raw for entry in entries):
            self._warn_of_invalid(data)
        if not places:
            return Tail(known.before, entries, None)
        digest.update(memoryview(data)[known.end :])
        now = _Prefix(known.before + len(places) - 1, places[-1].start, len(data), digest.hexdigest())
        return Tail(known.before, entries, " ".join(map(str, now)))

    def read(self, *, retired: bool = False) -> Snapshot:
        document = MemoryDocument(self._data())
        self._warn_of_invalid(document.data)
        return _with_retired(document, self._paths().retired)[0] if retired else live_snapshot(document)

    def add(self, entries: Sequence[Entry]) -> None:
        self.workspace.create_agent(self.agent)
        paths = self._paths()
        with self._lock(paths) as lock:
            if self._may_be_retired(paths, entries):
                _Rewrite(self, lock, paths, lambda _: Change(add=tuple(entries))).run()
            else:
                journal = Journal(lock.path)
                _append(lock, paths, entries, partial(journal.found, held=partial(_held_of, paths)))
                journal.added(entries, partial(_held_of, paths))

    def _may_be_retired(self, paths: "_Paths", entries: Sequence[Entry]) -> bool:
        """Whether a line to add may stand in the retired file, which then needs a record of it. Many are not looked for
        one by one: the rewrite, which takes the whole file apart once, will tell.
        """
        if len(entries) > 50:
            return paths.retired.exists()
        # The first lines: a record has its marker behind that.
        return files.contains(paths.retired, [entry.text.partition("\n")[0].encode() for entry in entries])

    def edit(self, plan: Plan, *, dry_run: bool = False) -> Change:
        if dry_run or not self.workspace.has_agent(self.agent):
            change = plan(self.read(retired=True))
            if dry_run or not change:
                return change
            self.workspace.create_agent(self.agent)
        paths = self._paths()
        with self._lock(paths) as lock:
            return _Rewrite(self, lock, paths, plan).run()

    def lost(self) -> list[Line]:
        paths = self._paths()
        journal = Journal(self.workspace.lock_file(paths.memory))
        if not journal.read()[0] or not journal.lost(_held(paths)):
            return []
        with self._lock(paths):  # a change may have been half-way
            return journal.lost(_held(paths))

    def recover(self, reference: str | None = None, *, among: Collection[Line] | None = None) -> Change:
        paths = self._paths()
        with self._lock(paths) as lock:
            journal = Journal(lock.path)

            def plan(now: Snapshot) -> Change:
                lines = journal.lost(now.texts())
                lost = [Entry(line.text, line.scope) for line in lines if among is None or line in among]
                if reference is not None:
                    lost = [find([Copy(n, entry) for n, entry in enumerate(lost)], reference)[-1].entry]
                if not lost:
                    raise NothingFound("nothing is lost")
                return Change(recover=tuple(lost))

            return _Rewrite(self, lock, paths, plan).run()

    def settle(self) -> list[Line]:
        """Take the lost lines for settled, so that they are not named again; gives them."""
        paths = self._paths()
        with self._lock(paths) as lock:
            journal, held = Journal(lock.path), _held(paths)
            gone = journal.lost(held)
            journal.forget({line.text: held[line.text] for line in gone})
            return gone

    def mend(self, make: Callable[[bytes], bytes]) -> bool:
        """Give MEMORY.md the bytes that `make` gives for its bytes; whether they differ."""
        paths = self._paths()
        with self._lock(paths) as lock:
            before = files.read(paths.memory)
            files.replace(lock, paths.memory, make)
            return files.read(paths.memory) != before

    def record_returned(self) -> int:
        """Record the retired lines that came back without a record, and say how many: what stands in MEMORY.md is
        live.
        """
        paths = self._paths()
        with self._lock(paths) as lock:
            records = parse(files.read(paths.retired) or b"")
            live = live_snapshot(MemoryDocument(files.read(paths.memory) or b"")).texts()
            now = self.clock()
            back = [Deed(item.entry, item.stored, -1) for item in came_back(records, live)]
            if back:
                run = new_run(now, {item.run for item in records})
                append_records(lock, paths.retired, records_of_change(back, live, now, run))
            return len(back)

    def fill(self, spool: "Spool") -> Iterator[list["Lacking"]]:
        from oryx_memory.stores.spool import BATCH

        if not spool.total:
            return
        self.workspace.create_agent(self.agent)
        paths = self._paths()
        with self._lock(paths) as lock:
            spool.hold(self.stream())
            again = unsaid(self.clock())
            for batch in spool.batches():
                new = [item.entry for item in batch if item.entry.retired is None]
                if new:
                    files.refuse_unsafe(paths.memory)
                if out := [made for item in batch for made in records_of(item, again)]:
                    append_records(lock, paths.retired, out)
                journal = Journal(lock.path)
                _append(lock, paths, new, partial(journal.found, held=partial(_held_of, paths)))
                if spool.total <= BATCH:  # the source of more is proof enough, and the journal has no room for it
                    journal.added(new, partial(_held_of, paths))
                yield batch

    def stream(self) -> Iterator[Entry]:
        yield from self._live()
        if retired := files.read(self._paths().retired):
            from oryx_memory.stores.spool import still_out

            for item in still_out(retired, self._live()):
                yield item.entry

    def _live(self) -> Iterator[Entry]:
        with files.reader(self._paths().memory) as chunks:
            layout = scan(chunks())
            if layout.conflict:
                files.warn_of_conflict(self.path)
            for scope in Scope:
                for entry in streamed(chunks(*(layout.body(scope) or (0, 0))), scope):
                    if "\ufffd" in entry.raw:
                        self._warn_of_invalid(self._data())
                    yield entry

    def recall_by_keyword(self, keyword: str) -> list[Entry]:
        wanted = Keyword(keyword)
        data = self._data()
        body = scan((data,)).body(Scope.ARCHIVAL) or (0, 0)
        hits: list[Entry] = []
        done = 0
        for at, _ in wanted.lines(data, *body):
            place = around(data, at, *body) if at >= done else None
            if place:
                entry = Entry(decode(data[place.start : place.end]))
                if wanted.matches(entry.text):
                    hits.append(entry)
                done = place.end
        self._warn_of_invalid(b"" if all("\ufffd" not in hit.raw for hit in hits) else data)
        return hits

    def load(self, *, max_chars: int | None = MAX_CHARS) -> Memory:
        document = MemoryDocument(self._data())
        data = document.data
        body = document.layout.body(Scope.ARCHIVAL) or (0, 0)
        starts: list[int] = []

        def newest_first() -> Iterator[Entry]:
            for place in backwards(data, *body):
                starts.append(place.start)
                yield document.entry(place, Scope.ARCHIVAL)

        memory = load(document.entries(Scope.CORE), newest_first(), 0, max_chars)
        if "\ufffd" in str(memory):
            self._warn_of_invalid(data)
        if shown := len(memory.window):
            memory = replace(memory, outside=sum(1 for _ in spans(data, body[0], starts[shown - 1])))
        return memory

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        with self._lock(self._paths()):
            yield

    def load_as_oryxos(self) -> str:
        return oryxos_text(self._data().decode(errors="replace"))

    def _paths(self) -> "_Paths":
        memory = files.resolve(self.path, self.workspace.root)
        retired = memory.with_name(f"{memory.stem}.retired{memory.suffix}")
        return _Paths(memory, files.resolve(retired, self.workspace.root) if retired.is_symlink() else retired)

    def _lock(self, paths: "_Paths") -> files.Lock:
        return files.Lock(self.workspace.lock_file(paths.memory), paths, self.lock_timeout)

    def _data(self) -> bytes:
        data = files.read(files.resolve(self.path, self.workspace.root)) or b""
        if b"<<<<<<< " in data and scan((data,)).conflict:
            files.warn_of_conflict(self.path)
        return data

    def _warn_of_invalid(self, data: bytes) -> None:
        try:
            data.decode()
        except UnicodeDecodeError as error:
            line = 1 + len(re.findall(rb"\r\n|\r|\n", data[: error.start]))
            warnings.warn(
                OryxMemoryWarning(f"{self.path}:{line}: invalid UTF-8, shown as \ufffd; the file keeps its bytes"),
                stacklevel=3,
            )


def _with_retired(
    document: MemoryDocument, retired_path: Path, *, before: str = ""
) -> tuple[Snapshot, list[Record], list[Record]]:
    """As `with_retired`, of a file."""
    return with_retired(document, files.read(retired_path) or b"", before=before)


class _Paths(NamedTuple):
    """A memory's two files, links followed."""

    memory: Path
    retired: Path


class _Prefix(NamedTuple):
    """A file as it was up to its `end`, by the digest of these bytes; its last archival entry, which lines may have
    been added to since, began at the offset `start`, behind `before` others.
    """

    before: int = 0
    start: int = 0
    end: int = 0
    digest: str = ""

    @classmethod
    def of(cls, mark: str | None) -> "_Prefix":
        before, start, end, digest = mark.split(" ") if mark else ("0", "0", "0", "")
        return cls(int(before), int(start), int(end), digest)


def _digest(data: bytes, end: int) -> "blake2b":
    from hashlib import blake2b  # loads OpenSSL: not on the way of append, load and keyword recall

    return blake2b(memoryview(data)[:end], digest_size=16)


class _Rewrite:
    """One edit of a memory under its lock: plan, records, MEMORY.md, and what comes after it.

    The plan is made again where a program without the lock changed the file meanwhile; records that an earlier round
    has written are not written twice.
    """

    def __init__(self, store: MarkdownStore, lock: files.Lock, paths: _Paths, plan: Plan) -> None:
        self.store = store
        self.lock = lock
        self.paths = paths
        self.plan = plan
        self.journal = Journal(lock.path)
        self.now = store.clock()
        self.run_id = ""  # of all rounds
        self.change = Change()
        self.recorded: Counter[tuple[str, int, str]] = Counter()  # of each text, `out` and reason
        self.restored: list[tuple[Entry, bytes, int]] = []  # entry, its stored bytes, blank lines above
        self.copies: Counter[str] = Counter()  # of each text, live, after the change
        self.still_out: Counter[str] = Counter()  # of each text, retired, before it
        self.drop: set[str] = set()  # texts whose records go
        self.left: dict[str, list[tuple[Entry, bytes, bytes]]] = {}  # by text: what leaves, its bytes, its record
        self.seen = ""  # the stamp of the retired file as we left it
        self.disturbed = False  # whether another program put another retired file there

    def run(self) -> Change:
        """Do it all; the change as it was applied, with its run."""
        files.replace(self.lock, self.paths.memory, self._new_content)
        change = self.change
        self._look_at_retired()
        if self.disturbed:
            self._set_right()
        if change.add and not _rewrites(change):
            _append(self.lock, self.paths, change.add)
        back = [*(copy.entry for copy in change.restore), *change.recover]
        back += [Entry(item.copy.entry.raw, item.to) for item in change.move]
        if new := [*change.add, *(item.new for item in change.edit), *back]:
            self.journal.added(new, partial(_held_of, self.paths), self._known_beside(back))
        if change.restore:
            self._write_records([Deed(entry, stored, -1) for entry, stored, _ in self.restored])
        if self.drop:
            files.replace(self.lock, self.paths.retired, partial(without, frozenset(self.drop)))
        return change

    def _known_beside(self, back: Sequence[Entry]) -> dict[str, int]:
        """How many older records the journal may keep of each text that came back or moved: these get fresh ones, as old ones
        may be dropped any time and name the old section.
        """
        restored = Counter(copy.entry.text for copy in self.change.restore)
        returning = Counter(entry.text for entry in back)
        held = {text: self.copies[text] + self.still_out[text] - restored[text] for text in returning}
        return {text: max(0, held[text] - count) for text, count in returning.items()}

    def _look_at_retired(self) -> None:
        """Notice where the retired file is not as we left it."""
        stamp = files.stamp(self.paths.retired)
        self.disturbed = self.disturbed or (self.seen not in ("", stamp))
        self.seen = stamp

    def _set_right(self) -> None:
        """After git, say, put another version of the retired file there while we were at work: what we retired has its
        record, and is out once more than it was, whatever that version says.
        """
        records = parse(files.read(self.paths.retired) or b"")
        live = live_snapshot(MemoryDocument(files.read(self.paths.memory) or b"")).texts()
        ours = Counter(item.entry.text for item in records if item.run == self.run_id and item.out > 0)
        found = Counter(item.entry.text for item in outstanding(records, live))
        new: list[bytes] = []
        for text, left in self.left.items():
            excess = found[text] - self.still_out[text] - len(left)
            if ours[text] < len(left):
                new += [made for _, _, made in left[ours[text] :]]
            elif live[text] == self.copies[text]:  # nobody has brought it back meanwhile
                back = [Deed(entry, stored, -1) for entry, stored, _ in left[: max(0, excess)]]
                new += records_of_change(back, live, self.now, self.run_id)
        if new:
            append_records(self.lock, self.paths.retired, new)

    def _new_content(self, data: bytes) -> bytes:
        self._look_at_retired()
        document = MemoryDocument(data)
        if document.layout.conflict:
            files.warn_of_conflict(self.store.path)
        # Records of an earlier round of this edit say what was not done: they would hide what the others say.
        snapshot, out, records = _with_retired(document, self.paths.retired, before=self.run_id)
        change = self.plan(snapshot)
        if not change:
            self.change = change
            return data
        self.run_id = self.run_id or new_run(self.now, {item.run for item in records})
        self.change = change = replace(change, run=self.run_id)
        self.copies = copies_after(snapshot, change)
        self.restored = [(copy.entry, out[copy.at].stored, out[copy.at].gap) for copy in change.restore]
        self.still_out = Counter(item.entry.text for item in out)
        self.drop = doomed(change, self.still_out)
        places = _Places(document)
        deeds = list(self._deeds(document, places, change))
        if change.add or _rewrites(change):
            files.refuse_unsafe(self.paths.memory)
        if deeds or self.restored or self.drop.intersection(item.entry.text for item in records):
            files.refuse_unsafe(self.paths.retired)
        if change.purge:
            texts = {copy.entry.text for copy in change.purge}
            out_after = self.still_out + leaving(change)
            self.journal.forget({text: self.copies[text] + out_after[text] * (text not in self.drop) for text in texts})
        if change.add:
            self.store.workspace.create_agent(self.store.agent)
        self.left.clear()
        for (entry, stored, kind, *_), made in zip(deeds, self._write_records(deeds), strict=True):
            if kind > 0:
                self.left.setdefault(entry.text, []).append((entry, stored, made))
        return self._rewritten(document, places, change) if _rewrites(change) else data

    def _deeds(self, document: MemoryDocument, places: "_Places", change: Change) -> Iterator[Deed]:
        leaving = [(item.copy, item.reason) for item in change.retire] + [(item.copy, "edited") for item in change.edit]
        for copy, reason in leaving:
            place = places[copy]
            gap = document.blank_lines_above(place, copy.entry.scope)
            yield Deed(copy.entry, document.data[place.start : place.end], 1, reason, gap)
        for entry in (*change.add, *change.recover, *(item.new for item in change.edit)):
            if self.still_out[entry.text]:
                yield Deed(entry, piece(entry, b"\n"), 0)

    def _write_records(self, deeds: Sequence[Deed]) -> list[bytes]:
        """Write the records of these deeds, without those that an earlier round has written; gives all of them."""
        before = self.recorded.copy()
        new = []
        records = records_of_change(deeds, self.copies, self.now, self.run_id)
        for deed, made in zip(deeds, records, strict=True):
            key = deed.entry.text, deed.out, deed.reason
            if before[key] > 0:
                before[key] -= 1
            else:
                self.recorded[key] += 1
                new.append(made)
        if new:
            append_records(self.lock, self.paths.retired, new)
            left, self.seen = self.seen, files.stamp(self.paths.retired)
            self.disturbed = self.disturbed or not _grew(left, self.seen, sum(map(len, new)))
        return records

    def _rewritten(self, document: MemoryDocument, places: "_Places", change: Change) -> bytes:
        gone = [item.copy for item in change.retire] + [item.copy for item in change.move]
        gone += [copy for copy in change.purge if copy.entry.retired is None]
        splices = [Splice(*places[copy], b"") for copy in gone]
        for item in change.edit:
            place = places[item.copy]
            old = document.data[place.start : place.end]
            line_end = old[len(old.rstrip(b"\r\n")) :]
            splices.append(Splice(*place, piece(item.new, document.layout.newline).rstrip(b"\r\n") + line_end))
        moved = [(item.to, document.whole_lines(places[item.copy])) for item in change.move]
        document = MemoryDocument(document.spliced(splices))
        for scope in Scope:
            pieces = [lines for to, lines in moved if to is scope]
            pieces += [document.piece(new) for new in change.add if new.scope is scope]
            if pieces:
                document = MemoryDocument(document.spliced([document.addition(scope, pieces)]))
            recovered = [(entry, document.piece(entry), 0) for entry in change.recover]
            if back := [item for item in (*self.restored, *recovered) if item[0].scope is scope]:
                document = MemoryDocument(document.spliced(document.restoration(scope, back)))
        return document.data


class _Places:
    """Where the live copies of a plan stand in the document that the plan was made for."""

    def __init__(self, document: MemoryDocument) -> None:
        self._document = document
        self._sections: dict[Scope, list[Located]] = {}

    def __getitem__(self, copy: Copy) -> Located:
        scope = copy.entry.scope
        if scope not in self._sections:
            self._sections[scope] = list(self._document.located(scope))
        return self._sections[scope][copy.at]


def _held(paths: _Paths) -> Counter[str]:
    """How often each text is in a memory, live and retired counted together."""
    return _with_retired(MemoryDocument(files.read(paths.memory) or b""), paths.retired)[0].texts()


def _held_of(paths: _Paths, wanted: Mapping[str, int]) -> Copies:
    """How often each text is in a memory; where every one stands there as a line as often as it is wanted, the count of
    lines: a tenth of the time, on the way of an append.
    """
    data = files.read(paths.memory) or b""
    lines = Counter(data.decode(errors="replace").replace("\r", "\n").split("\n"))
    if all(lines[text] >= count for text, count in wanted.items()):
        return Copies(lines, lines)
    document = MemoryDocument(data)
    return Copies(_with_retired(document, paths.retired)[0].texts(), live_snapshot(document).texts())


def _append(
    lock: files.Lock, paths: _Paths, entries: Sequence[Entry], found: Callable[[str], None] = lambda _: None
) -> None:
    """Add live entries to MEMORY.md, whose lock is held."""
    path = paths.memory
    for scope in Scope:
        new = [entry for entry in entries if entry.scope is scope]
        if any(entry.raw[:1] in BLANKS for entry in new):  # would join the line above: needs a look at the file
            files.replace(lock, path, partial(_added, scope, partial(_pieces, new)))
        elif new and (left := files.append(lock, path, partial(_pieces, new), partial(_tail, scope), found)):
            files.replace(lock, path, partial(_added, scope, partial(given, left)))


def _grew(before: str, after: str, size: int) -> bool:
    """Whether a file with one stamp became the one with the other by an append of that size and a line end."""
    if before == "-":
        return after.split(":")[2:3] == [str(size)]
    old, new = before.split(":"), after.split(":")
    return old[:2] == new[:2] and 0 <= int(new[2]) - int(old[2]) - size <= 2


def _rewrites(change: Change) -> bool:
    """Whether a change needs more than appending lines to MEMORY.md."""
    live_purge = any(copy.entry.retired is None for copy in change.purge)
    return bool(change.edit or change.move or change.retire or change.restore or change.recover or live_purge)


def _pieces(entries: Sequence[Entry], newline: bytes) -> list[bytes]:
    return [piece(entry, newline) for entry in entries]


def _tail(scope: Scope, layout: Layout, lines: bytes) -> bytes | None:
    return layout.tail(scope, lines)


def _added(scope: Scope, pieces: Callable[[bytes], Sequence[bytes]], data: bytes) -> bytes:
    document = MemoryDocument(data)
    return document.spliced([document.addition(scope, pieces(document.layout.newline))])
