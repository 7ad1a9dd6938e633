"""The sqlite backend: OryxOS's own table `memory_entries`, and one of ours beside it for what it has no place for.

A row holds the content and the time (epoch milliseconds, as OryxOS's driver writes and reads them); the line is formed
from them in `[time] zone`. Only where that would not give the exact line (no time, no seconds, another zone, an hour
that a clock change doubles) it stands in `memory_entry_details.raw`, and is believed only while it agrees with the row.
Retired rows have scope RETIRED, which OryxOS's queries never see. Order is the order of row ids; what is retired stands
in the order in which it left.
"""

import sqlite3
import warnings
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime, tzinfo
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from oryx_memory import database, files
from oryx_memory.changes import Change, Copy, Plan, Snapshot, new_run
from oryx_memory.document import piece
from oryx_memory.entry import BLANKS, Entry, Retirement, Scope, formed
from oryx_memory.errors import OryxMemoryWarning
from oryx_memory.matching import Keyword
from oryx_memory.stores.base import GLOBAL, Clock, LongTermMemoryStore, Stats, Tail
from oryx_memory.window import MAX_CHARS, Memory, load

if TYPE_CHECKING:
    from hashlib import blake2b

    from oryx_memory.stores.spool import Lacking, Spool

ORYXOS_ROWS = 100  # what OryxOS 0.1.3 gives a model of the archival rows
_RETIRED = "RETIRED"
_WHOLE_MINUTES = 63_072_000_000  # 1972, since when zones differ from UTC by whole minutes
_PREFIX = "-*+ [0123456789:]"  # what may stand before the content of a line
_EPOCH = datetime(1970, 1, 1)
_LOWEST = -(2**63)  # row id


class _Row(NamedTuple):
    """A row with its details: `created_at` in epoch milliseconds, or text as older drivers wrote it."""

    id: int
    scope: str
    content: str
    created_at: Any
    raw: str | None
    retired_at: str | None
    retired_from: str | None
    reason: str | None
    run: str | None


