"""A self-hosted mem0 server over REST: how it is asked, what its answers mean, when it is asked once more.

Whatever goes wrong becomes a ServiceProblem of one line, without the key or the text of a memory. Only the configured host
is asked: redirects are not followed, and a server on this machine is reached without a proxy. A memory whose fate is
unclear after an error is looked for before it is sent again.

Endpoints, defaults and error bodies: `server/main.py`, `server/auth.py` and `server/errors.py` in github.com/mem0ai/mem0.
"""

import json
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from oryx_memory.entry import encodable
from oryx_memory.errors import ServiceProblem
from oryx_memory.remote import Pace, asked_wait, host_of, legible, retold, wait_before

if TYPE_CHECKING:
    import httpx

PAGE = 1000  # memories that the server lists at most, without paging
TRIES = 3  # of one request
PATIENCE = 20.0  # seconds after which no further try begins: other writers wait for the lock meanwhile
_LARGEST = 128 << 20  # bytes of an answer: a full page of entries of 32 KiB, in JSON and with the line beside them
_USUAL = (20, 100)  # what servers list that were not asked for more, or do not know `top_k`


class Held(NamedTuple):
    """A memory as the server gives it. `score` is 0 to 1 in the answer to a search; `user` and `created_at` may lack."""

    id: str
    memory: str
    metadata: Mapping[str, Any]
    created_at: str = ""
    user: str = ""
    score: float = 0.0


class _Failed(Exception):
    """A request that failed. `heals`: it may be answered later. `unclear`: the server may have done what was asked."""

    def __init__(self, message: str, *, heals: bool = False, wait: float | None = None, unclear: bool = False) -> None:
        self.message = message
        self.heals = heals
        self.wait = wait
        self.unclear = unclear
        super().__init__(message)


