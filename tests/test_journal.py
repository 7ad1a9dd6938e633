"""The journal: its records, its bounds, and what names a loss, stopped before every step."""

import contextlib
import os
import re
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import NOW
from hypothesis import given
from hypothesis import strategies as st
from machine import Killed, Machine
from strategies import texts

from oryx_memory import Entry, FileProblem, NothingFound, Scope, Workspace, changes, journal
from oryx_memory.entry import Retirement
from oryx_memory.journal import Copies, Journal
from oryx_memory.stores.markdown import MarkdownStore

START = (
    "## 核心记忆\n- [2026-07-01 08:00:00] Never deploy on Friday\n手写的一段\n\n"
    "## 归档记忆\n- [2026-07-22 09:30:00] 上线前必须两人复核 ^rule\n- [2026-07-23 10:00:00] 最后一行\n"
)
RULE = "- [2026-07-22 09:30:00] 上线前必须两人复核 ^rule"

stored = st.one_of(texts, st.lists(st.sampled_from([*"\\\n\r\x1ensx+? ", "记", "\\\\"]), min_size=1).map("".join))
entries = st.builds(Entry, stored, st.sampled_from(Scope))
small = st.builds(lambda number, size: f"- {number} " + "记" * size, st.integers(0, 5), st.integers(0, 30))


@pytest.fixture
def store(workspace: Workspace) -> MarkdownStore:
    made = MarkdownStore(workspace, "ops", lambda: NOW)
    made.path.parent.mkdir()
    made.path.write_text(START, encoding="utf-8")
    return made


def _new(folder: Path) -> Journal:
    """A journal that is empty, whatever an earlier example left."""
    made = Journal(folder / "x.lock")
    for path in (made.path, made.old_path):
        path.unlink(missing_ok=True)
    return made


def _nothing(_: object) -> Copies:
    return Copies({}, {})


def _lost(store: MarkdownStore) -> Counter[str]:
    return Counter(line.text for line in store.lost())


def _held(store: MarkdownStore) -> Counter[str]:
    return store.read(retired=True).texts()


# The records.


@given(st.lists(entries, max_size=5))
def test_any_text_comes_back(tmp_path: Path, new: list[Entry]) -> None:
    log = _new(tmp_path)
    log.added(new, _nothing)
    lines, _ = log.read()
    assert [(line.scope, line.text) for line in lines] == [(entry.scope, entry.text) for entry in new]


@given(st.lists(entries, min_size=1, max_size=4), st.data())
def test_a_torn_record_is_passed_over_and_what_follows_is_read(
    tmp_path: Path, new: list[Entry], data: st.DataObject
) -> None:
    log = _new(tmp_path)
    log.added(new, _nothing)
    whole = log.path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    log.path.write_bytes(whole[:cut])
    log.added([Entry("- 下一条 the next")], _nothing)
    before = whole[:cut].count(b"\n")
    expected = [entry.text for entry in new[:before]] + ["- 下一条 the next"]
    assert [line.text for line in log.read()[0]] == expected


@given(st.binary(max_size=200))
def test_whatever_stands_in_a_journal_it_can_be_read_and_written(tmp_path: Path, data: bytes) -> None:
    log = _new(tmp_path)
    log.path.write_bytes(b"\x1e+ " + data)
    log.old_path.write_bytes(data)
    before = len(log.read()[0])
    log.added([Entry("- 一 one")], _nothing)
    assert [line.text for line in log.read()[0]][before:] == ["- 一 one"]


def test_a_journal_is_for_its_owner_alone(store: MarkdownStore) -> None:
    store.append("机密 secret")
    log = Journal(Path(store.resource))
    assert log.path.stat().st_mode & 0o777 == 0o600


@given(st.lists(st.sampled_from(["- 甲", "- 乙", "- c"]), max_size=12), st.integers(0, 12), st.integers(0, 4))
def test_forget_keeps_the_newest(tmp_path: Path, names: list[str], young: int, most: int) -> None:
    log = _new(tmp_path)
    new = [Entry(name) for name in names]
    log.added(new[young:], _nothing)
    if log.path.exists():
        log.path.rename(log.old_path)
    log.added(new[:young], _nothing)
    before, _ = log.read()
    log.forget({"- 甲": most})
    after, _ = log.read()
    copies = [line for line in before if line.text == "- 甲"]
    dropped = set(copies[: max(0, len(copies) - most)])
    assert after == [line for line in before if line not in dropped]


