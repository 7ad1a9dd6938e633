"""The commands in process, as tables; the acceptance examples; help and completion run for real."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from command import (
    FRIDAY,
    FRIDAY_ID,
    LOADED,
    OPS,
    ORYX,
    PATIENCE,
    RELEASE,
    RELEASE_ID,
    SCRIPTS,
    STAMP,
    UV,
    UV_ID,
    checked,
    make_ops,
    memory,
    real,
    retired_file,
    run,
    with_path,
)

from oryx_memory import Entry
from oryx_memory.messages import Message, ToolCall
from oryx_memory.sessions import Sessions

AT = "--at '2026-08-01 10:00:00'"
TIMED = r"- \[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\]"
JSON_FRIDAY = (
    f'{{"id":"{FRIDAY_ID}","agent":"ops","scope":"core","time":"2026-07-01T08:00:00",'
    f'"content":"Never deploy on Friday","line":"{FRIDAY}","tags":[],"key":null,"type":"note"}}'
)
JSON_RELEASE = (
    f'{{"id":"{RELEASE_ID}","agent":"ops","scope":"archival","time":"2026-07-22T09:30:00",'
    f'"content":"上线前必须两人复核 #流程 ^release_rule","line":"{RELEASE}",'
    '"tags":["流程"],"key":"release_rule","type":"note"}'
)
JSON_UV = (
    f'{{"id":"{UV_ID}","agent":"ops","scope":"archival","time":"2026-07-22T09:31:00",'
    f'"content":"Use uv, not pip #tooling","line":"{UV}","tags":["tooling"],"key":null,"type":"note"}}'
)


class Case(NamedTuple):
    """A command behind `oryx memory` as it is typed, and what it gives. `{root}` stands for the `.oryxos` folder.

    `err`: what the one line on standard error says; nothing there if it is empty. `after`: MEMORY.md of ops then.
    """

    id: str
    arguments: str
    code: int = 0
    out: str = ""
    err: tuple[str, ...] = ()
    stdin: str = ""
    after: str = OPS


def tree(folder: Path) -> dict[str, bytes | str]:
    """Every file and folder below, but for the locks."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else str(path.is_dir())
        for path in folder.rglob("*")
        if ".locks" not in path.parts
    }


def says(err: str, fragments: tuple[str, ...]) -> None:
    """Standard error is one line with these words in it, or empty if there are none."""
    if not fragments:
        assert err == ""
        return
    assert err.endswith("\n")
    assert err.count("\n") == 1, err
    for fragment in fragments:
        assert fragment in err


def check(case: Case, root: Path) -> None:
    result = memory(*shlex.split(case.arguments), stdin=case.stdin)
    fill = str(root)
    assert (result.code, result.out) == (case.code, case.out.replace("{root}", fill)), result.err
    says(result.err, tuple(fragment.replace("{root}", fill) for fragment in case.err))


