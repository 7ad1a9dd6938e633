"""The tools: the answers of OryxOS for whatever a model sends, and a record of every call that tells no credential."""

import json
import logging
import shutil
import sqlite3
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from conftest import BACKENDS, NOW
from hypothesis import given
from hypothesis import strategies as st

from oryx_memory import (
    MemoryService,
    ToolAnswer,
    ToolExecutor,
    Workspace,
    anthropic_tools,
    current_agent,
    openai_tools,
    settings,
)
from oryx_memory.service import LIMIT
from oryx_memory.tools import ANSWER_CHARS, KEYWORD_CHARS, _as_json

SAMPLE = Path(__file__).parent.parent / "fixtures" / "oryxos-sample.db"
SECRET = "Tr0ub4dor&3x"
Make = Callable[..., ToolExecutor]


@pytest.fixture(params=BACKENDS)
def make(request: pytest.FixtureRequest, workspace: Workspace) -> Make:
    """Makes an executor on one backend, with a clock that stands at NOW; flags are settings by dotted key."""

    def made(**flags: Any) -> ToolExecutor:
        given = {name.replace("__", "."): value for name, value in flags.items()}
        return executor_on(workspace, {"backend": request.param, **given})

    return made


def executor_on(workspace: Workspace, flags: Mapping[str, Any] | None = None, **options: Any) -> ToolExecutor:
    chosen = settings.load(workspace.root, {}, flags)
    return ToolExecutor(MemoryService(workspace, settings=chosen, clock=lambda: NOW, **options))


def records(workspace: Workspace) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(workspace.database_file())) as connection:
        return connection.execute(
            "SELECT session_id, tool_name, input_json, result_json, success, error_message FROM tool_invocations ORDER BY id"
        ).fetchall()


def held(executor: ToolExecutor, agent: str = "ops") -> list[str]:
    snapshot = executor.service.read_all(agent)
    return [entry.content for entry in (*snapshot.core, *snapshot.archival)]


# The schema.


def test_both_shapes_say_the_same() -> None:
    for language in ("zh", "en"):
        openai = openai_tools(language)  # type: ignore[arg-type]  # a literal that a loop takes for any text
        anthropic = anthropic_tools(language)  # type: ignore[arg-type]
        assert [tool["type"] for tool in openai] == ["function", "function"]
        assert [
            {"name": f["name"], "description": f["description"], "input_schema": f["parameters"]}
            for f in (tool["function"] for tool in openai)
        ] == anthropic
        assert json.loads(json.dumps(openai)) == openai
    save, recall = anthropic
    assert (save["name"], save["input_schema"]["required"]) == ("save_memory", ["content"])
    assert save["input_schema"]["properties"]["scope"]["default"] == "archival"
    assert save["input_schema"]["properties"]["scope"]["enum"] == ["archival", "core"]
    assert (recall["name"], recall["input_schema"]["required"]) == ("recall_memory", ["keyword"])
    assert all(tool["input_schema"]["additionalProperties"] is False for tool in anthropic)


# The answers.


@pytest.mark.parametrize(
    ("arguments", "stored"),
    [
        ('{"content":"灰度发布在 50% 时回滚"}', "archival"),
        ('{"content":"灰度发布在 50% 时回滚","scope":"archival"}', "archival"),
        ('{"content":"灰度发布在 50% 时回滚","scope":"core"}', "core"),
        ('{"content":"灰度发布在 50% 时回滚","scope":"CORE"}', "core"),
        ('{"content":"灰度发布在 50% 时回滚","scope":null}', "archival"),
        ('{"content":"灰度发布在 50% 时回滚","scope":" "}', "archival"),
        ('{"content":"\\u7070度发布\\n在 50% 时\\u0000回滚","more":1}', "archival"),
        ({"content": "灰度发布在 50% 时回滚", "scope": "Archival"}, "archival"),
    ],
)
def test_what_a_model_saves_is_there(arguments: str | dict[str, Any], stored: str, make: Make) -> None:
    executor = make()
    assert executor.run("save_memory", arguments, agent="ops") == ToolAnswer("已记住", True)
    snapshot = executor.service.read_all("ops")
    (entry,) = (*snapshot.core, *snapshot.archival)
    assert (entry.content.replace("发布 在", "发布在"), entry.scope.value) == ("灰度发布在 50% 时回滚", stored)


