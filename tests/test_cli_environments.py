"""The real programs in environments that others forget, and on a terminal."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from command import (
    AT,
    FRIDAY,
    FRIDAY_ID,
    LOADED,
    NOBODY,
    OPS,
    ORYX,
    PATIENCE,
    RELEASE,
    RELEASE_ID,
    STAMP,
    UV,
    UV_ID,
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

from oryx_memory import Entry, Workspace

NO_SUCH_USER = 54321
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def ops(tmp_path: Path) -> Path:
    """MEMORY.md of the agent ops in the workspace of tmp_path."""
    return make_ops(tmp_path)


@pytest.fixture
def shared(shared: Path) -> Path:
    """A folder that every user can reach, with a `.git` that ends a walk upward."""
    (shared / ".git").mkdir()
    return shared


def give(folder: Path, uid: int) -> None:
    """Make a folder and all that is in it belong to a user."""
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, uid, uid)


def one_line(result: Result, code: int, *fragments: str) -> None:
    """The result is an error: nothing on standard output, one line that says these things."""
    assert (result.code, result.out) == (code, ""), result
    assert result.err.startswith("oryx: ")
    assert result.err.count("\n") == 1
    for fragment in fragments:
        assert fragment in result.err


BARE: dict[str, dict[str, str]] = {
    "env-i": {},
    "LC_ALL=C": {"LC_ALL": "C", "TERM": "dumb", "PYTHONIOENCODING": "ascii:strict"},
    "PYTHONIOENCODING=gbk": {"PYTHONIOENCODING": "gbk"},
    "PYTHONWARNINGS=error": {"PYTHONWARNINGS": "error"},
    "forced-colour": {"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "TTY_COMPATIBLE": "1", "COLUMNS": "20"},
}


@pytest.mark.parametrize("variables", BARE.values(), ids=list(BARE))
def test_bare_environment(variables: dict[str, str], ops: Path, tmp_path: Path) -> None:
    """Only PATH and what is named: the same bytes everywhere, UTF-8 in and out."""
    env = {"PATH": os.environ["PATH"], **variables}

    def oryx(*arguments: str, stdin: bytes = b"") -> Result:
        return real([ORYX, "memory", *arguments], env=env, cwd=tmp_path, stdin=stdin)

    assert oryx("load", "-a", "ops") == (0, LOADED, "")
    assert oryx("recall", "-a", "ops", "复核") == (0, f"{RELEASE}\n", "")
    assert oryx("append", "-a", "ops", *AT, "先备份 🚀", "--tag", "流程") == (0, f"{STAMP} 先备份 🚀 #流程\n", "")
    assert oryx("append", "-a", "ops", *AT, stdin="从管道".encode()) == (0, f"{STAMP} 从管道\n", "")
    assert ops.read_bytes().decode() == f"{OPS}{STAMP} 先备份 🚀 #流程\n{STAMP} 从管道\n"
    assert oryx("forget", "-a", "ops", "-q", "43d8") == (0, "", "")
    assert oryx("restore", "-a", "ops", "-q", "43d8") == (0, "", "")
    assert ops.read_bytes().decode() == f"{OPS}{STAMP} 先备份 🚀 #流程\n{STAMP} 从管道\n"
    listed = oryx("list", "-a", "ops", "--json", "-n", "1")
    assert (listed.code, listed.err) == (0, "")
    assert '"content":"从管道"' in listed.out
    assert oryx("agents") == (0, "ops\n", "")
    one_line(oryx("append", "-a", "天气", "x"), 2, "'天气'")
    one_line(oryx("recall", "-a", "ops", "没有"), 1, "'没有'")
    ops.write_bytes(OPS.encode() + b"<<<<<<< HEAD\n- \xff\n")
    warned = oryx("load", "-a", "ops")
    assert (warned.code, warned.out) == (0, f"{LOADED}<<<<<<< HEAD\n- \ufffd\n")
    assert warned.err.count("oryx: warning: ") == 2


@pytest.mark.parametrize("start", [[ORYX], [sys.executable, "-m", "oryx_memory"]], ids=["oryx", "python -m"])
def test_a_locale_without_utf8(start: list[str], tmp_path: Path) -> None:
    """Texts, paths and revisions are UTF-8 where Python itself would not take them for it."""
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"}

    def oryx(*arguments: str, stdin: bytes = b"") -> Result:
        command = start if start != [ORYX] else [ORYX, "memory"]
        return real([*command, *arguments], env=env, cwd=tmp_path, stdin=stdin)

    make_ops(tmp_path / "中文w")
    assert oryx("append", "-a", "ops", *AT, "从参数", "--root", "中文w").out == f"{STAMP} 从参数\n"
    assert oryx("append", "-a", "ops", *AT, "--root", "中文w", stdin="从管道".encode()).out == f"{STAMP} 从管道\n"
    assert oryx("recall", "-a", "ops", "从", "--root", "中文w").out == f"{STAMP} 从参数\n{STAMP} 从管道\n"
    assert oryx("check", "中文w/.oryxos/agents/ops/MEMORY.md") == (0, "", "")
    one_line(oryx("list", "--root", "没有"), 3, "没有")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    one_line(oryx("diff", "没有这个", "--root", "中文w"), 2, "'没有这个'")


def test_help_in_a_bare_environment(tmp_path: Path) -> None:
    for arguments in (["--help"], ["memory", "--help"], ["memory", "append", "--help"]):
        result = real([ORYX, *arguments], env={"PATH": os.environ["PATH"], "LC_ALL": "C"}, cwd=tmp_path)
        assert (result.code, result.err) == (0, "")
        assert result.out.startswith("Usage: oryx")
        assert ("上线前必须两人复核" in result.out) == ("append" in arguments)


@AS_ROOT
def test_no_home_and_an_unknown_user(shared: Path) -> None:
    ops = make_ops(shared)
    give(shared, NO_SUCH_USER)

    def oryx(*arguments: str) -> Result:
        return real(as_user(NO_SUCH_USER, "memory", *arguments), env={"PATH": os.environ["PATH"]}, cwd=shared)

    assert oryx("recall", "-a", "ops", "复核") == (0, f"{RELEASE}\n", "")
    assert oryx("append", "-a", "ops", *AT, "新规则") == (0, f"{STAMP} 新规则\n", "")
    assert oryx("forget", "-a", "ops", "-q", "43d8") == (0, "", "")
    assert ops.read_text(encoding="utf-8") == f"{OPS}{STAMP} 新规则\n".replace(f"{UV}\n", "")
    assert oryx("config", "show").code == 0
    one_line(oryx("load", "--user"), 3, "--user", "home")
    one_line(oryx("load", "-a", "nobody"), 3, "no agent nobody")


@pytest.mark.parametrize("home", ["", "relative", "/nonexistent/home"])
def test_odd_homes(home: str, ops: Path, tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": home}
    assert real([ORYX, "memory", "recall", "-a", "ops", "复核"], env=env, cwd=tmp_path) == (0, f"{RELEASE}\n", "")
    assert real([ORYX, "memory", "load", "--user"], env=env, cwd=tmp_path / ".oryxos").code == 3


def in_deleted_folder(arguments: list[str], folder: Path, **variables: str) -> Result:
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    return real(["bash", "-c", script, "bash", ORYX, *arguments], env=with_path(**variables), cwd=folder)


@pytest.mark.parametrize(
    "arguments",
    [["memory"], ["memory", "load", "-a", "ops"], ["memory", "append", "x"], ["memory", "agents"], ["memory", "init"]],
    ids=" ".join,
)
def test_deleted_working_directory_is_an_error(arguments: list[str], ops: Path, tmp_path: Path) -> None:
    result = in_deleted_folder(arguments, tmp_path)
    assert (result.code, result.out) == (3, "")
    assert "working directory" in result.err
    assert "--root" in result.err
    assert ops.read_text(encoding="utf-8") == OPS


@pytest.mark.parametrize("arguments", [["load"], ["append", "x"], ["init"]], ids=" ".join)
def test_relative_root_from_a_deleted_working_directory(arguments: list[str], ops: Path, tmp_path: Path) -> None:
    result = in_deleted_folder(["memory", *arguments, "--root", "project"], tmp_path)
    one_line(result, 3, "working directory")


def test_deleted_working_directory_does_not_matter_where_a_root_is_named(ops: Path, tmp_path: Path) -> None:
    root = str(tmp_path)
    assert in_deleted_folder(["memory", "load", "-a", "ops", "--root", root], tmp_path) == (0, LOADED, "")
    assert in_deleted_folder(["memory", "load", "-a", "ops"], tmp_path, ORYXOS_ROOT=root) == (0, LOADED, "")
    assert in_deleted_folder(["memory", "append", "-a", "ops", "-q", *AT, "x", "--root", root], tmp_path).code == 0
    assert ops.read_text(encoding="utf-8") == f"{OPS}{STAMP} x\n"
    assert in_deleted_folder(["--version"], tmp_path).code == 0
    assert in_deleted_folder(["memory", "append", "--help"], tmp_path).code == 0
    assert in_deleted_folder(["memory", "completion", "bash"], tmp_path).code == 0
    assert in_deleted_folder(["memory", "init", "-q", "--root", f"{root}/new"], tmp_path).code == 0
    assert (tmp_path / "new" / ".oryxos" / "agents").is_dir()


@pytest.mark.parametrize("below", ["", "inner"], ids=["itself", "what-holds-it"])
def test_unreadable_working_directory(below: str, shared: Path) -> None:
    ops = make_ops(shared / "elsewhere")
    shut = shared / "shut"
    here = shut / below
    here.mkdir(parents=True)
    give(shared, NOBODY)
    stand = f"import os\nos.chdir({str(here)!r})\nos.chmod({str(shut)!r}, 0)"

    def oryx(*arguments: str) -> Result:
        child = as_user(NOBODY, "memory", *arguments, prelude=stand)
        try:
            return real(child, env={"PATH": os.environ["PATH"]}, cwd=shared)
        finally:
            shut.chmod(0o755)

    one_line(oryx("load", "-a", "ops"), 3, "--root")
    one_line(oryx("append", "x"), 3, "--root")
    one_line(oryx("init"), 3, "permission denied")
    root = str(shared / "elsewhere")
    assert oryx("append", "-a", "ops", *AT, "x", "--root", root) == (0, f"{STAMP} x\n", "")
    assert ops.read_text(encoding="utf-8") == f"{OPS}{STAMP} x\n"
    assert list(here.iterdir()) == []


@AS_ROOT
def test_a_workspace_of_another_owner_must_be_named(shared: Path) -> None:
    make_ops(shared)
    give(shared, NOBODY)
    one_line(real([ORYX, "memory", "load", "-a", "ops"], cwd=shared), 3, "belongs to user", f"--root {shared}/.oryxos")
    named = real([ORYX, "memory", "load", "-a", "ops", "--root", "."], cwd=shared)
    assert named == (0, LOADED, "")
    assert real([ORYX, "memory", "load", "-a", "ops"], env=with_path(SUDO_UID=str(NOBODY)), cwd=shared) == named
    other = real(as_user(NO_SUCH_USER, "memory", "load", "-a", "ops"), env=with_path(SUDO_UID=str(NOBODY)), cwd=shared)
    one_line(other, 3, "belongs to user")


@AS_ROOT
def test_what_root_makes_belongs_to_the_owner_of_the_workspace(shared: Path) -> None:
    """A cron job of root must not shut the owner out."""
    ops = make_ops(shared)
    give(shared, NOBODY)
    for command in (["append", "-a", "ops", "x"], ["append", "-a", "new", "x"], ["forget", "-a", "ops", "43d8"]):
        assert real([ORYX, "memory", *command, "-q", "--root", "."], cwd=shared) == (0, "", "")
    assert ops.stat().st_uid == NOBODY
    owners = {str(path.relative_to(shared)): path.stat().st_uid for path in (shared / ".oryxos").rglob("*")}
    assert set(owners.values()) == {NOBODY}, owners
    for command in (["append", "-a", "new", "y"], ["restore", "-a", "ops", "43d8"], ["append", "-a", "third", "z"]):
        owner = real(as_user(NOBODY, "memory", *command, "-q"), env={"PATH": os.environ["PATH"]}, cwd=shared)
        assert owner == (0, "", "")


def test_reading_needs_no_right_to_write(shared: Path) -> None:
    ops = make_ops(shared)
    for folder in (ops.parent, ops.parent.parent, shared / ".oryxos"):
        folder.chmod(0o555)
    try:
        for command in (
            ["load", "-a", "ops"],
            ["list", "-a", "ops", "--retired"],
            ["stats", "-a", "ops"],
            ["clean", "-a", "ops", "--dry-run", "-q"],
            ["agents"],
        ):
            result = real(as_user(NOBODY, "memory", *command, "--root", "."), env=with_path(), cwd=shared)
            assert (result.code, result.err) == (0, ""), command
        one_line(
            real(as_user(NOBODY, "memory", "append", "-a", "ops", "x", "--root", "."), env=with_path(), cwd=shared),
            3,
            "permission denied",
        )
        assert ops.read_text(encoding="utf-8") == OPS
        assert not (shared / ".oryxos" / ".locks").exists()
    finally:
        for folder in (shared / ".oryxos", ops.parent.parent, ops.parent):
            folder.chmod(0o755)


def redirected(arguments: list[str], redirections: str, folder: Path) -> Result:
    return real(["bash", "-c", f'exec "$@" {redirections}', "bash", ORYX, "memory", *arguments], cwd=folder)


def test_standard_input_closed(ops: Path, tmp_path: Path) -> None:
    assert redirected(["append", "-a", "ops", *AT, "关着"], "<&-", tmp_path) == (0, f"{STAMP} 关着\n", "")
    assert redirected(["load", "-a", "ops", "--scope", "core"], "<&-", tmp_path) == (0, f"{FRIDAY}\n", "")
    for command in (["append", "-a", "ops"], ["append", "-a", "ops", "-"], ["edit", "-a", "ops", "43d8"]):
        one_line(redirected(command, "<&-", tmp_path), 2, "no text", "closed")
    assert ops.read_text(encoding="utf-8") == f"{OPS}{STAMP} 关着\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["append", "-a", "ops", "x"],
        ["recall", "-a", "ops", "uv"],
        ["edit", "-a", "ops", "43d8", "y"],
        ["forget", "-a", "ops", "43d8"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_standard_input_open_and_silent(arguments: list[str], ops: Path, tmp_path: Path) -> None:
    """Nobody writes and nobody closes: what has its text must not wait for more."""
    child = subprocess.Popen(
        [ORYX, "memory", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    )
    with child:
        try:
            assert child.wait(PATIENCE) == 0
        finally:
            child.kill()


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_never_end_in_a_file(closed: str, ops: Path, tmp_path: Path) -> None:
    """The next file opened would get the number of a closed stream, and be printed into."""
    conflict = "<<<<<<< HEAD\n"
    ops.write_text(OPS + conflict, encoding="utf-8")  # so that there is something to warn about
    assert redirected(["append", "-a", "ops", *AT, "一"], closed, tmp_path).code == 0
    assert redirected(["append", "-a", "ops", *AT, "--key", "rule", "二"], closed, tmp_path).code == 0
    assert ops.read_text(encoding="utf-8") == f"{OPS}{conflict}{STAMP} 一\n{STAMP} 二 ^rule\n"
    assert redirected(["forget", "-a", "ops", "43d8"], closed, tmp_path).code == 0
    assert ops.read_text(encoding="utf-8") == f"{OPS}{conflict}{STAMP} 一\n{STAMP} 二 ^rule\n".replace(f"{UV}\n", "")
    assert retired_file(ops).read_text(encoding="utf-8").count("\n") == 1
    assert redirected(["load", "-a", "nobody"], closed, tmp_path).code == 3
    for command in (["load", "-a", "ops"], ["--help"], ["completion", "bash"]):
        result = redirected(command, closed, tmp_path)
        assert result.code in (0, 3)
    (lock,) = (tmp_path / ".oryxos" / ".locks").glob("*.lock")
    assert lock.read_bytes() == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    "arguments",
    [
        ["load", "-a", "ops"],
        ["export", "-a", "ops", "--format", "jsonl"],
        ["append", "--help"],
        ["completion", "bash"],
        [],
    ],
    ids=lambda arguments: " ".join(arguments) or "overview",
)
def test_a_full_standard_output_is_an_error(arguments: list[str], ops: Path, tmp_path: Path) -> None:
    result = redirected(arguments, ">/dev/full", tmp_path)
    assert result.code == 3
    assert "oryx: standard output: no space left on device\n" in result.err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_an_append_whose_echo_fails_is_stored_once(ops: Path, tmp_path: Path) -> None:
    result = redirected(["append", "-a", "ops", *AT, "存下了"], ">/dev/full", tmp_path)
    assert result.code == 3
    assert result.err.count("\n") == 1
    assert redirected(["append", "-a", "ops", *AT, "-q", "安静"], ">/dev/full", tmp_path) == (0, "", "")
    assert ops.read_text(encoding="utf-8") == f"{OPS}{STAMP} 存下了\n{STAMP} 安静\n"


def to_nobody(arguments: list[str], folder: Path, stream: str = "stdout") -> Result:
    """A command whose standard output (or error) is a pipe that nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: writer}
    try:
        child = subprocess.Popen([ORYX, "memory", *arguments], stdin=subprocess.DEVNULL, cwd=folder, **streams)
    finally:
        os.close(writer)
    out, err = child.communicate(timeout=PATIENCE)
    return checked(child.returncode, out or b"", err or b"")


