"""Ranked recall and its index: the same answers whatever became of the index, and nothing that it should not say."""

import json
import os
import re
import sys
from datetime import datetime
from pathlib import Path

import pytest
from command import ORYX, Result, memory, real
from conftest import NOW
from hypothesis import given
from hypothesis import strategies as st

from oryx_memory import Entry, LongTermMemoryStore, RejectedInput, Workspace, changes, ranking, settings, stores
from oryx_memory.index import Index
from oryx_memory.matching import Keyword, fold
from oryx_memory.recall import FOLDING_RANGES, Hit, _holding, ranked

RANKED = ("recall", "-a", "ops", "--mode", "ranked")
FIXTURES = Path(__file__).parent.parent / "fixtures"
FACTS = (
    ("2026-03-05 09:00:00", "部署用蓝绿，切换前先跑 gen-itgc 报表"),
    ("2026-03-05 10:00:00", "The staging cluster runs in Frankfurt, two nodes"),
    ("2026-04-01 08:00:00", "Rotate the API keys every 90 days; see DEC-0054"),
    ("2026-06-20 12:00:00", "客户 ACME 要求 SLA 99.95%，周报发给李雷"),
    ("2026-07-02 15:30:00", "C++ build needs clang 17, not gcc"),
    ("2026-07-03 15:30:00", "张三对花生过敏"),
)


def _filled(store: LongTermMemoryStore) -> LongTermMemoryStore:
    for time, text in FACTS:
        store.append(text, time=datetime.fromisoformat(time))
    return store


def _texts(hits: list[Hit]) -> list[str]:
    return [hit.entry.content for hit in hits]


def _ask(store: LongTermMemoryStore, query: str, index: Index | None = None) -> list[str]:
    with index or Index.in_memory() as used:
        return _texts(ranked(store, used, query, now=NOW).hits)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("where does staging run?", 1),
        ("rotating key", 2),
        ("dec-0054", 2),
        ("谁对花生过敏", 5),
        ("过敏", 5),
        ("报表", 0),
        ("itgc", 0),
        ("ＡＣＭＥ", 3),
        ("99.95%", 3),
        ("C++", 4),
        ("what did we learn on 2 July?", 4),
        ("上个月20号 周报", 3),
        ("4月1日", 2),
    ],
)
def test_the_best_answer_comes_first(query: str, first: int, store: LongTermMemoryStore) -> None:
    assert _ask(_filled(store), query)[0] == FACTS[first][1]


@pytest.mark.parametrize(
    "query",
    ['"', "a AND b", "NEAR(", "*", "-x", "^", "x OR", "body:x", "{body}: x", "'; DROP TABLE entry; --", "\x00", "a\x00b", "%", "_", "(" * 100, "字" * 40_000, "的了是", "？！", "\ud800", "过\udc80敏"],
)  # fmt: skip
def test_a_query_is_text_and_never_syntax(query: str, store: LongTermMemoryStore) -> None:
    _filled(store)
    stored = store.append("signs: \" * ( ^ % _ ' -x {body}", time=NOW) if query.isprintable() else None
    found = _ask(store, query)
    assert (stored is None) or len(query) > 3 or query not in stored.content or stored.content in found


def test_bytes_that_are_no_text_are_looked_for_and_not_found(ops: Path) -> None:
    result = real([ORYX, "memory", *RANKED, b"\xff\xfe"])
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)


@pytest.mark.parametrize("query", ["", " ", "\n\t"])
def test_a_blank_query_is_rejected(query: str, store: LongTermMemoryStore) -> None:
    with pytest.raises(RejectedInput):
        _ask(store, query)


def test_footprints_and_core_and_what_is_retired_take_no_part(store: LongTermMemoryStore) -> None:
    store.append("触发「谁对花生过敏？」⇒ 张三", time=NOW)
    store.append("李四对虾过敏", time=NOW)
    entry = store.append("王五对牛奶过敏", time=NOW)
    store.edit(changes.forget(entry.id))
    store.edit(changes.move(store.append("赵六过敏", time=NOW).id, to=next(iter(type(entry.scope)))))
    assert _ask(store, "过敏") == ["李四对虾过敏"]


def test_keyword_recall_makes_no_index_and_imports_none(ops: Path) -> None:
    assert memory("recall", "-a", "ops", "复核").code == 0
    assert not (ops.parent.parent.parent / "memory-index.db").exists()
    code = "import sys; from oryx_memory.cli import read; print([m for m in sys.modules if 'ranking' in m or 'index' in m])"
    assert real([sys.executable, "-c", code]).out.strip() == "[]"


