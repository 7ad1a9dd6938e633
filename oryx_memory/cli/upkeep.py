"""Commands for upkeep, from cron or by hand: clean, stats.

A clean-up of all agents goes on when one of them fails, and each one that it changed is told with the command that
undoes it: whoever reads the mail of cron has nothing but that line.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Annotated, Any

import typer

from oryx_memory.cli import hints
from oryx_memory.cli.options import Here, memory_command, title
from oryx_memory.cli.output import bar, entries_text, flush, give_up_output, one_visible_line, sparkline, table
from oryx_memory.entry import as_record
from oryx_memory.errors import FileProblem, LockTimeout, OryxMemoryError, Refused, RejectedInput
from oryx_memory.files import Lock
from oryx_memory.retention import TooMuch, parse_span
from oryx_memory.stores import CleanReport, LongTermMemoryStore, zone_of

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
    force: Annotated[bool, typer.Option("--force", help="Retire or destroy more than [clean] max_share.")] = False,
    all_agents: Annotated[bool, typer.Option("--all-agents", help="Every agent and the global memory.")] = False,
    log_json: Annotated[bool, typer.Option("--log-json", help="One JSON object a line for each agent.")] = False,
) -> None:
    """Retire archival entries by rule: exact duplicates, and what [clean], AGENT.md or the options say.

    \b
    Only timed archival entries are touched. Prints the retired lines; a whole run can be undone.
      oryx memory clean -a ops --older-than 90d --dry-run
    """
    if log_json and here.out.json:
        raise RejectedInput("--log-json and --json exclude each other")
    given: dict[str, Any] = {
        "older_than": None if older_than is None else parse_span(older_than),
        "keep_chars": keep_chars,
        "keep_entries": keep_entries,
        "dedupe": False if no_dedupe else None,
        "purge_retired": None if purge_retired is None else parse_span(purge_retired),
        "force": force or None,
    }
    flags = {name: value for name, value in given.items() if value is not None}
    here.settings.policy()  # a mistake in the settings is everybody's, and said once
    with ExitStack() as held:
        if all_agents and not dry_run and not _only_one(here, held):
            return
        worst = _clean_each(here, flags, dry_run=dry_run, all_agents=all_agents, log_json=log_json)
    if worst:
        raise typer.Exit(worst)


def _clean_each(here: Here, flags: dict[str, Any], *, dry_run: bool, all_agents: bool, log_json: bool) -> int:
    """Clean one memory or all and tell what each gave; returns the highest exit code of those that failed.

    Raises what a single memory raises.
    """
    reports: list[CleanReport] = []
    lost: list[OSError] = []  # why what was printed is nowhere
    worst = 0
    for agent in here.names(all_agents):
        try:
            report = _clean_one(here, agent, flags, dry_run)
        except OryxMemoryError as error:
            with _printing(lost):
                if log_json:
                    here.out.object(_logged(here, agent, dry_run, error))
                elif isinstance(error, TooMuch) and dry_run and not here.out.quiet and not here.out.json:
                    here.out.entries([item.copy.entry for item in error.change.retire], agent)
            if not all_agents:
                raise
            here.out.warn(f"oryx: {title(agent)} skipped: {error}")
            worst = max(worst, error.exit_code)
            continue
        reports.append(report)
        before = len(lost)
        with _printing(lost):  # at once: a run that is killed later has told how to undo what it did
            if log_json:
                here.out.object(_logged(here, report.agent, dry_run, report))
            elif not here.out.json:
                _show(here, report)
        if len(lost) > before or (lost and (log_json or here.out.quiet)):
            here.out.warn(_summary(here, report))
    if here.out.json:
        with _printing(lost):
            objects = [_as_object(report) for report in reports]
            here.out.object(objects if all_agents else objects[0])
        for report in reports if lost else ():
            here.out.warn(_summary(here, report))
    if lost:
        problem = FileProblem("standard output", str(lost[0].strerror).lower())
        here.out.warn(f"oryx: {problem}")
        worst = max(worst, problem.exit_code)
    return worst


@contextmanager
def _printing(lost: list[OSError]) -> Iterator[None]:
    """Print in here. An error of standard output goes to `lost`, and what is printed later leads nowhere."""
    try:
        yield
        flush()
    except OSError as error:
        give_up_output()
        lost.append(error)


def _only_one(here: Here, held: ExitStack) -> bool:
    """Hold the lock of clean-ups of all agents; False, and a line that says so, while another one has it."""
    try:
        held.enter_context(Lock(here.workspace.clean_lock_file, (), timeout=0))
    except LockTimeout:
        here.out.warn(f"oryx: another clean --all-agents is at work in {here.workspace.root}; this one did nothing")
        return False
    return True


def _clean_one(here: Here, agent: str | None, flags: dict[str, Any], dry_run: bool) -> CleanReport:
    """Clean one memory by its own policy: flags over AGENT.md over settings. Raises OryxMemoryError."""
    store = here.store(agent)
    page = here.workspace.agent_page(store.agent) if store.agent else None
    policy = here.settings.policy(here.workspace.front_matter(store.agent), page)
    report = store.clean(replace(policy, **flags), dry_run=dry_run)
    if report.change.purge and not dry_run:
        here.purged(store)
    return report


def _show(here: Here, report: CleanReport) -> None:
    """The retired lines and a summary; with --quiet one line, if there is anything to tell."""
    change = report.change
    if not here.out.quiet:
        here.out.entries([item.copy.entry for item in change.retire], report.agent)
        here.out.talk(_summary(here, report))
    elif change.retire or change.purge:
        here.out.data(_summary(here, report))


def _as_object(report: CleanReport) -> dict[str, Any]:
    change = report.change
    return {
        "agent": report.agent,
        "dry_run": report.dry_run,
        "before": report.before,
        "retired": [{**as_record(item.copy.entry, report.agent), "reason": item.reason} for item in change.retire],
        "destroyed": len(change.purge),
        "run": change.run or None,
    }


def _logged(here: Here, agent: str | None, dry_run: bool, outcome: CleanReport | OryxMemoryError) -> dict[str, Any]:
    """What a log keeps of one agent's clean-up; always the same names."""
    zone = zone_of(here.settings["time.zone"])
    record: dict[str, Any] = {
        "time": datetime.now(zone).astimezone(zone).isoformat(timespec="seconds"),
        "agent": agent,
        "result": "unchanged",
        "dry_run": dry_run,
        "before": None,
        "retired": {},
        "destroyed": 0,
        "run": None,
        "undo": None,
        "error": None,
        "exit_code": 0,
    }
    if isinstance(outcome, OryxMemoryError):
        result = "refused" if isinstance(outcome, Refused) else "skipped"
        return record | {"result": result, "error": str(outcome), "exit_code": outcome.exit_code}
    change = outcome.change
    if change.retire or change.purge:
        record["result"] = "changed"
    if change.retire and not dry_run:
        record["undo"] = hints.command(here, agent, "restore", "--run", change.run)
    return record | {
        "before": outcome.before,
        "retired": _by_reason(outcome),
        "destroyed": len(change.purge),
        "run": change.run or None,
    }


