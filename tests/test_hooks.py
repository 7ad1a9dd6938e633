"""The hooks of a coding agent: its real JSON, through real processes; and the laws of the answer and of the transcript."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import FRIDAY, ORYX, PATIENCE, UV, after, make_ops, real, with_path
from hypothesis import given
from hypothesis import strategies as st
from strategies import entries, texts

from oryx_memory import Entry, Scope, open_memory
from oryx_memory.cli.hooks import _lines_backward
from oryx_memory.errors import FileProblem, RejectedInput
from oryx_memory.hooks import LIMIT, TAKES_CONTEXT, Event, context, frame, last_turn, parse_event
from oryx_memory.window import load

MCP_PAGE = Path(__file__).parent.parent / "docs" / "mcp.md"
BLOCK = re.compile(r"<memory-([0-9a-f]{16})>\n(.*?)\n(.*)\n</memory-\1>", re.DOTALL)
SESSION = "00893aaf-19fa-41d2-8238-13269b9b3ca0"
RECORD = ("record", "--hook", "claude-code", "-a", "ops")
CONTEXT = ("context", "--hook", "claude-code", "-a", "ops")


def event(name: str, folder: Path, **more: Any) -> bytes:
    """What the client sends, with the fields that it has for each event."""
    given = {
        "session_id": SESSION,
        "transcript_path": str(folder / "transcript.jsonl"),
        "cwd": str(folder),
        "permission_mode": "default",
        "hook_event_name": name,
    }
    return json.dumps(given | more).encode()


def said(content: Any, number: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "parentUuid": None,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/project",
        "sessionId": SESSION,
        "version": "2.1.14",
        "gitBranch": "main",
        "type": "user",
        "message": {"role": "user", "content": content},
        "uuid": f"610cc996-000a-4690-b67e-{number:012}",
        "timestamp": "2026-02-01T14:59:02.592Z",
    } | more


def replied(*blocks: Any, number: int = 1, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    return {
        "isSidechain": False,
        "sessionId": SESSION,
        "type": "assistant",
        "message": {
            "model": "claude-opus-4-6",
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "content": content,
            "stop_reason": None,
        },
        "uuid": f"700505d4-46d3-44ab-b1d3-{number:012}",
    } | more


CALL = {"type": "tool_use", "id": "toolu_01", "name": "Bash", "input": {"command": "ls"}}
RESULT = said([{"type": "tool_result", "tool_use_id": "toolu_01", "content": "no words of the user"}], toolUseResult={})
NOISE = [
    {"type": "file-history-snapshot", "messageId": "1", "snapshot": {}},
    {"type": "summary", "summary": "Earlier", "leafUuid": "2"},
    {"type": "system", "subtype": "stop_hook_summary", "content": "x"},
    {"type": "user"},
    {"type": "user", "message": "no object"},
    {"type": "something-new", "message": {"role": "user", "content": "?"}},
    said("Caveat: the messages below …", isMeta=True),
    said("do a part of it", isSidechain=True),
    replied("part done", number=9, isSidechain=True),
    said("This session is being continued …", isCompactSummary=True),
    said("<local-command-stdout>ok</local-command-stdout>"),
    said("[Request interrupted by user]"),
    said([{"type": "text", "text": "<system-reminder>be nice</system-reminder>"}]),
]
TURN = [
    said("第一个问题"),
    replied("first answer", number=1),
    said("明天上线要谁复核？", 2),
    replied({"type": "thinking", "thinking": "hm"}, "I shall look.", number=2),
    replied(CALL, number=2),
    RESULT,
    replied({"type": "thinking", "thinking": "so"}, number=3),
    replied("两人复核：Lin and Wang.", number=3),
    *NOISE,
]
FOOTPRINT = "触发「明天上线要谁复核？」⇒ 两人复核：Lin and Wang."


def jsonl(records: list[dict[str, Any]], torn: bytes = b"") -> bytes:
    return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records) + torn


def transcript(folder: Path, *records: dict[str, Any], torn: bytes = b"") -> None:
    (folder / "transcript.jsonl").write_bytes(jsonl(list(records), torn))


def hook(*arguments: str, stdin: bytes, cwd: Path, env: dict[str, str] | None = None) -> Any:
    return real([ORYX, "memory", *arguments], stdin=stdin, cwd=cwd, env={**os.environ, **(env or {})})


def footprints(folder: Path, agent: str = "ops") -> list[str]:
    return [entry.content for entry in open_memory(agent, root=folder).read().archival if "触发" in entry.content]


def given_to_the_model(out: str, name: str = "SessionStart") -> str:
    """The context that the client takes from an answer."""
    answer = json.loads(out)
    assert answer["hookSpecificOutput"]["hookEventName"] == name
    found = answer["hookSpecificOutput"]["additionalContext"]
    assert isinstance(found, str)
    return found


# Context.


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("SessionStart", {"source": "startup", "model": "claude-opus-4-6"}),
        ("UserPromptSubmit", {"prompt": "部署 to production?"}),
        ("SubagentStart", {"agent_id": "a1", "agent_type": "Explore"}),
    ],
)
def test_context_gives_the_model_the_block_of_load(name: str, more: dict[str, Any], tmp_path: Path) -> None:
    make_ops(tmp_path)
    done = hook(*CONTEXT, stdin=event(name, tmp_path, **more), cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    found = BLOCK.fullmatch(given_to_the_model(done.out, name))
    assert found
    assert found[3] == str(open_memory("ops", root=tmp_path).load())


@pytest.mark.parametrize("name", ["Stop", "SubagentStop", "SessionEnd", "PreCompact", "Notification", "Neues"])
def test_context_at_an_event_that_takes_none_is_one_line_and_exit_code_1(name: str, tmp_path: Path) -> None:
    make_ops(tmp_path)
    done = hook(*CONTEXT, stdin=event(name, tmp_path), cwd=tmp_path)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert name in done.err


def test_context_of_an_agent_that_is_not_there_is_empty(tmp_path: Path) -> None:
    make_ops(tmp_path)
    done = hook("context", "--hook", "claude-code", "-a", "new", stdin=event("SessionStart", tmp_path), cwd=tmp_path)
    assert done.code == 0
    assert "\n## 核心记忆\n\n## 归档记忆\n\n</memory-" in given_to_the_model(done.out)
    assert not (tmp_path / ".oryxos" / "agents" / "new").exists()


def test_what_does_not_fit_is_said_in_the_text_and_on_standard_error(tmp_path: Path) -> None:
    core = "".join(f"- [2026-07-01 08:00:{n:02}] 核心 {n} {'字' * 400}\n" for n in range(30))
    archival = "".join(f"- [2026-07-02 08:00:{n:02}] archived {n} {'x' * 60}\n" for n in range(50))
    make_ops(tmp_path, f"## 核心记忆\n{core}\n## 归档记忆\n{archival}")
    done = hook(*CONTEXT, stdin=event("SessionStart", tmp_path), cwd=tmp_path)
    assert done.code == 0
    assert len(done.out) <= LIMIT
    given = given_to_the_model(done.out)
    kept = len(re.findall("核心 [0-9]", given))
    assert 15 < kept < 30
    words = re.search(r"left out: (\d+) core entries and (\d+) older archival entries", done.err)
    assert words
    assert int(words[1]) == 30 - kept
    assert int(words[2]) == 50 - given.count("archived")
    assert words[0] in given


@pytest.mark.parametrize("max_chars", [20_000, 9_000])
def test_a_newest_entry_that_is_larger_than_the_room_is_shown_from_its_start(max_chars: int, tmp_path: Path) -> None:
    newest = Entry("- [2026-07-02 08:00:09] 最新 " + "字x" * 6_000)
    archival = [*(Entry(f"- older {number}") for number in range(4)), newest]
    found = context(Event("SessionStart"), load((), reversed(archival), 5, max_chars), "ops")
    given = json.loads(found.text)["hookSpecificOutput"]["additionalContext"]
    shown = re.search(r"- \[2026-07-02 08:00:09\] 最新 [字x]+(?=…（已截断 (\d+) 字)", given)
    assert shown
    assert len(shown[0]) > 8_000
    assert len(shown[0]) + int(shown[1]) == len(newest.text)
    assert found.left_out == (
        f"left out: 4 older archival entries and {int(shown[1]):,} characters of the newest archival entry"
    )
    core = [Entry("- " + "核" * 8_460, Scope.CORE)]
    full = context(Event("SessionStart"), load(core, reversed(archival), 5, max_chars), "ops")
    assert full.left_out == "left out: 5 archival entries"


@given(
    st.lists(entries(), max_size=8),
    st.lists(texts.filter(lambda text: text.strip()), max_size=4),
    st.sampled_from([1, 1, 60]),
    st.sampled_from([1, 40, 4_000, 40_000]),
)
def test_an_answer_is_always_json_within_the_limit_and_no_text_ends_its_block(
    found: list[Entry], odd: list[str], times: int, max_chars: int
) -> None:
    found += [Entry(f"- {text}", Scope.CORE) for text in odd]
    core = [entry for entry in found if entry.scope is Scope.CORE] * times
    archival = [entry for entry in found if entry.scope is Scope.ARCHIVAL] * times
    memory = load(core, reversed(archival), len(archival), max_chars)
    made = context(Event("SessionStart"), memory, "ops")
    assert len(made.text.encode("utf-16-le", "surrogatepass")) // 2 <= LIMIT
    given = json.loads(made.text)["hookSpecificOutput"]["additionalContext"]
    block = BLOCK.fullmatch(given)
    assert block
    assert given.count(block[1]) == 3  # the first line, the one that names the last, and the last
    if len(str(memory)) < (LIMIT - 1_000) // 12:  # no character is longer in JSON
        assert block[3].startswith(str(memory))
    assert made.left_out in given
    if not made.left_out:
        assert block[3] == str(memory)


@given(st.lists(texts, max_size=3).map("\n".join))
def test_a_frame_that_is_part_of_a_memory_does_not_end_the_memory(text: str) -> None:
    inner = frame(text, "ops")
    outer = frame(inner, "ops")
    marks = [re.findall(r"memory-([0-9a-f]{16})", found)[0] for found in (inner, outer)]
    assert outer.endswith(f"\n</memory-{marks[1]}>")
    assert marks[1] not in inner
    assert outer.count(f"<memory-{marks[1]}>\n") == 1


# Record.


def test_a_turn_is_recorded_once_with_what_the_user_said_and_the_last_reply(tmp_path: Path) -> None:
    make_ops(tmp_path)
    transcript(tmp_path, *TURN, torn=b'{"type":"user","message":{"role":"user","content":"half \xe5')
    stop = event("Stop", tmp_path, stop_hook_active=False)
    done = hook(*RECORD, stdin=stop, cwd=tmp_path)
    assert (done.code, done.out) == (0, "")
    assert footprints(tmp_path) == [FOOTPRINT]
    for again in (stop, event("Stop", tmp_path, stop_hook_active=True)):
        done = hook(*RECORD, stdin=again, cwd=tmp_path)
        assert (done.code, done.out, done.err.count("\n")) == (0, "", 1)
        assert "nothing recorded" in done.err
    assert footprints(tmp_path) == [FOOTPRINT]
    assert hook(*RECORD[:-1], "other", stdin=stop, cwd=tmp_path).code == 0
    assert footprints(tmp_path, "other") == [FOOTPRINT]
    transcript(tmp_path, *TURN, said("明天上线要谁复核？", 3), replied("两人复核：Lin and Wang.", number=4))
    assert hook(*RECORD, stdin=stop, cwd=tmp_path).code == 0
    assert footprints(tmp_path) == [FOOTPRINT] * 2  # the same words in another turn


def test_many_hooks_of_one_turn_at_once_record_it_once(tmp_path: Path) -> None:
    make_ops(tmp_path)
    transcript(tmp_path, *TURN)
    started = [subprocess.Popen([ORYX, "memory", *RECORD, "-q"], stdin=-1, cwd=tmp_path) for _ in range(4)]
    for process in started:
        assert process.stdin
        process.stdin.write(event("Stop", tmp_path))
        process.stdin.close()
    assert [process.wait(PATIENCE) for process in started] == [0] * 4
    assert footprints(tmp_path) == [FOOTPRINT]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("backend", ["markdown", "sqlite"])
def test_a_hook_that_is_killed_around_the_append_and_called_again_records_the_turn_once(
    moment: str, backend: str, tmp_path: Path
) -> None:
    make_ops(tmp_path)
    (tmp_path / ".oryxos" / "memory.toml").write_text(f'backend = "{backend}"\n')
    transcript(tmp_path, *TURN)
    act = {"before": "die()", "after": "record(*words, **more); die()"}[moment]
    prelude = (
        "import os\nfrom oryx_memory.service import MemoryService\nrecord = MemoryService.record_trigger\n"
        f"def die(): os.kill(os.getpid(), 9)\ndef killed(*words, **more): {act}\n"
        "MemoryService.record_trigger = killed"
    )
    assert real(after(prelude, "memory", *RECORD), stdin=event("Stop", tmp_path), cwd=tmp_path).code == -9
    assert footprints(tmp_path) == [FOOTPRINT] * (moment == "after")
    for _ in range(2):
        assert hook(*RECORD, stdin=event("Stop", tmp_path), cwd=tmp_path).code == 0
        assert footprints(tmp_path) == [FOOTPRINT]


def test_the_reply_that_the_client_gives_counts_before_a_transcript_that_lags_behind(tmp_path: Path) -> None:
    make_ops(tmp_path)
    transcript(tmp_path, said("明天上线要谁复核？"))
    stop = event("Stop", tmp_path, stop_hook_active=False, last_assistant_message="两人复核：Lin and Wang.")
    assert hook(*RECORD, stdin=stop, cwd=tmp_path).code == 0
    assert footprints(tmp_path) == [FOOTPRINT]


def test_a_blank_reply_of_the_client_does_not_hide_that_of_the_transcript(tmp_path: Path) -> None:
    make_ops(tmp_path)
    transcript(tmp_path, *TURN)
    assert hook(*RECORD, stdin=event("Stop", tmp_path, last_assistant_message=" \n"), cwd=tmp_path).code == 0
    assert footprints(tmp_path) == [FOOTPRINT]


@pytest.mark.parametrize(
    "more", [{}, {"last_assistant_message": "API Error: 529"}], ids=["without-reply", "with-reply"]
)
def test_a_reply_that_is_an_error_is_not_recorded(more: dict[str, str], tmp_path: Path) -> None:
    make_ops(tmp_path)
    transcript(tmp_path, said("hi"), replied("API Error: 529 Overloaded", isApiErrorMessage=True))
    done = hook(*RECORD, stdin=event("Stop", tmp_path, **more), cwd=tmp_path)
    assert (done.code, done.out) == (0, "")
    assert footprints(tmp_path) == []


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([], None),
        (NOISE, None),
        ([replied("nobody asked")], None),
        ([said("x"), RESULT], ("x", "")),
        (
            [said([{"type": "text", "text": "看图"}, {"type": "image", "source": {}}]), replied("一只猫")],
            ("看图", "一只猫"),
        ),
        ([said([{"type": "image", "source": {}}]), replied("a cat")], ("[image]", "a cat")),
        (
            [
                said(
                    "<command-message>review</command-message>\n<command-name>/review</command-name>\n<command-args>PR 7</command-args>"
                )
            ],
            ("/review PR 7", ""),
        ),
        ([said([{"type": {}}, {"type": None}, {"type": 5}, {"type": "image"}]), replied("b")], ("[image]", "b")),
        ([said([{"type": {}}]), replied("b")], None),
        ([said("<command-name>" + " " * 100_000 + "x")], ("<command-name>" + " " * 100_000 + "x", "")),
        ([said("<command-name> /clear </command-name>")], ("/clear", "")),
        ([said("a <command-name> in a question"), replied("b")], ("a <command-name> in a question", "b")),
        ([said("x"), replied("one", number=1), replied("two", number=1)], ("x", "one\ntwo")),
        ([said("x"), replied("one", number=1), replied("two", number=2)], ("x", "two")),
    ],
)
def test_what_counts_in_a_transcript(records: list[dict[str, Any]], expected: tuple[str, str] | None) -> None:
    found = last_turn(reversed(jsonl(records).split(b"\n")))
    assert (found and found[:2]) == expected


@given(st.lists(st.binary(max_size=30), max_size=20), st.integers(1, 40))
def test_whatever_a_transcript_holds_the_turn_at_its_end_is_found(garbage: list[bytes], size: int) -> None:
    lines = [*garbage, *jsonl(TURN).split(b"\n"), b"[" * 100_000, b'{"type":"assistant","message":{"con']
    found = last_turn(reversed(b"\n".join(lines).split(b"\n")))
    assert found
    assert found.said == "明天上线要谁复核？"


@given(st.binary(max_size=200), st.integers(1, 20))
def test_lines_backward_are_the_lines(data: bytes, chunk: int) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile() as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr("oryx_memory.cli.hooks._CHUNK", chunk)
        file.write(data)
        file.flush()
        assert list(_lines_backward(Path(file.name))) == data.split(b"\n")[::-1]


def test_a_large_transcript_is_read_from_its_end(tmp_path: Path) -> None:
    make_ops(tmp_path)
    image = said(
        [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image", "source": "A" * 20_000_000}]}]
    )
    transcript(tmp_path, *TURN[:5], image, *TURN[6:])
    assert hook(*RECORD, stdin=event("Stop", tmp_path), cwd=tmp_path).code == 0
    assert footprints(tmp_path) == [FOOTPRINT]


def test_credentials_and_control_characters_of_a_turn_do_not_reach_the_memory_or_the_terminal(tmp_path: Path) -> None:
    make_ops(tmp_path)
    token = "ghp_" + "a1B2" * 9
    transcript(tmp_path, said(f"use {token}\x1b[2J\nnow"), replied("done #tag ^key \x07"))
    done = hook(*RECORD, stdin=event("Stop", tmp_path), cwd=tmp_path)
    assert done.code == 0
    (found,) = footprints(tmp_path)
    assert token not in found
    assert "\x1b" not in found + done.err
    assert found.endswith("done ＃tag ＾key")


# Exit codes, input, project.


@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        (RECORD, b"", "nothing came"),
        (CONTEXT, b"", "nothing came"),
        (RECORD, b"not json", "hook_event_name"),
        (RECORD, b"[]", "hook_event_name"),
        (CONTEXT, b'{"hook_event_name": 7}', "hook_event_name"),
        (RECORD, b"[" * 200_000, "hook_event_name"),
        (RECORD, b'{"hook_event_name": "Stop"}', "transcript_path"),
        (RECORD, b'{"hook_event_name": "SubagentStop"}', "SubagentStop"),
        (RECORD, b'{"hook_event_name": "Stop", "transcript_path": "/nowhere/x.jsonl"}', "/nowhere/x.jsonl"),
        (RECORD, b'{"hook_event_name": "Stop", "transcript_path": "/dev/zero"}', "no regular file"),
        (RECORD, b'{"hook_event_name": "Stop", "transcript_path": "fifo"}', "no regular file"),
        (RECORD, b'{"hook_event_name": "Stop", "transcript_path": "a\\u0000b"}', "cannot be read"),
        (RECORD, b'{"hook_event_name": "Stop", "transcript_path": "~nosuchuser/x"}', "~nosuchuser/x"),
        (RECORD, b'{"hook_event_name": "Stop", "transcript_path": "~a\\u0000b/x"}', "cannot be read"),
        (RECORD, b'{"hook_event_name": "Stop", "transcript_path": "empty"}', "no message of the user"),
        ((*RECORD, "--no-such-option"), b"{}", "--no-such-option"),
        (("record",), b"{}", "--hook"),
        (("record", "--hook", "emacs"), b"{}", "emacs"),
        (("context", "--hook=vi", "-a", "ops"), b"{}", "vi"),
        (("context", "--hook", "claude-code", "-a", "../x"), b'{"hook_event_name": "SessionStart"}', "unsafe"),
        (("context", "--hook", "claude-code", "--root", "/nowhere"), b'{"hook_event_name": "SessionStart"}', "/nowhere"),
    ],
)  # fmt: skip
def test_a_hook_that_cannot_be_served_ends_with_1_and_one_line(
    arguments: tuple[str, ...], stdin: bytes, words: str, tmp_path: Path
) -> None:
    make_ops(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "empty").touch()
    done = hook(*arguments, stdin=stdin, cwd=tmp_path)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1), done.err
    assert words in done.err


@pytest.mark.parametrize(
    "command",
    [
        "memory --root /x record --hook claude-code",
        "memory --root=/x record --hook claude-code",
        "memory --bogus context --hook claude-code",
        "--bogus memory record --hook claude-code",
        "memory contxt --hook claude-code",
        "memory recrod --hook=claude-code",
        "memory record",
        "record",
    ],
)
def test_no_misspelt_hook_ends_with_2(command: str, tmp_path: Path) -> None:
    done = real([ORYX, *command.split()], cwd=tmp_path)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)


def test_a_text_that_is_the_name_of_a_hook_changes_no_exit_code(tmp_path: Path) -> None:
    make_ops(tmp_path)
    assert real([ORYX, "memory", "append", "-a", "ops", "record", "--bogus"], cwd=tmp_path).code == 2


def test_an_open_silent_standard_input_is_not_waited_for(tmp_path: Path) -> None:
    make_ops(tmp_path)
    with subprocess.Popen([ORYX, "memory", *RECORD], cwd=tmp_path, stdin=-1, stdout=-1, stderr=-1) as process:
        assert process.wait(PATIENCE) == 1
        assert process.stdout
        assert process.stderr
        assert process.stdout.read() == b""
        assert process.stderr.read().count(b"\n") == 1


def test_a_client_that_leaves_standard_input_open_is_served(tmp_path: Path) -> None:
    make_ops(tmp_path)
    with subprocess.Popen([ORYX, "memory", *CONTEXT], cwd=tmp_path, stdin=-1, stdout=-1, stderr=-1) as process:
        assert process.stdin
        process.stdin.write(event("SessionStart", tmp_path))
        process.stdin.flush()
        assert process.wait(PATIENCE) == 0
        assert process.stdout
        assert UV in given_to_the_model(process.stdout.read().decode())


def test_the_project_of_a_hook_is_found_in_the_documented_order(tmp_path: Path) -> None:
    names = ("root", "env", "claude", "json", "cwd")
    for name in names:
        (tmp_path / name / ".oryxos" / "memory").mkdir(parents=True)
        (tmp_path / name / "src").mkdir()
        (tmp_path / name / ".oryxos" / "memory" / "MEMORY.md").write_text(f"## 核心记忆\n- here is {name}\n")
    for number, expected in enumerate(names):
        use = names[number:]
        env = {"ORYXOS_ROOT": str(tmp_path / "env")} if "env" in use else {}
        env |= {"CLAUDE_PROJECT_DIR": str(tmp_path / "claude")} if "claude" in use else {}
        arguments = ["--root", str(tmp_path / "root")] if "root" in use else []
        stdin = event("SessionStart", tmp_path / "json" / "src" if "json" in use else tmp_path)
        done = hook("context", "--hook", "claude-code", *arguments, stdin=stdin, cwd=tmp_path / "cwd" / "src", env=env)
        assert f"here is {expected}" in given_to_the_model(done.out), expected
    done = hook("context", "--hook", "claude-code", stdin=event("SessionStart", tmp_path), cwd=Path("/"))
    assert (done.code, done.out) == (1, "")
    assert "oryx memory init" in done.err
    done = hook("context", "--hook", "claude-code", stdin=b'{"hook_event_name":"SessionStart"}', cwd=Path("/"))
    assert (done.code, "no .oryxos folder for /;" in done.err) == (1, True)


def test_hooks_import_nothing_of_a_server(tmp_path: Path) -> None:
    make_ops(tmp_path)
    transcript(tmp_path, *TURN)
    code = "import sys\nfrom oryx_memory.cli.main import oryx_memory\ntry:\n    oryx_memory()\nfinally:\n"
    code += "    print(*sys.modules, file=sys.stderr)"
    for name, arguments in (("Stop", RECORD), ("SessionStart", CONTEXT)):
        command = [sys.executable, "-c", code, *arguments]
        done = subprocess.run(command, cwd=tmp_path, input=event(name, tmp_path), capture_output=True, check=True)
        loaded = {module.split(".")[0] for module in done.stderr.decode().split()}
        assert "oryx_memory" in loaded
        assert loaded & {"mcp", "anyio", "pydantic", "asyncio", "rich", "yaml", "numpy", "httpx"} == set()


def test_the_recipes_in_the_docs_work(tmp_path: Path) -> None:
    make_ops(tmp_path)
    transcript(tmp_path, *TURN)
    blocks = re.findall(r"^```json\n(.*?)^```$", MCP_PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (settings,) = (found for found in map(json.loads, blocks) if "hooks" in found)
    commands = {
        name: [hooked["command"] for group in groups for hooked in group["hooks"]]
        for name, groups in settings["hooks"].items()
    }
    assert set(commands) == {"SessionStart", "Stop"}
    outputs = {}
    for name, (command,) in commands.items():
        done = real(
            ["sh", "-c", command],
            stdin=event(name, tmp_path, source="startup", stop_hook_active=False),
            env=with_path(CLAUDE_PROJECT_DIR=str(tmp_path)),
            cwd=Path("/"),
        )
        assert done.code == 0, done.err
        outputs[name] = done.out
    assert FRIDAY in given_to_the_model(outputs["SessionStart"])
    assert outputs["Stop"] == ""
    assert footprints(tmp_path) == [FOOTPRINT]


def test_errors_of_events_carry_their_words() -> None:
    with pytest.raises(RejectedInput):
        parse_event(b"\xff")
    assert parse_event(b'{"hook_event_name":"Stop","stop_hook_active":"yes","cwd":null}') == Event("Stop")
    with pytest.raises(FileProblem):
        list(_lines_backward(Path("/dev/null")))
    assert set(TAKES_CONTEXT) == {"SessionStart", "UserPromptSubmit", "SubagentStart"}
