"""The documents tell the truth: README examples run, the command reference is current, links lead somewhere."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from oryx_memory import stores
from oryx_memory.workspace import initialise

TOP = Path(__file__).parent.parent
PAGES = [*TOP.glob("*.md"), *(TOP / "docs").glob("*.md")]
READMES = [TOP / "README.md", TOP / "README.zh.md"]
AUTHOR = {f"GIT_{who}_{what}": "x@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
CHANGING = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d|\d{8}T\d{6}-\d+|\b[0-9a-f]{12}\b")


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def _steps(page: Path) -> list[tuple[str, str]]:
    """Each command of the page's console blocks with the output that it shows."""
    steps: list[tuple[str, str]] = []
    for block in _blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            steps.append((command, output))
    return steps


def _masked(text: str, place: Path) -> str:
    return CHANGING.sub("~", text.replace(str(place), "/project"))


@pytest.mark.parametrize("page", READMES, ids=lambda page: page.name)
def test_readme_console_examples(page: Path, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    steps = _steps(page)
    assert len(steps) > 15
    for command, shown in steps:
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env={**os.environ, **AUTHOR, "PATH": path}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        assert _masked(done.stdout.decode(), tmp_path) == _masked(shown, tmp_path), command


@pytest.mark.parametrize("page", READMES, ids=lambda page: page.name)
def test_readme_python_examples(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list(initialise(tmp_path))
    monkeypatch.chdir(tmp_path)
    (block,) = _blocks(page, "python")
    names: dict[str, object] = {}
    exec(compile(block, page.name, "exec"), names)
    assert "Never deploy on Friday" in str(names["prompt"])
    assert len(stores.open_memory("ops").recall_by_keyword("复核")) == 1


@pytest.mark.parametrize("page", READMES, ids=lambda page: page.name)
def test_readme_shows_the_same_commands_in_both_languages(page: Path) -> None:
    assert [command for command, _ in _steps(page)] == [command for command, _ in _steps(READMES[0])]


def test_the_command_reference_is_current() -> None:
    spec = importlib.util.spec_from_file_location("commands", TOP / "docs" / "commands.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    current = (TOP / "docs" / "commands.md").read_text(encoding="utf-8")
    assert current == module.reference(), "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert link.startswith("https://") or (page.parent / link).exists(), link


def test_the_changelog_has_the_version() -> None:
    from importlib.metadata import version

    assert f"## {version('oryx-memory')}" in (TOP / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_project_needs_nothing_beside_it() -> None:
    for path in [*PAGES, *(TOP / "oryx_memory").rglob("*.py"), *(TOP / "tests").glob("*.py"), TOP / "Makefile"]:
        text = path.read_text(encoding="utf-8")
        assert "../sha" + "red" not in text, path
