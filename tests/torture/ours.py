"""Processes that take the lock: they append, clean, change, look, and do what an operator does from cron.

`python -m torture.ours ROLE ROOT LEDGER NAME PACE` works on the agent ops until standard input closes. Each process may be
killed at any moment but the operator: what it settles would be gone without having been written down.
"""

import random
import select
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from command import ORYX, checked

from oryx_memory import (
    Entry,
    LongTermMemoryStore,
    NothingFound,
    OryxMemoryError,
    Policy,
    Scope,
    changes,
    open_memory,
)
from oryx_memory.changes import Change, Snapshot
from oryx_memory.stores.markdown import MarkdownStore
from torture.ledger import Deed, Log

KEPT = 80  # archival entries that a clean-up leaves
WORDS = (
    "上线前必须两人复核", "Use uv, not pip", "周五不部署", "never deploy on Friday", "日志保留九十天", "rotate the keys monthly",
    "数据库在凌晨备份", "the staging cluster is in Frankfurt", "客户要求英文邮件", "answer in the language of the question",
    "测试先于修复", "prefer small commits", "缓存失效后重建索引", "the index may be deleted at any time",
)  # fmt: skip


def told_to_stop(seconds: float = 0) -> bool:
    """Whether standard input has closed, or closes within so many seconds."""
    return bool(select.select([sys.stdin], [], [], seconds)[0])


def sentence(token: str) -> str:
    """A text that no other token gives."""
    return f"{token} {random.choice(WORDS)}；{random.choice(WORDS)} {random.randrange(10**6)}"


