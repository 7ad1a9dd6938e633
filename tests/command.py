"""Running the commands: in this process, and as real programs.

Both go through `oryx()`, error boundary included, and both fail at once on a traceback or an internal error.
"""

import contextlib
import os
import subprocess
import sys
import sysconfig
import warnings
from collections.abc import Mapping, Sequence
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple

from oryx_memory.cli import main

SCRIPTS = Path(sysconfig.get_path("scripts"))
ORYX = str(SCRIPTS / "oryx")
NOBODY = 65534
PATIENCE = 120  # seconds until a hanging child fails its test; no result depends on it

FRIDAY = "- [2026-07-01 08:00:00] Never deploy on Friday"
RELEASE = "- [2026-07-22 09:30:00] 上线前必须两人复核 #流程 ^release_rule"
UV = "- [2026-07-22 09:31:00] Use uv, not pip #tooling"
FRIDAY_ID, RELEASE_ID, UV_ID = "e76a079277ef", "a70123cc8f0f", "43d8964bd39e"
AT = ("--at", "2026-08-01 10:00:00")
STAMP = "- [2026-08-01 10:00:00]"
OPS = f"## 核心记忆\n{FRIDAY}\n\n## 归档记忆\n{RELEASE}\n{UV}\n"
LOADED = OPS.replace("\n\n", "\n")  # what `load` prints of it


class Result(NamedTuple):
    """What a command gave."""

    code: int
    out: str
    err: str


def make_ops(folder: Path, content: str = OPS) -> Path:
    """The workspace of the acceptance examples in a folder; returns MEMORY.md of the agent ops."""
    memory = folder / ".oryxos" / "agents" / "ops" / "MEMORY.md"
    memory.parent.mkdir(parents=True)
    memory.write_bytes(content.encode())
    return memory


def retired_file(memory: Path) -> Path:
    return memory.with_name("MEMORY.retired.md")


def checked(code: int, out: bytes, err: bytes) -> Result:
    """The result, if both streams are UTF-8 and no bug shows."""
    result = Result(code, out.decode(), err.decode())
    assert "Traceback" not in result.err, result.err
    assert "internal error" not in result.err, result.err
    return result


def run(*arguments: str, stdin: str | bytes | None = b"", program: str = "oryx") -> Result:
    """Run a command in this process. `stdin` None: standard input is closed."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    # ASCII at first: the command itself has to make its streams UTF-8.
    out, err = TextIOWrapper(BytesIO(), "ascii"), TextIOWrapper(BytesIO(), "ascii")
    before = sys.argv, sys.stdin, sys.excepthook
    sys.argv = [f"/usr/bin/{program}", *arguments]
    sys.stdin = None if given is None else TextIOWrapper(BytesIO(given), "ascii")  # type: ignore[assignment]
    code: Any = None
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            {"oryx": main.oryx, "oryx-memory": main.oryx_memory}[program]()
    except SystemExit as end:
        code = end.code
    finally:
        sys.argv, sys.stdin, sys.excepthook = before
    out.flush()
    err.flush()
    return checked(code, out.buffer.getvalue(), err.buffer.getvalue())  # type: ignore[attr-defined]


def memory(*arguments: str, stdin: str | bytes | None = b"") -> Result:
    """`oryx memory …` in this process."""
    return run("memory", *arguments, stdin=stdin)


def real(
    arguments: Sequence[str | bytes],
    *,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Result:
    """Run a program as a process of its own, with `env` instead of the environment of the test."""
    words = [word.encode() if isinstance(word, str) else word for word in arguments]
    done = subprocess.run(words, input=stdin, capture_output=True, env=env, cwd=cwd, timeout=PATIENCE, check=False)
    return checked(done.returncode, done.stdout, done.stderr)


def with_path(**variables: str) -> dict[str, str]:
    """The environment of the test in which a shell finds the commands, and more variables."""
    return {**os.environ, "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}", **variables}


def after(prelude: str, *arguments: str) -> list[str]:
    """The command line of a Python that does `prelude` and then is `oryx`."""
    return [sys.executable, "-c", f"{prelude}\nimport sys\nsys.argv[0] = 'oryx'\n{_START}", *arguments]


def as_user(uid: int, *arguments: str, prelude: str = "") -> list[str]:
    """The command line of an `oryx` that has dropped to an unprivileged user, if we are root; then `prelude`.

    The interpreter may live where that user cannot look, so everything is imported before.
    """
    drop = f"{_IMPORT_ALL}\n{_DROP.format(uid=uid)}" if os.geteuid() == 0 else ""
    return after(f"{drop}\n{prelude}", *arguments)


_START = "from oryx_memory.cli.main import oryx\noryx()"

_IMPORT_ALL = """
import encodings.idna, importlib, pkgutil, stringprep
import oryx_memory
for module in pkgutil.walk_packages(oryx_memory.__path__, "oryx_memory."):
    if not module.name.endswith(("__main__", "mcp_server")):  # the second takes a second
        importlib.import_module(module.name)
for name in (
    "Stemmer", "_strptime", "ctypes", "difflib", "frontmatter", "grp", "hashlib", "importlib.metadata", "msgspec.json", "pwd",
    "rich.console", "rich.table", "rich.text", "shlex", "subprocess", "tempfile", "tomllib", "unicodedata", "urllib.parse", "zoneinfo",
):
    importlib.import_module(name)
"""

_DROP = """
import os
os.setgroups([])
os.setgid({uid})
os.setuid({uid})
"""
