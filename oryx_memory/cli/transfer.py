"""Commands that bring memories in, out, and from one backend to another: export, import, migrate-backend."""

import os
import sys
from collections.abc import Iterator
from datetime import tzinfo
from enum import StrEnum
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer

from oryx_memory import exchange, settings, stores
from oryx_memory.cli.options import Here, memory_command, title
from oryx_memory.cli.output import entries_text
from oryx_memory.document import piece
from oryx_memory.entry import BLANKS, Entry, Scope, as_record
from oryx_memory.errors import FileProblem, RejectedInput
from oryx_memory.exchange import Found

app = typer.Typer(rich_markup_mode=None)

_SUFFIXES = {".md": "md", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}


class Format(StrEnum):
    """Kinds of files."""

    MD = "md"
    JSONL = "jsonl"
    CSV = "csv"
    NOTES = "notes"


class Backend(StrEnum):
    """Backends to move between."""

    MARKDOWN = "markdown"
    SQLITE = "sqlite"
    MEM0 = "mem0"


@memory_command(app)
def export(
    here: Here,
    format: Annotated[
        Format,
        typer.Option(help="md: a MEMORY.md; jsonl: an object a line; csv: a table; notes: a folder, a note an entry."),
    ] = Format.MD,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The folder for notes.", show_default=False)
    ] = None,
    retired: Annotated[bool, typer.Option("--retired", help="The retired entries too (not md).")] = False,
) -> None:
    """Write the whole memory to standard output, or as notes into a folder.

    \b
      oryx memory export -a ops > ops.md
      oryx memory export -a ops --format jsonl | head -1
      oryx memory export -a ops --format notes -o ops-notes
    """
    if (format is Format.NOTES) != (output is not None):
        raise RejectedInput("notes go into a folder: --format notes --output FOLDER; the others to standard output")
    if here.out.json and format is not Format.JSONL:
        raise RejectedInput(f"--format {format.value} and --json exclude each other; use --format jsonl")
    store = here.store()
    if format is Format.JSONL:
        for entry in store.export(retired=retired):
            here.out.object(as_record(entry, store.agent))
    elif format is Format.CSV:
        exchange.write_csv(store.export(retired=retired), store.agent, sys.stdout)
    elif output is not None:
        count = exchange.write_notes(store.export(retired=retired), output)
        here.out.data(str(output))
        here.out.talk(f"wrote {count:,} note{'s' * (count != 1)}")
    elif retired:
        raise RejectedInput("a MEMORY.md has no place for retired entries; use --format jsonl with --retired")
    else:
        sections: dict[Scope, list[str]] = {scope: [scope.heading] for scope in Scope}
        for entry in store.export():
            # Directly below an entry, one that begins with a blank would become part of it.
            sections[entry.scope].append("\n" * (entry.raw[:1] in BLANKS) + entry.raw)
        here.out.data("\n\n".join("\n".join(lines) for lines in sections.values()))


@memory_command(app, "import")
def import_(
    here: Here,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file, a folder of notes, or - for standard input.")],
    format: Annotated[
        Format | None, typer.Option(help="The kind; by default what the name's ending says.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be added, change nothing.")] = False,
) -> None:
    """Add the entries of a file that are not there yet; times stay, retired ones stay retired.

    \b
    What cannot be taken is named with its line; the rest is added, and the exit code is 2.
      oryx memory export -a ops --format jsonl > ops.jsonl
      oryx memory import -a copy ops.jsonl
    """
    kind = format or _kind(file)
    zone = stores.zone_of(here.settings["time.zone"])
    rejected = 0

    def accepted() -> Iterator[Entry]:
        nonlocal rejected
        for number, found in enumerate(_read(file, kind, zone), 1):
            if number % 1000 == 0:
                here.out.progress.step(number, 0)
            entry, problem = found.entry, found.problem
            if entry is not None:
                try:
                    piece(entry, b"\n")
                except RejectedInput as error:
                    entry, problem = None, str(error)
            if entry is None:
                rejected += 1
                here.out.warn(f"{file}:{found.where}: {problem}")
            else:
                yield entry

    store = here.store(create=True)
    new_agent = not here.has_agent(store.agent)
    brought = store.bring(accepted(), dry_run=dry_run)
    added = brought.live + brought.retired
    if new_agent and added and not dry_run:
        here.out.talk(f"made the agent {store.agent}: {here.place(store.agent)}")
    report = {
        "agent": store.agent, "dry_run": dry_run, "added": added,
        "retired": brought.retired, "present": brought.present, "rejected": rejected,
    }  # fmt: skip
    if here.out.json:
        here.out.object(report)
    would = "would add" if dry_run else "added"
    text = f"{title(store.agent)}: {would} {entries_text(added)}"
    text += f" ({report['retired']:,} of them retired)" if report["retired"] else ""
    here.out.talk(f"{text}, {report['present']:,} were there, {rejected:,} rejected")
    if rejected:
        raise typer.Exit(2)


