"""What a command prints: data to standard output, talk to standard error.

Piped, data are exact: the stored lines, UTF-8, uncoloured, unwrapped. On a terminal the same entries are coloured,
and characters that would steer the terminal are shown as escapes; content is never markup. rich is imported only
when a person looks.
"""

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from oryx_memory.entry import Entry

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

# Control characters, and those that reorder text (Unicode Standard Annex 9): a terminal obeys both.
_STEERING = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"


def visible(text: str) -> str:
    """`text` with control and bidirectional characters as escapes; tabs and line feeds stay."""
    if text.isascii() and text.isprintable():
        return text
    return re.sub(f"[{_STEERING}]", _escape, text)


def one_visible_line(text: str) -> str:
    """`text` as one line that is safe on a terminal."""
    return visible(" ".join(text.split("\n")))


def _escape(match: "re.Match[str]") -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def prepare_streams() -> bool:
    """Make the standard streams fit to use, whatever they were started with; returns whether stdin is there.

    A closed descriptor 0 to 2 is opened on the null device, or the next file opened would take its number and be
    written to by whoever prints.
    """
    has_input = sys.stdin is not None
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors, newline="\n")
    return has_input


class Output:
    """Where a command prints. `json` asks for JSON, `quiet` silences talk."""

    def __init__(self, *, json: bool = False, quiet: bool = False) -> None:
        self.json = json
        self.quiet = quiet
        self.fancy = sys.stdout is not None and sys.stdout.isatty()
        self._console: Console | None = None

    @property
    def console(self) -> "Console":
        """The terminal that a person looks at."""
        if self._console is None:
            from rich.console import Console

            self._console = Console(file=sys.stdout, markup=False, highlight=False, emoji=False)
        return self._console

    def data(self, text: str) -> None:
        """One line of data, or several."""
        _write(f"{visible(text) if self.fancy else text}\n")

    def render(self, *renderables: "RenderableType") -> None:
        """Something that only a terminal is shown."""
        with self.console.capture() as capture:
            for renderable in renderables:
                self.console.print(renderable, soft_wrap=not hasattr(renderable, "columns"))
        _write(capture.get())

    def talk(self, text: str) -> None:
        """One line to the person, which --quiet silences."""
        if not self.quiet:
            self.warn(text)

    def warn(self, text: str) -> None:
        """One line to the person, whatever --quiet says; it comes after the data printed so far."""
        flush()
        tell(text)

    def object(self, value: Any) -> None:
        """One JSON value on one line."""
        from msgspec.json import encode

        text = encode(value).decode()
        _write(
            re.sub(
                "[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]", lambda m: f"\\u{ord(m.group()):04x}", text
            )
            + "\n"
        )

    def entries(self, entries: Sequence[Entry], agent: str | None, *, ids: bool = False) -> None:
        """Entries of one agent: an array, coloured lines, or exactly the stored lines."""
        if self.json:
            self.object([entry_object(entry, agent) for entry in entries])
        elif self.fancy:
            self.render(*(styled(entry, with_id=ids) for entry in entries))
        else:
            _write("".join(f"{entry.raw}\n" for entry in entries))

    def entry(self, entry: Entry, agent: str | None) -> None:
        """One entry: an object, a coloured line, or exactly the stored line."""
        if self.json:
            self.object(entry_object(entry, agent))
        else:
            self.entries([entry], agent)

    def rows(self, rows: Iterable[Sequence[str]]) -> None:
        """Rows of fields, separated by tabs."""
        for row in rows:
            self.data("\t".join(row))


def entry_object(entry: Entry, agent: str | None) -> dict[str, Any]:
    """An entry as `--json` and `export --format jsonl` give it."""
    time = entry.time
    made: dict[str, Any] = {
        "id": entry.id,
        "agent": agent,
        "scope": entry.scope.value,
        "time": time.isoformat(timespec="seconds") if time else None,
        "content": entry.content,
        "line": entry.raw,
        "tags": list(entry.tags),
        "key": entry.key,
        "type": entry.type,
    }
    if entry.retired:
        retired = entry.retired
        made["retired"] = {
            "time": retired.time.isoformat(timespec="seconds"),
            "reason": retired.reason,
            "run": retired.run,
        }
    return made


def styled(entry: Entry, *, with_id: bool = False) -> "Text":
    """An entry for a terminal: time dim, tags and key in colour, content as it is."""
    from rich.text import Text

    shown = Text(style="strike dim" if entry.retired else "")
    if with_id:
        shown.append(f"{entry.id}  ", style="yellow")
    raw = entry.raw
    content = entry.content
    at = raw.find(content) if content else len(raw)
    prose = len(entry.prose) if "\n" not in content else len(content)
    shown.append(visible(raw[:at]), style="dim")
    shown.append(visible(content[:prose]))
    for word in re.split(r"(\s+)", content[prose:]):
        shown.append(visible(word), style="cyan" if word[:1] == "#" else "magenta")
    return shown


def tell(text: str) -> None:
    """One line to standard error; a closed or broken one is no reason to fail."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"{one_visible_line(text)}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


def flush() -> None:
    """Push out what is still buffered; a reader that has gone is no error."""
    _write("")


def _write(text: str) -> None:
    stream = sys.stdout
    if stream is None:
        return
    try:
        stream.write(text)
        if not text or stream.isatty():
            stream.flush()
    except BrokenPipeError:
        # The reader has what it wanted (`| head -1`): stop without a word.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        raise SystemExit(0) from None


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 entry`, `1,204 entries`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def entries_text(number: int, kind: str = "") -> str:
    """`1 archival entry`, `3 archival entries`."""
    return f"{number:,} {kind + ' ' if kind else ''}{'entry' if number == 1 else 'entries'}"


def sparkline(numbers: Sequence[int]) -> str:
    """Bars of one character each, as high as the numbers; 0 is a blank."""
    bars = "▁▂▃▄▅▆▇█"
    top = max(numbers, default=0)
    return "".join(bars[min(7, (number * 8 - 1) // top)] if number else " " for number in numbers)


def bar(share: float, width: int = 24) -> str:
    """A bar filled to a share between 0 and 1."""
    filled = round(min(1.0, share) * width)
    return "█" * filled + "░" * (width - filled)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Mapping[int, bool] | None = None
) -> "RenderableType":
    """A plain table for a terminal; cells are text, never markup."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        made.add_column(Text(column), justify="right" if right and right.get(number) else "left")
    for row in rows:
        made.add_row(*(Text(visible(cell)) for cell in row))
    return made
