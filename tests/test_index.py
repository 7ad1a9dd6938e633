"""The derived index: whatever became of it or of the memory, the answers are those of a new one."""

import json
import os
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from command import NOBODY, ORYX, Result, after, as_user, make_ops, memory, real, retired_file, with_path
from conftest import BACKENDS, NOW, Opener
from hypothesis import given
from hypothesis import strategies as st
from strategies import any_files, entry_lines, newlines, other_lines, sentences

from oryx_memory import Entry, FileProblem, LongTermMemoryStore, Scope, Workspace, changes, settings, stores
from oryx_memory import index as module
from oryx_memory.database import problems
from oryx_memory.index import FORMAT, Index
from oryx_memory.recall import Ranking, ranked
from oryx_memory.workspace import initialise, named

FACTS = ("部署用蓝绿，切换前先跑 gen-itgc 报表", "Rotate the API keys every 90 days; see DEC-0054", "张三对花生过敏")
RANKED = ("recall", "-a", "ops", "--mode", "ranked")

words = sentences.filter(str.strip)
numbers = st.integers(0, 2**16)


def _filled(store: LongTermMemoryStore) -> LongTermMemoryStore:
    for number, text in enumerate(FACTS):
        store.append(text, time=NOW + timedelta(days=number))
    return store


def _answers(store: LongTermMemoryStore, index: Index, query: str) -> Ranking:
    return ranked(store, index, query, now=NOW, limit=None, retired=True)


def _store(folder: Path, backend: str = "markdown") -> LongTermMemoryStore:
    list(initialise(folder))
    place = named(folder)
    place.create_agent("ops")
    return stores.open(place, settings.load(place.root, {}, {"backend": backend}), "ops", lambda: NOW)