READING = (
    Case("overview", "", out="workspace\t{root}\nbackend\tmarkdown\n(global)\t0\t0\t0\nops\t1\t2\t0\n", err=("next:",)),
    Case("load", "load -a ops", out=LOADED),
    Case("load-core", "load -a ops --scope core", out=f"{FRIDAY}\n"),
    Case("load-archival", "load -a ops --scope archival", out=f"{RELEASE}\n{UV}\n"),
    Case("load-global-is-empty", "load", out="## 核心记忆\n\n## 归档记忆\n\n"),
    Case(
        "load-window",
        f"load -a ops --max-chars {len(UV)}",
        out=f"## 核心记忆\n{FRIDAY}\n## 归档记忆\n{UV}\n",
        err=("left out: 1 older archival entry", "--full"),
    ),
    Case("load-window-quiet", f"load -a ops -q --scope archival --max-chars {len(UV)}", out=f"{UV}\n"),
    Case("load-window-fits-exactly", f"load -a ops --max-chars {len(RELEASE) + 1 + len(UV)}", out=LOADED),
    Case("load-full", "load -a ops --full", out=LOADED),
    Case("recall", "recall -a ops 复核", out=f"{RELEASE}\n"),
    Case("recall-alias-search", "search -a ops 复核", out=f"{RELEASE}\n"),
    Case("recall-in-order-of-the-file", "recall -a ops 2026-07-22", out=f"{RELEASE}\n{UV}\n"),
    Case("recall-caseless", "recall -a ops 'USE UV'", out=f"{UV}\n"),
    Case("recall-full-width", "recall -a ops ｕｖ", out=f"{UV}\n"),
    Case("recall-tag-in-text", "recall -a ops '#流程'", out=f"{RELEASE}\n"),
    Case("recall-key-in-text", "recall -a ops ^release_rule", out=f"{RELEASE}\n"),
    Case("recall-percent-is-text", "recall -a ops 'U%uv'", 1, err=("contains 'U%uv'",)),
    Case("recall-underscore-is-text", "recall -a ops 'release.rule'", 1, err=("no archival entry of ops",)),
    Case("recall-newest-one", "recall -a ops --limit 1 2026", out=f"{UV}\n"),
    Case("recall-since", "recall -a ops --since 2026-07-22T09:31 2026", out=f"{UV}\n"),
    Case("recall-until", "recall -a ops --until '2026-07-22 09:31:00' 2026", out=f"{RELEASE}\n"),
    Case("recall-with-tag", "recall -a ops --tag 流程 2026", out=f"{RELEASE}\n"),
    Case("recall-with-two-tags", "recall -a ops --tag 流程 --tag tooling 2026", 1, err=("within these limits",)),
    Case("recall-count", "recall -a ops --count 2026", out="2\n"),
    Case("recall-count-nothing", "recall -a ops --count 没有", 1, out="0\n", err=("'没有'",)),
    Case("recall-json", "recall -a ops --json uv", out=f"[{JSON_UV}]\n"),
    Case("recall-json-nothing", "recall -a ops --json 没有", 1, out="[]\n", err=("'没有'",)),
    Case("recall-all-agents", "recall --all-agents 2026", out=f"ops\t{RELEASE}\nops\t{UV}\n"),
    Case("recall-all-agents-nothing", "recall --all-agents 没有", 1, err=("any agent",)),
    Case("recall-empty", "recall -a ops ''", 2, err=("empty",)),
    Case("recall-blank", "recall -a ops '　'", 2, err=("blank",)),
    Case("recall-without-query", "recall -a ops", 2, err=("QUERY",)),
    Case("recall-words", "recall -a ops not pip", 2, err=("expected one query, got 2 words", "-a ops 'not pip'")),
    Case("recall-unknown-mode", "recall -a ops --mode fuzzy uv", 2, err=("keyword", "ranked")),
    Case("recall-limit-zero", "recall -a ops -n 0 uv", 2, err=("--limit",)),
    Case("recall-bad-time", "recall -a ops --since gestern uv", 2, err=("not a time: 'gestern'",)),
    Case("list", "list -a ops", out=f"{FRIDAY}\n{RELEASE}\n{UV}\n"),
    Case("list-core", "list -a ops --scope core", out=f"{FRIDAY}\n"),
    Case("list-newest", "list -a ops -n 1", out=f"{UV}\n"),
    Case("list-tag", "list -a ops --tag '#tooling'", out=f"{UV}\n"),
    Case("list-since", "list -a ops --since 2026-07-02", out=f"{RELEASE}\n{UV}\n"),
    Case("list-ids", "list -a ops --ids --scope core", out=f"{FRIDAY_ID}\t{FRIDAY}\n"),
    Case("list-json", "list -a ops --json", out=f"[{JSON_FRIDAY},{JSON_RELEASE},{JSON_UV}]\n"),
    Case("list-retired-none", "list -a ops --retired"),
    Case("show-id", f"show -a ops {RELEASE_ID}", out=f"{RELEASE}\n"),
    Case("show-prefix", "show -a ops a701", out=f"{RELEASE}\n"),
    Case("show-key", "show -a ops ^release_rule", out=f"{RELEASE}\n"),
    Case("show-json", "show -a ops e76a --json", out=f"{JSON_FRIDAY}\n"),
    Case("show-short-prefix", "show -a ops a70", 2, err=("not an id: 'a70'", "4")),
    Case("show-no-hex", "show -a ops 天气天气", 2, err=("not an id",)),
    Case("show-unknown", "show -a ops ffff", 1, err=("ffff",)),
    Case("show-unknown-key", "show -a ops ^nothing", 1, err=("^nothing",)),
    Case("export-md", "export -a ops", out=OPS),
    Case(
        "export-jsonl",
        "export -a ops --format jsonl",
        out="".join(f"{o}\n" for o in (JSON_FRIDAY, JSON_RELEASE, JSON_UV)),
    ),
    Case("export-md-retired", "export -a ops --retired", 2, err=("--format jsonl",)),
    Case("export-md-json", "export -a ops --json", 2, err=("--format md and --json", "use --format jsonl")),
    Case("export-csv-json", "export -a ops --format csv --json", 2, err=("use --format jsonl",)),
    Case("load-as-oryxos-json", "load -a ops --as oryxos --json", 2, err=("--as oryxos and --json",)),
    Case("export-unknown-format", "export -a ops --format docx", 2, err=("md", "jsonl")),
    Case("clean-nothing", "clean -a ops", err=("ops: nothing to retire of 2 archival entries",)),
    Case("clean-dry-run", "clean -a ops --dry-run --keep-entries 1", out=f"{RELEASE}\n", err=("would retire 1 of 2",)),
    Case("clean-bad-span", "clean -a ops --older-than 90", 2, err=("not a time span: '90'", "90d")),
    Case("clean-unknown-agent-and-all", "clean -a ops --all-agents", 2, err=("--all-agents", "--agent")),
    Case(
        "stats-json",
        "stats -a ops --json",
        out='{"agent":"ops","core":1,"core_chars":46,"archival":2,"archival_chars":100,"window":2,"window_chars":100,'
        '"window_limit":4000,"retired":0,"untimed":0,"duplicates":0,"keys":1,"empty":0,"oldest":"2026-07-22T09:30:00",'
        '"newest":"2026-07-22T09:31:00","tags":{"流程":1,"tooling":1},"days":{"2026-07-22":2}}\n',
    ),
    Case("agents", "agents", out="ops\n"),
    Case("path", "path -a ops", out="{root}/agents/ops/MEMORY.md\n"),
    Case("path-retired", "path -a ops --retired", out="{root}/agents/ops/MEMORY.retired.md\n"),
    Case("path-global", "path", out="{root}/memory/MEMORY.md\n"),
    Case("list-unknown-backend", "list --backend foo", 2, err=("--backend", "markdown", "foo")),
    Case("migrate-without-to", "migrate-backend", 2, err=("Choose from: markdown, sqlite",)),
    Case("config-show-unknown-backend", "config show --backend mysql", 2, err=("--backend", "markdown", "mysql")),
    Case("profile-is-agent", "list --profile ops --scope core", out=f"{FRIDAY}\n"),
    Case("no-such-agent", "load -a nobody", 3, err=("no agent nobody", "{root}/agents", "oryx memory agents")),
    Case("nearest-agent", "load -a opps", 3, err=("did you mean ops?",)),
    Case("unsafe-agent", "load -a 天气", 2, err=("unsafe", "'天气'", "[agents] unsafe")),
    Case("agent-with-slash", "append -a ../ops x", 2, err=("unsafe", "'../ops'")),
    Case("agent-with-dots", "append -a .. x", 2, err=("unsafe",)),
    Case("agent-with-newline", "append -a 'ops\n' x", 2, err=("unsafe",)),
    Case("agent-empty", "append -a '' x", 2, err=("agent",)),
    Case("append-words", "append -a ops use uv not pip", 2, err=("expected one text, got 4 words", "'use uv not pip'")),
    Case("append-bad-time", "append -a ops --at heute x", 2, err=("not a time: 'heute'",)),
    Case("append-bad-tag", "append -a ops --tag 'a b' x", 2, err=("not a tag: 'a b'",)),
    Case("append-digits-tag", "append -a ops --tag 12 x", 2, err=("not a tag: '12'",)),
    Case("append-bad-key", "append -a ops --key 1x x", 2, err=("not a key: '1x'",)),
    Case("append-unknown-scope", "append -a ops --scope episodic x", 2, err=("core", "archival")),
    Case("append-lines-and-key", "append -a ops --lines --key rule", 2, err=("--lines", "--key"), stdin="一\n二\n"),
    Case("append-if-new-known", "append -a ops --if-new 'Use uv, not pip #tooling'", out=f"{UV}\n"),
    Case("append-if-new-with-tag", "append -a ops --if-new --tag tooling 'Use uv, not pip'", out=f"{UV}\n"),
    Case("edit-same", "edit -a ops 43d8 'Use uv, not pip'", err=("nothing to change",)),
    Case("edit-unknown", "edit -a ops ffff x", 1, err=("ffff",)),
    Case("edit-words", "edit -a ops 43d8 Use uv", 2, err=("expected one text, got 2 words", "43d8 'Use uv'")),
    Case("move-where-it-is", "move -a ops e76a --scope core", err=("nothing to move", "core")),
    Case("move-without-scope", "move -a ops e76a", 2, err=("--scope",)),
    Case("forget-unknown", "forget -a ops ffff", 1, err=("ffff",)),
    Case("forget-without-id", "forget -a ops", 2, err=("ID",)),
    Case("restore-unknown", "restore -a ops a701", 1, err=("a701",)),
    Case("restore-unknown-run", "restore -a ops --run 20260801T020000-1", 1, err=("20260801T020000-1",)),
    Case("restore-nothing-named", "restore -a ops", 2, err=("--run",)),
    Case("restore-both-named", "restore -a ops a701 --run 20260801T020000-1", 2, err=("--run",)),
    Case("unknown-command", "remember x", 2, err=("remember", "oryx memory --help")),
    Case("misspelt-command", "recal x", 2, err=("recal", "Did you mean 'recall'")),
    Case("unknown-option", "load --agnet ops", 2, err=("--agnet", "--agent)")),
    Case("option-without-value", "load --agent", 2, err=("--agent", "requires an argument")),
    Case("options-before-the-command", "--root . load", 2, err=("after the command", "oryx memory load --root .")),
    Case("argument-too-many", "agents ops", 2, err=("ops",)),
    Case("unknown-shell", "completion tcsh", 2, err=("bash", "zsh", "fish")),
    Case("user-and-agent", "load --user -a ops", 2, err=("--user", "--agent")),
    Case("lock-timeout-negative", "append -a ops --lock-timeout -1 x", 2, err=("--lock-timeout",)),
    Case("lock-timeout-not-a-number", "append -a ops --lock-timeout nan x", 2, err=("--lock-timeout",)),
)


@pytest.mark.parametrize("case", READING, ids=lambda case: case.id)
def test_reading_and_refusing_change_nothing(case: Case, ops: Path, tmp_path: Path) -> None:
    before = tree(tmp_path)
    check(case, tmp_path / ".oryxos")
    assert tree(tmp_path) == before


