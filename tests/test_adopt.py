"""`config adopt`: what is shown, what is asked, and that every byte of the person's own file stays."""

import json
import os
import pty
import shutil
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from command import LOADED, ORYX, PATIENCE, Result, after, checked, make_ops, memory, real
from hypothesis import given
from hypothesis import strategies as st

from oryx_memory import SettingsError
from oryx_memory.adoption import Adoption, with_table
from oryx_memory.settings import is_table_of

PROJECT = """\
backend = "sqlite"
[sqlite]
path = "../common 公用.db"
[embedding]
provider = "ollama"
model = "bge-m3"
dimensions = 1024
exclude_tags = ["私密", "work/legal"]
"""
WANTED = tomllib.loads(PROJECT.replace('backend = "sqlite"\n', ""))


@pytest.fixture
def project(ops: Path, tmp_path: Path) -> Path:
    """The memory.toml of the project that the test works in."""
    file = tmp_path / ".oryxos" / "memory.toml"
    file.write_text(PROJECT, encoding="utf-8")
    return file


@pytest.fixture
def own() -> Path:
    """The person's own settings file, whose folder is not there yet."""
    return Path(os.environ["HOME"]) / ".config" / "oryx-memory" / "config.toml"


def write(file: Path, text: str, mode: int = 0o644) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())
    file.chmod(mode)
    return file


def adopt(*arguments: str) -> Result:
    return memory("config", "adopt", *arguments)


def one_line(result: Result, code: int, *fragments: str | Path) -> None:
    assert (result.code, result.out) == (code, ""), result
    assert result.err.startswith("oryx: ")
    assert result.err.count("\n") == 1
    for fragment in fragments:
        assert str(fragment) in result.err


# What is shown and asked.


def test_it_shows_what_is_asked_for_and_by_which_file(project: Path, own: Path, tmp_path: Path) -> None:
    result = adopt("--dry-run")
    assert result.code == 0
    assert result.out == "".join(
        f"{key}\t{value}\t{project}\n"
        for key, value in (
            ("sqlite.path", "../common 公用.db"),
            ("embedding.provider", "ollama"),
            ("embedding.model", "bge-m3"),
            ("embedding.dimensions", "1024"),
            ("embedding.exclude_tags", "私密, work/legal"),
        )
    )
    assert result.err == f'would go into {own}, table ["{tmp_path}"]\n'
    assert not own.parent.exists()


def test_without_a_terminal_it_needs_yes(project: Path, own: Path) -> None:
    result = adopt()
    assert result.code == 1
    assert "embedding.provider\tollama" in result.out
    assert result.err == "oryx: nothing was written; there is no terminal to ask on: add --yes\n"
    assert memory("config", "adopt", stdin=None).code == 1
    assert not own.parent.exists()


def test_yes_writes_a_private_file_that_counts(project: Path, own: Path, tmp_path: Path) -> None:
    before = memory("config", "show")
    assert "ignored embedding.provider\tollama" in before.out
    assert "config adopt" in before.err
    result = adopt("--yes")
    assert (result.code, result.err) == (0, f'wrote it into {own}, table ["{tmp_path}"]\n')
    assert tomllib.loads(own.read_text(encoding="utf-8")) == {str(tmp_path): WANTED}
    assert own.stat().st_mode & 0o777 == 0o600
    shown = memory("config", "show")
    assert shown.err == ""  # nothing is left to be said
    assert f'embedding.dimensions\t1024\t{own} ["{tmp_path}"]' in shown.out.splitlines()
    assert "ignored" not in shown.out


def test_a_second_time_changes_no_byte(project: Path, own: Path) -> None:
    assert adopt("--yes").code == 0
    status, data = own.stat(), own.read_bytes()
    for arguments in ((), ("--yes",), ("--dry-run",)):
        result = adopt(*arguments)
        assert (result.code, result.err.startswith("nothing to adopt: ")) == (0, True)
    assert own.read_bytes() == data
    assert (own.stat().st_ino, own.stat().st_mtime_ns) == (status.st_ino, status.st_mtime_ns)


def test_a_value_that_is_set_is_shown_old_and_new(project: Path, own: Path, tmp_path: Path) -> None:
    assert adopt("--yes").code == 0
    project.write_text(PROJECT.replace("bge-m3", "另一个"), encoding="utf-8")
    result = adopt("--yes")
    assert f"embedding.model\tbge-m3 → 另一个\t{project}\n" in result.out
    assert "embedding.provider\tollama\t" in result.out
    assert tomllib.loads(own.read_text(encoding="utf-8"))[str(tmp_path)]["embedding"]["model"] == "另一个"


