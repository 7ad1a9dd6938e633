"""What `clean` would retire: a Policy and its plan.

Only archival entries with a time are ever planned for; hand-written ones leave by `forget` alone. Core is never
touched. A plan that would retire more than `max_share` of a memory, or destroy more than that of what is retired, raises
Refused: a wrong clock empties nothing.
"""

from collections.abc import Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import itemgetter

from oryx_memory.changes import Change, Copy, Retire, Snapshot
from oryx_memory.errors import Refused, RejectedInput

GUARDED_FROM = 20  # archival entries, or retired ones; fewer may go to any share
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class TooMuch(Refused):
    """A clean-up would take more than `max_share` of a memory; `change` is what it would have done, `what` its share."""

    def __init__(self, change: Change, what: str, max_share: float, now: datetime) -> None:
        self.change = change
        super().__init__(
            f"refused: {what}, more than max_share {max_share:g}; nothing was changed. Check the clock (it says {now:%Y-%m-%d %H:%M}) and the rules, "
            "then use --force or raise [clean] max_share"
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """When an archival entry is retired. Ages are time spans, `keep_chars` counts code points of text joined by
    newlines, `keep_entries` entries; None means no such rule. Of equal entries the first stays, with one of these three
    rules the newest. `purge_retired` destroys retired entries of that age.
    """

    older_than: timedelta | None = None
    keep_chars: int | None = None
    keep_entries: int | None = None
    dedupe: bool = True
    purge_retired: timedelta | None = None
    max_share: float = 0.5
    force: bool = False

    def plan(self, snapshot: Snapshot, now: datetime) -> Change:
        """What to retire and purge at `now` (local wall-clock time). Raises TooMuch unless `force`."""
        reasons: dict[int, str] = {}
        entries = snapshot.archival
        timed = sorted((time, index) for index, entry in enumerate(entries) if (time := entry.time) is not None)
        if self.dedupe:
            # Where a rule goes by time, the older copy would soon take a fact with it that was said again.
            by_time = (self.older_than, self.keep_entries, self.keep_chars) != (None, None, None)
            newest_first = (index for _, index in sorted(timed, key=itemgetter(0), reverse=True))
            kept: set[str] = set()
            for index in newest_first if by_time else sorted(index for _, index in timed):
                if (content := entries[index].content) in kept:
                    reasons[index] = "duplicate"
                kept.add(content)
        if self.older_than is not None:
            limit = _before(now, self.older_than)
            for time, index in timed:
                if time < limit:
                    reasons.setdefault(index, f"older than {span_text(self.older_than)}")
        left = [index for _, index in timed if index not in reasons]
        if self.keep_entries is not None:
            for index in left[: max(0, len(left) - self.keep_entries)]:
                reasons[index] = f"over {self.keep_entries} entries"
            left = [index for index in left if index not in reasons]
        if self.keep_chars is not None:
            total = sum(len(entry.text) + 1 for index, entry in enumerate(entries) if index not in reasons) - 1
            for index in left:
                if total <= self.keep_chars:
                    break
                total -= len(entries[index].text) + 1
                reasons[index] = f"over {self.keep_chars} characters"
        retire = tuple(Retire(Copy(index, entries[index]), reasons[index]) for index in sorted(reasons))
        leaving = {item.copy.entry.text for item in retire}
        change = Change(retire=retire, purge=self._old_retired(snapshot, now, leaving))
        for gone, total, what in (
            (len(change.retire), len(entries), "archival entries would be retired"),
            (len(change.purge), len(snapshot.retired), "retired entries would be destroyed"),
        ):
            if total >= GUARDED_FROM and gone > self.max_share * total and not self.force:
                raise TooMuch(change, f"{gone:,} of {total:,} {what}", self.max_share, now)
        return change

    def _old_retired(self, snapshot: Snapshot, now: datetime, leaving: Set[str]) -> tuple[Copy, ...]:
        """The retired copies that are old enough to be destroyed; a text stays while a copy of it is younger, as those
        are that are leaving now.
        """
        if self.purge_retired is None:
            return ()
        limit = _before(now, self.purge_retired)
        young = leaving | {entry.text for entry in snapshot.retired if entry.retired and entry.retired.time >= limit}
        return tuple(copy for copy in snapshot.out() if copy.entry.text not in young)


def _before(now: datetime, span: timedelta) -> datetime:
    try:
        return now - span
    except OverflowError:
        return datetime.min


def parse_span(text: str) -> timedelta:
    """A time span such as `90d`, `12h`, `30m`, `2w`. Raises RejectedInput."""
    number, unit = text[:-1], text[-1:]
    try:
        if unit in _UNITS and number.isascii() and number.isdigit():
            return timedelta(**{_UNITS[unit]: int(number)})
    except (OverflowError, ValueError):  # ValueError: int() takes 4,300 digits
        pass
    raise RejectedInput(f"not a time span: {text[:40]!r}; write a number and m, h, d or w, such as 90d")


def span_text(span: timedelta) -> str:
    """A time span as `parse_span` reads it, in the largest of d, h, m that fits."""
    minutes = int(span.total_seconds() // 60)
    for unit, size in (("d", 1440), ("h", 60)):
        if minutes and minutes % size == 0:
            return f"{minutes // size}{unit}"
    return f"{minutes}m"
