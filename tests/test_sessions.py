"""Sessions in OryxOS's own table: its rows, its bytes, several writers at once, and rows that cannot be read."""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from command import memory
from hypothesis import given
from hypothesis import strategies as st

from oryx_memory import (
    FileProblem,
    LockTimeout,
    NothingFound,
    OryxMemoryWarning,
    Refused,
    RejectedInput,
    Workspace,
    settings,
)
from oryx_memory.messages import TURNS, compact, extended, parse, recent, turns
from oryx_memory.sessions import Hit, Message, Sessions, ToolCall, Turn, open_sessions

SAMPLE = Path(__file__).parents[1] / "fixtures" / "oryxos-sample.db"
UTC = ZoneInfo("UTC")
NOW = datetime(2026, 8, 2, 10, 0, 0, 123_999)
NOW_MILLIS = 1785664800123
OPS, WEB, SCHEDULER, OLD = "cli:local:ops", "web:u-1001:小助手", "scheduler:scheduler:ops", "admin:console:ops"
ASK, REPLY = Message("user", "上线前要谁复核？"), Message("assistant", "两个人 / two people")
SAVED = (
    Message("user", "记住：灰度发布在 50% 时回滚"),
    Message(
        "assistant",
        "",
        tool_calls=(
            ToolCall(
                "call_01",
                "save_memory",
                '{"content":"灰度发布在 50% 时回滚，原因：连接池耗尽","scope":"archival"}',
            ),
        ),
    ),
    Message("tool", '"已记住"', "save_memory", "call_01"),
    Message("assistant", "已经记下了。"),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A copy of OryxOS's own database."""
    shutil.copyfile(SAMPLE, tmp_path / "oryxos.db")
    return tmp_path / "oryxos.db"


@pytest.fixture
def sessions(path: Path) -> Sessions:
    return _open(path)


def _open(path: Path, *, zone: str = "UTC", timeout: float = 10.0) -> Sessions:
    return Sessions(path, lambda: NOW, zone=ZoneInfo(zone), timeout=timeout)


def _sql(path: Path, sql: str, *values: object) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(sql, values).fetchall()
        connection.commit()
        return rows


def _stored(path: Path, session_id: str) -> bytes | None:
    ((stored,),) = _sql(path, "SELECT CAST(messages_json AS BLOB) FROM sessions WHERE session_id = ?", session_id)
    assert stored is None or isinstance(stored, bytes)
    return stored


def _put(path: Path, messages_json: object, session_id: str = OPS) -> None:
    _sql(path, "UPDATE sessions SET messages_json = ? WHERE session_id = ?", messages_json, session_id)


def test_the_example_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[1] / "docs" / "sessions.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    exec(compile(block, "sessions.md", "exec"), {})
    assert capsys.readouterr().out == "1 ['上线前要谁复核？', '两个人 / two people']\n2 ['Since when?']\n"


# OryxOS's own rows


def test_the_sessions_of_oryxos_are_read(sessions: Sessions) -> None:
    assert [item.id for item in sessions.list()] == [SCHEDULER, WEB, OPS]
    assert [item.id for item in sessions.list("ops", archived=True)] == [SCHEDULER, OPS, OLD]
    ops, web, old = sessions.get(OPS), sessions.get(WEB), sessions.get(OLD)
    assert ops.messages == SAVED
    assert (ops.agent, ops.channel, ops.user, ops.status) == ("ops", "cli", "local", "active")
    assert (ops.created, ops.last_active, ops.archived) == (
        datetime(2026, 8, 1, 1, 2, 3, 456_000),
        datetime(2026, 8, 1, 3, 2, 3, 456_000),
        None,
    )
    assert web.messages == (
        Message("user", "会议是几点？🍵"),
        Message("assistant", "周五下午三点。\n要我提醒你吗？"),
    )
    assert sessions.get(SCHEDULER).messages == ()
    assert old.messages == (Message("user", "旧格式会话"), Message("assistant", "好的"))
    assert (old.status, old.archived) == ("archived", datetime(2026, 8, 2, 2, 2, 3, 456_000))


def test_a_session_of_ours_is_byte_for_byte_one_of_oryxos(path: Path, tmp_path: Path) -> None:
    ours = _open(tmp_path / "new.db")
    assert ours.create(OPS).messages == ()
    ours.append(OPS, *SAVED[:1])
    ours.append(OPS, *SAVED[1:])
    assert _stored(ours.path, OPS) == _stored(path, OPS)
    table = "SELECT name, sql FROM sqlite_master WHERE tbl_name = 'sessions' AND sql IS NOT NULL ORDER BY name"

    def schema(file: Path) -> list[tuple[str, str]]:
        rows = [(name, sql.replace("IF NOT EXISTS ", "")) for name, sql in _sql(file, table)]
        return [(name, re.sub(r"\s*([(),])\s*", r"\1", " ".join(sql.split()))) for name, sql in rows]

    assert schema(ours.path) == schema(path)
    columns = "profile_name, channel, user_id, typeof(messages_json), status, created_at, last_active_at, archived_at"
    assert _sql(ours.path, f"SELECT {columns} FROM sessions") == [
        ("ops", "cli", "local", "text", "active", NOW_MILLIS, NOW_MILLIS, None)
    ]


def test_an_older_session_keeps_its_form_and_gets_whole_messages(path: Path, sessions: Sessions) -> None:
    before = _stored(path, OLD)
    assert before is not None
    assert sessions.append(OLD, ASK, REPLY).messages == (*parse(before), ASK, REPLY)
    after = _stored(path, OLD)
    assert after is not None
    assert after.startswith(before[:-1])
    assert [list(item) for item in json.loads(after)[2:]] == [
        ["role", "content", "toolName", "toolCallId", "toolCalls"]
    ] * 2


def test_fields_of_other_versions_survive_an_append(path: Path, sessions: Sessions) -> None:
    theirs = '[ {"role": "user", "content": "看图", "media": [{"type": "image", "n": 1.50}], "x": "\\u4e00"} ]\n'
    _put(path, theirs)
    assert sessions.append(OPS, REPLY).messages == (Message("user", "看图"), REPLY)
    assert _stored(path, OPS) == f"{theirs[:-3]},{compact(REPLY.as_oryxos())}]\n".encode()


@pytest.mark.parametrize("nothing", [None, "", " \n", "[]", "[ ]", "\u3000"])
def test_a_session_without_messages_is_empty_and_takes_some(
    nothing: str | None, path: Path, sessions: Sessions
) -> None:
    _put(path, nothing)
    assert sessions.get(OPS).messages == ()
    assert sessions.recent_turns(OPS) == []
    assert sessions.append(OPS, ASK).messages == (ASK,)
    assert json.loads(_stored(path, OPS) or b"") == [ASK.as_oryxos()]


def test_fields_of_other_types_are_shown_as_json(path: Path, sessions: Sessions) -> None:
    _put(
        path,
        '[{"role":"user","content":[{"type":"text","text":"你好"}]},{"content":null},{"role":"critic","content":7,'
        '"toolCalls":[{"id":1,"argumentsJson":{"a":"b"}}]},{"role":"user","content":"\\ud83c\\udf75 \\ud800"}]',
    )
    assert sessions.get(OPS).messages == (
        Message("user", '[{"type":"text","text":"你好"}]'),
        Message("", ""),
        Message("critic", "7", tool_calls=(ToolCall("1", "", '{"a":"b"}'),)),
        Message("user", "🍵 \ufffd"),
    )


def test_half_a_surrogate_pair_is_stored_as_an_escape(path: Path, sessions: Sessions) -> None:
    sessions.append(SCHEDULER, Message("user", "a\ud800b"))
    assert json.loads(_stored(path, SCHEDULER) or b"")[0]["content"] == "a\ud800b"


def test_bytes_that_are_no_utf8_stay(path: Path, sessions: Sessions) -> None:
    theirs = b'[{"role":"user","content":"\xd6\xd0"}]'
    _sql(path, "UPDATE sessions SET messages_json = CAST(? AS TEXT) WHERE session_id = ?", theirs, OPS)
    sessions.append(OPS, REPLY)
    assert (_stored(path, OPS) or b"").startswith(theirs[:-1] + b",")
    assert sessions.get(OPS).messages[0].content == "\ufffd\ufffd"


# What cannot be read

BROKEN = {
    "cut": '[{"role":"user","content":"一',
    "text": "not json",
    "object": '{"role":"user"}',
    "strings": '["user"]',
    "calls": '[{"role":"assistant","toolCalls":{"id":"1"}}]',
    "behind": '[{"role":"user"}] [',
    "bom": "\ufeff[]",
    "deep": "[" * 200_000,
    "digits": f"[{'9' * 5000}]",
    "number": 5,
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_broken_session_is_named_skipped_and_never_overwritten(
    broken: object, path: Path, sessions: Sessions
) -> None:
    _put(path, broken)
    before = _sql(path, "SELECT * FROM sessions")
    with pytest.warns(OryxMemoryWarning, match=f"session {OPS} cannot be read: .*left out") as told:
        assert [item.id for item in sessions.list()] == [SCHEDULER, WEB]
    assert len(told) == 1
    with pytest.warns(OryxMemoryWarning, match=OPS):
        assert [hit.session_id for hit in sessions.search("周五")] == [WEB]
    for attempt in (
        lambda: sessions.get(OPS),
        lambda: sessions.append(OPS, ASK),
        lambda: sessions.append(OPS),
        lambda: sessions.recent_turns(OPS),
        lambda: sessions.create(OPS),
    ):
        with pytest.raises(FileProblem, match=f"the messages of session {OPS} cannot be read"):
            attempt()
    assert _sql(path, "SELECT * FROM sessions") == before
    sessions.archive(OPS)
    assert _sql(path, "SELECT status, messages_json FROM sessions WHERE session_id = ?", OPS) == [
        ("archived", str(broken))
    ]


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("2026-08-01 09:02:03.456", datetime(2026, 8, 1, 9, 2, 3, 456_000)),
        ("2026-08-01 09:02:03", datetime(2026, 8, 1, 9, 2, 3)),
        ("2026-08-01T01:02:03Z", datetime(2026, 8, 1, 9, 2, 3)),
        ("2026-08-01T01:02:03.5+00:00", datetime(2026, 8, 1, 9, 2, 3, 500_000)),
        ("1785546123456", datetime(2026, 8, 1, 9, 2, 3, 456_000)),
        (1785546123456.0, datetime(2026, 8, 1, 9, 2, 3, 456_000)),
        ("gestern", None),
        (2**62, None),
        (b"\xff", None),
    ],
)
def test_times_of_other_programs_are_read(stored: object, shown: datetime | None, path: Path) -> None:
    _sql(path, "UPDATE sessions SET last_active_at = ? WHERE session_id = ?", stored, OPS)
    sessions = _open(path, zone="Asia/Shanghai")
    assert sessions.get(OPS).last_active == shown
    assert OPS in [item.id for item in sessions.list()]


