"""Commands for upkeep, from cron or by hand: clean, stats."""

from collections import Counter
from dataclasses import replace
from datetime import date, timedelta
from typing import Annotated, Any

import typer

from oryx_memory.cli.options import Here, for_agent, memory_command, title
from oryx_memory.cli.output import bar, entries_text, sparkline, table
from oryx_memory.entry import as_record
from oryx_memory.errors import OryxMemoryError
from oryx_memory.retention import Policy, TooMuch, parse_span
from oryx_memory.stores import CleanReport, LongTermMemoryStore

app = typer.Typer(rich_markup_mode=None)

_SPARK_DAYS = 30


@memory_command(app)
def clean(
    here: Here,
    older_than: Annotated[
        str | None, typer.Option(help="Retire entries older than this, such as 90d.", show_default=False)
    ] = None,
    keep_chars: Annotated[
        int | None, typer.Option(min=0, help="Retire the oldest beyond this many characters.", show_default=False)
    ] = None,
    keep_entries: Annotated[
        int | None, typer.Option(min=0, help="Retire the oldest beyond this many entries.", show_default=False)
    ] = None,
    no_dedupe: Annotated[bool, typer.Option("--no-dedupe", help="Leave exact duplicates.")] = False,
    purge_retired: Annotated[
        str | None, typer.Option(help="Destroy entries retired longer ago than this, such as 365d.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be retired, change nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Retire more than [clean] max_share of the entries.")] = False,
    all_agents: Annotated[bool, typer.Option("--all-agents", help="Every agent and the global memory.")] = False,
) -> None:
    """Retire archival entries by rule: exact duplicates, and what [clean] or the options say.

    \b
    Only timed archival entries are touched. Prints the retired lines; a whole run can be undone.
      oryx memory clean -a ops --older-than 90d --dry-run
    """
    policy = here.settings.policy()
    given: dict[str, Any] = {
        "older_than": parse_span(older_than) if older_than else None,
        "keep_chars": keep_chars,
        "keep_entries": keep_entries,
        "dedupe": False if no_dedupe else None,
        "purge_retired": parse_span(purge_retired) if purge_retired else None,
        "force": force or None,
    }
    policy = replace(policy, **{name: value for name, value in given.items() if value is not None})
    reports: list[dict[str, Any]] = []
    worst = 0
    for agent in here.names(all_agents):
        try:
            reports.append(_clean_one(here, here.store(agent), policy, dry_run))
        except OryxMemoryError as error:
            if not all_agents:
                raise
            here.out.warn(f"oryx: {title(agent)} skipped: {error}")
            worst = max(worst, error.exit_code)
    if here.out.json:
        here.out.object(reports if all_agents else reports[0])
    if worst:
        raise typer.Exit(worst)


def _clean_one(here: Here, store: LongTermMemoryStore, policy: Policy, dry_run: bool) -> dict[str, Any]:
    try:
        report = store.clean(policy, dry_run=dry_run)
    except TooMuch as refusal:
        if dry_run and not here.out.quiet and not here.out.json:
            here.out.entries([item.copy.entry for item in refusal.change.retire], store.agent)
        raise
    change = report.change
    changed = bool(change.retire or change.purge)
    if not here.out.json and not here.out.quiet:
        here.out.entries([item.copy.entry for item in change.retire], store.agent)
    if here.out.quiet and changed:
        here.out.data(_summary(report))
    elif not here.out.json:
        here.out.talk(_summary(report))
    return {
        "agent": store.agent,
        "dry_run": dry_run,
        "before": report.before,
        "retired": [{**as_record(item.copy.entry, store.agent), "reason": item.reason} for item in change.retire],
        "destroyed": len(change.purge),
        "run": change.run or None,
    }


def _summary(report: CleanReport) -> str:
    change, agent = report.change, report.agent
    would = "would retire" if report.dry_run else "retired"
    if not change.retire and not change.purge:
        return f"{title(agent)}: nothing to retire of {entries_text(report.before, 'archival')}"
    reasons = Counter(item.reason for item in change.retire)
    listed = ", ".join(f"{number:,} {reason}" for reason, number in reasons.items())
    text = f"{title(agent)}: {would} {len(change.retire):,} of {entries_text(report.before, 'archival')}"
    text += f" ({listed})" if listed else ""
    if change.purge:
        text += f", {'would destroy' if report.dry_run else 'destroyed'} {len(change.purge):,} retired"
    if change.retire and not report.dry_run:
        text += f"; undo: oryx memory restore{for_agent(agent)} --run {change.run}"
    return text


@memory_command(app)
def stats(here: Here) -> None:
    """Count entries and characters, the window's use, duplicates, tags, and entries a day.

    \b
      oryx memory stats -a ops
    """
    store = here.store()
    figures = store.stats()
    limit = here.settings["archival.max_chars"]
    memory = store.load(max_chars=limit)
    shown: dict[str, Any] = {
        "agent": store.agent,
        "core": figures.core,
        "core_chars": figures.core_chars,
        "archival": figures.archival,
        "archival_chars": figures.archival_chars,
        "window": len(memory.window),
        "window_chars": memory.window_chars,
        "window_limit": limit,
        "retired": figures.retired,
        "untimed": figures.untimed,
        "duplicates": figures.duplicates,
        "keys": figures.keys,
        "empty": figures.empty,
        "oldest": figures.oldest.isoformat() if figures.oldest else None,
        "newest": figures.newest.isoformat() if figures.newest else None,
    }
    if here.out.json:
        here.out.object({**shown, "tags": figures.tags, "days": figures.days})
        return
    if not here.out.fancy:
        here.out.rows((name, "-" if value is None else str(value)) for name, value in shown.items())
        return
    rows = [
        (title(store.agent), ""),
        ("core", f"{entries_text(figures.core)}, {figures.core_chars:,} characters"),
        ("archival", f"{entries_text(figures.archival)}, {figures.archival_chars:,} characters"),
        (
            "window",
            f"{bar(memory.window_chars / limit)} {memory.window_chars:,} of {limit:,} characters, {entries_text(len(memory.window))}",
        ),
        ("retired", entries_text(figures.retired)),
        ("duplicates", f"{figures.duplicates:,}" + ("  oryx memory clean retires them" if figures.duplicates else "")),
        ("untimed", f"{figures.untimed:,}"),
    ]
    if figures.oldest and figures.newest:
        rows.append(("from - to", f"{figures.oldest:%Y-%m-%d %H:%M} - {figures.newest:%Y-%m-%d %H:%M}"))
        last = figures.newest.date()
        days = [last - timedelta(days=back) for back in reversed(range(min(_SPARK_DAYS, (last - date.min).days)))]
        numbers = [figures.days.get(day.isoformat(), 0) for day in days]
        rows.append((f"{len(days)} days", f"{sparkline(numbers)}  at most {max(numbers)} a day"))
    if figures.tags:
        rows.append(("tags", "  ".join(f"#{tag} {number}" for tag, number in list(figures.tags.items())[:10])))
    here.out.render(table(("", ""), rows))
