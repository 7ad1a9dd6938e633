"""The write path, stopped before every step and with other programs acting at every step."""

import contextlib
import errno
import os
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from conftest import NOW, Opener
from machine import Machine

from oryx_memory import Entry, FileProblem, LockTimeout, LongTermMemoryStore, Policy, Scope, Workspace, changes, files
from oryx_memory.stores.markdown import MarkdownStore, _append

HAND = "---\nowner: 张三\n---\n# 笔记\n"
BEFORE = (
    HAND + "## 核心记忆\n- [2026-07-01 08:00:00] Never deploy on Friday\n手写的一段\n\n"
    "## 归档记忆\n- [2026-07-22 09:30:00] 上线前必须两人复核 ^rule\n"
    "- [2026-07-22 09:31:00] Use uv, not pip\n  always\n- [2026-07-22 09:32:00] Use uv, not pip\n  always\n"
    "- [2026-07-23 10:00:00] 最后一行"
)
LAST = Entry("- [2026-07-23 10:00:00] 最后一行")


@pytest.fixture
def memory(workspace: Workspace) -> MarkdownStore:
    store = MarkdownStore(workspace, "ops", lambda: NOW)
    store.path.parent.mkdir()
    store.path.write_text(BEFORE, encoding="utf-8")
    (workspace.root / ".locks").mkdir()
    return store


def _texts(store: LongTermMemoryStore) -> tuple[Counter[str], Counter[str]]:
    now = store.read(retired=True)
    return Counter(e.text for e in now.core + now.archival), Counter(e.text for e in now.retired)


def _leftovers(store: MarkdownStore) -> list[str]:
    return [p.name for p in store.path.parent.iterdir() if p.name not in ("MEMORY.md", "MEMORY.retired.md")]


ACTIONS: dict[str, Callable[[LongTermMemoryStore], object]] = {
    "append": lambda store: store.append("a new one 新的"),
    "append-core": lambda store: store.append("a new one 新的", Scope.CORE),
    "append-key": lambda store: store.append("三人复核", key="rule"),
    "forget": lambda store: store.edit(changes.forget("^rule")),
    "forget-last": lambda store: store.edit(changes.forget(LAST.id)),
    "edit": lambda store: store.edit(changes.edit("^rule", "三人复核")),
    "move": lambda store: store.edit(changes.move("^rule", Scope.CORE)),
    "clean": lambda store: store.clean(Policy()),
    "purge": lambda store: store.edit(changes.forget("^rule", purge=True)),
}


@pytest.mark.parametrize("partly", [False, True], ids=["before", "halfway"])
@pytest.mark.parametrize("name", ACTIONS)
def test_killed_before_any_step_nothing_is_lost_or_doubled(
    name: str, partly: bool, memory: MarkdownStore, machine: Machine
) -> None:
    action = ACTIONS[name]
    machine.run(lambda: action(memory))
    steps = machine.count
    after = _texts(memory)
    memory.retired_path.unlink(missing_ok=True)
    for stop_at in range(1, steps + 1):
        memory.path.write_text(BEFORE, encoding="utf-8")
        before = _texts(memory)
        assert not machine.run(lambda: action(memory), stop_at=stop_at, partly=partly)
        # Whatever was killed: the memory reads as before or as after, but for records that are not yet true.
        live, _ = _texts(memory)
        with contextlib.suppress(FileProblem):
            memory.append("the next one 下一条")
        mended_live, mended_retired = _texts(memory)
        assert mended_live - Counter(["- [2026-08-01 02:00:00] the next one 下一条"]) in (before[0], after[0]), stop_at
        if name != "purge":
            both = mended_live + mended_retired
            assert all(both[text] >= count for text, count in before[0].items()), machine.names[-1]
            assert both in (before[0] + before[1] + _one("下一条"), after[0] + after[1] + _one("下一条")), stop_at
        assert live[next(iter(before[0]))] <= 1
        data = memory.path.read_bytes()
        data.decode()
        assert data.startswith(HAND.encode())
        assert "手写的一段" in data.decode()
        assert _leftovers(memory) == []
        memory.retired_path.unlink(missing_ok=True)


