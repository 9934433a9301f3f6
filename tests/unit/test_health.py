"""How the command reads what the two processes answer to `GET /health`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from swarm_core import overview
from swarm_core.process import Card

PLAIN = {"ok": True, "pid": 7, "role": "coordinator", "problem": None, "last_look_age_s": 0.5}


class Told(ThreadingHTTPServer):
    """A process that answers with `body`."""

    body: bytes = b""


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Told)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def told() -> Iterator[Told]:
    with Told(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("body", "ok", "problem"),
    [
        (PLAIN, True, None),
        (PLAIN | {"ok": False, "problem": "no look yet"}, False, "no look yet"),
        ({"ok": True, "result": {"pid": 7, "uptimeMs": 1}, "_meta": {}}, True, None),
        ({"ok": False, "error": {"message": "locked", "details": {"pid": 7}}, "_meta": {}}, False, "locked"),
        ({"ok": True, "result": {"pid": 8}}, None, None),
        ({"ok": False, "error": {"message": "not signed in", "details": None}}, None, None),
        (PLAIN | {"pid": 8}, None, None),
        (["pid", 7], None, None),
        ({"ok": True}, None, None),
    ],
)
def test_an_answer_counts_when_it_is_of_the_process_that_was_asked(
    told: Told, body: Any, ok: bool | None, problem: str | None
) -> None:
    told.body = json.dumps(body).encode()
    card = Card("dashboard", 7, "here", told.server_port, "2026-03-01T08:00:00.000Z", "home")
    found = overview.ask(card)
    if ok is None:
        assert found is None
    else:
        assert found is not None
        assert (found["ok"], found["problem"]) == (ok, problem)
        assert "last_look_age_s" in found
