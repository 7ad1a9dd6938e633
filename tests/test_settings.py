"""Settings: who wins, and what a wrong one says."""

import os
import re
import warnings
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from oryx_memory import OryxMemoryWarning, Settings, SettingsError, Workspace, settings

NAMES = ["provider", "model", "base_url", "dimensions", "api_key_env", "timeout", "batch", "max_chars", "exclude_tags"]


def test_defaults(workspace: Workspace) -> None:
    chosen = settings.load(workspace.root, {})
    assert chosen["archival.max_chars"] == 4000
    assert set(chosen.sources.values()) == {"default"}
    assert settings.load(None, {}).values == chosen.values


def test_each_layer_goes_over_the_one_before(workspace: Workspace, tmp_path: Path) -> None:
    home = tmp_path / "someone"
    personal = home / ".config" / "oryx-memory" / "config.toml"
    personal.parent.mkdir(parents=True)
    workspace.settings_file.write_text('backend = "markdown"\n[clean]\nolder_than = "90d"\nkeep_entries = 5\n')
    personal.write_text(
        f'[clean]\nkeep_entries = 6\nmax_share = 0.2\n["{workspace.root.parent}".clean]\nmax_share = 0.3\n'
        '["/elsewhere".clean]\nmax_share = 0.9\n'
    )
    chosen = settings.load(
        workspace.root, {"HOME": str(home), "ORYX_MEMORY_BACKEND": "markdown"}, {"archival.max_chars": 7}
    )
    policy = chosen.policy()
    assert (policy.older_than, policy.keep_entries, policy.max_share) == (timedelta(days=90), 6, 0.3)
    assert chosen.sources["clean.older_than"] == str(workspace.settings_file)
    assert chosen.sources["clean.keep_entries"] == str(personal)
    assert chosen.sources["backend"] == "environment ORYX_MEMORY_BACKEND"
    assert chosen.sources["archival.max_chars"] == "flag"
    assert settings.load(workspace.root, {"XDG_CONFIG_HOME": str(home / ".config")})["clean.keep_entries"] == 6


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[clean]\nolder_then = '90d'\n", "unknown setting clean.older_then; did you mean clean.older_than?"),
        ("bakend = 'x'\n", "unknown setting bakend; did you mean backend?"),
        ("[zzz]\nqqq = 1\n", "unknown setting zzz.qqq"),
        ("[archival]\nmax_chars = '4000'\n", "archival.max_chars must be a whole number, not a text"),
        ("[archival]\nmax_chars = 0\n", "archival.max_chars must be at least 1, not 0"),
        ("[clean]\ndedupe = 1\n", "clean.dedupe must be true or false, not a number"),
        ("[clean]\nolder_than = '90'\n", "clean.older_than: not a time span: '90'"),
        ("[clean]\nmax_share = 2\n", "clean.max_share must be a number over 0 and at most 1, not 2"),
        ("[time]\nzone = 'Mars/Olympus'\n", "time.zone is no time zone that this system knows"),
        ("backend = 'floppy'\n", "backend must be markdown"),
        ("clean = 3\n", "unknown setting clean"),
        ("[a.b]\nc = 1\n", "unknown setting a.b.c"),
        ("[time.zone]\n", "time.zone must be a text, not a table"),
        ("'clean.dedupe' = true\n", 'unknown setting "clean.dedupe"; did you mean clean.dedupe?'),
        ("['/p'.clean]\ndedupe = true\n", "unknown setting /p.clean.dedupe"),
        ('[sqlite]\npath = "a\\u0000b"\n', "sqlite.path must be a path"),
        ("x = " + "[" * 5000, "is nested too deeply"),
        (".".join("a" * 200) + " = 1\n", "more than 100 dots"),
        ("# " + "x" * 300_000, "is larger than 256 KiB"),
        ("[clean\n", "is not valid TOML: "),
    ],
)
def test_a_wrong_setting_is_named_with_its_file(workspace: Workspace, toml: str, message: str) -> None:
    workspace.settings_file.write_text(toml)
    with pytest.raises(SettingsError) as caught:
        settings.load(workspace.root, {})
    assert str(caught.value).startswith(f"{workspace.settings_file}: ")
    assert message in str(caught.value)
    assert caught.value.exit_code == 3


