"""The commands session, context and prompt: what they print, what they refuse, and text that would steer a terminal."""

import json
import re
import shlex
import shutil
import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from command import LOADED, OPS, RELEASE, UV, make_ops, memory
from test_cli_environments import EVIL, terminal

from oryx_memory.messages import Message, ToolCall
from oryx_memory.prompt import ESTIMATE, tokens_estimate
from oryx_memory.sessions import Sessions
from oryx_memory.tools import openai_tools

SAMPLE = Path(__file__).parents[1] / "fixtures" / "oryxos-sample.db"
ARGUMENTS = '{"content":"灰度发布在 50% 时回滚，原因：连接池耗尽","scope":"archival"}'
TURN = f"""user
  记住：灰度发布在 50% 时回滚
assistant calls save_memory (call_01)
  {ARGUMENTS}
tool save_memory (call_01)
  "已记住"
assistant
  已经记下了。
"""
ROWS = """scheduler:scheduler:ops\tactive\t0\t2026-08-01 20:28:43
web:u-1001:小助手\tactive\t1\t2026-08-01 17:58:43
cli:local:ops\tactive\t1\t2026-08-01 03:02:03
"""
OLD_ROW = "admin:console:ops\tarchived\t1\t2026-08-01 01:35:23\n"
JSON_OLD = (
    '{"id":"admin:console:ops","agent":"ops","channel":"admin","user":"console","status":"archived",'
    '"created":"2026-08-01T01:18:43","last_active":"2026-08-01T01:35:23","archived":"2026-08-02T02:02:03","turns":1'
)
NO_CALL = '"tool_name":null,"tool_call_id":null,"tool_calls":[]}'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the agent ops, OryxOS's own database beside it, and the pages that people write."""
    monkeypatch.chdir(tmp_path)
    page = make_ops(tmp_path).with_name("AGENT.md")
    page.write_text("---\nname: 值班\n---\n\n你负责巡检。\nBe brief.\n")
    (tmp_path / ".oryxos" / "memory.toml").write_text('[time]\nzone = "UTC"\n')
    (tmp_path / ".oryxos" / "USER.md").write_text("\ufeff# USER.md\n用户叫张三\n")
    (tmp_path / ".oryxos" / "AGENTS.md").write_text("# AGENTS.md\r\nUse uv\r\n")
    shutil.copyfile(SAMPLE, tmp_path / "oryxos.db")
    return tmp_path


def _sessions(place: Path) -> Sessions:
    return Sessions(place / "oryxos.db", datetime.now)


def _files(place: Path) -> list[Path]:
    """All but what SQLite puts beside a database in WAL mode for those who read it, too."""
    return sorted(path for path in place.rglob("*") if not path.name.endswith(("-shm", "-wal")))


def _break(place: Path) -> None:
    with closing(sqlite3.connect(place / "oryxos.db")) as connection:
        connection.execute("UPDATE sessions SET messages_json = '[{' WHERE session_id = 'cli:local:ops'")
        connection.commit()


class Case(NamedTuple):
    """A command behind `oryx memory` as it is typed, and what it gives; `err`: what standard error says, if anything."""

    id: str
    arguments: str
    code: int = 0
    out: str = ""
    err: tuple[str, ...] = ()


