"""Settings and where each came from: defaults < OryxOS's application.yml < memory.toml < the person's own config <
environment < flags.

What reaches out of the workspace counts only from the person's own file, the environment or flags: a cloned
repository cannot send memories anywhere. Its files are a stranger's: they are read within bounds, nothing in them is
run, and no secret of the environment comes into a path or a message. Reading settings writes nothing.
"""

import os
import re
import stat
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from oryx_memory import values as valid
from oryx_memory.errors import OryxMemoryWarning, RejectedInput, SettingsError

if TYPE_CHECKING:
    from oryx_memory.retention import Policy

DEFAULT, ENVIRONMENT, FLAG = "default", "environment", "flag"
_BACKENDS = ("markdown", "sqlite", "mem0")
PROVIDERS = ("openai", "siliconflow", "zhipu", "dashscope", "ollama", "model2vec", "hashing")

# Key, default, check. A default of None means "no such rule", or that whoever uses it decides.
_KEYS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "backend": ("markdown", valid.text(*_BACKENDS)),
    "time.zone": ("", valid.zone),
    "sqlite.path": ("", valid.path),
    "agents.unsafe": ("refuse", valid.text("refuse", "global")),
    "archival.max_chars": (4000, valid.number(1)),
    "core.max_chars": (8000, valid.number(1)),
    "recall.mode": ("keyword", valid.text("keyword", "ranked")),
    "embedding.provider": ("", valid.text("", *PROVIDERS)),
    "embedding.model": ("", valid.text()),
    "embedding.base_url": ("", valid.address),
    "embedding.dimensions": (None, valid.number(1)),
    "embedding.api_key_env": ("", valid.variable),
    "embedding.timeout": (30.0, valid.seconds),
    "embedding.batch": (None, valid.number(1)),
    "embedding.max_chars": (None, valid.number(1)),
    "embedding.exclude_tags": ([], valid.tags),
    "footprint.enabled": (True, valid.flag),
    "tools.language": ("zh", valid.text("zh", "en")),
    "mem0.base_url": ("", valid.address),
    "mem0.user_id": ("", valid.identifier),
    "mem0.api_key_env": ("", valid.variable),
    "mem0.infer": (False, valid.flag),
    "mem0.timeout": (30.0, valid.seconds),
    "check.ignore": ([], valid.names),
    "clean.older_than": (None, valid.span),
    "clean.keep_chars": (None, valid.number(0)),
    "clean.keep_entries": (None, valid.number(0)),
    "clean.dedupe": (True, valid.flag),
    "clean.purge_retired": (None, valid.span),
    "clean.max_share": (0.5, valid.share),
    "guard.secrets": ("warn", valid.text("warn", "refuse", "off")),
}
_CLEAN = [key for key in _KEYS if key.startswith("clean.")]
_ENVIRONMENT = {
    "backend": "ORYX_MEMORY_BACKEND",
    "embedding.provider": "ORYX_EMBEDDING_PROVIDER",
    "embedding.model": "ORYX_EMBEDDING_MODEL",
    "embedding.base_url": "ORYX_EMBEDDING_BASE_URL",
    "mem0.base_url": "ORYX_MEM0_BASE_URL",
    "mem0.user_id": "ORYX_MEM0_USER_ID",
}
_ORYXOS = {"backend": "memory.backend", "sqlite.path": "spring.datasource.url"}  # in its application.yml

# What reaches out: whole tables, values of `backend`, and paths where they lead out.
_OUTWARD_TABLES = ("embedding", "mem0", "chat")
_OUTWARD_BACKENDS = ("mem0",)
_PATHS = ("sqlite.path",)
# Where one of these is named anew, what was said for the former one is dropped: a key must not go to another service.
_OF_ONE_SERVICE = {
    "embedding.provider": ("model", "base_url", "dimensions", "api_key_env", "batch", "max_chars"),
    "mem0.base_url": ("api_key_env",),
}

