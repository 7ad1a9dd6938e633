"""The mem0 backend: entries on a self-hosted mem0 server, what was retired in a local file.

A memory of the server is believed to be the entry whose exact line stands in its metadata as long as its text agrees with
that line; any other one is archival, and its line is formed from its text and time. Each entry has a number of its own
(`oryx_copy`): where the server has it twice, after an answer that was lost or a change that was killed, the one that was
written last is the entry, and so everything is there once. What the server has is live, whatever the retired file says.

The retired file is not the one of the markdown backend: its records count the copies that are live here, not in MEMORY.md.
"""

import re
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, tzinfo
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from oryx_memory import files
from oryx_memory.changes import Change, Copy, Plan, Snapshot, new_run
from oryx_memory.document import piece
from oryx_memory.entry import BLANKS, Entry, Scope, encodable, formed
from oryx_memory.errors import FileProblem, OryxMemoryWarning, RejectedInput, ServiceProblem, SettingsError
from oryx_memory.matching import Keyword
from oryx_memory.remote import Pace, key_in
from oryx_memory.retired import Record, outstanding, parse
from oryx_memory.stores.base import GLOBAL, Clock, Found, LongTermMemoryStore, RecallCapability
from oryx_memory.stores.records import (
    Deed,
    append_records,
    copies_after,
    doomed,
    records_of,
    records_of_change,
    unsaid,
    without,
)
from oryx_memory.stores.rest import PAGE, Held, Server
from oryx_memory.workspace import Workspace

if TYPE_CHECKING:
    from oryx_memory.stores.spool import Lacking, Spool

_DIGITS = 20  # of a number of nanoseconds since 1970, as a text that sorts like it
_INFERRED = "[mem0] infer is on: mem0 rewrites new archival entries, and may drop them; their lines are not kept"


class _Row(NamedTuple):
    """An entry on the server. Rows stand in order of `order`; `written` tells the newer of two with one `copy`."""

    id: str
    entry: Entry
    order: str
    copy: str
    written: str


class _Rows(NamedTuple):
    """What the server has: the entries of each section in order, and the ids of rows that newer ones stand for."""

    live: Mapping[Scope, list[_Row]]
    stale: list[str]
    total: int

    def snapshot(self) -> Snapshot:
        core, archival = (tuple(row.entry for row in self.live[scope]) for scope in (Scope.CORE, Scope.ARCHIVAL))
        return Snapshot(core, archival)


