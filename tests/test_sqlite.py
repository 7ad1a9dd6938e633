"""The sqlite backend on OryxOS's own database, beyond the contract: its rows, its old files, its errors, its locks."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

import pytest
import strategies
from command import NOBODY, as_user, memory, real, with_path
from conftest import NOW
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from oryx_memory import (
    Change,
    Entry,
    FileProblem,
    LockTimeout,
    LongTermMemoryStore,
    NothingFound,
    OryxMemoryWarning,
    Policy,
    Retirement,
    Scope,
    SettingsError,
    Snapshot,
    Workspace,
    changes,
    database,
    settings,
    stores,
)
from oryx_memory.entry import one_line

SAMPLE = Path(__file__).parents[1] / "fixtures" / "oryxos-sample.db"
MILLIS = 1785546123456  # 2026-08-01 01:02:03.456 UTC
TABLE = (
    "CREATE TABLE memory_entries (id INTEGER PRIMARY KEY AUTOINCREMENT, {agent}scope VARCHAR(16) NOT NULL, "
    "content TEXT NOT NULL, created_at TIMESTAMP NOT NULL)"
)
AGENT = "agent_name VARCHAR(128) NOT NULL DEFAULT '__global__', "


@pytest.fixture
def sample(workspace: Workspace) -> Path:
    shutil.copyfile(SAMPLE, workspace.database_file())
    return workspace.database_file()


def _open(
    workspace: Workspace, agent: str | None = "ops", *, zone: str = "UTC", lock_timeout: float = 10
) -> LongTermMemoryStore:
    chosen = settings.load(workspace.root, {}, {"backend": "sqlite", "time.zone": zone})
    return stores.open(workspace, chosen, agent, lambda: NOW, lock_timeout=lock_timeout)


def _sql(path: Path, sql: str, *values: object) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(sql, values).fetchall()
        connection.commit()
        return rows


def _oryxos_row(path: Path, content: object, created_at: object = MILLIS, scope: str = "ARCHIVAL") -> None:
    sql = "INSERT INTO memory_entries (agent_name, scope, content, created_at) VALUES ('ops', ?, ?, ?)"
    _sql(path, sql, scope, content, created_at)


def _raws(store: LongTermMemoryStore) -> list[str]:
    return [entry.raw for entry in store.read().archival]


# OryxOS's own file


def test_a_file_of_oryxos_opens_loads_and_recalls(workspace: Workspace, sample: Path) -> None:
    before = sample.read_bytes()
    chosen = settings.load(workspace.root, {}, {"backend": "sqlite"})
    assert stores.names(workspace, chosen) == ["ops", "小助手"]
    ops, helper, everyone = (_open(workspace, agent) for agent in ("ops", "小助手", None))
    assert [entry.content for entry in ops.read().core] == [
        "负责生产环境巡检，值班时间 22:00–06:00",
        "Never run destructive commands without approval",
    ]
    lines = _raws(ops)
    assert lines[:2] == [
        "- [2026-08-01 06:02:39] 工单 OPS-4721 已升级到二线",
        "- [2026-08-01 07:02:46] 灰度发布在 50% 时回滚，原因：连接池耗尽",
    ]
    assert lines[4] == "- [2026-08-01 10:03:07] 多行笔记：\n  1. 构建\n  2. 发布\n  3. 验证"
    assert len(lines) == 11
    assert lines[-1] == "- [2026-08-02 06:05:30] 最后一条：回滚演练完成"
    assert [entry.content for entry in helper.read().archival] == [
        "用户喜欢喝龙井茶 🍵",
        "Straße / STRASSE / Café / Cafe\u0301",
        "會議改到週五下午三點",
        "会议改到周五下午三点",
        "全角ＡＢＣ１２３与半角ABC123",
        "前后有空格",
    ]
    assert _raws(helper)[-1] == "- [2026-08-01 21:04:26] 前后有空格"
    assert str(everyone.load()).startswith(
        "## 核心记忆\n- [2026-08-01 01:02:03] 用户叫张三，偏好中文回答\n- [2026-08-02 00:04:47] 时区 Asia/Shanghai\n"
        "## 归档记忆\n- [2026-08-01 02:02:10] 迁移前的存量记忆一条\n- [2026-08-01 03:02:17] Imported note"
    )
    assert ops.load().window == ops.read().archival
    for store, keyword, hits in (
        (ops, "deployed V1.4.2", ["Deployed v1.4.2 to staging"] * 2),
        (ops, "file_name", ["file_name 与 file-name 不同"]),
        (ops, "0%", ["灰度发布在 50% 时回滚，原因：连接池耗尽"]),
        (ops, "2. 发布", ["多行笔记：\n  1. 构建\n  2. 发布\n  3. 验证"]),
        (helper, "strasse", ["Straße / STRASSE / Café / Cafe\u0301"]),
        (helper, "ａｂｃ123", ["全角ＡＢＣ１２３与半角ABC123"]),
        (everyone, "été", ["Ünïcode ÉTÉ été"]),
        (everyone, "' \"", ["引号 ' \" 与反斜杠 \\ 与分号 ;"]),
    ):
        assert [entry.content for entry in store.recall_by_keyword(keyword)] == hits, keyword
    assert sample.read_bytes() == before


def test_an_empty_row_is_kept_and_counted_and_not_shown(workspace: Workspace, sample: Path) -> None:
    store = _open(workspace, "小助手")
    shown = len(store.read().archival)
    counted = store.stats().empty
    store.append("新的")
    store.clean(Policy(keep_entries=1, force=True))
    assert len(store.read(retired=True).retired) == shown
    assert store.load().outside == 0
    assert _sql(sample, "SELECT scope, created_at FROM memory_entries WHERE content = ''") == [
        ("ARCHIVAL", 1785614659059)
    ]
    assert (counted, store.stats().archival) == (1, 1)


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_what_we_write_is_what_oryxos_reads_and_all_else_stays(mode: str, workspace: Workspace, sample: Path) -> None:
    if mode == "delete":
        _sql(sample, "PRAGMA journal_mode = DELETE")
    schema = "SELECT name, sql FROM sqlite_master WHERE name NOT LIKE '%migrations%' AND name != 'memory_entry_details'"
    theirs = [
        schema,
        *(f"SELECT * FROM {name} ORDER BY 1" for name in ("sessions", "tool_invocations", "memory_vectors")),
        "SELECT * FROM memory_entries WHERE id <= 30",
    ]
    before = [_sql(sample, sql) for sql in theirs]
    _open(workspace).append("新的 one", time=datetime(2026, 8, 1, 1, 2, 3))
    _open(workspace, "新人 b").append("core", Scope.CORE, time=datetime(2026, 8, 1, 1, 2, 4))
    _open(workspace, None).append("all")
    columns = "id, agent_name, scope, content, created_at, typeof(created_at), typeof(content)"
    assert _sql(sample, f"SELECT {columns} FROM memory_entries WHERE id > 30") == [
        (31, "ops", "ARCHIVAL", "新的 one", 1785546123000, "integer", "text"),
        (32, "新人 b", "CORE", "core", 1785546124000, "integer", "text"),
        (33, "__global__", "ARCHIVAL", "all", 1785549600000, "integer", "text"),
    ]
    assert [_sql(sample, sql) for sql in theirs] == before
    assert _sql(sample, "PRAGMA journal_mode") == [(mode,)]


def test_a_moved_row_keeps_its_content_and_time(workspace: Workspace, sample: Path) -> None:
    store = _open(workspace)
    for entry in store.read().archival:
        store.edit(changes.move(entry.id, Scope.CORE))
    sql = "SELECT content, created_at FROM memory_entries WHERE agent_name = 'ops' AND scope = ? ORDER BY content, id"
    with closing(sqlite3.connect(f"file:{SAMPLE}?mode=ro&immutable=1", uri=True)) as original:
        before = original.execute(sql, ("ARCHIVAL",)).fetchall()
    moved = _sql(sample, sql, "CORE")
    assert [row for row in before if row not in moved] == []


# Times, and the exact line


@pytest.mark.parametrize(
    ("created_at", "zone", "time"),
    [
        (MILLIS, "UTC", "2026-08-01 01:02:03"),
        (MILLIS, "Asia/Shanghai", "2026-08-01 09:02:03"),
        (MILLIS, "America/New_York", "2026-07-31 21:02:03"),
        (-1, "UTC", "1969-12-31 23:59:59"),
        ("2026-08-01 01:02:03", "Asia/Shanghai", "2026-08-01 01:02:03"),
        ("2026-08-01 01:02:03.456", "UTC", "2026-08-01 01:02:03"),
    ],
)
def test_times_as_drivers_write_them(created_at: object, zone: str, time: str, workspace: Workspace) -> None:
    store = _open(workspace, zone=zone)
    store.append("first")
    _oryxos_row(workspace.database_file(), "按行 row", created_at)
    assert _raws(store)[1:] == [f"- [{time}] 按行 row"]


@pytest.mark.parametrize("created_at", ["tomorrow", "", 10**18, -(10**18), 1e300, b"\x00"])
def test_a_time_that_is_none(created_at: object, workspace: Workspace) -> None:
    store = _open(workspace)
    store.append("first")
    _oryxos_row(workspace.database_file(), "row", created_at)
    assert _raws(store)[1:] == ["- row"]
    store.edit(changes.forget(store.read().archival[1].id))
    assert [entry.raw for entry in store.read(retired=True).retired] == ["- row"]


@pytest.mark.parametrize("content", [b"bytes \xff", 12, "a\x00b", "\r\n\u3000x\r\r\ty\n\u2028\n"])
def test_odd_rows_hide_nothing_else(content: object, workspace: Workspace) -> None:
    store = _open(workspace)
    store.append("first 第一")
    _oryxos_row(workspace.database_file(), content)
    store.append("last")
    assert len(store.read().archival) == 3
    assert len(store.load().window) == 3
    assert len(store.recall_by_keyword("第一")) == 1


ODD = (
    "手写的一行 by hand",
    "- no time",
    "- [2026-07-22 09:30] 只有分钟",
    "- [2026-07-22 09:31:00] 多行\n    deep\n\tb #tag",
    "- [2026-02-30 24:00:00] odd",
    "- [2026-10-25 02:30:00] an hour that is there twice",
    "- [2026-03-29 02:30:00] an hour that is not there",
    "- [0001-01-01 00:00:00] 最早",
    "- [9999-12-31 23:59:59] 最晚",
    "*  star",
)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "Europe/Berlin", "America/New_York", ""])
def test_every_line_survives(zone: str, workspace: Workspace) -> None:
    store = _open(workspace, zone=zone)
    store.add([Entry(raw) for raw in ODD])
    assert _raws(store) == list(ODD)
    for raw in ODD:
        store.edit(changes.forget(Entry(raw).id))
    assert sorted(entry.raw for entry in store.read(retired=True).retired) == sorted(ODD)
    store.edit(lambda now: Change(restore=tuple(now.out())))
    assert _raws(store) == list(ODD)
    for raw in ODD:
        store.edit(changes.move(Entry(raw).id, Scope.CORE))
    assert [entry.raw for entry in store.read().core] == list(ODD)


def test_the_exact_line_is_believed_only_while_it_agrees(workspace: Workspace) -> None:
    store, path = _open(workspace), workspace.database_file()
    store.add([Entry("by hand 手写"), Entry("- [2026-07-22 09:30] 分钟"), Entry("- [2026-07-22 09:31] 秒")])
    store.append("plain")
    _sql(path, "UPDATE memory_entries SET content = ? WHERE id = 1", "changed 改过")
    _sql(path, "UPDATE memory_entries SET created_at = created_at + 61000 WHERE id = 2")
    assert _raws(store) == [
        "- [2026-08-01 02:00:00] changed 改过",
        "- [2026-07-22 09:31:01] 分钟",
        "- [2026-07-22 09:31] 秒",
        "- [2026-08-01 02:00:00] plain",
    ]
    _sql(path, "UPDATE memory_entries SET content = ? WHERE id = 1", "by hand 手写")
    elsewhere = _raws(_open(workspace, zone="Asia/Shanghai"))
    assert (elsewhere[0], elsewhere[3]) == ("by hand 手写", "- [2026-08-01 10:00:00] plain")


# Older files, and what changes nothing


def test_rows_of_what_is_no_agents_name_hide_no_agent(sample: Path, workspace: Workspace) -> None:
    store = _open(workspace)
    before = store.read()
    for name in (b"ops", "", b""):
        _sql(
            sample,
            "INSERT INTO memory_entries (agent_name, scope, content, created_at) VALUES (?, 'CORE', 'x', 1)",
            name,
        )
    _sql(
        sample,
        "INSERT INTO memory_entries (agent_name, scope, content, created_at) "
        "VALUES (CAST(x'ff0a1b5b' AS TEXT), 'CORE', 'x', 1)",
    )
    workspace.settings_file.write_text('backend = "sqlite"\n[time]\nzone = "UTC"\n')
    for command in (["agents"], [], ["recall", "--all-agents", "x"], ["clean", "--all-agents"], ["stats", "-a", "ops"]):
        result = memory(*command, "--root", str(workspace.root))
        assert result.code in (0, 1)
        assert result.err.count("that is no agent's name") == (4 if command != ["stats", "-a", "ops"] else 0)
    result = memory(
        "migrate-backend",
        "--to",
        "markdown",
        "--all-agents",
        "--root",
        str(workspace.root),
        "--rename",
        "小助手=helper",
    )
    assert result.code == 0
    assert set(_raws(store)) < {entry.raw for entry in before.archival}  # clean took a duplicate


def test_a_retired_time_with_a_zone_is_taken_as_it_stands(sample: Path, workspace: Workspace) -> None:
    store = _open(workspace)
    entry = store.append("old")
    store.edit(changes.forget(entry.id))
    _sql(
        sample,
        "UPDATE memory_entry_details SET retired_at = '2026-01-01T00:00:00.5+08:00', run = 'a b', reason = 'x\ny'",
    )
    (retired,) = store.read(retired=True).retired
    assert retired.retired == Retirement(datetime(2026, 1, 1), "x y", "a-b")
    assert store.clean(Policy(purge_retired=timedelta(days=1))).change.purge


def test_a_file_from_before_agents_is_read_and_upgraded_on_the_first_write(workspace: Workspace) -> None:
    path = workspace.database_file()
    _sql(path, TABLE.format(agent=""))
    _sql(path, "INSERT INTO memory_entries (scope, content, created_at) VALUES ('ARCHIVAL', '旧的 old', ?)", MILLIS)
    before = path.read_bytes()
    everyone, ops = _open(workspace, None), _open(workspace)
    assert _raws(everyone) == ["- [2026-08-01 01:02:03] 旧的 old"]
    assert (ops.read(), everyone.recall_by_keyword("OLD")) == (Snapshot(), list(everyone.read().archival))
    assert path.read_bytes() == before
    ops.append("新")
    assert _raws(everyone) == ["- [2026-08-01 01:02:03] 旧的 old"]
    assert _raws(ops) == ["- [2026-08-01 02:00:00] 新"]
    assert _sql(path, "SELECT agent_name FROM memory_entries") == [("__global__",), ("ops",)]
    indexes = {name for (name,) in _sql(path, "SELECT name FROM sqlite_master WHERE type = 'index'")}
    assert "idx_memory_agent" in indexes


def _refused(store: LongTermMemoryStore) -> None:
    with pytest.raises(NothingFound):
        store.edit(changes.forget("^nobody"))


NOTHING: dict[str, Callable[[LongTermMemoryStore], object]] = {
    "reads": lambda store: (store.read(retired=True), store.load(), store.recall_by_keyword("x"), store.stats()),
    "dry-run": lambda store: store.edit(lambda now: Change(add=(Entry("- x"),)), dry_run=True),
    "clean": lambda store: store.clean(Policy()),
    "refused": _refused,
}


@pytest.mark.parametrize("action", NOTHING.values(), ids=list(NOTHING))
@pytest.mark.parametrize("agent", ["ops", "nobody"])
def test_what_has_nothing_to_change_changes_no_byte(
    action: Callable[[LongTermMemoryStore], object], agent: str, workspace: Workspace
) -> None:
    path = workspace.database_file()
    action(_open(workspace, agent))
    assert not path.exists()
    _sql(path, TABLE.format(agent=AGENT))
    _oryxos_row(path, "x")
    before = path.read_bytes()
    action(_open(workspace, agent))
    assert path.read_bytes() == before


# Errors


def _corrupt(path: Path) -> None:
    data = SAMPLE.read_bytes()
    path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))


def _newer(path: Path) -> None:
    shutil.copyfile(SAMPLE, path)
    _sql(path, "CREATE TABLE _sqlite_migrations (id INTEGER PRIMARY KEY, migration_set, name, applied_at)")
    _sql(path, "INSERT INTO _sqlite_migrations VALUES (1, 'oryx_memory', 'zukunft', '2030-01-01')")


def _folder(path: Path) -> None:
    path.mkdir()
    (path / "x.db").touch()


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "corrupt": (_corrupt, "corrupt"),
    "text": (lambda path: path.write_text("记忆 memory\n" * 100, encoding="utf-8"), "not a SQLite database"),
    "cut": (lambda path: path.write_bytes(SAMPLE.read_bytes()[:5000]), ""),
    "newer": (_newer, "newer oryx-memory (zukunft)"),
    "folder": (_folder, "is not a regular file"),
    "fifo": (os.mkfifo, "is not a regular file"),
    "foreign": (
        partial(_sql, sql="CREATE TABLE memory_entries (id TEXT PRIMARY KEY, agent_name, scope, content, created_at)"),
        "of another program",
    ),
    "foreign-details": (
        partial(_sql, sql="CREATE TABLE memory_entry_details (row_id INTEGER PRIMARY KEY)"),
        "of another program",
    ),
    "no-parent": (lambda path: None, "folder is not there"),
    "parent-is-a-file": (lambda path: path.parent.write_text("x"), ""),
}


@pytest.mark.parametrize(("make", "message"), BROKEN.values(), ids=list(BROKEN))
@pytest.mark.parametrize("command", [["append", "x 新"], ["forget", "abcd"]], ids=["append", "forget"])
def test_a_broken_file_is_one_line_and_stays(
    make: Callable[[Path], object], message: str, command: list[str], workspace: Workspace
) -> None:
    parent_is_odd = message == "folder is not there" or make is BROKEN["parent-is-a-file"][0]
    path = workspace.root.parent / ("data/x.db" if parent_is_odd else "oryxos.db")
    workspace.settings_file.write_text(
        f'backend = "sqlite"\n[sqlite]\npath = "{path.relative_to(workspace.root.parent)}"\n'
    )
    make(path)
    before = path.read_bytes() if path.is_file() else None
    result = memory(command[0], "--root", str(workspace.root), *command[1:])
    if command[0] == "forget" and (parent_is_odd or message == "of another program"):
        assert result.code in (1, 3)  # nothing is there to forget
    else:
        assert (result.code, result.out) == (3, "")
        assert message in result.err
    assert result.err.count("\n") == 1
    assert (path.read_bytes() if path.is_file() else None) == before
    if command[0] == "append":
        with pytest.raises(FileProblem):
            stores.open(workspace, settings.load(workspace.root, {}), "ops", lambda: NOW).append("x")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user can reach, as those of pytest are not, with a database of ours of two entries."""
    with TemporaryDirectory(prefix="oryx-test-") as name:
        folder = Path(os.path.realpath(name))
        folder.chmod(0o755)
        (folder / ".oryxos").mkdir()
        shutil.copyfile(SAMPLE, folder / "oryxos.db")
        _open(Workspace(folder / ".oryxos")).append("新的")  # brings the tables up to date
        yield folder


