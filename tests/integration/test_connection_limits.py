"""Connections that send nothing, or half a request, keep nobody else from being answered."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator

from swarm_core import connections
from swarm_core.process import Card
from tests.integration.mcp_fixture import Coordinated
from tests.integration.web_fixture import dashboard_process
from tests.support import wait_until
from tests.world import World

_HALF = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le"


def is_closed(peer: socket.socket) -> bool:
    peer.setblocking(False)
    try:
        return peer.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_more_idle_connections_than_descriptors_do_not_stop_hooks(stopped_mcp: Coordinated) -> None:
    mcp = stopped_mcp
    limited = f"ulimit -n 200; exec {sys.executable} -P -m swarm_mcp"
    mcp.start(program=["/bin/sh", "-c", limited])
    with mcp.swarm() as swarm:
        agent = mcp.world.work(swarm, "say ready")
    with contextlib.ExitStack() as stack:
        for _ in range(260):
            stack.enter_context(socket.create_connection(("127.0.0.1", mcp.port)))
        client = mcp.client(mcp.token(agent))
        assert client.post(b"{}", "/hooks/stop").status == 200
        assert client.call("query_instances").ok["you"] == agent.id


def test_half_sent_requests_are_closed_and_an_open_stream_is_not(mcp: Coordinated) -> None:
    with mcp.swarm() as swarm:
        agent = mcp.world.work(swarm, "say ready")
    token = mcp.token(agent)
    client = mcp.client(token)
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_connection(("127.0.0.1", mcp.port)))
        named = f"Authorization: Bearer {token}\r\nMcp-Session-Id: {client.session}\r\n"
        accepts = "Accept: text/event-stream\r\n"
        listening.sendall(f"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:{mcp.port}\r\n{named}{accepts}\r\n".encode())
        assert b" 200 " in listening.recv(4096)
        peers = [stack.enter_context(socket.create_connection(("127.0.0.1", mcp.port))) for _ in range(500)]
        for peer in peers:
            peer.sendall(_HALF)
        bound = connections.HEADERS_WITHIN + 20
        wait_until(lambda: all(is_closed(peer) for peer in peers), timeout=bound, what="all of them are closed")
        assert not is_closed(listening)
        assert client.call("query_instances").ok["you"] == agent.id


class Asking:
    """Somebody who is signed in at a dashboard."""

    def __init__(self, card: Card, token: str) -> None:
        self.port = card.port
        self._named = f"Host: 127.0.0.1:{card.port}\r\nAuthorization: Bearer {token}\r\n"

    def request(self, line: str, more: str = "") -> bytes:
        return f"{line} HTTP/1.1\r\n{self._named}{more}\r\n".encode()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def answers(self) -> bool:
        with self.connect() as peer:
            peer.sendall(self.request("GET /api/v1/instances"))
            return b" 200 " in peer.recv(4096)


@contextlib.contextmanager
def signed_in(world: World, *before: str) -> Iterator[Asking]:
    """At a dashboard that is started after these lines of shell."""
    program = "; ".join([*before, f"exec {sys.executable} -P -m swarm_ui.web"])
    with world.open() as swarm:
        token = swarm.ensure_operator_token().read_text().strip()
    with dashboard_process(world, program=["/bin/sh", "-c", program]) as card:
        yield Asking(card, token)


def test_more_idle_connections_than_descriptors_do_not_stop_the_dashboard(world: World) -> None:
    with signed_in(world, "ulimit -n 200") as asking, contextlib.ExitStack() as stack:
        for _ in range(260):
            stack.enter_context(asking.connect())
        assert asking.answers()


def test_half_sent_requests_to_the_dashboard_are_closed_and_an_open_stream_is_not(world: World) -> None:
    with signed_in(world) as asking, contextlib.ExitStack() as stack:
        listening = stack.enter_context(asking.connect())
        listening.sendall(asking.request("GET /api/v1/stream"))
        assert b" 200 " in listening.recv(4096)
        peers = [stack.enter_context(asking.connect()) for _ in range(300)]
        for peer in peers:
            peer.sendall(_HALF)
        bound = connections.HEADERS_WITHIN + 20
        wait_until(lambda: all(is_closed(peer) for peer in peers), timeout=bound, what="all of them are closed")
        while not is_closed(listening):
            try:
                listening.recv(65536)
            except BlockingIOError:
                break
        assert not is_closed(listening)
        assert asking.answers()


def test_a_body_that_does_not_come_ends_its_connection_at_both_servers(mcp: Coordinated) -> None:
    body = "Content-Type: application/json\r\nContent-Length: 100\r\n"
    with signed_in(mcp.world) as asking, contextlib.ExitStack() as stack:
        late = stack.enter_context(asking.connect())
        late.sendall(asking.request("POST /search", body) + b'{"query"')
        coordinator = stack.enter_context(socket.create_connection(("127.0.0.1", mcp.port)))
        named = f"Host: 127.0.0.1:{mcp.port}\r\nAuthorization: Bearer {mcp.operator_token}\r\n"
        coordinator.sendall(f"POST /mcp HTTP/1.1\r\n{named}{body}\r\n".encode() + b'{"jsonrpc"')
        bound = connections.BODY_WITHIN + 20
        for peer in (late, coordinator):
            wait_until(lambda peer=peer: is_closed(peer), timeout=bound, what="it is closed")  # type: ignore[misc]
        assert asking.answers()
