"""clean as cron runs it: what it prints, undoing it from a mail, two runs at once, logs, the policy of AGENT.md, and the
examples in docs/examples.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from command import NOBODY, ORYX, PATIENCE, SCRIPTS, Result, as_user, memory, real, retired_file, with_path
from hypothesis import given
from hypothesis import strategies as st

from oryx_memory import SettingsError, Workspace, settings, stores
from oryx_memory.cli.hints import quoted
from oryx_memory.files import Lock
from oryx_memory.workspace import initialise, named

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"
OLD = "- [2001-02-03 04:05:06] 旧规则: deploy on Friday"
YOUNG = "- [2999-01-01 00:00:00] 上线前必须两人复核"
CRON = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}  # all that cron gives a command, but for HOME and the like


def written(root: Path, agent: str | None, *lines: str, page: str | None = None) -> Path:
    """MEMORY.md of an agent in the folder `.oryxos`, with these archival lines; `page` is AGENT.md."""
    file = Workspace(root).memory_file(agent)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("## 归档记忆\n" + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    if page is not None:
        file.with_name("AGENT.md").write_text(page, encoding="utf-8")
    return file


def many(number: int) -> list[str]:
    return [f"- [2001-01-01 00:00:{n:02}] 第 {n} 条" for n in range(number)]


def undo_of(line: str) -> str:
    return line.rstrip("\n").partition("; undo: ")[2]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder `.oryxos` of a workspace that the test stands in."""
    monkeypatch.chdir(tmp_path)
    list(initialise(tmp_path))
    return tmp_path / ".oryxos"


# What a run prints.


