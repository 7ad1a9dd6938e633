"""The mem0 backend against the real engine: what is sent, what is believed, and what a server that fails does to it."""

import json
import os
import subprocess
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from command import ORYX, after, memory, real
from conftest import NOW
from hypothesis import given
from hypothesis import strategies as st
from mem0_server import Mem0Server, Models, Reply, refusal
from waits import Waits

from oryx_memory import (
    Entry,
    NothingFound,
    OryxMemoryWarning,
    RejectedInput,
    Scope,
    SettingsError,
    Workspace,
    changes,
    settings,
    stores,
)
from oryx_memory.document import piece
from oryx_memory.errors import ServiceProblem
from oryx_memory.stores.mem0 import Mem0MemoryStore, between
from oryx_memory.stores.rest import PAGE, TRIES, Held, _detail
from oryx_memory.workspace import initialise

KEY = "m0sk_0123456789abcdefghij"
SECRET = "上线前必须两人复核，密码在保险箱里"


@pytest.fixture
def waits() -> Waits:
    return Waits()


Make = Callable[..., Mem0MemoryStore]


@pytest.fixture
def make(workspace: Workspace, waits: Waits) -> Make:
    """Makes a store; options of `[mem0]` by name, variables by `environment`."""

    def made(
        agent: str | None = "ops", environment: Mapping[str, str] | None = None, **options: Any
    ) -> Mem0MemoryStore:
        table = settings.load(None, os.environ).mem0 | options
        return Mem0MemoryStore(workspace, agent, lambda: NOW, table, environment or {}, pace=waits.pace)

    return made


@pytest.fixture
def store(mem0: Mem0Server, make: Make) -> Mem0MemoryStore:
    return make()


def put(mem0: Mem0Server, store: Mem0MemoryStore, text: str, **metadata: Any) -> str:
    """Something that another program puts under the same user; its id."""
    call = mem0._worker.submit(
        mem0.engine.add, [{"role": "user", "content": text}], user_id=store.user, metadata=metadata, infer=False
    )
    return str(call.result()["results"][0]["id"])


def rows(mem0: Mem0Server, store: Mem0MemoryStore) -> list[dict[str, Any]]:
    """What the server has of a store's user."""
    call = mem0._worker.submit(mem0.engine.get_all, filters={"user_id": store.user}, top_k=PAGE)
    found: list[dict[str, Any]] = call.result()["results"]
    return found


def raws(store: Mem0MemoryStore) -> list[str]:
    return [entry.raw for entry in store.read().archival]


def attempted(act: Callable[[], object]) -> ServiceProblem | None:
    """The error, if there is one: it is one line and repeats neither the key nor what was to be remembered."""
    error: ServiceProblem | None = None
    try:
        act()
    except ServiceProblem as problem:
        error = problem
    if error:
        text = str(error)
        assert "\n" not in text
        assert KEY not in text
        assert SECRET[:8] not in text
        assert error.exit_code == 4
    return error


def caught(act: Callable[[], object]) -> ServiceProblem:
    """As `attempted`, and there is one."""
    error = attempted(act)
    assert error is not None
    return error


# What is sent, and what is believed.


def test_an_entry_is_sent_word_for_word_with_its_line_in_the_metadata(mem0: Mem0Server, store: Mem0MemoryStore) -> None:
    entry = store.append("上线前 two reviewers #流程", key="release")
    body = next(request.body for request in mem0.asked if request.method == "POST")
    assert body["messages"] == [{"role": "user", "content": "上线前 two reviewers #流程 ^release"}]
    assert body["user_id"] == f"{os.environ['ORYX_MEM0_USER_ID']}:ops"
    assert body["infer"] is False
    meta = body["metadata"]
    assert (meta["oryx_line"], meta["oryx_scope"], meta["oryx_time"]) == (entry.raw, "archival", "2026-08-01T02:00:00")
    assert all(request.path.partition("?")[0] in ("/memories", "/search") for request in mem0.asked)


def test_the_global_memory_has_a_user_of_its_own(make: Make, mem0: Mem0Server) -> None:
    make(None).append("共用 shared", Scope.CORE)
    assert mem0.asked[-1].body["user_id"].endswith(":__global__")
    assert make("ops").read().core == ()
    with pytest.raises(RejectedInput, match="stands for no agent"):
        make("__global__")


def test_more_than_the_twenty_that_the_server_lists_by_itself(store: Mem0MemoryStore) -> None:
    store.add([Entry.new(f"第{n} of many", time=NOW) for n in range(23)])
    assert [entry.content for entry in store.read().archival] == [f"第{n} of many" for n in range(23)]


