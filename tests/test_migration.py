"""From one backend to the other and back: the same ids, counts, order, sections and times, whoever is killed."""

import os
import signal
import subprocess
import sys
from collections import Counter
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

import pytest
from command import memory
from conftest import NOW
from hypothesis import given
from hypothesis import strategies as st
from strategies import any_files, rising_files

from oryx_memory import LongTermMemoryStore, Policy, RejectedInput, SettingsError, Workspace, changes, settings, stores
from oryx_memory.stores.migration import pairs, with_backend
from oryx_memory.stores.sqlite import SqliteStore

FIXTURE = Path(__file__).parent.parent / "fixtures" / "oryxos-sample.db"


def _open(root: Path, backend: str, agent: str | None, zone: str = "") -> LongTermMemoryStore:
    chosen = settings.load(root, {}, {"backend": backend, "time.zone": zone})
    return stores.open(Workspace(root), chosen, agent, lambda: NOW)


def _held(store: LongTermMemoryStore) -> list[list[tuple[str, str]]]:
    now = store.read(retired=True)
    return [[(entry.id, entry.text) for entry in part] for part in (now.core, now.archival, now.retired)]


@pytest.mark.filterwarnings("ignore::oryx_memory.OryxMemoryWarning")
@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "Europe/Berlin"])
@given(data=st.one_of(any_files(), rising_files()), keep=st.integers(0, 3))
def test_markdown_to_sqlite_to_markdown(zone: str, data: bytes, keep: int) -> None:
    # Europe/Berlin: the hour from 2 on 29 March 2026 does not exist, that on 25 October exists twice
    for old, new in ((b"2026-01-01 00:", b"2026-03-29 02:"), (b"2026-01-01 02:", b"2026-10-25 02:")):
        data = data.replace(old, new)
    with TemporaryDirectory() as folder:
        root = Path(folder) / ".oryxos"
        here, middle, back = (
            _open(root, b, a, zone) for b, a in (("markdown", "a"), ("sqlite", "b"), ("markdown", "c"))
        )
        (root / "agents" / "a").mkdir(parents=True)
        (root / "agents" / "a" / "MEMORY.md").write_bytes(data)
        here.clean(Policy(keep_entries=keep, force=True))
        before = (root / "agents" / "a" / "MEMORY.md").read_bytes()
        held = _held(here)
        report = here.migrate_to(middle)
        assert report.live + report.retired == sum(map(len, held))
        assert _held(middle) == held
        middle.migrate_to(back)
        assert _held(back) == held
        assert [e.retired for e in back.read(retired=True).retired] == [
            e.retired for e in here.read(retired=True).retired
        ]
        assert (root / "agents" / "a" / "MEMORY.md").read_bytes() == before
        assert here.migrate_to(middle).live == middle.migrate_to(back).live == 0
        assert _held(back) == held


def test_the_sample_database_goes_to_markdown_and_back(tmp_path: Path) -> None:
    root = tmp_path / ".oryxos"
    root.mkdir()
    (tmp_path / "oryxos.db").write_bytes(FIXTURE.read_bytes())
    for agent, name in ((None, None), ("ops", "ops"), ("小助手", "helper")):
        source = _open(root, "sqlite", agent)
        source.migrate_to(_open(root, "markdown", name))
        again = SqliteStore(tmp_path / "again.db", agent, lambda: NOW, zone=ZoneInfo("UTC"))
        assert _held(_open(root, "markdown", name)) == _held(source)
        _open(root, "markdown", name).migrate_to(again)
        assert _held(again) == _held(source)
    assert (tmp_path / "oryxos.db").read_bytes() == FIXTURE.read_bytes()


def test_nothing_that_was_forgotten_in_the_target_comes_back(tmp_path: Path) -> None:
    root = tmp_path / ".oryxos"
    here, there = _open(root, "markdown", "ops"), _open(root, "sqlite", "ops")
    entries = [here.append(f"第 {n} fact") for n in range(4)]
    here.migrate_to(there)
    there.edit(changes.forget(entries[1].id))
    late = here.append("late 迟到")
    assert here.migrate_to(there).live == 1
    now = there.read(retired=True)
    assert [e.id for e in now.archival] == [entries[0].id, entries[2].id, entries[3].id, late.id]
    assert [e.id for e in now.retired] == [entries[1].id]


