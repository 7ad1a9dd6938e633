"""Several real processes on one memory: nothing acknowledged is lost, nothing is doubled, whoever is killed."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from conftest import BACKENDS

from oryx_memory import LongTermMemoryStore, Workspace, changes, open_memory

WRITER = Path(__file__).with_name("writer.py")
HAND = "# 手写 by hand\n\n## 核心记忆\n不要动这一段\n\n## 归档记忆\n手写的一行 without a time\n"


@pytest.fixture(params=BACKENDS)
def memory(
    request: pytest.FixtureRequest, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> LongTermMemoryStore:
    monkeypatch.setenv("ORYX_MEMORY_BACKEND", request.param)  # for the processes, too
    if request.param == "markdown":
        workspace.create_agent("ops")
        workspace.memory_file("ops").write_text(HAND, encoding="utf-8")
    return open_memory("ops", root=workspace.root)


def _is_whole(workspace: Workspace) -> None:
    """Nothing of a killed writer is left, and what is not ours is as it was."""
    path = workspace.memory_file("ops")
    if os.environ["ORYX_MEMORY_BACKEND"] == "markdown":
        text = path.read_bytes().decode()
        assert text.startswith("# 手写 by hand\n\n## 核心记忆\n不要动这一段\n")
        assert "手写的一行 without a time\n" in text
        assert {p.name for p in path.parent.iterdir()} <= {"MEMORY.md", "MEMORY.retired.md"}
        return
    assert not path.exists()
    with closing(sqlite3.connect(workspace.database_file())) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA journal_mode").fetchall() == [("wal",)]
        stray = "SELECT count(*) FROM memory_entry_details WHERE row_id NOT IN (SELECT id FROM memory_entries)"
        assert connection.execute(stray).fetchone() == (0,)


def _start(workspace: Workspace, *arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, str(WRITER), str(workspace.root), *map(str, arguments)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=dict(os.environ)
    )


def _held(store: LongTermMemoryStore) -> Counter[str]:
    now = store.read(retired=True)
    entries = [entry for entry in now.core + now.archival + now.retired if entry.time]
    return Counter(entry.text.partition("] ")[2].partition(" ")[0] for entry in entries)


def _acknowledged(process: "subprocess.Popen[str]") -> Counter[str]:
    assert process.stdout is not None
    out = process.stdout.read()  # not communicate(), which passes over what readline() has buffered
    process.communicate()
    return Counter(out.split())


@pytest.mark.parametrize(("count", "size"), [(50, 100), (12, 30 * 1024)], ids=["100-bytes", "30-kib"])
def test_writers_beside_a_cleaner(count: int, size: int, workspace: Workspace, memory: LongTermMemoryStore) -> None:
    cleaner = _start(workspace, "clean")
    writers = [_start(workspace, "append", f"w{n}", count, size) for n in range(4)]
    acknowledged = sum((_acknowledged(writer) for writer in writers), Counter[str]())
    runs, _ = cleaner.communicate()
    assert [writer.returncode for writer in (*writers, cleaner)] == [0] * 5
    assert len(acknowledged) == acknowledged.total() == 4 * count
    assert _held(memory) == acknowledged
    assert int(runs) > 0
    _is_whole(workspace)


@pytest.mark.parametrize("size", [100, 30 * 1024], ids=["100-bytes", "30-kib"])
def test_killed_writers(size: int, workspace: Workspace, memory: LongTermMemoryStore) -> None:
    acknowledged: Counter[str] = Counter()
    for round_ in range(5):
        writers = [_start(workspace, "append", f"r{round_}w{n}", 10_000, size) for n in range(3)]
        for number, writer in enumerate(writers):
            assert writer.stdout is not None
            for _ in range(3 + 2 * number + round_):
                acknowledged[writer.stdout.readline().strip()] += 1
            writer.send_signal(signal.SIGKILL)
            acknowledged += _acknowledged(writer)
        last = memory.append(f"after-{round_} 之后").text.partition("] ")[2].partition(" ")[0]
        acknowledged[last] += 1
        _is_whole(workspace)
        held = _held(memory)
        assert max(held.values()) == 1
        assert set(acknowledged) <= set(held)
        unacknowledged = set(held) - set(acknowledged)
        assert len(unacknowledged) <= 3 * (round_ + 1)  # one that a killed writer had stored but not yet told
        assert all(len(entry.text) >= size for entry in memory.read().archival if entry.text.split()[2][:1] == "r")


def test_killed_cleaners(workspace: Workspace, memory: LongTermMemoryStore) -> None:
    acknowledged: Counter[str] = Counter()
    for round_ in range(5):
        cleaner = _start(workspace, "clean")
        writer = _start(workspace, "append", f"r{round_}", 40, 200)
        assert writer.stdout is not None
        for _ in range(10 + 4 * round_):
            acknowledged[writer.stdout.readline().strip()] += 1
        cleaner.send_signal(signal.SIGKILL)
        cleaner.communicate()
        acknowledged += _acknowledged(writer)
        assert _held(memory) == acknowledged
    for run in {entry.retired.run for entry in memory.read(retired=True).retired if entry.retired}:
        memory.edit(changes.restore_run(run))
    assert memory.read(retired=True).retired == ()
    assert _held(memory) == acknowledged
    _is_whole(workspace)


@pytest.mark.parametrize("backend", BACKENDS)
def test_first_writers_make_one_file(backend: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORYX_MEMORY_BACKEND", backend)
    for round_ in range(5):
        root = workspace.root.parent / f"w{round_}"
        (root / ".oryxos").mkdir(parents=True)
        place = Workspace(root / ".oryxos")
        writers = [_start(place, "append", f"w{n}", 3, 50) for n in range(4)]
        acknowledged = sum((_acknowledged(writer) for writer in writers), Counter[str]())
        assert acknowledged.total() == 12
        assert _held(open_memory("ops", root=place.root)) == acknowledged
