"""Commands that change a memory by hand: append, edit, move, forget, restore."""

import sys
from datetime import datetime
from typing import Annotated

import typer

from oryx_memory import changes, guard
from oryx_memory.changes import Change, Plan, Snapshot
from oryx_memory.cli.options import (
    Here,
    complete_live,
    complete_retired,
    memory_command,
    one_text,
    title,
)
from oryx_memory.cli.output import flush
from oryx_memory.entry import Entry, Scope
from oryx_memory.errors import FileProblem, NothingFound, RejectedInput
from oryx_memory.stores import LongTermMemoryStore

app = typer.Typer(rich_markup_mode=None)

Text = Annotated[list[str] | None, typer.Argument(metavar="[TEXT]", show_default=False)]
_UNCHANGED = "nothing to change: the entry reads so already"

Live = Annotated[str, typer.Argument(metavar="ID", autocompletion=complete_live)]


@memory_command(app)
def append(
    here: Here,
    text: Text = None,
    scope: Annotated[Scope, typer.Option(help="The section.")] = Scope.ARCHIVAL,
    tag: Annotated[
        list[str] | None, typer.Option(help="A tag, without #; may be repeated.", show_default=False)
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="A key, without ^: what carries it now is retired.", show_default=False)
    ] = None,
    at: Annotated[str | None, typer.Option(help="The time, instead of now.", show_default=False)] = None,
    if_new: Annotated[bool, typer.Option("--if-new", help="Write nothing if the section has it already.")] = False,
    lines: Annotated[bool, typer.Option("--lines", help="Each line is one entry.")] = False,
) -> None:
    """Remember one text; without TEXT or with -, standard input.

    \b
    Prints the line as it is stored. Makes the agent's folder if it is missing.
      oryx memory append -a ops '上线前必须两人复核' --tag 流程 --key release_rule
      git log -1 --format=%s | oryx memory append -a ops
    """
    content = _given_or_input(text)
    store = here.store(create=True)
    new_agent = not here.has_agent(store.agent)
    time = here.time(at) if at else None
    if lines:
        if key:
            raise RejectedInput("--lines makes many entries and --key names one; leave one of them out")
        stored = _append_lines(here, store, content, scope, time=time or store.clock(), tags=tag or [], if_new=if_new)
    else:
        if here.settings["guard.secrets"] == "refuse":
            _refuse_credentials(here, Entry.new(content, scope, time=time or store.clock(), tags=tag or (), key=key))
        stored = [store.append(content, scope, time=time, tags=tag or (), key=key, if_new=if_new)]
    if new_agent:
        here.out.talk(f"made the agent {store.agent}: {here.place(store.agent)}")
    _warn_of_credentials(here, stored)
    _echo(here, stored, store.agent, single=not lines)


@memory_command(app)
def edit(here: Here, reference: Live, text: Text = None) -> None:
    """Give an entry another text; its time, section, place and, unless the new text has its own, its trailer stay.

    \b
    The old text is retired and can be restored. Without TEXT: your editor on a terminal, else standard input.
      oryx memory edit -a ops a701 '上线前必须三人复核'
    """
    content = one_text(text, "text")
    if content in (None, "-") and sys.stdin is not None and sys.stdin.isatty():
        store = here.store()
        now = changes.pick(list(store.read().live()), reference).entry
        here.out.progress.stop()
        content = _from_editor(now.content)
        if content.strip() == now.content.strip():  # of several lines one is made, but not by looking at them
            here.out.talk(_UNCHANGED)
            return
        reference = now.id  # by then another entry may have the key
    plan = changes.edit(reference, _given_or_input([content] if content is not None else None))

    def guarded(now: Snapshot) -> Change:
        change = plan(now)
        for item in change.edit:
            _refuse_credentials(here, item.new)
        return change

    change = _apply(here, guarded)
    done = change.edit[0] if change.edit else None
    if done is None:
        here.out.talk(_UNCHANGED)
        return
    here.out.talk(f"retired the old text; undo: {_hint(here, 'restore', done.copy.entry.id)}")
    _warn_of_credentials(here, [done.new])
    _echo(here, [done.new], here.agent)


@memory_command(app)
def move(here: Here, reference: Live, scope: Annotated[Scope, typer.Option(help="The section to move to.")]) -> None:
    """Move an entry to the end of the other section.

    \b
      oryx memory move -a ops e76a --scope core
    """
    change = _apply(here, changes.move(reference, scope))
    if not change.move:
        here.out.talk(f"nothing to move: it is in {scope} already")
        return
    entry = change.move[0].copy.entry
    here.out.talk(f"moved {entry.id} from {entry.scope} to {scope}")
    _echo(here, [Entry(entry.raw, scope)], here.agent)


@memory_command(app)
def forget(
    here: Here,
    reference: Live,
    purge: Annotated[bool, typer.Option("--purge", help="Destroy every copy, live and retired, instead.")] = False,
) -> None:
    """Retire an entry: it leaves the memory and can be restored.

    \b
    ID is an id, 4 or more of its first digits, or ^key.
      oryx memory forget -a ops a701
      oryx memory forget -a ops '^release_rule'
    """
    change = _apply(here, changes.forget(reference, purge=purge))
    if purge:
        here.purged(here.store())
        entry, count = change.purge[0].entry, len(change.purge)
        copies = "1 copy" if count == 1 else f"{count} copies"
        others = "mem0's own history, git" if here.settings["backend"] == "mem0" else "git"
        here.out.talk(f"destroyed {copies} of {entry.id}; {others} and backups keep theirs")
    else:
        entry = change.retire[0].copy.entry
        here.out.talk(f"retired {entry.id} from {entry.scope}; undo: {_hint(here, 'restore', entry.id)}")
    _echo(here, [entry], here.agent)


