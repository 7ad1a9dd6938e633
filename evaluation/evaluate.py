"""How well recall finds what was asked for: three sets of memories and questions, each with every mode.

Run `python evaluation/evaluate.py` (`make eval`); what ORYX_EMBEDDING_PROVIDER, _MODEL and _BASE_URL name, with its key in
the usual variable, gets rows of its own. The sets, their sources and licences are in fixtures/eval. Every
question is asked at the time of the newest memory of its store. A mode is a function that takes the memories of a store
and gives a function from a question to the places of the memories that it finds, best first.

recall@k: the share of a question's evidence among the first k. MRR: the mean of 1 / rank of the first evidence, 0 where
none is listed. hit@10: the share of questions with at least one evidence among the first 10. Means over questions.
"""

import argparse
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, NamedTuple

from oryx_memory import Entry, open_memory, ranking, settings, vectors
from oryx_memory import recall as engine
from oryx_memory.embeddings import Embedder, open_embedder
from oryx_memory.matching import Keyword
from oryx_memory.workspace import initialise, named

SETS = Path(__file__).parent.parent / "fixtures" / "eval"
WEIGHTS = engine.WEIGHTS
COLUMNS = ("recall@1", "recall@5", "recall@10", "MRR", "hit@10")
CUTS = (1, 5, 10)

Search = Callable[[str], list[int]]


class Memory(NamedTuple):
    """One memory of a store; `time` is local."""

    id: str
    text: str
    time: datetime