class SqliteStore(LongTermMemoryStore):
    """One agent's rows in OryxOS's database. `zone` None is the system's zone."""

    def __init__(
        self, path: Path, agent: str | None, clock: Clock, *, zone: tzinfo | None = None, lock_timeout: float = 10.0
    ) -> None:
        super().__init__(agent, clock)
        self.path = path
        self.zone = zone
        self.lock_timeout = lock_timeout

    @property
    def resource(self) -> str:
        return str(self.path)

    def stamp(self) -> str:
        return database.stamp(self.path, self.zone)

    def settled_stamp(self) -> str | None:
        return files.settled(self.stamp())

    def archival_since(self, mark: str | None) -> Tail:
        from hashlib import blake2b  # loads OpenSSL: not on the way of append, load and keyword recall

        before, last, known = mark.split(" ") if mark else ("0", "0", "")
        with self._reading() as connection:
            if connection is None:
                return Tail(0, (), None)
            new = blake2b(database.zone_text(self.zone).encode(), digest_size=16)
            first, start, digest = int(before), int(last), new.copy()
            self._digest(connection, digest, _LOWEST, start)
            if not mark or digest.hexdigest() != known:
                first, start, digest = 0, _LOWEST, new
            rows = self._rows(connection, "ARCHIVAL", start=start)
            shown = [(row.id, raw) for row in rows if (raw := self._raw(row))]
            if not shown:
                return Tail(first, (), None)
            self._digest(connection, digest, start, shown[-1][0])
            now = f"{first + len(shown) - 1} {shown[-1][0]} {digest.hexdigest()}"
            return Tail(first, [Entry(raw) for _, raw in shown], now)

    def _digest(self, connection: sqlite3.Connection, digest: "blake2b", start: int, end: int) -> None:
        """Add to a digest all that makes the lines of the archival rows from the id `start` on to before `end`."""
        where = self._where(connection)
        if where is None:
            return
        raw, join = self._details(connection, "raw")
        sized = "length(CAST(content AS BLOB)) || ' ' || content || typeof(created_at) || created_at"
        rows = connection.execute(
            f"SELECT CAST(id || ' ' || coalesce({sized}, '') || ' ' || coalesce({raw}, '') AS BLOB) "
            f"FROM memory_entries {join} WHERE {where[0]} AND scope = 'ARCHIVAL' AND id >= ? AND id < ? ORDER BY id",
            (*where[1], start, end),
        )
        for (row,) in rows:
            digest.update(row)

    def read(self, *, retired: bool = False) -> Snapshot:
        with self._reading() as connection:
            return self._snapshot(connection, retired=retired)[0] if connection else Snapshot()

    def add(self, entries: Sequence[Entry]) -> None:
        with self._writing() as connection, database.transaction(connection):
            database.migrate(connection, self.path)
            for entry in entries:
                self._insert(connection, entry)

    def edit(self, plan: Plan, *, dry_run: bool = False) -> Change:
        if dry_run or not self.path.exists():
            change = plan(self.read(retired=True))
            if dry_run or not change:
                return change
        with self._writing() as connection:
            with database.transaction(connection):
                database.refuse_newer(connection, self.path)
                snapshot, rows = self._snapshot(connection, retired=True)
                change = plan(snapshot)
                if change:
                    database.migrate(connection, self.path)
                    known = {entry.retired.run for entry in snapshot.retired if entry.retired}
                    change = replace(change, run=new_run(self.clock(), known))
                    self._apply(connection, rows, change)
            if change.purge:  # the log would keep what was destroyed
                (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                if busy:
                    message = f"{self.path}-wal: another program is reading; what was destroyed stays in it until the next purge"
                    warnings.warn(OryxMemoryWarning(message), stacklevel=2)
            return change

    def fill(self, spool: "Spool") -> Iterator[list["Lacking"]]:
        if not spool.total:
            return
        with self._writing() as connection, database.transaction(connection):
            database.refuse_newer(connection, self.path)
            spool.hold(self._streamed(connection))
            for batch in spool.batches():
                database.migrate(connection, self.path)
                for item in batch:
                    self._insert(connection, item.entry)
                yield batch

    def stream(self) -> Iterator[Entry]:
        with self._reading() as connection:
            if connection:
                yield from self._streamed(connection)

    def _streamed(self, connection: sqlite3.Connection) -> Iterator[Entry]:
        rows = (row for scope in ("CORE", "ARCHIVAL", _RETIRED) for row in self._rows(connection, scope))
        return (_entry(raw, row) for row in rows if (raw := self._raw(row)))

    def recall_by_keyword(self, keyword: str) -> list[Entry]:
        wanted = Keyword(keyword)
        with self._reading() as connection:
            if connection is None:
                return []
            # Only rows that have the keyword are formed into lines one by one.
            entries = (Entry(raw) for row in self._rows_with(connection, wanted) if (raw := self._raw(row)) is not None)
            return [entry for entry in entries if wanted.matches(entry.text)]

    def _rows_with(self, connection: sqlite3.Connection, wanted: Keyword) -> Iterator[_Row]:
        """The archival rows whose line may have the keyword, in order; all that do."""
        where = self._where(connection)
        if where is None:
            return
        # A match may begin in the time, or span lines.
        dated = wanted.folded[0] in _PREFIX or not wanted.folded.isprintable()
        raw, join = self._details(connection, "raw") if dated else ("", "")
        columns = ["id", "CAST(content AS BLOB)", *(("created_at", raw) if dated else ())]
        rows = connection.execute(
            f"SELECT {', '.join(columns)} FROM memory_entries {join} "
            f"WHERE {where[0]} AND scope = 'ARCHIVAL' ORDER BY id",
            where[1],
        ).fetchall()
        if dated:
            prefixes: dict[int, str] = {}
            lines = [self._searchable(prefixes, *row[1:]) for row in rows]
        else:
            lines = [content for _, content in rows]
        starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
        data = b"\n".join(lines)
        done = 0
        found: list[int] = []
        for start, _ in wanted.lines(data, 0, len(data)):
            if start >= done:
                number = bisect_right(starts, start) - 1
                done = starts[number + 1]
                found.append(rows[number][0])
        for first in range(0, len(found), 500):  # SQLite takes a limited number of values in one statement
            yield from self._rows(connection, "ARCHIVAL", ids=found[first : first + 500])

    def _searchable(self, prefixes: dict[int, str], content: bytes, created_at: Any, raw: str | None) -> bytes:
        """The line of a row, the formed and the exact one where it has both. `prefixes` remembers each minute's start."""
        simple = raw is None and type(created_at) is int and created_at > _WHOLE_MINUTES and content[:1] > b" "
        if not simple or content[0] in b"\xe1\xe2\xe3" or b"\n" in content or b"\r" in content:
            formed = self._formed(database.text(content).strip(BLANKS), created_at)
            return (f"{raw}\n{formed}" if raw else formed).encode()
        minute, milliseconds = divmod(created_at, 60_000)
        if minute not in prefixes:
            prefixes[minute] = self._formed("", minute * 60_000)[: len("- [2026-07-22 09:30:")]
        return f"{prefixes[minute]}{milliseconds // 1000:02}] ".encode() + content

    def load(self, *, max_chars: int | None = MAX_CHARS) -> Memory:
        with self._reading() as connection:
            if connection is None:
                return load((), (), 0, max_chars)
            core = [Entry(raw, Scope.CORE) for row in self._rows(connection, "CORE") if (raw := self._raw(row))]
            newest = self._rows(connection, "ARCHIVAL", newest_first=True)
            entries = (Entry(raw) for row in newest if (raw := self._raw(row)))
            total = self._count_archival(connection)
            return load(core, entries, total, max_chars)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        with self._writing() as connection, database.transaction(connection):
            yield

    def load_as_oryxos(self) -> str:
        with self._reading() as connection:
            parts = {scope: list(self._rows(connection, scope.name)) if connection else [] for scope in Scope}
        parts[Scope.ARCHIVAL] = parts[Scope.ARCHIVAL][-ORYXOS_ROWS:]
        return "\n".join("\n".join([scope.heading, *(f"- {row.content}" for row in parts[scope])]) for scope in Scope)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        connection = database.connect(self.path, timeout=self.lock_timeout, write=False)
        if connection is None:
            yield None
            return
        with closing(connection), database.problems(self.path, self.lock_timeout):
            connection.text_factory = database.text
            connection.execute("BEGIN")  # one moment for all that is read
            database.refuse_newer(connection, self.path)
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        connection = database.connect(self.path, timeout=self.lock_timeout, write=True)
        assert connection is not None
        with closing(connection), database.problems(self.path, self.lock_timeout):
            connection.text_factory = database.text
            yield connection

    def _where(self, connection: sqlite3.Connection) -> tuple[str, tuple[str, ...]] | None:
        """The condition of this agent's rows; None where there is no table. An old table has no agents."""
        if not database.has_table(connection, "memory_entries"):
            return None
        if "agent_name" not in database.columns(connection, "memory_entries"):
            return ("1" if self.agent is None else "0"), ()
        return "agent_name = ?", (self.agent or GLOBAL,)

    def _rows(
        self,
        connection: sqlite3.Connection,
        scope: str,
        *,
        newest_first: bool = False,
        ids: Sequence[int] = (),
        start: int = _LOWEST,
    ) -> Iterator[_Row]:
        where = self._where(connection)
        if where is None:
            return
        more, join = self._details(connection, "raw, retired_at, retired_from, reason, run")
        among = f"AND id IN ({database.marks(ids)})" if ids else ""
        order = f"id {'DESC' if newest_first else ''}"
        if scope == _RETIRED and join:  # runs of one second are numbered
            order = "retired_at, CAST(substr(run, instr(run, '-') + 1) AS INTEGER), id"
        for row in connection.execute(
            f"SELECT id, scope, content, created_at, {more} FROM memory_entries {join} "
            f"WHERE {where[0]} AND scope = ? AND id >= ? {among} ORDER BY {order}",
            (*where[1], scope, start, *ids),
        ):
            made = _Row(*row)
            yield made if isinstance(made.content, str) else made._replace(content=database.text_of(made.content))

    def stats(self) -> Stats:
        """Figures of the whole memory; `empty` counts the rows of both sections with nothing in them."""
        figures = super().stats()
        with self._reading() as connection:
            rows = [row for scope in Scope for row in self._rows(connection, scope.name)] if connection else []
            return figures._replace(empty=sum(self._raw(row) is None for row in rows))

    def _details(self, connection: sqlite3.Connection, names: str) -> tuple[str, str]:
        """Columns of our own table and how it is joined; nulls where the table is not there yet."""
        if database.has_table(connection, "memory_entry_details"):
            return names, "LEFT JOIN memory_entry_details ON row_id = id"
        return ", ".join("NULL" for _ in names.split(",")), ""

    def _count_archival(self, connection: sqlite3.Connection) -> int:
        """How many archival rows are shown: an empty one only if it has an exact line."""
        where = self._where(connection)
        if where is None:
            return 0
        details = database.has_table(connection, "memory_entry_details")
        exact = "OR id IN (SELECT row_id FROM memory_entry_details WHERE raw IS NOT NULL)" if details else ""
        sql = (
            f"SELECT count(*) FROM memory_entries WHERE {where[0]} AND scope = 'ARCHIVAL' "
            f"AND (trim(content, ?) != '' {exact})"
        )
        (count,) = connection.execute(sql, (*where[1], BLANKS)).fetchone()
        return int(count)

    def _snapshot(self, connection: sqlite3.Connection, *, retired: bool) -> tuple[Snapshot, dict[str, list[int]]]:
        """The memory, and the row ids of its entries by scope, in the same order."""
        ids: dict[str, list[int]] = {}
        entries: dict[str, list[Entry]] = {}
        for scope in ("CORE", "ARCHIVAL", *([_RETIRED] if retired else [])):
            ids[scope], entries[scope] = [], []
            for row in self._rows(connection, scope):
                raw = self._raw(row)
                if raw:
                    ids[scope].append(row.id)
                    entries[scope].append(_entry(raw, row))
        parts = (tuple(entries.get(scope, ())) for scope in ("CORE", "ARCHIVAL", _RETIRED))
        return Snapshot(*parts), ids

    def _apply(self, connection: sqlite3.Connection, ids: dict[str, list[int]], change: Change) -> None:
        def row(copy: Copy) -> int:
            return ids[_RETIRED if copy.entry.retired else copy.entry.scope.name][copy.at]

        now = self.clock()
        for item in change.retire:
            self._set_retired(
                connection, row(item.copy), item.copy.entry.scope, Retirement(now, item.reason, change.run)
            )
        for edit in change.edit:
            old = self._duplicate(connection, row(edit.copy), _RETIRED)
            self._set_retired(connection, old, edit.copy.entry.scope, Retirement(now, "edited", change.run))
            content, created_at, raw = self._columns(edit.new)
            connection.execute(
                "UPDATE memory_entries SET content = ?, created_at = ? WHERE id = ?",
                (content, created_at, row(edit.copy)),
            )
            connection.execute("DELETE FROM memory_entry_details WHERE row_id = ?", (row(edit.copy),))
            self._set_raw(connection, row(edit.copy), raw)
        for move in change.move:
            self._duplicate(connection, row(move.copy), move.to.name)
            self._delete(connection, row(move.copy))
        for copy in change.restore:
            connection.execute("UPDATE memory_entries SET scope = ? WHERE id = ?", (copy.entry.scope.name, row(copy)))
            connection.execute(
                "UPDATE memory_entry_details SET retired_at = NULL, retired_from = NULL, reason = NULL, run = NULL "
                "WHERE row_id = ?",
                (row(copy),),
            )
        if change.purge:
            vectors = database.has_table(connection, "memory_vectors")
            for copy in change.purge:
                if vectors:  # OryxOS's, derived, and holding the text
                    connection.execute(
                        "DELETE FROM memory_vectors WHERE agent_name = ? AND content = "
                        "(SELECT content FROM memory_entries WHERE id = ?)",
                        (self.agent or GLOBAL, row(copy)),
                    )
                self._delete(connection, row(copy))
        for entry in change.add:
            self._insert(connection, entry)

    def _insert(self, connection: sqlite3.Connection, entry: Entry) -> None:
        piece(entry, b"\n")  # refuses what no MEMORY.md could hold
        content, created_at, raw = self._columns(entry)
        row = connection.execute(
            "INSERT INTO memory_entries (agent_name, scope, content, created_at) VALUES (?, ?, ?, ?)",
            (self.agent or GLOBAL, entry.scope.name, content, created_at),
        ).lastrowid
        assert row is not None
        self._set_raw(connection, row, raw)
        if entry.retired:
            self._set_retired(connection, row, entry.scope, entry.retired)

    def _duplicate(self, connection: sqlite3.Connection, row: int, scope: str) -> int:
        """Add a row like another one, with its exact content, time and line, as the last."""
        new = connection.execute(
            "INSERT INTO memory_entries (agent_name, scope, content, created_at) "
            "SELECT agent_name, ?, content, created_at FROM memory_entries WHERE id = ?",
            (scope, row),
        ).lastrowid
        assert new is not None
        connection.execute(
            "INSERT INTO memory_entry_details (row_id, raw) "
            "SELECT ?, raw FROM memory_entry_details WHERE row_id = ? AND raw IS NOT NULL",
            (new, row),
        )
        return new

    def _set_raw(self, connection: sqlite3.Connection, row: int, raw: str | None) -> None:
        if raw is not None:
            connection.execute("INSERT INTO memory_entry_details (row_id, raw) VALUES (?, ?)", (row, raw))

    def _set_retired(self, connection: sqlite3.Connection, row: int, scope: Scope, why: Retirement) -> None:
        connection.execute("UPDATE memory_entries SET scope = ? WHERE id = ?", (_RETIRED, row))
        connection.execute(
            "INSERT INTO memory_entry_details (row_id, retired_at, retired_from, reason, run) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (row_id) DO UPDATE SET retired_at = excluded.retired_at, "
            "retired_from = excluded.retired_from, reason = excluded.reason, run = excluded.run",
            (row, why.time.isoformat(timespec="seconds"), scope.name, why.reason, why.run),
        )

    def _delete(self, connection: sqlite3.Connection, row: int) -> None:
        connection.execute("DELETE FROM memory_entry_details WHERE row_id = ?", (row,))
        connection.execute("DELETE FROM memory_entries WHERE id = ?", (row,))

    def _columns(self, entry: Entry) -> tuple[str, int, str | None]:
        """Content, created_at, and the exact line if the two would not give it."""
        content = entry.content
        time = entry.time
        created_at = self._millis(time or self.clock().replace(microsecond=0))
        formed = self._formed(content, created_at)
        return content, created_at, None if content and formed == entry.raw else entry.raw

    def _raw(self, row: _Row) -> str | None:
        """The line of a row; None for a row with nothing in it, which is kept and not shown."""
        content = row.content.strip(BLANKS)
        if row.raw is not None:
            entry = Entry(row.raw)
            time = entry.time
            if entry.content == content and (time is None or self._millis(time) == row.created_at):
                return row.raw
        return self._formed(content, row.created_at) if content else None

    def _formed(self, content: str, created_at: Any) -> str:
        """The line of a row; one whose time cannot be read has none."""
        time: datetime | None = None
        try:
            if isinstance(created_at, str):
                time = datetime.fromisoformat(created_at)
            else:
                time = datetime.fromtimestamp(created_at // 1000, self.zone)
        except (ValueError, OverflowError, OSError, TypeError):
            pass
        return formed(content, time)

    def _millis(self, time: datetime) -> int:
        """Local wall-clock time as epoch milliseconds; the first of the two hours that a clock change makes."""
        try:
            return int((time.replace(tzinfo=self.zone) if self.zone else time).timestamp()) * 1000
        except (ValueError, OverflowError, OSError):  # the first and last years, which the system's clock cannot name
            return int((time - _EPOCH).total_seconds()) * 1000


def agents(path: Path, timeout: float = 10.0) -> list[str | None]:
    """The names that have rows in the database, None for the global memory, in order of their first row."""
    connection = database.connect(path, timeout=timeout, write=False)
    if connection is None:
        return []
    with closing(connection), database.problems(path, timeout):
        if not database.has_table(connection, "memory_entries"):
            return []
        if "agent_name" not in database.columns(connection, "memory_entries"):
            return [None]
        rows = connection.execute(
            "SELECT CAST(agent_name AS BLOB), typeof(agent_name) FROM memory_entries GROUP BY agent_name ORDER BY min(id)"
        ).fetchall()
    found: list[str | None] = []
    for data, kind in rows:
        name = database.text(data or b"")
        if kind != "text" or not name or name.encode() != data:
            shown = name if kind == "text" else data
            message = f"{path}: rows of {shown!r} were left out: that is no agent's name"
            warnings.warn(OryxMemoryWarning(message), stacklevel=2)
        else:
            found.append(None if name == GLOBAL else name)
    return found


def has_rows(path: Path, agent: str, timeout: float = 10.0) -> bool:
    """Whether an agent has a row in the database."""
    connection = database.connect(path, timeout=timeout, write=False)
    if connection is None:
        return False
    with closing(connection), database.problems(path, timeout):
        if "agent_name" not in database.columns(connection, "memory_entries"):
            return False
        found = connection.execute("SELECT 1 FROM memory_entries WHERE agent_name = ? LIMIT 1", (agent,))
        return found.fetchone() is not None


def _entry(raw: str, row: _Row) -> Entry:
    if row.scope != _RETIRED:
        return Entry(raw, Scope[row.scope])
    try:
        time = datetime.fromisoformat(row.retired_at or "")
    except ValueError:
        time = _EPOCH
    scope = Scope.CORE if row.retired_from == "CORE" else Scope.ARCHIVAL
    return Entry(raw, scope, Retirement(time, row.reason or "", row.run or ""))
