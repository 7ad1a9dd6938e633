"""A MEMORY.md as bytes: where its sections and entries stand, and edits that change no other byte.

Invariant: an edit is a list of splices on the bytes that were read; what no splice names comes out as it was,
whatever it is (front matter, CRLF, a BOM, invalid UTF-8). Lines end at LF, CR or CRLF only.

`scan` reads a file chunk by chunk and keeps only the places of the headings, so that an append to a huge file
needs no more; `MemoryDocument` holds the whole file and finds the entries.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from oryx_memory.entry import BLANKS, Entry, Scope
from oryx_memory.errors import RejectedInput

BOM = b"\xef\xbb\xbf"
_HEADINGS = {scope.heading.encode(): scope for scope in Scope}
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_ASCII_BLANKS = "".join(c for c in BLANKS if c.isascii()).encode()
_WIDE_BLANKS = tuple(c.encode() for c in BLANKS if not c.isascii())


class Heading(NamedTuple):
    """A heading line: byte offsets of its `##` and of the first byte below it."""

    scope: Scope
    start: int
    body: int


@dataclass(frozen=True, slots=True)
class Layout:
    """What an append must know of a file: byte size, headings in order, newline style, the last byte, and
    whether git conflict markers stand in it.
    """

    size: int
    headings: tuple[Heading, ...]
    newline: bytes
    last_byte: bytes
    conflict: bool

    def body(self, scope: Scope) -> tuple[int, int] | None:
        """Byte offsets of the section's body, or None where it has no heading. The first heading counts."""
        for number, heading in enumerate(self.headings):
            if heading.scope is scope:
                following = self.headings[number + 1 :]
                return heading.body, following[0].start if following else self.size
        return None

    def tail(self, scope: Scope, lines: bytes) -> bytes | None:
        """What to put at the end of the file to add `lines` to the section, or None where they belong elsewhere.

        `lines` are whole lines, each with its line end.
        """
        body = self.body(scope)
        if body is not None:
            # Core lines go above the blank lines at the end of their section, archival lines below them.
            return self.at_end(lines) if scope is Scope.ARCHIVAL and body[1] == self.size else None
        if scope is Scope.CORE and self.body(Scope.ARCHIVAL) is not None:
            return None
        made = scope.heading.encode() + self.newline + lines
        if not self.headings:
            core, archival = (each.heading.encode() + self.newline for each in Scope)
            made = made + self.newline + archival if scope is Scope.CORE else core + self.newline + made
        return self.at_end(self.newline + made) if self.size else made

    def at_end(self, lines: bytes) -> bytes:
        """What to put at the end of the file so that `lines` begin on a line of their own."""
        if self.size and self.last_byte not in (b"\n", b"\r"):
            return self.newline + lines
        return _apart(self.last_byte, lines) + lines


def headless(lines: bytes) -> bool:
    """Whether no heading and no conflict marker can stand in lines, so that a layout holds behind them too."""
    return b"<<<<<<< " not in lines and not any(literal in lines for literal in _HEADINGS)


def scan(chunks: Iterable[bytes]) -> Layout:
    """The layout of a file given as consecutive chunks of bytes."""
    headings: list[Heading] = []
    newline = b""
    conflict = False
    kept = b""  # what the next chunk may complete: at most a heading line, or the start of one
    base = 0  # offset of kept in the file
    last = b""
    for chunk in chunks:
        if not chunk:
            continue
        newline = newline or _first_line_end(last[-1:] + chunk)
        last = chunk[-1:]
        buffer = kept + chunk
        conflict = conflict or b"\n<<<<<<< " in buffer or (base == 0 and buffer.startswith(b"<<<<<<< "))
        undecided = _collect(buffer, base, headings, final=False)
        keep_from = min(undecided, max(len(buffer) - 20, 0))
        kept, base = buffer[keep_from:], base + keep_from
    _collect(kept, base, headings, final=True)
    return Layout(base + len(kept), tuple(headings), newline if newline in (b"\r\n", b"\r") else b"\n", last, conflict)


def _first_line_end(data: bytes) -> bytes:
    lf = data.find(b"\n")
    cr = data.find(b"\r", 0, lf if lf >= 0 else len(data))
    if cr >= 0:
        if cr + 1 == len(data):
            return b""  # the next chunk tells whether this is CRLF
        return b"\r\n" if lf == cr + 1 else b"\r"
    return b"\n" if lf >= 0 else b""


