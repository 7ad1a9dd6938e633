"""Programs that take no lock, each as it works in life: OryxOS, an editor, a program that truncates, pre-commit, git.

`python -m torture.foreign ROLE ROOT LEDGER NAME PACE` works on the agent ops until standard input closes. On sqlite a foreign
program does take a lock, the database's own. A foreign writer writes down when it has rewritten the file, and which
hand-written piece was not in what it wrote.
"""

import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path

from oryx_memory import Workspace
from torture.ledger import Deed, Log
from torture.ours import sentence, told_to_stop

CORE, ARCHIVAL = "## 核心记忆", "## 归档记忆"
FRONT = "---\nowner: 张三\n---\n# 运维手册 runbook\n\n"
PARAGRAPH = "手写的一段，没有时间 a paragraph by hand\n"
CONTINUED = "- 手写的一条 an item by hand\n  下一行缩进 its indented line\n"
PIECES = (FRONT, PARAGRAPH, CONTINUED)
START = f"{FRONT}{CORE}\n{PARAGRAPH}\n{ARCHIVAL}\n{CONTINUED}"
CONFIG = """repos:
- repo: local
  hooks:
  - id: slow
    name: a hook that takes its time
    language: system
    entry: sleep 0.3
    always_run: true
    pass_filenames: false
"""


class Foreign:
    """A program that knows the file and not our lock."""

    def __init__(self, root: Path, log: Log, name: str) -> None:
        self.workspace = Workspace(root)
        self.path = self.workspace.memory_file("ops")
        self.top = root.parent
        self.log = log
        self.name = name
        self.number = 0

    def line(self) -> str:
        self.number += 1
        return f"- [{datetime.now():%Y-%m-%d %H:%M:%S}] {sentence(f'{self.name}-{self.number}')}"

    def wrote(self, before: Sequence[str], after: str) -> None:
        """It has put `after` in the place of what it read and what stood there last, `before`."""
        self.log.write(Deed.REWROTE, self.name)
        self.dropped(before, after)

    def dropped(self, before: Sequence[str], after: str) -> None:
        """Write down which hand-written pieces it has not written, and had read or could not see: a file that another
        program truncates is empty.
        """
        pieces = [piece.rstrip("\n") for piece in PIECES]
        gone = (p for p in pieces if p not in after and any(p in text or not text.strip() for text in before))
        self.log.write(Deed.DROPPED, *gone)

    def read(self) -> str:
        """The file, which another program may have written half of a character of."""
        return self.path.read_text(encoding="utf-8", errors="replace")

    def oryxos(self) -> None:
        """OryxOS's own store: read, splice, write a temporary file, rename. What stands outside is dropped."""
        before = self.read() if self.path.exists() else ""
        head, _, archival = before.partition(f"{ARCHIVAL}\n")
        core = head.partition(f"{CORE}\n")[2]
        text = f"{CORE}\n{core.strip()}\n{ARCHIVAL}\n{archival.strip()}\n{self.line()}"
        other = self.path.with_name("MEMORY.md.tmp")
        other.write_text(text, encoding="utf-8")
        last = self.read()
        os.replace(other, self.path)
        self.wrote((before, last), text)

    def editor(self) -> None:
        """Read, wait, and overwrite in place with one edit: a typo in a new line, or a hand-written piece put back.

        New, since of an old one the journal no longer knows that it was acknowledged.
        """
        before = text = self.read()
        told_to_stop(random.uniform(0.02, 0.4))
        missing = [piece for piece in PIECES if piece.rstrip("\n") not in text]
        lines = [line for line in text.partition(ARCHIVAL)[2].split("\n")[-30:] if "] w" in line]
        if missing:
            text = _put_back(text, missing[0])
            self.log.write(Deed.PUT_BACK, missing[0].rstrip("\n"))
        elif lines:
            line = random.choice(lines)
            text = text.replace(line, line.replace("；", "; ", 1).replace("不", "别", 1))
        last = self.read()
        with open(self.path, "r+b") as file:
            file.write(text.encode())
            file.truncate()
            self._look_back(file.fileno(), before)
        self.wrote((before, last), text)

    def truncater(self) -> None:
        """Truncate in place, and write anew with a line more."""
        before = self.read()
        text = before + "\n" * (not before.endswith("\n")) + f"{self.line()}\n"
        with open(self.path, "wb") as file:
            file.write(text.encode())
            file.flush()
            self._look_back(file.fileno(), before)
        self.wrote((before,), text)

    def _look_back(self, descriptor: int, before: str) -> None:
        """Where another program put a new file in the place of the half-written one, what it did not see is dropped."""
        with suppress(FileNotFoundError):
            if not os.path.samestat(os.fstat(descriptor), os.stat(self.path)):
                self.dropped((before,), self.read())

    def gitter(self) -> None:
        """A person at work in the repository: commits, with pre-commit's stash around its hook; stash; checkout."""
        before = self.read()
        self.git("add", "-A", ".oryxos")
        self.git("commit", "--quiet", "--no-verify", "--message", "memories")
        kind = random.random()
        if kind < 0.5:
            self.number += 1
            (self.top / "notes.txt").write_text(f"{self.number}\n", encoding="utf-8")
            self.git("add", "notes.txt")
            said = self.git("commit", "--message", "notes")
            self._bring_back("unexpected error" in said)
            self.log.write(Deed.REWROTE, "pre-commit, rolled back" if "Rolling back" in said else "pre-commit")
        elif kind < 0.75:
            older = self._stash()
            self.git("stash", "push", "--quiet", "--", ".oryxos")
            told_to_stop(0.1)
            # Not one that failed to come back in an earlier turn: git would merge its lines into today's, once more.
            if self._stash() != older and self.git("stash", "pop", "--quiet"):  # not over what was written meanwhile
                self._checkout()
                self.git("stash", "pop", "--quiet")
            self.log.write(Deed.REWROTE, "git stash")
        else:
            self._checkout(str(self.path))
            self.log.write(Deed.REWROTE, "git checkout")
        self.dropped((before,), self.read())

    def _checkout(self, path: str = ".oryxos") -> None:
        """A writer of ours can make the file anew while git has it unlinked; then git says so and one tries again."""
        for _ in range(5):
            if not self.git("checkout", "--quiet", "HEAD", "--", path):
                return

    def _bring_back(self, failed: bool) -> None:
        """Where files changed while pre-commit brought the changes back, it fails, and one takes the patch that it names."""
        for patch in Path(os.environ["PRE_COMMIT_HOME"]).glob("patch*"):
            if failed:
                self._checkout()
                self.git("apply", "--whitespace=nowarn", str(patch))
            patch.unlink()

    def _stash(self) -> bytes:
        """The newest stash; nothing where there is none."""
        words = ["git", "rev-parse", "--quiet", "--verify", "refs/stash"]
        return subprocess.run(words, cwd=self.top, capture_output=True, check=False).stdout

    def git(self, *words: str) -> str:
        """What git said on standard error; it says nothing where it has nothing to tell."""
        done = subprocess.run(["git", *words], cwd=self.top, capture_output=True, check=False)
        return done.stderr.decode(errors="replace")

    def database(self) -> None:
        """OryxOS on its table, in transactions: a row more, and what it reads to make a prompt."""
        now = int(datetime.now().timestamp()) * 1000
        content = sentence(f"{self.name}-{self.number}")
        self.number += 1
        with closing(sqlite3.connect(self.workspace.database_file(), timeout=120)) as connection:
            try:
                with connection:
                    sql = "INSERT INTO memory_entries (agent_name, scope, content, created_at) VALUES (?, ?, ?, ?)"
                    connection.execute(sql, ("ops", "ARCHIVAL", content, now))
            except sqlite3.OperationalError as error:
                if "no such table" not in str(error):
                    raise
                return
            text = f"- [{datetime.fromtimestamp(now // 1000):%Y-%m-%d %H:%M:%S}] {content}"
            self.log.write(Deed.MEANT, text)
            self.log.write(Deed.ADDED, text)
            sql = "SELECT content FROM memory_entries WHERE agent_name = 'ops' AND scope = 'ARCHIVAL' ORDER BY id DESC LIMIT 100"
            connection.execute(sql).fetchall()
        self.log.write(Deed.REWROTE, self.name)