@pytest.mark.parametrize("mode", ["wal", "delete"])
@pytest.mark.parametrize("writable", [True, False], ids=["file", "file-and-folder"])
def test_a_read_only_file_is_read_and_not_written(mode: str, writable: bool, shared: Path) -> None:
    path = shared / "oryxos.db"
    _sql(path, f"PRAGMA journal_mode = {mode}")
    path.chmod(0o444)
    shared.chmod(0o777 if writable else 0o555)
    before = path.read_bytes()

    def oryx(*arguments: str) -> tuple[int, str, str]:
        child = as_user(NOBODY, "memory", *arguments, "--root", ".", "--backend", "sqlite")
        return real(child, env=with_path(), cwd=shared)

    try:
        code, out, err = oryx("recall", "-a", "ops", "新的")
        assert (code, out[-3:], err) == (0, "新的\n", "")
        code, out, err = oryx("append", "-a", "ops", "x")
        assert (code, out, err.count("\n")) == (3, "", 1)
        assert "read-only" in err or "cannot be opened" in err or "permission denied" in err
    finally:
        shared.chmod(0o755)
    assert path.read_bytes() == before


HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(sys.argv[2])
connection.execute("INSERT INTO memory_entries (agent_name, scope, content, created_at) VALUES ('ops', 'CORE', 'x', 1)")
print("held", flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
connection.close()
"""


def _holder(path: Path, begin: str = "BEGIN IMMEDIATE") -> "subprocess.Popen[str]":
    """Another program that is in a write transaction until it gets a line."""
    command = [sys.executable, "-c", HOLDER, str(path), begin]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def _let_go(holder: "subprocess.Popen[str]") -> None:
    holder.communicate("\n")
    assert holder.returncode == 0


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_an_append_waits_for_the_lock(mode: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    path = workspace.database_file()
    _open(workspace).append("first")
    _sql(path, f"PRAGMA journal_mode = {mode}")
    holder = _holder(path)
    with pytest.raises(LockTimeout) as caught:
        _open(workspace, lock_timeout=0.05).append("too early")
    assert caught.value.exit_code == 5
    given = ("--root", str(workspace.root), "--backend", "sqlite", "-a", "ops", "--lock-timeout", "0.05")
    result = memory("append", *given, "太早")
    assert (result.code, result.out, result.err.count("\n")) == (5, "", 1)

    starts, real_transaction = Event(), database.transaction

    def transaction(connection: sqlite3.Connection) -> Any:
        starts.set()
        return real_transaction(connection)

    monkeypatch.setattr(database, "transaction", transaction)
    waiting = Thread(target=_open(workspace, lock_timeout=60).append, args=("等待 waited",))
    waiting.start()
    starts.wait()
    _let_go(holder)
    waiting.join()
    assert _sql(path, "SELECT content FROM memory_entries ORDER BY id") == [("first",), ("x",), ("等待 waited",)]


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_the_lock_of_another_connection_of_this_process_does_not_vanish(mode: str, workspace: Workspace) -> None:
    path, store = workspace.database_file(), _open(workspace, lock_timeout=0.01)
    store.append("first")
    _sql(path, f"PRAGMA journal_mode = {mode}")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for act in (store.append, store.recall_by_keyword, lambda _: store.read(), lambda _: store.stamp()):
            try:
                act("first")
            except LockTimeout:
                assert act == store.append
        probe = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
        done = subprocess.run([sys.executable, "-c", probe, str(path)], capture_output=True, check=False)
        assert b"database is locked" in done.stderr
        other.execute("COMMIT")


def test_a_locked_file_is_not_read_past_its_lock(shared: Path) -> None:
    """A reader who may not write the folder must not take the file of a writer at work for one at rest."""
    path = shared / "oryxos.db"
    _sql(path, "PRAGMA journal_mode = DELETE")
    holder = _holder(path, "BEGIN EXCLUSIVE")
    child = as_user(NOBODY, "memory", "load", "--root", ".", "--backend", "sqlite", "--lock-timeout", "0.1")
    result = real(child, env=with_path(), cwd=shared)
    _let_go(holder)
    assert (result.code, result.out) == (5, "")


# The same as on markdown


NUMBERS = count()
KEYWORDS = st.one_of(strategies.words, st.text(min_size=1, max_size=3), strategies.sentences)


@pytest.mark.filterwarnings("ignore::oryx_memory.OryxMemoryWarning")
@hypothesis_settings(max_examples=60)
@given(
    data=strategies.any_files(),
    new=st.lists(strategies.texts.filter(one_line), max_size=6),
    keywords=st.lists(KEYWORDS.filter(lambda word: word.strip()), max_size=4),
    limit=st.sampled_from([4000, 60, 1, None]),
)
def test_the_same_memory_as_on_markdown(
    data: bytes, new: list[str], keywords: list[str], limit: int | None, workspace: Workspace
) -> None:
    agent = f"a{next(NUMBERS)}"
    workspace.create_agent(agent)
    workspace.memory_file(agent).write_bytes(data)
    markdown = stores.open(workspace, settings.load(workspace.root, {}), agent, lambda: NOW)
    for text in new:
        markdown.append(text)
    entries = list(markdown.export())
    assume(all(entry.content for entry in entries))
    sqlite = _open(workspace, agent)
    sqlite.add(entries)
    assert [(e.text, e.scope) for e in sqlite.export()] == [(e.text, e.scope) for e in entries]
    assert str(sqlite.load(max_chars=limit)) == str(markdown.load(max_chars=limit))
    assert sqlite.load(max_chars=limit).outside == markdown.load(max_chars=limit).outside
    for keyword in (*keywords, *(text[:4] for text in new if text[:4].strip())):
        found = [entry.text for entry in markdown.recall_by_keyword(keyword)]
        assert [entry.text for entry in sqlite.recall_by_keyword(keyword)] == found, keyword
    assert [e.raw for e in sqlite.read().archival[-len(new) or len(entries) :]] == [
        Entry.new(text, time=NOW).raw for text in new
    ]


# Copies, and what is destroyed


def test_two_rows_of_one_second(workspace: Workspace) -> None:
    store, path = _open(workspace), workspace.database_file()
    store.append("别的 other", time=datetime(2026, 7, 1))
    for millis in (MILLIS, MILLIS + 1, MILLIS + 1):
        _oryxos_row(path, "同一句 same", millis)
    same, other = store.read().archival[1], store.read().archival[0]

    def counts() -> tuple[int, int, int]:
        now = store.read(retired=True)
        return tuple(sum(e.text == same.text for e in part) for part in (now.core, now.archival, now.retired))  # type: ignore[return-value]

    def oryxos_sees() -> list[tuple[Any, ...]]:
        return _sql(path, "SELECT id, created_at FROM memory_entries WHERE scope = 'ARCHIVAL' ORDER BY id")[1:]

    rows = oryxos_sees()
    assert counts() == (0, 3, 0)
    store.edit(changes.forget(same.id))
    assert (counts(), oryxos_sees()) == ((0, 2, 1), rows[:2])
    store.edit(changes.restore(same.id))
    assert (counts(), oryxos_sees()) == ((0, 3, 0), rows)
    run = store.clean(Policy()).change.run
    assert (counts(), oryxos_sees()) == ((0, 1, 2), rows[:1])
    store.edit(changes.restore_run(run))
    assert (counts(), oryxos_sees()) == ((0, 3, 0), rows)
    store.edit(changes.edit(same.id, "改了 changed"))
    assert (counts(), store.read().archival[-1].content) == ((0, 2, 1), "改了 changed")
    store.edit(changes.move(same.id, Scope.CORE))
    assert counts() == (1, 1, 1)
    store.edit(changes.forget(same.id))
    assert counts() == (1, 0, 2)
    store.edit(lambda now: Change(restore=tuple(now.out())))
    assert counts() == (1, 2, 0)
    store.edit(changes.forget(same.id, purge=True))
    assert counts() == (0, 0, 0)
    assert [e.content for e in store.read(retired=True).archival] == [other.content, "改了 changed"]


SECRET = "密码 hunter2-xyzzy"
HISTORIES: dict[str, Callable[[LongTermMemoryStore, str], object]] = {
    "as-it-is": lambda store, ref: None,
    "retired": lambda store, ref: store.edit(changes.forget(ref)),
    "moved": lambda store, ref: store.edit(changes.move(ref, Scope.CORE)),
    "edited": lambda store, ref: store.edit(changes.edit(ref, "short")),
    "pages-split": lambda store, ref: [store.edit(changes.edit(e.id, "长" * 900)) for e in store.read().archival[:20]],
}


@pytest.mark.parametrize("history", HISTORIES.values(), ids=list(HISTORIES))
def test_purge_leaves_no_byte(
    history: Callable[[LongTermMemoryStore, str], object], workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def as_most_builds_do(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        connection.execute("PRAGMA secure_delete = OFF")
        return connection

    monkeypatch.setattr(sqlite3, "connect", as_most_builds_do)
    store, path = _open(workspace), workspace.database_file()
    for n in range(20):
        store.append(f"fill {n} 填充")
    entry = Entry(f"- {SECRET}")  # untimed: the line stands in the details, too
    store.add([entry])
    store.append("kept 留下")
    with closing(sqlite3.connect(path)) as idle:  # while it is open, the log is not removed
        idle.execute("SELECT count(*) FROM memory_entries").fetchone()
        history(store, entry.id)
        purge = changes.forget(entry.id, purge=True)
        if not any(SECRET in e.text for e in store.read().core + store.read().archival):
            purge = lambda now: Change(purge=tuple(copy for copy in now.out() if SECRET in copy.entry.text))  # noqa: E731
        assert store.edit(purge).purge
        files = [file for file in path.parent.glob("oryxos.db*") if b"hunter2" in file.read_bytes()]
        assert files == []
    assert "kept 留下" in [e.content for e in store.read().archival]


# OryxOS's own settings


def _application(workspace: Workspace, text: str) -> Path:
    path = workspace.root.parent / "config" / "application.yml"
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    return path


NESTED = "memory: {{backend: sqlite, recall: {{weight: 0.3}}}}\nspring:\n  datasource:\n    url: {}\n"


@pytest.mark.parametrize(
    ("yaml", "path"),
    [
        (NESTED.format("jdbc:sqlite:data/x.db"), "data/x.db"),
        (NESTED.format("'jdbc:sqlite:./数据.db?busy_timeout=3'"), "./数据.db"),
        (NESTED.format("jdbc:sqlite:${ORYXOS_DB:data/default.db}"), "data/default.db"),
        (NESTED.format("jdbc:sqlite:${GIVEN_DB:data/default.db}"), "given.db"),
        (NESTED.format("${URL:jdbc:sqlite:data/y.db}"), "data/y.db"),
        (NESTED.format("jdbc:postgresql://host/db"), ""),
        ("memory.backend: ${B:sqlite}\nspring.datasource.url: jdbc:sqlite:z.db\n", "z.db"),
        ("server: {port: 1}\n---\nmemory.backend: sqlite\n", ""),
    ],
)
def test_application_yml_names_backend_and_database(yaml: str, path: str, workspace: Workspace) -> None:
    file = _application(workspace, yaml)
    chosen = settings.load(workspace.root, {"GIVEN_DB": "given.db"})
    assert (chosen["backend"], chosen["sqlite.path"]) == ("sqlite", path)
    assert (chosen.sources["backend"], chosen.sources["sqlite.path"] == str(file)) == (str(file), bool(path))
    (workspace.root.parent / "data").mkdir()
    stores.open(workspace, chosen, "ops").append("x")
    assert (workspace.root.parent / (path or "oryxos.db")).is_file()


@pytest.mark.parametrize("path", ["../x.db", "/tmp/x.db", "data/../../x.db", "${HOME:/root}/x.db"])
def test_a_database_outside_is_ignored_with_a_warning(path: str, workspace: Workspace) -> None:
    _application(workspace, NESTED.format(f"jdbc:sqlite:{path}"))
    with pytest.warns(OryxMemoryWarning, match=r"application\.yml: spring\.datasource\.url .* leads out") as caught:
        assert settings.load(workspace.root, {})["sqlite.path"] == ""
    assert len(caught) == 1


def test_memory_toml_goes_over_application_yml(workspace: Workspace) -> None:
    file = _application(workspace, NESTED.format("jdbc:sqlite:x.db"))
    workspace.settings_file.write_text('[sqlite]\npath = "y.db"\n')
    chosen = settings.load(workspace.root, {})
    assert (chosen["backend"], chosen["sqlite.path"]) == ("sqlite", "y.db")
    workspace.settings_file.write_text('backend = "markdown"\n')
    assert settings.load(workspace.root, {})["backend"] == "markdown"
    file.write_text("broken: [")  # not even looked at where nothing of it counts
    assert settings.load(workspace.root, {})["backend"] == "markdown"


@pytest.mark.parametrize(
    "content", [b"memory: [", b"memory:\n\tbackend: x\n", b"\xff\xfe\xff", b"a: \x01", b"memory.backend: 3"]
)
def test_a_broken_application_yml_is_named(content: bytes, workspace: Workspace) -> None:
    file = _application(workspace, "")
    file.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        settings.load(workspace.root, {})
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)
