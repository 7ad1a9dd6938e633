"""Settings and where each came from: defaults < OryxOS's application.yml < memory.toml < the person's own config <
environment < flags.

What reaches out of the workspace counts only from the person's own file, the environment or flags: a cloned
repository cannot send memories anywhere. Reading settings writes nothing.
"""

import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from oryx_memory.errors import OryxMemoryWarning, RejectedInput, SettingsError
from oryx_memory.retention import Policy, parse_span

DEFAULT, ENVIRONMENT, FLAG = "default", "environment", "flag"


def _text(*choices: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError(f"must be a text, not {_kind(value)}")
        if choices and value not in choices:
            raise ValueError(f"must be {' or '.join(choices)}, not {value!r}")
        return value

    return check


def _number(least: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"must be a whole number, not {_kind(value)}")
        if value < least:
            raise ValueError(f"must be at least {least}, not {value}")
        return value

    return check


def _names(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"must be a list of texts, not {_kind(value)}")
    return value


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ValueError(f"must be a number over 0 and at most 1, not {value!r}")
    return float(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {_kind(value)}")
    return value


def _span(value: Any) -> timedelta:
    if not isinstance(value, str):
        raise ValueError(f'must be a time span such as "90d", not {_kind(value)}')
    return parse_span(value)


def _zone(value: Any) -> str:
    name = _text()(value)
    if name:
        from zoneinfo import ZoneInfo

        try:
            ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            raise ValueError(
                f"is no time zone that this system knows: {name!r}; write one such as Asia/Shanghai"
            ) from None
    return name


def _kind(value: Any) -> str:
    names: dict[type, str] = {
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "a table",
        type(None): "nothing",
    }
    return names.get(type(value), type(value).__name__)


# Key, default, check. A default of None means "no such rule".
_KEYS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "backend": ("markdown", _text("markdown", "sqlite")),
    "time.zone": ("", _zone),
    "sqlite.path": ("", _text()),
    "agents.unsafe": ("refuse", _text("refuse", "global")),
    "archival.max_chars": (4000, _number(1)),
    "core.max_chars": (8000, _number(1)),
    "recall.mode": ("keyword", _text("keyword", "ranked")),
    "check.ignore": ([], _names),
    "clean.older_than": (None, _span),
    "clean.keep_chars": (None, _number(0)),
    "clean.keep_entries": (None, _number(0)),
    "clean.dedupe": (True, _flag),
    "clean.purge_retired": (None, _span),
    "clean.max_share": (0.5, _share),
    "guard.secrets": ("warn", _text("warn", "refuse", "off")),
}
_CLEAN = [key for key in _KEYS if key.startswith("clean.")]
_ENVIRONMENT = {"backend": "ORYX_MEMORY_BACKEND"}
_PLACEHOLDER = re.compile(r"\$\{([^${}:]+)(?::([^${}]*))?\}")
_ORYXOS = {"backend": "memory.backend", "sqlite.path": "spring.datasource.url"}  # in its application.yml


@dataclass(frozen=True, slots=True)
class Settings:
    """Checked values by dotted key, and the source of each."""

    values: Mapping[str, Any]
    sources: Mapping[str, str]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def policy(self, front_matter: Mapping[str, Any] | None = None, page: Path | None = None) -> Policy:
        """The clean-up policy of `[clean]`, over which goes `memory: clean:` in the front matter of an agent's `page`.

        Raises SettingsError, which names the page and the key.
        """
        values = {**self.values, **_own_clean(front_matter or {}, page)}
        return Policy(**{key.removeprefix("clean."): values[key] for key in _CLEAN})


def load(root: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any] | None = None) -> Settings:
    """The settings of the workspace folder `root` (None: no workspace). Raises SettingsError.

    `flags`: dotted key to value; None values count as not given.
    """
    values = {key: default for key, (default, _) in _KEYS.items()}
    sources = dict.fromkeys(_KEYS, DEFAULT)
    files = [] if root is None else [root / "memory.toml"]
    for path in [*files, *_personal_file(environment)]:
        table = _read_toml(path)
        for key, value in _flatten(table, path, root).items():
            checked = _checked(key, value, path)
            if path in files and key == "sqlite.path" and leads_out(checked):
                _warn_outward(path, key, checked)
                continue
            values[key] = checked
            sources[key] = str(path)
    for key, variable in _ENVIRONMENT.items():
        if given := environment.get(variable):
            values[key] = _checked(key, given, None, variable)
            sources[key] = f"{ENVIRONMENT} {variable}"
    for key, value in (flags or {}).items():
        if value is not None:
            values[key] = _checked(key, value, None, f"--{key.rpartition('.')[2].replace('_', '-')}")
            sources[key] = FLAG
    if root is not None:
        _add_oryxos(root, environment, values, sources)
    return Settings(values, sources)


def application_file(root: Path) -> Path:
    """OryxOS's own settings of the workspace folder `root`."""
    return root.parent / "config" / "application.yml"


def oryxos_backend(root: Path, environment: Mapping[str, str]) -> str | None:
    """The backend that OryxOS's own settings name, or None."""
    path = application_file(root)
    given = _read_yaml(path).get(_ORYXOS["backend"]) if path.is_file() else None
    return None if given is None else _resolved(given, environment)


def leads_out(path: str) -> bool:
    """Whether a path, counted from the folder that holds `.oryxos`, leaves it."""
    return os.path.isabs(path) or os.path.normpath(path).split(os.sep)[0] == ".."