def test_bad_toml_says_line_and_column(workspace: Workspace) -> None:
    workspace.settings_file.write_text("[clean]\nolder_than = 90d\n")
    with pytest.raises(SettingsError, match=r"line 2, column \d+"):
        settings.load(workspace.root, {})


def test_a_settings_file_that_is_no_text(workspace: Workspace) -> None:
    workspace.settings_file.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="not valid UTF-8"):
        settings.load(workspace.root, {})


def test_the_zone_decides_what_time_it_is(workspace: Workspace) -> None:
    from oryx_memory.stores import local_clock

    difference = local_clock("Asia/Shanghai")() - local_clock("UTC")()
    assert abs(difference - timedelta(hours=8)) < timedelta(minutes=1)


# What reaches out.


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The person's own settings file, which is not there yet."""
    file = tmp_path / "someone" / ".config" / "oryx-memory" / "config.toml"
    file.parent.mkdir(parents=True)
    return file


def loaded(workspace: Workspace, own: Path, **environment: str) -> Settings:
    return settings.load(workspace.root, {"HOME": str(own.parents[2]), **environment})


OUTWARD = """\
backend = "mem0"
[recall]
mode = "ranked"
[sqlite]
path = "../elsewhere.db"
[embedding]
provider = "openai"
base_url = "http://127.0.0.1:1/v1"
exclude_tags = ["#私密"]
[mem0.server]
url = "http://127.0.0.1:1"
[chat]
model = "x"
"""
ASKED = ["backend", "sqlite.path", "embedding.provider", "embedding.base_url", "embedding.exclude_tags", "chat.model"]


def test_what_reaches_out_does_not_count_in_a_project(workspace: Workspace, own: Path) -> None:
    workspace.settings_file.write_text(OUTWARD, encoding="utf-8")
    with pytest.warns(OryxMemoryWarning) as caught:
        chosen = loaded(workspace, own)
    (warning,) = (str(one.message) for one in caught)
    assert warning.startswith(f"{workspace.settings_file}: ")
    assert "oryx memory config adopt" in warning
    assert "127.0.0.1" not in warning
    for key in [*ASKED, "mem0.server.url"]:
        assert key in warning
    defaults = settings.load(None, {})
    assert {k: v for k, v in chosen.values.items() if k != "recall.mode"} == {
        k: v for k, v in defaults.values.items() if k != "recall.mode"
    }
    assert chosen["recall.mode"] == "ranked"
    assert [item.key for item in chosen.ignored] == [*ASKED, "mem0.server.url"]


def test_it_counts_in_ones_own_file(workspace: Workspace, own: Path) -> None:
    workspace.settings_file.write_text(OUTWARD, encoding="utf-8")
    own.write_text(
        f"""
[embedding]
provider = "zhipu"
["{workspace.root.parent}"]
sqlite.path = "/var/x.db"
embedding = {{ base_url = "https://example.org/v1", timeout = 5, batch = 8, exclude_tags = ["#私密", "a/b"] }}
""",
        encoding="utf-8",
    )
    with pytest.warns(OryxMemoryWarning) as caught:
        chosen = loaded(workspace, own)
    table = chosen.embedding
    assert list(table) == NAMES
    assert (table["provider"], table["base_url"], table["timeout"]) == ("zhipu", "https://example.org/v1", 5.0)
    assert (table["batch"], table["dimensions"], table["exclude_tags"]) == (8, None, ["私密", "a/b"])
    assert chosen["sqlite.path"] == "/var/x.db"
    assert chosen.sources["embedding.provider"] == str(own)
    assert chosen.sources["embedding.timeout"] == f'{own} ["{workspace.root.parent}"]'
    (warning,) = (str(one.message) for one in caught)  # the rest is decided: nobody has to be told each time
    assert "backend, chat.model and mem0.server.url are ignored" in warning