@memory_command(app, "migrate-backend")
def migrate_backend(
    here: Here,
    to: Annotated[Backend, typer.Option(help="The backend to copy to.")],
    from_: Annotated[
        Backend | None,
        typer.Option("--from", help="The backend to copy from; by default the present one.", show_default=False),
    ] = None,
    all_agents: Annotated[bool, typer.Option("--all-agents", help="Every agent and the global memory.")] = False,
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="Another name for an agent; may be repeated.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be copied, change nothing.")] = False,
    switch: Annotated[bool, typer.Option("--switch", help="Then use the new backend: edits memory.toml.")] = False,
) -> None:
    """Copy memories to another backend, live and retired, and compare the counts of every entry.

    \b
    The source is never changed, and a second run adds only what is missing.
      oryx memory migrate-backend --to sqlite --all-agents --dry-run
      oryx memory migrate-backend --to sqlite --all-agents --switch
    """
    from oryx_memory.stores import migration

    root = here.workspace.root
    source = settings.load(root, os.environ, {"backend": (from_.value if from_ else None) or here.settings["backend"]})
    target = settings.load(root, os.environ, {"backend": to.value})
    if source["backend"] == target["backend"]:
        raise RejectedInput(f"the memories are in {to} already; name the other one with --from")
    if switch and (dry_run or not all_agents):
        raise RejectedInput("--switch is for the whole workspace: with --all-agents, and without --dry-run")
    if switch:
        migration.refuse_switch(here.workspace, os.environ, here.given_backend, to.value)
    memories = migration.pairs(
        here.workspace,
        source,
        target,
        _agents(here, source, all_agents),
        _renames(rename),
        lock_timeout=here.lock_timeout,
    )
    reports: list[dict[str, Any]] = []
    for number, (pair, report) in enumerate(migration.copy(memories, dry_run=dry_run)):
        here.out.progress.step(number + 1, len(memories))
        reports.append({
            "agent": pair.source.agent, "to": pair.target.agent, "live": report.live, "retired": report.retired,
            "present": report.present, "ids": report.ids, "dry_run": dry_run,
        })  # fmt: skip
        if not here.out.json:
            here.out.data(_proof(reports[-1], str(to)))
    if switch:
        late = migration.switch(here.workspace, memories, to.value, lock_timeout=here.lock_timeout)
        count = sum(report.live + report.retired for report in late)
        here.out.talk(
            f"{here.workspace.settings_file}: backend is {to} now" + f"; {count:,} more came meanwhile" * bool(count)
        )
    if here.out.json:
        here.out.object(reports)
    elif not switch and not dry_run and here.settings["backend"] != to:
        here.out.talk(
            f"the backend is still {here.settings['backend']}; --switch changes that, or --backend {to} for once"
        )


def _proof(report: dict[str, Any], to: str) -> str:
    name, new = title(report["agent"]), title(report["to"])
    text = f"{name}: " if name == new else f"{name} as {new}: "
    text += (
        f"{'would copy' if report['dry_run'] else 'copied'} {report['live']:,} live and {report['retired']:,} retired "
    )
    text += f"to {to}, {report['present']:,} were there"
    return text if report["dry_run"] else f"{text}; all {report['ids']:,} ids are there as often as here"


def _agents(here: Here, source: settings.Settings, all_agents: bool) -> list[str | None]:
    if not all_agents:
        stores.require(here.workspace, source, here.agent, lock_timeout=here.lock_timeout)
        return [here.agent]
    if here.given_agent is not None:
        raise RejectedInput("--all-agents and --agent exclude each other")
    return [None, *sorted(stores.stored(here.workspace, source, lock_timeout=here.lock_timeout))]


def _renames(given: list[str] | None) -> dict[str, str]:
    renames: dict[str, str] = {}
    for item in given or []:
        old, equals, new = item.partition("=")
        if not (old and equals and new):
            raise RejectedInput(f"--rename is OLD=NEW, not {item!r}")
        if renames.setdefault(old, new) != new:
            raise RejectedInput(f"--rename gives {old} two names, {renames[old]} and {new}")
    return renames


def _kind(file: str) -> Format:
    if os.path.isdir(file):
        return Format.NOTES
    kind = _SUFFIXES.get(Path(file).suffix.lower())
    if kind is None:
        raise RejectedInput(f"{file}: its name does not tell what it is; add --format md, jsonl, csv or notes")
    return Format(kind)


def _read(file: str, kind: Format, zone: tzinfo | None) -> Iterator[Found]:
    path = Path(file)
    try:
        if kind is Format.NOTES:
            if not path.is_dir():
                raise FileProblem(path, "is not a folder of notes")
            yield from exchange.read_notes(path, zone)
            return
        if file == "-" and sys.stdin is None:
            raise RejectedInput("standard input is closed")
        with sys.stdin.buffer if file == "-" else path.open("rb") as stream:
            if kind is Format.MD:
                yield from exchange.read_md(stream.read())
            elif kind is Format.JSONL:
                yield from exchange.read_jsonl(stream, zone)
            else:
                with TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
                    yield from exchange.read_csv(text, zone)
    except UnicodeDecodeError as error:
        raise RejectedInput(f"{file} is not valid UTF-8 (byte {error.start})") from error
    except OSError as error:
        if isinstance(error, FileProblem):
            raise
        raise FileProblem(path, str(error.strerror or error).lower()) from error
