"""Records of the retired file, and which copies are still out."""

from collections import Counter
from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import any_files

from oryx_memory import Entry, Retirement, Scope
from oryx_memory.document import MemoryDocument, decode
from oryx_memory.retired import Step, outstanding, parse, record, tally
from oryx_memory.stores.spool import still_out

WHY = Retirement(datetime(2026, 8, 1, 2), "duplicate", "20260801T020000-1")


@given(st.lists(any_files(), max_size=3), st.integers(0, 3), st.integers(0, 9))
def test_records_read_back_with_the_exact_bytes(files: list[bytes], gap: int, live: int) -> None:
    stored = [
        (document.data[place.start : place.end], scope)
        for document in map(MemoryDocument, files)
        for scope in Scope
        for place in document.located(scope)
    ]
    data = b"".join(record(lines, scope, WHY, out=1, live=live, gap=gap) for lines, scope in stored)
    records = parse(data)
    assert [(r.entry.raw, r.entry.scope, r.gap, r.live) for r in records] == [
        (decode(lines), scope, gap, live) for lines, scope in stored
    ]
    for got, (lines, _) in zip(records, stored, strict=True):
        assert got.stored.rstrip(b"\r\n") == lines.rstrip(b"\r\n")
        assert got.stored == lines or not lines.endswith((b"\r", b"\n"))
    assert b"".join(data[r.start : r.end] for r in records) == data


@given(st.binary(max_size=300))
def test_any_bytes_can_be_read(data: bytes) -> None:
    parse(data)


def test_the_format() -> None:
    stored = "- [2026-07-22 09:30:00] 上线 <!-- oryx: x -->\n".encode()
    text = record(stored, Scope.ARCHIVAL, WHY, out=1, live=1).decode()
    assert text == (
        "- [2026-07-22 09:30:00] 上线 <!-- oryx: x --> <!-- oryx: retired 2026-08-01T02:00:00 from archival: "
        "duplicate; run 20260801T020000-1; live 1 -->\n"
    )
    assert parse(text.encode())[0].stored == stored
    back = record(b"- a\n  b\n", Scope.CORE, WHY, out=-1, live=2).decode()
    assert (
        back == "- a <!-- oryx: restored 2026-08-01T02:00:00 to core; run 20260801T020000-1; live 2; lines 2 -->\n  b\n"
    )


def test_a_torn_record_and_foreign_lines_are_passed_over() -> None:
    good = record(b"- a\n", Scope.CORE, WHY, out=1, live=0)
    torn = record(b"- b\n  more\n  and more\n", Scope.CORE, WHY, out=1, live=0)
    data = b"# by hand\n" + good + b"<<<<<<< HEAD\n" + torn.removesuffix(b"  and more\n")
    assert [r.entry.raw for r in parse(data)] == ["- a"]


def test_a_pasted_record_in_a_continuation_line_is_text() -> None:
    pasted = record(b"- a\n", Scope.CORE, WHY, out=1, live=0)
    stored = b"- outer\n  " + pasted
    records = parse(record(stored, Scope.CORE, WHY, out=1, live=0))
    assert [r.stored for r in records] == [stored]


def _made(kind: int, live: int, run: object, text: str = "a") -> bytes:
    return record(f"- {text}\n".encode(), Scope.CORE, replace(WHY, run=f"run-{run}"), out=kind, live=live)


