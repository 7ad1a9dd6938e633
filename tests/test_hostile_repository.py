"""A cloned repository is a stranger's: real commands in one, with a home beside it. Nothing is sent, nothing is written
outside, nothing hangs, and no secret of the environment is shown.
"""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import ORYX, Result, make_ops, real, with_path

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzzz"
COMMANDS = (
    "",
    "append -a ops 新的一条",
    "append -a ops --key rule x",
    "append -a new x",
    "load -a ops",
    "recall -a ops uv",
    "recall -a ops --mode ranked 上线前要谁复核",
    "recall --all-agents --mode ranked --explain uv",
    "list -a ops",
    "show -a ops 43d8",
    "edit -a ops 43d8 新",
    "move -a ops 43d8 --scope core",
    "forget -a ops 43d8",
    "restore -a ops 43d8",
    "export -a ops",
    "clean -a ops",
    "clean --all-agents --dry-run",
    "stats -a ops",
    "agents",
    "path -a ops",
    "diff -a ops",
    "check",
    "config show",
    "config show --json",
    "config adopt",
    "config adopt --dry-run --json",
    "migrate-backend --to sqlite --all-agents --dry-run",
    "index -a ops",
    "index --all-agents --rebuild",
    "init",
)
FEW = ("", "append -a ops x", "recall -a ops --mode ranked x", "path -a ops", "check", "config show", "config adopt")
ESCAPES = "\\u001b]0;x\\u0007\\u009b31m\\u202e"


class Counter:
    """A server on the loopback that counts who connects, and lets nobody in."""

    def __init__(self) -> None:
        self.connections = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Counter]:
    counter = Counter()
    yield counter
    counter.close()


