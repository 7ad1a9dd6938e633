"""The clean-up policy as a plan."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import sentences, times

from oryx_memory import Entry, Policy, RejectedInput, Retirement, Scope, Snapshot
from oryx_memory.retention import TooMuch, parse_span, span_text
from oryx_memory.window import chars

NOW = datetime(2026, 8, 1)


def _timed(day: int, content: str) -> Entry:
    return Entry(f"- [2026-07-{day:02} 10:00:00] {content}")


def _reasons(policy: Policy, *entries: Entry, now: datetime = NOW) -> dict[str, str]:
    change = policy.plan(Snapshot(archival=entries), now)
    return {item.copy.entry.raw: item.reason for item in change.retire}


def test_of_equal_content_the_first_in_the_file_stays() -> None:
    late, early, other = _timed(9, "同 #t"), _timed(2, "同 #t"), _timed(3, "同")
    assert _reasons(Policy(), late, early, other) == {early.raw: "duplicate"}
    assert _reasons(Policy(dedupe=False), late, early, other) == {}


@pytest.mark.parametrize(
    "policy",
    [Policy(older_than=timedelta(days=20)), Policy(keep_entries=2), Policy(keep_chars=80)],
    ids=["older-than", "keep-entries", "keep-chars"],
)
def test_a_fact_that_was_said_again_stays_by_its_newest_time(policy: Policy) -> None:
    first, again, other = _timed(1, "Use uv"), _timed(30, "Use uv"), _timed(29, "other")
    assert first.raw in _reasons(policy, first, again, other)
    assert again.raw not in _reasons(policy, first, again, other)
    assert _reasons(policy, again, first, other) == {first.raw: "duplicate"}
    assert _reasons(policy, again, other) == {}


def test_entries_without_a_time_and_core_are_never_touched() -> None:
    hand = Entry("- by hand"), Entry("- by hand"), Entry("段落")
    strict = Policy(older_than=timedelta(0), keep_chars=0, keep_entries=0)
    change = strict.plan(Snapshot(core=(_timed(1, "x"),) * 30, archival=hand), NOW)
    assert not change


def test_age_counts_from_now_and_reasons_say_the_rule() -> None:
    old, edge, young = _timed(1, "old"), _timed(11, "edge"), _timed(20, "young")
    policy = Policy(older_than=timedelta(days=21))
    assert _reasons(policy, old, edge, young, now=datetime(2026, 8, 1, 10)) == {old.raw: "older than 21d"}
    assert _reasons(Policy(older_than=timedelta(days=10**6)), old) == {}


def test_keep_entries_and_keep_chars_take_the_oldest_by_time() -> None:
    entries = [_timed(day, "x" * 10) for day in (5, 1, 9)] + [Entry("- untimed")]
    assert list(_reasons(Policy(dedupe=False, keep_entries=2), *entries)) == [entries[1].raw]
    size = len(entries[0].text)
    assert list(_reasons(Policy(dedupe=False, keep_chars=size + 10), *entries)) == [entries[0].raw, entries[1].raw]


@given(
    st.lists(st.builds(lambda time, text: Entry(f"- [{time}] {text}"), times, sentences), max_size=30),
    st.integers(0, 400),
)
def test_what_stays_fits_and_a_second_plan_is_empty(entries: list[Entry], keep: int) -> None:
    policy = Policy(keep_chars=keep, force=True)
    change = policy.plan(Snapshot(archival=tuple(entries)), NOW)
    gone = {item.copy.at for item in change.retire}
    left = tuple(entry for number, entry in enumerate(entries) if number not in gone)
    assert chars(left) <= keep or not left
    assert not policy.plan(Snapshot(archival=left), NOW)


@pytest.mark.parametrize(
    ("total", "old", "refused"), [(20, 10, False), (20, 11, True), (19, 19, False), (1204, 1204, True)]
)
def test_max_share_holds_from_twenty_entries_up(total: int, old: int, refused: bool) -> None:
    entries = [_timed(1 if n < old else 30, f"{n}") for n in range(total)]
    policy = Policy(older_than=timedelta(days=20))
    if refused:
        with pytest.raises(TooMuch) as caught:
            _reasons(policy, *entries)
        assert len(caught.value.change.retire) == old
        assert len(_reasons(Policy(older_than=timedelta(days=20), force=True), *entries)) == old
    else:
        assert len(_reasons(policy, *entries)) == old


@pytest.mark.parametrize(
    ("total", "old", "refused"), [(20, 10, False), (20, 11, True), (19, 19, False), (1204, 1204, True)]
)
def test_max_share_holds_for_what_is_destroyed_too(total: int, old: int, refused: bool) -> None:
    """What is destroyed because of a wrong clock no restore brings back."""
    why = [Retirement(datetime(2026, 7, 1 if n < old else 30), "forgotten", "r") for n in range(total)]
    snapshot = Snapshot(retired=tuple(Entry(f"- {n}", retired=retired) for n, retired in enumerate(why)))
    policy = Policy(purge_retired=timedelta(days=20))
    if refused:
        with pytest.raises(TooMuch, match=f"{old:,} of {total:,} retired entries would be destroyed"):
            policy.plan(snapshot, NOW)
        policy = replace(policy, force=True)
    assert len(policy.plan(snapshot, NOW).purge) == old


def test_purge_retired_waits_for_the_youngest_copy_of_a_text() -> None:
    def retired(text: str, day: int) -> Entry:
        return Entry(text, Scope.ARCHIVAL, Retirement(datetime(2026, 7, day), "forgotten", "r"))

    snapshot = Snapshot(retired=(retired("- a", 1), retired("- b", 1), retired("- b", 30)))
    change = Policy(purge_retired=timedelta(days=10)).plan(snapshot, NOW)
    assert [copy.entry.raw for copy in change.purge] == ["- a"]


@pytest.mark.parametrize("text", ["90d", "12h", "30m", "2w", "0d"])
def test_spans(text: str) -> None:
    assert parse_span(span_text(parse_span(text))) == parse_span(text)


@pytest.mark.parametrize("text", ["", "d", "90", "90 d", "-1d", "1.5d", "九d", "90x", "9" * 30 + "d"])
def test_bad_spans(text: str) -> None:
    with pytest.raises(RejectedInput, match="not a time span"):
        parse_span(text)
