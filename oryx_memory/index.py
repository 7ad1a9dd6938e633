"""The derived index `.oryxos/memory-index.db`: the archival entries of every agent as tokens, for ranked recall, and the
turns of its sessions (see episodes.py).

It may be deleted at any time: the next ranked recall makes it anew. A memory is brought up to date when the stamp of its
store has changed, from the mark on that the store gave; appends know nothing of it. One FTS5 table a memory, so that the
rareness of a word is that of the memory. Footprints are not in it; retired entries are a memory of their own, made when
they are asked for. The file uses nothing newer than SQLite 3.40, and is not written through links.
"""

import contextlib
import os
import sqlite3
import stat
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import NamedTuple, Protocol
from unicodedata import unidata_version

from Stemmer import version

from oryx_memory import database, files
from oryx_memory.changes import Snapshot
from oryx_memory.entry import Entry, Retirement, Scope
from oryx_memory.errors import FileProblem, LockTimeout, OryxMemoryWarning
from oryx_memory.ranking import SHORTEST, TOKENIZE, is_footprint, respellings, tokens
from oryx_memory.stores.base import LongTermMemoryStore, Tail

FORMAT = f"4 {unidata_version} {version()}"  # of the tables, and of what makes the tokens; another one is made anew
COMMON = 0.4  # tokens that a larger share of the entries has are left out of a query that has others
# BM25 takes 4 µs for an entry that has a token. In a memory of more entries than this the commonest tokens of a query are
# left out, so that the others are in no more than this together.
POSTINGS = 4000
BATCH = 1000  # entries
HASH = (
    16 << 20
)  # bytes of tokens that FTS5 collects before it writes a segment; with its own 1 MB it takes a third longer


_AMONG = "(?2 IS NULL OR {} IN (SELECT value FROM json_each(?2)))"
_TABLES = ("meta", "memory", "entry", "word")
_MEMORY = Path(":memory:")


class Row(NamedTuple):
    """An indexed entry, and its place among those of its memory that are indexed."""

    place: int
    entry: Entry


class About(NamedTuple):
    """How much of a memory is in the index: entries that are, entries that would be if it were up to date (archival ones
    without footprints), and bytes of the file, which all memories share.
    """

    indexed: int
    archival: int
    size: int


class Part(NamedTuple):
    """What stands at a range of places, by place; nothing else does."""

    places: range
    entries: Mapping[int, Entry]


class Parts(NamedTuple):
    """The ranges in which a memory has changed since a mark was given, and what to ask with the next time."""

    changed: Sequence[Part]
    mark: str


class Source(Protocol):
    """What the index asks of a memory: a LongTermMemoryStore, or the episodes of an agent."""

    @property
    def agent(self) -> str | None:
        """Whose it is; None for the global memory."""

    @property
    def resource(self) -> str:
        """Where it is kept: with `agent` it is what the index knows it by."""

    def stamp(self) -> str | None:
        """A text that differs when what is read would; None if it cannot tell."""

    def settled_stamp(self) -> str | None:
        """The stamp, or None while one more write might not change it."""

    def archival_since(self, mark: str | None) -> Tail | Parts:
        """What has changed since a mark was given; all without one."""

    def read(self, *, retired: bool = False) -> Snapshot:
        """All of it at one moment."""

    def recall_by_keyword(self, keyword: str) -> list[Entry]:
        """The archival entries with a keyword in them, for a query without words that the memory has."""


class _Known(NamedTuple):
    """A memory in the index: its number and entries, the store's stamp and mark, and how many entries stand before the
    mark.
    """

    number: int
    entries: int
    stamp: str | None
    mark: str | None
    before: int


