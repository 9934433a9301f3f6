"""Connections that send nothing, or half a request, keep nobody else from being answered."""

from __future__ import annotations

import contextlib
import socket
import sys

from swarm_core import connections
from tests.integration.mcp_fixture import Coordinated
from tests.support import wait_until

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