class Mem0MemoryStore(LongTermMemoryStore):
    """One agent's memories on a mem0 server. `options` is the checked table `[mem0]`, `zone` what times of the server
    become local in (None: the system's). Raises SettingsError, and RejectedInput for a name that cannot be.
    """

    recall_capability = RecallCapability.DELEGATED

    def __init__(
        self,
        workspace: Workspace,
        agent: str | None,
        clock: Clock,
        options: Mapping[str, Any],
        environment: Mapping[str, str],
        *,
        zone: tzinfo | None = None,
        lock_timeout: float = 10.0,
        pace: Pace | None = None,
    ) -> None:
        super().__init__(agent, clock)
        if agent == GLOBAL:
            raise RejectedInput(f"not an agent's name: {agent!r} stands for no agent on the server; leave it out")
        self.workspace = workspace
        self._path = workspace.memory_file(agent).parent / "mem0" / "MEMORY.retired.md"
        self.zone = zone
        self.lock_timeout = lock_timeout
        self.infer = bool(options["infer"])
        self.verbatim = not self.infer
        self.server = _server(options, environment, pace or Pace())
        self.user = f"{options['user_id']}:{agent or GLOBAL}"

    @property
    def retired_path(self) -> Path:
        """The file of what was retired here, links followed; it may be absent."""
        return files.resolve(self._path, self.workspace.root)

    @property
    def resource(self) -> str:
        return str(self.workspace.lock_file(self.retired_path))

    def stamp(self) -> None:
        """The server does not tell whether something changed."""

    def has_memories(self) -> bool:
        """Whether the server has anything of this agent."""
        return self.server.has_memories(self.user)

    def read(self, *, retired: bool = False) -> Snapshot:
        now = self._rows().snapshot()
        return self._with_retired(now)[0] if retired else now

    def add(self, entries: Sequence[Entry]) -> None:
        # A look at the server first: a full page could never be listed again, and an equal line may be retired.
        self.edit(lambda _: Change(add=tuple(entries)))

    def edit(self, plan: Plan, *, dry_run: bool = False) -> Change:
        if dry_run:
            return plan(self.read(retired=True))
        with self._lock() as lock:
            return _Work(self, lock).run(plan)

    def fill(self, spool: "Spool") -> Iterator[list["Lacking"]]:
        if not spool.total:
            return
        with self._lock() as lock:
            spool.hold(self.stream())
            work = _Work(self, lock)
            again = unsaid(self.clock())
            for batch in spool.batches():
                new = [item.entry for item in batch if item.entry.retired is None]
                work.make_room(len(new))
                if out := [made for item in batch for made in records_of(item, again)]:
                    work.write(out)
                work.post_all(new, infer=False)  # a copy is a copy
                yield batch
            self.workspace.create_agent(self.agent)

    def scored(self, query: str, *, limit: int, least: float = 0.0) -> list[Found]:
        from oryx_memory.ranking import is_footprint

        Keyword(query)  # refuses a blank one
        asked = min(PAGE, 2 * limit + 20)  # core and footprints are among them
        best: dict[str, Found] = {}
        for held in self.server.search(query, self.user, limit=asked, least=min(least, 1.0)):
            row = self._row(held) if self._is_ours(held, sure=True) else None
            if (
                row
                and row.entry.scope is Scope.ARCHIVAL
                and held.score >= least
                and not is_footprint(row.entry.content)
            ):
                best.setdefault(row.copy, Found(row.entry, held.score))
        return list(best.values())[:limit]

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        with self._lock():
            yield

    def load_as_oryxos(self) -> str:
        raise RejectedInput("what OryxOS gives a model from a mem0 server depends on its own search; leave out --as")

    def _lock(self) -> files.Lock:
        path = self.retired_path
        return files.Lock(self.workspace.lock_file(path), (path,), self.lock_timeout)

    def _with_retired(self, now: Snapshot) -> tuple[Snapshot, list[Record], list[Record]]:
        """The memory with what is still out, the records of these, and all records."""
        records = parse(files.read(self.retired_path) or b"")
        out = outstanding(records, now.texts())
        return replace(now, retired=tuple(item.entry for item in out)), out, records

    def _rows(self) -> _Rows:
        found = [held for held in self.server.memories(self.user) if self._is_ours(held)]
        rows = [row for held in found if (row := self._row(held))]
        newest: dict[str, _Row] = {}
        for row in sorted(rows, key=lambda row: (row.written, row.id)):
            newest[row.copy] = row
        stale = [row.id for row in rows if newest[row.copy].id != row.id]
        ordered = sorted(newest.values(), key=lambda row: (row.order, row.id))
        live = {scope: [row for row in ordered if row.entry.scope is scope] for scope in Scope}
        return _Rows(live, stale, len(found))

    def _is_ours(self, held: Held, *, sure: bool = False) -> bool:
        """Whether a memory is this agent's: filters of the server have let others through. `sure`: it must say so."""
        said = {user for user in (held.user, held.metadata.get("oryx_user")) if user}
        return said == {self.user} if sure or said else True

    def _row(self, held: Held) -> _Row | None:
        """The entry that a memory is; None for one without text, which stays there and is not shown."""
        meta = held.metadata
        made = _moment(held.created_at)
        given, memory = meta.get("oryx_line"), encodable(held.memory)
        line = encodable(given) if isinstance(given, str) else None
        scope = Scope.CORE if meta.get("oryx_scope") == Scope.CORE else Scope.ARCHIVAL
        if line is None or not _is_line_of(line, memory):
            content = memory.strip(BLANKS)
            if not content:
                return None
            line = formed(content, self._local(made) if line is None else Entry(line).time)
        order = _digits(meta.get("oryx_order")) or _number(max(0.0, made.timestamp() * 1e9) if made else 0)
        written = _digits(meta.get("oryx_written")) or order
        return _Row(held.id, Entry(line, scope), order, encodable(str(meta.get("oryx_copy") or held.id)), written)

    def _local(self, moment: datetime | None) -> datetime | None:
        try:
            return moment.astimezone(self.zone) if moment else None
        except (ValueError, OverflowError, OSError):  # the first and last days of the calendar
            return None


