"""Settings: who wins, and what a wrong one says."""

from datetime import timedelta
from pathlib import Path

import pytest

from oryx_memory import SettingsError, Workspace, settings


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
