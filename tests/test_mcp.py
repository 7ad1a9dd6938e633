"""The MCP server as real processes: the SDK's own client, many clients at once, and clients that misbehave."""

import json
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import anyio
import pytest
from command import ORYX, PATIENCE, after, make_ops, memory, real, retired_file
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, Implementation, ListRootsResult, Root, TextContent, TextResourceContents

from oryx_memory import Workspace, open_memory
from oryx_memory.files import Lock
from oryx_memory.mcp_server import Memories

MCP_PAGE = Path(__file__).parent.parent / "docs" / "mcp.md"
Mode = Literal["legacy", "auto"]  # the handshake of the clients of today, and the protocol of 2026-07-28
MODES: tuple[Mode, ...] = ("legacy", "auto")
NO_PROJECT = "oryx memory init"


@asynccontextmanager
async def client(
    *arguments: str,
    cwd: Path | str,
    mode: Mode = "legacy",
    env: dict[str, str] | None = None,
    roots: Sequence[str] | None = None,
    log: Path | str = os.devnull,
) -> AsyncIterator[Client]:
    """The SDK's client of a server that runs in `cwd`. `roots`: the URIs that it declares, if it declares any."""

    async def list_roots(_: object) -> ListRootsResult:
        return ListRootsResult(roots=[Root.model_validate({"uri": uri}) for uri in roots or ()])

    started = StdioServerParameters(command=ORYX, args=["memory", "mcp", *arguments], env=env, cwd=cwd)
    with open(log, "a") as errors:
        connected = Client(
            stdio_client(started, errlog=errors),
            mode=mode,
            list_roots_callback=list_roots if roots is not None else None,
            client_info=Implementation(name="tests", version="1"),
        )
        async with connected as opened:
            yield opened


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(PATIENCE):
            await test()

    anyio.run(bounded)


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


async def told(opened: Client, tool: str, **arguments: Any) -> str:
    """What a tool answers that does what it is asked."""
    result = await opened.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    return text_of(result)


async def refused(opened: Client, tool: str, **arguments: Any) -> str:
    """What a tool answers that does not."""
    result = await opened.call_tool(tool, arguments)
    assert result.is_error, text_of(result)
    return text_of(result)


def contents(root: Path, agent: str | None) -> list[str]:
    snapshot = open_memory(agent, root=root).read()
    return [entry.content for entry in (*snapshot.core, *snapshot.archival)]


def test_two_agents_save_and_recall_in_two_languages_and_do_not_see_each_other(
    tmp_path: Path, workspace: Workspace
) -> None:
    async def talk() -> None:
        async with (
            client("-a", "ops", cwd=tmp_path, mode="legacy") as ops,
            client("-a", "other", cwd=tmp_path, mode="auto") as other,
        ):
            assert await told(ops, "save_memory", content="上线前必须两人复核") == "已记住"
            assert await told(ops, "save_memory", content="Never deploy on Friday", scope="core") == "已记住"
            assert await told(other, "save_memory", content="The office cat is Mochi 🐈") == "已记住"
            assert "上线前必须两人复核" in await told(ops, "recall_memory", keyword="复核")
            assert "Mochi 🐈" in await told(other, "recall_memory", keyword="mochi")
            assert await told(other, "recall_memory", keyword="复核") == "没有找到相关记忆"
            assert await told(ops, "recall_memory", keyword="Mochi") == "没有找到相关记忆"
            ranked = await told(other, "recall_memory", keyword="who is the cat of our office?")
            assert ranked.startswith("（没有条目含有这个关键词，以下是最相关的）\n")
            assert "Mochi" not in await told(ops, "list_memories")
            core = await ops.read_resource("memory://ops/core")
            (page,) = core.contents
            assert isinstance(page, TextResourceContents)
            assert page.text.endswith("] Never deploy on Friday")
            (archival,) = (await ops.read_resource("memory://ops/archival")).contents
            assert isinstance(archival, TextResourceContents)
            assert archival.text.endswith("] 上线前必须两人复核")
            with pytest.raises(MCPError, match="memory://ops/core"):
                await ops.read_resource("memory://other/archival")
            (message,) = (await ops.get_prompt("memory")).messages
            assert isinstance(message.content, TextContent)
            assert str(open_memory("ops", root=tmp_path).load()) in message.content.text

    run(talk)
    assert contents(tmp_path, "ops") == ["Never deploy on Friday", "上线前必须两人复核"]
    assert contents(tmp_path, "other") == ["The office cat is Mochi 🐈"]


