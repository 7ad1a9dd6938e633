"""git, asked through one function: no shell, nothing that changes the index or the tree.

Only `run` starts git. It runs in a folder, in the C locale, without optional locks (so that no question refreshes the
index), and without what a hook or a caller set for another repository (`git rev-parse --local-env-vars`).
"""

import os
import subprocess
from pathlib import Path

from oryx_memory.errors import GitProblem

_LOCAL = (  # what git sets for one repository; a hook's are not those of the folder that we ask about
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_CEILING_DIRECTORIES",
)  # fmt: skip


def run(folder: Path, *arguments: str, stdin: bytes = b"", codes: tuple[int, ...] = (0,)) -> bytes:
    """Standard output of `git ARGUMENTS` in a folder. Raises GitProblem, one line, for an exit code not in `codes`."""
    environment = {name: value for name, value in os.environ.items() if name not in _LOCAL}
    environment |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_LITERAL_PATHSPECS": "1"}
    command = ["git", "-c", "core.quotePath=false", *arguments]
    try:
        done = subprocess.run(command, cwd=folder, input=stdin, capture_output=True, env=environment, check=False)
    except FileNotFoundError as error:
        missing = "git is not installed or not on PATH" if folder.is_dir() else f"{folder} is not there"
        raise GitProblem(missing, folder) from error
    if done.returncode not in codes:
        raise GitProblem(_explain(folder, done.stderr.decode(errors="replace")), folder)
    return done.stdout


def _explain(folder: Path, message: str) -> str:
    if "dubious ownership" in message:
        return f"{folder}: the repository belongs to another user; git config --global --add safe.directory names it"
    if "not a git repository" in message:
        return f"{folder} is in no git repository"
    line = next((line for line in message.splitlines() if line.strip()), "git failed without a word")
    return f"git in {folder}: {line.removeprefix('fatal: ').removeprefix('error: ')}"


def top(folder: Path) -> Path | None:
    """The top folder of the work tree that a folder is in, or None where there is none. Raises GitProblem."""
    try:
        found = run(folder, "rev-parse", "--show-toplevel")
    except GitProblem as error:
        if "in no git repository" in str(error) or "must be run in a work tree" in str(error):
            return None
        raise
    return Path(os.fsdecode(found.rstrip(b"\n")))


def blob(folder: Path, revision: str, path: str) -> bytes | None:
    """A file of a commit (`HEAD`, a hash) or of the index (an empty `revision`); None where it has none.

    `path` counts from the top of the work tree. Raises GitProblem.
    """
    name = f"{revision}:{path}"
    found = run(folder, "cat-file", "--batch", stdin=os.fsencode(name) + b"\n")
    header, _, rest = found.partition(b"\n")
    words = header.rsplit(b" ", 2)
    return rest[: int(words[2])] if len(words) == 3 and words[1] == b"blob" else None
