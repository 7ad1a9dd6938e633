"""What was acknowledged lately: so that lines which a program without the lock has overwritten can be named.

One journal for each memory, beside its lock, written under it and never synced: losing it loses no memory, only the
names of losses. Two segments bound it; before the older is dropped its lines are looked for once, and what is gone is
carried over, and what is live as far as it fits: a program without the lock may destroy it any time. A record is RS, a
kind, nanoseconds since 1970, the rest and LF (RFC 7464's framing), so that one that was torn is passed over:
`+ TIME SCOPE TEXT` a line was acknowledged; `? TIME STAMP` a version of the file was found that we did not write.
"""

import contextlib
import errno
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from oryx_memory.entry import Entry, Scope
from oryx_memory.errors import FileProblem, OryxMemoryWarning
from oryx_memory.files import adopt, read

SEGMENT = 512 * 1024  # bytes
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\x1e": "\\x"}
_ESCAPED = str.maketrans(_ESCAPES)
_MARKS = 50  # `?` records that are carried over


class Copies(NamedTuple):
    """How often each text is in a memory: live and retired together, and live alone."""

    held: Mapping[str, int]
    live: Mapping[str, int]


Held = Callable[[Mapping[str, int]], Copies]


class Line(NamedTuple):
    """An acknowledged line: when (nanoseconds since 1970), in which section, its text."""

    time: int
    scope: Scope
    text: str


class Mark(NamedTuple):
    """A version of the file that we did not write was found: when, and its stamp (`files.stamp`)."""

    time: int
    stamp: str