def test_the_environment_goes_over_ones_own_file(workspace: Workspace, own: Path) -> None:
    own.write_text('[embedding]\nprovider = "openai"\nmodel = "a"\napi_key_env = "CORP_KEY"\nexclude_tags = ["x"]\n')
    table = loaded(workspace, own, ORYX_EMBEDDING_MODEL="b", ORYX_EMBEDDING_BASE_URL="http://localhost:1").embedding
    assert (table["model"], table["base_url"], table["api_key_env"]) == ("b", "http://localhost:1", "CORP_KEY")
    with pytest.raises(SettingsError, match=r"^ORYX_EMBEDDING_PROVIDER must be openai or .*, not 'opnai'$"):
        loaded(workspace, own, ORYX_EMBEDDING_PROVIDER="opnai")


def test_another_server_does_not_get_the_key_of_the_first(workspace: Workspace, own: Path) -> None:
    own.write_text(
        'backend = "mem0"\n[mem0]\nbase_url = "https://corp.example"\nuser_id = "me"\napi_key_env = "CORP_KEY"\n'
    )
    assert (loaded(workspace, own)["backend"], loaded(workspace, own).mem0["api_key_env"]) == ("mem0", "CORP_KEY")
    table = loaded(workspace, own, ORYX_MEM0_BASE_URL="http://localhost:8888").mem0
    assert (table["base_url"], table["user_id"], table["api_key_env"]) == ("http://localhost:8888", "me", "")
    with pytest.raises(SettingsError, match=r"^ORYX_MEM0_USER_ID must be a name of visible ASCII characters"):
        loaded(workspace, own, ORYX_MEM0_USER_ID="两个 词")


def test_another_provider_gets_neither_key_nor_address_of_the_first(workspace: Workspace, own: Path) -> None:
    own.write_text(
        '[embedding]\nprovider = "openai"\nmodel = "a"\nbase_url = "https://corp.example"\napi_key_env = "CORP_KEY"\n'
        f'exclude_tags = ["x"]\n["{workspace.root.parent}".embedding]\nprovider = "zhipu"\ndimensions = 256\n'
    )
    table = loaded(workspace, own).embedding
    assert (table["provider"], table["dimensions"], table["exclude_tags"]) == ("zhipu", 256, ["x"])
    assert (table["model"], table["base_url"], table["api_key_env"]) == ("", "", "")
    table = loaded(workspace, own, ORYX_EMBEDDING_PROVIDER="ollama").embedding
    assert (table["provider"], table["dimensions"]) == ("ollama", None)
    same = loaded(workspace, own, ORYX_EMBEDDING_PROVIDER="zhipu").embedding
    assert same["dimensions"] == 256


def test_a_model_waits_for_its_provider(workspace: Workspace, own: Path) -> None:
    own.write_text('[embedding]\nmodel = "a"\n')
    assert loaded(workspace, own, ORYX_EMBEDDING_PROVIDER="openai").embedding["model"] == "a"


@pytest.mark.parametrize(
    ("path", "out"),
    [
        ("x.db", False),
        ("data/../x.db", False),
        ("./数据/x.db", False),
        ("..x/y.db", False),
        ("/x.db", True),
        ("..", True),
        ("../x.db", True),
        ("a/../../x.db", True),
        ("a/b/../../../x.db", True),
        ("//x.db", True),
    ],
)
def test_paths_that_lead_out(path: str, out: bool, workspace: Workspace, own: Path) -> None:
    workspace.settings_file.write_text(f'[sqlite]\npath = "{path}"\n', encoding="utf-8")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert loaded(workspace, own)["sqlite.path"] == ("" if out else path)
    assert len(caught) == out
    workspace.settings_file.unlink()
    own.write_text(f'[sqlite]\npath = "{path}"\n', encoding="utf-8")
    assert loaded(workspace, own)["sqlite.path"] == path


