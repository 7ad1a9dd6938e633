"""Every error and warning of the package: one tree, with the exit code and the data on the class.

    OryxMemoryError                 exit 3
    ├── NothingFound                exit 1   also LookupError
    ├── Refused                     exit 1
    ├── RejectedInput               exit 2   also ValueError
    │   └── UnsafeName
    ├── NoWorkspace                 exit 3   also LookupError
    ├── NoAgent                     exit 3   also LookupError
    ├── SettingsError               exit 3   also ValueError
    ├── FileProblem                 exit 3   also OSError
    ├── GitProblem                  exit 3
    ├── ServiceProblem              exit 4
    └── LockTimeout                 exit 5   also TimeoutError

    OryxMemoryWarning               also UserWarning; shown, never raised by us

A message is one line: what, where, what to do.
"""

from pathlib import Path
from typing import ClassVar


class OryxMemoryError(Exception):
    """Base of all errors of this package."""

    exit_code: ClassVar[int] = 3


class NothingFound(OryxMemoryError, LookupError):
    """No entry answers to the id, the key, the run or the keyword."""

    exit_code = 1


class Refused(OryxMemoryError):
    """A safety limit stopped a change; nothing was changed."""

    exit_code = 1


class RejectedInput(OryxMemoryError, ValueError):
    """The caller's text, id, time or option cannot be taken."""

    exit_code = 2


class UnsafeName(RejectedInput):
    """An agent name that is no legal folder name. `name` holds it."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"unsafe agent name {name!r}: a name is made of A-Z a-z 0-9 _ - only; OryxOS keeps such agents in the "
            'global memory, and so does this tool once memory.toml has [agents] unsafe = "global"'
        )


class NoWorkspace(OryxMemoryError, LookupError):
    """No `.oryxos` folder where it was looked for, or one that must be named to be used."""


class NoAgent(OryxMemoryError, LookupError):
    """The agent has no folder. `agent` holds its name, `nearest` the most similar existing name or None."""

    def __init__(self, agent: str, agents_dir: Path, nearest: str | None) -> None:
        self.agent = agent
        self.nearest = nearest
        hint = f"did you mean {nearest}?" if nearest else "`oryx memory agents` lists them; append creates one"
        super().__init__(f"no agent {agent} in {agents_dir}; {hint}")


class SettingsError(OryxMemoryError, ValueError):
    """A settings file or a setting is wrong. `path` is the file, or None for the environment and flags."""

    def __init__(self, message: str, path: Path | None = None) -> None:
        self.path = path
        super().__init__(f"{path}: {message}" if path else message)


class FileProblem(OryxMemoryError, OSError):
    """A file cannot be read or written as it stands. `path` names it."""

    def __init__(self, path: Path | str, message: str) -> None:
        self.path = Path(path)
        super().__init__(f"{path}: {message}")

    def __str__(self) -> str:  # OSError would print its errno tuple
        return str(self.args[0])


class GitProblem(OryxMemoryError):
    """git is missing, or cannot answer. `folder` is where it was asked."""

    def __init__(self, message: str, folder: Path) -> None:
        self.folder = folder
        super().__init__(message)


class ServiceProblem(OryxMemoryError):
    """A service or a model did not give what was asked of it. `service` names it; `heals` tells whether the same question
    may be answered later, or not until a person changes something; `of_texts`, whether other texts may be answered now.
    """

    exit_code = 4

    def __init__(self, service: str, message: str, *, heals: bool, of_texts: bool = False) -> None:
        self.service = service
        self.heals = heals
        self.of_texts = of_texts
        super().__init__(f"{service}: {message}")


class LockTimeout(OryxMemoryError, TimeoutError):
    """Another writer held the lock longer than the caller would wait. `seconds` is that time."""

    exit_code = 5

    def __init__(self, path: Path, seconds: float) -> None:
        self.path = path
        self.seconds = seconds
        super().__init__(
            f"{path}: another writer has held the lock for {seconds:g} s; nothing was written; "
            "try again or raise --lock-timeout"
        )

    def __str__(self) -> str:
        return str(self.args[0])


class OryxMemoryWarning(UserWarning):
    """Something a person should know about a memory that was still read or written."""