def test_the_second_of_two_equal_hours_is_the_newer(path: Path) -> None:
    for session_id, millis in ((OPS, 1793513700000), (WEB, 1793511900000)):
        _sql(path, "UPDATE sessions SET last_active_at = ? WHERE session_id = ?", millis, session_id)
    found = _open(path, zone="America/New_York").list()
    assert [(item.id, item.last_active) for item in found[:2]] == [
        (OPS, datetime(2026, 11, 1, 1, 15)),
        (WEB, datetime(2026, 11, 1, 1, 45)),
    ]


@pytest.mark.parametrize(("zone", "millis"), [("UTC", NOW_MILLIS), ("Asia/Shanghai", NOW_MILLIS - 8 * 3_600_000)])
def test_the_clock_is_local_and_the_row_is_not(zone: str, millis: int, path: Path) -> None:
    sessions = _open(path, zone=zone)
    assert sessions.append(OPS, ASK).last_active == NOW.replace(microsecond=123_000)
    assert _sql(path, "SELECT last_active_at FROM sessions WHERE session_id = ?", OPS) == [(millis,)]
    assert sessions.get(OPS).last_active == NOW.replace(microsecond=123_000)


# What is asked and refused


def test_archiving_keeps_the_messages_and_the_first_time(path: Path, sessions: Sessions) -> None:
    sessions.archive(OLD)
    assert sessions.get(OLD).archived == datetime(2026, 8, 2, 2, 2, 3, 456_000)
    before = _stored(path, OPS)
    sessions.archive(OPS)
    assert (sessions.get(OPS).status, sessions.get(OPS).archived) == ("archived", NOW.replace(microsecond=123_000))
    assert _stored(path, OPS) == before
    assert sessions.append(OPS, ASK).status == "archived"


