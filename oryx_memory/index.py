"""The derived index `.oryxos/memory-index.db`: the archival entries of every agent as tokens, for ranked recall.

It may be deleted at any time: the next ranked recall makes it anew. A memory is brought up to date when the stamp of its
store has changed; appends know nothing of it. One FTS5 table a memory, so that the rareness of a word is that of the
memory. Footprints are not in it. The file uses nothing newer than SQLite 3.40.
"""

import contextlib
import os
import sqlite3
import warnings
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from oryx_memory import database
from oryx_memory.entry import Entry
from oryx_memory.errors import FileProblem, LockTimeout, OryxMemoryWarning
from oryx_memory.ranking import SHORTEST, TOKENIZE, is_footprint, respellings, written
from oryx_memory.stores.base import LongTermMemoryStore

FORMAT = "1"  # of the tables and of the tokens; another one is made anew
COMMON = 0.4  # tokens that a larger share of the entries has are left out of a query that has others


class Row(NamedTuple):
    """An indexed entry, and its place among those of its memory that are indexed."""

    place: int
    entry: Entry


class Index:
    """A context manager. Raises FileProblem and LockTimeout, from `open` and everything else."""

    def __init__(self, connection: sqlite3.Connection, path: Path, timeout: float) -> None:
        self._connection = connection
        self._path = path
        self._timeout = timeout

    @classmethod
    def open(cls, path: Path, timeout: float = 10.0) -> "Index":
        """The index at a path, made if it is missing; one that is broken or of another format is made anew, with a
        warning. `timeout` in seconds.
        """
        try:
            return cls._opened(path, timeout)
        except FileProblem as error:
            if "corrupt" not in str(error) and "not a SQLite database" not in str(error):
                raise
            _remove(path)
            warnings.warn(OryxMemoryWarning(f"{error}; it is derived, and was made anew"), stacklevel=2)
            return cls._opened(path, timeout)

    @classmethod
    def in_memory(cls) -> "Index":
        """An index that lives as long as the process, for where no file can be written."""
        index = cls(sqlite3.connect(":memory:", isolation_level=None), Path(":memory:"), 0)
        index._make()
        return index

    @classmethod
    def _opened(cls, path: Path, timeout: float) -> "Index":
        connection = database.connect(path, timeout=timeout, write=True)
        assert connection is not None
        index = cls(connection, path, timeout)
        try:
            with index._problems():
                connection.execute("PRAGMA synchronous = NORMAL")  # derived: a power cut costs a rebuild at most
                if database.has_table(connection, "meta"):
                    (made,) = connection.execute("SELECT value FROM meta WHERE name = 'format'").fetchone() or ("",)
                    if made == FORMAT:
                        return index
                    index._drop()
                index._make()
        except BaseException:
            connection.close()
            raise
        return index

    def __enter__(self) -> "Index":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def _make(self) -> None:
        with database.transaction(self._connection):
            if database.has_table(self._connection, "meta"):
                return  # another process was faster
            for statement in (
                "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT)",
                "CREATE TABLE memory (number INTEGER PRIMARY KEY, name TEXT UNIQUE, stamp TEXT)",
                "CREATE TABLE entry (number INTEGER PRIMARY KEY, memory INT, place INT, raw TEXT, time TEXT)",
                "CREATE INDEX entry_place ON entry (memory, place)",
                "CREATE INDEX entry_time ON entry (memory, time)",
            ):
                self._connection.execute(statement)
            self._connection.execute("INSERT INTO meta VALUES ('format', ?)", (FORMAT,))

    def _drop(self) -> None:
        with database.transaction(self._connection):
            names = "SELECT name FROM sqlite_master WHERE type = 'table' AND (sql LIKE 'CREATE VIRTUAL%' OR name IN ('meta', 'memory', 'entry'))"
            for (name,) in self._connection.execute(names).fetchall():
                self._connection.execute(f"DROP TABLE {name}")

    def _problems(self) -> contextlib.AbstractContextManager[None]:
        return database.problems(self._path, self._timeout)

    def update(self, store: LongTermMemoryStore) -> int:
        """Bring the memory of a store up to date if its stamp has changed; the number by which it is searched."""
        stamp = store.stamp()
        name = f"{os.path.relpath(store.resource, self._path.parent)} {store.agent or ''}"
        with self._problems():
            known = self._connection.execute("SELECT number, stamp FROM memory WHERE name = ?", (name,)).fetchone()
            if known and stamp is not None and known[1] == stamp:
                return int(known[0])
            entries = [entry for entry in store.read().archival if not is_footprint(entry.content)]
            with database.transaction(self._connection):
                number = self._number(name)
                self._reconcile(number, entries)
                self._connection.execute("UPDATE memory SET stamp = ? WHERE number = ?", (stamp, number))
            return number

    def shred(self, store: LongTermMemoryStore) -> None:
        """Bring a memory up to date and leave nothing of what was deleted in the file."""
        number = self.update(store)
        with self._problems():
            self._connection.execute(f"INSERT INTO terms_{number} (terms_{number}) VALUES ('optimize')")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _number(self, name: str) -> int:
        """The number of a memory, which is made if it is new."""
        self._connection.execute("INSERT OR IGNORE INTO memory (name) VALUES (?)", (name,))
        (number,) = self._connection.execute("SELECT number FROM memory WHERE name = ?", (name,)).fetchone()
        if not database.has_table(self._connection, f"terms_{number}"):
            self._connection.execute(
                f"CREATE VIRTUAL TABLE terms_{number} USING fts5(body, content = '', tokenize = \"{TOKENIZE}\")"
            )
            self._connection.execute(f"CREATE VIRTUAL TABLE words_{number} USING fts5vocab(terms_{number}, row)")
        return int(number)

    def _reconcile(self, number: int, entries: Sequence[Entry]) -> None:
        """Make the rows of a memory those of the entries. What was appended is added; else copies are counted."""
        rows = self._connection.execute("SELECT number, raw FROM entry WHERE memory = ? ORDER BY place", (number,))
        have: list[tuple[int, str]] = rows.fetchall()
        if [raw for _, raw in have] == [entry.raw for entry in entries[: len(have)]]:
            for place, entry in enumerate(entries[len(have) :], len(have)):
                self._add(number, place, entry)
            return
        known: dict[str, list[int]] = {}
        for row, raw in reversed(have):
            known.setdefault(raw, []).append(row)
        for place, entry in enumerate(entries):
            if copies := known.get(entry.raw):
                self._connection.execute("UPDATE entry SET place = ? WHERE number = ?", (place, copies.pop()))
            else:
                self._add(number, place, entry)
        gone = [(row, raw) for raw, rows_left in known.items() for row in rows_left]
        for row, raw in gone:
            self._connection.execute(
                f"INSERT INTO terms_{number} (terms_{number}, rowid, body) VALUES ('delete', ?, ?)", (row, _body(raw))
            )
            self._connection.execute("DELETE FROM entry WHERE number = ?", (row,))
        if gone:  # what was deleted stays in the segments until they are merged
            self._connection.execute(f"INSERT INTO terms_{number} (terms_{number}) VALUES ('optimize')")

    def _add(self, number: int, place: int, entry: Entry) -> None:
        time = entry.time
        row = self._connection.execute(
            "INSERT INTO entry (memory, place, raw, time) VALUES (?, ?, ?, ?)",
            (number, place, entry.raw, time.isoformat() if time else None),
        ).lastrowid
        self._connection.execute(f"INSERT INTO terms_{number} (rowid, body) VALUES (?, ?)", (row, _body(entry.raw)))

    def search(self, memory: int, tokens: Sequence[str], limit: int) -> dict[int, float]:
        """The entries that have any of the tokens, by number, with their BM25 scores (higher is better), best first."""
        with self._problems():
            chosen = self._rare(memory, tokens)
            if not chosen:
                return {}
            table = f"terms_{memory}"
            match = " OR ".join(f'"{token}"' for token in chosen)
            sql = f"SELECT rowid, -bm25({table}) FROM {table} WHERE {table} MATCH ? ORDER BY rank LIMIT ?"
            return dict(self._connection.execute(sql, (match, limit)).fetchall())

    def _rare(self, memory: int, tokens: Sequence[str]) -> list[str]:
        """The tokens that the memory has, without those that most entries have if there are others. One that it lacks
        is respelled, as it may be mistyped.
        """
        words = f"SELECT term, doc FROM words_{memory} WHERE term IN ({_marks(tokens)})"
        known = dict(self._connection.execute(words, tokens).fetchall()) if tokens else {}
        lacking = [token for token in tokens if token not in known and len(token) >= SHORTEST and token.isalpha()]
        if lacking:
            sql = f"SELECT term, doc FROM words_{memory} WHERE length(term) >= {SHORTEST - 1}"
            everything = self._connection.execute(sql).fetchall()
            vocabulary = [term for term, _ in everything]
            respelled = [term for token in lacking for term in respellings(token, vocabulary)]
            known |= {term: doc for term, doc in everything if term in set(respelled)}
            tokens = [*tokens, *respelled]
        (total,) = self._connection.execute("SELECT count(*) FROM entry WHERE memory = ?", (memory,)).fetchone()
        rare = [token for token in tokens if 0 < known.get(token, 0) <= COMMON * total]
        return rare or [token for token in tokens if token in known]

    def between(self, memory: int, start: date, end: date, limit: int) -> list[Row]:
        """The newest entries of the days from start to end."""
        return self._rows(
            "memory = ? AND time >= ? AND time < ? ORDER BY time DESC LIMIT ?",
            (memory, start.isoformat(), (end + timedelta(days=1)).isoformat(), limit),
        )

    def places(self, numbers: Iterable[int]) -> dict[int, int]:
        """The places of entries by their numbers."""
        wanted = list(numbers)
        sql = f"SELECT number, place FROM entry WHERE number IN ({_marks(wanted)})"
        with self._problems():
            return dict(self._connection.execute(sql, wanted).fetchall())

    def at(self, memory: int, places: Iterable[int]) -> dict[int, Entry]:
        """The entries that stand at places of a memory, as far as it has them."""
        wanted = list(places)
        rows = self._rows(f"memory = ? AND place IN ({_marks(wanted)})", (memory, *wanted))
        return {row.place: row.entry for row in rows}

    def _rows(self, where: str, values: tuple[object, ...]) -> list[Row]:
        with self._problems():
            found = self._connection.execute(f"SELECT place, raw FROM entry WHERE {where}", values)
            return [Row(place, Entry(raw)) for place, raw in found]

    def ends(self, memory: int) -> tuple[datetime, datetime] | None:
        """The oldest and the newest time of a memory; None where no entry has one."""
        with self._problems():
            sql = "SELECT min(time), max(time) FROM entry WHERE memory = ?"
            oldest, newest = self._connection.execute(sql, (memory,)).fetchone()
            return (datetime.fromisoformat(oldest), datetime.fromisoformat(newest)) if oldest else None


def after_purge(path: Path, store: LongTermMemoryStore, timeout: float) -> None:
    """Take what was destroyed in a memory out of the index too, if there is one: rows, tokens and the log's pages."""
    if path.exists():
        with Index.open(path, timeout) as index:
            index.shred(store)


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def _body(raw: str) -> str:
    return written(Entry(raw).content)


def _remove(path: Path) -> None:
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)


def open_or_in_memory(path: Path, timeout: float) -> Index:
    """The index, or one in memory with a warning where the file cannot be written."""
    try:
        return Index.open(path, timeout)
    except (FileProblem, LockTimeout) as error:
        warnings.warn(
            OryxMemoryWarning(f"{error}; searching without the stored index, which takes longer"), stacklevel=2
        )
        return Index.in_memory()
