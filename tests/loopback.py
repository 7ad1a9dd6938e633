"""HTTP servers on loopback that tests ask, each in a thread of its own."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

PATIENCE = 120  # seconds until a handler that nobody releases gives up; no result depends on it


class Asked(NamedTuple):
    """A request: its method, its path with the query, its headers by lower-case name, its body, as JSON where it is some."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Answer(NamedTuple):
    """An answer; `cut`: half of the data, and the connection is gone."""

    status: int
    data: bytes
    headers: dict[str, str]
    cut: bool = False


class Loopback:
    """A server on a free port of 127.0.0.1; a context manager. `asked` has what came in."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Any:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, asked: Asked) -> Answer | None:
        """What a request is answered; None: the connection is closed without an answer."""
        raise NotImplementedError

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # or each answer waits 40 ms for the client to acknowledge its headers

            def do_GET(self) -> None:
                given = self.rfile.read(int(self.headers.get("content-length") or 0))
                try:
                    body = json.loads(given) if given else None
                except ValueError:
                    body = given
                headers = {name.lower(): value for name, value in self.headers.items()}
                asked = Asked(self.command, self.path, headers, body)
                outer.asked.append(asked)
                answer = outer.answer(asked)
                if answer is None:
                    self.close_connection = True
                    return
                try:
                    self._send(answer)
                except OSError:
                    self.close_connection = True  # the client has gone

            do_POST = do_DELETE = do_PUT = do_GET

            def _send(self, answer: Answer) -> None:
                self.send_response_only(answer.status)
                for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.data)))
                self.end_headers()
                self.wfile.write(answer.data[: len(answer.data) // 2] if answer.cut else answer.data)
                self.close_connection = answer.cut

            def log_message(self, *_: Any) -> None:
                pass

        return Handler