def _one(end: str) -> Counter[str]:
    return Counter([f"- [2026-08-01 02:00:00] the next one {end}"])


@pytest.mark.parametrize("partly", [False, True], ids=["before", "halfway"])
def test_killed_while_restoring(memory: MarkdownStore, machine: Machine, partly: bool) -> None:
    run = memory.edit(changes.forget("^rule")).run
    out = (memory.path.read_bytes(), memory.retired_path.read_bytes())
    machine.run(lambda: memory.edit(changes.restore_run(run)))
    for stop_at in range(1, machine.count + 1):
        memory.path.write_bytes(out[0])
        memory.retired_path.write_bytes(out[1])
        machine.run(lambda: memory.edit(changes.restore_run(run)), stop_at=stop_at, partly=partly)
        memory.append("下一条")
        live, retired = _texts(memory)
        assert (live + retired)["- [2026-07-22 09:30:00] 上线前必须两人复核 ^rule"] == 1, stop_at


@pytest.mark.parametrize("partly", [False, True], ids=["before", "halfway"])
def test_killed_while_the_first_file_is_made(workspace: Workspace, machine: Machine, partly: bool) -> None:
    steps = 99
    for stop_at in range(1, steps):
        store = MarkdownStore(workspace, f"agent{stop_at}{partly}", lambda: NOW)
        done = machine.run(lambda store=store: store.append("第一条"), stop_at=stop_at, partly=partly)  # type: ignore[misc]
        store.append("第二条")
        texts = [entry.content for entry in store.read().archival]
        assert texts in (["第一条", "第二条"], ["第二条"])
        assert _leftovers(store) == []
        assert os.stat(store.path).st_nlink == 1
        if done:
            assert texts == ["第一条", "第二条"]
            return
    pytest.fail("the append never ended by itself")


def _rename_over(path: Path, change: Callable[[bytes], bytes]) -> None:
    """What an editor, or OryxOS, does: read, change, write a temporary file, rename; no lock."""
    other = path.with_name("editor.tmp")
    with open(path, "rb") as file:
        data = file.read()
    with open(other, "wb") as file:
        file.write(change(data))
    real_rename(other, path)


def _truncate_in_place(path: Path, change: Callable[[bytes], bytes]) -> None:
    with open(path, "rb") as file:
        data = file.read()
    with open(path, "wb") as file:
        file.write(change(data))


real_rename = os.rename
FOREIGN = "- [2026-07-30 00:00:00] 外来 foreign\n".encode()


def _with_line(data: bytes) -> bytes:
    return data + (b"" if data.endswith(b"\n") else b"\n") + FOREIGN


def _without_last_line(data: bytes) -> bytes:
    lines = data.rstrip(b"\n").split(b"\n")
    return b"\n".join(lines[:-1]) + b"\n"


@pytest.mark.parametrize("how", [_rename_over, _truncate_in_place])
@pytest.mark.parametrize("change", [_with_line, _without_last_line], ids=["keeps-ours", "drops-ours"])
def test_a_foreign_writer_between_our_write_and_our_check(
    how: Callable[..., None], change: Callable[[bytes], bytes], memory: MarkdownStore, machine: Machine
) -> None:
    acted: list[int] = []

    def foreign(name: str, number: int) -> None:
        if name == "fsync" and not acted:
            acted.append(number)
            how(memory.path, change)

    machine.before = foreign
    memory.append("我们的 ours")
    machine.before = None
    assert acted
    lines = memory.path.read_bytes().split(b"\n")
    assert lines.count("- [2026-08-01 02:00:00] 我们的 ours".encode()) == 1
    assert lines.count(FOREIGN.rstrip()) == (change is _with_line)
    assert memory.path.read_bytes().startswith(HAND.encode())


