"""Commands that a message tells a person to type, as text.

One may be read in a mail of cron or in a log and pasted into another shell, with another folder, PATH and environment. So
it names all that flags or the environment named here: the program, the workspace, the agent, the backend. Whatever is
in a name, it is one word of one line.
"""

import os
import shlex
import sys

from oryx_memory.cli.options import Here
from oryx_memory.settings import ENVIRONMENT, FLAG
from oryx_memory.workspace import FOLDER


def command(here: Here, agent: str | None, name: str, *words: str) -> str:
    """`oryx memory NAME` with its words, for the memory of `agent` (None: the global one)."""
    place = _place(here, agent)
    typed = [_program(), "memory", name]
    if agent is not None:
        typed += ["-a", agent]
    elif os.environ.get("ORYX_AGENT") and place != ["--user"]:
        typed.insert(0, "ORYX_AGENT=")  # there too it may name an agent, and this is about the global memory
    typed += [*words, *place]
    if here.settings.sources["backend"].split(" ")[0] in (FLAG, ENVIRONMENT):
        typed += ["--backend", here.settings["backend"]]
    return " ".join(map(quoted, typed))


def _program() -> str:
    """`oryx` if a shell finds it by that name, else the path of the one that runs."""
    folder = os.path.dirname(sys.argv[0])
    own = os.path.join(os.path.abspath(folder), "oryx") if folder else ""
    paths = (os.path.join(folder, "oryx") for folder in os.get_exec_path())
    found = next((path for path in paths if os.access(path, os.X_OK) and os.path.isfile(path)), None)
    if not os.access(own, os.X_OK) or (found and os.path.samefile(found, own)):
        return "oryx"
    return own


def _place(here: Here, agent: str | None) -> list[str]:
    """The options that name the workspace, unless it was found from the working directory."""
    root = str(here.workspace.root)
    of_user = root == os.path.join(os.path.abspath(os.path.expanduser("~")), FOLDER)  # never found by walking
    if of_user and agent is None and not here.given_root:
        return ["--user"]
    return ["--root", root] if of_user or here.given_root or os.environ.get("ORYXOS_ROOT") else []


def quoted(word: str) -> str:
    """A word for a shell. What is not printable is written in octal, for which bash and zsh have `$'…'`."""
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(c if c.isprintable() and c not in "'\\" else _octal(c) for c in word) + "'"


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode(errors="surrogateescape"))
