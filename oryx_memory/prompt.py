"""The prompt of an agent, in four parts: [1] its instructions, [2] its memory, [3] the conversation, [4] the tools.

The parts are plain data, and `openai` and `anthropic` make the request of an API from them. Text is never cut up for
structure: a message that looks like a heading or a role stays the content of one message. What an API would refuse
(a result without its call, a call without its result, an empty message) is left out, and said in `notices`; what is
kept keeps its order.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from oryx_memory.errors import RejectedInput
from oryx_memory.messages import ASSISTANT, ROLES, TOOL, USER, Message, ToolCall, Turn, compact

ESTIMATE = "0.3 tokens a character, 0.6 from U+2E80 on (Chinese, Japanese, Korean, emoji); models differ"
# The two ratios: api-docs.deepseek.com/quick_start/token_usage, "1 English character ≈ 0.3 token, 1 Chinese character
# ≈ 0.6 token". U+2E80 is where the East Asian scripts of Unicode begin.
_WIDE = re.compile("[\u2e80-\U0010ffff]")
_FRONT_MATTER = re.compile(r"\ufeff?\s*-{3,}[ \t]*\n(?:.*?\n)??-{3,}[ \t]*(?:\n|\Z)", re.DOTALL)
_TOOL_ID = re.compile("[A-Za-z0-9_-]+")  # what Anthropic's API takes


class Style(StrEnum):
    """Whose API a request is for."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


class Part(NamedTuple):
    """How much a part of the prompt is: characters of its text, or of its JSON as it is sent, and the estimate."""

    name: str
    chars: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """The four parts. `messages` begin with one of the user, and each call in them is directly followed by its results.
    `notices` tell what was left out of them, a line each.
    """

    instructions: str
    memory: str
    messages: tuple[Message, ...]
    tools: tuple["Tool", ...]
    notices: tuple[str, ...] = ()

    def openai(self) -> dict[str, Any]:
        """`messages` and, if there are any, `tools` of a request to an OpenAI-style chat API."""
        system = {"role": "system", "content": f"{self.instructions}\n\n{self.memory}"}
        request: dict[str, Any] = {"messages": [system, *map(_openai, self.messages)]}
        return request | ({"tools": [tool.openai() for tool in self.tools]} if self.tools else {})

    def anthropic(self) -> dict[str, Any]:
        """`system`, `messages` and, if there are any, `tools` of a request to an Anthropic-style messages API."""
        system = [{"type": "text", "text": text} for text in (self.instructions, self.memory)]
        request: dict[str, Any] = {"system": system, "messages": _alternating(self.messages)}
        return request | ({"tools": [tool.anthropic() for tool in self.tools]} if self.tools else {})

    def request(self, style: Style) -> dict[str, Any]:
        """The request of a style."""
        return self.openai() if style is Style.OPENAI else self.anthropic()

    def parts(self, style: Style) -> list[Part]:
        """The size of each part in a style, in order."""
        request = self.request(style)
        conversation = request["messages"][1 if style is Style.OPENAI else 0 :]
        texts = {
            "instructions": self.instructions,
            "memory": self.memory,
            "messages": compact(conversation) if conversation else "",
            "tools": compact(request["tools"]) if self.tools else "",
        }
        return [Part(name, len(text), tokens_estimate(text)) for name, text in texts.items()]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a model is offered: what it is for, and the JSON Schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Tool":
        """A tool from its plain data, in OpenAI's shape or Anthropic's. Raises RejectedInput."""
        function = given.get("function", given)
        schema = function.get("parameters", function.get("input_schema"))
        name = function.get("name")
        if not isinstance(name, str) or not name or not isinstance(schema, Mapping):
            raise RejectedInput(f"not a tool: it needs a name and a schema (parameters or input_schema): {given!r}")
        return cls(name, str(function.get("description", "")), schema)

    def openai(self) -> dict[str, Any]:
        """In OpenAI's shape."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.schema)}
        return {"type": "function", "function": function}

    def anthropic(self) -> dict[str, Any]:
        """In Anthropic's shape."""
        return {"name": self.name, "description": self.description, "input_schema": dict(self.schema)}


def build_prompt(
    *,
    instructions: str,
    now: datetime,
    memory: str,
    pages: Iterable[str] = (),
    turns: Sequence[Turn] = (),
    tools: Iterable[Mapping[str, Any]] = (),
) -> Prompt:
    """The prompt from its parts.

    `instructions` is the body of AGENT.md, `pages` are the texts of AGENTS.md, SOUL.md and USER.md, as far as they are
    there; `now` is local wall-clock time; `memory` is the text of `load`; `turns` are the turns of the session that count;
    `tools` are in OpenAI's shape or Anthropic's. Raises RejectedInput for a tool that is in neither.
    """
    notices: list[str] = []
    kept = [message for turn in turns for message in _kept(turn, notices)]
    first = next((number for number, message in enumerate(kept) if message.role == USER), len(kept))
    if first:
        notices.append(
            f"messages before the first one of the user left out: {first}; a conversation begins with the user"
        )
    texts = [_unix(text).strip() for text in (instructions, *pages)]
    date = f"当前日期时间：{now:%Y-%m-%d %H:%M}"  # word for word as OryxOS gives it
    return Prompt(
        "\n\n".join([*filter(None, texts), date]),
        memory,
        tuple(kept[first:]),
        tuple(map(Tool.of, tools)),
        tuple(notices),
    )


