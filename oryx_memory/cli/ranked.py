"""What `recall --mode ranked` prints: the best entries first, with their scores where they are asked for."""

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from oryx_memory.cli.options import Here, title
from oryx_memory.cli.output import entries_text, retirement, styled, visible
from oryx_memory.entry import Entry, as_record
from oryx_memory.errors import RejectedInput, SettingsError
from oryx_memory.index import open_or_in_memory
from oryx_memory.recall import CANDIDATES, LIMIT, Hit, ranked
from oryx_memory.stores import LongTermMemoryStore, RecallCapability, local_clock

if TYPE_CHECKING:
    from oryx_memory.vectors import Semantic

Answer = tuple[str | None, Hit]


class Skipped(NamedTuple):
    """A route that took no part in an agent's memory, and why."""

    agent: str | None
    route: str
    reason: str


def search(
    here: Here,
    query: str,
    fits: Callable[[Entry], bool] | None,
    *,
    all_agents: bool,
    retired: bool,
    limit: int | None,
    min_score: float,
    now: datetime | None,
) -> tuple[list[Answer], list[Skipped]]:
    """The answers of one agent or of all, best first, and the routes that gave none. `fits` says which entries may be
    among them; None: all.
    """
    stores = [here.store(agent) for agent in here.names(all_agents)]
    if all(store.recall_capability is RecallCapability.DELEGATED for store in stores):
        return _delegated(stores, query, fits, retired=retired, min_score=min_score)[: limit or LIMIT], []
    moment = now or local_clock(here.settings["time.zone"])()
    found: list[Answer] = []
    skipped: list[Skipped] = []
    semantic = semantic_route(here)
    with open_or_in_memory(here.workspace.index_file, here.lock_timeout) as index:
        for store in stores:
            hits, without = ranked(
                store, index, query, now=moment, limit=None, retired=retired, semantic=semantic, fits=fits
            )
            found += ((store.agent, hit) for hit in hits if hit.score >= min_score)
            skipped += (Skipped(store.agent, route, reason) for route, reason in without.items())
    if semantic:
        tell_of_vectors(here, semantic, all_agents=all_agents)
    found.sort(key=lambda answer: -answer[1].score)
    return found[: limit or LIMIT], skipped


def _delegated(
    stores: Sequence[LongTermMemoryStore],
    query: str,
    fits: Callable[[Entry], bool] | None,
    *,
    retired: bool,
    min_score: float,
) -> list[Answer]:
    """What a backend that searches by itself finds; its score is the only one."""
    if retired:
        raise RejectedInput("the server searches only what is live; --mode keyword finds retired entries too")
    found: list[Answer] = []
    for store in stores:
        hits = store.scored(query, limit=CANDIDATES, least=min_score)
        found += (
            (store.agent, Hit(hit.entry, hit.score, {"server": hit.score}))
            for hit in hits
            if not fits or fits(hit.entry)
        )
    return sorted(found, key=lambda answer: -answer[1].score)


def semantic_route(here: Here) -> "Semantic | None":
    """The semantic route where an embedder is configured."""
    if not here.settings["embedding.provider"]:
        return None
    from oryx_memory.breaker import configured
    from oryx_memory.vectors import Semantic

    clock = local_clock(here.settings["time.zone"])
    try:
        embedder, settings = configured(here.settings.embedding, os.environ)
    except SettingsError as error:
        return Semantic(None, "", clock, str(error))
    return Semantic(embedder, settings, clock)


def tell_of_vectors(here: Here, semantic: "Semantic", *, all_agents: bool) -> None:
    """Why meaning took no part in a search, or what makes the vectors that are lacking."""
    if semantic.trouble:
        here.out.warn(f"oryx: warning: searched by words and dates only: {semantic.trouble}")
    elif semantic.lacking:
        from oryx_memory.cli import hints

        words = ("--all-agents",) if all_agents else ()
        command = hints.command(here, None if all_agents else here.agent, "index", *words)
        here.out.talk(f"{semantic.lacking:,} of {entries_text(semantic.entries)} have no vector; {command} makes them")


def show(here: Here, found: Sequence[Answer], *, all_agents: bool, retired: bool, explain: bool) -> None:
    """Stored lines, led by the agent where there are several, by live or retired where both are asked for, and with
    `explain` by score and routes.
    """
    for agent, hit in found:
        led = [agent or "(global)"] if all_agents else []
        led += ["retired" if hit.entry.retired else "live"] if retired else []
        led += [f"{hit.score:.3f}", _routes(hit)] if explain else []
        if here.out.fancy:
            from rich.text import Text

            here.out.render(Text.assemble((visible("  ".join(led)) + "  " * bool(led), "dim"), styled(hit.entry)))
            if hit.entry.retired:
                here.out.render(retirement(hit.entry))
        else:
            here.out.data("\t".join([*led, hit.entry.raw]))


def show_json(here: Here, found: Sequence[Answer], skipped: Sequence[Skipped], *, explain: bool) -> None:
    """The hits as an array; with `explain` as an object, beside the routes that took no part."""
    hits = [_record(agent, hit) for agent, hit in found]
    here.out.object({"hits": hits, "skipped": [item._asdict() for item in skipped]} if explain else hits)


def tell_skipped(here: Here, skipped: Sequence[Skipped], *, all_agents: bool) -> None:
    """Why routes took no part, in a line each on standard error; where all agents have the same reason, once."""
    agents: dict[tuple[str, str], list[str]] = {}
    for item in skipped:
        agents.setdefault((item.route, item.reason), []).append(title(item.agent))
    searched = {item.agent for item in skipped}
    for (route, reason), names in agents.items():
        where = f" ({', '.join(names)})" if all_agents and len(names) < len(searched) else ""
        here.out.talk(f"{route}: {reason}{where}")


def _record(agent: str | None, hit: Hit) -> dict[str, Any]:
    routes = {name: round(score, 4) for name, score in hit.routes.items()}
    return {**as_record(hit.entry, agent), "score": round(hit.score, 4), "routes": routes}


def _routes(hit: Hit) -> str:
    return " ".join(f"{name}={score:.2f}" for name, score in hit.routes.items())
