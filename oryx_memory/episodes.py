"""Episodes: the turns of past sessions, as something to recall.

They stand in the derived index beside the entries, those of an agent as a memory of their own: what the user said and what
the assistant replied, without tool calls, their results and system messages, and with each likely credential replaced by
its kind. A place in the index names the row of a session and the turn in it, so an answer is read from the session itself,
and is given only if it still says what was indexed. Nothing is stored but in the index, and sessions are only read.
"""

import json
import warnings
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from oryx_memory.changes import Snapshot
from oryx_memory.entry import Entry, formed, one_line
from oryx_memory.errors import FileProblem, OryxMemoryWarning
from oryx_memory.guard import masked
from oryx_memory.index import Index, Part, Parts
from oryx_memory.messages import ASSISTANT, USER, Turn
from oryx_memory.recall import Hit, Semantic, ranked
from oryx_memory.sessions import Row, Session, Sessions

TOP_K = 5  # episodes that one recall gives
MOST = 20_000  # characters of each side that are searched: a file that was pasted is known by its start
TURNS = 1 << 31  # places of a session; with as many sessions, a place is an integer of SQLite
FORMAT = 1  # of what is indexed of a turn; another one is indexed anew


class Episode(NamedTuple):
    """One turn of a past session, and how well it answers (see `recall.ranked`). Credentials in the texts are replaced by
    their kind. `time` is local, None where it is not known: sessions say when they began and when they were active last.
    """

    session: str
    turn: int
    time: datetime | None
    agent: str
    user: str
    reply: str
    score: float


class Episodes:
    """The episodes of an agent, as a source for the index."""

    def __init__(self, sessions: Sessions, agent: str) -> None:
        self.sessions = sessions
        self.agent = agent

    @property
    def resource(self) -> str:
        """The table in its database: the memory of the agent may be in the same file."""
        return f"{self.sessions.path}/sessions"

    def stamp(self) -> str:
        """A text that differs when a session would."""
        return self.sessions.stamp()

    def settled_stamp(self) -> str | None:
        """The stamp, or None while one more write might not change it."""
        return self.sessions.settled_stamp()

    def archival_since(self, mark: str | None) -> Parts:
        """The episodes of the sessions that are not as they were when the mark was given. Only these are parsed; one whose
        JSON is broken has no episodes, and is named in an OryxMemoryWarning. Raises FileProblem.
        """
        known, now = _known(mark), {}
        changed: list[Part] = []
        for row in self._rows():
            now[row.number] = row.digest
            if known.pop(row.number, None) != row.digest:
                changed.append(Part(_places(row.number), _entries(row)))
        changed += (Part(_places(number), {}) for number in known)
        return Parts(changed, json.dumps([FORMAT, now]))

    def read(self, *, retired: bool = False) -> Snapshot:
        """All episodes, as archival entries; none is ever retired. Raises FileProblem."""
        return Snapshot(archival=tuple(entry for row in self._rows() for entry in _entries(row).values()))

    def recall_by_keyword(self, keyword: str) -> list[Entry]:
        """None: a text of nothing but signs, which are no words, is what `Sessions.search` looks for."""
        return []

    def places(self, session_id: str) -> range:
        """The places of a session. Raises NothingFound, FileProblem."""
        number = self.sessions.number(session_id)
        return _places(number) if _has_places(number) else range(0)

    def episodes(self, hits: Collection[Hit]) -> list[Episode]:
        """What was found, read from the sessions, in order; what is not there any more is left out. Raises FileProblem."""
        found = {hit.place: hit for hit in hits if hit.place is not None}
        read: dict[int, Episode] = {}
        for row in self._rows({place // TURNS for place in found}):
            session, start = _session(row), _places(row.number).start
            for turn, time in _timed(session) if session else ():
                hit = found.get(start + turn.number)
                if session and hit and _entry(turn, time) == hit.entry:
                    read[start + turn.number] = Episode(
                        session.id, turn.number, time, self.agent, *_sides(turn), hit.score
                    )
        return [read[place] for place in found if place in read]

    def _rows(self, numbers: Collection[int] | None = None) -> Iterator[Row]:
        return (row for row in self.sessions.rows(self.agent, numbers) if _has_places(row.number))


def recall(
    sessions: Sessions,
    index: Index,
    query: str,
    *,
    agents: Collection[str],
    now: datetime,
    top_k: int = TOP_K,
    without: str | None = None,
    semantic: Semantic | None = None,
) -> list[Episode]:
    """The episodes of agents that answer a query, best first; none of the session `without`. `now` (local) is what relative
    dates count from.

    Raises RejectedInput for a blank query, NothingFound for a session that is not there, FileProblem, LockTimeout.
    """
    found: list[Episode] = []
    for agent in agents:
        source = Episodes(sessions, agent)
        places = source.places(without) if without is not None else range(0)
        hits = ranked(source, index, query, now=now, limit=top_k, semantic=semantic, without=places).hits
        found += source.episodes(hits)
    return sorted(found, key=lambda episode: -episode.score)[:top_k]


def _has_places(number: int) -> bool:
    """Other numbers are given to rows by hand alone, and their places would be no integers of SQLite."""
    return 0 < number < TURNS


def _places(number: int) -> range:
    """The places that the session of a row has in the index."""
    return range(number * TURNS, (number + 1) * TURNS)


def _known(mark: str | None) -> dict[int, str]:
    """The digests of sessions, by row, that a mark stands for."""
    form, digests = json.loads(mark) if mark else (FORMAT, {})
    return {int(number): digest if form == FORMAT else "" for number, digest in digests.items()}


def _session(row: Row) -> Session | None:
    try:
        return row.read()
    except FileProblem as error:
        warnings.warn(OryxMemoryWarning(f"{error}; it was left out"), stacklevel=2)
        return None


def _entries(row: Row) -> Mapping[int, Entry]:
    """What is searched of a session, by place."""
    session = _session(row)
    timed = ((turn, _entry(turn, time)) for turn, time in (_timed(session) if session else ()))
    start = _places(row.number).start
    return {start + turn.number: entry for turn, entry in timed if entry}


def _timed(session: Session) -> Iterator[tuple[Turn, datetime | None]]:
    """The turns of a session with their times as far as these can be known: the first is of when it began, the last of when
    it was active last, and those between are of the day of both, if that is one day.
    """
    first, last = session.created or session.last_active, session.last_active or session.created
    one_day = first and last and first.date() == last.date()
    turns = session.turns
    for at, turn in enumerate(turns):
        yield turn, last if at == len(turns) - 1 else first if at == 0 or one_day else None


def _entry(turn: Turn, time: datetime | None) -> Entry | None:
    """What is searched of a turn: one line; None for one in which nobody says anything."""
    sides = _sides(turn)
    if not any(sides):
        return None
    return Entry(formed(one_line(" ⇒ ".join(side[:MOST] for side in sides)), time))


def _sides(turn: Turn) -> tuple[str, str]:
    """What the user says in a turn, and all that the assistant says; likely credentials are replaced by their kind."""
    user, reply = ([message.content for message in turn.messages if message.role == role] for role in (USER, ASSISTANT))
    return masked("\n".join(filter(str.strip, user))), masked("\n".join(filter(str.strip, reply)))
