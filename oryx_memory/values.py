"""What the value of a setting may be: one check for each kind.

A check is a function that gives the value as the program uses it, or raises ValueError (RejectedInput is one) with a
message that goes on from the setting's name: `must be at least 1, not 0`.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from oryx_memory.entry import is_tag

Check = Callable[[Any], Any]


def text(*choices: str) -> Callable[[Any], str]:
    """A text, one of `choices` if there are any."""

    def check(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError(f"must be a text, not {kind(value)}")
        if choices and value not in choices:
            raise ValueError(f"must be {' or '.join(filter(None, choices))}, not {value!r}")
        return value

    return check


def number(least: int) -> Callable[[Any], int]:
    """A whole number of at least `least`."""

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"must be a whole number, not {kind(value)}")
        if value < least:
            raise ValueError(f"must be at least {least}, not {value}")
        return value

    return check


def names(value: Any) -> list[str]:
    """A list of texts."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"must be a list of texts, not {kind(value)}")
    return value


def tags(value: Any) -> list[str]:
    """A list of tags, each with or without its `#`: one that no entry can carry would keep nothing back."""
    found = [name.removeprefix("#") for name in names(value)]
    for name in found:
        if not is_tag(name):
            raise ValueError(f"has {name!r}, which is no tag: letters, digits, _ - / and not digits alone")
    return found


def share(value: Any) -> float:
    """A number over 0 and at most 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ValueError(f"must be a number over 0 and at most 1, not {value!r}")
    return float(value)


def seconds(value: Any) -> float:
    """A time in seconds, over 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be a number of seconds, not {kind(value)}")
    if not 0 < value < 86_400:  # nan is not
        raise ValueError(f"must be a number of seconds over 0 and under a day, not {value}")
    return float(value)


def flag(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {kind(value)}")
    return value


def span(value: Any) -> timedelta:
    """A time span such as "90d"."""
    if not isinstance(value, str):
        raise ValueError(f'must be a time span such as "90d", not {kind(value)}')
    from oryx_memory.retention import parse_span  # no command that only appends or recalls comes here

    return parse_span(value)


def zone(value: Any) -> str:
    """The IANA name of a time zone, or an empty text."""
    name = text()(value)
    if name:
        from zoneinfo import ZoneInfo

        try:
            ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            raise ValueError(
                f"is no time zone that this system knows: {name!r}; write one such as Asia/Shanghai"
            ) from None
    return name


def path(value: Any) -> str:
    """A path, or an empty text."""
    if "\0" in text()(value):
        raise ValueError("must be a path, and no path has a NUL character")
    return str(value)


def address(value: Any) -> str:
    """The address of a service, without user and password, or an empty text."""
    if text()(value) and not re.fullmatch(r"https?://[^\s/?#@\x00-\x20\x7f]+(?:/[!-~]*)?", value):
        raise ValueError("must be an address such as https://example.org/v1")
    return str(value)


def identifier(value: Any) -> str:
    """A name for a service, of visible ASCII characters, or an empty text."""
    if text()(value) and not re.fullmatch(r"[!-~]+", value):
        raise ValueError("must be a name of visible ASCII characters without blanks")
    return str(value)


def variable(value: Any) -> str:
    """The name of an environment variable in capitals, or an empty text. A key that was put there is not repeated."""
    if text()(value) and not is_variable(value):
        raise ValueError("must be the name of an environment variable in capitals, such as OPENAI_API_KEY")
    return str(value)


def is_variable(value: str) -> bool:
    """Whether a text can be the name of an environment variable and hardly a key itself.

    Capitals, digits and `_`, and no run of 16 letters and digits mixed: most keys have small letters, others are long.
    """
    return re.fullmatch("[A-Z_][A-Z0-9_]*", value) is not None and not any(
        len(part) >= 16 and re.search("[0-9]", part) for part in value.split("_")
    )


def kind(value: Any) -> str:
    """What a value is, in a message."""
    kinds: dict[type, str] = {
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "a table",
        type(None): "nothing",
    }
    return kinds.get(type(value), type(value).__name__)