@pytest.mark.parametrize(
    ("runs", "live_now", "out"),
    [
        ([], 1, 0),
        ([[(1, 0)]], 0, 1),
        ([[(1, 0)]], 1, 0),  # killed before MEMORY.md was rewritten: live wins
        ([[(1, 2)], [(1, 1)]], 1, 2),
        ([[(1, 2), (1, 1)]], 1, 2),
        ([[(1, 1), (1, 1)]], 1, 1),  # git doubled a record: no two of a run are alike
        ([[(1, 0)], [(-1, 1)], [(1, 0)], [(-1, 1)], [(-1, 1)], [(1, 0)]], 0, 1),
        ([[(1, 2)], [(1, 1)]], 3, 0),
        ([[(1, 0)], [(-1, 1)]], 1, 0),
        ([[(1, 1), (1, 0)], [(-1, 1)]], 1, 1),
        ([[(1, 0)], [(-1, 1)], [(1, 0)]], 0, 1),
        ([[(1, 0)], [(0, 1)]], 1, 1),  # an equal line was added while one is out
        ([[(1, 0)], [(0, 1)]], 0, 1),
        ([[(-1, 1)]], 5, 0),
        ([[(1, 0)], [(1, 0)]], 0, 1),  # it came back unrecorded between the two
        ([[(1, 1), (1, 0)], [(1, 0)]], 0, 2),
        ([[(1, 1), (1, 0)], [(1, 1)]], 1, 1),
        ([[(1, 1)], [(1, 1), (1, 0)]], 0, 2),
        ([[(1, 1)], [(0, 1), (1, 1)]], 1, 2),  # an equal line was added and the old one retired, or the other way round
        ([[(1, 0)], [(1, 0)], [(-1, 1)]], 0, 1),  # two branches, on one of which it was restored; merged, it is out
    ],
)
def test_which_copies_are_out(runs: list[list[tuple[int, int]]], live_now: int, out: int) -> None:
    data = b"".join(_made(kind, live, run) for run, steps in enumerate(runs) for kind, live in steps)
    assert len(outstanding(parse(data), Counter({"- a": live_now}))) == out


@given(
    st.lists(
        st.tuples(st.sampled_from("ab中"), st.sampled_from([1, -1, 0]), st.integers(0, 3), st.integers(0, 2)),
        max_size=12,
    ),
    st.lists(st.sampled_from("ab中"), max_size=5),
)
def test_which_copies_are_out_is_the_same_for_any_number(
    steps: list[tuple[str, int, int, int]], live: list[str]
) -> None:
    data = b"".join(_made(kind, count, run, text) for text, kind, count, run in steps)
    entries = [Entry(f"- {text}") for text in live]
    assert list(still_out(data, entries)) == outstanding(parse(data), Counter(entry.text for entry in entries))


@given(st.lists(st.tuples(st.sampled_from(["retire", "restore", "add", "return", "take", "bring"]), st.integers(1, 3))))
def test_every_copy_is_live_or_out_whatever_comes_back_and_is_taken_away(deeds: list[tuple[str, int]]) -> None:
    """The truth is counted beside it. `return`: a foreign version or a killed writer leaves a retired line live.
    `take`: git puts an older retired file there, so that what was retired since seems lost and is brought back;
    `bring`: it puts the newer records before those that were written meanwhile.
    """
    live, out, seen, hidden, kept = 1, 0, list[Step](), list[Step](), 0

    def visible() -> int:
        return len(tally(seen, live)[0])

    for run, (deed, count) in enumerate(deeds):
        if deed == "retire" and live >= count:
            seen += [Step(10 * run + number, 1, live - number - 1, str(run)) for number in range(count)]
            live, out = live - count, out + count
        elif deed == "restore" and visible() >= count:
            seen += [Step(10 * run + number, -1, live + number + 1, str(run)) for number in range(count)]
            live, out = live + count, out - count
        elif deed == "add" and not hidden:
            added = range(count if visible() else 0)
            seen += [Step(10 * run + number, 0, live + number + 1, str(run)) for number in added]
            live += count
        elif deed == "return" and out >= count and not hidden:
            live, out = live + count, out - count
        elif deed == "take" and not hidden:
            kept = len(seen) // count
            hidden, seen = seen[kept:], seen[:kept]
            missing = max(0, live + out - live - visible())
            live, out = live + missing, out - missing
        elif deed == "bring" and hidden:
            seen, hidden = seen[:kept] + hidden + seen[kept:], []
        if not hidden:
            assert visible() == out