class Index:
    """A context manager. Raises FileProblem and LockTimeout, from `open` and everything else."""

    def __init__(self, connection: sqlite3.Connection, path: Path, timeout: float) -> None:
        self.connection = connection  # what vectors.py keeps in the same file
        self._path = path
        self._timeout = timeout
        self._library: ModuleType = sqlite3
        self._file: tuple[int, int] | None = None

    @classmethod
    def open(cls, path: Path, timeout: float = 10.0, library: ModuleType = sqlite3) -> "Index":
        """The index at a path, made if it is missing; one that is broken or of another format is made anew, with a
        warning. `timeout` in seconds; `library` is sqlite3 or pysqlite3, and the one that this process has the file
        open through where it has: two would break each other's locks.
        """
        try:
            return cls._opened(path, timeout, library)
        except FileProblem as error:
            if not _is_broken(error):
                raise
            return cls._made_anew(path, timeout, library, _identity(path))

    @classmethod
    def in_memory(cls) -> "Index":
        """An index that lives as long as the process, for where no file can be written."""
        index = cls(sqlite3.connect(str(_MEMORY), isolation_level=None), _MEMORY, 0)
        index._make()
        return index

    @classmethod
    def _opened(cls, path: Path, timeout: float, library: ModuleType) -> "Index":
        _refuse_foreign(path)
        library = _enter(path, library)
        try:
            connection = database.connect(path, timeout=timeout, write=True, library=library)
        except BaseException:
            _leave(path)
            raise
        assert connection is not None
        index = cls(connection, path, timeout)
        index._library, index._file = library, _identity(path)
        try:
            with index.problems():
                connection.execute("PRAGMA synchronous = NORMAL")  # derived: a power cut costs a rebuild at most
                if not index._is_ours():
                    with database.transaction(connection):
                        if not index._is_ours():  # or it would drop what another process has just made
                            index._drop()
                            index._make()
        except BaseException:
            index.close()
            raise
        return index

    @classmethod
    def _made_anew(cls, path: Path, timeout: float, library: ModuleType, broken: tuple[int, int] | None) -> "Index":
        """A new index in place of a broken file, unless another process has put one there already."""
        with files.Lock(path.parent / ".locks" / "index.lock", (path,), timeout):
            if broken is not None and _identity(path) == broken:
                _remove(path)
        warnings.warn(OryxMemoryWarning(f"{path} was broken; it is derived, and was made anew"), stacklevel=3)
        return cls._opened(path, timeout, library)

    def __enter__(self) -> "Index":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self.connection.close()
        _leave(self._path)

    @property
    def stored(self) -> bool:
        """Whether it is in a file; one in memory is made of words alone."""
        return self._path != _MEMORY

    def give_up(self, error: FileProblem | LockTimeout) -> bool:
        """After an error of the index's own file: be an index in memory from now on, or a new file where the old one is
        broken, with a warning. False where the error is about another file.
        """
        if error.path != self._path or not self.stored:
            return False
        self.close()
        other = self._in_place_of_this() if _is_broken(error) else Index.in_memory()
        if not other.stored:
            _warn_of_memory(error)
        vars(self).update(vars(other))
        return True

    def _in_place_of_this(self) -> "Index":
        try:
            return self._made_anew(self._path, self._timeout, self._library, self._file)
        except (FileProblem, LockTimeout):
            return Index.in_memory()

    def _is_ours(self) -> bool:
        """Whether all tables are there, of this format."""
        if not all(database.has_table(self.connection, name) for name in _TABLES):
            return False
        made = self.connection.execute("SELECT value FROM meta WHERE name = 'format'").fetchone()
        return bool(made == (FORMAT,))

    def _make(self) -> None:
        with database.transaction(self.connection):
            if database.has_table(self.connection, "meta"):
                return  # another process was faster
            for statement in (
                "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT)",
                "CREATE TABLE memory (number INTEGER PRIMARY KEY, name TEXT, retired INT, entries INT DEFAULT 0, "
                "stamp TEXT, mark TEXT, before INT DEFAULT 0, UNIQUE (name, retired))",
                # A number is never given again: who found it a moment ago may ask what it stands for.
                "CREATE TABLE entry (number INTEGER PRIMARY KEY AUTOINCREMENT, memory INT, place INT, raw TEXT, time TEXT, why TEXT)",
                "CREATE INDEX entry_place ON entry (memory, place)",
                "CREATE INDEX entry_time ON entry (memory, time, place)",
                # How many entries have a token; the words among the tokens backwards too, to look for misspelled starts.
                "CREATE TABLE word (memory INT, term TEXT, entries INT, mirrored TEXT, PRIMARY KEY (memory, term)) "
                "WITHOUT ROWID",
                "CREATE INDEX word_mirrored ON word (memory, mirrored) WHERE mirrored IS NOT NULL",
            ):
                self.connection.execute(statement)
            self.connection.execute("INSERT INTO meta VALUES ('format', ?)", (FORMAT,))

    def _drop(self) -> None:
        with database.transaction(self.connection):
            names = (  # not the tables of vectors, which may have cost money; `embedded` and `filed` name entries
                "SELECT name FROM sqlite_master WHERE type = 'table' AND (sql LIKE 'CREATE VIRTUAL%USING fts5%' "
                "OR name IN ('meta', 'memory', 'entry', 'word', 'embedded', 'covered', 'filed', 'stale'))"
            )
            for (name,) in self.connection.execute(names).fetchall():
                self.connection.execute(f"DROP TABLE {name}")

    def problems(self) -> contextlib.AbstractContextManager[None]:
        """Tell SQLite's errors in a line with the file."""
        return database.problems(self._path, self._timeout)

    @contextlib.contextmanager
    def current(self, store: Source, *, retired: bool = False) -> Iterator[int]:
        """A memory brought up to date, by the number by which it is searched; what is read meanwhile is of one moment,
        whatever other processes do to the index.
        """
        for _ in range(files.ROUNDS):
            number = self.update(store, retired=retired)
            with self.problems():
                self.connection.execute("BEGIN")
                if self.connection.execute("SELECT 1 FROM memory WHERE number = ?", (number,)).fetchone():
                    break
                self.connection.execute("ROLLBACK")  # removed in between
        else:
            raise FileProblem(self._path, "another process removes this memory again and again")
        try:
            yield number
        finally:
            with self.problems():
                self.connection.execute("ROLLBACK")

    def update(self, store: Source, *, retired: bool = False) -> int:
        """Bring the memory of a store up to date if its stamp has changed, or its retired entries, which are a memory of
        their own; the number by which it is searched.
        """
        with self.problems():
            known = self._known(store, retired)
            if known and known.stamp is not None and known.stamp == store.stamp():
                return known.number
            with database.transaction(self.connection):
                return self._catch_up(store, retired)

    def rebuild(self, store: Source) -> int:
        """Make the memory of a store anew, and that of its retired entries if there is one; its number."""
        with self.problems(), database.transaction(self.connection):
            if gone := self._known(store, True):
                self._empty(gone.number)
                self._catch_up(store, True)
            if known := self._known(store, False):
                self._empty(known.number)
            return self._catch_up(store, False)

    def prune(self, keep: Collection[Source]) -> int:
        """Remove the memories of all other stores; how many these were."""
        names = {self._name(store) for store in keep}
        with self.problems(), database.transaction(self.connection):
            rows = self.connection.execute("SELECT number, name FROM memory").fetchall()
            gone = [(number, name) for number, name in rows if name not in names]
            for number, _ in gone:
                self._empty(number)
                self.connection.execute(f"DROP TABLE terms_{number}")
                self.connection.execute("DELETE FROM memory WHERE number = ?", (number,))
            return len({name for _, name in gone})

    def number(self, store: Source) -> int | None:
        """The number of a store's memory as it is in the index; None where it is not."""
        with self.problems():
            known = self._known(store, False)
            return known.number if known else None

    def about(self, store: Source) -> About:
        """How much of the memory of a store is in the index as it is."""
        archival = sum(not is_footprint(entry.content) for entry in store.read().archival)
        with self.problems():
            known = self._known(store, False)
            (size,) = self.connection.execute(
                "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
            ).fetchone()
            return About(known.entries if known else 0, archival, size)

    def verify(self, store: Source) -> list[str]:
        """Bring the memory of a store up to date, and tell in a line each how its rows and tokens differ from it."""
        found: list[str] = []
        for _ in range(files.ROUNDS):
            stamp = store.stamp()
            found = self._differences(store)
            if not found or stamp == store.stamp():
                break  # else somebody wrote meanwhile
        return found

    def _differences(self, store: Source) -> list[str]:
        with self.current(store) as memory, self.problems():
            wanted = [entry for entry in store.read().archival if not is_footprint(entry.content)]
            have = self.connection.execute(
                "SELECT number, raw FROM entry WHERE memory = ? ORDER BY place", (memory,)
            ).fetchall()
            indexed, stored = [raw for _, raw in have], [entry.raw for entry in wanted]
            found = [f"not in the index: {raw}" for raw in (Counter(stored) - Counter(indexed)).elements()]
            found += [f"not in the memory: {raw}" for raw in (Counter(indexed) - Counter(stored)).elements()]
            if not found and indexed != stored:
                found.append("the entries stand in another order than in the memory")
            return found + self._verify_tokens(memory, have)

    def _verify_tokens(self, memory: int, have: Sequence[tuple[int, str]]) -> list[str]:
        """How the full text and the table of words differ from what the rows make."""
        sums: Counter[int] = Counter()
        try:
            self.connection.execute(
                f"CREATE VIRTUAL TABLE temp.instance_{memory} USING fts5vocab(main, terms_{memory}, instance)"
            )
            for term, row, offset in self.connection.execute(f"SELECT term, doc, offset FROM instance_{memory}"):
                sums[row] += hash((term, offset))
            self.connection.execute(f"DROP TABLE temp.instance_{memory}")
        except self.connection.DatabaseError as error:
            return [f"the full text cannot be read: {error}"]
        found: list[str] = []
        words: Counter[str] = Counter()
        for row, raw in have:
            made = _tokens(raw)
            words.update(set(made))
            if sums.pop(row, 0) != sum(hash((term, offset)) for offset, term in enumerate(made)):
                found.append(f"other words are indexed than stand in: {raw}")
        found += [f"words are indexed of an entry that is not there: {row}" for row in sums]
        counted = dict(self.connection.execute("SELECT term, entries FROM word WHERE memory = ?", (memory,)).fetchall())
        return found + [f"the number of entries with a word is wrong: {term}" for term in _differing(words, counted)]

    def shred(self, store: Source) -> None:
        """Bring a memory up to date, its retired entries too, and leave nothing of what was deleted in the file."""
        for retired in (False, True):
            if self._known(store, retired):
                number = self.update(store, retired=retired)
                with self.problems():
                    self.connection.execute(f"INSERT INTO terms_{number} (terms_{number}) VALUES ('optimize')")
        with self.problems():
            (busy, _, _) = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            message = (
                f"{self._path}-wal: another program is reading; what was destroyed stays in it until the next purge"
            )
            warnings.warn(OryxMemoryWarning(message), stacklevel=2)

    def _name(self, store: Source) -> str:
        name = f"{os.path.relpath(store.resource, self._path.parent)} {store.agent or ''}"
        return name.encode(errors="backslashreplace").decode()

    def _known(self, store: Source, retired: bool) -> _Known | None:
        sql = "SELECT number, entries, stamp, mark, before FROM memory WHERE name = ? AND retired = ?"
        row = self.connection.execute(sql, (self._name(store), retired)).fetchone()
        return _Known(*row) if row else None

    def _new(self, store: Source, retired: bool) -> _Known:
        made = self.connection.execute(
            "INSERT INTO memory (name, retired) VALUES (?, ?) RETURNING number, entries, stamp, mark, before",
            (self._name(store), retired),
        )
        known = _Known(*made.fetchone())
        table = f"terms_{known.number}"
        self.connection.execute(
            f"CREATE VIRTUAL TABLE {table} USING fts5(body, content = '', tokenize = \"{TOKENIZE}\")"
        )
        self.connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('hashsize', ?)", (HASH,))
        return known

    def _catch_up(self, store: Source, retired: bool) -> int:
        """As `update`, in a transaction."""
        known = self._known(store, retired) or self._new(store, retired)
        stamp = store.settled_stamp()
        if stamp is not None and stamp == known.stamp:
            return known.number  # another process was faster
        tail = Tail(0, store.read(retired=True).retired, None) if retired else store.archival_since(known.mark)
        if isinstance(tail, Parts):
            entries, before = self._replace(known.number, tail.changed), 0
        else:
            start = known.before if tail.before else 0
            wanted = [entry for entry in tail.entries if not is_footprint(entry.content)]
            self._reconcile(known.number, range(start, sys.maxsize), enumerate(wanted, start))
            entries = start + len(wanted)
            before = entries - 1 if wanted and wanted[-1] is tail.entries[-1] else entries
        self.connection.execute(
            "UPDATE memory SET entries = ?, stamp = ?, mark = ?, before = ? WHERE number = ?",
            (entries, stamp, tail.mark, before, known.number),
        )
        return known.number

    def _empty(self, memory: int) -> None:
        """Take all out of a memory."""
        for table in ("entry", "word"):
            self.connection.execute(f"DELETE FROM {table} WHERE memory = ?", (memory,))
        self.connection.execute(f"INSERT INTO terms_{memory} (terms_{memory}) VALUES ('delete-all')")
        self.connection.execute(
            "UPDATE memory SET entries = 0, stamp = NULL, mark = NULL, before = 0 WHERE number = ?", (memory,)
        )

    def _replace(self, memory: int, parts: Sequence[Part]) -> int:
        """Make the rows of some ranges of a memory those of the parts; how many rows it has then."""
        for part in parts:
            wanted = [(place, entry) for place, entry in part.entries.items() if not is_footprint(entry.content)]
            self._reconcile(memory, part.places, wanted)
        (entries,) = self.connection.execute("SELECT count(*) FROM entry WHERE memory = ?", (memory,)).fetchone()
        return int(entries)

    def _reconcile(self, memory: int, places: range, entries: Iterable[tuple[int, Entry]]) -> None:
        """Make the rows of a memory at a range of places those of the entries. What was appended is added; else copies
        are counted.
        """
        rows = self.connection.execute(
            "SELECT number, place, raw, why FROM entry WHERE memory = ? AND place >= ? AND place < ? ORDER BY place",
            (memory, places.start, places.stop),
        )
        known: dict[tuple[str, str | None], list[tuple[int, int]]] = {}
        for row, place, raw, why in reversed(rows.fetchall()):
            known.setdefault((raw, why), []).append((row, place))
        new: list[tuple[int, Entry]] = []
        moved: list[tuple[int, int]] = []
        for place, entry in entries:
            copies = known.get((entry.raw, _why(entry)))
            if not copies:
                new.append((place, entry))
            elif (copy := copies.pop())[1] != place:
                moved.append((place, copy[0]))
        self._delete(memory, [(row, raw) for (raw, _), left in known.items() for row, _ in left])
        self.connection.executemany("UPDATE entry SET place = ? WHERE number = ?", moved)
        for first in range(0, len(new), BATCH):
            self._add(memory, new[first : first + BATCH])

    def _add(self, memory: int, entries: Sequence[tuple[int, Entry]]) -> None:
        given = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'entry'"
        (last,) = self.connection.execute(given).fetchone()
        rows = [
            (number, memory, place, entry.raw, time.isoformat() if (time := entry.time) else None, _why(entry))
            for number, (place, entry) in enumerate(entries, last + 1)
        ]
        self.connection.executemany(
            "INSERT INTO entry (number, memory, place, raw, time, why) VALUES (?, ?, ?, ?, ?, ?)", rows
        )
        words: Counter[str] = Counter()
        bodies: list[tuple[int, str]] = []
        for number, _, _, raw, _, _ in rows:
            made = _tokens(raw)
            words.update(set(made))
            bodies.append((number, " ".join(made)))
        self.connection.executemany(f"INSERT INTO terms_{memory} (rowid, body) VALUES (?, ?)", bodies)
        self._count(memory, words)

    def _delete(self, memory: int, rows: Sequence[tuple[int, str]]) -> None:
        words: Counter[str] = Counter()
        for row, raw in rows:
            made = _tokens(raw)
            words.subtract(set(made))
            self.connection.execute(
                f"INSERT INTO terms_{memory} (terms_{memory}, rowid, body) VALUES ('delete', ?, ?)",
                (row, " ".join(made)),
            )
            self.connection.execute("DELETE FROM entry WHERE number = ?", (row,))
        self._count(memory, words)
        self.connection.executemany(
            "DELETE FROM word WHERE memory = ? AND term = ? AND entries <= 0", ((memory, term) for term in words)
        )

    def _count(self, memory: int, words: Counter[str]) -> None:
        """Add to the number of entries that have each of the words."""
        self.connection.executemany(
            "INSERT INTO word (memory, term, entries, mirrored) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (memory, term) DO UPDATE SET entries = entries + excluded.entries",
            ((memory, term, words[term], _mirrored(term)) for term in sorted(words)),
        )

    def search(
        self,
        memory: int,
        tokens: Sequence[str],
        limit: int,
        without: range = range(0),
        among: Collection[int] | None = None,
    ) -> dict[int, float]:
        """The entries that have any of the tokens, by place, with their BM25 scores (higher is better), best first; none
        at the places of `without`, and only those `among` some numbers, if these are given.
        """
        with self.problems():
            chosen = self._rare(memory, tokens)
            if not chosen:
                return {}
            table = f"terms_{memory}"
            match = " OR ".join(f'"{token}"' for token in chosen)
            # Of a word that more entries have, those that were indexed last.
            sql = (
                f"SELECT place, score FROM (SELECT rowid AS row, -bm25({table}) AS score FROM {table} "
                f"WHERE {table} MATCH ?1 AND {_AMONG.format('rowid')} ORDER BY rowid DESC LIMIT {POSTINGS}) "
                "JOIN entry ON number = row WHERE place < ?3 OR place >= ?4 ORDER BY score DESC, place DESC LIMIT ?5"
            )
            values = (match, _listed(among), without.start, without.stop, limit)
            return dict(self.connection.execute(sql, values).fetchall())

    def _rare(self, memory: int, tokens: Sequence[str]) -> list[str]:
        """The tokens that the memory has, without those that most entries have if there are others. One that it lacks
        is respelled, as it may be mistyped.
        """
        known = self._entries_with(memory, tokens)
        lacking = [token for token in tokens if token not in known and len(token) >= SHORTEST and token.isalpha()]
        if lacking:
            respelled = [term for token in lacking for term in respellings(token, self._alike(memory, token))]
            known |= self._entries_with(memory, respelled)
            tokens = [*tokens, *respelled]
        (total,) = self.connection.execute("SELECT entries FROM memory WHERE number = ?", (memory,)).fetchone()
        rare = [token for token in tokens if 0 < known.get(token, 0) <= COMMON * total]
        chosen: set[str] = set()
        postings = 0
        for token in sorted(rare or known, key=lambda token: (known[token], token)):
            if chosen and total > POSTINGS < postings + known[token]:
                break
            chosen.add(token)
            postings += known[token]
        return [token for token in tokens if token in chosen]

    def _entries_with(self, memory: int, tokens: Sequence[str]) -> dict[str, int]:
        """How many entries have each of the tokens, of those that any has."""
        words = f"SELECT term, entries FROM word WHERE memory = ? AND term IN ({database.marks(tokens)})"
        return dict(self.connection.execute(words, (memory, *tokens)).fetchall())

    def _alike(self, memory: int, word: str) -> Iterator[str]:
        """The words of a memory that one slip away from a word could be: a slip is in one half, and leaves the other, or
        swaps the two letters in the middle.
        """
        half = len(word) // 2
        halves = (("term", word[:half]), ("mirrored", word[: half - 1 : -1]))
        for column, start in halves:
            sql = f"SELECT term FROM word WHERE memory = ? AND {column} >= ? AND {column} < ? AND mirrored IS NOT NULL"
            for (term,) in self.connection.execute(sql, (memory, start, start + "\U0010ffff")):
                if column == "term" or not term.startswith(word[:half]):
                    yield term
        swapped = word[: half - 1] + word[half] + word[half - 1] + word[half + 1 :]
        yield from self._entries_with(memory, (swapped,))

    def between(
        self,
        memory: int,
        start: date,
        end: date,
        limit: int,
        without: range = range(0),
        among: Collection[int] | None = None,
    ) -> list[Row]:
        """The newest entries of the days from start to end; none at the places of `without`, and only those `among` some
        numbers, if these are given.
        """
        days = start.isoformat(), f"{end.isoformat()}T24"  # behind every time of the day; the last of all has no next
        return self._rows(
            f"memory = ?1 AND {_AMONG.format('number')} AND time >= ?3 AND time < ?4 AND (place < ?5 OR place >= ?6) "
            "ORDER BY time DESC, place DESC LIMIT ?7",
            (memory, _listed(among), *days, without.start, without.stop, limit),
        )

    def places(self, memory: int, numbers: Iterable[int]) -> dict[int, int]:
        """The places of entries of a memory by their numbers."""
        wanted = list(numbers)
        # By number: of `memory`, without the plus, SQLite would read all entries.
        sql = f"SELECT number, place FROM entry WHERE number IN ({database.marks(wanted)}) AND +memory = ?"
        with self.problems():
            return dict(self.connection.execute(sql, (*wanted, memory)).fetchall())

    def numbers(self, memory: int, fits: Callable[[Entry], bool]) -> list[int]:
        """The numbers of the entries of a memory that fit; all are looked at."""
        with self.problems():
            rows = self.connection.execute("SELECT number, raw, why FROM entry WHERE memory = ?", (memory,))
            return [number for number, raw, why in rows if fits(_entry(raw, why))]

    def equal(self, memory: int, texts: Collection[str]) -> Iterator[Row]:
        """The entries of a memory whose stored text is one of some."""
        with self.problems():
            rows = self.connection.execute("SELECT place, raw, why FROM entry WHERE memory = ?", (memory,))
            for place, raw, why in rows if texts else ():
                if raw in texts:
                    yield Row(place, _entry(raw, why))

    def at(self, memory: int, places: Iterable[int]) -> dict[int, Entry]:
        """The entries that stand at places of a memory, as far as it has them."""
        wanted = list(places)
        rows = self._rows(f"memory = ? AND place IN ({database.marks(wanted)})", (memory, *wanted))
        return {row.place: row.entry for row in rows}

    def _rows(self, where: str, values: tuple[object, ...]) -> list[Row]:
        with self.problems():
            found = self.connection.execute(f"SELECT place, raw, why FROM entry WHERE {where}", values)
            return [Row(place, _entry(raw, why)) for place, raw, why in found]

    def ends(self, memory: int) -> tuple[datetime, datetime] | None:
        """The oldest and the newest time of a memory; None where no entry has one."""
        with self.problems():
            sql = (
                "SELECT {}(time) FROM entry WHERE memory = ? AND time IS NOT NULL"  # each looks at one end of the index
            )
            oldest, newest = (
                self.connection.execute(sql.format(which), (memory,)).fetchone()[0] for which in ("min", "max")
            )
            return (datetime.fromisoformat(oldest), datetime.fromisoformat(newest)) if oldest else None