def test_what_another_program_put_there_is_archival_with_the_servers_time(
    mem0: Mem0Server, store: Mem0MemoryStore, workspace: Workspace
) -> None:
    put(mem0, store, "likes tea\n喝茶\n\n  indented")
    (row,) = rows(mem0, store)
    (entry,) = store.read().archival
    made = datetime.fromisoformat(row["created_at"]).astimezone().replace(microsecond=0, tzinfo=None)
    assert entry.raw == f"- [{made}] likes tea\n  喝茶\n  indented"
    assert store.recall_by_keyword("喝茶") == [entry]
    store.edit(changes.forget(entry.id))
    assert rows(mem0, store) == []
    store.edit(changes.restore(entry.id))
    assert store.read().archival == (entry,)


def test_what_was_edited_on_the_server_keeps_its_time_and_its_place(mem0: Mem0Server, store: Mem0MemoryStore) -> None:
    first, _ = store.append("first"), store.append("second", time=datetime(2026, 7, 1))
    (id,) = (row["id"] for row in rows(mem0, store) if row["memory"] == "first")
    mem0._worker.submit(mem0.engine.update, id, "第一 corrected").result()
    assert raws(store) == [first.raw.replace("first", "第一 corrected"), "- [2026-07-01 00:00:00] second"]


def test_a_memory_without_text_is_not_shown_and_stays(mem0: Mem0Server, store: Mem0MemoryStore) -> None:
    put(mem0, store, "  ")
    store.append("一")
    assert len(store.read().archival) == 1
    assert len(rows(mem0, store)) == 2


def test_memories_of_other_users_are_left_out_whatever_the_filters_of_the_server_do(
    mem0: Mem0Server, store: Mem0MemoryStore
) -> None:
    store.append("ours")

    def leak(answer: Any) -> Any:
        for foreign in ({"user_id": "another:ops"}, {"metadata": {"oryx_user": f"{store.user}2"}}):
            answer["results"].append({"id": "x", "memory": "theirs", "score": 1.0, **foreign})
        return answer

    mem0.plan.append(Reply(change=leak))
    assert [entry.content for entry in store.read().archival] == ["ours"]
    mem0.plan.append(Reply(change=leak))
    assert [entry.content for entry in store.search("ours", limit=5)] == ["ours"]


_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=12)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)
_METADATA = st.dictionaries(
    st.sampled_from(
        ["oryx_line", "oryx_scope", "oryx_time", "oryx_copy", "oryx_order", "oryx_written", "oryx_user", "x"]
    ),
    st.one_of(
        _JSON, st.sampled_from(["core", "0" * 500, "٣", "- [2026-01-01 00:00:00] 一", "## 核心记忆", "x\ny", "\ud800"])
    ),
)


@given(
    st.text(max_size=30) | st.sampled_from(["## 核心记忆", "x\ny", "\ud800", "一"]),
    _METADATA,
    st.one_of(st.text(max_size=30), st.datetimes().map(datetime.isoformat)),
)
def test_any_memory_is_one_entry_or_none(memory: str, metadata: dict[str, Any], created: str) -> None:
    options = {"base_url": "http://127.0.0.1:1", "user_id": "u", "api_key_env": "", "infer": False, "timeout": 1.0}
    store = Mem0MemoryStore(Workspace(Path("/nowhere/.oryxos")), "ops", lambda: NOW, options, {})
    row = store._row(Held("id", memory, metadata, created))
    if row:
        assert row.entry.text
        assert piece(row.entry, b"\n").decode() == f"{row.entry.raw}\n"  # what can be retired
        assert row.order.isascii()
        assert row.order.isdigit()
        assert row.entry.scope is (Scope.CORE if metadata.get("oryx_scope") == "core" else Scope.ARCHIVAL)
    else:
        assert not memory.strip()


@given(st.binary(max_size=80) | _JSON.map(lambda made: json.dumps({"detail": made}).encode()))
def test_any_error_body_gives_a_text(data: bytes) -> None:
    assert isinstance(_detail(data), str)


_ORDERS = st.text("0123456789", min_size=1, max_size=24)


@given(_ORDERS, _ORDERS)
def test_between_two_places_is_one_more(one: str, other: str) -> None:
    low, high = sorted((one, other))
    if low.rstrip("0") != high.rstrip("0"):
        assert low < between(low, high) < high
        assert "" < between("", high) < high or not high.strip("0")


