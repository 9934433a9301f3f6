"""The dashboard's life: listen, answer from the database, end when asked."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
from collections.abc import Mapping

import uvicorn
from starlette.applications import Starlette

from swarm_core import process
from swarm_core.config import Settings
from swarm_core.store.database import open_database
from swarm_ui.web import app

_END_WITHIN = 5

log = logging.getLogger(__name__)


def run(settings: Settings, environ: Mapping[str, str]) -> None:
    """Returns after SIGTERM or SIGINT."""
    process.log_to_stderr(settings.text("log_level"))
    card = process.own_card(process.DASHBOARD, settings, environ)
    with contextlib.ExitStack() as stack:
        claim = stack.enter_context(process.claim(settings, card))
        listening = stack.enter_context(process.listen(settings.integer("ui_port")))
        port = listening.getsockname()[1]
        timeout = settings.number("busy_timeout")
        db = stack.enter_context(contextlib.closing(open_database(settings.database_path, busy_timeout=timeout)))
        claim.announce(port)
        log.info("the dashboard listens on %s:%s with %s", process.LOOPBACK, port, settings.database_path)
        _serve(app.application(claim.card, settings, db), listening)
    log.info("the dashboard ended")


def _serve(application: Starlette, listening: socket.socket) -> None:
    server = uvicorn.Server(
        uvicorn.Config(
            application,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=_END_WITHIN,
        )
    )

    def end(number: int, frame: object) -> None:
        # uvicorn raises the signal once more after its shutdown; by then it must change nothing.
        server.should_exit = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    server.run(sockets=[listening])
