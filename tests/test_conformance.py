"""Every golden case of the real OryxOS (fixtures/oryxos-markdown.json), but for the differences that are meant.

A difference stands here with its reason, and in docs/compatibility.md under the same name.
"""

import base64
import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from oryx_memory import OryxMemoryError, Scope, Workspace, settings, stores
from oryx_memory.document import MemoryDocument
from oryx_memory.stores import LongTermMemoryStore

FIXTURE = Path(__file__).parent.parent / "fixtures" / "oryxos-markdown.json"
CASES: list[dict[str, Any]] = json.loads(FIXTURE.read_text(encoding="utf-8"))["cases"]
CLOCK = datetime(2031, 5, 6, 7, 8, 9)

# Case id to the name of the difference in docs/compatibility.md.
DIFFERENCES = {
    "append-null-content": "blank-content",
    "append-blank-content": "blank-content",
    "append-empty-then-core": "blank-content",
    "append-nbsp-content": "line-breaks",
    "content-header-tab-newline": "line-breaks",
    "content-control-chars": "control-characters",
    "empty-root-reads": "blank-keyword",
    "file-headers-only": "blank-keyword",
    "recall-empty-blank": "blank-keyword",
    "file-blank-lines-between": "blank-lines",
    "file-extra-h2-between": "blank-lines",
    "file-extra-h2-after": "blank-lines",
    "file-paragraphs": "blank-lines",
    "file-crlf-many": "carriage-returns",
    "file-continuation-lines": "continuation-lines",
    "file-nested-bullets": "continuation-lines",
    "file-timestamps": "continuation-lines",
    "file-first-line-indent": "continuation-lines",
    "file-header-after-u2028": "headings",
    "file-invalid-utf8": "invalid-utf8",
    "file-truncated-utf8": "invalid-utf8",
    "file-utf16": "invalid-utf8",
    "recall-short": "matching",
    "recall-width": "matching",
    "recall-sharp-s": "matching",
    "recall-turkish": "matching",
    "recall-accents": "matching",
    "recall-greek-sigma": "matching",
    "recall-ligatures": "matching",
    "recall-cyrillic-digits": "matching",
    "recall-compat": "matching",
}


def _bytes(value: Any) -> bytes:
    if isinstance(value, dict):
        return base64.b64decode(value["base64"])
    return str(value).encode("utf-8", "surrogatepass")


def _run(store: LongTermMemoryStore, op: dict[str, Any]) -> dict[str, Any]:
    if op["op"] == "append":
        store.append(op["content"] or "", Scope((op["scope"] or "ARCHIVAL").lower()))
        return {"ok": True}
    if op["op"] == "load":
        return {"text": str(store.load())}
    if op["op"] == "recall":
        return {"lines": [entry.text for entry in store.recall_by_keyword(op["keyword"] or "")]}
    entries = store.read().archival
    return {"entries": [{"content": e.text, "time": e.time.isoformat() if e.time else None} for e in entries]}


def _outputs(root: Path, case: dict[str, Any]) -> list[dict[str, Any]]:
    """What each operation gives here, with our own timestamps as the placeholder, and any error as `any`."""
    for name, value in case["initial_files"].items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(_bytes(value))
    (root / "memory.toml").write_text('[agents]\nunsafe = "global"\n')  # as OryxOS treats such names
    outputs: list[dict[str, Any]] = []
    for op in case["ops"]:
        try:
            store = stores.open(Workspace(root), settings.load(root, {}), op["agent"], lambda: CLOCK)
            output = json.dumps(_run(store, op), ensure_ascii=False)
            outputs.append(json.loads(output.replace(str(CLOCK), "{TS}").replace(CLOCK.isoformat(), "{TS}")))
        except OryxMemoryError:
            outputs.append({"error": "any"})
    return outputs


def _expected(case: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"error": "any"} if "error" in output else output for output in case["outputs"]]


def _final_bytes(root: Path, name: str) -> bytes:
    return (root / name).read_bytes()


@pytest.mark.filterwarnings("ignore::oryx_memory.OryxMemoryWarning")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_golden_case(case: dict[str, Any], tmp_path: Path) -> None:
    got, expected = _outputs(tmp_path, case), _expected(case)
    if case["id"] in DIFFERENCES:
        assert got != expected, "no difference any more: take it off the list"
    elif case.get("upstream_loses"):
        searched = [n for n, op in enumerate(case["ops"]) if op["op"] in ("recall", "entries")]
        assert [got[n] for n in searched] == [expected[n] for n in searched]
    else:
        assert got == expected


@pytest.mark.filterwarnings("ignore::oryx_memory.OryxMemoryWarning")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_golden_case_loses_nothing(case: dict[str, Any], tmp_path: Path) -> None:
    """Whatever the operations, every line of the initial files is still there, in order, byte for byte."""
    _outputs(tmp_path, case)
    for name, value in case["initial_files"].items():
        lines = iter(re.split(rb"(?<=\n)|(?<=\r)(?!\n)", _final_bytes(tmp_path, name)))
        for line in re.split(rb"(?<=\n)|(?<=\r)(?!\n)", _bytes(value)):
            assert any(line.rstrip(b"\r\n") == kept.rstrip(b"\r\n") for kept in lines), line


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case["id"] not in DIFFERENCES and not case.get("upstream_loses")],
    ids=lambda case: case["id"],
)
def test_what_oryxos_left_behind_reads_back_here(case: dict[str, Any], tmp_path: Path) -> None:
    """Our reader finds in OryxOS's final file the entries that it finds in ours, but for the listed differences."""
    _outputs(tmp_path, case)
    for name, value in case["final_files"].items():
        theirs = MemoryDocument(_bytes(value).replace(b"{TS}", str(CLOCK).encode()))
        ours = MemoryDocument(_final_bytes(tmp_path, name).replace(b"{TS}", str(CLOCK).encode()))
        for scope in Scope:
            assert [e.text for e in ours.entries(scope)] == [e.text for e in theirs.entries(scope)]


def _loads_before_any_append() -> list[tuple[str, bytes, str]]:
    found = []
    for case in CASES:
        for op, output in zip(case["ops"], case["outputs"], strict=True):
            if op["op"] == "append":
                break
            if op["op"] == "load" and "text" in output:
                agent = op["agent"] or ""
                safe = re.fullmatch("[A-Za-z0-9_-]+", agent)
                name = f"agents/{agent}/MEMORY.md" if safe else "memory/MEMORY.md"
                found.append((case["id"], _bytes(case["initial_files"].get(name, "")), output["text"]))
    return found


@pytest.mark.parametrize(("data", "text"), [(data, text) for _, data, text in _loads_before_any_append()])
def test_load_as_oryxos_is_what_oryxos_gave(data: bytes, text: str, tmp_path: Path) -> None:
    store = stores.open(Workspace(tmp_path), settings.load(tmp_path, {}), None)
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "MEMORY.md").write_bytes(data)
    # half a character, which no UTF-8 can hold, is shown as U+FFFD here
    assert store.load_as_oryxos() == text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def test_every_difference_is_documented() -> None:
    page = (FIXTURE.parent.parent / "docs" / "compatibility.md").read_text(encoding="utf-8")
    assert {name for name in DIFFERENCES.values() if f"`{name}`" not in page} == set()
