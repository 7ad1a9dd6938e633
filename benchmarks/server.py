"""The MCP server: from its start to its first answer, and its memory then, beside those of a program that only imports the
SDK. Without the extra there are no such rows.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from measuring import Place, Plan, Row, entries, interleaved, program, run

SIZE = 1_000
IMPORTS = "import mcp.server, mcp.server.stdio"
HELLO = (
    {
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        },
    },
    {"method": "notifications/initialized"},
    {"id": 1, "method": "tools/call", "params": {"name": "recall_memory", "arguments": {"keyword": "灰度回滚"}}},
)


def server_rows(place: Place, plan: Plan) -> Iterator[Row]:
    if not find_spec("mcp"):
        return
    place.write("server", "".join(entries(SIZE)).encode())
    served = [program("oryx"), "memory", "mcp", "--root", str(place.root), "-a", "server"]
    sdk = [sys.executable, "-c", f"{IMPORTS}; input(); print(flush=True); input()"]
    cases = {"served": partial(first_answer, served), "sdk": partial(run, [sys.executable, "-c", IMPORTS])}
    found = interleaved(cases, plan.slow_rounds)
    yield Row("MCP: start to first answer / importing the SDK", found["served"], found["sdk"])
    if Path("/proc/self/status").exists():
        ours, theirs = (median(peak(command) for _ in range(plan.memory_rounds)) for command in (served, sdk))
        yield Row("  peak memory of the MCP server / of importing the SDK", ours, theirs, unit="MB")


@contextmanager
def answered(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A server that has answered its first call, which is a recall."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in HELLO))
        process.stdin.flush()
        for line in process.stdout:
            if command[0] == sys.executable or json.loads(line)["id"] == 1:
                break
        yield process
        process.stdin.close()


def first_answer(command: list[str]) -> None:
    with answered(command):
        pass


def peak(command: list[str]) -> int:
    """Peak memory in bytes when the first answer is there."""
    with answered(command) as process:
        status = Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))