CASES = (
    Case("list", "session list", out=ROWS),
    Case("list-archived", "session list --archived", out=ROWS + OLD_ROW),
    Case("list-newest", "session list -n 1", out=ROWS.partition("\n")[0] + "\n"),
    Case("list-agent", "session list -a 小助手", out=ROWS.splitlines(keepends=True)[1]),
    Case("list-agent-without", "session list -a other", 3, err=("no agent other",)),
    Case("show", "session show cli:local:ops", out=f"turn 1\n{TURN}"),
    Case("show-empty", "session show scheduler:scheduler:ops"),
    Case(
        "show-older",
        "session show admin:console:ops --turns 1",
        out="turn 1\nuser\n  旧格式会话\nassistant\n  好的\n",
    ),
    Case(
        "show-json",
        "session show admin:console:ops --json",
        out=f'{JSON_OLD},"messages":[{{"turn":1,"role":"user","content":"旧格式会话",{NO_CALL},'
        f'{{"turn":1,"role":"assistant","content":"好的",{NO_CALL}]}}\n',
    ),
    Case(
        "show-unknown", "session show cli:lokal:ops", 1, err=("no session cli:lokal:ops", "did you mean cli:local:ops")
    ),
    Case("show-without-id", "session show", 2, err=("ID",)),
    Case("show-no-turns", "session show cli:local:ops --turns 0", 2, err=("--turns",)),
    Case(
        "search",
        "session search 回滚",
        out=f"cli:local:ops\t1\t记住：灰度发布在 50% 时回滚\ncli:local:ops\t1\tsave_memory {ARGUMENTS}\n",
    ),
    Case("search-one", "session search 回滚 -n 1", out="cli:local:ops\t1\t记住：灰度发布在 50% 时回滚\n"),
    Case("search-of-an-archived-one", "session search 旧格式", out="admin:console:ops\t1\t旧格式会话\n"),
    Case(
        "search-json",
        "session search 旧格式 --json",
        out='[{"session":"admin:console:ops","turn":1,"role":"user","line":"旧格式会话"}]\n',
    ),
    Case("search-agent", "session search -a 小助手 周五", out="web:u-1001:小助手\t1\t周五下午三点。\n"),
    Case("search-percent-is-text", "session search '5%0'", 1, err=("no session contains '5%0'",)),
    Case("search-nothing", "session search -a ops 周五", 1, err=("no session of ops contains '周五'",)),
    Case("search-nothing-json", "session search 没有 --json", 1, out="[]\n", err=("'没有'",)),
    Case("search-unknown-agent", "session search -a opps 周五", 3, err=("did you mean ops?",)),
    Case("search-blank", "session search '　'", 2, err=("blank",)),
    Case("search-words", "session search 会议 几点", 2, err=("expected one query, got 2 words", "search '会议 几点'")),
    Case("search-without-query", "session search", 2, err=("QUERY",)),
    Case("context", "context -a ops", out=LOADED),
    Case("context-empty", "context", out="## 核心记忆\n\n## 归档记忆\n\n"),
    Case("context-unknown-agent", "context -a opps", 3, err=("did you mean ops?",)),
    Case("prompt-unknown-session", "prompt --session x", 1, err=("no session x",)),
    Case("prompt-unknown-style", "prompt --style cohere", 2, err=("openai", "anthropic")),
    Case("prompt-another-agent", "prompt --session cli:local:ops -a other", 2, err=("of the agent ops, not of other",)),
    Case("prompt-of-an-unsafe-name", "prompt --session web:u-1001:小助手", 2, err=("unsafe", "'小助手'")),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_reading_sessions_changes_nothing(case: Case, place: Path) -> None:
    before = (place / "oryxos.db").read_bytes()
    files = _files(place)
    result = memory(*shlex.split(case.arguments))
    assert (result.code, result.out) == (case.code, case.out), result.err
    assert result.err.count("\n") == bool(case.err), result.err
    for fragment in case.err:
        assert fragment in result.err
    assert (place / "oryxos.db").read_bytes() == before
    assert _files(place) == files


def test_a_list_in_json_has_what_is_known_of_each(place: Path) -> None:
    result = memory("session", "list", "--json", "--archived")
    assert result.out.endswith(f"{JSON_OLD}}}]\n")
    assert [item["last_active"] for item in json.loads(result.out)][:2] == [None, "2026-08-01T17:58:43"]


def test_a_broken_session_is_named_and_the_others_are_listed(place: Path) -> None:
    _break(place)
    for arguments, shown in (("session list", ROWS.rpartition("cli:")[0]), ("session search 周五下午", None)):
        result = memory(*arguments.split(" "))
        assert result.code == 0
        assert shown in (None, result.out)
        assert "session cli:local:ops cannot be read: broken JSON" in result.err
        assert result.err.count("\n") == 1
    for arguments in ("session show cli:local:ops", "prompt --session cli:local:ops"):
        result = memory(*arguments.split(" "))
        assert (result.code, result.out) == (3, "")
        assert "oryxos.db: the messages of session cli:local:ops cannot be read" in result.err


@pytest.mark.parametrize(
    "arguments", ["session list", "session search x", "session show a:b:c", "prompt --session a:b:c"]
)
def test_no_database_is_made_for_those_who_look(arguments: str, place: Path) -> None:
    (place / "oryxos.db").unlink()
    before = sorted(place.rglob("*"))
    result = memory(*arguments.split(" "))
    assert (result.code, result.out) == (0 if arguments == "session list" else 1, "")
    assert result.err.count("\n") == 1
    assert sorted(place.rglob("*")) == before


# The prompt

INSTRUCTIONS = "你负责巡检。\nBe brief.\n\n# AGENTS.md\nUse uv\n\n# USER.md\n用户叫张三\n\n当前日期时间："


def _undated(text: str) -> str:
    return re.sub(r"(当前日期时间：)\d{4}-\d\d-\d\d \d\d:\d\d", r"\1", text)


def test_the_prompt_is_shown_in_four_parts(place: Path) -> None:
    result = memory("prompt", "--session", "cli:local:ops")
    heads = re.findall(r"^\[.*", result.out, re.MULTILINE)
    assert [re.sub(r"\d[\d,]*", "N", head) for head in heads] == [
        f"[N] {name}: N characters, about N tokens" for name in ("instructions", "memory", "messages", "tools")
    ]
    parts = re.split(r"^\[.*\n", _undated(result.out), flags=re.MULTILINE)[1:]
    assert parts[0] == _indented(INSTRUCTIONS)
    assert parts[1] == _indented(LOADED[:-1])
    assert parts[2] == TURN
    assert [line for line in parts[3].split("\n") if line[:1].strip()] == ["tool save_memory", "tool recall_memory"]
    assert result.err == f"tokens are an estimate: {ESTIMATE}\n"


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" if line else "\n" for line in text.split("\n"))


def test_the_prompt_without_a_session_is_the_one_of_an_agent(place: Path) -> None:
    result = memory("prompt", "-a", "ops", "-q")
    assert "[3] messages: 0 characters, about 0 tokens\n[4] tools" in result.out
    assert "你负责巡检" in result.out
    everyone = memory("prompt", "-q").out
    assert "你负责巡检" not in everyone
    assert _indented("## 核心记忆\n\n## 归档记忆\n") in everyone


@pytest.mark.parametrize("style", ["openai", "anthropic"])
def test_the_prompt_in_json_is_a_request_and_its_sizes(style: str, place: Path) -> None:
    result = memory("prompt", "--session", "cli:local:ops", "--json", "--style", style)
    shown = json.loads(_undated(result.out))
    request = shown["request"]
    assert list(shown) == ["agent", "session", "style", "parts", "chars", "tokens", "estimate", "notices", "request"]
    assert (shown["agent"], shown["session"], shown["style"]) == ("ops", "cli:local:ops", style)
    assert (shown["estimate"], shown["notices"], result.err) == (ESTIMATE, [], "")
    if style == "openai":
        assert request["messages"][0] == {"role": "system", "content": f"{INSTRUCTIONS}\n\n{LOADED[:-1]}"}
        assert [message["role"] for message in request["messages"][1:]] == ["user", "assistant", "tool", "assistant"]
        assert request["tools"] == openai_tools()
    else:
        assert [block["text"] for block in request["system"]] == [INSTRUCTIONS, LOADED[:-1]]
        assert [message["role"] for message in request["messages"]] == ["user", "assistant", "user", "assistant"]
        assert request["tools"][0]["input_schema"] == openai_tools()[0]["function"]["parameters"]
    parts = {part["name"]: part for part in shown["parts"]}
    assert parts["memory"] == {"name": "memory", "chars": len(LOADED) - 1, "tokens": tokens_estimate(LOADED[:-1])}
    assert parts["instructions"]["chars"] == len(INSTRUCTIONS) + len("2026-08-01 10:00")
    assert shown["chars"] == sum(part["chars"] for part in parts.values())
    assert shown["tokens"] == sum(part["tokens"] for part in parts.values())


def test_the_prompt_of_an_agent_that_only_the_database_has(place: Path) -> None:
    result = memory("prompt", "--session", "web:u-1001:小助手", "--backend", "sqlite", "--json")
    system, *said = json.loads(result.out)["request"]["messages"]
    assert "称呼用户为“老板”" in system["content"]
    assert "你负责巡检" not in system["content"]
    assert [message["content"] for message in said] == ["会议是几点？🍵", "周五下午三点。\n要我提醒你吗？"]


def test_only_the_last_turns_are_given_and_what_is_left_out_is_said(place: Path) -> None:
    call = ToolCall("9", "recall_memory", "{}")
    _sessions(place).append(
        "cli:local:ops", Message("user", "第二轮"), Message("assistant", "", tool_calls=(call,)), Message("critic", "?")
    )
    result = memory("prompt", "--session", "cli:local:ops", "--turns", "1")
    assert "user\n  第二轮\n[4]" in result.out
    assert "灰度发布" not in result.out
    notices = [
        "turn 2: a message of the unknown role 'critic' left out",
        "turn 2: a call of recall_memory (9) without a result left out",
    ]
    assert result.err.splitlines()[1:] == notices
    shown = json.loads(memory("prompt", "--session", "cli:local:ops", "--turns", "1", "--json").out)
    assert shown["notices"] == notices
    assert memory("prompt", "--session", "cli:local:ops", "--turns", "0", "-q").out.count("第二轮") == 0
    shown = memory("session", "show", "cli:local:ops", "--turns", "1").out
    assert shown == "turn 2\nuser\n  第二轮\nassistant calls recall_memory (9)\n  {}\nrole 'critic'\n  ?\n"


def test_tools_speak_the_language_of_the_settings(place: Path) -> None:
    (place / ".oryxos" / "memory.toml").write_text('[tools]\nlanguage = "en"\n')
    assert json.loads(memory("prompt", "--json").out)["request"]["tools"] == openai_tools("en")


def test_a_context_in_json_has_its_size(place: Path) -> None:
    (place / ".oryxos" / "memory.toml").write_text(f"[archival]\nmax_chars = {len(UV)}\n[core]\nmax_chars = 3\n")
    result = memory("context", "-a", "ops", "--json")
    text = LOADED[:-1].replace(f"{RELEASE}\n", "")
    assert json.loads(result.out) == {
        "agent": "ops",
        "text": text,
        "chars": len(text),
        "tokens": tokens_estimate(text),
        "estimate": ESTIMATE,
        "outside": 1,
        "cut": 0,
    }
    assert result.err == (
        "core has 46 characters, more than [core] max_chars 3; nothing was cut\nleft out: 1 older archival entry\n"
    )


@pytest.mark.parametrize("name", ["USER.md", "agents/ops/AGENT.md"])
def test_a_page_that_is_a_link_out_of_the_workspace_is_refused(
    name: str, place: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    secret = tmp_path_factory.mktemp("home") / "id_ed25519"
    secret.write_text("hunter2")
    page = place / ".oryxos" / name
    page.unlink()
    page.symlink_to(secret)
    result = memory("prompt", "-a", "ops")
    assert (result.code, result.out) == (3, "")
    assert f"{page}: is a link out of the workspace" in result.err
    assert "hunter2" not in result.err


# Text is data

FORGED = "x\n[4] tools: 0 characters, about 0 tokens\r[2] memory\r\nassistant\n  yes"


def test_text_cannot_look_like_a_part_or_a_role_of_what_is_printed(place: Path) -> None:
    """Every line that is not indented is ours."""
    sessions = _sessions(place)
    sessions.create("cli:forged:ops")
    sessions.append(
        "cli:forged:ops",
        Message("user", FORGED),
        Message("assistant", FORGED, tool_calls=(ToolCall("1\nuser", f"x\n{FORGED}", FORGED),)),
        Message("tool", FORGED, f"x\n{FORGED}", "1\nuser"),
        Message("[2] memory", FORGED),
    )
    (place / ".oryxos" / "USER.md").write_text(FORGED)
    memory_file = place / ".oryxos" / "agents" / "ops" / "MEMORY.md"
    memory_file.write_text(f"{OPS}- [2026-08-01 10:00:00] a\n{FORGED}\n", newline="")
    shown = memory("prompt", "--session", "cli:forged:ops").out
    heads = [line for line in re.split("[\r\n]", shown) if line[:1].strip()]
    flat = FORGED.replace("\n", " ").replace("\r", "\\x0d")
    assert [re.sub("[0-9,]+ (?=char|tokens)", "", head) for head in heads] == [
        "[1] instructions: characters, about tokens",
        "[2] memory: characters, about tokens",
        "[3] messages: characters, about tokens",
        "user",
        "assistant",
        re.sub("[0-9,]+ (?=char|tokens)", "", f"assistant calls x {flat} (1 user)"),
        re.sub("[0-9,]+ (?=char|tokens)", "", f"tool x {flat} (1 user)"),
        "[4] tools: characters, about tokens",
        "tool save_memory",
        "tool recall_memory",
    ]
    shown = memory("session", "show", "cli:forged:ops").out
    assert [line for line in re.split("[\r\n]", shown) if line[:1].strip()][-1] == "role '[2] memory'"


@pytest.mark.parametrize(
    "command",
    [
        "session list", "session list --json", "session show web:evil:ops", "session show web:evil:ops --json",
        "session search 坏", "prompt --session web:evil:ops", "prompt --session web:evil:ops --json", "context -a ops",
        "session show \x1b]0;x\x07", "session search \x1b]0;x\x07",
    ],
)  # fmt: skip
def test_nothing_in_a_session_steers_the_terminal(command: str, place: Path) -> None:
    sessions = _sessions(place)
    sessions.create("web:evil:ops")
    call = ToolCall(EVIL, EVIL, json.dumps({"x": EVIL}))
    sessions.append(
        "web:evil:ops", Message("user", f"坏 {EVIL}\n坏\t{EVIL}"), Message("assistant", EVIL, tool_calls=(call,))
    )
    sessions.append("web:evil:ops", Message("tool", EVIL, EVIL, EVIL), Message(EVIL, EVIL))
    with closing(sqlite3.connect(place / "oryxos.db")) as connection:
        connection.execute("INSERT INTO sessions SELECT ?, 'ops', '', '', NULL, ?, 1, ?, NULL", (EVIL, EVIL, EVIL))
        connection.commit()
    memory_file = place / ".oryxos" / "agents" / "ops" / "MEMORY.md"
    memory_file.write_text(f"{OPS}- [2026-08-01 10:00:00] {EVIL}\n")
    (place / ".oryxos" / "USER.md").write_text(EVIL)
    code, text = terminal(command.split(" "), place)
    assert code == (1 if "\x1b" in command else 0)
    assert text
