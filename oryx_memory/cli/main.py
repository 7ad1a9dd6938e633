"""The programs `oryx` and `oryx-memory`, and the one place where errors become messages and exit codes.

A command's module is imported when that command runs, and no other.
"""

import gc
import os
import sys
import warnings
from collections.abc import Callable
from copy import copy
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.exceptions import Abort, TyperException
from typer.models import CommandInfo

from oryx_memory.cli.output import flush, give_up_output, prepare_streams, tell
from oryx_memory.errors import OryxMemoryError, OryxMemoryWarning, RejectedInput

_MODULES = {
    "init": "place",
    "append": "write",
    "load": "read",
    "recall": "read",
    "context": "conversation",
    "prompt": "conversation",
    "session": "conversation",
    "episodes": "conversation",
    "list": "read",
    "show": "read",
    "edit": "write",
    "move": "write",
    "forget": "write",
    "restore": "write",
    "export": "transfer",
    "import": "transfer",
    "migrate-backend": "transfer",
    "clean": "upkeep",
    "index": "indexing",
    "stats": "upkeep",
    "diff": "review",
    "check": "review",
    "merge-driver": "review",
    "agents": "place",
    "path": "place",
    "config": "configuration",
    "mcp": "server",
    "record": "hooks",
    "completion": "place",
}
_ALIASES = {"search": "recall"}
COMPLETE = "_ORYX_COMPLETE"  # set by the completion scripts


class MemoryGroup(TyperGroup):
    """The commands of `oryx memory`, each imported when it is asked for."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = dict.fromkeys(_MODULES)  # type: ignore[assignment]  # names only: what suggestions are made from

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        name = _ALIASES.get(cmd_name, cmd_name)
        module = _MODULES.get(name)
        if module is None:
            return None
        from importlib import import_module

        app = copy(import_module(f"oryx_memory.cli.{module}").app)
        # Of the module's commands this one alone is built: each takes a millisecond.
        app.registered_commands = [info for info in app.registered_commands if _name(info) == name]
        return typer.main.get_group(app).commands[name]


def _name(info: CommandInfo) -> str:
    """The name that typer gives to a command."""
    assert info.callback
    return typer.main.get_command_name(info.name or info.callback.__name__)


def _plain_typer(**attributes: Any) -> typer.Typer:
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, **attributes)


memory = _plain_typer(cls=MemoryGroup, invoke_without_command=True)
_top = _plain_typer(no_args_is_help=True)
_top.add_typer(memory, name="memory")


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"oryx-memory {version('oryx-memory')}")
        raise typer.Exit


_Version = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
]


@_top.callback()
def _oryx(version: _Version = False) -> None:
    """Tools for OryxOS agents."""


@memory.callback()
def _memory(
    ctx: typer.Context,
    root: Annotated[
        str | None, typer.Option(help="The .oryxos folder or the folder that holds it.", show_default=False)
    ] = None,
    version: _Version = False,
) -> None:
    """The long-term memory of AI agents, in files that people can read and git can track.

    Without a command: an overview of the workspace.
    """
    if ctx.invoked_subcommand is None:
        from oryx_memory.cli.place import overview

        overview(root)
    elif root is not None:
        raise RejectedInput(f"options stand after the command: oryx memory {ctx.invoked_subcommand} --root {root}")


def oryx() -> NoReturn:
    """Run `oryx`."""
    _run(_top, "oryx")


def oryx_memory() -> NoReturn:
    """Run `oryx-memory`."""
    _run(memory, "oryx-memory")


def _run(app: typer.Typer, program: str) -> NoReturn:
    gc.disable()  # a command is short, and a big memory is many objects that all stay
    warnings.showwarning = _warnings_once()
    warnings.simplefilter("always", OryxMemoryWarning)
    code = _exit_code(app, program)
    sys.exit(min(code, 1) if _is_hook(sys.argv[1:]) else code)


def _is_hook(words: list[str]) -> bool:
    """Whether a client's hook runs us, misspelt or not: an exit code of 2 would stop the client there, and 1 is all that it
    can be told.
    """
    command = words[1:2] if words[:1] == ["memory"] else words[:1]
    return command == ["record"] or any(word.partition("=")[0] == "--hook" for word in words)


def _exit_code(app: typer.Typer, program: str) -> int:
    try:
        if sys.getfilesystemencoding() != "utf-8" and "utf8" not in sys._xoptions:
            # PYTHONUTF8=0 in the C locale, or a locale of another encoding: words and file names are UTF-8 all the same.
            os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
        prepare_streams()
        if COMPLETE in os.environ:
            from oryx_memory.cli.completion import answer

            return answer(typer.main.get_command(app), program, sys.argv[1:])
        result = app(prog_name=program, standalone_mode=False)
        if result == 130:  # what typer makes of Ctrl-C
            raise KeyboardInterrupt
        flush()
        return result if isinstance(result, int) else 0
    except OryxMemoryError as error:
        return _fail(str(error), error.exit_code)
    except TyperException as error:
        return _usage(error, program)
    except (Abort, KeyboardInterrupt):
        return _fail("interrupted", 130)
    except OSError as error:
        return _fail(f"{error.filename or 'standard output'}: {str(error.strerror or error).lower()}", 3)
    except Exception as error:  # a traceback would be a bug shown to a person; ORYX_DEBUG shows it to us
        if os.environ.get("ORYX_DEBUG"):
            raise
        return _fail(f"internal error, please report it: {type(error).__name__}: {error} (ORYX_DEBUG=1 shows more)", 3)


def _usage(error: TyperException, program: str) -> int:
    ctx = getattr(error, "ctx", None)
    where = ctx.command_path if ctx else program
    if type(error).__name__ == "NoArgsIsHelpError" and ctx:
        print(ctx.get_help())
        return 2
    message = " ".join(error.format_message().split())  # choices come a line each
    return _fail(f"{message.rstrip('.')} (see {where} --help)", error.exit_code)


def _fail(message: str, code: int) -> int:
    tell(f"oryx: {message}")
    try:
        flush()
    except OSError:
        give_up_output()  # or Python would fail once more when it ends
    return code


def _warnings_once() -> Callable[..., None]:
    """Shows each of our warnings once. Python's own "once" counts for each module that warns."""
    shown: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        text = str(message)
        if issubclass(category, OryxMemoryWarning) and text not in shown:
            shown.add(text)
            tell(f"oryx: warning: {text}")

    return show
