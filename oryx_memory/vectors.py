"""The vectors of the index: which entry has which, the cache that they come from, the search among them.

They stand in the index's file beside the words: `embedding` is the cache, by model and SHA-256 of an entry's content, so
that equal content is embedded once, whichever agents have it; `embedded` says which entry has which. `vectors_N`, a vec0
table of sqlite-vec for model N, repeats them in chunks of one memory each, which are read for the search; where sqlite-vec
is not to be had, or the table is behind, the cache is, with the same answers. Vectors of two models or of two dimensions
never meet.

Vectors are made by `embed` alone; a search asks for that of its query. What an entry's number stands for may change while
a model is asked, so a vector is stored only for the very text that it was made of. Triggers keep the tables in step, so
that the lexical part, which knows nothing of them, may delete entries through any SQLite.
"""

import sqlite3
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from math import hypot
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from oryx_memory import breaker, database, guard
from oryx_memory.entry import BLANKS, Entry
from oryx_memory.errors import FileProblem, LockTimeout, OryxMemoryWarning, ServiceProblem
from oryx_memory.index import Index, Source
from oryx_memory.ranking import is_footprint
from oryx_memory.stores.base import Clock, LongTermMemoryStore

if TYPE_CHECKING:
    from numpy import float32, int64
    from numpy.typing import NDArray

    from oryx_memory.embeddings import Embedder

    Vector = NDArray[float32]

CANDIDATES = 200  # entries that a search brings in
FLOOR = 0.1  # a cosine up to this is no hit: in a static model half of the texts without anything in common have 0.07
REFUSED = 20  # texts that a model refuses in one run; one that refuses more is in trouble itself
ENOUGH = 20  # candidates, of which the least similar shows what a model gives to texts that have nothing in common
_BATCH = 1000  # rows of one transaction, and vectors that are compared at once
_CHUNK = 64  # vectors of a chunk of vec0; each memory has one at least, and more are not faster
_PARTS = ("chunks", "rowids", "vector_chunks00", "info")  # the tables that a vec0 table keeps all it has in

T = TypeVar("T")

_TABLES = (
    "CREATE TABLE model (number INTEGER PRIMARY KEY, name TEXT, dimensions INT, newest INT, UNIQUE (name, dimensions))",
    "CREATE TABLE embedding (number INTEGER PRIMARY KEY, model INT, digest BLOB, vector BLOB, UNIQUE (model, digest))",
    # `embedding` is NULL for an entry that shall have none.
    "CREATE TABLE embedded (memory INT, model INT, entry INT, embedding INT, PRIMARY KEY (memory, model, entry)) WITHOUT ROWID",
    "CREATE INDEX embedded_entry ON embedded (entry)",
    # How many rows of `embedded` a memory has, and how many of them without a vector: counting 100,000 takes 16 ms.
    "CREATE TABLE covered (memory INT, model INT, noted INT, without INT, PRIMARY KEY (memory, model)) WITHOUT ROWID",
    # The vec0 tables: whole if all of the model's vectors are in it, and what is in it and should not be.
    "CREATE TABLE filed (model INTEGER PRIMARY KEY, whole INT)",
    "CREATE TABLE stale (model INT, entry INT, PRIMARY KEY (model, entry)) WITHOUT ROWID",
    breaker.TABLE,
    "CREATE TRIGGER entry_gone AFTER DELETE ON entry BEGIN DELETE FROM embedded WHERE entry = old.number; END",
    "CREATE TRIGGER embedded_gone AFTER DELETE ON embedded WHEN old.embedding IS NOT NULL "
    "BEGIN INSERT OR IGNORE INTO stale VALUES (old.model, old.entry); END",
    "CREATE TRIGGER embedded_new AFTER INSERT ON embedded WHEN new.embedding IS NOT NULL "
    "BEGIN UPDATE filed SET whole = 0 WHERE model = new.model; END",
    "CREATE TRIGGER covered_more AFTER INSERT ON embedded BEGIN "
    "INSERT INTO covered VALUES (new.memory, new.model, 1, new.embedding IS NULL) ON CONFLICT DO UPDATE "
    "SET noted = noted + 1, without = without + excluded.without; END",
    "CREATE TRIGGER covered_less AFTER DELETE ON embedded BEGIN "
    "UPDATE covered SET noted = noted - 1, without = without - (old.embedding IS NULL) "
    "WHERE memory = old.memory AND model = old.model; END",
)


class Report(NamedTuple):
    """What `embed` did: entries of the memory, those that have a vector now, texts that the model was asked for, and how
    many entries shall have none, by reason.
    """

    entries: int
    vectors: int
    asked: int
    excluded: Mapping[str, int]