@given(st.lists(st.text(st.sampled_from("abс字"), min_size=3, max_size=7), min_size=1, max_size=12), st.data())
def test_a_slip_is_looked_for_among_the_words_that_it_can_be_a_slip_for(words: list[str], data: st.DataObject) -> None:
    word = data.draw(st.text(st.sampled_from("abс字"), min_size=4, max_size=7))
    with Index.in_memory() as index:
        index.connection.executemany(
            "INSERT INTO word VALUES (1, ?, 1, ?)", [(term, term[::-1]) for term in dict.fromkeys(words)]
        )
        assert sorted(ranking.respellings(word, index._alike(1, word))) == sorted(
            ranking.respellings(word, dict.fromkeys(words))
        )


def test_no_character_that_folds_to_letters_is_missing_from_the_ranges() -> None:
    folding = {chr(code) for first, end in FOLDING_RANGES for code in range(first, end)}
    everything = (chr(code) for code in range(0x80, 0x110000) if not 0xD800 <= code < 0xE000)
    letters = re.compile("[a-z0-9\u3400-\u9fff]")
    assert [
        char for char in everything if letters.search(fold(char)) and fold(char) != char and char not in folding
    ] == []


@given(st.lists(st.text(st.sampled_from("aAＡ①éſß字㍿,，\n \u0301K"), min_size=1, max_size=6), max_size=8), st.data())
def test_what_holds_the_whole_query_is_what_keyword_recall_finds(texts: list[str], data: st.DataObject) -> None:
    query = data.draw(st.text(st.sampled_from("aAＡ①éſß字㍿,，\n \u0301K"), min_size=1, max_size=4).filter(str.strip))
    entries = {place: Entry(f"- {text}") for place, text in enumerate(texts)}
    keyword = Keyword(query)
    assert list(_holding(entries, keyword)) == [place for place in entries if keyword.matches(entries[place].text)]


# The command.


def test_ranked_recall_prints_the_best_first(ops: Path) -> None:
    result = memory(*RANKED, "who reviews before pip or 复核?")
    assert (result.code, result.err) == (0, "")
    assert [line.split("] ")[1] for line in result.out.splitlines()] == [
        "上线前必须两人复核 #流程 ^release_rule",
        "Use uv, not pip #tooling",
    ]
    assert memory(*RANKED, "复核", "-n", "1", "--count").out == "1\n"


def test_explain_and_json_tell_scores_and_routes(ops: Path) -> None:
    result = memory(*RANKED, "复核", "--explain", "-n", "1")
    score, routes, line = result.out.rstrip("\n").split("\t")
    assert (routes, line.startswith("- [")) == ("exact=1.00 lexical=1.00", True)
    found, beside = json.loads(memory(*RANKED, "复核", "--json").out)
    assert (round(found["score"], 3), found["routes"]) == (float(score), {"exact": 1.0, "lexical": 1.0})
    assert 0 < beside["score"] < found["score"] / 2  # it only stands next to it
    assert found["line"] == line
    assert memory(*RANKED, "复核", "--min-score", "3").code == 1


def test_explain_tells_why_a_route_took_no_part(ops: Path) -> None:
    result = memory(*RANKED, "复核 的规矩", "--explain")
    assert result.err.splitlines()[:2] == [
        "exact: no entry that was found has the whole query in it",
        "dates: the query names no date",
    ]
    assert "lexical" not in result.err
    assert memory(*RANKED, "复核 的规矩", "--explain", "--quiet").err == ""
    assert memory(*RANKED, "复核 的规矩").err == ""
    given = memory(*RANKED, "2026-07-23", "--explain")
    assert "dates: no entry is of the time that the query names" in given.err
    assert given.code == 1
    words = memory(*RANKED, "kubernetes", "--explain", "--json")
    found = json.loads(words.out)
    assert (words.code, found["hits"]) == (1, [])
    assert {"agent": "ops", "route": "lexical", "reason": "no word of the query stands in the memory"} in found[
        "skipped"
    ]
    assert json.loads(memory(*RANKED, "复核", "--explain", "--json").out)["hits"][0]["routes"]["exact"] == 1.0


def test_explain_names_the_agents_where_their_reasons_differ(ops: Path) -> None:
    assert memory("append", "-a", "other", "-q", "复核由两个人做").code == 0
    told = memory("recall", "--mode", "ranked", "pip", "--all-agents", "--explain").err.splitlines()
    assert "dates: the query names no date" in told
    assert "lexical: no word of the query stands in the memory (the global memory, other)" in told


