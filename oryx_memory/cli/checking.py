"""What `check` prints, and in which order it goes through workspaces and memories."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from oryx_memory import checks, settings, stores
from oryx_memory.checks import Finding
from oryx_memory.cli import hints
from oryx_memory.cli.options import Here, title
from oryx_memory.cli.output import one_visible_line
from oryx_memory.cli.review import Format
from oryx_memory.errors import OryxMemoryError, RejectedInput
from oryx_memory.rules import RULES
from oryx_memory.settings import Settings
from oryx_memory.stores.markdown import MarkdownStore
from oryx_memory.workspace import Workspace


def run(here: Here, paths: Sequence[Path], *, fix: bool, accept: bool, format: Format) -> None:
    """Check what was named; raises typer.Exit with 1 for faults, or with the worst code of what could not be read."""
    found: list[Finding] = []
    worst = 0
    on_server = False
    for workspace, agents in _targets(here, paths):
        chosen = settings.load(workspace.root, os.environ, {"backend": here.given_backend})
        on_server = on_server or chosen["backend"] == "mem0"
        for agent in agents:
            try:
                found += _check_one(here, workspace, chosen, agent, fix=fix, accept=accept)
            except OryxMemoryError as error:
                here.out.warn(f"oryx: {title(agent)}: {error}")
                worst = max(worst, error.exit_code)
        found += _kept(checks.check_workspace(workspace, mend=fix), chosen, workspace)
    _print(here, found, format)
    if on_server:
        here.out.talk("checked the files here; what is on the mem0 server was not asked for")
    faults = sum(finding.fault for finding in found)
    _explain(here, found, faults)
    _tell_of_losses(here, found)
    if worst or faults:
        raise typer.Exit(worst or 1)


def _targets(here: Here, paths: Sequence[Path]) -> Iterator[tuple[Workspace, list[str | None]]]:
    if not paths:
        agent = here.agent
        if agent is not None:
            stores.require(here.workspace, here.settings, agent, lock_timeout=here.lock_timeout)
        yield here.workspace, checks.memories(here.workspace) if agent is None else [agent]
        return
    if here.given_agent is not None:
        raise RejectedInput("--agent and PATH exclude each other")
    grouped: dict[Path, list[str | None]] = {}
    for path in paths:
        workspace, named = checks.locate(path)
        agents = grouped.setdefault(workspace.root, [])
        agents += [agent for agent in named if agent not in agents]
    for root, agents in grouped.items():
        yield Workspace(root), agents


def _check_one(
    here: Here, workspace: Workspace, chosen: Settings, agent: str | None, *, fix: bool, accept: bool
) -> list[Finding]:
    clock = stores.local_clock(chosen["time.zone"])
    store = MarkdownStore(workspace, agent, clock, lock_timeout=here.lock_timeout)
    if accept and (gone := store.settle()):
        here.out.talk(f"{title(agent)}: settled {len(gone):,} lost line{'s' * (len(gone) != 1)}")

    def look() -> list[Finding]:
        return _kept(checks.check_memory(store, clock(), chosen["core.max_chars"]), chosen, workspace)

    found = look()
    for _ in RULES if fix else ():  # what is mended may show what no rule saw before
        if not (done := checks.fix(store, found)):
            break
        for line in done:
            here.out.talk(line)
        found = look()
    return found


def _kept(found: Iterator[Finding], chosen: Settings, workspace: Workspace) -> list[Finding]:
    ignored = checks.known_rules(chosen["check.ignore"], workspace.settings_file)
    return [finding for finding in found if finding.problem.rule not in ignored]


def _print(here: Here, found: list[Finding], format: Format) -> None:
    found.sort(key=lambda finding: (str(finding.path), finding.problem.line))
    if format is Format.JSON:
        here.out.object(
            [
                {
                    "path": _shown_path(finding.path),
                    "line": finding.problem.line or None,
                    "rule": finding.problem.rule,
                    "severity": "fault" if finding.fault else "note",
                    "message": finding.message,
                    "agent": finding.agent,
                }
                for finding in found
            ]
        )
        return
    for finding in found:
        here.out.data(_github(finding) if format is Format.GITHUB else _text(finding))


def _text(finding: Finding) -> str:
    line = finding.problem.line
    where = f"{_shown_path(finding.path)}:{line}" if line else _shown_path(finding.path)
    return one_visible_line(f"{where}: {'' if finding.fault else 'note: '}{finding.problem.rule}: {finding.message}")


def _github(finding: Finding) -> str:
    """A workflow command (https://docs.github.com/actions/reference/workflow-commands-for-github-actions)."""
    line = finding.problem.line
    place = f"file={_property(_shown_path(finding.path))}" + (f",line={line}" if line else "")
    kind = "error" if finding.fault else "notice"
    return f"::{kind} {place},title={finding.problem.rule}::{_escaped(one_visible_line(finding.message))}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


def _shown_path(path: Path) -> str:
    """From the working directory if it is below, as pre-commit and people name it."""
    shown = os.path.relpath(path)
    return str(path) if shown.startswith("..") else shown


def _explain(here: Here, found: list[Finding], faults: int) -> None:
    """How much was found, and what the rules are about that found it."""
    if not found:
        return
    notes = len(found) - faults
    here.out.talk(f"{faults:,} fault{'s' * (faults != 1)}, {notes:,} note{'s' * (notes != 1)}")
    for rule in dict.fromkeys(finding.problem.rule for finding in found):
        here.out.talk(f"{rule}: {RULES[rule][1]}")


def _tell_of_losses(here: Here, found: list[Finding]) -> None:
    lost: dict[str | None, list[str]] = {}
    for finding in found:
        if finding.problem.rule == "lost-entry":
            lost.setdefault(finding.agent, []).append(finding.problem.message.split(" ")[0])
    for agent, ids in lost.items():
        one = len(ids) == 1
        here.out.talk(
            f"{title(agent)}: {hints.command(here, agent, 'restore', ids[0] if one else '--lost')} brings "
            f"{'it' if one else 'them'} back, {hints.command(here, agent, 'check', '--accept')} settles what shall be gone"
        )
