"""Writes the command reference to standard output: `make docs` keeps docs/commands.md, and a test compares the two."""

import os
from typing import Any

import typer

from oryx_memory.cli.main import MemoryGroup, memory
from oryx_memory.cli.options import COMMON

HEAD = """# Commands

Written by `make docs` from the program's own help; do not edit by hand.

Options that all commands share stand once, at the end. Options come after the command.
"""


def _option(param: Any) -> str:
    names = ", ".join([*param.opts, *param.secondary_opts])
    kind = "" if getattr(param, "is_flag", False) else f" {param.make_metavar(typer.Context(memory_group))}"
    return f"- `{names}{kind}`: {param.help}"


def _section(name: str, command: Any) -> str:
    ctx = typer.Context(command, info_name=f"oryx memory {name}")
    usage = command.get_usage(ctx).removeprefix("Usage: ").replace("\n", " ")
    text, _, example = (command.help or "").partition("\b\n")
    parts = [f"## {name}", f"`{' '.join(usage.split())}`", text.strip()]
    notes = [line for line in example.splitlines() if not line.startswith("  ")]
    commands = [line.strip() for line in example.splitlines() if line.startswith("  ")]
    parts += [" ".join(notes)] if notes else []
    parts += ["```sh\n" + "\n".join(commands) + "\n```"] if commands else []
    shared = {parameter.name for parameter in COMMON}
    options = [p for p in command.params if p.param_type_name == "option" and p.name not in shared and p.help]
    parts += ["\n".join(map(_option, options))] if options else []
    return "\n\n".join(parts)


def reference() -> str:
    """The whole page."""
    ctx = typer.Context(memory_group)
    sections = []
    for name in memory_group.list_commands(ctx):
        command = memory_group.get_command(ctx, name)
        inner = getattr(command, "commands", None)
        if inner:
            sections += [_section(f"{name} {sub}", inner[sub]) for sub in inner]
        else:
            sections.append(_section(name, command))
    shared = [p for p in memory_group.get_command(ctx, "append").params if p.name in {c.name for c in COMMON}]
    sections.append("## Options of all commands\n\n" + "\n".join(map(_option, shared)))
    return HEAD + "\n" + "\n\n".join(sections) + "\n"


os.environ["COLUMNS"] = "200"
memory_group = typer.main.get_group(memory)
assert isinstance(memory_group, MemoryGroup)

if __name__ == "__main__":
    print(reference(), end="")