KEY = "sk-" + "aB3dE6gH9jK2mN5pQ8sT" * 2
LITERALS = {
    "api_key": f'[embedding]\napi_key = "{KEY}"\n',
    "key": f'[embedding]\nkey = "{KEY}"\n',
    "token": f'[mem0]\ntoken = "{KEY}"\n',
    "apiKey": f'[chat]\napiKey = "{KEY}"\n',
    "deep": f'[mem0.llm.config]\nopenai_api_key = "{KEY}"\n',
    "number": "[chat]\npassword = 20260801\n",
    "headers": f'[chat.headers]\nAuthorization = "Bearer {KEY}"\n',
    "env": f'[embedding]\napi_key_env = "{KEY}"\n',
    "env-hex": '[embedding]\napi_key_env = "D41D8CD98F00B204E9800998ECF8427E"\n',
    "env-word": '[embedding]\napi_key_env = "hunter2"\n',
    "env-mem0": f'[mem0]\napi_key_env = "{KEY}"\n',
    "model": f'[embedding]\nmodel = "{KEY}"\n',
    "provider": f'[embedding]\nprovider = "{KEY}"\n',
    "url": '[embedding]\nbase_url = "https://me:hunter2hunter2@example.org/v1"\n',
    "query": f'[embedding]\nbase_url = "https://example.org/v1?api_key={KEY}"\n',
}


@pytest.mark.parametrize("toml", LITERALS.values(), ids=list(LITERALS))
@pytest.mark.parametrize("whose", ["project", "own", "table"])
def test_a_literal_secret_is_refused_and_not_repeated(whose: str, toml: str, workspace: Workspace, own: Path) -> None:
    file = workspace.settings_file if whose == "project" else own
    file.write_text(toml if whose != "table" else toml.replace("[", f'["{workspace.root}".'))
    with pytest.raises(SettingsError) as caught:
        loaded(workspace, own)
    message = str(caught.value)
    assert message.startswith(f"{file}: ")
    assert "environment variable" in message
    assert 'api_key_env = "OPENAI_API_KEY"' in message
    for secret in (KEY, "hunter2", "D41D8CD9", "20260801"):
        assert secret not in message


@pytest.mark.parametrize(
    "name", ["OPENAI_API_KEY", "_KEY", "K2", "SILICONFLOW_TOKEN_2", "A_VERY_LONG_NAME_OF_A_VARIABLE"]
)
def test_names_of_variables_are_no_secrets(name: str, workspace: Workspace, own: Path) -> None:
    own.write_text(f'[embedding]\napi_key_env = "{name}"\n')
    assert loaded(workspace, own)["embedding.api_key_env"] == name


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('provider = "opnai"', "embedding.provider must be openai or siliconflow or "),
        ('providr = "openai"', "unknown setting embedding.providr; did you mean embedding.provider?"),
        ('base_url = "example.org"', "embedding.base_url must be an address such as https://example.org/v1"),
        ('base_url = "file:///etc/passwd"', "embedding.base_url must be an address"),
        ('base_url = "https://a b/"', "embedding.base_url must be an address"),
        ("dimensions = 0", "embedding.dimensions must be at least 1, not 0"),
        ("dimensions = '256'", "embedding.dimensions must be a whole number, not a text"),
        ("timeout = 0", "embedding.timeout must be a number of seconds over 0 and under a day, not 0"),
        ("timeout = inf", "embedding.timeout must be a number of seconds over 0"),
        ("timeout = nan", "embedding.timeout must be a number of seconds over 0"),
        ("timeout = '5s'", "embedding.timeout must be a number of seconds, not a text"),
        ("batch = true", "embedding.batch must be a whole number, not true or false"),
        ("exclude_tags = 'x'", "embedding.exclude_tags must be a list of texts, not a text"),
        ("exclude_tags = ['a b']", "embedding.exclude_tags has 'a b', which is no tag"),
        ("exclude_tags = ['2026']", "embedding.exclude_tags has '2026', which is no tag"),
    ],
)
def test_a_wrong_embedding_setting(line: str, message: str, workspace: Workspace, own: Path) -> None:
    own.write_text(f"[embedding]\n{line}\n")
    with pytest.raises(SettingsError) as caught:
        loaded(workspace, own)
    assert str(caught.value).startswith(f"{own}: {message}")