def test_the_tools_that_are_offered_and_forgetting_only_where_it_is_allowed(tmp_path: Path) -> None:
    file = make_ops(tmp_path)
    tools = ["save_memory", "recall_memory", "list_memories"]

    async def talk() -> None:
        async with client("-a", "ops", cwd=tmp_path) as plain:
            assert [tool.name for tool in (await plain.list_tools()).tools] == tools
            listed = await told(plain, "list_memories", scope="ARCHIVAL", limit=1)
            assert await told(plain, "list_memories", scope="archival", limit=1.0) == listed
            assert re.fullmatch(r"## 归档记忆\n43d8964bd39e - \[.*\] Use uv, not pip #tooling\n（还有 1 条.*）", listed)
            assert "43d8964bd39e" in await told(plain, "list_memories")
            assert await refused(plain, "forget_memory", id="43d8964bd39e") == "未注册的工具: forget_memory"
        async with client("-a", "ops", "--allow-forget", cwd=tmp_path) as trusted:
            assert [tool.name for tool in (await trusted.list_tools()).tools] == [*tools, "forget_memory"]
            assert "Use uv" in await told(trusted, "forget_memory", id="43d8964bd39e")
            assert "43d8964bd39e" in await refused(trusted, "forget_memory", id="43d8964bd39e")

    run(talk)
    assert "Use uv" not in file.read_text()
    assert "Use uv" in retired_file(file).read_text()


def test_wrong_arguments_are_answered_as_errors_of_the_tool(tmp_path: Path, workspace: Workspace) -> None:
    async def talk() -> None:
        async with client("-a", "ops", "--allow-forget", cwd=tmp_path) as ops:
            for tool, arguments, words in (
                ("save_memory", {}, "缺少 content"),
                ("save_memory", {"content": " "}, "缺少 content"),
                ("save_memory", {"content": 7}, "content 应为文本"),
                ("save_memory", {"content": "x", "scope": "elsewhere"}, "无法识别的记忆分区: elsewhere"),
                ("save_memory", {"content": "字" * 350_000}, "没有记住"),
                ("recall_memory", {"query": "x"}, "缺少 keyword"),
                ("recall_memory", {"keyword": ["x"]}, "keyword 应为文本"),
                ("list_memories", {"scope": "CORRE"}, "scope"),
                ("list_memories", {"limit": 0}, "limit"),
                ("list_memories", {"limit": "all"}, "limit"),
                ("list_memories", {"limit": 1.5}, "limit"),
                ("list_memories", {"limit": 1e999}, "limit"),
                ("forget_memory", {}, "缺少 id"),
                ("forget_memory", {"id": "^nobody"}, "nobody"),
                ("no_such_tool", {}, "未注册的工具"),
            ):
                assert words in await refused(ops, tool, **arguments), (tool, words)
            assert await told(ops, "save_memory", content="LOUD", scope="CORE") == "已记住"

    run(talk)
    assert contents(tmp_path, "ops") == ["LOUD"]


def test_the_project_is_found_in_the_documented_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {name: tmp_path / name for name in ("root", "env", "claude", "roots", "cwd")}
    for folder in places.values():
        memory("init", "--root", str(folder))
        (folder / "src").mkdir()
    monkeypatch.setenv("ORYXOS_ROOT", str(places["env"]))
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(places["claude"] / "src"))
    monkeypatch.chdir(places["cwd"] / "src")

    def found(root: Path | None, *roots: str) -> Path:
        memories = Memories(root=root, agent=None, flags={}, lock_timeout=10, may_forget=False)
        assert memories.wants_roots() == (not root and not os.environ.keys() & {"ORYXOS_ROOT", "CLAUDE_PROJECT_DIR"})
        return memories.executor(roots).service.workspace.root.parent

    roots = [str(tmp_path), "relative", "/\0", "/\ud800", str(places["roots"] / "src"), str(places["env"])]
    assert found(places["root"], *roots) == places["root"]
    assert found(None, *roots) == places["env"]
    monkeypatch.delenv("ORYXOS_ROOT")
    assert found(None, *roots) == places["claude"]
    monkeypatch.delenv("CLAUDE_PROJECT_DIR")
    assert found(None, *roots) == places["roots"]
    assert found(None) == places["cwd"]


