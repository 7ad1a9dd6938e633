"""The tools that a model is offered for its memory: their JSON Schema, and the executor that runs a call.

Whatever a model sends gets an answer in words: nothing is raised to it. Every call is recorded in table
`tool_invocations` of OryxOS's database, failures too, with likely credentials replaced by their kind; a record that
cannot be written is logged and fails no call. Answers are those that OryxOS 0.1.3 gives, or the same in English. Entries
in an answer are the stored text and nothing else; what is said about them stands on a line above or below them.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from typing import Any, Literal, NamedTuple

from oryx_memory.entry import BLANKS, Entry, Scope
from oryx_memory.errors import OryxMemoryError, RejectedInput
from oryx_memory.service import MemoryService, current_agent
from oryx_memory.window import load

Language = Literal["zh", "en"]

SAVE, RECALL = "save_memory", "recall_memory"
ANSWER_CHARS = 8000  # code points of the entries in one answer
KEYWORD_CHARS = 2000  # of one keyword
RECORD_PATIENCE = 1.0  # seconds that an answer waits for its record while another program writes
_NAME_CHARS = 128  # of a tool's name, as the column has it
_SHOWN_CHARS = 80  # of what a model sent, in an answer
_SCHEMA = (  # OryxOS 0.1.3's own table, as it makes it
    "CREATE TABLE IF NOT EXISTS tool_invocations (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id VARCHAR(255) NOT NULL, "
    "tool_name VARCHAR(128) NOT NULL, input_json TEXT, result_json TEXT, success BOOLEAN NOT NULL, error_message TEXT, "
    "duration_ms INTEGER NOT NULL, created_at TIMESTAMP NOT NULL)",
    "CREATE INDEX IF NOT EXISTS idx_tool_invocations_session ON tool_invocations (session_id)",
)
_INSERT = (
    "INSERT INTO tool_invocations (session_id, tool_name, input_json, result_json, success, error_message, duration_ms, "
    "created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)

_WORDS = {
    "zh": {
        "save": "把以后还用得上的一件事记进长期记忆。",
        "content": "要记住的内容，一两句话",
        "scope": "core：少量常驻的事实，每轮对话都会给出；archival：其余的事，需要时检索。不确定就用 archival",
        "recall": "在长期记忆里查找：先给出含有关键词的条目，新的在前；没有时给出最相关的。",
        "keyword": "关键词，或一个问题",
        "saved": "已记住",
        "nothing": "没有找到相关记忆",
        "no scope": "无法识别的记忆分区: {}（应为 core 或 archival）",
        "missing": "错误: 缺少 {} 参数",
        "no text": "错误: 参数 {} 应为文本",
        "long": "错误: keyword 太长，最多 {:,} 字",
        "unsaved": "错误: 没有记住: {}",
        "error": "错误: {}",
        "inside": "错误: 工具内部出错: {}",
        "no tool": "未注册的工具: {}",
        "no json": "工具入参不是合法 JSON: {}",
        "no object": "工具入参应为 JSON 对象",
        "ranked": "（没有条目含有这个关键词，以下是最相关的）",
        "left out": "（还有 {:,} 条没有列出，换个更具体的关键词）",
        "degraded": "（语义检索暂不可用，已按关键词与时间返回）",
    },
    "en": {
        "save": "Keep something that will be of use later in long-term memory.",
        "content": "What to remember, in a sentence or two",
        "scope": "core: the few facts that every turn is given; archival: all else, recalled when needed. If unsure, archival",
        "recall": "Look in long-term memory: entries that contain the keyword, newest first; if none does, the best answers.",
        "keyword": "A keyword, or a question",
        "saved": "remembered",
        "nothing": "nothing found in memory",
        "no scope": "unknown section of memory: {} (it is core or archival)",
        "missing": "error: the argument {} is missing",
        "no text": "error: the argument {} must be a text",
        "long": "error: the keyword is too long, at most {:,} characters",
        "unsaved": "error: not remembered: {}",
        "error": "error: {}",
        "inside": "error: the tool failed inside: {}",
        "no tool": "no such tool: {}",
        "no json": "the arguments are not valid JSON: {}",
        "no object": "the arguments must be a JSON object",
        "ranked": "(no entry contains the keyword; these answer it best)",
        "left out": "({:,} more not listed; use a more specific keyword)",
        "degraded": "(search by meaning is not available now; found by keyword and time)",
    },
}


def openai_tools(language: Language = "zh") -> list[dict[str, Any]]:
    """The tools as OpenAI's API takes them: `{"type": "function", "function": {"name", "description", "parameters"}}`."""
    return [
        {"type": "function", "function": {"name": name, "description": about, "parameters": schema}}
        for name, about, schema in _tools(language)
    ]


