"""`oryx memory diff` against real git: revisions, repositories of every kind, and the four ways to show a change."""

import json
import os
import pty
import re
import shutil
import subprocess
from datetime import datetime
from pathlib import Path

import pytest
from command import FRIDAY, FRIDAY_ID, ORYX, RELEASE, RELEASE_ID, UV, UV_ID, make_ops, memory, real, retired_file
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from oryx_memory import Entry, Scope
from oryx_memory.cli import difference
from oryx_memory.diffing import Delta, Kind
from oryx_memory.entry import BLANKS, Retirement
from oryx_memory.errors import GitProblem, RejectedInput
from oryx_memory.git import commit

NEW = "- [2026-08-01 10:00:00] ask @alice about #42 before release"
RUN = re.compile(r"\d{8}T\d{6}-\d+")


@pytest.fixture(autouse=True)
def _identity(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.org",
    }.items():
        monkeypatch.setenv(name, value)


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=True)
    return done.stdout.decode().strip()


def save(folder: Path) -> str:
    """Commit everything below a folder; the hash."""
    git(folder, "add", "-A", ".")
    git(folder, "commit", "-q", "--allow-empty", "-m", "memory")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(ops: Path, tmp_path: Path) -> Path:
    """MEMORY.md of the agent ops, committed in the folder that the test works in."""
    git(tmp_path, "init", "-q", "-b", "main")
    save(tmp_path)
    return ops


