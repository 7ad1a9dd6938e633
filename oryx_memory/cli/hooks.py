"""The command record, and `context --hook`: what a coding agent's client calls at the events of a session.

A hook never ends with 2, which would stop the client (the exit codes are made in main.py), never waits for input that
does not come, and prints nothing on standard output but an answer to the client.
"""

import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from select import select
from typing import Annotated

import typer

from oryx_memory import files
from oryx_memory.cli.options import Here, memory_command, title
from oryx_memory.errors import FileProblem, NoWorkspace, RejectedInput
from oryx_memory.hooks import STOP, Client, Event, LastTurn, context, is_whole, last_turn, parse_event
from oryx_memory.project import given, nearest, working_directory
from oryx_memory.service import MemoryService, current_agent

app = typer.Typer(rich_markup_mode=None)

PATIENCE = 3.0  # seconds that a hook waits for its input
QUIET = 0.2  # seconds of silence after which what came is looked at, for a client that leaves its end open
_MAX_INPUT = 16 << 20
_CHUNK = 1 << 16
_KNOWN_TURNS = 1_000  # turns that are told from new ones


@memory_command(app)
def record(
    here: Here,
    hook: Annotated[Client, typer.Option(help="Whose hook this is; its JSON is read from standard input.")],
) -> None:
    """Record the last turn of a coding agent's session as one archival line, its footprint; for the hook Stop.

    \b
    What the user said and what was replied come from the client's transcript, which is only read. A turn is recorded once.
    Exit codes are 0 and 1; docs/mcp.md has the settings of the client. To try it out, with an event that records nothing:
      echo '{"hook_event_name": "Stop", "stop_hook_active": true}' | oryx memory record --hook claude-code -a ops
    """
    event = given_event(here)
    if event.name != STOP:
        raise RejectedInput(
            f"a turn is recorded when the client stops; this is the hook {event.name}, and it is {STOP}"
        )
    if event.again:
        here.out.talk("nothing recorded: the answer is being continued, and its turn was recorded before")
        return
    turn = _turn(event)
    if turn.failed:
        here.out.talk("nothing recorded: the reply was an error")
        return
    service = MemoryService(here.workspace, settings=here.settings, lock_timeout=here.lock_timeout)
    store = here.store(create=True)  # an agent's name that cannot be is refused
    what = f"{event.session}\0{turn.id}\0{store.agent}"
    with _once(here, what, service.clock()) as (is_new, since), current_agent(store.agent):
        if not is_new:
            here.out.talk("nothing recorded: the turn was recorded before")
            return
        entry = service.record_trigger(turn.said, event.reply or turn.reply, since=since)
    here.out.talk(f"recorded {entry.id} for {title(store.agent)}" if entry else "nothing recorded: footprints are off")


def give_context(here: Here) -> None:
    """Answer a hook with the memory of the agent; one that is not there is empty. Raises RejectedInput."""
    event = given_event(here)
    store = here.store(create=True)
    answer = context(event, store.load(max_chars=here.settings["archival.max_chars"]), store.agent)
    here.out.data(answer.text)
    if answer.left_out:
        here.out.talk(answer.left_out)


def given_event(here: Here) -> Event:
    """The event on standard input; `here` then works in its project. Raises RejectedInput, NoWorkspace."""
    event = parse_event(_standard_input())
    if not here.user:
        places = (os.environ.get("CLAUDE_PROJECT_DIR"), event.folder, working_directory())
        found = given(here.given_root, os.environ) or nearest(places)
        if found is None:
            place = next(filter(None, places), "a folder that is gone")
            raise NoWorkspace(f"no .oryxos folder for {place}; run `oryx memory init` there")
        here.workspace = found
    return event


def _standard_input() -> bytes:
    """What the client sends: all of it, or what has come when PATIENCE is over. Raises RejectedInput."""
    if sys.stdin is None or sys.stdin.isatty():
        raise RejectedInput("a hook reads the client's JSON from standard input, and there is none")
    descriptor = sys.stdin.fileno()
    chunks: list[bytes] = []
    size = 0
    end = time.monotonic() + PATIENCE
    while (left := end - time.monotonic()) > 0:
        if not select([descriptor], [], [], min(left, QUIET))[0]:
            if is_whole(b"".join(chunks)):
                break
            continue
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            break
        chunks.append(chunk)
        size += len(chunk)
        if size > _MAX_INPUT:
            raise RejectedInput(f"standard input has more than {_MAX_INPUT >> 20} MiB, which no hook is given")
    if not chunks:
        raise RejectedInput("a hook reads the client's JSON from standard input, and nothing came")
    return b"".join(chunks)


def _turn(event: Event) -> LastTurn:
    if not event.transcript:
        raise RejectedInput("the hook's JSON names no transcript_path, so there is no turn to record")
    path = Path(event.transcript)
    try:
        path = Path(os.path.expanduser(path))
        turn = last_turn(_lines_backward(path))
    except FileProblem:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise FileProblem(
            path, f"transcript cannot be read: {str(getattr(error, 'strerror', error)).lower()}"
        ) from error
    if turn is None:
        raise RejectedInput(f"{path}: the transcript has no message of the user, so there is no turn to record")
    return turn


def _lines_backward(path: Path) -> Iterator[bytes]:
    """The lines of a regular file, the last one first, without holding it whole. Raises OSError, FileProblem."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)  # a FIFO would hold us
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileProblem(path, "is no regular file, which a transcript is")
        at = os.fstat(descriptor).st_size
        line: list[bytes] = []  # parts of one line, the last part first
        while at:
            size = min(_CHUNK, at)
            at -= size
            *before, tail = os.pread(descriptor, size, at).split(b"\n")[::-1]
            for part in before:
                yield b"".join([part, *line[::-1]])
                line = []
            line.append(tail)
        yield b"".join(line[::-1])
    finally:
        os.close(descriptor)


@contextmanager
def _once(here: Here, what: str, now: datetime) -> Iterator[tuple[bool, datetime | None]]:
    """Whether this was done before, in this workspace, by anybody; if not, and no error comes, it is from now on. And where
    somebody began and did not come to the end, since when it may be done all the same.

    The list is state: without it a repeated call would record a turn again, and `clean` takes such a line out.
    """
    place = here.workspace.clean_lock_file.with_name("recorded.lock")
    path = files.resolve(place.with_suffix(".turns"), here.workspace.root)
    name = sha256(what.encode(errors="surrogatepass")).hexdigest()[:24]

    def note(line: str) -> None:
        others = {other: when for other, when in _turns(path).items() if other != name}
        lines = [f"{other} {when}".rstrip() for other, when in others.items()][-_KNOWN_TURNS + 1 :]
        files.replace(lock, path, lambda _: "\n".join([*lines, line]).encode())

    with files.Lock(place, (path,), here.lock_timeout) as lock:
        begun = _turns(path).get(name)
        if begun == "":
            yield False, None
            return
        try:
            since = datetime.fromisoformat(begun).replace(tzinfo=None) if begun else None
        except ValueError:  # not what we wrote
            since = None
        if not since:
            note(f"{name} {now.replace(microsecond=0).isoformat()}")
        yield True, since
        note(name)


def _turns(path: Path) -> dict[str, str]:
    """The turns of the list, each with the time when it was begun, which is empty for one that is done."""
    lines = (files.read(path) or b"").decode(errors="replace").split("\n")
    return {name: when for name, _, when in (line.partition(" ") for line in lines) if name}