class Actor:
    """A process with a memory, a ledger and a name."""

    def __init__(self, root: Path, log: Log, name: str) -> None:
        self.store: LongTermMemoryStore = open_memory("ops", root=root, lock_timeout=120)
        self.root = root
        self.log = log
        self.name = name
        self.number = 0

    def token(self) -> str:
        self.number += 1
        return f"{self.name}-{self.number}"

    def until_told(self, turn: Callable[[], None], pause: float) -> None:
        """Take turns; an error of ours, such as a file that is rewritten all the time, is written down."""
        while not told_to_stop(pause):
            try:
                turn()
            except NothingFound:
                pass  # another process was faster
            except OryxMemoryError as error:
                self.log.write(Deed.REFUSED, f"{type(error).__name__}: {error}")

    def append(self) -> None:
        """One entry, or a few at once; sometimes into core, sometimes in the place of one with the same key."""
        now = datetime.now().replace(microsecond=0)
        kind = random.random()
        if kind < 0.04:
            key = f"key{random.randrange(20)}"
            content = sentence(self.token())
            new = [Entry.new(content, time=now, key=key)]
            self.log.write(Deed.MEANT, new[0].text)
            self.store.append(content, time=now, key=key)
        else:
            scope = Scope.CORE if kind < 0.06 else Scope.ARCHIVAL
            count = 3 if kind > 0.95 else 1
            new = [Entry.new(sentence(self.token()), scope, time=now) for _ in range(count)]
            self.log.write(Deed.MEANT, *(entry.text for entry in new))
            self.store.add(new)
        self.log.write(Deed.ADDED, *(entry.text for entry in new))

    def clean(self) -> None:
        """Retire all but the newest; bring back every third run."""
        change = self.store.clean(Policy(older_than=timedelta(0), keep_entries=KEPT, force=True)).change
        if change.retire:
            self.number += 1
            self.log.write(Deed.CLEANED, str(len(change.retire)))
            if self.number % 3 == 0:
                self.store.edit(changes.restore_run(change.run))
                self.log.write(Deed.RESTORED, change.run)

    def change(self) -> None:
        """Forget, restore, edit, move or purge one entry that a writer of ours made."""
        now = self.store.read(retired=True)
        live = [entry for entry in now.core + now.archival if entry.time and entry.content.startswith("w")]
        retired = now.retired if random.random() < 0.3 else now.retired[-300:]
        old = [entry for entry in retired if entry.content.startswith("w")]
        core = [entry for entry in live if entry.scope is Scope.CORE]
        kind = random.choice(
            [self._forget, self._forget, self._edit, self._move, self._purge, self._restore, self._restore]
        )
        if kind == self._restore and old:
            kind(random.choice(old))
        elif kind != self._restore and live:
            # core is never cleaned and would grow
            kind(random.choice(core if len(core) > 40 and kind == self._forget else live))

    def _forget(self, entry: Entry) -> None:
        self.store.edit(changes.forget(entry.id))
        self.log.write(Deed.FORGOT, entry.text)

    def _restore(self, entry: Entry) -> None:
        self.store.edit(changes.restore(entry.id))
        self.log.write(Deed.RESTORED, entry.text)

    def _edit(self, entry: Entry) -> None:
        content = f"{sentence('w' + self.token())} 改"
        self.log.write(Deed.MEANT, entry.with_content(content).text)
        change = self.store.edit(changes.edit(entry.id, content))
        self.log.write(Deed.ADDED, *(item.new.text for item in change.edit))
        self.log.write(Deed.EDITED, *(item.copy.entry.text for item in change.edit))

    def _move(self, entry: Entry) -> None:
        self.store.edit(changes.move(entry.id, Scope.CORE if entry.scope is Scope.ARCHIVAL else Scope.ARCHIVAL))
        self.log.write(Deed.MOVED, entry.text)

    def _purge(self, entry: Entry) -> None:
        def plan(now: Snapshot) -> Change:
            made = changes.forget(entry.id, purge=True)(now)
            self.log.write(Deed.MEANT_TO_PURGE, *(copy.entry.text for copy in made.purge))
            return made

        change = self.store.edit(plan)
        self.log.write(Deed.PURGED, *(copy.entry.text for copy in change.purge))

    def look(self) -> None:
        """What reads: in this process, and now and then a command as a person runs it."""
        self.store.recall_by_keyword("复核")
        str(self.store.load())
        self.store.read(retired=True)
        words = random.choice(
            [["load"], ["list"], ["recall", "deploy"], ["check"], ["stats"], ["list", "--retired", "--json"]]
        )
        command = [ORYX, "memory", *words, "-a", "ops", "--root", str(self.root), "--lock-timeout", "120"]
        done = subprocess.run(command, capture_output=True, check=False)
        result = checked(done.returncode, done.stdout, done.stderr)
        if result.code not in (0, 1):
            self.log.write(Deed.REFUSED, f"{words[0]}: {result.err}")
        self.log.write(Deed.LOOKED, words[0])

    def operate(self) -> None:
        """As from cron: look for what is lost, bring it back, and settle a part of it."""
        store = self.store
        if not isinstance(store, MarkdownStore):
            return
        self.log.write(Deed.LOOKED, "lost")
        lost = store.lost()
        if 0 < len(lost) < 10 and random.random() < 0.3:
            self.log.write(Deed.SETTLED, *(line.text for line in store.settle()))
            return
        with suppress(NothingFound):  # it came back by itself, as from git's stash
            for line in lost[:2]:
                store.recover(Entry(line.text).id)
                self.log.write(Deed.RECOVERED, line.text)
            self.log.write(Deed.RECOVERED, *(entry.text for entry in store.recover().recover))


def main(role: str, root: str, ledger: str, name: str, pace: str) -> None:
    """Play one role until told to stop; what is not a writer takes its turns in proportion to `pace`, in seconds."""
    warnings.simplefilter("ignore")  # what was warned of is counted at the end
    actor = Actor(Path(root), Log(Path(ledger)), name)
    turns: dict[str, tuple[Callable[[], None], float]] = {
        "writer": (actor.append, 0),
        "cleaner": (actor.clean, 0.5),
        "changer": (actor.change, 0.1),
        "reader": (actor.look, 2),
        "operator": (actor.operate, 0.5),
    }
    turn, pause = turns[role]
    actor.until_told(turn, pause * float(pace) or 0.005)


if __name__ == "__main__":
    main(*sys.argv[1:])
