"""The contract that every backend keeps: five primitives, and seven methods written once over them.

Each of the seven is a command of `oryx memory`. A backend overrides one for speed only; the contract suite in
`tests/` runs the same tests over every backend.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from oryx_memory.changes import Change, Plan, Snapshot, supersede
from oryx_memory.entry import Entry, Scope
from oryx_memory.errors import NothingFound, Refused, RejectedInput
from oryx_memory.matching import Keyword
from oryx_memory.window import MAX_CHARS, Memory, chars, load

if TYPE_CHECKING:
    from oryx_memory.journal import Line
    from oryx_memory.retention import Policy
    from oryx_memory.stores.spool import Lacking, Spool

Clock = Callable[[], datetime]
GLOBAL = "__global__"  # OryxOS's name for no agent, where a backend needs one


class RecallCapability(StrEnum):
    """How a backend can search."""

    KEYWORD = "keyword"
    HYBRID_BUILTIN = "hybrid_builtin"
    DELEGATED = "delegated"


class CleanReport(NamedTuple):
    """What a clean-up did, or with `dry_run` would do; `before` counts the archival entries that it found."""

    agent: str | None
    change: Change
    before: int
    dry_run: bool


class MigrationReport(NamedTuple):
    """What `migrate_to` copied, or with `dry_run` would copy: entries live and retired, and those already there.

    `ids` counts the different entries of the source, each of which was then found in the target at least as often.
    """

    live: int
    retired: int
    present: int
    ids: int
    dry_run: bool


class Stats(NamedTuple):
    """Figures of a memory. Characters are code points of text joined by newlines; times are local.

    `days` counts archival entries by ISO date, oldest first; `duplicates` are timed archival entries whose content
    stood before; `empty` are rows of a database with nothing in them, which are kept and not shown.
    """

    core: int
    core_chars: int
    archival: int
    archival_chars: int
    window: int
    window_chars: int
    retired: int
    untimed: int
    duplicates: int
    oldest: datetime | None
    newest: datetime | None
    days: Mapping[str, int]
    tags: Mapping[str, int]
    keys: int
    empty: int = 0


class Found(NamedTuple):
    """An entry that a backend's own search gave, and its score there, 0 to 1."""

    entry: Entry
    score: float


class Tail(NamedTuple):
    """The archival entries behind the first `before`, which are as they were when the mark was given that was asked
    with. `mark` is what to ask with the next time: it stands in front of the last entry. None where it is of no use.
    """

    before: int
    entries: Sequence[Entry]
    mark: str | None