@pytest.mark.parametrize("how", [_rename_over, _truncate_in_place])
@pytest.mark.parametrize("step", ["pwrite", "renameat2", "open"])
@pytest.mark.parametrize("name", [name for name in ACTIONS if name != "append"])
def test_a_foreign_writer_around_our_exchange(
    name: str, step: str, how: Callable[..., None], memory: MarkdownStore, machine: Machine
) -> None:
    acted: list[int] = []

    def foreign(at: str, number: int) -> None:
        if at == step and not acted and "open" in machine.names:
            acted.append(number)
            how(memory.path, _with_line)

    machine.before = foreign
    ACTIONS[name](memory)
    machine.before = None
    assert acted
    live, retired = _texts(memory)
    assert live[FOREIGN.decode().rstrip()] == 1
    hand = memory.path.read_text(encoding="utf-8")
    assert hand.startswith(HAND)
    assert "手写的一段" in hand
    assert _leftovers(memory) == []
    kept = live + retired
    if name != "purge":
        assert kept["- [2026-07-22 09:30:00] 上线前必须两人复核 ^rule"] == 1
    assert kept[LAST.text] == 1


def test_a_foreign_append_just_before_ours_without_an_end_of_line(memory: MarkdownStore, machine: Machine) -> None:
    acted: list[int] = []

    def foreign(name: str, number: int) -> None:
        if name == "write" and not acted:
            acted.append(number)
            with open(memory.path, "ab") as file:
                file.write("\n- 没写完".encode())

    machine.before = foreign
    memory.append("我们的 ours")
    machine.before = None
    assert acted
    assert memory.path.read_bytes().endswith("\n- 没写完\n- [2026-08-01 02:00:00] 我们的 ours\n".encode())


def test_a_program_that_never_stops_rewriting_ends_in_an_error_and_its_version_lives(
    memory: MarkdownStore, machine: Machine
) -> None:
    rounds: list[int] = []

    def foreign(name: str, number: int) -> None:
        if name == "renameat2" and machine.names.count(name) % 2:  # not when we put its version back
            rounds.append(number)
            _rename_over(memory.path, lambda data: BEFORE.encode() + b"\n- round %d\n" % len(rounds))

    machine.before = foreign
    with pytest.raises(FileProblem, match="not confirmed"):
        memory.edit(changes.move("^rule", Scope.CORE))
    machine.before = None
    assert memory.path.read_bytes().endswith(b"- round %d\n" % len(rounds))
    assert memory.path.read_bytes().startswith(HAND.encode())


def test_of_two_foreign_versions_in_one_exchange_the_newest_lives_and_the_other_is_kept(
    memory: MarkdownStore, machine: Machine
) -> None:
    rounds: list[int] = []

    def foreign(name: str, number: int) -> None:
        if name == "renameat2" and len(rounds) < 2:
            rounds.append(number)
            _rename_over(memory.path, lambda data: BEFORE.encode() + b"\n- round %d\n" % len(rounds))

    machine.before = foreign
    with pytest.warns(UserWarning, match="compare the two"):
        memory.edit(changes.move("^rule", Scope.CORE))
    machine.before = None
    live, _ = _texts(memory)
    assert (live["- round 2"], live["- round 1"]) == (1, 0)
    (found,) = _leftovers(memory)
    assert b"- round 1" in (memory.path.parent / found).read_bytes()


def test_a_line_that_comes_back_while_git_swaps_files_has_one_record(memory: MarkdownStore, machine: Machine) -> None:
    entry = memory.read().archival[0]
    before = memory.path.read_bytes()
    acted: list[int] = []

    def swap(name: str, number: int) -> None:
        if name == "unlink" and machine.names.count("renameat2") == 2 and not acted:  # behind the exchange
            acted.append(number)
            _rename_over(memory.retired_path, lambda data: data)
            _rename_over(memory.path, lambda _: before)

    machine.before = swap
    change = memory.edit(changes.forget(entry.id))
    machine.before = None
    assert acted
    assert memory.retired_path.read_text(encoding="utf-8").count(f"run {change.run}") == 1
    memory.edit(changes.forget(entry.id))
    assert memory.read(retired=True).texts()[entry.text] == 1


