"""What a memory is at one moment (Snapshot) and what shall become of it (Change), as pure data.

A plan is a function from Snapshot to Change. A store calls it once under its lock and applies what it gives, and
`--dry-run` shows the same Change. Each item of a Change names one copy of an entry, by its place in the Snapshot.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from oryx_memory.entry import Entry, Scope
from oryx_memory.errors import NothingFound, RejectedInput


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A memory at one moment: entries in stored order. `retired` is empty unless it was asked for."""

    core: tuple[Entry, ...] = ()
    archival: tuple[Entry, ...] = ()
    retired: tuple[Entry, ...] = ()

    def section(self, scope: Scope) -> tuple[Entry, ...]:
        """The live entries of one section."""
        return self.core if scope is Scope.CORE else self.archival

    def live(self) -> Iterator["Copy"]:
        """Every live copy, core first."""
        for scope in Scope:
            for index, entry in enumerate(self.section(scope)):
                yield Copy(index, entry)

    def texts(self) -> "Counter[str]":
        """How often each text is there, live and retired counted together."""
        return Counter(entry.text for part in (self.core, self.archival, self.retired) for entry in part)

    def out(self) -> Iterator["Copy"]:
        """Every retired copy, oldest record first."""
        for index, entry in enumerate(self.retired):
            yield Copy(index, entry)


class Copy(NamedTuple):
    """One copy of an entry: its place in its section of the Snapshot, or in `retired` if it is retired."""

    at: int
    entry: Entry


class Edit(NamedTuple):
    """Put `new` in the place of a live copy; the old text is retired."""

    copy: Copy
    new: Entry


class Move(NamedTuple):
    """Take a live copy to the end of the other section."""

    copy: Copy
    to: Scope


class Retire(NamedTuple):
    """Take a live copy out, for a reason."""

    copy: Copy
    reason: str


@dataclass(frozen=True, slots=True)
class Change:
    """What shall be done, or (as a store returns it) what was done, then with the id of the run.

    `recover` puts lines back that another program overwrote. `purge` destroys: live copies leave without a record, and
    a text whose retired copies are all named loses its records.
    """

    add: tuple[Entry, ...] = ()
    edit: tuple[Edit, ...] = ()
    move: tuple[Move, ...] = ()
    retire: tuple[Retire, ...] = ()
    restore: tuple[Copy, ...] = ()
    recover: tuple[Entry, ...] = ()
    purge: tuple[Copy, ...] = ()
    run: str = field(default="", compare=False)

    def __bool__(self) -> bool:
        return any((self.add, self.edit, self.move, self.retire, self.restore, self.recover, self.purge))


Plan = Callable[[Snapshot], Change]


def new_run(now: datetime, known: Container[str]) -> str:
    """The id of a run that starts now: its time and a number that no run known so far has. It counts milliseconds, as
    git may have taken away for a while what an earlier run of this second wrote.
    """
    number = 1 + now.microsecond // 1000
    while (run := f"{now:%Y%m%dT%H%M%S}-{number}") in known:
        number += 1
    return run


def find(copies: Sequence[Copy], reference: str) -> list[Copy]:
    """The copies that an id, a unique prefix of an id (4 hex digits or more) or `^key` names, in order.

    Raises RejectedInput for a reference that is none of these or a prefix of several ids, NothingFound for none.
    """
    if reference.startswith("^"):
        found = [copy for copy in copies if copy.entry.key == reference[1:]]
    else:
        prefix = reference.lower()
        if not (4 <= len(prefix) <= 12 and all(c in "0123456789abcdef" for c in prefix)):
            raise RejectedInput(f"not an id: {reference!r}; give 4 to 12 hex digits of an id, or ^key")
        found = [copy for copy in copies if copy.entry.id.startswith(prefix)]
        if len(ids := sorted({copy.entry.id for copy in found})) > 1:
            raise RejectedInput(f"{reference} is the start of {len(ids)} ids: {', '.join(ids[:8])}; give more digits")
    if not found:
        raise NothingFound(f"no entry answers to {reference}")
    return found


def pick(copies: Sequence[Copy], reference: str) -> Copy:
    """The one copy that a reference names; of identical lines the newest (the last).

    Raises as `find`, and RejectedInput where a key stands on several different entries.
    """
    found = find(copies, reference)
    if len(ids := {copy.entry.id: None for copy in found}) > 1:
        raise RejectedInput(f"{len(ids)} entries carry {reference}: {', '.join(list(ids)[:8])}; give one of the ids")
    return found[-1]


def forget(reference: str, *, purge: bool = False) -> Plan:
    """Plans to retire the entry that `reference` names, or with `purge` to destroy every live and retired copy."""

    def plan(now: Snapshot) -> Change:
        live = list(now.live())
        if not purge:
            return Change(retire=(Retire(pick(live, reference), "forgotten"),))
        copies = live + list(now.out())
        text = pick(copies, reference).entry.text
        return Change(purge=tuple(copy for copy in copies if copy.entry.text == text))

    return plan


def restore(reference: str) -> Plan:
    """Plans to bring back the retired entry that `reference` names; of several with a key, or copies, the one that
    left last.
    """
    return lambda now: Change(restore=(find(list(now.out()), reference)[-1],))


def restore_run(run: str) -> Plan:
    """Plans to bring back all that one run retired and is still out."""

    def plan(now: Snapshot) -> Change:
        copies = tuple(copy for copy in now.out() if copy.entry.retired and copy.entry.retired.run == run)
        if not copies:
            raise NothingFound(f"nothing that run {run} retired is still out")
        return Change(restore=copies)

    return plan


def move(reference: str, to: Scope) -> Plan:
    """Plans to take an entry to the end of the other section; one that is there already stays."""

    def plan(now: Snapshot) -> Change:
        copy = pick(list(now.live()), reference)
        return Change() if copy.entry.scope is to else Change(move=(Move(copy, to),))

    return plan


def edit(reference: str, content: str) -> Plan:
    """Plans to give an entry a new content; see Entry.with_content."""

    def plan(now: Snapshot) -> Change:
        copy = pick(list(now.live()), reference)
        new = copy.entry.with_content(content)
        return Change() if new.text == copy.entry.text else Change(edit=(Edit(copy, new),))

    return plan


def supersede(new: Entry, key: str | None, *, if_new: bool = False) -> Plan:
    """Plans to add an entry and retire every live timed entry with that key; with `if_new` nothing, where a live
    entry of the section has equal content.
    """

    def plan(now: Snapshot) -> Change:
        if if_new and any(entry.content == new.content for entry in now.section(new.scope)):
            return Change()
        old = (copy for copy in now.live() if key and copy.entry.key == key and copy.entry.time)
        return Change(add=(new,), retire=tuple(Retire(copy, "superseded") for copy in old))

    return plan
