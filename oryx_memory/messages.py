"""A conversation as OryxOS keeps it: messages and turns, and the JSON array of `messages_json` that they stand in.

An array is only ever added to: what stands in it stays as it is, byte for byte, fields of other versions included.
What is added has OryxOS's five fields and no other, since OryxOS refuses a message with a field that it does not know.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

USER, ASSISTANT, TOOL = ROLES = ("user", "assistant", "tool")  # those that OryxOS has
TURNS = 20  # what a model is given of a session
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool that the model asked for; `arguments_json` is the text that the model wrote."""

    id: str
    name: str
    arguments_json: str

    @property
    def arguments(self) -> dict[str, Any] | None:
        """The arguments; none at all is an empty object. None for a text that is no JSON object."""
        if not self.arguments_json.strip():
            return {}
        try:
            text = compact(json.loads(self.arguments_json))  # refuses what Python reads and JSON has not, such as NaN
            found = json.loads(_whole(text))
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    @property
    def readable_arguments(self) -> str:
        """The arguments on one line, escapes resolved; a text that is no JSON object as it is."""
        found = self.arguments
        return self.arguments_json if found is None else compact(found)


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `role` is user, assistant or tool, or what another version wrote; a tool's message is the result of
    the call `tool_call_id`, and older ones have no id.
    """

    role: str
    content: str
    tool_name: str | None = None
    tool_call_id: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()

    def as_oryxos(self) -> dict[str, Any]:
        """The object that OryxOS writes, its fields in its order."""
        return {
            "role": self.role,
            "content": self.content,
            "toolName": self.tool_name,
            "toolCallId": self.tool_call_id,
            "toolCalls": [
                {"id": call.id, "name": call.name, "argumentsJson": call.arguments_json} for call in self.tool_calls
            ],
        }


@dataclass(frozen=True, slots=True)
class Turn:
    """One user message and all that follows it until the next one. `number` counts from 1; what stands before the first
    user message is turn 0.
    """

    number: int
    messages: tuple[Message, ...]


def turns(messages: Iterable[Message]) -> list[Turn]:
    """The messages as turns, in order; none of them is left out."""
    found: list[list[Message]] = [[]]
    for message in messages:
        if message.role == USER:
            found.append([])
        found[-1].append(message)
    return [Turn(number, tuple(part)) for number, part in enumerate(found) if part]


def recent(messages: Iterable[Message], count: int = TURNS) -> list[Turn]:
    """The last `count` turns; what stands before the first is with them where no turn is left out, as OryxOS has it."""
    found = turns(messages)
    if found and found[-1].number <= count:
        return found if count > 0 else []
    return found[-count:] if count > 0 else []


def parse(stored: bytes | None) -> tuple[Message, ...]:
    """The messages of a `messages_json`; none for NULL and for a blank text. Raises ValueError, which says what is wrong.

    Bytes that are no UTF-8 and halves of surrogate pairs are shown as U+FFFD. A field of another type becomes its JSON.
    """
    if _blank(stored):
        return ()
    assert stored is not None
    try:
        items = json.loads(stored.decode(errors="replace"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"broken JSON: {_reason(error)}") from None
    if not _objects(items):
        raise ValueError("its JSON is no array of messages")
    return tuple(map(_message, items))


def extended(stored: bytes | None, messages: Sequence[Message]) -> bytes:
    """A `messages_json` with messages added at its end. Raises ValueError for one that `parse` cannot take."""
    added = b",".join(_SURROGATE.sub(_escape, compact(message.as_oryxos())).encode() for message in messages)
    before = parse(stored)
    if stored is None or _blank(stored):
        return b"[" + added + b"]"
    if not added:
        return stored
    end = stored.rindex(b"]")  # only blanks can follow
    body = stored[:end].rstrip(b" \t\r\n")
    return body + (b"," if before else b"") + added + stored[end:]


def compact(value: Any) -> str:
    """JSON on one line, without blanks, characters as they are. Raises ValueError for what JSON has no word for."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _blank(stored: bytes | None) -> bool:
    return stored is None or not stored.decode(errors="replace").strip()


def _reason(error: Exception) -> str:
    return "it is nested too deep" if isinstance(error, RecursionError) else str(error)


def _objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _message(item: dict[str, Any]) -> Message:
    calls = item.get("toolCalls") or []
    if not _objects(calls):
        raise ValueError("toolCalls of a message is no array of calls")
    return Message(
        _text(item.get("role")),
        _text(item.get("content")),
        _text_or_none(item.get("toolName")),
        _text_or_none(item.get("toolCallId")),
        tuple(
            ToolCall(_text(call.get("id")), _text(call.get("name")), _text(call.get("argumentsJson"))) for call in calls
        ),
    )


def _text_or_none(value: Any) -> str | None:
    return None if value is None else _text(value)


def _text(value: Any) -> str:
    """A field as text: nothing for null, JSON for what is no text in the first place."""
    if value is None:
        return ""
    return _whole(value if isinstance(value, str) else compact(value))


def _whole(text: str) -> str:
    """A text without halves of surrogate pairs, which no stream and no service takes."""
    return _SURROGATE.sub("\ufffd", text)


def _escape(match: "re.Match[str]") -> str:
    return f"\\u{ord(match.group()):04x}"
