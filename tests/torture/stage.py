"""Starts the processes, kills some of them again and again, and ends all at last, whatever happens.

Only processes that it started are ended, by their pid. A deadline bounds it: after it, it fails with what it knows.
"""

import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from torture.ledger import Deed, Ledger

TESTS = Path(__file__).parent.parent
PATIENCE = 120  # seconds that a process may take for its last turn
KILLABLE = ("writer", "cleaner", "changer")


@dataclass(frozen=True)
class Size:
    """How long a run is: acknowledged appends, kills, seconds until it gives up, writers, and the seconds between
    two rewrites of a program without the lock (what else is no writer waits in proportion to it).
    """

    appends: int
    kills: int
    seconds: float
    writers: int
    pace: float


@dataclass
class Stage:
    """A run on one workspace; ledgers and what processes say on standard error lie in `folder`."""

    root: Path
    folder: Path
    size: Size
    foreign: tuple[str, ...]
    cast: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    kills: Counter[str] = field(default_factory=Counter)
    lives: Counter[str] = field(default_factory=Counter)

    def run(self) -> Ledger:
        """Until there are enough appends and kills. Raises AssertionError after the deadline, or where a process ended
        by itself.
        """
        ledger = Ledger(self.folder)
        give_up = time.monotonic() + self.size.seconds
        try:
            for name in [f"writer{number}" for number in range(self.size.writers)]:
                self._start("ours", name)
            for name in ("cleaner0", "changer0", "reader0", "operator0"):
                self._start("ours", name)
            for name in self.foreign:
                self._start("foreign", name)
            while not self._enough(ledger):
                assert time.monotonic() < give_up, f"not done in {self.size.seconds:g} s: {self._state(ledger)}"
                self._look_after(ledger)
                time.sleep(0.1)  # how often it looks; nothing depends on it
            self._end(give_up)
        finally:
            for process in self.cast.values():
                _kill(process)
        ledger.catch_up()
        return ledger

    def _enough(self, ledger: Ledger) -> bool:
        ledger.catch_up()
        return ledger.count(Deed.ADDED) >= self.size.appends and self.kills.total() >= self.size.kills

    def _look_after(self, ledger: Ledger) -> None:
        for name, process in self.cast.items():
            assert process.poll() is None, f"{name} ended with {process.returncode}: {self._said(name)}"
        if (self.kills.total() + 1) * self.size.appends <= ledger.count(Deed.ADDED) * self.size.kills:
            name = random.choice([name for name in self.cast if name.startswith(KILLABLE)])
            _kill(self.cast[name])
            self.kills[name.rstrip("0123456789")] += 1
            self._start("ours", name)

    def _start(self, module: str, name: str) -> None:
        """A process; each life of it has a ledger and tokens of its own."""
        self.lives[name] += 1
        token = f"{name}.{self.lives[name]}"
        role = name.rstrip("0123456789")
        words = [role, self.root, self.folder / f"{token}.ledger", token, self.size.pace]
        with open(self.folder / f"{name}.err", "ab") as said:
            self.cast[name] = subprocess.Popen(
                [sys.executable, "-m", f"torture.{module}", *map(str, words)],
                cwd=TESTS,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=said,
            )

    def _end(self, give_up: float) -> None:
        for process in self.cast.values():
            assert process.stdin is not None
            process.stdin.close()
        for name, process in self.cast.items():
            code = process.wait(max(PATIENCE, give_up - time.monotonic()))
            assert code == 0, f"{name} ended with {code}: {self._said(name)}"

    def _said(self, name: str) -> str:
        return (self.folder / f"{name}.err").read_text(encoding="utf-8", errors="replace")[-2000:]

    def _state(self, ledger: Ledger) -> str:
        deeds = {deed.name: ledger.count(deed) for deed in Deed}
        return f"{deeds}, {self.kills.total()} kills, {sorted(self.cast)}"


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """SIGKILL, unless it has ended."""
    process.kill()
    process.wait()
    assert process.stdin is not None
    process.stdin.close()
