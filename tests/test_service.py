"""MemoryService: the right agent in every thread and task, nothing lost among many, and what a recall and a footprint are."""

import asyncio
import contextvars
import logging
import multiprocessing
import os
import re
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from command import memory
from conftest import BACKENDS, NOW
from embedding_server import EmbeddingServer, refusal
from hypothesis import given
from hypothesis import strategies as st
from strategies import texts

from oryx_memory import (
    Entry,
    MemoryService,
    NoWorkspace,
    Recalled,
    RejectedInput,
    Scope,
    ServiceProblem,
    SettingsError,
    Workspace,
    current_agent,
    current_agent_name,
    open_memory,
    settings,
    stores,
    vectors,
)
from oryx_memory.embeddings import open_embedder
from oryx_memory.ranking import FOOTPRINT_CHARS, footprint, is_footprint
from oryx_memory.service import LIMIT, RANKED_LIMIT
from oryx_memory.sessions import open_sessions
from oryx_memory.stores.markdown import MarkdownStore
from oryx_memory.window import MAX_CHARS

RUNTIME_PAGE = Path(__file__).parent.parent / "docs" / "runtime.md"
Make = Callable[..., MemoryService]


@pytest.fixture(params=BACKENDS)
def make(request: pytest.FixtureRequest, workspace: Workspace) -> Make:
    """Makes a service on one backend, with a clock that stands at NOW; flags are settings by dotted key."""

    def made(**flags: Any) -> MemoryService:
        given = {name.replace("__", "."): value for name, value in flags.items()}
        chosen = settings.load(workspace.root, {}, {"backend": request.param, **given})
        return MemoryService(workspace, settings=chosen, clock=lambda: NOW)

    return made


def contents(found: Recalled) -> list[str]:
    return [entry.content for entry in found.entries]


# The current agent.


def test_the_agent_before_is_back_on_leaving_also_by_an_error() -> None:
    assert current_agent_name() is None
    with current_agent("weather"):
        with current_agent("ops"):
            assert current_agent_name() == "ops"
        assert current_agent_name() == "weather"
        with pytest.raises(ZeroDivisionError), current_agent(None):
            print(1 / len(current_agent_name() or ""))
        assert current_agent_name() == "weather"
    assert current_agent_name() is None


def test_a_new_thread_has_no_agent_and_a_copied_context_has() -> None:
    seen: list[str | None] = []
    with current_agent("weather"):
        context = contextvars.copy_context()
        for run in (lambda: seen.append(current_agent_name()), lambda: context.run(seen_here, seen)):
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
        assert current_agent_name() == "weather"
    assert seen == [None, "weather", "ops"]


def seen_here(seen: list[str | None]) -> None:
    seen.append(current_agent_name())
    with current_agent("ops"):
        seen.append(current_agent_name())


def test_tasks_that_take_turns_keep_their_own_agents() -> None:
    async def serve(name: str) -> list[str | None]:
        seen: list[str | None] = []
        with current_agent(name):
            for _ in range(5):
                await asyncio.sleep(0)
                seen.append(current_agent_name())
            seen.append(await asyncio.to_thread(current_agent_name))
            seen += await asyncio.gather(inherited(), inherited())
        return [*seen, current_agent_name()]

    async def inherited() -> str | None:
        await asyncio.sleep(0)
        return current_agent_name()

    async def all_of_them() -> list[list[str | None]]:
        return await asyncio.gather(*(serve(f"agent-{number}") for number in range(20)))

    for number, seen in enumerate(asyncio.run(all_of_them())):
        assert seen == [f"agent-{number}"] * 8 + [None]


# Whose memory.


def test_what_one_agent_remembers_another_does_not_recall(make: Make) -> None:
    service = make()
    with current_agent("ops"):
        entry = service.remember("上线前必须两人复核 #流程")
        service.remember("Never deploy on Friday", "core")
    service.remember("大家都用 uv", Scope.ARCHIVAL)
    assert entry == Entry("- [2026-08-01 02:00:00] 上线前必须两人复核 #流程")
    with current_agent("ops"):
        assert contents(service.recall("复核")) == ["上线前必须两人复核 #流程"]
        assert service.recall("uv").entries == ()
        assert [entry.content for entry in service.read_all().core] == ["Never deploy on Friday"]
    with current_agent("other"):
        assert service.recall("复核").entries == ()
    assert contents(service.recall("UV")) == ["大家都用 uv"]
    assert [
        entry.scope for snapshot in [service.read_all("ops")] for entry in (*snapshot.core, *snapshot.archival)
    ] == [
        Scope.CORE,
        Scope.ARCHIVAL,
    ]


