"""Ranked recall: routes, each with scores, added up; best first.

Routes: `exact` (the query stands in the entry), `lexical` (BM25 over our tokens), `dates` (the entry is of a day, month or
year that the query names), and `semantic` where one is given. Each is divided by its own maximum, weighted and added;
newness is a factor of at most 1.05. Footprints take no part: they echo questions.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from oryx_memory import ranking
from oryx_memory.dates import DateSpan, date_score, date_spans, undated
from oryx_memory.entry import Entry
from oryx_memory.errors import FileProblem, LockTimeout
from oryx_memory.index import Index, Source
from oryx_memory.matching import Keyword

CANDIDATES = 200  # of the lexical route
DATED = 500  # entries that one date brings in at most
WEIGHTS = {"exact": 1.0, "lexical": 1.0, "dates": 0.6, "semantic": 0.7}
REACH = 2  # places before and behind a hit that share in its score
SURE = 20  # hits that share
LIMIT = 10
_PLAIN = re.compile("[a-z0-9\u3400-\u9fff]+")
# Where the characters live that case folding and NFKC make ASCII letters, digits or Han of.
# A test compares this with the Unicode data of the running Python.
FOLDING_RANGES = (
    (0xAA, 0xAB), (0xB2, 0xB4), (0xB9, 0xBB), (0xBC, 0xBF), (0xDF, 0xE0), (0x130, 0x14A), (0x17F, 0x180), (0x1C4, 0x1CD),
    (0x1F0, 0x1F4), (0x2B0, 0x2B9), (0x2E1, 0x2E4), (0x1D2C, 0x1D66), (0x1D9C, 0x1DBC), (0x1E96, 0x1E9F), (0x2070, 0x20A9),
    (0x2100, 0x218A), (0x2460, 0x24EB), (0x2C7C, 0x2C7E), (0x2E9F, 0x2FD6), (0x3038, 0x303B), (0x3192, 0x31A0),
    (0x3220, 0x3400), (0xA7F2, 0xA7F5), (0xF900, 0xFB07), (0xFF10, 0xFF1A), (0xFF21, 0xFF3B), (0xFF41, 0xFF5B),
    (0x107A5, 0x107A6), (0x1D400, 0x1D800), (0x1F100, 0x1F252), (0x1FBF0, 0x1FBFA), (0x2F800, 0x2FA1D),
)  # fmt: skip
_FOLDING = frozenset(chr(code) for first, end in FOLDING_RANGES for code in range(first, end))

Fits = Callable[[Entry], bool]  # whether an entry may be among the answers
# The entries of a memory that fit and mean what a query means, by number, with scores; or none and the reason.
Semantic = Callable[[Index, Source, str, Fits | None], tuple[Mapping[int, float], str]]


class Hit(NamedTuple):
    """An entry that was found, its score, what each route gave to it before weighting, 0 to 1, and its place among the
    live ones of the index.
    """

    entry: Entry
    score: float
    routes: Mapping[str, float]
    place: int | None = None


class Ranking(NamedTuple):
    """The hits, best first; and of each route that gave nothing, why."""

    hits: list[Hit]
    skipped: Mapping[str, str]


class _Query(NamedTuple):
    """A query and what it says to each route."""

    text: str
    keyword: Keyword
    tokens: list[str]
    spans: list[DateSpan]
    words: list[str]  # the tokens without those of the dates
    fits: Fits | None


class _Found(NamedTuple):
    """The entries of a memory that may answer, by place, their times, and the scores that each route gives them."""

    entries: dict[int, Entry]
    times: dict[int, datetime | None]
    routes: dict[str, dict[int, float]]


def ranked(
    store: Source,
    index: Index,
    query: str,
    *,
    now: datetime,
    limit: int | None = LIMIT,
    retired: bool = False,
    semantic: Semantic | None = None,
    without: range = range(0),
    fits: Fits | None = None,
) -> Ranking:
    """The archival entries that answer a query, best first; with `retired` those too that were retired, from either
    section; none that is live at the places of `without`, and only those that fit. `now` (local) is what relative dates
    count from. An index that fails is replaced by one in memory.

    Raises RejectedInput for a blank query, FileProblem, LockTimeout.
    """
    keyword = Keyword(query)
    spans = date_spans(query, now)
    asked = _Query(query, keyword, ranking.query_tokens(query), spans, ranking.query_tokens(undated(query)), fits)
    try:
        return _ranked(store, index, asked, now, limit, retired, semantic, without)
    except (FileProblem, LockTimeout) as error:
        if not index.give_up(error):
            raise
        return _ranked(store, index, asked, now, limit, retired, semantic, without)


def _ranked(
    store: Source,
    index: Index,
    query: _Query,
    now: datetime,
    limit: int | None,
    retired: bool,
    semantic: Semantic | None,
    without: range,
) -> Ranking:
    # Before the index is held at one moment: it may ask a service, and writes down that this failed.
    similar, reason = semantic(index, store, query.text, query.fits) if semantic else ({}, "no embedder is configured")
    with index.current(store) as memory:
        found = _search(
            index, memory, query, similar, without, lambda: store.recall_by_keyword(query.text), beside=True
        )
        oldest, newest = index.ends(memory) or (now, now)
    if retired:
        with index.current(store, retired=True) as memory:
            gone = _search(index, memory, query, {}, range(0), lambda: _retired(store, query.keyword), beside=False)
        found.entries.update((~place, entry) for place, entry in gone.entries.items())
        found.times.update((~place, time) for place, time in gone.times.items())
        for name, scores in gone.routes.items():
            found.routes[name].update((~place, score) for place, score in scores.items())
    newness = {place: ranking.newness(time, newest, oldest) for place, time in found.times.items()}
    best = ranking.fuse(found.routes, WEIGHTS, newness)
    fitting = (item for item in best if query.fits is None or query.fits(found.entries[item[0]]))
    hits = [
        Hit(found.entries[place], score, _shares(found.routes, place), place if place >= 0 else None)
        for place, score in islice(fitting, limit)
    ]
    return Ranking(hits, _skipped(query, found.routes, reason))


def _search(
    index: Index,
    memory: int,
    query: _Query,
    similar: Mapping[int, float],
    without: range,
    held: Callable[[], Iterable[Entry]],
    *,
    beside: bool,
) -> _Found:
    """What the routes find in a memory but at the places of `without`; `held` gives the entries that have the query in them,
    where it has no word to find them by; `beside`: an entry shares in the lexical score of those that stand next to it.
    """
    # Of all entries, and of those that fit: the best of all may not, and yet share with one beside them that does.
    amongs = (None,) if query.fits is None else (None, index.numbers(memory, query.fits))
    days = {
        row.place: row.entry
        for span in query.spans
        for among in amongs
        for row in index.between(memory, span.start, span.end, DATED, without, among)
    }

    def searched(tokens: Sequence[str]) -> dict[int, float]:
        found: dict[int, float] = {}
        for among in amongs:
            found |= index.search(memory, tokens, CANDIDATES, without, among)
        return found

    # Where entries of the named time are, its words are not looked for as words: every entry has some 月 or 2026.
    words = query.words if days else query.tokens
    lexical = searched(words)
    literal = searched(query.tokens) if words != query.tokens else {}
    places = index.places(memory, similar)
    meant = {
        at: score for number, score in similar.items() if (at := places.get(number)) is not None and at not in without
    }
    reach = range(-REACH, REACH + 1) if beside else ()
    near = (place + step for place in list(lexical)[:SURE] for step in reach)
    wanted = dict.fromkeys(place for place in (*lexical, *literal, *meant, *near) if place not in without)
    entries = index.at(memory, wanted) | days
    if not any(query.fits is None or query.fits(entries[place]) for place in (*lexical, *literal, *days)):
        # Nothing but signs, which are no tokens, or tokens that no entry has: all entries are looked through.
        texts = {entry.raw for entry in held() if query.fits is None or query.fits(entry)}
        entries |= {row.place: row.entry for row in index.equal(memory, texts) if row.place not in without}
    times = {place: entry.time for place, entry in entries.items()}
    lexical = ranking.neighbours(lexical, {place: place for place in entries}, times) if beside else lexical
    dated = {place: date_score(time, query.spans) for place in days if (time := times[place])}
    exact = dict.fromkeys(_holding(entries, query.keyword), 1.0)
    return _Found(entries, times, {"exact": exact, "lexical": lexical, "dates": dated, "semantic": meant})


def _holding(entries: Mapping[int, Entry], keyword: Keyword) -> Iterator[int]:
    """The places of the entries that have a keyword in them. Only those are folded in which its longest run of letters
    stands, or something that folds to letters: folding all of them takes longer than all the rest.
    """
    run = max(_PLAIN.findall(keyword.folded), key=len, default="")
    for place, entry in entries.items():
        raw = entry.raw
        if (run in raw.lower() or not _FOLDING.isdisjoint(raw)) and keyword.matches(entry.text):
            yield place


def _retired(store: Source, keyword: Keyword) -> Iterator[Entry]:
    """The retired entries that have a keyword in them."""
    return (entry for entry in store.read(retired=True).retired if keyword.matches(entry.text))


def _shares(routes: Mapping[str, Mapping[int, float]], place: int) -> dict[str, float]:
    """What each route gives to a place, in parts of what it gives at most."""
    return {name: by[place] / max(by.values()) for name, by in routes.items() if by.get(place, 0) > 0}


def _skipped(query: _Query, routes: Mapping[str, Mapping[int, float]], reason: str) -> dict[str, str]:
    """Why the routes that found nothing took no part."""
    lexical = "no word of the query stands in the memory" if query.words else "the query names nothing but dates"
    reasons = {
        "exact": "no entry that was found has the whole query in it",
        "lexical": lexical if query.tokens else "the query has no words",
        "dates": "no entry is of the time that the query names" if query.spans else "the query names no date",
        "semantic": reason or "no entry means nearly the same",
    }
    return {name: reasons[name] for name, scores in routes.items() if not any(scores.values())}