def test_creating_what_is_there_gives_it(path: Path, sessions: Sessions) -> None:
    before = _sql(path, "SELECT * FROM sessions")
    assert sessions.create(OPS) == sessions.get(OPS)
    assert _sql(path, "SELECT * FROM sessions") == before


@pytest.mark.parametrize(
    ("session_id", "agent", "parts"),
    [
        ("cli:local:ops", None, ("cli", "local", "ops")),
        ("web:a:b@example.org:小助手", None, ("web", "a:b@example.org", "小助手")),
        ("web:u:team:ops", "team:ops", ("web", "u", "team:ops")),
    ],
)
def test_an_id_is_channel_user_and_agent(
    session_id: str, agent: str | None, parts: tuple[str, str, str], sessions: Sessions
) -> None:
    made = sessions.create(session_id, agent)
    assert (made.channel, made.user, made.agent) == parts


@pytest.mark.parametrize(
    ("session_id", "agent"),
    [("", None), ("ops", None), ("cli:ops", None), ("cli::ops", None), (":local:ops", None), ("cli:local:", None),
     ("cli:local:ops", "other"), ("cli:ops", "ops"), ("cli:a\nb:ops", None), ("cli:\ud800:ops", None)],
)  # fmt: skip
def test_what_is_no_id_is_rejected(session_id: str, agent: str | None, path: Path, sessions: Sessions) -> None:
    before = _sql(path, "SELECT * FROM sessions")
    with pytest.raises(RejectedInput, match="channel:user:agent"):
        sessions.create(session_id, agent)
    assert _sql(path, "SELECT * FROM sessions") == before


