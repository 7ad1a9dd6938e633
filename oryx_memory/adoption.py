"""`config adopt`: what a project asks for of what reaches out, copied into the person's own settings file.

There it stands in the table of that workspace. Every other byte of the file stays, comments too; what was read after the
change must be what was there and the new values, or nothing is written. A second adoption changes no byte.
"""

import copy
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from oryx_memory import files
from oryx_memory.errors import FileProblem, SettingsError
from oryx_memory.settings import Asked, asked, is_table_of, own_file, own_tables, parse_toml, read
from oryx_memory.workspace import FOLDER


class Wish(NamedTuple):
    """A setting that a project asks for. `old` is what the person's own file says now for this workspace, or None."""

    asked: Asked
    old: Any


class Adoption(NamedTuple):
    """What would be adopted: the person's own file, the name of the workspace's table there, and the wishes.

    `pending` is false where that table has it all.
    """

    file: Path
    table: str
    wishes: tuple[Wish, ...]
    pending: bool


def plan(root: Path, environment: Mapping[str, str], flags: Mapping[str, Any]) -> Adoption:
    """What the project of the workspace folder `root` asks for, checked. Reads only. Raises SettingsError."""
    file = own_file(environment)
    if file is None:
        raise SettingsError("there is no home directory for settings of your own; set HOME or XDG_CONFIG_HOME")
    layers = [table for _, table in own_tables(root, environment)]
    everywhere, here = (layers[0], {k: v for table in layers[1:] for k, v in table.items()}) if layers else ({}, {})
    wanted = asked(root, environment, read(root, environment, flags)["backend"])
    wishes = tuple(Wish(item, (everywhere | here).get(item.key)) for item in wanted)
    pending = any(not item.fault and here.get(item.key) != item.value for item in wanted)
    return Adoption(file, _table_name(root), wishes, pending)


def adopt(root: Path, adoption: Adoption, lock_timeout: float = 10.0) -> None:
    """Write what is asked for into the person's own file. Raises SettingsError, FileProblem, LockTimeout."""
    folder = adoption.file.parent
    wanted = {wish.asked.key: wish.asked.value for wish in adoption.wishes if not wish.asked.fault}
    real = Path(os.path.realpath(adoption.file))  # a link into a folder of dotfiles stays a link
    try:
        files.make_folder(folder)
        with files.Lock(folder / f".{adoption.file.name}.lock", (real,), lock_timeout) as lock:
            _make_private(real)
            files.replace(lock, real, partial(with_table, root, adoption, wanted))
    except OSError as error:
        if isinstance(error, FileProblem | TimeoutError):
            raise
        raise FileProblem(real, f"cannot be written: {str(error.strerror).lower()}") from error


def with_table(root: Path, adoption: Adoption, wanted: Mapping[str, Any], data: bytes) -> bytes:
    """The bytes of a settings file in which the table of the workspace has these values by dotted key. The same bytes
    where it has them. Raises SettingsError for a file that is no TOML or cannot be edited.
    """
    before = parse_toml(data, adoption.file)
    name = next((name for name in reversed(before) if is_table_of(name, root)), adoption.table)
    after = copy.deepcopy(before)
    for key, value in wanted.items():
        _put(after, (name, *key.split(".")), value)
    if after == before:
        return data
    text = data.decode()
    newline = "\r\n" if "\r\n" in text and "\n" not in text.replace("\r\n", "") else "\n"
    text += newline if text and not text.endswith("\n") else ""
    edited = _edited(text, name, wanted)
    if edited is not None and newline == "\r\n":
        edited = edited.replace("\r\n", "\n").replace("\n", "\r\n")
    if edited is None or parse_toml(edited.encode(), adoption.file) != after:
        raise SettingsError(
            f'cannot be edited as it is written; put the settings into its table ["{name}"] yourself', adoption.file
        )
    return edited.encode()


def _put(table: dict[str, Any], place: Sequence[str], value: Any) -> None:
    for name in place[:-1]:
        inner = table.get(name)
        table[name] = inner if isinstance(inner, dict) else {}
        table = table[name]
    table[place[-1]] = value


def _edited(text: str, name: str, wanted: Mapping[str, Any]) -> str | None:
    """A TOML text with these values in its table `name`; None where tomlkit cannot do it."""
    import tomlkit  # only for this: it writes TOML and keeps what was there
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
        if name not in document:
            document.add(tomlkit.key(name), tomlkit.table(is_super_table=True))
        for key, value in wanted.items():
            place: Any = document[name]
            *tables, last = key.split(".")
            for table in tables:
                if table not in place:
                    place[table] = tomlkit.table()
                place = place[table]
            _set(place, last, value)
        return tomlkit.dumps(document)
    except (TOMLKitError, TypeError, AttributeError, KeyError, ValueError):  # it raises all of these on odd documents
        return None


def _set(table: Any, name: str, value: Any) -> None:
    """Give a table a value; a new one before the comments at its end, which are about the table that follows."""
    from tomlkit.items import Table

    behind = []
    if isinstance(table, Table) and name not in table:
        while table.value.body and table.value.body[-1][0] is None:
            behind.append(table.value.body.pop()[1])
    table[name] = value
    for item in reversed(behind):
        table.add(item)


def _table_name(root: Path) -> str:
    name = os.path.realpath(root.parent if root.name == FOLDER else root)
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise SettingsError(f"the path {name!r} is not valid UTF-8, and a settings file cannot name it") from error
    return name


def _make_private(path: Path) -> None:
    """An empty file that nobody else may read, unless there is one: addresses of services are nobody else's matter."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    try:
        files.adopt(descriptor, path.parent)
    finally:
        os.close(descriptor)