def test_one_agent_changed_one_unreadable_and_38_unchanged(shared: Path) -> None:
    """The acceptance example."""
    root = shared / "bots" / ".oryxos"
    for number in range(38):
        written(root, f"bot-{number:02}", YOUNG)
    before = written(root, "ops", OLD, YOUNG).read_bytes()
    shut = written(root, "weather", OLD)
    if os.geteuid() == 0:
        for path in (shared, *shared.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        os.chown(shut, 0, 0)
    shut.chmod(0o600 if os.geteuid() == 0 else 0o000)
    policy = ("--all-agents", "--older-than", "90d", "--quiet")
    done = real(as_user(NOBODY, "memory", "clean", "--root", str(root), *policy), env=CRON, cwd=shared)
    assert done.code == 3
    summary = r"ops: retired 1 of 2 archival entries \(1 older than 90d\); undo: "
    assert re.fullmatch(rf"{summary}oryx memory restore -a ops --run \S+ --root {root}\n", done.out)
    owner = f"owner {shut.stat().st_uid}, mode {shut.stat().st_mode & 0o7777:04o}"
    me = NOBODY if os.geteuid() == 0 else os.geteuid()
    assert done.err == f"oryx: weather skipped: {shut}: permission denied ({owner}, you are {me})\n"
    undone = real(as_user(NOBODY, *shlex.split(undo_of(done.out))[1:], "-q"), env=CRON, cwd=Path("/"))
    assert (undone.code, undone.err) == (0, "")
    assert Workspace(root).memory_file("ops").read_bytes() == before


def test_nothing_to_do_is_silence(root: Path) -> None:
    written(root, "ops", OLD, YOUNG)
    assert memory("clean", "--all-agents", "--quiet") == (0, "", "")


def test_the_exit_code_is_the_highest(root: Path) -> None:
    """Refused 1, unreadable 3, locked 5; and between them an agent is cleaned."""
    written(root, "a-refused", *many(20))
    written(root, "c-fine", OLD, OLD)
    run = ("clean", "--all-agents", "--older-than", "90d", "-q", "--lock-timeout", "0")
    refused = memory(*run)
    assert (refused.code, refused.out.count("\n"), refused.err.count("\n")) == (1, 1, 1)
    assert refused.out.startswith("c-fine: retired 2 of 2")
    assert refused.err.startswith("oryx: a-refused skipped: refused: 20 of 20 ")
    (root / "agents" / "b-folder" / "MEMORY.md").mkdir(parents=True)
    assert memory(*run).code == 3
    busy = written(root, "a-busy", OLD)
    written(root, "c-fine", OLD)
    with Lock(Workspace(root).lock_file(busy), (busy,)):
        result = memory(*run)
    assert (result.code, result.out.count("\n")) == (5, 1)
    assert [line.split(" ")[1] for line in result.err.splitlines()] == ["a-busy", "a-refused", "b-folder"]


@pytest.mark.parametrize("option", ["--older-than", "--purge-retired"])
def test_an_empty_span_is_refused(option: str, root: Path) -> None:
    """As from `--older-than "$UNSET"`: without the rule the run would look as if it had been kept."""
    assert memory("clean", "--all-agents", option, "").code == 2


# Undoing a run from a mail.


def run_and_undo(arguments: list[str], variables: dict[str, str], root: Path, files: list[Path]) -> list[str]:
    """Clean as a real process with these arguments and variables, paste what it prints into a bash that stands in
    another folder and has none of the variables, and expect every byte back. Returns the commands.
    """
    before = [file.read_bytes() for file in files]
    done = real([ORYX, "memory", "clean", "-q", *arguments], env=with_path(**variables), cwd=root.parent)
    assert (done.code, done.err) == (0, "")
    assert all(file.read_bytes() != content for file, content in zip(files, before, strict=True))
    commands = [undo_of(line) for line in done.out.splitlines()]
    assert len(commands) == len(files)
    for command in commands:
        pasted = real(["bash", "-c", f"{command} -q"], env=with_path(ORYX_AGENT="someone"), cwd=Path("/"))
        assert pasted == (0, "", ""), command
    assert [file.read_bytes() for file in files] == before
    return [re.sub(r"\d{8}T\d{6}-\d+", "RUN", command) for command in commands]


def test_the_undo_names_a_root_that_was_given(tmp_path: Path) -> None:
    root = tmp_path / "it's 100% 机器人" / ".oryxos"
    files = [written(root, None, OLD, OLD), written(root, "ops", OLD, OLD)]
    place = shlex.quote(str(root))
    told = [f"oryx memory restore --run RUN --root {place}", f"oryx memory restore -a ops --run RUN --root {place}"]
    env = {"ORYX_AGENT": "someone"}
    assert run_and_undo(["--all-agents", "--root", str(root)], env, root, files) == [f"ORYX_AGENT= {told[0]}", told[1]]
    assert run_and_undo(["-a", "ops", "--root", "."], {}, root, files[1:]) == told[1:]
    assert run_and_undo(["-a", "ops"], {"ORYXOS_ROOT": str(root)}, root, files[1:]) == told[1:]
    assert run_and_undo(["-a", "ops"], {"ORYXOS_ROOT": "."}, root, files[1:]) == told[1:]


def test_the_undo_of_the_users_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    root = tmp_path / ".oryxos"
    files = [written(root, None, OLD, OLD), written(root, "ops", OLD, OLD)]
    assert run_and_undo(["--user"], {}, root, files[:1]) == ["oryx memory restore --run RUN --user"]
    assert run_and_undo(["--user", "--all-agents"], {}, root, files) == [
        "oryx memory restore --run RUN --user",
        f"oryx memory restore -a ops --run RUN --root {root}",
    ]


def test_the_undo_of_a_workspace_found_from_the_working_directory_names_none(root: Path) -> None:
    written(root, "ops", OLD, OLD)
    done = memory("clean", "-a", "ops", "-q")
    assert re.fullmatch(r"oryx memory restore -a ops --run \S+", undo_of(done.out))


def test_the_undo_names_the_program_where_path_has_none(root: Path) -> None:
    file = written(root, "ops", OLD, OLD)
    before = file.read_bytes()
    done = real([ORYX, "memory", "clean", "-q", "--all-agents", "--root", str(root)], env=CRON, cwd=Path("/"))
    assert undo_of(done.out).startswith(f"{shlex.quote(ORYX)} memory restore -a ops ")
    assert real(["/bin/sh", "-c", undo_of(done.out)], env=CRON, cwd=Path("/")).code == 0
    assert file.read_bytes() == before
    other = str(SCRIPTS / "oryx-memory")
    again = real([other, "clean", "-q", "--all-agents", "--root", str(root)], env=CRON, cwd=Path("/"))
    assert undo_of(again.out).startswith(f"{shlex.quote(ORYX)} memory restore ")


NAMES = ("小助手", "it's", "-x", "--help", "- x", "a\nb", "\x1b[31m红", "\u202eabc", "$(touch pwned)", "`touch pwned`")


@pytest.mark.parametrize("named_by", ["flag", "environment"])
def test_names_in_a_database_are_one_word_of_one_line(named_by: str, root: Path) -> None:
    flags = ["--backend", "sqlite"] if named_by == "flag" else []
    env = with_path(**({} if flags else {"ORYX_MEMORY_BACKEND": "sqlite"}))
    workspace = Workspace(root)
    chosen = settings.load(root, {}, {"backend": "sqlite"})
    memories = {name: stores.open(workspace, chosen, name) for name in NAMES}
    for store in memories.values():
        for _ in range(2):
            store.append("同一条", time=datetime(2026, 7, 1))
    before = {name: store.read() for name, store in memories.items()}
    done = real([ORYX, "memory", "clean", "-q", "--all-agents", "--root", str(root), *flags], env=env, cwd=root)
    assert (done.code, done.err) == (0, "")
    assert len(done.out.splitlines()) == len(NAMES)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]", done.out)
    for line in done.out.splitlines():
        assert line.endswith(f" --root {root} --backend sqlite")
        assert real(["bash", "-c", undo_of(line)], env={**CRON, "PATH": env["PATH"]}, cwd=root).code == 0
    assert {name: store.read() for name, store in memories.items()} == before
    assert not (root / "pwned").exists()


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1, max_size=20))
def test_bash_reads_a_quoted_word_as_that_word(words: list[str]) -> None:
    line = " ".join(map(quoted, words))
    assert line.isprintable()
    script = f"printf '%s\\0' {line}"
    done = subprocess.run(["bash", "-c", script], env=CRON, capture_output=True, timeout=PATIENCE, check=True)
    assert done.stdout.decode().split("\0")[:-1] == words


