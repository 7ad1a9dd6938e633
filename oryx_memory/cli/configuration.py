"""Commands about the settings: config show, config adopt.

Values come from files that a stranger may have written: what looks like a credential is named and not shown, and control
characters are escapes, in a pipe too, where a line feed in a value would else begin a row.
"""

import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any

import typer

from oryx_memory.cli.options import Here, memory_command
from oryx_memory.cli.output import flush, one_visible_line, table, visible
from oryx_memory.errors import Refused
from oryx_memory.guard import masked
from oryx_memory.settings import DEFAULT, Asked, Settings, application_file

app = typer.Typer(rich_markup_mode=None)
config = typer.Typer(rich_markup_mode=None, help="Show the settings, adopt what a project asks for.")
app.add_typer(config, name="config")


@memory_command(config)
def show(here: Here) -> None:
    """Show each setting, its value and where it came from; then what the project asks for in vain.

    \b
      oryx memory config show
    """
    chosen = here.settings
    application = application_file(here.workspace.root)
    if application.is_file():
        here.out.talk(f"of {application} memory.backend and spring.datasource.url count; its recall weights do not")
    if here.out.json:
        here.out.object(_as_object(chosen))
        return
    rows = [(key, _shown(value), chosen.sources[key]) for key, value in chosen.values.items()]
    rows += [(f"ignored {item.key}", _shown(item.value), _origin(item)) for item in _unmet(chosen)]
    _rows(here, ("setting", "value", "from"), rows)


@memory_command(config)
def adopt(
    here: Here,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be copied, change nothing.")] = False,
) -> None:
    """Copy what the project asks for, and what counts only from you, into your own settings for this workspace.

    \b
    Such are an embedding service, another server or a database elsewhere: memories would go there. Asks first.
      oryx memory config adopt --dry-run
      oryx memory config adopt --yes
    """
    from oryx_memory import adoption

    found = adoption.plan(here.workspace.root, os.environ, {"backend": here.given_backend})
    if found.wishes and not here.out.json:
        rows = [(wish.asked.key, _change(wish.old, wish.asked), _origin(wish.asked)) for wish in found.wishes]
        _rows(here, ("setting", "value", "asked for by"), rows)
    due = found.pending and not dry_run
    written = due and (yes or _agreed(here, f"copy into {found.file} for {found.table}? [y/N] "))
    if written:
        adoption.adopt(here.workspace.root, found, here.lock_timeout)
    if here.out.json:
        wishes = [
            {**_ignored(wish.asked), "key": wish.asked.key, "old": None if wish.old is None else _plain(wish.old)}
            for wish in found.wishes
        ]
        here.out.object({"file": str(found.file), "table": found.table, "settings": wishes, "written": written})
    place = f'{found.file}, table ["{found.table}"]'
    if due and not written:
        asked = sys.stdin is not None and sys.stdin.isatty()
        raise Refused("nothing was written" + ("" if asked else "; there is no terminal to ask on: add --yes"))
    if written:
        here.out.talk(f"wrote it into {place}")
    elif found.pending:
        here.out.talk(f"would go into {place}")
    elif found.wishes:
        here.out.talk(f"nothing to adopt: what can be copied is in {place} already")
    else:
        here.out.talk("nothing to adopt: the project asks for nothing that reaches out of it")


@config.callback()
def _config() -> None:
    """Show the settings, adopt what a project asks for."""


def _agreed(here: Here, question: str) -> bool:
    """Whether the person says yes; False where there is no terminal to ask on."""
    if sys.stdin is None or sys.stderr is None or not sys.stdin.isatty():
        return False
    here.out.progress.stop()
    flush()
    sys.stderr.write(one_visible_line(question))
    sys.stderr.flush()
    return sys.stdin.buffer.readline().strip().lower() in (b"y", b"yes")


def _rows(here: Here, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    shown = [[_cell(cell) for cell in row] for row in rows]
    if here.out.fancy:
        here.out.render(table(columns, shown))
    else:
        here.out.rows(shown)


def _cell(text: str) -> str:
    """A field of a row: tabs and line feeds are escapes too."""
    return visible(text).replace("\t", "\\t").replace("\n", "\\n")


def _as_object(chosen: Settings) -> dict[str, Any]:
    shown: dict[str, Any] = {
        key: {"value": _plain(value), "source": chosen.sources[key]} for key, value in chosen.values.items()
    }
    for item in _unmet(chosen):
        entry = shown.setdefault(item.key, {"value": None, "source": DEFAULT})
        entry.setdefault("ignored", []).append(_ignored(item))
    return shown


def _unmet(chosen: Settings) -> list[Asked]:
    return [item for item in chosen.ignored if chosen.values.get(item.key) != item.value]


def _ignored(item: Asked) -> dict[str, Any]:
    return {"value": _plain(item.value), "source": str(item.path), "name": item.name, "fault": item.fault or None}


def _origin(item: Asked) -> str:
    return str(item.path) if item.name == item.key else f"{item.path} ({item.name})"


def _change(old: Any, item: Asked) -> str:
    return _wished(item) if old is None or item.fault or old == item.value else f"{_shown(old)} → {_wished(item)}"


def _wished(item: Asked) -> str:
    return _shown(item.value) + (f" ({item.fault}; left out)" if item.fault else "")


def _plain(value: Any) -> Any:
    return (
        value
        if isinstance(value, int | float | None)
        else [_shown(v) for v in value]
        if isinstance(value, list)
        else _shown(value)
    )


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ", ".join(map(_shown, value)) or "-"
    if isinstance(value, timedelta):
        from oryx_memory.retention import span_text

        return span_text(value)
    return "(a table)" if isinstance(value, dict) else masked(str(value))
