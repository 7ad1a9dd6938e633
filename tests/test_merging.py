"""Merging as pure laws: counts, symmetry, order, what is hand-written; and the union of retired records."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import START, any_files, newlines, rising_files, sentences

from oryx_memory import Scope
from oryx_memory.document import BOM, MemoryDocument
from oryx_memory.entry import Retirement
from oryx_memory.merging import merge_memory, merge_retired, unmerged
from oryx_memory.retired import outstanding, parse, record

CORE, ARCHIVAL = "## 核心记忆", "## 归档记忆"


def as_text(base: bytes, ours: bytes, theirs: bytes) -> tuple[bytes, int]:
    return unmerged(ours, theirs, 7), 1


def never(base: bytes, ours: bytes, theirs: bytes) -> tuple[bytes, int]:
    raise AssertionError("there was no text to merge")


def merged(base: str, ours: str, theirs: str) -> str:
    """A merge that must be clean, and the same the other way round."""
    result = merge_memory(base.encode(), ours.encode(), theirs.encode(), never)
    assert result == merge_memory(base.encode(), theirs.encode(), ours.encode(), never)
    assert result.conflicts == 0
    return result.data.decode()


def at(minute: int, text: str) -> str:
    return f"- [2026-08-01 10:{minute:02}:00] {text}\n"


def file(*archival: str, core: Sequence[str] = (), head: str = "") -> str:
    return f"{head}{CORE}\n{''.join(core)}\n{ARCHIVAL}\n{''.join(archival)}"


ONE, TWO, THREE, NINE = at(1, "第一 one"), at(2, "Use uv, not pip"), at(3, "上线前两人复核"), at(9, "nine")

CASES = {
    "both append, placed by time": (
        file(ONE), file(ONE, at(4, "ours"), at(6, "ours too")), file(ONE, at(5, "theirs"), at(7, "theirs too")),
        file(ONE, at(4, "ours"), at(5, "theirs"), at(6, "ours too"), at(7, "theirs too")),
    ),
    "one retires the last line while the other appends below it": (
        file(ONE, TWO), file(ONE), file(ONE, TWO, THREE), file(ONE, THREE),
    ),
    "both retire the same entry": (file(ONE, TWO, THREE), file(THREE), file(ONE, THREE), file(THREE)),
    "the same entry added by both is there once": (file(ONE), file(ONE, TWO), file(ONE, TWO), file(ONE, TWO)),
    "the same entry added by both beside others": (
        file(ONE), file(ONE, TWO, NINE), file(ONE, TWO, THREE), file(ONE, TWO, THREE, NINE),
    ),
    "one of two copies goes on each side": (file(ONE, ONE, TWO), file(ONE, TWO), file(ONE, TWO, THREE), file(ONE, TWO, THREE)),
    "a removal beats a move": (file(ONE, TWO), file(ONE, core=[TWO]), file(ONE, THREE), file(ONE, THREE)),
    "a move stays where nothing was removed": (
        file(ONE, TWO), file(ONE, core=[TWO]), file(ONE, TWO, THREE), file(ONE, THREE, core=[TWO]),
    ),
    "both move it": (
        file(ONE, TWO), file(ONE, core=[TWO]), file(ONE, THREE, core=[TWO]), file(ONE, THREE, core=[TWO]),
    ),
    "an edit beats a removal": (
        file(ONE, TWO, THREE), file(ONE, at(2, "Use uv"), THREE), file(ONE, THREE, NINE),
        file(ONE, at(2, "Use uv"), THREE, NINE),
    ),
    "both edit one entry and both texts stay": (
        file(ONE, TWO, THREE), file(ONE, at(2, "Use uv"), THREE), file(ONE, at(2, "改用 uv"), THREE),
        file(ONE, at(2, "Use uv"), at(2, "改用 uv"), THREE),
    ),
    "two entries with one key both stay": (
        file(at(1, "v1 ^rule")), file(at(5, "v2 ^rule")), file(at(6, "v3 ^rule")),
        file(at(5, "v2 ^rule"), at(6, "v3 ^rule")),
    ),
    "an edit among equal times stays in its place": (
        file(at(1, "a"), at(1, "b"), at(1, "c")), file(at(1, "a"), at(1, "B"), at(1, "c")),
        file(at(1, "a"), at(1, "b"), at(1, "c"), TWO), file(at(1, "a"), at(1, "B"), at(1, "c"), TWO),
    ),
    "entries without a time stay below what stands above them": (
        file(ONE, TWO), file(ONE, "- 手写\n", TWO), file(ONE, TWO, THREE, "by hand\n"),
        file(ONE, "- 手写\n", TWO, THREE, "by hand\n"),
    ),
    "a new entry stays below a hand-written title": (
        file(ONE, "### 八月\n"), file(ONE, "### 八月\n", TWO), file(ONE, "### 八月\n", THREE),
        file(ONE, "### 八月\n", TWO, THREE),
    ),
    "an older entry that comes back goes between the others": (
        file(ONE, THREE), file(ONE, TWO, THREE), file(ONE, THREE, NINE), file(ONE, TWO, THREE, NINE),
    ),
    "a time that is ahead of the others": (
        file(ONE, at(59, "zone")), file(ONE, at(59, "zone"), TWO), file(ONE, at(59, "zone"), THREE),
        file(ONE, TWO, THREE, at(59, "zone")),
    ),
    "one side's order stays though its times fall": (
        file(ONE), file(ONE, NINE, THREE), file(ONE, at(4, "theirs")), file(ONE, at(4, "theirs"), NINE, THREE),
    ),
    "both added the file": ("", file(ONE), file(TWO, core=[NINE]), file(ONE, TWO, core=[NINE])),
    "one adds the core section": (
        f"{ARCHIVAL}\n{ONE}", f"{CORE}\n{NINE}\n{ARCHIVAL}\n{ONE}", f"{ARCHIVAL}\n{ONE}{TWO}",
        f"{CORE}\n{NINE}\n{ARCHIVAL}\n{ONE}{TWO}",
    ),
    "each adds a section": ("# 标题\n", f"# 标题\n{CORE}\n{ONE}", f"# 标题\n{ARCHIVAL}\n{TWO}", f"# 标题\n{CORE}\n{ONE}{ARCHIVAL}\n{TWO}"),
    "front matter of one, entries of the other": (
        file(ONE, head="---\nowner: 甲\n---\n"), file(ONE, head="---\nowner: 乙\n---\n"),
        file(ONE, TWO, head="---\nowner: 甲\n---\n"), file(ONE, TWO, head="---\nowner: 乙\n---\n"),
    ),
    "CRLF from one, an entry from the other": (
        file(ONE), file(ONE, THREE).replace("\n", "\r\n"), file(ONE, TWO), file(ONE, TWO, THREE).replace("\n", "\r\n"),
    ),
    "a file without a final newline": (
        file(ONE).rstrip(), file(ONE, TWO), file(ONE, THREE).rstrip(), file(ONE, TWO, THREE),
    ),
    "the final newline goes where one side took it": (
        file(ONE), file(ONE, NINE).rstrip(), file(ONE, TWO), file(ONE, TWO, NINE).rstrip(),
    ),
    "blank lines stay above their entry": (
        file(ONE, "\n", THREE), file(ONE, "\n\n", THREE, NINE), file(ONE, "\n", THREE, at(8, "eight")),
        file(ONE, "\n\n", THREE, at(8, "eight"), NINE),
    ),
    "an indented line is not taken by the entry that comes to stand above it": (
        file("  alone\n"), file(ONE, "\n  alone\n"), file("  alone\n", TWO), file(ONE, "\n  alone\n", TWO),
    ),
    "continuation lines go with their entry": (
        file(ONE), file(ONE, TWO, "  more 更多\n"), file(ONE, THREE, "  其他\n"),
        file(ONE, TWO, "  more 更多\n", THREE, "  其他\n"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_merge_of_entries(case: str) -> None:
    base, ours, theirs, expected = CASES[case]
    assert merged(base, ours, theirs) == expected


def test_a_bom_comes_and_goes_with_the_side_that_changed_it() -> None:
    with_bom = BOM.decode()
    assert merged(file(ONE), with_bom + file(ONE), file(ONE, TWO)) == with_bom + file(ONE, TWO)
    assert merged(with_bom + file(ONE), file(ONE), with_bom + file(ONE, TWO)) == file(ONE, TWO)


def test_bytes_that_are_no_utf8_survive_and_are_not_taken_for_each_other() -> None:
    base = file(ONE).encode()
    result = merge_memory(base, base + b"- \xff\xfe broken\n", base + b"- \xfe\xff broken\n", never)
    assert result.data.startswith(base)
    assert sorted(result.data[len(base) :].splitlines()) == [b"- \xfe\xff broken", b"- \xff\xfe broken"]


def test_text_above_the_sections_that_both_changed_is_merged_as_text() -> None:
    ours, theirs = file(ONE, TWO, head="# 我们\n"), file(ONE, THREE, head="# theirs\n")
    seen = []

    def text(*heads: bytes) -> tuple[bytes, int]:
        seen.append([head.decode() for head in heads])
        return b"<<<<<<< both", 1

    result = merge_memory(file(ONE, head="# old\n").encode(), ours.encode(), theirs.encode(), text)
    assert seen == [["# old\n", "# 我们\n", "# theirs\n"]]
    assert result == (f"<<<<<<< both\n{file(ONE, TWO, THREE)}".encode(), 1)


UNUSUAL = {
    "doubled heading": file(ONE, f"{ARCHIVAL}\n", TWO),
    "no heading": ONE,
    "empty": "",
    "another order": f"{ARCHIVAL}\n{ONE}{CORE}\n",
    "conflict markers": file(ONE, "<<<<<<< HEAD\n", TWO, "=======\n", THREE, ">>>>>>> x\n"),
    "a heading gone": f"{ARCHIVAL}\n{ONE}",
}


@pytest.mark.parametrize("unusual", UNUSUAL)
def test_a_file_whose_sections_cannot_be_told_is_merged_as_text(unusual: str) -> None:
    files = [text.encode() for text in (file(ONE), UNUSUAL[unusual], file(ONE, NINE))]

    def text(*given: bytes) -> tuple[bytes, int]:
        assert list(given) == files
        return b"as text", 3

    assert merge_memory(files[0], files[1], files[2], text) == (b"as text", 3)


def test_two_versions_with_nothing_to_merge_stand_between_markers() -> None:
    assert unmerged("甲\x00".encode(), b"", 9).decode() == f"{'<' * 9} ours\n甲\x00\n{'=' * 9}\n{'>' * 9} theirs\n"


# Laws over any files.


def counts(data: bytes) -> "Counter[bytes]":
    document = MemoryDocument(data)
    return Counter(
        b"\n".join(data[place.start : place.end].replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")).strip()
        for scope in Scope
        for place in document.located(scope)
    )


def law(base: int, one: int, two: int) -> int:
    return base - max(0, base - one, base - two) + max(0, one - base, two - base)


@st.composite
def histories(draw: st.DrawFn) -> tuple[bytes, bytes, bytes]:
    """A base and two sides, each with lines of the base taken out, moved or put elsewhere, and others put in."""
    newline = draw(newlines)
    pool = [
        f"- [{START + timedelta(minutes=n % 7)}] {text}" for n, text in enumerate(draw(st.lists(sentences, max_size=9)))
    ]
    pool += ["- by hand 手写", "### 小节", "  indented", "\u3000缩进", "- a\n  more", ""]

    def lines() -> list[list[str]]:
        return [draw(st.lists(st.sampled_from(pool), max_size=5)) for _ in Scope]

    def drawn(head: str, sections: list[list[str]], *, ended: bool) -> bytes:
        text = head + "".join(
            "\n".join([scope.heading, *section]) + "\n" for scope, section in zip(Scope, sections, strict=True)
        )
        return (text if ended else text.rstrip("\n")).encode().replace(b"\n", newline)

    base = lines()
    versions = [drawn("# 标题\n", base, ended=draw(st.booleans()))]
    for _ in range(2):
        side = [list(section) for section in base]
        for _ in range(draw(st.integers(0, 5))):
            source, target = (side[draw(st.integers(0, 1))] for _ in range(2))
            line = draw(st.sampled_from(pool))
            if source and draw(st.booleans()):
                line = source.pop(draw(st.integers(0, len(source) - 1)))
                if draw(st.booleans()):
                    continue
            target.insert(draw(st.integers(0, len(target))), line)
        versions.append(
            drawn(draw(st.sampled_from(["# 标题\n", "# 标题\n", "# 另一\n"])), side, ended=draw(st.booleans()))
        )
    return versions[0], versions[1], versions[2]


@given(histories())
def test_each_text_is_there_as_often_as_the_law_says(versions: tuple[bytes, bytes, bytes]) -> None:
    base, one, two = map(counts, versions)
    result = merge_memory(*versions, never)
    there = counts(result.data)
    for text in {*base, *one, *two, *there}:
        assert there[text] == law(base[text], one[text], two[text]), text


@given(histories())
def test_it_does_not_matter_which_side_is_ours(versions: tuple[bytes, bytes, bytes]) -> None:
    base, one, two = versions
    result = merge_memory(base, one, two, never)
    assert result == merge_memory(base, two, one, never)
    assert merge_memory(base, result.data, result.data, never) == result
    assert merge_memory(one, result.data, one, never) == result
    assert merge_memory(two, two, result.data, never) == result


@given(any_files(), any_files())
def test_what_one_side_changed_alone_is_taken_byte_for_byte(one: bytes, two: bytes) -> None:
    assert merge_memory(one, two, two, never) == (two, 0)
    assert merge_memory(one, one, two, never) == (two, 0)
    assert merge_memory(one, two, one, never) == (two, 0)
    assert merge_retired(one, two, two) == merge_retired(one, one, two) == merge_retired(one, two, one) == two


def ordered(data: bytes, scope: Scope) -> list[str]:
    return [entry.text for entry in MemoryDocument(data).entries(scope)]


def is_subsequence(some: Sequence[str], of: Sequence[str]) -> bool:
    rest = iter(of)
    return all(any(text == other for other in rest) for text in some)


@given(histories(), st.sampled_from(list(Scope)))
def test_entries_of_the_base_and_new_ones_of_a_side_keep_their_order(
    versions: tuple[bytes, bytes, bytes], scope: Scope
) -> None:
    base, one, two = (ordered(data, scope) for data in versions)
    there = ordered(merge_memory(*versions, never).data, scope)
    assume(all(len(set(texts)) == len(texts) for texts in (base, one, two, there)))
    if base != one != two != base:  # what one side alone changed, or both alike, is as they have it
        assert is_subsequence([text for text in base if text in there], there)
    for side, other in ((one, two), (two, one)):
        assert is_subsequence(
            [text for text in side if text in there and text not in base and text not in other], there
        )


@given(any_files(), any_files(), any_files())
def test_any_three_files_merge_by_the_law_or_as_text(base: bytes, one: bytes, two: bytes) -> None:
    result = merge_memory(base, one, two, as_text)
    if result.conflicts == 0:
        old, first, second, there = map(counts, (base, one, two, result.data))
        for text in {*old, *first, *second}:
            assert there[text] >= min(law(old[text], first[text], second[text]), 1)


@given(rising_files(), st.lists(sentences, min_size=1, max_size=4), st.lists(sentences, min_size=1, max_size=4))
def test_appends_of_both_change_no_other_byte(data: bytes, one: list[str], two: list[str]) -> None:
    document = MemoryDocument(data)
    assume(document.layout.headings[-1].scope is Scope.ARCHIVAL)
    newline = document.layout.newline
    later = START + timedelta(days=1)
    sides = [
        [f"- [{later + timedelta(minutes=2 * n + side)}] {text}".encode() + newline for n, text in enumerate(texts)]
        for side, texts in enumerate((one, two))
    ]
    files = [data + document.layout.at_end(b"".join(lines)) for lines in sides]
    result = merge_memory(data, files[0], files[1], never).data
    assert result.startswith(data)
    new = [line for line in result[len(data) :].splitlines(keepends=True) if line.strip()]
    assert new == sorted(sides[0] + sides[1])


# Retired files.

X = "- [2026-07-01 08:00:00] 永不在周五部署\n".encode()
Y = b"- [2026-07-02 08:00:00] Use uv\n"


def written(text: bytes, minute: int, out: int = 1, live: int = 0, run: str = "r") -> bytes:
    why = Retirement(datetime(2026, 8, 1, 2, minute), "forgotten", f"{run}-{minute}")
    return record(text, Scope.ARCHIVAL, why, out=out, live=live)


def still_out(data: bytes, live: dict[str, int] | None = None) -> "Counter[str]":
    return Counter(item.entry.text for item in outstanding(parse(data), live or {}))


TEXT_X, TEXT_Y = X.decode().strip(), Y.decode().strip()
BASE = written(Y, 0)

RETIRED = {
    "both retired the same": ([written(X, 5)], [written(X, 3, run="s")], [written(X, 3, run="s")]),
    "each retired another": ([written(X, 5)], [written(Y, 3, live=1)], [written(Y, 3, live=1), written(X, 5)]),
    "one more often": (
        [written(X, 5, live=1), written(X, 6)], [written(X, 3, live=1, run="s")],
        [written(X, 3, live=1, run="s"), written(X, 6)],
    ),
    "both restored the same": ([written(Y, 4, -1, 1)], [written(Y, 6, -1, 1)], [written(Y, 4, -1, 1)]),
    "one took it back, the other did not": (
        [written(X, 1), written(X, 4, -1, 1)], [written(X, 2, run="s")],
        [written(X, 1), written(X, 2, run="s"), written(X, 4, -1, 1)],
    ),
    "both restored and retired it again": (
        [written(Y, 1, -1, 1), written(Y, 4)], [written(Y, 2, -1, 1), written(Y, 3)],
        [written(Y, 1, -1, 1), written(Y, 4)],
    ),
    "identical ones": ([written(X, 1), written(X, 1)], [written(X, 1)], [written(X, 1), written(X, 1)]),
    "the same clean-up on both, taken back by one": (
        [written(X, 1), written(X, 4, -1, 1)], [written(X, 1)], [written(X, 1), written(X, 1), written(X, 4, -1, 1)],
    ),
    "lines that are no record": (
        [b"# notes\n", written(X, 4)], ["# 笔记\n".encode(), b"# notes\n"], ["# 笔记\n".encode(), b"# notes\n", written(X, 4)],
    ),
    "an entry of several lines": (
        [written(b"- a\n  b\n", 4)], [written("- 甲\n  乙\n".encode(), 3)],
        [written("- 甲\n  乙\n".encode(), 3), written(b"- a\n  b\n", 4)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RETIRED)
def test_a_merge_of_retired_files(case: str) -> None:
    ours, theirs, expected = (BASE + b"".join(records) for records in RETIRED[case])
    assert merge_retired(BASE, ours, theirs) == expected
    assert merge_retired(BASE, theirs, ours) == expected


def test_retired_files_that_both_added() -> None:
    assert merge_retired(b"", written(X, 2), written(Y, 1)) == written(Y, 1) + written(X, 2)


def test_a_last_record_without_its_newline_does_not_run_into_the_next() -> None:
    result = merge_retired(b"", written(X, 1).rstrip(), written(Y, 2).rstrip())
    assert result == written(X, 1) + written(Y, 2)


def test_what_one_side_purged_does_not_come_back() -> None:
    base = BASE + written(X, 1)
    assert merge_retired(base, BASE, base + written(Y, 3, live=1)) == BASE + written(Y, 3, live=1)
    assert merge_retired(base, base + written(Y, 3, live=1), BASE) == BASE + written(Y, 3, live=1)


def test_a_file_that_one_side_gave_other_line_ends_has_no_record_twice() -> None:
    result = merge_retired(BASE, BASE.replace(b"\n", b"\r\n"), BASE + written(X, 1))
    assert result == (BASE + written(X, 1)).replace(b"\n", b"\r\n")


@st.composite
def retired_histories(draw: st.DrawFn) -> tuple[bytes, bytes, bytes, list["Counter[str]"]]:
    """Retired files as our commands write them, a base and two sides, and how often each text is live in each."""
    clock = 0
    run = draw(st.sampled_from(["r", "s"]))

    def steps(live: "Counter[bytes]", out: "Counter[bytes]", least: int) -> bytes:
        nonlocal clock
        clock, data = draw(st.integers(least, least + 5)), b""
        for text in draw(st.lists(st.sampled_from([X, Y]), max_size=4)):
            back = draw(st.booleans())
            clock += draw(st.integers(0, 3))
            if back and out[text]:
                out[text] -= 1
                live[text] += 1
                data += written(text, clock, -1, live[text], run)
            elif not back and live[text]:
                live[text] -= 1
                out[text] += 1
                data += written(text, clock, 1, live[text], run)
        return data

    live, out = Counter({X: draw(st.integers(0, 2)), Y: 1}), Counter[bytes]()
    base = steps(live, out, 0)
    after, versions, lives = clock, [base], [live]
    for run in draw(st.sampled_from([("ours", "theirs"), ("cron", "cron")])):  # noqa: B007  # steps writes it
        mine = Counter(live)
        versions.append(base + steps(mine, Counter(out), after))
        lives.append(mine)
    named = [Counter({text.decode().strip(): number for text, number in counter.items()}) for counter in lives]
    return versions[0], versions[1], versions[2], named


@given(retired_histories())
def test_no_text_is_lost_by_a_merge_of_retired_files(
    drawn: tuple[bytes, bytes, bytes, list["Counter[str]"]],
) -> None:
    base, one, two, lives = drawn
    result = merge_retired(base, one, two)
    assert result == merge_retired(base, two, one)
    assert result.startswith(base)
    assert merge_retired(one, result, one) == merge_retired(two, two, result) == result
    live = {text: law(*(counter[text] for counter in lives)) for text in (TEXT_X, TEXT_Y)}
    out = [still_out(data, counter) for data, counter in zip((base, one, two), lives, strict=True)]
    there = still_out(result, live)
    for text in (TEXT_X, TEXT_Y):
        acknowledged = lives[0][text] + out[0][text]
        assert min(acknowledged, 1) <= live[text] + there[text] <= acknowledged


@given(any_files(), any_files(), any_files())
def test_lines_of_a_retired_file_that_are_no_records_all_stay(base: bytes, one: bytes, two: bytes) -> None:
    def lines(data: bytes) -> set[bytes]:
        return {*data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")} - {b""}

    assume(len({base, one, two}) == 3)
    assert lines(merge_retired(base, one, two)) == lines(base) | lines(one) | lines(two)
