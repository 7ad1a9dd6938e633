"""Commands for review in git: diff, check, merge-driver."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from oryx_memory.cli.options import Here, memory_command
from oryx_memory.errors import RejectedInput

app = typer.Typer(rich_markup_mode=None)


class Format(StrEnum):
    """Ways to print what `check` found."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"


@memory_command(app)
def diff(
    here: Here,
    revision: Annotated[
        str, typer.Argument(metavar="[REV|A..B|A...B]", show_default=False, help="What to compare.")
    ] = "HEAD",
    markdown: Annotated[
        bool, typer.Option("--markdown", help="For a pull request: texts in code spans, under 60,000 characters.")
    ] = False,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 if anything differs.")] = False,
) -> None:
    """Show what agents learned since a revision: entries added, retired, edited, moved, restored, removed.

    \b
    Compares the last commit, or REV, with the files; A..B are two commits, A...B is what B has since it left A.
    Without --agent: the global memory and every agent.
      oryx memory diff -a ops
      oryx memory diff HEAD --markdown
    """
    from oryx_memory.cli import difference

    if markdown and here.out.json:
        raise RejectedInput("--markdown and --json exclude each other")
    found = difference.compare(here, revision)
    if here.out.json:
        here.out.object(difference.records(found))
    elif not found:
        here.out.talk(f"no entry differs: {revision}{'' if '..' in revision else ' and the files'}")
    elif markdown:
        here.out.data(difference.markdown(found))
    elif here.out.fancy:
        difference.show(here.out, found)
    else:
        here.out.rows(difference.rows(found))
    if found and exit_code:
        raise typer.Exit(1)


@memory_command(app)
def check(
    here: Here,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH]...",
            show_default=False,
            help="Memory files, as pre-commit names them, or folders that hold some.",
        ),
    ] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Mend what has one right answer.")] = False,
    accept: Annotated[bool, typer.Option("--accept", help="Settle lost lines: they are not named again.")] = False,
    format: Annotated[Format, typer.Option(help="text; json; github: annotations of a workflow.")] = Format.TEXT,
) -> None:
    """Look for what is wrong: lost lines, merge markers, headings, duplicates, credentials, and more.

    \b
    Prints FILE:LINE: RULE: what; exit code 1 for faults, not for notes. docs/check.md tells each rule.
    Without PATH: every memory of the workspace, or the one of --agent.
      oryx memory check
      oryx memory check .oryxos/agents/ops/MEMORY.md --format github
    """
    from oryx_memory.cli import checking

    checking.run(here, paths or [], fix=fix, accept=accept, format=Format.JSON if here.out.json else format)


@app.command("merge-driver", hidden=True)
def merge_driver(
    base: Annotated[Path, typer.Argument(help="The common ancestor (%O).")],
    ours: Annotated[Path, typer.Argument(help="The version that becomes the result (%A).")],
    theirs: Annotated[Path, typer.Argument(help="The other version (%B).")],
    marker_size: Annotated[int, typer.Argument(min=1, help="The length of conflict markers (%L).")],
    path: Annotated[str, typer.Argument(help="The name in the repository (%P); *.retired.md is a retired file.")],
) -> None:
    """Merge two versions of a memory's file entry by entry, into OURS; git calls this.

    \b
    Exit code 1: conflicts in hand-written text are marked. `oryx memory init` puts it into git's configuration.
      touch base ours theirs && oryx memory merge-driver base ours theirs 7 MEMORY.md
    """
    from oryx_memory.cli import driver

    if driver.run(base, ours, theirs, marker_size, path):
        raise typer.Exit(1)
