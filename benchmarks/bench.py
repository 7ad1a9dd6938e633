"""How fast the package is: every figure beside a baseline that was measured in the same run.

Seconds say little: they differ between machines, and on one machine from minute to minute. So each row is a ratio.
Its two sides are measured in turn, round after round, and the medians are compared. The targets of time are
those of the design, those of memory are bounds to watch. A miss is printed as `over` and stops nothing, because this
is a measurement and not a test.

- Cold commands: a new process each, output piped, against `python -c "import typer"`, which every Typer program pays.
- Append: through the library, with lock, fsync and verification, to files of 100, 100,000 and about 1,000,000 entries.
- Keyword recall: against reading the file, decoding it and `text.count(keyword)`, the least that a search must do.
  The full-width row looks for a keyword whose letters stand in many lines as full-width forms (ＧＰＵ).
- Peak memory: of a new process that does one thing, minus that of one that only imports the package.
- sqlite: the same commands and calls against Typer, markdown, or itself with few entries.
- Comparison rows have no target. They show what people would use instead.

Run `python benchmarks/bench.py`; `--quick` is for trying it out, with sizes too small to judge by. Files are made in
the temporary directory (TMPDIR chooses it) and removed. On a file system in memory, fsync costs nothing and the
append ratios are higher than on a disk.
"""

import argparse
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median

from oryx_memory import LongTermMemoryStore, Workspace, settings, stores

COLD_TARGET = 1.6
SQLITE_COLD_TARGET = 2.2
FLAT_TARGET = 1.5  # "flat": what the noise of two medians allows
SQLITE_RECALL_TARGET = 3.0
MIGRATION_TARGET = 20.0
APPEND_TARGET = 15.0  # 3 once the journal's stamp spares the append from reading the file
RECALL_TARGET = 5.0
MEMORY_TARGET = 3.0
WHOLE_FILE = 1.0  # an append that stays below it has not read the whole file into memory

KEYWORDS = {"English": "Kestrel", "Chinese": "灰度回滚", "full-width": "GPU池"}
RARE = {
    "English": "Roll out Kestrel behind a flag，先给内部用户。",
    "Chinese": "这次用灰度回滚，不要全量；owner 是 Lin。",
    "full-width": "训练任务放到ＧＰＵ池，不要占用 build 机器。",
}
COMMON = (
    "用户说：{topic}要在周{n}前完成，先跑 {tool} 再发版。",
    "{topic}的负责人换成了小{name}；以后找他确认（不要再找旧的群）。",
    "Use {tool} for {topic}, not the old script；见 docs/{tool}-{n}.md。",
    "Decision DEC-00{n}: keep {tool} pinned until {topic} is done.",
    "上线前必须两人复核，尤其是「{topic}」和权限变更！ #流程 ^review_rule",
    "Ｖ{n}版接口（ＡＰＩ）与ＧＰＵ节点的说明：{topic}，用 {tool} 生成。",
    "昨天 {tool} 在{topic}上失败了 {n} 次，原因是超时；重试后通过。 #note",
    "触发「{topic}怎么做？」⇒ 先看 {tool} 的日志，再决定是否重跑。",
)
TOPICS = ("数据迁移", "账单对账", "接口限流", "夜间备份", "权限审计", "季度报表", "the login page", "search index")
TOOLS = ("ruff", "pytest", "terraform", "gen-itgc", "uv", "kubectl", "make check", "sqlite3")
NAMES = "王李张刘陈杨赵黄"