def test_an_own_table_is_for_one_workspace_however_it_is_named(workspace: Workspace, own: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(workspace.root.parent)
    for name in (workspace.root, workspace.root.parent, tmp_path / "link", f"{workspace.root.parent}/"):
        own.write_text(f'["{name}".core]\nmax_chars = 5\n')
        assert loaded(workspace, own)["core.max_chars"] == 5, name
        linked = settings.load(tmp_path / "link" / ".oryxos", {"HOME": str(own.parents[2])})
        assert linked["core.max_chars"] == 5, name
    for name in (tmp_path.parent, workspace.root / "agents", "/", f"{workspace.root}\\u0000"):
        own.write_text(f'["{name}".core]\nmax_chars = 5\n')
        assert loaded(workspace, own)["core.max_chars"] == 8000, name


def test_homes_that_are_none(workspace: Workspace, own: Path) -> None:
    own.write_text("[core]\nmax_chars = 5\n")
    home = str(own.parents[2])
    for environment, counts in (
        ({"HOME": home, "XDG_CONFIG_HOME": "relative"}, True),
        ({"HOME": home, "XDG_CONFIG_HOME": ""}, True),
        ({"HOME": "relative"}, False),
        ({"HOME": ""}, False),
        ({}, False),
    ):
        assert (settings.load(workspace.root, environment)["core.max_chars"] == 5) is counts, environment


# application.yml.

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzzz"


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:sqlite:${AWS_SECRET_ACCESS_KEY}",
        "jdbc:sqlite:data/${AWS_SECRET_ACCESS_KEY}.db",
        "jdbc:sqlite:../${AWS_SECRET_ACCESS_KEY}",
        "jdbc:sqlite:data/${NOTHING:${AWS_SECRET_ACCESS_KEY}}.db",
        "jdbc:sqlite:data/${HARMLESS}.db",
        "jdbc:sqlite:${db.password}",
        "${AWS_SECRET_ACCESS_KEY:jdbc:sqlite:x.db}",
    ],
)
def test_no_path_is_made_of_a_secret(url: str, workspace: Workspace) -> None:
    _application(workspace, f"memory.backend: sqlite\nspring.datasource.url: {url}\n")
    environment = {"AWS_SECRET_ACCESS_KEY": SECRET, "HARMLESS": KEY, "db.password": SECRET}
    with pytest.warns(OryxMemoryWarning, match="spring.datasource.url is ignored") as caught:
        chosen = settings.load(workspace.root, environment)
    assert (chosen["backend"], chosen["sqlite.path"]) == ("sqlite", "")
    assert len(caught) == 1
    for text in (str(caught[0].message), repr(chosen)):
        assert SECRET not in text
        assert KEY not in text


def test_a_secret_is_no_backend(workspace: Workspace) -> None:
    for variable in ("AWS_SECRET_ACCESS_KEY", "HARMLESS"):
        _application(workspace, f"memory.backend: ${{{variable}}}\n")
        with pytest.raises(SettingsError) as caught:
            settings.load(workspace.root, {variable: SECRET})
        assert SECRET not in str(caught.value)
        assert variable in str(caught.value)
        assert settings.oryxos_backend(workspace.root, {variable: SECRET}) == f"${{{variable}}}"


def test_mem0_of_application_yml_is_ignored_with_a_warning(workspace: Workspace) -> None:
    file = _application(workspace, "memory.backend: ${B:mem0}\n")
    with pytest.warns(OryxMemoryWarning, match="memory.backend is ignored"):
        chosen = settings.load(workspace.root, {})
    assert (chosen["backend"], chosen.ignored[0].path) == ("markdown", file)


def test_the_database_of_another_backend_is_no_matter(workspace: Workspace) -> None:
    _application(workspace, "spring.datasource.url: jdbc:sqlite:/var/lib/oryxos.db\n")
    assert settings.load(workspace.root, {}).ignored == ()