def test_nothing_is_made_for_those_who_look(tmp_path: Path) -> None:
    sessions = _open(tmp_path / "oryxos.db")
    assert sessions.list() == []
    assert list(sessions.search("x")) == []
    for attempt in (
        lambda: sessions.get(OPS),
        lambda: sessions.append(OPS, ASK),
        lambda: sessions.archive(OPS),
        lambda: sessions.recent_turns(OPS),
    ):
        with pytest.raises(NothingFound, match=OPS):
            attempt()
    assert list(tmp_path.iterdir()) == []


def test_a_database_without_sessions_has_none(path: Path, sessions: Sessions) -> None:
    _sql(path, "DROP TABLE sessions")
    assert sessions.list() == []
    with pytest.raises(NothingFound, match=OPS):
        sessions.append(OPS, ASK)
    assert sessions.create(OPS).messages == ()


def test_the_nearest_session_is_named(sessions: Sessions) -> None:
    with pytest.raises(NothingFound, match=f"did you mean {OPS}"):
        sessions.get("cli:lokal:ops")


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "oryxos.db").write_text("笔记 notes " * 100)
    with pytest.raises(FileProblem, match=re.escape(str(tmp_path / "oryxos.db"))):
        _open(tmp_path / "oryxos.db").list()


def test_a_link_out_of_the_project_is_refused(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("elsewhere") / "oryxos.db"
    shutil.copyfile(SAMPLE, outside)
    workspace.database_file().symlink_to(outside)
    chosen = settings.load(workspace.root, {})
    with pytest.raises(FileProblem, match="refused"):
        open_sessions(workspace, chosen)


def test_the_sessions_of_a_workspace_are_beside_it(workspace: Workspace) -> None:
    shutil.copyfile(SAMPLE, workspace.database_file())
    chosen = settings.load(workspace.root, {}, {"time.zone": "Asia/Shanghai"})
    found = open_sessions(workspace, chosen, lambda: NOW).get(OPS)
    assert found.created == datetime(2026, 8, 1, 9, 2, 3, 456_000)


# Several writers


def test_a_writer_that_knows_an_older_state_is_refused(path: Path, sessions: Sessions) -> None:
    known = sessions.get(OPS)
    newer = sessions.append(OPS, ASK, expected=known)
    before = _stored(path, OPS)
    with pytest.raises(Refused, match=f"session {OPS}: another writer"):
        sessions.append(OPS, REPLY, expected=known)
    assert _stored(path, OPS) == before
    assert sessions.append(OPS, REPLY, expected=newer).messages == (*SAVED, ASK, REPLY)


def test_a_writer_waits_for_another_one_and_gives_up(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LockTimeout):
            _open(path, timeout=0).append(OPS, ASK)
        assert _open(path, timeout=0).get(OPS).messages == SAVED
        other.execute("ROLLBACK")
    assert _open(path, timeout=0).append(OPS, ASK).messages == (*SAVED, ASK)


WRITER = """
import sys
from datetime import datetime
from pathlib import Path
from oryx_memory.sessions import Message, Sessions
path, session_id, name, count = sys.argv[1:]
sessions = Sessions(Path(path), datetime.now, timeout=60)
sessions.create(session_id)
for number in range(int(count)):
    text = f"{name}-{number}-问"
    sessions.append(session_id, Message("user", text), Message("assistant", text.replace("问", "答")))
    print(text, flush=True)
"""


def _start(path: Path, name: str, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER, str(path), "test:many:ops", name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=dict(os.environ))


def _turns_of(path: Path, name: str) -> list[str]:
    """The questions of one writer as they stand in the session, each checked to be a whole turn."""
    found = []
    for turn in _open(path).get("test:many:ops").turns:
        question, answer = (message.content for message in turn.messages)
        assert answer == question.replace("问", "答")
        found += [question] if question.startswith(f"{name}-") else []
    return found


def test_many_processes_append_to_one_session(tmp_path: Path) -> None:
    path = tmp_path / "oryxos.db"  # which they make together
    writers = [_start(path, f"w{number}", 25) for number in range(6)]
    for writer in writers:
        writer.communicate()
    assert [writer.returncode for writer in writers] == [0] * 6
    for number in range(6):
        assert _turns_of(path, f"w{number}") == [f"w{number}-{turn}-问" for turn in range(25)]
    assert len(_open(path).get("test:many:ops").turns) == 150


def test_what_a_killed_writer_acknowledged_is_there_once(tmp_path: Path) -> None:
    path = tmp_path / "oryxos.db"
    with _start(path, "victim", 100_000) as victim, _start(path, "other", 30) as other:
        assert victim.stdout is not None
        acknowledged = [victim.stdout.readline().strip() for _ in range(20)]
        victim.send_signal(signal.SIGKILL)
        acknowledged += victim.stdout.read().split()
        other.communicate()
    there = _turns_of(path, "victim")
    assert there == [f"victim-{turn}-问" for turn in range(len(there))]
    assert there[: len(acknowledged)] == acknowledged
    assert len(there) <= len(acknowledged) + 1
    assert len(_turns_of(path, "other")) == 30


def test_columns_in_which_another_program_put_no_text_are_read_as_texts(tmp_path: Path) -> None:
    path = tmp_path / "oryxos.db"
    memory("init", "--root", str(tmp_path))
    _sql(
        path,
        "CREATE TABLE sessions (session_id PRIMARY KEY, profile_name, channel, user_id, messages_json, status, created_at, last_active_at, archived_at)",
    )
    said = compact([ASK.as_oryxos(), REPLY.as_oryxos()])
    for row in (
        ("cli:a:ops", "ops", "cli", "a", "active"),
        (None, "ops", None, None, None),
        (b"cli:b:ops", b"ops", b"cli", b"\xff", b"active"),
        (b"cli:c:\xff", b"\xff", 5, 2.5, b"archived"),
        (7, None, "cli", "d", 0),
    ):
        _sql(path, "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", *row[:4], said, row[4], 0, b"x", None)
    sessions = _open(path)
    found = {session.id: session for session in sessions.list(archived=True)}
    assert set(found) == {"cli:a:ops", "", "cli:b:ops", "cli:c:\ufffd", "7"}
    assert (found[""].status, found["cli:b:ops"].agent, found["cli:b:ops"].user) == ("", "ops", "\ufffd")
    assert {session.id for session in sessions.list("ops")} == {"cli:a:ops", "", "cli:b:ops"}
    assert sessions.agents() == ["ops", "\ufffd"]
    assert {hit.session_id for hit in sessions.search("复核")} == set(found)
    with pytest.raises(NothingFound):
        sessions.get("cli:nobody:ops")
    for command in (("session", "list"), ("session", "search", "复核"), ("episodes", "谁复核")):
        done = memory(*command, "--root", str(tmp_path / ".oryxos"))
        assert (done.code, done.err) == (0, ""), command


def test_a_database_in_another_encoding_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "oryxos.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA encoding = 'UTF-16'")
        connection.execute("CREATE TABLE other (x)")
    before = path.read_bytes()
    for write in (lambda: _open(path).create(OPS), lambda: _open(path).append(OPS, ASK)):
        with pytest.raises(FileProblem, match="UTF-16"):
            write()
    assert path.read_bytes() == before


