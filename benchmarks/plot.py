"""The picture of a run: how the time of an append grows with the memory, and how much of each target is used.

Needs matplotlib (the extra `bench`); nothing else here does. Colours are those of Okabe and Ito, which colour-blind
people can tell apart, and every line also has its own mark and every miss its own hatching.
"""

import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")  # no display is needed

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter
from measuring import TEXT, Place, Plan, Row, entries, foreign_append, interleaved, naive_append

Curves = Mapping[str, Sequence[tuple[int, float]]]

BLUE, SKY, GREEN, VERMILION, GREY = "#0072B2", "#56B4E9", "#009E73", "#D55E00", "#555555"


class Style(NamedTuple):
    label: str
    colour: str
    mark: str
    line: str


STYLES = {
    "naive": Style("read, add, write anew (a script)", VERMILION, "s", ":"),
    "scan": Style("markdown, after another program wrote", SKY, "^", "--"),
    "sqlite": Style("sqlite", GREEN, "D", "-."),
    "markdown": Style("markdown", BLUE, "o", "-"),
}


def growth(place: Place, plan: Plan) -> Curves:
    """Seconds of an append for each size, by kind. Needs the large memory in both backends, to copy it."""
    curves: dict[str, list[tuple[int, float]]] = {kind: [] for kind in STYLES}
    block = "".join(entries(plan.large)).encode()
    for size in plan.growth:
        agent, script = f"of{size}", f"script{size}"
        lines = block if size >= plan.large else b"".join(block.splitlines(keepends=True)[:size])
        times = max(1, size // plan.large)
        place.write(agent, lines, times)
        place.write(script, lines, times)
        copy_rows(place, agent, min(size, plan.large), times)
        markdown, sqlite = place.store(agent), place.store(agent, "sqlite")
        found = interleaved(
            {
                "markdown": partial(markdown.append, TEXT),
                "scan": partial(markdown.append, TEXT),
                "sqlite": partial(sqlite.append, TEXT),
                "naive": partial(naive_append, place.file(script)),
            },
            plan.huge_rounds,
            {"scan": partial(foreign_append, place.file(agent))},
        )
        for kind, seconds in found.items():
            curves[kind].append((size, seconds))
        for name in (agent, script):
            shutil.rmtree(place.file(name).parent)
    return curves


def copy_rows(place: Place, agent: str, count: int, times: int) -> None:
    """Give an agent the first rows of the large memory, as often as asked; migrating a million would take minutes."""
    with closing(sqlite3.connect(place.folder / "oryxos.db")) as database:
        for _ in range(times):
            database.execute(
                "INSERT INTO memory_entries (agent_name, scope, content, created_at) SELECT ?, scope, content, created_at "
                "FROM memory_entries WHERE agent_name = 'large' ORDER BY id LIMIT ?",
                (agent, count),
            )
        database.commit()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # or the appends that are measured would do it


def draw(path: Path, title: str, curves: Curves, rows: Sequence[Row]) -> None:
    """Write the picture as PNG; its folder is made."""
    judged = [row for row in rows if row.target is not None]
    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(15, 2.2 + 0.29 * len(judged)), width_ratios=(1, 0.8), layout="constrained"
    )
    figure.suptitle(title, x=0.005, ha="left", fontsize=10, color=GREY)
    draw_growth(left, curves)
    draw_targets(right, judged)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def draw_growth(axes: Axes, curves: Curves) -> None:
    for kind, style in STYLES.items():
        sizes, seconds = zip(*curves[kind], strict=True)
        figures = [second * 1e3 for second in seconds]
        axes.loglog(
            sizes,
            figures,
            style.line,
            marker=style.mark,
            color=style.colour,
            label=style.label,
            linewidth=2,
            markersize=7,
        )
    axes.set_title("One durable append, by size of the memory", loc="left", fontweight="bold")
    axes.set_xlabel("entries in the memory")
    axes.set_ylabel("milliseconds (median)")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(which="major", color="#dddddd")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="best", frameon=False)


def draw_targets(axes: Axes, rows: Sequence[Row]) -> None:
    """A bar for each target: how much of it is used. Behind it stand the ratio and the target."""
    shares = [row.ratio / (row.target or 1) for row in rows]
    over = [share > 1 for share in shares]
    edge = 1.25  # what is beyond is cut here, and its figures tell
    axes.barh(
        range(len(rows)),
        [min(share, edge) for share in shares],
        height=0.7,
        color=[VERMILION if missed else BLUE for missed in over],
        hatch=["///" if missed else "" for missed in over],
        edgecolor="white",
    )
    for place, row in enumerate(rows):
        axes.text(edge + 0.3, place, f"{row.ratio:.2f} of {row.target:g} x", fontsize=9, ha="right", va="center")
    axes.axvline(1, color="black", linewidth=1.2)
    axes.set_yticks(range(len(rows)), [row.what for row in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, edge + 0.3)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1, edge], ["0%", "25%", "50%", "75%", "target", f"{edge:.0%}+"])
    axes.set_xlabel("share of the target that is used; hatched where it is missed")
    axes.set_title("Ratios against their targets", loc="left", fontweight="bold")
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