# Changes, and what is left of one that fails in the middle.


def test_what_is_retired_leaves_the_server_and_stands_in_the_agents_folder(
    mem0: Mem0Server, store: Mem0MemoryStore, workspace: Workspace
) -> None:
    entry = store.append("退役 retire me")
    store.edit(changes.forget(entry.id))
    assert rows(mem0, store) == []
    file = workspace.root / "agents" / "ops" / "mem0" / "MEMORY.retired.md"
    assert store.retired_path == file
    assert file.read_text(encoding="utf-8").startswith(
        f"{entry.raw} <!-- oryx: retired 2026-08-01T02:00:00 from archival"
    )
    assert not workspace.memory_file("ops").exists()


def test_a_delete_that_fails_retires_nothing(mem0: Mem0Server, store: Mem0MemoryStore) -> None:
    entry = store.append("keep me 留")
    mem0.plan += [Reply(), *[refusal(500, "boom")] * TRIES]
    assert caught(lambda: store.edit(changes.forget(entry.id))).heals
    now = store.read(retired=True)
    assert (now.archival, now.retired) == ((entry,), ())
    store.edit(changes.forget(entry.id))
    now = store.read(retired=True)
    assert (now.archival, len(now.retired)) == ((), 1)


def test_a_delete_whose_answer_is_lost_is_done(mem0: Mem0Server, store: Mem0MemoryStore) -> None:
    entry = store.append("gone 去")
    mem0.plan += [Reply(), Reply(lost=True)]
    store.edit(changes.forget(entry.id))
    assert [len(part) for part in (store.read().archival, store.read(retired=True).retired)] == [0, 1]


@pytest.mark.parametrize(
    ("reply", "gone"),
    [
        (refusal(404, "Not Found"), False),  # a path that nobody serves
        (Reply(200, b'{"error": "nope"}'), False),
        (Reply(200, b"[]"), False),
        (Reply(204), False),
        (Reply(change=lambda _: {"done": True}), True),  # a server that says it otherwise
        (Reply(change=lambda _: None), True),
    ],
)
@pytest.mark.parametrize("purge", [False, True])
def test_a_delete_is_done_when_the_entry_is_gone_whatever_the_server_says(
    reply: Reply, gone: bool, purge: bool, mem0: Mem0Server, store: Mem0MemoryStore
) -> None:
    entry = store.append("leave 去")
    mem0.plan += [Reply(), reply]
    assert (attempted(lambda: store.edit(changes.forget(entry.id, purge=purge))) is None) == gone
    assert len(rows(mem0, store)) == (not gone)
    assert store.read().archival == (() if gone else (entry,))


ODD: Mapping[str, tuple[dict[str, Any], bool]] = {
    "score": ({"score": 10**400}, True),
    "copy": ({"metadata": {"oryx_copy": "\ud800x"}}, True),
    "order": ({"metadata": {"oryx_order": "9" * 20}}, True),
    "id-surrogate": ({"id": "\ud800x"}, False),
    "id-empty": ({"id": ""}, False),
    "id-parent": ({"id": ".."}, False),
}


@pytest.mark.parametrize("name", list(ODD))
def test_odd_parts_of_an_answer(name: str, mem0: Mem0Server, store: Mem0MemoryStore) -> None:
    store.append("here 在")

    def odd(answer: Any) -> Any:
        for item in answer["results"]:
            item |= {**ODD[name][0], "metadata": item["metadata"] | ODD[name][0].get("metadata", {})}
        return answer

    mem0.plan += [Reply(change=odd), Reply(change=odd)]
    if not ODD[name][1]:
        assert "no id or no text" in str(caught(store.read))
        return
    assert store.read().archival[0].prose == "here 在"
    store.edit(changes.move(store.read().archival[0].id, Scope.CORE))
    mem0.plan.clear()
    assert [entry.prose for entry in store.read().core] == ["here 在"]


def test_a_restore_that_fails_changes_nothing_and_can_be_done_again(mem0: Mem0Server, store: Mem0MemoryStore) -> None:
    entry = store.append("回来 back")
    store.edit(changes.forget(entry.id))
    mem0.plan += [Reply(), refusal(400, "no")]
    caught(lambda: store.edit(changes.restore(entry.id)))
    assert len(store.read(retired=True).retired) == 1
    store.edit(changes.restore(entry.id))
    now = store.read(retired=True)
    assert (now.archival, now.retired) == ((entry,), ())