class Coverage(NamedTuple):
    """How much of a memory has vectors, and of which model (None: of none)."""

    model: str | None
    dimensions: int | None
    entries: int
    vectors: int
    lacking: int


# The file.


def open_index(path: Path, timeout: float = 10.0) -> Index:
    """The index for what writes vectors: opened through pysqlite3 and sqlite-vec where they are installed, else through the
    standard library, which is enough to search. Raises as `Index.open` does.
    """
    extension = _extension()
    index = Index.open(path, timeout, import_module("pysqlite3.dbapi2") if extension else sqlite3)
    if extension and hasattr(index.connection, "enable_load_extension"):
        _load(index, extension)
    return index


def _extension() -> str | None:
    """Where sqlite-vec's library is, if that and pysqlite3 are installed. Importing sqlite_vec to ask it takes 140 ms."""
    found = find_spec("sqlite_vec") if find_spec("pysqlite3") else None
    folders = found.submodule_search_locations if found else None
    return f"{folders[0]}/vec0" if folders else None


def _load(index: Index, extension: str) -> None:
    try:
        with index.problems():
            index.connection.enable_load_extension(True)
            index.connection.load_extension(extension)
            index.connection.enable_load_extension(False)
    except FileProblem:
        pass  # built for another system: vectors are compared without it


def _has_vec(index: Index) -> bool:
    try:
        with index.problems():
            return bool(index.connection.execute("SELECT vec_version()").fetchone())
    except FileProblem:
        return False


def has_tables(index: Index) -> bool:
    """Whether the index has ever had vectors."""
    with index.problems():
        return database.has_table(index.connection, "embedded")


def _make(index: Index) -> None:
    """Make what is missing of the tables: all, or those that went with the entries when their format changed."""
    with index.problems(), database.transaction(index.connection):
        for statement in _TABLES:
            kind = statement.split(" ", 2)[1]
            index.connection.execute(statement.replace(f"CREATE {kind} ", f"CREATE {kind} IF NOT EXISTS ", 1))


def _has_cache(index: Index) -> bool:
    """As `has_tables`, for what takes vectors away: the cache outlives a change of the entries' format, and what went with
    them is made.
    """
    with index.problems():
        if not database.has_table(index.connection, "embedding"):
            return False
    _make(index)
    return True


# Models.


def _newest(index: Index, name: str, dimensions: int | None) -> tuple[int, int] | None:
    """Number and dimensions of a model as it answered last."""
    sql = "SELECT number, dimensions FROM model WHERE name = ? AND dimensions = ifnull(?, dimensions) ORDER BY newest DESC"
    with index.problems():
        found: tuple[int, int] | None = index.connection.execute(sql, (name, dimensions)).fetchone()
        return found


def _note_model(index: Index, name: str, dimensions: int) -> int:
    """The number of a model that just answered with vectors of these dimensions."""
    if (known := _newest(index, name, None)) and known[1] == dimensions:
        return known[0]
    with index.problems(), database.transaction(index.connection):
        index.connection.execute("INSERT OR IGNORE INTO model (name, dimensions) VALUES (?, ?)", (name, dimensions))
        index.connection.execute(
            "UPDATE model SET newest = (SELECT ifnull(max(newest), 0) + 1 FROM model) WHERE name = ? AND dimensions = ?",
            (name, dimensions),
        )
    known = _newest(index, name, dimensions)
    assert known is not None
    return known[0]


# Making vectors.


