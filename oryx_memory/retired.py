"""MEMORY.retired.md: what left a memory, record by record, and which of it is still out.

Append-only: a record is the entry's stored lines with a marker at the end of the first line. No record is ever
edited; a restore adds one. What stands in MEMORY.md is live whatever is written here ("live wins"), so a writer that
dies between the record and the change of MEMORY.md has lost nothing and needs no repair. A line that is added while
an equal one is retired gets a record too (`again`), or the new copy would pass for the retired one come back.

The marker (format of this project, its last two parts only where they are not 0 and 1):
` <!-- oryx: retired 2026-08-01T02:00:00 from archival: duplicate; run 20260801T020000-1; live 1; gap 1; lines 2 -->`
`live` counts the copies of the text in MEMORY.md after that step, `gap` the blank lines directly above the entry
when it left (so that it can return to its place), `lines` the lines of the entry.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby, islice
from typing import NamedTuple

from oryx_memory.changes import Snapshot
from oryx_memory.document import MemoryDocument, decode
from oryx_memory.entry import Entry, Retirement, Scope

MARKER = b" <!-- oryx: "
_KINDS = {"retired": (1, "from"), "restored": (-1, "to"), "again": (0, "in")}
_RECORD = re.compile(
    rb"((retired|restored|again) (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d) (?:from|to|in) (core|archival)"
    rb"(?:: (.*))?; run (\S+)); live (\d+)(?:; gap (\d+))?(?:; lines (\d+))? -->[ \t]*[\r\n]*"
)
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")


@dataclass(slots=True)
class Record:
    """One record: an entry left its memory (`out` is 1), came back (-1), or an equal one was added (0).

    `stored` are the entry's bytes as they stood, `start` and `end` the record's byte offsets in the file, `gap` the blank lines that stood above the entry.
    """

    entry: Entry
    out: int
    live: int
    gap: int
    stored: bytes
    start: int
    end: int

    @property
    def run(self) -> str:
        """The run that wrote the record."""
        assert self.entry.retired is not None
        return self.entry.retired.run

    @property
    def step(self) -> "Step":
        """What the record says of its text."""
        return Step(self.start, self.out, self.live, self.run)


def record(stored: bytes, scope: Scope, why: Retirement, *, out: int, live: int, gap: int = 0) -> bytes:
    """The bytes of a record. `stored`: the entry's whole lines; a missing last line end becomes LF."""
    kind, preposition = next((name, word) for name, (number, word) in _KINDS.items() if number == out)
    lines: list[bytes] = _LINE.findall(stored)
    first = lines[0].rstrip(b"\r\n")
    marker = f"{MARKER.decode()}{kind} {why.time.isoformat(timespec='seconds')} "
    marker += f"{preposition} {scope.value}{f': {why.reason}' if out == 1 else ''}; run {why.run}; live {live}"
    marker += f"; gap {gap}" * (gap > 0) + f"; lines {len(lines)}" * (len(lines) > 1) + " -->"
    whole = first + marker.encode() + (lines[0][len(first) :] or b"\n") + b"".join(lines[1:])
    return whole if whole[-1] in b"\r\n" else whole + b"\n"


def parse(data: bytes) -> list[Record]:
    """The records of a retired file, in order. Lines that are no record are passed over; they stay in the file."""
    return list(records(data))


def record_at(data: bytes, start: int) -> Record:
    """The record that starts at an offset of a retired file."""
    return next(records(data, start))


def records(data: bytes, start: int = 0) -> Iterator[Record]:
    """As `parse`, one by one, from the offset `start` of a line."""
    reasons: dict[bytes, tuple[int, Scope, Retirement]] = {}  # the records of one run say the same
    lines = _LINE.finditer(data, start)
    for match in lines:
        line = match.group()
        at = line.rfind(MARKER)
        marker = _RECORD.fullmatch(line, at + len(MARKER)) if at >= 0 else None
        if marker is None:
            continue
        head, kind, time, scope, reason, run, live, gap, count = marker.groups()
        try:
            why = reasons.get(head) or (
                _KINDS[kind.decode()][0],
                Scope(scope.decode()),
                Retirement(
                    datetime.fromisoformat(time.decode()), (reason or b"").decode(errors="replace"), run.decode()
                ),
            )
        except ValueError:  # no date of the calendar, or no UTF-8
            continue
        if len(reasons) > 1000:
            reasons.clear()
        reasons[head] = why
        stored, end = line[:at] + line[len(line.rstrip(b"\r\n")) :], match.end()
        if count:
            rest = list(islice(lines, int(count) - 1))
            if len(rest) < int(count) - 1:
                break  # torn at the end of the file: its entry is still live
            stored, end = (
                b"".join([stored, *(following.group() for following in rest)]),
                rest[-1].end() if rest else end,
            )
        entry = Entry(decode(stored), why[1], why[2])
        yield Record(entry, why[0], int(live), int(gap or 0), stored, match.start(), end)