def anthropic_tools(language: Language = "zh") -> list[dict[str, Any]]:
    """The tools as Anthropic's API and MCP's `inputSchema` take them: `{"name", "description", "input_schema"}`."""
    return [{"name": name, "description": about, "input_schema": schema} for name, about, schema in _tools(language)]


class ToolAnswer(NamedTuple):
    """What a model is told, valid Unicode; `success` is False where the call could not be carried out."""

    text: str
    success: bool = True


class Refusal(ToolAnswer):
    """What a model is told about arguments that are of no use. OryxOS counts such a call as carried out; MCP does not."""

    __slots__ = ()


class ToolExecutor:
    """Runs the calls of a model. `language` is zh or en, by default `[tools] language`. For any number of threads."""

    def __init__(self, service: MemoryService, *, language: Language | None = None) -> None:
        self.service = service
        self.language: Language = language or service.settings["tools.language"]
        self._words = _WORDS[self.language]

    def run(
        self, name: str, arguments: str | Mapping[str, Any] | None, *, agent: str | None = None, session_id: str = ""
    ) -> ToolAnswer:
        """Run one call for an agent (None: the current one) and record it under the session. Raises nothing.

        `arguments` is the JSON text that the model wrote, or the object that it stands for; None and a blank text are an
        empty object.
        """
        start = time.perf_counter()
        try:
            with nullcontext() if agent is None else current_agent(agent):
                answer = self._run(name, arguments)
        except OryxMemoryError as error:
            answer = self._failed("error", error)
        except Exception as error:  # a bug of ours must not end the turn of a model; the log has the traceback
            _log(f"a call of {name!r:.{_NAME_CHARS}} failed", error)
            answer = self._failed("inside", type(error).__name__)
        answer = answer._replace(text=_encodable(answer.text))
        self._record(session_id, name, arguments, answer, round((time.perf_counter() - start) * 1000))
        return answer

    def _run(self, name: str, arguments: str | Mapping[str, Any] | None) -> ToolAnswer:
        if name not in (SAVE, RECALL):
            return self._failed("no tool", _short(str(name)))
        if isinstance(arguments, str):
            import json

            try:
                arguments = json.loads(arguments) if arguments.strip() else {}
            except (ValueError, RecursionError) as error:
                return self._failed("no json", _short(str(error)))
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, Mapping):
            return self._failed("no object")
        return self._save(arguments) if name == SAVE else self._recall(arguments)

    def _save(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        content = self._text(arguments, "content")
        if isinstance(content, ToolAnswer):
            return content
        named = "" if arguments.get("scope") is None else str(arguments["scope"])
        scope = named.lower() if named.strip(BLANKS) else Scope.ARCHIVAL  # as OryxOS reads it
        if scope not in [*Scope]:
            return self._told("no scope", _short(named))
        try:
            self.service.remember(content, scope)
        except RejectedInput as error:
            return self._failed("unsaved", error)
        return ToolAnswer(self._words["saved"])

    def _recall(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        keyword = self._text(arguments, "keyword")
        if isinstance(keyword, ToolAnswer):
            return keyword
        if len(keyword) > KEYWORD_CHARS:
            return self._told("long", KEYWORD_CHARS)
        try:
            found = self.service.recall(keyword)
        except RejectedInput:  # blank once it is folded, as a no-break space is
            return self._told("missing", "keyword")
        text, left_out = _fitting(found.entries)
        lines = [self._words["ranked"]] if found.ranked else []
        lines.append(text if found.entries else self._words["nothing"])
        if left_out := left_out + found.left_out:
            lines.append(self._words["left out"].format(left_out))
        if found.trouble:
            lines.append(self._words["degraded"])
        return ToolAnswer("\n".join(lines))

    def _text(self, arguments: Mapping[str, Any], name: str) -> str | ToolAnswer:
        """An argument that must be a text with something in it, or what is wrong with it."""
        value = arguments.get(name)
        if value is not None and not isinstance(value, str):
            return self._told("no text", name)
        return value if value and value.strip(BLANKS) else self._told("missing", name)

    def _told(self, words: str, *values: object) -> Refusal:
        return Refusal(self._words[words].format(*values))

    def _failed(self, words: str, *values: object) -> ToolAnswer:
        return ToolAnswer(self._words[words].format(*values), success=False)

    def _record(self, session_id: str, name: str, arguments: object, answer: ToolAnswer, milliseconds: int) -> None:
        try:
            from oryx_memory import database  # brings sqlite3: not for those who only ask for the schemas
            from oryx_memory.messages import compact
            from oryx_memory.stores import database_path

            text = _masked(answer.text)
            row = (
                _encodable(str(session_id)),
                _encodable(str(name))[:_NAME_CHARS],
                _as_json(arguments),
                compact(text) if answer.success else None,
                int(answer.success),
                None if answer.success else text,
                milliseconds,
                time.time_ns() // 1_000_000,
            )
            path = database_path(self.service.workspace, self.service.settings)
            timeout = min(self.service.lock_timeout, RECORD_PATIENCE)
            connection = database.connect(path, timeout=timeout, write=True)
            assert connection is not None
            with closing(connection), database.problems(path, timeout), database.transaction(connection):
                if not database.has_table(connection, "tool_invocations"):
                    for statement in _SCHEMA:
                        connection.execute(statement)
                connection.execute(_INSERT, row)
        except Exception as error:  # whatever it is, the call itself is done
            _log("a tool call was not recorded", error)


def _tools(language: Language) -> list[tuple[str, str, dict[str, Any]]]:
    """Name, description and schema of each tool."""
    words = _WORDS[language]

    def schema(required: str, **properties: dict[str, Any]) -> dict[str, Any]:
        return {"type": "object", "properties": properties, "required": [required], "additionalProperties": False}

    content = {"type": "string", "description": words["content"]}
    scopes = [Scope.ARCHIVAL.value, Scope.CORE.value]
    scope = {"type": "string", "enum": scopes, "default": scopes[0], "description": words["scope"]}
    keyword = {"type": "string", "description": words["keyword"]}
    return [
        (SAVE, words["save"], schema("content", content=content, scope=scope)),
        (RECALL, words["recall"], schema("keyword", keyword=keyword)),
    ]


def _fitting(entries: Sequence[Entry]) -> tuple[str, int]:
    """The text of as many entries, in order, as ANSWER_CHARS allows, and how many are left out. One that alone is longer
    is shown from its start and marked as cut.
    """
    memory = load((), entries, len(entries), ANSWER_CHARS)
    if memory.cut:
        return memory.section(Scope.ARCHIVAL), memory.outside
    return "\n".join(entry.text for entry in entries[: len(memory.window)]), memory.outside


def _as_json(arguments: object) -> str:
    """The arguments for the record: the text that the model wrote, or JSON; credentials are replaced by their kind, those
    too that escapes would hide.
    """
    import json

    from oryx_memory.messages import compact

    text = arguments if isinstance(arguments, str) else ""
    try:
        given = json.loads(text) if isinstance(arguments, str) else arguments
        clean = _masked(given)
        if clean != given or not isinstance(arguments, str):
            text = compact(clean)
    except (TypeError, ValueError, RecursionError):  # no JSON, or no value that JSON can hold
        text = text or repr(arguments)
    return str(_masked(_encodable(text)))


def _masked(value: Any) -> Any:
    """A value with each likely credential in its texts replaced by its kind."""
    from oryx_memory.guard import masked  # not for those who only ask for the schemas

    if isinstance(value, str):
        return masked(value)
    if isinstance(value, Mapping):
        return {key: _masked(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(inner) for inner in value]
    return value


def _encodable(text: str) -> str:
    """A text with its lone surrogates, which no UTF-8 can hold, as escapes."""
    return text.encode(errors="backslashreplace").decode()


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _log(what: str, error: Exception) -> None:
    import logging

    ours = isinstance(error, OryxMemoryError)
    logging.getLogger("oryx_memory").warning("%s: %s", what, error, exc_info=None if ours else error)
