"""What a model is given of a memory: core whole, and the window of archival.

The window is the longest suffix of whole archival entries whose text, joined by newlines, fits in `max_chars` code
points. An entry that alone exceeds it is shown from its start and marked as cut; nothing is cut without saying so.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from oryx_memory.entry import BLANKS, Entry, Scope

MAX_CHARS = 4000
# OryxOS looks for headings with Java's multi-line mode: lines also end at U+0085, U+2028 and U+2029.
_ORYXOS_HEADING = (
    rf"(?:(?<=[\n\r\x85\u2028\u2029])|\A)({Scope.CORE.heading}|{Scope.ARCHIVAL.heading})[ \t\n\x0b\x0c\r]*"
    r"(?:(?=[\n\r\x85\u2028\u2029])|(?<=[\n\r])|\Z)"
)


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory as a model is given it; `str()` is the prompt text, its two headings included.

    `core` and `window` are entries in order. `outside` counts the archival entries before the window, `cut` the
    code points of the newest entry that do not fit (0 where it is whole). `max_chars` is None for no limit.
    """

    core: tuple[Entry, ...]
    window: tuple[Entry, ...]
    outside: int
    cut: int
    max_chars: int | None

    @property
    def window_chars(self) -> int:
        """Code points of the window's text, as far as it is shown."""
        return len(self.section(Scope.ARCHIVAL))

    def section(self, scope: Scope) -> str:
        """The text of one section without its heading, entries joined by newlines."""
        if scope is Scope.CORE:
            return "\n".join(entry.text for entry in self.core)
        text = "\n".join(entry.text for entry in self.window)
        return text[: len(text) - self.cut] + cut_note(self.window[0], self.cut) if self.cut else text

    def __str__(self) -> str:
        return "\n".join(f"{scope.heading}\n{self.section(scope)}" for scope in Scope)


def load(core: Iterable[Entry], newest_first: Iterable[Entry], total: int, max_chars: int | None) -> Memory:
    """A Memory from the core entries and the archival entries, newest first, of which there are `total`.

    Takes no more of `newest_first` than fits.
    """
    window: list[Entry] = []
    left = max_chars
    cut = 0
    for entry in newest_first:
        size = len(entry.text) + bool(window)
        if left is not None and size > left:
            if not window:
                window.append(entry)
                cut = size - left
                # The note is part of the limit, unless that leaves no room for the entry itself.
                if size - cut > 2 * (note := len(cut_note(entry, size))):
                    cut += note
            break
        window.append(entry)
        if left is not None:
            left -= size
    return Memory(tuple(core), tuple(reversed(window)), total - len(window), cut, max_chars)


def oryxos_text(text: str) -> str:
    """What OryxOS 0.1.3 gives a model of a MEMORY.md: its own idea of sections, and of archival the last 4,000 UTF-16
    units, wherever that cuts (a character that it cuts in half is shown as U+FFFD).
    """
    bodies = dict.fromkeys(Scope, "")
    found: dict[Scope, int] = {}
    headings = list(re.finditer(_ORYXOS_HEADING, text))
    for number, match in enumerate(headings):
        scope = Scope.CORE if match.group(1) == Scope.CORE.heading else Scope.ARCHIVAL
        if scope not in found:
            found[scope] = number
            end = headings[number + 1].start() if number + 1 < len(headings) else len(text)
            bodies[scope] = text[match.end() : end].strip(BLANKS)
    units = bodies[Scope.ARCHIVAL].encode("utf-16-le", "surrogatepass")
    bodies[Scope.ARCHIVAL] = units[-2 * MAX_CHARS :].decode("utf-16-le", "replace")
    return "\n".join(f"{scope.heading}\n{bodies[scope]}" for scope in Scope)


def cut_note(entry: Entry, cut: int) -> str:
    """What is written behind the start of an entry that alone exceeds the window."""
    return f"…（已截断 {cut} 字 / {cut} characters cut, id {entry.id}）"


def chars(entries: Sequence[Entry]) -> int:
    """Code points of the entries' text joined by newlines."""
    return max(0, sum(len(entry.text) + 1 for entry in entries) - 1)
