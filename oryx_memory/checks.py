"""`check`: what is wrong in a memory, in its files, in git, and against what was acknowledged.

`rules` looks at the bytes; here stand the rules that need the journal and git, and the mending of what has one right
answer. Nothing is changed but by `fix`, and by `check_workspace` where it is asked to.
"""

import os
import re
import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from oryx_memory import files, git
from oryx_memory.diffing import similarity
from oryx_memory.document import BOM, MemoryDocument
from oryx_memory.entry import Entry, Scope
from oryx_memory.errors import GitProblem, OryxMemoryWarning, RejectedInput, SettingsError
from oryx_memory.guard import masked
from oryx_memory.journal import Journal, Line
from oryx_memory.retention import Policy
from oryx_memory.retired import MARKER, came_back, live_snapshot, parse
from oryx_memory.rules import (
    LINE,
    REFORMATTED,
    RULES,
    Lines,
    Problem,
    conflicts,
    examine,
    examine_retired,
    near_heading,
    newline_counts,
    returned,
)
from oryx_memory.settings import did_you_mean
from oryx_memory.stores import LongTermMemoryStore
from oryx_memory.stores.markdown import MarkdownStore
from oryx_memory.workspace import FOLDER, MEMORY, Workspace

ALIKE = 0.75  # of two texts with one time, from which on one is the other with a typo mended
_NOT_FOR_GIT = ("memory-state.db", "memory-index.db", ".locks/", ".oryx-tmp", ".found-")


class Finding(NamedTuple):
    """A problem and the file that it is in."""

    agent: str | None
    path: Path
    problem: Problem

    @property
    def fault(self) -> bool:
        """Whether it is more than a note."""
        return RULES[self.problem.rule][0]

    @property
    def message(self) -> str:
        """What the problem says, without the value of anything that looks like a credential."""
        return masked(self.problem.message)


def known_rules(names: Collection[str], path: Path) -> frozenset[str]:
    """The rules that `[check] ignore` of a settings file names. Raises SettingsError for one that is none."""
    for name in names:
        if name not in RULES:
            raise SettingsError(f"check.ignore: there is no rule {name!r}{did_you_mean(name, RULES)}", path)
    return frozenset(names)


def memories(workspace: Workspace) -> list[str | None]:
    """The agents that have a MEMORY.md or a journal, the global memory (None) first."""
    found = {name for name in workspace.agents() if os.path.lexists(workspace.memory_file(name))}
    locks = workspace.root / ".locks"
    for path in locks.glob(f"agents+*+{MEMORY}.journal*") if locks.is_dir() else ():
        found.add(path.name.split("+")[1])  # its folder may be gone
    return [None, *sorted(found)]


def locate(path: Path) -> tuple[Workspace, list[str | None]]:
    """The workspace that a file or folder is in, or that a folder holds, and the agents whose memories it is or holds;
    none for a file of another kind. A memory that is gone counts where git or the journal knows it.

    Raises RejectedInput for what is in no workspace, for what is nowhere though it stands where memories are, and for a
    folder without memories.
    """
    path = Path(os.path.abspath(path))
    if (path / FOLDER).is_dir():
        path /= FOLDER
    root = next((folder for folder in (path, *path.parents) if folder.name == FOLDER), None)
    if root is None:
        raise RejectedInput(f"{path} is in no {FOLDER} folder")
    workspace = Workspace(root)
    agents: list[str | None]
    match parts := path.relative_to(root).parts:
        case ():
            agents = memories(workspace)
        case ("agents",):
            agents = memories(workspace)[1:]
        case ("memory",) | ("memory", "MEMORY.md" | "MEMORY.retired.md"):
            agents = [None]
        case ("agents", name, "MEMORY.md" | "MEMORY.retired.md"):
            agents = [name]
        case ("agents", name) if not path.is_file():
            agents = [name]
        case _:
            agents = []
    known = len(agents) == 1 and _is_known(workspace, agents[0])  # raises UnsafeName
    if parts[:1] in (("agents",), ("memory",)) and not (known or os.path.lexists(path) or _git_has(path)):
        raise RejectedInput(f"{path} is not there")
    if not agents and path.is_dir():
        raise RejectedInput(f"{path} holds no memory")
    return workspace, agents


