"""The HTTP side of the stand-in for GitHub: connections that can be cut, ETags, failures, the host of the logs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.fakes.github_graphql import BROKEN
from tests.fakes.github_routes import Refused, Reply

if TYPE_CHECKING:
    from tests.fakes.github_server import GitHubServer

_LONGEST_HOLD_S = 60
SECONDARY_S = 30
_SECONDARY = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
_FORBIDDEN = "Resource not accessible by personal access token"
# What is answered instead: status, message, more headers.
_ANSWERS: dict[str, tuple[int, str, dict[str, str]]] = {
    "primary": (403, "API rate limit exceeded for user ID 1.", {"X-RateLimit-Remaining": "0"}),
    "secondary": (403, _SECONDARY, {"Retry-After": str(SECONDARY_S)}),
    "abuse": (403, "You have triggered an abuse detection mechanism.", {}),
    "429": (429, "Too many requests", {}),
    "401": (401, "Bad credentials", {}),
    "403": (403, _FORBIDDEN, {"X-Accepted-OAuth-Scopes": "repo"}),
    "404": (404, "Not Found", {}),
    "500": (500, "Server Error", {}),
    "502": (502, "Server Error", {}),
    "503": (503, "Service unavailable", {"Retry-After": "7"}),
    "202": (202, "Come again", {}),
    "elsewhere": (301, "Moved Permanently", {"Location": "http://localhost.invalid/api/v3/stolen"}),
    "broken_link": (301, "Moved Permanently", {"Location": "http://[half/an/address"}),
}
KINDS = (
    frozenset(_ANSWERS)
    | frozenset(BROKEN)
    | {
        "slow",
        "drip",
        "drip_head",
        "large",
        "truncated",
        "nonsense",
        "html",
        "drop",
        "lost",
        "loop",
        "permanent",
        "echo",
    }
)


class Front:
    """The listening socket and the open connections, which can go and come back on one port."""

    def __init__(self, server: GitHubServer) -> None:
        self._server = server
        self._held: socket.socket | None = None
        self._http: _Http | None = None
        self.port = 0
        self.start()

    def start(self) -> None:
        self._let_go()
        self._http = _Http(self._server, self.port)
        self.port = self._http.server_port
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self, *, hold_port: bool) -> None:
        """A socket that is bound and does not listen refuses connections and keeps the port."""
        self._let_go()
        if self._http is not None:
            self._http.shutdown()
            self._http.cut()
            self._http.server_close()
            self._thread.join(timeout=10)
            self._http = None
        if hold_port:
            self._held = socket.socket()
            self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._held.bind(("127.0.0.1", self.port))

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None


class LogHost:
    """Where the logs are: another host, as it has another port. It must never see a token."""

    def __init__(self) -> None:
        self.texts: dict[int, bytes] = {}
        self.authorizations: list[str | None] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/"

    def keep(self, job: int, text: bytes) -> str:
        """Where the log can be read from now on."""
        self.texts[job] = text
        return f"{self.url}{job}?sig=signed"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(timeout=10)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        host = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                host.authorizations.append(self.headers.get("Authorization"))
                text = host.texts.get(int(urlsplit(self.path).path.strip("/")))
                self.send_response(404 if text is None else 200)
                self.send_header("Content-Length", str(len(text or b"")))
                self.end_headers()
                with contextlib.suppress(OSError):  # a reader that has had enough
                    self.wfile.write(text or b"")

            def log_message(self, format: str, *args: object) -> None:
                return

        return Handler


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, github: GitHubServer, port: int) -> None:
        self.github = github
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def cut(self) -> None:
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        return  # a client that has gone, or a connection that was cut


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or a reply in two pieces takes 40 ms

    def do_GET(self) -> None:
        github = self.server.github
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with github.lock:
            github.authorizations.append(self.headers.get("Authorization"))
            github.check_request(self.command, self.path, body)
            kind = github.failure_of(self.command, self.path)
            if kind and kind != "lost":
                github.count()
                status, headers, data = _instead(kind, github, self.path)
            else:
                status, headers, data = self._answer(body)
            github.record(self.command, self.path, 0 if kind == "lost" else status)
        if status and kind != "lost":
            self._send(status, headers, data)
        else:
            self._misbehave(kind)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _answer(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        github = self.server.github
        try:
            reply = github.answer(self.command, self.path, self.headers.get("Authorization"), body)
        except Refused as refused:
            reply = Reply(refused.body, refused.status, costs=refused.costs)
        reply = github.checked(self.command, self.path, reply)
        data = b"" if reply.data is None else json.dumps(reply.data).encode()
        headers = dict(reply.headers)
        if self.command == "GET" and reply.status == 200:
            headers["ETag"] = f'W/"{hashlib.sha256(data).hexdigest()}"'
            if self.headers.get("If-None-Match") == headers["ETag"]:
                return 304, github.headers() | headers, b""
        if reply.costs:
            github.count()
        return reply.status, github.headers() | headers, data

    def _misbehave(self, kind: str) -> None:
        closing = self.server.github.closing
        match kind:
            case "slow":
                closing.wait(_LONGEST_HOLD_S)
            case "drip":
                self._head(200, {}, 100_000)
                while not closing.wait(0.02):
                    self.wfile.write(b" ")
            case "drip_head":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while not closing.wait(0.02):
                    self.wfile.write(b"x")
            case "large":
                self._head(200, {}, 40_000_000)
                with contextlib.suppress(OSError):  # a reader that has had enough
                    self.wfile.write(b" " * 40_000_000)
            case "truncated":
                self._head(200, {}, 1000)
                self.wfile.write(b'[{"number": 1, "ti')
            case "loop" | "permanent":
                status = 307 if kind == "loop" else 301
                self._send(status, {"Location": f"http://{self.headers['Host']}{self.path}"}, b"{}")
                return
        self.close_connection = True

    def _send(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self._head(status, headers, len(data))
        self.wfile.write(data)

    def _head(self, status: int, headers: dict[str, str], length: int) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        if status not in (204, 304):
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def date_time_string(self, timestamp: float | None = None) -> str:
        """GitHub's clock is the stand-in's."""
        moment = self.server.github.now().timestamp() if timestamp is None else timestamp
        return super().date_time_string(int(moment))

    def log_message(self, format: str, *args: Any) -> None:
        return


def _instead(kind: str, github: GitHubServer, path: str) -> tuple[int, dict[str, str], bytes]:
    """An answer in place of the right one; the status is 0 if it is none that can be sent whole."""
    match kind:
        case "nonsense":
            return 200, github.headers(), b"{ this is no JSON"
        case "html":
            return 502, {}, b"<html>Bad gateway</html>"
        case "echo":
            said = f"Bad credentials: token {github.token} at https://x:{github.token}@github.example"
            return 401, github.headers(), json.dumps({"message": said}).encode()
    resource = {"X-RateLimit-Resource": "graphql" if path.endswith("/graphql") else "core"}
    if kind in BROKEN:
        return 200, github.headers() | resource, json.dumps(BROKEN[kind]).encode()
    if kind not in _ANSWERS:
        return 0, {}, b""
    status, message, more = _ANSWERS[kind]
    return status, github.headers() | resource | more, json.dumps({"message": message}).encode()
