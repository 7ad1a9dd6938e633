"""What the commands share: their common options, and Here, which they open.

`memory_command` registers a function whose first parameter is a Here; the common options are added to its own.
"""

import functools
import inspect
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from oryx_memory import settings, stores, workspace
from oryx_memory.cli.output import Output, entries_text, one_visible_line
from oryx_memory.entry import wall_clock
from oryx_memory.errors import NoWorkspace, RejectedInput
from oryx_memory.settings import Settings
from oryx_memory.stores import LongTermMemoryStore
from oryx_memory.window import Memory, chars
from oryx_memory.workspace import Workspace


class Here:
    """Where a command works: its options, the workspace, the agent and the output. Opens things when asked."""

    def __init__(
        self,
        *,
        root: Path | None = None,
        user: bool = False,
        agent: str | None = None,
        backend: str | None = None,
        json: bool = False,
        quiet: bool = False,
        lock_timeout: float = 10.0,
    ) -> None:
        if user and (agent is not None or root):
            raise RejectedInput("--user names the global memory of ~/.oryxos; leave out --agent and --root")
        if not lock_timeout >= 0:  # nan is not
            raise RejectedInput(f"--lock-timeout is a number of seconds, not {lock_timeout}")
        self.out = Output(json=json, quiet=quiet)
        self.agent = None if user else agent if agent is not None else os.environ.get("ORYX_AGENT") or None
        self.given_root = root
        self.given_agent = agent
        self.user = user
        self.given_backend = backend
        self.lock_timeout = lock_timeout

    @functools.cached_property
    def workspace(self) -> Workspace:
        """The workspace that was named, or the nearest one."""
        if self.user:
            home = os.path.expanduser("~")
            if not os.path.isabs(home):
                raise NoWorkspace("--user needs a home directory, and there is none")
            return workspace.named(Path(home))
        root = self.given_root or os.environ.get("ORYXOS_ROOT")
        return workspace.named(Path(root)) if root else workspace.discover()

    @functools.cached_property
    def settings(self) -> Settings:
        """The settings that count here."""
        return settings.load(self.workspace.root, os.environ, {"backend": self.given_backend})

    def store(self, agent: str | None = None, *, create: bool = False) -> LongTermMemoryStore:
        """The memory of the agent; without `create` the agent must exist."""
        name = self.agent if agent is None else agent
        store = stores.open(self.workspace, self.settings, name, lock_timeout=self.lock_timeout)
        if not create:
            stores.require(self.workspace, self.settings, store.agent, lock_timeout=self.lock_timeout)
        return store

    def purged(self, store: LongTermMemoryStore) -> None:
        """What was destroyed in a memory leaves the index of ranked recall too, if there is one."""
        if self.workspace.index_file.exists():
            from oryx_memory.index import after_purge

            after_purge(self.workspace.index_file, store, self.lock_timeout)

    def has_agent(self, agent: str | None) -> bool:
        """Whether the agent has a folder or a row."""
        return stores.has_agent(self.workspace, self.settings, agent, lock_timeout=self.lock_timeout)

    def all_agents(self) -> list[str]:
        """The agents of the workspace, sorted."""
        return stores.names(self.workspace, self.settings, lock_timeout=self.lock_timeout)

    def place(self, agent: str | None) -> Path:
        """Where the agent's memory is, or what it has here: its folder, or the database."""
        if self.settings["backend"] == "sqlite":
            return self.workspace.database_file(self.settings["sqlite.path"])
        return self.workspace.memory_file(agent).parent

    def names(self, all_agents: bool) -> Iterator[str | None]:
        """The agents that a command is about, one after the other; the progress bar goes with them."""
        if not all_agents:
            yield self.agent
            return
        if self.given_agent is not None:
            raise RejectedInput("--all-agents and --agent exclude each other")
        self.agent = None  # what the environment says is one of them
        names = [None, *self.all_agents()]
        for number, name in enumerate(names):
            self.out.progress.step(number, len(names))
            yield name

    def time(self, text: str) -> datetime:
        """A moment as a person writes it, as local wall-clock time. Raises RejectedInput."""
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            raise RejectedInput(f"not a time: {text!r}; write 2026-07-22 or '2026-07-22 09:30:00'") from None
        return wall_clock(moment, stores.zone_of(self.settings["time.zone"]) if moment.tzinfo else None)

    def since(self, text: str | None) -> datetime | None:
        """A moment, or a span before now such as 7d."""
        if text is None:
            return None
        from oryx_memory.retention import parse_span

        try:
            span = parse_span(text)
        except RejectedInput:
            return self.time(text)
        try:
            return stores.local_clock(self.settings["time.zone"])() - span
        except OverflowError:
            raise RejectedInput(f"not a time: {text} ago was before the first year") from None


