"""Sessions: the conversations in table `sessions` of OryxOS's database, in OryxOS's schema.

What is written is only ever added to what stands there, in one transaction that reads and writes: no writer overwrites
what another one has added. Times are epoch milliseconds, as OryxOS's driver writes and reads them. A session whose JSON is
broken is named and skipped, and nothing is added to it. Reading makes no database.
"""

import re
import sqlite3
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from oryx_memory import database, files
from oryx_memory.errors import FileProblem, NothingFound, OryxMemoryWarning, Refused, RejectedInput
from oryx_memory.matching import Keyword
from oryx_memory.messages import TURNS, Message, ToolCall, Turn, extended, parse, recent, turns
from oryx_memory.settings import Settings, nearest_name

if TYPE_CHECKING:
    from oryx_memory.workspace import Workspace

__all__ = ["Hit", "Message", "Session", "Sessions", "ToolCall", "Turn", "open_sessions"]

Clock = Callable[[], datetime]
_ACTIVE, _ARCHIVED = "active", "archived"
_SCHEMA = (  # OryxOS 0.1.3's own table, as it makes it
    "CREATE TABLE IF NOT EXISTS sessions (session_id VARCHAR(512) PRIMARY KEY, profile_name VARCHAR(255) NOT NULL, "
    "channel VARCHAR(64) NOT NULL, user_id VARCHAR(255) NOT NULL, messages_json TEXT, status VARCHAR(32) NOT NULL, "
    "created_at TIMESTAMP NOT NULL, last_active_at TIMESTAMP, archived_at TIMESTAMP)",
    "CREATE INDEX IF NOT EXISTS idx_sessions_profile ON sessions (profile_name)",
)
_COLUMNS = (
    "session_id, profile_name, channel, user_id, CAST(messages_json AS BLOB), status, "
    "created_at, last_active_at, archived_at"
)


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation at the moment when it was read. Times are local wall-clock times, None where there is none or
    none that can be understood. `stored` is the JSON that the messages stand in.
    """

    id: str
    agent: str
    channel: str
    user: str
    messages: tuple[Message, ...]
    status: str
    created: datetime | None
    last_active: datetime | None
    archived: datetime | None
    stored: bytes | None = field(repr=False)

    @property
    def turns(self) -> Sequence[Turn]:
        """Its turns, in order."""
        return turns(self.messages)


class Row(NamedTuple):
    """A session as it stands in its table, with the number of its row and a digest that differs when its turns or times
    do. `read` reads its messages, and raises FileProblem where their JSON is broken.
    """

    number: int
    digest: str
    read: Callable[[], Session]


@dataclass(frozen=True, slots=True)
class Hit:
    """A line of a session that has a keyword in it: the turn it is in, and the role of who said it."""

    session_id: str
    turn: int
    role: str
    line: str


class Sessions:
    """The sessions of OryxOS's database file, which is opened for each call.

    `clock` gives local wall-clock time, in the zone `zone` (None: the system's); `timeout` is how long to wait for
    another writer, in seconds. Every method raises FileProblem for a file that is no such database, and LockTimeout.
    """

    def __init__(self, path: Path, clock: Clock, *, timeout: float = 10.0, zone: tzinfo | None = None) -> None:
        self.path = path
        self.clock = clock
        self.timeout = timeout
        self.zone = zone

    def create(self, session_id: str, agent: str | None = None) -> Session:
        """Make a session that has no messages yet, or give the one that is there, as OryxOS does.

        The id is `channel:user:agent`; without `agent` the agent is what follows the last colon. Raises RejectedInput.
        """
        channel, user, name = _parted(session_id, agent)
        with self._writing() as connection:
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute(
                "INSERT INTO sessions (session_id, profile_name, channel, user_id, status, created_at) "
                "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (session_id, name, channel, user, _ACTIVE, self._millis()),
            )
            return self._session(self._row(connection, session_id))

    def get(self, session_id: str) -> Session:
        """A session. Raises NothingFound, and FileProblem where its JSON is broken."""
        with self._reading() as connection:
            return self._session(self._row(connection, session_id))

    def append(self, session_id: str, *messages: Message, expected: Session | None = None) -> Session:
        """Add messages at the end of a session, all of them together; durable on return. Returns it as it then is.

        `expected` is the session as the caller knows it: raises Refused where another writer has added to it since, and
        nothing is written. Raises NothingFound, and FileProblem where its JSON is broken.
        """
        self._require_file(session_id)
        with self._writing() as connection:
            session = self._session(self._row(connection, session_id))
            if expected is not None and expected.stored != session.stored:
                raise Refused(
                    f"session {session_id}: another writer has changed it since it was read; nothing was written; "
                    "read it again"
                )
            if not messages:
                return session
            stored, now = extended(session.stored, messages), self._millis()
            connection.execute(
                "UPDATE sessions SET messages_json = CAST(? AS TEXT), last_active_at = ? WHERE session_id = ?",
                (stored, now, session_id),
            )
            return replace(session, messages=parse(stored), stored=stored, last_active=self._time(now))

    def recent_turns(self, session_id: str, n: int = TURNS) -> Sequence[Turn]:
        """The last `n` turns of a session, in order. Raises NothingFound, FileProblem."""
        return recent(self.get(session_id).messages, n)

    def archive(self, session_id: str) -> None:
        """Archive a session; its messages stay as they are, and its time where it is archived. Raises NothingFound."""
        self._require_file(session_id)
        with self._writing() as connection:
            self._row(connection, session_id)
            connection.execute(
                "UPDATE sessions SET status = ?, archived_at = ? WHERE session_id = ? AND status <> ?",
                (_ARCHIVED, self._millis(), session_id, _ARCHIVED),
            )

    def search(self, text: str, *, agent: str | None = None) -> Iterator[Hit]:
        """The lines of all sessions, archived ones too, that have a keyword in them, by the rules of recall.

        The session that was active last comes first, and in it the last turn. Raises RejectedInput.
        """
        wanted = Keyword(text)
        return (
            Hit(session.id, turn.number, message.role, line)
            for session in self.list(agent, archived=True)
            for turn in reversed(session.turns)
            for message in turn.messages
            for line in _lines(message)
            if wanted.matches(line)
        )

    def list(self, agent: str | None = None, archived: bool = False) -> Sequence[Session]:
        """The sessions, of one agent if asked, the one that was active last first; `archived` adds archived ones.

        One whose JSON is broken is left out, and named in an OryxMemoryWarning.
        """
        with self._reading() as connection:
            rows = self._rows(connection) if connection else []
        found: list[Session] = []
        for row in sorted(rows, key=lambda row: self._epoch(row[7]) or self._epoch(row[6]) or 0.0, reverse=True):
            if (agent is None or _word(row[1]) == agent) and (archived or _word(row[5]) != _ARCHIVED):
                try:
                    found.append(self._session(row))
                except FileProblem as error:
                    warnings.warn(OryxMemoryWarning(f"{error}; it was left out"), stacklevel=2)
        return found

    def agents(self) -> Sequence[str]:
        """The agents that have sessions, archived ones too, sorted."""
        with self._reading() as connection:
            if connection is None or not database.has_table(connection, "sessions"):
                return []
            names = {_word(name) for (name,) in connection.execute("SELECT DISTINCT profile_name FROM sessions")}
            return sorted(names - {""})

    def number(self, session_id: str) -> int:
        """The number of a session's row. Raises NothingFound."""
        with self._reading() as connection:
            self._row(connection, session_id)
            assert connection is not None
            (number,) = connection.execute("SELECT rowid FROM sessions WHERE session_id = ?", (session_id,)).fetchone()
            return int(number)

    def rows(self, agent: str, numbers: Collection[int] | None = None) -> Iterator[Row]:
        """The rows of an agent's sessions, archived ones too, in order of their numbers: all, or those of these numbers.
        No messages are read.
        """
        chosen = "" if numbers is None else f"AND rowid IN ({database.marks(numbers)}) "
        sql = f"SELECT rowid, {_COLUMNS} FROM sessions WHERE profile_name = ? {chosen}ORDER BY rowid"
        with self._reading() as connection:
            if connection is None or not database.has_table(connection, "sessions"):
                return
            for number, *row in connection.execute(sql, (agent, *(numbers or ()))):
                yield Row(number, self._digest(row), partial(self._session, tuple(row)))

    def stamp(self) -> str:
        """A text that differs when what is read here would."""
        return database.stamp(self.path, self.zone)

    def settled_stamp(self) -> str | None:
        """The stamp, or None while one more write might not change it."""
        return files.settled(self.stamp())

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        connection = database.connect(self.path, timeout=self.timeout, write=False)
        if connection is None:
            yield None
            return
        with closing(connection), database.problems(self.path, self.timeout):
            connection.text_factory = database.text
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction from the first look to the last write: nobody can write between the two."""
        connection = database.connect(self.path, timeout=self.timeout, write=True)
        assert connection is not None
        with closing(connection), database.problems(self.path, self.timeout):
            connection.text_factory = database.text
            with database.transaction(connection):
                database.refuse_newer(connection, self.path)
                (encoding,) = connection.execute("PRAGMA encoding").fetchone()
                if encoding != "UTF-8":  # what stands in it is read and written as bytes
                    raise FileProblem(
                        self.path, f"is kept in {encoding}, and sessions are in UTF-8; nothing was written"
                    )
                yield connection

    def _require_file(self, session_id: str) -> None:
        if not self.path.exists():  # or it would be made, to be told that the session is not in it
            raise self._unknown(session_id)

    def _rows(self, connection: sqlite3.Connection) -> Sequence[tuple[Any, ...]]:
        if not database.has_table(connection, "sessions"):
            return []
        return connection.execute(f"SELECT {_COLUMNS} FROM sessions ORDER BY rowid DESC").fetchall()

    def _row(self, connection: sqlite3.Connection | None, session_id: str) -> tuple[Any, ...]:
        if connection and database.has_table(connection, "sessions"):
            found = connection.execute(f"SELECT {_COLUMNS} FROM sessions WHERE session_id = ?", (session_id,))
            if row := found.fetchone():
                return tuple(row)
            ids = [_word(name) for (name,) in connection.execute("SELECT session_id FROM sessions")]
            raise self._unknown(session_id, ids)
        raise self._unknown(session_id)

    def _unknown(self, session_id: str, ids: Sequence[str] = ()) -> NothingFound:
        near = nearest_name(session_id, ids)
        hint = f"did you mean {near}?" if near else "`oryx memory session list` lists them"
        return NothingFound(f"no session {session_id} in {self.path}; {hint}")

    def _session(self, row: tuple[Any, ...]) -> Session:
        name, agent, channel, user, status = (_word(row[number]) for number in (0, 1, 2, 3, 5))
        stored, times = row[4], row[6:]
        try:
            messages = parse(stored)
        except ValueError as error:
            raise FileProblem(self.path, f"the messages of session {name} cannot be read: {error}") from error
        created, last_active, archived = map(self._time, times)
        return Session(name, agent, channel, user, messages, status, created, last_active, archived, stored)

    def _digest(self, row: Sequence[Any]) -> str:
        from hashlib import blake2b

        times = f"{self._time(row[6])} {self._time(row[7])}"
        return blake2b((row[4] or b"") + times.encode(), digest_size=16).hexdigest()

    def _millis(self) -> int:
        """Now in epoch milliseconds, finer digits cut off."""
        now = self.clock()
        whole = now.replace(microsecond=0, tzinfo=now.tzinfo or self.zone)
        return int(whole.timestamp()) * 1000 + now.microsecond // 1000

    def _epoch(self, value: Any) -> float | None:
        """A stored time in epoch seconds: milliseconds, or a text as older drivers and other programs write it."""
        try:
            if isinstance(value, str):
                time = datetime.fromisoformat(value.strip())
                return (time if time.tzinfo else time.replace(tzinfo=self.zone)).timestamp()
            return float(value) / 1000
        except (ValueError, TypeError, OverflowError, OSError):
            return None

    def _time(self, value: Any) -> datetime | None:
        """A stored time as local wall-clock time; None for one that cannot be understood."""
        epoch = self._epoch(value)
        try:
            return None if epoch is None else datetime.fromtimestamp(epoch, self.zone).replace(tzinfo=None)
        except (ValueError, OverflowError, OSError):
            return None


def open_sessions(
    workspace: "Workspace", settings: Settings, clock: Clock | None = None, *, lock_timeout: float = 10.0
) -> Sessions:
    """The sessions of a workspace: those of OryxOS's database, whatever the backend of its memories is. Opens nothing yet.

    Raises FileProblem for a database that lies outside and that only the project itself names.
    """
    from oryx_memory.stores import database_path, local_clock, zone_of

    path = database_path(workspace, settings)
    zone = settings["time.zone"]
    return Sessions(path, clock or local_clock(zone), timeout=lock_timeout, zone=zone_of(zone))


def _parted(session_id: str, agent: str | None) -> tuple[str, str, str]:
    """Channel, user and agent of a session's id. Raises RejectedInput."""
    channel, _, rest = session_id.partition(":")
    user, _, last = rest.rpartition(":")
    if agent is not None:
        user, last = (rest.removesuffix(f":{agent}"), agent) if rest.endswith(f":{agent}") else ("", agent)
    if not (channel and user and last and session_id.isprintable()):
        raise RejectedInput(f"not a session id: {session_id!r}; write channel:user:agent, such as cli:local:ops")
    return channel, user, last


def _lines(message: Message) -> Iterator[str]:
    """The lines of a message that people look for: its content, and what it calls."""
    yield from re.split(r"\r\n|\r|\n", message.content)
    for call in message.tool_calls:
        yield f"{call.name} {call.readable_arguments}"


def _word(value: object) -> str:
    """As `database.text_of`; empty for NULL."""
    return "" if value is None else database.text_of(value)
