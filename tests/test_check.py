"""`check`: what stands in the files, against git, and against what was acknowledged."""

import base64
import json
import os
import re
import subprocess
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import AT, ORYX, SCRIPTS, Result, memory, real, retired_file, with_path

from oryx_memory import checks, rules
from oryx_memory.checks import Finding
from oryx_memory.document import MemoryDocument
from oryx_memory.entry import Entry
from oryx_memory.retired import live_snapshot
from oryx_memory.stores.markdown import MarkdownStore
from oryx_memory.workspace import Workspace

TOP = Path(__file__).parent.parent
NOW = datetime(2026, 8, 1, 2)
CASES: list[dict[str, Any]] = json.loads((TOP / "fixtures" / "check" / "cases.json").read_text(encoding="utf-8"))
BY_GIT_OR_JOURNAL = {"lost-entry", "edited-by-hand", "moved-by-git", "git-ignored", "tracked-state", "merge-driver"}


def _store(place: Workspace) -> MarkdownStore:
    return MarkdownStore(place, "ops", lambda: NOW)


def _found(place: Workspace) -> list[Finding]:
    return list(checks.check_memory(_store(place), NOW, 8000))


def _names(found: list[Finding]) -> list[str]:
    return sorted(finding.problem.rule for finding in found)


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["id"]))
def test_the_planted_faults_are_found_and_nothing_else(case: dict[str, Any], ops: Path, workspace: Workspace) -> None:
    data = base64.b64decode(case["memory_base64"]) if "memory_base64" in case else case["memory"].encode()
    ops.write_bytes(data)
    if "retired" in case:
        retired_file(ops).write_text(case["retired"], encoding="utf-8")
    found = [
        re.sub(r"\b[0-9a-f]{12}\b", "ID", f"{'retired ' * p.retired}{p.line}: {p.rule}: {p.message}")
        for _, _, p in _found(workspace)
    ]
    assert sorted(found) == sorted(case["expected"])


@pytest.mark.parametrize("scope", ["core", "archival"])
@pytest.mark.parametrize("before", ["", "# Title\n"])
def test_an_append_to_a_file_without_headings_makes_both(
    before: str, scope: str, ops: Path, workspace: Workspace
) -> None:
    ops.write_text(before, encoding="utf-8")
    memory("append", "-a", "ops", *AT, "--scope", scope, "x")
    assert set(_names(_found(workspace))) <= {"oryxos-drops"}  # the title
    assert ops.read_text(encoding="utf-8").startswith(before)


def test_every_rule_about_bytes_has_a_planted_fault() -> None:
    planted = {expected.split(": ")[1] for case in CASES for expected in case["expected"]}
    assert planted == set(rules.RULES) - BY_GIT_OR_JOURNAL


def test_the_documentation_names_every_rule_with_its_kind() -> None:
    page = (TOP / "docs" / "check.md").read_text(encoding="utf-8")
    for name, (fault, _) in rules.RULES.items():
        assert f"| `{name}` | {'fault' if fault else 'note'} |" in page


# What has one right answer is mended.

MENDED = {
    "near-suffix": [],
    "traditional": [],
    "missing-core": [],
    "missing-archival": [],
    "mixed-newlines": [],
    "reformatted-bullet": [],
    "reformatted-brackets": [],
    "duplicate": [],
    "live-and-retired": [],
    "missing-both": ["missing-heading", "missing-heading", "oryxos-drops"],  # nobody can know what belongs where
    "doubled": ["doubled-heading", "oryxos-drops", "outside-section"],
}