TEXT = "一条普通的记录，plain and short。"
LINE = f"- [2026-07-22 09:30:00] {TEXT}"
PRELUDE = """
import sys
import oryx_memory

def peak():
    # Linux lets a new process inherit ru_maxrss from the one that started it, so ask for its own peak there.
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
"""
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


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes in entries, and how often each thing is measured."""

    small: int = 100
    large: int = 100_000
    blocks: int = 10  # the huge file is that many times the large one
    cold_rounds: int = 35
    append_rounds: int = 31
    recall_rounds: int = 15
    middle: int = 10_000
    huge_rounds: int = 7
    migration_rounds: int = 3
    memory_rounds: int = 5


QUICK = Plan(
    middle=1_000,
    migration_rounds=1,
    large=5_000,
    blocks=4,
    cold_rounds=3,
    append_rounds=5,
    recall_rounds=3,
    huge_rounds=3,
    memory_rounds=1,
)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `unit` is ms where the figures are seconds, MB where they are bytes."""

    what: str
    measured: float
    baseline: float
    target: float | None = None
    unit: str = "ms"

    def cells(self) -> tuple[str, ...]:
        ratio = self.measured / self.baseline if self.baseline else float("inf")
        target = "" if self.target is None else f"<= {self.target:g} x"
        verdict = "" if self.target is None else "ok" if ratio <= self.target else "over"
        return (self.what, self._shown(self.measured), self._shown(self.baseline), f"{ratio:.2f} x", target, verdict)

    def _shown(self, figure: float) -> str:
        return f"{figure * 1e3:,.1f} ms" if self.unit == "ms" else f"{figure / 1e6:,.1f} MB"


class Place:
    """The workspace that is measured, in a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / ".oryxos"

    def file(self, agent: str) -> Path:
        return self.root / "agents" / agent / "MEMORY.md"

    def store(self, agent: str, backend: str = "markdown") -> LongTermMemoryStore:
        workspace = Workspace(self.root)
        return stores.open(workspace, settings.load(self.root, {}, {"backend": backend}), agent)

    def write(self, agent: str, lines: bytes, times: int = 1) -> None:
        """Make a memory; on the disk when it returns, so that no later fsync pays for it."""
        path = self.file(agent)
        path.parent.mkdir(parents=True)
        with path.open("wb") as file:
            file.write("## 核心记忆\n\n- 用中文回答，keep code in English。\n\n## 归档记忆\n\n".encode())
            for _ in range(times):
                file.write(lines)
            file.flush()
            os.fsync(file.fileno())


def entries(count: int) -> Iterator[str]:
    """Mixed Chinese and English lines, the same in every run. One in 1,250 is of each rare kind."""
    rng = random.Random(20260722)
    moment = datetime(2024, 1, 1, 8)
    rare = list(RARE.values())
    for number in range(count):
        moment += timedelta(seconds=rng.randrange(20, 1500))
        step = number % 1250 - 600
        text = (
            rare[step]
            if 0 <= step < len(rare)
            else rng.choice(COMMON).format(
                topic=rng.choice(TOPICS), tool=rng.choice(TOOLS), name=rng.choice(NAMES), n=rng.randrange(1, 10)
            )
        )
        yield f"- [{moment}] {text}\n"


def interleaved(cases: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median seconds of each case. Each round runs all of them, starting with another one; one round is thrown away
    to warm the caches.
    """
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    names = list(cases)
    for number in range(rounds + 1):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            start = time.perf_counter()
            cases[name]()
            if number:
                seconds[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in seconds.items()}


def run(command: Sequence[str], *, check: bool = True) -> bytes:
    """Run a command in a process of its own, with its output piped, and return that output."""
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=check).stdout


def cold_rows(place: Place, plan: Plan) -> Iterator[Row]:
    """Cold commands on a memory of about 200 entries."""
    oryx = str(Path(sys.executable).with_name("oryx"))
    if not os.access(oryx, os.X_OK):
        raise SystemExit(f"{oryx}: not there; install the package for this interpreter (pip install -e .)")
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
            "plain": partial(plain_append, place.file("plain")),
            "naive": partial(naive_append, place.file("naive")),
        },
        plan.append_rounds,
    )
    base = found["small"]
    of_large, of_small = f"{plan.large:,} entries", f"{plan.small:,}"
    yield Row(f"append to {of_large} / append to {of_small}", found["large"], base, APPEND_TARGET)
    yield Row(f"  for comparison: read, add, write anew ({of_large})", found["naive"], base)
    yield Row("  for comparison: open, write, fsync", found["plain"], base)
    found = interleaved({"small": partial(small.append, TEXT), "huge": partial(huge.append, TEXT)}, plan.huge_rounds)
    yield Row(f"append to {megabytes(place.file('huge'))} / append to {of_small}", found["huge"], found["small"])