def embed(
    index: Index,
    store: Source,
    embedder: "Embedder",
    *,
    exclude_tags: Collection[str] = (),
    step: Callable[[int, int], None] = lambda done, total: None,
) -> Report:
    """Give every entry of a memory its vector, from the cache or else from the model, newest first. Each batch is stored
    as it comes, and nothing is locked while the model is asked. `step` is told how many of how many entries are done.

    No vector is made of entries with one of the tags, of footprints, of what holds a credential, has no text, or has no
    word that the model knows. A text that the model refuses keeps no other from its vector; a warning names its entry.
    Raises ServiceProblem (what was stored before stays), FileProblem, LockTimeout.
    """
    memory = index.update(store)
    _make(index)
    model, dimensions = _model(index, embedder)
    lacking, excluded = _lacking(index, memory, model, exclude_tags)
    if footprints := sum(is_footprint(entry.content) for entry in store.read().archival):
        excluded["footprint"] = footprints
    done, asked = 0, _Asked(embedder)
    refused: list[str] = []
    left: list[int] = []
    for numbers in _batches(lacking, _BATCH):
        linked = _link(index, model, numbers)
        left += (number for number in numbers if number not in linked)
    for numbers in _batches(left, embedder.batch):
        step(len(lacking) - len(left) + done, len(lacking))
        texts = _uncached(index, model, numbers)
        strange = {digest for digest, text in texts.items() if not embedder.knows(text)}
        texts = {digest: text for digest, text in texts.items() if digest not in strange}
        made = dict(asked.vectors(list(texts.items())))
        if other := {len(row) for row in made.values()} - {dimensions}:  # another model has that name now
            _note_model(index, embedder.model, other.pop())
            return embed(index, store, embedder, exclude_tags=exclude_tags, step=step)
        linked = _link(index, model, numbers, made, strange.union(asked.refused))
        for _, _, entry in _entries(index, [number for number, vector in linked.items() if vector is None]):
            reason = "refused" if _digest(entry.content) in asked.refused else "unknown"
            excluded[reason] += 1
            refused += [entry.id] if reason == "refused" else ()
        done += len(numbers)
    if refused:
        why = next(iter(asked.refused.values()))
        warnings.warn(OryxMemoryWarning(f"no vector for {', '.join(refused)}: {why}"), stacklevel=2)
    with index.problems(), database.transaction(index.connection):
        index.connection.execute("DELETE FROM embedded WHERE memory = ? AND model <> ?", (memory, model))
    _file(index, model, dimensions)
    covered = coverage(index, memory, embedder)
    return Report(covered.entries, covered.vectors, asked.number, dict(excluded))


class _Asked:
    """Asks a model for the vectors of texts; `number` of them were given, and of each that was `refused`, why."""

    def __init__(self, embedder: "Embedder") -> None:
        self.number = 0
        self.refused: dict[bytes, ServiceProblem] = {}
        self._embedder = embedder
        self._works = False

    def vectors(self, texts: Sequence[tuple[bytes, str]]) -> "Iterator[tuple[bytes, Vector]]":
        """The vectors of texts, by digest. Where they are refused together, each half of them is asked for alone. Raises
        ServiceProblem where the model takes no text at all, or refuses too many.
        """
        if not texts:
            return
        try:
            rows = self._embedder.embed([text for _, text in texts])
        except ServiceProblem as error:
            if not error.of_texts or len(self.refused) == REFUSED:
                raise
            if not self._works:
                self._embedder.probe()
                self._works = True
            if len(texts) == 1:
                self.refused[texts[0][0]] = error
                return
            middle = len(texts) // 2
            for half in texts[:middle], texts[middle:]:
                yield from self.vectors(half)
        else:
            self.number += len(texts)
            yield from zip((digest for digest, _ in texts), rows.astype("<f4"), strict=True)


def _model(index: Index, embedder: "Embedder") -> tuple[int, int]:
    """Number and dimensions of an embedder's model. Raises ServiceProblem."""
    if known := _newest(index, embedder.model, embedder.dimensions):
        return known
    dimensions = embedder.size()
    return _note_model(index, embedder.model, dimensions), dimensions


def _lacking(index: Index, memory: int, model: int, exclude_tags: Collection[str]) -> tuple[list[int], Counter[str]]:
    """The entries that need a vector of the model, newest first, and how many shall have none, by reason; these are
    noted, and what they had is taken away.
    """
    sql = (
        "SELECT e.number, e.raw, d.entry, d.embedding FROM entry e LEFT JOIN embedded d "
        "ON d.memory = e.memory AND d.model = ? AND d.entry = e.number WHERE e.memory = ? ORDER BY e.place DESC"
    )
    lacking: list[int] = []
    none: list[int] = []
    reasons: Counter[str] = Counter()
    tags = frozenset(exclude_tags)
    with index.problems():
        for number, raw, noted, vector in index.connection.execute(sql, (model, memory)):
            if reason := _exclusion(Entry(raw), tags):
                reasons[reason] += 1
                if noted is None or vector is not None:
                    none.append(number)
            elif vector is None:
                lacking.append(number)
        with database.transaction(index.connection):
            rows = [(memory, model, number) for number in none]
            index.connection.executemany("DELETE FROM embedded WHERE memory = ? AND model = ? AND entry = ?", rows)
            index.connection.executemany(
                "INSERT INTO embedded SELECT memory, ?2, number, NULL FROM entry WHERE memory = ?1 AND number = ?3",
                rows,
            )
    return lacking, reasons


def _exclusion(entry: Entry, tags: frozenset[str]) -> str | None:
    """Why an entry shall have no vector, or None."""
    if not entry.content.strip(BLANKS):
        return "empty"
    if tags and tags.intersection(entry.tags):
        return "tag"
    return "credential" if guard.find(entry.text) else None


