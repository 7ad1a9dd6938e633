"""One remembered item: a line, its time, its trailer (tags and key) and its id.

The line is the record: everything here is a view of `Entry.raw`, and nothing is stored beside it.
A new line is made only by `Entry.new`, which makes the text one line that OryxOS reads back unchanged.

Format: `- [yyyy-MM-dd HH:mm:ss] content #tag ^key`, as OryxOS 0.1.3 writes it; the trailer is ours.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Any

from oryx_memory.errors import RejectedInput

# What OryxOS (Java's Character.isWhitespace) strips and calls blank; U+0085, U+00A0, U+2007, U+202F are not in it.
BLANKS = (
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2008\u2009\u200a"
    "\u2028\u2029\u205f\u3000"
)
MAX_CONTENT_BYTES = 32 * 1024
TYPES = ("preference", "profile", "project_fact", "workflow", "decision", "constraint", "note")

_TIME = re.compile(r"- \[([0-9]{4})-([0-9]{2})-([0-9]{2}) ([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?\]")
_BULLET = re.compile(r"[-*+] ")
_LINE_BREAKS = dict.fromkeys(map(ord, "\n\x0b\x0c\r\x1c\x1d\x1e\x85\u2028\u2029"), " ")
_CONTROLS = dict.fromkeys(
    code for code in [*range(0x20), *range(0x7F, 0xA0)] if code != 0x09 and code not in _LINE_BREAKS
)
_ONE_LINE: dict[int, str | None] = {**_CONTROLS, **_LINE_BREAKS}
_SPACES = re.compile("  +")
_TOKENS = re.compile(f"[^{BLANKS}]+")


class Scope(StrEnum):
    """The two sections of a memory."""

    CORE = "core"
    ARCHIVAL = "archival"

    @property
    def heading(self) -> str:
        """The section's heading line in MEMORY.md."""
        return "## 核心记忆" if self is Scope.CORE else "## 归档记忆"


@dataclass(frozen=True, slots=True)
class Retirement:
    """When, why and in which run an entry left its memory. `time` is local wall-clock time in whole seconds, `reason` one
    line, `run` one word: what is given otherwise, as by an import, becomes so, since a record has room for no more.
    """

    time: datetime
    reason: str
    run: str

    def __post_init__(self) -> None:
        time = self.time.replace(microsecond=0, tzinfo=None)
        reason = one_line(encodable(self.reason)).replace("<!--", "<! --")
        run = "-".join(one_line(encodable(self.run)).split()) or "-"
        for name, value in ("time", time), ("reason", reason), ("run", run):
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True)
class Entry:
    """One remembered item.

    `raw` is its text: the stored lines without the last line end, joined by LF. `scope` is the section it is
    in, or was in before it was retired. `retired` is None for a live entry.
    """

    raw: str
    scope: Scope = Scope.ARCHIVAL
    retired: Retirement | None = None

    @classmethod
    def new(
        cls,
        content: str,
        scope: Scope = Scope.ARCHIVAL,
        *,
        time: datetime,
        tags: Iterable[str] = (),
        key: str | None = None,
    ) -> "Entry":
        """An entry from a text, which becomes one line; `tags` and `key` join what its trailer already has.

        Raises RejectedInput for a blank text, one over 32 KiB, one that is no valid Unicode, a bad tag or key.
        """
        line = one_line(content)
        if not line:
            raise RejectedInput("nothing to remember: the text is empty or blank")
        line = _with_trailer(line, tuple(tags), key)
        try:
            size = len(line.encode())
        except UnicodeEncodeError:
            raise RejectedInput(
                "the text is not valid Unicode: it has a lone surrogate or came as broken UTF-8"
            ) from None
        if size > MAX_CONTENT_BYTES:
            raise RejectedInput(
                f"the text has {size:,} bytes and an entry at most {MAX_CONTENT_BYTES:,}; "
                "split it, or keep it in a file and remember where"
            )
        return cls(f"- [{time.replace(tzinfo=None, microsecond=0).isoformat(sep=' ')}] {line}", scope)

    @property
    def text(self) -> str:
        """`raw` without outer blanks: what ids, copies and keyword matching are about."""
        return self.raw.strip(BLANKS)

    @property
    def id(self) -> str:
        """First 12 hex digits of the SHA-256 of `text` in UTF-8. Equal lines share it."""
        from hashlib import sha256  # loads OpenSSL: not on the way of append, load and recall

        return sha256(self.text.encode()).hexdigest()[:12]

    @property
    def time(self) -> datetime | None:
        """Local wall-clock time in front of the line, read as leniently as OryxOS reads it."""
        match = _TIME.match(self.raw)
        return _read_time(match) if match else None

    @property
    def content(self) -> str:
        """`text` without bullet and time, trailer included."""
        return self.text.removeprefix(self._start()).strip(BLANKS)

    @property
    def prose(self) -> str:
        """`content` without the trailer of its first line."""
        content = self.content
        first, newline, rest = content.partition("\n")
        return first[: trailer(first)[0]].rstrip(BLANKS) + newline + rest

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags of the trailer, without `#`, in order."""
        return trailer(self._first_line())[1]

    @property
    def key(self) -> str | None:
        """The trailer's key, without `^`."""
        return trailer(self._first_line())[2]

    @property
    def type(self) -> str:
        """The first tag that names a type of memory, else `note`."""
        return _type(self.tags)

    def with_content(self, content: str) -> "Entry":
        """The same bullet, time and section with another content; a trailer stays if the new text has none.

        Raises RejectedInput as `new` does.
        """
        line = one_line(content)
        if line and trailer(line)[0] == len(line):
            line = _with_trailer(line, self.tags, self.key)
        checked = Entry.new(line, self.scope, time=datetime(2000, 1, 1)).content
        start = self._start()
        return Entry(f"{start.rstrip(' ')} {checked}" if start else checked, self.scope)

    def _start(self) -> str:
        """Bullet and time in front of the content."""
        match = _TIME.match(self.raw)
        if match is None or _read_time(match) is None:
            match = _BULLET.match(self.text)
        return match.group() if match else ""

    def _first_line(self) -> str:
        return self.content.partition("\n")[0]