@pytest.mark.parametrize("left", ["", "## 归档记忆\n- 一\n## 核心记忆\n- 二\n"])
def test_a_file_that_changes_between_scan_and_write_gets_the_line_in_its_section(
    left: str, memory: MarkdownStore, machine: Machine
) -> None:
    acted: list[int] = []

    def cut(name: str, number: int) -> None:
        if name == "write" and "pwrite" in machine.names and not acted:
            acted.append(number)
            os.truncate(memory.path, 0)
            memory.path.write_text(left, encoding="utf-8")

    machine.before = cut
    entry = memory.append("我们的 ours")
    machine.before = None
    assert acted
    assert [item.raw for item in memory.read().archival].count(entry.raw) == 1
    assert memory.path.read_text(encoding="utf-8").count(entry.raw) == 1


def test_git_puts_a_newer_retired_file_there_between_plan_and_record(memory: MarkdownStore, machine: Machine) -> None:
    before = memory.path.read_bytes()
    entry = memory.read().archival[0]
    memory.edit(changes.forget(entry.id))
    newer = memory.retired_path.read_bytes()
    memory.path.write_bytes(before)  # git stash: both as they were
    memory.retired_path.write_bytes(b"")
    acted: list[int] = []

    def pop(name: str, number: int) -> None:
        if name == "pwrite" and not acted:
            acted.append(number)
            _rename_over(memory.retired_path, lambda _: newer)

    machine.before = pop
    memory.edit(changes.forget(entry.id))
    machine.before = None
    assert acted
    assert memory.read(retired=True).texts()[entry.text] == 1


def test_git_takes_the_retired_file_away_before_the_exchange(memory: MarkdownStore, machine: Machine) -> None:
    entry = memory.read().archival[0]
    acted: list[int] = []

    def checkout(name: str, number: int) -> None:
        if name == "renameat2" and memory.retired_path.exists() and not acted:
            acted.append(number)
            memory.retired_path.unlink()

    machine.before = checkout
    memory.edit(changes.forget(entry.id))
    machine.before = None
    assert acted
    assert memory.read(retired=True).texts()[entry.text] == 1


@pytest.mark.parametrize(
    ("step", "error"), [("fsync", errno.EIO), ("write", errno.ENOSPC), ("write", errno.EFBIG), ("fsync", errno.ENOSPC)]
)
@pytest.mark.parametrize("name", ["append", "forget", "append-core"])
def test_a_failing_disk_changes_nothing(
    name: str, step: str, error: int, memory: MarkdownStore, machine: Machine
) -> None:
    def fails(at: str, _: int) -> None:
        if at == step:
            machine.before = fails  # and stays full
            raise OSError(error, os.strerror(error))

    machine.before = fails
    with pytest.raises(FileProblem):
        ACTIONS[name](memory)
    machine.before = None
    assert memory.path.read_bytes() == BEFORE.encode()
    memory.append("later")
    assert memory.path.read_bytes() == BEFORE.encode() + b"\n- [2026-08-01 02:00:00] later\n"


def test_a_short_write_is_taken_back(memory: MarkdownStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, bytes(data)[:7]))
    with pytest.raises(FileProblem, match="no space left"):
        memory.append("x" * 100)
    monkeypatch.setattr(os, "write", real)
    assert memory.path.read_bytes() == BEFORE.encode()