class Terms:
    """The lexical route: BM25 of FTS5 over our tokens, in a table in memory."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.connection = sqlite3.connect(":memory:")
        self.connection.execute(f'CREATE VIRTUAL TABLE terms USING fts5(body, tokenize = "{ranking.TOKENIZE}")')
        rows = ((place, ranking.written(text)) for place, text in enumerate(texts))
        self.connection.executemany("INSERT INTO terms (rowid, body) VALUES (?, ?)", rows)
        self.connection.execute("CREATE VIRTUAL TABLE words USING fts5vocab(terms, row)")
        self.vocabulary = {word for (word,) in self.connection.execute("SELECT term FROM words")}

    def search(self, query: str) -> dict[int, float]:
        """The places that have any token of the query, with their scores (higher is better)."""
        known: list[str] = []
        for token in ranking.query_tokens(query):
            known += [token] if token in self.vocabulary else ranking.respellings(token, self.vocabulary)
        match = " OR ".join(f'"{token}"' for token in known)
        sql = "SELECT rowid, -bm25(terms) FROM terms WHERE terms MATCH ?"
        return dict(self.connection.execute(sql, (match,)).fetchall()) if match else {}


def keyword(memories: Sequence[Memory]) -> Search:
    """The whole question as a keyword, newest first: what recall does without --mode ranked."""

    def search(query: str) -> list[int]:
        wanted = Keyword(query)
        return [place for place in reversed(range(len(memories))) if wanted.matches(memories[place].text)]

    return search


def without(memories: Sequence[Memory], *, dates: bool) -> Search:
    """Ranked recall without the share of neighbours, and without the route of dates too unless it is wanted."""
    terms = Terms(memory.text for memory in memories)
    oldest, newest = min(memory.time for memory in memories), max(memory.time for memory in memories)
    newness = {place: ranking.newness(memory.time, newest, oldest) for place, memory in enumerate(memories)}

    def search(query: str) -> list[int]:
        wanted = Keyword(query)
        spans = ranking.date_spans(query, newest) if dates else []
        dated = {place: ranking.date_score(memory.time, spans) for place, memory in enumerate(memories)}
        routes = {
            "exact": {place: 1.0 for place, memory in enumerate(memories) if wanted.matches(memory.text)},
            "lexical": terms.search(ranking.undated(query) if any(dated.values()) else query),
            "dates": dated,
        }
        return [place for place, _ in ranking.fuse(routes, WEIGHTS, newness)]

    return search


def recall(memories: Sequence[Memory], embedder: Embedder | None = None) -> Search:
    """What `recall --mode ranked` itself gives, over a MEMORY.md that has the memories; with an embedder after
    `oryx memory index`.
    """
    folder = Path(mkdtemp(dir=FOLDER.name))
    list(initialise(folder))
    store = open_memory("ops", root=folder)
    entries = [Entry.new(memory.text, time=memory.time) for memory in memories]
    store.add(entries)
    places = {entry.raw: place for place, entry in enumerate(entries)}
    index = vectors.open_index(named(folder).index_file)
    newest = max(memory.time for memory in memories)
    semantic = None
    if embedder:
        vectors.embed(index, store, embedder)
        semantic = vectors.Semantic(embedder, "", lambda: newest)

    def search(query: str) -> list[int]:
        found = engine.ranked(store, index, query, now=newest, limit=10, semantic=semantic)
        return [places[hit.entry.raw] for hit in found.hits]

    return search


def meaning(memories: Sequence[Memory], embedder: Embedder) -> Search:
    """The vectors alone, whatever the query is written in."""
    rows = embedder.embed([memory.text for memory in memories])
    return lambda query: (rows @ embedder.embed([query], "query")[0]).argsort()[::-1].tolist()


def embedders() -> Iterator[Embedder]:
    """The hash, which needs no model, and what the environment names."""
    for options in ({"provider": "hashing"}, settings.load(None, os.environ).embedding):
        if embedder := open_embedder(options, os.environ):
            yield embedder


FOLDER = TemporaryDirectory(prefix="oryx-eval-")
MODES: dict[str, Callable[[Sequence[Memory]], Search]] = {
    "keyword": keyword,
    "lexical": lambda memories: without(memories, dates=False),
    "lexical, dates": lambda memories: without(memories, dates=True),
    "recall --mode ranked": recall,
}
for made in embedders():
    MODES[f"vectors alone, {made.model}"[:44]] = partial(meaning, embedder=made)
    MODES[f"ranked, {made.model}"[:44]] = partial(recall, embedder=made)


def measure(found: Sequence[str], evidence: Iterable[str]) -> list[float]:
    """The figures of one question, in the order of COLUMNS."""
    wanted = set(evidence)
    rank = next((rank for rank, memory in enumerate(found, 1) if memory in wanted), 0)
    recalls = [len(wanted.intersection(found[:cut])) / len(wanted) for cut in CUTS]
    return [*recalls, 1 / rank if rank else 0.0, float(0 < rank <= 10)]


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file with one JSON object a line."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def evaluate(name: str, mode: Callable[[Sequence[Memory]], Search]) -> list[float]:
    """The means of a set over all of its questions."""
    stores = {
        row["conv"]: [Memory(m["id"], m["text"], datetime.fromisoformat(m["time"])) for m in row["memories"]]
        for row in lines(SETS / f"{name}.memories.jsonl")
    }
    searches = {store: mode(memories) for store, memories in stores.items()}
    figures = []
    for question in lines(SETS / f"{name}.queries.jsonl"):
        store = question["conv"]
        found = [stores[store][place].id for place in searches[store](question["query"])]
        figures.append(measure(found, question["evidence"]))
    return [mean(column) for column in zip(*figures, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure recall on the sets of fixtures/eval.")
    parser.add_argument("--set", action="append", help="only this set; may be given several times")
    parser.add_argument("--mode", action="append", choices=MODES, help="only this mode; may be given several times")
    chosen = parser.parse_args()
    names = chosen.set or sorted(path.name.removesuffix(".queries.jsonl") for path in SETS.glob("*.queries.jsonl"))
    started = time.perf_counter()
    for name in names:
        print(f"{name:46}" + "".join(f"{column:>11}" for column in COLUMNS))
        for mode in chosen.mode or MODES:
            print(f"  {mode:44}" + "".join(f"{figure:11.3f}" for figure in evaluate(name, MODES[mode])), flush=True)
    print(f"{time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
