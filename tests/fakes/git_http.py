"""A real git remote over smart HTTP on loopback: `git http-backend` behind Basic authentication.

    with serve(root, password="...") as server:
        git push {server.url}/owner/name.git    # the bare repository root/owner/name.git

Without the right name and password every request is answered with 401.
"""

from __future__ import annotations

import base64
import gzip
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

USER = "x-access-token"
LOOK, PUSH = "/info/refs?service=git-receive-pack", "/git-receive-pack"
_TIMEOUT = 60


class GitHTTPServer(ThreadingHTTPServer):
    """`requests` holds (method, path, Authorization) of every request, `pushes` the paths that took a push.

    `failing` answers every request with that status. `before` is called with the path and query of a request that
    is let in, as for somebody else who is quicker; those of a push end with LOOK and PUSH.
    """

    daemon_threads = True

    def __init__(self, root: Path, user: str, password: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.root = root
        self.expected = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        self.requests: list[tuple[str, str, str | None]] = []
        self.pushes: list[str] = []
        self.failing: int | None = None
        self.before: Callable[[str], None] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def authorizations(self) -> list[str | None]:
        return [given for _, _, given in self.requests]

    def create(self, name: str) -> Path:
        """Make the bare repository `owner/name`, to be reached at `url/owner/name.git`."""
        path = self.root / f"{name}.git"
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(path)], check=True, timeout=_TIMEOUT)
        return path


class Handler(BaseHTTPRequestHandler):
    server: GitHTTPServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        body = self._body()
        self._serve(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)

    def _serve(self, body: bytes) -> None:
        given = self.headers.get("Authorization")
        self.server.requests.append((self.command, self.path, given))
        if self.server.failing is not None:
            return self._reply(self.server.failing, b"out of order\n")
        if given != self.server.expected:
            return self._reply(401, b"who are you?\n", {"WWW-Authenticate": 'Basic realm="git"'})
        if self.server.before is not None:
            self.server.before(self.path)
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=self._environment(body), capture_output=True, timeout=_TIMEOUT
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        status = int(headers.pop("Status", "200").split()[0])
        if self.command == "POST" and self.path.endswith(PUSH) and status == 200:
            self.server.pushes.append(self.path.removesuffix(PUSH))
        return self._reply(status, content, headers)

    def _environment(self, body: bytes) -> dict[str, str]:
        url = urlsplit(self.path)
        return {
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_PROJECT_ROOT": str(self.server.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_USER": "somebody",
            "REMOTE_ADDR": self.client_address[0],
            "REQUEST_METHOD": self.command,
            "PATH_INFO": url.path,
            "QUERY_STRING": url.query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
        }

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _reply(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@contextmanager
def serve(root: Path, *, user: str = USER, password: str) -> Iterator[GitHTTPServer]:
    server = GitHTTPServer(root, user, password)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
