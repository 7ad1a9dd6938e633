"""What every benchmark shares: the sizes, the lines that memories are made of, the workspace, the rounds, the rows.

A figure stands beside a baseline that was measured in the same run, in turn with it, round after round: so a machine
that becomes slower in between makes both slower.
"""

import os
import random
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Literal

from oryx_memory import LongTermMemoryStore, Workspace, settings, stores

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


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes in entries, and how often each thing is measured."""

    small: int = 100
    middle: int = 10_000
    large: int = 100_000
    blocks: int = 10  # the huge file is that many times the large one
    branch: int = 1_000  # what each of two branches adds
    recall_sizes: tuple[int, ...] = (1_000, 10_000, 100_000)  # of ranked recall
    growth: tuple[int, ...] = (100, 1_000, 10_000, 100_000, 1_000_000)  # the plot's
    cold_rounds: int = 35
    append_rounds: int = 31
    journal_rounds: int = 151  # the difference is small
    recall_rounds: int = 15
    huge_rounds: int = 7
    slow_rounds: int = 3  # for what takes seconds
    migration_rounds: int = 2
    memory_rounds: int = 3


QUICK = Plan(
    middle=1_000,
    large=2_500,
    blocks=2,
    branch=100,
    recall_sizes=(700, 1_000, 2_500),
    growth=(100, 1_000, 2_500),
    cold_rounds=1,
    append_rounds=5,
    journal_rounds=9,
    recall_rounds=1,
    huge_rounds=1,
    slow_rounds=1,
    migration_rounds=1,
    memory_rounds=1,
)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. The figures are seconds where `unit` is ms or s, bytes where it is MB."""

    what: str
    measured: float
    baseline: float
    target: float | None = None
    unit: Literal["ms", "s", "MB"] = "ms"

    @property
    def ratio(self) -> float:
        return self.measured / self.baseline if self.baseline else float("inf")

    def cells(self) -> tuple[str, ...]:
        target = "" if self.target is None else f"<= {self.target:g} x"
        verdict = "" if self.target is None else "ok" if self.ratio <= self.target else "over"
        figures = (self._shown(self.measured), self._shown(self.baseline), f"{self.ratio:.2f} x")
        return (self.what, *figures, target, verdict)

    def _shown(self, figure: float) -> str:
        shown = {"ms": f"{figure * 1e3:,.1f}", "s": f"{figure:,.2f}", "MB": f"{figure / 1e6:,.1f}"}
        return f"{shown[self.unit]} {self.unit}"


class Place:
    """A workspace that is measured, in a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / ".oryxos"

    def file(self, agent: str) -> Path:
        return self.root / "agents" / agent / "MEMORY.md"

    def store(self, agent: str, backend: str = "markdown") -> LongTermMemoryStore:
        workspace = Workspace(self.root)
        return stores.open(workspace, settings.load(self.root, {}, {"backend": backend}), agent)

    def write(self, agent: str, lines: bytes, times: int = 1) -> None:
        """Make a memory, or another version of it; on the disk when it returns, so that no later fsync pays for it."""
        path = self.file(agent)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write("## 核心记忆\n\n- 用中文回答，keep code in English。\n\n## 归档记忆\n\n".encode())
            for _ in range(times):
                file.write(lines)
            file.flush()
            os.fsync(file.fileno())


def entries(count: int, *, distinct: bool = False) -> Iterator[str]:
    """Mixed Chinese and English lines, the same in every run. One in 1,250 is of each rare kind.

    `distinct`: no text twice and no key twice, as in a memory that is kept clean.
    """
    rng = random.Random(20260722)
    moment = datetime(2020, 1, 1, 8)
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
        if distinct:
            text = f"第 {number} 条：{text.replace('^review_rule', f'^review_rule_{number}')}"
        yield f"- [{moment}] {text}\n"


def interleaved(
    cases: Mapping[str, Callable[[], object]], rounds: int, before: Mapping[str, Callable[[], object]] | None = None
) -> dict[str, float]:
    """The median seconds of each case. Each round runs all of them, starting with another one; one round is thrown away
    to warm the caches. What `before` has for a case is done first, each time, and not counted.
    """
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    names = list(cases)
    for number in range(rounds + 1):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            if before and name in before:
                before[name]()
            start = time.perf_counter()
            cases[name]()
            if number:
                seconds[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in seconds.items()}


def run(command: Sequence[str], *, check: bool = True) -> bytes:
    """Run a command in a process of its own, with its output piped, and return that output. Exits where it fails."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if check and done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise SystemExit(f"{shlex.join(command)}: exit code {done.returncode}: {said}")
    return done.stdout


def program(name: str) -> str:
    """The full path of a command of this package. Exits where it is not installed."""
    path = Path(sys.executable).with_name(name)
    if not os.access(path, os.X_OK):
        raise SystemExit(f"{path}: not there; install the package for this interpreter (pip install -e .)")
    return str(path)


def peak_of(code: str, place: Place, agent: str, text: str) -> int:
    """Peak memory in bytes of a new process that runs the code on an agent's memory, with a text to look for."""
    return int(run([sys.executable, "-c", f"{PRELUDE}\n{code}\nprint(peak())", str(place.root), agent, text]))


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


def foreign_append(path: Path) -> None:
    """What an editor or OryxOS does: a line that no lock guards and nobody told us of."""
    with path.open("ab") as file:
        file.write(LINE.encode() + b"\n")
