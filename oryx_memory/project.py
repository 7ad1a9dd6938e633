"""Which workspace a client of an agent means, when it was not a person who started us in a project's folder.

What was named counts alone. Else it is the nearest workspace upward from the first place that has one, of those that
the client gave, by the rules of `discover`: never beyond the top of a repository, and never `~/.oryxos`.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

from oryx_memory.errors import NoWorkspace
from oryx_memory.workspace import Workspace, discover, named


def given(root: Path | None, environment: Mapping[str, str]) -> Workspace | None:
    """The workspace that `root` or ORYXOS_ROOT names; None where neither does. Raises NoWorkspace."""
    chosen = root or environment.get("ORYXOS_ROOT")
    return named(Path(chosen)) if chosen else None


def nearest(places: Iterable[str | None]) -> Workspace | None:
    """The workspace of the first of these places, absolute paths, that is in one; None where none is."""
    for place in places:
        if place and os.path.isabs(place):
            try:
                return discover(Path(place))
            except (NoWorkspace, ValueError):  # ValueError: a NUL or half a surrogate pair, which no path has
                pass
    return None


def working_directory() -> str | None:
    """The working directory; None where it is gone."""
    try:
        return os.getcwd()
    except OSError:
        return None


def path_of(uri: str) -> str | None:
    """The path that a `file:` URI stands for, `%20` and the like resolved; None for any other URI."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    return os.fsdecode(unquote_to_bytes(parts.path))