class _Work:
    """One change of a memory under its lock: the records, what is new, what leaves, and what comes after it."""

    def __init__(self, store: Mem0MemoryStore, lock: files.Lock) -> None:
        self.store = store
        self.lock = lock
        self.rows = store._rows()
        self.total = self.rows.total
        numbers = (number for rows in self.rows.live.values() for row in rows for number in (row.order, row.written))
        self.last = max((int(number[:_DIGITS].ljust(_DIGITS, "0")) for number in numbers), default=0)

    def run(self, plan: Plan) -> Change:
        """Call the plan, and do what it says; the change as it was applied, with its run."""
        now, out, records = self.store._with_retired(self.rows.snapshot())
        change = plan(now)
        if not change:
            return change
        change = replace(change, run=new_run(self.store.clock(), {item.run for item in records}))
        for entry in (*change.add, *(item.new for item in change.edit)):
            piece(entry, b"\n")  # refuses what no retired file could hold
        self.make_room(len(change.add) + len(change.edit) + len(change.move) + len(change.restore))
        copies = copies_after(now, change)
        still_out = Counter(item.entry.text for item in out)
        moment = self.store.clock()
        self.write(records_of_change(list(_deeds(change, still_out)), copies, moment, change.run))
        gone = [item.copy for item in change.retire] + [item.copy for item in change.edit]
        gone += [item.copy for item in change.move]
        gone += [copy for copy in change.purge if not copy.entry.retired]
        ids = [self._at(copy).id for copy in gone] + self.rows.stale
        self._post(change)
        for id in ids:
            self._delete(id)
        back = [Deed(copy.entry, out[copy.at].stored, -1) for copy in change.restore]
        self.write(records_of_change(back, copies, moment, change.run))
        if drop := doomed(change, still_out):
            files.replace(self.lock, self.store.retired_path, partial(without, frozenset(drop)))
        return change

    def make_room(self, count: int) -> None:
        """Raises ServiceProblem where so many more rows would fill the page that the server lists."""
        self.total += count
        if count and self.total >= PAGE:
            raise self.store.server.fault(
                f"has {self.total - count:,} memories of {self.store.user} and lists less than {PAGE:,} of them for sure, so "
                f"{count:,} more would be out of sight; retire some first: oryx memory clean --keep-entries N"
            )

    def write(self, records: Sequence[bytes]) -> None:
        """Add records to the retired file."""
        if records:
            path = self.store.retired_path
            try:
                files.make_folder(path.parent)
            except OSError as error:
                raise FileProblem(path.parent, f"cannot be made: {str(error.strerror).lower()}") from error
            append_records(self.lock, path, records)

    def post_all(self, entries: Sequence[Entry], *, infer: bool) -> None:
        """Add new entries at the end of their sections."""
        for done, entry in enumerate(entries):
            try:
                # A key is a promise that this entry is found again, which a rewriting does not keep.
                if infer and entry.scope is Scope.ARCHIVAL and entry.key is None:
                    self._give_away(entry)
                else:
                    self.post(entry, uuid4().hex, self.number())
            except ServiceProblem as error:
                if len(entries) == 1:
                    raise
                said = str(error).removeprefix(f"{error.service}: ")
                message = f"{said}; {done:,} of {len(entries):,} entries were stored before"
                raise ServiceProblem(error.service, message, heals=error.heals) from None

    def post(self, entry: Entry, copy: str, order: str) -> None:
        """Put an entry on the server, word for word."""
        store, text = self.store, _sent(entry)
        written = self.number()
        time = entry.time
        metadata = {
            "oryx_line": entry.raw,
            "oryx_scope": entry.scope.value,
            "oryx_time": time.isoformat(timespec="seconds") if time else None,
            "oryx_copy": copy,
            "oryx_order": order,
            "oryx_written": written,
            "oryx_user": store.user,
        }
        mine = copy, written
        found = store.server.add(
            text,
            store.user,
            metadata,
            infer=False,
            arrived=lambda held: (held.metadata.get("oryx_copy"), held.metadata.get("oryx_written")) == mine,
        )
        if not any(held.memory == text for held in found):
            for held in found:
                self._delete(held.id)
            raise store.server.fault(
                "did not store an entry word for word; it needs a version that takes infer = false"
            )

    def number(self) -> str:
        """A number over all that are there: nanoseconds since 1970, if the clocks of all writers are right."""
        self.last = min(max(time.time_ns(), self.last + 1), 10**_DIGITS - 1)  # a longer one would sort before others
        return _number(self.last)

    def _post(self, change: Change) -> None:
        """All that becomes new rows. What they stand for leaves afterwards."""
        for edit in change.edit:
            old = self._at(edit.copy)
            self.post(edit.new, old.copy, old.order)
        for move in change.move:
            self.post(Entry(move.copy.entry.raw, move.to), self._at(move.copy).copy, self.number())
        for copy in change.restore:
            entry = Entry(copy.entry.raw, copy.entry.scope)
            order = self._place(entry)
            self.post(entry, uuid4().hex, order)
        if self.store.infer and change.add:
            warnings.warn(OryxMemoryWarning(_INFERRED), stacklevel=5)
        self.post_all(change.add, infer=self.store.infer)
        if change.add:
            self.store.workspace.create_agent(self.store.agent)

    def _give_away(self, entry: Entry) -> None:
        """Let mem0 make of an entry what it will."""
        store, message = self.store, uuid4().hex
        metadata = {"oryx_scope": entry.scope.value, "oryx_user": store.user, "oryx_message": message}
        kept = store.server.add(
            _sent(entry),
            store.user,
            metadata,
            infer=True,
            arrived=lambda held: held.metadata.get("oryx_message") == message,
        )
        if not kept:
            warnings.warn(OryxMemoryWarning(f"{entry.id}: mem0 kept nothing of it"), stacklevel=6)

    def _at(self, copy: Copy) -> _Row:
        return self.rows.live[copy.entry.scope][copy.at]

    def _place(self, entry: Entry) -> str:
        """The order of an entry that comes back: behind the last timed one that is not newer; without a time, last. It
        joins the rows, so that what comes back next finds it there.
        """
        rows = self.rows.live[entry.scope]
        times = [row.entry.time for row in rows]
        if entry.time is None:
            at = len(rows)
        else:
            older = [n for n, time in enumerate(times, 1) if time is not None and time <= entry.time]
            timed = (n for n, time in enumerate(times) if time is not None)
            at = older[-1] if older else next(timed, len(rows))
        order = self.number() if at == len(rows) else between(rows[at - 1].order if at else "", rows[at].order)
        rows.insert(at, _Row("", entry, order, "", ""))
        return order

    def _delete(self, id: str) -> None:
        try:
            self.store.server.delete(id)
        except ServiceProblem:
            if any(held.id == id for held in self.store.server.memories(self.store.user)):
                raise