def test_a_reader_that_has_gone_is_no_error(ops: Path, tmp_path: Path) -> None:
    many = "".join(f"- [2026-07-23 09:{n // 60:02}:{n % 60:02}] 记录 entry {n}\n" for n in range(2000))
    ops.write_text(OPS + many, encoding="utf-8")
    for command in (
        ["load", "--full"],
        ["list"],
        ["export", "--format", "jsonl"],
        ["recall", "记录"],
        ["stats"],
        ["path"],
    ):
        assert to_nobody([*command, "-a", "ops", "-q"], tmp_path) == (0, "", ""), command
    assert to_nobody(["append", "-a", "ops", *AT, "存下了"], tmp_path) == (0, "", "")
    assert ops.read_text(encoding="utf-8") == f"{OPS}{many}{STAMP} 存下了\n"


def test_a_reader_of_the_help_that_has_gone_is_no_error(tmp_path: Path) -> None:
    for command in (["append", "--help"], ["completion", "bash"], ["--version"]):
        assert to_nobody(command, tmp_path) == (0, "", ""), command


def test_a_reader_that_has_gone_changes_no_exit_code(ops: Path, tmp_path: Path) -> None:
    assert to_nobody(["recall", "-a", "ops", "没有"], tmp_path).code == 1
    assert to_nobody(["recall", "-a", "ops", "--json", "没有"], tmp_path).code == 1
    assert to_nobody(["recall", "-a", "ops", "--count", "没有"], tmp_path).code == 1
    assert to_nobody(["load", "-a", "nobody"], tmp_path, "stderr").code == 3
    assert to_nobody(["remember"], tmp_path, "stderr").code == 2


