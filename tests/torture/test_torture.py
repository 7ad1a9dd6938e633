"""The whole of it: a short run by default, a long one with TORTURE=long (`make torture`)."""

import json
import os
import sqlite3
import subprocess
import time
import warnings
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest
from command import ORYX, checked, real, with_path
from conftest import BACKENDS

from oryx_memory import Entry, LongTermMemoryStore, Workspace, open_memory
from torture import foreign
from torture.account import Account, Texts, settle
from torture.ledger import Deed, Ledger, Log
from torture.stage import Size, Stage

LONG = os.environ.get("TORTURE") == "long"
FOREIGN = {"markdown": ("oryxos", "editor", "truncater", "gitter"), "sqlite": ("database0", "database1")}
LOST = {"lost-entry": " ", "edited-by-hand": " was ", "moved-by-git": " "}  # and what stands before the line


def _size() -> Size:
    if not LONG:
        return Size(appends=300, kills=10, seconds=300, writers=4, pace=0.5)
    appends, kills, seconds, pace = (
        int(os.environ.get(f"TORTURE_{name}", number))
        for name, number in (("APPENDS", 20_000), ("KILLS", 200), ("SECONDS", 3000), ("PACE", 4))
    )
    return Size(appends, kills, seconds, writers=8, pace=pace)


def _checked(root: Path) -> tuple[Texts, Counter[str]]:
    """The lines that `oryx memory check` names as gone, and how many problems of each rule it found."""
    command = [ORYX, "memory", "check", "-a", "ops", "--root", str(root), "--json"]
    done = subprocess.run(command, capture_output=True, check=False)  # in a long history it may take its time
    result = checked(done.returncode, done.stdout, done.stderr)
    assert result.code in (0, 1), result.err
    found = json.loads(result.out)
    named = Counter[str]()
    for problem in found:
        if before := LOST.get(problem["rule"]):
            named[problem["message"].partition(before)[2]] += 1
    return named, Counter(problem["rule"] for problem in found)


def _texts(store: LongTermMemoryStore) -> tuple[Texts, Texts]:
    now = store.read(retired=True)
    return Counter(e.text for e in now.core + now.archival), Counter(e.text for e in now.retired)


