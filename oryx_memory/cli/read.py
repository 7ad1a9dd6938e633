"""Commands that show a memory: load, recall, list, show."""

from collections.abc import Callable, Iterable
from datetime import datetime
from enum import StrEnum
from math import isnan
from typing import Annotated

import typer

from oryx_memory import changes
from oryx_memory.cli.options import Here, complete_live, left_out, loaded, memory_command, one_text, title
from oryx_memory.cli.output import entries_text, retirement, styled, visible
from oryx_memory.entry import Entry, Scope, as_record
from oryx_memory.errors import NothingFound, RejectedInput
from oryx_memory.matching import Keyword

app = typer.Typer(rich_markup_mode=None)


_SHOWN = 60  # characters of a query that an error repeats


class Mode(StrEnum):
    """How recall searches."""

    KEYWORD = "keyword"
    RANKED = "ranked"


class Program(StrEnum):
    """Whose text load prints."""

    ORYXOS = "oryxos"


Tags = Annotated[
    list[str] | None, typer.Option("--tag", help="Only entries with this tag; may be repeated.", show_default=False)
]
Since = Annotated[
    str | None, typer.Option(help="Only from this time on: 2026-07-22, or 7d for the last 7 days.", show_default=False)
]
Until = Annotated[str | None, typer.Option(help="Only before this time.", show_default=False)]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=1, help="The newest N, in order.", show_default=False)]
OneScope = Annotated[Scope | None, typer.Option(help="Only this section.", show_default=False)]


@memory_command(app)
def load(
    here: Here,
    scope: OneScope = None,
    max_chars: Annotated[
        int | None,
        typer.Option(
            min=1, help="The window, in characters; by default [archival] max_chars, 4000.", show_default=False
        ),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="All of archival, no window.")] = False,
    as_: Annotated[
        Program | None,
        typer.Option("--as", help="Exactly the text that OryxOS itself would give.", show_default=False),
    ] = None,
) -> None:
    """Print what a model is given: core whole, and the newest archival entries that fit in the window.

    \b
    What is left out is counted on standard error.
      oryx memory load -a ops
    """
    if full and max_chars:
        raise RejectedInput("--full and --max-chars exclude each other")
    if as_ and here.out.json:
        raise RejectedInput(
            "--as oryxos and --json exclude each other: OryxOS gives a text; leave out --as for the entries"
        )
    store = here.store()
    if as_:
        here.out.data(store.load_as_oryxos())
        return
    memory = loaded(here, store, None if full else max_chars or here.settings["archival.max_chars"])
    if here.out.json:
        here.out.object(
            {
                "agent": store.agent,
                "core": [as_record(entry, store.agent) for entry in memory.core],
                "archival": [as_record(entry, store.agent) for entry in memory.window],
                "outside": memory.outside,
                "cut": memory.cut,
                "text": str(memory),
            }
        )
    elif scope is None:
        here.out.data(str(memory))
    elif text := memory.section(scope):
        here.out.data(text)
    if scope is not Scope.CORE and (missing := left_out(memory)):
        from oryx_memory.cli import hints

        here.out.talk(f"{missing}; {hints.command(here, store.agent, 'load', '--full')} shows all")


