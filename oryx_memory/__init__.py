"""The long-term memory of AI agents, in files that people can read and git can track."""

from typing import TYPE_CHECKING, Any

from oryx_memory.changes import Change, Copy, Snapshot
from oryx_memory.entry import Entry, Retirement, Scope
from oryx_memory.errors import (
    FileProblem,
    LockTimeout,
    NoAgent,
    NothingFound,
    NoWorkspace,
    OryxMemoryError,
    OryxMemoryWarning,
    Refused,
    RejectedInput,
    ServiceProblem,
    SettingsError,
    UnsafeName,
)
from oryx_memory.settings import Settings
from oryx_memory.stores import LongTermMemoryStore, open_memory
from oryx_memory.window import Memory
from oryx_memory.workspace import Workspace

if TYPE_CHECKING:
    from oryx_memory.retention import Policy
    from oryx_memory.service import MemoryService, Recalled, current_agent, current_agent_name
    from oryx_memory.tools import ToolAnswer, ToolExecutor, anthropic_tools, openai_tools

__all__ = [
    "Change",
    "Copy",
    "Entry",
    "FileProblem",
    "LockTimeout",
    "LongTermMemoryStore",
    "Memory",
    "MemoryService",
    "NoAgent",
    "NoWorkspace",
    "NothingFound",
    "OryxMemoryError",
    "OryxMemoryWarning",
    "Policy",
    "Recalled",
    "Refused",
    "RejectedInput",
    "Retirement",
    "Scope",
    "ServiceProblem",
    "Settings",
    "SettingsError",
    "Snapshot",
    "ToolAnswer",
    "ToolExecutor",
    "UnsafeName",
    "Workspace",
    "anthropic_tools",
    "current_agent",
    "current_agent_name",
    "open_memory",
    "openai_tools",
]

# What a command does not need is imported when it is first asked for.
_LATER = {
    "MemoryService": "service",
    "Policy": "retention",
    "Recalled": "service",
    "ToolAnswer": "tools",
    "ToolExecutor": "tools",
    "anthropic_tools": "tools",
    "current_agent": "service",
    "current_agent_name": "service",
    "openai_tools": "tools",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"oryx_memory.{_LATER[name]}"), name)
