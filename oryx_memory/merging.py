"""Merging two versions of MEMORY.md, or of MEMORY.retired.md, entry by entry: what git's merge driver does.

The law, for each text, counted over both sections: as often as in the base, less what the side that took out more took
out, plus what the side that added more added. So an edit (old text gone, new text there) beats a removal, and a
removal beats a move. Records of a retired file are never taken out, but for a text that one side purged.

The outcome does not depend on which side is ours, conflicts in hand-written text aside: a criss-cross merge gives both
branches the same bytes. A merge is looked at before it is given; one that misses the law is left to a merge of text.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from typing import NamedTuple, TypeVar

from oryx_memory.document import BOM, Heading, Layout, MemoryDocument, decode, scan
from oryx_memory.entry import BLANKS, Entry, Scope
from oryx_memory.retired import Record, records

MergeText = Callable[[bytes, bytes, bytes], tuple[bytes, int]]

_LINE_END = re.compile(rb"\r\n|\r|\n")
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_T = TypeVar("_T")
_K = TypeVar("_K", bound=Hashable)
_Rank = tuple[datetime, str, str]
_Key = tuple[str, int]  # a text, and which of its copies


class Merged(NamedTuple):
    """The bytes of a merge, and how many conflicts are marked in them."""

    data: bytes
    conflicts: int


def merge_memory(base: bytes, ours: bytes, theirs: bytes, merge_text: MergeText) -> Merged:
    """Two versions of a MEMORY.md that come from `base`, merged.

    `merge_text(base, ours, theirs)` gives merged bytes and the number of conflicts marked in them. It is given what
    stands above the sections where both sides changed it, and whole files whose sections cannot be told: no heading
    or a doubled one, another order of sections, conflict markers.
    """
    if theirs in (ours, base):
        return Merged(ours, 0)
    if ours == base:
        return Merged(theirs, 0)
    return _by_entries(base, ours, theirs, merge_text) or Merged(*merge_text(base, ours, theirs))


def unmerged(ours: bytes, theirs: bytes, marker_size: int) -> bytes:
    """Both versions, one above the other between conflict markers: for what no merge of text takes."""
    parts = [
        b"<" * marker_size + b" ours\n",
        ours,
        b"=" * marker_size + b"\n",
        theirs,
        b">" * marker_size + b" theirs\n",
    ]
    return b"".join(part if part.endswith(b"\n") or not part else part + b"\n" for part in parts)


class _Item(NamedTuple):
    """An entry: its view, its bytes, and the blank lines above it."""

    entry: Entry
    stored: bytes
    gap: bytes


@dataclass(frozen=True, slots=True)
class _Section:
    """A section: its heading line, all below that, and this as entries and the blank lines at the end."""

    heading: bytes = b""
    body: bytes = b""
    items: Mapping[_Key, _Item] = field(default_factory=dict)
    tail: bytes = b""

    def counts(self) -> "Counter[str]":
        return Counter(text for text, _ in self.items)


@dataclass(frozen=True, slots=True)
class _Version:
    """A MEMORY.md taken apart. `ended`: it has a final newline."""

    bom: bool
    head: bytes
    sections: Mapping[Scope, _Section]
    ended: bool


def _by_entries(base: bytes, ours: bytes, theirs: bytes, merge_text: MergeText) -> Merged | None:
    """None for files whose sections cannot be told, and for a merge that would miss the law."""
    layouts = [scan((data,)) for data in (base, ours, theirs)]
    order = _order(*layouts)
    if order is None:
        return None
    swapped = theirs < ours  # which side goes first where neither time nor text decides
    styles = [layout.newline for layout in layouts]
    newline = _changed(styles[0], *(styles[:0:-1] if swapped else styles[1:]))
    old, mine, other = (
        _taken_apart(_restyled(data, style, newline), newline)
        for data, style in zip((base, ours, theirs), styles, strict=True)
    )
    head, conflicts = _head(old, mine, other, merge_text)
    one, two = (other, mine) if swapped else (mine, other)
    wanted = _wanted(old, one, two)
    parts = [BOM * _changed(old.bom, one.bom, two.bom), head]
    for scope in order:
        was, first, second = (version.sections.get(scope, _Section()) for version in (old, one, two))
        parts.append(_merged_section(was, first, second, wanted[scope], newline))
    data = b"".join(parts)
    if not _changed(old.ended, one.ended, two.ended):
        data = data.removesuffix(newline)
    there = _taken_apart(data, newline)
    if any(there.sections.get(scope, _Section()).counts() != wanted[scope] for scope in Scope):
        return None
    return Merged(data, conflicts)


def _order(base: Layout, ours: Layout, theirs: Layout) -> Sequence[Scope] | None:
    """The sections of a merge in order, or None where they cannot be told. A base may lack what both sides added."""
    found = [tuple(heading.scope for heading in layout.headings) for layout in (base, ours, theirs)]
    orders = {scopes for scopes in found if len(scopes) == 2}
    doubled = any(len(scopes) != len(set(scopes)) for scopes in found)
    removed = any(not scopes or not {*found[0]} <= {*scopes} for scopes in found[1:])
    if doubled or removed or len(orders) > 1 or ours.conflict or theirs.conflict:
        return None
    return orders.pop() if orders else [scope for scope in Scope if any(scope in scopes for scopes in found)]


def _changed(base: _T, one: _T, two: _T) -> _T:
    """The value of the side that changed it; where both did, of the first."""
    return two if one == base else one


def _restyled(data: bytes, old: bytes, new: bytes) -> bytes:
    """`data` with one newline style in the place of another; line ends of a third style stay."""
    return data if old == new else _LINE_END.sub(lambda match: new if match.group() == old else match.group(), data)


def _taken_apart(data: bytes, newline: bytes) -> _Version:
    ended = not data or data[-1] in b"\r\n"
    document = MemoryDocument(data if ended else data + newline)
    headings = document.layout.headings
    bom = data.startswith(BOM)
    head = document.data[len(BOM) * bom : headings[0].start if headings else None]
    sections = {heading.scope: _section(document, heading) for heading in headings}
    return _Version(bom, head, sections, ended)


def _section(document: MemoryDocument, heading: Heading) -> _Section:
    items: dict[_Key, _Item] = {}
    copies: Counter[str] = Counter()
    at, end = document.layout.body(heading.scope) or (heading.body, heading.body)
    line, body = document.data[heading.start : at], document.data[at:end]
    for place in document.located(heading.scope):
        stored = document.data[place.start : place.end]
        entry = _entry(stored)
        text = entry.text
        items[text, copies[text]] = _Item(entry, stored, document.data[at : place.start])
        copies[text] += 1
        at = place.end
    return _Section(line, body, items, document.data[at:end])


def _entry(stored: bytes) -> Entry:
    """The entry of stored bytes. Bytes that are no UTF-8 tell entries apart, which as U+FFFD would be one text."""
    raw = decode(stored)
    if "\ufffd" in raw:
        raw = _LINE_END.sub(b"\n", stored).removesuffix(b"\n").decode(errors="surrogateescape")
    return Entry(raw)


def _head(base: _Version, ours: _Version, theirs: _Version, merge_text: MergeText) -> Merged:
    """What stands above the sections, ending where a heading can begin."""
    if ours.head == theirs.head or base.head in (ours.head, theirs.head):
        return Merged(_changed(base.head, ours.head, theirs.head), 0)
    head, conflicts = merge_text(base.head, ours.head, theirs.head)
    return Merged(head if head.endswith((b"\n", b"\r")) or not head else head + b"\n", conflicts)


def _law(base: int, one: int, two: int) -> int:
    return base - max(0, base - one, base - two) + max(0, one - base, two - base)


def _wanted(base: _Version, one: _Version, two: _Version) -> "dict[Scope, Counter[str]]":
    """How often each text shall stand in each section."""
    counts = {
        scope: [version.sections.get(scope, _Section()).counts() for version in (base, one, two)] for scope in Scope
    }
    wanted: dict[Scope, Counter[str]] = {scope: Counter() for scope in Scope}
    for text in dict.fromkeys(text for versions in counts.values() for version in versions for text in version):
        core, archival = ([version[text] for version in counts[scope]] for scope in Scope)
        total = _law(*map(sum, zip(core, archival, strict=True)))
        # A move counts in core as it does in all, and archival has the rest, though never more than a version had.
        in_core = max(min(_law(*core), total), total - max(archival))
        wanted[Scope.CORE][text] = in_core
        wanted[Scope.ARCHIVAL][text] = total - in_core
    return wanted


def _merged_section(base: _Section, one: _Section, two: _Section, wanted: "Counter[str]", newline: bytes) -> bytes:
    heading = _changed(base.heading, one.heading, two.heading)
    for side, other in ((one, two), (two, one)):
        if other.body in (base.body, side.body) and side.counts() == wanted:
            return heading + side.body
    parts = [heading]
    for number, key in enumerate(_ordered(base, one, two, wanted)):
        versions = [section.items.get(key) for section in (base, one, two)]
        origin = next(item for item in versions if item)
        gap = _changed(*((item or origin).gap for item in versions))
        if number and not gap and origin.entry.raw[0] in BLANKS:
            gap = newline  # directly below an entry it would become part of it
        parts += (gap, _changed(*((item or origin).stored for item in versions)))
    return b"".join([*parts, _changed(base.tail, one.tail, two.tail)])


def _ordered(base: _Section, one: _Section, two: _Section, wanted: "Counter[str]") -> Iterable[_Key]:
    """The entries of a merged section: those of the base in its order, and among them the new ones of both sides."""
    old = [key for key in base.items if key[1] < wanted[key[0]]]
    timeline = _Timeline([base.items[key].entry.time for key in old])
    above = {key: number for number, key in enumerate(old, 1)}
    placed_one = _placed(one, above, timeline, wanted, {})
    placed_two = _placed(two, above, timeline, wanted, placed_one)
    runs_one, runs_two = _runs(placed_one), _runs(placed_two)
    for place in range(len(old) + 1):
        if place:
            yield old[place - 1]
        if place in runs_one or place in runs_two:
            run_one, run_two = runs_one.get(place, []), runs_two.get(place, [])
            yield from _interleaved(_ranked(run_one, one), _ranked(run_two, two))


class _Timeline:
    """The times of entries in stored order, asked where an entry with a time belongs among them."""

    def __init__(self, times: Sequence[datetime | None]) -> None:
        timed = sorted((time, number) for number, time in enumerate(times) if time)
        self._times = [time for time, _ in timed]
        self._behind = [0, *(number + 1 for number in accumulate((number for _, number in timed), max))]
        self._next = [len(times)]  # the first entry with a time at or behind each place
        for number in range(len(times) - 1, -1, -1):
            self._next.append(number if times[number] else self._next[-1])
        self._next.reverse()

    def place(self, time: datetime, own: int) -> int:
        """How many entries go above one with that time: it stands behind the last that is not newer. Where times say
        no more, among equal ones and those without a time, it stays in `own`, its place on its side.
        """
        not_newer = bisect_right(self._times, time)
        low, high = self._behind[bisect_left(self._times, time)], self._behind[not_newer]
        limit = self._next[high]
        return own if low <= own <= limit else high if not_newer else limit


def _placed(
    side: _Section, above: Mapping[_Key, int], timeline: _Timeline, wanted: "Counter[str]", known: Mapping[_Key, int]
) -> dict[_Key, int]:
    """The new entries of a side, in its order, each with the number of old entries to stand above it.

    `above` gives that number for the place behind each old entry. What is new on both sides stands where it is
    `known` to be; it is left out if that would change this side's order.
    """
    placed: dict[_Key, int] = {}
    own = least = 0
    for key, item in side.items.items():
        if key in above:
            own = above[key]
        elif key[1] < wanted[key[0]]:
            time = item.entry.time
            place = known.get(key, -1)
            if place < 0:
                place = max(least, timeline.place(time, own) if time else own)
            elif place < least:
                continue
            placed[key] = own = least = place
    return placed


def _runs(placed: Mapping[_Key, int]) -> dict[int, list[_Key]]:
    runs: dict[int, list[_Key]] = {}
    for key, place in placed.items():
        runs.setdefault(place, []).append(key)
    return runs


def _ranked(run: Iterable[_Key], side: _Section) -> list[tuple[_Key, _Rank]]:
    return _with_ranks((key, side.items[key].entry.time, key[0]) for key in run)


def _with_ranks(run: Iterable[tuple[_K, datetime | None, str]]) -> list[tuple[_K, _Rank]]:
    """Keys with what they are sorted by: time, then text. What has no time stays with the one above it."""
    ranked: list[tuple[_K, _Rank]] = []
    leader: tuple[datetime, str] | None = None
    for key, time, text in run:
        if time or leader is None:
            leader = (time or datetime.min, text)
        ranked.append((key, (*leader, text)))
    return ranked


def _interleaved(one: Sequence[tuple[_K, _Rank]], two: Iterable[tuple[_K, _Rank]]) -> list[_K]:
    """Two runs as one, by rank, each in its own order, what both have once. A key that stands in another order in
    `two` stands where `one` has it.
    """
    places = {key: number for number, (key, _) in enumerate(one)}
    rest: list[tuple[_K, _Rank]] = []
    reached = -1
    for key, rank in two:
        place = places.get(key)
        if place is None or place > reached:
            rest.append((key, rank))
            reached = reached if place is None else place
    shared = {key for key, _ in rest} & places.keys()
    merged: list[_K] = []
    at_one = at_two = 0
    while at_one < len(one) and at_two < len(rest):
        (key, rank), (other_key, other_rank) = one[at_one], rest[at_two]
        first = key == other_key or other_key in shared or (key not in shared and rank <= other_rank)
        merged.append(key if first else other_key)
        at_one += first
        at_two += not first or key == other_key
    return merged + [key for key, _ in one[at_one:]] + [key for key, _ in rest[at_two:]]


_Pieces = list[tuple[bytes, Record | None]]  # the lines of a retired file: a record or any other line
_Block = list[int]  # places among pieces
_Blocks = dict[tuple[str, tuple[int, ...]], list[_Block]]


def merge_retired(base: bytes, ours: bytes, theirs: bytes) -> bytes:
    """Two versions of a MEMORY.retired.md that come from `base`: all their records and lines, identical ones once,
    those of the base first, then the new ones of both by time.

    Where both sides retired (or restored) one text, it gets out (or comes back) only as often as on the side that did
    it more often: of each pair of such records the earlier stays. A text of the base that has no record left on one
    side was purged there, and its records of the base go.
    """
    if theirs in (ours, base):
        return ours
    if ours == base:
        return theirs
    versions = (base, *sorted((ours, theirs)))
    styles = [scan((data,)).newline for data in versions]
    newline = _changed(*styles)
    old, one, two = (
        _pieces(_restyled(data, style, newline), newline) for data, style in zip(versions, styles, strict=True)
    )
    left = _texts(one) & _texts(two)
    kept = [stored for stored, record in old if record is None or _text(record) in left]
    new_one, new_two = _new(one, old), _new(two, old)
    without_one, without_two = _doubled(new_one, new_two)
    new = _interleaved(_run(new_one, without_one, 1), _run(new_two, without_two, 2))
    return b"".join([*kept, *(stored for stored, _, _ in new)])


def _pieces(data: bytes, newline: bytes) -> _Pieces:
    pieces: _Pieces = []
    at = 0
    for record in records(data):
        pieces += ((line, None) for line in _LINE.findall(data, at, record.start))
        pieces.append((data[record.start : record.end], record))
        at = record.end
    pieces += ((line, None) for line in _LINE.findall(data, at))
    return [(stored if stored[-1] in b"\r\n" else stored + newline, record) for stored, record in pieces]


def _new(side: _Pieces, old: _Pieces) -> _Pieces:
    """The pieces that a side has more often than the base, the last copies of each."""
    there = Counter(stored for stored, _ in old)
    new: _Pieces = []
    for stored, record in side:
        there[stored] -= 1
        if there[stored] < 0:
            new.append((stored, record))
    return new


def _text(record: Record) -> str:
    return _entry(record.stored).text


def _texts(pieces: _Pieces) -> set[str]:
    return {_text(record) for _, record in pieces if record}


def _time(record: Record | None) -> datetime | None:
    return record.entry.retired.time if record and record.entry.retired else None


def _run(new: _Pieces, without: set[int], side: int) -> list[tuple[tuple[bytes, int, int], _Rank]]:
    """New pieces to be sorted in. Other lines that both sides have are one; a record that is left on both is not."""
    copies: Counter[bytes] = Counter()
    run: list[tuple[tuple[bytes, int, int], datetime | None, str]] = []
    for number, (stored, record) in enumerate(new):
        if number not in without:
            key = (stored, copies[stored], side if record else 0)
            run.append((key, _time(record), stored.decode(errors="surrogateescape")))
            copies[stored] += 1
    return _with_ranks(run)


def _blocks(new: _Pieces) -> _Blocks:
    """What one side did, by text and kinds of records: its new records one by one, but two that undo each other
    together. What was taken back has changed no count, and must not be paired with what was not.
    """
    blocks: _Blocks = {}
    waiting: dict[str, list[tuple[int, int]]] = {}  # of each text: places and kinds that nothing undid yet
    for number, (_, record) in enumerate(new):
        if record is None:
            continue
        text, kind = _text(record), record.out
        open_ones = waiting.setdefault(text, [])
        if kind == 0:
            blocks.setdefault((text, (0,)), []).append([number])
        elif open_ones and open_ones[-1][1] == -kind:
            blocks.setdefault((text, (-kind, kind)), []).append([open_ones.pop()[0], number])
        else:
            open_ones.append((number, kind))
    for text, left in waiting.items():
        for number, kind in left:
            blocks.setdefault((text, (kind,)), []).append([number])
    return blocks


def _doubled(one: _Pieces, two: _Pieces) -> tuple[set[int], set[int]]:
    """The places to leave out on each side: of what both did to a text, as often as both did it, the later."""
    without_one: set[int] = set()
    without_two: set[int] = set()
    blocks_one, blocks_two = _blocks(one), _blocks(two)
    for kind in blocks_one.keys() & blocks_two.keys():
        for first, second in _pairs(one, blocks_one[kind], two, blocks_two[kind]):
            if _age(one, first) <= _age(two, second):
                without_two.update(second)
            else:
                without_one.update(first)
    return without_one, without_two


def _pairs(one: _Pieces, firsts: list[_Block], two: _Pieces, seconds: list[_Block]) -> Iterable[tuple[_Block, _Block]]:
    """Equal blocks together, then the others in order."""
    equal: dict[tuple[bytes, ...], list[_Block]] = {}
    for second in seconds:
        equal.setdefault(tuple(two[number][0] for number in second), []).append(second)
    rest: list[_Block] = []
    for first in firsts:
        if found := equal.get(tuple(one[number][0] for number in first)):
            yield first, found.pop(0)
        else:
            rest.append(first)
    left = sorted(second for found in equal.values() for second in found)
    yield from zip(sorted(rest), left, strict=False)


def _age(pieces: _Pieces, block: _Block) -> tuple[datetime, list[bytes]]:
    return _time(pieces[block[0]][1]) or datetime.min, [pieces[number][0] for number in block]