def _uncached(index: Index, model: int, numbers: Sequence[int]) -> dict[bytes, str]:
    """The contents of entries whose vectors the cache does not have, by digest."""
    contents = {_digest(entry.content): entry.content for _, _, entry in _entries(index, numbers)}
    cached = _cached(index, model, contents)
    return {digest: content for digest, content in contents.items() if digest not in cached}


def _entries(index: Index, numbers: Sequence[int]) -> list[tuple[int, int, Entry]]:
    """Entries by their numbers, with their memories, as far as they are still there."""
    sql = f"SELECT number, memory, raw FROM entry WHERE number IN ({database.marks(numbers)})"
    with index.problems():
        rows = index.connection.execute(sql, numbers).fetchall()
    return [(number, memory, Entry(raw)) for number, memory, raw in rows]


def _cached(index: Index, model: int, digests: Collection[bytes]) -> dict[bytes, int]:
    """The rows of the cache that have the digests."""
    sql = f"SELECT digest, number FROM embedding WHERE model = ? AND digest IN ({database.marks(digests)})"
    with index.problems():
        return dict(index.connection.execute(sql, (model, *digests)).fetchall())


def _link(
    index: Index,
    model: int,
    numbers: Sequence[int],
    made: "Mapping[bytes, Vector]" = MappingProxyType({}),
    strange: Collection[bytes] = (),
) -> dict[int, int | None]:
    """Store new vectors by digest, and give the entries whose contents the cache then has theirs; those of `strange` are
    noted as having none. Returns what was given, by entry.
    """
    rows = [(model, digest, vector.tobytes()) for digest, vector in made.items()]
    with index.problems(), database.transaction(index.connection):
        index.connection.executemany("INSERT OR IGNORE INTO embedding (model, digest, vector) VALUES (?, ?, ?)", rows)
        digests = {number: (memory, _digest(entry.content)) for number, memory, entry in _entries(index, numbers)}
        cached = _cached(index, model, {digest for _, digest in digests.values()})
        links = [
            (memory, model, number, cached.get(digest))
            for number, (memory, digest) in digests.items()
            if digest in cached or digest in strange
        ]
        # Not REPLACE, which fires no trigger for what it replaces.
        index.connection.executemany(
            "DELETE FROM embedded WHERE memory = ? AND model = ? AND entry = ?", (link[:3] for link in links)
        )
        index.connection.executemany("INSERT INTO embedded VALUES (?, ?, ?, ?)", links)
    return {number: embedding for _, _, number, embedding in links}


def _digest(content: str) -> bytes:
    return sha256(content.encode(errors="surrogatepass")).digest()


def _batches(numbers: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]


# The vec0 tables.


def _file(index: Index, model: int, dimensions: int) -> None:
    """Bring the vec0 table of a model up to date, if sqlite-vec is here; one in which this fails is made anew."""
    if not _has_vec(index):
        return
    try:
        _fill(index, model, dimensions)
    except FileProblem:
        with index.problems(), database.transaction(index.connection):
            _remove(index, model)
        _fill(index, model, dimensions)


def _fill(index: Index, model: int, dimensions: int) -> None:
    """As `_file`; the lock is held for a batch at a time."""
    connection, table = index.connection, f"vectors_{model}"
    sql = (
        "SELECT d.entry, d.memory, v.vector FROM embedded d JOIN embedding v ON v.number = d.embedding "
        "WHERE d.model = ? AND typeof(v.vector) = 'blob' AND length(v.vector) = ? "
        f"AND d.entry NOT IN (SELECT rowid FROM {table}_rowids) LIMIT {_BATCH}"
    )
    with index.problems():
        with database.transaction(connection):
            filed = connection.execute("SELECT 1 FROM filed WHERE model = ?", (model,)).fetchone()
            if not filed or not _is_whole(index, model):
                _remove(index, model)
                connection.execute(
                    f"CREATE VIRTUAL TABLE {table} USING vec0(memory INTEGER PARTITION KEY, "
                    f"vector FLOAT[{dimensions}] distance_metric=cosine, chunk_size={_CHUNK})"
                )
                connection.execute("INSERT INTO filed VALUES (?, 0)", (model,))
        whole = False
        while not whole:
            with database.transaction(connection):
                _unfile(index, model)
                rows = connection.execute(sql, (model, 4 * dimensions)).fetchall()
                connection.executemany(f"INSERT INTO {table} (rowid, memory, vector) VALUES (?, ?, ?)", rows)
                whole = len(rows) < _BATCH
                connection.execute("UPDATE filed SET whole = ? WHERE model = ?", (whole, model))


