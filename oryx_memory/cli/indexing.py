"""The command `index`: vectors for ranked recall are made here and nowhere else."""

import os
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oryx_memory.cli.options import Here, memory_command, title
from oryx_memory.cli.output import entries_text
from oryx_memory.errors import FileProblem, LockTimeout, RejectedInput, ServiceProblem
from oryx_memory.stores import LongTermMemoryStore

if TYPE_CHECKING:
    from oryx_memory.embeddings import Embedder
    from oryx_memory.episodes import Episodes
    from oryx_memory.index import Index, Source

app = typer.Typer(rich_markup_mode=None)

_REASONS = {
    "tag": "by tag",
    "credential": "with a credential",
    "footprint": "footprints",
    "empty": "without text",
    "unknown": "without a word that the model knows",
    "refused": "refused by the model",
}
_STEPS = 1000  # of the progress bar for each memory


@memory_command(app)
def index(
    here: Here,
    all_agents: Annotated[bool, typer.Option("--all-agents", help="Every agent and the global memory.")] = False,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make all anew; known vectors cost nothing.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Only check it; exit code 1 if something differs.")] = False,
) -> None:
    """Bring the index of ranked recall up to date, and give each entry its vector where [embedding] names a model.

    \b
    Texts of archival entries and of past sessions go to that model once. Never: entries with a tag of [embedding] exclude_tags, footprints, lines
    with something like a credential. A run that is stopped goes on where it was. With --all-agents what no entry has any
    more is deleted.
      oryx memory index --all-agents
      oryx memory index -a ops --verify
    """
    if rebuild and verify:
        raise RejectedInput("--rebuild and --verify exclude each other")
    if here.settings["backend"] == "mem0":
        raise RejectedInput("a mem0 server searches by itself: of its memories there is no index")
    stores = [here.store(agent) for agent in here.names(all_agents)]
    episodes = _episodes(here, all_agents=all_agents)
    if verify:
        _verify(here, [*stores, *episodes])
    else:
        _index(here, stores, episodes, rebuild=rebuild, all_agents=all_agents)


def _episodes(here: Here, *, all_agents: bool) -> "list[Episodes]":
    """The past sessions of the agent, or of all; a database that cannot be read keeps no memory from being indexed."""
    from oryx_memory.episodes import Episodes
    from oryx_memory.sessions import open_sessions

    try:
        sessions = open_sessions(here.workspace, here.settings, lock_timeout=here.lock_timeout)
        return [Episodes(sessions, name) for name in sessions.agents() if all_agents or name == here.agent]
    except (FileProblem, LockTimeout) as error:
        here.out.warn(f"oryx: warning: {error}; sessions were left out")
        return []


def _of(source: "Source") -> dict[str, Any]:
    """Whose a source is, and that it is sessions where it is."""
    from oryx_memory.episodes import Episodes

    return {"agent": source.agent, **({"sessions": True} if isinstance(source, Episodes) else {})}


def _named(item: dict[str, Any]) -> str:
    return f"{title(item['agent'])}{', sessions' if 'sessions' in item else ''}"


def _index(
    here: Here,
    stores: Sequence[LongTermMemoryStore],
    episodes: "Sequence[Episodes]",
    *,
    rebuild: bool,
    all_agents: bool,
) -> None:
    from oryx_memory import breaker, vectors
    from oryx_memory.files import Lock

    embedder, settings = breaker.configured(here.settings.embedding, os.environ)
    sources: list[Source] = [*stores, *episodes]
    made: list[dict[str, Any]] = []
    removed = {"memories": 0, "vectors": 0}
    # Two at once would pay twice. Nothing else waits for this lock.
    lock = Lock(here.workspace.clean_lock_file.with_name("indexing.lock"), (), here.lock_timeout)
    with lock if embedder else nullcontext(), vectors.open_index(here.workspace.index_file, here.lock_timeout) as index:
        for number, store in enumerate(sources):
            if rebuild:
                vectors.reset(index, index.rebuild(store))
            if embedder is None:
                index.update(store)
                made.append({**_of(store), "entries": index.about(store).indexed})
            else:
                step = partial(_step, here, number, len(sources))
                made.append(_embed(here, index, store, embedder, settings, step))
        if all_agents:
            removed = {"memories": index.prune(sources), "vectors": vectors.prune(index, stores)}
    _report(here, embedder, made, removed)


def _step(here: Here, number: int, memories: int, done: int, total: int) -> None:
    here.out.progress.step(number * _STEPS + _STEPS * done // max(total, 1), memories * _STEPS)


def _embed(
    here: Here, index: "Index", store: "Source", embedder: "Embedder", settings: str, step: "partial[None]"
) -> dict[str, Any]:
    """Make the vectors of a memory. Raises ServiceProblem after noting it and telling what there is."""
    from oryx_memory import breaker, vectors
    from oryx_memory.stores import local_clock

    try:
        report = vectors.embed(index, store, embedder, exclude_tags=here.settings["embedding.exclude_tags"], step=step)
    except ServiceProblem as error:
        breaker.note_failure(index, settings, error, local_clock(here.settings["time.zone"])())
        covered = vectors.coverage(index, index.update(store), embedder)
        number = covered.vectors if covered.model == embedder.model else 0
        here.out.talk(
            f"{_named(_of(store))}: {number:,} of {entries_text(covered.entries)} have a vector; "
            "the next run goes on from there"
        )
        raise
    breaker.note_success(index)
    return {**_of(store), **report._asdict()}


def _report(here: Here, embedder: "Embedder | None", made: list[dict[str, Any]], removed: dict[str, int]) -> None:
    if here.out.json:
        here.out.object({"model": embedder.model if embedder else None, "memories": made, "removed": removed})
        return
    for item in made:
        text = f"{_named(item)}: {entries_text(item['entries'])} indexed"
        if embedder:
            text += f", {item['vectors']:,} with a vector of {embedder.model}, {item['asked']:,} of them new"
            left_out = [
                f"{number:,} {kind}" for reason, kind in _REASONS.items() if (number := item["excluded"].get(reason))
            ]
            text += f"; left out: {', '.join(left_out)}" if left_out else ""
        here.out.talk(text)
    if embedder is None:
        here.out.talk("no vectors: [embedding] in your own config.toml names no provider")
    if any(removed.values()):
        here.out.talk(
            f"deleted: {removed['memories']:,} memories that are gone, {removed['vectors']:,} vectors of no entry"
        )


def _verify(here: Here, sources: "Sequence[Source]") -> None:
    from oryx_memory import vectors

    if not here.workspace.index_file.exists():
        here.out.talk("there is no index; the next ranked recall makes one")
        return
    with vectors.open_index(here.workspace.index_file, here.lock_timeout) as index:
        found = [
            (_of(store), line)
            for store in sources
            for line in (*index.verify(store), *vectors.verify(index, index.update(store)))
        ]
    if here.out.json:
        here.out.object([{**whose, "problem": line} for whose, line in found])
    else:
        here.out.rows((_named(whose), line.replace("\n", " ")) for whose, line in found)
    if found:
        here.out.talk("`oryx memory index --rebuild` makes the index anew")
        raise typer.Exit(1)
