"""How fast the package is: every figure beside a baseline that was measured in the same run.

Seconds say little: they differ between machines, and on one machine from minute to minute. So each row is a ratio.
Its two sides are measured in turn, round after round, and the medians are compared. The targets of time are
those of the design, those of memory are bounds to watch. A miss is printed as `over` and stops nothing, because this
is a measurement and not a test.

- Cold commands: a new process each, output piped, against `python -c "import typer"`, which every Typer program pays.
- Append: through the library, with lock, fsync and verification, to files of 100, 100,000 and about 1,000,000 entries;
  after another program has written, when the file has to be scanned; with the journal and with one that keeps nothing.
- Keyword recall: against reading the file, decoding it and `text.count(keyword)`, the least that a search must do.
  The full-width row looks for a keyword whose letters stand in many lines as full-width forms (ＧＰＵ).
- Peak memory: of a new process that does one thing, minus that of one that only imports the package.
- sqlite: the same commands and calls against Typer, markdown, or itself with few entries.
- Reviewing in git: review.py. Ranked recall: recall.py. The service: service.py. The MCP server: server.py.
- Comparison rows have no target. They show what people would use instead.

Run `python benchmarks/bench.py`; `--markdown` gives the table as docs/performance.md has it, `--plot FILE` also draws
(plot.py), and `--quick` is for trying it out, with sizes too small to judge by. Files are made in the temporary
directory (TMPDIR chooses it) and removed. On a file system in memory, fsync costs nothing and the append ratios are
higher than on a disk.
"""

import argparse
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median

from measuring import (
    LINE,
    QUICK,
    TEXT,
    Place,
    Plan,
    Row,
    entries,
    foreign_append,
    interleaved,
    naive_append,
    peak_of,
    program,
    run,
)
from recall import ranked_rows
from review import review_rows
from server import server_rows
from service import service_rows

from oryx_memory import LongTermMemoryStore, journal
from oryx_memory.stores import markdown

COLD_TARGET = 1.6
SQLITE_COLD_TARGET = 2.2
FLAT_TARGET = 1.5  # "flat": what the noise of two medians allows
SQLITE_RECALL_TARGET = 3.0
MIGRATION_TARGET = 20.0
APPEND_TARGET = 3.0  # the stamp that the last append left spares this one a look at the whole file
JOURNAL_TARGET = 1.1  # "not measurable"
RECALL_TARGET = 5.0
MEMORY_TARGET = 3.0
WHOLE_FILE = 1.0  # an append that stays below it has not read the whole file into memory

SEGMENT_ENTRIES = 3_300  # about 0.5 MB of records, not quite a segment

KEYWORDS = {"English": "Kestrel", "Chinese": "灰度回滚", "full-width": "GPU池"}
HEADINGS = ("what", "measured", "baseline", "ratio", "target", "")

ACTIONS = {
    "import": "",
    "append": f"oryx_memory.open_memory(sys.argv[2], root=sys.argv[1]).append({TEXT!r})",
    "load": "oryx_memory.open_memory(sys.argv[2], root=sys.argv[1]).load()",
    "recall": "oryx_memory.open_memory(sys.argv[2], root=sys.argv[1]).recall_by_keyword(sys.argv[3])",
}
MIGRATE = """
import os
from oryx_memory import settings, stores, workspace

place = workspace.named(__import__("pathlib").Path(sys.argv[1]))
source, target = (
    stores.open(place, settings.load(place.root, os.environ, {"backend": name}), agent)
    for name, agent in (("markdown", sys.argv[2]), ("sqlite", f"{sys.argv[2]}{os.getpid()}"))
)
source.migrate_to(target)
"""


