"""Ranked recall and its index: the same answers whatever became of the index, and nothing that it should not say."""

import json
import os
import sqlite3
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from command import NOBODY, ORYX, Result, as_user, make_ops, memory, real, with_path
from conftest import BACKENDS, NOW, Opener
from hypothesis import given
from hypothesis import strategies as st
from strategies import sentences

from oryx_memory import LongTermMemoryStore, RejectedInput, Workspace, changes, settings, stores
from oryx_memory.index import FORMAT, Index
from oryx_memory.recall import Hit, ranked
from oryx_memory.workspace import initialise, named

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
        return _texts(ranked(store, used, query, now=NOW))


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
    ['"', "a AND b", "NEAR(", "*", "-x", "^", "x OR", "body:x", "{body}: x", "'; DROP TABLE entry; --", "\x00", "%", "_", "(" * 100, "字" * 40_000],
)  # fmt: skip
def test_a_query_is_text_and_never_syntax(query: str, store: LongTermMemoryStore) -> None:
    _filled(store)
    stored = store.append("signs: \" * ( ^ % _ ' -x {body}", time=NOW) if query.isprintable() else None
    found = _ask(store, query)
    assert (stored is None) or len(query) > 3 or query not in stored.content or stored.content in found


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


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["add", "forget", "edit", "ask"]), sentences.filter(str.strip)),
        min_size=1,
        max_size=12,
    ),
    backend=st.sampled_from(BACKENDS),
)
def test_an_index_that_was_kept_answers_as_one_that_is_new(
    steps: list[tuple[str, str]], backend: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("kept")
    list(initialise(folder))
    place = named(folder)
    store = stores.open(place, settings.load(place.root, {}, {"backend": backend}), "ops", lambda: NOW)
    with Index.open(place.index_file) as kept:
        for number, (what, text) in enumerate(steps):
            archival = store.read().archival
            if what == "add" or not archival:
                store.append(text, time=NOW + timedelta(minutes=number))
            elif what == "forget":
                store.edit(changes.forget(archival[number % len(archival)].id))
            elif what == "edit":
                store.edit(changes.edit(archival[number % len(archival)].id, f"{text} {number}"))
            with Index.in_memory() as new:
                assert ranked(store, kept, text, now=NOW) == ranked(store, new, text, now=NOW)


# The file.


def test_a_deleted_index_is_made_again_with_the_same_answers(open_store: Opener, workspace: Workspace) -> None:
    store = _filled(open_store())
    with Index.open(workspace.index_file) as index:
        first = _ask(store, "花生 clang", index)
    workspace.index_file.unlink()
    with Index.open(workspace.index_file) as index:
        assert _ask(store, "花生 clang", index) == first


@pytest.mark.parametrize("damage", [b"no database at all", b"SQLite format 3\x00" + bytes(500)])
def test_a_broken_index_is_rebuilt_with_one_notice(damage: bytes, ops: Path) -> None:
    index = ops.parent.parent.parent / "memory-index.db"
    index.write_bytes(damage)
    result = memory("recall", "-a", "ops", "--mode", "ranked", "复核")
    assert (result.code, result.out.split("] ")[1].startswith("上线前"), result.err.count("\n")) == (0, True, 1)
    assert "made anew" in result.err
    assert memory("recall", "-a", "ops", "--mode", "ranked", "复核").err == ""


def test_an_index_of_another_format_is_rebuilt(ops: Path) -> None:
    assert memory("recall", "-a", "ops", "--mode", "ranked", "复核").code == 0
    index = ops.parent.parent.parent / "memory-index.db"
    with sqlite3.connect(index) as database:
        database.execute("UPDATE meta SET value = 'older'")
        database.execute("DELETE FROM entry")
    database.close()
    assert memory("recall", "-a", "ops", "--mode", "ranked", "复核").code == 0
    with sqlite3.connect(index) as database:
        assert database.execute("SELECT value FROM meta").fetchall() == [(FORMAT,)]
    database.close()


def test_where_the_index_cannot_be_written_recall_answers_and_says_so(shared: Path) -> None:
    make_ops(shared)
    child = as_user(NOBODY, "memory", "recall", "-a", "ops", "--mode", "ranked", "复核", "--root", ".")
    result = real(child, env=with_path(), cwd=shared)
    assert (result.code, result.out.count("复核")) == (0, 1)
    assert "without the stored index" in result.err
    assert not (shared / ".oryxos" / "memory-index.db").exists()


def test_several_processes_build_it_at_once(ops: Path) -> None:
    with ops.open("a", encoding="utf-8") as file:
        file.writelines(f"- [2026-07-23 09:{n // 60:02}:{n % 60:02}] 记录 number {n}\n" for n in range(2000))
    command = [ORYX, "memory", "recall", "-a", "ops", "--mode", "ranked", "number 1234", "-n", "1"]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)]
    ended = [(*child.communicate(), child.returncode) for child in children]
    assert ended == [("- [2026-07-23 09:20:34] 记录 number 1234\n".encode(), b"", 0)] * 4