WRITING = (
    Case(
        "append",
        f"append -a ops {AT} 先备份再迁移",
        out=f"{STAMP} 先备份再迁移\n",
        after=f"{OPS}{STAMP} 先备份再迁移\n",
    ),
    Case("append-input", f"append -a ops {AT}", out=f"{STAMP} a b\n", stdin="a\nb\n", after=f"{OPS}{STAMP} a b\n"),
    Case("append-dash-is-input", f"append -a ops {AT} -", out=f"{STAMP} 甲\n", stdin="甲", after=f"{OPS}{STAMP} 甲\n"),
    Case(
        "append-input-with-bom-and-crlf",
        f"append -a ops {AT}",
        out=f"{STAMP} 甲 乙\n",
        stdin="\ufeff甲\r\n乙\r\n",
        after=f"{OPS}{STAMP} 甲 乙\n",
    ),
    Case(
        "append-bullet",
        f"append -a ops {AT} '- 用户偏好'",
        out=f"{STAMP} - 用户偏好\n",
        after=f"{OPS}{STAMP} - 用户偏好\n",
    ),
    Case(
        "append-bullet-first",
        f"append '- tabs, not blanks' -a ops {AT}",
        out=f"{STAMP} - tabs, not blanks\n",
        after=f"{OPS}{STAMP} - tabs, not blanks\n",
    ),
    Case(
        "append-after-dashes",
        f"append -a ops {AT} -- --force",
        out=f"{STAMP} --force\n",
        after=f"{OPS}{STAMP} --force\n",
    ),
    Case(
        "append-markup-is-text",
        f"append -a ops {AT} '[bold]x[/bold] :smile: \\[y]'",
        out=f"{STAMP} [bold]x[/bold] :smile: \\[y]\n",
        after=f"{OPS}{STAMP} [bold]x[/bold] :smile: \\[y]\n",
    ),
    Case(
        "append-headings-become-text",
        f"append -a ops {AT} 'x ## 核心记忆 y ## 归档记忆'",
        out=f"{STAMP} x 「核心记忆」 y 「归档记忆」\n",
        after=f"{OPS}{STAMP} x 「核心记忆」 y 「归档记忆」\n",
    ),
    Case(
        "append-steering-characters",
        f"append -a ops {AT} 'a\x1b[31mb\u2028c\x85d\te  f'",
        out=f"{STAMP} a[31mb c d\te f\n",
        after=f"{OPS}{STAMP} a[31mb c d\te f\n",
    ),
    Case(
        "append-core",
        f"append -a ops {AT} --scope core 生产库只读",
        out=f"{STAMP} 生产库只读\n",
        after=OPS.replace("\n\n", f"\n{STAMP} 生产库只读\n\n"),
    ),
    Case(
        "append-tags-and-key",
        f"append -a ops {AT} '不用 latest 标签 #镜像' --tag 镜像 --tag decision --key image_tag",
        out=f"{STAMP} 不用 latest 标签 #镜像 #decision ^image_tag\n",
        after=f"{OPS}{STAMP} 不用 latest 标签 #镜像 #decision ^image_tag\n",
    ),
    Case(
        "append-key-supersedes",
        f"append -a ops {AT} 上线前必须三人复核 --tag 流程 --key release_rule",
        out=f"{STAMP} 上线前必须三人复核 #流程 ^release_rule\n",
        after=OPS.replace(f"{RELEASE}\n", "") + f"{STAMP} 上线前必须三人复核 #流程 ^release_rule\n",
    ),
    Case(
        "append-key-in-text-supersedes-nothing",
        f"append -a ops {AT} '三人 ^release_rule'",
        out=f"{STAMP} 三人 ^release_rule\n",
        after=f"{OPS}{STAMP} 三人 ^release_rule\n",
    ),
    Case(
        "append-if-new-in-the-other-section",
        f"append -a ops {AT} --if-new --scope core 'Use uv, not pip #tooling'",
        out=f"{STAMP} Use uv, not pip #tooling\n",
        after=OPS.replace("\n\n", f"\n{STAMP} Use uv, not pip #tooling\n\n"),
    ),
    Case(
        "append-lines",
        f"append -a ops {AT} --lines --tag 清单",
        out=f"{STAMP} 一 #清单\n{STAMP} two #清单\n",
        stdin="一\r\n\n  \ntwo",
        after=f"{OPS}{STAMP} 一 #清单\n{STAMP} two #清单\n",
    ),
    Case(
        "append-lines-if-new",
        f"append -a ops {AT} --lines --if-new",
        out=f"{UV}\n{STAMP} 新\n{STAMP} 新\n",
        stdin="Use uv, not pip #tooling\n新\n新\n",
        after=f"{OPS}{STAMP} 新\n",
    ),
    Case(
        "append-zoned-time-of-day",
        "append -a ops --at 2026-08-01 一天",
        out="- [2026-08-01 00:00:00] 一天\n",
        after=f"{OPS}- [2026-08-01 00:00:00] 一天\n",
    ),
    Case("append-quiet", f"append -a ops {AT} -q 悄悄", after=f"{OPS}{STAMP} 悄悄\n"),
    Case(
        "edit",
        "edit -a ops a701 上线前必须三人复核",
        out=f"{RELEASE.replace('两', '三')}\n",
        err=("retired the old text", f"oryx memory restore -a ops {RELEASE_ID}"),
        after=OPS.replace("两", "三"),
    ),
    Case(
        "edit-new-trailer",
        "edit -a ops ^release_rule '不再需要 #旧'",
        out="- [2026-07-22 09:30:00] 不再需要 #旧\n",
        err=("undo",),
        after=OPS.replace(RELEASE, "- [2026-07-22 09:30:00] 不再需要 #旧"),
    ),
    Case(
        "edit-from-input",
        "edit -a ops 43d8 -q",
        stdin="用 uv\n不用 pip\n",
        after=OPS.replace("Use uv, not pip", "用 uv 不用 pip"),
    ),
    Case(
        "move-to-core",
        "move -a ops a701 --scope core",
        out=f"{RELEASE}\n",
        err=(f"moved {RELEASE_ID} from archival to core",),
        after=f"## 核心记忆\n{FRIDAY}\n{RELEASE}\n\n## 归档记忆\n{UV}\n",
    ),
    Case(
        "move-to-archival",
        "move -a ops e76a --scope archival -q",
        after=f"## 核心记忆\n\n## 归档记忆\n{RELEASE}\n{UV}\n{FRIDAY}\n",
    ),
    Case(
        "forget",
        "forget -a ops 43d8",
        out=f"{UV}\n",
        err=(f"retired {UV_ID} from archival", f"undo: oryx memory restore -a ops {UV_ID}"),
        after=OPS.replace(f"{UV}\n", ""),
    ),
    Case("forget-quiet", "forget -a ops ^release_rule --quiet", after=OPS.replace(f"{RELEASE}\n", "")),
    Case(
        "forget-purge",
        "forget -a ops 43d8 --purge",
        out=f"{UV}\n",
        err=("destroyed 1 copy", "git", "backups"),
        after=OPS.replace(f"{UV}\n", ""),
    ),
    Case(
        "clean",
        "clean -a ops --keep-entries 1",
        out=f"{RELEASE}\n",
        err=("ops: retired 1 of 2 archival entries (1 over 1 entries)", "undo: oryx memory restore -a ops --run 2"),
        after=OPS.replace(f"{RELEASE}\n", ""),
    ),
)


@pytest.mark.parametrize("case", WRITING, ids=lambda case: case.id)
def test_writing(case: Case, ops: Path, tmp_path: Path) -> None:
    check(case, tmp_path / ".oryxos")
    assert ops.read_bytes().decode() == case.after
    assert list(tmp_path.rglob("*.oryx-tmp")) == []