# Searching


def test_search_finds_lines_as_recall_does_the_newest_first(path: Path, sessions: Sessions) -> None:
    sessions.create("cli:new:ops")
    sessions.append("cli:new:ops", ASK, Message("assistant", "第一行\r\nＤｅｐｌｏｙ 100% STRASSE\n回滚"))
    sessions.append("cli:new:ops", Message("user", "再看回滚"), Message("critic", "回滚？"))
    assert list(sessions.search("回滚")) == [
        Hit("cli:new:ops", 2, "user", "再看回滚"),
        Hit("cli:new:ops", 2, "critic", "回滚？"),
        Hit("cli:new:ops", 1, "assistant", "回滚"),
        Hit(OPS, 1, "user", "记住：灰度发布在 50% 时回滚"),
        Hit(
            OPS,
            1,
            "assistant",
            'save_memory {"content":"灰度发布在 50% 时回滚，原因：连接池耗尽","scope":"archival"}',
        ),
    ]
    deploy = [Hit("cli:new:ops", 1, "assistant", "Ｄｅｐｌｏｙ 100% STRASSE")]
    for keyword in ("deploy", "100%", "straße", "Y 1"):
        assert list(sessions.search(keyword)) == deploy
    assert list(sessions.search("1%0")) == []
    assert [hit.session_id for hit in sessions.search("旧格式")] == [OLD]
    assert list(sessions.search("旧格式", agent="小助手")) == []
    with pytest.raises(RejectedInput):
        sessions.search("　")