# Two runs at once.


HOLDER = """
import sys
from pathlib import Path
from oryx_memory.files import Lock
with Lock(Path(sys.argv[1]), ()):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_run_says_so_and_ends_well(root: Path) -> None:
    file = written(root, "ops", OLD, OLD)
    before = file.read_bytes()
    lock = Workspace(root).clean_lock_file
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout
    assert holder.stdout.readline() == b"held\n"
    said = f"oryx: another clean --all-agents is at work in {root}; this one did nothing\n"
    for options in ([], ["-q"], ["--log-json"]):
        assert memory("clean", "--all-agents", *options) == (0, "", said)
    assert file.read_bytes() == before
    assert memory("clean", "--all-agents", "--dry-run", "-q").out.startswith("ops: would retire 1 of 2 ")
    assert memory("clean", "-a", "ops", "-q").out.startswith("ops: retired 1 of 2 ")
    file.write_bytes(before)
    holder.kill()
    holder.communicate(timeout=PATIENCE)
    assert memory("clean", "--all-agents", "-q").out.startswith("ops: retired 1 of 2 ")
    assert lock.is_file()


def test_a_run_holds_its_lock_to_the_end_and_tells_each_change_at_once(root: Path) -> None:
    written(root, "a-first", OLD, OLD)
    busy = written(root, "b-busy", OLD, OLD)
    command = [ORYX, "memory", "clean", "--all-agents", "-q", "--lock-timeout", str(PATIENCE)]
    with Lock(Workspace(root).lock_file(busy), (busy,)):
        first = subprocess.Popen(command, cwd=root.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert first.stdout
        assert first.stdout.readline().startswith(b"a-first: retired 1 of 2")
        assert "another clean --all-agents" in memory("clean", "--all-agents", "-q").err
    out, err = first.communicate(timeout=PATIENCE)
    assert (first.returncode, err) == (0, b"")
    assert out.startswith(b"b-busy: retired 1 of 2")
    assert memory("clean", "--all-agents", "-q") == (0, "", "")


@pytest.mark.parametrize("words", [(), ("-q",), ("--json",), ("--log-json",)], ids=["", "quiet", "json", "log-json"])
def test_output_that_cannot_be_written_stops_nothing_and_the_undo_is_told(words: tuple[str, ...], root: Path) -> None:
    files = [written(root, name, OLD, OLD) for name in ("a", "b")]
    before = files[0].read_bytes()
    with open("/dev/full", "wb") as full:
        command = [ORYX, "memory", "clean", "--all-agents", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE, check=False)
    lines = [line for line in done.stderr.decode().splitlines() if "nothing to retire" not in line]
    assert (done.returncode, lines[-1]) == (3, "oryx: standard output: no space left on device")
    assert [line.partition(": retired 1 of 2")[0] for line in lines[:-1]] == ["a", "b"]
    for line in lines[:-1]:
        assert memory(*shlex.split(undo_of(line))[2:]).code == 0
    assert [file.read_bytes() for file in files] == [before, before]


def test_output_of_one_agent_that_cannot_be_written(root: Path) -> None:
    written(root, "a", OLD, OLD)
    with open("/dev/full", "wb") as full:
        command = [ORYX, "memory", "clean", "-a", "a", "-q"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE, check=False)
    assert done.returncode == 3
    assert memory(*shlex.split(undo_of(done.stderr.decode().splitlines()[0]))[2:]).code == 0


# The log.


FIELDS = ["time", "agent", "result", "dry_run", "before", "retired", "destroyed", "run", "undo", "error", "exit_code"]


def logged(result: Result) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in result.out.splitlines()]
    assert all(list(record) == FIELDS for record in records)
    return records


def test_the_log_has_one_object_for_each_agent(root: Path) -> None:
    (root / "memory.toml").write_text('[time]\nzone = "Asia/Shanghai"\n')
    written(root, "a-changed", OLD, OLD, YOUNG, YOUNG, OLD.replace("旧", "最旧"))
    (root / "agents" / "b-skipped" / "MEMORY.md").mkdir(parents=True)
    written(root, "c-refused", *many(20))
    for options in ([], ["--quiet"]):
        result = memory("clean", "--all-agents", "--older-than", "90d", "--log-json", "--dry-run", *options)
        assert [record["result"] for record in logged(result)] == ["unchanged", "changed", "skipped", "refused"]
        assert all(record["run"] is record["undo"] is None and record["dry_run"] for record in logged(result))
    result = memory("clean", "--all-agents", "--older-than", "90d", "--log-json")
    whole, changed, skipped, refused = logged(result)
    assert (whole["agent"], whole["before"], whole["retired"], whole["exit_code"]) == (None, 0, {}, 0)
    assert (changed["agent"], changed["before"], changed["destroyed"]) == ("a-changed", 5, 0)
    assert changed["retired"] == {"duplicate": 2, "older than 90d": 2}
    assert changed["undo"] == f"oryx memory restore -a a-changed --run {changed['run']}"
    assert (skipped["agent"], skipped["before"], skipped["exit_code"]) == ("b-skipped", None, 3)
    assert skipped["error"].endswith("MEMORY.md: is not a regular file")
    assert (refused["agent"], refused["exit_code"], refused["retired"]) == ("c-refused", 1, {})
    assert result.code == 3
    assert result.err == "".join(f"oryx: {bad['agent']} skipped: {bad['error']}\n" for bad in (skipped, refused))
    moment = datetime.fromisoformat(changed["time"])
    assert moment.utcoffset() == datetime.fromisoformat("2026-08-01T00:00:00+08:00").utcoffset()
    assert changed["time"].endswith("+08:00")


def test_the_log_of_one_agent_and_of_what_was_destroyed(root: Path) -> None:
    file = written(root, "ops", YOUNG)
    marker = "retired 2001-08-01T02:00:00 from archival: duplicate; run 20010801T020000-1; live 0"
    retired_file(file).write_text(f"{OLD} <!-- oryx: {marker} -->\n", encoding="utf-8")
    (record,) = logged(memory("clean", "-a", "ops", "--purge-retired", "365d", "--log-json"))
    assert (record["result"], record["destroyed"], record["retired"], record["undo"]) == ("changed", 1, {}, None)
    failed = memory("clean", "-a", "nobody", "--log-json")
    assert failed.code == 3
    assert failed.err == f"oryx: {logged(failed)[0]['error']}\n"


def test_the_log_and_json_exclude_each_other(root: Path) -> None:
    result = memory("clean", "--all-agents", "--json", "--log-json")
    assert (result.code, result.out) == (2, "")
    assert "--log-json and --json" in result.err
    assert memory("clean", "--all-agents", "--json").out.startswith('[{"agent":null,')


# The policy of AGENT.md.


def page(clean: str, body: str = "# 值班 Ops\n") -> str:
    return f"---\nname: ops\nmemory:\n  clean:\n{clean}---\n{body}"


def test_flags_go_over_agent_md_and_that_over_the_settings(root: Path) -> None:
    (root / "memory.toml").write_text("[clean]\nkeep_entries = 1\ndedupe = false\n")
    written(root, "ops", *many(6), page=page("    keep_entries: 3\n"))
    written(root, "plain", *many(6))
    lines = memory("clean", "--all-agents", "--dry-run", "-q").out.splitlines()
    assert [line.split(" (")[1] for line in lines] == ["3 over 3 entries)", "5 over 1 entries)"]
    lines = memory("clean", "--all-agents", "--dry-run", "-q", "--keep-entries", "5").out.splitlines()
    assert [line.split(" (")[1] for line in lines] == ["1 over 5 entries)"] * 2
    written(root, "ops", OLD, OLD, YOUNG, page=page('    dedupe: true\n    older_than: "90d"\n    keep_chars: 4000\n'))
    assert "(1 older than 90d, 1 duplicate)" in memory("clean", "-a", "ops", "--dry-run", "-q").out


def test_a_clean_up_never_writes_agent_md(root: Path) -> None:
    text = page("    older_than: 90d\n")
    file = written(root, "ops", OLD, YOUNG, page=text)
    assert memory("clean", "--all-agents", "-q").out.startswith("ops: retired 1 of 2 ")
    assert file.with_name("AGENT.md").read_text(encoding="utf-8") == text


NOTHING = {
    "empty": b"",
    "no-front-matter": "# 值班\n\n---\nmemory:\n  clean:\n    keep_entries: 0\n---\n".encode(),
    "gbk-without": "# 值班\n".encode("gbk"),
    "gbk-body": b"---\nname: ops\n---\n" + "# 值班\n".encode("gbk"),
    "no-memory": b"---\nname: ops\nclean: 3\n---\n",
    "empty-front-matter": b"---\n---\n",
    "empty-memory": b"---\nmemory:\n---\n",
    "empty-clean": b"---\nmemory:\n  clean:\n    # older_than: 90d\n---\n",
    "long-rules": b"-----\nname: ops\n-----\n",
}


@pytest.mark.parametrize("content", NOTHING.values(), ids=list(NOTHING))
def test_agent_md_that_says_nothing(content: bytes, root: Path) -> None:
    written(root, "ops", OLD, YOUNG).with_name("AGENT.md").write_bytes(content)
    assert memory("clean", "-a", "ops", "-q") == (0, "", "")


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("start", ["", "\ufeff", "\n\n"], ids=["", "BOM", "blank-lines"])
def test_agent_md_in_every_form_of_text_file(newline: str, start: str, root: Path) -> None:
    text = (start + page("    older_than: 90d\n")).replace("\n", newline)
    written(root, "ops", OLD, YOUNG).with_name("AGENT.md").write_bytes(text.encode())
    assert memory("clean", "-a", "ops", "--dry-run", "-q").out.startswith("ops: would retire 1 of 2 ")


# Each of them would be another policy than the one that was written, if it were passed over.
MISTAKES = {
    "unknown": (
        page("    older_then: 90d\n"),
        "unknown setting memory.clean.older_then; did you mean memory.clean.old",
    ),
    "unknown-table": ("---\nmemory: {clena: {dedupe: no}}\n---\n", "memory.clena; did you mean memory.clean?"),
    "of-memory-toml": (page("    clean.older_than: 90d\n"), "unknown setting memory.clean.clean.older_than"),
    "chinese-key": (page("    保留: 3\n"), "unknown setting memory.clean.保留"),
    "key-that-is-no-text": (page("    yes: 3\n"), "unknown setting memory.clean.True"),
    "force-is-no-setting": (page("    force: true\n"), "unknown setting memory.clean.force"),
    "number-for-span": (
        page("    older_than: 90\n"),
        'memory.clean.older_than must be a time span such as "90d", not a',
    ),
    "full-width-span": (page("    older_than: ９０d\n"), "memory.clean.older_than: not a time span: '９０d'"),
    "nothing-for-span": (page("    older_than:\n"), "memory.clean.older_than must be a time span"),
    "date-for-span": (page("    older_than: 2026-01-01\n"), "memory.clean.older_than must be a time span"),
    "text-for-number": (
        page('    keep_entries: "3"\n'),
        "memory.clean.keep_entries must be a whole number, not a text",
    ),
    "negative": (page("    keep_chars: -1\n"), "memory.clean.keep_chars must be at least 0, not -1"),
    "share": (page("    max_share: 2\n"), "memory.clean.max_share must be a number over 0 and at most 1"),
    "text-for-flag": (page("    dedupe: 否\n"), "memory.clean.dedupe must be true or false, not a text"),
    "memory-is-a-text": ("---\nmemory: 90d\n---\n", "memory must be a table, not a text"),
    "memory-is-false": ("---\nmemory: off\n---\n", "memory must be a table, not true or false"),
    "clean-is-a-list": ("---\nmemory:\n  clean: [older_than]\n---\n", "memory.clean must be a table, not a list"),
    "not-closed": ("---\nmemory:\n  clean:\n    dedupe: no\n", "one of them is missing"),
    "comment-behind-rule": ("--- # ops\nmemory:\n---\n---\n", "one of them is missing"),
    "no-yaml": ("---\nname: [\nmemory: {}\n---\n", "front matter cannot be read: "),
    "tab": (page("\tolder_than: 90d\n"), "cannot start any token (line 5)"),
    "twice": (page("    keep_entries: 9\n    keep_entries: 0\n"), "keep_entries stands there twice (line 6)"),
    "two-memories": ("\n\n---\nmemory: {}\nname: x\nmemory: {}\n---\n", "memory stands there twice (line 6)"),
    "a-text": ("---\n每晚清理\n---\n", "front matter is not a table"),
    "a-list": ("---\n- memory\n---\n", "front matter is not a table"),
    "python-tag": ("---\nx: !!python/object/apply:os.system ['touch pwned']\n---\n", "could not determine a construct"),
    "control-character": ("---\nname: \x01\n---\n", "front matter cannot be read: unacceptable character"),
    "impossible-date": ("---\nborn: 2026-13-45\n---\n", "front matter cannot be read: month must be in 1..12"),
    "deep": ("---\nx: " + "[" * 5000 + "\n---\n", "front matter cannot be read: "),
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.values(), ids=list(MISTAKES))
def test_a_mistake_in_agent_md_stops_that_agent_and_no_other(text: str, message: str, root: Path) -> None:
    before = written(root, "ops", OLD, OLD, page=text).read_bytes()
    written(root, "weather", OLD, OLD)
    result = memory("clean", "--all-agents", "-q")
    assert result.code == 3
    assert result.err.startswith(f"oryx: ops skipped: {root}/agents/ops/AGENT.md: ")
    assert message in result.err
    assert result.err.count("\n") == 1
    assert result.out.startswith("weather: retired 1 of 2")
    assert Workspace(root).memory_file("ops").read_bytes() == before
    assert not Path("pwned").exists()
    alone = memory("clean", "-a", "ops", "--dry-run")
    assert (alone.code, alone.out, alone.err) == (3, "", result.err.replace("ops skipped: ", ""))


def test_agent_md_that_is_no_page(root: Path) -> None:
    agents = root / "agents"
    for name in ("folder", "link", "loop", "utf-16", "half-utf-8"):
        written(root, name, OLD, OLD)
    (agents / "folder" / "AGENT.md").mkdir()
    (agents / "link" / "AGENT.md").symlink_to("gone")
    (agents / "loop" / "AGENT.md").symlink_to("AGENT.md")
    (agents / "utf-16" / "AGENT.md").write_bytes(page("    dedupe: no\n").encode("utf-16"))
    (agents / "half-utf-8" / "AGENT.md").write_bytes(
        page("    dedupe: no\n").encode("gbk").replace(b"ops", b"\xd6\xd0")
    )
    result = memory("clean", "--all-agents", "-q")
    assert (result.code, result.out) == (3, "")
    said = dict(re.findall(r"^oryx: (\S+) skipped: \S+/AGENT\.md: (.*)$", result.err, re.MULTILINE))
    assert said == {
        "folder": "is not a regular file",
        "link": "is a link to nothing",
        "loop": "too many levels of symbolic links",
        "utf-16": "is UTF-16, in which front matter is not looked for; save it as UTF-8",
        "half-utf-8": "front matter is not valid UTF-8",
    }


def test_agent_md_that_may_not_be_read(shared: Path) -> None:
    written(shared / ".oryxos", "ops", OLD, OLD, page=page("    dedupe: no\n")).with_name("AGENT.md").chmod(0)
    command = as_user(NOBODY, "memory", "clean", "--all-agents", "-q", "--root", ".", "--dry-run")
    result = real(command, env=CRON, cwd=shared)
    assert (result.code, result.out) == (3, "")
    assert re.fullmatch(
        r"oryx: ops skipped: \S+/AGENT\.md: permission denied \(owner \d+, mode 0000, .*\)\n", result.err
    )


KEYS = st.sampled_from(
    ["older_than", "keep_chars", "keep_entries", "dedupe", "purge_retired", "max_share", "older-than", "保留"]
)
VALUES = st.one_of(
    st.sampled_from(["90d", "12h", "2w", "0d", "", "90", "九十天", 0.5, 0.25, 1.5, -1.0, [], ["90d"]]),
    st.booleans(),
    st.integers(-2, 5000),
)


@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_agent_md_says_what_memory_toml_would_say(table: dict[str, Any]) -> None:
    """The same values, the same policy; the same mistakes, the same words."""
    with TemporaryDirectory() as folder:
        list(initialise(Path(folder)))
        workspace = named(Path(folder))
        toml = "".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in table.items())
        yaml = "".join(f"    {key}: {json.dumps(value)}\n" for key, value in table.items())
        written(workspace.root, "ops", page=page(yaml))
        own = workspace.agent_page("ops")

        def outcome(toml: str) -> object:
            workspace.settings_file.write_text(f"[clean]\n{toml}", encoding="utf-8")
            try:
                chosen = settings.load(workspace.root, {})
                return chosen.policy() if toml else chosen.policy(workspace.front_matter("ops"), own)
            except SettingsError as error:
                return str(error).removeprefix(f"{error.path}: ").replace("memory.", "").partition(";")[0]

        assert outcome("") == outcome(toml)


def test_yaml_is_imported_only_where_there_is_front_matter(root: Path) -> None:
    code = "import sys\nfrom oryx_memory.cli.main import oryx_memory\ntry:\n    oryx_memory()\nfinally:\n"
    code += "    print(*(name for name in ('frontmatter', 'yaml') if name in sys.modules), file=sys.stderr)"
    command = [sys.executable, "-c", code, "clean", "--all-agents", "-q"]
    written(root, "ops", YOUNG, page="# 值班\n")
    assert real(command, cwd=root) == (0, "", "\n")
    written(root, "ops", YOUNG, page=page(""))
    assert real(command, cwd=root) == (0, "", "frontmatter yaml\n")


# The examples of docs/cron.md.


def crontab() -> tuple[dict[str, str], list[str]]:
    """The variables and the commands of docs/examples/crontab, as cron reads them."""
    variables: dict[str, str] = {}
    commands = []
    for line in (EXAMPLES / "crontab").read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if match := re.fullmatch(r"([A-Z_]+)=(.*)", line):
            variables[match[1]] = match[2]
            continue
        *when, command = line.split(None, 5)
        assert all(re.fullmatch(r"[\d*/,-]+", field) for field in when), line
        assert not re.search(r"(?<!\\)%", command), "cron cuts a command at a bare %"
        commands.append(command.replace("\\%", "%"))
    return variables, commands


def unit(name: str) -> dict[str, str]:
    """The settings of a systemd unit."""
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    return dict(line.split("=", 1) for line in text.splitlines() if re.match("[A-Za-z]+=", line))


def in_place(text: str, place: Path) -> str:
    """An example with the paths of this test in place of its own."""
    assert "/opt/oryx-memory/bin/oryx" in text
    text = text.replace("/opt/oryx-memory/bin/oryx", ORYX).replace("/srv/bots", str(place))
    return text.replace("/var/log/oryx-memory", str(place))


def as_cron(command: str, **variables: str) -> Result:
    settings = [f"{name}={value}" for name, value in {**CRON, **variables}.items()]
    return real(["env", "-i", *settings, "sh", "-c", command], cwd=Path("/"))


def test_the_commands_of_the_crontab_run_in_an_empty_environment(root: Path) -> None:
    variables, commands = crontab()
    assert variables["PATH"] == CRON["PATH"]
    assert {"SHELL", "MAILTO", "CRON_TZ"} < set(variables)
    nightly, weekly, forecast = (in_place(command, root.parent) for command in commands)
    ops = written(root, "ops", OLD, OLD, YOUNG)
    before = ops.read_bytes()
    done = as_cron(forecast, **variables)
    assert done == (0, "ops: would retire 2 of 3 archival entries (1 older than 365d, 1 duplicate)\n", "")
    done = as_cron(nightly, **variables)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("ops: retired 2 of 3 archival entries (1 older than 90d, 1 duplicate); undo: ")
    assert as_cron(f"{undo_of(done.out)} --quiet") == (0, "", "")
    assert ops.read_bytes() == before
    assert as_cron(weekly, **variables) == (0, "", "")
    (log,) = root.parent.glob("clean-*.jsonl")
    assert re.fullmatch(r"clean-\d{4}-\d\d\.jsonl", log.name)
    records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert [(record["agent"], record["retired"]) for record in records] == [(None, {}), ("ops", {"duplicate": 1})]
    (root / "agents" / "broken" / "MEMORY.md").mkdir(parents=True)
    failed = as_cron(nightly, **variables)
    assert (failed.code, failed.err.count("\n")) == (3, 1)


def test_the_command_of_the_systemd_service_runs_in_an_empty_environment(root: Path) -> None:
    service = unit("oryx-memory-clean.service")
    command = in_place(service["ExecStart"], root.parent)
    assert "%" not in command.replace("%%", "")
    name, value = service["Environment"].split("=")
    written(root, "ops", OLD, YOUNG)
    done = as_cron(command.replace("%%", "%"), **{name: value})
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("ops: retired 1 of 2 archival entries (1 older than 90d); undo: ")
    assert as_cron(command, **{name: value}) == (0, "", "")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    files = []
    for path in sorted(EXAMPLES.glob("oryx-memory-clean.*")):
        files.append(tmp_path / path.name)
        text = path.read_text(encoding="utf-8")
        files[-1].write_text(in_place(text, tmp_path) if path.suffix == ".service" else text, encoding="utf-8")
    assert [file.suffix for file in files] == [".service", ".timer"]
    assert real(["systemd-analyze", "verify", *map(str, files)], env=with_path(), cwd=tmp_path) == (0, "", "")
    calendar = unit("oryx-memory-clean.timer")["OnCalendar"]
    assert real(["systemd-analyze", "calendar", calendar], env=with_path()).code == 0


def test_the_page_shows_the_commands_of_the_files() -> None:
    text = (EXAMPLES.parent / "cron.md").read_text(encoding="utf-8")
    for command in (*crontab()[1], unit("oryx-memory-clean.service")["ExecStart"]):
        assert command.replace("%", "\\%") in text
    for name in ("crontab", "oryx-memory-clean.service", "oryx-memory-clean.timer"):
        assert f"(examples/{name})" in text