@pytest.mark.parametrize(
    ("plan", "after"),
    [
        (changes.edit("^rule", "新 new"), ([], ["- [2026-08-01 02:00:00] 新 new ^rule"], ["edited"])),
        (changes.move("^rule", Scope.CORE), (["- [2026-08-01 02:00:00] old ^rule"], [], [])),
    ],
    ids=["edit", "move"],
)
def test_a_change_that_stops_before_the_old_row_is_deleted_leaves_it_there_once(
    plan: changes.Plan, after: tuple[list[str], list[str], list[str]], mem0: Mem0Server, store: Mem0MemoryStore
) -> None:
    store.append("old", key="rule")
    mem0.plan += [Reply(), Reply(), refusal(403, "no"), Reply()]  # list, add, delete, look
    caught(lambda: store.edit(plan))
    assert len(rows(mem0, store)) == 2
    now = store.read(retired=True)
    found = (
        [e.raw for e in now.core],
        [e.raw for e in now.archival],
        [e.retired.reason for e in now.retired if e.retired],
    )
    assert found == after
    store.append("next")
    assert len(rows(mem0, store)) == 2  # what was left is gone
    store.edit(changes.forget("^rule"))
    assert [entry.content for entry in store.read().archival] == ["next"]


def test_of_several_entries_the_error_says_how_many_are_there(mem0: Mem0Server, store: Mem0MemoryStore) -> None:
    mem0.plan += [Reply(), Reply(), Reply(), refusal(400, "no")]
    error = caught(lambda: store.add([Entry.new(f"{n} {SECRET}", time=NOW) for n in range(4)]))
    assert "2 of 4 entries were stored before" in str(error)
    assert len(store.read().archival) == 2


def test_purge_leaves_neither_the_row_nor_the_record(mem0: Mem0Server, store: Mem0MemoryStore) -> None:
    same = [store.append("密码 secret") for _ in range(3)]
    store.edit(changes.forget(same[0].id))
    store.edit(changes.forget(same[0].id, purge=True))
    assert rows(mem0, store) == []
    assert "密码" not in store.retired_path.read_text(encoding="utf-8")
    with pytest.raises(NothingFound):
        store.edit(changes.restore(same[0].id))


# An append whose answer does not come.


def test_an_append_whose_answer_is_lost_is_there_once(mem0: Mem0Server, store: Mem0MemoryStore, waits: Waits) -> None:
    mem0.plan += [Reply(), Reply(lost=True)]
    entry = store.append("一次 once")
    assert raws(store) == [entry.raw]
    assert sum(request.method == "POST" for request in mem0.asked) == 1
    assert len(waits.slept) == 1


def test_an_append_that_never_arrived_is_sent_again(mem0: Mem0Server, store: Mem0MemoryStore) -> None:
    mem0.plan += [Reply(), refusal(502, "Upstream provider error.")]
    entry = store.append("再来 again")
    assert raws(store) == [entry.raw]
    assert [request.method for request in mem0.asked[:4]] == ["GET", "POST", "GET", "POST"]


def test_an_append_that_arrives_late_and_was_sent_again_is_there_once(mem0: Mem0Server, make: Make) -> None:
    store = make(timeout=1.0)
    late = Reply(wait=threading.Event())
    mem0.plan += [Reply(), late]
    entry = store.append("迟到 late")
    assert late.wait is not None
    late.wait.set()
    assert late.answered.wait(60)
    assert len(rows(mem0, store)) == 2
    assert raws(store) == [entry.raw]
    other = store.append("next")
    assert len(rows(mem0, store)) == 2
    assert raws(store) == [entry.raw, other.raw]


def test_an_append_of_which_nothing_can_be_known_says_so(mem0: Mem0Server, store: Mem0MemoryStore) -> None:
    mem0.plan += [Reply(), *[refusal(500, "boom")] * (1 + TRIES)]
    error = caught(lambda: store.append(SECRET))
    assert "whether it was stored is not known" in str(error)
    assert "--if-new" in str(error)


def test_a_refused_append_is_not_sent_again(mem0: Mem0Server, store: Mem0MemoryStore, waits: Waits) -> None:
    mem0.plan += [Reply(), refusal(400, f"cannot take {SECRET}")]
    assert "not known" not in str(caught(lambda: store.append(SECRET)))
    assert (len(mem0.asked), waits.slept) == (2, [])