@pytest.mark.parametrize("name", MENDED)
def test_fix_mends_what_has_one_right_answer(name: str, ops: Path, workspace: Workspace) -> None:
    case = next(case for case in CASES if case["id"] == name)
    ops.write_bytes(case["memory"].encode())
    if "retired" in case:
        retired_file(ops).write_text(case["retired"], encoding="utf-8")
    words = set(
        re.findall(r"\w+", "\n".join(line for line in case["memory"].splitlines() if "#" not in line))
    )  # of the entries
    checks.fix(_store(workspace), _found(workspace))
    assert _names(_found(workspace)) == MENDED[name]
    left = ops.read_text(encoding="utf-8") + (
        retired_file(ops).read_text("utf-8") if retired_file(ops).exists() else ""
    )
    assert words - set(re.findall(r"\w+", left)) == set()
    assert checks.fix(_store(workspace), _found(workspace)) == []


def test_fix_mends_what_only_shows_once_something_else_is_mended(ops: Path) -> None:
    ops.write_text("### 归档记忆\n* [2026-01-01 00:00:00] a\n* [2026-01-02 00:00:00] a\n", encoding="utf-8")
    result = memory("check", "--fix", "-a", "ops")
    assert (result.code, result.out) == (0, "")
    rules = re.findall("mended ([a-z-]+)", result.err)
    assert rules == ["near-heading", "missing-heading", "reformatted", "duplicate"]
    assert ops.read_text(encoding="utf-8") == "## 核心记忆\n\n## 归档记忆\n- [2026-01-01 00:00:00] a\n"


A, B = "- [2026-01-01 00:00:00] 甲\n", "- [2026-01-02 00:00:00] 乙\n"
NO_RIGHT_ANSWER = {
    "core inside of archival": f"## 归档记忆\n{A}### Core Memory\n{B}",
    "core behind archival": f"## 归档记忆\n{A}\n## 核心記憶\n{B}\n",
    "archival before core": f"### 归档记忆\n{A}## 核心记忆\n{B}",
    "both the wrong way round": f"## Archival Memory\n{A}## Core Memory\n{B}",
    "in a conflict": f"## 核心记忆\n{A}<<<<<<< HEAD\n## 归档记忆：\n=======\n>>>>>>> other\n{B}",
}


@pytest.mark.parametrize("name", NO_RIGHT_ANSWER)
def test_fix_moves_no_entry_to_another_section_by_a_heading_in_a_wrong_place(
    name: str, ops: Path, workspace: Workspace
) -> None:
    data = NO_RIGHT_ANSWER[name]
    ops.write_text(data, encoding="utf-8")
    before = live_snapshot(MemoryDocument(data.encode()))
    found = [finding for finding in _found(workspace) if finding.problem.rule == "near-heading"]
    assert found
    assert checks.fix(_store(workspace), found) == []
    assert ops.read_text(encoding="utf-8") == data
    memory("check", "--fix", "-a", "ops")
    assert live_snapshot(MemoryDocument(ops.read_bytes())) == before
    assert "near-heading" in _names(_found(workspace))


def test_fix_leaves_a_clean_memory_byte_for_byte(ops: Path) -> None:
    before = ops.read_bytes()
    assert memory("check", "--fix") == Result(0, "", "")
    assert ops.read_bytes() == before


# Lines that were acknowledged and are gone.


def _lines(ops: Path, *texts: str) -> list[str]:
    return [memory("append", "-a", "ops", *AT, text).out for text in texts]


def test_a_line_that_another_program_overwrote_is_named_and_restored(ops: Path) -> None:
    before = ops.read_bytes()
    (stored,) = _lines(ops, "OryxOS 把我覆盖了 overwritten")
    ops.write_bytes(before)  # read, wait, write: an editor, or OryxOS itself
    result = memory("check", "-a", "ops")
    line = stored.rstrip("\n")
    reference = Entry(line).id
    assert (result.code, result.out) == (1, f".oryxos/agents/ops/MEMORY.md: lost-entry: {reference} {line}\n")
    assert f"oryx memory restore -a ops {reference}" in result.err
    assert memory("restore", "-a", "ops", reference).code == 0
    assert ops.read_text(encoding="utf-8").count(stored) == 1
    assert memory("check", "-a", "ops") == Result(0, "", "")
    assert memory("restore", "-a", "ops", reference).code == 1  # it is there


