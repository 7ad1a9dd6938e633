"""The merge driver, as git calls it: three files in, the result in the place of ours.

Ours never passes for the result: whatever fails here, git's own merge of text does it, and if that cannot either, both
versions stand between conflict markers. Where not even that can be written, the exit code says so to the line in git's
configuration (`git.DRIVER`), which then does the same.
"""

import os
from functools import partial
from pathlib import Path

from oryx_memory import git, merging
from oryx_memory.cli.output import one_visible_line, tell
from oryx_memory.errors import FileProblem, GitProblem


def run(base: Path, ours: Path, theirs: Path, marker_size: int, path: str) -> int:
    """Merge three files into `ours` and give the number of conflicts. `path` is the file's name in the repository,
    which tells what it is. Raises FileProblem.
    """
    old, mine, other = (_read(file) for file in (base, ours, theirs))
    as_text = partial(_as_text, marker_size)
    try:
        if path.endswith(".retired.md"):
            merged = merging.Merged(merging.merge_retired(old, mine, other), 0)
        else:
            merged = merging.merge_memory(old, mine, other, as_text)
    except Exception as error:  # a bug of ours must not cost a side's lines
        reason = f"{type(error).__name__}: {error}"
        tell(one_visible_line(f"oryx: {path}: entries cannot be merged, merging as text; please report it: {reason}"))
        merged = merging.Merged(*as_text(old, mine, other))
    _write(ours, merged.data)
    return merged.conflicts


def _as_text(marker_size: int, base: bytes, ours: bytes, theirs: bytes) -> tuple[bytes, int]:
    try:
        return git.merge_file(Path.cwd(), base, ours, theirs, marker_size)
    except GitProblem:  # it takes no NUL bytes, for one
        return merging.unmerged(ours, theirs, marker_size), 1


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileProblem(path, f"cannot be read: {str(error.strerror).lower()}") from error


def _write(path: Path, data: bytes) -> None:
    """By a rename: half a result would be taken for ours by the next that tries."""
    temporary = path.with_name(f"{path.name}.oryx-tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise FileProblem(path, f"cannot be written: {str(error.strerror).lower()}") from error