_MIGRATOR = """
import sys
from pathlib import Path
from oryx_memory import Workspace, settings, stores
root = Path(sys.argv[1])
one, two = (stores.open(Workspace(root), settings.load(root, {}, {"backend": b}), "ops") for b in sys.argv[2:4])
print("ready", flush=True)
while True:
    one.migrate_to(two)
    print("done", flush=True)
"""


@pytest.mark.parametrize("ways", [("markdown", "sqlite"), ("sqlite", "markdown")], ids="-".join)
def test_killed_migrations_and_appends_in_between(ways: tuple[str, str], tmp_path: Path) -> None:
    root = tmp_path / ".oryxos"
    here, there = (_open(root, backend, "ops") for backend in ways)
    for n in range(30):
        here.append(f"第 {n} fact {'x' * 2000}")
    here.edit(changes.forget(here.read().archival[3].id))
    for round_ in range(5):
        child = subprocess.Popen([sys.executable, "-c", _MIGRATOR, str(root), *ways], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        for _ in range(1 + round_ % 3):
            child.stdout.readline()
        here.append(f"meanwhile {round_} 其间")
        child.send_signal(signal.SIGKILL)
        child.communicate()
    here.migrate_to(there)
    assert Counter(chain(*_held(there))) == Counter(chain(*_held(here)))
    assert _held(there)[2] == _held(here)[2]


def test_the_command_copies_proves_and_switches(ops: Path, tmp_path: Path) -> None:
    memory("forget", "-a", "ops", "^release_rule")
    before = ops.read_bytes()
    dry = memory("migrate-backend", "--to", "sqlite", "--all-agents", "--dry-run")
    assert dry.out.splitlines()[1] == "ops: would copy 2 live and 1 retired to sqlite, 0 were there"
    assert not (tmp_path / "oryxos.db").exists()
    (tmp_path / ".oryxos" / "memory.toml").write_text("# 我的设置\n[clean]\nkeep_entries = 9\n", encoding="utf-8")
    done = memory("migrate-backend", "--to", "sqlite", "--all-agents", "--switch")
    assert done.code == 0
    assert done.out.splitlines()[1] == (
        "ops: copied 2 live and 1 retired to sqlite, 0 were there; all 3 ids are there as often as here"
    )
    toml = (tmp_path / ".oryxos" / "memory.toml").read_text(encoding="utf-8")
    assert toml == 'backend = "sqlite"\n# 我的设置\n[clean]\nkeep_entries = 9\n'
    assert ops.read_bytes() == before
    memory("append", "-a", "ops", "now in sqlite")
    assert ops.read_bytes() == before
    assert memory("list", "-a", "ops").out.endswith("now in sqlite\n")
    assert memory("migrate-backend", "--to", "markdown", "--all-agents", "--switch").code == 0
    assert ops.read_text(encoding="utf-8").endswith("now in sqlite\n")
    assert memory("restore", "-a", "ops", "^release_rule").code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--to", "markdown"], "--from"),
        (["--to", "sqlite", "--switch"], "--all-agents"),
        (["--to", "sqlite", "--all-agents", "--switch", "--dry-run"], "--dry-run"),
        (["--to", "sqlite", "--all-agents", "--rename", "ops"], "OLD=NEW"),
        (["--to", "sqlite", "--all-agents", "--rename", "nobody=x"], "no such agent"),
        (["--to", "sqlite", "--all-agents", "--rename", "ops=dev"], "would become one"),
        (["--to", "sqlite", "--all-agents", "--rename", "ops=x", "--rename", "ops=y"], "two names"),
        (["--to", "sqlite", "--all-agents", "--rename", "ops=__global__"], "__global__"),
    ],
)
def test_refused(arguments: list[str], says: str, ops: Path, tmp_path: Path) -> None:
    (tmp_path / ".oryxos" / "agents" / "dev").mkdir()
    done = memory("migrate-backend", *arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert says in done.err
    assert not (tmp_path / "oryxos.db").exists()


def test_names_that_no_folder_can_have_need_another(ops: Path, tmp_path: Path) -> None:
    (tmp_path / "oryxos.db").write_bytes(FIXTURE.read_bytes())
    (tmp_path / ".oryxos" / "memory.toml").write_text('[agents]\nunsafe = "global"\n')
    refused = memory("migrate-backend", "--from", "sqlite", "--to", "markdown", "--all-agents")
    assert refused.code == 2
    assert "--rename '小助手=NAME'" in refused.err
    arguments = ("--from", "sqlite", "--to", "markdown", "--all-agents", "--rename", "小助手=helper")
    assert memory("migrate-backend", *arguments).code == 0
    assert memory("recall", "-a", "helper", "龙井").code == 0


@pytest.mark.parametrize("how", ["flag", "environment", "personal", "application"])
def test_no_switch_where_something_else_names_the_backend(
    how: str, ops: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["--backend", "markdown"] if how == "flag" else []
    if how == "environment":
        monkeypatch.setenv("ORYX_MEMORY_BACKEND", "markdown")
    if how == "personal":
        config = Path(os.environ["HOME"]) / ".config" / "oryx-memory"
        config.mkdir(parents=True)
        (config / "config.toml").write_text('backend = "markdown"\n')
    if how == "application":
        (tmp_path / "config").mkdir()
        (tmp_path / "config" / "application.yml").write_text("memory:\n  backend: markdown\n")
    done = memory("migrate-backend", "--to", "sqlite", "--all-agents", "--switch", *flags)
    assert done.code == 3
    assert "change that first" in done.err or "take it out first" in done.err
    assert not (tmp_path / "oryxos.db").exists()
    assert not (tmp_path / ".oryxos" / "memory.toml").exists()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b'backend = "sqlite"\n'),
        (b"backend = 'markdown'  # why\r\n[clean]\r\n", b'backend = "sqlite"  # why\r\n[clean]\r\n'),
        (b"[other]\nbackend = 'x'\n", b"backend = \"sqlite\"\n[other]\nbackend = 'x'\n"),
    ],
)
def test_only_the_backend_is_edited(before: bytes, after: bytes) -> None:
    assert with_backend("sqlite", before) == after