def _is_known(workspace: Workspace, agent: str | None) -> bool:
    """Whether an agent has a MEMORY.md or a journal."""
    if os.path.lexists(workspace.memory_file(agent)):
        return True
    memory = Path(os.path.realpath(workspace.memory_file(agent)))
    if not memory.is_relative_to(os.path.realpath(workspace.root)):
        return False
    journal = Journal(workspace.lock_file(memory))
    return journal.path.exists() or journal.old_path.exists()


def _git_has(path: Path) -> bool:
    """Whether a file is in git's index or in HEAD; True, with a warning, where git cannot tell."""
    folder = next(folder for folder in path.parents if folder.is_dir())
    try:
        top = git.top(folder) if git.installed() else None
        if top is None:
            return False
        name = os.path.relpath(os.path.realpath(path), os.path.realpath(top))
        return any(git.blob(top, revision, name) is not None for revision in ("", "HEAD"))
    except GitProblem as error:
        _warn_of(error)
        return True


def check_memory(store: MarkdownStore, now: datetime, core_chars: int) -> Iterator[Finding]:
    """What is wrong in one memory. `now` is local wall-clock time. Raises FileProblem, LockTimeout."""
    lost = store.lost()
    data, retired = files.read(store.path), files.read(store.retired_path) or b""
    if data is not None:
        for problem in examine(data, now=now, core_chars=core_chars):
            yield Finding(store.agent, store.path, problem)
        if retired:
            live = live_snapshot(MemoryDocument(data)).texts()
            for problem in returned(data, came_back(parse(retired), live)):
                yield Finding(store.agent, store.path, problem)
    for problem in examine_retired(retired):
        yield Finding(store.agent, store.retired_path, problem)
    evidence = _Evidence(store, data or b"", lost)
    for line in lost:
        yield Finding(store.agent, store.path, evidence.judge(line))
    if data is not None and evidence.ignored():
        yield Finding(store.agent, store.path, Problem("git-ignored", 0, "git add -f, or change .gitignore"))


def lost_lines(store: LongTermMemoryStore) -> list[Line]:
    """The lines of a memory that are called lost. Raises FileProblem, LockTimeout."""
    lost = store.lost()
    if not lost or not isinstance(store, MarkdownStore):
        return lost
    evidence = _Evidence(store, files.read(store.path) or b"", lost)
    return [line for line in lost if evidence.judge(line).rule == "lost-entry"]


def check_workspace(workspace: Workspace, *, mend: bool = False) -> Iterator[Finding]:
    """What is wrong in git with the workspace as a whole; nothing outside of a repository. `mend`: install the merge
    driver where it is missing.
    """
    try:
        yield from _of_workspace(workspace, mend=mend)
    except GitProblem as error:
        _warn_of(error)


def _of_workspace(workspace: Workspace, *, mend: bool) -> Iterator[Finding]:
    if not git.installed() or git.top(workspace.root) is None:
        return
    for name in git.tracked(workspace.root):
        if any(part in name for part in _NOT_FOR_GIT):
            command = f"git rm --cached {shlex.quote(name)} in {FOLDER}; oryx memory init keeps it out"
            yield Finding(None, workspace.root / name, Problem("tracked-state", 0, command))
    memory = Path(os.path.realpath(workspace.root)) / "memory" / MEMORY  # git refuses a path behind a link
    if git.names_driver(workspace.root, memory) and not git.driver_installed(workspace.root):
        if mend:
            git.install_driver(workspace.root)
            return
        command = "merges in this clone go line by line; oryx memory init installs it"
        yield Finding(None, workspace.root / ".gitattributes", Problem("merge-driver", 0, command))