@memory_command(app)
def recall(
    here: Here,
    query: Annotated[list[str] | None, typer.Argument(metavar="QUERY", show_default=False)] = None,
    mode: Annotated[
        Mode | None, typer.Option(help="How to search; by default [recall] mode, keyword.", show_default=False)
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            min=1,
            help="The newest N, in order; ranked: the best N, by default 10.",
            show_default=False,
        ),
    ] = None,
    since: Since = None,
    until: Until = None,
    tag: Tags = None,
    retired: Annotated[
        bool, typer.Option("--retired", help="Retired entries too; lines are led by live or retired and a tab.")
    ] = False,
    count: Annotated[
        bool, typer.Option("--count", help="Print the number of entries only; ranked: at most --limit.")
    ] = False,
    all_agents: Annotated[
        bool, typer.Option("--all-agents", help="Search every agent; lines are led by the agent and a tab.")
    ] = False,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Ranked: lead lines with score and routes, and tell why a route took no part."),
    ] = False,
    min_score: Annotated[
        float | None, typer.Option(min=0, help="Ranked: only from this score on.", show_default=False)
    ] = None,
    now: Annotated[
        str | None, typer.Option(help="Ranked: what relative dates count from; by default now.", show_default=False)
    ] = None,
) -> None:
    """Print the archival entries that contain QUERY, in order of the file; --mode ranked: those that answer it best.

    \b
    Case, width and accents' encoding do not matter; % and _ are text. Exit code 1 if there is none.
      oryx memory recall -a ops 复核
      oryx memory recall -a ops 'uv' || oryx memory append -a ops 'Use uv, not pip'
      oryx memory recall -a ops --mode ranked '上线前要谁复核？'
    """
    keyword = one_text(query, "query")
    if keyword is None:
        raise RejectedInput("nothing to look for: give a QUERY")
    if min_score is not None and isnan(min_score):
        raise RejectedInput("--min-score: nan is no score")
    if (mode or here.settings["recall.mode"]) == Mode.RANKED:
        _ranked(here, keyword, tag, since, until, limit, count, all_agents, retired, explain, min_score or 0.0, now)
        return
    ranked_only = {"--explain": explain, "--min-score": min_score is not None, "--now": now is not None}
    if given := [option for option, is_given in ranked_only.items() if is_given]:
        raise RejectedInput(f"{', '.join(given)}: only with --mode ranked")
    start, end = here.since(since), here.since(until)
    found: list[tuple[str | None, list[Entry]]] = []
    for agent in here.names(all_agents):
        store = here.store(agent)
        hits = _filtered(store.recall_by_keyword(keyword), tag, start, end)
        hits = hits[-limit:] if limit else hits
        if retired and (limit is None or len(hits) < limit):
            wanted = Keyword(keyword)
            gone = [entry for entry in store.read(retired=True).retired if wanted.matches(entry.text)]
            gone = _filtered(gone, tag, start, end)
            hits += gone[len(hits) - limit :] if limit else gone
        found.append((store.agent, hits))
    total = sum(len(hits) for _, hits in found)
    if count:
        here.out.data(str(total))
    elif (all_agents or retired) and not here.out.json:
        _led(here, found, all_agents=all_agents, retired=retired)
    elif all_agents:
        here.out.object([as_record(entry, agent) for agent, hits in found for entry in hits])
    elif total or here.out.json:
        here.out.entries(found[0][1], found[0][0])
    if not total:
        filtered = bool(tag or start or end)
        raise NothingFound(_nothing(here, keyword, all_agents=all_agents, filtered=filtered))


def _ranked(
    here: Here,
    query: str,
    tag: list[str] | None,
    since: str | None,
    until: str | None,
    limit: int | None,
    count: bool,
    all_agents: bool,
    retired: bool,
    explain: bool,
    min_score: float,
    now: str | None,
) -> None:
    from oryx_memory.cli import ranked  # brings the index, which keyword recall has no need of

    start, end = here.since(since), here.since(until)
    found, skipped = ranked.search(
        here,
        query,
        _fits(tag, start, end),
        all_agents=all_agents,
        retired=retired,
        limit=limit,
        min_score=min_score,
        now=here.time(now) if now else None,
    )
    if count:
        here.out.data(str(len(found)))
    elif here.out.json:
        ranked.show_json(here, found, skipped, explain=explain)
    else:
        ranked.show(here, found, all_agents=all_agents, retired=retired, explain=explain)
        if explain:
            ranked.tell_skipped(here, skipped, all_agents=all_agents)
    if not found:
        raise NothingFound(f"nothing in {'any agent' if all_agents else title(here.agent)} answers {_cut(query)!r}")


@memory_command(app, "list")
def list_(
    here: Here,
    scope: OneScope = None,
    tag: Tags = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = None,
    retired: Annotated[bool, typer.Option("--retired", help="The retired entries instead, oldest first.")] = False,
    ids: Annotated[bool, typer.Option("--ids", help="Lead each line with its id and a tab.")] = False,
) -> None:
    """List entries in order of the file.

    \b
    On a terminal with their ids; piped, exactly the stored lines.
      oryx memory list -a ops --scope core
      oryx memory list -a ops --retired
    """
    store = here.store()
    snapshot = store.read(retired=retired)
    entries: Iterable[Entry] = snapshot.retired if retired else snapshot.core + snapshot.archival
    chosen = _filtered(
        [entry for entry in entries if scope in (None, entry.scope)], tag, here.since(since), here.since(until)
    )
    chosen = chosen[-limit:] if limit else chosen
    if retired and here.out.fancy and not here.out.json:
        _show_retired(here, chosen)
    elif ids and not here.out.json and not here.out.fancy:
        for entry in chosen:
            here.out.data(f"{entry.id}\t{entry.raw}")
    else:
        here.out.entries(chosen, store.agent, ids=True)


