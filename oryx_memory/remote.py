"""What all who ask a service over HTTP share: which host an address means, the key, how to wait, what to retell.

A key goes to the host that a person configured and nowhere else, a service on this machine is asked without a proxy, and
no message repeats a key or the text of a memory, whatever the server quotes back.
"""

import random
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from oryx_memory.errors import SettingsError

_READ = 500  # characters of a server's message that are looked at
_LONGEST = 200  # and of them those that are shown


class Pace(NamedTuple):
    """How retries wait: a sleep in seconds, random numbers from 0 to 1, a clock in seconds that only goes forward."""

    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic


def host_of(base_url: str, setting: str) -> tuple[str, bool]:
    """Host and port of an address, and whether it is another machine. Raises SettingsError, which names the setting."""
    from ipaddress import ip_address

    try:
        parts = urlsplit(base_url)
        host, port = parts.hostname or "", parts.port
        host.encode("idna")  # what the connection would fail at, with an error of no library's own
    except ValueError as error:
        raise SettingsError(f"{setting}: {legible(str(error))}") from None
    if parts.scheme not in ("http", "https") or not host or parts.query or re.search(r"[\s#]", base_url):
        raise SettingsError(f"{setting} must be like https://api.example.com/v1")
    if parts.username is not None:
        raise SettingsError(f"{setting} holds a name or a password; name a variable under api_key_env instead")
    try:
        loopback = ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    shown = f"[{host}]" if ":" in host else host
    return (f"{shown}:{port}" if port else shown), not loopback


def key_in(variable: str, wanting: str, environment: Mapping[str, str]) -> str:
    """The key in a variable, "" where none is named. Raises SettingsError, which names the variable and what it is for."""
    if not variable:
        return ""
    key = environment.get(variable, "").strip()
    if not key:
        raise SettingsError(f"{wanting} needs its key in the environment variable {variable}")
    if not (key.isascii() and key.isprintable()):
        raise SettingsError(f"the environment variable {variable} holds characters that no key has")
    return key


def asked_wait(headers: Mapping[str, str]) -> float | None:
    """The seconds that Retry-After asks to wait, or None. `headers`: of the answer, by lower-case name."""
    given = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", given):
        return float(given)
    from email.utils import parsedate_to_datetime

    try:  # a date counts from the server's own clock; ours may be wrong
        ends, sent = (parsedate_to_datetime(date) for date in (given, headers.get("date", "")))
        return max(0.0, (ends - sent).total_seconds())
    except (TypeError, ValueError, IndexError):
        return None


def wait_before(tries: int, asked: float | None, pace: Pace) -> float:
    """The seconds to wait after so many tries: what the server asked for, or twice as long each time; a random part
    keeps all who were told the same from coming back at once.
    """
    if asked is not None:
        return asked + pace.random()
    return min(8.0, 0.5 * 2.0 ** (tries - 1)) * (0.5 + pace.random() / 2)


def retold(message: str, key: str, texts: Iterable[str]) -> str:
    """What a server said, as one line, without our key and texts."""
    return legible(without_echo(without_echo(message[:_READ], [key], 6), texts, 16))


def without_echo(message: str, secrets: Iterable[str], shared: int) -> str:
    """A message in which `…` stands for each run of `shared` or more bytes (UTF-8) that it has in common with one of the
    secrets, and for a shorter secret as a whole: servers like to quote what they were sent.
    """
    data = message.encode("utf-8", "replace")
    known = [secret.encode("utf-8", "replace") for secret in secrets if secret]
    text = b"\n".join(known)
    hidden = bytearray(len(data))
    for at in range(len(data) - shared + 1):
        if data[at : at + shared] in text:
            hidden[at : at + shared] = b"\1" * shared
    for short in {secret for secret in known if 3 < len(secret) < shared}:
        for match in re.finditer(re.escape(short), data):
            hidden[match.start() : match.end()] = b"\1" * len(short)
    shown = bytes(byte if not gone else 0xFF for byte, gone in zip(data, hidden, strict=True))
    return re.sub("\ufffd+", "…", shown.decode("utf-8", "replace")) if any(hidden) else message


def legible(message: str) -> str:
    """A foreign message as one line: control and bidirectional characters as escapes, and cut short, which it says."""
    line = " ".join(message.split())
    safe = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in line[:_LONGEST])
    return f"{safe}… (cut)" if len(line) > _LONGEST else safe