# The bounds.


@given(st.lists(st.lists(small, max_size=12), max_size=12), st.sampled_from([1, 80, 400, 1500]))
def test_it_is_bounded_whatever_comes(tmp_path: Path, batches: list[list[str]], segment: int) -> None:
    biggest = 200  # bytes of a record of `small`, and of the marks that are carried over
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "SEGMENT", segment)
        log = _new(tmp_path)
        with contextlib.suppress(UserWarning):  # what no longer fits is counted aloud
            for batch in batches:
                log.added([Entry(text) for text in batch], _nothing)
        sizes = [path.stat().st_size if path.exists() else 0 for path in (log.path, log.old_path)]
        assert sizes[0] < segment + biggest
        assert sizes[1] < segment + segment // 2 + biggest


@given(st.lists(st.tuples(st.lists(small, min_size=1, max_size=4), st.integers(0, 2)), max_size=12))
def test_rotation_keeps_what_is_gone_and_names_nothing_else(tmp_path: Path, steps: list[tuple[list[str], int]]) -> None:
    """Each step adds some lines, then a foreign writer destroys some of those that are just added."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "SEGMENT", 12_000)  # half of it holds all that is lost here
        log = _new(tmp_path)
        held, gone = Counter[str](), Counter[str]()
        filler = [Entry("- 充数 filler " + "记" * 2000)] * 2  # so that it rotates
        for at, (new, number) in enumerate(steps):
            batch = [Entry(f"{text} {at}-{nth}") for nth, text in enumerate(new)]
            held.update(entry.text for entry in (*filler, *batch))
            log.added([*filler, *batch], lambda _: Copies(held, held))
            lost = [entry.text for entry in batch[:number]]
            held.subtract(lost)
            gone.update(lost)
        assert Counter(line.text for line in log.lost(held)) == gone


@given(st.lists(st.lists(small, min_size=1, max_size=4), min_size=1, max_size=20), st.data())
def test_a_journal_that_is_deleted_or_cut_anywhere_never_calls_a_line_lost(
    tmp_path: Path, batches: list[list[str]], data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "SEGMENT", 300)
        log = _new(tmp_path)
        held = Counter[str]()
        for batch in batches:
            held.update(Entry(text).text for text in batch)
            log.added([Entry(text) for text in batch], lambda _: Copies(held, held))
            path = data.draw(st.sampled_from([log.path, log.old_path]))
            match data.draw(st.sampled_from(["leave", "delete", "cut"])):
                case "delete":
                    path.unlink(missing_ok=True)
                case "cut" if path.exists():
                    os.truncate(path, data.draw(st.integers(0, path.stat().st_size)))
            assert log.lost(held) == []


@given(st.lists(st.lists(small, min_size=1, max_size=4), min_size=1, max_size=20), st.integers(0, 9))
def test_what_is_live_is_named_however_long_ago_it_was_acknowledged(
    tmp_path: Path, batches: list[list[str]], number: int
) -> None:
    """What was retired meanwhile goes, as it makes most of a memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "SEGMENT", 4_000)
        log = _new(tmp_path)
        rule = Entry("- 周五不发布 never on Friday", Scope.CORE)
        held, live = Counter([rule.text]), Counter([rule.text])
        log.added([rule], lambda _: Copies(held, live))
        for at, batch in enumerate(batches):
            new = [Entry(f"{text} {at}-{nth}") for nth, text in enumerate(batch)]
            held.update(entry.text for entry in new)
            log.added(new, lambda _: Copies(held, live))
        kept = Entry("- 还在 still live")
        held[kept.text], live[kept.text] = 1, 1
        log.added([kept], lambda _: Copies(held, live))
        for nth in range(number):
            filler = Entry(f"- 充数 {nth} " + "记" * 900)
            held[filler.text] += 1
            log.added([filler], lambda _: Copies(held, live))
        assert log.lost(held) == []
        assert {line.text for line in log.lost(held - live)} == {rule.text, kept.text}


def test_what_no_longer_fits_is_counted_aloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "SEGMENT", 400)
    log = _new(tmp_path)
    new = [Entry(f"- 全都没了 all gone {number}") for number in range(30)]
    with pytest.warns(UserWarning, match=r"[1-9]\d* acknowledged lines that are gone"):
        log.added(new, _nothing)
    assert log.lost({}) != []


# Losses, as a store tells them.


