"""Whatever the file and whatever the commands: text that people wrote stays, byte for byte and in order."""

import contextlib
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from conftest import NOW
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import START, any_files, rising_files, sentences

from oryx_memory import NothingFound, Policy, RejectedInput, Scope, Workspace, changes
from oryx_memory.document import BOM, MemoryDocument
from oryx_memory.stores.markdown import MarkdownStore

ACTIONS = ("append", "append-core", "key", "if-new", "forget", "restore", "move", "edit", "clean", "purge")
commands = st.lists(st.tuples(st.sampled_from(ACTIONS), sentences, st.integers(0, 99)), max_size=8)


def _act(store: MarkdownStore, action: str, text: str, number: int) -> None:
    now = store.read(retired=True)
    timed = [copy for copy in now.live() if copy.entry.time]
    chosen = timed[number % len(timed)].entry.id if timed else "0000"
    out = list(now.out())
    if action in ("append", "append-core"):
        store.append(text, Scope.CORE if action == "append-core" else Scope.ARCHIVAL, time=START)
    elif action == "key":
        store.append(text, key="key")
    elif action == "if-new":
        store.append(text, if_new=True)
    elif action == "restore" and out:
        store.edit(changes.restore(out[number % len(out)].entry.id))
    elif action == "clean":
        store.clean(Policy(keep_entries=number % 4, force=True))
    elif action == "move":
        store.edit(changes.move(chosen, list(Scope)[number % 2]))
    elif action == "edit":
        store.edit(changes.edit(chosen, text))
    elif action in ("forget", "purge"):
        store.edit(changes.forget(chosen, purge=action == "purge"))


def _lines(data: bytes) -> list[bytes]:
    return re.findall(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z", data)


def _by_hand(data: bytes) -> list[bytes]:
    """The lines that belong to no timed entry."""
    document = MemoryDocument(data)
    rest = bytearray(data)
    places = [(place, scope) for scope in Scope for place in document.located(scope)]
    for place, scope in sorted(places, reverse=True):
        if document.entry(place, scope).time:
            del rest[place.start : place.end]
    return _lines(bytes(rest).removeprefix(BOM))


@pytest.mark.filterwarnings("ignore::oryx_memory.OryxMemoryWarning")
@example(BOM + "## 归档记忆\n- a\n".encode(), [("append-core", "x", 0)])  # the new heading goes behind the BOM
@given(any_files(), commands)
def test_hand_written_text_stays(data: bytes, steps: list[tuple[str, str, int]]) -> None:
    with TemporaryDirectory() as folder:
        store = MarkdownStore(Workspace(Path(folder)), "ops", lambda: NOW)
        store.path.parent.mkdir(parents=True)
        store.path.write_bytes(data)
        for action, text, number in steps:
            with contextlib.suppress(NothingFound, RejectedInput):
                _act(store, action, text, number)
        after = store.path.read_bytes()
        assert after.startswith(BOM) or not data.startswith(BOM)  # it belongs to the file, not to its first line
        left = iter(_lines(after.removeprefix(BOM)))
        for line in _by_hand(data):
            assert any(line.rstrip(b"\r\n") == kept.rstrip(b"\r\n") for kept in left), line


@given(rising_files(), st.integers(0, 99))
def test_forget_then_restore_gives_the_old_file_back(data: bytes, number: int) -> None:
    with TemporaryDirectory() as folder:
        store = MarkdownStore(Workspace(Path(folder)), "ops", lambda: NOW)
        store.path.parent.mkdir(parents=True)
        store.path.write_bytes(data)
        entries = [copy.entry for copy in store.read().live()]
        if not entries:
            return
        entry = entries[number % len(entries)]
        store.edit(changes.forget(entry.id))
        store.edit(changes.restore(entry.id))
        back = store.path.read_bytes()
        assert back == data or back.rstrip(b"\r\n") == data.rstrip(b"\r\n")
        assert store.read(retired=True).retired == ()
