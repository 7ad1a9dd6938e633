"""What became of the entries between two moments: the laws of the comparison, and what counts as an edit."""

from collections import Counter
from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st
from strategies import any_files, sentences, times

from oryx_memory import Entry, Scope
from oryx_memory.changes import Snapshot
from oryx_memory.diffing import Delta, Kind, changed_words, diff
from oryx_memory.document import MemoryDocument
from oryx_memory.entry import Retirement
from oryx_memory.retired import live_snapshot

COMES = {Kind.ADDED, Kind.RESTORED, Kind.MOVED, Kind.EDITED}
TIME = "2026-08-01 10:00:00"

reasons = st.sampled_from(["forgotten", "edited", "duplicate"])
few_texts = st.one_of(
    st.builds(
        lambda word, more: f"- [{TIME}] {word} before release{more}", sentences, st.sampled_from(["", "s", "！"])
    ),
    st.builds(lambda time, word: f"- [{time}] {word}", times, st.sampled_from(["一", "deploy", "deploys"])),
    st.sampled_from(["- rule one", "- rule two", "上线前必须两人复核", "上线前必须三人复核", "one\n  more", "[b]\x1b"]),
)


def retirement(reason: str = "forgotten", run: str = "20260801T020000-1") -> Retirement:
    return Retirement(datetime(2026, 8, 1, 2), reason, run)


@st.composite
def snapshots(draw: st.DrawFn, *, retired: bool = True) -> Snapshot:
    """A memory whose texts are often those of another one."""
    made = [tuple(Entry(text, scope) for text in draw(st.lists(few_texts, max_size=9))) for scope in Scope]
    out = [
        Entry(text, draw(st.sampled_from(list(Scope))), retirement(draw(reasons)))
        for text in (draw(st.lists(few_texts, max_size=5)) if retired else ())
    ]
    return Snapshot(*made, tuple(out))


files = st.builds(lambda data: live_snapshot(MemoryDocument(data)), any_files())


def live(snapshot: Snapshot) -> Counter[tuple[str, Scope]]:
    return Counter((copy.entry.text, copy.entry.scope) for copy in snapshot.live())


def out(snapshot: Snapshot) -> Counter[str]:
    return Counter(entry.text for entry in snapshot.retired)


def coming(deltas: list[Delta]) -> Counter[tuple[str, Scope]]:
    return Counter((delta.entry.text, delta.entry.scope) for delta in deltas if delta.kind in COMES)


def leaving(deltas: list[Delta]) -> Counter[tuple[str, Scope]]:
    return Counter((delta.before.text, delta.before.scope) for delta in deltas if delta.before)


def texts(deltas: list[Delta], *kinds: Kind) -> Counter[str]:
    return Counter(delta.entry.text for delta in deltas if delta.kind in kinds)


def told(before: Snapshot, after: Snapshot) -> list[tuple[str, str, str]]:
    """Kind, old text and new text of each change."""
    return [(delta.kind, delta.before.raw if delta.before else "", delta.entry.raw) for delta in diff(before, after)]


def archival(*lines: str, retired: tuple[tuple[str, str], ...] = ()) -> Snapshot:
    return Snapshot(
        archival=tuple(Entry(line) for line in lines),
        retired=tuple(Entry(line, retired=retirement(reason)) for line, reason in retired),
    )


@given(st.one_of(snapshots(), files))
def test_nothing_differs_from_itself(snapshot: Snapshot) -> None:
    assert diff(snapshot, snapshot) == []


@given(st.one_of(snapshots(), files), st.one_of(snapshots(), files))
def test_every_copy_that_one_side_lacks_is_told_exactly_once(before: Snapshot, after: Snapshot) -> None:
    deltas = diff(before, after)
    assert coming(deltas) == live(after) - live(before)
    assert leaving(deltas) == live(before) - live(after)
    reworded = Counter(delta.before.text for delta in deltas if delta.before and delta.before.retired)
    assert texts(deltas, Kind.RETIRED) + reworded == out(after) - out(before)
    assert texts(deltas, Kind.RESTORED, Kind.PURGED) == out(before) - out(after)


@given(st.one_of(snapshots(), files), st.one_of(snapshots(), files))
def test_what_comes_one_way_leaves_the_other_way(before: Snapshot, after: Snapshot) -> None:
    assert coming(diff(before, after)) == leaving(diff(after, before))


@given(st.one_of(snapshots(retired=False), files), st.one_of(snapshots(retired=False), files))
def test_without_records_the_way_back_mirrors_each_kind(before: Snapshot, after: Snapshot) -> None:
    there, back = diff(before, after), diff(after, before)
    assert texts(there, Kind.ADDED) == texts(back, Kind.REMOVED)
    assert texts(there, Kind.REMOVED) == texts(back, Kind.ADDED)
    for kind in (Kind.MOVED, Kind.EDITED):
        pairs = Counter((delta.before, delta.entry) for delta in there if delta.kind is kind)
        assert pairs == Counter((delta.entry, delta.before) for delta in back if delta.kind is kind)


@given(snapshots(), snapshots())
def test_sections_and_kinds_stand_in_order(before: Snapshot, after: Snapshot) -> None:
    order = [(delta.entry.scope is Scope.ARCHIVAL, list(Kind).index(delta.kind)) for delta in diff(before, after)]
    assert order == sorted(order)


