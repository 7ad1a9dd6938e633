"""Several real processes on one database: nothing acknowledged is lost, nothing is doubled, whoever is killed."""

import signal
import sqlite3
from collections import Counter
from contextlib import closing

import pytest
from test_processes import _acknowledged, _held, _start

from oryx_memory import LongTermMemoryStore, Workspace, changes, open_memory


@pytest.fixture
def memory(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> LongTermMemoryStore:
    monkeypatch.setenv("ORYX_MEMORY_BACKEND", "sqlite")  # for the processes, too
    return open_memory("ops", root=workspace.root)


def _is_whole(workspace: Workspace) -> None:
    with closing(sqlite3.connect(workspace.database_file())) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA journal_mode").fetchall() == [("wal",)]
        stray = "SELECT count(*) FROM memory_entry_details WHERE row_id NOT IN (SELECT id FROM memory_entries)"
        assert connection.execute(stray).fetchone() == (0,)
    assert not workspace.memory_file("ops").exists()


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
    for round_ in range(4):
        writers = [_start(workspace, "append", f"r{round_}w{n}", 10_000, size) for n in range(3)]
        for number, writer in enumerate(writers):
            assert writer.stdout is not None
            for _ in range(3 + 2 * number + round_):
                acknowledged[writer.stdout.readline().strip()] += 1
            writer.send_signal(signal.SIGKILL)
            acknowledged += _acknowledged(writer)
        last = memory.append(f"after-{round_} 之后").text.partition("] ")[2].partition(" ")[0]
        acknowledged[last] += 1
        held = _held(memory)
        assert max(held.values()) == 1
        assert set(acknowledged) <= set(held)
        assert len(held) - len(acknowledged) <= 3 * (round_ + 1)  # stored but not yet told
        assert all(len(entry.text) >= size for entry in memory.read().archival if "after-" not in entry.text)
    _is_whole(workspace)


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


@pytest.mark.usefixtures("memory")
def test_two_first_writers_make_one_file(workspace: Workspace) -> None:
    for round_ in range(5):
        place = Workspace(workspace.root.parent / f"w{round_}" / ".oryxos")
        place.root.mkdir(parents=True)
        writers = [_start(place, "append", f"w{n}", 3, 50) for n in range(4)]
        acknowledged = sum((_acknowledged(writer) for writer in writers), Counter[str]())
        assert [writer.returncode for writer in writers] == [0] * 4
        assert acknowledged.total() == 12
        assert _held(open_memory("ops", root=place.root)) == acknowledged
        _is_whole(place)