BOMB = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n} {{p: *a{n - 1}, q: *a{n - 1}, <<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 60)
)
YAML: Mapping[str, tuple[str, Any]] = {
    "aliases": (BOMB + "memory: {backend: sqlite}\n", "sqlite"),
    "merged": ("x: &x {backend: sqlite}\nmemory: {<<: *x}\n", "sqlite"),
    "merged-list": ("x: &x {backend: sqlite}\nmemory: {<<: [{y: 1}, *x]}\n", "sqlite"),
    "itself": ("memory: &m {memory: *m, backend: sqlite}\n", "sqlite"),
    "many": ("memory: &m {" + "m: 1, " * 3000 + "backend: sqlite}\n" + "memory: *m\n" * 50, "sqlite"),
    "nothing": ("memory: {backend: }\n", "markdown"),
    "a-list": ("memory: {backend: [sqlite]}\n", "markdown"),
    "later-document": ("memory.backend: markdown\n---\nmemory: {backend: sqlite}\n", "sqlite"),
    "tag": ("x: !!python/object/apply:os.system [true]\nmemory.backend: sqlite\n", "sqlite"),
    "deep": ("x: " + "[" * 900, "nested too deeply"),
    "large": ("# " + "x" * 70_000, "larger than 64 KiB"),
    "placeholders": ("memory.backend: " + "${A:" * 2000 + "sqlite" + "}" * 2000, "must be markdown or sqlite"),
}


@pytest.mark.parametrize(("yaml", "outcome"), YAML.values(), ids=list(YAML))
def test_odd_yaml_is_read_within_bounds(yaml: str, outcome: str, workspace: Workspace) -> None:
    file = _application(workspace, yaml)
    if outcome in ("sqlite", "markdown"):
        assert settings.load(workspace.root, {})["backend"] == outcome
        return
    with pytest.raises(SettingsError) as caught:
        settings.load(workspace.root, {})
    assert str(caught.value).startswith(f"{file}: ")
    assert outcome in str(caught.value)


def test_variables_that_name_each_other_come_to_an_end(workspace: Workspace) -> None:
    _application(workspace, "memory.backend: ${A}\n")
    with pytest.raises(SettingsError, match=r"memory\.backend must be markdown or sqlite"):
        settings.load(workspace.root, {"A": "${B}", "B": "${A}x"})


def _application(workspace: Workspace, text: str) -> Path:
    file = settings.application_file(workspace.root)
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


# Any file at all.

_WORDS = st.sampled_from(
    ["embedding", "mem0", "chat", "backend", "sqlite", "path", "base_url", "provider", "api_key_env", "recall", "mode",
     "clean", "exclude_tags", "x", "/p", "a.b", "", "中"]
)  # fmt: skip
_VALUES = st.recursive(
    st.one_of(
        st.text(max_size=8),
        st.integers(),
        st.booleans(),
        st.sampled_from(["mem0", "../x", "/x", "http://x/", "openai"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(_WORDS, inner, max_size=3)),
    max_leaves=6,
)


@given(st.dictionaries(_WORDS, _VALUES, max_size=4))
def test_no_project_file_reaches_out(table: dict[str, Any]) -> None:
    with TemporaryDirectory() as name:
        root = Path(os.path.realpath(name)) / ".oryxos"
        root.mkdir()
        (root / "memory.toml").write_text(tomlkit.dumps(table), encoding="utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                chosen = settings.load(root, {})
            except SettingsError:
                return
    assert chosen.embedding == settings.load(None, {}).embedding
    assert chosen["backend"] in ("markdown", "sqlite")
    assert not settings.leads_out(chosen["sqlite.path"])
    for item in chosen.ignored:
        assert chosen.sources.get(item.key, "default") == "default"


# The page that describes them.


def test_the_page_names_every_setting_and_its_examples_load(workspace: Workspace, own: Path) -> None:
    page = (Path(__file__).parent.parent / "docs" / "format.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```toml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    own.write_text("\n".join(blocks).replace("/home/me/project", str(workspace.root.parent)), encoding="utf-8")
    chosen = loaded(workspace, own)
    assert [key for key, source in chosen.sources.items() if source == "default"] == []
    assert chosen.embedding["model"] == "另一个"
    for variable in ("ORYX_MEMORY_BACKEND", *(f"ORYX_EMBEDDING_{name}" for name in ("PROVIDER", "MODEL", "BASE_URL")),
                     "ORYX_MEM0_BASE_URL", "ORYX_MEM0_USER_ID"):  # fmt: skip
        assert f"`{variable}`" in page