def test_a_lost_line_goes_back_to_its_place_by_time(ops: Path) -> None:
    first, second, third = _lines(ops, "一", "二", "三")
    ops.write_text(ops.read_text(encoding="utf-8").replace(second, ""), encoding="utf-8")
    memory("restore", "-a", "ops", Entry(second.rstrip("\n")).id)
    assert first in ops.read_text(encoding="utf-8")
    assert ops.read_text(encoding="utf-8").index(second) > ops.read_text(encoding="utf-8").index(first)
    assert third in ops.read_text(encoding="utf-8")


def test_all_lost_lines_come_back_at_once(ops: Path) -> None:
    before = ops.read_bytes()
    stored = _lines(ops, "一 one", "二 two", "三 three")
    ops.write_bytes(before)
    assert "oryx memory restore -a ops --lost brings them back" in memory("check").err
    result = memory("restore", "-a", "ops", "--lost")
    assert (result.code, result.out, result.err) == (0, "".join(stored), "restored 3 entries that were lost to ops\n")
    assert ops.read_bytes() == before + "".join(stored).encode()
    assert memory("check") == Result(0, "", "")
    assert memory("restore", "-a", "ops", "--lost") == Result(1, "", "oryx: nothing is lost\n")


def test_a_hand_deletion_is_named_until_it_is_accepted(ops: Path) -> None:
    (stored,) = _lines(ops, "delete me 删掉我")
    ops.write_text(ops.read_text(encoding="utf-8").replace(stored, ""), encoding="utf-8")
    assert memory("check").code == memory("check").code == 1
    accepted = memory("check", "--accept", "-a", "ops")
    assert (accepted.code, accepted.out) == (0, "")
    assert "settled 1 lost line" in accepted.err
    assert memory("check") == Result(0, "", "")


@pytest.mark.parametrize(
    "command",
    [("forget",), ("edit", "新的 text"), ("move", "--scope", "core"), ("forget", "--purge")],
    ids=lambda command: " ".join(command),
)
def test_what_our_own_commands_take_away_is_not_lost(command: tuple[str, ...], ops: Path) -> None:
    (stored,) = _lines(ops, "abc 记忆")
    name, *rest = command
    assert memory(name, "-a", "ops", Entry(stored.rstrip("\n")).id, *rest).code == 0
    assert memory("check") == Result(0, "", "")
    assert memory("clean", "-a", "ops", "--purge-retired", "0m").code == 0
    assert memory("check") == Result(0, "", "")


def test_of_two_equal_lines_one_is_missed(ops: Path) -> None:
    (stored, _) = _lines(ops, "twice", "twice")
    ops.write_text(ops.read_text(encoding="utf-8").replace(stored, "", 1), encoding="utf-8")
    assert "lost-entry" in memory("check").out
    assert memory("check", "--accept").code == 0
    assert memory("check") == Result(0, "", "")


def test_a_typo_mended_by_hand_is_a_note(ops: Path) -> None:
    (stored,) = _lines(ops, "deploy only on Tusday and Thursday 周二周四才部署")
    ops.write_text(ops.read_text(encoding="utf-8").replace("Tusday", "Tuesday"), encoding="utf-8")
    result = memory("check", "-q")
    assert result.code == 0
    assert result.out.startswith(".oryxos/agents/ops/MEMORY.md:7: note: edited-by-hand: ")
    assert stored.rstrip("\n") in result.out


HANDS = {
    "a line below": ("Deploy rule", "Deploy rule\n  only on Tuesday"),
    "lines below": ("部署规则 #规则", "部署规则 #规则\n  只在周二\n\t两人复核"),
    "a tag more": ("今天上线", "今天上线 #标签"),
    "a tag less": ("今天上线 #标签", "今天上线"),
    "another key": ("改键 ^k1", "改键 ^k2"),
    "a key and a line below": ("改键", "改键 ^k2 #tag\n  why"),
}