def test_a_reader_that_has_gone_stops_no_clean_up(ops: Path, tmp_path: Path) -> None:
    """`clean --all-agents | head -1` cleans every agent, and says how to undo it."""
    many = "".join(f"- [2026-07-23 09:30:00] {'重复' * 20} {n % 300}\n" for n in range(500))
    files = [tmp_path / ".oryxos" / "agents" / name / "MEMORY.md" for name in ("a", "b")]
    for file in files:
        file.parent.mkdir()
        file.write_text(f"## 归档记忆\n{many}", encoding="utf-8")
    result = to_nobody(["clean", "--all-agents"], tmp_path)
    assert [file.read_bytes().count(b"\n") for file in files] == [301, 301]
    assert len(re.findall(r"undo: oryx memory restore -a [ab] --run ", result.err)) == 2
    assert result.code == 0


NOT_UTF8 = b"\xff\xfe"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([b"append", b"-a", b"ops", NOT_UTF8], 2),
        ([b"append", b"-a", NOT_UTF8, b"x"], 2),
        ([b"append", b"-a", b"ops", b"--tag", NOT_UTF8, b"x"], 2),
        ([b"append", b"-a", b"ops", b"--key", NOT_UTF8, b"x"], 2),
        ([b"append", b"-a", b"ops", b"--at", NOT_UTF8, b"x"], 2),
        ([b"append", b"-a", b"ops", NOT_UTF8, b"x"], 2),
        ([b"edit", b"-a", b"ops", b"43d8", NOT_UTF8], 2),
        ([b"recall", b"-a", b"ops", NOT_UTF8], 1),
        ([b"recall", b"-a", b"ops", b"--mode", NOT_UTF8, b"x"], 2),
        ([b"list", b"-a", b"ops", b"--since", NOT_UTF8], 2),
        ([b"clean", b"-a", b"ops", b"--older-than", NOT_UTF8], 2),
        ([b"show", b"-a", b"ops", NOT_UTF8], 2),
        ([b"show", b"-a", b"ops", b"^" + NOT_UTF8], 1),
        ([b"restore", b"-a", b"ops", b"--run", NOT_UTF8], 1),
        ([b"load", b"--root", NOT_UTF8], 3),
        ([b"load", b"--backend", NOT_UTF8], 2),
        ([b"load", b"--" + NOT_UTF8], 2),
        ([NOT_UTF8], 2),
        ([b"completion", NOT_UTF8], 2),
    ],
    ids=lambda value: b" ".join(value).decode(errors="replace") if isinstance(value, list) else "",
)
def test_arguments_that_are_not_utf8(arguments: list[bytes], code: int, ops: Path, tmp_path: Path) -> None:
    one_line(real([ORYX, b"memory", *arguments], cwd=tmp_path), code)
    assert ops.read_text(encoding="utf-8") == OPS
    assert [path.name for path in ops.parent.parent.iterdir()] == ["ops"]


