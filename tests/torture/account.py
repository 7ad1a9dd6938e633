"""The sum: acknowledged = live + retired + purged + named by `check`, for every text, as multisets.

Pure. A foreign writer's stale version can bring back what had been purged or settled; such a line is here again
although it is gone on paper, and is counted as returned. Nothing else may make a difference, in either direction.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from torture.ledger import Deed

Texts = Counter[str]


@dataclass(frozen=True)
class Account:
    """What became of every line, by text. `unnamed` and `doubled` are faults."""

    acknowledged: Texts
    live: Texts
    retired: Texts
    named: Texts
    destroyed: Texts  # purged, or settled by the operator after `check` had named it
    returned: Texts  # of these, brought back by a foreign writer
    unconfirmed: Texts  # stored by a process that was killed before it was told so
    unnamed: Texts
    doubled: Texts

    @property
    def sum(self) -> int:
        """The right side of the equation."""
        parts = (self.live, self.retired, self.named, self.destroyed)
        return sum(part.total() for part in parts) - self.returned.total() - self.unconfirmed.total()

    def figures(self) -> str:
        """One line for people."""
        return (
            f"{self.acknowledged.total():,} acknowledged = {self.live.total():,} live + {self.retired.total():,} retired "
            f"+ {self.destroyed.total():,} purged or settled - {self.returned.total():,} returned "
            f"+ {self.named.total():,} named - {self.unconfirmed.total():,} stored without being confirmed; "
            f"{self.unnamed.total():,} unnamed, {self.doubled.total():,} doubled"
        )


def settle(deeds: Mapping[Deed, Texts], live: Texts, retired: Texts, named: Texts) -> Account:
    """Compare the ledgers with what a memory holds and what `check` names; texts that no writer of ours meant to add
    (foreign, hand-written) are left aside.
    """
    meant, added = deeds[Deed.MEANT], deeds[Deed.ADDED]
    purged, settled = deeds[Deed.PURGED], deeds[Deed.SETTLED]
    found = {name: Counter[str]() for name in ("destroyed", "returned", "unconfirmed", "unnamed", "doubled")}
    for text in meant:
        count = live[text] + retired[text] + named[text]
        gone = purged[text] + settled[text]
        if deeds[Deed.MEANT_TO_PURGE][text] and not gone:
            gone = max(0, added[text] - count)  # killed while it purged: it has, or it has not
        unconfirmed = max(0, min(count + gone, meant[text]) - added[text])
        missing = added[text] + unconfirmed - count
        found["doubled"][text] = max(0, count - meant[text])
        found["unconfirmed"][text] = unconfirmed
        found["destroyed"][text] = gone
        found["unnamed"][text] = max(0, missing - gone)
        found["returned"][text] = max(0, gone - max(0, missing))
    here = {"live": live, "retired": retired, "named": named}
    ours = {name: Counter({text: n for text, n in part.items() if text in meant}) for name, part in here.items()}
    return Account(acknowledged=added, **ours, **{name: +part for name, part in found.items()})
