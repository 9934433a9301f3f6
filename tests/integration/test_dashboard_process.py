"""The dashboard's process: whom it cuts off, what it logs, how it ends, what it does not load."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from swarm_core.store import events
from swarm_core.store.database import open_database
from swarm_core.tmux import command
from swarm_core.tmux.conf import write_config
from swarm_core.tmux.sessions import Tmux
from tests.integration.doors_fixture import Dashboard, own_dashboard
from tests.rows import add_instance
from tests.support import wait_until

__all__ = ["own_dashboard"]

NAME = "work-1-a1"
UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def connected(dashboard: Dashboard, path: str, *more: bytes) -> socket.socket:
    """A request that is sent and whose answer nobody reads."""
    token = _token(dashboard).encode()
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.connect(("127.0.0.1", dashboard.port))
    host = b"Host: 127.0.0.1:%d\r\nAuthorization: Bearer %s\r\n" % (dashboard.port, token)
    line.sendall(b"GET %s HTTP/1.1\r\n" % path.encode() + host + b"".join(more) + b"\r\n")
    return line


def test_whoever_reads_nothing_is_cut_off_and_no_socket_stays(own_dashboard: Dashboard) -> None:
    streams = [connected(own_dashboard, "/api/v1/stream"), connected(own_dashboard, "/ws", UPGRADE)]
    with contextlib.ExitStack() as stack:
        for line in streams:
            stack.enter_context(line)
        wait_until(lambda: _connections(own_dashboard) == 2, what="both are connected")
        db = stack.enter_context(contextlib.closing(open_database(own_dashboard.world.settings.database_path)))

        def cut_off() -> bool:
            with db.write():
                for _ in range(400):
                    events.add(db, "tool:called", actor="test", metadata={"text": "x" * 2000})
            return _connections(own_dashboard) == 0

        wait_until(cut_off, what="both are cut off", timeout=60)
    assert '"level": "error"' not in own_dashboard.log.read_text()


def test_a_refused_websocket_is_no_error_in_the_log(own_dashboard: Dashboard) -> None:
    host = b"Host: 127.0.0.1:%d\r\n" % own_dashboard.port
    answer = own_dashboard.raw(b"GET /ws HTTP/1.1\r\n" + host + UPGRADE + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 401 ")
    own_dashboard.stop()
    assert '"level": "error"' not in own_dashboard.log.read_text()


def test_it_ends_in_time_also_beside_a_tmux_that_answers_nobody(own_dashboard: Dashboard) -> None:
    settings = own_dashboard.world.settings
    write_config(settings.tmux_config)
    tmux = Tmux(settings.tmux_socket, settings.tmux_config)
    tmux.new_session(NAME, cwd=Path("/tmp"), argv=["cat"], epoch=1, start_environment=os.environ)
    with connected(own_dashboard, f"/api/v1/stream?term={NAME}&tiles=1"):
        listing = ["list-clients", "-F", "#{session_name}"]
        wait_until(lambda: command.run(settings.tmux_socket, listing).text.split(), what="it watches")
        pane = tmux.find(NAME)
        assert pane is not None
        server = pane.server_pid
        os.kill(server, signal.SIGSTOP)
        try:
            began = time.monotonic()
            own_dashboard.stop()
            assert time.monotonic() - began < 15
        finally:
            os.kill(server, signal.SIGCONT)


def test_reading_an_instance_loads_nothing_that_only_acting_needs(own_dashboard: Dashboard) -> None:
    world = own_dashboard.world
    with world.open() as swarm:
        add_instance(swarm.context.db, NAME)
    script = (
        "import os, sys\n"
        "from swarm_core import config\n"
        "from swarm_core.swarm import Swarm\n"
        "from swarm_ui.web.api import instances\n"
        "with Swarm.open(config.load(os.environ), os.environ) as swarm:\n"
        f"    assert instances.detail(swarm, swarm.find({NAME!r}))['row']['id'] == {NAME!r}\n"
        "print('libtmux' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], env=world.environ, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def _token(dashboard: Dashboard) -> str:
    with dashboard.world.open() as swarm:
        return swarm.ensure_operator_token().read_text().strip()


def _connections(dashboard: Dashboard) -> int:
    """How many the process has that are whole, on both sides."""
    local, established = f"0100007F:{dashboard.port:04X}", "01"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum((row[1], row[3]) == (local, established) for row in rows)
