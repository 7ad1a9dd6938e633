"""What every backend promises. Parametrised over STORES in conftest."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from conftest import NOW, STORES, Opener

from oryx_memory import (
    Change,
    Entry,
    LongTermMemoryStore,
    NothingFound,
    Policy,
    RejectedInput,
    Retirement,
    Scope,
    Snapshot,
    changes,
)
from oryx_memory.changes import Copy, Edit, Retire
from oryx_memory.retention import TooMuch

pytestmark = pytest.mark.parametrize("open_store", STORES, indirect=True)


def _raws(entries: tuple[Entry, ...]) -> list[str]:
    return [entry.raw for entry in entries]


def _filled(store: LongTermMemoryStore, count: int = 4) -> list[Entry]:
    start = datetime(2026, 7, 1)
    return [store.append(f"第{n} fact", time=start + timedelta(hours=n)) for n in range(count)]


def test_an_empty_memory(store: LongTermMemoryStore) -> None:
    assert store.read(retired=True) == Snapshot()
    assert str(store.load()) == "## 核心记忆\n\n## 归档记忆\n"
    assert store.recall_by_keyword("x") == []
    assert list(store.export(retired=True)) == []
    assert store.stats().archival == 0
    assert store.clean(Policy()).change == Change()


def test_append_returns_what_is_stored(store: LongTermMemoryStore) -> None:
    core = store.append("核心", Scope.CORE, time=datetime(2026, 7, 1))
    one = store.append("归档 one", tags=["t"], key="k1")
    two = store.append("two\nlines")
    now = store.read()
    assert now.core == (core,)
    assert now.archival == (one, two)
    assert one.raw == "- [2026-08-01 02:00:00] 归档 one #t ^k1"
    assert two.raw == "- [2026-08-01 02:00:00] two lines"


def test_add_keeps_the_order_of_many_and_their_sections(store: LongTermMemoryStore) -> None:
    new = [Entry.new(f"{n}", Scope.CORE if n % 3 else Scope.ARCHIVAL, time=NOW) for n in range(9)]
    store.add(new)
    assert store.read().core == tuple(e for e in new if e.scope is Scope.CORE)
    assert store.read().archival == tuple(e for e in new if e.scope is Scope.ARCHIVAL)


def test_agents_do_not_see_each_other(open_store: Opener) -> None:
    open_store("one").append("甲")
    open_store("Two-2_b").append("乙")
    open_store(None).append("丙")
    assert [open_store(agent).read().archival[0].content for agent in ("one", "Two-2_b", None)] == ["甲", "乙", "丙"]


def test_a_key_supersedes_in_both_sections_and_only_what_has_a_time(store: LongTermMemoryStore) -> None:
    store.append("old core ^rule", Scope.CORE)
    store.append("old ^rule")
    store.append("text that mentions ^rule in the middle")
    new = store.append("new", key="rule")
    now = store.read(retired=True)
    assert now.core == ()
    assert _raws(now.archival)[-1] == new.raw
    assert len(now.archival) == 2
    assert [(e.content, e.scope, e.retired.reason) for e in now.retired if e.retired] == [
        ("old core ^rule", Scope.CORE, "superseded"),
        ("old ^rule", Scope.ARCHIVAL, "superseded"),
    ]
    assert len({e.retired.run for e in now.retired if e.retired}) == 1


def test_a_key_written_in_the_text_alone_retires_nothing(store: LongTermMemoryStore) -> None:
    store.append("one ^rule")
    store.append("two ^rule")
    assert len(store.read().archival) == 2


def test_if_new(store: LongTermMemoryStore) -> None:
    first = store.append("事实", time=datetime(2026, 7, 1))
    assert store.append("事实", if_new=True) == first
    assert store.append("事实", Scope.CORE, if_new=True).scope is Scope.CORE
    assert store.append("事实 #t", if_new=True).content == "事实 #t"
    assert len(store.read().archival) == 2
    assert len(store.read().core) == 1


def test_forget_and_restore(store: LongTermMemoryStore) -> None:
    entries = _filled(store)
    before = store.read()
    change = store.edit(changes.forget(entries[1].id))
    assert change.run
    now = store.read(retired=True)
    assert now.archival == tuple(e for e in entries if e is not entries[1])
    assert [e.text for e in now.retired] == [entries[1].text]
    assert now.retired[0].retired
    assert now.retired[0].retired.reason == "forgotten"
    store.edit(changes.restore(entries[1].id[:4]))
    assert store.read(retired=True) == before


def test_of_several_with_a_key_the_one_comes_back_that_left_last(open_store: Opener) -> None:
    """However the backend numbers its rows, and within one second."""
    store = open_store()
    entry = store.append("two reviewers", key="rule")
    new = store.edit(changes.edit(entry.id, "three reviewers ^rule")).edit[0].new
    store.edit(changes.forget(new.id))
    first, second = store.append("甲 ^kk"), store.append("乙 ^kk")
    for each in (second, first):
        store.edit(changes.forget(each.id))
    assert [entry.prose for entry in store.read(retired=True).retired] == [
        "two reviewers",
        "three reviewers",
        "乙",
        "甲",
    ]
    assert [store.edit(changes.restore(key)).restore[0].entry.prose for key in ("^rule", "^kk")] == [
        "three reviewers",
        "甲",
    ]


@pytest.mark.parametrize("reason", ["", "x\ny", "a <!-- oryx: b", "; run r; live 0 -->\n- forged", "\ud800", " -->"])
@pytest.mark.parametrize("run", ["", "r r", "\n", "\ud800;", "x -->"])
def test_whatever_is_said_of_a_retired_entry_is_kept_as_one_record(reason: str, run: str, open_store: Opener) -> None:
    """An import brings what a stranger wrote."""
    store = open_store()
    why = Retirement(datetime(2026, 2, 1, tzinfo=UTC), reason, run)
    entries = [Entry(raw, retired=why) for raw in ("- [2026-01-01 00:00:00] one", "- two\n  lines")]
    for live, retired in ((0, 2), (0, 0)):
        report = store.bring(entries)
        assert (report.live, report.retired) == (live, retired)
    kept = store.read(retired=True)
    assert (kept.archival, kept.retired) == ((), tuple(entries))
    assert store.edit(changes.restore_run(why.run)).restore


def test_of_identical_lines_forget_takes_the_newest_and_counts_stay_right(store: LongTermMemoryStore) -> None:
    at = datetime(2026, 7, 1)
    same = [store.append("同一句", time=at) for _ in range(3)]
    other = store.append("other", time=at)
    for left in (2, 1, 0):
        store.edit(changes.forget(same[0].id))
        now = store.read(retired=True)
        assert now.archival == (*same[:left], other)
        assert len(now.retired) == 3 - left
    for back in (1, 2, 3):
        store.edit(changes.restore(same[0].id))
        now = store.read(retired=True)
        assert Counter(_raws(now.archival))[same[0].raw] == back
        assert len(now.retired) == 3 - back
    with pytest.raises(NothingFound):
        store.edit(changes.restore(same[0].id))


def test_an_entry_of_several_lines_that_is_added_while_an_equal_one_is_retired_is_one_more(
    store: LongTermMemoryStore,
) -> None:
    entry = Entry("- [2026-07-01 08:00:00] 一 one\n  二 two")
    store.add([entry])
    store.edit(changes.forget(entry.id))
    store.add([entry])
    now = store.read(retired=True)
    assert (len(now.archival), len(now.retired)) == (1, 1)


def test_edit_keeps_time_place_section_and_trailer(store: LongTermMemoryStore) -> None:
    entries = _filled(store)
    keyed = store.append("规则 #流程", key="rule")
    last = store.append("last")
    change = store.edit(changes.edit("^rule", "新规则"))
    now = store.read(retired=True)
    assert _raws(now.archival) == [*_raws(tuple(entries)), keyed.raw.replace("规则", "新规则"), last.raw]
    assert [(e.text, e.retired.reason, e.retired.run) for e in now.retired if e.retired] == [
        (keyed.text, "edited", change.run)
    ]


def test_move_goes_to_the_end_of_the_other_section_and_keeps_the_id(store: LongTermMemoryStore) -> None:
    entries = _filled(store)
    store.append("核心", Scope.CORE)
    store.edit(changes.move(entries[0].id, Scope.CORE))
    now = store.read(retired=True)
    assert [e.id for e in now.core][-1] == entries[0].id
    assert now.archival == tuple(entries[1:])
    assert now.retired == ()
    assert not store.edit(changes.move(entries[0].id, Scope.CORE))


def test_purge_destroys_live_and_retired_copies_of_one_text_only(store: LongTermMemoryStore) -> None:
    at = datetime(2026, 7, 1)
    secret = [store.append("密码 secret", time=at) for _ in range(3)]
    store.append("kept")
    store.edit(changes.forget(secret[0].id))
    store.edit(changes.forget(store.read().archival[-1].id))
    store.edit(changes.forget(secret[0].id, purge=True))
    now = store.read(retired=True)
    assert now.archival == ()
    assert [e.content for e in now.retired] == ["kept"]


def test_dry_run_changes_nothing_and_shows_the_same(store: LongTermMemoryStore) -> None:
    entries = _filled(store)
    stamp = store.stamp()
    shown = store.edit(changes.forget(entries[2].id), dry_run=True)
    assert store.stamp() == stamp
    assert shown == store.edit(changes.forget(entries[2].id))


def test_a_plan_that_raises_changes_nothing(store: LongTermMemoryStore) -> None:
    _filled(store)
    stamp = store.stamp()
    with pytest.raises(NothingFound):
        store.edit(changes.forget("^nobody"))
    with pytest.raises(RejectedInput):
        store.edit(changes.forget("zz"))
    assert store.stamp() == stamp


def test_clean_twice_changes_nothing_the_second_time_and_a_run_is_undone_whole(store: LongTermMemoryStore) -> None:
    start = datetime(2026, 1, 1)
    for n in range(30):
        store.append(f"fact {n % 20}", time=start + timedelta(days=n))
    store.append("fact 3", Scope.CORE, time=start)
    before = store.read()
    policy = Policy(older_than=timedelta(days=210), keep_entries=12, force=True)
    report = store.clean(policy)
    assert report.before == 30
    assert len(report.change.retire) == 18
    assert store.read().core == before.core
    assert not store.clean(policy).change
    store.edit(changes.restore_run(report.change.run))
    after = store.read(retired=True)
    assert after.archival == before.archival
    assert after.retired == ()


def test_max_share_stops_a_clean_up_with_a_wrong_clock(open_store: Opener) -> None:
    store = open_store(now=datetime(2036, 8, 1))
    store.add([Entry.new(f"{n}", time=NOW - timedelta(days=n % 90)) for n in range(204)])
    stamp = store.stamp()
    with pytest.raises(TooMuch, match="clock") as caught:
        store.clean(Policy(older_than=timedelta(days=365)))
    assert "--force" in str(caught.value)
    assert caught.value.exit_code == 1
    assert store.stamp() == stamp


def test_purge_retired_destroys_only_what_left_long_ago(open_store: Opener) -> None:
    store = open_store(now=datetime(2025, 1, 1))
    old, young = store.append("old"), store.append("young")
    store.edit(changes.forget(old.id))
    open_store().edit(changes.forget(young.id))
    report = open_store().clean(Policy(purge_retired=timedelta(days=365)))
    assert [copy.entry.content for copy in report.change.purge] == ["old"]
    assert [e.content for e in open_store().read(retired=True).retired] == ["young"]


def test_what_a_run_retires_it_does_not_destroy(open_store: Opener) -> None:
    for _ in range(2):
        same = open_store().append("同一句 same", time=datetime(2026, 1, 1))
    store = open_store(now=NOW + timedelta(minutes=1))
    store.append("other")
    open_store().clean(Policy())
    report = store.clean(Policy(older_than=timedelta(days=90), purge_retired=timedelta(0)))
    assert [item.copy.entry.text for item in report.change.retire] == [same.text]
    assert report.change.purge == ()
    store.edit(changes.restore_run(report.change.run))
    assert store.read().archival[0] == same


@pytest.mark.parametrize("leave", ["retire", "edit"])
def test_a_text_that_leaves_in_the_change_that_destroys_it_can_be_restored(
    leave: str, store: LongTermMemoryStore
) -> None:
    for _ in range(2):
        same = store.append("同一句 same", time=datetime(2026, 1, 1))
    store.edit(changes.forget(same.id))

    def plan(now: Snapshot) -> Change:
        copy = Copy(0, now.archival[0])
        if leave == "edit":
            return Change(edit=(Edit(copy, copy.entry.with_content("new")),), purge=tuple(now.out()))
        return Change(retire=(Retire(copy, "all"),), purge=tuple(now.out()))

    store.edit(plan)
    store.edit(changes.restore(same.id))
    assert same in store.read().archival


def test_two_runs_of_one_second_differ(store: LongTermMemoryStore) -> None:
    entries = _filled(store)
    runs = {store.edit(changes.forget(entry.id)).run for entry in entries}
    assert runs == {f"20260801T020000-{n}" for n in range(1, 5)}


def test_migrate_to_copies_what_is_missing_and_a_second_run_adds_nothing(open_store: Opener) -> None:
    here, there = open_store("here"), open_store("there")
    entries = _filled(here)
    here.append("核心", Scope.CORE)
    here.edit(changes.forget(entries[1].id))
    forgotten_there = there.append("第2 fact", time=datetime(2026, 7, 1, 2))
    there.edit(changes.forget(forgotten_there.id))
    report = here.migrate_to(there, dry_run=True)
    assert there.read().archival == ()
    assert (report.live, report.retired, report.present) == (3, 1, 1)
    assert here.migrate_to(there).live == 3
    now = there.read(retired=True)
    assert [e.content for e in now.archival] == ["第0 fact", "第3 fact"]
    assert sorted(e.content for e in now.retired) == ["第1 fact", "第2 fact"]
    assert now.core == here.read().core
    stamp = there.stamp()
    assert here.migrate_to(there).live == 0
    assert there.stamp() == stamp


def test_a_copy_that_comes_while_an_equal_one_is_retired_is_one_more(open_store: Opener) -> None:
    here, there = open_store("here"), open_store("there")
    time = datetime(2026, 7, 1, 2)
    for store, count in ((here, 3), (there, 1)):
        for _ in range(count):
            entry = store.append("同一件事 twice", time=time)
    there.edit(changes.forget(entry.id))
    report = here.migrate_to(there)
    assert (report.live, report.retired, report.present, report.ids) == (2, 0, 1, 1)
    now = there.read(retired=True)
    assert (len(now.archival), len(now.retired)) == (2, 1)
    there.edit(changes.restore(entry.id))
    now = there.read(retired=True)
    assert (len(now.archival), len(now.retired)) == (3, 0)


def test_load_gives_core_whole_and_the_longest_suffix_that_fits(store: LongTermMemoryStore) -> None:
    store.append("核" * 5000, Scope.CORE)
    entries = [store.append("长" * 100) for _ in range(50)]
    size = len(entries[0].text)
    fits = (4000 + 1) // (size + 1)
    memory = store.load()
    assert memory.window == tuple(entries[-fits:])
    assert memory.outside == 50 - fits
    assert memory.window_chars <= 4000 < memory.window_chars + size + 1
    assert len(memory.core[0].content) == 5000
    assert store.load(max_chars=None).window == tuple(entries)
    exact = (size + 1) * 3 - 1
    assert len(store.load(max_chars=exact).window) == 3
    assert len(store.load(max_chars=exact - 1).window) == 2


def test_an_entry_that_alone_exceeds_the_window_is_shown_from_its_start_and_marked(store: LongTermMemoryStore) -> None:
    store.append("small")
    entry = store.append("长" * 6000)
    memory = store.load()
    shown = memory.section(Scope.ARCHIVAL)
    assert memory.window == (entry,)
    assert memory.outside == 1
    assert memory.cut > 2000
    assert shown.startswith(entry.text[:3000])
    assert len(shown) <= 4000
    assert f"{memory.cut} characters cut" in shown
    tiny = store.load(max_chars=10)
    assert tiny.section(Scope.ARCHIVAL).startswith(entry.text[:10] + "…")


def test_recall_finds_what_stands_before_the_content(store: LongTermMemoryStore) -> None:
    star, minute = Entry("* 星号 star"), Entry("- [2026-07-22 09:30] 分钟 minute")
    store.add([star, minute])
    assert store.recall_by_keyword("* 星") == [star]
    assert store.recall_by_keyword("＊") == [star]
    assert store.recall_by_keyword("09:30] 分") == [minute]
    assert store.recall_by_keyword("09:30:00") == []


def test_stats(store: LongTermMemoryStore) -> None:
    store.append("核心", Scope.CORE)
    store.append("a #x", time=datetime(2026, 7, 1))
    store.append("a #x", time=datetime(2026, 7, 2))
    store.append("b", key="key1", time=datetime(2026, 7, 2))
    store.edit(changes.forget(store.append("gone").id))
    figures = store.stats()
    assert (figures.core, figures.archival, figures.retired, figures.duplicates, figures.keys) == (1, 3, 1, 1, 1)
    assert figures.days == {"2026-07-01": 1, "2026-07-02": 2}
    assert figures.tags == {"x": 2}
    assert (figures.oldest, figures.newest) == (datetime(2026, 7, 1), datetime(2026, 7, 2))


def test_export_streams_core_archival_retired(store: LongTermMemoryStore) -> None:
    entries = _filled(store)
    store.append("核心", Scope.CORE)
    store.edit(changes.forget(entries[0].id))
    assert [e.scope for e in store.export()] == [Scope.CORE] + [Scope.ARCHIVAL] * 3
    assert [bool(e.retired) for e in store.export(retired=True)] == [False] * 4 + [True]


def test_any_sequence_of_commands_keeps_the_sum(open_store: Opener) -> None:
    """Appended = live + retired + purged, after every step of a random sequence."""
    chance = random.Random(5)
    store = open_store()
    purged: Counter[str] = Counter()
    appended: Counter[str] = Counter()
    start = datetime(2026, 1, 1)
    now = Snapshot()
    for step in range(150):
        live, out = list(now.live()), list(now.out())
        action = chance.choice(["append", "append", "append", "forget", "restore", "move", "clean", "purge", "key"])
        if action == "append":
            scope = chance.choice(list(Scope))
            text = chance.choice(["甲", "b", "重复", "长 " * 9])
            appended[store.append(text, scope, time=start + timedelta(minutes=chance.randint(0, 3))).text] += 1
        elif action == "key":
            appended[store.append(f"k {step}", key="kk").text] += 1
        elif action == "forget" and live:
            store.edit(changes.forget(chance.choice(live).entry.id))
        elif action == "restore" and out:
            store.edit(changes.restore(chance.choice(out).entry.id))
        elif action == "move" and live:
            store.edit(changes.move(chance.choice(live).entry.id, chance.choice(list(Scope))))
        elif action == "clean":
            store.clean(Policy(keep_entries=6, force=True))
        elif action == "purge" and live and step % 10 == 0:
            change = store.edit(changes.forget(chance.choice(live).entry.id, purge=True))
            purged.update(copy.entry.text for copy in change.purge)
        now = store.read(retired=True)
        held = Counter(e.text for e in now.core + now.archival + now.retired)
        assert held + purged == appended, (step, action)


def test_a_plan_is_made_from_the_state_under_the_lock(store: LongTermMemoryStore) -> None:
    """Between a caller's read and its edit another writer adds; the plan sees that."""
    entries = _filled(store, 2)

    def plan(now: Snapshot) -> Change:
        return Change(retire=tuple(Retire(Copy(n, e), "all") for n, e in enumerate(now.archival)))

    stale = store.read()
    late = store.append("late")
    store.edit(plan)
    assert len(stale.archival) == 2
    assert sorted(e.text for e in store.read(retired=True).retired) == sorted(e.text for e in [*entries, late])