def _put_back(text: str, piece: str) -> str:
    if piece == FRONT:
        return FRONT + text
    if piece == PARAGRAPH:
        return text.replace(f"{CORE}\n", f"{CORE}\n{PARAGRAPH}\n", 1)
    return text.replace(f"{ARCHIVAL}\n", f"{ARCHIVAL}\n{CONTINUED}", 1)


def make_repository(top: Path) -> None:
    """A repository with the workspace in it, a first commit, and pre-commit's hook installed."""
    (top / ".pre-commit-config.yaml").write_text(CONFIG, encoding="utf-8")
    for command in (
        ["git", "init", "--quiet"],
        ["git", "config", "user.name", "运维"],
        ["git", "config", "user.email", "ops@example.com"],
        ["git", "config", "gc.auto", "0"],
        ["git", "add", "-A"],
        ["git", "commit", "--quiet", "--message", "start"],
        [sys.executable, "-m", "pre_commit", "install"],
    ):
        subprocess.run(command, cwd=top, check=True, capture_output=True)


def main(role: str, root: str, ledger: str, name: str, pace: str) -> None:
    """Play one role until told to stop; `pace` is the seconds between two turns."""
    foreign = Foreign(Path(root), Log(Path(ledger)), name)
    turns = {
        "oryxos": foreign.oryxos,
        "editor": foreign.editor,
        "truncater": foreign.truncater,
        "gitter": foreign.gitter,
        "database": foreign.database,
    }
    while not told_to_stop(float(pace)):
        with suppress(FileNotFoundError):  # git is between unlinking the file and writing it
            turns[role]()


if __name__ == "__main__":
    main(*sys.argv[1:])