_SECRET_NAME = (
    r"(?<![A-Z])(?:API|ACCESS)?KEYS?(?![A-Z])|SECRET|TOKEN(?![A-Z])|PASSW|PASSPHRASE|CREDENTIAL|AUTHORIZATION|BEARER"
)
_PLACEHOLDER = r"\$\{([^${}:]+)(?::([^${}]*))?\}"
_NESTED = 10  # placeholders in placeholders
_NAMED = 8  # settings in a warning
_TOML_LIMIT = 256 * 1024  # bytes
_YAML_LIMIT = 64 * 1024  # bytes; PyYAML takes two seconds for as many
_DOTS = 100  # in one line; tomllib takes gigabytes for a key of 100,000 parts


class Asked(NamedTuple):
    """A setting that a project's file asks for and that counts only from the person's own file.

    `name` is the key as that file calls it, `value` what stands there, which may be wrong; `fault` tells why it is not
    for copying, if it is not. `decided`: the person's own file or the environment has that setting, so nobody need be told.
    """

    key: str
    value: Any
    path: Path
    name: str
    fault: str = ""
    decided: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """Checked values by dotted key, the source of each, and what the project asks for in vain."""

    values: Mapping[str, Any]
    sources: Mapping[str, str]
    ignored: tuple[Asked, ...] = ()

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    @property
    def embedding(self) -> dict[str, Any]:
        """The table `[embedding]`, as `embeddings.open_embedder` takes it. A `provider` of "" means none."""
        return self._table("embedding.")

    @property
    def mem0(self) -> dict[str, Any]:
        """The table `[mem0]`, as `stores.mem0.Mem0MemoryStore` takes it."""
        return self._table("mem0.")

    def _table(self, start: str) -> dict[str, Any]:
        return {key.removeprefix(start): self.values[key] for key in _KEYS if key.startswith(start)}

    def policy(self, front_matter: Mapping[str, Any] | None = None, page: Path | None = None) -> "Policy":
        """The clean-up policy of `[clean]`, over which goes `memory: clean:` in the front matter of an agent's `page`.

        Raises SettingsError, which names the page and the key.
        """
        values = {**self.values, **_own_clean(front_matter or {}, page)}
        from oryx_memory.retention import Policy

        return Policy(**{key.removeprefix("clean."): values[key] for key in _CLEAN})


def load(root: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any] | None = None) -> Settings:
    """The settings of the workspace folder `root` (None: no workspace). Raises SettingsError, RejectedInput for a flag.

    `flags`: dotted key to value; None values count as not given. What a project's file asks for in vain is said in one
    OryxMemoryWarning for that file, unless the person has decided.
    """
    chosen = read(root, environment, flags)
    for path in dict.fromkeys(item.path for item in chosen.ignored):
        if items := [item for item in chosen.ignored if item.path == path and not item.decided]:
            warnings.warn(OryxMemoryWarning(_in_vain(items)), stacklevel=2)
    return chosen


class Watched:
    """The settings that `load` gives, for whoever lives long: loaded again once one of their files has changed, at the
    price of one look at each. For any number of threads. Raises SettingsError, also later.
    """

    def __init__(self, root: Path, environment: Mapping[str, str], flags: Mapping[str, Any] | None = None) -> None:
        self._load = partial(load, root, environment, flags)
        self._paths = [path for path in (root / "memory.toml", application_file(root), own_file(environment)) if path]
        self._known: tuple[list[object], Settings] | None = None
        self.current()

    def current(self) -> Settings:
        """The settings as their files have them now."""
        stamps, known = [*map(_stamp, self._paths)], self._known  # before they are read, or a change could be missed
        if known is None or known[0] != stamps:
            self._known = known = stamps, self._load()
        return known[1]