@pytest.mark.parametrize(
    ("name", "arguments", "chinese", "english", "success"),
    [
        ("save_memory", '{"content":"x","scope":"important"}', "无法识别的记忆分区: important（应为 core 或 archival）", "unknown section of memory: important (it is core or archival)", True),
        ("save_memory", {"content": "x", "scope": 7}, "无法识别的记忆分区: 7（应为 core 或 archival）", "unknown section of memory: 7 (it is core or archival)", True),
        ("save_memory", {"content": "x", "scope": " core"}, "无法识别的记忆分区:  core（应为 core 或 archival）", "unknown section of memory:  core (it is core or archival)", True),
        ("save_memory", {"content": "x", "scope": "\ud800{}"}, "无法识别的记忆分区: \\ud800{}（应为 core 或 archival）", "unknown section of memory: \\ud800{} (it is core or archival)", True),
        ("save_memory", {"content": "x", "scope": "é" * 99}, f"无法识别的记忆分区: {'é' * 80}…（应为 core 或 archival）", f"unknown section of memory: {'é' * 80}… (it is core or archival)", True),
        ("save_memory", "{}", "错误: 缺少 content 参数", "error: the argument content is missing", True),
        ("save_memory", "", "错误: 缺少 content 参数", "error: the argument content is missing", True),
        ("save_memory", None, "错误: 缺少 content 参数", "error: the argument content is missing", True),
        ("save_memory", {"content": " \u3000\n"}, "错误: 缺少 content 参数", "error: the argument content is missing", True),
        ("save_memory", {"content": ["x"]}, "错误: 参数 content 应为文本", "error: the argument content must be a text", True),
        ("recall_memory", {"content": "x"}, "错误: 缺少 keyword 参数", "error: the argument keyword is missing", True),
        ("recall_memory", {"keyword": "\u00a0"}, "错误: 缺少 keyword 参数", "error: the argument keyword is missing", True),
        ("recall_memory", {"keyword": 5}, "错误: 参数 keyword 应为文本", "error: the argument keyword must be a text", True),
        ("recall_memory", {"keyword": "字" * 1_000_000}, f"错误: keyword 太长，最多 {KEYWORD_CHARS:,} 字", f"error: the keyword is too long, at most {KEYWORD_CHARS:,} characters", True),
        ("recall_memory", {"keyword": "过敏"}, "没有找到相关记忆", "nothing found in memory", True),
        ("recall_memory", {"keyword": "\ud800"}, "没有找到相关记忆", "nothing found in memory", True),
        ("forget_memory", {}, "未注册的工具: forget_memory", "no such tool: forget_memory", False),
        ("recall_memory", "[1]", "工具入参应为 JSON 对象", "the arguments must be a JSON object", False),
        ("recall_memory", "not json", "工具入参不是合法 JSON: Expecting value: line 1 column 1 (char 0)", "the arguments are not valid JSON: Expecting value: line 1 column 1 (char 0)", False),
    ],
)  # fmt: skip
def test_wrong_calls_get_clear_answers_in_both_languages(
    name: str, arguments: Any, chinese: str, english: str, success: bool, make: Make
) -> None:
    assert make().run(name, arguments, agent="ops") == ToolAnswer(chinese, success)
    executor = make(tools__language="en")
    assert executor.run(name, arguments, agent="ops") == ToolAnswer(english, success)
    assert held(executor) == []


@pytest.mark.parametrize(
    ("content", "reason"), [("字" * 349_525, "1,048,575 bytes"), ("\ud800", "not valid Unicode"), ("\x00", "blank")]
)
def test_what_cannot_be_kept_is_said_to_be_not_remembered(content: str, reason: str, make: Make) -> None:
    executor = make()
    executor.run("save_memory", {"content": "kept"}, agent="ops")
    answer = executor.run("save_memory", {"content": content}, agent="ops")
    assert (answer.text.partition("没有记住: ")[0], answer.success) == ("错误: ", False)
    assert reason in answer.text
    assert held(executor) == ["kept"]


