"""MemoryDocument: bytes that are not ours stay, whatever the file is."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import any_files, entries, rising_files

from oryx_memory import Entry, Scope
from oryx_memory.document import BOM, MemoryDocument, Splice, around, backwards, decode, piece, scan, spans, streamed


@given(any_files())
def test_no_splices_give_the_same_bytes(data: bytes) -> None:
    assert MemoryDocument(data).spliced([]) == data


@example(b"\xef\xbb\xbf## \xe6\xa0\xb8\xe5\xbf\x83\xe8\xae\xb0\xe5\xbf\x86 \t\r\n", [21])
@given(any_files(), st.lists(st.integers(1, 40), max_size=30))
def test_a_scan_in_chunks_sees_what_a_scan_of_the_whole_sees(data: bytes, sizes: list[int]) -> None:
    chunks, at = [], 0
    for size in sizes:
        chunks.append(data[at : at + size])
        at += size
    chunks.append(data[at:])
    assert scan(chunks) == scan((data,))
    assert scan(bytes([byte]) for byte in data) == scan((data,))


@given(any_files(), st.integers(1, 40))
def test_entries_in_chunks_are_the_entries_of_the_whole(data: bytes, size: int) -> None:
    document = MemoryDocument(data)
    for scope in Scope:
        start, end = document.layout.body(scope) or (0, 0)
        chunks = [data[at : min(at + size, end)] for at in range(start, end, size)]
        assert tuple(streamed(chunks, scope)) == document.entries(scope)


@given(any_files(), entries())
def test_an_addition_adds_one_entry_and_changes_no_other_byte(data: bytes, new: Entry) -> None:
    document = MemoryDocument(data)
    splice = document.addition(new.scope, [document.piece(new)])
    assert splice.start == splice.end
    after = MemoryDocument(document.spliced([splice]))
    assert after.data == data[: splice.start] + splice.new + data[splice.start :]
    assert after.entries(new.scope) == (*document.entries(new.scope), new)
    other = Scope.CORE if new.scope is Scope.ARCHIVAL else Scope.ARCHIVAL
    assert after.entries(other) == document.entries(other)
    if document.layout.body(new.scope):
        assert splice.new.strip(b"\r\n") == new.raw.encode()
        assert splice.new.count(new.raw.encode()) == 1


@given(any_files())
def test_the_tail_of_a_layout_is_the_addition(data: bytes) -> None:
    document = MemoryDocument(data)
    for scope in Scope:
        tail = document.layout.tail(scope, b"- x\n")
        if tail is not None:
            assert document.addition(scope, [b"- x\n"]) == Splice(len(data), len(data), tail)


@given(any_files())
def test_every_non_blank_line_of_a_section_is_in_exactly_one_entry(data: bytes) -> None:
    document = MemoryDocument(data)
    for scope in Scope:
        body = document.layout.body(scope)
        if body is None:
            continue
        places = list(document.located(scope))
        assert all(one.end <= two.start for one, two in pairwise(places))
        outside = bytearray(data[body[0] : body[1]])
        for place in reversed(places):
            del outside[place.start - body[0] : place.end - body[0]]
        assert decode(bytes(outside)).strip(" \n\t\x0b\x0c\x1c\x1d\x1e\x1f\u3000") == ""
        for place in places:
            assert piece(Entry(decode(data[place.start : place.end])), b"\n")


@given(any_files())
def test_entries_are_found_from_any_byte_and_backwards(data: bytes) -> None:
    body = MemoryDocument(data).layout.body(Scope.ARCHIVAL)
    if body is None:
        return
    places = list(spans(data, *body))
    assert list(backwards(data, *body)) == places[::-1]
    for at in range(*body):
        assert around(data, at, *body) == next((p for p in places if p.start <= at < p.end), None)


MIXED = "## 归档记忆\nkeep\rgone\n\n  own entry\n".encode()


@example(MIXED, 0b10)
@given(any_files(), st.integers(0, 2**14))
def test_taking_out_leaves_every_other_entry(data: bytes, taken: int) -> None:
    document = MemoryDocument(data)
    places = [(scope, place) for scope in Scope for place in document.located(scope)]
    splices = [Splice(*place, b"") for number, (_, place) in enumerate(places) if taken >> number & 1]
    left = [document.entry(place, scope) for number, (scope, place) in enumerate(places) if not taken >> number & 1]
    after = MemoryDocument(document.spliced(splices))
    assert [entry for scope in Scope for entry in after.entries(scope)] == left


@example("## 归档记忆\nkeep\r".encode(), Scope.ARCHIVAL)
@example("## 核心记忆\rkeep\r\n  own entry\n".encode(), Scope.CORE)
@given(any_files(), st.sampled_from(list(Scope)))
def test_an_addition_of_lines_in_any_style_joins_nothing(data: bytes, scope: Scope) -> None:
    document = MemoryDocument(data)
    new = [b"- one\r", b"  of its own\n", b"- two\n", b"  of its own\r"]
    after = MemoryDocument(document.spliced([document.addition(scope, new)]))
    added = [Entry(piece.decode().rstrip("\r\n"), scope) for piece in new]
    assert list(after.entries(scope)) == [*document.entries(scope), *added]
    other = next(each for each in Scope if each is not scope)
    assert after.entries(other) == document.entries(other)


@given(rising_files(), st.data())
def test_taking_out_and_restoring_gives_the_old_file_back(data: bytes, choose: st.DataObject) -> None:
    document = MemoryDocument(data)
    scope = choose.draw(st.sampled_from(list(Scope)))
    places = list(document.located(scope))
    taken = [place for place in places if choose.draw(st.booleans())]
    items = [
        (document.entry(place, scope), data[place.start : place.end], document.blank_lines_above(place, scope))
        for place in taken
    ]
    without = MemoryDocument(document.spliced(Splice(*place, b"") for place in taken))
    back = without.spliced(without.restoration(scope, items))
    assert back.rstrip(b"\r\n") == data.rstrip(b"\r\n") or back == data


@given(any_files(), st.data())
def test_restoring_into_any_file_keeps_every_other_entry_and_byte(data: bytes, choose: st.DataObject) -> None:
    document = MemoryDocument(data)
    scope = choose.draw(st.sampled_from(list(Scope)))
    places = list(document.located(scope))
    if not places:
        return
    place = choose.draw(st.sampled_from(places))
    entry = document.entry(place, scope)
    item = (entry, data[place.start : place.end], document.blank_lines_above(place, scope))
    without = MemoryDocument(document.spliced([Splice(*place, b"")]))
    splices = without.restoration(scope, [item])
    assert all(splice.start == splice.end for splice in splices)
    after = MemoryDocument(without.spliced(splices))
    assert sorted(e.raw for e in after.entries(scope)) == sorted(e.raw for e in document.entries(scope))
    rest = [e.raw for e in without.entries(scope)]
    back = [e.raw for e in after.entries(scope)]
    assert any(raw == entry.raw and back[:n] + back[n + 1 :] == rest for n, raw in enumerate(back))


@pytest.mark.parametrize(
    ("data", "core", "archival"),
    [
        (BOM + "## 核心记忆\n- a\n## 归档记忆\n- b".encode(), ["- a"], ["- b"]),
        ("## 归档记忆\n- b\n## 核心记忆\n- a\n".encode(), ["- a"], ["- b"]),
        ("## 核心记忆\n- a\n## 核心记忆\n- not ours\n## 归档记忆\n- b\n".encode(), ["- a"], ["- b"]),
        (
            "## 归档记忆\n- b\n  more\n\n  alone\n\u3000\u3000段落\n".encode(),
            [],
            ["- b\n  more", "  alone\n\u3000\u3000段落"],
        ),
        ("## 归档记忆  \t\r- b\r\n\r- c".encode(), [], ["- b", "- c"]),
        ("## 归档记忆\u3000\n- b\n".encode(), [], []),
        ("x ## 归档记忆\n- b\n".encode(), [], []),
    ],
    ids=["bom", "swapped", "doubled", "continuation", "cr", "wide-blank", "inline"],
)
def test_sections(data: bytes, core: list[str], archival: list[str]) -> None:
    document = MemoryDocument(data)
    assert [e.raw for e in document.entries(Scope.CORE)] == core
    assert [e.raw for e in document.entries(Scope.ARCHIVAL)] == archival


@pytest.mark.parametrize(
    ("before", "scope", "after"),
    [
        ("", Scope.ARCHIVAL, "## 核心记忆\n\n## 归档记忆\n- x\n"),
        ("", Scope.CORE, "## 核心记忆\n- x\n\n## 归档记忆\n"),
        ("## 核心记忆\n\n## 归档记忆\n", Scope.CORE, "## 核心记忆\n- x\n\n## 归档记忆\n"),
        ("## 核心记忆\n- a\n\n\n## 归档记忆\n- b", Scope.CORE, "## 核心记忆\n- a\n- x\n\n\n## 归档记忆\n- b"),
        ("## 核心记忆\n## 归档记忆\n- b", Scope.ARCHIVAL, "## 核心记忆\n## 归档记忆\n- b\n- x\n"),
        ("## 归档记忆\r\n- b\r\n\r\n", Scope.ARCHIVAL, "## 归档记忆\r\n- b\r\n\r\n- x\r\n"),
        ("## 归档记忆\n- b\n\n## 核心记忆\n- a\n", Scope.ARCHIVAL, "## 归档记忆\n- b\n- x\n\n## 核心记忆\n- a\n"),
        ("# notes\n## 归档记忆\n- b\n", Scope.CORE, "# notes\n## 核心记忆\n- x\n\n## 归档记忆\n- b\n"),
        ("## 核心记忆\n- a", Scope.ARCHIVAL, "## 核心记忆\n- a\n\n## 归档记忆\n- x\n"),
        ("# notes", Scope.CORE, "# notes\n\n## 核心记忆\n- x\n\n## 归档记忆\n"),
        ("# notes\r\n", Scope.ARCHIVAL, "# notes\r\n\r\n## 核心记忆\r\n\r\n## 归档记忆\r\n- x\r\n"),
    ],
)
def test_where_a_new_line_goes(before: str, scope: Scope, after: str) -> None:
    document = MemoryDocument(before.encode())
    new = document.piece(Entry("- x", scope))
    assert document.spliced([document.addition(scope, [new])]).decode() == after
