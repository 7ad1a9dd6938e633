"""The merge driver under real git: what two branches remember is all there after a merge, however it is made."""

import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from command import ORYX, PATIENCE, SCRIPTS, Result, after, memory, real, with_path

from oryx_memory import Scope, git, settings, stores
from oryx_memory.workspace import named

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")

TOP = Path(__file__).parent.parent
CORE, ARCHIVAL = "## 核心记忆", "## 归档记忆"


def stamped(minute: int, text: str) -> str:
    return f"- [2026-08-01 10:{minute:02}:00] {text}"


FIRST, UV, RELEASE = (
    stamped(1, "第一条 ^first_rule"), stamped(2, "Use uv, not pip #tooling ^uv"), stamped(3, "上线前必须两人复核 ^release"),
)  # fmt: skip
BASE = f"{CORE}\n\n{ARCHIVAL}\n{FIRST}\n{UV}\n{RELEASE}\n"


def at(minute: int) -> list[str]:
    return ["--at", f"2026-08-01 10:{minute:02}:00"]


class Repository:
    """A repository with a workspace in `inside`, or at its top, and the agent ops in it."""

    def __init__(self, top: Path, inside: str = ".") -> None:
        self.top = top
        self.folder = top / inside
        self.memory = self.folder / ".oryxos" / "agents" / "ops" / "MEMORY.md"
        self.env = with_path(GIT_CONFIG_GLOBAL=os.devnull, GIT_CONFIG_NOSYSTEM="1", GIT_EDITOR="true", LC_ALL="C.UTF-8")

    def git(self, *arguments: str, code: int | None = 0) -> Result:
        result = real(["git", *arguments], env=self.env, cwd=self.top)
        assert code is None or result.code == code, result
        return result

    def oryx(self, *arguments: str, stdin: str = "") -> Result:
        result = memory(arguments[0], "--root", str(self.folder), *arguments[1:], stdin=stdin)
        assert result.code == 0, result
        return result

    def commit(self, message: str = "记忆") -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)

    def live(self, scope: Scope = Scope.ARCHIVAL) -> list[str]:
        return [entry.raw for entry in self._store().read().section(scope)]

    def texts(self) -> "Counter[str]":
        """How often each line is there, live and retired counted together."""
        return self._store().read(retired=True).texts()

    def retired(self) -> list[str]:
        return [entry.raw for entry in self._store().read(retired=True).retired]

    def _store(self) -> stores.LongTermMemoryStore:
        place = named(self.folder)
        return stores.open(place, settings.load(place.root, {}), "ops")

    def config(self) -> str:
        return (self.top / ".git" / "config").read_text(encoding="utf-8")


def made(top: Path, inside: str = ".", content: str = BASE) -> Repository:
    """A repository whose first commit, on main, is a workspace, with the driver."""
    (top / inside).mkdir(parents=True)
    repository = Repository(top, inside)
    repository.git("init", "-q", "-b", "main")
    repository.git("config", "user.name", "甲")
    repository.git("config", "user.email", "a@example.org")
    repository.oryx("init")
    make_it(repository.memory, content)
    repository.commit()
    return repository


def make_it(file: Path, content: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode())


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return made(tmp_path / "项目")


Steps = Sequence[Sequence[str]]


def on_two_branches(repository: Repository, ours: Steps, theirs: Steps) -> None:
    """Does `ours` on main and `theirs` on the branch other, a commit for each step; ends on main."""
    repository.git("checkout", "-q", "-b", "other")
    for branch, steps in (("other", theirs), ("main", ours)):
        repository.git("checkout", "-q", branch)
        for step in steps:
            repository.oryx(step[0], "-a", "ops", "-q", *step[1:])
            repository.commit(f"{branch}: {' '.join(step)}")


def bring_together(repository: Repository, how: str) -> None:
    if how == "merge":
        repository.git("merge", "-q", "--no-edit", "other")
    elif how == "rebase":
        repository.git("checkout", "-q", "other")
        # Git leaves out a step that both did alike, as two records of one second are; here each is to be merged.
        repository.git("rebase", "-q", "--reapply-cherry-picks", "--empty=keep", "main")
    else:
        repository.git("cherry-pick", "--keep-redundant-commits", "main..other")


