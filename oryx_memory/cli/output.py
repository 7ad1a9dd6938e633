"""What a command prints: data to standard output, talk to standard error.

Piped, data are exact: the stored lines, UTF-8, uncoloured, unwrapped. On a terminal the same entries are coloured,
and characters that would steer the terminal are shown as escapes; content is never markup. rich is imported only
when a person looks.
"""

import os
import re
import sys
import threading
from collections.abc import Iterable, Sequence
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import TYPE_CHECKING, Any

from oryx_memory.entry import Entry, as_record

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress as Bar
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


class _Pipe(FileIO):
    """A standard stream whose reader may go (`| head -1`): it has what it wanted, so the rest goes nowhere, and the
    command ends as it would have.
    """

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except BrokenPipeError:
            _lead_nowhere(self.fileno())
            return len(data)


def _lead_nowhere(descriptor: int) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


def prepare_streams() -> None:
    """Make the standard streams fit to use, whatever they were started with.

    A closed descriptor 0 to 2 is opened on the null device, or the next file opened would take its number and be
    written to by whoever prints; Python's own object for it stays None.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    stdout, stderr = sys.stdout, sys.stderr
    if stdout is sys.__stdout__ and stdout is not None:
        sys.stdout = TextIOWrapper(BufferedWriter(_Pipe(stdout.fileno(), "wb", closefd=False)))
    if stderr is sys.__stderr__ and stderr is not None:
        sys.stderr = TextIOWrapper(BufferedWriter(_Pipe(stderr.fileno(), "wb", closefd=False)))
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors, newline="\n", line_buffering=stream.isatty())


def give_up_output() -> None:
    """Let standard output lead nowhere from now on."""
    if sys.stdout is not None:
        _lead_nowhere(sys.stdout.fileno())


class Progress:
    """A bar on the terminal for work that takes over a second; nothing is imported or shown before that.

    A context manager. `step` tells how far the work is; without it the bar only moves.
    """

    def __init__(self, *, shown: bool) -> None:
        self._timer = threading.Timer(1.0, self._show) if shown else None
        self._lock = threading.Lock()
        self._bar: Bar | None = None
        self._done, self._total = 0, 0

    def __enter__(self) -> "Progress":
        if self._timer:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def step(self, done: int, total: int) -> None:
        """So many of so many parts are done."""
        with self._lock:
            self._done, self._total = done, total
            if self._bar:
                self._bar.update(self._bar.task_ids[0], completed=done, total=total)

    def stop(self) -> None:
        """Take the bar away: something will be printed, or somebody asked."""
        with self._lock:
            if self._timer:
                self._timer.cancel()
                self._timer = None
            if self._bar:
                self._bar.stop()
                self._bar = None

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        with self._lock:
            if self._timer:
                self._bar = Bar(
                    BarColumn(),
                    TimeElapsedColumn(),
                    console=Console(stderr=True),
                    transient=True,
                    redirect_stdout=False,  # data are data while it moves
                    redirect_stderr=False,
                )
                self._bar.add_task("", total=self._total or None, completed=self._done)
                self._bar.start()


class Output:
    """Where a command prints. `json` asks for JSON, `quiet` silences talk."""

    def __init__(self, *, json: bool = False, quiet: bool = False) -> None:
        self.json = json
        self.quiet = quiet
        self.fancy = sys.stdout is not None and sys.stdout.isatty()
        self._console: Console | None = None
        self.progress = Progress(shown=not quiet and sys.stderr is not None and sys.stderr.isatty())

    @property
    def console(self) -> "Console":
        """The terminal that a person looks at."""
        if self._console is None:
            from rich.console import Console

            self._console = Console(file=sys.stdout, markup=False, highlight=False, emoji=False)
        return self._console

    def data(self, text: str) -> None:
        """One line of data, or several."""
        self._before_data()
        _write(f"{visible(text) if self.fancy else text}\n")

    def render(self, *renderables: "RenderableType") -> None:
        """Something that only a terminal is shown."""
        self.progress.stop()
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
        self.progress.stop()
        flush()
        tell(text)

    def object(self, value: Any) -> None:
        """One JSON value on one line."""
        self._before_data()
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
            self.object([as_record(entry, agent) for entry in entries])
        elif self.fancy:
            self.render(*(styled(entry, with_id=ids) for entry in entries))
        else:
            self._before_data()
            _write("".join(f"{entry.raw}\n" for entry in entries))

    def entry(self, entry: Entry, agent: str | None) -> None:
        """One entry: an object, a coloured line, or exactly the stored line."""
        if self.json:
            self.object(as_record(entry, agent))
        else:
            self.entries([entry], agent)

    def _before_data(self) -> None:
        if self.fancy:  # data that go elsewhere do not meet the bar
            self.progress.stop()

    def rows(self, rows: Iterable[Sequence[str]]) -> None:
        """Rows of fields, separated by tabs."""
        for row in rows:
            self.data("\t".join(row))


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


def retirement(entry: Entry) -> "Text":
    """When a retired entry left, from where, why and in which run, to stand below it on a terminal."""
    from rich.text import Text

    why = entry.retired
    assert why is not None
    shown = f"              {why.time:%Y-%m-%d %H:%M} from {entry.scope}: {why.reason}; run {why.run}"
    return Text(visible(shown), "dim")


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
    """Push out what is still buffered."""
    if sys.stdout is not None:
        sys.stdout.flush()


def _write(text: str) -> None:
    if sys.stdout is not None:
        sys.stdout.write(text)


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


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> "RenderableType":
    """A plain table for a terminal, columns `right` aligned to the right; cells are text, never markup."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold", show_header=any(columns))
    for number, column in enumerate(columns):
        made.add_column(Text(column), justify="right" if number in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(visible(cell)) for cell in row))
    return made
