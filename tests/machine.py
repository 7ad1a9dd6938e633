"""A machine that can stop us, or let another program act, before any step that touches a file.

The steps are the real system calls; only their moment is ours. `stop_at` ends the "process" before (or in the middle
of) one step: from then on every step raises, as nothing more happens after SIGKILL, and the locks are gone.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest

from oryx_memory import files

STEPS = (
    "write",
    "pwrite",
    "fsync",
    "ftruncate",
    "replace",
    "rename",
    "unlink",
    "link",
    "mkdir",
    "open",
    "fchmod",
    "fchown",
)


class Killed(BaseException):
    """The process has ended."""


class Machine:
    """Counts the steps; `before` is called with each one's name and number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.names: list[str] = []
        self.stop_at: int | None = None
        self.partly = False
        self.dead = False
        self.before: Callable[[str, int], None] | None = None
        for name in STEPS:
            monkeypatch.setattr(os, name, self._step(name, getattr(os, name)))
        # renameat2 is called through ctypes, where no name of `os` stands for it: wrapped, not replaced
        monkeypatch.setattr(files, "_renameat2", self._step("renameat2", files._renameat2))

    def _step(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            if self.dead:
                raise Killed
            self.count += 1
            self.names.append(name)
            if self.before is not None:
                before, self.before = self.before, None
                before(name, self.count)
                self.before = self.before or before
            if self.count == self.stop_at:
                if self.partly and name in ("write", "pwrite"):
                    descriptor, data, *rest = args
                    real(descriptor, bytes(data)[: len(data) // 2], *rest)
                self.dead = True
                raise Killed
            return real(*args, **kwargs)

        return step

    def run(self, action: Callable[[], Any], *, stop_at: int | None = None, partly: bool = False) -> bool:
        """Run an action, dying at a step; True if it ended by itself."""
        self.count, self.names, self.stop_at, self.partly = 0, [], stop_at, partly
        try:
            action()
        except Killed:
            return False
        finally:
            self.stop_at = None
            self.dead = False
            files._close_in_child()  # what the kernel does with a dead process's locks
        return True
