"""What each process wrote down about its own deeds, in a file of its own, one JSON array a line: [deed, text].

A process writes down what it is about to do, does it, and writes down that it was told it is done. A kill can come
between any two of them, so what was meant and not confirmed may have happened or not; what was confirmed must have.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path


class Deed(StrEnum):
    """What a line of a ledger says. Its text is the stored line of an entry, unless something else is said."""

    MEANT = "meant to add"
    ADDED = "added"
    MEANT_TO_PURGE = "meant to purge"
    PURGED = "purged"
    SETTLED = "settled"
    FORGOT = "forgot"
    RESTORED = "restored"
    MOVED = "moved"
    EDITED = "edited"  # the old line; the new one is MEANT and ADDED
    RECOVERED = "recovered"
    CLEANED = "cleaned"  # how many entries left
    LOOKED = "looked"  # which command
    REFUSED = "refused"  # the error
    REWROTE = "rewrote"  # a foreign writer, which one
    DROPPED = "dropped"  # a hand-written piece that a foreign writer left out
    PUT_BACK = "put back"  # a hand-written piece


class Log:
    """The ledger of one process. Each line is one write, so a kill leaves whole lines and at most one torn one."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, deed: Deed, *texts: str) -> None:
        lines = "".join(json.dumps([deed, text], ensure_ascii=False) + "\n" for text in texts)
        os.write(self._descriptor, lines.encode())


class Ledger:
    """All that was written down in a folder of ledgers, read on as it grows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.deeds: dict[Deed, Counter[str]] = {deed: Counter() for deed in Deed}
        self._read: Counter[Path] = Counter()

    def catch_up(self) -> None:
        """Read what is new; a line without an end is not there yet."""
        for path in sorted(self.folder.glob("*.ledger")):
            with open(path, "rb") as file:
                file.seek(self._read[path])
                whole, end, _ = file.read().rpartition(b"\n")
            self._read[path] += len(whole + end)
            self._take(whole.split(b"\n") if end else ())

    def _take(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            deed, text = json.loads(line)
            self.deeds[Deed(deed)][text] += 1

    def count(self, deed: Deed) -> int:
        return self.deeds[deed].total()
