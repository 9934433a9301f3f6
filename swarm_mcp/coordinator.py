"""The coordinator's life: take the database, start its worker, answer until asked to end."""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import Mapping

from swarm_core import config, process
from swarm_core.config import Settings
from swarm_core.ops.context import Report, nothing
from swarm_core.ops.presence import Servers
from swarm_core.store import requests
from swarm_core.swarm import Swarm
from swarm_mcp import server
from swarm_mcp.loop import LoopStore
from swarm_mcp.worker import handle

log = logging.getLogger(__name__)


def run(settings: Settings, environ: Mapping[str, str], *, checkpoint: Report = nothing) -> None:
    """Returns after SIGTERM or SIGINT; raises what ended the watching. `checkpoint` is told of every step."""
    process.log_to_stderr(settings.text("log_level"))
    card = process.own_card(process.COORDINATOR, settings, environ)
    with contextlib.ExitStack() as stack:
        claim = stack.enter_context(process.claim(settings, card))
        listening = stack.enter_context(process.listen(settings.integer("mcp_port")))
        port = listening.getsockname()[1]
        settings = config.load(environ, mcp_port=port)
        worker = stack.enter_context(handle.started(settings, environ, listening, checkpoint=checkpoint))
        swarm = stack.enter_context(Swarm.open(settings, environ, checkpoint=checkpoint))
        claim.opened(swarm.context.db.files)
        swarm.ensure_operator_token()
        store = stack.enter_context(contextlib.closing(LoopStore(settings, swarm.context.db)))
        servers = Servers(settings.server_locks)
        me = stack.enter_context(servers.present())
        requests.sweep(swarm.context.db, servers)
        worker.open()
        http = server.make(server.service(card, settings, swarm, worker, store, servers, me), port)
        worker.on_lost = lambda: setattr(http, "should_exit", True)
        claim.announce(port)
        # What was imported stays for ever, and a call leaves no cycles: looking for them so often only costs.
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        log.info("the coordinator listens on %s:%s with %s", process.LOOPBACK, port, settings.database_path)
        server.run(http, listening)
        worker.raise_failure()
    log.info("the coordinator ended")
