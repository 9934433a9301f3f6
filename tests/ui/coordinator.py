"""A stand-in for the coordinator: it holds the role and says that all is well, and mends nothing.

The real one would find that the seeded instances have neither worktrees nor sessions.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator

from swarm_core import process
from swarm_core.config import Settings


@contextlib.contextmanager
def stand_in(settings: Settings) -> Iterator[None]:
    card = process.own_card(process.COORDINATOR, settings, {})

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told = process.health(card, settings, instances=25, last_look_age_s=0.4, problem=None)
            body = json.dumps(told).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer((process.LOOPBACK, 0), Answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        with process.claim(settings, card) as claim:
            claim.announce(server.server_port)
            yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