def test_processes_that_append_at_once_lose_nothing(
    mem0: Mem0Server, workspace: Workspace, store: Mem0MemoryStore
) -> None:
    command = [
        ORYX,
        "memory",
        "append",
        "--root",
        str(workspace.root),
        "--backend",
        "mem0",
        "-a",
        "ops",
        "--lock-timeout",
        "90",
    ]
    running = [
        subprocess.Popen([*command, f"并发 {n}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ))
        for n in range(3)
    ]
    said = [process.communicate()[0].decode().strip() for process in running]
    assert [process.returncode for process in running] == [0] * 3
    assert Counter(raws(store)) == Counter(said)


# What a server may do.


def shape(made: Any) -> Reply:
    return Reply(change=lambda _: made)


FAILURES: Mapping[str, tuple[Reply, bool, tuple[str, ...]]] = {
    "401": (refusal(401, f"Invalid API key {KEY}."), False, ("refused the key (401: Invalid API key …", "put a valid key into MEM0_KEY")),
    "429": (refusal(429, "slow down", Retry_After="7"), True, ("too many requests (429: slow down)", "asks to wait 7 s", "after 3 tries")),
    "500": (refusal(500, "boom"), True, ("failed (500: boom)", "after 3 tries")),
    "502": (refusal(502, "Provider timed out. Retry shortly."), True, ("failed (502: Provider timed out.",)),
    "422": (refusal(422, [{"type": "int", "loc": ["query", "top_k"], "msg": "no", "input": SECRET}]), False, ("query.top_k: no",)),
    "404": (refusal(404, "Not Found"), False, ("is no mem0 server", "check [mem0] base_url")),
    "redirect": (Reply(307, b"", {"Location": "http://127.0.0.1:1/"}), False, ("redirect (307), which is not followed",)),
    "html": (Reply(200, b"<html>hello</html>", {"Content-Type": "text/html"}), False, ("something else than JSON",)),
    "html-500": (Reply(503, b"<html>hello</html>"), True, ("failed (503: no message)",)),
    "half": (Reply(200, b'{"results": ['), False, ("half of it",)),
    "deep": (Reply(200, b"[" * 100_000), False, ("something else than JSON",)),
    "number": (shape(3), False, ("without a list of memories",)),
    "no-results": (shape({"memories": []}), False, ("without a list of memories",)),
    "strings": (shape({"results": ["x"]}), False, ("no id or no text",)),
    "no-text": (shape({"results": [{"id": "1", "memory": None}]}), False, ("no id or no text",)),
    "escapes": (refusal(400, "\x1b]0;x\x07\n\u202e"), False, ("\\u001b]0;x\\u0007 \\u202e",)),
}  # fmt: skip


@pytest.mark.parametrize("name", list(FAILURES))
def test_what_a_server_that_fails_does_to_those_who_read(name: str, mem0: Mem0Server, make: Make, waits: Waits) -> None:
    reply, heals, words = FAILURES[name]
    store = make(api_key_env="MEM0_KEY", environment={"MEM0_KEY": KEY})
    mem0.plan += [reply] * TRIES
    error = caught(store.read)
    assert str(error).startswith(f"mem0 (127.0.0.1:{mem0.url.rpartition(':')[2]}): ")
    for word in words:
        assert word in str(error)
    assert error.heals is heals
    assert len(waits.slept) == (TRIES - 1 if heals else 0)
    if name == "429":
        assert waits.slept == [7.5, 7.5]
    mem0.plan.clear()
    assert store.read().archival == ()


@pytest.mark.parametrize("name", list(FAILURES))
def test_what_a_server_that_fails_does_to_an_append(name: str, mem0: Mem0Server, make: Make) -> None:
    """Either it is stored, once, or there is an error."""
    reply = FAILURES[name][0]
    store = make(api_key_env="MEM0_KEY", environment={"MEM0_KEY": KEY})
    mem0.plan += [Reply(), reply]
    error = attempted(lambda: store.append(SECRET))
    stored = len(rows(mem0, store))
    assert stored == (error is None)
    mem0.plan.clear()
    assert len(rows(mem0, store)) == len(store.read().archival) == stored


def test_a_server_that_keeps_asking_to_wait_is_given_up_at_once(
    mem0: Mem0Server, store: Mem0MemoryStore, waits: Waits
) -> None:
    mem0.plan.append(refusal(429, "come back tomorrow", Retry_After="86400"))
    assert "asks to wait 86400 s" in str(caught(store.read))
    assert waits.slept == []


def test_a_slow_server_is_given_up(mem0: Mem0Server, make: Make) -> None:
    held = [Reply(wait=threading.Event()) for _ in range(TRIES)]
    mem0.plan += held
    error = caught(make(timeout=0.2).read)
    for reply in held:
        assert reply.wait is not None
        reply.wait.set()
    assert "gave no answer within 0.2 s, after 3 tries" in str(error)


def test_a_server_that_is_not_there(mem0: Mem0Server, make: Make) -> None:
    with Models() as gone:
        url = gone.url
    error = caught(make(base_url=url).read)
    assert f"did not answer at {url}: " in str(error)
    assert error.heals
    assert "not known" not in str(caught(lambda: make(base_url=url).append(SECRET)))


def test_the_key_goes_to_the_configured_host_alone(mem0: Mem0Server, make: Make) -> None:
    mem0.key = KEY
    environment = {"MEM0_KEY": KEY, "OTHER": "m0sk_wrong_0123456789"}
    store = make(api_key_env="MEM0_KEY", environment=environment)
    store.append("with a key 钥匙")
    assert {request.headers.get("x-api-key") for request in mem0.asked} == {KEY}
    wrong = make(api_key_env="OTHER", environment=environment)
    assert "refused the key (401: Invalid API key.); put a valid key into OTHER" in str(caught(wrong.read))
    assert "wants a key" in str(caught(make().read))
    with Models() as elsewhere:
        mem0.plan.append(Reply(307, b"", {"Location": f"{elsewhere.url}/memories"}))
        caught(store.read)
        assert elsewhere.asked == []
    with pytest.raises(SettingsError, match="needs its key in the environment variable MEM0_KEY"):
        make(api_key_env="MEM0_KEY")


def test_a_server_on_this_machine_is_reached_without_a_proxy(
    mem0: Mem0Server, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    make().append("直连 direct")
    assert len(make().read().archival) == 1


@pytest.mark.parametrize("missing", ["base_url", "user_id"])
def test_what_must_be_configured_is_named(missing: str, mem0: Mem0Server, make: Make) -> None:
    with pytest.raises(SettingsError, match=rf"needs mem0\.{missing}"):
        make(**{missing: ""})


# The page that cannot be turned.


def page(store: Mem0MemoryStore, count: int) -> Reply:
    made = [{"id": f"{n}", "memory": f"m{n}", "user_id": store.user, "created_at": "2026-01-01"} for n in range(count)]
    return shape({"results": made})


def test_a_full_page_is_an_error(mem0: Mem0Server, store: Mem0MemoryStore) -> None:
    mem0.plan.append(page(store, PAGE))
    assert "has 1,000 memories or more" in str(caught(store.read))
    mem0.plan.append(page(store, PAGE - 1))
    assert len(store.read().archival) == PAGE - 1


def test_what_would_fill_the_page_is_refused(mem0: Mem0Server, store: Mem0MemoryStore) -> None:
    mem0.plan.append(page(store, PAGE - 1))
    error = caught(lambda: store.append("one too many 多"))
    assert "999 memories" in str(error)
    assert "clean --keep-entries" in str(error)
    assert [request.method for request in mem0.asked] == ["GET"]
    mem0.plan.append(page(store, PAGE - 2))
    store.append("the last 最后")


@pytest.mark.parametrize("count", [20, 100])
def test_a_server_that_knows_no_top_k_is_an_error(count: int, mem0: Mem0Server, store: Mem0MemoryStore) -> None:
    mem0.plan += [page(store, count), page(store, count)]
    assert "needs a version with top_k" in str(caught(store.read))
    mem0.plan += [page(store, count), page(store, 1)]
    assert len(store.read().archival) == count


# The server's own search.


def test_ranked_recall_is_the_search_of_the_server(mem0: Mem0Server, store: Mem0MemoryStore) -> None:
    for text in ("发布前两人复核 review the release", "uv 比 pip 快", "unrelated words only"):
        store.append(text)
    store.append("两人复核 core", Scope.CORE)
    store.append("触发「两人复核」⇒ 好")
    mem0.asked.clear()
    found = store.scored("谁复核发布", limit=2)
    assert found[0].entry.content == "发布前两人复核 review the release"
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
    body = mem0.asked[-1].body
    assert body["filters"] == {"user_id": store.user}
    assert "user_id" not in body
    assert all(
        hit.entry.scope is Scope.ARCHIVAL and "触发" not in hit.entry.raw for hit in store.scored("复核", limit=9)
    )
    assert store.scored("谁复核发布", limit=9, least=2.0) == []
    with pytest.raises(RejectedInput):
        store.scored("  ", limit=1)


# mem0's own extraction.


def test_with_infer_mem0_makes_of_new_archival_entries_what_it_will(mem0: Mem0Server, make: Make) -> None:
    store = make(infer=True)
    assert not store.verbatim
    mem0.models.facts = ["Releases need two reviewers", "发布要两人"]
    with pytest.warns(OryxMemoryWarning, match="rewrites new archival entries, and may drop them"):
        store.append("上线前必须两人复核 please")
    assert Counter(entry.content for entry in store.read().archival) == Counter(mem0.models.facts)
    mem0.models.facts = []
    with pytest.warns(OryxMemoryWarning) as said:
        store.append("nothing worth it")
    assert "mem0 kept nothing of it" in str(said[-1].message)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        core, keyed = store.append("核心", Scope.CORE), store.append("规则 rule", key="rule")
    now = store.read()
    assert now.core == (core,)
    assert now.archival[-1] == keyed


def test_with_infer_what_is_brought_or_restored_stays_word_for_word(mem0: Mem0Server, make: Make) -> None:
    store = make(infer=True)
    entry = Entry.new("原文 exactly this", time=NOW)
    assert store.bring([entry]).live == 1
    store.edit(changes.forget(entry.id))
    store.edit(changes.restore(entry.id))
    assert store.read().archival == (entry,)


def test_a_server_that_does_not_keep_words_is_an_error_and_keeps_nothing(
    mem0: Mem0Server, store: Mem0MemoryStore
) -> None:
    def reworded(answer: Any) -> Any:
        answer["results"][0]["memory"] = "in other words"
        return answer

    mem0.plan += [Reply(), Reply(change=reworded)]
    assert "word for word" in str(caught(lambda: store.append(SECRET)))
    assert rows(mem0, store) == []


# The commands.


@pytest.fixture
def there(mem0: Mem0Server, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """The workspace that commands work in, with the backend mem0."""
    monkeypatch.chdir(workspace.root.parent)
    monkeypatch.setenv("ORYX_MEMORY_BACKEND", "mem0")
    return workspace


AT = ("--at", "2026-08-01 10:00:00")


def test_the_commands_work_or_say_why_not(there: Workspace) -> None:
    line = "- [2026-08-01 10:00:00] 用 uv，不用 pip #tooling"
    made = memory("append", "-a", "ops", *AT, "用 uv，不用 pip #tooling")
    assert (made.code, made.out) == (0, f"{line}\n")
    assert memory("append", "-a", "ops", "--scope", "core", *AT, "核心").code == 0
    assert memory("recall", "-a", "ops", "PIP").out == f"{line}\n"
    assert memory("recall", "-a", "ops", "--mode", "ranked", "用 uv").out == f"{line}\n"
    assert memory("recall", "-a", "ops", "--mode", "ranked", "--explain", "用 uv").out.endswith(f"\t{line}\n")
    assert memory("agents").out == "ops\n"
    assert json.loads(memory("stats", "-a", "ops", "--json").out)["archival"] == 1
    assert memory("export", "-a", "ops").out == f"## 核心记忆\n- [2026-08-01 10:00:00] 核心\n\n## 归档记忆\n{line}\n"
    forgotten = memory("forget", "-a", "ops", Entry(line).id)
    assert forgotten.out == f"{line}\n"
    assert memory("list", "-a", "ops", "--retired").out == f"{line}\n"
    assert memory("restore", "-a", "ops", Entry(line).id).out == f"{line}\n"
    assert memory("clean", "-a", "ops", "--quiet").code == 0
    path = memory("path", "-a", "ops", "--retired").out
    assert path == f"{there.root}/agents/ops/mem0/MEMORY.retired.md\n"
    exported = memory("export", "-a", "ops", "--format", "jsonl").out
    assert memory("import", "-a", "copy", "--format", "jsonl", "-", stdin=exported).code == 0
    assert memory("export", "-a", "copy").out == memory("export", "-a", "ops").out
    checked = memory("check")
    assert (checked.code, checked.out) == (0, "")
    assert "what is on the mem0 server was not asked for" in checked.err
    for arguments, words in (
        (("path", "-a", "ops"), "path --retired"),
        (("diff",), "backend here is mem0"),
        (("load", "-a", "ops", "--as", "oryxos"), "leave out --as"),
        (("recall", "-a", "ops", "--mode", "ranked", "--retired", "uv"), "only what is live"),
    ):
        refused = memory(*arguments)
        assert refused.code == 2, arguments
        assert words in refused.err
        assert refused.err.count("\n") == 1
    purged = memory("forget", "-a", "ops", "--purge", Entry(line).id)
    assert "mem0's own history, git and backups keep theirs" in purged.err


def test_an_agent_without_a_folder_here_is_found_on_the_server(
    mem0: Mem0Server, there: Workspace, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory("append", "-a", "ops", *AT, "一")
    other = tmp_path_factory.mktemp("another machine")
    list(initialise(other))
    monkeypatch.chdir(other)
    assert memory("list", "-a", "ops").out == "- [2026-08-01 10:00:00] 一\n"
    assert memory("list", "-a", "nobody").code == 3
    assert not (other / ".oryxos" / "agents" / "nobody").exists()


def test_a_server_that_fails_ends_commands_with_4_and_one_line(mem0: Mem0Server, there: Workspace) -> None:
    memory("append", "-a", "ops", *AT, "一")
    for arguments in (
        ("load", "-a", "ops"),
        ("append", "-a", "ops", SECRET),
        ("recall", "-a", "ops", SECRET),
        ("clean", "-a", "ops"),
    ):
        mem0.plan.append(refusal(401, f"no {SECRET}"))
        failed = memory(*arguments)
        assert (failed.code, failed.out, failed.err.count("\n")) == (4, "", 1), arguments
        assert failed.err.startswith("oryx: mem0 (127.0.0.1:")
    assert memory("list", "-a", "ops").out == "- [2026-08-01 10:00:00] 一\n"


def test_reading_leaves_nothing_behind(mem0: Mem0Server, there: Workspace) -> None:
    before = sorted(there.root.rglob("*"))
    for arguments in (
        ("load",),
        ("recall", "x"),
        ("recall", "--mode", "ranked", "x"),
        ("stats",),
        ("list", "--retired"),
    ):
        assert memory(*arguments).code in (0, 1)
    assert sorted(there.root.rglob("*")) == before


@pytest.mark.parametrize("other", ["markdown", "sqlite"])
def test_memories_move_to_the_server_and_back(other: str, mem0: Mem0Server, workspace: Workspace) -> None:
    def at(backend: str, agent: str) -> stores.LongTermMemoryStore:
        chosen = settings.load(workspace.root, os.environ, {"backend": backend})
        return stores.open(workspace, chosen, agent, lambda: NOW)

    source = at(other, "ops")
    twice = [source.append("同一秒 twice") for _ in range(2)]
    source.append("core 核心", Scope.CORE)
    source.add([Entry("- no time 没有时间"), Entry("- [2026-07-22 09:30] 两行\n  second line")])
    source.append("key", key="rule")
    source.append("key again", key="rule")
    source.edit(changes.forget(twice[0].id))
    before = source.read(retired=True)
    assert (len(before.archival), len(before.retired)) == (4, 2)
    root = ("--root", str(workspace.root))
    shown = memory("migrate-backend", *root, "--from", other, "--to", "mem0", "--all-agents")
    assert shown.code == 0, shown
    assert "copied 5 live and 2 retired to mem0" in shown.out
    assert at("mem0", "ops").read(retired=True) == before
    assert source.read(retired=True) == before
    again = memory("migrate-backend", *root, "--from", other, "--to", "mem0", "-a", "ops")
    assert "copied 0 live and 0 retired to mem0, 7 were there" in again.out
    back = memory("migrate-backend", *root, "--from", "mem0", "--to", other, "-a", "ops", "--rename", "ops=new")
    assert back.code == 0, back
    assert at(other, "new").read(retired=True) == before
    home = memory("migrate-backend", *root, "--from", "mem0", "--to", other, "-a", "ops")
    assert "copied 0 live and 0 retired" in home.out


def test_a_switch_to_a_server_says_where_the_setting_counts(mem0: Mem0Server, workspace: Workspace) -> None:
    asked = ("migrate-backend", "--root", str(workspace.root), "--to", "mem0", "--all-agents", "--switch")
    refused = memory(*asked)
    assert refused.code == 3
    assert 'put backend = "mem0" into' in refused.err
    assert refused.err.count("\n") == 1


def test_the_extra_is_named_where_it_is_missing(mem0: Mem0Server, there: Workspace) -> None:
    prelude = "import sys, importlib.util as u\nf = u.find_spec\nu.find_spec = lambda n, p=None: None if n == 'httpx' else f(n, p)"
    result = real(after(prelude, "memory", "load"), env=dict(os.environ), cwd=there.root.parent)
    assert (result.code, result.out) == (3, "")
    assert "pip install 'oryx-memory[mem0]'" in result.err