def read(root: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any] | None = None) -> Settings:
    """As `load`, without the warning: for whoever shows `ignored`."""
    values = {key: default for key, (default, _) in _KEYS.items()}
    sources = dict.fromkeys(_KEYS, DEFAULT)

    def lay(given: Mapping[str, Any], source: str) -> None:
        for service, of_one in _OF_ONE_SERVICE.items():
            before = values[service]
            if before and given.get(service, before) != before:
                for key in (f"{service.partition('.')[0]}.{name}" for name in of_one):
                    values[key], sources[key] = _KEYS[key][0], DEFAULT
        values.update(given)
        sources.update(dict.fromkeys(given, source))

    inside, ignored = _project(root)
    if root is not None:
        lay(inside, str(root / "memory.toml"))
    decided = {key for key, variable in _ENVIRONMENT.items() if environment.get(variable)}
    for source, given in own_tables(root, environment):
        lay(given, source)
        decided |= given.keys()
    for key, variable in _ENVIRONMENT.items():
        if text := environment.get(variable):
            lay({key: _checked(key, text, None, variable)}, f"{ENVIRONMENT} {variable}")
    for key, value in (flags or {}).items():
        if value is not None:
            try:
                lay({key: _checked(key, value, None, f"--{key.rpartition('.')[2].replace('_', '-')}")}, FLAG)
            except SettingsError as error:  # of a command line, not of a file
                raise RejectedInput(str(error)) from error
    if root is not None:
        inside, more = _of_oryxos(root, environment, [k for k in _ORYXOS if sources[k] == DEFAULT], values["backend"])
        lay(inside, str(application_file(root)))
        ignored += more
    return Settings(values, sources, tuple(_as_used(item)._replace(decided=item.key in decided) for item in ignored))


def asked(root: Path, environment: Mapping[str, str], backend: str) -> list[Asked]:
    """What the files of the workspace folder `root` ask for of what reaches out, whether or not the person has it.

    `backend` is the one that counts: the database's path is of no matter to another. Values that are for copying are
    checked, as if they stood in the person's own file. Raises SettingsError, which names the project's file.
    """
    inside, found = _project(root)
    named = {*inside, *(item.key for item in found)}
    found += _of_oryxos(root, environment, [key for key in _ORYXOS if key not in named], backend)[1]
    return [
        item if item.fault else item._replace(value=_checked(item.key, item.value, item.path, item.name))
        for item in found
    ]


def own_file(environment: Mapping[str, str]) -> Path | None:
    """The person's own settings file, which may be absent; None without a home."""
    home = environment.get("HOME", "")
    for base in (environment.get("XDG_CONFIG_HOME", ""), f"{home}/.config" if home else ""):
        if os.path.isabs(base):  # a relative one does not count, says the XDG specification
            return Path(base) / "oryx-memory" / "config.toml"
    return None


