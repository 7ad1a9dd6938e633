"""OryxOS's SQLite file: opening it, the one transaction primitive, our migrations, and what its errors mean.

Only the standard sqlite3: two SQLite libraries in one process break each other's locks. (The index of ranked recall is
another file, and may be opened through pysqlite3, by one library at a time.) An existing journal mode is
never changed, a file that we make is WAL; `synchronous` is FULL, so an acknowledged commit survives a power cut.
`commit` occurs in `transaction` alone. sqlite-utils is imported only where a migration has to run.
"""

import contextlib
import os
import sqlite3
import sys
import time
from collections.abc import Collection, Iterator
from datetime import tzinfo
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from oryx_memory import files
from oryx_memory.errors import FileProblem, LockTimeout

if TYPE_CHECKING:
    from sqlite_utils import Migrations

_PAGE = 4096  # bytes
MIGRATION_SET = "oryx_memory"
MIGRATIONS = ("entries", "agent_name", "details")  # named and append-only; what each does is in `_migrations`
_TABLES = {  # the row id of each, without which a row is lost sight of, and the other columns
    "memory_entries": ("id", {"agent_name", "scope", "content", "created_at"}),
    "memory_entry_details": ("row_id", {"raw", "retired_at", "retired_from", "reason", "run"}),
}


def connect(path: Path, *, timeout: float, write: bool, library: ModuleType = sqlite3) -> sqlite3.Connection | None:
    """Open the database, or None where there is none and nothing will be written. `timeout` in seconds; `library` is
    sqlite3 or another one with its interface.

    Raises FileProblem.
    """
    with problems(path, timeout):
        if not path.exists():
            if not write:
                return None
            _make(path)
        if not path.is_file():  # at a FIFO SQLite would wait for somebody
            raise FileProblem(path, "is not a regular file")
        if write:
            return _opened(path, "rw", timeout, library)
        try:
            return _opened(path, "ro", timeout, library)
        except _errors() as error:
            # A WAL file in a folder that cannot be written: nobody can be writing it either.
            unreachable = getattr(error, "sqlite_errorcode", 0) & 0xFF in (
                sqlite3.SQLITE_CANTOPEN,
                sqlite3.SQLITE_READONLY,
            )
            if not unreachable or os.access(path.parent, os.W_OK) or path.with_name(f"{path.name}-wal").exists():
                raise
            return _opened(path, "ro&immutable=1", timeout, library)


def stamp(path: Path, zone: tzinfo | None) -> str:
    """A text that changes when the database is written or replaced, and when its times are read in another zone."""
    log = path.with_name(f"{path.name}-wal")  # comes and goes, empty, with those who only read
    size = log.stat().st_size if log.exists() else 0
    return f"{files.stamp(path)} {files.stamp(log) if size else '-'} {zone_text(zone)}"


def zone_text(zone: tzinfo | None) -> str:
    """What tells a zone from others; None is the system's."""
    return str(zone or (*time.tzname, time.timezone))