ACCEPTANCE = (
    Case("recall", "recall -a ops 复核", out=f"{RELEASE}\n"),
    Case(
        "recall-in-core-only",
        "recall -a ops Friday",
        1,
        err=("no archival entry of ops", "'Friday'", "1 core entry", "oryx memory list -a ops --scope core"),
    ),
    Case(
        "append-four-words",
        "append -a ops use uv not pip",
        2,
        err=("expected one text, got 4 words", "oryx memory append -a ops 'use uv not pip'"),
    ),
    Case("append-unsafe-name", "append -a 天气 x", 2, err=("unsafe", "天气", '[agents] unsafe = "global"')),
    Case("load-nobody", "load -a opz", 3, err=("no agent opz", "did you mean ops?")),
)


@pytest.mark.parametrize("case", ACCEPTANCE, ids=lambda case: case.id)
def test_acceptance_example(case: Case, ops: Path, tmp_path: Path) -> None:
    check(case, tmp_path / ".oryxos")
    assert ops.read_text(encoding="utf-8") == OPS


@pytest.mark.parametrize(
    ("arguments", "stdin", "content"),
    [
        (["append", "-a", "ops"], "第一行\n第二行", "第一行 第二行"),
        (["append", "-a", "ops", "- 用户偏好"], "", "- 用户偏好"),
    ],
    ids=["two-lines-piped", "dash-and-blank"],
)
def test_acceptance_example_of_append(arguments: list[str], stdin: str, content: str, ops: Path) -> None:
    result = memory(*arguments, stdin=stdin)
    assert (result.code, result.err) == (0, "")
    assert re.fullmatch(f"{TIMED} {content}\n", result.out)
    assert ops.read_text(encoding="utf-8") == OPS + result.out


def test_acceptance_example_of_clean(ops: Path) -> None:
    old = "- [2001-02-03 04:05:06] 很久以前 long ago\n"
    ops.write_text(OPS + old, encoding="utf-8")
    wanted = ("clean", "-a", "ops", "--older-than", "9000d")
    dry = memory(*wanted, "--dry-run")
    assert (dry.code, dry.out) == (0, old)
    says(dry.err, ("ops: would retire 1 of 3 archival entries (1 older than 9000d)",))
    assert ops.read_text(encoding="utf-8") == OPS + old
    assert not retired_file(ops).exists()
    done = memory(*wanted)
    assert (done.code, done.out) == (0, dry.out)
    assert ops.read_text(encoding="utf-8") == OPS


def test_acceptance_example_of_forget_and_restore(ops: Path) -> None:
    gone = memory("forget", "-a", "ops", "^release_rule")
    assert (gone.code, gone.out) == (0, f"{RELEASE}\n")
    says(gone.err, (RELEASE_ID, "restore"))
    assert ops.read_text(encoding="utf-8") == OPS.replace(f"{RELEASE}\n", "")
    back = memory("restore", "-a", "ops", "a701")
    assert (back.code, back.out) == (0, f"{RELEASE}\n")
    says(back.err, (f"restored {RELEASE_ID} to archival",))
    assert ops.read_text(encoding="utf-8") == OPS


def test_acceptance_example_of_export_to_head(ops: Path, tmp_path: Path) -> None:
    lines = "".join(f"- [2026-07-23 09:{n // 60:02}:{n % 60:02}] 记录 entry {n}\n" for n in range(3000))
    ops.write_text(OPS + lines, encoding="utf-8")
    script = 'oryx memory export -a ops --format jsonl | head -1; exit "${PIPESTATUS[0]}"'
    assert real(["bash", "-c", script], env=with_path(), cwd=tmp_path) == (0, f"{JSON_FRIDAY}\n", "")


def test_acceptance_example_of_a_repository_without_a_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, repository = tmp_path / "home", tmp_path / "home" / "src" / "project"
    make_ops(home)
    (repository / "deep").mkdir(parents=True)
    (repository / ".git").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(repository / "deep")
    before = tree(tmp_path)
    result = memory("append", "x")
    assert (result.code, result.out) == (3, "")
    says(result.err, ("no .oryxos", str(repository), "the top of the repository", "oryx memory init", "--root"))
    assert tree(tmp_path) == before


def test_path_names_the_retired_file_that_is_written(ops: Path) -> None:
    real_file = ops.parent.parent.parent / "real" / "notes.md"
    real_file.parent.mkdir()
    ops.rename(real_file)
    ops.symlink_to("../../real/notes.md")
    assert memory("forget", "-a", "ops", "-q", "43d8").code == 0
    shown = memory("path", "-a", "ops", "--retired").out
    assert shown == f"{real_file.with_name('notes.retired.md')}\n"
    assert UV in Path(shown.strip()).read_text(encoding="utf-8")
    assert memory("path", "-a", "ops").out == f"{ops}\n"


def test_the_home_workspace_is_never_found_by_walking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_ops(tmp_path)
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    assert memory("path").out == f"{tmp_path}/.oryxos/memory/MEMORY.md\n"
    monkeypatch.setenv("HOME", str(tmp_path))
    result = memory("path")
    assert (result.code, result.out) == (3, "")
    says(result.err, ("no .oryxos", "the home directory"))


