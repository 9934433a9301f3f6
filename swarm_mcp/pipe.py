"""Serving one client on stdin and stdout, with the same tools and rules; who it is, SWARM_TOKEN says."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping

from swarm_core import process
from swarm_core.config import Settings
from swarm_core.errors import Denied, SwarmError
from swarm_core.models import Principal
from swarm_core.ops.context import Report, nothing
from swarm_core.ops.presence import Servers
from swarm_core.store import requests
from swarm_core.store.database import Database
from swarm_core.swarm import Swarm
from swarm_mcp.dispatch import Dispatcher
from swarm_mcp.identity import Identity
from swarm_mcp.loop import LoopStore
from swarm_mcp.metrics import Metrics
from swarm_mcp.protocol import SwarmServer
from swarm_mcp.refusals import Refusals
from swarm_mcp.resources import Reader
from swarm_mcp.stdio import stdio_streams

_PATIENCE = 2.5
_BEAT_EVERY = 2.0
_CHECKPOINT_EVERY = 30.0
_END_WITHIN = 10.0

log = logging.getLogger(__name__)


def run(settings: Settings, environ: Mapping[str, str], *, checkpoint: Report = nothing) -> None:
    """Returns when the client closes stdin or says `exit`; raises Denied at once for a token that is not valid."""
    process.log_to_stderr(settings.text("log_level"))
    with contextlib.ExitStack() as stack:
        swarm = stack.enter_context(Swarm.open(settings, environ, checkpoint=checkpoint))
        store = stack.enter_context(contextlib.closing(LoopStore(settings, swarm.context.db)))
        identity = Identity(store)
        refusals = Refusals(swarm.context.db, lambda _: None)

        def who() -> Principal:
            try:
                return identity.require(environ.get("SWARM_TOKEN"), environ.get("SWARM_INSTANCE"))
            except Denied as error:
                refusals.add(
                    error.details.get("reason", "no token was sent"),
                    name=error.details.get("belonged_to"),
                    transport="stdio",
                    claimed=environ.get("SWARM_INSTANCE", "")[:80],
                )
                raise

        log.info("serving %s on stdin and stdout", who().actor)
        servers = Servers(settings.server_locks)
        me = stack.enter_context(servers.present())
        requests.sweep(swarm.context.db, servers)
        dispatcher = Dispatcher(swarm, settings, store, server=me, servers=servers, metrics=Metrics())
        server = SwarmServer(dispatcher, Reader(swarm), who=who)
        asyncio.run(_serve(server, dispatcher, refusals, swarm.context.db))


async def _serve(server: SwarmServer, dispatcher: Dispatcher, refusals: Refusals, db: Database) -> None:
    """A client waits about four seconds for its server to end, and then kills it."""

    async def end() -> None:
        await dispatcher.close(patience=_PATIENCE)

    beating = asyncio.create_task(_beat(dispatcher, db))
    async with stdio_streams(before_end=end, answer_within=_END_WITHIN) as (read, write):
        await server.run(read, write, server.create_initialization_options())
    beating.cancel()
    await dispatcher.close(patience=0)
    await refusals.drain()


async def _beat(dispatcher: Dispatcher, db: Database) -> None:
    """The loop's own connection leaves the disk to another, and there may be no coordinator that sees to it."""
    loop = asyncio.get_running_loop()
    due = loop.time() + _CHECKPOINT_EVERY
    while True:
        dispatcher.beat()
        if loop.time() >= due:
            due = loop.time() + _CHECKPOINT_EVERY
            try:
                await loop.run_in_executor(None, db.checkpoint)
            except SwarmError as error:
                log.warning("the database's log is not moved: %s (%s)", error.message, error.code)
        await asyncio.sleep(_BEAT_EVERY)
