"""The WebSocket of events: every one by its name, from where the program stopped."""

from __future__ import annotations

import json
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from swarm_ui.web.endpoint import NOBODY
from tests.integration.stream_fixture import Streams, streams
from tests.support import wait_until

__all__ = ["streams"]


def talk(streams: Streams, query: str = "") -> ClientConnection:
    return connect(f"ws://127.0.0.1:{streams.port}/ws{query}", proxy=None)


def hear(socket: ClientConnection, count: int) -> list[dict[str, Any]]:
    return [json.loads(socket.recv(timeout=15)) for _ in range(count)]


def test_every_event_comes_by_its_name_with_all_that_is_known(streams: Streams) -> None:
    before = streams.write(2)
    with talk(streams) as socket:
        assert hear(socket, 1) == [{"event": "hello", "id": before[-1]}]
        [written] = streams.write(1, metadata={"pid": 7}, instance_id=None)
        [told] = hear(socket, 1)
        assert (told["id"], told["event"]) == (written, "coordinator:started")
        assert told["data"]["metadata"] == {"pid": 7}
        assert told["data"]["actor"] == "test"


def test_it_resumes_where_the_program_stopped(streams: Streams) -> None:
    first, *missed = streams.write(620)
    with talk(streams, f"?since={first}") as socket:
        hello, *told = hear(socket, 1 + len(missed))
        assert hello == {"event": "hello", "id": first}
        assert [one["id"] for one in told] == missed
        new = streams.write(2)
        assert [one["id"] for one in hear(socket, 2)] == new


def test_what_a_program_says_is_dropped_and_its_leaving_frees_its_place(streams: Streams) -> None:
    with talk(streams) as socket:
        hear(socket, 1)
        socket.send("what is this")
        socket.send(b"\x00" * 1000)
        new = streams.write(1)
        assert [one["id"] for one in hear(socket, 1)] == new
        assert streams.hub.viewers == 1
    wait_until(lambda: streams.hub.viewers == 0, what="its place is free")


def test_whoever_may_not_come_in_is_refused(streams: Streams) -> None:
    streams.door.visitor = NOBODY
    with pytest.raises(InvalidStatus) as caught:
        talk(streams)
    assert caught.value.response.status_code == 403
    assert streams.hub.viewers == 0


@pytest.mark.parametrize("query", ["?since=x", "?since=-1", "?since=99999999999999999999"])
def test_a_mark_that_is_none_is_refused(streams: Streams, query: str) -> None:
    with pytest.raises(InvalidStatus):
        talk(streams, query)


def test_it_ends_when_the_server_does(streams: Streams) -> None:
    with talk(streams) as socket:
        hear(socket, 1)
        streams.stop()
        with pytest.raises(ConnectionClosed) as caught:
            socket.recv(timeout=15)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code in (1001, 1012)
    streams.start()
