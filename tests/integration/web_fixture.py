"""The dashboard's app on a real port in this process, on a home whose rows a test writes itself."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import uvicorn

from swarm_core import process
from swarm_core.config import Settings
from swarm_core.models import iso
from swarm_core.process import Card
from swarm_core.store.database import Database
from swarm_core.swarm import Swarm
from swarm_ui.web import app, dashboard
from swarm_ui.web.site import Site
from tests.support import wait_until
from tests.world import World


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
    def result(self) -> Any:
        told = self.json
        assert self.status in (200, 202), told
        assert told.keys() == {"ok", "result", "_meta"}
        assert told["ok"] is True
        return told["result"]

    @property
    def code(self) -> str:
        told = self.json
        assert told.keys() == {"ok", "error", "_meta"}
        assert told["ok"] is False
        return str(told["error"]["code"])

    @property
    def events(self) -> list[tuple[str, dict[str, Any]]]:
        """Server-Sent Events with JSON."""
        assert self.status == 200, self.body
        assert self.headers["content-type"].startswith("text/event-stream")
        found = []
        for block in self.body.decode().strip().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            found.append((fields["event"], json.loads(fields["data"])))
        return found


@dataclass
class Web:
    site: Site
    token: str

    @property
    def db(self) -> Database:
        return self.site.swarm.context.db

    @property
    def port(self) -> int:
        return self.site.card.port

    def ask(
        self, method: str, path: str, *, body: Any = None, raw: bytes | None = None, **headers: str | None
    ) -> Answer:
        given: dict[str, str | None] = {"Authorization": f"Bearer {self.token}"}
        if method == "POST":
            given["Content-Type"] = "application/json"
            raw = json.dumps(body or {}).encode() if raw is None else raw
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request(method, path, raw, {k: v for k, v in given.items() if v is not None})
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())

    def get(self, path: str, **headers: str | None) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str | None) -> Answer:
        return self.ask("POST", path, body=body, **headers)


@contextlib.contextmanager
def serving(settings: Settings, swarm: Swarm) -> Iterator[Web]:
    token = swarm.ensure_operator_token().read_text().strip()
    with process.listen(0) as listening:
        port = listening.getsockname()[1]
        card = Card(process.DASHBOARD, 1, "here", port, iso(datetime.now(UTC)), str(settings.home))
        site = dashboard.make(dataclasses.replace(card), settings, swarm)
        server = uvicorn.Server(
            uvicorn.Config(app.application(site), log_config=None, access_log=False, lifespan="on")
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        wait_until(lambda: server.started, what="the app answers")
        try:
            yield Web(site, token)
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive()


@contextlib.contextmanager
def dashboard_process(
    world: World, *, program: Sequence[str] = (sys.executable, "-P", "-m", "swarm_ui.web")
) -> Iterator[Card]:
    """The dashboard as a process of its own."""
    environ = world.environ | {"SWARM_UI_PORT": "0"}
    child = subprocess.Popen(program, env=environ, stderr=subprocess.DEVNULL)
    try:

        def listening() -> Card | None:
            card = process.running(world.settings, process.DASHBOARD)
            return card if card is not None and card.port > 0 else None

        card = wait_until(listening, timeout=30, what="the dashboard listens")
        assert isinstance(card, Card)
        yield card
    finally:
        child.terminate()
        child.wait(30)