# Laws

_contents = st.one_of(st.sampled_from(["", "一", "回滚", "] , [", '"]', "\\", "\n"]), st.text(max_size=12))
_roles = st.sampled_from(["user", "assistant", "tool", "system", ""])
_calls = st.builds(ToolCall, st.sampled_from(["", "1", "调用"]), _contents, _contents)
messages = st.builds(
    Message,
    _roles,
    _contents,
    st.none() | _contents,
    st.none() | st.sampled_from(["1", "2"]),
    st.lists(_calls, max_size=2).map(tuple),
)
_foreign = st.fixed_dictionaries(
    {},
    optional={
        "role": _roles | st.none() | st.integers(),
        "content": _contents | st.lists(st.integers(), max_size=2),
        "toolCalls": st.none() | st.lists(st.fixed_dictionaries({"id": _contents, "更多": st.booleans()}), max_size=2),
        "media": st.dictionaries(_contents, st.floats(allow_nan=False), max_size=2),
    },
)


@given(
    st.lists(_foreign, max_size=4),
    st.sampled_from([None, 1]),
    st.booleans(),
    st.sampled_from(["", " ", "\n\t "]),
    st.lists(st.lists(messages, max_size=3), max_size=3),
)
def test_adding_changes_nothing_that_stands_there(
    theirs: list[dict[str, Any]], indent: int | None, ascii_only: bool, behind: str, batches: list[list[Message]]
) -> None:
    stored = (json.dumps(theirs, indent=indent, ensure_ascii=ascii_only) + behind).encode()
    before, ours = parse(stored), [message for batch in batches for message in batch]
    after = stored
    for batch in batches:
        after = extended(after, batch)
    assert after == stored or after.startswith(stored.rstrip()[:-1].rstrip())
    assert json.loads(after) == theirs + [message.as_oryxos() for message in ours]
    assert parse(after) == (*before, *ours)


@given(st.lists(messages, max_size=12), st.integers(-1, 5))
def test_turns_are_all_of_a_conversation_in_order(given_messages: Sequence[Message], count: int) -> None:
    found = turns(given_messages)
    assert [message for turn in found for message in turn.messages] == given_messages
    for turn in found:
        assert [message.role == "user" for message in turn.messages] == [
            number == 0 and turn.number > 0 for number in range(len(turn.messages))
        ]
    of_users = [turn for turn in found if turn.number]
    assert [turn.number for turn in of_users] == list(range(1, len(of_users) + 1))
    last = recent(given_messages, count)
    if count <= 0:
        assert last == []
    else:
        assert last == (found if len(of_users) <= count else found[-count:])


def test_recent_turns_are_twenty(sessions: Sessions) -> None:
    sessions.append(SCHEDULER, *(Message("user", str(number)) for number in range(30)))
    last = sessions.recent_turns(SCHEDULER)
    assert (len(last), TURNS) == (20, 20)
    assert last[0] == Turn(11, (Message("user", "10"),))
    assert [turn.number for turn in sessions.recent_turns(SCHEDULER, 2)] == [29, 30]