def test_keyword_recall_makes_no_index_and_imports_none(ops: Path) -> None:
    assert memory("recall", "-a", "ops", "复核").code == 0
    assert not (ops.parent.parent.parent / "memory-index.db").exists()
    code = "import sys; from oryx_memory.cli import read; print([m for m in sys.modules if 'ranking' in m or 'index' in m])"
    assert real([sys.executable, "-c", code]).out.strip() == "[]"


def test_a_purged_text_leaves_the_index_too(ops: Path) -> None:
    stored = memory("append", "-a", "ops", "geheimzahl 4711 机密").out
    assert "geheimzahl" in memory("recall", "-a", "ops", "--mode", "ranked", "geheimzahl").out
    reference = json.loads(memory("list", "-a", "ops", "--json").out)[-1]["id"]
    assert stored.endswith("geheimzahl 4711 机密\n")
    assert memory("forget", "-a", "ops", "--purge", reference).code == 0
    for path in ops.parent.parent.parent.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        assert b"geheimzah" not in data, path
        assert "机密".encode() not in data, path


# The command.


def test_ranked_recall_prints_the_best_first(ops: Path) -> None:
    result = memory("recall", "-a", "ops", "--mode", "ranked", "who reviews before pip or 复核?")
    assert (result.code, result.err) == (0, "")
    assert [line.split("] ")[1] for line in result.out.splitlines()] == [
        "上线前必须两人复核 #流程 ^release_rule",
        "Use uv, not pip #tooling",
    ]
    assert memory("recall", "-a", "ops", "--mode", "ranked", "复核", "-n", "1", "--count").out == "1\n"


def test_explain_and_json_tell_scores_and_routes(ops: Path) -> None:
    result = memory("recall", "-a", "ops", "--mode", "ranked", "复核", "--explain", "-n", "1")
    score, routes, line = result.out.rstrip("\n").split("\t")
    assert (routes, line.startswith("- [")) == ("exact=1.00 lexical=1.00", True)
    found, beside = json.loads(memory("recall", "-a", "ops", "--mode", "ranked", "复核", "--json").out)
    assert (round(found["score"], 3), found["routes"]) == (float(score), {"exact": 1.0, "lexical": 1.0})
    assert 0 < beside["score"] < found["score"] / 2  # it only stands next to it
    assert found["line"] == line
    assert memory("recall", "-a", "ops", "--mode", "ranked", "复核", "--min-score", "3").code == 1


def test_nothing_found_is_exit_code_1(ops: Path) -> None:
    result = memory("recall", "-a", "ops", "--mode", "ranked", "kubernetes")
    assert result == Result(1, "", "oryx: nothing in ops answers 'kubernetes'\n")


def test_relative_dates_count_from_now(ops: Path) -> None:
    words = ("recall", "-a", "ops", "--mode", "ranked", "昨天", "--explain", "--now")
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
            hits = ranked(store, index, question["query"], now=now, limit=3)
            found += bool({ids[hit.entry.raw] for hit in hits} & set(question["expected"]))
    assert found >= 0.95 * len(questions), f"{found} of {len(questions)}"


def test_a_read_only_folder_keeps_no_part_of_an_index(ops: Path, tmp_path: Path) -> None:
    names = set(os.listdir(tmp_path / ".oryxos"))
    assert memory("recall", "-a", "ops", "复核").code == 0
    assert set(os.listdir(tmp_path / ".oryxos")) == names
