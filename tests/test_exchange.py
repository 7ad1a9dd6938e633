"""Export, then import into an empty agent, is the identity for every kind; and what cannot be read is named."""

import io
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from command import make_ops, memory, run
from conftest import NOW
from hypothesis import given
from hypothesis import strategies as st
from strategies import any_files, rising_files

from oryx_memory import Entry, Retirement, Scope, exchange
from oryx_memory.document import MemoryDocument
from oryx_memory.entry import as_record

WHY = Retirement(NOW, "duplicate", "20260801T020000-1")


@st.composite
def stored(draw: st.DrawFn) -> list[Entry]:
    """Entries as files hold them: timed or not, of one line or several, live or retired."""
    document = MemoryDocument(draw(st.one_of(any_files(), rising_files())))
    entries = [entry for scope in Scope for entry in document.entries(scope)]
    return [Entry(entry.raw, entry.scope, draw(st.sampled_from([None, WHY]))) for entry in entries]


def _entries(found: "list[exchange.Found]") -> list[Entry]:
    assert [item.problem for item in found if item.entry is None] == []
    return [item.entry for item in found if item.entry]


def _same(got: list[Entry], entries: list[Entry]) -> None:
    assert [(e.text, e.scope, e.retired) for e in got] == [(e.text, e.scope, e.retired) for e in entries]


@given(stored())
def test_jsonl_is_read_back_as_it_was(entries: list[Entry]) -> None:
    from msgspec.json import encode

    lines = [encode(as_record(entry, "ops")) for entry in entries]
    _same(_entries(list(exchange.read_jsonl(lines))), entries)


@given(stored())
def test_csv_is_read_back_as_it_was(entries: list[Entry]) -> None:
    file = io.StringIO(newline="")
    exchange.write_csv(entries, "ops", file)
    file.seek(0)
    _same(_entries(list(exchange.read_csv(file))), entries)


@given(stored())
def test_notes_are_read_back_as_they_were(entries: list[Entry]) -> None:
    with TemporaryDirectory() as folder:
        assert exchange.write_notes(entries, Path(folder)) == len(entries)
        _same(_entries(list(exchange.read_notes(Path(folder)))), entries)


HARD = (
    "- [2026-07-01 10:00:00]",  # no content
    f"- [2026-07-01 10:00:00] {'长' * 50_000}",  # more than append takes, and than a field of csv has by default
    "* [2026-07-01 10:00:00] no time",
)


