"""Ranked recall: routes, each with scores, added up; best first.

Routes: `exact` (the query stands in the entry), `lexical` (BM25 over our tokens), `dates` (the entry is of a day, month or
year that the query names). Each is divided by its own maximum, weighted and added; newness is a factor of at most 1.05.
Footprints take no part: they echo questions.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from oryx_memory import ranking
from oryx_memory.dates import date_score, date_spans, undated
from oryx_memory.entry import Entry
from oryx_memory.index import Index
from oryx_memory.matching import Keyword
from oryx_memory.stores.base import LongTermMemoryStore

CANDIDATES = 200  # of the lexical route
DATED = 500  # entries that one date brings in at most
WEIGHTS = {"exact": 1.0, "lexical": 1.0, "dates": 0.6}
REACH = 2  # places before and behind a hit that share in its score
SURE = 50  # hits that share
LIMIT = 10


class Hit(NamedTuple):
    """An entry that was found, its score, and what each route gave to it before weighting, 0 to 1."""

    entry: Entry
    score: float
    routes: Mapping[str, float]


def ranked(
    store: LongTermMemoryStore, index: Index, query: str, *, now: datetime, limit: int | None = LIMIT
) -> list[Hit]:
    """The archival entries that answer a query, best first. `now` (local) is what relative dates count from.

    Raises RejectedInput for a blank query, FileProblem, LockTimeout.
    """
    wanted = Keyword(query)
    memory = index.update(store)
    spans = date_spans(query, now)
    days = {row.place: row.entry for span in spans for row in index.between(memory, span.start, span.end, DATED)}
    # Where entries of the named time are, its words are not looked for as words: every entry has some 月 or 2026.
    words = undated(query) if days else query
    scores = index.search(memory, ranking.query_tokens(words), CANDIDATES)
    literal = index.search(memory, ranking.query_tokens(query), CANDIDATES) if words != query else {}
    places = index.places([*scores, *literal])
    lexical = {places[number]: score for number, score in scores.items()}
    beside = (place + step for place in list(lexical)[:SURE] for step in range(-REACH, REACH + 1))
    entries = index.at(memory, dict.fromkeys([*places.values(), *beside]))
    if not entries and not days:  # nothing but signs, which are no tokens
        hits = (entry for entry in store.recall_by_keyword(query) if not ranking.is_footprint(entry.content))
        entries = dict(enumerate(hits))
    found = entries | days
    times = {place: entry.time for place, entry in found.items()}
    routes: dict[str, dict[int, float]] = {
        "exact": {place: 1.0 for place, entry in found.items() if wanted.matches(entry.text)},
        "lexical": ranking.neighbours(lexical, {place: place for place in entries}, times),
        "dates": {place: date_score(time, spans) for place in days if (time := times[place])},
    }
    oldest, newest = index.ends(memory) or (now, now)
    newness = {place: ranking.newness(time, newest, oldest) for place, time in times.items()}
    return [
        Hit(found[place], score, {name: _share(by, place) for name, by in routes.items() if by.get(place, 0) > 0})
        for place, score in ranking.fuse(routes, WEIGHTS, newness)[:limit]
    ]


def _share(scores: Mapping[int, float], place: int) -> float:
    return scores[place] / max(scores.values())
