"""Ranked recall at several sizes, without vectors and with: cold commands, warm calls, what the index costs, keyword
recall beside. The vectors are of the provider `hashing`: to compare and to store they cost what any others do.

The targets of the issue are seconds on two cores, so those rows have a fixed baseline, and say `ok` where it is kept. An
index is built once a size; that is its row. The answers are checked: each question must find something.
"""

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median

from measuring import Place, Plan, Row, entries, interleaved, peak_of, program, run

from oryx_memory import LongTermMemoryStore, vectors
from oryx_memory.embeddings import Embedder, open_embedder
from oryx_memory.index import Index
from oryx_memory.recall import ranked

COLD_TARGET = 2.5
WARM_LIMIT = 0.020  # seconds, at the middle size
LARGE_LIMIT = 0.050  # leaves as much for vectors
BUILD_LIMIT = 0.5  # seconds for 1,000 entries: 2,000 in a second
VECTORS_LIMIT = 0.100  # seconds, at the largest size, with the fewest dimensions
DIMENSIONS = (256, 1024)

QUESTIONS = (
    "谁负责权限审计？",
    "which tool do we use for the login page?",
    "灰度回滚",
    "Kestrel flag",
    "DEC-003 terraform",
    "上线前要谁复核？",
    "what happened on 3 January 2020?",
    "夜间备份 kubectl 原因",
    "search index 换成了谁",
    "kuberctl 的日志",
)
NOW = datetime(2026, 7, 22)
KEYWORD = "灰度回滚"
RANKED = """
from datetime import datetime
from pathlib import Path
from oryx_memory.index import Index
from oryx_memory.recall import ranked

with Index.open(Path(sys.argv[1]) / "memory-index.db") as index:
    ranked(oryx_memory.open_memory(sys.argv[2], root=sys.argv[1]), index, sys.argv[3], now=datetime(2026, 7, 22))
"""


def ranked_rows(place: Place, plan: Plan) -> Iterator[Row]:
    for size in plan.recall_sizes:
        place.write(agent(size), "".join(entries(size, distinct=True)).encode())
        place.store(agent(size)).migrate_to(place.store(agent(size), "sqlite"))
    with Index.open(place.root / "memory-index.db") as index:
        for size in plan.recall_sizes:
            yield from index_rows(place, index, size)
        for size in plan.recall_sizes:
            yield from warm_rows(place, index, size, plan)
    for dimensions in DIMENSIONS:
        path = place.root / f"vectors-{dimensions}.db"
        shutil.copy(place.root / "memory-index.db", path)
        yield from vector_rows(place, path, dimensions, plan)
        path.unlink()
    yield from cold_rows(place, plan)
    yield from memory_rows(place, plan)


def agent(size: int) -> str:
    return f"ranked{size}"


def index_rows(place: Place, index: Index, size: int) -> Iterator[Row]:
    """What it takes to index a memory, and to index one more entry; the bytes of the index beside those of the memory."""
    store = place.store(agent(size))
    before = index.about(store).size
    start = time.perf_counter()
    index.update(store)
    built = time.perf_counter() - start
    per_thousand = built / size * 1000
    what = f"indexing, for 1,000 of {size:,} entries / {BUILD_LIMIT * 1e3:g} ms"
    yield Row(what, per_thousand, BUILD_LIMIT, 1.0)
    times = [time.perf_counter()]
    for step in (partial(store.append, "再记一条：nightly backup 由小王负责。"), partial(index.update, store)):
        step()
        times.append(time.perf_counter())
    yield Row(f"  indexing one more entry of {size:,} / appending it", times[2] - times[1], times[1] - times[0])
    grown = index.about(store).size - before
    yield Row(f"  index of {size:,} entries / MEMORY.md", grown, place.file(agent(size)).stat().st_size, unit="MB")


