"""The breaker: a service that did not answer is left alone, so that a loop of commands does not hammer it.

What failed is kept in the index by a fingerprint of how the service was configured: other settings are another service.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from oryx_memory import database
from oryx_memory.errors import FileProblem, LockTimeout, ServiceProblem
from oryx_memory.index import Index

if TYPE_CHECKING:
    from oryx_memory.embeddings import Embedder

WAITS = 30, 900  # seconds that a service which did not answer is left alone: at first, and at most
TABLE = "CREATE TABLE breaker (settings TEXT PRIMARY KEY, time TEXT, wait INT, message TEXT)"


def configured(options: Mapping[str, Any], environment: Mapping[str, str]) -> "tuple[Embedder | None, str]":
    """The embedder that the checked table `[embedding]` names (None: none), and what stands for these settings. Raises
    SettingsError.
    """
    if not options["provider"]:
        return None, ""
    from oryx_memory.embeddings import open_embedder

    embedder = open_embedder(options, environment)
    return embedder, fingerprint(embedder, options, environment) if embedder else ""


def fingerprint(embedder: "Embedder", options: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    """What stands for a service as it was configured under `[embedding]`: other settings are another service, to be asked
    anew. 16 hex digits, from which no key can be read.
    """
    from oryx_memory.embeddings import PRESETS

    preset = PRESETS.get(options.get("provider") or "")
    variable = options.get("api_key_env") or (preset.key if preset else "")
    parts = (embedder.model, options.get("base_url") or "", variable, environment.get(variable, ""))
    return sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:16]


def resting(index: Index, settings: str, now: datetime) -> str | None:
    """Why the service that the settings name is left alone at a time; None if it may be asked."""
    with index.problems():
        sql = "SELECT time, wait, message FROM breaker WHERE settings = ?"
        found = index.connection.execute(sql, (settings,)).fetchone()
    if found is None:
        return None
    since, wait, message = datetime.fromisoformat(found[0]), found[1], found[2]
    if wait is None:
        return f"{message} ({since:%Y-%m-%d %H:%M}); not asked again before the settings change or `oryx memory index` runs"
    until = since + timedelta(seconds=wait)
    # A clock that was set back must not keep the service shut.
    return f"{message}; asked again from {until:%H:%M:%S} on" if since <= now < until else None


def note_failure(index: Index, settings: str, error: ServiceProblem, now: datetime) -> None:
    """Leave the service alone: for a time that doubles with each failure, or where it does not heal for good."""
    first, most = WAITS
    wait = f"min(ifnull(2 * breaker.wait, {first}), {most})" if error.heals else "NULL"
    sql = (
        f"INSERT INTO breaker VALUES (?, ?, {first if error.heals else 'NULL'}, ?) ON CONFLICT (settings) "
        f"DO UPDATE SET time = excluded.time, wait = {wait}, message = excluded.message"
    )
    _note(index, sql, (settings, now.isoformat(timespec="seconds"), str(error)))


def note_success(index: Index) -> None:
    """A service answers: what failed before, with these settings or others, is forgotten."""
    with index.problems():
        if index.connection.execute("SELECT 1 FROM breaker").fetchone() is None:
            return  # as nearly always: nothing is written
    _note(index, "DELETE FROM breaker", ())


def _note(index: Index, sql: str, values: tuple[object, ...]) -> None:
    try:
        with index.problems(), database.transaction(index.connection):
            index.connection.execute(sql, values)
    except (FileProblem, LockTimeout):
        pass  # a search does not fail because the note cannot be written


def last_problem(index: Index) -> str | None:
    """When and why a service did not answer last, if it has not answered since."""
    with index.problems():
        sql = "SELECT time, message FROM breaker ORDER BY time DESC LIMIT 1"
        found = index.connection.execute(sql).fetchone()
    return f"{found[0].replace('T', ' ')}: {found[1]}" if found else None