def _collect(buffer: bytes, base: int, headings: list[Heading], *, final: bool) -> int:
    """Add the headings of the buffer that are not known yet; return from where the buffer must be kept."""
    undecided = len(buffer)
    found: list[Heading] = []
    for literal, scope in _HEADINGS.items():
        at = buffer.find(literal)
        while at >= 0:
            before = (
                3 if base == 0 and at == 3 and buffer.startswith(BOM) else min(at, 1)
            )  # bytes that say it starts a line
            if before == 3 or (at == 0 and base == 0) or (at > 0 and buffer[at - 1] in b"\r\n"):
                end = at + len(literal)
                while end < len(buffer) and buffer[end] in b" \t\x0b\x0c":
                    end += 1
                if end + 1 >= len(buffer) and not final and buffer[end : end + 1] != b"\n":
                    undecided = min(undecided, at - before)
                elif end == len(buffer):
                    found.append(Heading(scope, base + at, base + end))
                elif buffer[end] in b"\r\n":
                    end += 2 if buffer[end : end + 2] == b"\r\n" else 1
                    found.append(Heading(scope, base + at, base + end))
            at = buffer.find(literal, at + len(literal))
    known = headings[-1].start if headings else -1
    headings.extend(sorted((h for h in found if h.start > known), key=lambda h: h.start))
    return undecided


class Located(NamedTuple):
    """An entry where it stands: byte offsets of its first byte and behind its last line end."""

    start: int
    end: int


class Splice(NamedTuple):
    """Replace the bytes from start to end."""

    start: int
    end: int
    new: bytes


def is_blank(line: bytes) -> bool:
    """Whether a line has nothing but what OryxOS calls blank."""
    rest = line.lstrip(_ASCII_BLANKS)
    return not rest or (rest.startswith(_WIDE_BLANKS) and not rest.decode(errors="replace").strip(BLANKS))


def _apart(above: bytes, below: bytes) -> bytes:
    """What to put between bytes so that a CR and an LF do not become one line end."""
    return b"\n" if above.endswith(b"\r") and below.startswith(b"\n") else b""


def _is_indented(line: bytes) -> bool:
    return line[0] in _ASCII_BLANKS or line.startswith(_WIDE_BLANKS)


def decode(data: bytes) -> str:
    """Stored bytes of an entry as its `raw`: line ends as LF, the last one gone, invalid UTF-8 as U+FFFD."""
    text = data.decode(errors="replace")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text[:-1] if text.endswith("\n") else text


def spans(data: bytes, start: int, end: int) -> Iterator[Located]:
    """The entries of a section's body: a non-blank line and the indented lines directly below it."""
    first = last = -1
    for match in _LINE.finditer(data, start, end):
        line = match.group()
        if line[0] > 0x20 and line[0] not in b"\xe1\xe2\xe3":  # the common case: neither blank nor indented
            if first >= 0:
                yield Located(first, last)
            first, last = match.span()
        elif is_blank(line):
            if first >= 0:
                yield Located(first, last)
            first = -1
        elif first >= 0 and _is_indented(line):
            last = match.end()
        else:
            if first >= 0:
                yield Located(first, last)
            first, last = match.span()
    if first >= 0:
        yield Located(first, last)


def streamed(chunks: Iterable[bytes], scope: Scope) -> Iterator[Entry]:
    """The entries of a section's body that is given as consecutive chunks of bytes."""
    kept = b""
    for chunk in chunks:
        kept += chunk
        # The next chunk may go on with the last line, which then may belong to the entry above.
        whole = list(spans(kept, 0, len(kept)))[:-2]
        for place in whole:
            yield Entry(decode(kept[place.start : place.end]), scope)
        kept = kept[whole[-1].end :] if whole else kept
    for place in spans(kept, 0, len(kept)):
        yield Entry(decode(kept[place.start : place.end]), scope)