def sqlite_rows(place: Place, plan: Plan) -> Iterator[Row]:
    """The sqlite backend: cold commands, appends to a small and a large memory, recall, and moving there."""
    oryx = str(Path(sys.executable).with_name("oryx"))
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
    yield Row(what, found["migrate"], found["read"], MIGRATION_TARGET)


def plain_append(path: Path) -> None:
    """One durable line, and nothing that guards it."""
    with path.open("ab") as file:
        file.write(LINE.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def naive_append(path: Path) -> None:
    """What a script would do: read the text, put the line in its place, write all of it anew, as durably as we do."""
    text = path.read_text(encoding="utf-8")
    at = len(text.rstrip("\n"))
    temporary = path.with_suffix(".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(f"{text[:at]}\n{LINE}{text[at:]}")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


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
            peaks[action].append(peak_of(code, place, "huge"))
    imports = median(peaks["import"])
    for action, target in (("append", WHOLE_FILE), ("load", MEMORY_TARGET), ("recall", MEMORY_TARGET)):
        what = f"peak memory of {action}, {megabytes(place.file('huge'))} / size of the file"
        yield Row(what, median(peaks[action]) - imports, size, target, unit="MB")
    yield Row("  for comparison: peak memory of the imports alone", imports, size, unit="MB")
    middle, large = (
        median(peak_of(MIGRATE, place, agent) for _ in range(plan.memory_rounds)) for agent in ("middle", "large")
    )
    what = f"peak memory of migrating {plan.large:,} entries / {plan.middle:,}, imports included"
    yield Row(what, large, middle, FLAT_TARGET, unit="MB")


def peak_of(code: str, place: Place, agent: str) -> int:
    """Peak memory in bytes of a new process that runs the code on an agent's memory."""
    return int(
        run([sys.executable, "-c", f"{PRELUDE}\n{code}\nprint(peak())", str(place.root), agent, KEYWORDS["Chinese"]])
    )


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
    table = [("what", "measured", "baseline", "ratio", "target", "")] + [row.cells() for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for what, measured, *rest in table:
        figures = [cell.rjust(width) for cell, width in zip((measured, *rest[:-1]), widths[1:-1], strict=True)]
        print("  ".join([what.ljust(widths[0]), *figures, rest[-1]]).rstrip())


def clean_environment(folder: Path) -> None:
    """For the processes that are started: nobody's own settings count, and all of them find compiled modules, as an
    installed package has them, made in the warming round.
    """
    for name in list(os.environ):
        if name.startswith("ORYX") or name in ("XDG_CONFIG_HOME", "PYTHONDONTWRITEBYTECODE"):
            del os.environ[name]
    os.environ |= {"HOME": str(folder), "PYTHONPYCACHEPREFIX": str(folder / "pycache")}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the package against baselines of the same run.")
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds, for trying it out")
    quick: bool = parser.parse_args().quick
    plan = QUICK if quick else Plan()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="oryx-bench-") as folder:
        clean_environment(Path(folder))
        place = Place(Path(folder))
        prepare(place, plan)
        rows = [
            row
            for measure in (cold_rows, append_rows, recall_rows, memory_rows, sqlite_rows)
            for row in measure(place, plan)
        ]
    seconds = time.perf_counter() - start
    print(f"Python {platform.python_version()}, {sys.platform}, {os.cpu_count()} cores, {seconds:.0f} s in all")
    if quick:
        print("quick: too small to judge by")
    show(rows)


if __name__ == "__main__":
    main()