def test_a_workspace_whose_path_is_not_utf8(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff\xfe"
    try:
        os.mkdir(folder)
    except OSError:
        pytest.skip("this file system takes no such names")
    done = subprocess.run(
        [ORYX, "memory", "init", "-q"], cwd=folder, capture_output=True, check=False, timeout=PATIENCE
    )
    assert (done.returncode, done.stderr) == (0, b"")
    for arguments in (
        ["append", "-a", "ops", "-q", "x"],
        ["forget", "-a", "ops", "-q", "^none"],
        ["list", "-a", "ops"],
    ):
        done = subprocess.run(
            [ORYX, "memory", *arguments], cwd=folder, capture_output=True, check=False, timeout=PATIENCE
        )
        assert done.returncode == (1 if "^none" in arguments else 0)
        assert b"Traceback" not in done.stderr
    done = subprocess.run(
        [ORYX, "memory", "path", "-a", "ops"], cwd=folder, capture_output=True, check=False, timeout=PATIENCE
    )
    assert done.stdout == folder + b"/.oryxos/agents/ops/MEMORY.md\n"  # the bytes that open it


# Ctrl-C. The children say when they have come to the place, so nothing waits for luck.

_SAY_WHEN_WAITING = """
import fcntl, os
take = fcntl.flock
def flock(descriptor, operation):
    try:
        return take(descriptor, operation)
    except BlockingIOError:
        os.write(2, b"waiting\\n")
        fcntl.flock = take
        raise
fcntl.flock = flock
"""


@pytest.fixture
def held(ops: Path, tmp_path: Path) -> Iterator[Path]:
    """The lock of ops, held by this process."""
    path = Workspace(tmp_path / ".oryxos").lock_file(ops)
    path.parent.mkdir()
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield path


@pytest.mark.parametrize(
    "arguments", [["append", "-a", "ops", "x"], ["forget", "-a", "ops", "43d8"], ["clean", "-a", "ops"]]
)
def test_interrupted_while_it_waits_for_the_lock(arguments: list[str], ops: Path, held: Path, tmp_path: Path) -> None:
    child = subprocess.Popen(
        after(_SAY_WHEN_WAITING, "memory", *arguments, "--lock-timeout", str(PATIENCE)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    )
    with child:
        assert child.stderr is not None
        assert child.stderr.readline() == b"waiting\n"
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=PATIENCE)
    assert checked(child.returncode, out, err) == (130, "", "oryx: interrupted\n")
    assert ops.read_text(encoding="utf-8") == OPS
    assert not retired_file(ops).exists()


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="only Linux tells that a process waits for input")
def test_interrupted_while_it_reads_standard_input(ops: Path, tmp_path: Path) -> None:
    child = subprocess.Popen(
        [ORYX, "memory", "append", "-a", "ops"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    )
    with child:
        assert child.stdin is not None
        child.stdin.write(b"x")
        child.stdin.flush()
        while child.poll() is None and not _waits_for_more(child.pid, child.stdin.fileno()):
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        code = child.wait(PATIENCE)
        assert child.stdout is not None
        assert child.stderr is not None
        result = checked(code, child.stdout.read(), child.stderr.read())
    assert result == (130, "", "oryx: interrupted\n")
    assert ops.read_text(encoding="utf-8") == OPS


def _waits_for_more(process: int, pipe: int) -> bool:
    """The process has emptied its pipe and sleeps: a signal finds it in the system call that reads."""
    left = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]
    return left == 0 and Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "S"