def _retire_one(ops: Path) -> None:
    assert memory("append", "-a", "ops", "-q", "--at", "2026-07-20", "复核可以由一人做").code == 0
    reference = json.loads(memory("list", "-a", "ops", "--json").out)[-1]["id"]
    assert memory("forget", "-a", "ops", "-q", reference).code == 0


GONE = "- [2026-07-20 00:00:00] 复核可以由一人做"


def test_ranked_recall_finds_retired_entries_where_asked_and_marks_them(ops: Path) -> None:
    _retire_one(ops)
    assert "一人" not in memory(*RANKED, "谁来复核，一人？").out
    lines = memory(*RANKED, "谁来复核，一人？", "--retired").out.splitlines()
    assert lines[0] == f"retired\t{GONE}"
    assert lines[1].startswith("live\t- [2026-07-22 09:30:00] 上线前必须两人复核")
    first, second, *_ = json.loads(memory(*RANKED, "一人复核", "--retired", "--json").out)
    assert (first["line"], first["retired"]["reason"], first["scope"]) == (GONE, "forgotten", "archival")
    assert "retired" not in second
    found = memory("recall", "--mode", "ranked", "--all-agents", "一人复核", "--retired", "-n", "1", "--explain").out
    agent, marked, _, routes, line = found.rstrip("\n").split("\t")
    assert (agent, marked, line) == ("ops", "retired", GONE)
    assert routes.startswith("lexical=1.00")


def test_a_retired_core_entry_is_found_and_signs_are_looked_for_literally(ops: Path) -> None:
    friday = json.loads(memory("list", "-a", "ops", "--json").out)[0]["id"]
    assert memory("append", "-a", "ops", "-q", "a → ⇄ b").code == 0
    assert memory("forget", "-a", "ops", "-q", friday).code == 0
    assert memory(*RANKED, "deploy on friday", "--retired").out.startswith(
        "retired\t- [2026-07-01 08:00:00] Never deploy"
    )
    reference = json.loads(memory("list", "-a", "ops", "--json").out)[-1]["id"]
    assert memory("forget", "-a", "ops", "-q", reference).code == 0
    assert memory(*RANKED, "⇄ ", "--retired").out.count("⇄") == 1


def test_keyword_recall_with_retired_lists_them_behind_the_live_ones(ops: Path) -> None:
    _retire_one(ops)
    live = memory("recall", "-a", "ops", "复核").out
    assert live == "- [2026-07-22 09:30:00] 上线前必须两人复核 #流程 ^release_rule\n"
    assert memory("recall", "-a", "ops", "复核", "--retired").out == f"live\t{live}retired\t{GONE}\n"
    assert memory("recall", "-a", "ops", "复核", "--retired", "-n", "1").out == f"live\t{live}"
    assert memory("recall", "-a", "ops", "一人", "--retired", "--tag", "x").code == 1
    assert memory("recall", "-a", "ops", "一人", "--retired", "--count").out == "1\n"
    assert memory("recall", "--all-agents", "一人", "--retired").out == f"ops\tretired\t{GONE}\n"
    (found,) = json.loads(memory("recall", "-a", "ops", "一人", "--retired", "--json").out)
    assert found["retired"]["reason"] == "forgotten"
    assert not (ops.parent.parent.parent / "memory-index.db").exists()


def test_nothing_found_is_exit_code_1(ops: Path) -> None:
    result = memory(*RANKED, "kubernetes")
    assert result == Result(1, "", "oryx: nothing in ops answers 'kubernetes'\n")


@pytest.mark.parametrize("mode", ["ranked", "keyword"])
def test_a_long_query_is_not_repeated_whole(mode: str, ops: Path) -> None:
    result = memory("recall", "-a", "ops", "--mode", mode, "kubernetes " * 10_000)
    assert (result.code, len(result.err) < 150, "…" in result.err) == (1, True, True)


@pytest.mark.parametrize("option", [("--explain",), ("--min-score", "0"), ("--now", "2026-07-23")])
def test_what_only_ranked_recall_knows_is_refused_without_it(option: tuple[str, ...], ops: Path) -> None:
    result = memory("recall", "-a", "ops", "复核", *option)
    assert result == Result(2, "", f"oryx: {option[0]}: only with --mode ranked\n")
    assert memory(*RANKED, "复核", *option).code == 0
    (ops.parent.parent.parent / "memory.toml").write_text('[recall]\nmode = "ranked"\n', encoding="utf-8")
    assert memory("recall", "-a", "ops", "复核", *option).code == 0
    assert memory("recall", "-a", "ops", "复核", "--min-score", "nan").code == 2