def warm_rows(place: Place, index: Index, size: int, plan: Plan) -> Iterator[Row]:
    """Calls of the library: ranked recall, one question after another, and keyword recall on both backends."""
    store, rows = place.store(agent(size)), place.store(agent(size), "sqlite")
    questions = cycle(QUESTIONS)
    for question in QUESTIONS:
        if not ask(store, index, question):
            raise SystemExit(f"ranked recall finds nothing in {size:,} entries for {question!r}")
    rounds = max(plan.recall_rounds, len(QUESTIONS))
    cases: dict[str, Callable[[], object]] = {
        "ranked": lambda: ask(store, index, next(questions)),
        "markdown": partial(store.recall_by_keyword, KEYWORD),
        "sqlite": partial(rows.recall_by_keyword, KEYWORD),
    }
    found = interleaved(cases, rounds)
    limit = LARGE_LIMIT if size > plan.middle else WARM_LIMIT
    yield Row(f"ranked recall, warm, {size:,} entries / {limit * 1e3:g} ms", found["ranked"], limit, 1.0)
    for name in ("markdown", "sqlite"):
        yield Row(f"  for comparison: keyword recall on {name}, {size:,} entries", found[name], found["ranked"])


def vector_rows(place: Place, path: Path, dimensions: int, plan: Plan) -> Iterator[Row]:
    """What it takes to give a memory its vectors, warm calls with them, and the bytes that they add to an index that has
    the words of all memories.
    """
    embedder = open_embedder({"provider": "hashing", "dimensions": dimensions}, {})
    assert embedder is not None
    with vectors.open_index(path) as index:
        for size in plan.recall_sizes:
            store = place.store(agent(size))
            before = index.about(store).size
            start = time.perf_counter()
            vectors.embed(index, store, embedder)
            took = time.perf_counter() - start
            contents = [entry.content for entry in store.read().archival[:1000]]
            start = time.perf_counter()
            embedder.embed(contents)
            what = f"{dimensions} dimensions, {size:,} entries"
            yield Row(
                f"  making and storing vectors, for 1,000 of {what} / hashing them",
                took / size * 1000,
                time.perf_counter() - start,
            )
            grown = index.about(store).size - before
            yield Row(
                f"  vectors of {what}, in the index / MEMORY.md",
                grown,
                place.file(agent(size)).stat().st_size,
                unit="MB",
            )
        for size in plan.recall_sizes:
            store, questions = place.store(agent(size)), cycle(QUESTIONS)
            call = partial(_ask_with, embedder, store, index, questions)
            took = interleaved({"ranked": call}, max(plan.recall_rounds, len(QUESTIONS)))["ranked"]
            target = 1.0 if (size, dimensions) == (max(plan.recall_sizes), DIMENSIONS[0]) else None
            yield Row(
                f"ranked recall with vectors, warm, {dimensions} dimensions, {size:,} entries / {VECTORS_LIMIT * 1e3:g} ms",
                took,
                VECTORS_LIMIT,
                target,
            )


def _ask_with(embedder: Embedder, store: LongTermMemoryStore, index: Index, questions: Iterator[str]) -> int:
    return ask(store, index, next(questions), vectors.Semantic(embedder, "", lambda: NOW))


def ask(store: LongTermMemoryStore, index: Index, question: str, semantic: vectors.Semantic | None = None) -> int:
    """How many hits a question has."""
    return len(ranked(store, index, question, now=NOW, semantic=semantic).hits)


def cold_rows(place: Place, plan: Plan) -> Iterator[Row]:
    """Cold commands on indexes that are up to date."""
    commands = {
        str(size): [
            *(program("oryx"), "memory", "recall", "--root", str(place.root), "-a", agent(size)),
            *("--mode", "ranked", QUESTIONS[0]),
        ]
        for size in plan.recall_sizes
    }
    commands["typer"] = [sys.executable, "-c", "import typer"]
    found = interleaved({name: partial(run, command) for name, command in commands.items()}, plan.cold_rounds)
    for size in plan.recall_sizes:
        target = COLD_TARGET if size <= plan.middle else None
        what = f"cold oryx memory recall --mode ranked, {size:,} entries / cold import typer"
        yield Row(what, found[str(size)], found["typer"], target)


def memory_rows(place: Place, plan: Plan) -> Iterator[Row]:
    """Peak memory of a process that asks one question of an index that is up to date."""
    for size in plan.recall_sizes:
        peak = median(peak_of(RANKED, place, agent(size), QUESTIONS[0]) for _ in range(plan.memory_rounds))
        imports = median(peak_of("", place, agent(size), "") for _ in range(plan.memory_rounds))
        yield Row(f"  peak memory of ranked recall, {size:,} entries / of the imports", peak, imports, unit="MB")