def body(page: str) -> str:
    """The text of an AGENT.md without its front matter; all of it where there is none or where it has no end."""
    page = _unix(page)
    found = _FRONT_MATTER.match(page)
    return page[found.end() :] if found else page.removeprefix("\ufeff")


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def tokens_estimate(text: str) -> int:
    """How many tokens a text is, by the rule of ESTIMATE, rounded up."""
    return -(-3 * (len(text) + len(_WIDE.findall(text))) // 10)


def _kept(turn: Turn, notices: list[str]) -> Iterator[Message]:
    """The messages of a turn that an API takes, in order; what is left out goes into the notices."""

    def note(what: str) -> None:
        notices.append(f"turn {turn.number}: {what}")

    for message in turn.messages:
        if message.role not in ROLES:
            note(f"a message of the unknown role {message.role!r} left out")
    for head, results in _with_results(message for message in turn.messages if message.role in ROLES):
        calls = _answered(head, results, note) if head else ()
        if head and (calls or head.content.strip()):
            yield replace(head, tool_calls=calls)
        elif head and not head.tool_calls:
            note(f"an empty message of the role {head.role!r} left out")
        waiting = {call.id for call in calls}
        for result in results:
            if result.tool_call_id in waiting:
                waiting.remove(result.tool_call_id)
                yield result
            else:
                note(f"a result of {_named(result.tool_name, result.tool_call_id)} without its call left out")


def _answered(head: Message, results: Iterable[Message], note: Callable[[str], None]) -> tuple[ToolCall, ...]:
    """The calls of the assistant's message `head` that have a result, each its own."""
    there = {result.tool_call_id for result in results} if head.role == ASSISTANT else set()
    calls = []
    for call in head.tool_calls:
        if not (call.id and call.name and call.id in there):
            note(f"a call of {_named(call.name, call.id)} without a {'result' if call.name else 'name'} left out")
            continue
        there.remove(call.id)
        calls.append(call)
        if call.arguments is None:
            note(f"the arguments of {_named(call.name, call.id)} are no JSON object; given as text")
    return tuple(calls)


def _with_results(messages: Iterable[Message]) -> list[tuple[Message | None, list[Message]]]:
    """Each message with the results that stand directly behind it; None in front of results that begin a turn."""
    groups: list[tuple[Message | None, list[Message]]] = [(None, [])]
    for message in messages:
        if message.role == TOOL:
            groups[-1][1].append(message)
        else:
            groups.append((message, []))
    return groups


def _named(name: str | None, call_id: str | None) -> str:
    return f"{name or 'an unnamed tool'} ({call_id or 'without id'})"


def _openai(message: Message) -> dict[str, Any]:
    if message.role == TOOL:
        return {"role": TOOL, "tool_call_id": message.tool_call_id, "content": message.content}
    if not message.tool_calls:
        return {"role": message.role, "content": message.content}
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _arguments_text(call)}}
        for call in message.tool_calls
    ]
    return {"role": message.role, "content": message.content or None, "tool_calls": calls}


def _alternating(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages in Anthropic's shape: results are the user's, what one role says in a row is one message, and the id of
    a call is its own in the whole conversation.
    """
    made: list[dict[str, Any]] = []
    used: set[str] = set()
    ids: dict[str | None, str] = {}
    blocks: list[dict[str, Any]]
    for message in messages:
        if message.role == TOOL:
            blocks = [{"type": "tool_result", "tool_use_id": ids[message.tool_call_id], "content": message.content}]
        else:
            ids = {call.id: _unused(call.id, used) for call in message.tool_calls}
            blocks = [{"type": "text", "text": message.content}] if message.content.strip() else []
            blocks += [
                {"type": "tool_use", "id": ids[call.id], "name": call.name, "input": _arguments(call)}
                for call in message.tool_calls
            ]
        role = ASSISTANT if message.role == ASSISTANT else USER
        if made and made[-1]["role"] == role:
            made[-1]["content"] += blocks
        else:
            made.append({"role": role, "content": blocks})
    return made


def _unused(call_id: str, used: set[str]) -> str:
    """An id that Anthropic's API takes and that no call before has: the given one if it is such."""
    number = len(used)
    while not _TOOL_ID.fullmatch(call_id) or call_id in used:
        number += 1
        call_id = f"call_{number}"
    used.add(call_id)
    return call_id


def _arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments as an object; a text that is none stands in one, under `arguments`."""
    found = call.arguments
    return {"arguments": call.arguments_json} if found is None else found


def _arguments_text(call: ToolCall) -> str:
    """The arguments as the JSON of an object: the model's own text where it is such."""
    written = call.arguments_json
    return written if written.strip() and call.arguments is not None else compact(_arguments(call))
