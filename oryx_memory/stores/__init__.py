"""One agent's memory in one backend: the contract, and `open`, which picks the backend by the settings."""

import os
from datetime import datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING

from oryx_memory.errors import NoAgent, RejectedInput, UnsafeName
from oryx_memory.stores.base import (
    GLOBAL,
    CleanReport,
    Clock,
    LongTermMemoryStore,
    MigrationReport,
    RecallCapability,
    Stats,
)

if TYPE_CHECKING:
    from oryx_memory.settings import Settings
    from oryx_memory.stores.mem0 import Mem0MemoryStore
    from oryx_memory.workspace import Workspace

__all__ = [
    "CleanReport",
    "Clock",
    "LongTermMemoryStore",
    "MigrationReport",
    "RecallCapability",
    "Stats",
    "database_path",
    "has_agent",
    "local_clock",
    "names",
    "open",
    "open_memory",
    "require",
    "stored",
    "zone_of",
]


def names(workspace: "Workspace", settings: "Settings", *, lock_timeout: float = 10.0) -> list[str]:
    """The agents that have a folder, or rows in the database if that is the backend, sorted. Raises FileProblem."""
    return sorted({*workspace.agents(), *stored(workspace, settings, lock_timeout=lock_timeout)})


def stored(workspace: "Workspace", settings: "Settings", *, lock_timeout: float = 10.0) -> list[str]:
    """The agents that may have entries in the backend: a folder, or rows. A mem0 server does not name those that it
    has, and each that was written to from here has a folder. Raises FileProblem.
    """
    if settings["backend"] != "sqlite":
        return workspace.agents()
    from oryx_memory.stores.sqlite import agents

    return [name for name in agents(database_path(workspace, settings), lock_timeout) if name is not None]


def has_agent(workspace: "Workspace", settings: "Settings", agent: str | None, *, lock_timeout: float = 10.0) -> bool:
    """Whether the agent has a folder, or something in the backend; the global memory exists. Raises FileProblem,
    ServiceProblem.
    """
    if agent is None or settings["backend"] == "markdown":
        return workspace.has_agent(agent)
    if settings["backend"] == "mem0":
        return workspace.has_agent(agent) or _on_server(workspace, settings, agent, local_clock()).has_memories()
    from oryx_memory.stores.sqlite import has_rows

    return has_rows(database_path(workspace, settings), agent, lock_timeout) or agent in workspace.agents()


def require(workspace: "Workspace", settings: "Settings", agent: str | None, *, lock_timeout: float = 10.0) -> None:
    """Raises NoAgent, with the nearest name, where the agent has neither a folder nor a row."""
    if not has_agent(workspace, settings, agent, lock_timeout=lock_timeout):
        assert agent is not None
        from oryx_memory.settings import nearest_name

        near = nearest_name(agent, names(workspace, settings, lock_timeout=lock_timeout))
        raise NoAgent(agent, workspace.agents_dir, near)


def open(
    workspace: "Workspace",
    settings: "Settings",
    agent: str | None = None,
    clock: Clock | None = None,
    *,
    lock_timeout: float = 10.0,
) -> LongTermMemoryStore:
    """The memory of `agent` (None: the global one). Opens no file and asks no server yet. In a database any name is legal.

    `clock` gives the local wall-clock time (default: now in `[time] zone`); `lock_timeout` is in seconds.
    Raises SettingsError, and UnsafeName, or with `[agents] unsafe = "global"` takes the global memory for such a name.
    """
    clock = clock or local_clock(settings["time.zone"])
    if settings["backend"] == "sqlite":
        from oryx_memory.stores.sqlite import SqliteStore

        if agent in ("", GLOBAL):
            raise RejectedInput(f"not an agent's name: {agent!r} stands for no agent in the database; leave it out")
        zone = zone_of(settings["time.zone"])
        return SqliteStore(database_path(workspace, settings), agent, clock, zone=zone, lock_timeout=lock_timeout)
    try:
        workspace.memory_file(agent)
    except UnsafeName:
        if settings["agents.unsafe"] != "global":
            raise
        agent = None
    if settings["backend"] == "mem0":
        return _on_server(workspace, settings, agent, clock, lock_timeout)
    from oryx_memory.stores.markdown import MarkdownStore

    return MarkdownStore(workspace, agent, clock, lock_timeout=lock_timeout)


def local_clock(zone: str = "") -> Clock:
    """A clock that gives the wall-clock time of an IANA zone, or of the system for an empty name."""
    here = zone_of(zone)
    return (lambda: datetime.now(here).replace(tzinfo=None)) if here else datetime.now


def _on_server(
    workspace: "Workspace", settings: "Settings", agent: str | None, clock: Clock, lock_timeout: float = 10.0
) -> "Mem0MemoryStore":
    from oryx_memory.stores.mem0 import Mem0MemoryStore

    zone = zone_of(settings["time.zone"])
    return Mem0MemoryStore(workspace, agent, clock, settings.mem0, os.environ, zone=zone, lock_timeout=lock_timeout)


def database_path(workspace: "Workspace", settings: "Settings") -> Path:
    """OryxOS's database file; one that the project itself names must be in the project, links followed, or FileProblem is
    raised.
    """
    from oryx_memory.files import resolve
    from oryx_memory.settings import leads_out

    path = workspace.database_file(settings["sqlite.path"])
    return path if leads_out(settings["sqlite.path"]) else resolve(path, workspace.root.parent)


def zone_of(name: str) -> tzinfo | None:
    """The zone of an IANA name; None, the system's, for an empty one."""
    if not name:
        return None
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)


def open_memory(
    agent: str | None = None, *, root: "str | os.PathLike[str] | None" = None, lock_timeout: float = 10.0
) -> LongTermMemoryStore:
    """The memory of `agent` (None: the global one) in the workspace `root`, or in the nearest one upward from here.

    `root` is a `.oryxos` folder or the folder that holds it. Settings come from its files and the environment.
    Raises NoWorkspace, SettingsError, UnsafeName.
    """
    from oryx_memory import settings, workspace

    place = workspace.discover() if root is None else workspace.named(Path(root))
    return open(place, settings.load(place.root, os.environ), agent, lock_timeout=lock_timeout)