def _opened(path: Path, mode: str, timeout: float, library: ModuleType) -> sqlite3.Connection:
    from urllib.parse import quote

    connection: sqlite3.Connection = library.connect(
        f"file:{quote(str(path))}?mode={mode}", uri=True, timeout=timeout, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")  # what is purged later may have been freed by a move before
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # a file that is no database says so here
    except BaseException:
        connection.close()
        raise
    return connection


def _make(path: Path) -> None:
    """Make an empty database in WAL mode; it takes its name only when it is whole, and replaces nothing."""
    # Threads of one process make it at once, too.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.oryx-tmp")
    try:
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            files.adopt(descriptor, path.parent)
        finally:
            os.close(descriptor)
        with contextlib.closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """One transaction that takes the write lock at once; inside another one, a savepoint."""
    nested = connection.in_transaction
    connection.execute("SAVEPOINT oryx" if nested else "BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # an error such as a full disk may have ended it already
            connection.execute("ROLLBACK TO oryx" if nested else "ROLLBACK")
        raise
    connection.execute("RELEASE oryx" if nested else "COMMIT")


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the tables up to date, if our record says that they are not. Raises FileProblem for a newer file, and for
    tables of other programs that have the same names.
    """
    if _applied(connection, path) == set(MIGRATIONS):
        return
    from sqlite_utils import Database

    with transaction(connection):
        _migrations().apply(Database(connection))
        for table, (key, names) in _TABLES.items():
            rows = connection.execute(
                "SELECT name FROM pragma_table_info(?) WHERE pk = 1 AND type = 'INTEGER'", (table,)
            )
            if rows.fetchall() != [(key,)] or not names <= columns(connection, table):
                raise FileProblem(path, f"has a table {table} of another program; nothing was added")


def refuse_newer(connection: sqlite3.Connection, path: Path) -> None:
    """Raises FileProblem for a file that a newer version of this package brought up to date."""
    _applied(connection, path)


def _applied(connection: sqlite3.Connection, path: Path) -> set[str]:
    if not has_table(connection, "_sqlite_migrations"):
        return set()
    rows = connection.execute("SELECT name FROM _sqlite_migrations WHERE migration_set = ?", (MIGRATION_SET,))
    applied = {name for (name,) in rows}
    if unknown := applied.difference(MIGRATIONS):
        raise FileProblem(path, f"was made by a newer oryx-memory ({', '.join(sorted(unknown))}); update this one")
    return applied


def _migrations() -> "Migrations":
    from sqlite_utils import Database, Migrations

    migrations = Migrations(MIGRATION_SET)

    @migrations(name="entries")
    def entries(db: Database) -> None:  # OryxOS 0.1.3's own table, as it makes it
        db.conn.execute(
            "CREATE TABLE IF NOT EXISTS memory_entries (id INTEGER PRIMARY KEY AUTOINCREMENT, "
            "agent_name VARCHAR(128) NOT NULL DEFAULT '__global__', scope VARCHAR(16) NOT NULL, "
            "content TEXT NOT NULL, created_at TIMESTAMP NOT NULL)"
        )
        db.conn.execute("CREATE INDEX IF NOT EXISTS idx_memory_scope ON memory_entries (scope)")

    @migrations(name="agent_name")
    def agent_name(db: Database) -> None:  # a file from before OryxOS told agents apart
        if "agent_name" not in columns(db.conn, "memory_entries"):
            db.conn.execute(
                "ALTER TABLE memory_entries ADD COLUMN agent_name VARCHAR(128) NOT NULL DEFAULT '__global__'"
            )
        db.conn.execute("CREATE INDEX IF NOT EXISTS idx_memory_agent ON memory_entries (agent_name, scope)")

    @migrations(name="details")
    def details(db: Database) -> None:  # what a row of OryxOS has no place for
        db.conn.execute(
            "CREATE TABLE IF NOT EXISTS memory_entry_details (row_id INTEGER PRIMARY KEY, raw TEXT, retired_at TEXT, "
            "retired_from VARCHAR(16), reason TEXT, run TEXT)"
        )

    return migrations


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Whether the database has a table."""
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,))
    return found.fetchone() is not None


def columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """The names of a table's columns."""
    return {name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}


def text(data: bytes) -> str:
    """Text as other programs may have left it: with U+FFFD for what is no UTF-8."""
    return data.decode(errors="replace")


def text_of(value: object) -> str:
    """What stands in a column of texts, where another program may have put anything."""
    return text(value) if isinstance(value, bytes) else str(value)


def marks(values: Collection[object]) -> str:
    """As many question marks as there are values, for `IN (…)`."""
    return ", ".join("?" * len(values))


def _errors() -> tuple[type[Exception], ...]:
    """What SQLite raises: pysqlite3's errors are no subclasses of the standard library's."""
    other = sys.modules.get("pysqlite3.dbapi2")
    return (sqlite3.Error, other.Error) if other else (sqlite3.Error,)


def _is_full(path: Path) -> bool:
    """Whether the disk of a file has no page left."""
    try:
        status = os.statvfs(path.parent)
    except OSError:
        return False
    return status.f_bavail * status.f_frsize < _PAGE


@contextlib.contextmanager
def problems(path: Path, timeout: float) -> Iterator[None]:
    """Tell SQLite's errors as one line with the file. Raises FileProblem, or LockTimeout for a file that is locked."""
    try:
        yield
    except _errors() as error:
        extended = getattr(error, "sqlite_errorcode", 0)
        code = extended & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise LockTimeout(path, timeout) from error
        messages = {
            sqlite3.SQLITE_NOTADB: "is not a SQLite database, or is encrypted",
            sqlite3.SQLITE_CORRUPT: "is corrupt; restore it from a backup, or try sqlite3's .recover",
            sqlite3.SQLITE_READONLY: "is read-only; nothing was written",
            sqlite3.SQLITE_FULL: "no space left on the disk; nothing was added",
            sqlite3.SQLITE_CANTOPEN: "cannot be opened; look at its owner, its mode and its folder's",
        }
        if extended == sqlite3.SQLITE_IOERR_SHMSIZE or (code == sqlite3.SQLITE_IOERR and _is_full(path)):
            code = sqlite3.SQLITE_FULL  # which SQLite says itself only of some files
        raise FileProblem(path, messages.get(code, str(error))) from error
    except FileNotFoundError as error:
        raise FileProblem(path, "its folder is not there") from error
    except OSError as error:
        if isinstance(error, FileProblem | LockTimeout):
            raise
        raise FileProblem(path, str(error.strerror or error).lower()) from error
