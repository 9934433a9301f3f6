"""The dashboard's life: listen, answer from the database, end when asked."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Mapping
from types import FrameType

import uvicorn

from swarm_core import process
from swarm_core.config import Settings
from swarm_core.process import Card
from swarm_core.swarm import Swarm
from swarm_ui.web import app, slow
from swarm_ui.web.connections import Http, WebSocket
from swarm_ui.web.doors import Doors
from swarm_ui.web.hub import Hub
from swarm_ui.web.runner import Runner
from swarm_ui.web.site import Site
from swarm_ui.web.terminals import Terminals

_END_WITHIN = 5
_KEEP_ALIVE = 75
_TICK = 1.0
_WS_MAX = 1 << 16
# Whatever does not end, as a tmux that answers nobody: all that counts is in the database.
_END_AT_LAST = 10.0

log = logging.getLogger(__name__)


def run(settings: Settings, environ: Mapping[str, str]) -> None:
    """Returns after SIGTERM or SIGINT."""
    process.log_to_stderr(settings.text("log_level"))
    card = process.own_card(process.DASHBOARD, settings, environ)
    with contextlib.ExitStack() as stack:
        claim = stack.enter_context(process.claim(settings, card))
        listening = stack.enter_context(process.listen(settings.integer("ui_port")))
        port = listening.getsockname()[1]
        swarm = stack.enter_context(Swarm.open(settings, environ))
        claim.opened(swarm.context.db.files)
        claim.announce(port)
        log.info("the dashboard listens on %s:%s with %s", process.LOOPBACK, port, settings.database_path)
        _serve(make(claim.card, settings, swarm), listening)
    log.info("the dashboard ended")


def make(card: Card, settings: Settings, swarm: Swarm) -> Site:
    hub = Hub(swarm, settings, card)
    return Site(
        card=card,
        settings=settings,
        swarm=swarm,
        doors=Doors(swarm, card.port),
        hub=hub,
        terminals=Terminals(swarm, settings),
        runner=Runner(swarm, publish=hub.publish_action),
        pools=slow.pools(),
    )


class _Server(uvicorn.Server):
    def __init__(self, settings: uvicorn.Config, site: Site) -> None:
        super().__init__(settings)
        self._site = site
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked = asyncio.Event()

    async def main_loop(self) -> None:
        """As uvicorn's, which wakes ten times a second whether anything happens or not."""
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), _TICK)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._asked.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Streams never end by themselves, so they are told before the server waits for its connections."""
        last = threading.Timer(_END_AT_LAST, os._exit, [1])
        last.daemon = True
        last.start()
        await self._site.hub.say_bye()
        await super().shutdown(sockets)


def _serve(site: Site, listening: socket.socket) -> None:
    server = _Server(
        uvicorn.Config(
            app.application(site),
            loop="asyncio",  # a quicker one costs 2.5 MB, which is more than it gains here
            http=Http,
            ws=WebSocket,
            ws_max_size=_WS_MAX,
            ws_per_message_deflate=False,
            proxy_headers=False,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="on",
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=_END_WITHIN,
        ),
        site,
    )

    def end(number: int, frame: object) -> None:
        # uvicorn raises the signal once more after its shutdown; by then it must change nothing.
        server.should_exit = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    server.run(sockets=[listening])