def _unfile(index: Index, model: int) -> bool:
    """Take what is stale out of a vec0 table; whether all of it was there."""
    stale = [(number,) for number in _stale(index, model)]
    gone = index.connection.executemany(f"DELETE FROM vectors_{model} WHERE rowid = ?", stale).rowcount if stale else 0
    index.connection.execute("DELETE FROM stale WHERE model = ?", (model,))
    return gone == len(stale)


def _shred(index: Index, model: int) -> None:
    """Leave no byte of what is stale in a vec0 table. Without sqlite-vec, or where the table is damaged, no single row can be
    taken out: it goes as a whole.
    """
    try:
        with index.problems(), database.transaction(index.connection):
            if _has_vec(index) and _is_whole(index, model) and _unfile(index, model):
                return
    except FileProblem:
        pass  # damaged inside
    _remove(index, model)


def _is_whole(index: Index, model: int) -> bool:
    """Whether a vec0 table has all of its parts; without one of them vec0 fails, or takes the process with it."""
    return all(
        database.has_table(index.connection, f"vectors_{model}{end}") for end in ("", *(f"_{part}" for part in _PARTS))
    )


def _sweep(index: Index) -> None:
    """Remove the vec0 tables that are not filed, and what is left of others."""
    filed = {model for (model,) in index.connection.execute("SELECT model FROM filed")}
    names = index.connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'vectors_[0-9]*'"
    )
    numbers = {name.split("_")[1] for (name,) in names.fetchall()}
    for model in {int(number) for number in numbers if number.isdecimal()} - filed:
        _remove(index, model)


def _remove(index: Index, model: int) -> None:
    """Remove a vec0 table, damaged or not: its parts by name, and then, with sqlite-vec, the table itself, which wants parts
    of those names to remove. Without, an empty name stays.
    """
    connection, table = index.connection, f"vectors_{model}"
    named = _has_vec(index) and database.has_table(connection, table)
    for part in _PARTS:
        connection.execute(f"DROP TABLE IF EXISTS {table}_{part}")
        if named:
            connection.execute(f"CREATE TABLE {table}_{part} (x)")
    if named:
        connection.execute(f"DROP TABLE {table}")
    for kept in ("filed", "stale"):
        connection.execute(f"DELETE FROM {kept} WHERE model = ?", (model,))


def _is_filed(index: Index, model: int) -> bool:
    """Whether the vec0 table of a model shall have all of its vectors."""
    return bool(index.connection.execute("SELECT 1 FROM filed WHERE model = ? AND whole", (model,)).fetchone())


def _stale(index: Index, model: int) -> set[int]:
    """What a vec0 table has of entries that are gone."""
    return {number for (number,) in index.connection.execute("SELECT entry FROM stale WHERE model = ?", (model,))}


def _chunks(index: Index, memory: int, model: int, size: int) -> Iterator[tuple[bytes, bytes, bytes]]:
    """The chunks of a memory in a vec0 table, as any SQLite reads them: of each place a bit (the lowest first) that says
    whether it is taken, 8 bytes with the number of the entry, and `size` bytes with the vector. Chunks of other sizes are
    left out. The format is that of sqlite-vec 0.1, as its ARCHITECTURE.md describes it.
    """
    table = f"vectors_{model}"
    sql = (
        f"SELECT c.validity, c.rowids, v.vectors FROM {table}_chunks c JOIN {table}_vector_chunks00 v ON v.rowid = c.chunk_id "
        "WHERE c.partition00 = ? AND length(c.validity) * 8 = c.size AND length(c.rowids) = c.size * 8 "
        "AND length(v.vectors) = c.size * ?"
    )
    yield from index.connection.execute(sql, (memory, size))


# Taking vectors away.


def reset(index: Index, memory: int) -> None:
    """Take the vectors of a memory, the vec0 tables and what is unsound in the cache away, so that `embed` makes them
    anew; what is sound stays in the cache and costs nothing.
    """
    if not _has_cache(index):
        return
    with index.problems(), database.transaction(index.connection):
        for table in ("embedded", "covered"):
            index.connection.execute(f"DELETE FROM {table} WHERE memory = ?", (memory,))
        index.connection.execute("DELETE FROM filed")
        _sweep(index)
        rows = index.connection.execute(
            "SELECT v.number, v.vector, m.dimensions FROM embedding v JOIN model m ON m.number = v.model"
        )
        unsound = [(number,) for number, vector, dimensions in rows if _fault(vector, dimensions)]
        index.connection.executemany("DELETE FROM embedded WHERE embedding = ?", unsound)
        index.connection.executemany("DELETE FROM embedding WHERE number = ?", unsound)