def test_a_torn_tail_goes_only_if_it_is_ours(memory: MarkdownStore, machine: Machine) -> None:
    machine.run(lambda: memory.append("我们的"), stop_at=None)
    steps = machine.names.index("write", machine.names.index("pwrite")) + 1  # the intention comes first
    memory.path.write_text(BEFORE, encoding="utf-8")
    machine.run(lambda: memory.append("我们的"), stop_at=steps, partly=True)
    torn = memory.path.read_bytes()
    assert torn != BEFORE.encode()
    assert torn.startswith(BEFORE.encode())
    memory.path.write_bytes(torn + b"x")  # somebody went on writing there
    memory.append("next")
    assert memory.path.read_bytes() == torn + b"x\n- [2026-08-01 02:00:00] next\n"


def test_a_half_character_of_unknown_origin_stays(memory: MarkdownStore) -> None:
    memory.path.write_bytes(BEFORE.encode() + b"\xe4\xb8")
    memory.append("next")
    assert memory.path.read_bytes() == BEFORE.encode() + b"\xe4\xb8\n- [2026-08-01 02:00:00] next\n"


def test_a_lock_that_is_held_times_out_and_writes_nothing(memory: MarkdownStore) -> None:
    impatient = MarkdownStore(memory.workspace, "ops", lambda: NOW, lock_timeout=0)
    with memory._lock(memory._paths()), pytest.raises(LockTimeout) as caught:
        impatient.append("x")
    assert caught.value.exit_code == 5
    assert memory.path.read_bytes() == BEFORE.encode()
    impatient.append("x")


def test_a_lock_file_deleted_while_held_is_taken_again(memory: MarkdownStore) -> None:
    with memory._lock(memory._paths()) as lock:
        lock.path.unlink()
        _append(lock, memory._paths(), [Entry.new("still", time=NOW)])
        assert lock.path.exists()
        impatient = MarkdownStore(memory.workspace, "ops", lambda: NOW, lock_timeout=0)
        with pytest.raises(LockTimeout):
            impatient.append("x")
    assert memory.read().archival[-1].content == "still"


def test_two_links_to_one_file_share_its_lock(memory: MarkdownStore) -> None:
    twin = memory.workspace.agents_dir / "twin"
    twin.mkdir()
    (twin / "MEMORY.md").symlink_to(memory.path)
    other = MarkdownStore(memory.workspace, "twin", lambda: NOW, lock_timeout=0)
    assert other._lock(other._paths()).path == memory._lock(memory._paths()).path
    other.append("through the link")
    assert memory.read().archival[-1].content == "through the link"
    other.edit(changes.forget("^rule"))
    assert (twin / "MEMORY.md").is_symlink()
    assert [entry.key for entry in memory.read(retired=True).retired] == ["rule"]


def test_a_rewrite_keeps_mode_and_extended_attributes(memory: MarkdownStore) -> None:
    memory.path.chmod(0o640)
    try:
        os.setxattr(memory.path, "user.note", b"x")
        attributes = True
    except (OSError, AttributeError):
        attributes = False
    memory.edit(changes.forget("^rule"))
    assert memory.path.stat().st_mode & 0o777 == 0o640
    if attributes:
        assert os.getxattr(memory.path, "user.note") == b"x"


def test_what_an_interrupted_exchange_took_out_is_put_back(memory: MarkdownStore, machine: Machine) -> None:
    """Killed between the exchange and the look at what came out, while another program's version came out."""

    def foreign(name: str, _: int) -> None:
        if name == "renameat2":
            _rename_over(memory.path, _with_line)
            machine.stop_at = machine.count + 1

    machine.before = foreign
    assert not machine.run(lambda: memory.edit(changes.move("^rule", Scope.CORE)))
    machine.before = None
    with pytest.warns(UserWarning, match="another program changed it"):
        memory.append("next")
    assert memory.path.read_bytes() == _with_line(BEFORE.encode()) + b"- [2026-08-01 02:00:00] next\n"


@pytest.fixture
def spaced(memory: MarkdownStore) -> MarkdownStore:
    """The memory as a link to a file whose name has blanks, a line break and a percent sign."""
    memory.path.rename(memory.path.with_name("my own%20 100%\nfile.md"))
    memory.path.symlink_to("my own%20 100%\nfile.md")
    return memory


