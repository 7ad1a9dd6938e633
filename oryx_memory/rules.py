"""The rules of `check` that need nothing but the bytes of a memory's two files and the clock.

A rule has a name, by which `[check] ignore` silences it, and is a fault or a note. docs/check.md explains each.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from oryx_memory.document import BOM, Located, MemoryDocument, is_blank
from oryx_memory.entry import MAX_CONTENT_BYTES, Entry, Scope
from oryx_memory.guard import find
from oryx_memory.retired import Record
from oryx_memory.window import chars

RULES = {  # name: whether it is a fault, what it is about
    "lost-entry": (True, "an acknowledged line is gone: another program overwrote or removed it"),
    "edited-by-hand": (False, "an acknowledged line was changed by hand"),
    "moved-by-git": (False, "an acknowledged line is in another version of the file that git has"),
    "conflict-marker": (True, "a merge left its markers"),
    "missing-heading": (True, "one of the two section headings is not there"),
    "doubled-heading": (True, "a section heading stands there twice; only the first counts"),
    "swapped-headings": (True, "archival stands before core"),
    "near-heading": (True, "a line that looks like a section heading and is none"),
    "outside-section": (True, "an entry stands outside both sections, where nothing reads it"),
    "oryxos-drops": (True, "text above the sections, which OryxOS drops at its next append"),
    "duplicate": (True, "a timed archival entry says what an earlier one says"),
    "doubled-key": (True, "two live entries have one key; the newest counts"),
    "live-and-retired": (True, "a line is live although its last record says that it left"),
    "future-time": (True, "a time more than 26 hours ahead"),
    "out-of-order": (False, "an entry is older than the one above it"),
    "invalid-utf8": (True, "bytes that are no UTF-8"),
    "mixed-newlines": (True, "line ends of more than one kind"),
    "control-character": (True, "a control character"),
    "bidi-character": (True, "a character that changes the direction in which text is shown"),
    "html-comment": (True, "an HTML comment in an entry: a person who reads the page does not see it"),
    "long-entry": (True, f"an entry over {MAX_CONTENT_BYTES:,} bytes"),
    "core-budget": (True, "core is longer than [core] max_chars"),
    "credential": (True, "text that looks like a password, a token or a private key"),
    "reformatted": (True, "a formatter changed the bullet or the time of an entry"),
    "git-ignored": (True, "git ignores the memory, so nobody can review it"),
    "tracked-state": (True, "git tracks a file that is not for it: an index, state, a lock, a journal"),
    "merge-driver": (True, "this clone has no merge driver for memories"),
}
AHEAD = timedelta(hours=26)  # zones lie between -12 and +14 hours of UTC

_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]")
_BIDI = re.compile(rb"\xe2\x80[\x8e\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]|\xd8\x9c")
_LINE_END = re.compile(rb"\r\n|\r|\n")
LINE = re.compile(rb"[^\r\n]+")
_MARKER = re.compile(rb"(?:\A|(?<=[\r\n]))(?:<{7}|>{7})(?: [^\r\n]*)?(?=[\r\n]|\Z)")
_NEAR_HEADING = re.compile(
    "[ \t\u3000]*#{1,6}[ \t\u3000]*(?:(核心(?:记忆|記憶)|core memor(?:y|ies))|(?:归档(?:记忆|記憶)|歸檔(?:记忆|記憶)|archival memor(?:y|ies)))"
    "[ \t\u3000:：#]*",
    re.IGNORECASE,
)
REFORMATTED = re.compile(r"[-*+]([ \t]+)(\\?)\[(\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?)(\\?)\]")
_TIMED = re.compile(rb"[ \t]*[-*+][ \t]+\\?\[\d{4}-\d\d-\d\d \d\d:\d\d")


class Problem(NamedTuple):
    """What a rule found: its name, the line (from 1; 0: the file as a whole), one line about it, and whether it
    stands in MEMORY.retired.md.
    """

    rule: str
    line: int
    message: str
    retired: bool = False


class Lines:
    """The numbers of lines by byte offset."""

    def __init__(self, data: bytes) -> None:
        self._ends = [match.end() for match in _LINE_END.finditer(data)]

    def __getitem__(self, offset: int) -> int:
        return bisect_right(self._ends, offset) + 1


def examine(data: bytes, *, now: datetime, core_chars: int) -> Iterator[Problem]:
    """What is wrong in the bytes of a MEMORY.md, given local wall-clock time and the budget of core."""
    lines = Lines(data)
    document = MemoryDocument(data)
    yield from _bytes(data, lines)
    yield from _structure(document, lines)
    entries = [
        (lines[place.start], document.entry(place, scope)) for scope in Scope for place in document.located(scope)
    ]
    for line, entry in entries:
        yield from _entry(line, entry, now)
    yield from _together(entries)
    core = chars([entry for _, entry in entries if entry.scope is Scope.CORE])
    if core > core_chars:
        yield Problem("core-budget", 0, f"core has {core:,} characters, [core] max_chars is {core_chars:,}")


def examine_retired(data: bytes) -> Iterator[Problem]:
    """What is wrong in the bytes of a MEMORY.retired.md."""
    lines = Lines(data)
    for problem in (*conflicts(data, lines), *_invalid(data)):
        yield problem._replace(retired=True)
    for match in LINE.finditer(data):
        for finding in find(match.group().decode(errors="replace")):
            yield Problem("credential", lines[match.start()], finding.kind, retired=True)


def returned(data: bytes, back: list[Record]) -> Iterator[Problem]:
    """The live entries of a MEMORY.md that came back without a record, given the records that say that they left."""
    if not back:
        return
    document, lines = MemoryDocument(data), Lines(data)
    starts = {document.entry(place, scope).text: place.start for scope in Scope for place in document.located(scope)}
    for item in back:
        why = item.entry.retired
        assert why is not None
        left = f"{why.time.isoformat(sep=' ')}" + (f", {why.reason}" if why.reason else "")
        yield Problem("live-and-retired", lines[starts[item.entry.text]], f"{item.entry.id} was retired {left}")


def conflicts(data: bytes, lines: Lines) -> Iterator[Problem]:
    """The conflicts that a merge left, a problem each."""
    open_block = False
    for match in _MARKER.finditer(data):
        starts = match.group().startswith(b"<")
        if starts or not open_block:  # one block is one fault
            yield Problem("conflict-marker", lines[match.start()], _shown(match.group()))
        open_block = starts


def _bytes(data: bytes, lines: Lines) -> Iterator[Problem]:
    yield from conflicts(data, lines)
    yield from _invalid(data)
    for rule, pattern in (("control-character", _CONTROL), ("bidi-character", _BIDI)):
        seen = 0
        for match in pattern.finditer(data):
            if (line := lines[match.start()]) != seen:
                seen = line
                yield Problem(rule, line, f"U+{ord(match.group().decode()):04X}")
    yield from _newlines(data, lines)


def _invalid(data: bytes) -> Iterator[Problem]:
    try:
        data.decode()
    except UnicodeDecodeError:
        for number, line in enumerate(_LINE_END.split(data), 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                yield Problem("invalid-utf8", number, f"byte {error.start + 1} of the line is {line[error.start]:#04x}")


def newline_counts(data: bytes) -> Counter[bytes]:
    """How many line ends of each kind a file has."""
    crlf = data.count(b"\r\n")
    counts = Counter({b"\r\n": crlf, b"\n": data.count(b"\n") - crlf, b"\r": data.count(b"\r") - crlf})
    return +counts


def _newlines(data: bytes, lines: Lines) -> Iterator[Problem]:
    counts = newline_counts(data)
    if len(counts) > 1:
        usual = counts.most_common(1)[0][0]
        names = {b"\r\n": "CRLF", b"\n": "LF", b"\r": "CR"}
        first = next(match for match in _LINE_END.finditer(data) if match.group() != usual)
        rest = ", ".join(f"{names[end]} {count:,} times" for end, count in counts.most_common())
        yield Problem("mixed-newlines", lines[first.start()], rest)


def _structure(document: MemoryDocument, lines: Lines) -> Iterator[Problem]:
    data, headings = document.data, document.layout.headings
    first: dict[Scope, int] = {}
    for heading in headings:
        if heading.scope in first:
            yield Problem("doubled-heading", lines[heading.start], heading.scope.heading)
        else:
            first[heading.scope] = heading.start
    if list(first) == [Scope.ARCHIVAL, Scope.CORE]:
        yield Problem("swapped-headings", lines[first[Scope.ARCHIVAL]], f"{Scope.ARCHIVAL.heading} stands first")
    if data.strip():
        for scope in Scope:
            if scope not in first:
                yield Problem("missing-heading", 0, f"{scope.heading} is not there")
    for match in LINE.finditer(data):
        line = match.group()
        if b"#" in line[:40] and near_heading(line.decode(errors="replace")):
            yield Problem("near-heading", lines[match.start()], _shown(line))
    for place in _outside(document):
        yield from _dropped(data, place, lines)


def near_heading(line: str) -> Scope | None:
    """The section that a line seems to be the heading of without being it."""
    match = _NEAR_HEADING.fullmatch(line.removeprefix("\ufeff").rstrip(" \t"))
    if match is None:
        return None
    scope = Scope.CORE if match.group(1) else Scope.ARCHIVAL
    return None if line.removeprefix("\ufeff").rstrip(" \t\x0b\x0c") == scope.heading else scope


def _outside(document: MemoryDocument) -> Iterator[Located]:
    """What belongs to no section: above the first heading, and the bodies of headings that stand there again."""
    size, headings = document.layout.size, document.layout.headings
    if start := headings[0].start if headings else size:
        yield Located(0, start)
    seen: set[Scope] = set()
    for number, heading in enumerate(headings):
        end = headings[number + 1].start if number + 1 < len(headings) else size
        if heading.scope in seen:
            yield Located(heading.body, end)
        seen.add(heading.scope)


def _dropped(data: bytes, place: Located, lines: Lines) -> Iterator[Problem]:
    """Entries one by one, other text by blocks of lines."""
    start = place.start
    if not start and data.startswith(BOM):
        start = len(BOM)
        if place.end == start:
            yield Problem("oryxos-drops", 1, "a byte order mark, behind which OryxOS does not see the heading")
    last = -1
    for match in LINE.finditer(data, start, place.end):
        line, number = match.group(), lines[match.start()]
        if is_blank(line) or near_heading(line.decode(errors="replace")):
            continue
        if _TIMED.match(line):
            yield Problem("outside-section", number, _shown(line))
        elif last != number - 1:
            yield Problem("oryxos-drops", number, _shown(line))
            last = number
        else:
            last = number


def _entry(line: int, entry: Entry, now: datetime) -> Iterator[Problem]:
    raw = entry.raw
    time = entry.time
    if time is not None and time > now + AHEAD:
        yield Problem("future-time", line, f"{time.isoformat(sep=' ')}, {_span(time - now)} ahead")
    if "<!--" in raw:
        yield Problem("html-comment", line, _shown(raw[raw.index("<!--") :].encode(errors="replace")))
    if len(raw) * 4 > MAX_CONTENT_BYTES and (size := len(entry.content.encode(errors="replace"))) > MAX_CONTENT_BYTES:
        yield Problem("long-entry", line, f"{size:,} bytes")
    if time is None and (match := REFORMATTED.match(raw)):
        yield Problem("reformatted", line, f"{match.group()} for - [{match.group(3)}]")
    for offset, text in enumerate(raw.split("\n")):
        for finding in find(text):
            yield Problem("credential", line + offset, finding.kind)


def _together(entries: list[tuple[int, Entry]]) -> Iterator[Problem]:
    """What only shows in the company of other entries."""
    contents: dict[str, int] = {}
    keys: dict[str, int] = {}
    newest: datetime | None = None
    for line, entry in entries:
        time = entry.time
        if "^" in entry.raw and (key := entry.key):
            if key in keys:
                yield Problem("doubled-key", line, f"^{key} as line {keys[key]}")
            keys[key] = line
        if time is None or entry.scope is Scope.CORE:
            continue
        if (before := contents.setdefault(entry.content, line)) != line:
            yield Problem("duplicate", line, f"as line {before}: {entry.id}")
        if newest is not None and time < newest:
            yield Problem("out-of-order", line, f"{time.isoformat(sep=' ')} below {newest.isoformat(sep=' ')}")
        newest = time


def _span(span: timedelta) -> str:
    hours = span // timedelta(hours=1)
    return f"{hours:,} hours" if hours < 96 else f"{span.days:,} days"


def _shown(line: bytes) -> str:
    text = line.decode(errors="replace")
    return text if len(text) <= 120 else f"{text[:119]}…"