def cold_rows(place: Place, plan: Plan) -> Iterator[Row]:
    """Cold commands on a memory of about 200 entries."""
    oryx = program("oryx")
    here = ["--root", str(place.root), "-a", "cold"]
    commands = {
        "append": [oryx, "memory", "append", *here, TEXT],
        "load": [oryx, "memory", "load", *here],
        "recall": [oryx, "memory", "recall", *here, "--mode", "keyword", "两人复核"],
        "typer": [sys.executable, "-c", "import typer"],
        "pass": [sys.executable, "-c", "pass"],
        "echo": ["sh", "-c", 'printf "%s\\n" "$1" >> "$2"', "sh", LINE, str(place.file("echo"))],
    }
    found = interleaved({name: partial(run, command) for name, command in commands.items()}, plan.cold_rounds)
    typer = found["typer"]
    for name in ("append", "load", "recall"):
        yield Row(f"cold oryx memory {name} / cold import typer", found[name], typer, COLD_TARGET)
    yield Row("  for comparison: cold python -c 'import typer'", typer, typer)
    yield Row("  for comparison: cold python -c pass", found["pass"], typer)
    yield Row("  for comparison: sh -c 'echo >> file'", found["echo"], typer)


def append_rows(place: Place, plan: Plan) -> Iterator[Row]:
    """Library appends to a small, a large and a huge file, against the small one."""
    small, large, huge = (place.store(agent) for agent in ("small", "large", "huge"))
    found = interleaved(
        {
            "small": partial(small.append, TEXT),
            "large": partial(large.append, TEXT),
            "scan": partial(large.append, TEXT),
            "plain": partial(plain_append, place.file("plain")),
            "naive": partial(naive_append, place.file("naive")),
        },
        plan.append_rounds,
        {"scan": partial(foreign_append, place.file("large"))},
    )
    base = found["small"]
    of_large, of_small = f"{plan.large:,} entries", f"{plan.small:,}"
    yield Row(f"append to {of_large} / append to {of_small}", found["large"], base, APPEND_TARGET)
    yield Row(f"  for comparison: append after another program wrote ({of_large})", found["scan"], base)
    yield Row(f"  for comparison: read, add, write anew ({of_large})", found["naive"], base)
    yield Row("  for comparison: open, write, fsync", found["plain"], base)
    found = interleaved({"small": partial(small.append, TEXT), "huge": partial(huge.append, TEXT)}, plan.huge_rounds)
    yield Row(f"append to {megabytes(place.file('huge'))} / append to {of_small}", found["huge"], found["small"])
    yield from journal_rows(place, plan)


class NoJournal(journal.Journal):
    """One that keeps nothing, to measure what keeping costs."""

    def added(self, entries: object, held: object) -> None: ...

    def found(self, stamp: str, held: object) -> None: ...


def journal_rows(place: Place, plan: Plan) -> Iterator[Row]:
    """What the journal adds to an append, and to the one in thousands that fills its segment, which counts the memory."""
    small, large = place.store("small"), place.store("large")
    kinds = {"with": journal.Journal, "without": NoJournal}
    use = partial(setattr, markdown, "Journal")
    found = interleaved(
        dict.fromkeys(kinds, partial(small.append, TEXT)),
        plan.journal_rounds,
        {name: partial(use, kind) for name, kind in kinds.items()},
    )
    use(journal.Journal)
    what = f"append with the journal / without it ({plan.small:,} entries)"
    yield Row(what, found["with"], found["without"], JOURNAL_TARGET)
    yield from segment_rows(large, plan)


def segment_rows(large: LongTermMemoryStore, plan: Plan) -> Iterator[Row]:
    """The append that fills a segment of the journal: it has to find out what of the older one is still there."""
    kept = journal.Journal(Path(large.resource))
    oldest = large.read().archival[: min(plan.large, 3 * SEGMENT_ENTRIES)]
    thirds = cycle(oldest[start::3] for start in range(3))  # a line that is acknowledged twice would seem to be gone
    size = journal.SEGMENT

    def fill() -> None:
        journal.SEGMENT = size
        kept.added(next(thirds), dict)
        journal.SEGMENT = 1  # so that it is full with the next line, however long that is

    cases: dict[str, Callable[[], object]] = {"append": partial(large.append, TEXT), "read": large.read}
    found = interleaved(cases, plan.slow_rounds, {"append": fill})
    journal.SEGMENT = size
    what = f"  for comparison: append that fills a journal segment ({plan.large:,}) / reading and parsing"
    yield Row(what, found["append"], found["read"], unit="s")


