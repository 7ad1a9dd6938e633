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
from typing import Any

from loopback import PATIENCE, Answer, Asked, Loopback


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


class EmbeddingServer(Loopback):
    """A context manager; `url` is what goes into base_url."""

    def __init__(self, dimensions: int = 8) -> None:
        super().__init__()
        self.dimensions = dimensions
        self.plan: deque[Reply] = deque()

    @property
    def url(self) -> str:
        return f"{super().url}/v1"

    def texts(self) -> list[str]:
        """Every text that came in, in order."""
        return [text for request in self.asked for text in request.body["input"]]

    def __exit__(self, *_: object) -> None:
        for reply in self.plan:
            if reply.wait:
                reply.wait.set()
        super().__exit__()

    def answer(self, asked: Asked) -> Answer:
        reply = self.plan.popleft() if self.plan else Reply()
        if reply.wait:
            reply.wait.wait(PATIENCE)
        data = self._good(asked.body, reply) if reply.body is None else reply.body
        return Answer(reply.status, data, reply.headers, reply.cut)

    def _good(self, body: dict[str, Any], reply: Reply) -> bytes:
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


def in_base64(row: Sequence[float]) -> str:
    """A row as the protocol writes it: little-endian float32 in base64."""
    return base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode()