def around(data: bytes, at: int, start: int, end: int) -> Located | None:
    """The entry that the byte `at` belongs to, in the section's body from `start` to `end`; None on a blank line."""
    first = _line_start(data, at, start)
    while first > start and _is_indented(data[first : first + 4]):
        above_end = _before_line_end(data, first)
        above = _line_start(data, above_end, start)
        if is_blank(data[above:above_end]):
            break
        first = above
    for place in spans(data, first, end):
        if place.end > at:
            return place if place.start <= at else None
    return None


def backwards(data: bytes, start: int, end: int) -> Iterator[Located]:
    """The entries of a section's body, last first."""
    at = end
    while at > start:
        before = _line_start(data, _before_line_end(data, at), start)
        place = around(data, before, start, at)
        if place:
            yield place
        at = place.start if place else before


def piece(entry: Entry, newline: bytes) -> bytes:
    """An entry as whole lines with that newline. Raises RejectedInput for one that would not be read back as it is."""
    raw = entry.raw
    if "\n" in raw or "\r" in raw or raw[:1] in BLANKS or raw.startswith("## "):
        data = raw.encode()
        if scan((data,)).headings or list(spans(data, 0, len(data))) != [(0, len(data))] or "\r" in raw:
            raise RejectedInput(f"not one entry: {raw[:80]!r}")
    return raw.encode().replace(b"\n", newline) + newline


def line_at(data: bytes, at: int, start: int, end: int) -> tuple[int, int]:
    """The line that holds the byte `at`, without its line end, looking no further than `start` and `end`."""
    width = 256
    while True:
        high = min(end, at + width)
        ends = [found for found in (data.find(b"\n", at, high), data.find(b"\r", at, high)) if found >= 0]
        if ends or high == end:
            return _line_start(data, at, start), min(ends, default=end)
        width *= 16


def _before_line_end(data: bytes, at: int) -> int:
    """Where the line end that stands before `at` begins."""
    return at - 2 if data[at - 2 : at] == b"\r\n" else at - 1


def _line_start(data: bytes, at: int, floor: int) -> int:
    """Where the line starts that holds the byte `at`, or that ends there."""
    width = 256
    while True:
        low = max(floor, at - width)
        found = max(data.rfind(b"\n", low, at), data.rfind(b"\r", low, at))
        if found >= 0 or low == floor:
            return found + 1 if found >= 0 else floor
        width *= 16


