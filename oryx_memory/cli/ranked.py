"""What `recall --mode ranked` prints: the best entries first, with their scores where they are asked for."""

from collections.abc import Callable, Sequence
from datetime import datetime

from oryx_memory.cli.options import Here
from oryx_memory.cli.output import styled, visible
from oryx_memory.entry import Entry, as_record
from oryx_memory.index import open_or_in_memory
from oryx_memory.recall import LIMIT, Hit, ranked
from oryx_memory.stores import local_clock

Answer = tuple[str | None, Hit]


def search(
    here: Here,
    query: str,
    fits: Callable[[Entry], bool],
    *,
    all_agents: bool,
    limit: int | None,
    min_score: float,
    now: datetime | None,
) -> list[Answer]:
    """The answers of one agent or of all, best first. `fits` says which entries may be among them."""
    moment = now or local_clock(here.settings["time.zone"])()
    found: list[Answer] = []
    with open_or_in_memory(here.workspace.index_file, here.lock_timeout) as index:
        for agent in here.names(all_agents):
            store = here.store(agent)
            hits = ranked(store, index, query, now=moment, limit=None)
            found += ((store.agent, hit) for hit in hits if hit.score >= min_score and fits(hit.entry))
    found.sort(key=lambda answer: -answer[1].score)
    return found[: limit or LIMIT]


def show(here: Here, found: Sequence[Answer], *, all_agents: bool, explain: bool) -> None:
    """Stored lines, led by the agent where there are several; with `explain` by score and routes too."""
    if here.out.json:
        here.out.object(
            [
                {**as_record(hit.entry, agent), "score": round(hit.score, 4), "routes": _rounded(hit)}
                for agent, hit in found
            ]
        )
        return
    for agent, hit in found:
        led = [agent or "(global)"] if all_agents else []
        led += [f"{hit.score:.3f}", _routes(hit)] if explain else []
        if here.out.fancy:
            from rich.text import Text

            here.out.render(Text.assemble((visible("  ".join(led)) + "  " * bool(led), "dim"), styled(hit.entry)))
        else:
            here.out.data("\t".join([*led, hit.entry.raw]))


def _rounded(hit: Hit) -> dict[str, float]:
    return {name: round(score, 4) for name, score in hit.routes.items()}


def _routes(hit: Hit) -> str:
    return " ".join(f"{name}={score:.2f}" for name, score in hit.routes.items())