_INTERRUPT = """
import os
real, left = os.{name}, [{count}]
def interrupted(*arguments, **options):
    left[0] -= 1
    if left[0] == 0:
        raise KeyboardInterrupt
    return real(*arguments, **options)
os.{name} = interrupted
"""


CALLS = [("fsync", n) for n in (1, 2, 3, 4)] + [("ftruncate", n) for n in (1, 2, 3)] + [("open", n) for n in (1, 2, 3)]
CALLS += [
    ("write", 1),
    ("write", 2),
    ("pwrite", 1),
    ("pread", 1),
    ("pread", 2),
    ("fstat", 1),
    ("fstat", 5),
    ("close", 1),
]


@pytest.mark.parametrize(("name", "count"), CALLS, ids=str)
@pytest.mark.parametrize("command", ["append", "forget"])
def test_interrupted_anywhere(command: str, name: str, count: int, ops: Path, tmp_path: Path) -> None:
    """In the middle of any system call: no traceback, nothing lost, and the next command finds all in order."""
    done = ["append", "-a", "ops", *AT, "x"] if command == "append" else ["forget", "-a", "ops", "43d8"]
    result = real(after(_INTERRUPT.format(name=name, count=count), "memory", *done), cwd=tmp_path)
    added = f"{STAMP} x\n"
    root = ("--root", str(tmp_path))
    now = ops.read_bytes().decode()
    if result.code == 0:  # there are fewer such calls
        assert now == (OPS + added if command == "append" else OPS.replace(f"{UV}\n", ""))
        return
    assert result.code == 130
    assert result.err in ("", "oryx: interrupted\n")  # other tests ask for the line
    if command == "append":
        assert now in (OPS, OPS + added)
    else:
        assert now in (OPS, OPS.replace(f"{UV}\n", ""))
        if now != OPS:
            assert memory("list", "-a", "ops", "--retired", *root) == (0, f"{UV}\n", "")
    assert memory("append", "-a", "ops", *AT, "-q", "后来", *root) == (0, "", "")
    assert ops.read_bytes().decode() == f"{now}{STAMP} 后来\n"
    assert list(tmp_path.rglob("*.oryx-tmp")) == []