# What main does, what the other branch does, the archival and the core lines after, and what is then retired.
CASES: dict[str, tuple[Steps, Steps, list[str], list[str], list[str]]] = {
    "A retires the last line while B appends below it": (
        [["forget", "^release"]], [["append", *at(5), "新的一条"]],
        [FIRST, UV, stamped(5, "新的一条")], [], [RELEASE],
    ),
    "both supersede one key": (
        [["append", *at(5), "--key", "uv", "改用 uv"]], [["append", *at(6), "--key", "uv", "uv only"]],
        [FIRST, RELEASE, stamped(5, "改用 uv ^uv"), stamped(6, "uv only ^uv")], [], [UV],
    ),
    "both retire the same entry": (
        [["forget", "^uv"]], [["forget", "^uv"], ["append", *at(6), "x"]],
        [FIRST, RELEASE, stamped(6, "x")], [], [UV],
    ),
    "A moves what B retires": (
        [["move", "^uv", "--scope", "core"]], [["forget", "^uv"]], [FIRST, RELEASE], [], [UV],
    ),
    "A moves, B appends": (
        [["move", "^uv", "--scope", "core"]], [["append", *at(7), "归档"], ["append", *at(8), "--scope", "core", "核心"]],
        [FIRST, RELEASE, stamped(7, "归档")], [UV, stamped(8, "核心")], [],
    ),
    "A edits what B retires": (
        [["edit", "^uv", "Use uv everywhere"]], [["forget", "^uv"]],
        [FIRST, stamped(2, "Use uv everywhere #tooling ^uv"), RELEASE], [], [UV],
    ),
    "A retires and restores what B retires": (
        [["forget", "^uv"], ["restore", "^uv"]], [["forget", "^uv"]], [FIRST, RELEASE], [], [UV],
    ),
    "both append many times": (
        [["append", *at(n), f"我们 {n}"] for n in (10, 12, 14)], [["append", *at(n), f"theirs {n}"] for n in (11, 13)],
        [FIRST, UV, RELEASE, stamped(10, "我们 10"), stamped(11, "theirs 11"), stamped(12, "我们 12"),
         stamped(13, "theirs 13"), stamped(14, "我们 14")], [], [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", ["merge", "rebase", "cherry-pick"])
@pytest.mark.parametrize("case", CASES)
def test_two_branches_come_together(case: str, how: str, repository: Repository) -> None:
    ours, theirs, archival, core, retired = CASES[case]
    on_two_branches(repository, ours, theirs)
    bring_together(repository, how)
    assert repository.git("status", "--porcelain").out == ""
    assert repository.live() == archival
    assert repository.live(Scope.CORE) == core
    assert repository.retired() == retired
    assert repository.texts() == Counter(archival + core + retired)


def test_what_both_retired_is_restored_once(repository: Repository) -> None:
    on_two_branches(repository, [["forget", "^uv"]], [["forget", "^uv"]])
    bring_together(repository, "merge")
    repository.oryx("restore", "-a", "ops", "^uv")
    assert repository.live() == [FIRST, UV, RELEASE]
    assert memory("restore", "--root", str(repository.folder), "-a", "ops", "^uv").code == 1


def test_a_criss_cross_merge_brings_nothing_back(repository: Repository) -> None:
    on_two_branches(repository, [["append", *at(5), "a ^line_a"]], [["append", *at(6), "乙 ^line_b"]])
    repository.git("branch", "before")  # each takes the other's first commit, so that two ancestors are the best
    repository.git("merge", "-q", "--no-edit", "other")
    from_main = repository.memory.read_bytes()
    repository.git("checkout", "-q", "other")
    repository.git("merge", "-q", "--no-edit", "before")
    assert repository.memory.read_bytes() == from_main
    repository.oryx("forget", "-a", "ops", "-q", "^line_a")
    repository.commit()
    repository.git("checkout", "-q", "main")
    repository.oryx("append", "-a", "ops", "-q", *at(7), "丙")
    repository.commit()
    assert len(repository.git("merge-base", "--all", "main", "other").out.split()) == 2
    repository.git("merge", "-q", "--no-edit", "other")
    assert repository.live() == [FIRST, UV, RELEASE, stamped(6, "乙 ^line_b"), stamped(7, "丙")]
    assert repository.retired() == [stamped(5, "a ^line_a")]
    assert repository.git("status", "--porcelain").out == ""


def all_marked(repository: Repository, lines: Sequence[str]) -> None:
    """An ordinary conflict: every line of both sides is in the file, between markers, and git says that it is open."""
    text = repository.memory.read_text(encoding="utf-8")
    for line in (*lines, "=======", "<<<<<<< ", ">>>>>>> "):
        assert f"\n{line}" in text, text
    assert "UU " in repository.git("status", "--porcelain").out


APPENDED = ([["append", *at(5), "我们"]], [["append", *at(6), "theirs"]])
BOTH = (FIRST, UV, RELEASE, stamped(5, "我们"), stamped(6, "theirs"))


def test_a_clone_without_the_driver_gets_ordinary_conflicts_until_init(repository: Repository, tmp_path: Path) -> None:
    on_two_branches(repository, *APPENDED)
    clone = Repository(tmp_path / "clone")
    real(["git", "clone", "-q", "-b", "main", str(repository.top), str(clone.top)], env=clone.env)
    clone.git("config", "user.name", "乙")
    clone.git("config", "user.email", "b@example.org")
    assert not git.driver_installed(clone.folder)
    clone.git("merge", "origin/other", code=1)
    all_marked(clone, BOTH)
    clone.git("merge", "--abort")
    clone.oryx("init")
    assert git.driver_installed(clone.folder)
    clone.git("merge", "-q", "--no-edit", "origin/other")
    assert clone.live() == list(BOTH)
    assert clone.git("status", "--porcelain").out == ""


@pytest.mark.parametrize(
    "program",
    [None, "exit 1", "exit 2", "exit 3", "exit 126", "exec /nowhere/python", "kill -9 $$"],
    ids=["off PATH", "1", "2", "3", "126", "127", "killed"],
)
def test_without_a_working_oryx_the_conflict_is_an_ordinary_one(
    program: str | None, repository: Repository, tmp_path: Path
) -> None:
    on_two_branches(repository, *APPENDED)
    elsewhere = tmp_path / "bin"
    elsewhere.mkdir()
    if program:
        (elsewhere / "oryx-memory").write_text(f"#!/bin/sh\n{program}\n")
        (elsewhere / "oryx-memory").chmod(0o755)
    rest = [part for part in os.environ["PATH"].split(os.pathsep) if not (Path(part) / "oryx-memory").exists()]
    repository.env["PATH"] = os.pathsep.join([str(elsewhere), *rest])
    result = repository.git("merge", "other", code=1)
    assert "merging as text: .oryxos/agents/ops/MEMORY.md" in result.out + result.err
    all_marked(repository, BOTH)


def test_after_undo_conflicts_are_ordinary_ones(repository: Repository) -> None:
    on_two_branches(repository, *APPENDED)
    repository.oryx("init", "--undo")
    repository.git("checkout", "-q", "--", ".")  # the lines in .gitattributes are there again, the driver is not
    repository.git("merge", "other", code=1)
    all_marked(repository, BOTH)


def test_a_worktree_shares_the_driver(repository: Repository, tmp_path: Path) -> None:
    on_two_branches(repository, *APPENDED)
    repository.git("worktree", "add", "-q", str(tmp_path / "工作树"), "other")
    tree = Repository(tmp_path / "工作树")
    assert "git configuration" not in tree.oryx("init").err
    tree.git("merge", "-q", "--no-edit", "main")
    assert tree.live() == list(BOTH)
    assert tree.git("status", "--porcelain").out == ""


@pytest.mark.parametrize("inside", ["a b's", "-x", '项目 "$HOME"'])
def test_folders_whose_names_a_shell_would_read_otherwise(inside: str, tmp_path: Path) -> None:
    repository = made(tmp_path / "top", inside)
    on_two_branches(repository, [["forget", "^uv"], *APPENDED[0]], [["forget", "^first_rule"], *APPENDED[1]])
    repository.git("merge", "-q", "--no-edit", "other")
    assert repository.live() == [RELEASE, stamped(5, "我们"), stamped(6, "theirs")]
    assert Counter(repository.retired()) == Counter([FIRST, UV])
    repository.git("reset", "-q", "--hard", "HEAD~1")
    rest = [part for part in os.environ["PATH"].split(os.pathsep) if not (Path(part) / "oryx-memory").exists()]
    repository.env["PATH"] = os.pathsep.join(rest)
    result = repository.git("merge", "other", code=1)
    assert f"merging as text: {inside}/.oryxos/agents/ops/MEMORY.md" in result.out + result.err


def test_crlf_files_stay_crlf(tmp_path: Path) -> None:
    repository = made(tmp_path / "top", content=BASE.replace("\n", "\r\n"))
    on_two_branches(repository, *APPENDED)
    repository.git("merge", "-q", "--no-edit", "other")
    added = f"{stamped(5, '我们')}\n{stamped(6, 'theirs')}\n"
    assert repository.memory.read_bytes() == (BASE + added).replace("\n", "\r\n").encode()
    assert repository.git("status", "--porcelain").out == ""


def test_two_agents_append_1000_entries_each_on_two_branches(repository: Repository) -> None:
    repository.git("checkout", "-q", "-b", "other")
    for branch, minute in (("other", 6), ("main", 5)):
        repository.git("checkout", "-q", branch)
        for agent in ("ops", "weather"):
            lines = "".join(f"{branch} 的第 {n} 条\n" for n in range(1000))
            repository.oryx("append", "-a", agent, "-q", *at(minute), "--lines", "-", stdin=lines)
        repository.commit()
    repository.git("merge", "-q", "--no-edit", "other")
    assert repository.git("status", "--porcelain").out == ""
    new = [
        stamped(minute, f"{branch} 的第 {n} 条") for branch, minute in (("main", 5), ("other", 6)) for n in range(1000)
    ]
    assert repository.live() == [FIRST, UV, RELEASE, *new]
    weather = repository.memory.parent.with_name("weather") / "MEMORY.md"
    assert weather.read_text(encoding="utf-8") == f"{CORE}\n\n{ARCHIVAL}\n" + "".join(f"{line}\n" for line in new)


def test_front_matter_that_both_changed_is_left_with_markers(tmp_path: Path) -> None:
    head = "---\nowner: {}\n---\n"
    repository = made(tmp_path / "top", content=head.format("甲") + BASE)
    on_two_branches(repository, *APPENDED)
    for branch, owner in (("other", "他们"), ("main", "我们自己")):
        repository.git("checkout", "-q", branch)
        text = repository.memory.read_text(encoding="utf-8")
        repository.memory.write_text(text.replace("owner: 甲", f"owner: {owner}"), encoding="utf-8")
        repository.commit()
    repository.git("merge", "other", code=1)
    marked = "---\n<<<<<<< ours\nowner: 我们自己\n=======\nowner: 他们\n>>>>>>> theirs\n---\n"
    added = f"{stamped(5, '我们')}\n{stamped(6, 'theirs')}\n"
    assert repository.memory.read_text(encoding="utf-8") == marked + BASE + added
    assert repository.git("status", "--porcelain").out == "UU .oryxos/agents/ops/MEMORY.md\n"

    repository.git("merge", "--abort")
    attributes = repository.folder / ".git" / "info" / "attributes"
    attributes.parent.mkdir(exist_ok=True)
    attributes.write_text("MEMORY.md conflict-marker-size=12\n")
    repository.git("merge", "other", code=1)
    assert f"{'<' * 12} ours\n" in repository.memory.read_text(encoding="utf-8")


# The command alone.


def files(folder: Path, base: bytes, ours: bytes, theirs: bytes) -> list[str]:
    for name, data in (("base", base), ("ours", ours), ("theirs", theirs)):
        (folder / name).write_bytes(data)
    return ["base", "ours", "theirs", "7", "x/MEMORY.md"]


def test_the_command_needs_no_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    base = BASE.encode()
    words = files(tmp_path, base, base + f"{BOTH[3]}\n".encode(), base + f"{BOTH[4]}\n".encode())
    assert memory("merge-driver", *words) == (0, "", "")
    assert (tmp_path / "ours").read_text(encoding="utf-8") == f"{BASE}{BOTH[3]}\n{BOTH[4]}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "ours", "theirs"]


def test_the_command_leaves_ours_alone_and_fails_where_it_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = files(tmp_path, b"a\n", b"b\n", b"c\n")
    (tmp_path / "base").unlink()
    result = memory("merge-driver", *words)
    assert (result.code, result.err) == (3, "oryx: base: cannot be read: no such file or directory\n")
    assert (tmp_path / "ours").read_bytes() == b"b\n"


def test_what_git_takes_for_binary_stands_between_markers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = files(tmp_path, b"a\x00\n", b"b\x00\n", b"c\x00\n")
    assert memory("merge-driver", *words).code == 1
    assert (tmp_path / "ours").read_bytes() == b"<<<<<<< ours\nb\x00\n=======\nc\x00\n>>>>>>> theirs\n"


def test_a_bug_in_the_merge_of_entries_leaves_a_merge_of_text(tmp_path: Path) -> None:
    base = BASE.encode()
    words = files(tmp_path, base, base + b"- ours\n", base + b"- theirs\n")
    broken = "import oryx_memory.merging\noryx_memory.merging.merge_memory = None"
    result = real(after(broken, "memory", "merge-driver", *words), cwd=tmp_path, env=with_path())
    assert result.code == 1
    assert result.err.startswith("oryx: x/MEMORY.md: entries cannot be merged, merging as text; please report it: Type")
    assert result.err.count("\n") == 1
    expected = BASE + "<<<<<<< ours\n- ours\n=======\n- theirs\n>>>>>>> theirs\n"
    assert (tmp_path / "ours").read_text(encoding="utf-8") == expected


# Putting the driver in and taking it out.


def test_init_outside_a_repository_says_nothing_of_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    result = memory("init", "--root", str(tmp_path))
    assert result.code == 0
    assert "driver" not in result.err
    assert "git " not in result.err


def test_init_puts_the_driver_in_once_and_undo_takes_it_out(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "top")
    repository.top.mkdir()
    repository.git("init", "-q")
    before = repository.config()
    assert "merge driver" in repository.oryx("init").err
    assert git.driver_installed(repository.folder)
    inside = repository.config()
    assert inside.startswith(before)
    assert 'merge "oryx-memory"' in inside
    assert "nothing to add" in repository.oryx("init").err
    assert repository.config() == inside
    make_it(repository.memory, BASE)
    attributes = repository.folder / ".oryxos" / ".gitattributes"
    attributes.write_bytes(b"*.png binary\n" + attributes.read_bytes())
    result = repository.oryx("init", "--undo", "--json")
    root = repository.folder / ".oryxos"
    assert json.loads(result.out) == {
        "workspace": str(root), "undone": [str(root / ".gitignore"), str(attributes)], "driver": True,
    }  # fmt: skip
    assert repository.config() == before
    assert attributes.read_bytes() == b"*.png binary\n"
    assert not (root / ".gitignore").exists()
    assert repository.memory.read_text(encoding="utf-8") == BASE
    assert (root / "skills").is_dir()
    assert "nothing to undo" in repository.oryx("init", "--undo").err
    assert json.loads(repository.oryx("init", "--json").out)["driver"] is True


def test_init_gives_an_older_workspace_the_attribute(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "top")
    make_it(repository.folder / ".oryxos" / ".gitattributes", "# 我们的\nMEMORY.md -text\nMEMORY.retired.md -text\n")
    repository.git("init", "-q")
    repository.oryx("init")
    attributes = repository.folder / ".oryxos" / ".gitattributes"
    assert attributes.read_text(encoding="utf-8").startswith("# 我们的\nMEMORY.md -text\nMEMORY.retired.md -text\n")
    for name in ("MEMORY.md", "MEMORY.retired.md"):
        found = repository.git("check-attr", "merge", "text", "--", f".oryxos/agents/ops/{name}").out
        assert [line.rpartition(" ")[2] for line in found.splitlines()] == ["oryx-memory", "unset"]
    repository.oryx("init", "--undo")
    assert attributes.read_text(encoding="utf-8") == "# 我们的\n"


def test_a_driver_that_a_person_set_stays(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "top")
    repository.top.mkdir()
    repository.git("init", "-q")
    repository.git("config", "merge.oryx-memory.driver", "/opt/oryx %A")
    assert "git configuration" not in repository.oryx("init").err
    assert repository.git("config", "merge.oryx-memory.driver").out == "/opt/oryx %A\n"


def test_undo_without_a_workspace(tmp_path: Path) -> None:
    result = memory("init", "--undo", "--root", str(tmp_path))
    assert (result.code, result.err) == (3, f"oryx: nothing to undo: no .oryxos folder at {tmp_path}\n")
    assert list(tmp_path.iterdir()) == []


def test_init_without_git_works_with_one_note(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    result = real([ORYX, "memory", "init", "-q"], cwd=tmp_path, env={"PATH": str(tmp_path), "HOME": str(tmp_path)})
    assert result.code == 0
    assert result.err.startswith("oryx: note: the merge driver was left alone: git is not installed")
    assert result.err.count("\n") == 1
    assert (tmp_path / ".oryxos" / ".gitattributes").exists()


# The example workflow.


def test_the_example_workflow_merges_with_the_driver(repository: Repository, tmp_path: Path) -> None:
    workflow = yaml.safe_load((TOP / "docs" / "examples" / "memory-review.yml").read_text(encoding="utf-8"))
    assert set(workflow[True]) == {"pull_request", "workflow_dispatch"}  # YAML 1.1 reads `on` as true
    assert set(workflow["jobs"]) == {"comment", "merge"}
    on_two_branches(repository, *APPENDED)
    hub = tmp_path / "hub.git"
    real(["git", "clone", "-q", "--bare", str(repository.top), str(hub)], env=repository.env)
    checkout = tmp_path / "checkout"
    real(["git", "clone", "-q", "-b", "other", str(hub), str(checkout)], env=repository.env)
    environment = {**repository.env, "BASE": "main", "BRANCH": "other"}
    for step in run_steps(workflow, "merge"):
        assert "${{" not in step  # what others name must not become part of a script
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", step], cwd=checkout, env=environment, capture_output=True,
            check=False, timeout=PATIENCE,
        )  # fmt: skip
        assert done.returncode == 0, done
    repository.git("fetch", "-q", str(hub), "other")
    merged = repository.git("show", "FETCH_HEAD:.oryxos/agents/ops/MEMORY.md").out
    assert merged == BASE + f"{BOTH[3]}\n{BOTH[4]}\n"


def test_the_example_workflow_shows_what_was_learned(repository: Repository, tmp_path: Path) -> None:
    workflow = yaml.safe_load((TOP / "docs" / "examples" / "memory-review.yml").read_text(encoding="utf-8"))
    on_two_branches(repository, *APPENDED)
    checkout = tmp_path / "checkout"
    real(["git", "clone", "-q", "-b", "other", str(repository.top), str(checkout)], env=repository.env)
    program = tmp_path / "bin" / "gh"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > "$GH_SEEN"\n')
    program.chmod(0o755)
    environment = {
        **repository.env, "BASE": "main", "NUMBER": "42", "GH_SEEN": str(tmp_path / "seen"),
        "PATH": os.pathsep.join([str(program.parent), repository.env["PATH"]]),
    }  # fmt: skip
    for step in run_steps(workflow, "comment"):
        assert "${{" not in step
        result = real(["bash", "-eo", "pipefail", "-c", step], cwd=checkout, env=environment)
        assert result.code == 0, result
    comment = (checkout / "comment.md").read_text(encoding="utf-8")
    assert "theirs" in comment
    assert "我们" not in comment
    assert (tmp_path / "seen").read_text().split()[:3] == ["pr", "comment", "42"]


def run_steps(workflow: dict[str, dict[str, dict[str, list[dict[str, str]]]]], job: str) -> list[str]:
    """The shell steps of a job, but for the installation from the network: the commands are on PATH already."""
    steps = [step for step in workflow["jobs"][job]["steps"] if "run" in step and step["name"] != "Install"]
    assert (SCRIPTS / "oryx").exists()
    assert steps
    return [step["run"] for step in steps]