@pytest.mark.parametrize("name", HANDS)
def test_what_a_hand_adds_to_an_entry_is_a_note_and_doubles_nothing(name: str, ops: Path) -> None:
    before, after = HANDS[name]
    stored, other = _lines(ops, before, "something else 别的事")
    edited = ops.read_text(encoding="utf-8").replace(before, after)
    ops.write_text(edited, encoding="utf-8")
    note = f".oryxos/agents/ops/MEMORY.md:7: note: edited-by-hand: {Entry(stored.strip()).id} was {stored}"
    assert memory("check", "-q") == Result(0, note, "")
    assert memory("restore", "-a", "ops", "--lost") == Result(1, "", "oryx: nothing is lost\n")
    ops.write_text(edited.replace(other, ""), encoding="utf-8")
    assert memory("restore", "-a", "ops", "--lost").out == other
    assert ops.read_text(encoding="utf-8") == edited
    assert memory("check", "-q") == Result(0, note, "")
    assert memory("restore", "-a", "ops", Entry(stored.strip()).id).out == stored  # who names it means it


def test_an_entry_with_a_line_more_is_no_excuse_for_one_like_it_that_is_gone(ops: Path) -> None:
    one, two = _lines(ops, "release step 1 done 第一步", "release step 2 done 第二步")
    text = ops.read_text(encoding="utf-8").replace(one, "").replace(two, f"{two}  and checked\n")
    ops.write_text(text, encoding="utf-8")
    assert memory("restore", "-a", "ops", "--lost").out == one
    assert ops.read_text(encoding="utf-8").count(two) == 1


def test_another_programs_line_of_the_same_second_is_no_excuse(ops: Path) -> None:
    before = ops.read_bytes()
    (stored,) = _lines(ops, "our own fact 我们的事实")
    ops.write_bytes(before + b"- [2026-08-01 10:00:00] something else entirely\n")
    result = memory("check", "-q")
    assert (result.code, stored.rstrip("\n") in result.out) == (1, True)


def test_without_its_journal_nothing_is_called_lost(ops: Path) -> None:
    before = ops.read_bytes()
    _lines(ops, "gone with the journal")
    ops.write_bytes(before)
    for path in (ops.parent.parent.parent / ".locks").glob("*.journal*"):
        path.unlink()
    assert memory("check") == Result(0, "", "")


def test_a_memory_whose_folder_is_gone_is_named(ops: Path) -> None:
    (stored,) = _lines(ops, "all of it")
    ops.unlink()
    ops.parent.rmdir()
    result = memory("check", "-q")
    assert (result.code, stored.rstrip("\n") in result.out) == (1, True)


def test_a_purged_text_is_nowhere(ops: Path) -> None:
    (stored,) = _lines(ops, "geheim-4711 机密")
    assert memory("forget", "-a", "ops", "--purge", Entry(stored.rstrip("\n")).id).code == 0
    root = ops.parent.parent.parent
    for path in root.rglob("*"):
        assert not path.is_file() or b"geheim-4711" not in path.read_bytes()


def test_a_lost_credential_is_not_shown(ops: Path) -> None:
    before = ops.read_bytes()
    _lines(ops, "db password=Tr0ub4dor3xyz")
    ops.write_bytes(before)
    result = memory("check", "-q")
    assert result.code == 1
    assert "Tr0ub4dor3xyz" not in result.out + result.err


# git.


@pytest.fixture
def repository(ops: Path) -> Path:
    """The workspace of `ops` in a repository whose first commit has it."""
    for words in (
        ["init", "-q", "-b", "main"],
        ["config", "user.name", "Test"],
        ["config", "user.email", "test@example.org"],
        ["add", "-A"],
        ["commit", "-qm", "first"],
    ):
        _git(*words)
    assert memory("init", "-q").code == 0
    _git("add", "-A")
    _git("commit", "-qm", "init")
    return ops


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