def _by_reason(report: CleanReport) -> dict[str, int]:
    return dict(Counter(item.reason for item in report.change.retire))


def _summary(here: Here, report: CleanReport) -> str:
    change, name = report.change, one_visible_line(title(report.agent))
    would = "would retire" if report.dry_run else "retired"
    if not change.retire and not change.purge:
        return f"{name}: nothing to retire of {entries_text(report.before, 'archival')}"
    listed = ", ".join(f"{number:,} {reason}" for reason, number in _by_reason(report).items())
    text = f"{name}: {would} {len(change.retire):,} of {entries_text(report.before, 'archival')}"
    text += f" ({listed})" if listed else ""
    if change.purge:
        text += f", {'would destroy' if report.dry_run else 'destroyed'} {len(change.purge):,} retired"
    if change.retire and not report.dry_run:
        text += f"; undo: {hints.command(here, report.agent, 'restore', '--run', change.run)}"
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
    index = _index(here, store)
    if here.out.json:
        here.out.object({**shown, "tags": figures.tags, "days": figures.days, **({"index": index} if index else {})})
        return
    if not here.out.fancy:
        shown |= {f"index_{name}": value for name, value in index.items()}
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
    if index:
        model = f", {index['vectors']:,} with a vector of {index['model']}" if index["model"] else ""
        rows.append(("index", f"{entries_text(index['entries'])}{model}, {index['bytes']:,} bytes"))
        rows += [("", index["error"])] if index["error"] else []
    here.out.render(table(("", ""), rows))


def _index(here: Here, store: LongTermMemoryStore) -> dict[str, Any]:
    """What there is of the index of ranked recall; nothing where none was made."""
    if not here.workspace.index_file.exists():
        return {}
    from oryx_memory.vectors import describe

    return describe(here.workspace.index_file, store, here.lock_timeout)