# On a terminal.

_OURS = re.compile(r"\x1b\[(?:[0-9;]*m|\?25[hl]|[12]K|1A)")  # colours, and what a progress bar needs, are ours to send
_RAW = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
EVIL = "\x1b]0;pwned\x07 \x1b[38;5;201m \x1b[2J \x9b31m \u202egnp.exe\u202c \u2066x\u2069 \u200f \x08 \x00"


def terminal(
    arguments: list[str],
    folder: Path,
    *,
    columns: int = 80,
    env: Mapping[str, str] | None = None,
    talk: bool = True,
    program: Sequence[str] = (ORYX, "memory"),
) -> tuple[int, str]:
    """Run a command on a terminal of its own; its exit code and what the terminal got, colours included.

    Without `talk`, standard error goes elsewhere: no progress bar meets the data, however slow this machine is.
    """
    master, slave = pty.openpty()
    try:
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        child = subprocess.Popen(
            [*program, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave if talk else subprocess.DEVNULL,
            cwd=folder,
            env={**os.environ, **(env or {})},
        )
    finally:
        os.close(slave)
    with os.fdopen(master, "rb", buffering=0) as screen:
        got = b""
        while chunk := _read(screen.fileno()):
            got += chunk
    text = got.decode().replace("\r\n", "\n")
    assert "Traceback" not in text
    assert not _RAW.search(_OURS.sub("", text)), repr(text)
    return child.wait(PATIENCE), text


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # the other side has closed the terminal
        return b""


def plain(text: str) -> str:
    return _OURS.sub("", text)


@pytest.fixture
def evil(ops: Path) -> Path:
    """A memory, an agent's title and a retired entry that try to steer the terminal."""
    lines = f"- [2026-08-01 10:00:00] 坏 {EVIL} #标签 ^evil\n{EVIL}\n"
    ops.write_bytes((OPS + lines).encode())
    marker = "retired 2026-08-01T02:00:00 from archival: forgotten; run 20260801T020000-1; live 0"
    retired_file(ops).write_bytes(f"- [2026-07-31 10:00:00] 旧 {EVIL[:30]} <!-- oryx: {marker} -->\n".encode())
    (ops.parent / "AGENT.md").write_text('---\ndescription: "\\e]0;x\\a \\u202E [red]r[/red]"\n---\n')
    return ops


@pytest.mark.parametrize(
    "command",
    [
        "list -a ops",
        "list -a ops --retired",
        "load -a ops",
        "load -a ops --json",
        "recall -a ops 坏",
        "recall 坏 --all-agents",
        "recall -a ops \x1b]0;x\x07",
        "show -a ops ^evil",
        "show -a ops ^evil --json",
        "export -a ops",
        "export -a ops --format jsonl --retired",
        "clean -a ops --keep-entries 0 --dry-run",
        "stats -a ops",
        "agents",
        "agents --json",
        "load -a \x1b]0;x\x07",
        "load --root \x1b]0;x\x07",
        "append -a ops --tag \x1b]0;x\x07 x",
        "append -a ops a \x1b]0;x\x07",
        "show -a ops \x1b]0;x\x07",
        "list --since \x1b]0;x\x07",
        "\x1b]0;x\x07",
        "load --\x1b]0;x\x07",
        "forget -a ops ^evil",
        "",
    ],
)
def test_nothing_in_a_memory_steers_the_terminal(command: str, evil: Path, tmp_path: Path) -> None:
    code, text = terminal(command.split(" ") if command else [], tmp_path)
    assert code in (0, 1, 2, 3)
    assert "\x1b[38;5;201m" not in text
    if command.startswith(
        ("list -a ops", "load -a ops", "recall -a", "recall 坏", "show -a ops ^", "export", "forget")
    ):
        assert "\\x1b" in text or "\\u001b" in text  # shown as an escape, not left out


def test_nothing_in_a_path_or_in_settings_steers_the_terminal(tmp_path: Path) -> None:
    here = tmp_path / "\x1b]0;x\x07\u202e"
    ops = make_ops(here)
    assert terminal(["path", "-a", "ops"], here)[0] == 0
    assert terminal([], here)[0] == 0
    assert terminal(["init"], here)[0] == 0
    assert terminal(["load", "-a", "nobody"], here)[0] == 3
    ops.with_name("MEMORY.retired.md").mkdir()
    assert terminal(["forget", "-a", "ops", "43d8"], here)[0] == 3
    (here / ".oryxos" / "memory.toml").write_text('[time]\nzone = "UTC"\n')
    assert terminal(["config", "show"], here)[0] == 0
    (here / ".oryxos" / "memory.toml").write_text('"\\u001b]0;x\\u0007" = 1\n')
    code, text = terminal(["config", "show"], here)
    assert code == 3
    assert "unknown setting" in text


def test_piped_the_same_content_is_exact(evil: Path, tmp_path: Path) -> None:
    stored = evil.read_bytes().decode().removeprefix(OPS)
    result = real([ORYX, "memory", "recall", "-a", "ops", "坏"], cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    assert stored.startswith(result.out[:30])
    assert EVIL[:-6] in result.out


def test_list_shows_ids_and_content_as_it_is(ops: Path, tmp_path: Path) -> None:
    literal = "[bold]x[/bold] [/] [link=file:///]y[/link] :smile: \\[z] 原样"
    long = "很长的一行没有空格" * 40
    ops.write_text(f"{OPS}{STAMP} {literal}\n{STAMP} {long} #标签\n", encoding="utf-8")
    code, text = terminal(["list", "-a", "ops"], tmp_path, talk=False)
    assert code == 0
    lines = plain(text).splitlines()
    assert [line[:14] for line in lines[:3]] == [f"{FRIDAY_ID}  ", f"{RELEASE_ID}  ", f"{UV_ID}  "]
    assert [line[14:] for line in lines] == [FRIDAY, RELEASE, UV, f"{STAMP} {literal}", f"{STAMP} {long} #标签"]
    assert text != plain(text)  # there are colours
    shown = plain(terminal(["recall", "-a", "ops", "原样"], tmp_path, talk=False)[1])
    assert shown == f"{STAMP} {literal}\n"


def test_retired_list_shows_ids_runs_and_whole_entries(ops: Path, tmp_path: Path) -> None:
    """What `restore` needs must be readable, also on a narrow terminal, and nothing is cut."""
    long = "很长的一行没有空格" * 12
    ops.write_text(f"{OPS}{STAMP} [bold]{long}[/bold]\n", encoding="utf-8")
    for reference in ("43d8", memory_id(tmp_path, long)):
        assert real([ORYX, "memory", "forget", "-q", "-a", "ops", reference], cwd=tmp_path).code == 0
    shown = real([ORYX, "memory", "list", "-a", "ops", "--retired", "--json"], cwd=tmp_path).out
    runs = re.findall(r'"run":"([^"]+)"', shown)
    assert len(runs) == 2
    for columns in (80, 200):
        code, text = terminal(["list", "-a", "ops", "--retired"], tmp_path, columns=columns)
        assert code == 0
        assert UV_ID in text
        for run in runs:
            assert run in text
        assert "…" not in text
        assert long in "".join(re.findall("[\u4e00-\u9fff]", text))


def memory_id(folder: Path, content: str) -> str:
    listed = real([ORYX, "memory", "list", "-a", "ops", "--ids"], cwd=folder).out
    return next(line.split("\t")[0] for line in listed.splitlines() if content in line)


def test_titles_are_no_markup_and_sources_are_shown_whole(ops: Path, tmp_path: Path) -> None:
    (ops.parent / "AGENT.md").write_text("---\ndescription: 值班 [red]r[/red]\n---\n", encoding="utf-8")
    for command in (["agents"], []):
        code, text = terminal(command, tmp_path)
        assert code == 0
        assert "值班 [red]r[/red]" in plain(text)
    (tmp_path / ".oryxos" / "memory.toml").write_text("[core]\nmax_chars = 5\n")
    code, text = terminal(["config", "show"], tmp_path, columns=60)
    assert code == 0
    assert f"{tmp_path}/.oryxos/memory.toml" in re.sub(r"\s", "", plain(text))


def test_show_on_a_terminal(ops: Path, tmp_path: Path) -> None:
    code, text = terminal(["show", "-a", "ops", "a701"], tmp_path)
    assert code == 0
    for part in (RELEASE_ID, "ops", "archival", "2026-07-22 09:30:00", "流程", "release_rule", "上线前必须两人复核"):
        assert part in plain(text)


def test_stats_shows_the_bar_and_a_sparkline(ops: Path, tmp_path: Path) -> None:
    days = "".join(f"- [2026-07-{day:02} 09:{n:02}:00] 第 {n} 条\n" for day in (10, 15, 22) for n in range(day - 9))
    ops.write_text(f"## 归档记忆\n{days}", encoding="utf-8")
    (tmp_path / ".oryxos" / "memory.toml").write_text("[archival]\nmax_chars = 1200\n")
    code, text = terminal(["stats", "-a", "ops"], tmp_path)
    assert code == 0
    chars = len(days) - 1
    filled = round(chars / 1200 * 24)
    assert f"{'█' * filled}{'░' * (24 - filled)} {chars} of 1,200 characters, 20 entries" in plain(text)
    spark = next(line for line in plain(text).splitlines() if "a day" in line)
    assert re.search("▁    ▄      █ +at most 13 a day", spark)


def test_a_terminal_shows_lines_unwrapped_and_without_colour_where_they_are_data(ops: Path, tmp_path: Path) -> None:
    assert terminal(["load", "-a", "ops"], tmp_path, columns=20, talk=False) == (0, LOADED)
    assert terminal(["export", "-a", "ops"], tmp_path, columns=20, talk=False) == (0, OPS)
    assert terminal(["path", "-a", "ops"], tmp_path, columns=20, talk=False) == (0, f"{ops}\n")


@pytest.mark.parametrize(
    ("variables", "pattern"),
    [({"NO_COLOR": "1"}, r"\x1b\[[0-9;]*\b(3[0-9]|4[0-9]|9[0-7]|10[0-7])\b"), ({"TERM": "dumb"}, r"\x1b")],
    ids=["NO_COLOR", "TERM=dumb"],
)
def test_no_colour_where_nobody_wants_it(variables: dict[str, str], pattern: str, ops: Path, tmp_path: Path) -> None:
    for command in (["list", "-a", "ops"], ["show", "-a", "ops", "a701"], ["stats", "-a", "ops"], ["agents"], []):
        coloured = terminal(command, tmp_path, talk=False)
        code, text = terminal(command, tmp_path, env=variables, talk=False)
        assert code == 0
        assert not re.search(pattern, text), text
        assert plain(text) == plain(coloured[1])


def test_append_on_a_terminal_does_not_wait_for_a_text(ops: Path, tmp_path: Path) -> None:
    for command in (["append", "-a", "ops"], ["append", "-a", "ops", "-"]):
        code, text = terminal(command, tmp_path)
        assert code == 2
        assert "no text" in text
    assert ops.read_text(encoding="utf-8") == OPS


@pytest.mark.parametrize(
    ("editor", "code", "after_edit"),
    [
        ("sed -i s/两人/三人/", 0, OPS.replace("两人", "三人")),
        ("true", 0, OPS),
        ("false", 2, OPS),
        ("/nonexistent/editor", 2, OPS),
        ("sed -i d", 2, OPS),
        ("'unbalanced", 2, OPS),
    ],
)
def test_edit_opens_an_editor_on_a_terminal(editor: str, code: int, after_edit: str, ops: Path, tmp_path: Path) -> None:
    got, text = terminal(["edit", "-a", "ops", "a701"], tmp_path, env={"EDITOR": editor})
    assert got == code, text
    assert ops.read_text(encoding="utf-8") == after_edit


def test_an_editor_that_changes_nothing_changes_nothing(ops: Path, tmp_path: Path) -> None:
    """Also where an entry has lines of which an edit makes one."""
    ops.write_text(f"{OPS}  更多 more\n", encoding="utf-8")
    entry = Entry(f"{UV}\n  更多 more")
    code, text = terminal(["edit", "-a", "ops", entry.id], tmp_path, env={"EDITOR": "true"})
    assert (code, "nothing to change" in text) == (0, True)
    assert ops.read_text(encoding="utf-8") == f"{OPS}  更多 more\n"


def test_what_supersedes_an_entry_while_it_is_edited_is_not_overwritten(ops: Path, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    append = f"{ORYX} memory append -a ops --key release_rule 三人复核"
    editor.write_text(f'#!/bin/sh\n{append}\nsed -i s/两人/四人/ "$1"\n', encoding="utf-8")
    editor.chmod(0o755)
    code, text = terminal(["edit", "-a", "ops", "^release_rule"], tmp_path, env={"EDITOR": str(editor)})
    assert (code, f"no entry answers to {RELEASE_ID}" in text) == (1, True)
    assert ops.read_text(encoding="utf-8").endswith(" 三人复核 ^release_rule\n")


def test_usage_errors_on_a_terminal_are_one_line(ops: Path, tmp_path: Path) -> None:
    for command in (["remember"], ["load", "--agnet", "x"], ["show"], ["recall", "-a", "ops", "-n", "x", "y"]):
        code, text = terminal(command, tmp_path)
        assert code == 2
        assert text.count("\n") == 1
        assert text.startswith("oryx: ")


def test_ctrl_c_on_a_terminal(ops: Path, held: Path, tmp_path: Path) -> None:
    """The key itself, on a controlling terminal, while another writer holds the lock."""
    master, slave = pty.openpty()
    command = after(_SAY_WHEN_WAITING, "memory", "append", "-a", "ops", "--lock-timeout", str(PATIENCE), "x")
    child = subprocess.Popen(
        ["sh", "-c", 'exec "$@" <"$0" >"$0" 2>"$0"', os.ttyname(slave), *command], start_new_session=True, cwd=tmp_path
    )
    with os.fdopen(master, "r+b", buffering=0) as screen:
        text = b""
        while b"waiting\r\n" not in text:
            text += _read(screen.fileno())
        os.close(slave)
        screen.write(b"\x03")
        while chunk := _read(screen.fileno()):
            text += chunk
    assert child.wait(PATIENCE) == 130
    assert text.decode().endswith("oryx: interrupted\r\n")
    assert b"Traceback" not in text
    assert ops.read_text(encoding="utf-8") == OPS


def test_a_progress_bar_for_work_over_a_second(ops: Path, tmp_path: Path) -> None:
    """The lock is held until somebody has seen the bar; then the work goes on and the bar goes."""
    master, slave = pty.openpty()
    lock = Workspace(tmp_path / ".oryxos").lock_file(ops)
    lock.parent.mkdir()
    command = [ORYX, "memory", "append", "-a", "ops", *AT, "--lock-timeout", str(PATIENCE), "等到了"]
    text = b""
    with open(lock, "w") as file, os.fdopen(master, "rb", buffering=0) as screen:
        fcntl.flock(file, fcntl.LOCK_EX)
        child = subprocess.Popen(command, stdin=slave, stdout=subprocess.PIPE, stderr=slave, cwd=tmp_path)
        os.close(slave)
        with child:
            while "━".encode() not in text and (chunk := _read(screen.fileno())):
                text += chunk
            fcntl.flock(file, fcntl.LOCK_UN)
            while chunk := _read(screen.fileno()):
                text += chunk
            assert child.stdout is not None
            assert child.stdout.read().decode() == f"{STAMP} 等到了\n"
        assert child.returncode == 0
    assert "━" in text.decode()
    assert text.endswith((b"\x1b[2K", b"\x1b[?25h"))  # nothing of it stays


def test_no_progress_bar_where_nobody_looks(ops: Path, held: Path, tmp_path: Path) -> None:
    done = real([ORYX, "memory", "append", "-a", "ops", "--lock-timeout", "1.5", "x"], cwd=tmp_path)
    one_line(done, 5, "1.5 s")
