"""Moving memories between backends, and making a workspace use the other one.

Each agent is one `migrate_to`: what is missing is added in one change of the target, the source is never changed, and a
run that was killed is run again. `switch` holds every source from the last delta through the edit of memory.toml.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from oryx_memory import files, settings, stores
from oryx_memory.errors import RejectedInput, SettingsError, UnsafeName
from oryx_memory.settings import Settings
from oryx_memory.stores.base import LongTermMemoryStore, MigrationReport
from oryx_memory.workspace import Workspace

_TABLE = re.compile(r"^\s*\[", re.MULTILINE)
_BACKEND = re.compile(r"^([ \t]*backend[ \t]*=[ \t]*)(\"[^\"\n]*\"|'[^'\n]*')", re.MULTILINE)


class Pair(NamedTuple):
    """One agent's memory in both backends."""

    source: LongTermMemoryStore
    target: LongTermMemoryStore


def pairs(
    workspace: Workspace,
    source: Settings,
    target: Settings,
    agents: Sequence[str | None],
    rename: Mapping[str, str],
    *,
    lock_timeout: float = 10.0,
) -> list[Pair]:
    """The memories to copy, with the names that they get. Raises RejectedInput where two agents would become one."""
    names = {agent: rename.get(agent, agent) if agent is not None else None for agent in agents}
    if unused := [name for name in rename if name not in names]:
        raise RejectedInput(f"--rename {unused[0]}: no such agent among those to copy")
    if target["backend"] != "sqlite":
        unsafe = []
        for name in names.values():
            try:
                workspace.memory_file(name)
            except UnsafeName:
                unsafe.append(str(name))
        if unsafe:
            raise RejectedInput(
                f"no folder can have the name{'s' * (len(unsafe) > 1)} {', '.join(map(repr, unsafe))}, and the global "
                f"memory is not for merging; add --rename '{unsafe[0]}=NAME'" + " for each" * (len(unsafe) > 1)
            )
    fold = str.casefold if target["backend"] != "sqlite" and workspace.folds_case() else str
    counts = Counter(fold(name) if name is not None else None for name in names.values())
    if doubled := [name for name in names.values() if counts[fold(name) if name is not None else None] > 1]:
        raise RejectedInput(f"several agents would become one, {doubled[0]!r}; add --rename OLD=NEW")
    return [
        Pair(
            stores.open(workspace, source, agent, lock_timeout=lock_timeout),
            stores.open(workspace, target, name, lock_timeout=lock_timeout),
        )
        for agent, name in names.items()
    ]


def copy(memories: Sequence[Pair], *, dry_run: bool = False) -> Iterator[tuple[Pair, MigrationReport]]:
    """Copy one memory after the other."""
    for pair in memories:
        yield pair, pair.source.migrate_to(pair.target, dry_run=dry_run)


def switch(
    workspace: Workspace, memories: Sequence[Pair], backend: str, *, lock_timeout: float = 10.0
) -> list[MigrationReport]:
    """Copy what came since, while no writer of ours can add to a source, and write the backend into memory.toml."""
    path = workspace.settings_file
    with ExitStack() as held:
        for source in {pair.source.resource: pair.source for pair in memories}.values():
            held.enter_context(source.exclusive())
        reports = [report for _, report in copy(memories)]
        with files.Lock(workspace.lock_file(files.resolve(path, workspace.root)), (path,), lock_timeout) as lock:
            files.replace(lock, path, partial(with_backend, backend))
    return reports


def refuse_switch(workspace: Workspace, environment: Mapping[str, str], given: str | None, backend: str) -> None:
    """Raises SettingsError where memory.toml would not be what names the backend after a switch."""
    if settings.reaches_out("backend", backend):
        own = settings.own_file(environment) or "your own settings file"
        raise SettingsError(
            f"{backend} leads out of the project, and no file of a project counts for that; leave out --switch and put "
            f'backend = "{backend}" into {own}, table ["{workspace.root.parent}"]'
        )
    current = settings.load(workspace.root, environment, {"backend": given})
    source = current.sources["backend"]
    named = settings.oryxos_backend(workspace.root, environment)
    if named not in (None, backend):
        raise SettingsError(
            f"memory.backend is {named}: OryxOS would go on with it; change that first",
            settings.application_file(workspace.root),
        )
    if current["backend"] != backend and source not in (
        settings.DEFAULT,
        str(workspace.settings_file),
        str(settings.application_file(workspace.root)),
    ):
        raise SettingsError(f"the backend is named by {source}, which goes over memory.toml; take it out first")


def with_backend(backend: str, data: bytes) -> bytes:
    """A memory.toml that names the backend; every other byte stays. Raises SettingsError for one that is no TOML."""
    import tomllib

    try:
        text = data.decode()
        tables = _TABLE.search(text)
        top = text[: tables.start()] if tables else text
        line = f'backend = "{backend}"'
        if _BACKEND.search(top):
            new = _BACKEND.sub(lambda match: f'{match.group(1)}"{backend}"', top, count=1) + text[len(top) :]
        else:
            new = f"{line}\n{text}"
        if tomllib.loads(new)["backend"] == backend:
            return new.encode()
    except (ValueError, KeyError) as error:
        raise SettingsError(f"memory.toml cannot be edited: {error}") from error
    raise SettingsError(f"memory.toml cannot be edited; write {line} at its top yourself")
