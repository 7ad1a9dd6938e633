"""Commands for review in git: diff, check, merge-driver."""

import typer

from oryx_memory.cli.options import Here, memory_command

app = typer.Typer(rich_markup_mode=None)


@memory_command(app)
def diff(here: Here) -> None:
    """Show what agents learned since a revision, entry by entry."""


@memory_command(app)
def check(here: Here) -> None:
    """Look for what is wrong in the memories."""


@memory_command(app, "merge-driver")
def merge_driver(here: Here) -> None:
    """Merge two versions of a memory file; git calls this."""