class Server:
    """One server. `key` is what the environment variable `variable` holds; both are empty for a server without keys.
    `timeout` is in seconds, for the whole of an answer. All its methods raise ServiceProblem.
    """

    def __init__(self, base_url: str, *, variable: str, key: str, timeout: float, pace: Pace) -> None:
        host, self.remote = host_of(base_url, "mem0.base_url")
        self.name = f"mem0 ({host})"
        self._base_url = base_url
        self._variable = variable
        self._key = key
        self._timeout = timeout
        self._pace = pace

    def memories(self, user: str) -> list[Held]:
        """All memories of a user. An answer that may not be all of them is an error."""
        found = self._list(user, PAGE)
        if len(found) >= PAGE:
            raise self.fault(
                f"has {PAGE:,} memories or more of {user} and lists no more, so it is not known what else there is; "
                "delete some there"
            )
        if len(found) in _USUAL and len(self._list(user, 1)) > 1:
            raise self.fault(f"lists {len(found)} memories however many are asked for; it needs a version with top_k")
        return found

    def has_memories(self, user: str) -> bool:
        """Whether there is a memory of a user."""
        return bool(self._list(user, 1))

    def add(
        self,
        text: str,
        user: str,
        metadata: Mapping[str, Any],
        *,
        infer: bool,
        arrived: Callable[[Held], bool],
    ) -> list[Held]:
        """Store a text, and give what the server made of it. `arrived` tells whether a memory is that text: it is asked
        of all memories where the server's answer is lost.
        """
        body = {
            "messages": [{"role": "user", "content": text}],
            "user_id": user,
            "metadata": metadata,
            "infer": infer,
        }
        look = partial(self._arrived, user, arrived)
        return self._ask("POST", "/memories", body=body, texts=[text], look=look)

    def search(self, query: str, user: str, *, limit: int, least: float) -> list[Held]:
        """The memories of a user that the server takes for an answer, best first, with a score of `least` or more."""
        query = encodable(query)
        body = {"query": query, "filters": {"user_id": user}, "top_k": limit, "threshold": least}
        return self._ask("POST", "/search", body=body, texts=[query])

    def delete(self, id: str) -> None:
        """Delete a memory. An answer that does not say that this was done is an error."""
        self._ask("DELETE", f"/memories/{quote(id, safe='')}")

    def fault(self, message: str, *, heals: bool = False) -> ServiceProblem:
        """The error that names this server."""
        return ServiceProblem(self.name, message, heals=heals)

    def _list(self, user: str, top_k: int) -> list[Held]:
        return self._ask("GET", "/memories", params={"user_id": user, "top_k": str(top_k)})

    def _arrived(self, user: str, arrived: Callable[[Held], bool]) -> list[Held]:
        return [held for held in self.memories(user) if arrived(held)]

    def _held(self, answer: Any) -> list[Held]:
        results = answer.get("results") if isinstance(answer, dict) else answer
        if not isinstance(results, list):
            raise _Failed("answered without a list of memories; check [mem0] base_url", unclear=True)
        return [self._one(item) for item in results]

    def _one(self, item: Any) -> Held:
        match item:
            case {"id": str() | int() as id, "memory": str() as memory} if _names_one(str(id)):
                metadata = item.get("metadata")
                return Held(
                    str(id),
                    memory,
                    metadata if isinstance(metadata, dict) else {},
                    str(item.get("created_at") or ""),
                    str(item.get("user_id") or ""),
                    _score(item.get("score")),
                )
        raise _Failed("answered with a memory that has no id or no text; check [mem0] base_url", unclear=True)

    @cached_property
    def _http(self) -> "httpx.Client":
        import httpx

        headers = {"User-Agent": "oryx-memory", "Accept": "application/json"}
        if self._key:
            headers["X-API-Key"] = self._key
        try:
            client = httpx.Client(
                base_url=self._base_url,
                headers=headers,
                timeout=self._timeout,
                follow_redirects=False,  # or memories and the key would go to an address that nobody configured
                trust_env=self.remote,  # a proxy of the environment would take them off this machine
            )
        except Exception as error:  # httpx has several for an odd address or proxy, and no base for them
            raise self.fault(f"cannot be asked at {self._base_url}: {legible(str(error))}") from None
        weakref.finalize(self, client.close)
        return client

    def _ask(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, str] | None = None,
        texts: Sequence[str] = (),
        look: Callable[[], list[Held]] | None = None,
    ) -> list[Held]:
        """The memories that the server answers with, asked again while that may help. With `look`, which gives what came
        of it if the thing was done, it is not asked twice to do it.
        """
        began = self._pace.clock()
        unclear = False
        for tries in count(1):
            try:
                return self._send(method, path, body, params, texts)
            except _Failed as failed:
                problem = failed
            wait = wait_before(tries, problem.wait, self._pace)
            over = not problem.heals or tries == TRIES or self._pace.clock() - began + wait > PATIENCE
            if not over:
                self._pace.sleep(wait)
            unclear = unclear or problem.unclear
            if look is not None and unclear:
                try:
                    if found := look():
                        return found
                except ServiceProblem:
                    over = True
            if over:
                message = problem.message + (f", after {tries} tries" if tries > 1 else "")
                if look is not None and unclear:
                    message += "; whether it was stored is not known: append --if-new adds it only where it is missing"
                raise self.fault(message, heals=problem.heals)
        raise AssertionError("unreachable")

    def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        params: Mapping[str, str] | None,
        texts: Sequence[str],
    ) -> list[Held]:
        """One request. Raises _Failed, from None: the errors of httpx hold the request, and so the key and the text."""
        import httpx

        try:
            with self._http.stream(method, path, json=body, params=params) as response:
                data = self._read(response)
        except httpx.TimeoutException as error:
            never_sent = isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout)
            raise self._late(unclear=not never_sent) from None
        except (httpx.RequestError, httpx.InvalidURL) as error:
            said = retold(str(error), self._key, texts)
            raise _Failed(
                f"did not answer at {self._base_url}: {said}",
                heals=True,
                unclear=not isinstance(error, httpx.ConnectError | httpx.InvalidURL),
            ) from None
        if not response.is_success:
            raise self._refusal(response.status_code, response.headers, data, texts)
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError):
            raise _Failed(
                "answered with something else than JSON, or half of it; check [mem0] base_url", unclear=True
            ) from None
        if method != "DELETE":
            return self._held(answer)
        if not isinstance(answer, dict) or not isinstance(answer.get("message"), str):
            raise _Failed("did not say that it deleted a memory; check its version", unclear=True)
        return []

    def _read(self, response: "httpx.Response") -> bytes:
        ends = self._pace.clock() + self._timeout
        data = bytearray()
        for chunk in response.iter_bytes():
            data += chunk
            if len(data) > _LARGEST:
                raise _Failed(f"answered with more than {_LARGEST >> 20} MiB; check [mem0] base_url", unclear=True)
            if self._pace.clock() > ends:  # httpx waits that long for each part of an answer
                raise self._late(unclear=True)
        return bytes(data)

    def _late(self, *, unclear: bool) -> _Failed:
        return _Failed(f"gave no answer within {self._timeout:g} s", heals=True, unclear=unclear)

    def _refusal(self, status: int, headers: Mapping[str, str], data: bytes, texts: Sequence[str]) -> _Failed:
        """What an error status means: what happened, whether it heals, what to do."""
        said = f"({status}: {retold(_detail(data) or 'no message', self._key, texts)})"
        wait = asked_wait(headers)
        later = f"; it asks to wait {wait:g} s" if wait else "; try again later"
        if status == 429:
            return _Failed(f"too many requests {said}{later}", heals=True, wait=wait)
        if status >= 500 or status == 408:
            return _Failed(f"failed {said}{later}", heals=True, wait=wait, unclear=True)
        if status in (401, 403):
            if self._variable:
                return _Failed(f"refused the key {said}; put a valid key into {self._variable}")
            return _Failed(f"wants a key {said}; name the variable that holds it under [mem0] api_key_env")
        if status == 404:
            return _Failed(f"is no mem0 server at {self._base_url} {said}; check [mem0] base_url, without /v1")
        if status < 400:
            return _Failed(f"answered with a redirect ({status}), which is not followed; check [mem0] base_url")
        return _Failed(f"refused the request {said}; check its version and [mem0] user_id")


def _names_one(id: str) -> bool:
    """Whether an id is a part of a path that names one memory, and not all of them."""
    return id not in ("", ".", "..") and encodable(id) == id


def _score(value: Any) -> float:
    try:
        return float(value) if isinstance(value, int | float) else 0.0
    except OverflowError:  # JSON has whole numbers of any size
        return 0.0


def _detail(data: bytes) -> str:
    """The message in an error body as FastAPI writes it; of a list of faults the first, without the input it quotes."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return ""
    match body:
        case {"detail": str() as detail}:
            return detail
        case {"detail": [{"msg": str() as message, **fault}, *_]}:
            place = fault.get("loc")
            where = ".".join(map(str, place)) if isinstance(place, list) else ""
            return f"{where}: {message}" if where else message
    return ""