def prune(index: Index, stores: Collection[LongTermMemoryStore]) -> int:
    """Take out of the cache what no entry of the memories has, live or retired, whatever the model; returns how many."""
    if not _has_cache(index):
        return 0
    alive = {_digest(entry.content) for store in stores for entry in store.stream()}
    with index.problems(), database.transaction(index.connection):
        number = _forget(index, alive)
        index.connection.execute("DELETE FROM filed WHERE model NOT IN (SELECT model FROM embedded)")
        _sweep(index)
    return number


def purge(index: Index, store: LongTermMemoryStore) -> None:
    """Take what was destroyed in a memory, which has left the index's entries, out of the cache and of the vec0 tables."""
    if not _has_cache(index):
        return
    alive = {_digest(entry.content) for entry in store.stream()}
    with index.problems(), database.transaction(index.connection):
        _forget(index, alive)
        _sweep(index)
        stale = "SELECT DISTINCT model FROM stale WHERE model IN (SELECT model FROM filed)"
        for (model,) in index.connection.execute(stale).fetchall():
            _shred(index, model)


def _forget(index: Index, alive: Collection[bytes]) -> int:
    """Delete the vectors that no indexed entry has and no digest of `alive` names; returns how many."""
    sql = (
        "SELECT number, digest FROM embedding WHERE digest NOT IN "
        "(SELECT v.digest FROM embedded d JOIN embedding v ON v.number = d.embedding)"
    )
    gone = [(number,) for number, digest in index.connection.execute(sql) if digest not in alive]
    index.connection.executemany("DELETE FROM embedding WHERE number = ?", gone)
    return len(gone)


# Searching.


def nearest(
    index: Index, memory: int, model: int, query: "Vector", limit: int, among: Collection[int] | None = None
) -> dict[int, float]:
    """The entries of a memory whose vectors are most similar to the query's, by number, with the cosine, best first; only
    those `among` some numbers, if these are given.
    """
    import numpy

    with index.problems():
        numbers, scores = _from_chunks(index, memory, model, query) or _from_cache(index, memory, model, query)
    if among is not None:
        chosen = numpy.isin(numbers, list(among))
        numbers, scores = numbers[chosen], scores[chosen]
    best = numpy.argpartition(-scores, limit)[:limit] if limit < len(scores) else numpy.arange(len(scores))
    best = best[numpy.argsort(-scores[best], kind="stable")]
    return dict(zip(numbers[best].tolist(), scores[best].tolist(), strict=True))


def _from_chunks(index: Index, memory: int, model: int, query: "Vector") -> "tuple[NDArray[int64], Vector] | None":
    """The entries of a memory and their cosines, from the chunks of a vec0 table, which any SQLite reads; None if not just
    the vectors that are counted are there. The search of vec0 itself takes twice as long: sqlite-vec's wheels are built
    without vector instructions.
    """
    import numpy

    if not _is_filed(index, model) or not _is_whole(index, model):
        return None
    held, numbers, scores = [b""], [b""], [numpy.empty(0, "<f4")]
    for validity, rowids, chunk in _chunks(index, memory, model, query.nbytes):
        held.append(validity)
        numbers.append(rowids)
        scores.append(numpy.frombuffer(chunk, "<f4").reshape(-1, len(query)) @ query)
    entries = numpy.frombuffer(b"".join(numbers), "<i8")
    valid = numpy.unpackbits(numpy.frombuffer(b"".join(held), "u1"), bitorder="little").astype(bool)
    valid &= ~numpy.isin(entries, list(_stale(index, model)))
    counts = "SELECT noted - without FROM covered WHERE memory = ? AND model = ?"
    if (int(valid.sum()),) != index.connection.execute(counts, (memory, model)).fetchone():
        return None
    return entries[valid], numpy.concatenate(scores)[valid]


def _from_cache(index: Index, memory: int, model: int, query: "Vector") -> "tuple[NDArray[int64], Vector]":
    """As `_from_chunks`, from the cache, a row at a time: six times as slow."""
    import numpy

    sql = (
        "SELECT d.entry, v.vector FROM embedded d JOIN embedding v ON v.number = d.embedding "
        "WHERE d.memory = ? AND d.model = ? AND typeof(v.vector) = 'blob' AND length(v.vector) = ?"
    )
    rows = index.connection.execute(sql, (memory, model, query.nbytes))
    numbers: list[int] = []
    scores = [numpy.empty(0, "<f4")]
    while batch := rows.fetchmany(_BATCH):
        numbers += (number for number, _ in batch)
        scores.append(numpy.frombuffer(b"".join(vector for _, vector in batch), "<f4").reshape(len(batch), -1) @ query)
    return numpy.array(numbers, "<i8"), numpy.concatenate(scores)