def test_a_torn_tail_goes_from_a_file_of_any_name(spaced: MarkdownStore, machine: Machine) -> None:
    machine.run(lambda: spaced.append("我们的"))
    step = machine.names.index("write", machine.names.index("pwrite")) + 1  # the intention comes first
    spaced.path.write_text(BEFORE, encoding="utf-8")
    machine.run(lambda: spaced.append("我们的"), stop_at=step, partly=True)
    assert spaced.path.read_bytes() != BEFORE.encode()
    spaced.append("next")
    assert spaced.path.read_bytes() == BEFORE.encode() + b"\n- [2026-08-01 02:00:00] next\n"


def test_an_interrupted_exchange_of_a_file_of_any_name_loses_no_foreign_version(
    spaced: MarkdownStore, machine: Machine
) -> None:
    real = spaced.path.resolve()

    def foreign(name: str, _: int) -> None:
        if name == "renameat2":
            _rename_over(real, _with_line)
            machine.stop_at = machine.count + 1

    machine.before = foreign
    assert not machine.run(lambda: spaced.edit(changes.move("^rule", Scope.CORE)))
    machine.before = None
    with pytest.warns(UserWarning, match="another program changed it"):
        spaced.append("next")
    assert spaced.path.read_bytes() == _with_line(BEFORE.encode()) + b"- [2026-08-01 02:00:00] next\n"


def test_what_we_know_of_a_file_of_any_name_saves_the_scan(
    spaced: MarkdownStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    spaced.append("one")
    monkeypatch.setattr(files, "scan", lambda _: pytest.fail("scanned"))
    spaced.append("two")
    assert [entry.content for entry in spaced.read().archival[-2:]] == ["one", "two"]


def test_a_lock_file_of_an_older_version_names_the_file_as_it_is(memory: MarkdownStore) -> None:
    """It quoted no name; the one here has a character that is quoted now."""
    plain = memory.path.with_name("100%.md")
    memory.path.rename(plain)
    memory.path.symlink_to(plain.name)
    torn = "- [2026-08-01 02:00:00] 我们的\n".encode()
    header = f"append 100%.md {len(BEFORE.encode())} {len(torn)}\n"
    with memory._lock(memory._paths()) as lock:
        path = lock.path
    path.write_bytes(header.encode() + torn)
    plain.write_bytes(BEFORE.encode() + torn[:-5])
    memory.append("next")
    assert plain.read_bytes() == BEFORE.encode() + b"\n- [2026-08-01 02:00:00] next\n"


def test_forked_children_do_not_keep_the_lock(memory: MarkdownStore) -> None:
    import multiprocessing

    context = multiprocessing.get_context("fork")
    with memory._lock(memory._paths()):
        parent, child = context.Pipe()
        process = context.Process(target=_wait_for, args=(child,))
        process.start()
    impatient = MarkdownStore(memory.workspace, "ops", lambda: NOW, lock_timeout=0)
    impatient.append("the child lives on")
    parent.send("end")
    process.join()


def _wait_for(connection: object) -> None:
    connection.recv()  # type: ignore[attr-defined]


def test_append_to_a_file_reads_it_in_chunks(memory: MarkdownStore, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.path.write_bytes(BEFORE.encode() + b"\n" + b"- [2026-07-24 10:00:00] filler\n" * 200_000)
    real, sizes = os.pread, []

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        sizes.append(size)
        return real(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", pread)
    memory.append("end")
    assert max(sizes) <= files.CHUNK


def test_stamp_changes_with_every_write(open_store: Opener) -> None:
    store = open_store(now=datetime(2026, 1, 1))
    stamps = [store.stamp()]
    store.append("a", key="k1")
    stamps.append(store.stamp())
    store.edit(changes.forget("^k1"))
    stamps.append(store.stamp())
    store.edit(changes.restore("^k1"))
    stamps.append(store.stamp())
    assert len(set(stamps)) == 4