@pytest.mark.parametrize("text", [b"backend = [\n", b"\xff", b'"backend" = "x"\n'])
def test_a_file_that_cannot_be_edited_is_told(text: bytes) -> None:
    with pytest.raises(SettingsError, match="cannot be edited"):
        with_backend("sqlite", text)


def test_names_that_differ_in_case_only_are_not_merged_where_the_file_system_does(tmp_path: Path) -> None:
    class Folding(Workspace):
        """A workspace on a file system that takes `Ops` and `ops` for one name."""

        def folds_case(self) -> bool:
            return True

    one, two = (settings.load(tmp_path, {}, {"backend": backend}) for backend in ("sqlite", "markdown"))
    with pytest.raises(RejectedInput, match="would become one"):
        pairs(Folding(tmp_path / ".oryxos"), one, two, ["Ops", "ops"], {})
    assert len(pairs(Workspace(tmp_path / ".oryxos"), one, two, ["Ops", "ops"], {})) == 2
    assert len(pairs(Folding(tmp_path / ".oryxos"), one, two, ["Ops", "ops"], {"Ops": "dev"})) == 2


def test_exclusive_keeps_other_writers_out(tmp_path: Path) -> None:
    from oryx_memory import LockTimeout

    for backend in ("markdown", "sqlite"):
        store = _open(tmp_path / ".oryxos", backend, "ops")
        store.append("first")
        chosen = settings.load(tmp_path / ".oryxos", {}, {"backend": backend})
        impatient = stores.open(Workspace(tmp_path / ".oryxos"), chosen, "ops", lambda: NOW, lock_timeout=0)
        with store.exclusive():
            assert len(store.read().archival) == 1
            with pytest.raises(LockTimeout):
                impatient.append("second")
        impatient.append("second")