BY_GIT = {
    "branch switch": lambda: (_git("checkout", "-qb", "topic"), _git("commit", "-qam", "x"), _git("checkout", "-q", "main")),
    "stash": lambda: _git("stash", "-q"),
    "stash dropped": lambda: (_git("stash", "-q"), _git("stash", "drop", "-q")),
    "reset --hard": lambda: _git("reset", "-q", "--hard"),
    "reset a commit": lambda: (_git("commit", "-qam", "x"), _git("reset", "-q", "--hard", "HEAD~1")),
    "revert": lambda: (_git("commit", "-qam", "x"), _git("revert", "--no-edit", "HEAD")),
    "checkout --": lambda: _git("checkout", "--", "."),
    "restore": lambda: _git("restore", "."),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_GIT)
def test_what_git_takes_away_is_a_note(name: str, repository: Path) -> None:
    _lines(repository, "appended before 在此之前")
    BY_GIT[name]()
    result = memory("check", "-q")
    if name != "stash dropped":  # a dropped stash is in no reflog, but git wrote the file
        assert "moved-by-git" in result.out
    assert (result.code, "lost-entry" in result.out) == (0, False)
    _lines(repository, "appended after 在此之后")
    result = memory("check", "-q")
    assert (result.code, "lost-entry" in result.out) == (0, False)


def test_in_a_repository_too_a_hand_deletion_is_a_fault(repository: Path) -> None:
    (stored,) = _lines(repository, "not yet committed 还没提交")
    repository.write_text(repository.read_text(encoding="utf-8").replace(stored, ""), encoding="utf-8")
    assert "lost-entry" in memory("check", "-q").out
    _lines(repository, "later")
    assert "lost-entry" in memory("check", "-q").out


def test_a_committed_line_that_the_files_lack_is_a_fault(repository: Path) -> None:
    (stored,) = _lines(repository, "committed 提交了")
    _git("commit", "-qam", "x")
    repository.write_text(repository.read_text(encoding="utf-8").replace(stored, ""), encoding="utf-8")
    assert "lost-entry" in memory("check", "-q").out


def _on_two_branches(ops: Path, *more: str) -> str:
    """Both branches acknowledge one line and commit it, the one of `more` too; then they are merged by our driver."""
    _git("checkout", "-qb", "other")
    (stored,) = _lines(ops, "same 同一行")
    _git("commit", "-qam", "on other")
    _git("checkout", "-q", "main")
    _lines(ops, "same 同一行", *more)
    _git("commit", "-qam", "on main")
    return stored


MERGES = {
    "merge": ["merge", "-q", "other", "-m", "both"],
    "rebase": ["rebase", "-q", "other"],
    "cherry-pick": ["cherry-pick", "--allow-empty", "--keep-redundant-commits", "other"],
    "squash": ["merge", "-q", "--squash", "other"],
}


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", with_path()["PATH"])


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("name", MERGES)
def test_a_line_of_two_branches_that_a_merge_keeps_once_is_not_lost(name: str, repository: Path) -> None:
    stored = _on_two_branches(repository, "main only 只在 main")
    _git(*MERGES[name])
    assert repository.read_text(encoding="utf-8").count(stored) == 1
    result = memory("check", "-q")
    assert (result.code, result.out.count("note: moved-by-git"), result.out.count("\n")) == (0, 1, 1)
    assert memory("restore", "-a", "ops", "--lost").code == 1
    repository.write_text(repository.read_text(encoding="utf-8").replace(stored, ""), encoding="utf-8")
    assert "lost-entry" in memory("check", "-q").out  # the one that was left
    assert memory("restore", "-a", "ops", "--lost").code == 0
    assert memory("check", "-q").code == 0