class Clone:
    """A project that was cloned into a folder, and a home with nothing in it; both are looked at afterwards."""

    def __init__(self, folder: Path) -> None:
        self.top = folder / "clone"
        self.home = folder / "home"
        self.outside = folder / "outside"
        self.memory = make_ops(self.top)
        self.settings = self.top / ".oryxos" / "memory.toml"
        for made in (self.home, self.outside):
            made.mkdir()
        git = "git init -q && git add . && git -c user.name=甲 -c user.email=a@example.org commit -qm 起点"
        assert (
            real(["sh", "-c", git], env=with_path(HOME=str(self.home), GIT_CONFIG_NOSYSTEM="1"), cwd=self.top).code == 0
        )

    def oryx(self, command: str) -> Result:
        env = with_path(
            HOME=str(self.home),
            XDG_CONFIG_HOME=str(self.home / "xdg"),
            OPENAI_API_KEY=SECRET,
            AWS_SECRET_ACCESS_KEY=SECRET,
            NO_PROXY="*",
        )
        result = real([ORYX, "memory", *command.split()], env=env, cwd=self.top)
        assert SECRET not in result.out + result.err, command
        return result

    def application(self, text: str) -> Path:
        file = self.top / "config" / "application.yml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def touched_outside(self) -> list[Path]:
        return [*self.home.rglob("*"), *self.outside.rglob("*")]


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def asks(server: Counter, path: str) -> str:
    return f"""\
backend = "mem0"
[recall]
mode = "ranked"
[sqlite]
path = "{path}"
[mem0]
base_url = "http://127.0.0.1:{server.port}"
user_id = "someone"
[chat]
base_url = "http://127.0.0.1:{server.port}/v1"
[embedding]
provider = "openai"
model = "m{ESCAPES}"
base_url = "http://127.0.0.1:{server.port}/v1"
api_key_env = "OPENAI_API_KEY"
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_reaches_out(command: str, clone: Clone, server: Counter) -> None:
    clone.settings.write_text(asks(server, str(clone.outside / "x.db")), encoding="utf-8")
    result = clone.oryx(command)
    assert result.code in (0, 1), result
    assert server.connections == 0
    assert clone.touched_outside() == []
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(result.out + result.err)
    told = [line for line in result.err.splitlines() if line.startswith("oryx: warning: ")]
    if command and not command.startswith("config adopt"):
        assert len([line for line in told if "config adopt" in line]) == (0 if command == "init" else 1)


def test_once_adopted_the_server_is_asked(clone: Clone, server: Counter) -> None:
    """Or the test before would pass for any server."""
    clone.settings.write_text(
        f'[embedding]\nprovider = "openai"\nbase_url = "http://127.0.0.1:{server.port}/v1"\napi_key_env = "OPENAI_API_KEY"\n'
    )
    assert clone.oryx("index -a ops").code in (0, 1)
    assert server.connections == 0
    assert clone.oryx("config adopt --yes").code == 0
    assert server.connections == 0
    assert clone.oryx("index -a ops").code == 4
    assert server.connections > 0


def test_environment_like_values_are_texts(clone: Clone, server: Counter) -> None:
    """memory.toml has no placeholders: what looks like one is a text."""
    clone.settings.write_text(
        '[check]\nignore = ["${AWS_SECRET_ACCESS_KEY}"]\n[sqlite]\npath = "${AWS_SECRET_ACCESS_KEY}.db"\n'
    )
    shown = clone.oryx("config show")
    assert "sqlite.path\t${AWS_SECRET_ACCESS_KEY}.db\t" in shown.out
    assert clone.oryx("append -a ops --backend sqlite x").code == 0
    assert (clone.top / "${AWS_SECRET_ACCESS_KEY}.db").is_file()


@pytest.mark.parametrize(
    "path", ["{outside}/x.db", "../outside/x.db", "a/../../outside/x.db", "data/x.db", "data/../x.db"]
)
@pytest.mark.parametrize("where", ["memory.toml", "application.yml"])
def test_no_database_outside(where: str, path: str, clone: Clone) -> None:
    """By an absolute path, upward, and through a folder that is a link; `data` leads to `outside/deep`."""
    (clone.outside / "deep").mkdir()
    (clone.top / "data").symlink_to("../outside/deep")
    named = path.format(outside=clone.outside)
    if where == "memory.toml":
        clone.settings.write_text(f'backend = "sqlite"\n[sqlite]\npath = "{named}"\n')
    else:
        clone.application(f"memory.backend: sqlite\nspring.datasource.url: jdbc:sqlite:{named}\n")
    through_link = path.startswith("data")
    for command in (
        "append -a ops x",
        "load -a ops",
        "recall -a ops x",
        "recall -a ops --mode ranked x",
        "stats -a ops",
    ):
        result = clone.oryx(command)
        if through_link:
            assert (result.code, result.out) == (3, "")
            assert "is a link out of the workspace" in result.err
        else:
            assert result.code == 0
            assert "config adopt" in result.err
    assert clone.touched_outside() == [clone.outside / "deep"]
    assert (clone.top / "oryxos.db").exists() is not through_link


@pytest.mark.parametrize(
    "url",
    [
        "${AWS_SECRET_ACCESS_KEY}",
        "jdbc:sqlite:${AWS_SECRET_ACCESS_KEY}",
        "jdbc:sqlite:../${AWS_SECRET_ACCESS_KEY}.db",
        "jdbc:sqlite:missing/${AWS_SECRET_ACCESS_KEY}.db",
        "jdbc:sqlite:missing/${X:${OPENAI_API_KEY}}.db",
        "jdbc:postgresql://h/db?password=${AWS_SECRET_ACCESS_KEY}",
    ],
)
def test_no_secret_is_shown_or_made_a_path(url: str, clone: Clone) -> None:
    clone.application(f"memory.backend: sqlite\nspring:\n  datasource:\n    url: {url}\n")
    for command in (*FEW, "config adopt --yes", "migrate-backend --to markdown --all-agents --dry-run"):
        assert clone.oryx(command).code in (0, 1), command
    assert clone.touched_outside() == []
    assert not any("wJalr" in str(path) for path in clone.top.rglob("*"))


def test_a_secret_as_backend_is_not_shown(clone: Clone) -> None:
    clone.application("memory.backend: ${AWS_SECRET_ACCESS_KEY}\n")
    for command in FEW:
        assert clone.oryx(command).code == 3, command
    assert "${AWS_SECRET_ACCESS_KEY}" in clone.oryx("migrate-backend --to sqlite --all-agents --switch").err


READING = [command for command in COMMANDS if "-a ops" in command or "--all-agents" in command]


@pytest.mark.parametrize("command", [*READING, "check"])
def test_a_memory_that_is_a_link_outside(command: str, clone: Clone) -> None:
    """The linked file is neither read nor written, not even into the index of ranked recall."""
    diary = clone.outside / "diary.md"
    diary.write_text("## 归档记忆\n- [2026-01-01 00:00:00] geheim uv 复核\n", encoding="utf-8")
    before = diary.stat().st_mtime_ns
    clone.memory.unlink()
    clone.memory.symlink_to(diary)
    result = clone.oryx(command)
    assert "geheim" not in result.out + result.err
    assert diary.stat().st_mtime_ns == before
    assert clone.touched_outside() == [diary]
    for path in clone.top.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert b"geheim" not in path.read_bytes(), path


def test_a_workspace_that_is_a_link_gets_no_settings_of_another(clone: Clone, server: Counter) -> None:
    """What somebody adopted for one project does not count in a clone, whatever the clone links to."""
    mine = clone.outside / "mine"
    make_ops(mine)
    own = clone.home / "xdg" / "oryx-memory" / "config.toml"
    own.parent.mkdir(parents=True)
    own.write_text(f'["{mine}".embedding]\nprovider = "openai"\nbase_url = "http://127.0.0.1:{server.port}/v1"\n')
    assert "embedding.provider\t\tdefault" in clone.oryx("config show").out
    for path in sorted((clone.top / ".oryxos").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (clone.top / ".oryxos").rmdir()
    (clone.top / ".oryxos").symlink_to(mine / ".oryxos")
    assert clone.oryx("load -a ops").code == 0
    assert server.connections == 0


def _link(target: str) -> object:
    return lambda file, clone: file.symlink_to(target.format(outside=clone.outside))


ODD = {
    "fifo": (lambda file, clone: os.mkfifo(file), 3, "is not a regular file"),
    "folder": (lambda file, clone: file.mkdir(), 3, "is a directory"),
    "huge": (lambda file, clone: os.truncate(os.open(file, os.O_CREAT | os.O_RDWR), 1 << 40), 3, "is larger than"),
    "device": (_link("/dev/zero"), 3, "is not a regular file"),
    "terminal": (_link("/dev/tty"), 3, ""),
    "standard-input": (_link("/dev/stdin"), 3, "is not a regular file"),
    "itself": (_link("memory.toml"), 3, "symbolic links"),
    "nothing": (_link("{outside}/gone"), 0, ""),
    "passwords": (_link("/etc/passwd"), 3, "is not valid TOML"),
    "settings-outside": (_link("{outside}/other.toml"), 0, "embedding.base_url is ignored"),
    "fifo-outside": (_link("{outside}/fifo"), 3, "is not a regular file"),
    "control-characters": (lambda file, clone: file.write_text(f'"{ESCAPES}" = 1\n'), 3, "\\x1b]0;x\\x07\\x9b31m\\u202e"),
    "steering-values": (lambda file, clone: file.write_text(f'backend = "{ESCAPES}"\n'), 3, "must be markdown"),
    "nul": (lambda file, clone: file.write_bytes(b"\0" * 1000), 3, "is not valid TOML"),
    "parts": (lambda file, clone: file.write_text(".".join("a" * 100_000) + " = 1"), 3, "dots"),
    "brackets": (lambda file, clone: file.write_text("a = " + "[" * 100_000), 3, "nested too deeply"),
    "braces": (lambda file, clone: file.write_text("a = " + "{a=" * 50_000), 3, "nested too deeply"),
    "tables": (lambda file, clone: file.write_text("".join(f"[a{n}]\nb=1\n" for n in range(17_000))), 3, "unknown setting"),
    "long-name": (lambda file, clone: file.write_text("[chat]\n" + "k" * 200_000 + " = 1\n"), 0, "kkk…"),
    "many-names": (
        lambda file, clone: file.write_text("[chat]\n" + "".join(f"k{n} = 1\n" for n in range(20_000))),
        0,
        "and 19,992 more are ignored",
    ),
}  # fmt: skip


@pytest.mark.parametrize("odd", list(ODD))
def test_odd_settings_files(odd: str, clone: Clone) -> None:
    make, code, message = ODD[odd]
    os.mkfifo(clone.outside / "fifo")
    (clone.outside / "other.toml").write_text('[embedding]\nbase_url = "http://127.0.0.1:1"\n')
    make(clone.settings, clone)  # type: ignore[operator]
    for command in ("append -a ops x", "load -a ops", "config show", "config adopt --dry-run"):
        result = clone.oryx(command)
        assert result.code == code, (command, result)
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(result.out + result.err)
        assert len(result.err) < 1000 or odd == "tables"
        if command != "config adopt --dry-run" or code:
            assert message in result.err
            assert result.err.count("\n") <= 1
    assert (clone.memory.read_text(encoding="utf-8").count(" x\n") == 1) is (code == 0)


@pytest.mark.parametrize("odd", ["fifo", "folder", "huge", "device", "itself"])
def test_odd_files_of_oryxos(odd: str, clone: Clone) -> None:
    file = clone.application("")
    file.unlink()
    ODD[odd][0](file, clone)  # type: ignore[operator]
    if odd == "itself":
        file.unlink()
        file.symlink_to("application.yml")
    for command in ("append -a ops x", "load -a ops", "config show", "config adopt --dry-run"):
        result = clone.oryx(command)
        assert result.code == (3 if odd == "huge" else 0), (command, result)


def test_values_are_shown_and_adopted_visibly(clone: Clone, server: Counter) -> None:
    clone.settings.write_text(
        f'[sqlite]\npath = "../x\\ty\\nbackend\\tsqlite{ESCAPES}"\n[embedding]\nmodel = "[bold]m{ESCAPES}"\n'
    )
    visible = "\\x1b]0;x\\x07\\x9b31m\\u202e"
    for command in ("config show", "config adopt --yes", "config show"):
        result = clone.oryx(command)
        assert result.code == 0
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(result.out + result.err)
        assert f"[bold]m{visible}\t" in result.out
        assert f"../x\\ty\\nbackend\\tsqlite{visible}\t" in result.out
        assert all(line.count("\t") == 2 for line in result.out.splitlines())