def test_a_line_that_is_overwritten_is_named_until_it_is_back(store: MarkdownStore) -> None:
    store.append("甲")
    before = store.path.read_bytes()
    gone = store.append("乙 overwritten")
    store.path.write_bytes(before)
    assert [line.text for line in store.lost()] == [gone.text]
    store.recover(gone.id)
    assert store.lost() == []
    assert _held(store)[gone.text] == 1
    assert store.path.read_text(encoding="utf-8").startswith(START)


def test_of_equal_lines_as_many_are_named_as_are_gone(store: MarkdownStore) -> None:
    before = store.path.read_bytes()
    new = [store.append("同一句 the same", time=NOW) for _ in range(3)]
    store.path.write_bytes(before + f"{new[0].text}\n".encode())
    assert _lost(store) == Counter({new[0].text: 2})


def test_what_was_forgotten_edited_or_moved_is_not_lost(store: MarkdownStore) -> None:
    one, two, three = (store.append(text) for text in ("忘掉 forget", "改掉 edit", "搬走 move"))
    store.edit(changes.forget(one.id))
    store.edit(changes.edit(two.id, "改过了 edited"))
    store.edit(changes.move(three.id, Scope.CORE))
    store.edit(changes.forget("^rule", purge=True))
    assert store.lost() == []


def test_an_import_that_is_overwritten_is_named(store: MarkdownStore) -> None:
    before = store.path.read_bytes()
    new = [Entry.new(f"导入 imported {number}", time=NOW) for number in range(3)]
    store.bring(new[:1])
    store.bring(new)  # one of them is there
    store.path.write_bytes(before)
    assert _lost(store) == Counter(entry.text for entry in new)


def test_a_restored_line_that_is_overwritten_is_named_however_old_it_is(
    store: MarkdownStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "SEGMENT", 1000)
    old = store.append("旧的一条 an old one")
    for number in range(60):
        store.append(f"later {number}")
    store.edit(changes.forget(old.id))
    before = store.path.read_bytes()  # an editor opens the file
    store.edit(changes.restore(old.id))
    assert store.lost() == []
    store.path.write_bytes(before)  # and saves it
    assert _lost(store) == Counter([old.text])


def test_a_moved_line_that_is_overwritten_comes_back_to_the_section_it_was_moved_to(store: MarkdownStore) -> None:
    same = [store.append("同一句 the same", time=NOW) for _ in range(2)]
    store.edit(changes.move(same[0].id, Scope.CORE))
    assert store.lost() == []
    assert store.path.read_text(encoding="utf-8").count(same[0].text) == 2
    store.path.write_text(START, encoding="utf-8")
    assert _lost(store) == Counter({same[0].text: 2})
    store.recover()
    assert [_count(part, same[0]) for part in (store.read().core, store.read().archival)] == [1, 1]


def _count(entries: tuple[Entry, ...], wanted: Entry) -> int:
    return sum(entry.text == wanted.text for entry in entries)


@pytest.mark.parametrize("name", ["restore", "move", "append", "edit"])
def test_a_journal_that_cannot_be_used_stops_no_change(name: str, store: MarkdownStore) -> None:
    line = store.append("一条 a line")
    if name == "restore":
        store.edit(changes.forget(line.id))
    log = Journal(Path(store.resource))
    log.path.unlink()
    log.path.mkdir()
    acts: dict[str, Callable[[], object]] = {
        "restore": lambda: store.edit(changes.restore(line.id)),
        "move": lambda: store.edit(changes.move(line.id, Scope.CORE)),
        "append": lambda: store.append("another"),
        "edit": lambda: store.edit(changes.edit(line.id, "another")),
    }
    with pytest.warns(UserWarning, match=f"^{re.escape(str(log.path))}: .* could not be named$"):
        acts[name]()
    records = store.retired_path.read_text(encoding="utf-8") if store.retired_path.exists() else ""
    assert records.count("\n") == {"restore": 2, "edit": 1}.get(name, 0)


def test_a_recovered_line_that_is_overwritten_again_is_named(
    store: MarkdownStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "SEGMENT", 1000)
    before = store.path.read_bytes()
    line = store.append("丢了两次 lost twice")
    store.path.write_bytes(before)
    for number in range(60):
        store.append(f"later {number}")
    before = store.path.read_bytes()
    store.recover(line.id)
    assert store.lost() == []
    store.path.write_bytes(before)
    assert _lost(store) == Counter([line.text])