@given(snapshots(), snapshots())
def test_an_edit_keeps_bullet_and_time(before: Snapshot, after: Snapshot) -> None:
    for delta in diff(before, after):
        if delta.kind is Kind.EDITED:
            assert delta.before is not None
            assert delta.before.time == delta.entry.time
            assert delta.before.raw[:2] == delta.entry.raw[:2] or delta.entry.time is None


def test_a_typo_mended_by_hand_is_an_edit() -> None:
    old, new = f"- [{TIME}] 上线前必须两人复合", f"- [{TIME}] 上线前必须两人复核"
    assert told(archival(old), archival(new)) == [("edited", old, new)]


def test_another_time_or_another_text_is_no_edit() -> None:
    old = f"- [{TIME}] Use uv, not pip"
    for new in ("- [2026-08-01 10:00:01] Use uv, not pip!", f"- [{TIME}] 上线前必须两人复核", "- Use uv, not pip"):
        assert told(archival(old), archival(new)) == [("added", "", new), ("removed", old, old)]


def test_an_edit_on_record_may_share_no_word() -> None:
    old, new = f"- [{TIME}] abc", f"- [{TIME}] 复核"
    (delta,) = diff(archival(old), archival(new, retired=((old, "edited"),)))
    assert (delta.kind, delta.entry.raw) == (Kind.EDITED, new)
    assert delta.before == Entry(old, retired=retirement("edited"))


def test_the_record_of_an_edit_finds_the_text_most_like_it() -> None:
    old, new, other = f"- [{TIME}] ask before release", f"- [{TIME}] ask twice before release", f"- [{TIME}] 复核"
    found = told(archival(old), archival(other, new, retired=((old, "edited"),)))
    assert found == [("added", "", other), ("edited", old, new)]


def test_an_entry_edited_twice_is_one_edit_and_the_text_between_is_shown() -> None:
    one, two, three = (f"- [{TIME}] {word} people review" for word in ("two", "three", "four"))
    found = told(archival(one), archival(three, retired=((one, "edited"), (two, "edited"))))
    assert found == [("edited", one, three), ("retired", "", two)]


def test_an_entry_learned_and_dropped_in_between_is_told_as_retired() -> None:
    line = f"- [{TIME}] for an hour"
    assert told(archival(), archival(retired=((line, "forgotten"),))) == [("retired", "", line)]


def test_a_record_that_is_gone_is_told_as_purged() -> None:
    line = f"- [{TIME}] password"
    assert told(archival(retired=((line, "forgotten"),)), archival()) == [("purged", "", line)]


def test_of_two_copies_only_the_one_that_left_is_told() -> None:
    line = f"- [{TIME}] twice"
    found = diff(archival(line, line), archival(line, retired=((line, "duplicate"),)))
    assert [(delta.kind, delta.entry.retired) for delta in found] == [(Kind.RETIRED, retirement("duplicate"))]


def test_an_entry_that_was_moved_and_edited_is_one_edit_with_its_section() -> None:
    old, new = Entry(f"- [{TIME}] ask before release"), Entry(f"- [{TIME}] ask before the release", Scope.CORE)
    (delta,) = diff(Snapshot(archival=(old,)), Snapshot(core=(new,)))
    assert (delta.kind, delta.source) == (Kind.EDITED, Scope.ARCHIVAL)


def test_thousands_of_entries_of_one_second_find_their_edits() -> None:
    lines = [f"- [{TIME}] entry {number:05} of an import, {number % 7} copies" for number in range(5000)]
    edited = [line.replace("copies", "pages") for line in lines]
    found = told(archival(*lines), archival(*reversed(edited)))
    assert Counter(found) == Counter(("edited", old, new) for old, new in zip(lines, edited, strict=True))


@given(st.text(max_size=60), st.text(max_size=60))
def test_the_pieces_of_changed_words_are_the_two_texts(old: str, new: str) -> None:
    pieces = changed_words(old, new)
    assert "".join(was for was, _ in pieces) == old
    assert "".join(now for _, now in pieces) == new


@given(sentences, sentences)
def test_equal_words_at_both_ends_are_no_change(old: str, new: str) -> None:
    pieces = changed_words(f"same start ({old})同样的尾", f"same start ({new})同样的尾")
    assert pieces[0][0] == pieces[0][1]
    assert pieces[0][0].startswith("same start (")
    assert pieces[-1][0] == pieces[-1][1]
    assert pieces[-1][0].endswith(")同样的尾")


def test_ideographs_are_compared_one_by_one_and_words_whole() -> None:
    assert changed_words("必须两人复核", "必须三人复核") == [("必须", "必须"), ("两", "三"), ("人复核", "人复核")]
    assert changed_words("use pip", "use pipx") == [("use ", "use "), ("pip", "pipx")]


def test_long_texts_with_little_in_common_are_compared_by_their_ends() -> None:
    old, new = " ".join(map(str, range(3000))), " ".join(map(str, range(3000, 6000)))
    assert changed_words(f"a {old} z", f"a {new} z") == [("a ", "a "), (old, new), (" z", " z")]