class Step(NamedTuple):
    """What a record says of its text: `out` and `live` as in Record, the offset of the record, its run."""

    start: int
    out: int
    live: int
    run: str


def tally(steps: Iterable[Step], live: int) -> tuple[list[int], list[int]]:
    """Of the records of one text, in the order of the file, those whose copies are still out, and those whose copies
    came back without a record of it and stand in MEMORY.md, which has `live` copies; by their offsets, in order.

    Copies out = retired - restored - what came back without a record, the newest first. That is what is live now over
    the `live` of the newest record, and what was live before a run over the `live` of the record before it: so git may
    take the retired file away and bring it back between two runs. Where branches that restored and retired were merged,
    their counts are not of one history: a copy that came back before a run by this rule and stands nowhere is out.
    """
    out: list[int] = []
    returned: list[int] = []  # before some run, or said twice
    known: int | None = None
    for _, items in groupby(steps, _run):
        every = list(items)
        # No two records of a run say the same, but where git doubled them.
        run = list({(item.out, item.live): item for item in every}.values())
        returned += (item.start for item in every if item.out > 0 and item not in run)
        if known is not None:
            before = run[-1].live - sum(-1 if item.out > 0 else 1 for item in run)
            returned += _take_newest(out, before - known)
        for item in run:
            if item.out > 0:
                out.append(item.start)
            elif item.out < 0:
                _take_newest(out, 1)
        known = run[-1].live
    if known is None:
        return [], []
    back = _take_newest(out, live - known)
    return sorted(out + _take_newest(returned, known - live)), sorted(back)


def _run(step: Step) -> str:
    return step.run


def _take_newest(starts: list[int], count: int) -> list[int]:
    keep = max(0, len(starts) - max(0, count))
    taken = starts[keep:]
    del starts[keep:]
    return taken


def outstanding(records: Iterable[Record], live: Mapping[str, int]) -> list[Record]:
    """The records whose copies are still out, in the order of the file. `live` counts the copies of each text in
    MEMORY.md.
    """
    return _tallied(records, live)[0]


def came_back(records: Iterable[Record], live: Mapping[str, int]) -> list[Record]:
    """The records whose copies came back without a record of it and are live, in the order of the file."""
    return _tallied(records, live)[1]


def _tallied(records: Iterable[Record], live: Mapping[str, int]) -> tuple[list[Record], list[Record]]:
    steps: dict[str, list[Step]] = {}
    found: dict[int, Record] = {}
    for item in records:
        found[item.start] = item
        steps.setdefault(item.entry.text, []).append(item.step)
    tallies = [tally(of_text, live.get(text, 0)) for text, of_text in steps.items()]
    out, back = (sorted(start for both in tallies for start in both[which]) for which in (0, 1))
    return [found[start] for start in out], [found[start] for start in back]


def live_snapshot(document: MemoryDocument) -> Snapshot:
    """The live entries of a MEMORY.md."""
    return Snapshot(document.entries(Scope.CORE), document.entries(Scope.ARCHIVAL))


def with_retired(
    document: MemoryDocument, data: bytes, *, before: str = ""
) -> tuple[Snapshot, list[Record], list[Record]]:
    """The entries of a MEMORY.md with those that are still out, the records of these, and all records of the retired
    file, whose bytes are `data`; those of the run `before` are left out, as they were not there before it.
    """
    live = live_snapshot(document)
    records = [item for item in parse(data) if not before or item.run != before]
    out = outstanding(records, live.texts())
    return replace(live, retired=tuple(item.entry for item in out)), out, records