def after_purge(path: Path, store: LongTermMemoryStore, timeout: float) -> None:
    """Take what was destroyed in a memory out of the index too, if there is one: rows, tokens and the log's pages."""
    if path.exists():
        from oryx_memory import vectors  # which builds on this module

        with vectors.open_index(path, timeout) as index:
            index.update(store)
            vectors.purge(index, store)
            index.shred(store)


_libraries: dict[Path, tuple[ModuleType, int]] = {}  # through which SQLite the indexes are open, and how often
_libraries_lock = Lock()


def _enter(path: Path, library: ModuleType) -> ModuleType:
    """Count one more that has the index open; returns the library to open it through."""
    with _libraries_lock:
        library, number = _libraries.get(path, (library, 0))
        _libraries[path] = library, number + 1
        return library


def _leave(path: Path) -> None:
    with _libraries_lock:
        library, number = _libraries.pop(path, (sqlite3, 0))
        if number > 1:
            _libraries[path] = library, number - 1


def _listed(numbers: Collection[int] | None) -> str | None:
    """Numbers as JSON: they may be more than a query takes values."""
    return None if numbers is None else str([*numbers])


def _tokens(raw: str) -> list[str]:
    return tokens(Entry(raw).content)


def _mirrored(term: str) -> str | None:
    """A term backwards, if it is a word that another one may be a slip for."""
    return term[::-1] if len(term) >= SHORTEST - 1 and term.isalpha() else None


