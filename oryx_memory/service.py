"""MemoryService: what an agent's runtime asks for memory, whatever backend keeps it.

It gives the text for the prompt, remembers, recalls and records what happened, for the current agent: a context variable,
so that threads and asyncio tasks that serve different agents do not meet. It holds no file and no lock between two calls;
one service may be used by many threads at once, and goes on in a forked process. An agent that is absent is empty to
those who read, and is made by those who write.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from oryx_memory import changes, stores
from oryx_memory.changes import Snapshot
from oryx_memory.entry import Entry, Scope
from oryx_memory.errors import RejectedInput, ServiceProblem, SettingsError
from oryx_memory.settings import Settings, Watched
from oryx_memory.stores import Clock, LongTermMemoryStore, RecallCapability
from oryx_memory.workspace import Workspace, discover, named

if TYPE_CHECKING:
    from logging import Logger

    from oryx_memory.embeddings import Embedder
    from oryx_memory.episodes import Episode
    from oryx_memory.index import Index
    from oryx_memory.sessions import Session
    from oryx_memory.vectors import Semantic

POLICIES = ("window",)
LIMIT = 20  # keyword hits that one recall gives
RANKED_LIMIT = 10  # entries that it gives where no keyword hits

_current: ContextVar[str | None] = ContextVar("oryx_memory_current_agent", default=None)


@contextmanager
def current_agent(name: str | None) -> Iterator[None]:
    """The agent on whose memory the service works within a `with` statement; None is the global memory.

    It nests, and on leaving, by an error too, the agent before is back. An asyncio task has the agent of where it was
    made. A new thread has none: start it with `contextvars.copy_context().run`, or name the agent in it.
    """
    token = _current.set(name)
    try:
        yield
    finally:
        _current.reset(token)


def current_agent_name() -> str | None:
    """The current agent as it was named, or None."""
    return _current.get()


class Recalled(NamedTuple):
    """What a query found in archival.

    `entries` have it in them, the newest first; where `ranked`, none has, and they answer it best, the best first.
    `left_out` counts further ones that have it. `trouble` tells why meaning took no part, where it was asked for.
    """

    entries: tuple[Entry, ...]
    ranked: bool = False
    left_out: int = 0
    trouble: str = ""


class MemoryService:
    """The memories of a workspace: a Workspace, the path of one, or by default the nearest one upward from here.

    `settings` are by default those of its files and the environment, and follow the files when they change; `clock` gives
    local wall-clock time, by default now in `[time] zone`; `lock_timeout` is in seconds. Raises NoWorkspace, SettingsError.
    All methods raise FileProblem, LockTimeout, ServiceProblem where a service keeps the memory, and SettingsError where a
    file of the settings has been broken since.
    """

    def __init__(
        self,
        workspace: "Workspace | str | os.PathLike[str] | None" = None,
        *,
        settings: Settings | Watched | None = None,
        clock: Clock | None = None,
        lock_timeout: float = 10.0,
    ) -> None:
        if workspace is None:
            workspace = discover()
        self.workspace = workspace if isinstance(workspace, Workspace) else named(Path(workspace))
        self.lock_timeout = lock_timeout
        self._settings = settings or Watched(self.workspace.root, os.environ)
        self._clock = clock
        self._embedder: tuple[tuple[int, dict[str, Any]], Embedder | None, str] | None = None

    @property
    def settings(self) -> Settings:
        """The settings that count now: those of an agent's runtime outlive a change of its backend."""
        return self._settings.current() if isinstance(self._settings, Watched) else self._settings

    @property
    def clock(self) -> Clock:
        """What gives the local wall-clock time."""
        return self._clock or stores.local_clock(self.settings["time.zone"])

    def build_context(self, session: "Session | None" = None, query: str | None = None, policy: str = "window") -> str:
        """The memory block of a prompt: that of the session's agent, or of the current one.

        The policy `window` gives what `load` gives, core whole and the newest archival entries, whatever the query.
        Raises RejectedInput for a policy that is not known.
        """
        if policy not in POLICIES:
            raise RejectedInput(f"unknown policy {policy!r}; known: {', '.join(POLICIES)}")
        store = self._store(session.agent if session else current_agent_name())
        return str(store.load(max_chars=self.settings["archival.max_chars"]))

    def remember(self, content: str, scope: Scope | str = Scope.ARCHIVAL) -> Entry:
        """Remember one text for the current agent, and return its entry; durable on return. What looks like a credential is
        stored with a logged warning, or as `[guard] secrets` says.

        Raises RejectedInput: a blank text, one over 32 KiB or that is no valid Unicode, a scope that is none.
        """
        if scope not in [*Scope]:
            raise RejectedInput(f"unknown section {scope!r}; it is core or archival")
        kinds = self._credentials(content)
        if kinds and self.settings["guard.secrets"] == "refuse":
            from oryx_memory.guard import refusal

            raise RejectedInput(refusal(kinds))
        entry = self._store(current_agent_name()).append(content, Scope(scope))
        if kinds:
            _log().warning("%s looks like a credential (%s); it is stored; forget --purge destroys it", entry.id, kinds)
        return entry

    def recall(self, query: str) -> Recalled:
        """What the current agent's archival memory has about a query: the newest LIMIT entries that have it in them; if
        there is none, the RANKED_LIMIT that answer it best. Of too many hits, footprints are left out first.

        Raises RejectedInput for a blank query.
        """
        store = self._store(current_agent_name())
        hits = store.recall_by_keyword(query)
        if hits:
            shown = _newest(hits[::-1], LIMIT)
            return Recalled(tuple(shown), left_out=len(hits) - len(shown))
        found, trouble = self._ranked(store, query)
        if trouble:
            _log().warning("recall by words and dates only: %s", trouble)
        return Recalled(tuple(found), ranked=bool(found), trouble=trouble)

    def recall_episodes(self, query: str, top_k: int = 5, session: "Session | None" = None) -> "tuple[Episode, ...]":
        """The `top_k` turns of past conversations of the current agent, or of the session's, that answer a query best, the
        best first; none of the session itself. Without an agent there are none.

        Raises RejectedInput for a blank query, and NothingFound for a session that is not stored.
        """
        from oryx_memory.episodes import recall
        from oryx_memory.matching import Keyword
        from oryx_memory.sessions import open_sessions

        Keyword(query)
        agent = session.agent if session else current_agent_name()
        sessions = open_sessions(self.workspace, self.settings, self.clock, lock_timeout=self.lock_timeout)
        if agent is None or agent not in sessions.agents():
            return ()  # an index would be made for nothing
        semantic = self._semantic()
        with self._index() as index:
            found = recall(
                sessions, index, query, agents=(agent,), now=self.clock(), top_k=top_k, semantic=semantic,
                without=session.id if session else None,
            )  # fmt: skip
        if semantic and semantic.trouble:
            _log().warning("episodes by words and dates only: %s", semantic.trouble)
        return tuple(found)

    def forget(self, reference: str) -> tuple[Entry, ...]:
        """Retire the entry of the current agent that an id, a unique start of one or `^key` names; returns what left.

        Raises NothingFound, and RejectedInput for a reference that names several entries.
        """
        change = self._store(current_agent_name()).edit(changes.forget(reference))
        return tuple(retired.copy.entry for retired in change.retire)

    def read_all(self, agent: str | None = None) -> Snapshot:
        """Every live entry of an agent, or of the current one, both sections, in stored order."""
        return self._store(current_agent_name() if agent is None else agent).read()

    def record_trigger(
        self, user_message: str, reply: str, ok: bool = True, *, since: datetime | None = None
    ) -> Entry | None:
        """Record in one archival line, the footprint, that the current agent was asked and replied; returns its entry.

        None, and no line, where the reply failed (`ok` is False) or `[footprint] enabled` is false. Likely credentials
        are replaced by their kind, unless `[guard] secrets` is off: nobody chose to remember these words. `since` is for a
        caller who was stopped in a call before: the same footprint from then on, by its own time, is it.
        """
        if not ok or not self.settings["footprint.enabled"]:
            return None
        from oryx_memory.ranking import footprint

        if self.settings["guard.secrets"] != "off":
            from oryx_memory.guard import masked

            user_message, reply = masked(user_message), masked(reply)
        store, content = self._store(current_agent_name()), footprint(user_message, reply)
        for entry in reversed(store.read().archival if since else ()):
            if since and entry.content == content and entry.time and entry.time >= since:
                return entry
        return store.append(content)

    def _store(self, agent: str | None) -> LongTermMemoryStore:
        """The memory of an agent; for a name that the backend cannot have the global one, with a warning."""
        try:
            if agent is not None:
                agent.encode()
            store = self._opened(agent)
        except (RejectedInput, UnicodeEncodeError):
            store = self._opened(None)
        if store.agent != agent:
            _log().warning("unsafe agent name %.100r: the global memory is used", agent)
        return store

    def _opened(self, agent: str | None) -> LongTermMemoryStore:
        return stores.open(self.workspace, self.settings, agent, self._clock, lock_timeout=self.lock_timeout)

    def _credentials(self, text: str) -> str:
        """The kinds of the likely credentials in a text, or an empty text; never their values."""
        if self.settings["guard.secrets"] == "off":
            return ""
        from oryx_memory.guard import kinds  # not for those who only read

        return kinds(text)

    def _ranked(self, store: LongTermMemoryStore, query: str) -> tuple[list[Entry], str]:
        """The entries that answer a query best, and why meaning took no part, if it was asked for."""
        if store.recall_capability is RecallCapability.DELEGATED:
            try:
                return store.search(query, limit=RANKED_LIMIT), ""
            except ServiceProblem as error:
                return [], str(error)
        if not stores.has_agent(self.workspace, self.settings, store.agent, lock_timeout=self.lock_timeout):
            return [], ""  # an index would be made for nothing
        from oryx_memory.recall import ranked

        semantic = self._semantic()
        with self._index() as index:
            found = ranked(store, index, query, now=self.clock(), limit=RANKED_LIMIT, semantic=semantic)
        return [hit.entry for hit in found.hits], semantic.trouble if semantic else ""

    def _index(self) -> "Index":
        from oryx_memory.index import open_or_in_memory

        return open_or_in_memory(self.workspace.index_file, self.lock_timeout)

    def _semantic(self) -> "Semantic | None":
        """The semantic route where an embedder is configured."""
        chosen = self.settings.embedding
        if not chosen["provider"]:
            return None
        from oryx_memory.breaker import configured
        from oryx_memory.vectors import Semantic

        found, key = self._embedder, (os.getpid(), chosen)  # connections do not survive a fork
        if found is None or found[0] != key:
            try:
                self._embedder = found = key, *configured(chosen, os.environ)
            except SettingsError as error:
                return Semantic(None, "", self.clock, str(error))
        _, embedder, stands_for = found
        return Semantic(embedder, stands_for, self.clock)


def _newest(hits: Sequence[Entry], limit: int) -> list[Entry]:
    """As many of the hits, which are newest first, as the limit allows, in order; footprints only where there is room."""
    if len(hits) <= limit:
        return list(hits)
    from oryx_memory.ranking import is_footprint

    numbers = range(len(hits))
    kept = set(islice((number for number in numbers if not is_footprint(hits[number].content)), limit))
    kept |= set(islice((number for number in numbers if number not in kept), limit - len(kept)))
    return [hits[number] for number in sorted(kept)]


def _log() -> "Logger":
    from logging import getLogger  # takes as long to import as all of this package: not for those who only append

    return getLogger("oryx_memory")
