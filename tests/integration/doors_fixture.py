"""A dashboard that runs, and a client that sends exactly what it is told to."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from swarm_core import process
from swarm_core.contract import ERROR_FIELDS
from swarm_core.models import Event
from swarm_core.ops import links
from tests.support import isolate, make_repo, wait_until
from tests.world import World

PROGRAM = (sys.executable, "-P", "-m", "swarm_ui.web")
Pairs = Iterable[tuple[str, str]]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        told = json.loads(self.body)
        assert isinstance(told, dict)
        return told

    @property
    def code(self) -> str:
        """The error of the envelope."""
        told = self.json
        assert told["ok"] is False
        assert told["error"].keys() == ERROR_FIELDS.keys()
        assert set(told["_meta"]) == {"schemaVersion", "toolVersion", "ts", "durationMs"}
        return str(told["error"]["code"])

    @property
    def is_html(self) -> bool:
        return str(self.headers["content-type"]).startswith("text/html")


@dataclass
class Dashboard:
    """The real process on a port of its own; `restart` keeps that port."""

    world: World
    environ: dict[str, str] = field(default_factory=dict)
    port: int = 0
    child: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.world.home.parent / "dashboard.log"

    def start(self) -> None:
        given = self.world.environ | self.environ | {"SWARM_UI_PORT": str(self.port)}
        with self.log.open("ab") as sink:
            self.child = subprocess.Popen(PROGRAM, env=given, stdout=sink, stderr=sink)

        def listens() -> int:
            assert self.child is not None
            assert self.child.poll() is None, self.log.read_text()[-3000:]
            card = process.running(self.world.settings, process.DASHBOARD)
            return card.port if card and card.pid == self.child.pid else 0

        self.port = int(str(wait_until(listens, timeout=30, what="the dashboard listens")))

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.child is not None:
            self.child.send_signal(number)
            self.child.wait(30)

    def restart(self) -> None:
        self.stop()
        self.start()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def cookie_name(self) -> str:
        return f"swarm_{self.port}"

    def ask(
        self, path: str, *, method: str = "GET", headers: Pairs = (), body: bytes | None = None, host: str = ""
    ) -> Answer:
        """One request with these headers and no others besides Host and Content-Length."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        with contextlib.closing(connection):
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            connection.putheader("Host", host or f"127.0.0.1:{self.port}")
            for name, value in headers:
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())

    def raw(self, request: bytes) -> bytes:
        """What comes back for these bytes, until the server is done or a second has passed."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as line:
            line.sendall(request)
            line.settimeout(1)
            parts = []
            with contextlib.suppress(TimeoutError, ConnectionError):
                while part := line.recv(65536):
                    parts.append(part)
            return b"".join(parts)

    def post(self, path: str, body: Any = None, *, headers: Pairs = ()) -> Answer:
        sent = json.dumps({} if body is None else body).encode()
        return self.ask(path, method="POST", headers=[("Content-Type", "application/json"), *headers], body=sent)

    def link(self, *, may_write: bool = True, name: str = "", hours: int | None = None) -> str:
        """The token of a new link."""
        with self.world.open() as swarm:
            return links.make(swarm.context, may_write=may_write, name=name, hours=hours).token

    def enter(self, *, may_write: bool = True, name: str = "") -> list[tuple[str, str]]:
        """Come in with a new link; the headers that a browser's page sends from then on."""
        answer = self.ask(f"/?token={self.link(may_write=may_write, name=name)}")
        assert answer.status == 303, answer.body
        return [("Cookie", answer.headers["set-cookie"].split(";")[0]), ("Origin", self.origin)]

    def file(self, name: str) -> str:
        """The address of a file of the front end."""
        found = re.search(rb"/static/[0-9a-f]{16}/", self.ask("/").body)
        assert found is not None
        return found[0].decode() + name

    def events(self, *names: str) -> list[Event]:
        with self.world.open() as swarm:
            return [e for e in swarm.events(limit=500) if e.name in names]


def token_of(url: str) -> str:
    return parse_qs(urlsplit(url).query)["token"][0]


@pytest.fixture(scope="module")
def dashboard() -> Iterator[Dashboard]:
    """One for all tests of a module that leave it as it was."""
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory(prefix="sw-", dir="/tmp", ignore_cleanup_errors=True) as name,
    ):
        isolate(patch, Path(name))
        with _running(World(Path(name) / "h", make_repo(Path(name) / "repo"))) as made:
            yield made


@pytest.fixture
def own_dashboard(world: World) -> Iterator[Dashboard]:
    """One to stop, or to look at what it has written."""
    with _running(world) as made:
        yield made


@contextlib.contextmanager
def _running(world: World) -> Iterator[Dashboard]:
    made = Dashboard(world)
    try:
        made.start()
        yield made
    finally:
        made.stop(signal.SIGKILL)
        world.kill_tmux()
