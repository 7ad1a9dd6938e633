"""The command mcp, which serves a memory to the client of an agent."""

import gc
import logging
from pathlib import Path
from typing import Annotated

import typer

from oryx_memory.cli.options import Here, memory_command
from oryx_memory.cli.output import tell
from oryx_memory.errors import SettingsError

app = typer.Typer(rich_markup_mode=None)


@memory_command(app)
def mcp(
    here: Here,
    allow_forget: Annotated[
        bool, typer.Option("--allow-forget", help="Offer forget_memory too, which retires entries.")
    ] = False,
) -> None:
    """Serve the memory to an MCP client over standard input and output; the client starts this, nobody types it.

    \b
    The project: --root, ORYXOS_ROOT, CLAUDE_PROJECT_DIR, the client's roots, the working directory, in this order.
    docs/mcp.md has the settings of the clients. Needs the extra mcp: pip install 'oryx-memory[mcp]'
      oryx memory mcp -a ops
    """
    try:
        from oryx_memory.mcp_server import Memories, serve
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("oryx_memory"):
            raise
        raise SettingsError(
            f"the command mcp needs the package {error.name}: run pip install 'oryx-memory[mcp]'"
        ) from error
    logging.basicConfig(handlers=[_Talk(logging.WARNING)], force=True)
    here.out.progress.stop()
    gc.enable()  # it was stopped for commands that are short
    root = Path("~").expanduser() if here.user else here.given_root
    serve(
        Memories(
            root=root,
            agent=here.agent,
            flags={"backend": here.given_backend},
            lock_timeout=here.lock_timeout,
            may_forget=allow_forget,
        )
    )


class _Talk(logging.Handler):
    """What is logged goes to standard error, a line each, safe on a terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        cause = record.exc_info[1] if record.exc_info else None
        tell(f"oryx: {record.getMessage()}{f': {type(cause).__name__}: {cause}' if cause else ''}")