def own_tables(root: Path | None, environment: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the person's own file says for all workspaces, then what it says for the one at `root`, each with its
    source: checked values by dotted key. Raises SettingsError.
    """
    path = own_file(environment)
    if path is None:
        return
    table = parse_toml(_read_file(path, _TOML_LIMIT), path)
    local = {name: inner for name, inner in table.items() if os.path.isabs(name) and isinstance(inner, dict)}
    yield str(path), _checked_table({name: inner for name, inner in table.items() if name not in local}, path)
    for name in local:
        if root is not None and is_table_of(name, root):
            yield f'{path} ["{name}"]', _checked_table(local[name], path)


def is_table_of(name: str, root: Path) -> bool:
    """Whether a table of the person's own file with this name is for the workspace folder `root`."""
    folders = {str(root), str(root.parent)} if root.name == ".oryxos" else {str(root)}
    return "\0" not in name and os.path.realpath(name) in {os.path.realpath(folder) for folder in folders}


def application_file(root: Path) -> Path:
    """OryxOS's own settings of the workspace folder `root`."""
    return root.parent / "config" / "application.yml"


def oryxos_backend(root: Path, environment: Mapping[str, str]) -> str | None:
    """The backend that OryxOS's own settings name, or None."""
    given = _read_yaml(application_file(root)).get(_ORYXOS["backend"])
    return None if given is None else _backend(given, environment)


def leads_out(path: str) -> bool:
    """Whether a path, counted from the folder that holds `.oryxos`, leaves it."""
    return os.path.isabs(path) or os.path.normpath(path).split(os.sep)[0] == ".."


def _masked(text: str) -> str:
    from oryx_memory.guard import masked  # only where something is wrong, or a stranger's

    return masked(text)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest one that is known, if one is near."""
    near = nearest_name(name, known)
    return f"; did you mean {near}?" if near else ""


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The name that an unknown one may be a slip for."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name[:100], list(known), 1, 0.5)), None)


def parse_toml(data: bytes | None, path: Path) -> dict[str, Any]:
    """The table of a settings file; an empty one for None. Raises SettingsError, which names the file."""
    if not data:
        return {}
    import tomllib  # only where there is a file

    try:
        if any(line.count(b".") > _DOTS and not line.lstrip().startswith(b"#") for line in data.split(b"\n")):
            raise SettingsError(f"has a line with more than {_DOTS} dots, which no setting needs", path)
        return tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise SettingsError(f"is not valid UTF-8 (byte {error.start})", path) from error
    except RecursionError as error:
        raise SettingsError("is nested too deeply", path) from error
    except SettingsError:
        raise
    except ValueError as error:  # tomllib's message ends with line and column
        raise SettingsError(f"is not valid TOML: {error}", path) from error


def _project(root: Path | None) -> tuple[dict[str, Any], list[Asked]]:
    """What the memory.toml of a workspace says: what counts, and what reaches out."""
    if root is None:
        return {}, []
    path = root / "memory.toml"
    inside: dict[str, Any] = {}
    outward: list[Asked] = []
    for key, value in _flatten(parse_toml(_read_file(path, _TOML_LIMIT), path)).items():
        if reaches_out(key, value):
            _refuse_literal(key, value, path)
            outward.append(Asked(key, value, path, key, _fault(key)))
        else:
            inside[key] = _checked(key, value, path)
    return inside, outward


def reaches_out(key: str, value: Any) -> bool:
    """Whether a setting leads out of the project, so that it counts only from the person's own file, the environment or
    flags.
    """
    if key == "backend":
        return value in _OUTWARD_BACKENDS
    if key in _PATHS:
        return isinstance(value, str) and leads_out(value)
    return key.partition(".")[0] in _OUTWARD_TABLES


def _as_used(item: Asked) -> Asked:
    """With its value as it would be if it counted, so that the two can be compared; as it stands where it could not."""
    try:
        return item if item.fault else item._replace(value=_checked(item.key, item.value, item.path, item.name))
    except SettingsError:
        return item


def _fault(key: str) -> str:
    """Whether this version does not know what reaches out under this key, as a later one may."""
    table = key.partition(".")[0]
    known = table in (known.partition(".")[0] for known in _KEYS)
    return "" if known else "not known to this version"


def _in_vain(items: list[Asked]) -> str:
    """One line about what a file asks for, names alone: values may be anything."""
    named = [item.name if len(item.name) <= 60 else f"{item.name[:60]}…" for item in items[:_NAMED]]
    named += [f"{len(items) - _NAMED:,} more"] if len(items) > _NAMED else []
    keys = " and ".join(filter(None, (", ".join(named[:-1]), named[-1])))
    return (
        f"{items[0].path}: {keys} {'is' if len(items) == 1 else 'are'} ignored: what leads out of the project counts only "
        "from your own settings; oryx memory config adopt shows and copies it"
    )


def _of_oryxos(
    root: Path, environment: Mapping[str, str], keys: list[str], backend: str
) -> tuple[dict[str, Any], list[Asked]]:
    """What application.yml says of these keys: what counts, and what reaches out. It is read only if there is one and
    it matters: for the backend, or for the path of the database that is the backend.
    """
    inside: dict[str, Any] = {}
    outward: list[Asked] = []
    path = application_file(root)
    if not ("backend" in keys or (keys and backend == "sqlite")) or not path.is_file():
        return inside, outward
    flat = _read_yaml(path)
    if "backend" in keys and (name := flat.get(_ORYXOS["backend"])) is not None:
        given = _backend(name, environment)
        if given in _OUTWARD_BACKENDS:
            outward.append(Asked("backend", given, path, _ORYXOS["backend"], _fault("backend")))
        else:
            inside["backend"] = backend = _checked("backend", given, path, _ORYXOS["backend"])
    if "sqlite.path" in keys and backend == "sqlite" and (url := flat.get(_ORYXOS["sqlite.path"])) is not None:
        resolved = _resolved(url, environment)
        database = _database(resolved or "")
        if resolved is None and "jdbc:sqlite:" in url:
            outward.append(Asked("sqlite.path", url, path, _ORYXOS["sqlite.path"], "made of a variable for secrets"))
        elif leads_out(database):
            outward.append(Asked("sqlite.path", database, path, _ORYXOS["sqlite.path"]))
        elif database:
            inside["sqlite.path"] = _checked("sqlite.path", database, path, _ORYXOS["sqlite.path"])
    return inside, outward


def _backend(name: str, environment: Mapping[str, str]) -> str:
    """The backend that a text stands for. One that is none comes back as it was: it may be what a variable holds."""
    given = _resolved(name, environment)
    return given if given in _BACKENDS else name


def _database(url: str) -> str:
    """The path in a JDBC address; empty for another database of OryxOS's, whose memory is not in a file."""
    path = url.removeprefix("jdbc:sqlite:").removeprefix("file:").partition("?")[0]
    return path if url.startswith("jdbc:sqlite:") and path != ":memory:" else ""


def _resolved(value: str, environment: Mapping[str, str]) -> str | None:
    """`${NAME:default}` as Spring replaces it, innermost first; None where a variable is named, or holds, a secret."""
    text, secret = value, False

    def replace(match: "re.Match[str]") -> str:
        nonlocal secret
        secret = secret or re.search(_SECRET_NAME, match[1].upper()) is not None
        return environment.get(match[1]) or match[2] or ""

    for _ in range(_NESTED):
        text, before = re.sub(_PLACEHOLDER, replace, text), text
        if text == before:
            break
    return None if secret or (text != value and _masked(text) != text) else text


def _read_yaml(path: Path) -> dict[str, str]:
    """What a YAML file says of the keys of OryxOS that count here, by their dotted names.

    It is composed and not constructed: a small file of aliases would make billions of values.
    """
    data = _read_file(path, _YAML_LIMIT)
    if data is None:
        return {}
    import yaml  # only where OryxOS's own settings count

    seen: set[tuple[int, str]] = set()

    def find(node: Any, name: str) -> str | None:
        """The text that a dotted name leads to: Spring reads `a.b: x` and `a: {b: x}` alike."""
        if isinstance(node, yaml.ScalarNode) and not name:
            return None if node.tag.endswith(":null") else node.value
        if not isinstance(node, yaml.MappingNode) or (id(node), name) in seen:
            return None
        seen.add((id(node), name))
        for key, inner in reversed(node.value):
            rest = f"{name}.".removeprefix(f"{key.value}.") if isinstance(key, yaml.ScalarNode) else f"{name}."
            found = find(inner, rest.removesuffix(".")) if rest != f"{name}." else None
            if found is not None:
                return found
        merged = [inner for key, inner in node.value if key.tag.endswith(":merge")]
        merged = [part for inner in merged for part in (inner.value if inner.id == "sequence" else [inner])]
        return next((found for part in merged if (found := find(part, name)) is not None), None)

    try:
        documents = [*yaml.compose_all(data, yaml.SafeLoader)]
    except (ValueError, yaml.YAMLError) as error:
        raise SettingsError(f"cannot be read: {str(error).splitlines()[0]}", path) from error
    except RecursionError as error:
        raise SettingsError("is nested too deeply", path) from error
    flat: dict[str, str] = {}
    for document in documents:
        seen.clear()
        flat |= {name: text for name in _ORYXOS.values() if (text := find(document, name)) is not None}
    return flat


def _stamp(path: Path) -> object:
    """What differs when the file does; None where none can be seen."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _read_file(path: Path, limit: int) -> bytes | None:
    """The bytes of a settings file; None where there is none. Raises SettingsError."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SettingsError("is not a regular file", path)
            data = file.read(limit + 1)
    except FileNotFoundError:
        return None
    except PermissionError:
        if not os.access(path.parent, os.X_OK):
            return None  # another user's home that cannot even be looked into
        raise SettingsError("cannot be read: permission denied", path) from None
    except OSError as error:
        raise SettingsError(f"cannot be read: {str(error.strerror).lower()}", path) from error
    if len(data) > limit:
        raise SettingsError(f"is larger than {limit // 1024} KiB, which no settings are", path)
    return data


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)  # a FIFO must not hang us


