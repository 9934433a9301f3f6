"""A stand-in for GitHub's REST API on loopback: a few issues, and every way of failing, chosen by the number."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MOVED, GONE, UNAUTHORISED, FORBIDDEN, BROKEN, SLOW, ELSEWHERE, NONSENSE = 301, 410, 401, 403, 500, 600, 302, 700
PREFIX = "/api/v3/repos/acme/widgets/issues/"


class GitHubServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[str, str | None]] = []
        self.closing = threading.Event()

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/api/v3"


class Handler(BaseHTTPRequestHandler):
    server: GitHubServer

    def do_GET(self) -> None:
        self.server.requests.append((self.path, self.headers.get("Authorization")))
        if self.path == "/api/v3/moved/issue":
            return self._reply(200, _issue(MOVED))
        if not self.path.startswith(PREFIX):
            return self._reply(404, {"message": "Not Found"})
        return self._issue(int(self.path.removeprefix(PREFIX)))

    def _issue(self, number: int) -> None:
        match number:
            case 7 | 8:
                self._reply(200, _issue(number))
            case n if n == MOVED:
                self._reply(301, {}, location=f"{self.server.api_url}/moved/issue")
            case n if n == ELSEWHERE:
                self._reply(301, {}, location="http://localhost.invalid/api/v3/stolen")
            case n if n == GONE:
                self._reply(410, {"message": "This issue was deleted"})
            case n if n == UNAUTHORISED:
                self._reply(401, {"message": f"Bad credentials: {self.headers.get('Authorization')}"})
            case n if n == FORBIDDEN:
                self._reply(403, {"message": "API rate limit exceeded for 127.0.0.1"})
            case n if n == BROKEN:
                self._reply(500, {"message": "Server Error"})
            case n if n == SLOW:
                self.server.closing.wait(30)
            case n if n == NONSENSE:
                self._raw(200, b"{ this is no JSON")
            case _:
                self._reply(404, {"message": "Not Found"})

    def _reply(self, status: int, body: dict[str, Any], *, location: str | None = None) -> None:
        self._raw(status, json.dumps(body).encode(), location=location)

    def _raw(self, status: int, data: bytes, *, location: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _issue(number: int) -> dict[str, Any]:
    return {
        "number": number,
        "title": f"Issue number {number}",
        "body": None if number == 8 else "Please fix it.",
        "html_url": f"https://github.example/acme/widgets/issues/{number}",
    }


@contextmanager
def running() -> Iterator[GitHubServer]:
    server = GitHubServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)