def test_what_counts_everywhere_is_old_too(project: Path, own: Path, tmp_path: Path) -> None:
    general = '# 我的\n[embedding]\nprovider = "zhipu"  # 默认\nmodel = "bge-m3"\n'
    write(own, general)
    result = adopt("--yes")
    assert "embedding.provider\tzhipu → ollama\t" in result.out
    assert "embedding.model\tbge-m3\t" in result.out
    text = own.read_text(encoding="utf-8")
    assert text.startswith(general)
    assert tomllib.loads(text)[str(tmp_path)] == WANTED  # all of it: the general one may change later


def test_nothing_to_adopt(ops: Path, own: Path) -> None:
    for arguments in ((), ("--yes",), ("--dry-run",)):
        result = adopt(*arguments)
        assert (result.code, result.out) == (0, "")
        assert result.err == "nothing to adopt: the project asks for nothing that reaches out of it\n"
    assert adopt("--quiet") == (0, "", "")
    assert not own.parent.exists()


def test_json(project: Path, own: Path, tmp_path: Path) -> None:
    assert json.loads(adopt("--json").out)["written"] is False
    told = json.loads(adopt("--json", "--yes").out)
    assert (told["file"], told["table"], told["written"]) == (str(own), str(tmp_path), True)
    assert told["settings"][2] == {
        "key": "embedding.model",
        "value": "bge-m3",
        "old": None,
        "source": str(project),
        "name": "embedding.model",
        "fault": None,
    }
    project.write_text('[embedding]\nprovider = "openai"\n')
    again = json.loads(adopt("--json", "--dry-run").out)
    assert [(item["old"], item["value"]) for item in again["settings"]] == [("ollama", "openai")]
    shown = json.loads(memory("config", "show", "--json").out)
    assert shown["embedding.provider"]["value"] == "ollama"
    assert shown["embedding.provider"]["source"] == f'{own} ["{tmp_path}"]'
    assert shown["embedding.provider"]["ignored"][0]["value"] == "openai"


def answered(answer: bytes, folder: Path) -> tuple[int, str]:
    """`config adopt` on a terminal on which somebody has typed: its exit code and what the terminal shows."""
    ours, terminal = pty.openpty()
    os.write(ours, answer)
    child = subprocess.Popen(
        [ORYX, "memory", "config", "adopt"], stdin=terminal, stdout=terminal, stderr=terminal, cwd=folder
    )
    os.close(terminal)
    shown = b""
    try:
        while chunk := os.read(ours, 1 << 16):
            shown += chunk
    except OSError:  # the command has ended
        pass
    os.close(ours)
    code = child.wait(PATIENCE)
    assert b"Traceback" not in shown
    return code, shown.decode(errors="replace").replace("\r\n", "\n")


@pytest.mark.parametrize("answer", [b"y\n", b"Yes\n", b" y \n"])
def test_on_a_terminal_it_asks_and_yes_writes(answer: bytes, project: Path, own: Path, tmp_path: Path) -> None:
    code, shown = answered(answer, tmp_path)
    assert code == 0
    assert f"copy into {own} for {tmp_path}? [y/N] " in shown
    assert "bge-m3" in shown.split("? [y/N]")[0]
    assert tomllib.loads(own.read_text(encoding="utf-8")) == {str(tmp_path): WANTED}


@pytest.mark.parametrize("answer", [b"\n", b"n\n", b"no\n", b"yess\n", b"\xff\n", "是\n".encode(), b"\x04"], ids=ascii)
def test_on_a_terminal_anything_else_writes_nothing(answer: bytes, project: Path, own: Path, tmp_path: Path) -> None:
    code, shown = answered(answer, tmp_path)
    assert code == 1
    assert "oryx: nothing was written\n" in shown
    assert not own.parent.exists()


# What is not for copying.


def test_what_this_version_does_not_know_is_left_out(project: Path, own: Path, tmp_path: Path) -> None:
    project.write_text(PROJECT + '[chat]\nurl = "http://127.0.0.1:1"\n', encoding="utf-8")
    result = adopt("--yes")
    assert result.code == 0
    assert "chat.url\thttp://127.0.0.1:1 (not known to this version; left out)\t" in result.out
    assert tomllib.loads(own.read_text(encoding="utf-8")) == {str(tmp_path): WANTED}
    assert memory("load", "-a", "ops").code == 0
    assert adopt().code == 0  # what is left out is nothing to adopt