def _warn_outward(path: Path, key: str, value: str) -> None:
    warnings.warn(
        OryxMemoryWarning(
            f"{path}: {key} {value!r} leads out of the project and is ignored; "
            "put it into your own ~/.config/oryx-memory/config.toml if you want it"
        ),
        stacklevel=3,
    )


def _add_oryxos(root: Path, environment: Mapping[str, str], values: dict[str, Any], sources: dict[str, str]) -> None:
    """What application.yml says of the keys that nothing of higher rank names; it is read only if there is one."""
    open_keys = [key for key in _ORYXOS if sources[key] == DEFAULT]
    if "backend" not in open_keys and values["backend"] != "sqlite":
        return
    path = application_file(root)
    if not open_keys or not path.is_file():
        return
    flat = _read_yaml(path)
    for key in open_keys:
        given = flat.get(_ORYXOS[key])
        if given is None:
            continue
        text = _resolved(given, environment)
        if key == "sqlite.path":
            if not text.startswith("jdbc:sqlite:"):
                continue  # another database of OryxOS's; its memory is not in a file
            text = text.removeprefix("jdbc:sqlite:").removeprefix("file:").partition("?")[0]
            if text in ("", ":memory:"):
                continue
            if leads_out(text):
                _warn_outward(path, _ORYXOS[key], text)
                continue
        values[key] = _checked(key, text, path, _ORYXOS[key])
        sources[key] = str(path)


def _resolved(value: Any, environment: Mapping[str, str]) -> str:
    """`${NAME:default}` as Spring replaces it, innermost first."""
    text, before = str(value), None
    while text != before:
        text, before = _PLACEHOLDER.sub(lambda m: environment.get(m[1]) or m[2] or "", text), text
    return text


def _read_yaml(path: Path) -> dict[str, Any]:
    """Dotted keys of a YAML file, as Spring reads them."""
    import yaml  # only where OryxOS's own settings count

    try:
        with open(path, encoding="utf-8") as file:
            documents = [document for document in yaml.safe_load_all(file) if isinstance(document, dict)]
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise SettingsError(f"cannot be read: {str(error).splitlines()[0]}", path) from error
    flat: dict[str, Any] = {}

    def walk(table: dict[Any, Any], prefix: str) -> None:
        for name, value in table.items():
            if isinstance(value, dict):
                walk(value, f"{prefix}{name}.")
            else:
                flat[f"{prefix}{name}"] = value

    for document in documents:
        walk(document, "")
    return flat


def _personal_file(environment: Mapping[str, str]) -> list[Path]:
    base = environment.get("XDG_CONFIG_HOME") or (f"{environment['HOME']}/.config" if environment.get("HOME") else "")
    return [Path(base) / "oryx-memory" / "config.toml"] if os.path.isabs(base) else []


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            import tomllib  # only where there is a file

            return tomllib.load(file)
    except FileNotFoundError:
        return {}
    except PermissionError:
        if not os.access(path.parent, os.X_OK):
            return {}  # another user's home that cannot even be looked into
        raise SettingsError("cannot be read: permission denied", path) from None
    except OSError as error:
        raise SettingsError(f"cannot be read: {str(error.strerror).lower()}", path) from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"is not valid UTF-8 (byte {error.start})", path) from error
    except ValueError as error:  # tomllib's message ends with line and column
        raise SettingsError(f"is not valid TOML: {error}", path) from error


def _flatten(table: dict[str, Any], path: Path, root: Path | None) -> dict[str, Any]:
    """Dotted keys of a settings table; a personal file may hold a table per workspace path, which goes over it."""
    flat: dict[str, Any] = {}
    local: dict[str, Any] = {}
    for name, value in table.items():
        if os.path.isabs(name) and isinstance(value, dict):
            if root is not None and os.path.realpath(name) in (str(root), str(root.parent)):
                local = _flatten(value, path, root)
        elif isinstance(value, dict):
            flat |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            flat[name] = value
    return flat | local


def _own_clean(front_matter: Mapping[str, Any], page: Path | None) -> dict[str, Any]:
    """Checked values by the keys of `[clean]`. A table with nothing in it says nothing, as in TOML."""
    tables = _table(front_matter, "memory", "memory", page)
    for name in tables:
        if name != "clean":
            raise _unknown(f"memory.{name}", ["memory.clean"], page)
    values: dict[str, Any] = {}
    for name, value in _table(tables, "clean", "memory.clean", page).items():
        key, shown = f"clean.{name}", f"memory.clean.{name}"
        if key not in _KEYS:
            raise _unknown(shown, [f"memory.{known}" for known in _CLEAN], page)
        values[key] = _checked(key, value, page, shown)
    return values


def _table(outer: Mapping[str, Any], name: str, shown: str, page: Path | None) -> dict[Any, Any]:
    table = outer.get(name)
    if not isinstance(table, dict | None):
        raise SettingsError(f"{shown} must be a table, not {_kind(table)}", page)
    return table or {}


def _unknown(key: str, known: Iterable[str], path: Path | None) -> SettingsError:
    from difflib import get_close_matches

    near = get_close_matches(key, list(known), 1, 0.5)
    return SettingsError(f"unknown setting {key}" + (f"; did you mean {near[0]}?" if near else ""), path)


def _checked(key: str, value: Any, path: Path | None, shown: str = "") -> Any:
    if key not in _KEYS:
        raise _unknown(key, _KEYS, path)
    try:
        return _KEYS[key][1](value)
    except RejectedInput as error:
        raise SettingsError(f"{shown or key}: {error}", path) from error
    except ValueError as error:
        raise SettingsError(f"{shown or key} {error}", path) from error