# Stopped before every step, and in the middle of writes.


class Step:
    """A change, and the contents and the time of the lines that it acknowledges."""

    def __init__(self, act: Callable[[MarkdownStore], object], *new: str, time: datetime = NOW) -> None:
        self.act = act
        self.new = [f"- [{time}] {text}" for text in new]


BATCH = [Entry.new(f"导入 imported {number}", time=NOW) for number in range(3)]
AWAY = Entry(
    "- [2026-07-02 08:00:00] 导入时已退役 retired before",
    retired=Retirement(NOW - timedelta(days=1), "duplicate", "r-1"),
)
STEPS = {
    "append": Step(lambda store: store.append("新的 a new one"), "新的 a new one"),
    "append-core": Step(lambda store: store.append("新的 a new one", Scope.CORE), "新的 a new one"),
    "append-some": Step(lambda store: store.add(BATCH), *(entry.content for entry in BATCH)),
    "forget": Step(lambda store: store.edit(changes.forget("^rule"))),
    "edit": Step(
        lambda store: store.edit(changes.edit("^rule", "三人复核 three")),
        "三人复核 three ^rule",
        time=datetime(2026, 7, 22, 9, 30),
    ),
    "import": Step(lambda store: store.bring([*BATCH, AWAY]), *(entry.content for entry in BATCH)),
}


