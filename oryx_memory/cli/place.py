"""Commands about the place: the overview, init, agents, path, completion."""

import os
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from oryx_memory import git, stores, workspace
from oryx_memory.cli.options import Here, memory_command, title
from oryx_memory.cli.output import Output, table
from oryx_memory.errors import GitProblem, NoWorkspace, OryxMemoryError, RejectedInput

app = typer.Typer(rich_markup_mode=None)


class Shell(StrEnum):
    """Shells that completion is made for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def overview(root: str | None) -> None:
    """What `oryx memory` prints without a command."""
    here = Here(root=Path(root) if root else None)
    out = here.out
    try:
        place = here.workspace
    except NoWorkspace as error:
        if root or os.environ.get("ORYXOS_ROOT"):
            raise
        out.talk(str(error))
        out.talk("help: oryx memory --help")
        raise typer.Exit(error.exit_code) from error
    backend = here.settings["backend"]
    rows = _counts(here, [None, *here.all_agents()])
    out.rows([("workspace", str(place.root)), ("backend", backend)])
    if out.fancy:
        out.render(table(("memory", "core", "archival", "retired", ""), rows, right=(1, 2, 3)))
    else:
        out.rows(row[:4] for row in rows)
    out.talk("next: oryx memory append -a NAME 'a text', oryx memory recall -a NAME WORD, oryx memory --help")


def _counts(here: Here, agents: list[str | None]) -> list[tuple[str, ...]]:
    settings = here.settings
    rows: list[tuple[str, ...]] = []
    for agent in agents:
        about = here.workspace.agent_title(agent) if agent else "shared by all agents of this workspace"
        try:
            now = stores.open(here.workspace, settings, agent, lock_timeout=here.lock_timeout).read(retired=True)
            rows.append((agent or "(global)", str(len(now.core)), str(len(now.archival)), str(len(now.retired)), about))
        except OryxMemoryError as error:
            here.out.warn(f"oryx: {title(agent)}: {error}")
            rows.append((agent or "(global)", "?", "?", "?", about))
    return rows


@memory_command(app)
def init(
    here: Here,
    undo: Annotated[
        bool, typer.Option("--undo", help="Take the merge driver and our lines in .gitignore and .gitattributes out.")
    ] = False,
) -> None:
    """Make a workspace in the current folder, or in --root; overwrites nothing, adds what is missing.

    \b
    In a git repository it puts the merge driver for memories into the repository's configuration.
      oryx memory init
    """
    given = here.given_root
    try:
        folder = Path(os.path.abspath(given)) if given else Path(os.getcwd())
    except OSError as error:
        raise NoWorkspace("the working directory is gone; name a folder with --root PATH") from error
    root = folder if folder.name == workspace.FOLDER else folder / workspace.FOLDER
    if undo:
        _undo(here.out, root)
        return
    made = list(workspace.initialise(folder))
    driver = _configured(here.out, root, git.install_driver)
    if here.out.json:
        here.out.object({"workspace": str(root), "made": [str(path) for path in made], "driver": driver})
    else:
        here.out.data(str(root))
    if made:
        here.out.talk(f"made {', '.join(path.name for path in made)}")
    if driver:
        here.out.talk("put the merge driver for memories into the repository's git configuration; --undo takes it out")
    if made:
        here.out.talk("next: oryx memory append -a NAME 'a text'")
    elif not driver:
        here.out.talk("nothing to add: it has all its parts")


def _undo(out: Output, root: Path) -> None:
    if not root.is_dir():
        raise NoWorkspace(f"nothing to undo: no {workspace.FOLDER} folder at {root.parent}")
    undone = list(workspace.remove_git_lines(root))
    driver = _configured(out, root, git.remove_driver)
    if out.json:
        out.object({"workspace": str(root), "undone": [str(path) for path in undone], "driver": driver})
    else:
        out.data(str(root))
    if undone:
        out.talk(f"took our lines out of {', '.join(path.name for path in undone)}; memories and folders stay")
    if driver:
        out.talk("took the merge driver out of the repository's git configuration")
    if not undone and not driver:
        out.talk("nothing to undo: nothing of ours in git's files")


def _configured(out: Output, root: Path, change: Callable[[Path], bool]) -> bool:
    """What a change of the git configuration says; False outside a repository, and where git cannot do it."""
    try:
        return git.top(root) is not None and change(root)
    except GitProblem as error:
        out.warn(f"oryx: note: the merge driver was left alone: {error}")
        return False


@memory_command(app)
def agents(here: Here) -> None:
    """List the agents: on a terminal with counts, piped one name a line.

    \b
      oryx memory agents
    """
    names: list[str | None] = [*here.all_agents()]
    if here.out.json:
        counts = _counts(here, [None, *names])
        keys = ("core", "archival", "retired")
        here.out.object(
            [
                {
                    "agent": agent,
                    **{key: int(n) if n.isdigit() else None for key, n in zip(keys, row[1:4], strict=True)},
                    "about": row[4],
                }
                for agent, row in zip([None, *names], counts, strict=True)
            ]
        )
    elif here.out.fancy:
        here.out.render(table(("agent", "core", "archival", "retired", ""), _counts(here, names), right=(1, 2, 3)))
    else:
        here.out.rows([name] for name in names if name)
    if not names:
        here.out.talk(f"no agents in {here.workspace.agents_dir}; append -a NAME makes one")


@memory_command(app)
def path(
    here: Here, retired: Annotated[bool, typer.Option("--retired", help="The retired file instead.")] = False
) -> None:
    """Print the path of the agent's MEMORY.md, or of the database; it may not exist yet.

    A memory on a mem0 server has no path, but what was retired from it has one.

    \b
      $EDITOR "$(oryx memory path -a ops)"
    """
    store = here.store()
    agent = store.agent
    if here.settings["backend"] == "sqlite":
        shown = str(here.place(agent))
    elif here.settings["backend"] == "mem0":
        from oryx_memory.stores.mem0 import Mem0MemoryStore

        assert isinstance(store, Mem0MemoryStore)
        if not retired:
            raise RejectedInput(
                f"the memory is no file but the user {store.user} of {store.server.name}; "
                "path --retired names the file of what was retired, and export writes the rest"
            )
        shown = str(store.retired_path)
    else:
        from oryx_memory.stores.markdown import MarkdownStore

        assert isinstance(store, MarkdownStore)
        shown = str(store.retired_path if retired else store.path)
    if here.out.json:
        here.out.object({"path": shown})
    else:
        here.out.data(shown)


@app.command()
def completion(shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.")]) -> None:
    """Print a completion script for a shell; edits nothing.

    \b
      eval "$(oryx memory completion bash)"
      oryx memory completion fish > ~/.config/fish/completions/oryx.fish
    """
    from oryx_memory.cli.completion import script

    print(script(shell.value, _program()), end="")


def _program() -> str:
    name = os.path.basename(sys.argv[0])
    return name if name in ("oryx", "oryx-memory") else "oryx"