def _warn_of(error: GitProblem) -> None:
    warnings.warn(OryxMemoryWarning(f"{error}; what git knows was left out"), stacklevel=3)


@dataclass
class _Evidence:
    """What may have become of the lines that are gone: an edit by hand, git, or nothing that explains it."""

    store: MarkdownStore
    data: bytes
    lost: list[Line]
    taken: set[int] = field(default_factory=set)

    def judge(self, line: Line) -> Problem:
        """The problem that a line which is gone is."""
        entry = Entry(line.text, line.scope)
        shown = f"{entry.id} {line.text}"
        if line in self._edits:
            return Problem("edited-by-hand", self._edits[line], f"{entry.id} was {line.text}")
        moved = self._git_says(lambda: self._moved(line))
        return Problem("moved-by-git" if moved else "lost-entry", 0, shown)

    def _git_says(self, question: Callable[[], bool]) -> bool:
        """What git answers; False, and no further question, where it cannot."""
        try:
            return self._place is not None and question()
        except GitProblem as error:
            _warn_of(error)
            self._place = None
            return False

    @cached_property
    def _strangers(self) -> dict[str, list[tuple[int, Entry]]]:
        """The live entries that were never acknowledged as they stand, by the time in front of them, with their lines."""
        acknowledged = {line.text for line in self.journal.read()[0]}
        document, lines = MemoryDocument(self.data), Lines(self.data)
        found: dict[str, list[tuple[int, Entry]]] = {}
        for scope in Scope:
            for place in document.located(scope):
                entry = document.entry(place, scope)
                if entry.text not in acknowledged:
                    found.setdefault(_time_of(entry), []).append((lines[place.start], entry))
        return found

    @cached_property
    def journal(self) -> Journal:
        return Journal(Path(self.store.resource))

    @cached_property
    def _edits(self) -> dict[Line, int]:
        """The lost lines that a hand has changed, and where they stand now. One that still says the same comes before
        those that are only like it.
        """
        found: dict[Line, int] = {}
        for least in (1.0, ALIKE):
            for line in self.lost:
                if line not in found and (number := self._edited(Entry(line.text, line.scope), least)):
                    found[line] = number
        return found

    def _edited(self, gone: Entry, least: float) -> int:
        prose = _first_prose(gone)
        for number, entry in self._strangers.get(_time_of(gone), []):
            if number not in self.taken and similarity(prose, _first_prose(entry)) >= least:
                self.taken.add(number)
                return number
        return 0

    @cached_property
    def _place(self) -> tuple[Path, tuple[str, ...]] | None:
        """The top of the work tree and the paths of the two files from there; None where git has no say."""
        folder = next((f for f in self.store.path.parents if f.is_dir()), self.store.path)
        try:
            top = git.top(folder) if git.installed() else None
        except GitProblem as error:
            _warn_of(error)
            top = None
        if top is None:
            return None
        paths = (os.path.realpath(path) for path in (self.store.path, self.store.retired_path))
        return top, tuple(os.path.relpath(path, os.path.realpath(top)) for path in paths)

    def ignored(self) -> bool:
        """Whether git ignores the memory."""
        return self._git_says(self._ignored)

    def _ignored(self) -> bool:
        assert self._place is not None
        top, (path, _) = self._place
        return git.ignored(top, path)

    def _moved(self, line: Line) -> bool:
        """Whether git has put another version of the file there: one has the line and HEAD has not; or git itself
        wrote the version that was found after the line came, out of a commit that is older than the line; or branches
        that had a copy each were merged.
        """
        if self._merged[_first_line(line.text)] > 0:
            self._merged[_first_line(line.text)] -= 1
            return True
        if _first_line(line.text) in self._of_head:
            return False
        if any(moment > line.time >= since for moment, since in self._written_by_git):
            return True
        return _first_line(line.text) in self._elsewhere

    @cached_property
    def _of_head(self) -> set[bytes]:
        assert self._place is not None
        top, paths = self._place
        found = (git.blob(top, "HEAD", path) or b"" for path in paths)
        return set().union(*map(_first_lines, found))

    @cached_property
    def _elsewhere(self) -> set[bytes]:
        """The lost lines that some other version has."""
        assert self._place is not None
        wanted = {_first_line(line.text) for line in self.lost} - self._of_head
        found: set[bytes] = set()
        for data in git.versions(*self._place):
            if found >= wanted:
                break
            found |= wanted & _first_lines(data)
        return found

    @cached_property
    def _merged(self) -> Counter[bytes]:
        """How many copies of each lost line merges have left out. Branches on which one line was acknowledged have a copy
        each, and the merge keeps one: then the line never left, and each of these commits brought it to where it was
        not before, after one acknowledgement more. What is missing of the most copies that any version had was destroyed.
        """
        assert self._place is not None
        top, (path, _) = self._place
        told: dict[bytes, list[int]] = {}
        for line in self.journal.read()[0]:
            told.setdefault(_first_line(line.text), []).append(line.time // 10**9)
        retired = _first_lines(files.read(self.store.retired_path) or b"")
        wanted = {first for line in self.lost if len(told.get(first := _first_line(line.text), ())) > 1} - retired
        if not wanted:
            return Counter()
        steps = git.steps(top, path)
        hashes = {name for step in steps for name in (step.hash, *step.before)}
        copies = {name: _copies(data, wanted) for name, data in git.each_blob(top, hashes)}
        live = _copies(self.data, wanted)
        left_out = Counter[bytes]()
        for first in wanted:
            most = max([live[first], *(counts[first] for counts in copies.values())])
            came = {
                step.origin: step.time
                for step in steps
                if copies[step.hash][first] and not any(name and copies[name][first] for name in step.before)
            }
            left_out[first] = _at_or_after(told[first], came.values()) - most
        return left_out

    @cached_property
    def _written_by_git(self) -> list[tuple[float, int]]:
        """When versions were found that git wrote, and from when on their content was committed, in nanoseconds."""
        assert self._place is not None
        top, (path, _) = self._place
        staged = git.staged(top, path)
        since = git.last_change(top, path)
        if staged is None or since is None or _blob_hash(top, path) != staged.hash:
            return []
        marks: list[tuple[float, str]] = [(mark.time, mark.stamp) for mark in self.journal.read()[1]]
        marks.append((float("inf"), files.stamp(self.store.path)))
        return [(moment, since * 10**9) for moment, stamp in marks if _is_staged(stamp, staged)]


def _blob_hash(top: Path, path: str) -> str:
    return git.run(top, "rev-parse", "--verify", "--quiet", f"HEAD:{path}", codes=(0, 1, 128)).decode().strip()


def _is_staged(stamp: str, staged: git.Staged) -> bool:
    parts = stamp.split(":")  # as files.stamp forms it
    if len(parts) != 4:
        return False
    _, inode, size, time = map(int, parts)
    return (inode & 0xFFFFFFFF, size, time) == (staged.inode, staged.size, staged.time)


def _first_prose(entry: Entry) -> str:
    """What the first line says, without the trailer: lines below it, tags and a key are added and changed by hand."""
    return entry.prose.partition("\n")[0]


def _first_line(text: str) -> bytes:
    return text.partition("\n")[0].encode(errors="replace").strip()


def _copies(data: bytes, lines: Container[bytes]) -> Counter[bytes]:
    """How often each of the lines is in a memory."""
    return Counter(line for match in LINE.finditer(data) if (line := match.group().strip()) in lines)


def _at_or_after(moments: Collection[int], later: Collection[int]) -> int:
    """How many of the moments have one of their own among the later ones that is not before them."""
    found = 0
    newest = sorted(later, reverse=True)
    for moment in sorted(moments, reverse=True):
        if found < len(newest) and newest[found] >= moment:
            found += 1
    return found


def _first_lines(data: bytes) -> set[bytes]:
    """The lines of a memory or a retired file, without markers. Parsing every version would take minutes."""
    return {line.partition(MARKER)[0].strip() for line in LINE.findall(data)}


def _time_of(entry: Entry) -> str:
    """The time in front of a line, also where a formatter or a hand has changed the bullet."""
    match = REFORMATTED.match(entry.text)
    return match.group(3) if match else ""


def fix(store: MarkdownStore, findings: Collection[Finding]) -> list[str]:
    """Mend what has one right answer; what was done, a line each. Raises FileProblem, LockTimeout."""
    rules = Counter(finding.problem.rule for finding in findings)
    done = []
    for rule, mended in _MENDED.items():
        if rules[rule] and store.mend(mended):
            done.append(f"{store.path}: mended {rule}")
    if rules["live-and-retired"]:
        done.append(f"{store.path}: mended live-and-retired, {store.record_returned()} recorded as restored")
    if rules["duplicate"]:
        change = store.clean(Policy(max_share=1)).change
        command = f"oryx memory restore{f' -a {store.agent}' if store.agent else ''} --run {change.run}"
        done.append(f"{store.path}: mended duplicate, {len(change.retire)} retired; undo: {command}")
    return done


def _with_usual_newline(data: bytes) -> bytes:
    counts = newline_counts(data)
    usual = counts.most_common(1)[0][0] if counts else b"\n"
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", usual)


def _with_exact_headings(data: bytes) -> bytes:
    """A line that seems to be a heading becomes it, if it is the only one for its section, core then stands before
    archival, and no merge left conflicts; else nobody can know what belongs where.
    """
    present = {heading.scope for heading in MemoryDocument(data).layout.headings}
    near = Counter(near_heading(match.group().decode(errors="replace")) for match in LINE.finditer(data))

    def exact(match: "re.Match[bytes]") -> bytes:
        line = match.group()
        scope = near_heading(line.decode(errors="replace")) if b"#" in line else None
        if scope is None or scope in present or near[scope] > 1:
            return line
        return BOM * line.startswith(BOM) + scope.heading.encode()

    made = LINE.sub(exact, data)
    scopes = [heading.scope for heading in MemoryDocument(made).layout.headings]
    swapped = Scope.CORE in scopes and Scope.ARCHIVAL in scopes[: scopes.index(Scope.CORE)]
    return data if swapped or any(conflicts(data, Lines(data))) else made


def _with_both_headings(data: bytes) -> bytes:
    """The one that is missing, where the other stands; where none does, nobody can know what belongs where."""
    document = MemoryDocument(data)
    layout = document.layout
    present = {heading.scope for heading in layout.headings}
    if present == {Scope.CORE}:
        return data + layout.at_end(layout.newline + Scope.ARCHIVAL.heading.encode() + layout.newline)
    if present == {Scope.ARCHIVAL}:
        at = layout.headings[0].start
        return data[:at] + Scope.CORE.heading.encode() + layout.newline * 2 + data[at:]
    return data


def _with_plain_times(data: bytes) -> bytes:
    """`- [time]` where a formatter wrote another bullet, more blanks or escaped brackets."""
    document = MemoryDocument(data)
    parts: list[bytes] = []
    at = 0
    for scope in sorted(Scope, key=lambda scope: document.layout.body(scope) or (0, 0)):
        for place in document.located(scope):
            entry = document.entry(place, scope)
            match = REFORMATTED.match(entry.raw)
            if match and entry.time is None:
                parts += [data[at : place.start], f"- [{match.group(3)}]".encode()]
                at = place.start + len(match.group().encode())
    return b"".join([*parts, data[at:]])


_MENDED: dict[str, Callable[[bytes], bytes]] = {
    "mixed-newlines": _with_usual_newline,
    "near-heading": _with_exact_headings,
    "missing-heading": _with_both_headings,
    "reformatted": _with_plain_times,
}
