"""The detector of credentials, over two files of lines and as laws; then append and edit with it.

fixtures/guard/planted.tsv has a kind and a text a line. None of its credentials is real, and each has a `{}` in it that is
taken out here, so that the hosts of repositories, which refuse pushes with credentials in them, see none.
"""

import ast
import os
import sys
from pathlib import Path

import pytest
from command import AT, OPS, STAMP, memory, real, retired_file
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import texts

import oryx_memory
from oryx_memory import Entry, guard

FIXTURES = Path(__file__).parent.parent / "fixtures" / "guard"
HARMLESS = (FIXTURES / "harmless.txt").read_text(encoding="utf-8").splitlines()
PLANTED = [
    (kind, text.replace("{}", ""))
    for kind, text in (line.split("\t") for line in (FIXTURES / "planted.tsv").read_text(encoding="utf-8").splitlines())
]
TOKEN = "ghp" + "_16C7e42F292c6912E7710c838347Ae178B4a"
LETTERS = st.text(st.characters(categories=["L", "Zs"]), max_size=30)


def kinds(text: str) -> list[str]:
    return [finding.kind for finding in guard.find(text)]


def test_the_fixtures_are_large_enough() -> None:
    assert len(set(HARMLESS)) >= 150
    assert len(set(PLANTED)) >= 80
    assert any(not line.isascii() for line in HARMLESS)
    assert any(not text.isascii() for _, text in PLANTED)


@pytest.mark.parametrize("line", HARMLESS)
def test_nothing_is_found_in_harmless_lines(line: str) -> None:
    assert guard.find(line) == []


@pytest.mark.parametrize(("kind", "text"), PLANTED)
def test_every_planted_credential_is_found_once_with_its_kind(kind: str, text: str) -> None:
    assert kinds(text) == [kind]


def test_every_kind_is_planted() -> None:
    known = {kind for kind, _, _ in guard._SHAPES} | set(guard._WORDS.values())
    assert {kind for kind, _ in PLANTED} == known


def test_all_lines_together_give_what_they_give_alone() -> None:
    text = "\n".join([*HARMLESS, *(text for _, text in PLANTED)])
    assert kinds(text) == [kind for kind, _ in PLANTED]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("password=hunter2", ["hunter2"]),
        ("密码：Qwe!2345，别外传", ["Qwe!2345"]),
        ('{"password": "a b", "token": "8f3a91bc22"}', ["8f3a91bc22"]),
        ("https://bob:hunter2@example.com/", ["hunter2"]),
        ("https://bob:p@ss1@example.com/", ["p@ss1"]),
        ("secret: password=hunter2", ["hunter2"]),
        (f"token={TOKEN}", [TOKEN]),
        ("İİ password=hunter2 İ 密码：abc123.", ["hunter2", "abc123"]),
        ("**Password:** **Winter2026**", ["Winter2026"]),
    ],
)
def test_a_finding_is_the_value_alone(text: str, values: list[str]) -> None:
    assert [text[finding.start : finding.end] for finding in guard.find(text)] == values


@given(st.one_of(texts, st.text(), st.lists(st.sampled_from([*HARMLESS, *(text for _, text in PLANTED)])).map("".join)))
@example("password: İ")
@example("password: \ud800abc123")
def test_findings_lie_inside_the_text_in_order_and_never_overlap(text: str) -> None:
    at = 0
    for finding in guard.find(text):
        assert at <= finding.start < finding.end <= len(text)
        at = finding.end


def not_digits_alone(planted: tuple[str, str]) -> bool:
    """Whether the value has more than digits; a number's meaning depends on what follows (5000 attempts, 123456 次)."""
    _, text = planted
    return not any(text[finding.start : finding.end].isdigit() for finding in guard.find(text))


@given(LETTERS, st.sampled_from(list(filter(not_digits_alone, PLANTED))), LETTERS)
def test_a_credential_is_found_among_any_letters_and_blanks(before: str, planted: tuple[str, str], after: str) -> None:
    kind, text = planted
    assert kind in kinds(f"{before} {text} {after}")