class MemoryDocument:
    """A whole MEMORY.md. `data` is never changed; edits give splices, and `spliced` the new bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.layout = scan((data,))

    def located(self, scope: Scope) -> Iterator[Located]:
        """The places of the section's entries, in order."""
        body = self.layout.body(scope)
        return spans(self.data, *body) if body else iter(())

    def entry(self, place: Located, scope: Scope) -> Entry:
        """The entry at a place."""
        return Entry(decode(self.data[place.start : place.end]), scope)

    def entries(self, scope: Scope) -> tuple[Entry, ...]:
        """The section's entries, in order."""
        return tuple(self.entry(place, scope) for place in self.located(scope))

    def spliced(self, splices: Iterable[Splice]) -> bytes:
        """The bytes after all splices, which do not overlap; those at one place follow in the order given. Where
        that brings a CR before an LF, they stay two line ends.
        """
        parts: list[bytes] = []
        at = 0
        last = b""  # what stands in front of the bytes that are kept
        for splice in sorted(splices, key=lambda splice: (splice.start, splice.end)):
            kept = self.data[at : splice.start]
            parts += (_apart(last, kept), kept, splice.new)
            last = splice.new or kept or last
            at = splice.end
        parts += (_apart(last, self.data[at : at + 1]), self.data[at:])
        return b"".join(parts)

    def piece(self, entry: Entry) -> bytes:
        """An entry as whole lines in the file's newline style."""
        return piece(entry, self.layout.newline)

    def addition(self, scope: Scope, pieces: Sequence[bytes]) -> Splice:
        """Adds entries, given as whole lines, to the end of a section, which is made if it is missing."""
        layout = self.layout
        body = layout.body(scope)
        lines = b"".join(pieces)
        if any(_is_indented(new) for new in pieces):
            # Directly below an entry it would become part of that entry.
            guard = layout.newline
            lines = b"".join(
                (_apart(before, guard) + guard) * _is_indented(new) + new
                for before, new in zip((b"", *pieces), pieces, strict=False)
            )
        tail = layout.tail(scope, lines)
        if tail is not None:
            return Splice(layout.size, layout.size, tail)
        if body is None:  # core is missing and archival is there
            before = next(h.start for h in layout.headings if h.scope is Scope.ARCHIVAL)
            return Splice(before, before, scope.heading.encode() + layout.newline + lines + layout.newline)
        last = next(backwards(self.data, *body), None)
        at = last.end if last else body[0]
        above, below = self.data[at - 1 : at], self.data[at : at + 1]
        return Splice(at, at, self._on_new_line(at) + _apart(above, lines) + lines + _apart(lines, below))

    def restoration(self, scope: Scope, items: Sequence[tuple[Entry, bytes, int]]) -> list[Splice]:
        """Puts retired entries back: each behind the last timed entry of the section that is not newer, and behind
        `gap` of the blank lines that stand there; one without a time goes last.

        `items`: the entry, its stored bytes, and how many blank lines stood directly above it.
        """
        splices = []
        if timed := sorted((item for item in items if item[0].time is not None), key=_time_of_item):
            splices = self._by_time(scope, timed)
        if untimed := [self._whole_lines(data) for entry, data, _ in items if entry.time is None]:
            splices.append(self.addition(scope, untimed))
        return splices

    def _by_time(self, scope: Scope, items: Sequence[tuple[Entry, bytes, int]]) -> list[Splice]:
        body = self.layout.body(scope)
        if body is None:
            return [self.addition(scope, [self._whole_lines(data) for _, data, _ in items])]
        places = list(self.located(scope))
        times = sorted((time, n) for n, place in enumerate(places) if (time := self.entry(place, scope).time))
        first_timed = min((number for _, number in times), default=len(places))
        latest: list[int] = []  # the last place among the entries up to each time
        for _, number in times:
            latest.append(max(number, latest[-1]) if latest else number)
        groups: dict[int, list[tuple[bytes, int]]] = {}
        for entry, data, gap in items:
            assert entry.time is not None
            found = bisect_right(times, (entry.time, len(places)))
            anchor = latest[found - 1] if found else first_timed - 1
            groups.setdefault(anchor, []).append((self._whole_lines(data), gap))
        splices = []
        for anchor, group in groups.items():
            splices += self._between(places[anchor].end if anchor >= 0 else body[0], group)
        return splices

    def _between(self, at: int, group: list[tuple[bytes, int]]) -> list[Splice]:
        """Put lines behind `at`, each below `gap` more of the blank lines that follow there."""
        blanks: list[int] = [at]  # the places between the blank lines
        following = b""
        for match in _LINE.finditer(self.data, at):
            if not is_blank(match.group()):
                following = match.group()
                break
            blanks.append(match.end())
        indented_below = bool(following) and _is_indented(following)
        splices = []
        position = 0
        for lines, gap in group:
            position = min(position + gap, len(blanks) - 1)
            if indented_below and position == len(blanks) - 1 and position > 0:
                position -= 1
            place = blanks[position]
            new = self._on_new_line(place) + lines
            if indented_below and place == blanks[-1]:
                new += _apart(new, self.layout.newline) + self.layout.newline
            splices.append(Splice(place, place, new))
        return splices

    def blank_lines_above(self, place: Located, scope: Scope) -> int:
        """How many blank lines stand directly above an entry of a section."""
        body = self.layout.body(scope)
        assert body is not None
        count, at = 0, place.start
        while at > body[0]:
            end = _before_line_end(self.data, at)
            start = _line_start(self.data, end, body[0])
            if not is_blank(self.data[start:end]):
                break
            count, at = count + 1, start
        return count

    def _on_new_line(self, at: int) -> bytes:
        return self.layout.newline if at and self.data[at - 1] not in b"\r\n" else b""

    def whole_lines(self, place: Located) -> bytes:
        """The bytes of an entry, with a line end also where it stands at the end of a file without one."""
        return self._whole_lines(self.data[place.start : place.end])

    def _whole_lines(self, data: bytes) -> bytes:
        return data if data[-1] in b"\r\n" else data + self.layout.newline


def _time_of_item(item: tuple[Entry, bytes, int]) -> datetime:
    return item[0].time or datetime.min
