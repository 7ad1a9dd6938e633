"""Finding a workspace, and what is in it."""

import os
from pathlib import Path

import pytest

from oryx_memory import NoAgent, NoWorkspace, OryxMemoryWarning, UnsafeName, Workspace, settings, stores
from oryx_memory.workspace import discover, initialise, named


def _init(folder: Path) -> Workspace:
    folder.mkdir(parents=True, exist_ok=True)
    list(initialise(folder))
    return named(folder)


def test_the_nearest_workspace_upward(tmp_path: Path) -> None:
    outer = _init(tmp_path)
    inner = _init(tmp_path / "a" / "b")
    (tmp_path / "a" / "b" / "c").mkdir()
    assert discover(tmp_path / "a" / "b" / "c") == inner
    assert discover(tmp_path / "a") == outer


def test_a_repository_is_a_limit_also_when_git_is_a_file(tmp_path: Path) -> None:
    _init(tmp_path)
    repository = tmp_path / "repo"
    (repository / "sub").mkdir(parents=True)
    (repository / ".git").write_text("gitdir: elsewhere\n")
    with pytest.raises(NoWorkspace, match=f"{repository}, the top of the repository"):
        discover(repository / "sub")
    own = _init(repository)
    assert discover(repository / "sub") == own


def test_the_home_directory_is_never_found_by_walking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _init(tmp_path)
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(NoWorkspace, match="up to the home directory") as caught:
        discover(project)
    assert "oryx memory init" in str(caught.value)
    assert "--root" in str(caught.value)
    with pytest.raises(NoWorkspace):
        discover(tmp_path)
    assert named(tmp_path).root == tmp_path / ".oryxos"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_workspace_of_another_owner_must_be_named(tmp_path: Path) -> None:
    workspace = _init(tmp_path)
    os.chown(workspace.root, 12345, 12345)
    with pytest.raises(NoWorkspace, match=f"belongs to user 12345.*--root {workspace.root}"):
        discover(tmp_path)
    assert named(workspace.root) == workspace


def test_named_takes_the_folder_or_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = _init(tmp_path)
    assert named(tmp_path) == named(workspace.root) == workspace
    monkeypatch.chdir(tmp_path)
    assert named(Path()).root.samefile(workspace.root)
    with pytest.raises(NoWorkspace, match="init --root"):
        named(tmp_path / "agents")


def test_init_overwrites_nothing_and_adds_what_is_missing(tmp_path: Path) -> None:
    root = tmp_path / ".oryxos"
    root.mkdir()
    (root / "SOUL.md").write_text("我是谁\n", encoding="utf-8")
    (root / ".gitignore").write_bytes(b"*.bak")
    made = {path.name for path in initialise(tmp_path)}
    assert made == {
        "agents", "skills", "knowledge", "output", "memory", "sessions", "logs", "AGENTS.md", "USER.md", ".gitignore",
        ".gitattributes",
    }  # fmt: skip
    assert (root / "SOUL.md").read_text(encoding="utf-8") == "我是谁\n"
    assert (root / "USER.md").read_bytes() == b"# USER.md\n"
    assert (root / ".gitignore").read_bytes().startswith(b"*.bak\n")
    assert b".locks/\n" in (root / ".gitignore").read_bytes()
    assert list(initialise(tmp_path)) == []


@pytest.mark.parametrize("name", ["", "天气", "a b", "../x", "a/b", ".", "..", "ops\n", "a.b", "é"])
def test_unsafe_names(workspace: Workspace, name: str) -> None:
    with pytest.raises(UnsafeName, match=r"\[agents\] unsafe") as caught:
        workspace.memory_file(name)
    assert caught.value.exit_code == 2


def test_agents_and_the_nearest_name(workspace: Workspace) -> None:
    for name in ("ops", "Weather_1", "小助手"):
        (workspace.agents_dir / name).mkdir()
    (workspace.agents_dir / "file").write_text("")
    assert workspace.agents() == ["Weather_1", "ops"]
    with pytest.raises(NoAgent, match="did you mean ops") as caught:
        stores.require(workspace, settings.load(workspace.root, {}), "opps")
    assert (caught.value.agent, caught.value.nearest) == ("opps", "ops")
    with pytest.raises(NoAgent, match="oryx memory agents"):
        stores.require(workspace, settings.load(workspace.root, {}), "zzz")
    stores.require(workspace, settings.load(workspace.root, {}), None)


def test_the_title_of_an_agent_comes_from_its_front_matter(workspace: Workspace) -> None:
    page = workspace.agents_dir / "ops" / "AGENT.md"
    page.parent.mkdir()
    assert workspace.agent_title("ops") == ""
    page.write_text("---\nname: ops\ndescription: 值班\n  机器人\n---\n# Ops\n", encoding="utf-8")
    assert workspace.agent_title("ops") == "值班 机器人"
    page.write_text("---\nname: [\n---\n")
    with pytest.warns(OryxMemoryWarning, match="front matter"):
        assert workspace.agent_title("ops") == ""


def test_long_agent_names_have_a_lock(workspace: Workspace) -> None:
    name = "a" * 255
    workspace.create_agent(name)
    lock = workspace.lock_file(Path(os.path.realpath(workspace.memory_file(name))))
    assert len(lock.name) < 255
