"""A self-hosted mem0 server on loopback: the real engine of the package `mem0ai` behind the REST endpoints.

Endpoints, defaults and error bodies are those of `server/` in github.com/mem0ai/mem0. The engine keeps its vectors in
qdrant's local mode, on disk; its embedder and its language model are a stub that speaks OpenAI's protocol and gives fixed
answers. Nothing leaves this machine: telemetry is off before mem0 is imported.

A request takes the next Reply of `plan`, if there is one, instead of the engine's answer; `asked` has what came in.
"""

import json
import logging
import os
import threading
import warnings
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from loopback import PATIENCE, Answer, Asked, Loopback

DIMENSIONS = 16
MOST = 1000


@dataclass
class Reply:
    """How one request is answered. Without `status` the engine does the work first; `lost` closes the connection then."""

    status: int = 0
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    lost: bool = False
    wait: threading.Event | None = None  # answer when it is set
    answered: threading.Event = field(default_factory=threading.Event)  # is set then
    change: Callable[[Any], Any] = lambda answer: answer


def refusal(status: int, detail: Any, **headers: str) -> Reply:
    """An error as FastAPI writes it; headers with `_` for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, json.dumps({"detail": detail}).encode(), {"Content-Type": "application/json", **named})


class Refused(Exception):
    """What the server refuses, as its status and its body."""

    def __init__(self, status: int, detail: Any, **more: Any) -> None:
        self.status = status
        self.body = {"detail": detail, **more}
        super().__init__(detail)


class Models(Loopback):
    """An embedder and a language model. A text's vector is made of the hashes of its words and characters; the language
    model extracts `facts`, whatever it is told.
    """

    def __init__(self) -> None:
        super().__init__()
        self.facts: list[str] = ["The release needs two reviewers"]

    def answer(self, asked: Asked) -> Answer:
        if asked.path.endswith("/embeddings"):
            texts = asked.body["input"]
            data = [{"object": "embedding", "index": n, "embedding": vector(text)} for n, text in enumerate(texts)]
            made: dict[str, Any] = {"object": "list", "model": "stub", "data": data}
        else:
            facts = {"memory": [{"id": str(n), "text": fact, "event": "ADD"} for n, fact in enumerate(self.facts)]}
            message = {"role": "assistant", "content": json.dumps(facts)}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            made = {"id": "1", "object": "chat.completion", "created": 0, "model": "stub", "choices": [choice]}
        made["usage"] = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return Answer(200, json.dumps(made).encode(), {})


def vector(text: str) -> list[float]:
    """The vector that the stub gives to a text; texts that share words or Chinese characters are near to each other."""
    parts = text.lower().split() + [character for character in text if character > "\u3000"]
    row = [0.01] * DIMENSIONS
    for part in parts:
        row[blake2b(part.encode(), digest_size=1).digest()[0] % DIMENSIONS] += 1.0
    return row


class Mem0Server(Loopback):
    """A context manager; `url` is what goes into base_url. `key`: what the header X-API-Key must hold, if anything."""

    def __init__(self) -> None:
        super().__init__()
        self.key = ""
        self.plan: deque[Reply] = deque()
        self.models = Models()
        # The engine syncs each write to the disk, and nothing of it shall last: in memory that takes no time.
        quick = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._folder = TemporaryDirectory(prefix="oryx-mem0-", dir=quick)
        self._worker = ThreadPoolExecutor(1)  # qdrant's local mode is for the one thread that made it

    def __enter__(self) -> "Mem0Server":
        self.models.__enter__()
        self._worker.submit(lambda: self.engine).result()
        super().__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        super().__exit__()
        self._worker.submit(self._close).result()
        self._worker.shutdown()
        self.models.__exit__()
        self._folder.cleanup()

    def _close(self) -> None:
        self.engine.vector_store.client.close()
        self.engine.close()

    def release(self) -> None:
        """Forget the plan and what was asked; let go whoever waits."""
        for reply in self.plan:
            if reply.wait:
                reply.wait.set()
        self.plan.clear()
        self.asked.clear()
        self.key = ""

    @cached_property
    def engine(self) -> Any:
        folder = Path(self._folder.name)
        os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=str(folder))
        for name in ("mem0", "qdrant_client", "httpx", "httpcore", "openai"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
            warnings.simplefilter("ignore")  # those of other people's code
            patch.setenv("NO_PROXY", "127.0.0.1")
            from mem0 import Memory

            model = {"api_key": "none", "openai_base_url": f"{self.models.url}/v1", "model": "stub"}
            store = {
                "path": str(folder / "qdrant"),
                "on_disk": True,
                "embedding_model_dims": DIMENSIONS,
                "collection_name": "memories",
            }
            return Memory.from_config(
                {
                    "vector_store": {"provider": "qdrant", "config": store},
                    "llm": {"provider": "openai", "config": model},
                    "embedder": {"provider": "openai", "config": model},
                    "history_db_path": str(folder / "history.db"),
                }
            )

    def answer(self, asked: Asked) -> Answer | None:
        reply = self.plan.popleft() if self.plan else Reply()
        if reply.wait:
            reply.wait.wait(PATIENCE)
        if reply.status:
            return Answer(reply.status, reply.body, reply.headers)
        try:
            status, made = 200, reply.change(self._worker.submit(self._done, asked).result())
        except Refused as refused:
            status, made = refused.status, refused.body
        finally:
            reply.answered.set()
        return None if reply.lost else Answer(status, json.dumps(made).encode(), {})

    def _done(self, asked: Asked) -> Any:
        """What the server answers, by endpoint."""
        if self.key and asked.headers.get("x-api-key") != self.key:
            detail = "Invalid API key." if "x-api-key" in asked.headers else (
                "Authentication required. Provide a Bearer token or X-API-Key header."
            )  # fmt: skip
            raise Refused(401, detail)
        place = urlsplit(asked.path)
        query = dict(parse_qsl(place.query))
        match asked.method, place.path.split("/"):
            case "POST", ["", "memories"]:
                return self._add(asked.body)
            case "GET", ["", "memories"]:
                return self._list(query)
            case "POST", ["", "search"]:
                return self._search(asked.body)
            case "DELETE", ["", "memories", id]:
                return self._delete(unquote(id))
        raise Refused(404, "Not Found")

    def _add(self, body: Any) -> Any:
        _validate(body, {"messages": list})
        if not any(body.get(name) for name in ("user_id", "agent_id", "run_id")):
            raise Refused(400, "At least one identifier (user_id, agent_id, run_id) is required.")
        given = {name: body[name] for name in ("user_id", "metadata", "infer") if body.get(name) is not None}
        return self._engine(lambda: self.engine.add(body["messages"], **given))

    def _list(self, query: dict[str, str]) -> Any:
        if "user_id" not in query:
            raise Refused(400, "At least one identifier is required.")
        try:
            top_k = int(query.get("top_k", 20))
        except ValueError:
            raise _invalid(["query", "top_k"], "int_parsing", "Input should be a valid integer") from None
        if not 1 <= top_k <= MOST:
            kind = "less_than_equal" if top_k > MOST else "greater_than_equal"
            raise _invalid(["query", "top_k"], kind, f"Input should be between 1 and {MOST}")
        return self._engine(lambda: self.engine.get_all(filters={"user_id": query["user_id"]}, top_k=top_k))

    def _search(self, body: Any) -> Any:
        _validate(body, {"query": str})
        given = {name: body[name] for name in ("filters", "top_k", "threshold") if body.get(name) is not None}
        return self._engine(lambda: self.engine.search(body["query"], **given))

    def _delete(self, id: str) -> Any:
        self._engine(lambda: self.engine.delete(memory_id=id))
        return {"message": "Memory deleted successfully"}

    def _engine(self, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except ValueError as error:
            raise Refused(400, str(error)) from error
        except Exception as error:  # whatever a provider or a store raises
            raise Refused(502, "Upstream provider error.", code="unknown", request_id="0000abcd") from error


def _validate(body: Any, wanted: dict[str, type]) -> None:
    if not isinstance(body, dict):
        raise _invalid(["body"], "model_attributes_type", "Input should be a valid dictionary")
    for name, kind in wanted.items():
        if name not in body:
            raise _invalid(["body", name], "missing", "Field required", body)
        if not isinstance(body[name], kind):
            raise _invalid(["body", name], f"{kind.__name__}_type", f"Input should be a valid {kind.__name__}", body)


def _invalid(place: list[str], kind: str, message: str, given: Any = None) -> Refused:
    return Refused(422, [{"type": kind, "loc": place, "msg": message, "input": given}])
