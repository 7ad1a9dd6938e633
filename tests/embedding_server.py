"""A server on loopback that speaks POST /embeddings of OpenAI's protocol, and does what a test tells it to.

Each request takes the next Reply of `plan`; when there is none, it is answered well. `asked` has what came in.
"""

import base64
import json
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

PATIENCE = 120  # seconds until a handler that nobody releases gives up; no result depends on it


class Asked(NamedTuple):
    """A request: its path, its headers by lower-case name, its body."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Reply:
    """How one request is answered. `change` edits the good answer; `body` stands instead of it."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    change: Callable[[dict[str, Any]], None] = lambda answer: None
    float_only: bool = False
    cut: bool = False  # half of the body, and the connection is gone
    wait: threading.Event | None = None  # answer when it is set


def refusal(status: int, message: str = "no", code: str | None = None, **headers: str) -> Reply:
    """An error as OpenAI writes it; headers with `_` for `-`."""
    body = json.dumps({"error": {"message": message, "type": "error", "code": code}}).encode()
    return Reply(status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


def vector(text: str, dimensions: int = 8) -> list[float]:
    """The vector that the server gives to a text: not of unit length, and another for every first letter."""
    return [float(1 + ord(text[0]) % (place + 7)) for place in range(dimensions)]


class EmbeddingServer:
    """A context manager; `url` is what goes into base_url."""

    def __init__(self, dimensions: int = 8) -> None:
        self.dimensions = dimensions
        self.plan: deque[Reply] = deque()
        self.asked: list[Asked] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def texts(self) -> list[str]:
        """Every text that came in, in order."""
        return [text for request in self.asked for text in request.body["input"]]

    def __enter__(self) -> "EmbeddingServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for reply in self.plan:
            if reply.wait:
                reply.wait.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, body: dict[str, Any], reply: Reply) -> bytes:
        if reply.body is not None:
            return reply.body
        texts: Sequence[str] = body["input"]
        rows = [vector(text, body.get("dimensions", self.dimensions)) for text in texts]
        as_text = body.get("encoding_format") == "base64" and not reply.float_only
        answer = {
            "object": "list",
            "model": body["model"],
            "data": [
                {"object": "embedding", "index": place, "embedding": in_base64(row) if as_text else row}
                for place, row in enumerate(rows)
            ],
            "usage": {"prompt_tokens": 1, "total_tokens": 1},
        }
        reply.change(answer)
        return json.dumps(answer).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # or each answer waits 40 ms for the client to acknowledge its headers

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                headers = {name.lower(): value for name, value in self.headers.items()}
                server.asked.append(Asked(self.path, headers, body))
                reply = server.plan.popleft() if server.plan else Reply()
                if reply.wait:
                    reply.wait.wait(PATIENCE)
                try:
                    self._send(reply, server._answer(body, reply))
                except OSError:
                    self.close_connection = True  # the client has gone

            def _send(self, reply: Reply, data: bytes) -> None:
                self.send_response(reply.status)
                for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data[: len(data) // 2] if reply.cut else data)
                self.close_connection = reply.cut

            def send_response(self, code: int, message: str | None = None) -> None:
                self.send_response_only(code, message)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def in_base64(row: Sequence[float]) -> str:
    """A row as the protocol writes it: little-endian float32 in base64."""
    return base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode()