def _flatten(table: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys of nested tables. A name with a dot in it is quoted, and so is no key of ours."""
    flat: dict[str, Any] = {}
    waiting: list[tuple[str, Mapping[str, Any]]] = [("", table)]
    for prefix, inner in waiting:  # which grows meanwhile
        for name, value in inner.items():
            key = prefix + (name if "." not in name else f'"{name}"')
            if isinstance(value, dict) and (value or not prefix):
                waiting.append((f"{key}.", value))
            else:
                flat[key] = value
    return flat


def _own_clean(front_matter: Mapping[str, Any], page: Path | None) -> dict[str, Any]:
    """Checked values by the keys of `[clean]`. A table with nothing in it says nothing, as in TOML."""
    tables = _table(front_matter, "memory", "memory", page)
    for name in tables:
        if name != "clean":
            raise _unknown(f"memory.{name}", ["memory.clean"], page)
    values: dict[str, Any] = {}
    for name, value in _table(tables, "clean", "memory.clean", page).items():
        key, shown = f"clean.{name}", f"memory.clean.{name}"
        if key not in _KEYS:
            raise _unknown(shown, [f"memory.{known}" for known in _CLEAN], page)
        values[key] = _checked(key, value, page, shown)
    return values


def _table(outer: Mapping[str, Any], name: str, shown: str, page: Path | None) -> dict[Any, Any]:
    table = outer.get(name)
    if not isinstance(table, dict | None):
        raise SettingsError(f"{shown} must be a table, not {valid.kind(table)}", page)
    return table or {}


def _unknown(key: str, known: Iterable[str], path: Path | None) -> SettingsError:
    return SettingsError(f"unknown setting {key}{did_you_mean(key, known)}", path)


def _checked_table(table: Mapping[str, Any], path: Path) -> dict[str, Any]:
    return {key: _checked(key, value, path) for key, value in _flatten(table).items()}


def _checked(key: str, value: Any, path: Path | None, shown: str = "") -> Any:
    _refuse_literal(key, value, path, shown)
    if key not in _KEYS:
        raise _unknown(key, _KEYS, path)
    try:
        return _KEYS[key][1](value)
    except RejectedInput as error:
        raise SettingsError(_masked(f"{shown or key}: {error}"), path) from error
    except ValueError as error:
        raise SettingsError(_masked(f"{shown or key} {error}"), path) from error


def _refuse_literal(key: str, value: Any, path: Path | None, shown: str = "") -> None:
    """A key or password of a service stands in no file; the message names the setting and never its value."""
    table, _, name = key.partition(".")
    if table not in _OUTWARD_TABLES:
        return
    told = ""
    if name.endswith("_env"):
        if isinstance(value, str) and value and not valid.is_variable(value):
            told = "is the name of an environment variable in capitals, such as OPENAI_API_KEY, and this looks like a key itself"
    elif key not in _KEYS and re.search(_SECRET_NAME, name.upper()):
        told = "would be a secret in a file, which is refused"
    elif isinstance(value, str) and (_masked(value) != value or re.match(r"\w+://[^/?#]*@", value)):
        told = "has a secret in it, which is refused"
    if told:
        raise SettingsError(
            f"{shown or key} {told}; keep the secret in an environment variable and write that variable's name: "
            f'{table}.api_key_env = "OPENAI_API_KEY"',
            path,
        )