def as_record(entry: Entry, agent: str | None) -> dict[str, Any]:
    """An entry as `--json` and jsonl give it: times are local ISO 8601, `retired` only for a retired one."""
    time, content = entry.time, entry.content
    _, tags, key = trailer(content.partition("\n")[0])
    made: dict[str, Any] = {
        "id": entry.id,
        "agent": agent,
        "scope": entry.scope.value,
        "time": time.isoformat(timespec="seconds") if time else None,
        "content": content,
        "line": entry.raw,
        "tags": list(tags),
        "key": key,
        "type": _type(tags),
    }
    if entry.retired:
        why = entry.retired
        made["retired"] = {"time": why.time.isoformat(timespec="seconds"), "reason": why.reason, "run": why.run}
    return made


def formed(content: str, time: datetime | None) -> str:
    """The stored lines of an entry of which only content and time are kept: `- [time] content`, further lines indented,
    blank ones left out.
    """
    if "\n" in content or "\r" in content:
        first, *rest = content.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        lines = (line if line[0] in BLANKS else f"  {line}" for line in rest if line.strip(BLANKS))
        content = "\n".join([first, *lines])
    if time is None:
        return f"- {content}"
    return f"- [{time.replace(tzinfo=None, microsecond=0).isoformat(sep=' ')}] {content}"


def wall_clock(moment: datetime, zone: tzinfo | None) -> datetime:
    """A moment as local time in a zone (None: the system's); without an offset it is that already. Raises RejectedInput."""
    try:
        return moment.astimezone(zone).replace(tzinfo=None) if moment.tzinfo else moment
    except (ValueError, OverflowError, OSError):  # the first and last hours of the calendar
        raise RejectedInput(f"not a time: {moment.isoformat()!r} is in no year of the calendar here") from None


def one_line(text: str) -> str:
    """`text` as one line: line breaks become spaces, other controls but TAB go, runs of spaces become one,
    ends are stripped and a section heading inside becomes corner-bracket text, so that it cannot start a section.
    """
    line = _SPACES.sub(" ", text.translate(_ONE_LINE)).strip(BLANKS)
    for scope in Scope:
        line = line.replace(scope.heading, f"「{scope.heading[3:]}」")
    return line


def encodable(text: str) -> str:
    """`text` with a question mark for each lone surrogate, which UTF-8 has no bytes for."""
    return text.encode("utf-8", "replace").decode()


def trailer(line: str) -> tuple[int, tuple[str, ...], str | None]:
    """Where the trailer of a line starts (its length if there is none), the tags in order, and the key.

    The trailer is the run of `#tag` and `^key` tokens at the very end; a second key ends the run.
    """
    start = len(line)
    if "#" not in line and "^" not in line:
        return start, (), None
    tags: list[str] = []
    key: str | None = None
    for token in reversed(list(_TOKENS.finditer(line))):
        word = token.group()
        if word[0] == "#" and is_tag(word[1:]):
            tags.append(word[1:])
        elif word[0] == "^" and key is None and is_key(word[1:]):
            key = word[1:]
        else:
            break
        start = token.start()
    return start, tuple(reversed(tags)), key


def _type(tags: Sequence[str]) -> str:
    return next((tag for tag in tags if tag in TYPES), "note")


def is_tag(word: str) -> bool:
    """Letters of any script, digits, `_`, `-`, `/`; not digits alone."""
    return bool(word) and not word.isdigit() and all(map(_is_name_character, word))


def is_key(word: str) -> bool:
    """As a tag, but it starts with a letter and has at least two characters."""
    return len(word) >= 2 and word[0].isalpha() and all(map(_is_name_character, word))


def _is_name_character(char: str) -> bool:
    if char.isalnum() or char in "_-/":
        return True
    if char.isascii():
        return False
    from unicodedata import category  # vowel signs and accents are part of words in many scripts

    return category(char)[0] == "M"


def _with_trailer(line: str, tags: Sequence[str], key: str | None) -> str:
    for tag in tags:
        if not is_tag(tag):
            raise RejectedInput(f"not a tag: {tag!r}; letters, digits, _ - / and not digits alone, without #")
    if key is not None and not is_key(key):
        raise RejectedInput(f"not a key: {key!r}; it starts with a letter, then letters, digits, _ - /, without ^")
    _, present, present_key = trailer(line)
    line += "".join(f" #{tag}" for tag in dict.fromkeys(tags) if tag not in present)
    if key is not None and key != present_key:
        line += f" ^{key}"
    return line


def _read_time(match: "re.Match[str]") -> datetime | None:
    try:
        return datetime.fromisoformat(match.group()[3:-1])
    except ValueError:
        return _read_odd_time(match)


def _read_odd_time(match: "re.Match[str]") -> datetime | None:
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups())
    midnight = (hour, minute, second) == (24, 0, 0)
    if not (year >= 1 and 1 <= month <= 12 and 1 <= day <= 31):
        return None
    while day > 28:  # 30 February is the month's last day, as in OryxOS
        try:
            datetime(year, month, day)
            break
        except ValueError:
            day -= 1
    try:
        time = datetime(year, month, day, 0 if midnight else hour, minute, second)
        return time + timedelta(days=1) if midnight else time
    except (ValueError, OverflowError):
        return None