class LongTermMemoryStore(ABC):
    """One agent's long-term memory. `agent` is None for the global memory; `verbatim` says that text is kept
    exactly; `clock` gives local wall-clock time.
    """

    recall_capability: RecallCapability = RecallCapability.KEYWORD
    verbatim: bool = True

    def __init__(self, agent: str | None, clock: Clock) -> None:
        self.agent = agent
        self.clock = clock

    # The primitives.

    @abstractmethod
    def read(self, *, retired: bool = False) -> Snapshot:
        """The whole memory at one moment, with its retired entries if asked. Raises FileProblem."""

    @abstractmethod
    def add(self, entries: Sequence[Entry]) -> None:
        """Add entries at the end of their sections, in order; durable on return. Raises FileProblem, LockTimeout."""

    @abstractmethod
    def edit(self, plan: Plan, *, dry_run: bool = False) -> Change:
        """Call `plan` with the current state, retired entries included, under the lock, and apply the Change that
        it gives; an empty one writes nothing. Returns the Change as it was applied, with its run.

        What `plan` raises passes through, and nothing is changed then. Raises FileProblem, LockTimeout.
        """

    @abstractmethod
    def stamp(self) -> str | None:
        """A text that differs when `read(retired=True)` would; None if the backend cannot tell."""

    @abstractmethod
    def fill(self, spool: "Spool") -> Iterator[list["Lacking"]]:
        """Under one lock, tell the spool what is here and add what it then says is lacking; durable when it ends.
        An empty spool makes nothing. Raises FileProblem, LockTimeout.
        """

    @property
    @abstractmethod
    def resource(self) -> str:
        """What `exclusive` holds; memories of one resource are held together."""

    @abstractmethod
    def exclusive(self) -> AbstractContextManager[None]:
        """While it is held no other writer of ours changes this memory; reading goes on."""

    @abstractmethod
    def load_as_oryxos(self) -> str:
        """The text that OryxOS itself would give a model from this backend."""

    def settled_stamp(self) -> str | None:
        """The stamp, or None while the memory is so new that one more write might not change it."""
        return self.stamp()

    def archival_since(self, mark: str | None) -> Tail:
        """The archival entries from a mark on; all of them where it is not certain that those before it are as they
        were. A backend overrides it for speed only. Raises FileProblem.
        """
        return Tail(0, self.read().archival, None)

    def scored(self, query: str, *, limit: int, least: float = 0.0) -> list[Found]:
        """The archival entries that the backend's own search takes for an answer, best first, with a score of `least` or
        more; without footprints. For a backend that is DELEGATED, the others refuse. Raises RejectedInput, ServiceProblem.
        """
        raise RejectedInput("this backend has no search of its own; ranked recall searches its entries")

    def search(self, query: str, *, limit: int) -> list[Entry]:
        """As `scored`, without scores."""
        return [found.entry for found in self.scored(query, limit=limit)]

    def lost(self) -> "list[Line]":
        """The lines that were acknowledged and are gone, as far as the journal reaches: a program that takes no lock
        has overwritten them. A backend whose writers all take one keeps no journal and loses none.
        """
        return []

    def recover(self, reference: str | None = None, *, among: "Collection[Line] | None" = None) -> Change:
        """Bring back the lost line that an id or `^key` names, the newest of several; without one all that are lost, or
        those of them that are `among` these. Raises NothingFound.
        """
        raise NothingFound("nothing is lost" if reference is None else f"no entry answers to {reference}")

    # The seven methods.

    def append(
        self,
        content: str,
        scope: Scope = Scope.ARCHIVAL,
        *,
        time: datetime | None = None,
        tags: Iterable[str] = (),
        key: str | None = None,
        if_new: bool = False,
    ) -> Entry:
        """Remember one text, and return its entry as stored; durable on return.

        `time` is local wall-clock time (default: now). `key` retires every live timed entry with that key in the
        change that adds the new one. `if_new`: where a live entry of the section has equal content, that one is
        returned and nothing is written. Raises RejectedInput, FileProblem, LockTimeout.
        """
        entry = Entry.new(content, scope, time=time or self.clock(), tags=tags, key=key)
        if key is None and not if_new:
            self.add((entry,))
            return entry
        present: list[Entry] = []

        def plan(now: Snapshot) -> Change:
            change = supersede(entry, key, if_new=if_new)(now)
            if not change:
                present.extend(old for old in now.section(scope) if old.content == entry.content)
            return change

        self.edit(plan)
        return present[0] if present else entry

    def load(self, *, max_chars: int | None = MAX_CHARS) -> Memory:
        """What a model is given: core whole and the window of at most `max_chars` code points (None: all)."""
        snapshot = self.read()
        return load(snapshot.core, reversed(snapshot.archival), len(snapshot.archival), max_chars)

    def recall_by_keyword(self, keyword: str) -> list[Entry]:
        """The archival entries whose text has the keyword in it, in stored order; see `matching`.

        Raises RejectedInput for an empty or blank keyword.
        """
        wanted = Keyword(keyword)
        return [entry for entry in self.read().archival if wanted.matches(entry.text)]

    def export(self, *, retired: bool = False) -> Iterator[Entry]:
        """Every live entry, core first, then the retired ones if asked."""
        snapshot = self.read(retired=retired)
        yield from snapshot.core
        yield from snapshot.archival
        yield from snapshot.retired

    def stream(self) -> Iterator[Entry]:
        """As `export` with the retired ones, without holding all of them: for one who takes them without a pause."""
        return self.export(retired=True)

    def migrate_to(self, target: "LongTermMemoryStore", *, dry_run: bool = False) -> MigrationReport:
        """Copy what `target` lacks, retired entries too; see `bring`."""
        return target.bring(self.stream(), dry_run=dry_run)

    def bring(self, entries: Iterable[Entry], *, dry_run: bool = False) -> MigrationReport:
        """Add what is missing of the entries: each text is then here at least as often as among them, live and
        retired counted together. Nothing is removed or revived, and a second time nothing is added.

        A retired entry is added retired, with its time, reason and run. The entries, of any number, are taken
        before the lock; the counts are compared afterwards. Raises Refused where they do not agree.
        """
        from oryx_memory.stores.spool import Spool

        with Spool() as spool:
            spool.put(entries)
            if dry_run:
                spool.hold(self.stream())
            batches = spool.batches() if dry_run else self.fill(spool)
            retired = Counter(item.entry.retired is not None for batch in batches for item in batch)
            report = MigrationReport(retired[False], retired[True], spool.total - retired.total(), 0, dry_run)
            if dry_run:
                return report
            spool.hold(self.stream())
            if lacking := next(spool.batches(), None):
                text = lacking[0].entry.text
                raise Refused(f"not in the target, or not as often: {text!r}; another writer removes it; run it again")
            return report._replace(ids=spool.texts())

    def clean(self, policy: "Policy", *, dry_run: bool = False) -> CleanReport:
        """Retire what the policy says, of archival only, and destroy what it says of the retired. Raises TooMuch where one of
        the two is more than `max_share`.
        """
        before = 0

        def plan(now: Snapshot) -> Change:
            nonlocal before
            before = len(now.archival)
            return policy.plan(now, self.clock())

        return CleanReport(self.agent, self.edit(plan, dry_run=dry_run), before, dry_run)

    def stats(self) -> Stats:
        """Figures of the whole memory."""
        snapshot = self.read(retired=True)
        memory = load(snapshot.core, reversed(snapshot.archival), len(snapshot.archival), MAX_CHARS)
        archival = snapshot.archival
        timed = [(time, entry) for entry in archival if (time := entry.time) is not None]
        times = sorted(time for time, _ in timed)
        live = snapshot.core + archival
        return Stats(
            core=len(snapshot.core),
            core_chars=chars(snapshot.core),
            archival=len(archival),
            archival_chars=chars(archival),
            window=len(memory.window),
            window_chars=memory.window_chars,
            retired=len(snapshot.retired),
            untimed=sum(entry.time is None for entry in live),
            duplicates=len(timed) - len({entry.content for _, entry in timed}),
            oldest=times[0] if times else None,
            newest=times[-1] if times else None,
            days=dict(Counter(time.date().isoformat() for time in times)),
            tags=dict(Counter(tag for entry in live for tag in entry.tags).most_common()),
            keys=len({entry.key for entry in live if entry.key}),
        )