def test_a_server_is_adopted_with_the_backend(ops: Path, own: Path, tmp_path: Path) -> None:
    asks = 'backend = "mem0"\n[mem0]\nbase_url = "http://127.0.0.1:1"\nuser_id = "team"\n'
    (tmp_path / ".oryxos" / "memory.toml").write_text(asks, encoding="utf-8")
    assert memory("load", "-a", "ops").out == LOADED
    assert adopt("--yes").code == 0
    assert tomllib.loads(own.read_text(encoding="utf-8")) == {str(tmp_path): tomllib.loads(asks)}
    result = memory("load", "-a", "ops")
    assert (result.code, result.out) == (4, "")
    assert "mem0 (127.0.0.1:1): did not answer" in result.err


@pytest.mark.parametrize(
    ("toml", "fragments"),
    [
        ('[embedding]\nprovider = "opnai"\nbase_url = "http://x"\n', ("embedding.provider must be openai",)),
        ('[embedding]\nprovidr = "openai"\n', ("did you mean embedding.provider?",)),
        ("embedding = 3\n", ("unknown setting embedding",)),
        ('[embedding]\nprovider = "openai"\napi_key = "sk-geheim"\n', ("embedding.api_key", "environment variable")),
        ('[embedding]\napi_key_env = "sk-geheim"\n', ("embedding.api_key_env", "environment variable")),
        ('[sqlite]\npath = "/a\\u0000"\n', ("sqlite.path must be a path",)),
    ],
)
def test_a_wrong_wish_is_an_error_and_nothing_is_written(
    toml: str, fragments: tuple[str, ...], project: Path, own: Path
) -> None:
    project.write_text(toml)
    result = adopt("--yes")
    one_line(result, 3, project, *fragments)
    assert "geheim" not in result.err
    assert not own.parent.exists()


def test_a_path_of_application_yml_is_adopted(ops: Path, own: Path, tmp_path: Path) -> None:
    file = write(
        tmp_path / "config" / "application.yml",
        "memory.backend: sqlite\nspring.datasource.url: jdbc:sqlite:${PLACE:/var/lib}/o.db?busy_timeout=3\n",
    )
    assert "spring.datasource.url is ignored" in memory("config", "show").err
    result = adopt("--yes")
    assert result.out == f"sqlite.path\t/var/lib/o.db\t{file} (spring.datasource.url)\n"
    assert tomllib.loads(own.read_text()) == {str(tmp_path): {"sqlite": {"path": "/var/lib/o.db"}}}
    shown = memory("config", "show")
    assert "ignored" not in shown.out + shown.err
    assert "nothing to adopt" in adopt().err


def test_the_database_of_a_backend_by_flag(ops: Path, tmp_path: Path) -> None:
    write(tmp_path / "config" / "application.yml", "spring.datasource.url: jdbc:sqlite:../o.db\n")
    assert "nothing to adopt" in adopt("--dry-run").err
    assert "sqlite.path\t../o.db\t" in adopt("--dry-run", "--backend", "sqlite").out


# The person's own file.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[embedding\n", "is not valid TOML"),
        ('[embedding]\nmodle = "x"\n', "unknown setting embedding.modle"),
        ("[core]\nmax_chars = 'x'\n", "core.max_chars must be a whole number"),
        ("\ufeff[core]\n", "is not valid TOML"),
    ],
)
def test_a_broken_own_file_is_named_and_stays(text: str, message: str, project: Path, own: Path) -> None:
    write(own, text)
    one_line(adopt("--yes"), 3, own, message)
    assert own.read_bytes().decode() == text


def test_mode_link_and_comments_stay(project: Path, own: Path, tmp_path: Path) -> None:
    text = '# 我的设置 my settings\n[core] # why\nmax_chars = 5\n\n\n["/elsewhere".embedding]\nmodel = "x" #y\n# 完'
    kept = write(tmp_path / "dotfiles" / "oryx.toml", text, 0o640)
    own.parent.mkdir(parents=True)
    own.symlink_to(kept)
    assert adopt("--yes").code == 0
    assert own.is_symlink()
    assert kept.stat().st_mode & 0o777 == 0o640
    assert kept.read_text(encoding="utf-8").startswith(f"{text}\n")
    assert os.listdir(kept.parent) == ["oryx.toml"]
    assert memory("config", "show").err == ""