@pytest.mark.parametrize("kind", ["md", "jsonl", "csv", "notes"])
def test_entries_that_nobody_appended_come_back_too(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_ops(tmp_path, "\n".join(["## 核心记忆", "## 归档记忆", *HARD, "", "  an entry of its own", ""]))
    source = "notes" if kind == "notes" else f"ops.{kind}"
    done = memory("export", "-a", "ops", "--format", kind, *(["-o", source] if kind == "notes" else []))
    if kind != "notes":
        Path(source).write_text(done.out, encoding="utf-8")
    done = memory("import", "-a", "copy", source)
    assert (done.code, "added 4 entries, 0 were there, 0 rejected" in done.err) == (0, True), done.err[:300]
    assert [memory("list", "-a", name, "--ids").out for name in ("ops", "copy")] == [
        memory("list", "-a", "ops", "--ids").out
    ] * 2


@pytest.mark.parametrize("kind", ["md", "jsonl", "csv", "notes"])
@pytest.mark.parametrize("backend", ["markdown", "sqlite"])
def test_export_then_import_into_an_empty_agent(
    kind: str, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_ops(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORYX_MEMORY_BACKEND", backend)
    for text in ("同一句 #标签", "同一句 #标签", '引号 " 与, 逗号', "'; DROP", "[bold]x[/bold]"):
        assert memory("append", "-a", "ops", "--at", "2026-07-01 10:00", text).code == 0
    memory("forget", "-a", "ops", memory("list", "-a", "ops", "--ids").out.split("\t")[0])
    if kind == "notes":
        source = "notes"
        assert memory("export", "-a", "ops", "--format", "notes", "-o", source, "--retired").code == 0
    else:
        source = f"ops.{kind}"
        retired = [] if kind == "md" else ["--retired"]
        Path(source).write_text(memory("export", "-a", "ops", "--format", kind, *retired).out, encoding="utf-8")
    dry = memory("import", "-a", "copy", source, "--dry-run")
    assert (dry.code, dry.err.startswith("copy: would add ")) == (0, True)
    assert memory("load", "-a", "copy").code == 3
    assert memory("import", "-a", "copy", source).code == 0
    flags = [[]] if kind == "md" else [[], ["--retired"]]
    for flag in flags:
        assert memory("list", "-a", "copy", *flag).out == memory("list", "-a", "ops", *flag).out
    again = json.loads(memory("import", "-a", "copy", source, "--json").out)
    assert (again["added"], again["rejected"]) == (0, 0)


def test_rejected_lines_are_named_and_the_rest_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_ops(tmp_path)
    monkeypatch.chdir(tmp_path)
    lines = [
        '{"content": "好的 one", "time": "2026-07-01T10:00:00", "tags": ["流程"], "key": "rule"}',
        "not json",
        '{"scope": "archival"}',
        '{"content": " "}',
        "",
        '["x"]',
        '{"content": "x", "time": "yesterday"}',
        '{"content": "x", "scope": "elsewhere"}',
        '{"content": "without a time"}',
        '{"content": "x", "tags": 5}',
        "[" * 200_000,
        '{"content": "x", "time": "0001-01-01T00:00:00+14:00"}',
        '{"content": "[2026-07-01 10:00:00] without a time"}',
        '{"content": "edited by hand", "line": "- [2026-07-01 10:00:00] before", "time": "2026-07-01 10:00"}',
    ]
    Path("in.jsonl").write_text("\n".join(lines), encoding="utf-8-sig")
    done = memory("import", "-a", "new", "in.jsonl")
    assert done.code == 2
    rejected = [line.split(": ")[0] for line in done.err.splitlines() if line.startswith("in.jsonl:")]
    assert rejected == [f"in.jsonl:{number}" for number in (2, 3, 4, 6, 7, 8, 10, 11, 12)]
    assert memory("list", "-a", "new").out.splitlines() == [
        "- [2026-07-01 10:00:00] 好的 one #流程 ^rule",
        "- without a time",
        "* [2026-07-01 10:00:00] without a time",
        "- [2026-07-01 10:00:00] edited by hand",
    ]


@pytest.mark.parametrize(
    ("zone", "local"),
    [("Asia/Shanghai", "2026-07-01 18:00:00"), ("America/New_York", "2026-07-01 06:00:00")],
)
@pytest.mark.parametrize("kind", ["jsonl", "csv", "notes"])
def test_a_time_with_an_offset_becomes_local(
    kind: str, zone: str, local: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_ops(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".oryxos" / "memory.toml").write_text(f'[time]\nzone = "{zone}"\n')
    Path("notes").mkdir()
    Path("notes/a.md").write_text("---\ntime: 2026-07-01T12:00:00+02:00\n---\nx\n")
    Path("in.jsonl").write_text('{"content":"x","time":"2026-07-01T10:00:00Z"}\n')
    Path("in.csv").write_text("content,time\nx,2026-07-01 12:00:00+02:00\n")
    assert memory("import", "-a", "new", "notes" if kind == "notes" else f"in.{kind}").code == 0
    assert memory("list", "-a", "new").out == f"- [{local}] x\n"


def test_lines_in_no_section_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_ops(tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("titled.md").write_text("\ufeff## 归档记忆\n- one\n\n## 核心记忆\n- two\n## 归档记忆\n- three\n- four\n")
    done = memory("import", "-a", "new", "titled.md")
    assert done.code == 0
    assert "line 7 and 1 more in no section; left out" in done.err
    assert memory("list", "-a", "new").out == "- two\n- one\n"
    Path("other.md").write_text("\n# Notes\n- one\n")
    done = memory("import", "-a", "new", "other.md")
    assert (done.code, done.err.startswith("other.md:2: in no section")) == (2, True)


def test_notes_of_other_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_ops(tmp_path)
    monkeypatch.chdir(tmp_path)
    vault = tmp_path / "vault"
    vault.mkdir()
    (vault / "a.md").write_text("---\ncreated: 2026-07-01 10:00:00\ntags: [流程, 'two words']\n---\n# 标题\n\n第一段\n")
    (vault / "b.md").write_text("no front matter\n")
    (vault / "bom.md").write_text("\ufeff---\ndate: 2026-07-02\n---\nBOM\n")
    (vault / "c-tags.md").write_text("---\ntags: 5\n---\nx\n")
    (vault / "c.md").write_text("---\ntags: [\n---\nx\n")
    (vault / "d.txt").write_text("not a note")
    done = memory("import", "-a", "notes", "vault")
    assert done.code == 2
    assert "vault:c.md: cannot be read" in done.err
    assert "vault:c-tags.md: tags are a list" in done.err
    assert memory("list", "-a", "notes").out.splitlines() == [
        "- [2026-07-01 10:00:00] # 标题 第一段 #流程",
        "- no front matter",
        "- [2026-07-02 00:00:00] BOM",
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["import", "missing.jsonl"], 3, "missing.jsonl: no such file"),
        (["import", "thing.xyz"], 2, "--format"),
        (["import", "bad.csv"], 2, "not valid UTF-8"),
        (["export", "--format", "notes"], 2, "--output FOLDER"),
        (["export", "-o", "x"], 2, "--format notes"),
        (["export", "--format", "notes", "-o", "full"], 3, "is not empty"),
        (["export", "--retired"], 2, "jsonl"),
    ],
)
def test_wrong_uses(
    arguments: list[str], code: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_ops(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.csv").write_bytes(b"content\n\xff\xfe\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    done = memory(*arguments, "-a", "ops")
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
    assert says in done.err


def test_import_from_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_ops(tmp_path)
    monkeypatch.chdir(tmp_path)
    done = run("memory", "import", "-", "--format", "csv", "-a", "ops", stdin="content,time\n你好,2026-07-01\n")
    assert done.code == 0
    assert "- [2026-07-01 00:00:00] 你好\n" in memory("list", "-a", "ops").out