def _differing(one: Counter[str], other: dict[str, int]) -> list[str]:
    return sorted(term for term in one.keys() | other.keys() if one[term] != other.get(term, 0))


def _why(entry: Entry) -> str | None:
    """What a retired entry has beside its line, as JSON; None for a live one."""
    if entry.retired is None:
        return None
    import json

    why = entry.retired
    return json.dumps([entry.scope, why.time.isoformat(), why.reason, why.run])


def _entry(raw: str, why: str | None) -> Entry:
    if why is None:
        return Entry(raw)
    import json

    scope, time, reason, run = json.loads(why)
    return Entry(raw, Scope(scope), Retirement(datetime.fromisoformat(time), reason, run))


def _is_broken(error: FileProblem | LockTimeout) -> bool:
    code = getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _refuse_foreign(path: Path) -> None:
    """Raises FileProblem where SQLite would follow a link to write, or wait for somebody at a FIFO."""
    for part in (path, *_beside(path)):
        with contextlib.suppress(FileNotFoundError):
            mode = os.lstat(part).st_mode
            if stat.S_ISLNK(mode):
                raise FileProblem(path, f"{part.name} is a link; refused, delete it")
            if not stat.S_ISREG(mode):
                raise FileProblem(path, f"{part.name} is not a regular file; delete it")


def _beside(path: Path) -> list[Path]:
    """The files that SQLite keeps beside a database."""
    return [path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal")]


def _remove(path: Path) -> None:
    # The file last: one that is made meanwhile must not lose its log.
    for part in (*_beside(path), path):
        part.unlink(missing_ok=True)


def _warn_of_memory(error: FileProblem | LockTimeout) -> None:
    message = f"{error}; searching without the stored index, which takes longer"
    warnings.warn(OryxMemoryWarning(message), stacklevel=3)


def open_or_in_memory(path: Path, timeout: float) -> Index:
    """The index at a path, or one in memory with a warning where the file cannot be written."""
    try:
        return Index.open(path, timeout)
    except (FileProblem, LockTimeout) as error:
        _warn_of_memory(error)
        return Index.in_memory()
