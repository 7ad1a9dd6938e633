"""Settings and where each came from: defaults < memory.toml < the person's own config < environment < flags.

What reaches out of the workspace counts only from the person's own file, the environment or flags: a cloned
repository cannot send memories anywhere. Reading settings writes nothing.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from oryx_memory.errors import RejectedInput, SettingsError
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
    "clean.older_than": (None, _span),
    "clean.keep_chars": (None, _number(0)),
    "clean.keep_entries": (None, _number(0)),
    "clean.dedupe": (True, _flag),
    "clean.purge_retired": (None, _span),
    "clean.max_share": (0.5, _share),
}
_ENVIRONMENT = {"backend": "ORYX_MEMORY_BACKEND"}


@dataclass(frozen=True, slots=True)
class Settings:
    """Checked values by dotted key, and the source of each."""

    values: Mapping[str, Any]
    sources: Mapping[str, str]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def policy(self) -> Policy:
        """The clean-up policy of `[clean]`."""
        return Policy(**{key.removeprefix("clean."): self.values[key] for key in _KEYS if key.startswith("clean.")})


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
            values[key] = _checked(key, value, path)
            sources[key] = str(path)
    for key, variable in _ENVIRONMENT.items():
        if given := environment.get(variable):
            values[key] = _checked(key, given, None, variable)
            sources[key] = f"{ENVIRONMENT} {variable}"
    for key, value in (flags or {}).items():
        if value is not None:
            values[key] = _checked(key, value, None, f"--{key.rpartition('.')[2].replace('_', '-')}")
            sources[key] = FLAG
    return Settings(values, sources)


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


def _checked(key: str, value: Any, path: Path | None, shown: str = "") -> Any:
    if key not in _KEYS:
        from difflib import get_close_matches

        near = get_close_matches(key, _KEYS, 1, 0.5)
        raise SettingsError(f"unknown setting {key}" + (f"; did you mean {near[0]}?" if near else ""), path)
    try:
        return _KEYS[key][1](value)
    except RejectedInput as error:
        raise SettingsError(f"{shown or key}: {error}", path) from error
    except ValueError as error:
        raise SettingsError(f"{shown or key} {error}", path) from error