def test_a_link_to_what_is_not_there_yet_makes_it(project: Path, own: Path, tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    own.parent.mkdir(parents=True)
    own.symlink_to(tmp_path / "dotfiles" / "oryx.toml")
    assert adopt("--yes").code == 0
    assert (tmp_path / "dotfiles" / "oryx.toml").stat().st_mode & 0o777 == 0o600
    assert own.is_symlink()


def test_an_own_file_that_cannot_be_written_is_named(project: Path, own: Path) -> None:
    write(own, "", 0o444)
    result = adopt("--yes")
    assert (result.code, result.err.count("\n")) == (3, 1)
    assert f"{own}: is read-only" in result.err
    own.unlink()
    own.mkdir()
    one_line(adopt("--yes"), 3, own, "directory")
    own.rmdir()
    shutil.rmtree(own.parent)
    own.parent.write_text("no folder")
    one_line(adopt("--yes"), 3, own, "not a directory")


def test_no_home(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    one_line(adopt("--yes"), 3, "HOME", "XDG_CONFIG_HOME")


def test_the_config_home_of_the_environment(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    assert adopt("--yes").code == 0
    assert (tmp_path / "xdg" / "oryx-memory" / "config.toml").is_file()
    assert not (Path(os.environ["HOME"]) / ".config").exists()


@pytest.mark.parametrize(
    "name", ['"', "a\"]\nbackend = 'x'\n[\"b", "tab\tand\x1b[31m", "\x7f\u202e", "空 格", "a.b", "'", "\\"]
)
def test_workspaces_of_any_name(name: str, own: Path, tmp_path: Path) -> None:
    folder = tmp_path / name
    make_ops(folder)
    write(folder / ".oryxos" / "memory.toml", PROJECT)
    result = real([ORYX, "memory", "config", "adopt", "--yes"], cwd=folder)
    assert result.code == 0
    assert result.err.count("\n") == 1
    assert "\x1b" not in result.out + result.err
    assert "\u202e" not in result.out + result.err
    assert len(result.out.splitlines()) == 5
    assert tomllib.loads(own.read_text(encoding="utf-8")) == {str(folder): WANTED}
    assert real([ORYX, "memory", "config", "adopt"], cwd=folder).code == 0
    assert real([ORYX, "memory", "config", "show"], cwd=folder).err == ""


def test_a_workspace_whose_name_is_no_text(own: Path, tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    make_ops(folder)
    write(folder / ".oryxos" / "memory.toml", PROJECT)
    result = real([ORYX, "memory", "config", "adopt", "--yes"], cwd=folder)
    one_line(result, 3, "not valid UTF-8")
    assert not own.exists()


def test_a_table_under_another_name_of_the_workspace_is_used(project: Path, own: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    for name in (tmp_path / ".oryxos", tmp_path / "link"):
        write(own, f'["{name}".embedding]\nmodel = "x"\n')
        assert "embedding.model\tx → bge-m3\t" in adopt("--yes").out
        assert tomllib.loads(own.read_text(encoding="utf-8")) == {str(name): WANTED}


def test_several_at_once_lose_nothing(own: Path, tmp_path: Path) -> None:
    folders = [tmp_path / f"项目{number}" for number in range(6)]
    for folder in folders:
        make_ops(folder)
        write(folder / ".oryxos" / "memory.toml", PROJECT)
    command = [ORYX, "memory", "config", "adopt", "--yes"]
    children = [
        subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for folder in folders
    ]
    for child in children:
        out, err = child.communicate(timeout=PATIENCE)
        assert checked(child.returncode, out, err).code == 0, err
    assert tomllib.loads(own.read_text(encoding="utf-8")) == {str(folder): WANTED for folder in folders}
    assert sorted(os.listdir(own.parent)) == [".config.toml.lock", "config.toml"]


def test_a_kill_before_the_exchange_leaves_the_file_as_it_was(project: Path, own: Path, tmp_path: Path) -> None:
    write(own, "[core]\nmax_chars = 5\n")
    stop = "import os\nfrom oryx_memory import files\nfiles._exchange = lambda *_: os._exit(9)"
    assert real(after(stop, "memory", "config", "adopt", "--yes"), cwd=tmp_path).code == 9
    assert own.read_text() == "[core]\nmax_chars = 5\n"
    assert adopt("--yes").code == 0
    assert sorted(os.listdir(own.parent)) == [".config.toml.lock", "config.toml"]


# Any file, any table, any value.

_PIECES = st.sampled_from([
    "", "  ", "# comment 注释", "#", "[core]\nmax_chars = 5 # why", "[clean]\ndedupe   =   true", "[time]",
    "[embedding]\n# before\nmodel = 'x'\n\n# after",
])  # fmt: skip
_LOCAL = st.sampled_from([
    "", "{t}", "{t}\nbackend = 'sqlite'", "[{q}.embedding]\nmodel = 'x' # keep", "[{q}.embedding]\n\n# 尾",
    "[{q}.sqlite]\n[{q}.embedding]\nprovider='openai'", "{t}\nembedding = {{ model = 'x', timeout = 5 }}",
    "{t}\nembedding.model = 'x'", "{t}\n[{q}.clean]\ndedupe = true\n[{q}.embedding]\ntimeout = 5.5",
    "[{q}.clean]\ndedupe = true\n[agents]\n# between\n[{q}.embedding]\nmodel = 'x'",
    "{t}\nembedding.model = 'x'\n[agents]\n[{q}.clean]\ndedupe = true\n# about the next\n",
])  # fmt: skip
_NAMES = st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda name: name not in (".", "..")
)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_WANTED = st.fixed_dictionaries({}, optional={
    "embedding.provider": st.sampled_from(["openai", "hashing"]),
    "embedding.model": _TEXTS,
    "embedding.dimensions": st.integers(1, 4096),
    "embedding.timeout": st.floats(0.1, 1000),
    "embedding.exclude_tags": st.lists(_TEXTS, max_size=3),
    "sqlite.path": _TEXTS,
    "backend": st.sampled_from(["mem0"]),
})  # fmt: skip


def _merged(table: Mapping[str, Any], name: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    merged = json.loads(json.dumps(table))
    for key, value in wanted.items():
        inner = merged.setdefault(name, {})
        *tables, last = key.split(".")
        for part in tables:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return dict(merged)


@given(
    st.lists(_PIECES, unique=True, max_size=5),
    st.integers(0, 5),
    _LOCAL,
    _NAMES,
    _WANTED,
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
def test_only_what_is_wanted_changes(
    pieces: list[str], at: int, local: str, folder: str, wanted: dict[str, Any], newline: str, ends: bool
) -> None:
    name = f"/nowhere-{folder}"
    quoted = tomlkit.key(name).as_string()
    quoted = quoted if quoted[0] in "\"'" else f'"{name}"'
    pieces.insert(at, local.format(q=quoted, t=f"[{quoted}]"))
    text = "\n".join(pieces) + "\n" * ends
    text = text.replace("\r", "").replace("\n", newline)
    before = tomllib.loads(text)
    adoption = Adoption(Path("/own.toml"), name, (), True)
    root = Path(name) / ".oryxos"
    assert is_table_of(name, root)
    edited = with_table(root, adoption, wanted, text.encode())
    after = tomllib.loads(edited.decode())
    assert after == _merged(before, name, wanted)
    assert with_table(root, adoption, wanted, edited) == edited
    if newline == "\r\n" and "\r\n" in text:
        assert edited.count(b"\n") == edited.count(b"\r\n")
    local_before = json.dumps(before.get(name, {}))
    if after == before:
        assert edited == text.encode()
    elif all(f'"{key.rpartition(".")[2]}"' not in local_before for key in wanted) and "{" not in local:
        lines = iter(edited.decode().split("\n"))
        for line in [*text.split("\n")][: -1 if ends else None]:
            assert any(new == line or new.rstrip("\r") == line.rstrip("\r") for new in lines), line


@pytest.mark.parametrize("text", ['"/p" = 3\n', '[["/p".embedding]]\nmodel = "x"\n', '"/p".embedding = ["x"]\n'])
def test_what_cannot_be_edited_is_an_error(text: str) -> None:
    adoption = Adoption(Path("/own.toml"), "/p", (), True)
    with pytest.raises(SettingsError, match=r"^/own.toml: cannot be edited .* its table \[\"/p\"\] yourself"):
        with_table(Path("/p/.oryxos"), adoption, {"embedding.model": "y"}, text.encode())
