"""Bad input and bad files: one clear line, the right exit code, and nothing lost.

What depends on permissions runs in a child that has dropped to an unprivileged user, since tests may run as root.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import (
    AT,
    FRIDAY,
    LOADED,
    NOBODY,
    OPS,
    ORYX,
    PATIENCE,
    RELEASE,
    STAMP,
    UV,
    Result,
    after,
    as_user,
    checked,
    make_ops,
    memory,
    real,
    retired_file,
    with_path,
)

from oryx_memory import Workspace

LIMIT = 32 * 1024

READERS = (
    ("load", "-a", "ops"),
    ("recall", "-a", "ops", "uv"),
    ("list", "-a", "ops"),
    ("show", "-a", "ops", "43d8"),
    ("export", "-a", "ops"),
    ("stats", "-a", "ops"),
    ("clean", "-a", "ops", "--keep-entries", "0", "--dry-run"),
)
WRITERS = (
    ("append", "-a", "ops", "x"),
    ("append", "-a", "ops", "--scope", "core", "x"),
    ("append", "-a", "ops", "--key", "rule", "x"),
    ("edit", "-a", "ops", "43d8", "新"),
    ("move", "-a", "ops", "43d8", "--scope", "core"),
    ("forget", "-a", "ops", "43d8"),
    ("forget", "-a", "ops", "43d8", "--purge"),
    ("clean", "-a", "ops", "--keep-entries", "0"),
)
READING = pytest.mark.parametrize("command", READERS, ids=" ".join)
WRITING = pytest.mark.parametrize("command", WRITERS, ids=" ".join)


def unprivileged(folder: Path, *arguments: str) -> Result:
    """`oryx memory …` as a user who is not root, and who owns the workspace of the folder."""
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    return real(as_user(NOBODY, "memory", *arguments, "--root", "."), env=with_path(), cwd=folder)


def refused(result: Result, code: int, *fragments: str | Path) -> None:
    """Nothing on standard output, one line on standard error that says these things."""
    assert (result.code, result.out) == (code, ""), result
    assert result.err.startswith("oryx: ")
    assert result.err.count("\n") == 1
    assert result.err.endswith("\n")
    for fragment in fragments:
        assert str(fragment) in result.err


def text(file: Path) -> str:
    return file.read_bytes().decode()


def nothing_is_out(folder: Path) -> None:
    """No entry counts as retired: what stands in MEMORY.md is live, whatever a failed change has noted."""
    assert memory("list", "-a", "ops", "--retired", "--root", str(folder)) == (0, "", "")


# Content.


@pytest.mark.parametrize("content", ["", " ", "\t", "\n", "\r\n \n", "　", "\u2028", "\x00\x01\x1b", "\x85"], ids=ascii)
@pytest.mark.parametrize(
    "command", [("append", "-a", "ops"), ("append", "-a", "new"), ("edit", "-a", "ops", "43d8")], ids=" ".join
)
def test_blank_content(command: tuple[str, ...], content: str, ops: Path) -> None:
    refused(memory(*command, content), 2, "empty or blank")
    refused(memory(*command, stdin=content), 2, "empty or blank")
    assert text(ops) == OPS
    assert not retired_file(ops).exists()
    assert not (ops.parent.parent / "new").exists()


def test_blank_lines_only(ops: Path) -> None:
    refused(memory("append", "-a", "new", "--lines", stdin="\n \n　\n"), 2, "blank")
    refused(memory("append", "-a", "new", stdin="\ufeff"), 2, "empty or blank")
    assert not (ops.parent.parent / "new").exists()


@pytest.mark.parametrize("letter", ["x", "长"])
def test_content_over_32_kib(letter: str, ops: Path) -> None:
    most = letter * (LIMIT // len(letter.encode()))
    most += "x" * (LIMIT - len(most.encode()))
    for arguments, stdin in (
        ((most + "x",), ""),
        ((), most + "x"),
        ((most, "--tag", "流程"), ""),
        ((most, "--key", "ab"), ""),
    ):
        result = memory("append", "-a", "ops", *AT, *arguments, stdin=stdin)
        refused(result, 2, "bytes", "32,768")
    refused(memory("edit", "-a", "ops", "43d8", most), 2, "32,768")  # its tag goes along
    assert text(ops) == OPS
    assert memory("append", "-a", "ops", *AT, stdin=most) == (0, f"{STAMP} {most}\n", "")
    assert text(ops) == f"{OPS}{STAMP} {most}\n"


def test_input_that_is_not_utf8(ops: Path) -> None:
    refused(memory("append", "-a", "ops", stdin="中文".encode("gbk")), 2, "standard input", "UTF-8", "byte 0")
    refused(memory("append", "-a", "ops", "--lines", stdin=b"ok\n\xff\n"), 2, "byte 3")
    refused(memory("edit", "-a", "ops", "43d8", stdin=b"\xed\xa0\x80"), 2, "UTF-8")
    refused(memory("append", "-a", "ops", "\ud800"), 2, "not valid Unicode")
    assert text(ops) == OPS


# MEMORY.md.


@READING
def test_memory_that_is_a_folder_cannot_be_read(command: tuple[str, ...], ops: Path) -> None:
    ops.unlink()
    ops.mkdir()
    refused(memory(*command), 3, ops)


@WRITING
def test_memory_that_is_a_folder_cannot_be_written(command: tuple[str, ...], ops: Path) -> None:
    ops.unlink()
    ops.mkdir()
    refused(memory(*command), 3, ops)
    assert list(ops.iterdir()) == []
    assert not retired_file(ops).exists()


@pytest.mark.parametrize("command", [*READERS, *WRITERS], ids=" ".join)
def test_memory_that_is_a_pipe_hangs_nobody(command: tuple[str, ...], ops: Path) -> None:
    ops.unlink()
    os.mkfifo(ops)
    refused(memory(*command), 3, ops, "not a regular file")


def test_folder_of_the_agent_that_is_a_file(ops: Path) -> None:
    file = ops.parent.parent / "file"
    file.write_text("keep me")
    refused(memory("append", "-a", "file", "x"), 3, file)
    refused(memory("load", "-a", "file"), 3, "no agent file")
    assert file.read_text() == "keep me"


def test_unreadable_memory(shared: Path) -> None:
    ops = make_ops(shared)
    ops.chmod(0)
    for command in (READERS[0], READERS[1], READERS[5], WRITERS[0], WRITERS[2], WRITERS[5]):
        refused(unprivileged(shared, *command), 3, ops, "permission denied")
    ops.chmod(0o644)
    assert text(ops) == OPS
    assert not retired_file(ops).exists()


def test_write_only_memory(shared: Path) -> None:
    ops = make_ops(shared)
    ops.chmod(0o200)
    refused(unprivileged(shared, "append", "-a", "ops", "x"), 3, ops, "permission denied")
    ops.chmod(0o644)
    assert text(ops) == OPS


@WRITING
def test_read_only_memory_cannot_be_written(command: tuple[str, ...], ops: Path, tmp_path: Path) -> None:
    """Not even by root, who could."""
    ops.chmod(0o444)
    refused(memory(*command), 3, ops, "mode 0444")
    assert text(ops) == OPS
    assert ops.stat().st_mode & 0o777 == 0o444
    assert not retired_file(ops).exists()


def test_read_only_memory_can_be_read(ops: Path) -> None:
    ops.chmod(0o444)
    assert memory("load", "-a", "ops") == (0, LOADED, "")
    assert memory("recall", "-a", "ops", "复核") == (0, f"{RELEASE}\n", "")


def test_read_only_memory_of_an_unprivileged_user(shared: Path) -> None:
    ops = make_ops(shared)
    ops.chmod(0o444)
    refused(unprivileged(shared, "append", "-a", "ops", "x"), 3, ops)
    refused(unprivileged(shared, "forget", "-a", "ops", "43d8"), 3, ops)
    assert unprivileged(shared, "load", "-a", "ops") == (0, LOADED, "")
    assert text(ops) == OPS


def test_read_only_folder(shared: Path) -> None:
    """A line can still be added to the file; a rewrite needs a file beside it."""
    ops = make_ops(shared)
    ops.parent.chmod(0o555)
    try:
        assert unprivileged(shared, "append", "-a", "ops", *AT, "还能写") == (0, f"{STAMP} 还能写\n", "")
        for command in (("forget", "-a", "ops", "43d8"), ("move", "-a", "ops", "43d8", "--scope", "core")):
            refused(unprivileged(shared, *command), 3, "permission denied")
        assert text(ops) == f"{OPS}{STAMP} 还能写\n"
        assert [path.name for path in ops.parent.iterdir()] == ["MEMORY.md"]
    finally:
        ops.parent.chmod(0o755)


def test_folder_that_cannot_take_an_agent(shared: Path) -> None:
    agents = make_ops(shared).parent.parent
    agents.chmod(0o555)
    try:
        refused(unprivileged(shared, "append", "-a", "new", "x"), 3, agents / "new", "permission denied")
        assert [path.name for path in agents.iterdir()] == ["ops"]
    finally:
        agents.chmod(0o755)


def test_locks_that_cannot_be_made(shared: Path) -> None:
    ops = make_ops(shared)
    (shared / ".oryxos").chmod(0o555)
    try:
        refused(unprivileged(shared, "append", "-a", "ops", "x"), 3, ".locks", "permission denied")
        assert text(ops) == OPS
        assert unprivileged(shared, "load", "-a", "ops") == (0, LOADED, "")
    finally:
        (shared / ".oryxos").chmod(0o755)


def test_agents_that_cannot_be_listed(shared: Path) -> None:
    agents = make_ops(shared).parent.parent
    agents.chmod(0)
    try:
        refused(unprivileged(shared, "agents"), 3, agents, "permission denied")
        assert unprivileged(shared, "load", "-a", "ops").code == 3
    finally:
        agents.chmod(0o755)


@WRITING
def test_hard_linked_memory_cannot_be_written(command: tuple[str, ...], ops: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.md"
    os.link(ops, other)
    refused(memory(*command), 3, ops, "2 hard links")
    assert text(ops) == text(other) == OPS
    assert os.path.samefile(ops, other)
    assert not retired_file(ops).exists()
    assert memory("recall", "-a", "ops", "复核") == (0, f"{RELEASE}\n", "")


@pytest.mark.parametrize(
    "words", [("forget", "43d8"), ("clean", "--keep-entries", "0"), ("restore", "e76a")], ids=" ".join
)
def test_retired_file_with_hard_links_stops_a_change_before_it_begins(words: tuple[str, ...], ops: Path) -> None:
    memory("forget", "-a", "ops", "e76a")
    retired, before = retired_file(ops), text(ops)
    os.link(retired, ops.with_name("other.md"))
    kept = text(retired)
    refused(memory(*words, "-a", "ops"), 3, retired, "2 hard links")
    assert (text(ops), text(retired)) == (before, kept)
    assert memory("append", "-a", "ops", *AT, "还能写").code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("append", "--at", "0001-01-01T00:00:00+14:00", "x"),
        ("append", "--at", "9999-12-31T23:59:59-14:00", "x"),
        ("list", "--since", "99999999d"),
        ("clean", "--older-than", f"{'9' * 5000}d"),
        ("clean", "--older-than", f"{'9' * 500}d"),
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_times_outside_of_the_calendar(words: tuple[str, ...], ops: Path) -> None:
    refused(memory(*words, "-a", "ops"), 2, "not a time")
    assert text(ops) == OPS


@pytest.mark.parametrize("words", [("",), ("--run", "")], ids=["id", "run"])
def test_restore_of_an_empty_name(words: tuple[str, ...], ops: Path) -> None:
    """A variable that is not set is no wish for all that is lost."""
    memory("append", "-a", "ops", "lost")
    ops.write_text(OPS, encoding="utf-8")
    refused(memory("restore", "-a", "ops", *words), 2)
    assert text(ops) == OPS


def test_import_into_a_read_only_memory_writes_no_record(ops: Path, tmp_path: Path) -> None:
    memory("forget", "-a", "ops", "43d8")
    (tmp_path / "two.jsonl").write_text('{"content":"Use uv, not pip #tooling","time":"2026-07-22T09:31:00"}\n' * 2)
    kept = text(retired_file(ops))
    ops.chmod(0o444)
    refused(memory("import", "-a", "ops", str(tmp_path / "two.jsonl")), 3, ops, "mode 0444")
    assert text(retired_file(ops)) == kept


@WRITING
def test_link_inside_the_workspace_is_followed(command: tuple[str, ...], ops: Path, tmp_path: Path) -> None:
    kept = tmp_path / ".oryxos" / "knowledge" / "shared.md"
    kept.parent.mkdir()
    ops.rename(kept)
    ops.symlink_to("../../knowledge/shared.md")
    linked = memory(*command)
    assert linked.code == 0
    assert ops.is_symlink()
    assert os.readlink(ops) == "../../knowledge/shared.md"
    assert text(kept) != OPS
    assert memory("list", "-a", "ops").out == "".join(
        f"{line}\n" for line in text(kept).splitlines() if line.startswith("- ")
    )


def test_forget_and_restore_through_a_link(ops: Path, tmp_path: Path) -> None:
    kept = tmp_path / ".oryxos" / "knowledge" / "shared.md"
    kept.parent.mkdir()
    ops.rename(kept)
    ops.symlink_to(kept)
    assert memory("forget", "-a", "ops", "-q", "43d8").code == 0
    assert memory("list", "-a", "ops", "--retired").out == f"{UV}\n"
    assert memory("restore", "-a", "ops", "-q", "43d8").code == 0
    assert text(kept) == OPS


@pytest.mark.parametrize("command", [*READERS, *WRITERS], ids=" ".join)
def test_link_out_of_the_workspace_is_refused(command: tuple[str, ...], ops: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.md"
    ops.rename(outside)
    ops.symlink_to(outside)
    refused(memory(*command), 3, ops, "out of the workspace", outside)
    assert text(outside) == OPS
    assert ops.is_symlink()


def test_other_links_out_of_the_workspace_are_refused(ops: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    shutil.copytree(ops.parent, outside)
    (ops.parent.parent / "link").symlink_to(outside)
    for command in (("append", "-a", "link", "x"), ("load", "-a", "link"), ("forget", "-a", "link", "43d8")):
        refused(memory(*command), 3, "out of the workspace")
    assert text(outside / "MEMORY.md") == OPS
    assert [path.name for path in outside.iterdir()] == ["MEMORY.md"]

    (tmp_path / "retired.md").write_text("不是我们的\n", encoding="utf-8")
    retired_file(ops).symlink_to(tmp_path / "retired.md")
    refused(memory("forget", "-a", "ops", "43d8"), 3, "MEMORY.retired.md", "out of the workspace")
    assert text(tmp_path / "retired.md") == "不是我们的\n"
    assert text(ops) == OPS


def test_a_workspace_that_is_itself_a_link(ops: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / ".oryxos").rename(elsewhere)
    (tmp_path / ".oryxos").symlink_to(elsewhere)
    assert memory("append", "-a", "ops", *AT, "x") == (0, f"{STAMP} x\n", "")
    assert memory("forget", "-a", "ops", "-q", "43d8") == (0, "", "")
    assert memory("restore", "-a", "ops", "-q", "43d8", "--root", ".oryxos") == (0, "", "")
    assert text(elsewhere / "agents" / "ops" / "MEMORY.md") == f"{OPS}{STAMP} x\n"


@pytest.mark.parametrize("command", [*READERS, *WRITERS], ids=" ".join)
def test_dangling_link_is_refused(command: tuple[str, ...], ops: Path, tmp_path: Path) -> None:
    ops.unlink()
    target = tmp_path / ".oryxos" / "gone.md"
    ops.symlink_to(target)
    refused(memory(*command), 3, ops, target)
    assert ops.is_symlink()
    assert not target.exists()


def test_link_to_itself_is_refused(ops: Path) -> None:
    ops.unlink()
    ops.symlink_to(ops)
    for command in (("append", "-a", "ops", "x"), ("load", "-a", "ops"), ("forget", "-a", "ops", "43d8")):
        refused(memory(*command), 3, ops)
    assert ops.is_symlink()


CONFLICT = OPS.replace(f"{UV}\n", f"<<<<<<< HEAD\n{UV}\n=======\n- [2026-07-22 09:32:00] 用 poetry\n>>>>>>> theirs\n")


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_conflict_markers_are_kept_with_a_warning(newline: str, ops: Path) -> None:
    ops.write_bytes(CONFLICT.replace("\n", newline).encode())
    result = memory("append", "-a", "ops", *AT, "新")
    assert (result.code, result.out) == (0, f"{STAMP} 新\n")
    assert result.err.startswith(f"oryx: warning: {ops}: ")
    assert "conflict markers" in result.err
    assert result.err.count("\n") == 1
    assert text(ops) == (CONFLICT + f"{STAMP} 新\n").replace("\n", newline)


def test_conflict_markers_live_through_every_change(ops: Path) -> None:
    ops.write_text(CONFLICT, encoding="utf-8")
    for command in (
        ("forget", "-a", "ops", "a701", "-q"),
        ("edit", "-a", "ops", "43d8", "-q", "用 uv"),
        ("move", "-a", "ops", "e76a", "--scope", "archival", "-q"),
        ("clean", "-a", "ops", "-q"),
    ):
        result = memory(*command)
        assert (result.code, result.out) == (0, "")
        assert "conflict markers" in result.err
    kept = [line for line in text(ops).splitlines() if line[:1] in ("<", "=", ">")]
    assert kept == ["<<<<<<< HEAD", "=======", ">>>>>>> theirs"]


@READING
def test_readers_warn_of_conflict_markers(command: tuple[str, ...], ops: Path) -> None:
    ops.write_text(CONFLICT, encoding="utf-8")
    result = memory(*command)
    assert result.code == 0
    assert result.err.startswith(f"oryx: warning: {ops}: has git conflict markers")
    assert text(ops) == CONFLICT


@pytest.mark.parametrize("line", ["see <<<<<<< HEAD", "<<<<<<<HEAD", "<<<<<< HEAD"])
def test_other_lines_are_no_conflict(line: str, ops: Path) -> None:
    ops.write_text(f"{OPS}{line}\n", encoding="utf-8")
    assert memory("append", "-a", "ops", *AT, "x").err == ""
    assert memory("list", "-a", "ops").err == ""


def test_invalid_utf8_in_the_file_is_no_error(ops: Path) -> None:
    broken = OPS.encode() + b"- [2026-08-01 09:00:00] \xd6\xd0 gbk\n"
    ops.write_bytes(broken)
    assert memory("append", "-a", "ops", *AT, "x") == (0, f"{STAMP} x\n", "")
    assert ops.read_bytes() == broken + f"{STAMP} x\n".encode()
    result = memory("recall", "-a", "ops", "gbk")
    assert (result.code, result.out) == (0, "- [2026-08-01 09:00:00] \ufffd\ufffd gbk\n")
    assert result.err == f"oryx: warning: {ops}:7: invalid UTF-8, shown as \ufffd; the file keeps its bytes\n"
    assert memory("recall", "-a", "ops", "复核") == (0, f"{RELEASE}\n", "")
    assert memory("forget", "-a", "ops", "-q", "43d8").code == 0
    assert ops.read_bytes() == (broken + f"{STAMP} x\n".encode()).replace(f"{UV}\n".encode(), b"")


# memory.toml.

SETTINGS = {
    "unknown-key": ('[clean]\nolder_then = "90d"\n', ("clean.older_then", "did you mean clean.older_than?")),
    "unknown-table": ("[archive]\nmax_chars = 5\n", ("archive.max_chars", "did you mean archival.max_chars?")),
    "unknown-plain-key": ('bakend = "markdown"\n', ("bakend", "did you mean backend?")),
    "far-from-any": ('"完全不同" = 1\n', ("完全不同",)),
    "table-as-value": ("clean = 3\n", ("clean",)),
    "value-as-table": ('[backend]\nname = "markdown"\n', ("backend",)),
    "text-for-number": ('[archival]\nmax_chars = "4000"\n', ("archival.max_chars", "whole number", "text")),
    "truth-for-number": ("[archival]\nmax_chars = true\n", ("archival.max_chars", "whole number")),
    "fraction-for-number": ("[archival]\nmax_chars = 4.5\n", ("archival.max_chars", "whole number")),
    "zero": ("[archival]\nmax_chars = 0\n", ("archival.max_chars", "at least 1")),
    "number-for-span": ("[clean]\nolder_than = 90\n", ("clean.older_than", '"90d"')),
    "bad-span": ('[clean]\nolder_than = "90 days"\n', ("clean.older_than", "90 days")),
    "text-for-truth": ('[clean]\ndedupe = "no"\n', ("clean.dedupe", "true or false", "text")),
    "share-over-one": ("[clean]\nmax_share = 50\n", ("clean.max_share", "at most 1", "50")),
    "unknown-choice": ('[recall]\nmode = "fuzzy"\n', ("recall.mode", "keyword", "ranked", "fuzzy")),
    "list-for-text": ('backend = ["markdown"]\n', ("backend", "text", "list")),
    "unknown-zone": ('[time]\nzone = "Asia/Peking"\n', ("time.zone", "Asia/Peking")),
    "zone-outside": ('[time]\nzone = "/etc/passwd"\n', ("time.zone", "/etc/passwd")),
    "zone-number": ("[time]\nzone = 8\n", ("time.zone", "text")),
    "date-for-number": ("[core]\nmax_chars = 2026-08-01\n", ("core.max_chars", "whole number")),
    "not-toml": ("[clean]\n\nolder_than = 90d\n", ("valid TOML", "line 3", "column 16")),
    "unclosed-text": ('backend = "markdown\n', ("valid TOML", "line 1", "column 20")),
    "twice": ('backend = "markdown"\nbackend = "markdown"\n', ("valid TOML", "line 2")),
    "steering": ('"\\u001b]0;x\\u0007\\u202e" = 1\n', ("\\x1b]0;x\\x07\\u202e",)),
}


@pytest.mark.parametrize(("content", "fragments"), SETTINGS.values(), ids=list(SETTINGS))
def test_broken_settings(content: str, fragments: tuple[str, ...], ops: Path, tmp_path: Path) -> None:
    file = tmp_path / ".oryxos" / "memory.toml"
    file.write_text(content, encoding="utf-8")
    for command in (("append", "-a", "ops", "x"), ("load", "-a", "ops"), ("config", "show"), ("clean", "--all-agents")):
        refused(memory(*command), 3, file, *fragments)
    assert text(ops) == OPS


def test_broken_settings_are_told_once_by_the_overview(ops: Path, tmp_path: Path) -> None:
    file = tmp_path / ".oryxos" / "memory.toml"
    file.write_text("[clean]\nmax_chair = 1\n")
    for command in ((), ("agents", "--json")):
        refused(memory(*command), 3, file, "clean.max_chair", "did you mean clean.max_share?")


def test_settings_that_are_no_text(ops: Path, tmp_path: Path) -> None:
    file = tmp_path / ".oryxos" / "memory.toml"
    file.write_bytes(b'backend = "\xff"\n')
    refused(memory("append", "-a", "ops", "x"), 3, file, "UTF-8")
    file.unlink()
    file.mkdir()
    refused(memory("append", "-a", "ops", "x"), 3, file, "directory")
    assert text(ops) == OPS


def test_settings_that_cannot_be_read(shared: Path) -> None:
    ops = make_ops(shared)
    file = shared / ".oryxos" / "memory.toml"
    file.write_text("[core]\nmax_chars = 5\n")
    file.chmod(0)
    refused(unprivileged(shared, "append", "-a", "ops", "x"), 3, file, "permission denied")
    assert text(ops) == OPS


def test_broken_personal_settings_are_named(ops: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config" / "oryx-memory" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("[archival]\nmax_char = 5\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    refused(memory("append", "-a", "ops", "x"), 3, file, "did you mean archival.max_chars?")
    file.unlink()
    monkeypatch.setenv("ORYX_MEMORY_BACKEND", "sqllite")
    refused(memory("append", "-a", "ops", "x"), 3, "ORYX_MEMORY_BACKEND", "sqllite", "markdown")
    assert text(ops) == OPS


# The lock.


@pytest.fixture
def lock(ops: Path, tmp_path: Path) -> Path:
    """The lock file of ops."""
    path = Workspace(tmp_path / ".oryxos").lock_file(ops)
    path.parent.mkdir()
    return path


@pytest.mark.parametrize("seconds", ["0", "0.05"])
@WRITING
def test_lock_that_is_held(command: tuple[str, ...], seconds: str, ops: Path, lock: Path) -> None:
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        refused(memory(*command, "--lock-timeout", seconds), 5, lock, f"{seconds} s", "--lock-timeout")
        assert memory("load", "-a", "ops") == (0, LOADED, "")  # readers take no lock
        assert memory("append", "-a", "other", "-q", "x", "--lock-timeout", "0") == (0, "", "")
    assert text(ops) == OPS
    assert not retired_file(ops).exists()
    assert memory("append", "-a", "ops", "-q", *AT, "x", "--lock-timeout", "0") == (0, "", "")
    assert text(ops) == f"{OPS}{STAMP} x\n"


def test_two_links_to_one_file_share_its_lock(ops: Path, lock: Path) -> None:
    other = ops.parent.parent / "other"
    other.mkdir()
    (other / "MEMORY.md").symlink_to("../ops/MEMORY.md")
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        refused(memory("append", "-a", "other", "x", "--lock-timeout", "0"), 5, lock)


_STOP_AT_FSYNC = """
import os
fsync = os.fsync
def stopped(descriptor):
    os.fsync = fsync
    os.write(2, b"at fsync\\n")
    os.read(0, 1)
    fsync(descriptor)