def test_a_credential_is_kept_out_where_the_settings_say_so(make: Make) -> None:
    executor = make(guard__secrets="refuse")
    answer = executor.run("save_memory", {"content": f"password={SECRET}"}, agent="ops")
    assert not answer.success
    assert SECRET not in answer.text
    assert held(executor) == []


def test_hits_are_the_stored_lines_newest_first_and_what_is_left_out_is_said(make: Make) -> None:
    executor = make()
    with current_agent("ops"):
        for number in range(LIMIT + 2):
            executor.service.remember(f"备份 {number} {{}} %s [bold]")
    lines = executor.run("recall_memory", {"keyword": "备份"}, agent="ops").text.split("\n")
    assert lines[:-1] == [f"- [2026-08-01 02:00:00] 备份 {number} {{}} %s [bold]" for number in range(LIMIT + 1, 1, -1)]
    assert lines[-1] == "（还有 2 条没有列出，换个更具体的关键词）"
    assert executor.run("recall_memory", {"keyword": "备份 2 "}, agent="ops").text == lines[-2]


def test_an_answer_is_bounded_and_says_what_it_cuts(make: Make) -> None:
    executor = make()
    with current_agent("ops"):
        for number in range(5):
            executor.service.remember(f"{number} {'长' * 3000}")
        executor.service.remember(f"one alone {'x' * 20_000}")
    text = executor.run("recall_memory", {"keyword": "长"}, agent="ops").text
    assert [line[:25] for line in text.split("\n")[:2]] == [f"- [2026-08-01 02:00:00] {n}" for n in (4, 3)]
    assert text.endswith("\n（还有 3 条没有列出，换个更具体的关键词）")
    text = executor.run("recall_memory", {"keyword": "alone"}, agent="ops").text
    assert "characters cut" in text
    assert len(text) <= ANSWER_CHARS


def test_ranked_entries_stand_under_a_line_that_says_so(make: Make) -> None:
    executor = make()
    with current_agent("ops"):
        executor.service.remember("上线前必须两人复核")
        executor.service.record_trigger("上线前谁来复核？", "两人")
    arguments = {"keyword": "谁负责复核"}
    ranked = "- [2026-08-01 02:00:00] 上线前必须两人复核"
    assert executor.run("recall_memory", arguments, agent="ops").text == (
        f"（没有条目含有这个关键词，以下是最相关的）\n{ranked}"
    )
    assert make(tools__language="en").run("recall_memory", arguments, agent="ops").text == (
        f"(no entry contains the keyword; these answer it best)\n{ranked}"
    )


def test_a_search_by_meaning_that_fails_is_said_at_the_end(workspace: Workspace) -> None:
    chosen = settings.load(workspace.root, {"ORYX_EMBEDDING_PROVIDER": "openai"})
    executor = ToolExecutor(MemoryService(workspace, settings=chosen))
    executor.run("save_memory", {"content": "上线前必须两人复核"})
    notice = "（语义检索暂不可用，已按关键词与时间返回）"
    assert executor.run("recall_memory", {"keyword": "谁负责复核"}).text.endswith(f"上线前必须两人复核\n{notice}")
    assert executor.run("recall_memory", {"keyword": "zebra"}).text == f"没有找到相关记忆\n{notice}"
    assert notice not in executor.run("recall_memory", {"keyword": "复核"}).text


def test_without_a_name_a_call_is_for_the_current_agent(make: Make) -> None:
    executor = make()
    with current_agent("weather"):
        executor.run("save_memory", {"content": "下雨"})
        executor.run("save_memory", {"content": "复核"}, agent="ops")
    assert (held(executor, "weather"), held(executor, "ops")) == (["下雨"], ["复核"])


# What goes wrong.