@memory_command(app)
def restore(
    here: Here,
    reference: Annotated[
        str | None, typer.Argument(metavar="[ID]", autocompletion=complete_retired, show_default=False)
    ] = None,
    run: Annotated[str | None, typer.Option(help="Bring back all that one run retired.", show_default=False)] = None,
    lost: Annotated[bool, typer.Option("--lost", help="Bring back all lines that `check` calls lost.")] = False,
) -> None:
    """Bring a retired entry back to its section, to its place by time; also a line that `check` calls lost.

    \b
      oryx memory restore -a ops a701
      oryx memory restore -a ops --run 20260801T020000-1
    """
    if [reference is not None, run is not None, lost].count(True) != 1:
        raise RejectedInput(
            "name what to restore: an ID, --run RUN or --lost; `oryx memory list --retired` shows ids and runs"
        )
    if run == "":
        raise RejectedInput("--run names no run; `oryx memory list --retired` shows them")
    if reference is not None:
        change = _restore_one(here, reference)
    elif run is not None:
        change = _apply(here, changes.restore_run(run))
    else:
        from oryx_memory.checks import lost_lines  # not for the other commands here

        store = here.store()
        change = store.recover(among=set(lost_lines(store)))
    back = [Entry(copy.entry.raw, copy.entry.scope) for copy in change.restore] + list(change.recover)
    if len(back) == 1:
        here.out.talk(f"restored {back[0].id} to {back[0].scope}")
    else:
        which = f"of run {run}" if run else "that were lost"
        here.out.talk(f"restored {len(back):,} entries {which} to {title(here.agent)}")
    _echo(here, back, here.agent, single=reference is not None)


def _restore_one(here: Here, reference: str) -> Change:
    """What was retired comes first, then what was lost."""
    try:
        return _apply(here, changes.restore(reference))
    except NothingFound as error:
        try:
            return here.store().recover(reference)
        except NothingFound:
            raise error from None


def _apply(here: Here, plan: Plan) -> Change:
    return here.store().edit(plan)


def _echo(here: Here, entries: list[Entry], agent: str | None, *, single: bool = True) -> None:
    if here.out.quiet:
        return
    try:
        if single:
            here.out.entry(entries[0], agent)
        else:
            here.out.entries(entries, agent)
        flush()
    except OSError as error:
        raise FileProblem("standard output", f"{str(error.strerror).lower()}; the change itself is stored") from error


def _credentials(here: Here, entry: Entry) -> str:
    """The kinds of the likely credentials of an entry, or an empty text; never their values."""
    if here.settings["guard.secrets"] == "off":
        return ""
    return guard.kinds(entry.content)


def _refuse_credentials(here: Here, entry: Entry) -> None:
    if here.settings["guard.secrets"] == "refuse" and (kinds := _credentials(here, entry)):
        raise RejectedInput(guard.refusal(kinds))


def _hint(here: Here, name: str, *words: str) -> str:
    """A command to type for the same memory."""
    from oryx_memory.cli import hints  # not for an append that says nothing

    return hints.command(here, here.agent, name, *words)


def _warn_of_credentials(here: Here, stored: list[Entry]) -> None:
    for entry in stored:
        if kinds := _credentials(here, entry):
            here.out.warn(
                f"{entry.id} looks like a credential ({kinds}); it is stored; to destroy it: "
                f"{_hint(here, 'forget', entry.id, '--purge')}"
            )


def _append_lines(
    here: Here,
    store: LongTermMemoryStore,
    content: str,
    scope: Scope,
    *,
    time: datetime,
    tags: list[str],
    if_new: bool,
) -> list[Entry]:
    entries: list[Entry] = []
    for number, line in enumerate(content.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        if not line.strip():
            continue
        try:
            entries.append(Entry.new(line, scope, time=time, tags=tags))
            _refuse_credentials(here, entries[-1])
        except RejectedInput as error:
            raise RejectedInput(f"line {number}: {error}; nothing was written") from error
    if not entries:
        raise RejectedInput("nothing to remember: every line is blank")
    if not if_new:
        store.add(entries)
        return entries
    stored: list[Entry] = []

    def plan(now: Snapshot) -> Change:
        known = {entry.content: entry for entry in reversed(now.section(scope))}
        new = [entry for entry in entries if known.setdefault(entry.content, entry) is entry]
        stored[:] = [known[entry.content] for entry in entries]
        return Change(add=tuple(new))

    store.edit(plan)
    return stored


def _given_or_input(words: list[str] | None) -> str:
    given = one_text(words, "text")
    if given not in (None, "-"):
        assert given is not None
        return given
    if sys.stdin is None:
        raise RejectedInput("no text: give one, or standard input, which is closed")
    if sys.stdin.isatty():
        raise RejectedInput("no text: give one in quotes, or pipe one in")
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RejectedInput(f"standard input is not valid UTF-8 (byte {error.start})") from None
    except OSError as error:
        raise FileProblem("standard input", str(error.strerror).lower()) from error


def _from_editor(content: str) -> str:
    import os
    import shlex
    import subprocess
    import tempfile

    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.NamedTemporaryFile("w+", suffix=".md", encoding="utf-8") as file:
        file.write(f"{content}\n")
        file.flush()
        try:
            result = subprocess.run([*shlex.split(editor), file.name], check=False)
        except (OSError, ValueError) as error:
            raise RejectedInput(f"the editor {editor!r} cannot be run: {error}; set EDITOR or give the text") from error
        if result.returncode:
            raise RejectedInput(f"the editor {editor!r} ended with {result.returncode}; nothing was changed")
        with open(file.name, encoding="utf-8", errors="surrogateescape") as edited:  # an editor may replace the file
            return edited.read()