def sqlite_rows(place: Place, plan: Plan) -> Iterator[Row]:
    """The sqlite backend: cold commands, appends to a small and a large memory, recall, and moving there."""
    oryx = program("oryx")
    here = ["--root", str(place.root), "--backend", "sqlite", "-a", "middle"]
    commands = {
        "append": [oryx, "memory", "append", *here, TEXT],
        "recall": [oryx, "memory", "recall", *here, KEYWORDS["Chinese"]],
        "typer": [sys.executable, "-c", "import typer"],
    }
    for agent in ("small", "middle", "large"):
        place.store(agent).migrate_to(place.store(agent, "sqlite"))
    found = interleaved({name: partial(run, command) for name, command in commands.items()}, plan.cold_rounds)
    for name in ("append", "recall"):
        what = f"sqlite: cold oryx memory {name}, {plan.middle:,} entries / cold import typer"
        yield Row(what, found[name], found["typer"], SQLITE_COLD_TARGET)
    small, large = place.store("small", "sqlite"), place.store("large", "sqlite")
    found = interleaved(
        {"small": partial(small.append, TEXT), "large": partial(large.append, TEXT)}, plan.append_rounds
    )
    yield Row(
        f"sqlite: append to {plan.large:,} / append to {plan.small:,}", found["large"], found["small"], FLAT_TARGET
    )
    markdown = place.store("large")
    for kind, keyword in KEYWORDS.items():
        cases = {
            "sqlite": partial(large.recall_by_keyword, keyword),
            "file": partial(markdown.recall_by_keyword, keyword),
        }
        found = interleaved(cases, plan.recall_rounds)
        what = f"sqlite: recall, {kind} keyword of {plan.large:,} / on markdown"
        yield Row(what, found["sqlite"], found["file"], SQLITE_RECALL_TARGET)
    numbers = iter(range(1_000))
    found = interleaved(
        {
            "migrate": lambda: markdown.migrate_to(place.store(f"moved{next(numbers)}", "sqlite")),
            "read": markdown.read,
        },
        plan.migration_rounds,
    )
    what = f"migrate {plan.large:,} entries to sqlite / reading and parsing the file"
    yield Row(what, found["migrate"], found["read"], MIGRATION_TARGET, unit="s")