def test_a_memory_that_cannot_be_written_is_told_and_recorded(workspace: Workspace) -> None:
    (workspace.root / "memory" / "MEMORY.md").mkdir()
    answer = executor_on(workspace).run("save_memory", {"content": "x"})
    assert not answer.success
    assert answer.text.startswith(f"错误: {workspace.root}")
    assert records(workspace) == [("", "save_memory", '{"content":"x"}', None, 0, answer.text)]


def test_a_bug_is_told_without_its_text_and_logged(workspace: Workspace, caplog: pytest.LogCaptureFixture) -> None:
    def broken_clock() -> Any:
        raise ZeroDivisionError("inner words")

    chosen = settings.load(workspace.root, {})
    executor = ToolExecutor(MemoryService(workspace, settings=chosen, clock=broken_clock))
    assert executor.run("save_memory", {"content": "x"}) == ToolAnswer("错误: 工具内部出错: ZeroDivisionError", False)
    assert (caplog.records[0].name, caplog.records[0].exc_info is not None) == ("oryx_memory", True)
    assert len(records(workspace)) == 1


def test_a_caller_that_gives_no_name_and_no_session_gets_an_answer_and_a_record(workspace: Workspace) -> None:
    nothing: Any = None
    answer = executor_on(workspace).run(nothing, nothing, agent=nothing, session_id=nothing)
    assert answer == ToolAnswer("未注册的工具: None", False)
    assert records(workspace) == [("None", "None", "null", None, 0, answer.text)]
    odd: Any = 7
    assert not executor_on(workspace).run("save_memory", {"content": "x"}, agent=odd).success
    assert len(records(workspace)) == 2