@pytest.mark.usefixtures("driver")
def test_a_copy_that_no_merge_left_out_is_a_fault(repository: Path) -> None:
    def destroy(stored: str) -> None:
        repository.write_text(repository.read_text(encoding="utf-8").replace(stored, "", 1), encoding="utf-8")

    def faults() -> int:
        return memory("check", "-q").out.count(": lost-entry: ")

    (stored, _) = _lines(repository, "twice 两次", "twice 两次")
    _git("commit", "-qam", "both at once")
    destroy(stored)
    assert faults() == 1
    _git("commit", "-qam", "without one")
    assert faults() == 1
    _lines(repository, "amended 改过的提交")
    _git("commit", "-qam", "before")
    _git("commit", "-q", "--amend", "-m", "after")
    stored = _on_two_branches(repository, "same 同一行")  # a second copy there
    _git("merge", "-q", "other", "-m", "both")
    destroy(stored)
    assert faults() == 3  # of three there is one: which one the merge left out nobody can know
    assert memory("restore", "-a", "ops", "--lost").code == 0
    assert faults() == 0


def test_a_memory_that_git_ignores(repository: Path) -> None:
    other = repository.parent.parent / "new" / "MEMORY.md"
    assert memory("append", "-a", "new", "-q", "x").code == 0
    Path(".gitignore").write_text("new/\n", encoding="utf-8")
    assert memory("check", "-q", "-a", "ops").code == 0
    result = memory("check", "-q")
    assert (result.code, result.out.count("git-ignored")) == (1, 1)
    assert str(other.relative_to(Path.cwd())) in result.out


@pytest.mark.parametrize("linked", [".oryxos/agents/linked", "other/.oryxos"])
def test_a_memory_behind_a_linked_folder_is_checked_like_any_other(linked: str, repository: Path) -> None:
    link = Path(linked)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(os.path.relpath(repository.parent if linked.endswith("linked") else ".oryxos", link.parent))
    place = ["-a", "linked"] if linked.endswith("linked") else ["-a", "ops", "--root", "other"]
    stored = memory("append", *place, "gone 不见了").out
    assert memory("check", "-q", *place) == Result(0, "", "")
    repository.write_text(repository.read_text(encoding="utf-8").replace(stored, ""), encoding="utf-8")
    result = memory("check", "-q", *place)
    assert (result.code, result.out.count("lost-entry"), result.err) == (1, 1, "")
    Path(".gitignore").write_text("new\n", encoding="utf-8")
    assert "git-ignored" not in memory("check", "-q", *place).out
    _git("rm", "-q", "--cached", "-r", ".oryxos/agents")
    Path(".gitignore").write_text(".oryxos/agents/ops\n", encoding="utf-8")
    assert "git-ignored" in memory("check", "-q", *place).out


@pytest.mark.parametrize("trouble", ["index", "objects"])
def test_where_git_cannot_answer_all_else_is_still_found(trouble: str, repository: Path) -> None:
    (stored,) = _lines(repository, "gone 不见了")
    text = repository.read_text(encoding="utf-8").replace(stored, "")
    repository.write_text(text + "* [2026-07-23 09:31:00] 星号\n", encoding="utf-8")
    if trouble == "index":
        Path(".git/index").write_bytes(b"broken")
    else:
        for path in Path(".git/objects").glob("*/*"):
            path.unlink()
    result = memory("check", "-q")
    assert (result.code, result.out.count("reformatted"), result.out.count("lost-entry")) == (1, 1, 1)
    assert "what git knows was left out" in result.err


def test_tracked_state_is_named(repository: Path) -> None:
    _lines(repository, "x")
    _git("add", "-f", ".oryxos/.locks")
    result = memory("check", "-q")
    assert result.code == 1
    assert {line.split(": ")[1] for line in result.out.splitlines()} == {"tracked-state"}