def plain_append(path: Path) -> None:
    """One durable line, and nothing that guards it."""
    with path.open("ab") as file:
        file.write(LINE.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def recall_rows(place: Place, plan: Plan) -> Iterator[Row]:
    """Keyword recall over the large file, for each kind of keyword."""
    store, path = place.store("large"), place.file("large")
    for kind, keyword in KEYWORDS.items():
        cases: dict[str, Callable[[], object]] = {
            "recall": partial(store.recall_by_keyword, keyword),
            "count": partial(read_and_count, path, keyword),
        }
        if shutil.which("grep"):
            cases["grep"] = partial(run, ["grep", "-c", keyword, str(path)], check=False)  # 1 where it finds nothing
        found = interleaved(cases, plan.recall_rounds)
        hits = len(store.recall_by_keyword(keyword))
        what = f"recall, {kind} keyword, {hits} hits of {plan.large:,} / read, decode, count"
        yield Row(what, found["recall"], found["count"], RECALL_TARGET)
        if "grep" in found:
            yield Row(f"  for comparison: grep -c, {kind} keyword", found["grep"], found["count"])


def read_and_count(path: Path, keyword: str) -> int:
    return path.read_bytes().decode().count(keyword)


def memory_rows(place: Place, plan: Plan) -> Iterator[Row]:
    """Peak memory over that of the imports, against the size of the huge file."""
    size = place.file("huge").stat().st_size
    peaks: dict[str, list[int]] = {action: [] for action in ACTIONS}
    for _ in range(plan.memory_rounds):
        for action, code in ACTIONS.items():
            peaks[action].append(peak_of(code, place, "huge", KEYWORDS["Chinese"]))
    imports = median(peaks["import"])
    for action, target in (("append", WHOLE_FILE), ("load", MEMORY_TARGET), ("recall", MEMORY_TARGET)):
        what = f"peak memory of {action}, {megabytes(place.file('huge'))} / size of the file"
        yield Row(what, median(peaks[action]) - imports, size, target, unit="MB")
    yield Row("  for comparison: peak memory of the imports alone", imports, size, unit="MB")
    middle, large = (
        median(peak_of(MIGRATE, place, agent, "") for _ in range(plan.migration_rounds))
        for agent in ("middle", "large")
    )
    what = f"peak memory of migrating {plan.large:,} entries / {plan.middle:,}, imports included"
    yield Row(what, large, middle, FLAT_TARGET, unit="MB")


def megabytes(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:,.0f} MB"


def prepare(place: Place, plan: Plan) -> None:
    lines = list(entries(plan.large))
    small, cold, large = ("".join(lines[:count]).encode() for count in (plan.small, 200, plan.large))
    for agent, data in (("small", small), ("cold", cold), ("echo", cold), ("plain", small), ("large", large)):
        place.write(agent, data)
    place.write("naive", large)
    place.write("middle", "".join(lines[: plan.middle]).encode())
    place.write("huge", large, plan.blocks)


def show(rows: Sequence[Row]) -> None:
    """The rows as one aligned table, figures to the right."""
    table = [HEADINGS] + [row.cells() for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for what, measured, *rest in table:
        figures = [cell.rjust(width) for cell, width in zip((measured, *rest[:-1]), widths[1:-1], strict=True)]
        print("  ".join([what.ljust(widths[0]), *figures, rest[-1]]).rstrip())


def show_markdown(rows: Sequence[Row]) -> None:
    """The rows as a Markdown table."""
    print(f"\n| {' | '.join(HEADINGS)} |\n| --- | {'---: | ' * 4}--- |")
    for row in rows:
        print(f"| {' | '.join(map(str.strip, row.cells()))} |")


def machine() -> str:
    """What the figures were measured on."""
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):  # not Linux, or one that does not say
        system = platform.platform(terse=True)
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, {system}"


def clean_environment(folder: Path) -> None:
    """For the processes that are started: nobody's own settings count, git finds the commands, and all of them find
    compiled modules, as an installed package has them, made in the warming round.
    """
    for name in list(os.environ):
        if name.startswith(("ORYX", "GIT_")) or name in ("XDG_CONFIG_HOME", "PYTHONDONTWRITEBYTECODE"):
            del os.environ[name]
    os.environ |= {"HOME": str(folder), "PYTHONPYCACHEPREFIX": str(folder / "pycache")}
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    for role in ("AUTHOR", "COMMITTER"):
        os.environ |= {f"GIT_{role}_NAME": "Bench", f"GIT_{role}_EMAIL": "bench@example.org"}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the package against baselines of the same run.")
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds, for trying it out")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw a picture (PNG); needs the extra bench")
    options = parser.parse_args()
    plan = QUICK if options.quick else Plan()
    picture = options.plot if importlib.util.find_spec("matplotlib") else None
    title = f"Measured on {date.today()}: {machine()}"
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="oryx-bench-") as folder:
        clean_environment(Path(folder))
        place = Place(Path(folder))
        prepare(place, plan)
        parts = (
            cold_rows,
            append_rows,
            recall_rows,
            memory_rows,
            sqlite_rows,
            review_rows,
            ranked_rows,
            service_rows,
            server_rows,
        )
        rows = [row for measure in parts for row in measure(place, plan)]
        if picture:
            import plot

            plot.draw(picture, title, plot.growth(place, plan), rows)
    print(f"{title}; {time.perf_counter() - start:.0f} s in all.")
    if options.quick:
        print("quick: too small to judge by")
    (show_markdown if options.markdown else show)(rows)
    if options.plot:
        how = "needs matplotlib; pip install --editable '.[bench]' brings it"
        print(f"plot: {picture or how}", file=sys.stderr)


if __name__ == "__main__":
    main()