def above(similar: Mapping[T, float]) -> dict[T, float]:
    """The candidates that are hits, with how much more similar they are than the least similar one, if there are enough:
    some models give 0 to texts that have nothing in common, and some 0.5.
    """
    least = min(similar.values()) if len(similar) >= ENOUGH else 0.0
    return {key: similarity - least for key, similarity in similar.items() if similarity > max(FLOOR, least)}


class Semantic:
    """The semantic route of one ranked recall, which asks the embedder for the query's vector once, for all memories.

    `settings` stands for what the embedder was configured with; after a failure it is left alone for a time, or until
    `settings` changes. What a person should be told stands in `trouble` and `lacking` afterwards: why the route took no
    part, and how many of how many `entries` have no vector. Without an embedder `trouble` says why there is none.
    """

    def __init__(self, embedder: "Embedder | None", settings: str, clock: Clock, trouble: str = "") -> None:
        self.trouble = trouble
        self._covered: dict[tuple[str, str | None], Coverage] = {}
        self._embedder = embedder
        self._settings = settings
        self._clock = clock
        self._asked: dict[str, Vector] = {}

    @property
    def entries(self) -> int:
        """How many entries the memories have that were searched."""
        return sum(covered.entries for covered in self._covered.values())

    @property
    def lacking(self) -> int:
        """How many of them have no vector."""
        return sum(covered.lacking for covered in self._covered.values())

    def __call__(
        self, index: Index, store: Source, query: str, fits: Callable[[Entry], bool] | None = None
    ) -> tuple[Mapping[int, float], str]:
        """The entries of a memory that mean what the query means, by number, with scores; or none and the reason. Given
        `fits`, a memory is searched as if it had no others than those that fit.
        """
        embedder = self._embedder
        if embedder is None:
            return {}, self.trouble
        memory, whose = index.update(store), (store.resource, store.agent)
        covered = self._covered[whose] = coverage(index, memory, embedder)
        if covered.model not in (None, embedder.model):
            return self._left_out(_other(covered.model, embedder.model))
        if not covered.vectors and not index.stored:
            del self._covered[whose]  # no command makes them
            return {}, "the index in memory has no vectors"
        if not covered.vectors:
            return {}, "no entry has a vector: run `oryx memory index`"
        if guard.find(query):
            return {}, "the query has a credential in it, and is not embedded"
        if not self._asked and (reason := breaker.resting(index, self._settings, self._clock())):
            return self._left_out(reason)
        try:
            if not embedder.reads(query):
                return {}, f"{embedder.model} does not know what the query is written in"
            vector = self._vector(index, embedder, query)
        except ServiceProblem as error:
            return self._left_out(str(error))
        known = _newest(index, embedder.model, len(vector))
        if known is None or known[1] != covered.dimensions:
            _note_model(index, embedder.model, len(vector))
            return self._left_out(_other(f"{covered.dimensions} dimensions", f"a model that has {len(vector)}"))
        among = None if fits is None else index.numbers(memory, fits)
        return above(nearest(index, memory, known[0], vector, CANDIDATES, among)), ""

    def _left_out(self, reason: str) -> tuple[Mapping[int, float], str]:
        self.trouble = self.trouble or reason
        return {}, reason

    def _vector(self, index: Index, embedder: "Embedder", query: str) -> "Vector":
        """The query's vector. Raises ServiceProblem."""
        if query not in self._asked:
            try:
                self._asked[query] = embedder.embed([query], "query")[0]
            except ServiceProblem as error:
                breaker.note_failure(index, self._settings, error, self._clock())
                raise
            breaker.note_success(index)
        return self._asked[query]


def _other(indexed: str, configured: str) -> str:
    return f"indexed with {indexed}, configured {configured}: run `oryx memory index`"


# What there is.


def coverage(index: Index, memory: int, embedder: "Embedder | None" = None) -> Coverage:
    """How much of a memory has vectors: of the embedder's model if it has any of these, else of the one made last."""
    connection = index.connection
    with index.problems():
        found = connection.execute("SELECT entries FROM memory WHERE number = ?", (memory,)).fetchone()
        entries = found[0] if found else 0
        name = embedder.model if embedder else None
        sql = "SELECT number, name, dimensions FROM model ORDER BY name = ? DESC, newest DESC"
        for model in connection.execute(sql, (name,)).fetchall() if has_tables(index) else ():
            counts = "SELECT noted, without FROM covered WHERE memory = ? AND model = ?"
            noted, none = connection.execute(counts, (memory, model[0])).fetchone() or (0, 0)
            if noted > none or (noted and model[1] == name and noted == entries):
                return Coverage(model[1], model[2], entries, noted - none, entries - noted)
    return Coverage(None, None, entries, 0, entries)