def test_relative_dates_count_from_now(ops: Path) -> None:
    words = (*RANKED, "昨天", "--explain", "--now")
    assert memory(*words, "2026-07-23").out.count("dates=1.00") == 2
    assert memory(*words, "2026-07-24").code == 1
    assert memory(*words, "yesterday").code == 2


def test_filters_and_all_agents(ops: Path) -> None:
    assert memory("append", "-a", "other", "-q", "复核由两个人做").code == 0
    words = ("recall", "--mode", "ranked", "复核", "--all-agents")
    assert {line.split("\t")[0] for line in memory(*words).out.splitlines()} == {"ops", "other"}
    assert {hit["agent"] for hit in json.loads(memory(*words, "--json").out)} == {"ops", "other"}
    assert memory(*words, "--tag", "流程").out.count("\n") == 1
    assert memory(*words, "--until", "2026-07-23").out.startswith("ops\t")


@pytest.mark.parametrize("query", ["9999年", "9999年12月31日", "今天"])
def test_the_last_day_of_all_is_a_date(query: str, ops: Path) -> None:
    assert memory("append", "-a", "ops", "-q", "the end", "--at", "9999-12-31 23:59:59").code == 0
    assert memory(*RANKED, query, "--now", "9999-12-31").out == "- [9999-12-31 23:59:59] the end\n"


@pytest.mark.parametrize(
    "filters", [("--tag", "rare"), ("--since", "2026-07-25"), ("--until", "2026-07-21"), ("--tag", "rare", "--retired")]
)
def test_what_a_filter_asks_for_is_found_behind_any_number_of_better_answers(
    filters: tuple[str, ...], ops: Path
) -> None:
    time = {"--since": "2026-07-26", "--until": "2026-07-20"}.get(filters[0], "2026-07-22")
    rare = f"- [{time} 09:00:00] a rollout of {' '.join(f'word{n}' for n in range(300))} #rare"
    lines = [f"- [2026-07-22 09:30:00] rollout plan number{n}" for n in range(230)]
    others = [f"- [2026-07-22 09:30:00] something else {n}" for n in range(600)]
    text = "\n".join((others[0], others[1], rare, *others, *lines))
    ops.write_text(f"## 核心记忆\n\n## 归档记忆\n{text}\n", encoding="utf-8")
    for query in ("rollout", "2026年7月" if time[-2:] == "22" else "rollout"):
        result = memory(*RANKED, query, *filters)
        assert (result.out.count("\n"), result.out.endswith(f"{rare}\n")) == (1, True), query
    assert memory(*RANKED, "ollou", *filters).out.count("\n") == 1


def test_the_mode_can_be_a_setting(ops: Path) -> None:
    (ops.parent.parent.parent / "memory.toml").write_text('[recall]\nmode = "ranked"\n', encoding="utf-8")
    assert memory("recall", "-a", "ops", "pip and 复核").out.count("\n") == 2
    assert memory("recall", "-a", "ops", "--mode", "keyword", "pip and 复核").code == 1


# How well it finds.


def test_short_queries_are_answered_among_the_first_three(workspace: Workspace) -> None:
    """At least 95 of 100: fixtures/queries.jsonl, in both languages."""
    entries = [json.loads(line) for line in (FIXTURES / "queries.memories.jsonl").read_text("utf-8").splitlines()]
    questions = [json.loads(line) for line in (FIXTURES / "queries.jsonl").read_text("utf-8").splitlines()]
    workspace.create_agent("ops")
    text = "".join(f"{entry['text']}\n" for entry in entries)
    workspace.memory_file("ops").write_text(f"## 核心记忆\n\n## 归档记忆\n{text}", encoding="utf-8")
    ids = {entry["text"]: entry["id"] for entry in entries}
    store = stores.open(workspace, settings.load(workspace.root, {}), "ops")
    last = max(time for entry in store.read().archival if (time := entry.time))
    found = 0
    with Index.in_memory() as index:
        for question in questions:
            now = datetime.fromisoformat(question["now"]) if "now" in question else last
            hits = ranked(store, index, question["query"], now=now, limit=3).hits
            found += bool({ids[hit.entry.raw] for hit in hits} & set(question["expected"]))
    assert found >= 0.95 * len(questions), f"{found} of {len(questions)}"


def test_a_read_only_folder_keeps_no_part_of_an_index(ops: Path, tmp_path: Path) -> None:
    names = set(os.listdir(tmp_path / ".oryxos"))
    assert memory("recall", "-a", "ops", "复核").code == 0
    assert set(os.listdir(tmp_path / ".oryxos")) == names
