"""One line, its time, its trailer and its id."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import texts, times

from oryx_memory import Entry, RejectedInput, Scope
from oryx_memory.document import MemoryDocument, piece
from oryx_memory.entry import BLANKS, is_key, is_tag, one_line, trailer

AT = datetime(2026, 7, 22, 9, 30)


@pytest.mark.parametrize(
    ("line", "id"),
    [
        ("- [2026-07-01 08:00:00] Never deploy on Friday", "e76a079277ef"),
        ("- [2026-07-22 09:30:00] 上线前必须两人复核 #流程 ^release_rule", "a70123cc8f0f"),
        ("- [2026-07-22 09:31:00] Use uv, not pip #tooling", "43d8964bd39e"),
    ],
)
def test_ids_are_those_of_the_specification(line: str, id: str) -> None:
    assert Entry(line).id == id
    assert Entry(f"  {line}\u3000\n", Scope.CORE).id == id


@given(st.one_of(texts, st.text()), times)
def test_a_new_entry_reads_back_as_itself_from_a_file(text: str, time: datetime) -> None:
    try:
        entry = Entry.new(text, time=time)
    except RejectedInput:
        assert not one_line(text) or "\ud800" <= max(text) <= "\udfff" or any("\ud800" <= c <= "\udfff" for c in text)
        return
    assert entry.time == time
    assert entry.content == one_line(text)
    document = MemoryDocument("## 核心记忆\n\n## 归档记忆\n".encode() + piece(entry, b"\n"))
    assert document.entries(Scope.ARCHIVAL) == (entry,)
    assert document.entries(Scope.CORE) == ()
    assert len(document.layout.headings) == 2


@given(st.text())
def test_one_line_is_one_line_and_stays_as_it_is(text: str) -> None:
    line = one_line(text)
    assert len(line.splitlines()) <= 1
    assert line == line.strip(BLANKS)
    assert "  " not in line
    assert not any((ord(c) < 0x20 and c != "\t") or 0x7F <= ord(c) < 0xA0 for c in line)
    assert "## 核心记忆" not in line
    assert "## 归档记忆" not in line
    assert one_line(line) == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("第一行\n第二行", "第一行 第二行"),
        ("a\r\nb\rc\x0bd\x0ce\x1cf\x1dg\x1eh\x85i\u2028j\u2029k", "a b c d e f g h i j k"),
        ("\x00a\x1b[31mb\x7f\x9b", "a[31mb"),
        ("a\tb", "a\tb"),
        ("  两\u3000头\u3000", "两\u3000头"),
        ("x ## 归档记忆 y", "x 「归档记忆」 y"),
        ("##\x00 核心记忆", "「核心记忆」"),
        ("\u00a0a\u00a0", "\u00a0a\u00a0"),
    ],
)
def test_how_a_text_becomes_a_line(text: str, line: str) -> None:
    assert one_line(text) == line


@pytest.mark.parametrize(
    ("content", "prose", "tags", "key"),
    [
        ("Use uv, not pip #tooling #preference ^package_manager", "Use uv, not pip", ("tooling", "preference"), "package_manager"),
        ("上线前必须两人复核 #流程 ^release_rule", "上线前必须两人复核", ("流程",), "release_rule"),
        ("issue #12", "issue #12", (), None),
        ("C# and F#", "C# and F#", (), None),
        ("see #include in the middle of it", "see #include in the middle of it", (), None),
        ("https://x.example/#frag", "https://x.example/#frag", (), None),
        ("a #b/c-d_e ^x", "a #b/c-d_e ^x", (), None),
        ("a #b/c-d_e ^xy", "a", ("b/c-d_e",), "xy"),
        ("a ^one ^two #t", "a ^one", ("t",), "two"),
        ("a #x. #y", "a #x.", ("y",), None),
        ("全角空格\u3000#标签", "全角空格", ("标签",), None),
        ("#only", "", ("only",), None),
        ("हिन्दी #हिन्दी", "हिन्दी", ("हिन्दी",), None),
        ("a ^1a", "a ^1a", (), None),
        ("a #", "a #", (), None),
    ],
)  # fmt: skip
def test_trailer(content: str, prose: str, tags: tuple[str, ...], key: str | None) -> None:
    entry = Entry.new(content, time=AT)
    assert (entry.prose, entry.tags, entry.key) == (prose, tags, key)


def test_tags_and_key_join_the_trailer() -> None:
    entry = Entry.new("用 uv #tooling", time=AT, tags=["tooling", "decision", "decision"], key="pm")
    assert entry.raw == "- [2026-07-22 09:30:00] 用 uv #tooling #decision ^pm"
    assert (entry.tags, entry.key, entry.type) == (("tooling", "decision"), "pm", "decision")
    assert Entry.new("x", time=AT).type == "note"


@pytest.mark.parametrize("tag", ["", "a b", "12", "a#b", "a.b", "a\n"])
def test_bad_tags(tag: str) -> None:
    assert not is_tag(tag)
    with pytest.raises(RejectedInput, match="not a tag"):
        Entry.new("x", time=AT, tags=[tag])


@pytest.mark.parametrize("key", ["", "a", "1a", "a b", "a^b", "_a"])
def test_bad_keys(key: str) -> None:
    assert not is_key(key)
    with pytest.raises(RejectedInput, match="not a key"):
        Entry.new("x", time=AT, key=key)


@pytest.mark.parametrize("text", ["", " \n\t", "\u3000", "\x00\x1b", "\ud800", "x" * 32769, "字" * 10923])
def test_texts_that_cannot_be_taken(text: str) -> None:
    with pytest.raises(RejectedInput):
        Entry.new(text, time=AT)


def test_a_text_of_exactly_32_kib_is_taken() -> None:
    assert len(Entry.new("x" * 32768, time=AT).content) == 32768


@pytest.mark.parametrize(
    ("raw", "content", "new", "after"),
    [
        ("- [2026-07-22 09:30:00] old #t ^key1", "old #t ^key1", "new", "- [2026-07-22 09:30:00] new #t ^key1"),
        ("- [2026-07-22 09:30] old #t", "old #t", "新的 #other", "- [2026-07-22 09:30] 新的 #other"),
        ("* star #t", "star #t", "x\ny", "* x y #t"),
        ("paragraph", "paragraph", "x", "x"),
        ("- [2026-13-01 10:00] odd", "[2026-13-01 10:00] odd", "x", "- x"),
        ("- [2026-07-22 09:30:00] a\n  b", "a\n  b", "c", "- [2026-07-22 09:30:00] c"),
    ],
)
def test_content_and_another_content(raw: str, content: str, new: str, after: str) -> None:
    entry = Entry(raw, Scope.CORE)
    assert entry.content == content
    assert entry.with_content(new) == Entry(after, Scope.CORE)


@given(st.text())
def test_trailer_never_fails_and_ends_the_line(line: str) -> None:
    start, tags, key = trailer(line)
    rest = line[start:].split()
    assert len(rest) == len(tags) + (key is not None)