@given(
    st.text("aZ09 .:=/@-_'\"密码 is token key\n", max_size=60).map(lambda piece: piece * (2000 // max(1, len(piece))))
)
def test_the_steps_of_python_grow_with_the_length_alone(text: str) -> None:
    # Steps of Python are counted, not time; each finding and each word with a value behind it costs a bounded number.
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    sys.setprofile(count)
    try:
        guard.find(text)
    finally:
        sys.setprofile(None)
    assert steps < 2000 + 12 * len(text)


def test_guard_imports_nothing_but_re() -> None:
    tree = ast.parse(Path(guard.__file__).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert [ast.unparse(node) for node in imports] == ["import re"]


def set_guard(memory_file: Path, value: str) -> None:
    (memory_file.parents[2] / "memory.toml").write_text(f'[guard]\nsecrets = "{value}"\n')


@pytest.mark.parametrize("quiet", [(), ("-q",)], ids=["", "quiet"])
def test_append_warns_with_the_kind_and_the_command_but_never_the_value(ops: Path, quiet: tuple[str, ...]) -> None:
    line = f"{STAMP} 推送用 {TOKEN}"
    result = memory("append", "-a", "ops", *AT, *quiet, f"推送用 {TOKEN}")
    assert (result.code, result.out) == (0, "" if quiet else f"{line}\n")
    identity = Entry(line).id
    assert result.err == (
        f"{identity} looks like a credential (github-token); it is stored; to destroy it: "
        f"oryx memory forget -a ops {identity} --purge\n"
    )
    assert ops.read_text() == f"{OPS}{line}\n"
    assert memory("forget", "-a", "ops", identity, "--purge", "-q").code == 0
    assert ops.read_text() == OPS


def test_a_value_is_seen_where_the_entry_has_it_and_the_input_had_a_line_break(ops: Path) -> None:
    assert "(password)" in memory("append", "-a", "ops", "password:\r\n\u2028\nhunt\x01er2").err


def test_append_names_each_kind_once_and_says_nothing_of_prose(ops: Path) -> None:
    assert memory("append", "-a", "ops", "-q", "密码要定期更换") == (0, "", "")
    err = memory("append", "-a", "ops", f"{TOKEN} {TOKEN} 密码：abc123").err
    assert "(github-token, password)" in err
    assert err.count("\n") == 1
    assert TOKEN not in err


@pytest.mark.parametrize("more", [(), ("--key", "pin"), ("--if-new",), ("--scope", "core")])
def test_refuse_writes_nothing_and_names_the_setting(ops: Path, more: tuple[str, ...]) -> None:
    set_guard(ops, "refuse")
    result = memory("append", "-a", "ops", *more, "密码：hunter2")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        'oryx: looks like a credential (password), and [guard] secrets = "refuse" keeps those out of memories; '
        "remember where it is kept instead\n"
    )
    assert ops.read_text() == OPS
    assert memory("append", "-a", "ops", "-q", *more, "密码在保险柜里") == (0, "", "")


def test_refuse_makes_no_agent(ops: Path) -> None:
    set_guard(ops, "refuse")
    assert memory("append", "-a", "new", "password=hunter2").code == 2
    assert not (ops.parents[1] / "new").exists()


def test_refuse_names_the_line_of_lines_and_stores_none(ops: Path) -> None:
    set_guard(ops, "refuse")
    result = memory("append", "-a", "ops", "--lines", stdin="一\n\npassword=hunter2\n二\n")
    assert result.code == 2
    assert result.err.startswith("oryx: line 3: looks like a credential (password), and [guard]")
    assert "hunter2" not in result.err
    assert ops.read_text() == OPS


def test_lines_are_warned_of_one_by_one(ops: Path) -> None:
    result = memory("append", "-a", "ops", "-q", "--lines", *AT, stdin=f"一\npassword=hunter2\n二 {TOKEN}\n")
    first, second = (Entry(f"{STAMP} {text}").id for text in ("password=hunter2", f"二 {TOKEN}"))
    assert [line.partition(";")[0] for line in result.err.splitlines()] == [
        f"{first} looks like a credential (password)",
        f"{second} looks like a credential (github-token)",
    ]


def test_edit_warns_of_the_new_text_and_refuses_it(ops: Path) -> None:
    result = memory("edit", "-a", "ops", "-q", "43d8", "password=hunter2")
    assert (result.code, result.err.count("looks like a credential (password)")) == (0, 1)
    changed = ops.read_text()
    before = retired_file(ops).read_text()
    set_guard(ops, "refuse")
    refused = memory("edit", "-a", "ops", "a701", f"see {TOKEN}")
    assert refused.code == 2
    assert "(github-token)" in refused.err
    assert '[guard] secrets = "refuse"' in refused.err
    assert (ops.read_text(), retired_file(ops).read_text()) == (changed, before)


def test_a_credential_can_be_edited_out_where_they_are_refused(ops: Path) -> None:
    memory("append", "-a", "ops", "-q", *AT, "password=hunter2")
    set_guard(ops, "refuse")
    identity = Entry(f"{STAMP} password=hunter2").id
    assert memory("edit", "-a", "ops", "-q", identity, "the password is in the vault") == (0, "", "")


def test_off_says_nothing(ops: Path) -> None:
    set_guard(ops, "off")
    assert memory("append", "-a", "ops", "-q", f"{TOKEN} 密码：abc123") == (0, "", "")
    assert memory("edit", "-a", "ops", "-q", "43d8", "password=hunter2") == (0, "", "")


def test_the_global_memory_is_named_without_an_option(ops: Path) -> None:
    result = memory("append", "-q", *AT, "password=hunter2")
    identity = Entry(f"{STAMP} password=hunter2").id
    assert result.err.endswith(f": oryx memory forget {identity} --purge\n")


def test_another_word_in_the_setting_is_an_error(ops: Path) -> None:
    set_guard(ops, "maybe")
    result = memory("append", "-a", "ops", "x")
    assert result.code == 3
    assert "guard.secrets must be warn or refuse or off, not 'maybe'" in result.err


def test_the_library_stores_what_its_caller_gives_it(store: oryx_memory.LongTermMemoryStore) -> None:
    assert store.append("password=hunter2").content == "password=hunter2"


def test_prose_compiles_no_regular_expression_of_a_credential(ops: Path) -> None:
    code = (
        "import re, sys\nfrom oryx_memory import guard\nmade = []\ncompiled = re._compiler.compile\n"
        "def compile(pattern, flags=0):\n    made.append(pattern)\n    return compiled(pattern, flags)\n"
        "re._compiler.compile = compile\n"
        "guard.find('上线前必须两人复核 Use uv, not pip, in every project')\nassert made == [], made\n"
        "guard.find('password=hunter2')\nassert made\n"
    )
    assert real([sys.executable, "-c", code], env=dict(os.environ)).code == 0