def test_an_absent_agent_is_empty_to_readers_and_made_by_who_remembers(make: Make, workspace: Workspace) -> None:
    service = make()
    with current_agent("weather"):
        assert service.build_context() == "## 核心记忆\n\n## 归档记忆\n"
        assert service.recall("雨") == Recalled(())
        assert service.read_all() == service.read_all("nobody")
        assert list(workspace.agents_dir.iterdir()) == []
        assert not workspace.database_file().exists()
        assert not workspace.index_file.exists()
        service.remember("It rained in Bergen")
        assert contents(service.recall("bergen")) == ["It rained in Bergen"]


@pytest.mark.parametrize("name", ["小助手", "../ops", "a b", "", ".", "\ud800", "a\x1b[31m", "ops\n"])
def test_an_unsafe_name_is_the_global_memory_and_a_logged_warning(
    name: str, workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    for unsafe in ("refuse", "global"):
        chosen = settings.load(workspace.root, {}, {"agents.unsafe": unsafe})
        service = MemoryService(workspace, settings=chosen)
        with current_agent(name):
            service.remember(f"记住 {unsafe}")
        (record,) = caplog.records
        assert (record.name, record.levelno) == ("oryx_memory", logging.WARNING)
        assert record.getMessage() == f"unsafe agent name {name!r}: the global memory is used"
        assert record.getMessage().isprintable()
        caplog.clear()
    assert [entry.content for entry in service.read_all().archival] == ["记住 refuse", "记住 global"]
    assert list(workspace.agents_dir.iterdir()) == []


def test_in_a_database_any_name_is_a_name_but_that_of_no_agent(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    service = MemoryService(workspace, settings=settings.load(workspace.root, {}, {"backend": "sqlite"}))
    for name in ("小助手", "a b"):
        with current_agent(name):
            service.remember(f"{name} 的记忆")
    assert caplog.records == []
    for name in ("__global__", "", "\udcff"):
        with current_agent(name):
            service.remember("公共的记忆")
    assert len(caplog.records) == 3
    rows = sqlite3.connect(workspace.database_file()).execute(
        "SELECT agent_name, count(*) FROM memory_entries GROUP BY 1 ORDER BY 1"
    )
    assert rows.fetchall() == [("__global__", 3), ("a b", 1), ("小助手", 1)]


def test_the_workspace_is_named_or_found(ops: Path, tmp_path: Path) -> None:
    assert ops == Path(os.path.realpath(ops))
    for service in (MemoryService(), MemoryService(tmp_path), MemoryService(str(tmp_path / ".oryxos"))):
        with current_agent("ops"):
            assert contents(service.recall("pip")) == ["Use uv, not pip #tooling"]
    with pytest.raises(NoWorkspace):
        MemoryService(tmp_path / "nowhere")


# The memory block.


def test_the_window_policy_gives_what_load_gives(make: Make) -> None:
    service = make()
    with current_agent("ops"):
        service.remember("Answer in English", "core")
        for number in range(200):
            service.remember(f"第 {number} 条：{'很长的记录' * 5}")
        store = stores.open(service.workspace, service.settings, "ops")
        assert service.build_context() == str(store.load())
        assert service.build_context(query="第 1 条", policy="window") == service.build_context()
    assert len(service.build_context()) < 30 < len(str(store.load())) <= MAX_CHARS + 60


def test_the_window_is_as_wide_as_the_settings_say(make: Make) -> None:
    service = make(archival__max_chars=60)
    for number in range(3):
        service.remember(f"第 {number} 条")
    assert service.build_context().count("条") == 2


def test_a_session_brings_its_own_agent(make: Make) -> None:
    service = make()
    with current_agent("weather"):
        service.remember("It rained")
    session = open_sessions(service.workspace, service.settings, service.clock).create("cli:local:weather")
    with current_agent("ops"):
        assert "It rained" in service.build_context(session)
        assert "It rained" not in service.build_context()


def test_an_unknown_policy_is_refused_with_the_known_ones(make: Make) -> None:
    with pytest.raises(RejectedInput, match="unknown policy 'ranked'; known: window"):
        make().build_context(policy="ranked")


# Remembering.


@pytest.mark.parametrize("scope", ["CORE", "Archival", "", "重要", None, 1])
def test_a_section_that_is_none_is_refused(scope: Any, make: Make) -> None:
    service = make()
    with pytest.raises(RejectedInput, match="core or archival"):
        service.remember("x", scope)
    assert service.read_all() == service.read_all("nobody")


@pytest.mark.parametrize("content", ["", " \n\u3000", "\x00", "x" * 40_000, "\ud800"])
def test_what_cannot_be_an_entry_is_refused_and_nothing_is_stored(content: str, make: Make) -> None:
    service = make()
    with pytest.raises(RejectedInput):
        service.remember(content)
    assert service.read_all() == service.read_all("nobody")


def test_credentials_are_warned_of_or_refused_as_the_settings_say(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    secret = "数据库密码：Tr0ub4dor&3x"
    entry = make().remember(secret)
    (record,) = caplog.records
    assert entry.id in record.getMessage()
    assert "Tr0ub4dor" not in record.getMessage()
    with pytest.raises(RejectedInput, match="credential") as error:
        make(guard__secrets="refuse").remember(secret)
    assert "Tr0ub4dor" not in str(error.value)
    make(guard__secrets="off").remember(secret)
    assert len(caplog.records) == 1
    assert len(make().read_all().archival) == 2


# Recalling.


def test_hits_come_newest_first_and_bounded(make: Make) -> None:
    service = make()
    for number in range(LIMIT + 5):
        service.remember(f"备份 {number}")
    found = service.recall("备份")
    assert contents(found) == [f"备份 {number}" for number in range(LIMIT + 4, 4, -1)]
    assert (found.ranked, found.left_out, found.trouble) == (False, 5, "")


def test_of_too_many_hits_footprints_are_left_out_first(make: Make) -> None:
    service = make()
    for number in range(LIMIT - 3):
        service.remember(f"备份 {number}")
        service.record_trigger(f"备份在哪 {number}？", "在 NAS")
    found = service.recall("备份")
    facts = [content for content in contents(found) if not is_footprint(content)]
    assert facts == [f"备份 {number}" for number in range(LIMIT - 4, -1, -1)]
    assert contents(found)[0] == f"触发「备份在哪 {LIMIT - 4}？」⇒ 在 NAS"
    assert (len(found.entries), found.left_out) == (LIMIT, 2 * (LIMIT - 3) - LIMIT)


def test_without_a_hit_the_best_answers_are_given_and_marked(make: Make) -> None:
    service = make()
    service.remember("上线前必须两人复核")
    service.remember("The staging cluster runs in Frankfurt")
    service.record_trigger("上线前谁来复核？", "两人")
    for number in range(RANKED_LIMIT + 2):
        service.remember(f"cluster {number} in Paris")
    found = service.recall("谁负责复核？")
    assert (contents(found)[0], found.ranked) == ("上线前必须两人复核", True)
    assert not any(map(is_footprint, contents(found)))
    assert contents(service.recall("where is the staging cluster"))[0] == "The staging cluster runs in Frankfurt"
    assert len(service.recall("which clusters?").entries) == RANKED_LIMIT
    assert service.recall("完全无关 zebra") == Recalled(())


@pytest.mark.parametrize("query", ["", " ", "\u3000\n"])
def test_a_blank_query_is_refused(query: str, make: Make) -> None:
    with pytest.raises(RejectedInput):
        make().recall(query)


def test_an_embedder_is_asked_for_queries_without_a_hit_and_may_fail(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddingServer() as server:
        environment = {"ORYX_EMBEDDING_PROVIDER": "ollama", "ORYX_EMBEDDING_BASE_URL": server.url}
        chosen = settings.load(workspace.root, environment)
        service = MemoryService(workspace, settings=chosen, clock=lambda: NOW)
        service.remember("上线前必须两人复核")
        service.remember("The staging cluster runs in Frankfurt")
        embedder = open_embedder(chosen.embedding, environment)
        assert embedder is not None
        with vectors.open_index(workspace.index_file) as index:
            vectors.embed(index, stores.open(workspace, chosen), embedder)
        asked = len(server.asked)
        assert not service.recall("复核").ranked
        assert len(server.asked) == asked
        found = service.recall("上 zebra")  # the stub gives texts that begin alike the same vector
        assert (contents(found)[0], found.ranked, found.trouble) == ("上线前必须两人复核", True, "")
        assert server.texts()[-1] == "上 zebra"
        assert caplog.records == []
        server.plan.append(refusal(401, "no such key"))
        found = service.recall("where is staging")
        assert (contents(found)[0], found.ranked) == ("The staging cluster runs in Frankfurt", True)
        assert "no such key" in found.trouble
        assert found.trouble in caplog.records[-1].getMessage()
    assert service.recall("zebra") == Recalled((), trouble=service.recall("zebra").trouble)


def test_an_embedder_that_cannot_be_opened_is_trouble_and_no_failure(workspace: Workspace) -> None:
    chosen = settings.load(workspace.root, {"ORYX_EMBEDDING_PROVIDER": "openai"})
    service = MemoryService(workspace, settings=chosen)
    service.remember("上线前必须两人复核")
    found = service.recall("谁负责复核？")
    assert (contents(found), found.ranked) == (["上线前必须两人复核"], True)
    assert "OPENAI_API_KEY" in found.trouble


def test_a_running_service_follows_the_files_of_its_settings(workspace: Workspace) -> None:
    service = MemoryService(workspace)
    fixed = MemoryService(workspace, settings=service.settings)
    with current_agent("ops"):
        service.remember("一 before")
        at = ("--root", str(workspace.root))
        done = memory("migrate-backend", "--to", "sqlite", "--all-agents", "--switch", *at)
        assert done.code == 0, done.err
        service.remember("二 after")
        assert memory("list", "-a", "ops", *at).out.count("\n") == 2
        assert contents(service.recall("二")) == ["二 after"]
        assert contents(fixed.recall("二")) == []
        workspace.settings_file.write_text('backend = "sqlite"\n[guard]\nsecrets = "nonsense"\n')
        for _ in range(2):
            with pytest.raises(SettingsError, match=r"guard\.secrets"):
                service.remember("三 nowhere")
        own = settings.own_file(os.environ)
        assert own
        own.parent.mkdir(parents=True)
        own.write_text('[time]\nzone = "Asia/Shanghai"\n')
        workspace.settings_file.unlink()
        entry = service.remember("四 in markdown again")
    assert [found.content for found in open_memory("ops", root=workspace.root).read().archival] == [
        "一 before", "四 in markdown again",
    ]  # fmt: skip
    assert entry.time
    assert abs(datetime.now(ZoneInfo("Asia/Shanghai")).replace(tzinfo=None) - entry.time) < timedelta(hours=1)


class Delegating(MarkdownStore):
    """A store that ranks by itself: by what a test gives it."""

    recall_capability = stores.RecallCapability.DELEGATED
    answer: Callable[[str, int], list[Entry]]

    def search(self, query: str, *, limit: int) -> list[Entry]:
        return type(self).answer(query, limit)


def test_a_store_that_ranks_by_itself_is_asked_itself(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    service = MemoryService(workspace, settings=settings.load(workspace.root, {}))
    service.remember("上线前必须两人复核")
    opened = stores.open

    def delegating(*arguments: Any, **options: Any) -> MarkdownStore:
        store = opened(*arguments, **options)
        return Delegating(workspace, store.agent, store.clock)

    monkeypatch.setattr(stores, "open", delegating)
    theirs = [Entry(f"- 服务器说 {number}") for number in range(RANKED_LIMIT + 1)]
    monkeypatch.setattr(Delegating, "answer", lambda query, limit: theirs[:limit], raising=False)
    assert contents(service.recall("复核")) == ["上线前必须两人复核"]
    assert service.recall("谁？") == Recalled(tuple(theirs[:RANKED_LIMIT]), ranked=True)

    def failing(query: str, limit: int) -> list[Entry]:
        raise ServiceProblem("mem0", "does not answer", heals=True)

    monkeypatch.setattr(Delegating, "answer", failing)
    assert service.recall("谁？") == Recalled((), trouble="mem0: does not answer")
    assert not workspace.index_file.exists()


# Footprints.


def test_a_footprint_is_one_archival_line_after_each_trigger(make: Make) -> None:
    service = make()
    with current_agent("ops"):
        entry = service.record_trigger("上线要谁\n复核？", "两人，见 docs/release.md\r\n不要漏掉")
        assert entry is not None
        assert entry.content == "触发「上线要谁 复核？」⇒ 两人，见 docs/release.md 不要漏掉"
        service.record_trigger("", " \n")
        service.record_trigger("好" * 201, "x" * 200)
        assert [entry.content for entry in service.read_all().archival][1:] == [
            "触发「（空）」⇒ （空）",
            f"触发「{'好' * 200}…」⇒ {'x' * 200}",
        ]
        assert service.recall("怎么复核").entries == ()
        assert contents(service.recall("复核？"))[-1] == entry.content
    assert service.read_all() == service.read_all("nobody")


def test_no_footprint_of_a_failed_reply_nor_where_they_are_off(make: Make) -> None:
    assert make().record_trigger("上线？", "boom", ok=False) is None
    assert make(footprint__enabled=False).record_trigger("上线？", "好") is None
    assert make().read_all().archival == ()


def test_a_footprint_retires_nothing_and_carries_no_tag(make: Make) -> None:
    service = make()
    store = stores.open(service.workspace, service.settings, None)
    kept = store.append("发布规则", key="release_rule", tags=["流程"])
    entry = service.record_trigger("规则是什么 #x", "见 ^release_rule #流程 #preference")
    assert entry is not None
    assert (entry.tags, entry.key, entry.type) == ((), None, "note")
    assert store.read(retired=True).retired == ()
    assert contents(service.recall("#流程")) == [entry.content, kept.content]


def test_a_footprint_holds_no_credential_unless_the_guard_is_off(make: Make) -> None:
    entry = make().record_trigger("密码是 Tr0ub4dor&3x", "saved password=Tr0ub4dor&3x")
    assert entry is not None
    assert "Tr0ub4dor" not in entry.raw
    assert "[password]" in entry.raw
    entry = make(guard__secrets="off").record_trigger("密码是 Tr0ub4dor&3x", "ok")
    assert entry is not None
    assert "Tr0ub4dor&3x" in entry.raw


anything = st.one_of(
    texts,
    st.text(st.sampled_from("#^a1字_-/ \t\n\u2028」⇒「。## 核心记忆\ud83d\ude00\ud800\x00"), max_size=30),
    st.text(st.characters(), max_size=300),
)


@given(anything, anything)
def test_every_trigger_has_a_footprint_that_is_known_as_one(user_message: str, reply: str) -> None:
    content = footprint(user_message, reply)
    entry = Entry.new(content, time=datetime(2026, 8, 1))
    assert entry.content == content
    assert is_footprint(entry.content)
    assert (entry.tags, entry.key) == ((), None)
    assert len(content) <= len("触发「」⇒ ") + 2 * (FOOTPRINT_CHARS + 1)
    assert "\n" not in entry.raw


# Many at once.


def test_many_threads_and_tasks_on_one_service_lose_nothing(make: Make) -> None:
    service = make()
    agents = [f"agent-{number}" for number in range(4)]

    def serve(number: int) -> None:
        for step in range(6):
            with current_agent(agents[(number + step) % 4]):
                service.remember(f"线程 {number} step {step} of {current_agent_name()}")
                service.record_trigger(f"问 {number}-{step}", "answer")
                assert service.recall(f"线程 {number} step {step}").entries
                assert service.build_context()

    async def tasks() -> None:
        await asyncio.gather(*(asyncio.to_thread(serve, number) for number in range(4, 8)))

    with ThreadPoolExecutor(5) as pool:
        done = [pool.submit(serve, number) for number in range(4)] + [pool.submit(asyncio.run, tasks())]
        for future in done:
            future.result()
    for agent in agents:
        held = Counter(entry.content for entry in service.read_all(agent).archival)
        assert max(held.values()) == 1
        assert len(held) == 2 * 8 * 6 / 4
        assert all(content.endswith((f"of {agent}", "⇒ answer")) for content in held)


def test_a_service_goes_on_in_forked_processes(make: Make) -> None:
    service = make()
    with current_agent("ops"):
        service.remember("before")
        assert service.recall("what was before?").ranked
        forked = multiprocessing.get_context("fork")
        children = [forked.Process(target=_remember, args=(service, number)) for number in range(3)]
        for child in children:
            child.start()
        _remember(service, 3)
        for child in children:
            child.join()
        assert [child.exitcode for child in children] == [0, 0, 0]
        held = [entry.content for entry in service.read_all().archival]
    assert sorted(held) == [*(f"{number}-{step}" for number in range(4) for step in range(5)), "before"]


def _remember(service: MemoryService, number: int) -> None:
    assert current_agent_name() == "ops"
    for step in range(5):
        service.remember(f"{number}-{step}")
        assert service.recall(f"what is {number}-{step}?").entries


def test_the_clock_that_is_given_counts(workspace: Workspace) -> None:
    moments = iter(NOW + timedelta(days=number) for number in range(9))
    service = MemoryService(workspace, settings=settings.load(workspace.root, {}), clock=lambda: next(moments))
    assert [service.remember(text).time for text in ("一", "two")] == [NOW, NOW + timedelta(days=1)]


# The page.


def test_the_examples_of_the_page_run(tmp_path: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", RUNTIME_PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 3
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, RUNTIME_PAGE.name, "exec"), names)
    assert len(open_memory("weather").recall_by_keyword("触发「")) == 1