def add(path: Path, *lines: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def rows(*arguments: str) -> list[list[str]]:
    """The fields of each line that `diff` prints."""
    result = memory("diff", *arguments)
    assert (result.code, result.err) == (0, ""), result
    return [line.split("\t", 4) for line in result.out.splitlines()]


def refused(arguments: tuple[str, ...], code: int, *fragments: str) -> None:
    result = memory("diff", *arguments)
    assert (result.code, result.out, result.err.count("\n")) == (code, "", 1), result
    for fragment in fragments:
        assert fragment in result.err


def test_everything_that_can_happen_to_an_entry_has_its_line(repository: Path, tmp_path: Path) -> None:
    memory("append", "-a", "ops", "-q", "--at", "2026-07-23 08:00:00", "for an hour")
    memory("append", "-a", "ops", "-q", "--at", "2026-07-24 08:00:00", "by hnad")
    memory("append", "-a", "ops", "-q", "--at", "2026-07-25 08:00:00", "gone by hand")
    memory("forget", "-a", "ops", "-q", FRIDAY_ID)
    save(tmp_path)
    (hour,) = (
        line.partition("\t")[0] for line in memory("list", "-a", "ops", "--ids").out.splitlines() if "hour" in line
    )
    memory("append", "-a", "ops", "-q", "--at", "2026-08-01 10:00:00", "ask @alice about #42 before release")
    memory("forget", "-a", "ops", "-q", hour)
    memory("edit", "-a", "ops", "-q", RELEASE_ID, "上线前必须三人复核")
    memory("move", "-a", "ops", "-q", UV_ID, "--scope", "core")
    memory("restore", "-a", "ops", "-q", FRIDAY_ID)
    repository.write_text(
        repository.read_text().replace("hnad", "hand").replace("- [2026-07-25 08:00:00] gone by hand\n", "")
    )
    assert [RUN.sub("RUN", "\t".join(row)) for row in rows()] == [
        f"ops\tcore\t+\trestored\t{FRIDAY}",
        f"ops\tcore\t>\tmoved from archival\t{UV}",
        f"ops\tarchival\t+\tadded\t{NEW}",
        f"ops\tarchival\t-\tedited\t{RELEASE}",
        f"ops\tarchival\t+\tedited\t{RELEASE.replace('两', '三')}",
        "ops\tarchival\t-\tedited\t- [2026-07-24 08:00:00] by hnad",
        "ops\tarchival\t+\tedited\t- [2026-07-24 08:00:00] by hand",
        "ops\tarchival\t-\tretired: forgotten; run RUN\t- [2026-07-23 08:00:00] for an hour",
        "ops\tarchival\t-\tremoved\t- [2026-07-25 08:00:00] gone by hand",
    ]


def test_a_purged_record_is_told(repository: Path, tmp_path: Path) -> None:
    memory("forget", "-a", "ops", "-q", UV_ID)
    save(tmp_path)
    memory("forget", "-a", "ops", "-q", "--purge", UV_ID)
    assert rows() == [["ops", "archival", "-", "purged", UV]]


def test_nothing_changed_is_said_on_standard_error_alone(repository: Path) -> None:
    result = memory("diff", "--exit-code")
    assert (result.code, result.out, result.err) == (0, "", "no entry differs: HEAD and the files\n")
    assert memory("diff", "-q") == (0, "", "")
    assert memory("diff", "-q", "--markdown") == (0, "", "")
    assert memory("diff", "-q", "--json") == (0, "[]\n", "")


def test_exit_code_tells_that_something_differs(repository: Path) -> None:
    add(repository, NEW)
    assert memory("diff").code == 0
    for how in ((), ("--json",), ("--markdown",)):
        result = memory("diff", "--exit-code", *how)
        assert (result.code, result.err) == (1, "")
        assert "@alice" in result.out


def test_revisions(repository: Path, tmp_path: Path) -> None:
    first = git(tmp_path, "rev-parse", "HEAD")
    git(tmp_path, "checkout", "-q", "-b", "side")
    add(repository, NEW)
    save(tmp_path)
    git(tmp_path, "checkout", "-q", "main")
    repository.write_text(repository.read_text().replace(f"{UV}\n", ""))
    second = save(tmp_path)
    git(tmp_path, "tag", "-a", "-m", "x", "标签", second)
    repository.write_text(repository.read_text().replace(f"{FRIDAY}\n", ""))
    new = ["ops", "archival", "+", "added", NEW]
    uv = ["ops", "archival", "-", "removed", UV]
    friday = ["ops", "core", "-", "removed", FRIDAY]
    assert rows() == rows("HEAD") == rows("标签") == [friday]
    assert rows(first[:9]) == rows("HEAD~1") == [friday, uv]
    assert rows(f"{first}..HEAD") == rows("HEAD~1..") == rows("HEAD~1..标签") == [uv]
    assert rows("..HEAD~1") == [[*uv[:2], "+", "added", UV]]
    assert rows("main..side") == [[*uv[:2], "+", "added", UV], new]
    assert rows("main...side") == rows("...side") == [new]
    assert rows("side...main") == rows("side...") == [uv]


def test_before_the_first_commit_everything_is_added(ops: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert (
        rows()
        == rows("HEAD")
        == rows("@")
        == [
            ["ops", "core", "+", "added", FRIDAY],
            ["ops", "archival", "+", "added", RELEASE],
            ["ops", "archival", "+", "added", UV],
        ]
    )
    assert memory("diff", "-q", "HEAD...HEAD") == (0, "", "")


def test_subfolders_worktrees_and_several_workspaces_in_one_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q")
    one, other = tmp_path / "机器人 一", tmp_path / "bots\\two"
    memories = {place: make_ops(place) for place in (one, other)}
    save(tmp_path)
    git(tmp_path, "worktree", "add", "-q", "-b", "side", str(tmp_path / "工作 树"))
    add(memories[one], "- 一")
    add(memories[other], "- two")
    add(tmp_path / "工作 树" / memories[one].relative_to(tmp_path), "- tree")
    for place, line in ((one, "- 一"), (other, "- two"), (tmp_path / "工作 树" / "机器人 一", "- tree")):
        folder = place / ".oryxos" / "agents" / "ops"
        monkeypatch.chdir(folder)
        assert rows() == [["ops", "archival", "+", "added", line]]
        monkeypatch.chdir(tmp_path)
        assert rows("--root", str(place)) == [["ops", "archival", "+", "added", line]]


def test_the_workspace_may_be_the_repository(ops: Path, tmp_path: Path) -> None:
    git(tmp_path / ".oryxos", "init", "-q")
    save(tmp_path / ".oryxos")
    add(ops, NEW)
    assert rows() == [["ops", "archival", "+", "added", NEW]]


def test_line_ends_alone_are_no_change(repository: Path, tmp_path: Path) -> None:
    repository.write_bytes(repository.read_bytes().replace(b"\n", b"\r\n"))
    assert memory("diff", "-q") == (0, "", "")
    save(tmp_path)
    add(repository, NEW)
    assert rows() == [["ops", "archival", "+", "added", NEW]]


def test_agents_that_only_one_side_has(repository: Path, tmp_path: Path) -> None:
    new = make_ops(tmp_path / "elsewhere", f"## 归档记忆\n{NEW}\n").parent
    new.rename(repository.parent.with_name("fresh"))
    shutil.rmtree(repository.parent)
    memory("append", "-q", "--at", "2026-08-01 10:00:00", "for all")
    added = [
        ["(global)", "archival", "+", "added", "- [2026-08-01 10:00:00] for all"],
        ["fresh", "archival", "+", "added", NEW],
    ]
    gone = [["ops", "core" if line is FRIDAY else "archival", "-", "removed", line] for line in (FRIDAY, RELEASE, UV)]
    assert rows() == [*added, *gone]
    assert rows("-a", "ops") == gone
    assert rows("-a", "fresh") == added[1:]
    refused(("-a", "opps"), 3, "no agent opps")
    refused(("-a", "../ops"), 2, "unsafe")


def test_the_environment_names_the_agent(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(repository, NEW)
    memory("append", "-q", "for all")
    monkeypatch.setenv("ORYX_AGENT", "ops")
    assert rows() == [["ops", "archival", "+", "added", NEW]]


def test_user_is_the_global_memory_of_the_home_directory_alone(tmp_path: Path) -> None:
    home = Path(os.environ["HOME"])
    make_ops(home)
    git(home, "init", "-q")
    memory("append", "--user", "-q", "--at", "2026-08-01 10:00:00", "for me")
    assert rows("--user") == [["(global)", "archival", "+", "added", "- [2026-08-01 10:00:00] for me"]]


def test_a_linked_memory_is_followed_inside_the_workspace(repository: Path, tmp_path: Path) -> None:
    shared = tmp_path / ".oryxos" / "common"
    shared.mkdir()
    for path in (repository, retired_file(repository)):
        path.touch()
        path.rename(shared / path.name)
    repository.symlink_to("../../common/MEMORY.md")
    (tmp_path / ".oryxos" / "agents" / "twin").symlink_to("ops")
    save(tmp_path)
    assert memory("diff", "-q") == (0, "", "")
    add(shared / "MEMORY.md", NEW)
    memory("forget", "-a", "ops", "-q", UV_ID)
    found = [RUN.sub("RUN", "\t".join(row[1:])) for row in rows("-a", "ops")]
    assert found == [f"archival\t+\tadded\t{NEW}", f"archival\t-\tretired: forgotten; run RUN\t{UV}"]
    assert [row[1:] for row in rows("-a", "twin")] == [row[1:] for row in rows("-a", "ops")]


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("../../../outside.md", "leads out of the workspace"),
        ("/etc/hostname", "full path"),
        ("MEMORY.md", "in a circle"),
        ("OTHER.md", "to agents/ops/OTHER.md, which the commit does not have"),
    ],
)
def test_a_link_that_a_commit_cannot_follow_is_an_empty_file_with_a_warning(
    repository: Path, tmp_path: Path, target: str, why: str
) -> None:
    content = repository.read_bytes()
    repository.unlink()
    repository.symlink_to(target)
    save(tmp_path)
    repository.unlink()
    repository.write_bytes(content)
    result = memory("diff", "-a", "ops")
    assert result.code == 0
    assert result.out.count("\tadded\t") == 3
    assert result.err.count("\n") == 1
    assert ":agents/ops/MEMORY.md is a link" in result.err
    assert why in result.err


@pytest.mark.parametrize(
    "revision", ["nope", "", "nope..HEAD", "HEAD...nope", "HEAD^99", "HEAD:.oryxos", "^HEAD", "a....b", "上", "@{9}"]
)
def test_an_unknown_revision_is_rejected_in_one_line(repository: Path, revision: str) -> None:
    refused((revision,), 2, "git knows no commit", str(repository.parents[2]))


def test_a_revision_never_becomes_an_option(repository: Path, tmp_path: Path) -> None:
    refused(("-x",), 2, "No such option: -x")
    for revision in ("-x", f"--output={tmp_path}/made", f"HEAD..--output={tmp_path}/made"):
        refused(("--", revision), 2, "git knows no commit")
    assert not (tmp_path / "made").exists()


def test_two_formats_exclude_each_other(repository: Path) -> None:
    refused(("--json", "--markdown"), 2, "--markdown and --json")


def test_a_shallow_clone_says_what_it_lacks(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = git(tmp_path, "rev-parse", "HEAD")
    add(repository, NEW)
    save(tmp_path)
    git(tmp_path, "clone", "-q", "--depth", "1", tmp_path.as_uri(), "浅")
    monkeypatch.chdir(tmp_path / "浅")
    assert memory("diff", "-q") == (0, "", "")
    for revision in (first, "HEAD~1..HEAD"):
        refused((revision,), 3, "shallow clone", "git fetch --unshallow")


def test_unrelated_branches_have_no_common_ancestor(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "checkout", "-q", "--orphan", "other")
    git(tmp_path, "commit", "-q", "-m", "another beginning")
    refused(("main...other",), 3, "no common ancestor")
    assert memory("diff", "-q", "main..other") == (0, "", "")


def test_the_repository_of_another_owner_is_named(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # git's own switch for its tests
    refused((), 3, "belongs to another user", "safe.directory")


def test_no_repository(ops: Path) -> None:
    refused((), 3, "in no git repository")


def test_no_git(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    refused((), 3, "git is not installed or not on PATH")


def test_a_lost_object_is_one_line(repository: Path, tmp_path: Path) -> None:
    name = git(tmp_path, "rev-parse", "HEAD:.oryxos/agents/ops/MEMORY.md")
    (tmp_path / ".git" / "objects" / name[:2] / name[2:]).unlink()
    refused((), 3, name, "is missing")


def test_a_database_has_nothing_in_git(repository: Path) -> None:
    refused(("--backend", "sqlite"), 2, "sqlite", "oryx memory export")


def test_git_touches_neither_index_nor_tree(repository: Path, tmp_path: Path) -> None:
    add(repository, NEW)
    os.utime(tmp_path / ".oryxos" / "agents" / "ops")
    watched = [tmp_path / ".git" / "index", repository]
    before = [(path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) for path in watched]
    names = sorted(tmp_path.rglob("*"))
    for arguments in ((), ("--json",), ("HEAD..HEAD",), ("HEAD...HEAD",)):
        assert memory("diff", *arguments).code == 0
    assert [(path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) for path in watched] == before
    assert sorted(tmp_path.rglob("*")) == names


def test_what_a_hook_sets_for_another_repository_does_not_count(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(repository, NEW)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "no-index"))
    assert rows() == [["ops", "archival", "+", "added", NEW]]


def test_json_has_entries_as_records(repository: Path) -> None:
    memory("append", "-a", "ops", "-q", "--at", "2026-08-01 10:00:00", "新的")
    memory("edit", "-a", "ops", "-q", RELEASE_ID, "上线前必须三人复核")
    memory("move", "-a", "ops", "-q", UV_ID, "--scope", "core")
    moved, added, edited = json.loads(memory("diff", "--json").out)
    assert list(moved) == ["agent", "change", "scope", "from", "entry"]
    assert [moved[key] for key in ("agent", "change", "scope", "from")] == ["ops", "moved", "core", "archival"]
    assert moved["entry"] == json.loads(memory("show", "-a", "ops", UV_ID, "--json").out)
    assert list(added) == ["agent", "change", "scope", "entry"]
    assert list(edited) == ["agent", "change", "scope", "entry", "before", "reason", "run"]
    assert (edited["before"]["line"], edited["reason"]) == (RELEASE, "edited")
    assert edited["run"] == edited["before"]["retired"]["run"]


def test_continuation_lines_follow_their_entry(repository: Path) -> None:
    add(repository, "- two lines", "  the\tsecond")
    assert memory("diff").out == "ops\tarchival\t+\tadded\t- two lines\n  the\tsecond\n"


def test_the_acceptance_example(ops: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    memory("append", "-a", "ops", "-q", "ask @alice about #42 before release")
    result = memory("diff", "-a", "ops", "--markdown")
    assert re.search(
        r"^- \*\*added\*\* to archival: `- \[.{19}\] ask @alice about #42 before release`$", result.out, re.M
    )


def spans_and_rest(markdown: str) -> tuple[list[str], str]:
    """What a CommonMark parser takes for code spans, and all other text of the page. There is no other construct."""
    spans: list[str] = []
    rest: list[str] = []
    for token in MarkdownIt("commonmark").parse(markdown):
        assert token.type.split("_")[0] in ("heading", "bullet", "list", "paragraph", "inline"), token
        for child in token.children or ():
            assert child.type in ("text", "code_inline", "strong_open", "strong_close", "softbreak"), child
            (spans if child.type == "code_inline" else rest).append(child.content)
    return spans, " ".join(rest)


hostile = st.one_of(
    st.text(alphabet="` \\*_[]()<>!#@&|~$\n\t\x00\x1b\u202eab复", min_size=1, max_size=30),
    st.text(min_size=1, max_size=30),
    st.sampled_from(
        ["```", "`` ` ``", "<!-- x -->", "![x](http://a.example)", "\n# heading", "a\n\n- b", "`", "&amp;"]
    ),
).filter(lambda text: text.strip(BLANKS))


@given(hostile, hostile, hostile.filter(lambda text: "\n" not in text), st.sampled_from(list(Kind)))
def test_every_text_comes_out_of_markdown_inside_a_code_span(old: str, new: str, reason: str, kind: Kind) -> None:
    why = Retirement(datetime(2026, 8, 1), reason, "r-1") if kind in (Kind.RETIRED, Kind.PURGED) else None
    delta = Delta(kind, Entry(new, Scope.CORE, why), Entry(old))
    spans, rest = spans_and_rest(difference.markdown([("a_b_c", [delta, Delta(Kind.ADDED, Entry("- last"))])]))
    texts = [old, new] if kind is Kind.EDITED else [new]
    shown = [difference.visible(Entry(text).text).replace("\n", " ⏎ ") for text in texts]
    said = f"{why.reason}; run r-1" if why else ""
    reasons = [difference.visible(" ".join(said.split()))] if kind is Kind.RETIRED else []
    assert spans == ["a_b_c", *reasons, *shown, "- last"]
    assert set(re.findall(r"\w+", rest)) <= {
        *map(str, Kind), "1", "2", "core", "archival", "from", "to", "in", "without", "a", "record", "what", "was",
    }  # fmt: skip


def test_markdown_stays_under_60000_characters_and_counts_the_rest(repository: Path) -> None:
    add(repository, *(f"- number {number} 😀" for number in range(5000)))
    out = memory("diff", "--markdown").out
    assert 59_000 < len(out.encode("utf-16-le")) // 2 < 60_000
    shown, rest = out.count("- **added**"), re.search(r"\n\n… and ([\d,]+) more changes\n$", out)
    assert rest is not None
    assert shown + int(rest[1].replace(",", "")) == 5000
    assert "### `ops`: 5,000 added" in out


def test_a_change_too_long_for_markdown_hides_no_other(repository: Path) -> None:
    add(repository, f"- {'长' * 70_000}", NEW)
    out = memory("diff", "--markdown").out
    assert f"`{NEW}`" in out
    assert out.endswith("… and 1 more change\n")


def on_a_terminal(cwd: Path, *arguments: str) -> str:
    """What `oryx memory` writes to a terminal."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen([ORYX, "memory", *arguments], cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    written = b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # Linux's end of a terminal
            break
        if not chunk:
            break
        written += chunk
    os.close(ours)
    assert child.wait() == 0
    return written.decode().replace("\r\n", "\n")


def test_a_terminal_is_shown_groups_highlights_and_no_control_characters(repository: Path, tmp_path: Path) -> None:
    memory("edit", "-a", "ops", "-q", RELEASE_ID, "上线前必须三人复核")
    add(repository, "- [bold]markup[/bold] \x1b]0;title\x07 \u202etxt", "  second line")
    memory("forget", "-a", "ops", "-q", UV_ID)
    shown = on_a_terminal(tmp_path, "diff")
    assert "上线前必须\x1b[7;31m两\x1b[0m人复核" in shown
    assert "上线前必须\x1b[7;32m三\x1b[0m人复核" in shown
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert RUN.sub("RUN", plain) == (
        "ops  1 added, 1 edited, 1 retired\n"
        "  archival\n"
        "    + - [bold]markup[/bold] \\x1b]0;title\\x07 \\u202etxt\n"
        "        second line\n"
        f"    - {RELEASE}\n    + {RELEASE.replace('两', '三')}\n"
        f"    - {UV}  retired: forgotten; run RUN\n"
    )


def test_the_program_itself_in_a_pipe(repository: Path, tmp_path: Path) -> None:
    add(repository, NEW)
    result = real(
        [ORYX, "memory", "diff", "--exit-code"], env={"PATH": os.environ["PATH"], "LC_ALL": "C"}, cwd=tmp_path
    )
    assert result == (1, f"ops\tarchival\t+\tadded\t{NEW}\n", "")


def test_a_commit_is_found_or_told_apart(repository: Path, tmp_path: Path) -> None:
    assert commit(tmp_path, "main") == git(tmp_path, "rev-parse", "HEAD")
    with pytest.raises(RejectedInput):
        commit(tmp_path, "0" * 40)
    with pytest.raises(GitProblem):
        commit(tmp_path / "nowhere", "main")