os.fsync = stopped
"""


@pytest.mark.parametrize("command", [("append", "-a", "ops", *AT, "慢"), ("forget", "-a", "ops", "43d8")], ids=" ".join)
@pytest.mark.parametrize("again", [("append", "-a", "ops", *AT, "快"), ("forget", "-a", "ops", "a701")], ids=" ".join)
def test_lock_file_deleted_while_it_is_held(
    command: tuple[str, ...], again: tuple[str, ...], ops: Path, lock: Path, tmp_path: Path
) -> None:
    """Two writers are inside at once then, and still neither loses the other's work."""
    child = subprocess.Popen(
        after(_STOP_AT_FSYNC, "memory", *command, "-q"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    )
    with child:
        assert child.stderr is not None
        assert child.stderr.readline() == b"at fsync\n"
        lock.unlink()
        second = memory(*again, "-q")
        out, err = child.communicate(b"\n", timeout=PATIENCE)
    assert second == (0, "", "")
    first = checked(child.returncode, out, err)
    if first != (0, "", ""):
        refused(first, 3, "lock")  # it may give up, if it says why; then it has done nothing
    done = [by for by, code in ((command, first.code), (again, second.code)) if code == 0]
    out_of_sight = [{"43d8": UV, "a701": RELEASE}[by[-1]] for by in done if by[0] == "forget"]
    added = [f"{STAMP} {by[-1]}" for by in done if by[0] == "append"]
    live = [line for line in (FRIDAY, RELEASE, UV) if line not in out_of_sight] + added
    assert sorted(memory("list", "-a", "ops").out.splitlines()) == sorted(live)
    assert sorted(memory("list", "-a", "ops", "--retired").out.splitlines()) == sorted(out_of_sight)
    assert list(tmp_path.rglob("*.oryx-tmp")) == []


def test_lock_that_is_a_link_or_a_folder(ops: Path, lock: Path, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("keep me")
    lock.symlink_to(target)
    refused(memory("append", "-a", "ops", "x"), 3, lock)
    assert target.read_text() == "keep me"
    lock.unlink()
    lock.mkdir()
    refused(memory("append", "-a", "ops", "x"), 3, lock)
    assert text(ops) == OPS


# The disk.


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "none", str(disk)]
    if (
        os.geteuid() != 0
        or not shutil.which("mount")
        or subprocess.run(mount, capture_output=True, check=False).returncode
    ):
        pytest.skip("mounting is not allowed here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_full_disk(tiny_disk: Path) -> None:
    ops = make_ops(tiny_disk)
    root = ("--root", str(tiny_disk))
    ballast = tiny_disk / "ballast"
    ballast.write_bytes(bytes(8192))
    acknowledged = OPS
    for number in range(100):
        result = memory("append", "-a", "ops", *AT, f"{number} {'满' * 1000}", *root)
        if result.code:
            break
        acknowledged += result.out
    refused(result, 3, ops, "no space left")
    assert number > 3
    assert text(ops) == acknowledged
    assert memory("load", "-a", "ops", "--full", *root) == (0, acknowledged.replace("\n\n", "\n"), "")
    for command in (
        ("forget", "-a", "ops", "43d8"),
        ("clean", "-a", "ops", "--keep-entries", "1"),
        ("append", "-a", "new", "满" * 5000),
    ):
        refused(memory(*command, *root), 3, "no space left")
        assert text(ops) == acknowledged
    assert list(tiny_disk.rglob("*.oryx-tmp")) == []
    nothing_is_out(tiny_disk)

    ballast.unlink()
    result = memory("append", "-a", "ops", *AT, "又有地方了", *root)
    assert result == (0, f"{STAMP} 又有地方了\n", "")
    assert text(ops) == f"{acknowledged}{STAMP} 又有地方了\n"


def test_write_that_is_cut_short(ops: Path, tmp_path: Path) -> None:
    """A limit on the size of files does to a write what a full disk does: it takes a part of it."""
    start = OPS + "".join(f"- [2026-07-23 09:30:{n:02}] {'x' * 60}\n" for n in range(8))
    ops.write_text(start, encoding="utf-8")
    assert 512 < len(start.encode()) < 1024
    limited = 'ulimit -f 1; exec "$@"'
    for command in (("append", "-a", "ops", "长" * 300), ("append", "-a", "ops", "--scope", "core", "长" * 300)):
        result = real(["bash", "-c", limited, "bash", ORYX, "memory", *command], cwd=tmp_path)
        refused(result, 3, ops)
        assert text(ops) == start
        assert list(tmp_path.rglob("*.oryx-tmp")) == []
    assert memory("append", "-a", "ops", *AT, "x").code == 0
    assert text(ops) == f"{start}{STAMP} x\n"


_FAIL = """
import errno, os
real, left = os.{name}, [{count}]
def failing(*arguments, **options):
    left[0] -= 1
    if left[0] == 0:
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return real(*arguments, **options)
os.{name} = failing
"""


@pytest.mark.parametrize(
    "command", [("append", "-a", "ops", *AT, "x"), ("append", "-a", "new", *AT, "x")], ids=" ".join
)
def test_eio_at_the_fsync_of_an_append(command: tuple[str, ...], ops: Path, tmp_path: Path) -> None:
    result = real(after(_FAIL.format(name="fsync", count=1), "memory", *command), cwd=tmp_path)
    refused(result, 3, "MEMORY.md", "input/output error")
    assert text(ops) == OPS
    assert not (ops.parent.parent / "new" / "MEMORY.md").exists()
    assert list(tmp_path.rglob("*.oryx-tmp")) == []
    assert memory(*command, "-q") == (0, "", "")
    assert memory("recall", *command[1:3], "x").out == f"{STAMP} x\n"


@pytest.mark.parametrize("count", range(1, 7))
@pytest.mark.parametrize(
    "command",
    [
        ("forget", "-a", "ops", "43d8"),
        ("clean", "-a", "ops", "--keep-entries", "1"),
        ("edit", "-a", "ops", "43d8", "用 uv"),
        ("move", "-a", "ops", "43d8", "--scope", "core"),
        ("append", "-a", "ops", *AT, "--key", "release_rule", "三人"),
    ],
    ids=" ".join,
)
def test_eio_at_any_fsync_of_a_rewrite(command: tuple[str, ...], count: int, ops: Path, tmp_path: Path) -> None:
    """Nothing is acknowledged, and every line that stood there is live or retired, once."""
    result = real(after(_FAIL.format(name="fsync", count=count), "memory", *command, "-q"), cwd=tmp_path)
    if result.code == 0:
        return  # it makes fewer than that
    refused(result, 3, "input/output error")
    live = memory("list", "-a", "ops").out.splitlines()
    out = memory("list", "-a", "ops", "--retired").out.splitlines()
    for line in (FRIDAY, RELEASE, UV):
        assert (live + out).count(line) == 1, (live, out)
    assert list(tmp_path.rglob("*.oryx-tmp")) == []
    assert memory("append", "-a", "ops", *AT, "-q", "后来").code == 0
    assert text(ops).endswith(f"{STAMP} 后来\n")


@pytest.mark.parametrize(("name", "count"), [("write", 2), ("pread", 1), ("ftruncate", 1), ("pwrite", 1)])
def test_eio_elsewhere(name: str, count: int, ops: Path, tmp_path: Path) -> None:
    """The first write of an append is a mark in the journal, which may fail."""
    for command in (("append", "-a", "ops", *AT, "x"), ("forget", "-a", "ops", "43d8")):
        ops.write_text(OPS, encoding="utf-8")
        result = real(after(_FAIL.format(name=name, count=count), "memory", *command), cwd=tmp_path)
        if result.code:
            refused(result, 3, "input/output error")
            assert text(ops) == OPS
        else:
            assert command[0] == "forget", "an append makes each of these calls"
    nothing_is_out(tmp_path)
