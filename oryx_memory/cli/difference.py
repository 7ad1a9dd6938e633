"""What `diff` compares and how it shows it: the memories of a commit beside those of another, or of the files.

Piped, a line a change, its fields separated by tabs and the stored line last; on a terminal grouped and coloured; as
Markdown with every text in a code span, so that nothing in it pings, links or renders. What does not fit into a
pull request's comment is counted.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from oryx_memory import git
from oryx_memory.changes import Snapshot
from oryx_memory.cli.options import Here, title
from oryx_memory.cli.output import Output, styled, visible
from oryx_memory.diffing import Delta, Kind, changed_words, diff
from oryx_memory.document import MemoryDocument
from oryx_memory.entry import Scope, as_record
from oryx_memory.errors import RejectedInput
from oryx_memory.git import Tree
from oryx_memory.retired import with_retired
from oryx_memory.workspace import Workspace

if TYPE_CHECKING:
    from rich.text import Text

Differences = Sequence[tuple[str | None, Sequence[Delta]]]

_MARKDOWN_LIMIT = 60_000  # UTF-16 units; GitHub takes 65,536 and a workflow may put something around it
_SIGNS = {Kind.ADDED: "+", Kind.RESTORED: "+", Kind.MOVED: ">", Kind.RETIRED: "-", Kind.REMOVED: "-", Kind.PURGED: "-"}
_COLOURS = {"+": "green", ">": "cyan", "-": "red"}


def compare(here: Here, revision: str) -> Differences:
    """What differs between the two sides that REV, A..B or A...B names, for each agent that differs.

    Raises RejectedInput for an unknown revision and a memory that is in a database, GitProblem, NoAgent, FileProblem.
    """
    if here.settings["backend"] != "markdown":
        raise RejectedInput(
            f"diff compares files in git, and the backend here is {here.settings['backend']}; "
            "oryx memory export writes files that git can compare"
        )
    before, after = _sides(here.workspace, revision)
    agents = _agents(here, before, after)
    old = _committed(here.workspace, before, agents)
    new = _committed(here.workspace, after, agents) if after else _on_disk(here, agents)
    found = ((agent, diff(old[agent], new[agent])) for agent in agents)
    return [(agent, deltas) for agent, deltas in found if deltas]


def _sides(workspace: Workspace, revision: str) -> tuple[Tree, Tree | None]:
    """The commit before and the commit after; None stands for the files on disk."""
    start, dots, end = revision.partition("..." if "..." in revision else "..")
    one = git.commit(workspace.root, start or ("HEAD" if dots else ""))
    if not dots:
        return Tree(workspace.root, one), None
    other = git.commit(workspace.root, end or "HEAD")
    if dots == "..." and one and other:
        one = git.merge_base(workspace.root, one, other)
    return Tree(workspace.root, one), Tree(workspace.root, other)


def _agents(here: Here, before: Tree, after: Tree | None) -> list[str | None]:
    """The agent that was named, or the global memory and every agent that either side has."""
    known = {*_names(before), *(_names(after) if after else here.workspace.agents())}
    if here.agent is None:
        return [None] if here.user else [None, *sorted(known)]
    agent = here.store(create=True).agent
    if agent not in known:
        here.store()  # raises NoAgent, unless there is a folder
    return [agent]


def _names(tree: Tree) -> Iterator[str]:
    for path in tree.paths():
        if agent := re.match("agents/([A-Za-z0-9_-]+)(/|$)", path):
            yield agent[1]


def _committed(workspace: Workspace, tree: Tree, agents: Sequence[str | None]) -> Mapping[str | None, Snapshot]:
    """The memories of agents as a commit has them; one that it lacks is empty."""
    places: dict[str | None, tuple[str | None, str | None]] = {}
    for agent in agents:
        path = PurePosixPath(workspace.memory_file(agent).relative_to(workspace.root))
        memory = tree.resolve(str(path))
        beside = PurePosixPath(memory or path)
        places[agent] = memory, tree.resolve(str(beside.with_name(f"{beside.stem}.retired{beside.suffix}")))
    data = tree.read(path for pair in places.values() for path in pair if path)
    return {
        agent: with_retired(MemoryDocument(data.get(memory or "", b"")), data.get(retired or "", b""))[0]
        for agent, (memory, retired) in places.items()
    }


def _on_disk(here: Here, agents: Sequence[str | None]) -> Mapping[str | None, Snapshot]:
    return {agent: here.store(agent, create=True).read(retired=True) for agent in agents}


def rows(found: Differences) -> Iterator[tuple[str, str, str, str, str]]:
    """Agent, section, sign, what happened, stored line. An edit has two rows, the old text and the new one."""
    for agent, deltas in found:
        name = agent or "(global)"
        for delta in deltas:
            entry, old = delta.entry, delta.before
            if delta.kind is Kind.EDITED and old:
                yield name, old.scope.value, "-", _what(delta), old.raw
                yield name, entry.scope.value, "+", _what(delta), entry.raw
            else:
                yield name, entry.scope.value, _SIGNS[delta.kind], _what(delta), entry.raw


def _what(delta: Delta) -> str:
    if delta.kind is Kind.MOVED:
        return f"moved from {delta.source}"
    return f"retired: {_why(delta)}" if delta.kind is Kind.RETIRED else delta.kind.value


def _why(delta: Delta) -> str:
    why = delta.entry.retired
    return " ".join(f"{why.reason}; run {why.run}".split()) if why else ""


def records(found: Differences) -> list[dict[str, Any]]:
    """The changes as `--json` gives them."""
    return [_record(agent, delta) for agent, deltas in found for delta in deltas]


def _record(agent: str | None, delta: Delta) -> dict[str, Any]:
    made: dict[str, Any] = {"agent": agent, "change": delta.kind.value, "scope": delta.entry.scope.value}
    if delta.source:
        made["from"] = delta.source.value
    made["entry"] = as_record(delta.entry, agent)
    edited = delta.before if delta.kind is Kind.EDITED else None
    if edited:
        made["before"] = as_record(edited, agent)
    if why := (edited or delta.entry).retired:
        made |= {"reason": why.reason, "run": why.run}
    return made


def markdown(found: Differences) -> str:
    """The changes as a comment of a pull request: a heading for each agent, an item for each change.

    At most 60,000 characters as GitHub counts them. A change that no longer fits is counted in the last line, and
    smaller ones after it are still shown.
    """
    lines: list[str] = []
    room = _MARKDOWN_LIMIT - 100  # for the last line
    left_out = 0
    for agent, deltas in found:
        heading = ["", f"### {_code(agent) if agent else 'Global memory'}: {_counts(deltas)}", ""]
        for delta in deltas:
            new = [*heading, _item(delta)]
            size = len("\n".join(["", *new]).encode("utf-16-le")) // 2
            if size > room:
                left_out += 1
                continue
            room -= size
            lines += new
            heading = []
    if left_out:
        lines += ["", f"… and {left_out:,} more change{'s' * (left_out > 1)}"]
    return "\n".join(lines[1:])


def _counts(deltas: Sequence[Delta]) -> str:
    numbers = Counter(delta.kind for delta in deltas)
    return ", ".join(f"{numbers[kind]:,} {kind}" for kind in Kind if numbers[kind])


def _item(delta: Delta) -> str:
    scope, old = delta.entry.scope, delta.before
    said = {
        Kind.ADDED: f"to {scope}",
        Kind.RESTORED: f"to {scope}",
        Kind.MOVED: f"from {delta.source} to {scope}",
        Kind.EDITED: f"from {delta.source} to {scope}" if delta.source else f"in {scope}",
        Kind.RETIRED: f"from {scope} ({_code(_why(delta))})",
        Kind.REMOVED: f"from {scope}, without a record",
        Kind.PURGED: f"from what was retired from {scope}",
    }[delta.kind]
    text = _code(delta.entry.text)
    if delta.kind is Kind.EDITED and old:
        text = f"{_code(old.text)} → {text}"
    return f"- **{delta.kind}** {said}: {text}"


def _code(text: str) -> str:
    """A code span of CommonMark: its fence is longer than every run of backticks inside."""
    line = " ⏎ ".join(visible(text).split("\n"))
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    pad = " " * (line[:1] in "` " or line[-1:] in "` ")  # a reader takes one blank off both ends
    return f"{fence}{pad}{line}{pad}{fence}"


def show(out: Output, found: Differences) -> None:
    """The changes on a terminal: by agent and section, what became another word highlighted."""
    from rich.text import Text

    shown: list[Text] = []
    for agent, deltas in found:
        shown.append(Text.assemble((title(agent), "bold"), (f"  {_counts(deltas)}", "dim")))
        for scope in Scope:
            section = [delta for delta in deltas if delta.entry.scope is scope]
            shown += [Text(f"  {scope}", "bold")] if section else []
            for delta in section:
                shown += _coloured(delta)
    out.render(*shown)


def _coloured(delta: Delta) -> list["Text"]:
    from rich.text import Text

    if delta.kind is Kind.EDITED and delta.before:
        old, new = Text(), Text()
        for was, now in changed_words(delta.before.text, delta.entry.text):
            old.append(visible(was), "" if was == now else "red reverse")
            new.append(visible(now), "" if was == now else "green reverse")
        old.append(f"  from {delta.source}" if delta.source else "", "dim")
        return [_signed("-", old), _signed("+", new)]
    shown = styled(delta.entry)
    note = {
        Kind.RESTORED: "restored",
        Kind.MOVED: f"moved from {delta.source}",
        Kind.RETIRED: f"retired: {_why(delta)}",
        Kind.REMOVED: "removed without a record",
        Kind.PURGED: "purged: its record is gone",
    }.get(delta.kind)
    line = Text.assemble(shown, (f"  {visible(note)}", "dim")) if note else shown
    return [_signed(_SIGNS[delta.kind], line)]


def _signed(sign: str, text: "Text") -> "Text":
    """A text behind its sign, further lines of it in the same column."""
    from rich.text import Text

    first = (f"    {sign} ", _COLOURS[sign])
    if "\n" not in text.plain:
        return Text.assemble(first, text)
    return Text.assemble(first, Text("\n      ").join(text.split("\n")))
