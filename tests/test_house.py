"""The house rules: which way imports go, what they weigh, what is public and what it says of itself."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import oryx_memory

PACKAGE = Path(oryx_memory.__file__).parent
PURE = {
    "errors",
    "entry",
    "document",
    "retired",
    "changes",
    "retention",
    "matching",
    "window",
    "guard",
    "diffing",
    "merging",
    "rules",
    "ranking",
    "dates",
    "values",
    "messages",
    "prompt",
    "hooks",
}
# A module may import from its own floor and those below.
FLOORS = [
    {"errors"},
    PURE,
    {
        "workspace",
        "settings",
        "files",
        "database",
        "exchange",
        "git",
        "journal",
        "embeddings",
        "adoption",
        "remote",
        "project",
    },
    {"stores", "sessions"},
    {"checks", "index", "vectors", "breaker"},
    {"recall", "episodes"},
    {"service"},
    {"tools"},
    {"cli", "mcp_server"},
]
FORBIDDEN_IN_PURE = {"os", "sys", "io", "sqlite3", "subprocess", "time", "random", "socket", "warnings"}
HEAVY = {
    "numpy", "sqlite_utils", "sqlite3", "openai", "mcp", "anyio", "httpx", "yaml", "frontmatter", "rich", "msgspec", "pydantic",
    "hashlib", "ctypes", "asyncio",
}  # fmt: skip


def _modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def _room(path: Path) -> str:
    """The module or folder of the package that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def _floor(room: str) -> int:
    return next(number for number, rooms in enumerate(FLOORS) if room in rooms)


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    room = _room(path)
    if room in ("__init__", "__main__"):
        return
    rooms = {name.split(".")[1] for name in _imports(path) if name.startswith("oryx_memory.")}
    inside = {name for name in rooms if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()}
    assert {name for name in inside if _floor(name) > _floor(room)} == set()
    if room == "settings":
        assert inside <= PURE


@pytest.mark.parametrize("name", sorted(PURE))
def test_pure_modules_touch_nothing(name: str) -> None:
    path = PACKAGE / f"{name}.py"
    assert {imported.split(".")[0] for imported in _imports(path)} & FORBIDDEN_IN_PURE == set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            assert not (isinstance(node.func, ast.Name) and node.func.id in ("open", "print", "input"))
            assert not (isinstance(node.func, ast.Attribute) and node.func.attr in ("now", "today", "utcnow"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["append", "-a", "ops", "x"],
        ["append", "-a", "ops", "-"],
        ["append", "--scope", "core", "x"],
        ["load", "-a", "ops"],
        ["recall", "-a", "ops", "uv"],
        None,
    ],
    ids=["append", "append-stdin", "append-core", "load", "recall", "import"],
)
def test_the_hot_path_imports_nothing_heavy(arguments: list[str] | None, tmp_path: Path) -> None:
    (tmp_path / ".oryxos" / "agents" / "ops").mkdir(parents=True)
    (tmp_path / ".oryxos" / "agents" / "ops" / "MEMORY.md").write_text("## 核心记忆\n\n## 归档记忆\n- Use uv\n")
    heavy = HEAVY - ({"ctypes"} if arguments and "core" in arguments else set())  # a rewrite exchanges two files
    run = "from oryx_memory.cli.main import oryx_memory\n    oryx_memory()" if arguments else "import oryx_memory"
    code = f"import sys\ntry:\n    {run}\nfinally:\n    sys.stderr.write(' '.join(sys.modules))"
    command = [sys.executable, "-c", code, *(arguments or [])]
    done = subprocess.run(command, cwd=tmp_path, input=b"from input", capture_output=True, check=True)
    modules = set(done.stderr.decode().split())
    loaded = {name.split(".")[0] for name in modules}
    assert "oryx_memory" in loaded
    assert loaded & heavy == set()
    assert modules & {f"oryx_memory.{name}" for name in ("service", "tools", "retention")} == set()


@pytest.mark.parametrize(
    "arguments", [["append", "-a", "ops", "二"], ["load", "-a", "ops"], ["recall", "-a", "ops", "一"]]
)
def test_sqlite_imports_its_migrations_only_when_one_has_to_run(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / ".oryxos" / "memory").mkdir(parents=True)
    code = "import sys\nfrom oryx_memory.cli.main import oryx_memory\ntry:\n    oryx_memory()\nfinally:\n    "
    code += "sys.stderr.write(' '.join(sys.modules))"
    environment = {**os.environ, "ORYX_MEMORY_BACKEND": "sqlite"}
    loaded = set()
    for words in (["append", "-a", "ops", "一"], arguments):
        command = [sys.executable, "-c", code, *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=True)
        loaded = {name.split(".")[0] for name in done.stderr.decode().split()}
    assert "sqlite3" in loaded
    assert loaded & (HEAVY - {"sqlite3"}) == set()


def test_only_the_module_of_the_command_that_runs_is_imported(tmp_path: Path) -> None:
    (tmp_path / ".oryxos" / "memory").mkdir(parents=True)
    code = (
        "import sys\nfrom oryx_memory.cli.main import oryx_memory\ntry:\n    oryx_memory()\nfinally:\n"
        "    print(sorted(m for m in sys.modules if m.startswith('oryx_memory.cli.')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, "load"], cwd=tmp_path, capture_output=True, check=True)
    names = ["main", "options", "output", "read"]
    assert done.stderr.decode().strip() == str([f"oryx_memory.cli.{name}" for name in names])


def test_public_names_are_what_init_imports() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    imported = [
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("oryx_memory.")
        for alias in node.names
    ]
    assert sorted(imported) == sorted(oryx_memory.__all__) == list(oryx_memory.__all__)
    for name in oryx_memory.__all__:
        assert getattr(oryx_memory, name).__name__ == name
    with pytest.raises(AttributeError, match="Memroy"):
        oryx_memory.Memroy  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_module_and_public_name_says_what_it_is(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "a module opens with what it is for"
    overrides = {"main", "get_command", "list_commands", "parse_args"}
    private = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name[0] == "_"
        for inner in node.body
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name.startswith("_") or node in private:
            continue
        if isinstance(node, ast.FunctionDef) and (node.name in overrides or _is_inside_a_function(tree, node)):
            continue
        if (
            path.parent.name == "stores"
            and path.name != "base.py"
            and hasattr(oryx_memory.LongTermMemoryStore, node.name)
        ):
            continue  # said once, in the contract
        assert ast.get_docstring(node), node.name


def _is_inside_a_function(tree: ast.Module, inner: ast.FunctionDef) -> bool:
    return any(
        isinstance(outer, ast.FunctionDef) and outer is not inner and inner in ast.walk(outer)
        for outer in ast.walk(tree)
    )


def test_every_error_has_its_exit_code_and_a_builtin_beside_it() -> None:
    from oryx_memory import errors

    tree = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.OryxMemoryError)
    ]
    assert len(tree) == 12
    assert {error.exit_code for error in tree} == {1, 2, 3, 4, 5}