class Journal:
    """The journal that belongs to a lock file. Everything but `read` is called under that lock."""

    def __init__(self, lock_file: Path) -> None:
        self.path = lock_file.with_suffix(".journal")
        self.old_path = self.path.with_suffix(".journal.1")

    def added(self, entries: Sequence[Entry], held: Held, most: Mapping[str, int] | None = None) -> None:
        """These lines are acknowledged, after older ones were forgotten as in `forget`. `held` counts the texts that are in
        the memory, given how often each should be there; it is asked where a segment is dropped.

        What cannot be noted is no reason to fail: the lines are stored.
        """
        now = time.time_ns()
        # Each has a moment of its own: equal records count once.
        try:
            if most:
                self.forget(most)
            self._write([_line(Line(now + n, entry.scope, entry.text)) for n, entry in enumerate(entries)], held)
        except OSError as error:
            problem = str(error)
            if not isinstance(error, FileProblem):
                problem = f"{self.path}: cannot be written ({str(error.strerror or error).lower()})"
            _warn(f"{problem}; a later loss of what was added now could not be named")

    def found(self, stamp: str, held: Held) -> None:
        """The file is not as we left it."""
        with contextlib.suppress(OSError):  # a mark that is missing makes a note a fault, no more
            self._write([_record("?", time.time_ns(), stamp)], held)

    def read(self) -> tuple[list[Line], list[Mark]]:
        """Every line and mark, oldest first; one that stands in both segments counts once. Raises FileProblem."""
        records = dict.fromkeys(record for path in (self.old_path, self.path) for record in _records(path))
        return _parsed(records)

    def lost(self, held: Mapping[str, int]) -> list[Line]:
        """The acknowledged lines that are gone, given how often each text is in the memory; of copies the newest."""
        left = dict(held)
        gone = []
        for line in self.read()[0]:
            count = left.get(line.text, 0)
            if count:
                left[line.text] = count - 1
            else:
                gone.append(line)
        return gone

    def forget(self, most: Mapping[str, int]) -> None:
        """Keep at most so many lines of each of these texts, the newest. Raises FileProblem."""
        lines, _ = self.read()
        present = Counter(line.text for line in lines)
        excess = Counter({text: max(0, present[text] - count) for text, count in most.items()})
        for path in (self.old_path, self.path):
            kept: list[bytes] = []
            records = list(_records(path))
            for record in records:
                line = _parse(record)
                if isinstance(line, Line) and excess[line.text] > 0:
                    excess[line.text] -= 1
                else:
                    kept.append(record)
            if len(kept) < len(records):
                self._replace(path, kept)

    def _write(self, records: list[bytes], held: Held) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            adopt(descriptor, self.path.parent)
            size = os.fstat(descriptor).st_size
            whole = 0
            while whole < len(records) and (size < SEGMENT or not whole):
                size += len(records[whole])
                whole += 1
            data = b"".join(records[:whole])
            if os.write(descriptor, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)
        if size >= SEGMENT:
            self._rotate(held)
        if whole < len(records):
            self._write(records[whole:], held)

    def _rotate(self, held: Held) -> None:
        """Drop the old segment. What of it is gone or live is written behind the younger one first, then that takes its
        place: a process that is killed in between leaves a record in both, which counts once.
        """
        old, marks = _parsed(_records(self.old_path))
        wanted = Counter(line.text for line in self.read()[0]) if old else Counter[str]()
        there = held(wanted) if old else Copies({}, {})
        gone = Counter({text: count - there.held.get(text, 0) for text, count in wanted.items()})
        missing = _newest(old, gone)
        carried, dropped = _fitting(missing, SEGMENT // 2)
        others = set(old).difference(missing)
        living = _newest([line for line in old if line in others], Counter(there.live))
        # Core first: it is what agents are always given, and nothing cleans it.
        living.sort(key=lambda line: line.scope is not Scope.CORE)
        carried += _fitting(living, SEGMENT // 4)[0]
        if carried:
            carried += [_record("?", mark.time, mark.stamp) for mark in marks[-_MARKS:]]
            self._replace(self.path, [*_records(self.path), *carried])
        os.replace(self.path, self.old_path)
        if dropped:
            _warn(f"{self.path}: {dropped:,} acknowledged lines that are gone from the memory no longer fit in here")

    def _replace(self, path: Path, records: Iterable[bytes]) -> None:
        temporary = path.with_name(f".{path.name[:200]}.{os.getpid()}.oryx-tmp")
        try:
            temporary.unlink(missing_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                adopt(descriptor, path.parent)
                file.writelines(records)
            os.replace(temporary, path)
        except OSError as error:
            raise FileProblem(path, f"cannot be written: {str(error.strerror or error).lower()}") from error
        finally:
            temporary.unlink(missing_ok=True)


def _newest(lines: Sequence[Line], counts: Counter[str]) -> list[Line]:
    """The newest lines of each text, as many as `counts` has; newest first."""
    left = counts.copy()
    found: list[Line] = []
    for line in reversed(lines):
        if left[line.text] > 0:
            left[line.text] -= 1
            found.append(line)
    return found


def _fitting(lines: Sequence[Line], room: int) -> tuple[list[bytes], int]:
    """The records of the first lines that take no more than so many bytes, and how many lines do not fit."""
    records: list[bytes] = []
    for line in lines:
        record = _line(line)
        room -= len(record)
        if room >= 0:
            records.append(record)
    return records, len(lines) - len(records)


def _warn(message: str) -> None:
    warnings.warn(OryxMemoryWarning(message), stacklevel=4)


def _record(kind: str, moment: int, rest: str) -> bytes:
    return f"\x1e{kind} {moment} {rest}\n".encode(errors="surrogateescape")


def _line(line: Line) -> bytes:
    return _record("+", line.time, f"{line.scope.value} {line.text.translate(_ESCAPED)}")


def _records(path: Path) -> Iterator[bytes]:
    """The whole records of a segment; a torn one has no line end."""
    for record in (read(path) or b"").split(b"\x1e"):
        if record.endswith(b"\n") and _parse(b"\x1e" + record):
            yield b"\x1e" + record


def _parse(record: bytes) -> Line | Mark | None:
    kind, _, rest = record[1:-1].decode(errors="replace").partition(" ")
    moment, _, rest = rest.partition(" ")
    try:
        if kind == "?":
            return Mark(int(moment), rest)
        scope, _, text = rest.partition(" ")
        return Line(int(moment), Scope(scope), _unescaped(text)) if kind == "+" else None
    except ValueError:
        return None


def _parsed(records: Iterable[bytes]) -> tuple[list[Line], list[Mark]]:
    found = [_parse(record) for record in records]
    return [item for item in found if isinstance(item, Line)], [item for item in found if isinstance(item, Mark)]


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    back = {escaped[1]: char for char, escaped in _ESCAPES.items()}
    parts = iter(text.split("\\"))
    made = [next(parts)]
    for part in parts:
        if part:
            made.append(back.get(part[0], part[0]) + part[1:])
        else:  # an escaped backslash is an empty part and what follows it
            made.append("\\" + next(parts, ""))
    return "".join(made)