@memory_command(app)
def show(here: Here, reference: Annotated[str, typer.Argument(metavar="ID", autocompletion=complete_live)]) -> None:
    """Show one entry, live or else retired.

    \b
    ID is an id, 4 or more of its first digits, or ^key; of several with a key the newest counts.
      oryx memory show -a ops a701
    """
    store = here.store()
    snapshot = store.read(retired=True)
    try:
        found = changes.find(list(snapshot.live()), reference)
    except NothingFound:
        found = changes.find(list(snapshot.out()), reference)
    entry = max(found, key=lambda copy: copy.entry.time or datetime.min).entry
    if here.out.json or not here.out.fancy:
        here.out.entry(entry, store.agent)
        return
    fields = [
        ("id", entry.id),
        ("agent", title(store.agent)),
        ("section", entry.scope.value),
        ("time", str(entry.time or "-")),
        ("type", entry.type),
    ]
    fields += [("tags", " ".join(entry.tags))] if entry.tags else []
    fields += [("key", entry.key)] if entry.key else []
    if entry.retired:
        fields.append(("retired", f"{entry.retired.time}: {entry.retired.reason}; run {entry.retired.run}"))
    from rich.text import Text

    here.out.render(*(Text.assemble((f"{name:8}", "dim"), visible(value)) for name, value in fields))
    here.out.data(f"\n{entry.content}")


def _fits(tags: list[str] | None, since: datetime | None, until: datetime | None) -> Callable[[Entry], bool] | None:
    """Whether an entry has the tags and is of the time; None if nothing is asked of it."""
    wanted = {tag.removeprefix("#") for tag in tags or ()}
    if not (wanted or since or until):
        return None

    def fits(entry: Entry) -> bool:
        if not (all(tag in entry.raw for tag in wanted) and wanted.issubset(entry.tags)):  # parsing takes 20 µs
            return False
        time = entry.time if since or until else None
        return not (since or until) or (
            time is not None and (since is None or time >= since) and (until is None or time < until)
        )

    return fits


def _filtered(
    entries: list[Entry], tags: list[str] | None, since: datetime | None, until: datetime | None
) -> list[Entry]:
    fits = _fits(tags, since, until)
    return entries if fits is None else [entry for entry in entries if fits(entry)]


def _led(here: Here, found: list[tuple[str | None, list[Entry]]], *, all_agents: bool, retired: bool) -> None:
    """Lines led by the agent where there are several, and by live or retired where both are asked for."""
    for agent, hits in found:
        for entry in hits:
            led = [agent or "(global)"] if all_agents else []
            led += ["retired" if entry.retired else "live"] if retired else []
            here.out.data("\t".join([*led, entry.raw]))


def _nothing(here: Here, keyword: str, *, all_agents: bool, filtered: bool) -> str:
    if all_agents:
        return f"no archival entry of any agent contains {_cut(keyword)!r}{' within these limits' if filtered else ''}"
    store = here.store()
    message = f"no archival entry of {title(store.agent)} contains {_cut(keyword)!r}"
    if filtered:
        message += " within these limits"
    wanted = Keyword(keyword)
    in_core = sum(wanted.matches(entry.text) for entry in store.read().core)
    if in_core:
        from oryx_memory.cli import hints

        does = "does" if in_core == 1 else "do"
        message += (
            f"; {entries_text(in_core, 'core')} {does}: {hints.command(here, store.agent, 'list', '--scope', 'core')}"
        )
    return message


def _cut(query: str) -> str:
    return query if len(query) <= _SHOWN else f"{query[:_SHOWN]}…"


def _show_retired(here: Here, entries: list[Entry]) -> None:
    for entry in entries:
        here.out.render(styled(entry, with_id=True), retirement(entry))
