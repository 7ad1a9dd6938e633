"""Keyword matching: the fast search finds exactly what comparing every folded text finds."""

import sys
import unicodedata

import pytest
from conftest import Opener
from hypothesis import given
from hypothesis import strategies as st
from strategies import any_files

from oryx_memory import LongTermMemoryStore, RejectedInput, Workspace
from oryx_memory.matching import UNSTABLE_RANGES, Keyword, fold, joins
from oryx_memory.stores.base import LongTermMemoryStore as Base
from oryx_memory.stores.markdown import MarkdownStore

letters = st.sampled_from("aAkKsSßeéÉ复核，。 .%_iİıΣσςﬁＡａ①1²가각\u1100\u1161\u11a8\u0301\u0323\u3000K\ufffd'\"#")
keywords = st.one_of(st.text(letters, min_size=1, max_size=4), st.text(min_size=1, max_size=3))


@pytest.mark.filterwarnings("ignore::oryx_memory.OryxMemoryWarning")
@given(any_files(), st.lists(st.text(letters, max_size=12), max_size=6), keywords)
def test_the_fast_search_finds_what_folding_everything_finds(
    workspace: Workspace, data: bytes, more: list[str], keyword: str
) -> None:
    lines = b"".join(f"- {line}\n".encode() for line in more)
    store = MarkdownStore(workspace, None, lambda: None)  # type: ignore[arg-type, return-value]
    store.path.write_bytes(data + "\n## 归档记忆\n".encode() + lines)
    try:
        expected = Base.recall_by_keyword(store, keyword)
    except RejectedInput:
        with pytest.raises(RejectedInput):
            store.recall_by_keyword(keyword)
    else:
        assert store.recall_by_keyword(keyword) == expected


def test_unstable_ranges_hold_every_character_that_folding_changes_or_joins() -> None:
    inside = {code for first, end in UNSTABLE_RANGES for code in range(first, end)}
    joined = set()
    for code in range(sys.maxunicode + 1):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            joined.add(int(parts[1], 16))
    for code in range(0x80, sys.maxunicode + 1):
        char = chr(code)
        if fold(char) != char or unicodedata.combining(char) or code in joined:
            assert code in inside, f"U+{code:04X}"
    for code in {*joined, *range(0x1161, 0x1176), *range(0x11A8, 0x11C3)}:
        assert joins(chr(code)), f"U+{code:04X}"


@pytest.mark.parametrize(
    ("content", "keyword"),
    [
        ("Straße", "STRASSE"), ("STRASSE", "straße"), ("ＡＢＣ１２３", "abc123"), ("abc", "ＡＢＣ"), ("ﬁle", "FILE"),
        ("Cafe\u0301", "café"), ("CAFÉ", "cafe\u0301"), ("ΟΔΟΣ", "οδος"), ("ｶﾀｶﾅ", "カタカナ"), ("カ\u3099", "ガ"),
        ("한글", "\u1112\u1161\u11ab"), ("5 K", "5 k"), ("③", "3"), ("复核，上线", "核,上"), ("Привет", "ПРИВЕТ"),
        ("上线前必须两人复核", "复核"), ("100% sure", "%"), ("a_b", "_"), ("it's \"x\"", "'s \""), ("a\tb", "a\tb"),
        ("見\u2f92", "見見"), ("\U0001d5ee\U0001d5ef", "ab"),
    ],
)  # fmt: skip
def test_found(store: LongTermMemoryStore, content: str, keyword: str) -> None:
    store.append("别的 something else")
    entry = store.append(content)
    assert store.recall_by_keyword(keyword) == [entry]


@pytest.mark.parametrize(
    ("content", "keyword"),
    [
        ("abc", "%"),
        ("abc", "a_c"),
        ("abc", "a.c"),
        ("發布", "发布"),
        ("café", "cafe"),
        ("ab c", "a c"),
        ("复 核", "复核"),
    ],
)
def test_not_found(store: LongTermMemoryStore, content: str, keyword: str) -> None:
    store.append(content)
    assert store.recall_by_keyword(keyword) == []


@pytest.mark.parametrize("keyword", ["", " ", "\t\n", "\u3000", "\u00a0"])
def test_nothing_to_look_for(keyword: str) -> None:
    with pytest.raises(RejectedInput):
        Keyword(keyword)


def test_recall_looks_at_the_time_and_in_archival_only(open_store: Opener) -> None:
    from oryx_memory import Scope

    store = open_store()
    store.append("核心 in core", Scope.CORE)
    entry = store.append("归档")
    assert store.recall_by_keyword("2026-08-01 02") == [entry]
    assert store.recall_by_keyword("核心") == []


def test_every_hit_comes_in_order_with_its_copies(store: LongTermMemoryStore) -> None:
    entries = [store.append(text) for text in ("x 1", "y", "x 1", "X 2")]
    assert store.recall_by_keyword("x") == [entries[0], entries[2], entries[3]]