@pytest.mark.parametrize("named", [".", "./.oryxos", "{}", "{}/.oryxos"])
def test_root_names_the_folder_or_what_holds_it(
    named: str, ops: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = named.format(tmp_path)
    expected = (0, f"{tmp_path}/.oryxos/agents/ops/MEMORY.md\n", "")
    assert memory("path", "-a", "ops", "--root", root) == expected
    monkeypatch.setenv("ORYXOS_ROOT", root)
    monkeypatch.setenv("ORYX_AGENT", "ops")
    assert memory("path") == expected


def test_root_flag_goes_over_the_environment(ops: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORYXOS_ROOT", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("ORYX_AGENT", "nobody")
    assert memory("list", "-a", "ops", "--scope", "core", "--root", ".").out == f"{FRIDAY}\n"
    result = memory("list", "-a", "ops")
    assert result.code == 3
    says(result.err, (f"no .oryxos folder at {tmp_path}/elsewhere",))


def test_user_names_the_memory_of_the_home_directory(
    ops: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("ORYX_AGENT", "ops")
    assert memory("load", "--user").code == 3
    assert memory("init", "--root", str(home), "-q").code == 0
    assert memory("append", "--user", "--at", "2026-08-01", "我用中文").code == 0
    assert memory("recall", "--user", "中文") == (0, "- [2026-08-01 00:00:00] 我用中文\n", "")
    assert "我用中文" in (home / ".oryxos" / "memory" / "MEMORY.md").read_text(encoding="utf-8")
    assert ops.read_text(encoding="utf-8") == OPS


def test_both_programs_are_one(ops: Path) -> None:
    assert run("list", "-a", "ops", program="oryx-memory") == memory("list", "-a", "ops")
    assert (
        run("lst", program="oryx-memory").err
        == "oryx: No such command 'lst'. Did you mean 'list'? (see oryx-memory --help)\n"
    )


@pytest.mark.parametrize("program", ["oryx", "oryx-memory"])
def test_version(program: str) -> None:
    result = run("--version", program=program)
    assert (result.code, result.err) == (0, "")
    assert re.fullmatch(r"oryx-memory \d+\.\d+\.\d+\n", result.out)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ("append -a ops append memory now", "oryx memory append -a ops 'append memory now'"),
        ("append -a ops memory oryx", "oryx memory append -a ops 'memory oryx'"),
        ("append it is -a ops", "oryx memory append -a ops 'it is'"),
        ('append -a ops 别说 "it\'s"', "oryx memory append -a ops '别说 it'\"'\"'s'"),
        ("recall -a ops recall -n 3 ops", "oryx memory recall -a ops -n 3 'recall ops'"),
    ],
)
def test_the_quoted_command_can_be_typed(arguments: str, shown: str, ops: Path) -> None:
    result = memory(*shlex.split(arguments))
    assert (result.code, result.out) == (2, "")
    assert result.err.endswith(f"quote it: {shown}\n")


def test_init(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_ops(tmp_path)  # what stands above does not matter
    here = tmp_path / "project"
    here.mkdir()
    monkeypatch.chdir(here)
    result = memory("init")
    root = here / ".oryxos"
    assert (result.code, result.out) == (0, f"{root}\n")
    names = ["agents", "skills", "knowledge", "output", "memory", "sessions", "logs"]
    names += ["AGENTS.md", "SOUL.md", "USER.md", ".gitignore", ".gitattributes"]
    assert sorted(path.name for path in root.iterdir()) == sorted(names)
    for name in names:
        assert name in result.err
    assert "next: oryx memory append" in result.err
    assert (root / "SOUL.md").read_bytes() == b"# SOUL.md\n"
    assert ".locks/" in (root / ".gitignore").read_text().splitlines()

    (root / "SOUL.md").write_text("我是运维助手\n", encoding="utf-8")
    (root / ".gitignore").write_text("*.log")
    (root / "USER.md").unlink()
    again = memory("init")
    assert (again.code, again.out) == (0, f"{root}\n")
    assert "USER.md, .gitignore" in again.err
    assert (root / "SOUL.md").read_text(encoding="utf-8") == "我是运维助手\n"
    assert (root / ".gitignore").read_text().splitlines()[0] == "*.log"
    before = tree(here)
    nothing = memory("init")
    assert (nothing.code, nothing.out) == (0, f"{root}\n")
    says(nothing.err, ("nothing to add",))
    assert memory("init", "-q") == (0, f"{root}\n", "")
    assert tree(here) == before


def test_append_makes_an_agent_and_says_so(ops: Path, tmp_path: Path) -> None:
    folder = tmp_path / ".oryxos" / "agents" / "weather"
    result = memory("append", "-a", "weather", "--at", "2026-08-01", "北京 rains")
    assert (result.code, result.out) == (0, "- [2026-08-01 00:00:00] 北京 rains\n")
    says(result.err, ("made the agent weather", str(folder)))
    made = "## 核心记忆\n\n## 归档记忆\n- [2026-08-01 00:00:00] 北京 rains\n"
    assert (folder / "MEMORY.md").read_text(encoding="utf-8") == made
    assert memory("append", "-a", "quiet", "-q", "x") == (0, "", "")
    assert memory("agents").out == "ops\nquiet\nweather\n"


def test_unsafe_names_mean_the_global_memory_where_the_setting_says_so(ops: Path, tmp_path: Path) -> None:
    (tmp_path / ".oryxos" / "memory.toml").write_text('[agents]\nunsafe = "global"\n')
    result = memory("append", "-a", "天气", "--at", "2026-08-01", "北京有雨")
    assert (result.code, result.out) == (0, "- [2026-08-01 00:00:00] 北京有雨\n")
    assert memory("recall", "北京").out == result.out
    assert memory("agents").out == "ops\n"


def test_an_agent_without_a_file_is_an_empty_memory(ops: Path, tmp_path: Path) -> None:
    (tmp_path / ".oryxos" / "agents" / "new").mkdir()
    assert memory("load", "-a", "new") == (0, "## 核心记忆\n\n## 归档记忆\n\n", "")
    assert memory("list", "-a", "new") == (0, "", "")
    assert memory("export", "-a", "new", "--format", "jsonl") == (0, "", "")
    result = memory("recall", "-a", "new", "x")
    assert (result.code, result.out) == (1, "")
    assert memory("stats", "-a", "new").out.splitlines()[:3] == ["agent\tnew", "core\t0", "core_chars\t0"]
    assert [path.name for path in (tmp_path / ".oryxos" / "agents" / "new").iterdir()] == []


def test_time_zone_of_the_settings(ops: Path, tmp_path: Path) -> None:
    (tmp_path / ".oryxos" / "memory.toml").write_text('[time]\nzone = "Asia/Shanghai"\n')
    result = memory("append", "-a", "ops", "--at", "2026-07-31T18:30:00Z", "半夜部署")
    assert result.out == "- [2026-08-01 02:30:00] 半夜部署\n"


def test_bad_line_of_many_writes_none(ops: Path) -> None:
    result = memory("append", "-a", "ops", "--lines", stdin=f"一\n\n{'长' * 11000}\n四\n")
    assert (result.code, result.out) == (2, "")
    says(result.err, ("line 3:", "33,000 bytes", "nothing was written"))
    assert ops.read_text(encoding="utf-8") == OPS


def test_an_entry_larger_than_the_window_is_cut_aloud(ops: Path) -> None:
    text = f"- [2026-08-01 10:00:00] {'记忆' * 2500}"
    ops.write_text(f"{OPS}{text}\n", encoding="utf-8")
    result = memory("load", "-a", "ops", "--scope", "archival")
    match = re.fullmatch(r"(.*)…（已截断 (\d+) 字 / (\d+) characters cut, id [0-9a-f]{12}）\n", result.out)
    assert match
    shown, cut, same = match.groups()
    assert text.startswith(shown)
    assert len(shown) + int(cut) == len(text)
    assert cut == same
    assert len(result.out) - 1 <= 4000
    says(result.err, ("2 older archival entries", f"{int(cut):,} characters of the newest one"))
    assert memory("load", "-a", "ops", "--scope", "archival", "--full").out == f"{RELEASE}\n{UV}\n{text}\n"


def test_core_is_never_cut(ops: Path, tmp_path: Path) -> None:
    (tmp_path / ".oryxos" / "memory.toml").write_text("[core]\nmax_chars = 10\n")
    result = memory("load", "-a", "ops", "-q")
    assert (result.code, result.out) == (0, LOADED)
    says(result.err, ("46 characters", "[core] max_chars 10", "nothing was cut"))


def test_load_json(ops: Path) -> None:
    result = memory("load", "-a", "ops", "--json", "--max-chars", str(len(UV)))
    assert result.code == 0
    assert json.loads(result.out) == {
        "agent": "ops",
        "core": [json.loads(JSON_FRIDAY)],
        "archival": [json.loads(JSON_UV)],
        "outside": 1,
        "cut": 0,
        "text": f"## 核心记忆\n{FRIDAY}\n## 归档记忆\n{UV}",
    }


def test_recall_takes_signs_of_other_searches_as_text(ops: Path) -> None:
    ops.write_text(
        f"{OPS}- [2026-08-01 10:00:00] 100%_\"ok\" OR 'x' *\n- [2026-08-01 10:00:01] 100 ok\n", encoding="utf-8"
    )
    for keyword in ("100%", "%_", '"ok"', "OR 'x'", "*"):
        assert memory("recall", "-a", "ops", keyword).out == "- [2026-08-01 10:00:00] 100%_\"ok\" OR 'x' *\n"


def test_recall_or_append_is_safe(ops: Path, tmp_path: Path) -> None:
    script = "for n in 1 2 3; do oryx memory recall -a ops 灰度 2>/dev/null || oryx memory append -a ops --at 2026-08-01 先灰度; done"
    line = "- [2026-08-01 00:00:00] 先灰度\n"
    assert real(["bash", "-c", script], env=with_path(), cwd=tmp_path) == (0, line * 3, "")
    assert ops.read_text(encoding="utf-8") == OPS + line


def test_recall_across_agents(ops: Path) -> None:
    assert memory("append", "-a", "dev", "--at", "2026-08-01", "-q", "dev 用 uv").code == 0
    assert memory("append", "--at", "2026-08-02", "-q", "所有人用 UV").code == 0
    shared, dev = "- [2026-08-02 00:00:00] 所有人用 UV", "- [2026-08-01 00:00:00] dev 用 uv"
    result = memory("recall", "--all-agents", "uv")
    assert result == (0, f"(global)\t{shared}\ndev\t{dev}\nops\t{UV}\n", "")
    found = json.loads(memory("recall", "--all-agents", "--json", "uv").out)
    assert [(entry["agent"], entry["line"]) for entry in found] == [(None, shared), ("dev", dev), ("ops", UV)]


def test_entries_of_several_lines_are_whole(ops: Path) -> None:
    entry = "- [2026-08-01 10:00:00] 步骤 #清单\n  1. 备份\n  2. migrate"
    ops.write_text(f"{OPS}{entry}\n", encoding="utf-8")
    assert memory("recall", "-a", "ops", "migrate").out == f"{entry}\n"
    assert memory("list", "-a", "ops", "-n", "1").out == f"{entry}\n"
    shown = json.loads(memory("list", "-a", "ops", "-n", "1", "--json").out)[0]
    assert (shown["content"], shown["tags"]) == ("步骤 #清单\n  1. 备份\n  2. migrate", ["清单"])
    assert memory("forget", "-a", "ops", shown["id"]).out == f"{entry}\n"
    assert ops.read_text(encoding="utf-8") == OPS
    assert memory("restore", "-a", "ops", shown["id"]).out == f"{entry}\n"
    assert ops.read_text(encoding="utf-8") == f"{OPS}{entry}\n"


def test_ambiguous_names_change_nothing(ops: Path) -> None:
    both = f"{OPS}- [2026-08-01 10:00:00] 甲 ^rule\n- [2026-08-01 10:00:01] 乙 ^rule\n"
    ops.write_text(both, encoding="utf-8")
    result = memory("forget", "-a", "ops", "^rule")
    assert (result.code, result.out) == (2, "")
    says(result.err, ("2 entries carry ^rule",))
    assert memory("show", "-a", "ops", "^rule").out == "- [2026-08-01 10:00:01] 乙 ^rule\n"
    assert ops.read_text(encoding="utf-8") == both


def test_superseded_entries_can_be_restored(ops: Path) -> None:
    assert memory("append", "-a", "ops", "--key", "release_rule", "--at", "2026-08-01", "-q", "三人").code == 0
    retired = json.loads(memory("list", "-a", "ops", "--retired", "--json").out)
    assert [(entry["id"], entry["retired"]["reason"]) for entry in retired] == [(RELEASE_ID, "superseded")]
    assert memory("restore", "-a", "ops", "a701").out == f"{RELEASE}\n"
    assert ops.read_text(encoding="utf-8") == f"{OPS}- [2026-08-01 00:00:00] 三人 ^release_rule\n"


def test_retired_entries_are_shown_as_json_and_exported(ops: Path) -> None:
    assert json.loads(memory("forget", "-a", "ops", "43d8", "--json").out)["id"] == UV_ID
    shown = json.loads(memory("show", "-a", "ops", "43d8", "--json").out)
    why = shown.pop("retired")
    assert shown == json.loads(JSON_UV)
    assert why["reason"] == "forgotten"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", why["time"])
    assert re.fullmatch(r"\d{8}T\d{6}-\d+", why["run"])
    lines = memory("export", "-a", "ops", "--format", "jsonl", "--retired").out.splitlines()
    assert lines[:2] == [JSON_FRIDAY, JSON_RELEASE]
    assert json.loads(lines[2]) == {**json.loads(JSON_UV), "retired": why}
    assert memory("list", "-a", "ops", "--retired") == (0, f"{UV}\n", "")
    assert memory("export", "-a", "ops").out == OPS.replace(f"{UV}\n", "")


def test_purge_leaves_no_copy(ops: Path) -> None:
    assert memory("forget", "-a", "ops", "43d8", "-q").code == 0
    assert memory("append", "-a", "ops", "-q", "--at", "2026-07-22 09:31:00", "Use uv, not pip #tooling").code == 0
    result = memory("forget", "-a", "ops", "43d8", "--purge")
    assert (result.code, result.out) == (0, f"{UV}\n")
    says(result.err, (f"destroyed 2 copies of {UV_ID}", "git"))
    for file in (ops, retired_file(ops)):
        assert "Use uv" not in file.read_text(encoding="utf-8")
    assert memory("restore", "-a", "ops", "43d8").code == 1


DUPLICATES = (
    f"{OPS}- [2026-08-01 10:00:00] Use uv, not pip #tooling\n- [2026-08-01 11:00:00] Use uv, not pip #tooling\n"
)


def test_clean_twice_and_undo(ops: Path) -> None:
    ops.write_text(DUPLICATES, encoding="utf-8")
    first = memory("clean", "-a", "ops")
    assert (first.code, first.out) == (0, DUPLICATES.removeprefix(OPS))
    undo = re.search(r"\(2 duplicate\); undo: oryx memory (restore -a ops --run \S+)\n$", first.err)
    assert undo
    assert ops.read_text(encoding="utf-8") == OPS
    after_first = tree(ops.parent)
    second = memory("clean", "-a", "ops")
    assert (second.code, second.out) == (0, "")
    says(second.err, ("nothing to retire of 2",))
    assert tree(ops.parent) == after_first
    back = memory(*undo.group(1).split())
    assert (back.code, back.out) == (0, DUPLICATES.removeprefix(OPS))
    says(back.err, ("restored 2 entries",))
    assert ops.read_text(encoding="utf-8") == DUPLICATES
    assert memory(*undo.group(1).split()).code == 1


def test_clean_by_the_settings(ops: Path, tmp_path: Path) -> None:
    ops.write_text(DUPLICATES, encoding="utf-8")
    (tmp_path / ".oryxos" / "memory.toml").write_text("[clean]\ndedupe = false\nkeep_entries = 3\n")
    assert memory("clean", "-a", "ops", "--dry-run").out == f"{RELEASE}\n"
    assert memory("clean", "-a", "ops", "--dry-run", "--keep-entries", "4").out == ""
    assert memory("clean", "-a", "ops", "--dry-run", "--no-dedupe", "--keep-chars", "60").out.splitlines()[0] == RELEASE


def test_clean_json_and_quiet(ops: Path) -> None:
    ops.write_text(DUPLICATES, encoding="utf-8")
    report = json.loads(memory("clean", "-a", "ops", "--dry-run", "--json").out)
    assert (report["agent"], report["dry_run"], report["before"], report["destroyed"]) == ("ops", True, 4, 0)
    assert [entry["reason"] for entry in report["retired"]] == ["duplicate", "duplicate"]
    quiet = memory("clean", "-a", "ops", "-q")
    assert (quiet.code, quiet.err) == (0, "")
    assert re.fullmatch(r"ops: retired 2 of 4 .*; undo: oryx memory restore -a ops --run \S+\n", quiet.out)
    assert memory("clean", "-a", "ops", "-q") == (0, "", "")


def test_clean_of_all_agents(ops: Path, tmp_path: Path) -> None:
    ops.write_text(DUPLICATES, encoding="utf-8")
    dev = tmp_path / ".oryxos" / "agents" / "dev" / "MEMORY.md"
    dev.parent.mkdir()
    dev.write_text(DUPLICATES, encoding="utf-8")
    (tmp_path / ".oryxos" / "agents" / "broken" / "MEMORY.md").mkdir(parents=True)
    result = memory("clean", "--all-agents")
    assert result.code == 3
    assert result.out == DUPLICATES.removeprefix(OPS) * 2
    assert "broken skipped" in result.err
    assert "restore -a dev --run" in result.err
    assert "restore -a ops --run" in result.err
    assert [file.read_text(encoding="utf-8") for file in (ops, dev)] == [OPS, OPS]


def test_clean_stops_at_max_share(ops: Path) -> None:
    """A clock ten years ahead, told from the other side: all entries are 25 years old."""
    many = "## 归档记忆\n" + "".join(
        f"- [2001-01-{n // 100 + 1:02} 00:{n % 100 // 60:02}:{n % 100 % 60:02}] 第 {n} 条\n" for n in range(1204)
    )
    ops.write_text(many, encoding="utf-8")
    refused = memory("clean", "-a", "ops", "--older-than", "90d")
    assert (refused.code, refused.out) == (1, "")
    says(refused.err, ("1,204 of 1,204", "max_share 0.5", "clock", "--force"))
    assert ops.read_text(encoding="utf-8") == many
    assert not retired_file(ops).exists()
    forced = memory("clean", "-a", "ops", "--older-than", "90d", "--force")
    assert forced.code == 0
    assert forced.out.count("\n") == 1204
    assert ops.read_text(encoding="utf-8") == "## 归档记忆\n"
    undo = re.search(r"oryx memory (restore .*)", forced.err)
    assert undo
    assert memory(*undo.group(1).split(), "-q") == (0, "", "")
    assert ops.read_text(encoding="utf-8") == many


def test_agents_are_told_apart(ops: Path, tmp_path: Path) -> None:
    (ops.parent / "AGENT.md").write_text("---\nname: ops\ndescription: 值班 on call\n---\n正文\n", encoding="utf-8")
    (tmp_path / ".oryxos" / "agents" / "not a name").mkdir()
    (tmp_path / ".oryxos" / "agents" / "file").write_text("x")
    assert memory("agents") == (0, "ops\n", "")
    assert json.loads(memory("agents", "--json").out)[1] == {
        "agent": "ops",
        "core": 1,
        "archival": 2,
        "retired": 0,
        "about": "值班 on call",
    }


def test_config_shows_where_each_value_comes_from(ops: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / ".oryxos" / "memory.toml"
    file.write_text('[archival]\nmax_chars = 99\n[clean]\nolder_than = "90d"\ndedupe = false\n')
    personal = tmp_path / "config" / "oryx-memory" / "config.toml"
    personal.parent.mkdir(parents=True)
    personal.write_text(f'[core]\nmax_chars = 7\n["{tmp_path}".archival]\nmax_chars = 98\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("ORYX_MEMORY_BACKEND", "markdown")
    rows = dict(line.split("\t", 1) for line in memory("config", "show").out.splitlines())
    assert rows["backend"] == "markdown\tenvironment ORYX_MEMORY_BACKEND"
    assert rows["archival.max_chars"] == f'98\t{personal} ["{tmp_path}"]'
    assert rows["core.max_chars"] == f"7\t{personal}"
    assert rows["clean.older_than"] == f"90d\t{file}"
    assert rows["clean.dedupe"] == f"false\t{file}"
    assert rows["recall.mode"] == "keyword\tdefault"
    shown = json.loads(memory("config", "show", "--json", "--backend", "markdown").out)
    assert shown["backend"] == {"value": "markdown", "source": "flag"}
    assert shown["clean.max_share"] == {"value": 0.5, "source": "default"}


def test_warnings_are_said_once(ops: Path) -> None:
    ops.write_bytes(OPS.encode() + b"- [2026-08-01 10:00:00] \xff\n<<<<<<< HEAD\n")
    for arguments in (["stats"], ["list"], ["load"], ["recall", "没有"], ["recall", "2026"], ["export"]):
        result = memory(*arguments, "-a", "ops")
        lines = result.err.splitlines()
        assert len(set(lines)) == len(lines), (arguments, lines)


JSON_COMMANDS = ("append x", "load", "recall uv", "list", "show a701", "edit a701 新", "move a701 --scope core")
JSON_COMMANDS += ("forget a701", "export --format jsonl", "clean", "stats", "agents", "path", "config show", "init")


@pytest.mark.parametrize("command", JSON_COMMANDS)
def test_json_means_json(command: str, ops: Path) -> None:
    arguments = command.split()
    result = memory(*arguments, *(["-a", "ops"] if arguments[0] != "init" else []), "--json")
    assert result.code == 0
    assert result.out
    for line in result.out.splitlines():
        assert isinstance(json.loads(line), dict | list)


COMMANDS = ("init", "append", "load", "recall", "context", "prompt", "session", "session list", "session show")
COMMANDS += ("session search", "episodes", "list", "show", "edit", "move", "forget", "restore", "export", "import")
COMMANDS += ("migrate-backend", "clean", "index", "stats", "diff", "check", "agents", "path", "config", "config show")
COMMANDS += ("config adopt", "mcp", "record", "completion")
GROUPS = ("config", "session")


def help_of(command: str) -> str:
    result = memory(*command.split(), "--help")
    assert (result.code, result.err) == (0, "")
    return result.out


def examples(command: str) -> list[str]:
    about = help_of(command).split("\nArguments:")[0].split("\nOptions:")[0]
    return [line.strip() for line in about.splitlines() if line.startswith("    ") and "oryx memory" in line]


def test_the_help_names_every_command() -> None:
    listed = help_of("").split("\nCommands:\n")[1]
    assert re.findall(r"^  ([a-z-]+)  ", listed, re.MULTILINE) == [c for c in COMMANDS if " " not in c]
    assert "show" in help_of("config").split("\nCommands:\n")[1]


def test_the_help_of_oryx_names_the_group() -> None:
    assert re.search(r"^  memory  ", run("--help").out, re.MULTILINE)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in GROUPS])
def test_help_is_plain_text_with_an_example(command: str) -> None:
    text = help_of(command)
    assert text.startswith(f"Usage: oryx memory {command} ")
    assert not re.search("[\x00-\x09\x0b-\x1f\u2500-\u257f]", text)
    assert "[env: ORYXOS_ROOT]" in " ".join(text.split()) or command == "completion"
    assert examples(command)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_example_of_the_help_runs(command: str, ops: Path, tmp_path: Path) -> None:
    """Each in a workspace of its own state, in bash, as a reader would paste it."""
    home = tmp_path / "home"
    (home / ".config" / "fish" / "completions").mkdir(parents=True)
    env = with_path(HOME=str(home), EDITOR="cat", GIT_CONFIG_NOSYSTEM="1")
    commit = "git init -q . && git -c user.name=a -c user.email=a@example.org commit -q --allow-empty -m 第一次提交"
    assert real(["bash", "-c", commit], env=env, cwd=tmp_path).code == 0
    if command in ("prompt", "session show", "session search", "episodes"):
        past = Sessions(tmp_path / "oryxos.db", datetime.now)
        for user in ("local", "web"):
            calls = (ToolCall("c1", "save_memory", '{"content": "rollback"}'),)
            past.create(f"cli:{user}:ops")
            past.append(
                f"cli:{user}:ops",
                Message("user", "上次为什么回滚？"),
                Message("assistant", "rollback", tool_calls=calls),
            )
    for example in examples(command):
        ops.write_text(OPS, encoding="utf-8")
        if command == "restore":
            ops.write_text(OPS.replace(f"{RELEASE}\n", ""), encoding="utf-8")
            marker = "retired 2026-08-01T02:00:00 from archival: duplicate; run 20260801T020000-1; live 0"
            retired_file(ops).write_text(f"{RELEASE} <!-- oryx: {marker} -->\n", encoding="utf-8")
        result = real(["bash", "-c", f"set -o pipefail; {example}"], env=env, cwd=tmp_path)
        assert result.code == 0, (example, result)
        assert not result.err.startswith("oryx: "), (example, result)
        if command == "restore":
            assert RELEASE in ops.read_text(encoding="utf-8")


_ZSH = """\
compdef() { :; }
compadd() { print -rl -- "${(@)values}"; print -rl -- "${(@)descriptions}" >&3; }
_files() { :; }
"""


def complete(line: str, folder: Path, shell: str = "bash", program: str = "oryx") -> list[str]:
    """What a shell offers behind `line`, by the script that the command prints for it."""
    if shell != "bash" and not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    words = " ".join(map(shlex.quote, line.split(" ")))
    group = "memory" if program == "oryx" else ""
    name = f"_{program.replace('-', '_')}_complete"
    script = f"{program} {group} completion {shell}"
    commands = {
        "bash": ["bash", "-c", f'source <({script}); COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); {name}; '
                 'printf "%s\\n" "${COMPREPLY[@]}"'],
        "zsh": ["zsh", "-f", "-c", f"{_ZSH}source <({script}); words=({words}); CURRENT=${{#words}}; {name} 3>&1"],
        "fish": ["fish", "--no-config", "-c", f"{script} | source; complete -C {shlex.quote(line)}"],
    }  # fmt: skip
    result = real(commands[shell], env=with_path(), cwd=folder)
    assert result.err == ""
    return [item for item in result.out.split("\n") if item]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("program", ["oryx", "oryx-memory"])
def test_completion_prints_a_script_and_edits_nothing(shell: str, program: str, tmp_path: Path) -> None:
    group = ["memory"] if program == "oryx" else []
    result = real(
        [str(SCRIPTS / program), *group, "completion", shell], env=with_path(HOME=str(tmp_path)), cwd=tmp_path
    )
    assert (result.code, result.err) == (0, "")
    assert f"_ORYX_COMPLETE=1 {program}" in result.out or f"    {program} (commandline" in result.out
    assert list(tmp_path.iterdir()) == []


GONE = "- [2026-08-01 10:00:00] 旧规则: gone"


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("oryx mem", ["memory"]),
        ("oryx memory re", ["recall", "restore", "record"]),
        ("oryx memory load -a ", ["dev", "ops"]),
        ("oryx memory load --agent o", ["ops"]),
        ("oryx memory load -a nobody", []),
        ("oryx memory show -a ops ", [UV_ID, RELEASE_ID, FRIDAY_ID]),
        ("oryx memory forget -a ops a7", [RELEASE_ID]),
        ("oryx memory edit --agent ops e76a", [FRIDAY_ID]),
        ("oryx memory move -a ops --scope core a", [RELEASE_ID]),
        ("oryx memory restore -a dev ", [Entry(GONE).id]),
        ("oryx memory restore -a ops ", []),
        ("oryx memory append --scope c", ["core"]),
        ("oryx memory show --agent = ops a7", [RELEASE_ID]),  # as bash cuts --agent=ops
        ("oryx memory load --agent = o", ["ops"]),
        ("oryx memory load --agent =", ["dev", "ops"]),
        ("oryx memory show -a nobody ", []),
    ],
)
def test_completion_in_bash(line: str, offered: list[str], ops: Path, tmp_path: Path) -> None:
    marker = "retired 2026-08-01T02:00:00 from archival: forgotten; run 20260801T020000-1; live 0"
    dev = tmp_path / ".oryxos" / "agents" / "dev" / "MEMORY.md"
    dev.parent.mkdir()
    dev.write_text("## 归档记忆\n", encoding="utf-8")
    retired_file(dev).write_text(f"{GONE} <!-- oryx: {marker} -->\n", encoding="utf-8")
    assert complete(line, tmp_path) == offered


