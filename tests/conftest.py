"""Fixtures for all tests: a clean environment and home, a workspace, and the backends of the contract."""

import os
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest
from command import make_ops
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from machine import Machine
from mem0_server import Mem0Server

from oryx_memory import LongTermMemoryStore, Workspace, settings, stores
from oryx_memory.workspace import initialise, named

hypothesis_settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
hypothesis_settings.register_profile("long", hypothesis_settings.get_profile("default"), max_examples=3000)
hypothesis_settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

BACKENDS = ("markdown", "sqlite")  # those whose changes the index can follow
STORES = (*BACKENDS, "mem0")  # for what every store promises
NOW = datetime(2026, 8, 1, 2, 0, 0)

Opener = Callable[..., LongTermMemoryStore]


@pytest.fixture(autouse=True)
def _hermetic(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("ORYX", "XDG_", "GIT_", "PYTHON", "NO_COLOR", "LC_", "LANG", "SUDO_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.setenv("TERM", "xterm")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    list(initialise(tmp_path))
    return named(tmp_path)


@pytest.fixture
def ops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """MEMORY.md of the agent ops, in the workspace of the folder that the test works in."""
    monkeypatch.chdir(tmp_path)
    return make_ops(tmp_path)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Can stop us, or let another program act, before any step that touches a file."""
    return Machine(monkeypatch)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user can reach, as those of pytest are not."""
    with TemporaryDirectory(prefix="oryx-test-") as name:
        folder = Path(os.path.realpath(name))
        folder.chmod(0o755)
        yield folder


@pytest.fixture(scope="session")
def running_mem0() -> Iterator[Mem0Server]:
    with Mem0Server() as server:
        yield server


@pytest.fixture
def mem0(running_mem0: Mem0Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mem0Server]:
    """A mem0 server, whose memories of this test's user are none yet; the environment names both."""
    monkeypatch.setenv("ORYX_MEM0_BASE_URL", running_mem0.url)
    monkeypatch.setenv("ORYX_MEM0_USER_ID", f"test-{uuid4().hex}")
    running_mem0.release()
    yield running_mem0
    running_mem0.release()


@pytest.fixture(params=BACKENDS)
def open_store(request: pytest.FixtureRequest, workspace: Workspace) -> Opener:
    """Opens the memory of an agent in one backend, with a clock that stands at NOW unless told otherwise."""
    if request.param == "mem0":
        request.getfixturevalue("mem0")

    def opened(agent: str | None = "ops", now: datetime = NOW) -> LongTermMemoryStore:
        chosen = settings.load(workspace.root, os.environ, {"backend": request.param})
        return stores.open(workspace, chosen, agent, lambda: now)

    return opened


@pytest.fixture
def store(open_store: Opener) -> LongTermMemoryStore:
    return open_store()
