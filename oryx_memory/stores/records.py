"""The records of what leaves a memory, as the backends that keep a MEMORY.retired.md write them.

A record is written, and is on the disk, before its entry leaves, and after it came back; `retired` says why a kill in
between loses nothing. All of it is done under the lock of that memory.
"""

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from oryx_memory import files
from oryx_memory.changes import Change, Snapshot, new_run
from oryx_memory.document import Layout, MemoryDocument, Splice, piece
from oryx_memory.entry import Entry, Retirement
from oryx_memory.retired import parse, record

if TYPE_CHECKING:
    from oryx_memory.stores.spool import Lacking


class Deed(NamedTuple):
    """What a change does to one copy of an entry, for its record: `stored` are its bytes, `out`, `gap` and the reason are
    those of `retired.record`.
    """

    entry: Entry
    stored: bytes
    out: int
    reason: str = ""
    gap: int = 0


def records_of_change(deeds: Sequence[Deed], copies: Mapping[str, int], now: datetime, run: str) -> list[bytes]:
    """The records of one change, in order. Each counts the live copies of its text after its own deed, the last one of a
    text those after the change, which `copies` has. So no two records of a run are alike: a run that git doubled counts
    once.
    """
    live = Counter(copies)
    made: list[bytes] = []
    for entry, stored, out, reason, gap in reversed(deeds):
        why = Retirement(now, reason, run)
        made.append(record(stored, entry.scope, why, out=out, live=live[entry.text], gap=gap))
        live[entry.text] += 1 if out > 0 else -1
    return made[::-1]


def append_records(lock: files.Lock, path: Path, records: Sequence[bytes]) -> None:
    """Add whole records to a retired file, which is made if it is missing; durable on return. Raises FileProblem."""
    files.append(lock, path, partial(given, records), Layout.at_end)


def unsaid(now: datetime, runs: Container[str] = ()) -> Retirement:
    """The time and a run of records that need no reason."""
    return Retirement(now, "", new_run(now, runs))


def records_of(item: "Lacking", again: Retirement) -> Iterator[bytes]:
    """The records of an entry that comes from another memory. Where copies are out already, it is added before it is
    retired, or it would pass for one of them that came back.
    """
    entry, live, out = item
    stored = piece(entry, b"\n")
    if out:
        yield record(stored, entry.scope, again, out=0, live=live + bool(entry.retired))
    if entry.retired:
        yield record(stored, entry.scope, entry.retired, out=1, live=live)


def copies_after(snapshot: Snapshot, change: Change) -> Counter[str]:
    """How many live copies of each text there are once a change is made."""
    copies = Counter(copy.entry.text for copy in snapshot.live())
    copies.subtract(item.copy.entry.text for item in change.retire)
    copies.subtract(item.copy.entry.text for item in change.edit)
    copies.subtract(copy.entry.text for copy in change.purge if copy.entry.retired is None)
    copies.update(item.new.text for item in change.edit)
    copies.update(copy.entry.text for copy in change.restore)
    copies.update(entry.text for entry in (*change.add, *change.recover))
    return copies


def leaving(change: Change) -> Counter[str]:
    """How many copies of each text a change retires, those that it edits with them."""
    copies = [item.copy for item in change.retire] + [item.copy for item in change.edit]
    return Counter(copy.entry.text for copy in copies)


def doomed(change: Change, still_out: Mapping[str, int]) -> set[str]:
    """The texts whose records go with a change: all copies that are out are to be destroyed, and none leaves in this very
    change. `still_out` counts the copies of each text that were out before it.
    """
    named = Counter(copy.entry.text for copy in change.purge if copy.entry.retired)
    texts = {copy.entry.text for copy in change.purge}.difference(leaving(change))
    return {text for text in texts if named[text] == still_out.get(text, 0)}


def given(pieces: Sequence[bytes], _newline: bytes) -> Sequence[bytes]:
    """The pieces as they are, whatever newline the file has."""
    return pieces


def without(texts: frozenset[str], data: bytes) -> bytes:
    """The bytes of a retired file without the records of these texts."""
    document = MemoryDocument(data)
    return document.spliced(Splice(item.start, item.end, b"") for item in parse(data) if item.entry.text in texts)
