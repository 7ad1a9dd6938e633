"""The set of short keyword queries is sound: fixtures/queries.jsonl over the memory fixtures/queries.memories.jsonl.

Only its shape is looked at here; how well recall answers it is for the evaluation. A query has the entries that a
person would call right, and a kind that says what makes it hard. The laws below keep a query from judging unfairly:
one that an entry answers to the letter expects that entry, and a misspelt one stands in no entry as it is.
"""

import json
import re
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

from oryx_memory import Entry, guard
from oryx_memory.matching import Keyword, fold

FIXTURES = Path(__file__).parent.parent / "fixtures"
KINDS = {
    "word", "words", "inflected", "typo", "identifier", "special", "width", "mixed", "date", "question",
}  # fmt: skip
LITERAL = {"word", "identifier", "special", "width"}
HAN = re.compile("[\u3400-\u9fff]")
KANA_OR_HANGUL = re.compile("[\u3040-\u30ff\uac00-\ud7af]")
CJK = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
LATIN = re.compile("[a-z]")


def _lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FIXTURES / name).read_text(encoding="utf-8").splitlines()]


MEMORIES = _lines("queries.memories.jsonl")
QUERIES = _lines("queries.jsonl")
ENTRIES = {memory["id"]: Entry(memory["text"]) for memory in MEMORIES}
FOOTPRINTS = {name for name, entry in ENTRIES.items() if entry.content.startswith("触发「")}


def _language(text: str) -> str:
    """zh, en or other, by the scripts of a text; a mixed text of Chinese and English is zh."""
    folded = fold(text)
    if KANA_OR_HANGUL.search(folded):
        return "other"
    if HAN.search(folded):
        return "zh"
    return "en" if LATIN.search(folded) else "other"


def _answering_to_the_letter(query: dict[str, Any]) -> set[str]:
    """The entries that have the query in them as keyword recall would find it, footprints left out."""
    keyword = Keyword(query["query"])
    return {name for name, entry in ENTRIES.items() if keyword.matches(entry.text)} - FOOTPRINTS


def test_the_set_is_large_enough_and_no_id_query_or_entry_comes_twice() -> None:
    assert len(MEMORIES) >= 350
    assert len(QUERIES) >= 180
    assert len(ENTRIES) == len(MEMORIES)
    assert len({query["id"] for query in QUERIES}) == len(QUERIES)
    assert len({query["query"] for query in QUERIES}) == len(QUERIES)
    assert len({entry.content for entry in ENTRIES.values()}) == len(MEMORIES)


def test_each_kind_has_at_least_ten_queries() -> None:
    counts = Counter(query["kind"] for query in QUERIES)
    assert set(counts) == KINDS
    assert min(counts.values()) >= 10, counts


def test_chinese_and_english_each_have_at_least_two_fifths() -> None:
    for texts in ([query["query"] for query in QUERIES], [entry.content for entry in ENTRIES.values()]):
        counts = Counter(map(_language, texts))
        assert min(counts["zh"], counts["en"]) >= 0.4 * len(texts), counts


def test_the_memory_has_japanese_korean_long_lines_and_footprints() -> None:
    contents = [entry.content for entry in ENTRIES.values()]
    assert sum(bool(re.search("[\u3040-\u30ff]", content)) for content in contents) >= 10
    assert sum(bool(re.search("[\uac00-\ud7af]", content)) for content in contents) >= 10
    assert sum(len(content) >= 150 for content in contents) >= 5
    assert len(FOOTPRINTS) >= 5


def test_the_entries_are_timed_lines_as_append_writes_them_in_the_order_of_their_times() -> None:
    for memory in MEMORIES:
        assert memory.keys() == {"id", "text"}
        entry = Entry(memory["text"])
        assert entry.time is not None, memory
        assert Entry.new(entry.content, time=entry.time).raw == memory["text"]
    times = [memory["text"][:22] for memory in MEMORIES]
    assert times == sorted(times)


def test_no_entry_has_a_credential() -> None:
    assert [memory for memory in MEMORIES if list(guard.find(memory["text"]))] == []


def test_a_query_is_short_and_names_the_entries_it_expects() -> None:
    for query in QUERIES:
        assert query.keys() - {"now"} == {"id", "query", "expected", "kind"}, query
        assert 1 <= len(query["query"].split()) <= 6, query
        assert len(CJK.findall(query["query"])) <= 10, query
        assert query["expected"], query
        assert query["expected"] == sorted(set(query["expected"])), query
        assert set(query["expected"]) <= ENTRIES.keys() - FOOTPRINTS, query


def test_only_a_query_with_a_date_says_when_it_is_asked_and_it_expects_nothing_newer() -> None:
    for query in QUERIES:
        assert ("now" in query) == (query["kind"] == "date"), query
        if "now" in query:
            now = datetime.fromisoformat(query["now"])
            times = [ENTRIES[name].time for name in query["expected"]]
            assert all(time is not None and time <= now for time in times), query


def test_an_entry_that_has_the_query_to_the_letter_is_expected() -> None:
    for query in QUERIES:
        found = _answering_to_the_letter(query)
        assert found <= set(query["expected"]), query
        if query["kind"] in LITERAL:
            assert found == set(query["expected"]), query
        if query["kind"] in ("typo", "inflected"):
            assert found == set(), query


def test_a_query_of_another_width_is_written_otherwise_in_an_entry_it_expects() -> None:
    for query in QUERIES:
        if query["kind"] == "width":
            assert any(query["query"] not in ENTRIES[name].text for name in query["expected"]), query