def test_a_record_that_cannot_be_written_is_logged_and_fails_no_call(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    workspace.database_file().mkdir()
    executor = executor_on(workspace)
    assert executor.run("save_memory", {"content": "x"}, agent="ops") == ToolAnswer("已记住", True)
    assert held(executor) == ["x"]
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("oryx_memory", logging.WARNING)
    assert str(workspace.database_file()) in record.getMessage()


@pytest.mark.parametrize("lock_timeout", [0.01, 1e6])
def test_a_database_that_another_program_holds_fails_no_call_and_holds_up_none(
    lock_timeout: float, workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    executor = executor_on(workspace, lock_timeout=lock_timeout)
    executor.run("recall_memory", {"keyword": "x"})
    with closing(sqlite3.connect(workspace.database_file(), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert executor.run("save_memory", {"content": "x"}, agent="ops").success
    assert "not recorded" in caplog.records[0].getMessage()
    assert (held(executor), len(records(workspace))) == (["x"], 1)


# The record.


def test_records_are_as_oryxos_writes_them(workspace: Workspace) -> None:
    shutil.copy(SAMPLE, workspace.database_file())
    before = records(workspace)
    executor = executor_on(workspace)
    session = {"agent": "ops", "session_id": "cli:local:ops"}
    start = time.time_ns() // 1_000_000
    executor.run("save_memory", '{"content":"灰度发布在 50% 时回滚，原因：连接池耗尽","scope":"archival"}', **session)
    executor.run("save_memory", {"content": "x", "scope": "important"}, **session)
    executor.run("recall_memory", "not json", agent="小助手", session_id="web:u-1001:小助手")
    now = records(workspace)
    assert now[: len(before)] == before
    assert now[len(before) :][:2] == [before[0], before[2]]
    assert now[-1][:5] == before[3][:5]
    assert now[-1][5].startswith("工具入参不是合法 JSON: ")
    with closing(sqlite3.connect(workspace.database_file())) as connection:
        sql = "SELECT DISTINCT typeof(created_at), typeof(duration_ms), typeof(success) FROM tool_invocations"
        assert connection.execute(sql).fetchall() == [("integer", "integer", "integer")]
        sql = "SELECT min(created_at), min(duration_ms) FROM tool_invocations WHERE id > ?"
        first, duration = connection.execute(sql, (len(before),)).fetchone()
        assert start <= first <= time.time_ns() // 1_000_000
        assert duration >= 0


def test_a_new_database_has_the_schema_of_oryxos(workspace: Workspace) -> None:
    executor_on(workspace).run("recall_memory", {"keyword": "x"})
    schemas: list[list[Any]] = []
    for path in (f"file:{SAMPLE}?mode=ro&immutable=1", f"file:{workspace.database_file()}?mode=ro"):
        with closing(sqlite3.connect(path, uri=True)) as connection:
            rows = connection.execute("PRAGMA table_info(tool_invocations)").fetchall()
            rows += connection.execute("PRAGMA index_list(tool_invocations)").fetchall()
            rows += connection.execute("PRAGMA index_info(idx_tool_invocations_session)").fetchall()
            schemas.append(rows)
    assert schemas[0] == schemas[1]
    assert len(schemas[0]) == 11


@pytest.mark.parametrize(
    "arguments",
    [
        {"content": f"password={SECRET}"},
        {"content": [{"deep": f"密码：{SECRET}"}]},
        {"content": f'say "password": "{SECRET}" twice'},
        {"password": SECRET},
        '{"content":"password=Tr0ub4d\\u006fr&3x"}',
        f'{{"content": "password={SECRET}',
        f"password={SECRET}",
    ],
)
def test_no_credential_is_recorded_in_clear(
    arguments: str | dict[str, Any], workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    executor = executor_on(workspace)
    executor.run("save_memory", arguments, agent="ops", session_id="cli:local:ops")
    executor.run("recall_memory", {"keyword": "password="}, agent="ops")
    executor.run("save_memory", {"content": "x", "scope": f"password={SECRET}"})
    assert len(records(workspace)) == 3
    for path in workspace.root.parent.glob("oryxos.db*"):
        assert SECRET.encode() not in path.read_bytes()
        assert b"Tr0ub4d" not in path.read_bytes()
    assert SECRET not in caplog.text


def test_the_whole_of_a_long_call_is_recorded(workspace: Workspace) -> None:
    content = "一" * 400_000
    executor_on(workspace).run("save_memory", {"content": content, "raw": "\ud800\x00"})
    ((_, _, given, *_),) = records(workspace)
    assert json.loads(given) == {"content": content, "raw": "\ud800\x00"}


def test_arguments_that_json_cannot_hold_are_recorded_as_python_shows_them() -> None:
    circle: dict[str, Any] = {}
    circle["self"] = circle
    assert _as_json(circle) == "{'self': {...}}"
    assert _as_json({"x": {1}}) == "{'x': {1}}"
    assert _as_json(None) == "null"


def test_threads_record_every_call_once(make: Make, workspace: Workspace) -> None:
    executor = make()

    def calls(number: int) -> None:
        for step in range(5):
            answer = executor.run("save_memory", {"content": f"{number} 之 {step}"}, agent=f"a{number % 2}")
            assert answer == ToolAnswer("已记住", True)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(calls, range(6)))
    assert sorted(held(executor, "a0") + held(executor, "a1")) == sorted(
        f"{n} 之 {s}" for n in range(6) for s in range(5)
    )
    assert len(records(workspace)) == 30


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(), max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["content", "scope", "keyword", "x", "\ud800"]), inner, max_size=3),
    ),
    max_leaves=6,
)
names = st.one_of(st.sampled_from(["save_memory", "recall_memory"]), st.text(st.characters(), max_size=5))


@given(names, st.one_of(json_values, st.text(st.characters(), max_size=20), json_values.map(json.dumps)), names)
def test_whatever_a_model_sends_gets_an_answer_and_a_record(
    workspace: Workspace, name: str, arguments: Any, session_id: str
) -> None:
    before = len(records(workspace)) if workspace.database_file().exists() else 0
    executor = executor_on(workspace)
    kept = held(executor)
    answer = executor.run(name, arguments, agent="ops", session_id=session_id)
    answer.text.encode()
    assert answer.text
    assert "内部" not in answer.text
    assert len(held(executor)) == len(kept) + (answer.text == "已记住")
    *_, (_, _, given, result, success, error) = records(workspace)
    assert len(records(workspace)) == before + 1
    assert bool(success) == answer.success == (error is None) == (result is not None)
    assert given is not None
