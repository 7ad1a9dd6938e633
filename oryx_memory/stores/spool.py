"""Entries on their way into a memory, in a temporary file: their number costs no memory.

The file is a private database of SQLite's (the empty name: no name in any folder, gone with the connection,
https://www.sqlite.org/inmemorydb.html). Texts are counted by a BLAKE2b digest of 16 bytes.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from datetime import datetime
from hashlib import blake2b
from itertools import groupby, islice
from types import TracebackType
from typing import NamedTuple

from oryx_memory.entry import Entry, Retirement, Scope
from oryx_memory.errors import RejectedInput
from oryx_memory.retired import Record, Step, record_at, records, tally

BATCH = 2000  # entries that are in memory at once

_LACKING = """
WITH numbered AS (
    SELECT *, row_number() OVER (PARTITION BY text ORDER BY retired_at IS NOT NULL, number) AS copy,
        sum(retired_at IS NULL) OVER (PARTITION BY text) AS live_wanted
    FROM entry
), counted AS (
    SELECT numbered.*, coalesce(held.live, 0) AS live, coalesce(held.out, 0) AS out
    FROM numbered LEFT JOIN held USING (text)
)
SELECT raw, scope, retired_at, reason, run, iif(retired_at IS NULL, copy - out, max(live, live_wanted - out)),
    out + iif(retired_at IS NULL, 0, copy - 1 - max(live_wanted, live + out))
FROM counted WHERE copy > live + out ORDER BY retired_at IS NOT NULL, number
"""


class Lacking(NamedTuple):
    """An entry that the memory lacks: how many live copies it has with this one, and how many are out without it."""

    entry: Entry
    live: int
    out: int


class Spool:
    """A context manager. `put` what shall be there, `hold` what is there, then ask for what is lacking."""

    def __init__(self) -> None:
        self._database = _temporary()
        self._database.execute(
            "CREATE TABLE entry (number INTEGER PRIMARY KEY, text BLOB, raw TEXT, scope TEXT, retired_at TEXT, "
            "reason TEXT, run TEXT)"
        )
        self._database.execute("CREATE TABLE held (text BLOB PRIMARY KEY, live INT, out INT) WITHOUT ROWID")
        self.total = 0

    def __enter__(self) -> "Spool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()

    def put(self, entries: Iterable[Entry]) -> None:
        """Entries that shall be there. Raises RejectedInput for text that is no valid Unicode."""
        insert = "INSERT INTO entry (text, raw, scope, retired_at, reason, run) VALUES (?, ?, ?, ?, ?, ?)"
        self.total += self._database.executemany(insert, map(_row, entries)).rowcount

    def hold(self, entries: Iterable[Entry]) -> None:
        """All that the memory has, live and retired; counts of an earlier call are forgotten."""
        self._database.execute("DELETE FROM held")
        self._database.executemany(
            "INSERT INTO held VALUES (?, ?, ?) ON CONFLICT (text) DO UPDATE SET live = live + excluded.live, "
            "out = out + excluded.out",
            ((_digest(entry.text), entry.retired is None, entry.retired is not None) for entry in entries),
        )

    def batches(self) -> Iterator[list[Lacking]]:
        """What is lacking so that each text is there as often as it was put, live and retired counted together:
        the live ones first, in the order of `put`.
        """
        rows = map(_lacking, self._database.execute(_LACKING))
        while batch := list(islice(rows, BATCH)):
            yield batch

    def texts(self) -> int:
        """How many different texts were put."""
        return int(self._database.execute("SELECT count(DISTINCT text) FROM entry").fetchone()[0])


def still_out(data: bytes, live: Iterable[Entry]) -> Iterator[Record]:
    """As `retired.outstanding` over the records of a retired file and the live entries, of any number."""
    if not data:
        return
    database = _temporary()
    try:
        database.execute("CREATE TABLE step (start INTEGER PRIMARY KEY, out INT, live INT, run TEXT, text BLOB)")
        database.execute("CREATE TABLE live (text BLOB PRIMARY KEY, copies INT) WITHOUT ROWID")
        database.execute("CREATE TABLE still_out (start INTEGER PRIMARY KEY)")
        database.executemany(
            "INSERT INTO step VALUES (?, ?, ?, ?, ?)",
            ((*item.step, _digest(item.entry.text)) for item in records(data)),
        )
        database.executemany(
            "INSERT INTO live VALUES (?, 1) ON CONFLICT DO UPDATE SET copies = copies + 1",
            ((_digest(entry.text),) for entry in live),
        )
        steps = database.execute(
            "SELECT start, out, step.live, run, text, coalesce(copies, 0) FROM step LEFT JOIN live USING (text) "
            "ORDER BY text, start"
        )
        for (_, copies), rows in groupby(steps, key=lambda row: row[4:]):
            out, _ = tally((Step(*row[:4]) for row in rows), copies)
            database.executemany("INSERT INTO still_out VALUES (?)", ((start,) for start in out))
        for (start,) in database.execute("SELECT start FROM still_out ORDER BY start"):
            yield record_at(data, start)
    finally:
        database.close()


def _temporary() -> sqlite3.Connection:
    database = sqlite3.connect("", isolation_level=None)
    database.execute("PRAGMA journal_mode = OFF")
    database.execute("PRAGMA cache_size = -4096")  # KiB
    database.execute("BEGIN")
    return database


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()


def _row(entry: Entry) -> tuple[bytes, str, str, str | None, str | None, str | None]:
    why = entry.retired
    retired = (why.time.isoformat(timespec="seconds"), why.reason, why.run) if why else (None, None, None)
    try:
        return _digest(entry.text), entry.raw, entry.scope.value, *retired
    except UnicodeEncodeError:
        raise RejectedInput(f"not valid Unicode: {entry.raw[:80]!r}") from None


def _lacking(row: tuple[str, str, str | None, str, str, int, int]) -> Lacking:
    raw, scope, time, reason, run, live, out = row
    why = Retirement(datetime.fromisoformat(time), reason, run) if time is not None else None
    return Lacking(Entry(raw, Scope(scope), why), live, out)
