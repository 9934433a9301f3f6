"""A receiver of webhooks that answers well, badly, elsewhere, a byte at a time or not at all."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "T0PSECRET"


class Receiver:
    """`answer` is a status, or "hang" until `release` is set, or "drip"; `leads_to` is where a redirect leads."""

    def __init__(self) -> None:
        self.answer: int | str = 200
        self.leads_to = ""
        self.release = threading.Event()
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://person:{SECRET}@127.0.0.1:{self._server.server_port}/{SECRET}?key={SECRET}"

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.paths.append(self.path)
                receiver.headers.append(dict(self.headers))
                receiver.bodies.append(json.loads(body))
                with contextlib.suppress(OSError):
                    receiver._respond(self)

            def log_message(self, format: str, *args: object) -> None:
                return

        return Handler

    def _respond(self, handler: BaseHTTPRequestHandler) -> None:
        if self.answer == "hang":
            self.release.wait(60)
        elif self.answer == "drip":
            handler.wfile.write(b"HTTP/1.1 2")
            while not self.release.wait(0.05):
                handler.wfile.write(b"0")
        else:
            handler.send_response(int(self.answer))
            if self.leads_to:
                handler.send_header("Location", self.leads_to)
            handler.send_header("Content-Length", "0")
            handler.end_headers()


@contextlib.contextmanager
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    try:
        yield made
    finally:
        made.close()