@pytest.mark.parametrize("mode", MODES)
def test_the_roots_that_a_client_declares_are_asked_for(mode: Mode, tmp_path: Path) -> None:
    project, elsewhere = tmp_path / "项目 100%" / "a b", tmp_path / "elsewhere"
    for folder in (project, elsewhere):
        memory("init", "--root", str(folder))
    uris = [f"file://{quote(str(tmp_path))}", f"file://localhost{quote(str(project))}"]

    async def talk() -> None:
        async with client(cwd=elsewhere, roots=uris, mode=mode) as opened:
            await told(opened, "save_memory", content="在这里 here")

    run(talk)
    assert contents(project, None) == ["在这里 here"]
    assert contents(elsewhere, None) == []


@pytest.mark.parametrize("place", ["/", "home", "cache"])
def test_without_a_project_the_server_runs_and_each_tool_names_the_fix(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    memory("init", "--root", str(home))  # the memory of the user, which no walk may find
    cache = home / ".cache" / "client"
    cache.mkdir(parents=True)
    cwd = {"/": Path("/"), "home": home, "cache": cache}[place]

    async def talk() -> None:
        async with client("-a", "ops", "--allow-forget", cwd=cwd, roots=["https://example.org/x"]) as lost:
            assert len((await lost.list_tools()).tools) == 4
            for tool, arguments in (
                ("save_memory", {"content": "x"}),
                ("recall_memory", {"keyword": "x"}),
                ("list_memories", {}),
                ("forget_memory", {"id": "abcd"}),
            ):
                answer = await refused(lost, tool, **arguments)
                assert NO_PROJECT in answer
                assert "\n" not in answer
            with pytest.raises(MCPError, match=NO_PROJECT):
                await lost.read_resource("memory://ops/core")
            with pytest.raises(MCPError, match=NO_PROJECT):
                await lost.get_prompt("memory")
            if place == "cache":  # and where the advice is taken, the same server finds it
                memory("init", "--root", str(cache))
                assert await told(lost, "save_memory", content="found") == "已记住"

    run(talk)
    assert contents(home, None) == []


def test_a_running_server_goes_with_a_switch_of_the_backend(tmp_path: Path, workspace: Workspace) -> None:
    async def talk() -> None:
        async with client("-a", "ops", cwd=tmp_path) as opened:
            await told(opened, "save_memory", content="一 before")
            switched = ("migrate-backend", "--to", "sqlite", "--all-agents", "--switch", "--root", str(tmp_path))
            assert memory(*switched).code == 0
            await told(opened, "save_memory", content="二 after")
            assert "一 before" in await told(opened, "list_memories")
            workspace.settings_file.write_text("backend = ")
            assert "memory.toml" in await refused(opened, "save_memory", content="三 nowhere")
            workspace.settings_file.write_text('backend = "sqlite"')
            await told(opened, "save_memory", content="四 mended")

    run(talk)
    assert contents(tmp_path, "ops") == ["一 before", "二 after", "四 mended"]


def test_ten_clients_that_save_at_once_lose_nothing_and_double_nothing(tmp_path: Path, workspace: Workspace) -> None:
    async def save(number: int) -> None:
        async with client("-a", "ops", "--lock-timeout", "60", cwd=tmp_path) as opened:
            for entry in range(200):
                assert await told(opened, "save_memory", content=f"{number}-{entry} 记住") == "已记住"

    async def talk() -> None:
        async with anyio.create_task_group() as group:
            for number in range(10):
                group.start_soon(save, number)

    run(talk)
    wanted = [f"{number}-{entry} 记住" for number in range(10) for entry in range(200)]
    assert Counter(contents(tmp_path, "ops")) == Counter(wanted)


# Raw processes, for what no honest client does.


def request(number: int, method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"


def save(number: int, content: str) -> bytes:
    return request(number, "tools/call", name="save_memory", arguments={"content": content})


HELLO = request(
    0, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "raw", "version": "1"}
) + (b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')


@contextmanager
def server(cwd: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [ORYX, "memory", "mcp", "-a", "ops"]
    with subprocess.Popen(command, cwd=cwd, stdin=-1, stdout=-1, stderr=-1, bufsize=0) as process:
        try:
            yield process
        finally:
            process.kill()


def say(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin
    process.stdin.write(data)


def answer(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout
    found = json.loads(process.stdout.readline())
    assert isinstance(found, dict)
    return found


def test_all_that_was_asked_is_answered_although_the_input_ends(tmp_path: Path, workspace: Workspace) -> None:
    asked = [save(number, f"第 {number} 条") for number in range(1, 31)]
    done = real([ORYX, "memory", "mcp", "-a", "ops"], stdin=HELLO + b"".join(asked), cwd=tmp_path)
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 0
    assert sorted(found["id"] for found in answers) == list(range(31))
    assert Counter(contents(tmp_path, "ops")) == Counter(f"第 {number} 条" for number in range(1, 31))


def test_garbage_is_survived_and_standard_output_has_the_protocol_alone(tmp_path: Path, workspace: Workspace) -> None:
    workspace.settings_file.write_text('backend = "mem0"\n')  # ignored, with a warning
    garbage = b"\x00\xff\n{}\n[]\n[1\n" + b"[" * 100_000 + b'\n{"jsonrpc":"2.0","id":null}\nnot json\n\n'
    garbage += b'{"id": 5, "method": "tools/call", "jsonrpc": "2.0", "params": {"name": "\\ud800"}}\n'
    asked = HELLO + garbage + save(7, "仍然在 still here") + b'{"jsonrpc":"2.0","id":8,"method":"tools/ca'
    done = real([ORYX, "memory", "mcp", "-a", "ops"], stdin=asked, cwd=tmp_path)
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 0
    assert all(found["jsonrpc"] == "2.0" for found in answers)
    assert next(found for found in answers if found["id"] == 7)["result"]["content"][0]["text"] == "已记住"
    assert "oryx memory config adopt" in done.err
    workspace.settings_file.unlink()
    assert contents(tmp_path, "ops") == ["仍然在 still here"]


@pytest.mark.parametrize(
    ("line", "number", "code"),
    [
        (save(7, "\ud800"), 7, -32700),
        (save(7, "字").replace(b"\\u5b57", b"\xe5\xad"), 7, -32700),
        (save(7, "x").replace(b'"x"', b"[" * 500 + b"]" * 500), 7, -32700),
        (save(7, "x").replace(b'"x"', b"[" * 5_000 + b"]" * 5_000), None, -32700),
        (b"not json", None, -32700),
        (b"\xff\xfe", None, -32700),
        (b"[]", None, -32600),
        (b"5", None, -32600),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":5}', 7, -32600),
        (b'{"jsonrpc":"2.0","id":"seven","method":"ping","params":[]}', "seven", -32600),
        (b'{"id":7,"method":"ping"}', 7, -32600),
        (b'{"jsonrpc":"2.0","id":7,"method":5}', 7, -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}', None, -32700),
        (b'{"jsonrpc":"2.0","id":7,"result":5}', None, -32600),  # the answer to a question that nobody asked
    ],
)  # fmt: skip
def test_a_line_that_is_no_message_is_answered_and_not_waited_for(
    line: bytes, number: int | str | None, code: int, tmp_path: Path, workspace: Workspace
) -> None:
    prelude = "import oryx_memory.mcp_server as server; server.LEAVING_PATIENCE = float('inf')"
    command = after(prelude, "memory", "mcp", "-a", "ops")
    done = real(command, stdin=HELLO + line.rstrip(b"\n") + b"\n\n" + request(8, "ping"), cwd=tmp_path)
    first, refused, last = (json.loads(found) for found in done.out.splitlines())
    assert (done.code, first["id"], last["id"]) == (0, 0, 8)
    assert (refused["id"], refused["error"]["code"]) == (number, code)
    assert contents(tmp_path, "ops") == []


@pytest.mark.parametrize("named", [[1], {}, None, True, 1.5, "nobody"])
def test_a_cancellation_of_nothing_changes_nothing(named: Any, tmp_path: Path, workspace: Workspace) -> None:
    notification = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": named}}
    asked = HELLO + json.dumps(notification).encode() + b"\n" + save(1, "所有 all")
    done = real([ORYX, "memory", "mcp", "-a", "ops"], stdin=asked, cwd=tmp_path)
    assert [json.loads(found)["id"] for found in done.out.splitlines()] == [0, 1]
    assert done.code == 0


def test_a_client_that_goes_in_the_middle_leaves_whole_entries(tmp_path: Path, workspace: Workspace) -> None:
    with server(tmp_path) as process:
        say(process, HELLO)
        answer(process)
        assert process.stdin
        assert process.stdout
        process.stdout.close()
        say(process, b"".join(save(number, f"{number} 记") for number in range(1, 41)))
        process.stdin.close()
        assert process.wait(PATIENCE) == 0
        assert process.stderr
        assert process.stderr.read() == b""
    found = Counter(contents(tmp_path, "ops"))
    assert found == Counter(f"{number} 记" for number in range(1, 41))


def test_calls_that_wait_for_a_lock_hold_up_nobody(tmp_path: Path) -> None:
    file = make_ops(tmp_path, "")
    workspace = Workspace(tmp_path / ".oryxos")
    numbers = range(1, 61)  # more than anyio has threads for
    listing = request(61, "tools/call", name="list_memories", arguments={})
    with server(tmp_path) as process:
        say(process, HELLO)
        answer(process)
        with Lock(workspace.lock_file(file), (file,)):
            say(process, b"".join(save(number, f"later {number}") for number in numbers) + request(0, "ping"))
            assert answer(process)["id"] == 0
            say(process, listing)
            assert answer(process)["id"] == 61
            assert contents(tmp_path, "ops") == []
        assert {answer(process)["id"] for _ in numbers} == set(numbers)
    assert Counter(contents(tmp_path, "ops")) == Counter(f"later {number}" for number in numbers)


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "within-a-call"])
def test_sigterm_ends_the_server_and_half_a_call_never_stays(busy: bool, tmp_path: Path) -> None:
    file = make_ops(tmp_path, "")
    workspace = Workspace(tmp_path / ".oryxos")
    with server(tmp_path) as process:
        say(process, HELLO)
        answer(process)
        if busy:
            with Lock(workspace.lock_file(file), (file,)):
                say(process, save(1, "whole or not at all") + request(2, "ping"))
                assert answer(process)["id"] == 2
                process.send_signal(signal.SIGTERM)
        else:
            process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        assert process.stderr
        assert process.stderr.read() == b""
    assert contents(tmp_path, "ops") in ([], ["whole or not at all"])


@pytest.mark.parametrize("how", ["SIGTERM", "the end of the input"])
def test_a_client_that_reads_nothing_does_not_keep_the_server(how: str, tmp_path: Path, workspace: Workspace) -> None:
    memory(
        "append",
        "-a",
        "ops",
        "--root",
        str(tmp_path),
        "--lines",
        stdin="\n".join(f"{n} {'字' * 300}" for n in range(40)),
    )
    prelude = "import oryx_memory.mcp_server as server; server.LEAVING_PATIENCE = server.WRITING_PATIENCE = 0.2"
    command = after(prelude, "memory", "mcp", "-a", "ops")
    asked = [request(number, "tools/call", name="list_memories", arguments={}) for number in range(1, 101)]
    with subprocess.Popen(command, cwd=tmp_path, stdin=-1, stdout=-1, stderr=-1, bufsize=0) as process:
        say(process, HELLO)
        answer(process)
        say(process, b"".join(asked))
        assert process.stdin
        if how == "SIGTERM":
            process.send_signal(signal.SIGTERM)
        else:
            process.stdin.close()
        assert process.wait(PATIENCE) == 0
        assert process.stderr
        assert process.stderr.read() == b""


def test_without_the_extra_one_line_names_it(tmp_path: Path) -> None:
    done = real(after("import sys; sys.modules['mcp'] = None", "memory", "mcp"), cwd=tmp_path)
    assert (done.code, done.out) == (3, "")
    assert done.err.count("\n") == 1
    assert "pip install 'oryx-memory[mcp]'" in done.err


def test_the_configurations_in_the_docs_start_the_server(tmp_path: Path, workspace: Workspace) -> None:
    blocks = re.findall(r"^```json\n(.*?)^```$", MCP_PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    configurations = [
        found.get("mcpServers") or found["servers"] for found in map(json.loads, blocks) if "hooks" not in found
    ]
    assert len(configurations) == 4
    project = str(tmp_path)

    def here(text: str) -> str:
        return text.replace("/full/path/of/the/project", project).replace("${workspaceFolder}", project)

    commands = set()
    for servers in configurations:
        (started,) = servers.values()
        assert started["command"] in ("oryx", "/full/path/of/oryx")
        commands.add((ORYX, *map(here, started["args"])))
    for command in commands:
        done = real(command, stdin=HELLO + save(1, "from the docs"), cwd=tmp_path)
        assert [json.loads(line)["id"] for line in done.out.splitlines()] == [0, 1]
    assert set(contents(tmp_path, "ops")) == {"from the docs"}
