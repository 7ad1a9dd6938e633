"""Where the files of a workspace are: finding `.oryxos`, the folders of its agents, what people wrote there.

Reading never makes anything; `create_agent` and `initialise` do, and overwrite nothing.
"""

import os
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oryx_memory.errors import FileProblem, NoWorkspace, OryxMemoryError, OryxMemoryWarning, SettingsError, UnsafeName
from oryx_memory.files import adopt, make_folder, read

FOLDER = ".oryxos"
MEMORY = "MEMORY.md"
_SAFE = re.compile(r"[A-Za-z0-9_-]+")
_FOLDERS = ("agents", "skills", "knowledge", "output", "memory", "sessions", "logs")  # as OryxOS's own init
_PAGES = ("AGENTS.md", "SOUL.md", "USER.md")
_IGNORED = ("memory-state.db*", "memory-index.db*", ".locks/", "*.oryx-tmp", "*.found-*")
_ATTRIBUTES = (  # git must not change line ends, and merges entry by entry where init put the driver
    "MEMORY.md merge=oryx-memory -text",
    "MEMORY.retired.md merge=oryx-memory -text",
)
_OLD_ATTRIBUTES = ("MEMORY.md -text", "MEMORY.retired.md -text")  # as version 0.1 wrote them


@dataclass(frozen=True, slots=True)
class Workspace:
    """A `.oryxos` folder, by its absolute path."""

    root: Path

    @property
    def settings_file(self) -> Path:
        """`memory.toml`, which may be absent."""
        return self.root / "memory.toml"

    def database_file(self, path: str = "") -> Path:
        """OryxOS's database: `path`, which counts from the folder that holds `.oryxos`, by default `oryxos.db`."""
        return self.root.parent / (path or "oryxos.db")

    @property
    def agents_dir(self) -> Path:
        """The folder of the agents' folders."""
        return self.root / "agents"

    def memory_file(self, agent: str | None) -> Path:
        """MEMORY.md of an agent, or the global one for None. Raises UnsafeName."""
        if agent is None:
            return self.root / "memory" / MEMORY
        if not _SAFE.fullmatch(agent):
            raise UnsafeName(agent)
        return self.agents_dir / agent / MEMORY

    @property
    def index_file(self) -> Path:
        """The derived index of ranked recall, which may be absent and may be deleted."""
        return self.root / "memory-index.db"

    def lock_file(self, memory_file: Path) -> Path:
        """The lock of a memory by its file, links followed: two links to one file share it."""
        name = str(memory_file.relative_to(os.path.realpath(self.root))).replace("/", "+")
        if len(name.encode()) > 200:
            from hashlib import sha256

            name = sha256(name.encode()).hexdigest()
        return self.root / ".locks" / f"{name}.lock"

    @property
    def clean_lock_file(self) -> Path:
        """The lock of a clean-up of all agents, of which there is one at a time."""
        return self.root / ".locks" / "clean.lock"

    def agents(self) -> list[str]:
        """Names of the agents that have a folder, sorted."""
        try:
            with os.scandir(self.agents_dir) as entries:
                return sorted(e.name for e in entries if _SAFE.fullmatch(e.name) and e.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise FileProblem(self.agents_dir, str(error.strerror).lower()) from error

    def has_agent(self, agent: str | None) -> bool:
        """Whether the agent has a folder; the global memory always exists. Raises UnsafeName."""
        return agent is None or os.path.isdir(self.memory_file(agent).parent)

    def folds_case(self) -> bool:
        """Whether its file system takes `Ops` and `ops` for one name."""
        try:
            return self.root.samefile(self.root.with_name(self.root.name.swapcase()))
        except OSError:
            return False

    def create_agent(self, agent: str | None) -> bool:
        """Make the folder of an agent's memory; True if it was not there. Raises UnsafeName, FileProblem."""
        folder = self.memory_file(agent).parent
        try:
            return make_folder(folder)
        except OSError as error:
            raise FileProblem(folder, f"cannot be made: {str(error.strerror).lower()}") from error

    def agent_page(self, agent: str) -> Path:
        """AGENT.md of an agent, which a person writes; it may be absent."""
        return self.agents_dir / agent / "AGENT.md"

    def front_matter(self, agent: str | None) -> dict[str, Any]:
        """The front matter of AGENT.md; empty where there is none, for the global memory, and for a name without a
        folder. Raises FileProblem, and SettingsError for one that cannot be understood.
        """
        if agent is None or not _SAFE.fullmatch(agent):
            return {}
        path = self.agent_page(agent)
        data = read(path)
        if data is None and path.is_symlink():
            raise FileProblem(path, "is a link to nothing")
        return _front_matter(path, data) if data else {}

    def agent_title(self, agent: str) -> str:
        """`description` or `name` in the front matter of AGENT.md, on one line; empty where there is none."""
        try:
            meta = self.front_matter(agent)
        except OryxMemoryError as error:
            import warnings

            warnings.warn(OryxMemoryWarning(str(error)), stacklevel=2)
            return ""
        title = meta.get("description") or meta.get("name") or ""
        return " ".join(str(title).split())


def _front_matter(path: Path, data: bytes) -> dict[str, Any]:
    """The table between the two `---` lines that a page begins with; empty where it begins with something else."""
    if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise SettingsError("is UTF-16, in which front matter is not looked for; save it as UTF-8", path)
    text = data.decode("utf-8-sig", "surrogateescape").replace("\r\n", "\n").replace("\r", "\n")
    page = text.lstrip()
    if not page.startswith("---"):
        return {}
    from frontmatter.default_handlers import YAMLHandler  # yaml: only where a page has front matter

    handler = YAMLHandler()
    opening, parts = handler.FM_BOUNDARY.match(page), handler.FM_BOUNDARY.split(page, 2)
    if opening is None or len(parts) < 3:
        raise SettingsError("front matter stands between two lines ---, and one of them is missing", path)
    lines_before = text[: len(text) - len(page) + opening.end()].count("\n")  # so that errors name lines of the file
    try:
        parts[1].encode()
        table = handler.load("\n" * lines_before + parts[1], Loader=_strict_loader())
    except UnicodeEncodeError as error:
        raise SettingsError("front matter is not valid UTF-8", path) from error
    except Exception as error:  # whatever a hand-written YAML block makes the parser raise
        reason = str(getattr(error, "problem", None) or error or type(error).__name__).split("\n")[0]
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark else ""
        raise SettingsError(f"front matter cannot be read: {reason}{where}", path) from error
    if not isinstance(table, dict | None):
        raise SettingsError("front matter is not a table of `name: value` lines", path)
    return table or {}


def _strict_loader() -> type:
    """YAML's safe loader, but of two equal keys it would take the last, and this one refuses the second."""
    import yaml

    class _Strict(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"{key.value} stands there twice", problem_mark=key.start_mark)
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    return _Strict


def discover(start: Path | None = None) -> Workspace:
    """The nearest workspace upward from `start` (default: the working directory).

    Stops at the first folder that holds `.git`, at a file-system boundary and below the home directory; `~/.oryxos`
    is never found by walking, and a workspace of another owner is refused. Raises NoWorkspace.
    """
    try:
        here = Path(os.path.realpath(start or os.getcwd()))
        device = os.stat(here).st_dev
    except OSError as error:
        raise NoWorkspace(
            f"the working directory cannot be read ({str(error.strerror).lower()}); "
            "name a workspace with --root PATH or ORYXOS_ROOT"
        ) from error
    home = os.path.realpath(os.path.expanduser("~"))
    folder = here
    while True:
        if str(folder) == home:
            limit = "the home directory"
            break
        candidate = folder / FOLDER
        if os.path.isdir(candidate):
            _refuse_foreign(candidate)
            return Workspace(candidate)
        if os.path.lexists(folder / ".git"):
            limit = f"{folder}, the top of the repository"
            break
        parent = folder.parent
        if parent == folder:
            limit = "/"
            break
        try:
            if os.stat(parent).st_dev != device:
                limit = f"{folder}, where another file system begins"
                break
        except OSError:
            limit = str(folder)
            break
        folder = parent
    raise NoWorkspace(
        f"no {FOLDER} folder from {here} up to {limit}; make one here with `oryx memory init`, "
        "or name one with --root PATH or ORYXOS_ROOT"
    )


def named(path: Path) -> Workspace:
    """The workspace that a person named: the `.oryxos` folder or the folder that holds it. Raises NoWorkspace."""
    try:
        path = Path(os.path.abspath(path)) if path.is_absolute() else Path(os.path.realpath(path))
    except OSError as error:
        raise NoWorkspace(f"{path} counts from the working directory, which is gone; give a full path") from error
    for candidate in (path / FOLDER, path):
        if os.path.isdir(candidate) and (
            candidate.name == FOLDER or (candidate / "agents").is_dir() or (candidate / "memory").is_dir()
        ):
            return Workspace(candidate)
    raise NoWorkspace(f"no {FOLDER} folder at {path}; make one with `oryx memory init --root {path}`")


def initialise(folder: Path) -> Iterator[Path]:
    """Make the parts of a workspace that are missing in `folder`, as OryxOS's own init does, and our git files.

    Gives what was made, in order. Overwrites nothing. Raises FileProblem.
    """
    root = folder if folder.name == FOLDER else folder / FOLDER
    try:
        for directory in (root, *(root / name for name in _FOLDERS)):
            if make_folder(directory):
                yield directory
        for name in _PAGES:
            if _write_new(root / name, f"# {name}\n"):
                yield root / name
        for name, lines in ((".gitignore", _IGNORED), (".gitattributes", _ATTRIBUTES)):
            if _add_lines(root / name, lines):
                yield root / name
    except OSError as error:
        raise FileProblem(error.filename or root, f"cannot be made: {str(error.strerror).lower()}") from error


def remove_git_lines(root: Path) -> Iterator[Path]:
    """Take the lines that `initialise` put into the git files of the workspace folder `root` out again; a file without
    any other goes too. Gives what was changed, in order. Raises FileProblem.
    """
    for name, lines in ((".gitignore", _IGNORED), (".gitattributes", (*_ATTRIBUTES, *_OLD_ATTRIBUTES))):
        try:
            if _remove_lines(root / name, lines):
                yield root / name
        except OSError as error:
            raise FileProblem(root / name, f"cannot be changed: {str(error.strerror).lower()}") from error


def _write_new(path: Path, text: str) -> bool:
    try:
        with open(path, "x", encoding="utf-8") as file:
            adopt(file.fileno(), path.parent)
            file.write(text)
    except FileExistsError:
        return False
    return True


def _add_lines(path: Path, lines: tuple[str, ...]) -> bool:
    try:
        present = path.read_bytes()
    except FileNotFoundError:
        present = b""
    missing = [line for line in lines if line.encode() not in present.split(b"\n")]
    if not missing:
        return False
    gap = "" if not present or present.endswith(b"\n") else "\n"
    with open(path, "a", encoding="utf-8") as file:
        if not present:
            adopt(file.fileno(), path.parent)
        file.write(gap + "".join(f"{line}\n" for line in missing))
    return True


def _remove_lines(path: Path, lines: tuple[str, ...]) -> bool:
    try:
        present = path.read_bytes()
    except FileNotFoundError:
        return False
    ours = {line.encode() for line in lines}
    left = b"".join(line for line in present.splitlines(keepends=True) if line.rstrip(b"\r\n") not in ours)
    if left == present:
        return False
    if left:
        path.write_bytes(left)
    else:
        path.unlink()
    return True


def _refuse_foreign(candidate: Path) -> None:
    if not hasattr(os, "geteuid"):
        return
    owner, me = os.stat(candidate).st_uid, os.geteuid()
    if owner != me and not (me == 0 and os.environ.get("SUDO_UID") == str(owner)):
        raise NoWorkspace(
            f"{candidate} belongs to user {owner} and you are {me}; to use it, name it: --root {candidate}"
        )
