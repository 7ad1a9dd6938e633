"""git, asked through one function: no shell, nothing that changes the index or the tree.

Only `_asked` starts git. It runs in a folder, in the C locale, without optional locks (so that no question refreshes the
index), and without what a hook or a caller set for another repository (`git rev-parse --local-env-vars`).
"""

import os
import re
import shutil
import subprocess
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from oryx_memory.errors import GitProblem, OryxMemoryWarning, RejectedInput

_LOCAL = (  # what git sets for one repository; a hook's are not those of the folder that we ask about
    "GIT_DIR", "GIT_WORK_TREE", "GIT_IMPLICIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE",
)  # fmt: skip
# No question refreshes the index, asks a person, or fetches (a partial clone would, from git 2.45 on it need not).
_ASKING = {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1"}


def run(folder: Path, *arguments: str, stdin: bytes = b"", codes: tuple[int, ...] = (0,)) -> bytes:
    """Standard output of `git ARGUMENTS` in a folder. Raises GitProblem, one line, for an exit code not in `codes`."""
    done = _asked(folder, *arguments, stdin=stdin)
    if done.returncode not in codes:
        raise GitProblem(_explain(folder, done.stderr.decode(errors="replace")), folder)
    return done.stdout


def _asked(folder: Path, *arguments: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    environment = {name: value for name, value in os.environ.items() if name not in _LOCAL}
    environment |= _ASKING
    command = ["git", "-c", "core.quotePath=false", *arguments]
    try:
        return subprocess.run(command, cwd=folder, input=stdin, capture_output=True, env=environment, check=False)
    except FileNotFoundError as error:
        missing = "git is not installed or not on PATH" if folder.is_dir() else f"{folder} is not there"
        raise GitProblem(missing, folder) from error


def _explain(folder: Path, message: str) -> str:
    if "dubious ownership" in message:
        return f"{folder}: the repository belongs to another user; git config --global --add safe.directory names it"
    if "not a git repository" in message:
        return f"{folder} is in no git repository"
    line = next((line for line in message.splitlines() if line.strip()), "git failed without a word")
    return f"git in {folder}: {line.removeprefix('fatal: ').removeprefix('error: ')}"


def installed() -> bool:
    """Whether there is a git to ask."""
    return shutil.which("git") is not None


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


def commit(folder: Path, revision: str) -> str | None:
    """The hash of the commit that a revision names; None for HEAD before the first commit.

    Raises RejectedInput for a revision that is no commit, GitProblem.
    """
    if revision[:1] not in ("", "-", "^"):  # an option, a negation
        words = ("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        found = run(folder, *words, codes=(0, 1, 128)).strip().decode()
        if re.fullmatch("[0-9a-f]{40,64}", found):
            return found
    shallow = run(folder, "rev-parse", "--is-shallow-repository").strip() == b"true"
    if revision in ("HEAD", "@") and not run(folder, "rev-parse", "--verify", "--quiet", "HEAD", codes=(0, 1)):
        return None
    if shallow:
        hint = "if the whole history does, git fetch --unshallow brings it"
        raise GitProblem(f"{folder}: this shallow clone has no commit {revision!r}; {hint}", folder)
    raise RejectedInput(f"git knows no commit {revision!r} in {folder}")


def merge_base(folder: Path, one: str, other: str) -> str:
    """The best common ancestor of two commits. Raises GitProblem where there is none."""
    found = run(folder, "merge-base", one, other, codes=(0, 1)).strip().decode()
    if not found:
        hint = "if this clone is shallow, git fetch --unshallow brings it"
        raise GitProblem(f"{folder}: {one[:12]} and {other[:12]} have no common ancestor; {hint}", folder)
    return found


def blobs(folder: Path, hashes: Iterable[str]) -> dict[str, bytes]:
    """The contents of blobs by hash, from one process. Raises GitProblem, also for one that is missing."""
    wanted = sorted({*hashes})
    if not wanted:
        return {}
    found = run(folder, "cat-file", "--batch", stdin="".join(f"{name}\n" for name in wanted).encode())
    contents: dict[str, bytes] = {}
    at = 0
    for name in wanted:
        end = found.index(b"\n", at)
        kind, _, size = found[at:end].partition(b" ")[2].partition(b" ")
        if kind != b"blob":
            raise GitProblem(
                f"git in {folder}: object {name} is missing; git fsck, or git fetch in a partial clone", folder
            )
        at = end + 1 + int(size)
        contents[name] = found[end + 1 : at]
        at += 1
    return contents


class Tree:
    """The files that a commit (None: the one before the first, which is empty) has in a folder of the work tree.

    Paths count from that folder. Links are followed inside of it; one that leads elsewhere, or to nothing that the
    commit has, is told as a warning and taken for no file.
    """

    def __init__(self, folder: Path, commit: str | None) -> None:
        self._folder = folder
        self._commit = commit
        self._files: dict[str, str] = {}  # path to hash
        links: dict[str, str] = {}
        for item in run(folder, "ls-tree", "-r", "-z", commit).split(b"\0")[:-1] if commit else ():
            head, _, path = item.partition(b"\t")
            mode, _, name = head.decode().split(" ")
            if mode != "160000":  # a submodule's commit
                (links if mode == "120000" else self._files)[os.fsdecode(path)] = name
        targets = blobs(folder, links.values())
        self._links = {path: os.fsdecode(targets[name]) for path, name in links.items()}

    def paths(self) -> Iterable[str]:
        """The paths of all files and links."""
        yield from self._files
        yield from self._links

    def resolve(self, path: str) -> str | None:
        """The path of the file that a path stands for, links followed; None where the commit has none."""
        found, trouble = self._follow(path)
        if trouble:
            where = f"{(self._commit or '')[:12]}:{path}"
            warnings.warn(OryxMemoryWarning(f"{where} is {trouble}; taken for an empty file"), stacklevel=2)
        return found if found in self._files and not trouble else None

    def _follow(self, path: str) -> tuple[str, str]:
        """The path without links, and what is wrong with a link on the way, or an empty text."""
        done: list[str] = []
        ahead = path.split("/")[::-1]
        links = 0
        while ahead:
            part = ahead.pop()
            target = self._links.get("/".join([*done, part]))
            if part == ".." and not done:
                return path, "a link that leads out of the workspace"
            if part == "..":
                done.pop()
            elif part not in ("", ".") and target is None:
                done.append(part)
            elif target is not None:
                links += 1
                if links > 40:  # as many as Linux follows
                    return path, "a link in a circle"
                if target.startswith("/"):
                    return path, "a link to a full path, which a commit cannot follow"
                ahead += target.split("/")[::-1]
        found = "/".join(done)
        lost = links and found not in self._files
        return found, f"a link to {found}, which the commit does not have" if lost else ""

    def read(self, paths: Iterable[str]) -> dict[str, bytes]:
        """The contents of files by path. Raises GitProblem."""
        wanted = {path: self._files[path] for path in paths}
        contents = blobs(self._folder, wanted.values())
        return {path: contents[name] for path, name in wanted.items()}


class Staged(NamedTuple):
    """What the index says of a file: the hash of its content, and inode, size and time of change (nanoseconds) of
    the version that git last wrote or compared.
    """

    hash: str
    inode: int
    size: int
    time: int


def staged(folder: Path, path: str) -> Staged | None:
    """The index entry of a file, `path` counted from the folder; None where there is none. Raises GitProblem."""
    shown = run(folder, "--literal-pathspecs", "ls-files", "--stage", "--debug", "--", path).decode(errors="replace")
    found = re.match(r"\d+ ([0-9a-f]+) 0\t", shown)
    fields = dict(re.findall(r"(mtime|ino|size): ([\d:]+)", shown))
    if found is None or len(fields) < 3:
        return None
    seconds, _, nanoseconds = fields["mtime"].partition(":")
    return Staged(found[1], int(fields["ino"]), int(fields["size"]), int(seconds) * 10**9 + int(nanoseconds or 0))


def last_change(folder: Path, path: str) -> int | None:
    """When the last commit of HEAD's history that changed a file was made, in seconds since 1970. Raises GitProblem."""
    found = run(folder, "--literal-pathspecs", "log", "-1", "--format=%ct", "HEAD", "--", path, codes=(0, 128)).strip()
    return int(found) if found else None


def versions(folder: Path, paths: Iterable[str], commits: int = 2000) -> Iterator[bytes]:
    """The contents that files had in the newest commits of all branches, stashes and reflogs, newest first, each once.
    Raises GitProblem.

    `paths` count from the top of the work tree.
    """
    found = run(folder, "rev-list", "--all", "--reflog", f"--max-count={commits}").decode().split()
    hashes = _hashes(folder, [f"{commit}:{path}" for commit in found for path in paths])
    yield from (data for _, data in each_blob(folder, hashes))


def each_blob(folder: Path, hashes: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Hash and content of blobs, each once, without holding all of them; an empty hash is passed over. Raises GitProblem."""
    left = [name for name in dict.fromkeys(hashes) if name]
    while left:
        batch, left = left[:16], left[16:]  # few at once: a long history of a big file is more than memory has
        contents = blobs(folder, batch)
        yield from ((name, contents[name]) for name in batch)


def _hashes(folder: Path, names: Sequence[str]) -> list[str]:
    """The hash of each file that is named as COMMIT:PATH, empty where there is none."""
    asked = os.fsencode("".join(f"{name}\n" for name in names))
    shown = run(folder, "cat-file", "--batch-check=%(objecttype) %(objectname)", stdin=asked)
    return [line[5:] if line.startswith("blob ") else "" for line in shown.decode(errors="replace").splitlines()]


class Step(NamedTuple):
    """A commit that changed a file: by whom, when (seconds since 1970) and what for it was written, which an amended,
    rebased or picked commit keeps; the hash of the content in it and in its parents, empty where the file is not there.
    """

    origin: str
    time: int
    hash: str
    before: tuple[str, ...]


def steps(folder: Path, path: str, commits: int = 2000) -> list[Step]:
    """The newest commits of all branches, stashes and reflogs that changed a file. Raises GitProblem.

    `path` counts from the top of the work tree.
    """
    words = ("rev-list", "--all", "--reflog", f"--max-count={commits}", "--format=%at %P%x00%at %an %s")
    lines = run(folder, *words).decode(errors="replace").split("\n")
    heads = [line.partition(" ")[2] for line in lines[:-1:2]]
    bodies = [line.partition("\0") for line in lines[1::2]]
    parents = [body.split()[1:] for body, _, _ in bodies]
    names = [*dict.fromkeys([*heads, *(name for some in parents for name in some)])]
    of = dict(zip(names, _hashes(folder, [f"{name}:{path}" for name in names]), strict=True))
    made = (
        Step(origin, int(body.split()[0]), of[head], tuple(of[name] for name in some))
        for head, (body, _, origin), some in zip(heads, bodies, parents, strict=True)
    )
    return [step for step in made if step.hash and step.hash not in step.before]


def ignored(folder: Path, path: str) -> bool:
    """Whether git ignores a file that it does not track, `path` counted from the folder, links followed (git
    refuses a path behind one). Raises GitProblem.
    """
    return bool(run(folder, "check-ignore", "--", path, codes=(0, 1)))


def tracked(folder: Path) -> list[str]:
    """The files in a folder that git tracks, counted from the folder. Raises GitProblem."""
    return [os.fsdecode(name) for name in run(folder, "ls-files", "-z").split(b"\0")[:-1]]


def names_driver(folder: Path, path: Path) -> bool:
    """Whether the attributes of a file name our merge driver. Raises GitProblem."""
    return run(folder, "check-attr", "-z", "merge", "--", str(path)).split(b"\0")[2:3] == [_OURS.encode()]


_OURS = "oryx-memory"  # as .oryxos/.gitattributes names it
_NAME, _DRIVER = f"merge.{_OURS}.name", f"merge.{_OURS}.driver"
# Git takes any exit code but 0 for "conflicts are marked". Where they are not (no program on PATH, one that cannot start
# or was killed), ours would stand there as if it were the result, so git's own merge of text does it. It is the program
# oryx-memory: another's `oryx` may end with 0 and have done nothing. Git quotes %P itself.
# No merge.oryx-memory.recursive: the ancestor of a criss-cross merge is made by the driver itself. `binary` would take an
# older one, in which lines that both branches have are missing, and what one of them retired since would come back.
DRIVER = (
    "command -v oryx-memory >/dev/null && oryx-memory merge-driver -- %O %A %B %L %P; "
    'code=$?; test $code = 0 && exit 0; test $code = 1 && grep -q "^<\\{%L\\}" %A && exit 1; '
    'echo "oryx-memory merge-driver did not run (exit code $code); merging as text:" %P >&2; '
    "git merge-file --marker-size=%L -L ours -L base -L theirs %A %O %B"
)


def merge_file(folder: Path, base: bytes, ours: bytes, theirs: bytes, marker_size: int = 7) -> tuple[bytes, int]:
    """Two texts that come from `base`, merged as `git merge-file` does it in a folder, and the number of conflicts.

    Conflicts stand between markers of that size. Raises GitProblem, also for what git takes for binary.
    """
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="oryx-memory-") as place:
        names = [os.path.join(place, name) for name in ("ours", "base", "theirs")]
        for name, data in zip(names, (ours, base, theirs), strict=True):
            Path(name).write_bytes(data)
        words = ["-p", f"--marker-size={marker_size}", "-L", "ours", "-L", "base", "-L", "theirs"]
        done = _asked(folder, "merge-file", *words, *names)
    if not 0 <= done.returncode < 128:
        raise GitProblem(_explain(folder, done.stderr.decode(errors="replace")), folder)
    return done.stdout, done.returncode


def driver_installed(folder: Path) -> bool:
    """Whether the git configuration that counts in a folder has the merge driver. Raises GitProblem."""
    return bool(run(folder, "config", "--get-all", _DRIVER, codes=(0, 1)).strip())


def install_driver(folder: Path) -> bool:
    """Put the merge driver into the configuration of the repository that a folder is in, which its worktrees share;
    False where there is one. Raises GitProblem.
    """
    if driver_installed(folder):
        return False
    run(folder, "config", "--local", _NAME, "entries of oryx memory")
    run(folder, "config", "--local", _DRIVER, DRIVER)
    return True


def remove_driver(folder: Path) -> bool:
    """Take out what `install_driver` put in; False where there is nothing. Raises GitProblem."""
    there = [key for key in (_NAME, _DRIVER) if run(folder, "config", "--local", "--get-all", key, codes=(0, 1))]
    for key in there:
        run(folder, "config", "--local", "--unset-all", key)
    return bool(there)