def loaded(here: Here, store: LongTermMemoryStore, max_chars: int | None) -> Memory:
    """What a model is given, and a warning where core is larger than it should be."""
    memory = store.load(max_chars=max_chars)
    if (size := chars(memory.core)) > (limit := here.settings["core.max_chars"]):
        here.out.warn(f"core has {size:,} characters, more than [core] max_chars {limit:,}; nothing was cut")
    return memory


def left_out(memory: Memory) -> str:
    """What of archival a model is not given; empty where it is given all."""
    parts = [entries_text(memory.outside, "older archival")] if memory.outside else []
    parts += [f"{memory.cut:,} characters of the newest one"] if memory.cut else []
    return f"left out: {' and '.join(parts)}" if parts else ""


def title(agent: str | None) -> str:
    """An agent as messages name it."""
    return agent or "the global memory"


def one_text(words: list[str] | None, what: str) -> str | None:
    """The one text of a command line, or None. Raises RejectedInput that shows the quoted command for several."""
    if not words:
        return None
    if len(words) == 1:
        return words[0]
    typed = sys.argv[1:]
    for word in reversed(words):  # the words stand behind the command's name and the values of options
        if word in typed:
            del typed[len(typed) - 1 - typed[::-1].index(word)]
    program = os.path.basename(sys.argv[0]) if sys.argv[0] else "oryx"
    command = " ".join([program, *map(shlex.quote, typed), shlex.quote(" ".join(words))])
    raise RejectedInput(f"expected one {what}, got {len(words)} words; quote it: {command}")


def _complete_agents(ctx: typer.Context, incomplete: str) -> list[str]:
    try:
        names = Here(**_common(ctx.params)).all_agents()
    except Exception:  # completion must never print or fail
        return []
    return [name for name in names if name.startswith(incomplete)]


def complete_live(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of live entries, with the start of their content."""
    return _complete_ids(ctx, incomplete, retired=False)


def complete_retired(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of retired entries, with the start of their content."""
    return _complete_ids(ctx, incomplete, retired=True)


def _complete_ids(ctx: typer.Context, incomplete: str, *, retired: bool) -> list[tuple[str, str]]:
    try:
        here = Here(**_common(ctx.params))
        if here.settings["backend"] == "mem0":
            return []  # a key that is pressed must not wait for a server
        snapshot = here.store().read(retired=retired)
    except Exception:  # completion must never print or fail
        return []
    entries = snapshot.retired if retired else snapshot.core + snapshot.archival
    found = ((entry.id, one_visible_line(entry.content)[:60].replace(":", " ")) for entry in reversed(entries))
    return [item for item in found if item[0].startswith(incomplete)][:50]


def _common(params: dict[str, Any]) -> dict[str, Any]:
    """What was typed so far of the common options."""
    return {option.name: given for option in COMMON if (given := params.get(option.name))}


Root = Annotated[
    Path | None,
    typer.Option(help="The .oryxos folder or the folder that holds it. [env: ORYXOS_ROOT]", show_default=False),
]
User = Annotated[bool, typer.Option("--user", help="The global memory of ~/.oryxos.")]
Agent = Annotated[
    str | None,
    typer.Option(
        "--agent",
        "-a",
        "--profile",
        help="The agent; the global memory without it. [env: ORYX_AGENT]",
        show_default=False,
        autocompletion=_complete_agents,
    ),
]
Backend = Annotated[str | None, typer.Option(help="The backend. [env: ORYX_MEMORY_BACKEND]", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No talk, no echo; warnings and errors stay.")]
LockTimeout = Annotated[float, typer.Option(min=0, help="Seconds to wait for another writer.")]

COMMON = [
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
    for name, default, annotation in (
        ("agent", None, Agent),
        ("root", None, Root),
        ("user", False, User),
        ("backend", None, Backend),
        ("json", False, Json),
        ("quiet", False, Quiet),
        ("lock_timeout", 10.0, LockTimeout),
    )
]


class MemoryCommand(TyperCommand):
    """A command whose texts may begin with a dash and a blank, as a bullet does."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            return super().parse_args(ctx, args)
        takes_value = {opt for param in self.params if not getattr(param, "is_flag", True) for opt in param.opts}
        rest: list[str] = []
        bullets: list[str] = []
        for number, arg in enumerate(args):
            is_bullet = len(arg) > 1 and arg[0] == "-" and arg[1].isspace()
            (bullets if is_bullet and not (number and args[number - 1] in takes_value) else rest).append(arg)
        return super().parse_args(ctx, [*rest, "--", *bullets] if bullets else rest)


def memory_command(app: typer.Typer, name: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command on `app`: a function of a Here and its own parameters."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(function).parameters.values())[1:]

        @functools.wraps(function)
        def command(**params: Any) -> None:
            common = {parameter.name: params.pop(parameter.name) for parameter in COMMON}
            here = Here(**common)
            with here.out.progress:
                function(here, **params)

        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own] + COMMON
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        app.command(name, cls=MemoryCommand)(command)
        return function

    return register
