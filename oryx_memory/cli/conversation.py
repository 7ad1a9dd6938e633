"""Commands about conversations and what a model is given: session list, show and search, episodes, context, prompt.

Texts are printed indented below a line that says whose they are, so that no text looks like such a line.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oryx_memory import files, stores
from oryx_memory.cli.options import Here, left_out, loaded, memory_command, one_text
from oryx_memory.cli.output import one_visible_line, table, visible
from oryx_memory.errors import NothingFound, RejectedInput, UnsafeName
from oryx_memory.hooks import Client
from oryx_memory.matching import Keyword
from oryx_memory.messages import ROLES, TOOL, TURNS, Message, Turn, compact, recent
from oryx_memory.prompt import ESTIMATE, Part, Prompt, Style, body, build_prompt, tokens_estimate
from oryx_memory.stores import LongTermMemoryStore
from oryx_memory.window import Memory

if TYPE_CHECKING:
    from oryx_memory.episodes import Episode
    from oryx_memory.sessions import Session, Sessions

app = typer.Typer(rich_markup_mode=None)
session = typer.Typer(rich_markup_mode=None, help="List, show and search the sessions in OryxOS's database.")
app.add_typer(session, name="session")

_PAGES = ("AGENTS.md", "SOUL.md", "USER.md")
_SHOWN = 60  # characters of a session's first words
_SIDE = 600  # characters of what one side says in an episode, on a terminal

SessionId = Annotated[str, typer.Argument(metavar="ID", help="channel:user:agent")]


@memory_command(session, "list")
def list_(
    here: Here,
    archived: Annotated[bool, typer.Option("--archived", help="Archived ones too.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="The newest N.", show_default=False)] = None,
) -> None:
    """List the sessions, of --agent or of all, the one that was active last first: id, status, turns, last active.

    \b
      oryx memory session list
      oryx memory session list -a ops --archived
    """
    sessions = _sessions(here)
    found = sessions.list(here.agent, archived=archived)[:limit]
    if here.out.json:
        here.out.object([_as_object(item) for item in found])
    elif here.out.fancy:
        columns = ("session", "status", "turns", "last active", "")
        here.out.render(table(columns, ([*_row(item), _first_words(item)] for item in found), right=(2,)))
    else:
        here.out.rows(map(_row, found))
    if not found:
        _require_agent(here)
        here.out.talk(f"no sessions{_of(here)} in {sessions.path}")


@memory_command(session)
def show(
    here: Here,
    session_id: SessionId,
    turns: Annotated[int | None, typer.Option(min=1, help="Only the last N turns.", show_default=False)] = None,
) -> None:
    """Show a session's messages: whose each is, and below it, indented, its text.

    \b
      oryx memory session show cli:local:ops --turns 3
    """
    found = _sessions(here).get(session_id)
    shown = found.turns if turns is None else recent(found.messages, turns)
    if here.out.json:
        here.out.object(
            {**_as_object(found), "messages": [_message(turn, item) for turn in shown for item in turn.messages]}
        )
        return
    for turn in shown:
        _heading(here, f"turn {turn.number}")
        _transcript(here, turn.messages)


@memory_command(session)
def search(
    here: Here,
    query: Annotated[list[str] | None, typer.Argument(metavar="QUERY", show_default=False)] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="The newest N.", show_default=False)] = None,
) -> None:
    """Print the lines of past messages that contain QUERY: session, turn and line, separated by tabs, the newest first.

    \b
    Case, width and accents' encoding do not matter; % and _ are text. Exit code 1 if there is none.
      oryx memory session search 回滚
      oryx memory session search -a ops 'save_memory' -n 5
    """
    keyword = one_text(query, "query")
    if keyword is None:
        raise RejectedInput("nothing to look for: give a QUERY")
    hits = list(islice(_sessions(here).search(keyword, agent=here.agent), limit))
    if here.out.json:
        here.out.object(
            [{"session": hit.session_id, "turn": hit.turn, "role": hit.role, "line": hit.line} for hit in hits]
        )
    else:
        here.out.rows((_word(hit.session_id), str(hit.turn), hit.line) for hit in hits)
    if not hits:
        _require_agent(here)
        raise NothingFound(f"no session{_of(here)} contains {keyword!r}")


@memory_command(app)
def episodes(
    here: Here,
    query: Annotated[list[str] | None, typer.Argument(metavar="QUERY", show_default=False)] = None,
    top_k: Annotated[int, typer.Option("--top-k", min=1, help="The best N.")] = 5,
    session_id: Annotated[
        str | None, typer.Option("--session", help="The current session, which is left out.", show_default=False)
    ] = None,
) -> None:
    """Print the turns of past sessions, of --agent or of all, that answer QUERY best: session, turn and time, and below
    them, indented, what was said.

    \b
    By words, by dates in QUERY, and by meaning where `oryx memory index` has made vectors. Likely credentials are replaced
    by their kind. Exit code 1 if there is none.
      oryx memory episodes -a ops '上次为什么回滚？'
      oryx memory episodes -a ops 'rollback' --top-k 3 --session cli:local:ops
    """
    wanted = one_text(query, "query")
    if wanted is None:
        raise RejectedInput("nothing to look for: give a QUERY")
    found = _recalled(here, wanted, top_k, session_id)
    if here.out.json:
        here.out.object([{**item._asdict(), "time": _iso(item.time), "score": round(item.score, 4)} for item in found])
    else:
        for item in found:
            _episode(here, item)
    if not found:
        _require_agent(here)
        raise NothingFound(
            f"no past session{_of(here)} answers {wanted!r}; `oryx memory session search` looks for the very text"
        )


@memory_command(app)
def context(
    here: Here,
    hook: Annotated[
        Client | None,
        typer.Option(help="Answer a hook of this client, whose JSON is on standard input.", show_default=False),
    ] = None,
) -> None:
    """Print the memory block of a prompt: core and the window of archival under their headings, even if empty.

    \b
    It is the text of `load`. What is left out is counted on standard error. With --hook it is JSON for the client of a
    coding agent, under 9,500 characters, and the exit code is 0 or 1; docs/mcp.md has the settings of the client.
      oryx memory context -a ops
      echo '{"hook_event_name": "SessionStart"}' | oryx memory context --hook claude-code -a ops
    """
    if hook:
        from oryx_memory.cli.hooks import give_context

        give_context(here)
        return
    store = here.store()
    memory = _memory(here, store)
    text = str(memory)
    if here.out.json:
        sizes = {"chars": len(text), "tokens": tokens_estimate(text), "estimate": ESTIMATE}
        here.out.object({"agent": store.agent, "text": text, **sizes, "outside": memory.outside, "cut": memory.cut})
    else:
        here.out.data(text)


@memory_command(app)
def prompt(
    here: Here,
    session_id: Annotated[
        str | None, typer.Option("--session", help="The session whose turns are given.", show_default=False)
    ] = None,
    turns: Annotated[int, typer.Option(min=0, help="How many of its last turns.")] = TURNS,
    style: Annotated[Style, typer.Option(help="Whose API --json and the sizes are for.")] = Style.OPENAI,
) -> None:
    """Print the prompt that an agent's model is given: instructions, memory, conversation, tools.

    \b
    Without --agent it is the agent of the session. --json gives the request of an API and the size of each part.
      oryx memory prompt -a ops
      oryx memory prompt --session cli:local:ops --turns 5 --json --style anthropic
    """
    found = _sessions(here).get(session_id) if session_id is not None else None
    if found and here.given_agent not in (None, found.agent):
        raise RejectedInput(f"session {found.id} is of the agent {found.agent}, not of {here.given_agent}")
    store = here.store(found.agent if found else None)
    made = _prompt(here, store, recent(found.messages, turns) if found else ())
    parts = made.parts(style)
    if here.out.json:
        here.out.object(
            {
                "agent": store.agent,
                "session": session_id,
                "style": style.value,
                "parts": [part._asdict() for part in parts],
                "chars": sum(part.chars for part in parts),
                "tokens": sum(part.tokens for part in parts),
                "estimate": ESTIMATE,
                "notices": made.notices,
                "request": made.request(style),
            }
        )
    else:
        _show(here, made, parts)
    for notice in made.notices:
        here.out.talk(notice)


def _sessions(here: Here) -> "Sessions":
    from oryx_memory.sessions import open_sessions  # brings sqlite3, which `context` does without

    return open_sessions(here.workspace, here.settings, lock_timeout=here.lock_timeout)


def _recalled(here: Here, query: str, top_k: int, session_id: str | None) -> "list[Episode]":
    sessions = _sessions(here)
    if session_id is not None:
        sessions.number(session_id)  # a slip would leave nothing out
    agents = [name for name in sessions.agents() if here.agent in (None, name)]
    if not agents:
        Keyword(query)
        return []  # an index would be made for nothing
    from oryx_memory.cli.ranked import semantic_route, tell_of_vectors
    from oryx_memory.episodes import recall
    from oryx_memory.index import open_or_in_memory

    now = stores.local_clock(here.settings["time.zone"])()
    semantic = semantic_route(here)
    with open_or_in_memory(here.workspace.index_file, here.lock_timeout) as index:
        found = recall(
            sessions, index, query, agents=agents, now=now, top_k=top_k, without=session_id, semantic=semantic
        )
    if semantic:
        tell_of_vectors(here, semantic, all_agents=here.agent is None)
    return found


def _episode(here: Here, item: "Episode") -> None:
    time = item.time.isoformat(" ", "seconds") if item.time else "-"
    _heading(here, f"{_word(item.session)}\t{item.turn}\t{time}")
    for role, text in (("user", item.user), ("assistant", item.reply)):
        if text:
            if here.out.fancy and len(text) > _SIDE:
                role = f"{role}, the first {_SIDE} of {len(text):,} characters; --json gives all"
                text = f"{text[:_SIDE]}…"
            _indented(here, f"{role}\n{_shifted(text)}")


def _require_agent(here: Here) -> None:
    """Raises NoAgent for the name of an agent that is nowhere else either."""
    stores.require(here.workspace, here.settings, here.agent, lock_timeout=here.lock_timeout)


def _of(here: Here) -> str:
    return f" of {here.agent}" if here.agent else ""


def _memory(here: Here, store: LongTermMemoryStore) -> Memory:
    """The memory block; what is not in it is counted on standard error."""
    memory = loaded(here, store, here.settings["archival.max_chars"])
    if missing := left_out(memory):
        here.out.talk(missing)
    return memory


def _prompt(here: Here, store: LongTermMemoryStore, turns: Sequence[Turn]) -> Prompt:
    from oryx_memory.tools import openai_tools

    return build_prompt(
        instructions=_instructions(here, store.agent),
        pages=[_page(here, here.workspace.root / name) for name in _PAGES],
        now=stores.local_clock(here.settings["time.zone"])(),
        memory=str(_memory(here, store)),
        turns=turns,
        tools=openai_tools(here.settings["tools.language"]),
    )


def _instructions(here: Here, agent: str | None) -> str:
    """The body of AGENT.md; empty for the global memory and for a name that only a database can have."""
    try:
        here.workspace.memory_file(agent)
    except UnsafeName:
        return ""
    return body(_page(here, here.workspace.agent_page(agent))) if agent else ""


def _page(here: Here, path: Path) -> str:
    """A page that a person wrote, empty where there is none; a link out of the workspace is refused."""
    return (files.read(files.resolve(path, here.workspace.root)) or b"").decode("utf-8-sig", "replace")


def _show(here: Here, made: Prompt, parts: Sequence[Part]) -> None:
    for number, part in enumerate(parts, 1):
        _heading(here, f"[{number}] {part.name}: {part.chars:,} characters, about {part.tokens:,} tokens")
        if part.name == "messages":
            _transcript(here, made.messages)
        elif part.name == "tools":
            for tool in made.tools:
                _heading(here, f"tool {_word(tool.name)}")
                _indented(here, f"{tool.description}\n{compact(tool.schema)}")
        else:
            _indented(here, made.instructions if part.name == "instructions" else made.memory)
    here.out.talk(f"tokens are an estimate: {ESTIMATE}")


def _transcript(here: Here, messages: Iterable[Message]) -> None:
    for message in messages:
        if message.content or not message.tool_calls:
            _heading(here, _speaker(message))
            _indented(here, message.content)
        for call in message.tool_calls:
            _heading(here, f"{_speaker(message)} calls {_named(call.name, call.id)}")
            _indented(here, call.readable_arguments)


def _speaker(message: Message) -> str:
    if message.role == TOOL:
        return f"tool {_named(message.tool_name, message.tool_call_id)}"
    return message.role if message.role in ROLES else f"role {message.role!r}"  # as it is it could look like a heading


def _named(name: str | None, call_id: str | None) -> str:
    return _word(f"{name or 'without name'} ({call_id or 'without id'})")


def _heading(here: Here, text: str) -> None:
    if here.out.fancy:
        from rich.text import Text

        here.out.render(Text(visible(text), "bold"))
    else:
        here.out.data(text)


def _indented(here: Here, text: str) -> None:
    if text:
        here.out.data(_shifted(text))


def _shifted(text: str) -> str:
    """A text two columns to the right."""
    return "\n".join(f"  {line}" if line else "" for line in re.split(r"\r\n|\r|\n", text))


def _word(text: str) -> str:
    """A name on one line, as a field of a row."""
    return one_visible_line(text).replace("\t", "\\t")


def _row(item: "Session") -> list[str]:
    last = item.last_active or item.created
    return [_word(item.id), _word(item.status), str(len(item.turns)), last.isoformat(" ", "seconds") if last else "-"]


def _first_words(item: "Session") -> str:
    text = " ".join(next((message.content for message in item.messages if message.content), "").split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _as_object(item: "Session") -> dict[str, Any]:
    return {
        "id": item.id,
        "agent": item.agent,
        "channel": item.channel,
        "user": item.user,
        "status": item.status,
        "created": _iso(item.created),
        "last_active": _iso(item.last_active),
        "archived": _iso(item.archived),
        "turns": len(item.turns),
    }


def _iso(time: datetime | None) -> str | None:
    return time.isoformat(timespec="seconds") if time else None


def _message(turn: Turn, message: Message) -> dict[str, Any]:
    return {
        "turn": turn.number,
        "role": message.role,
        "content": message.content,
        "tool_name": message.tool_name,
        "tool_call_id": message.tool_call_id,
        "tool_calls": [
            {"id": call.id, "name": call.name, "arguments_json": call.arguments_json} for call in message.tool_calls
        ],
    }