def _again(store: MarkdownStore, step: Step) -> None:
    """Whoever was not told that it is done does it again, and may find it done."""
    with contextlib.suppress(FileProblem, NothingFound):
        step.act(store)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize(
    ("segment", "partly"),
    [(journal.SEGMENT, False), (300, False), (300, True)],
    ids=["room-before", "rotation-before", "rotation-halfway"],
)
def test_killed_before_any_step_no_acknowledged_line_becomes_unnamed(
    name: str, segment: int, partly: bool, store: MarkdownStore, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line is lost before, so that a rotation has something to carry over; the change is killed, done again, destroyed."""
    monkeypatch.setattr(journal, "SEGMENT", segment)
    step = STEPS[name]
    log = Journal(Path(store.resource))
    log.path.parent.mkdir(exist_ok=True)

    def begin() -> Counter[str]:
        for path in (*log.path.parent.iterdir(), store.retired_path):
            path.unlink(missing_ok=True)
        store.path.write_text(START, encoding="utf-8")
        early = [store.append("先丢的 lost early").text]
        store.path.write_text(START, encoding="utf-8")
        return Counter(early)

    begin()
    machine.run(lambda: step.act(store))
    for stop_at in range(1, machine.count + 1):
        early = begin()
        assert not machine.run(lambda: step.act(store), stop_at=stop_at, partly=partly)
        assert _lost(store) == early, stop_at  # whatever the killed one did, it is no loss
        last = store.append("下一条 the next").text
        held = _held(store)
        assert held[last] == 1
        assert all(held[text] <= 1 for text in (*step.new, RULE)), (stop_at, held)
        assert held[RULE] == 1, stop_at
        before = held
        _again(store, step)
        held = _held(store)
        assert held[RULE] == 1, (stop_at, held)
        assert all(held[text] >= 1 for text in step.new), stop_at
        copies = Counter({text: held[text] for text in step.new})
        store.path.write_text(START, encoding="utf-8")  # a foreign program destroys it all
        named, left = _lost(store), _held(store)
        # what it found done, by one who was killed before he was told, nobody has been told of
        told = Counter(step.new) & (held - before)
        assert all(named[text] + left[text] >= count for text, count in told.items()), stop_at
        assert all(named[text] + left[text] <= copies[text] for text in step.new), stop_at
        assert {text: named[text] for text in early} == early, stop_at
        assert named[last] == 1, stop_at


@pytest.mark.parametrize("name", ["recover", "settle", "mend", "record_returned"])
@pytest.mark.parametrize("partly", [False, True], ids=["before", "halfway"])
def test_killed_while_mending_it_is_whole_once_it_is_done_again(
    name: str, partly: bool, store: MarkdownStore, machine: Machine
) -> None:
    gone = store.append("被覆盖的 overwritten")
    store.path.write_text(START, encoding="utf-8")
    store.edit(changes.forget("^rule"))
    store.path.write_text(START, encoding="utf-8")  # the rule is back without a record
    files = [path for path in (*store.path.parent.iterdir(), *Path(store.resource).parent.iterdir()) if path.is_file()]
    before = {path: path.read_bytes() for path in files}

    def act() -> object:
        if name == "recover":
            return store.recover(gone.id)
        if name == "mend":
            return store.mend(lambda data: data.replace("手写的一段".encode(), "手写的一段 mended".encode()))
        return {"settle": store.settle, "record_returned": store.record_returned}[name]()

    machine.run(act)
    after = (_held(store), _lost(store), store.path.read_bytes())
    for stop_at in range(1, machine.count + 1):
        for path, data in before.items():
            path.write_bytes(data)
        machine.run(act, stop_at=stop_at, partly=partly)
        assert _held(store)[gone.text] + _lost(store)[gone.text] == 1 or name == "settle", stop_at
        with contextlib.suppress(NothingFound):  # it had come so far
            act()
        held, lost, data = _held(store), _lost(store), store.path.read_bytes()
        mended = data.replace(b" mended mended", b" mended")  # that change is not one that can be told to be done
        assert (held, lost, mended) == after or name == "mend", stop_at
        assert (lost, mended) == after[1:], stop_at
        assert _held(store)[RULE] == 1


@pytest.mark.parametrize(
    ("segment", "partly"), [(journal.SEGMENT, False), (300, True)], ids=["room-before", "rotation-halfway"]
)
def test_after_a_purge_no_byte_of_the_text_remains_whatever_was_killed_before(
    segment: int, partly: bool, store: MarkdownStore, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append that rotates is killed and then a purge is done; and a purge is killed and then done."""
    monkeypatch.setattr(journal, "SEGMENT", segment)
    secret = Entry.new("机密 hunter2", time=NOW)
    Path(store.resource).parent.mkdir(exist_ok=True)

    def begin() -> None:
        for path in (store.retired_path, *Path(store.resource).parent.iterdir()):
            path.unlink(missing_ok=True)
        store.path.write_text(START, encoding="utf-8")
        for number in range(2):
            store.append(f"会丢的 to be lost {number}")
        store.path.write_text(START, encoding="utf-8")
        store.add([secret])
        store.edit(changes.forget(secret.id))
        store.add([secret])

    def purge() -> object:
        return store.edit(changes.forget(secret.id, purge=True))

    for act in (lambda: store.append("之后 after"), purge):
        begin()
        machine.run(act)
        for stop_at in range(1, machine.count + 1):
            begin()
            assert not machine.run(act, stop_at=stop_at, partly=partly)
            with contextlib.suppress(NothingFound):  # it was killed when all was destroyed
                purge()
            assert _containing(store, secret.content) == [], stop_at
            assert all(line.text != secret.text for line in store.lost()), stop_at


def _containing(store: MarkdownStore, text: str) -> list[Path]:
    return [path for path in store.workspace.root.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


@pytest.mark.parametrize("keep", [1, 7, 30, -1])
@pytest.mark.parametrize("name", STEPS)
def test_killed_in_the_middle_of_any_write(
    name: str, keep: int, store: MarkdownStore, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many bytes of a write reach the disk (-1: all but one), and nothing after."""
    step = STEPS[name]
    real = {name: getattr(os, name) for name in ("write", "pwrite")}
    left = 0  # writes until the torn one

    def torn(name: str) -> Callable[..., Any]:
        def write(descriptor: int, data: bytes, *rest: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0 and not machine.dead:
                real[name](descriptor, bytes(data)[:keep], *rest)
                machine.dead = True
                raise Killed
            return real[name](descriptor, data, *rest)

        return write

    for method in real:
        monkeypatch.setattr(os, method, torn(method))
    (store.workspace.root / ".locks").mkdir(exist_ok=True)
    nth, done = 0, False
    while not done:
        nth += 1
        store.path.write_text(START, encoding="utf-8")
        for path in (store.retired_path, *Path(store.resource).parent.iterdir()):
            path.unlink(missing_ok=True)
        left = nth
        done = machine.run(lambda: step.act(store))
        left = 0
        store.append("下一条 the next")
        held = _held(store)
        added = {text: held[text] for text in step.new}
        assert set(added.values()) <= {0, 1}, (nth, added)
        # one write is there as a whole or not at all; an import has two, of records and of lines
        assert len(set(added.values())) <= 1, (nth, added)
        assert held[RULE] == 1, nth
        assert store.lost() == []
        assert all(text.startswith("- [") or text == "手写的一段" for text in held), nth
    assert nth > 1