def _check(store: LongTermMemoryStore, kept: Index, query: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid bytes and conflict markers are named where they are read
        with Index.in_memory() as new:
            assert _answers(store, kept, query) == _answers(store, new, query)
        assert kept.verify(store) == []


# What happens to a memory.


def _change(store: LongTermMemoryStore, what: str, number: int, text: str) -> None:
    """One change by a command of ours, to the entry of that number, if there is one."""
    now = store.read(retired=True)
    live, out = now.core + now.archival, now.retired
    entry = live[number % len(live)] if live else None
    if what == "add" or (entry is None and what != "restore"):
        store.append(text, time=NOW + timedelta(minutes=number % 5000))
    elif what == "restore" and out:
        store.edit(changes.restore(out[number % len(out)].id))
    elif entry is not None and what != "restore":
        to = Scope.ARCHIVAL if entry.scope is Scope.CORE else Scope.CORE
        plans = {
            "forget": lambda: changes.forget(entry.id),
            "purge": lambda: changes.forget(entry.id, purge=True),
            "edit": lambda: changes.edit(entry.id, f"{text} {number}"),
            "move": lambda: changes.move(entry.id, to),
        }
        store.edit(plans[what]())


commands = st.tuples(
    st.sampled_from(["add", "add", "add", "forget", "restore", "edit", "move", "purge"]), numbers, words, st.booleans()
)


@given(steps=st.lists(commands, min_size=1, max_size=10), backend=st.sampled_from(BACKENDS))
def test_after_any_commands_a_kept_index_answers_as_a_new_one(
    steps: list[tuple[str, int, str, bool]], backend: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = _filled(_store(tmp_path_factory.mktemp("kept"), backend))
    with Index.open(tmp_path_factory.mktemp("index") / "memory-index.db") as kept:
        kept.update(store)
        for what, number, text, asked in steps:
            _change(store, what, number, text)
            if asked:
                _check(store, kept, text)
        _check(store, kept, steps[-1][2])


lines = st.builds(bytes.__add__, st.one_of(entry_lines, entry_lines, other_lines), newlines)


def _inserted(data: bytes, number: int, line: bytes) -> bytes:
    parts = data.splitlines(keepends=True)
    return b"".join([*parts[: number % (len(parts) + 1)], line, *parts[number % (len(parts) + 1) :]])


def _overwritten(data: bytes, number: int, line: bytes) -> bytes:
    """As many bytes, one of them another."""
    at = number % max(1, len(data))
    return data[:at] + line[:1] + data[at + 1 :] if data else data


BY_HAND: dict[str, Callable[[bytes, int, bytes], bytes]] = {
    "line at the end": lambda data, _, line: data + line,
    "line at the end, without a line end": lambda data, _, line: data + line.rstrip(b"\r\n"),
    "continuation of the last entry": lambda data, _, line: data + b"  " + line,
    "line end alone": lambda data, number, _: data + (b"\n", b"\r", b"\r\n")[number % 3],
    "line in the middle": _inserted,
    "same size": _overwritten,
    "cut": lambda data, number, _: data[: number % (len(data) + 1)],
    "other section behind": lambda data, _, line: data + "\n## 核心记忆\n".encode() + line,
    "half a heading": lambda data, _, line: data + "## 归档记".encode(),
    "the rest of a heading": lambda data, _, line: data + "忆\n".encode(),
    "both ends": lambda data, _, line: line + data + line,
    "other file": lambda data, _, line: "## 归档记忆\n".encode() + line,
}
by_hand = st.tuples(st.sampled_from(sorted(BY_HAND)), numbers, lines, st.booleans())


@given(start=any_files(), steps=st.lists(st.one_of(by_hand, by_hand, commands), min_size=1, max_size=10))
def test_after_any_hand_edits_a_kept_index_answers_as_a_new_one(
    start: bytes,
    steps: list[tuple[str, int, bytes, bool] | tuple[str, int, str, bool]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    store = _store(tmp_path_factory.mktemp("edited"))
    path = Path(store.path)  # type: ignore[attr-defined]
    path.write_bytes(start)
    with Index.open(tmp_path_factory.mktemp("index") / "memory-index.db") as kept:
        _check(store, kept, "deploy")
        for what, number, text, asked in steps:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if isinstance(text, bytes):
                    data = BY_HAND[what](path.read_bytes(), number, text)
                    with path.open("r+b") as file:  # in place, as editors do that keep the inode
                        file.write(data)
                        file.truncate()
                else:
                    _change(store, what, number, text)
            if asked:
                _check(store, kept, "复核 deploy")
        _check(store, kept, "minute 上线")


def _counting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines whose tokens are made from now on."""
    made: list[str] = []
    tokens = module._tokens
    monkeypatch.setattr(module, "_tokens", lambda raw: made.append(raw) or tokens(raw))  # type: ignore[func-returns-value]
    return made


def test_after_an_append_only_that_entry_is_indexed(
    open_store: Opener, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _filled(open_store())
    with Index.open(workspace.index_file) as index:
        index.update(store)
        made = _counting(monkeypatch)
        monkeypatch.setattr(type(store), "read", None)  # nor is the whole memory read
        added = store.append("李四对虾过敏", time=NOW)
        index.update(store)
        assert made == [added.raw]


def test_a_line_changed_in_the_middle_is_found_though_one_was_appended_too(ops: Path) -> None:
    assert memory(*RANKED, "复核").code == 0
    data = ops.read_bytes().replace("两人".encode(), "三人".encode())
    ops.write_bytes(data + "- [2026-07-23 10:00:00] 另一条复核\n".encode())
    assert memory(*RANKED, "三人").out.startswith("- [2026-07-22 09:30:00] 上线前必须三人复核")
    assert memory(*RANKED, "另一条").out.startswith("- [2026-07-23 10:00:00] 另一条复核")
    assert memory(*RANKED, "两人").out.count("两人") == 0


def test_a_write_that_changes_neither_size_nor_time_is_seen_while_the_file_is_new(ops: Path) -> None:
    status = ops.stat()
    assert memory(*RANKED, "复核").out.count("复核") == 1
    ops.write_bytes(ops.read_bytes().replace("两人复核".encode(), "两人批准".encode()))
    os.utime(ops, ns=(status.st_atime_ns, status.st_mtime_ns))  # as within one step of the file system's clock
    assert memory(*RANKED, "两人").out.count("两人批准") == 1


def test_an_old_file_is_trusted_by_its_stamp(ops: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stores.open(workspace, settings.load(workspace.root, {}), "ops")
    os.utime(ops, (1_700_000_000, 1_700_000_000))
    with Index.open(workspace.index_file) as index:
        number = index.update(store)
        monkeypatch.setattr(type(store), "archival_since", None)
        assert index.update(store) == number


def test_another_zone_is_another_memory_of_the_same_rows(workspace: Workspace) -> None:
    found = []
    for zone in ("Asia/Shanghai", "Europe/London"):
        chosen = settings.load(workspace.root, {}, {"backend": "sqlite", "time.zone": zone})
        store = stores.open(workspace, chosen, "ops", lambda: NOW)
        if not found:
            store.append("张三对花生过敏", time=NOW)
        with Index.open(workspace.index_file) as index:
            found += [hit.entry.time for hit in ranked(store, index, "花生", now=NOW).hits]
    assert found == [NOW, NOW - timedelta(hours=7)]


# What the command of the index needs.


def test_what_differs_from_the_memory_is_told_and_a_rebuild_mends_it(open_store: Opener, workspace: Workspace) -> None:
    store = _filled(open_store())
    line = store.read().archival[0].raw
    with Index.open(workspace.index_file) as index:
        number = index.update(store)
        store.edit(changes.forget(store.append("旧的", time=NOW).id))
        index.update(store, retired=True)
        connection = index.connection
        damages = {
            "UPDATE entry SET raw = '- changed' WHERE place = 0": [
                f"not in the index: {line}",
                "not in the memory: - changed",
                "other words are indexed than stand in: - changed",
            ],
            "UPDATE entry SET place = 1 - place WHERE place < 2": [
                "the entries stand in another order than in the memory"
            ],
            f"INSERT INTO terms_{number} (rowid, body) VALUES (99, 'stray')": [
                "words are indexed of an entry that is not there: 99"
            ],
            "UPDATE word SET entries = 7 WHERE term = '花生'": ["the number of entries with a word is wrong: 花生"],
        }
        for damage, expected in damages.items():
            assert index.verify(store) == []
            connection.execute(damage)
            found = index.verify(store)
            assert [text for text in found if "number of entries" not in text or text in expected] == expected
            index.rebuild(store)
            with Index.in_memory() as new:
                assert _answers(store, index, "花生 旧") == _answers(store, new, "花生 旧")
        assert index.verify(store) == []


def test_about_counts_what_is_and_what_would_be(open_store: Opener, workspace: Workspace) -> None:
    store = _filled(open_store())
    store.append("触发「谁？」⇒ 张三", time=NOW)
    with Index.open(workspace.index_file) as index:
        assert index.about(store)[:2] == (0, 3)
        index.update(store)
        store.append("李四对虾过敏", time=NOW)
        indexed, archival, size = index.about(store)
        assert (indexed, archival) == (3, 4)
        assert size > 4096


def test_prune_removes_the_memories_that_are_not_kept(open_store: Opener, workspace: Workspace) -> None:
    kept, gone = _filled(open_store("ops")), _filled(open_store("old"))
    with Index.open(workspace.index_file) as index:
        for store in (kept, gone):
            index.update(store)
            index.update(store, retired=True)
        assert index.prune([kept]) == 1
        assert index.about(gone).indexed == 0
        assert index.verify(kept) == []
        assert index.prune([kept]) == 0
        assert next(hit.entry.content for hit in ranked(gone, index, "花生", now=NOW).hits) == FACTS[2]


def test_a_purged_text_leaves_the_index_of_live_and_retired_entries(ops: Path) -> None:
    root = ops.parent.parent.parent
    for number in range(2):
        assert memory("append", "-a", "ops", "-q", f"geheimzahl 4711 机密 {number}").code == 0
    secrets = json.loads(memory("list", "-a", "ops", "--json").out)[-2:]
    assert memory("forget", "-a", "ops", "-q", secrets[0]["id"]).code == 0
    assert memory(*RANKED, "--retired", "geheimzahl").out.count("geheimzahl") == 2
    for secret in secrets:
        assert memory("forget", "-a", "ops", "--purge", secret["id"]).code == 0
    for path in root.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        assert b"geheimzah" not in data, path
        assert "机密".encode() not in data, path
        assert "密机".encode() not in data, path  # backwards, as words are kept too
        assert b"lhazmiehe" not in data, path
    assert memory(*RANKED, "--retired", "geheimzahl").code == 1


# The file.


def test_a_deleted_index_is_made_again_with_the_same_answers(open_store: Opener, workspace: Workspace) -> None:
    store = _filled(open_store())
    with Index.open(workspace.index_file) as index:
        first = _answers(store, index, "花生 keys")
    workspace.index_file.unlink()
    with Index.open(workspace.index_file) as index:
        assert _answers(store, index, "花生 keys") == first


def _index(ops: Path) -> Path:
    return ops.parent.parent.parent / "memory-index.db"


@pytest.mark.parametrize("damage", [b"no database at all", b"SQLite format 3\x00" + bytes(500)])
def test_a_broken_index_is_rebuilt_with_one_notice(damage: bytes, ops: Path) -> None:
    _index(ops).write_bytes(damage)
    result = memory(*RANKED, "复核")
    assert (result.code, result.out.split("] ")[1].startswith("上线前"), result.err.count("\n")) == (0, True, 1)
    assert "made anew" in result.err
    assert memory(*RANKED, "复核").err == ""


def test_an_index_that_is_broken_inside_is_rebuilt_with_one_notice(ops: Path) -> None:
    with ops.open("a", encoding="utf-8") as file:
        file.writelines(f"- [2026-07-23 09:00:00] 记录 number {n} {'填充' * 20}\n" for n in range(500))
    assert memory(*RANKED, "number 123", "-n", "1").code == 0
    with _index(ops).open("r+b") as file:  # all pages but the first ones, which tell what tables there are
        size = file.seek(0, os.SEEK_END)
        file.seek(20 * 4096)
        file.write(b"\xff" * (size - 20 * 4096))
    result = memory(*RANKED, "number 123", "-n", "1")
    assert (result.code, result.out.split("] ")[1][:13], result.err.count("\n")) == (0, "记录 number 123", 1)
    assert "made anew" in result.err
    assert memory(*RANKED, "number 123", "-n", "1").err == ""


@pytest.mark.parametrize("change", ["UPDATE meta SET value = 'older'", "DROP TABLE word", "DROP TABLE meta"])
def test_an_index_of_another_format_is_rebuilt(change: str, ops: Path) -> None:
    assert memory(*RANKED, "复核").code == 0
    with sqlite3.connect(_index(ops)) as database:
        database.execute(change)
        database.execute("DELETE FROM entry")
    database.close()
    result = memory(*RANKED, "复核")
    assert (result.code, result.err) == (0, "")
    with sqlite3.connect(_index(ops)) as database:
        assert database.execute("SELECT value FROM meta").fetchall() == [(FORMAT,)]
    database.close()


OBSTACLES = ["folder", "fifo", "link", "dangling link", "link of the log", "link of the journal"]


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_what_is_no_file_of_ours_is_left_alone_and_recall_answers(obstacle: str, ops: Path, tmp_path: Path) -> None:
    index, outside = _index(ops), tmp_path / "outside"
    if obstacle == "folder":
        index.mkdir()
    elif obstacle == "fifo":
        os.mkfifo(index)
    elif obstacle == "dangling link":
        index.symlink_to(outside)
    else:
        outside.write_bytes(b"")
        if obstacle != "link":
            assert memory(*RANKED, "复核").code == 0
        end = {"link": "", "link of the log": "-wal", "link of the journal": "-journal"}[obstacle]
        index.with_name(f"{index.name}{end}").symlink_to(outside)
    result = memory(*RANKED, "复核")
    assert (result.code, result.out.count("两人复核"), result.err.count("\n")) == (0, 1, 1)
    assert "without the stored index" in result.err
    assert outside.exists() is obstacle.startswith("link")
    assert obstacle in ("folder", "fifo", "dangling link") or outside.read_bytes() == b""


def test_where_the_index_cannot_be_made_recall_answers_and_says_so(shared: Path) -> None:
    make_ops(shared)
    child = as_user(NOBODY, "memory", *RANKED, "复核", "--root", ".")
    result = real(child, env=with_path(), cwd=shared)
    assert (result.code, result.out.count("两人复核")) == (0, 1)
    assert "without the stored index" in result.err
    assert not (shared / ".oryxos" / "memory-index.db").exists()


def test_where_the_index_cannot_be_written_recall_knows_the_newest_line_and_says_so(shared: Path) -> None:
    ops = make_ops(shared)
    assert memory(*RANKED, "复核", "--root", str(shared)).code == 0
    with ops.open("a", encoding="utf-8") as file:
        file.write("- [2026-07-23 10:00:00] 另一条复核\n")
    child = as_user(NOBODY, "memory", *RANKED, "复核", "--root", ".")
    result = real(child, env=with_path(), cwd=shared)
    assert (result.code, result.out.count("复核"), result.err.count("\n")) == (0, 2, 1)
    assert "without the stored index" in result.err


def test_a_full_disk_stops_the_index_and_not_the_answer(ops: Path) -> None:
    with ops.open("a", encoding="utf-8") as file:
        file.writelines(f"- [2026-07-23 09:00:00] 记录 number {n} {'填充' * 20}\n" for n in range(500))
    full = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))"
    result = real(after(full, "memory", *RANKED, "number 123", "-n", "1"), env=with_path(), cwd=ops.parent)
    assert (result.code, result.out.split("] ")[1][:13], result.err.count("\n")) == (0, "记录 number 123", 1)
    assert "without the stored index" in result.err
    assert memory(*RANKED, "number 123", "-n", "1") == Result(0, result.out, "")


def test_a_full_disk_is_named_where_sqlite_says_more_than_i_o_error(tmp_path: Path) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    with pytest.raises(FileProblem, match="no space left"), problems(tmp_path / "index.db", 1):
        raise error


def test_several_processes_build_it_at_once_while_others_append(ops: Path) -> None:
    with ops.open("a", encoding="utf-8") as file:
        file.writelines(f"- [2026-07-23 09:{n // 60:02}:{n % 60:02}] 记录 number {n}\n" for n in range(2000))
    command = [ORYX, "memory", *RANKED, "number 1234", "-n", "1"]
    writer = [ORYX, "memory", "append", "-a", "ops", "-q", "--lock-timeout", "1", "another line"]
    run = subprocess.PIPE
    children = [subprocess.Popen(words, stdout=run, stderr=run) for words in [command, writer] * 4]
    ended = [(*child.communicate(), child.returncode) for child in children]
    assert ended[::2] == [("- [2026-07-23 09:20:34] 记录 number 1234\n".encode(), b"", 0)] * 4
    assert ended[1::2] == [(b"", b"", 0)] * 4


REBUILD = """
import sys, pathlib
from oryx_memory import open_memory
from oryx_memory.index import Index
store = open_memory("ops", root=".")
for _ in range(3):
    with Index.open(pathlib.Path(".oryxos/memory-index.db"), 120) as index:
        index.rebuild(store)
        index.prune([])
        index.update(store)
"""


def test_processes_that_rebuild_and_prune_do_not_disturb_those_that_search(ops: Path, tmp_path: Path) -> None:
    with ops.open("a", encoding="utf-8") as file:
        file.writelines(f"- [2026-07-23 09:{n // 60:02}:{n % 60:02}] 记录 number {n}\n" for n in range(300))
    command = [ORYX, "memory", *RANKED, "number 123", "-n", "1", "--lock-timeout", "120"]
    run = subprocess.PIPE
    words = [command, [sys.executable, "-c", REBUILD]] * 2 + [command] * 2
    children = [subprocess.Popen(one, stdout=run, stderr=run, cwd=tmp_path) for one in words]
    ended = [(*child.communicate(), child.returncode) for child in children]
    answer = ("- [2026-07-23 09:02:03] 记录 number 123\n".encode(), b"", 0)
    assert ended == [answer, (b"", b"", 0), answer, (b"", b"", 0), answer, answer]


def test_processes_that_find_a_broken_index_at_once_leave_a_whole_one(ops: Path, tmp_path: Path) -> None:
    _index(ops).write_bytes(b"no database at all")
    command = [ORYX, "memory", *RANKED, "复核", "-n", "1", "--lock-timeout", "60"]
    run = subprocess.PIPE
    children = [subprocess.Popen(command, stdout=run, stderr=run) for _ in range(4)]
    ended = [(child.communicate()[0], child.returncode) for child in children]
    assert ended == [(ended[0][0], 0)] * 4
    assert memory(*RANKED, "复核", "-n", "1") == Result(0, ended[0][0].decode(), "")


def test_a_lock_that_is_held_too_long_does_not_stop_the_answer(ops: Path) -> None:
    assert memory(*RANKED, "复核").code == 0
    with sqlite3.connect(_index(ops), isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        assert memory("append", "-a", "ops", "-q", "--lock-timeout", "0", "复核两次").code == 0
        result = memory(*RANKED, "复核", "--lock-timeout", "0")
        other.execute("ROLLBACK")
    other.close()
    assert (result.code, result.out.count("复核两次"), result.err.count("\n")) == (0, 1, 1)


def test_an_agent_that_is_deleted_leaves_no_answers(ops: Path, workspace: Workspace) -> None:
    store = stores.open(workspace, settings.load(workspace.root, {}), "ops")
    with Index.open(workspace.index_file) as index:
        assert ranked(store, index, "复核", now=NOW).hits
        ops.unlink()
        ops.parent.rmdir()
        assert ranked(store, index, "复核", now=NOW).hits == []
        assert index.verify(store) == []
    assert memory(*RANKED, "复核").code == 3


@pytest.mark.parametrize("seconds", [-4_000_000_000, 4_000_000_000])
def test_a_clock_that_is_wrong_changes_no_answer(seconds: int, ops: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory(*RANKED, "复核").code == 0
    now = 1_785_000_000 + seconds
    monkeypatch.setattr("time.time_ns", lambda: now * 10**9)
    assert memory("append", "-a", "ops", "-q", "复核两次").code == 0
    os.utime(ops, (1_000, 1_000))
    assert memory(*RANKED, "复核两次", "--now", "1970-01-01").out.count("复核两次") == 1


def test_a_problem_of_the_memory_itself_is_no_problem_of_the_index(ops: Path) -> None:
    assert memory(*RANKED, "复核").code == 0
    ops.unlink()
    os.mkfifo(ops)
    result = memory(*RANKED, "复核")
    assert (result.code, result.err.count("\n")) == (3, 1)
    assert "MEMORY.md" in result.err


def test_the_retired_file_alone_changed_is_noticed(ops: Path, workspace: Workspace) -> None:
    store = stores.open(workspace, settings.load(workspace.root, {}), "ops", lambda: NOW)
    with Index.open(workspace.index_file) as index:
        assert _answers(store, index, "uv").hits
        record = "- [2026-01-01 00:00:00] uv is slow <!-- oryx: retired 2026-02-01T00:00:00 from core: manual; run r-1; live 0 -->"
        retired_file(ops).write_text(record + "\n", encoding="utf-8")
        found = [hit.entry for hit in _answers(store, index, "uv slow").hits if hit.entry.retired]
        assert [(entry.content, entry.scope) for entry in found] == [("uv is slow", Scope.CORE)]
        assert found[0].retired is not None
        assert (found[0].retired.reason, found[0].retired.run) == ("manual", "r-1")


def test_in_a_large_memory_the_commonest_words_of_a_query_are_left_out(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POSTINGS", 10)
    store = stores.open(workspace, settings.load(workspace.root, {}), "ops", lambda: NOW)
    store.add([Entry.new(f"common {'rare' * (n == 3)} {'often' * (n % 3 == 0)}", time=NOW) for n in range(40)])
    with Index.in_memory() as index:
        memory_number = index.update(store)
        assert list(index.search(memory_number, ["rare", "common"], 50)) == [3]
        assert list(index.search(memory_number, ["rare", "often", "common"], 50)) == [3]
        assert len(index.search(memory_number, ["common"], 50)) == 10
        assert min(index.search(memory_number, ["common"], 50)) == 30
    with pytest.raises(FileProblem):
        Index.open(workspace.root / "no" / "folder.db")