def _account(ledger: Ledger, store: LongTermMemoryStore, root: Path) -> tuple[Account, Counter[str]]:
    named, rules = _checked(root)
    account = settle(ledger.deeds, *_texts(store), named)
    assert not account.unnamed, f"{list(account.unnamed)[:20]}\n{account.figures()}"
    assert not account.doubled, f"{list(account.doubled)[:20]}\n{account.figures()}"
    assert account.acknowledged.total() == account.sum, account.figures()
    return account, rules


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_was_acknowledged_is_live_retired_purged_or_named(
    backend: str,
    workspace: Workspace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ORYX_MEMORY_BACKEND", backend)
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "pre-commit"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("PATH", with_path()["PATH"])
    store = open_memory("ops", root=workspace.root)
    if backend == "markdown":
        workspace.create_agent("ops")
        workspace.memory_file("ops").write_text(foreign.START, encoding="utf-8")
        foreign.make_repository(tmp_path)
    (tmp_path / "ledgers").mkdir()
    stage = Stage(workspace.root, tmp_path / "ledgers", _size(), FOREIGN[backend])
    started = time.monotonic()
    ledger = stage.run()
    seconds = time.monotonic() - started
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # conflict markers, versions that were kept: not what this is about
        account, rules = _account(ledger, store, workspace.root)
        if LONG:
            with capsys.disabled():
                print("\n" + _report(backend, seconds, stage, ledger, account, rules))
        _is_whole(backend, workspace, ledger, account)
        _restore(list(account.named.elements()), workspace.root)
        again, _ = _account(ledger, store, workspace.root)
    assert not again.named
    assert again.live.total() == account.live.total() + account.named.total()


def _restore(texts: list[str], root: Path) -> None:
    """Bring each named line back by the command: the first ones one by one, then the faults at once, then the notes."""
    place = ["-a", "ops", "--root", str(root)]

    def one_by_one(wanted: Iterable[str]) -> None:
        for text in wanted:
            result = real([ORYX, "memory", "restore", Entry(text).id, *place])
            assert result == (0, f"{text}\n", result.err)

    one_by_one(texts[:3])
    together = real([ORYX, "memory", "restore", "--lost", *place]).out.splitlines()
    one_by_one((Counter(texts[3:]) - Counter(together)).elements())


ONE, TWO = "- [2026-08-01 02:00:00] 一 one", "- [2026-08-01 02:00:00] 二 two"


@pytest.mark.parametrize(
    ("deeds", "live", "retired", "named", "expected"),
    [
        ({Deed.ADDED: [ONE]}, [ONE], [], [], {}),
        ({Deed.ADDED: [ONE]}, [], [ONE], [], {}),
        ({Deed.ADDED: [ONE]}, [], [], [ONE], {}),
        ({Deed.ADDED: [ONE]}, [], [], [], {"unnamed": [ONE]}),
        ({Deed.ADDED: [ONE]}, [ONE], [ONE], [], {"doubled": [ONE]}),
        ({Deed.ADDED: [ONE]}, [ONE, ONE], [], [], {"doubled": [ONE]}),
        ({Deed.ADDED: [ONE]}, [TWO], [], [], {"unnamed": [ONE]}),
        ({}, [ONE], [], [], {"unconfirmed": [ONE]}),
        ({}, [], [], [], {}),
        ({}, [ONE, ONE], [], [], {"unconfirmed": [ONE], "doubled": [ONE]}),
        ({Deed.ADDED: [ONE], Deed.PURGED: [ONE]}, [], [], [], {"destroyed": [ONE]}),
        ({Deed.ADDED: [ONE], Deed.SETTLED: [ONE]}, [ONE], [], [], {"destroyed": [ONE], "returned": [ONE]}),
        ({Deed.ADDED: [ONE], Deed.PURGED: [TWO]}, [], [], [], {"unnamed": [ONE]}),
        ({Deed.ADDED: [ONE], Deed.MEANT_TO_PURGE: [ONE]}, [], [], [], {"destroyed": [ONE]}),
        ({Deed.ADDED: [ONE], Deed.MEANT_TO_PURGE: [ONE]}, [ONE], [], [], {}),
        ({Deed.PURGED: [ONE]}, [], [], [], {"unconfirmed": [ONE], "destroyed": [ONE]}),
    ],
)
def test_the_account_tells_every_difference(
    deeds: dict[Deed, list[str]], live: list[str], retired: list[str], named: list[str], expected: dict[str, list[str]]
) -> None:
    whole = {deed: Counter(deeds.get(deed, ())) for deed in Deed} | {Deed.MEANT: Counter([ONE])}
    account = settle(whole, Counter(live), Counter(retired), Counter(named))
    for name in ("unconfirmed", "destroyed", "returned", "unnamed", "doubled"):
        assert getattr(account, name) == Counter(expected.get(name, ())), name
    faults = account.unnamed or account.doubled
    assert (account.sum == account.acknowledged.total()) == (not faults)


def test_a_torn_line_of_a_ledger_does_not_count_until_it_is_whole(tmp_path: Path) -> None:
    log, ledger = Log(tmp_path / "w.ledger"), Ledger(tmp_path)
    log.write(Deed.ADDED, ONE, TWO)
    data = (tmp_path / "w.ledger").read_bytes()
    for cut in range(len(data) + 1):
        (tmp_path / "w.ledger").write_bytes(data[:cut])
        ledger.catch_up()
        assert ledger.count(Deed.ADDED) == data[:cut].count(b"\n")
    assert ledger.deeds[Deed.ADDED] == Counter([ONE, TWO])


def test_a_run_that_is_not_done_at_its_deadline_fails_and_ends_its_processes(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORYX_MEMORY_BACKEND", "markdown")
    (tmp_path / "ledgers").mkdir()
    stage = Stage(workspace.root, tmp_path / "ledgers", Size(10**6, 0, seconds=0.2, writers=1, pace=1), ())
    with pytest.raises(AssertionError, match="not done in"):
        stage.run()
    assert stage.cast
    assert all(process.poll() is not None for process in stage.cast.values())


def _is_whole(backend: str, workspace: Workspace, ledger: Ledger, account: Account) -> None:
    """Hand-written text is there but where a foreign writer dropped it, and nothing of a killed writer is left."""
    if backend == "sqlite":
        assert not account.named
        assert not account.returned
        with closing(sqlite3.connect(workspace.database_file())) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return
    path = workspace.memory_file("ops")
    text = path.read_text(encoding="utf-8")
    for piece in (piece.rstrip("\n") for piece in foreign.PIECES):
        missed = ledger.deeds[Deed.PUT_BACK][piece] or text.count(piece) != 1
        assert not missed or ledger.deeds[Deed.DROPPED][piece], piece
    known = {"MEMORY.md", "MEMORY.retired.md", "MEMORY.md.tmp"}
    assert [p.name for p in path.parent.iterdir() if p.name not in known and ".found-" not in p.name] == []


def _report(backend: str, seconds: float, stage: Stage, ledger: Ledger, account: Account, rules: Counter[str]) -> str:
    def counts(deed: Deed) -> str:
        return ", ".join(f"{text} {count:,}" for text, count in sorted(ledger.deeds[deed].items()))

    others = {deed.value: ledger.count(deed) for deed in Deed if deed not in (Deed.LOOKED, Deed.REWROTE, Deed.REFUSED)}
    return "\n".join(
        [
            f"{backend}: {seconds:.0f} s, {account.figures()}",
            f"  SIGKILLs: {dict(stage.kills)}",
            f"  deeds: {others}",
            f"  looked: {counts(Deed.LOOKED)}",
            f"  foreign rewrites: {counts(Deed.REWROTE)}",
            f"  refused: {Counter(text.partition(':')[0] for text in ledger.deeds[Deed.REFUSED].elements())}",
            f"  check: {dict(rules)}",
        ]
    )
