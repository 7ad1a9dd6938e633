"""Strategies for files, entries and texts. Files are made of lines that matter to our rules, in every newline style."""

from datetime import datetime, timedelta

from hypothesis import strategies as st

from oryx_memory import Entry, Scope
from oryx_memory.document import BOM

START = datetime(2026, 1, 1)

words = st.sampled_from(
    ["deploy", "uv", "复核", "上线", "Straße", "ﬁle", "ＡＢＣ", "100%", "a_b", "#tag", "#流程", "^key", "C#", "é", "e\u0301",
     "「", "，", "。", "'; DROP", "[bold]", "<!-- x -->", "\u3000", "한글", "\u1112\u1161\u11ab", "K", "ſ", "①"]
)  # fmt: skip
sentences = st.lists(words, min_size=1, max_size=5).map(" ".join)
texts = st.one_of(sentences, st.text(min_size=1, max_size=40))
times = st.integers(0, 300).map(lambda minutes: START + timedelta(minutes=minutes))
newlines = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\r"])

entry_lines = st.one_of(
    st.builds(lambda time, text: f"- [{time}] {text}".encode(), times, sentences),
    st.builds(lambda time: f"- [{time:%Y-%m-%d %H:%M}] minute".encode(), times),
    sentences.map(lambda text: f"- {text}".encode()),
    sentences.map(lambda text: text.encode()),
    st.sampled_from(
        [b"## Goals", "### 小节".encode(), b"```", b"> quote", b"* star", b"\xff\xfe broken", b"\xd6\xd0\xce\xc4"]
    ),
)
other_lines = st.one_of(
    st.just(b""),
    st.sampled_from([b"  ", b"\t", "\u3000".encode(), b"\x1c", b" \x0b"]),
    sentences.map(lambda text: f"  {text}".encode()),
    sentences.map(lambda text: f"\u3000\u3000{text}".encode()),
    st.sampled_from([b"---", b"title: x", b"<<<<<<< HEAD", b"\x00nul"]),
)
headings = st.sampled_from(
    [scope.heading.encode() + after for scope in Scope for after in (b"", b"", b" \t")]
    + ["## 归档记忆\u3000".encode(), " ## 核心记忆".encode(), "##核心记忆".encode(), "x ## 归档记忆".encode()]
)


@st.composite
def any_files(draw: st.DrawFn) -> bytes:
    """Any file at all: headings anywhere, mixed line ends, invalid UTF-8, with or without a BOM or a final newline."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    lines = draw(st.lists(st.one_of(entry_lines, entry_lines, other_lines, headings), max_size=14))
    data = b"".join(line + draw(newlines) for line in lines)
    data = draw(st.sampled_from([b"", b"", BOM])) + data
    return data.rstrip(b"\r\n") if draw(st.booleans()) else data


@st.composite
def rising_files(draw: st.DrawFn) -> bytes:
    """A file whose sections hold timed entries only, with strictly rising times; blank lines anywhere."""
    newline = draw(newlines)
    parts = [draw(st.sampled_from([b"", b"---\nx: 1\n---\n", b"# title\n"])).replace(b"\n", newline)]
    clock = START
    for scope in draw(st.permutations(list(Scope))):
        parts.append(scope.heading.encode() + newline)
        for _ in range(draw(st.integers(0, 5))):
            parts += [newline] * draw(st.integers(0, 2))
            clock += timedelta(minutes=draw(st.integers(1, 9)))
            parts.append(f"- [{clock}] {draw(sentences)}".encode() + newline)
            parts += [b"  more" + newline] * draw(st.integers(0, 1))
        parts += [newline] * draw(st.integers(0, 2))
    data = b"".join(parts)
    return data.rstrip(b"\r\n") if draw(st.booleans()) else data


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """A new entry of either section."""
    scope = draw(st.sampled_from(list(Scope)))
    return Entry.new(draw(sentences.filter(lambda text: text.strip())), scope, time=draw(times))