def test_completion_of_the_short_program(ops: Path, tmp_path: Path) -> None:
    assert complete("oryx-memory show -a ops a7", tmp_path, program="oryx-memory") == [RELEASE_ID]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_in_zsh_and_fish(shell: str, ops: Path, tmp_path: Path) -> None:
    assert "ops" in complete("oryx memory load -a ", tmp_path, shell)
    offered = complete("oryx memory forget -a ops a7", tmp_path, shell)
    assert RELEASE_ID in offered[0]
    assert "上线前必须两人复核" in " ".join(offered)


@pytest.mark.parametrize("line", ["oryx memory import -a ops no", "oryx memory check no", "oryx memory load --root no"])
def test_fish_offers_files_where_nothing_else_comes(line: str, ops: Path, tmp_path: Path) -> None:
    (tmp_path / "notes $(touch pwned).md").mkdir()
    assert [item.split("\t")[0].rstrip("/") for item in complete(line, tmp_path, "fish")] == ["notes $(touch pwned).md"]
    assert RELEASE_ID in complete("oryx memory show -a ops a7", tmp_path, "fish")[0]


def test_completion_finds_the_workspace_that_is_named(ops: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    make_ops(elsewhere, "## 归档记忆\n- [2026-08-01 10:00:00] 别处\n")
    offered = complete(f"oryx memory show --root {elsewhere} -a ops ", tmp_path)
    assert len(offered) == 1
    assert offered[0] not in (FRIDAY_ID, RELEASE_ID, UV_ID)


def test_completion_without_a_workspace_is_silent(tmp_path: Path) -> None:
    assert complete("oryx memory load -a ", tmp_path) == []
    assert complete("oryx memory show -a ops ", tmp_path) == []


# Contents of entries that a shell or a markup reader would obey, quoted in one way or another.
HOSTILE = (
    "[/x] 不是标记 [bold]y[/bold]",
    r"a \$(touch pwned) b",
    "`touch pwned`",
    r"\`touch pwned\`",
    "$(touch pwned)",
)
HOSTILE += (
    "'; touch pwned; '",
    '"; touch pwned; "',
    "))'; touch pwned; '",
    "\x1b]0;x\x07",
    "a\\",
    "甲: 乙 (丙) ; & | * ? ~",
)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("content", HOSTILE)
def test_completion_shows_content_and_never_obeys_it(content: str, shell: str, ops: Path, tmp_path: Path) -> None:
    line = f"- [2026-08-01 10:00:00] {content}"
    ops.write_text(f"{OPS}{line}\n", encoding="utf-8")
    before = tree(tmp_path)
    offered = complete("oryx memory show -a ops ", tmp_path, shell)
    ids = [Entry(line).id, UV_ID, RELEASE_ID, FRIDAY_ID]
    values = [item.split("\t")[0] for item in offered][: len(ids)]
    assert (set(values), len(values)) == (set(ids), 4) if shell == "fish" else values == ids  # fish sorts them itself
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", "\n".join(offered))
    assert tree(tmp_path) == before


def test_completion_shows_no_warnings(ops: Path, tmp_path: Path) -> None:
    """They would land in the line that is being typed."""
    ops.write_bytes(OPS.encode() + b"- [2026-08-01 10:00:00] \xff\n<<<<<<< HEAD\n")
    assert complete("oryx memory show -a ops a7", tmp_path) == [RELEASE_ID]


def test_a_real_process_gives_the_same(ops: Path, tmp_path: Path) -> None:
    for arguments in (["recall", "-a", "ops", "复核"], ["load", "-a", "nobody"], ["append", "-a", "ops", "a", "b"]):
        assert real([ORYX, "memory", *arguments], cwd=tmp_path) == memory(*arguments)


def test_nothing_is_imported_twice_for_the_module_call(ops: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "oryx_memory", "list", "-a", "ops"],
        capture_output=True,
        cwd=tmp_path,
        timeout=PATIENCE,
        check=False,
    )
    assert checked(done.returncode, done.stdout, done.stderr) == memory("list", "-a", "ops")


def test_all_agents_goes_over_the_agent_of_the_environment(ops: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORYX_AGENT", "ops")
    assert memory("clean", "--all-agents").err.splitlines()[0].startswith("the global memory: ")
    assert memory("recall", "--all-agents", "uv").out == f"ops\t{UV}\n"
    assert memory("clean", "--all-agents", "-a", "ops").code == 2