def _deeds(change: Change, still_out: Counter[str]) -> Iterator[Deed]:
    """What a change records before it is made; `still_out` counts the copies of each text that are out."""
    leaving = [(item.copy, item.reason) for item in change.retire] + [(item.copy, "edited") for item in change.edit]
    for (_, entry), reason in leaving:
        yield Deed(entry, piece(entry, b"\n"), 1, reason)
    for entry in (*change.add, *(item.new for item in change.edit)):
        if still_out[entry.text]:
            yield Deed(entry, piece(entry, b"\n"), 0)


def between(low: str, high: str) -> str:
    """A text of digits that sorts behind `low` and before `high`, which are read as decimal fractions; one that is equal
    to them in worth where they are equal to each other.
    """
    width = max(len(low), len(high)) + 1
    return str((int(low.ljust(width, "0")) + int(high.ljust(width, "0"))) // 2).zfill(width)


def _server(options: Mapping[str, Any], environment: Mapping[str, str], pace: Pace) -> Server:
    for name in ("base_url", "user_id"):
        if not options[name]:
            raise SettingsError(
                f'the backend mem0 needs mem0.{name}; it counts from your own settings file: [mem0] {name} = "…"'
            )
    if find_spec("httpx") is None:
        raise SettingsError("the backend mem0 needs the package httpx: run pip install 'oryx-memory[mem0]'")
    key = key_in(options["api_key_env"], "the backend mem0", environment)
    return Server(options["base_url"], variable=options["api_key_env"], key=key, timeout=options["timeout"], pace=pace)


def _sent(entry: Entry) -> str:
    """What the server is given of an entry: its content, which it can make a vector of, if there is any."""
    return entry.content or entry.text


def _is_line_of(line: str, memory: str) -> bool:
    """Whether a line is that of a memory, and the line of an entry at all."""
    entry = Entry(line)
    try:
        piece(entry, b"\n")
    except RejectedInput:
        return False
    return bool(entry.text) and _sent(entry) == memory


def _digits(value: object) -> str:
    return value if isinstance(value, str) and re.fullmatch("[0-9]{1,400}", value) else ""


def _number(nanoseconds: float) -> str:
    return str(int(nanoseconds)).zfill(_DIGITS)


def _moment(text: str) -> datetime | None:
    """A time of the server, which is UTC where it does not say."""
    from datetime import UTC

    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
