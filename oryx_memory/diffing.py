"""What became of the entries of one memory between two moments: learned, dropped, reworded, moved.

Live entries and retired ones are compared as multisets of their texts, so each copy that only one side has is told
exactly once. What the retired file says is believed; what left without a record is `removed`, by hand or by another
program. An entry that came and went in between is told as retired: its text is in the retired file from now on, so
a reviewer has to see it. Nothing here is quadratic: the texts of a bulk import, which all have one time, are paired
only with their neighbours in alphabetical order.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import groupby, pairwise
from typing import NamedTuple

from oryx_memory.changes import Snapshot
from oryx_memory.entry import BLANKS, Entry, Scope

_ALIKE = 0.5  # the share of character pairs from which on a line changed by hand is the same entry
_NEIGHBOURS = 6
_MOST_COMPARED = 250_000  # words of one side times words of the other
_IDEOGRAPHS = "\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORDS = re.compile(rf"(?:[{_IDEOGRAPHS}]|[^\W{_IDEOGRAPHS}]+|\s+|[^\w\s])[\u0300-\u036f\u200d\ufe00-\ufe0f]*")


class Kind(StrEnum):
    """What became of an entry, in the order in which it is shown."""

    ADDED = "added"
    RESTORED = "restored"
    MOVED = "moved"
    EDITED = "edited"
    RETIRED = "retired"
    REMOVED = "removed"  # left without a record
    PURGED = "purged"  # was retired, and its record is gone


class Delta(NamedTuple):
    """One entry that is not as it was.

    `entry` is the entry as it is now, or as it was when it left; a retired one says when, why and in which run.
    `before` is the live entry that it was, None if there was none; of an edit with a record it carries that record.
    """

    kind: Kind
    entry: Entry
    before: Entry | None = None

    @property
    def source(self) -> Scope | None:
        """The section that the entry was in, if it was in another one."""
        return self.before.scope if self.before and self.before.scope is not self.entry.scope else None


def diff(before: Snapshot, after: Snapshot) -> list[Delta]:
    """What became of the entries of `before` until `after`, both with their retired entries.

    By section, core first, then by kind; what is of one kind stands in stored order.
    """
    left: list[Entry] = []
    came: list[Entry] = []
    for scope in Scope:
        _, gone, new = _pair(before.section(scope), after.section(scope))
        left += gone
        came += new
    moved, left, came = _pair(left, came)
    _, back, out = _pair(before.retired, after.retired)
    retired, left, passing = _pair(left, out)
    restored, purged, came = _pair(back, came)
    deltas = [Delta(Kind.MOVED, new, old) for old, new in moved]
    deltas += [Delta(Kind.RESTORED, new) for _, new in restored]
    deltas += [Delta(Kind.PURGED, old) for old in purged]
    deltas += [Delta(Kind.RETIRED, record) for record in passing]
    deltas += _with_edits(
        [Delta(Kind.RETIRED, record, old) for old, record in retired] + [Delta(Kind.REMOVED, old, old) for old in left],
        [Delta(Kind.ADDED, new) for new in came],
    )
    places = {kind: number for number, kind in enumerate(Kind)}
    return sorted(deltas, key=lambda delta: (delta.entry.scope is Scope.ARCHIVAL, places[delta.kind]))


def changed_words(old: str, new: str) -> list[tuple[str, str]]:
    """Two texts cut into the same number of pieces, pair by pair: both equal, or what was there and what is there.

    Words are compared, and ideographs one by one. Between two long texts with little in common only the common ends
    are told.
    """
    one, other = _WORDS.findall(old), _WORDS.findall(new)
    start = _common(one, other)
    end = _common(one[start:][::-1], other[start:][::-1])
    middle, middle_new = one[start : len(one) - end], other[start : len(other) - end]
    pairs = [("".join(one[:start]),) * 2]
    if len(middle) * len(middle_new) > _MOST_COMPARED:
        pairs.append(("".join(middle), "".join(middle_new)))
    else:
        for _, i, j, k, m in SequenceMatcher(None, middle, middle_new, autojunk=False).get_opcodes():
            pairs.append(("".join(middle[i:j]), "".join(middle_new[k:m])))
    pairs.append(("".join(one[len(one) - end :]),) * 2)
    return [pair for pair in pairs if pair != ("", "")]


def similarity(one: str, other: str) -> float:
    """The share of pairs of neighbouring characters that two texts have in common, 0 to 1 (Dice 1945)."""
    return _share(_features(one), _features(other))


def _features(text: str) -> set[tuple[str, str]]:
    return {*pairwise(f"\n{text}\n")}


def _share(one: set[tuple[str, str]], other: set[tuple[str, str]]) -> float:
    return 2 * len(one & other) / (len(one) + len(other))


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many words two texts have in common from the start."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _pair(one: Sequence[Entry], other: Sequence[Entry]) -> tuple[list[tuple[Entry, Entry]], list[Entry], list[Entry]]:
    """Entries with equal text, first with first, and what stays alone on either side; all in stored order."""
    waiting: dict[str, list[Entry]] = {}
    for entry in reversed(other):
        waiting.setdefault(entry.text, []).append(entry)
    pairs: list[tuple[Entry, Entry]] = []
    alone: list[Entry] = []
    used: Counter[str] = Counter()
    for entry in one:
        text = entry.text
        if candidates := waiting.get(text):
            pairs.append((entry, candidates.pop()))
            used[text] += 1
        else:
            alone.append(entry)
    rest = []
    for entry in other:
        if used[text := entry.text] > 0:
            used[text] -= 1
        else:
            rest.append(entry)
    return pairs, alone, rest


def _with_edits(gone: list[Delta], added: list[Delta]) -> Iterator[Delta]:
    """What left and what came, with those pairs put together that are one entry in other words.

    The bullet and the time are the same then. A record with the reason `edited` finds the text that is most like it;
    without a record the two have to be alike.
    """
    by_record = [delta for delta in gone if delta.entry.retired and delta.entry.retired.reason == "edited"]
    by_hand = [delta for delta in gone if delta.kind is Kind.REMOVED]
    edited: set[int] = set()
    for candidates, least in ((by_record, 0.0), (by_hand, _ALIKE)):
        for old, new in _alike(candidates, added, least):
            assert old.before is not None
            yield Delta(Kind.EDITED, new.entry, replace(old.before, retired=old.entry.retired))
            edited |= {id(old), id(new)}
        added = [delta for delta in added if id(delta) not in edited]
    yield from (delta for delta in (*gone, *added) if id(delta) not in edited)


class _Candidate(NamedTuple):
    """A text that may be a side of an edit: bullet and time, content, all of it, which side, and its number there."""

    start: str
    content: str
    text: str
    new: bool
    number: int


def _alike(gone: Sequence[Delta], added: Sequence[Delta], least: float) -> list[tuple[Delta, Delta]]:
    """Pairs with the same bullet and time, the most similar first, none less similar than `least`; in order."""
    if not gone or not added:
        return []
    sides = [
        _candidate(delta.entry, side, n) for side, deltas in enumerate((gone, added)) for n, delta in enumerate(deltas)
    ]
    sides.sort(key=lambda side: (side.start, side.content, side.text))
    scored: list[tuple[float, int, int]] = []
    for _, group in groupby(sides, key=lambda side: side.start):
        scored += _scores(list(group), least)
    # Ties are broken alike in both directions, so that the way back tells the same pairs.
    scored.sort(key=lambda item: (-item[0], abs(item[1] - item[2]), item[1] + item[2]))
    pairs: dict[int, int] = {}
    taken: set[int] = set()
    for _, old, new in scored:
        if old not in pairs and new not in taken:
            pairs[old] = new
            taken.add(new)
    return [(gone[old], added[new]) for old, new in sorted(pairs.items())]


def _candidate(entry: Entry, side: int, number: int) -> _Candidate:
    text, content = entry.text, entry.content
    return _Candidate(text.removesuffix(content).rstrip(BLANKS), content, text, bool(side), number)


def _scores(group: list[_Candidate], least: float) -> Iterator[tuple[float, int, int]]:
    """The similarity of those old and new texts of a group that may be one entry: the share of character pairs."""
    if len({side.new for side in group}) < 2:
        return
    features = {side: _features(side.content) for side in group}
    for old, new in _neighbours(group):
        score = _share(features[old], features[new])
        if score >= least:
            yield score, old.number, new.number


def _neighbours(group: list[_Candidate]) -> set[tuple[_Candidate, _Candidate]]:
    """Old and new texts that stand near each other in alphabetical order, read from the start or from the end."""
    pairs: set[tuple[_Candidate, _Candidate]] = set()
    for ordered in (group, sorted(group, key=lambda side: side.content[::-1])):
        for at, one in enumerate(ordered):
            for other in ordered[at + 1 : at + 1 + _NEIGHBOURS]:
                if one.new is not other.new:
                    pairs.add((other, one) if one.new else (one, other))
    return pairs