def describe(path: Path, store: LongTermMemoryStore, timeout: float) -> dict[str, Any]:
    """What `stats` tells of the index at a path, as it is: entries of the memory in it and with a vector, the model, bytes
    of the file, and what went wrong last. Nothing is brought up to date.
    """
    told: dict[str, Any] = {"entries": 0, "vectors": 0, "model": None, "bytes": 0, "error": None}
    try:
        with Index.open(path, timeout) as index:
            about, memory = index.about(store), index.number(store)
            told |= {
                "entries": about.indexed,
                "bytes": about.size,
                "error": breaker.last_problem(index) if has_tables(index) else None,
            }
            if memory is not None:
                covered = coverage(index, memory)
                told |= {"vectors": covered.vectors, "model": covered.model}
    except (FileProblem, LockTimeout) as error:
        told["error"] = str(error)
    return told


def verify(index: Index, memory: int) -> list[str]:
    """What is wrong with the vectors of a memory, a line each."""
    if not has_tables(index):
        return []
    sql = (
        "SELECT d.entry, d.model, e.raw, d.embedding, v.model, v.digest, v.vector, m.dimensions FROM embedded d "
        "LEFT JOIN entry e ON e.number = d.entry AND e.memory = d.memory LEFT JOIN embedding v ON v.number = d.embedding "
        "LEFT JOIN model m ON m.number = d.model WHERE d.memory = ?"
    )
    found: list[str] = []
    vectors: dict[int, dict[int, bytes]] = {}
    with index.problems():
        for number, model, raw, embedding, theirs, digest, vector, dimensions in index.connection.execute(
            sql, (memory,)
        ):
            if raw is None:
                found.append(f"entry number {number} is gone, and its vector is not")
                continue
            if embedding is None:
                continue
            name = Entry(raw).id
            if theirs != model:
                found.append(f"{name}: its vector is missing from the cache, or of another model")
            elif digest != _digest(Entry(raw).content):
                found.append(f"{name}: its vector is that of another text")
            elif fault := _fault(vector, dimensions):
                found.append(f"{name}: its vector {fault}")
            vectors.setdefault(model, {})[number] = vector
        miscounted = (
            "SELECT name FROM covered c JOIN model m ON m.number = c.model WHERE memory = ?1 AND (noted, without) IS NOT "
            "(SELECT count(*), count(*) - count(embedding) FROM embedded WHERE memory = ?1 AND model = c.model)"
        )
        found += (
            f"the vectors of {name} are miscounted" for (name,) in index.connection.execute(miscounted, (memory,))
        )
    for model, ours in vectors.items():
        try:
            with index.problems():
                found += _misfiled(index, memory, model, ours)
        except FileProblem as error:
            found.append(f"the table that is searched, vectors_{model}, cannot be read: {error.__cause__}")
    return found


def _misfiled(index: Index, memory: int, model: int, vectors: Mapping[int, bytes]) -> list[str]:
    """What the vec0 table of a model has otherwise than the vectors of a memory by entry."""
    if not _is_filed(index, model):
        return []  # it is not searched
    if not _is_whole(index, model):
        return [f"the table that is searched, vectors_{model}, is not whole"]
    (size,) = index.connection.execute("SELECT 4 * dimensions FROM model WHERE number = ?", (model,)).fetchone()
    filed: dict[int, bytes] = {}
    for validity, rowids, chunk in _chunks(index, memory, model, size):
        for place, number in enumerate(memoryview(rowids).cast("q")):
            if validity[place // 8] >> place % 8 & 1:
                filed[number] = chunk[place * size : (place + 1) * size]
    stale = _stale(index, model)
    wrong = [number for number in vectors if filed.get(number) != vectors[number]]
    wrong += (number for number in filed if number not in vectors and number not in stale)
    return [f"entry number {number} has another vector in the table that is searched" for number in sorted(wrong)]


def _fault(vector: object, dimensions: int) -> str | None:
    """What is wrong with a stored vector, or None."""
    if not isinstance(vector, bytes):
        return "is no vector"
    if len(vector) != 4 * dimensions:
        return f"has {len(vector) / 4:g} numbers, not {dimensions}"
    length = hypot(*memoryview(vector).cast("f"))
    return None if abs(length - 1) < 1e-3 else f"has the length {length:g}, not 1"