def test_a_clone_without_the_merge_driver_is_told_and_mended(repository: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone here"
    _git("clone", "-q", str(repository.parent.parent.parent.parent), str(clone))
    result = memory("check", "--root", str(clone))
    assert (result.code, result.out.split(": ")[1]) == (1, "merge-driver")
    assert memory("check", "--root", str(clone), "--fix").code == 0
    assert memory("check", "--root", str(clone)) == Result(0, "", "")


# The command.


def test_the_acceptance_examples(ops: Path) -> None:
    ahead = datetime.now().replace(microsecond=0) + timedelta(hours=8)
    with ops.open("a", encoding="utf-8") as file:
        file.write(f"- [{ahead}] 八小时以后\n")
    path = ".oryxos/agents/ops/MEMORY.md"
    assert real([ORYX, "memory", "check", path], env=with_path(TZ="UTC")) == Result(0, "", "")
    text = ops.read_text(encoding="utf-8").splitlines(keepends=True)
    ops.write_text("".join([*text[:6], "<<<<<<< HEAD\n", *text[6:]]), encoding="utf-8")
    result = memory("check", path)
    assert (result.code, result.out) == (1, f"{path}:7: conflict-marker: <<<<<<< HEAD\n")


def test_what_pre_commit_passes_is_checked_in_its_own_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from command import make_ops

    one, two = make_ops(tmp_path / "one"), make_ops(tmp_path / "两个")
    two.write_text("## 核心记忆\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names = [str(path.relative_to(tmp_path)) for path in (one, two, retired_file(one))]
    result = memory("check", *names, ".oryxos".join(["one/", "/memory.toml"]))
    assert (result.code, result.out) == (
        1,
        "两个/.oryxos/agents/ops/MEMORY.md: missing-heading: ## 归档记忆 is not there\n",
    )


@pytest.mark.parametrize(
    ("path", "agents"),
    [
        (".", "ops two global"),
        (".oryxos", "ops two global"),
        (".oryxos/agents/", "ops two"),
        (".oryxos/agents/ops", "ops"),
        (".oryxos/memory", "global"),
        (".oryxos/agents/two/MEMORY.md", "two"),
        (".oryxos/memory.toml", ""),
        (".oryxos/agents/note.md", ""),
    ],
)
def test_a_folder_means_the_memories_in_it(path: str, agents: str, ops: Path) -> None:
    from command import OPS

    for file in (ops, ops.parent.parent / "two" / "MEMORY.md", Path(".oryxos/memory/MEMORY.md")):
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{OPS}* [2026-07-23 09:31:00] 星号\n", encoding="utf-8")
    for name in ("memory.toml", "agents/note.md"):
        (Path(".oryxos") / name).write_text("", encoding="utf-8")
    found = json.loads(memory("check", path, "--json").out)
    assert {problem["agent"] or "global" for problem in found} == set(agents.split())


def test_a_path_that_is_nowhere_is_rejected(repository: Path) -> None:
    for path in (".oryxos/agents/opz/MEMORY.md", ".oryxos/agents/ops/MEMROY.md", ".oryxos/agents/opz"):
        assert memory("check", path) == Result(2, "", f"oryx: {Path.cwd() / path} is not there\n")
    Path(".oryxos/skills").mkdir(exist_ok=True)
    assert memory("check", ".oryxos/skills") == Result(2, "", f"oryx: {Path.cwd()}/.oryxos/skills holds no memory\n")
    path = ".oryxos/agents/ops/MEMORY.md"
    repository.unlink()
    assert memory("check", path) == Result(0, "", "")  # git's index has it
    _git("rm", "-q", "--cached", path)
    assert memory("check", path) == Result(0, "", "")  # HEAD has it
    _git("commit", "-qm", "gone")
    assert memory("check", path).code == 2
    memory("append", "-a", "ops", "x")
    repository.unlink()
    repository.parent.rmdir()
    assert "lost-entry" in memory("check", path).out  # the journal has it
    assert "lost-entry" in memory("check", ".oryxos/agents/ops").out


def test_a_file_outside_of_any_workspace_is_rejected(ops: Path, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("x", encoding="utf-8")
    result = memory("check", "README.md")
    assert (result.code, result.out) == (2, "")
    assert "is in no .oryxos folder" in result.err


def test_formats(ops: Path) -> None:
    ops.write_text(ops.read_text(encoding="utf-8") + "* [2026-07-23 09:31:00] 50%, done\n", encoding="utf-8")
    shown = "* [2026-07-23 09:31:00] for - [2026-07-23 09:31:00]"
    github = memory("check", "--format", "github").out
    assert github == f"::error file=.oryxos/agents/ops/MEMORY.md,line=7,title=reformatted::{shown}\n"
    (found,) = json.loads(memory("check", "--json").out)
    assert found == {
        "path": ".oryxos/agents/ops/MEMORY.md", "line": 7, "rule": "reformatted", "severity": "fault",
        "message": shown, "agent": "ops",
    }  # fmt: skip
    assert json.loads(memory("check", "--format", "json").out) == [found]


def test_a_file_name_cannot_forge_an_annotation() -> None:
    from oryx_memory.cli.checking import _github
    from oryx_memory.rules import Problem

    finding = Finding(None, Path("a:b,c\n::error::x%"), Problem("conflict-marker", 1, "x\n::warning::y %"))
    assert _github(finding) == "::error file=a%3Ab%2Cc%0A::error%3A%3Ax%25,line=1,title=conflict-marker::x ::warning::y %25".replace("%0A::error%3A%3A", "%0A%3A%3Aerror%3A%3A")  # fmt: skip


def test_ignored_rules_are_silent_and_unknown_ones_an_error(ops: Path) -> None:
    ops.write_text(ops.read_text(encoding="utf-8") + "* [2026-07-23 09:31:00] x\n", encoding="utf-8")
    toml = ops.parent.parent.parent / "memory.toml"
    toml.write_text('[check]\nignore = ["reformatted"]\n', encoding="utf-8")
    assert memory("check") == Result(0, "", "")
    toml.write_text('[check]\nignore = ["reformated"]\n', encoding="utf-8")
    result = memory("check")
    assert result.code == 3
    assert "no rule 'reformated'; did you mean reformatted?" in result.err


def test_one_unreadable_memory_does_not_hide_the_others(ops: Path) -> None:
    other = ops.parent.parent / "bad" / "MEMORY.md"
    other.mkdir(parents=True)
    ops.write_text("## 核心记忆\n", encoding="utf-8")
    result = memory("check")
    assert (result.code, result.out.count("missing-heading")) == (3, 1)
    assert "is a folder" in result.err or "is not a regular file" in result.err


def test_check_changes_nothing(repository: Path) -> None:
    _lines(repository, "x")

    def state() -> dict[str, tuple[bytes, int]]:
        return {
            str(path): (path.read_bytes(), os.stat(path).st_mtime_ns)
            for path in Path.cwd().rglob("*")
            if path.is_file()
        }

    before = state()
    memory("check")
    assert state() == before


def test_the_hook_in_a_real_pre_commit(repository: Path) -> None:
    (hook,) = yaml.safe_load((TOP / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    hook |= {"language": "system"}  # what it would install is what runs here
    config = {"repos": [{"repo": "local", "hooks": [hook]}]}
    Path(".pre-commit-config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    Path("README.md").write_text("<<<<<<< HEAD\n", encoding="utf-8")
    _git("add", "-A")
    words = [str(SCRIPTS / "pre-commit"), "run"]
    env = with_path(PRE_COMMIT_HOME=str(Path.cwd() / "cache"))
    assert real(words, env=env).code == 0
    with repository.open("a", encoding="utf-8") as file:
        file.write("* [2026-07-23 09:31:00] 星号\n")
    _git("add", "-A", ".oryxos")
    result = real(words, env=env)
    assert (result.code, ".oryxos/agents/ops/MEMORY.md:7: reformatted: " in result.out) == (1, True)
