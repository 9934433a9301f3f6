"""Streamable HTTP as clients see it: real uvicorn, a process of its own, requests written by hand."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp
import pytest
from mcp.client.streamable_http import streamable_http_client

from tests.fakes import mcp_probe
from tests.support import wait_until

BOTH = "application/json, text/event-stream"
JSON = "application/json"
STREAM = "text/event-stream"
_keys = (f"key-{n}" for n in count())


class Server:
    """A running probe."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.http = httpx2.Client(base_url=self.url, timeout=20)

    def state(self) -> dict[str, Any]:
        return self.http.get("/state").json()

    def wait_for_held(self, key: str) -> None:
        wait_until(lambda: key in self.state()["held"], what=f"{key} held")


class Session:
    """One client's session; `path` chooses how patient the server is."""

    def __init__(self, server: Server, name: str = "ann", path: str = "/mcp") -> None:
        self.path = path
        self.http = httpx2.Client(
            base_url=server.url, timeout=20, headers={"authorization": f"Bearer token-{name}", "accept": BOTH}
        )
        about = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": name, "version": "1"},
        }
        self.opened = self.post(request("init", "initialize", about))
        self.http.headers["mcp-session-id"] = self.opened.headers["mcp-session-id"]
        assert self.post(notification("notifications/initialized")).status_code == 202

    def close(self) -> None:
        self.http.close()

    def post(self, message: Any, **headers: str) -> httpx2.Response:
        content = message if isinstance(message, bytes) else json.dumps(message)
        return self.http.post(self.path, content=content, headers={"content-type": JSON, **headers})

    def call(self, request_id: Any, tool: str, arguments: dict[str, Any], **headers: str) -> httpx2.Response:
        return self.post(call(request_id, tool, arguments), **headers)

    @contextmanager
    def streaming(self, message: dict[str, Any]) -> Iterator[tuple[httpx2.Response, Iterator[dict[str, Any]]]]:
        with self.http.stream("POST", self.path, json=message) as answer:
            yield answer, events(answer.iter_lines())


def request(request_id: Any, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}


def notification(method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params or {}}


def call(request_id: Any, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Every call wants to hear of progress."""
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": f"of-{request_id}"}}
    return request(request_id, "tools/call", params)


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    return (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))


def text(message: dict[str, Any]) -> str:
    return message["result"]["content"][0]["text"]


@contextmanager
def running(log: Path) -> Iterator[Server]:
    command = [sys.executable, "-P", mcp_probe.__file__, "http"]
    with (
        log.open("w") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
    ):
        try:
            server = Server(process, int(process.stdout.readline()))
            wait_until(lambda: _listens(server.port))
            with closing(server.http):
                yield server
        finally:
            process.kill()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("probe") / "log") as made:
        yield made


@pytest.fixture
def session(server: Server) -> Iterator[Session]:
    with closing(Session(server)) as made:
        yield made


@pytest.fixture
def quick(server: Server) -> Iterator[Session]:
    with closing(Session(server, path="/quick")) as made:
        yield made


@pytest.fixture
def key() -> str:
    return next(_keys)


@pytest.fixture
def beside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


def later(beside: ThreadPoolExecutor, session: Session, *args: Any, **headers: str) -> Future[httpx2.Response]:
    return beside.submit(session.call, *args, **headers)


# JSON or a stream


def test_an_answer_that_comes_first_is_plain_json(session):
    answer = session.call(1, "echo", {"text": "hello"})
    assert answer.headers["content-type"] == JSON
    assert answer.headers["mcp-session-id"] == session.http.headers["mcp-session-id"]
    assert (answer.json()["id"], text(answer.json())) == (1, "hello")
    assert session.opened.headers["content-type"] == JSON


def test_a_silent_answer_within_the_wait_is_plain_json(server, session, beside, key):
    answer = later(beside, session, 1, "hold", {"key": key})
    server.wait_for_held(key)
    session.call(2, "release", {"key": key})
    assert answer.result(10).headers["content-type"] == JSON
    assert text(answer.result().json()) == key


def test_progress_arrives_as_it_happens_and_in_order_before_the_result(session, key):
    with session.streaming(call(1, "progress", {"steps": 5, "key": key})) as (answer, told):
        assert answer.headers["content-type"] == STREAM
        assert answer.headers["mcp-session-id"] == session.http.headers["mcp-session-id"]
        progress = [next(told) for _ in range(5)]
        assert [message["params"]["progress"] for message in progress] == [1, 2, 3, 4, 5]
        assert {message["params"]["progressToken"] for message in progress} == {"of-1"}
        session.call(2, "release", {"key": key})
        assert [text(message) for message in told] == [key]


def test_more_progress_than_is_buffered_arrives_complete(session):
    with session.streaming(call(1, "progress", {"steps": 300})) as (_, told):
        *progress, result = told
    assert [message["params"]["progress"] for message in progress] == list(range(1, 301))
    assert text(result) == "done"


def test_silence_becomes_a_stream_before_the_answer_is_there(quick, key):
    with quick.streaming(call(1, "hold", {"key": key})) as (answer, told):
        assert answer.headers["content-type"] == STREAM
        quick.call(2, "release", {"key": key})
        assert [text(message) for message in told] == [key]


def test_a_question_of_the_server_comes_before_the_answer(session):
    with session.streaming(call(1, "ask", {})) as (answer, told):
        assert answer.headers["content-type"] == STREAM
        question = next(told)
        assert question["method"] == "elicitation/create"
        reply = {"action": "accept", "content": {"name": "Ann"}}
        assert session.post({"jsonrpc": "2.0", "id": question["id"], "result": reply}).status_code == 202
        assert [text(message) for message in told] == ["Ann"]


@pytest.mark.parametrize(
    ("accept", "tool", "arguments", "kind"),
    [
        (BOTH, "echo", {}, JSON),
        ("*/*", "echo", {}, JSON),
        (JSON, "echo", {}, JSON),
        (JSON, "progress", {"steps": 40}, JSON),
        ("application/*;q=0.5", "progress", {"steps": 3}, JSON),
        (STREAM, "echo", {}, STREAM),
        (STREAM, "progress", {"steps": 3}, STREAM),
        (BOTH, "progress", {"steps": 3}, STREAM),
    ],
)
def test_the_client_gets_what_it_accepts(session, accept, tool, arguments, kind):
    answer = session.call(1, tool, arguments, accept=accept)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == kind
    messages = [answer.json()] if kind == JSON else list(events(iter(answer.text.splitlines())))
    assert len(messages) == (1 if kind == JSON else arguments.get("steps", 0) + 1)
    assert "result" in messages[-1]


def test_a_client_that_does_not_say_what_it_accepts_gets_json(session):
    del session.http.headers["accept"]
    answer = session.call(1, "echo", {"text": "plain"})
    assert "accept" not in answer.request.headers
    assert (answer.headers["content-type"], text(answer.json())) == (JSON, "plain")


def test_a_client_that_takes_neither_is_refused(session):
    answer = session.call(1, "echo", {}, accept="text/html")
    assert (answer.status_code, answer.json()["error"]["data"]["code"]) == (406, "INVALID_REQUEST")


def test_a_client_without_streams_waits_as_long_as_it_takes(server, quick, beside, key):
    answer = later(beside, quick, 1, "hold", {"key": key}, accept=JSON)
    server.wait_for_held(key)
    with pytest.raises(TimeoutError):
        answer.result(mcp_probe.QUICK * 6)
    quick.call(2, "release", {"key": key})
    assert answer.result(10).headers["content-type"] == JSON


def test_a_client_without_streams_is_asked_nothing(session):
    answer = session.call(1, "ask", {}, accept=JSON)
    assert answer.headers["content-type"] == JSON
    assert "error" in answer.json()


def test_half_a_surrogate_pair_does_not_lose_the_answer(session):
    assert text(session.call(1, "odd", {}).json()) == "name-?"
    assert text(next(events(iter(session.call(2, "odd", {}, accept=STREAM).text.splitlines())))) == "name-?"


# Ids


@pytest.mark.parametrize(("first", "second"), [(7, 7), (7, "7"), ("seven", "seven"), (0, 0)])
def test_an_id_under_way_is_refused_and_the_first_call_is_answered(server, session, beside, key, first, second):
    answer = later(beside, session, first, "hold", {"key": key})
    server.wait_for_held(key)
    refused = session.call(second, "echo", {"text": "mine"})
    assert refused.status_code == 409
    assert refused.json()["id"] == second
    assert refused.json()["error"]["code"] == -32600
    assert refused.json()["error"]["data"]["code"] == "INVALID_REQUEST"
    session.call("other", "release", {"key": key})
    assert (answer.result(10).json()["id"], text(answer.result().json())) == (first, key)
    assert session.call(first, "echo", {}).status_code == 200


def test_the_same_id_may_be_under_way_in_two_sessions(server, session, beside, key):
    answer = later(beside, session, 7, "hold", {"key": key})
    server.wait_for_held(key)
    with closing(Session(server)) as other:
        assert text(other.call(7, "echo", {"text": "mine"}).json()) == "mine"
        other.call(8, "release", {"key": key})
    assert text(answer.result(10).json()) == key


def test_a_client_that_went_away_leaves_its_id_taken_until_the_call_ends(server, session, key):
    with session.streaming(call(7, "progress", {"steps": 1, "key": key})) as (_, told):
        next(told)
    server.wait_for_held(key)
    assert session.call(7, "echo", {}).status_code == 409
    session.call(8, "release", {"key": key})
    answer = wait_until(lambda: (got := session.call(7, "echo", {"text": "new"})).status_code == 200 and got)
    assert text(answer.json()) == "new"


# Malformed bodies


@pytest.mark.parametrize(
    ("body", "number", "request_id"),
    [
        (b"{PINEAPPLE", -32700, None),
        (json.dumps([request(1, "PINEAPPLE"), notification("ping")]).encode(), -32600, None),
        (json.dumps({"id": 3, "method": "PINEAPPLE"}).encode(), -32600, 3),
        (json.dumps({"jsonrpc": "2.0", "id": None, "method": "PINEAPPLE"}).encode(), -32600, None),
    ],
)
def test_a_malformed_body_is_refused_without_being_repeated(session, body, number, request_id):
    answer = session.post(body)
    assert (answer.status_code, answer.headers["content-type"]) == (400, JSON)
    assert (answer.json()["id"], answer.json()["error"]["code"]) == (request_id, number)
    assert answer.json()["error"]["data"]["code"] == "INVALID_REQUEST"
    assert "PINEAPPLE" not in answer.text
    assert session.call(1, "echo", {}).status_code == 200


def test_a_malformed_first_request_leaves_no_session(server):
    before = server.state()["sessions"]
    headers = {"authorization": "Bearer token-ann", "accept": BOTH, "content-type": JSON}
    assert server.http.post("/mcp", content=b"{", headers=headers).status_code == 400
    assert server.http.post("/mcp", json=call(1, "echo", {}), headers=headers).status_code == 400
    assert server.state()["sessions"] == before


# Cancelling


def test_a_cancelled_call_is_answered_and_its_handler_stopped(server, session, beside, key):
    answer = later(beside, session, 7, "hold", {"key": key})
    server.wait_for_held(key)
    session.post(notification("notifications/cancelled", {"requestId": 7}))
    error = answer.result(10).json()["error"]
    assert (error["code"], error["data"]["code"]) == (-32800, "CANCELLED")
    assert key in server.state()["cancelled"]


def test_a_call_that_streams_is_cancelled_with_a_last_event(server, session, key):
    with session.streaming(call(7, "progress", {"steps": 1, "key": key})) as (_, told):
        next(told)
        server.wait_for_held(key)
        session.post(notification("notifications/cancelled", {"requestId": 7}))
        assert [message["error"]["code"] for message in told] == [-32800]


# The era without sessions


def test_a_client_of_2026_gets_json_or_a_stream_as_needed(server):
    kinds: list[tuple[str, str]] = []
    heard: list[float] = []

    async def note(response: httpx2.Response) -> None:
        method = json.loads(await response.request.aread())["method"]
        kinds.append((method, response.headers["content-type"]))

    async def progress(done: float, total: float | None, message: str | None) -> None:
        heard.append(done)

    async def talk() -> tuple[str, list[str]]:
        headers = {"authorization": "Bearer token-ann"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=20, event_hooks={"response": [note]}) as http,
            mcp.Client(streamable_http_client(f"{server.url}/mcp", http_client=http)) as client,
        ):
            kinds.clear()
            plain = await client.call_tool("echo", {"text": "new"})
            told = await client.call_tool("progress", {"steps": 3}, progress_callback=progress)
            return client.protocol_version, [plain.content[0].text, told.content[0].text]

    sessions = server.state()["sessions"]
    assert anyio.run(talk) == ("2026-07-28", ["new", "done"])
    calls = [kind for method, kind in kinds if method == "tools/call"]
    assert calls == [JSON, STREAM]
    assert heard == [1, 2, 3]
    assert server.state()["sessions"] == sessions


def test_the_sdk_client_of_the_handshake_era_hears_progress(server):
    heard: list[float] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        heard.append(done)

    async def talk() -> list[str]:
        headers = {"authorization": "Bearer token-ann"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=20) as http,
            mcp.Client(streamable_http_client(f"{server.url}/mcp", http_client=http), mode="legacy") as client,
        ):
            plain = await client.call_tool("echo", {"text": "old"})
            told = await client.call_tool("progress", {"steps": 3}, progress_callback=progress)
            return [plain.content[0].text, told.content[0].text]

    assert anyio.run(talk) == ["old", "done"]
    assert heard == [1, 2, 3]


# Whose session it is


def test_a_session_of_somebody_else_is_not_there_and_the_attempt_is_told(server, session):
    mine = session.http.headers["mcp-session-id"]
    bob = {"authorization": "Bearer token-bob"}
    assert session.call(1, "echo", {}, **bob).status_code == 404
    assert session.http.get("/mcp", headers=bob).status_code == 404
    assert session.http.delete("/mcp", headers=bob).status_code == 404
    assert server.state()["foreign"] == [[mine, "bob"]] * 3
    assert session.call(1, "echo", {}).status_code == 200
    assert session.call(1, "echo", {}, **{"mcp-session-id": "0" * 32}).status_code == 404
    assert server.state()["foreign"] == [[mine, "bob"]] * 3


def test_revoking_ends_the_streams_and_calls_of_that_client_alone(server, beside, key):
    with (
        closing(Session(server, "cid")) as cid,
        closing(Session(server, "dan")) as dan,
        cid.http.stream("GET", "/mcp") as cids,
        dan.http.stream("GET", "/mcp") as dans,
    ):
        before = server.state()["sessions"]
        assert (cids.status_code, dans.status_code) == (200, 200)
        open_streams = [beside.submit(cids.read), beside.submit(dans.read)]
        answer = later(beside, cid, 1, "hold", {"key": key})
        server.wait_for_held(key)

        assert server.http.post("/revoke?name=cid").json() == 1

        open_streams[0].result(10)
        error = answer.result(10).json()["error"]
        assert (error["code"], error["data"]["code"]) == (-32800, "CANCELLED")
        wait_until(lambda: key in server.state()["cancelled"])
        assert cid.call(2, "echo", {}).status_code == 404
        assert not open_streams[1].done()
        assert text(dan.call(1, "echo", {"text": "here"}).json()) == "here"
        assert server.state()["sessions"] == before - 1
        assert server.http.post("/revoke?name=cid").json() == 0
        server.http.post("/revoke?name=dan")
        open_streams[1].result(10)


def test_a_deleted_session_is_gone(server, session):
    before = server.state()["sessions"]
    assert session.http.delete("/mcp").status_code == 200
    assert session.call(1, "echo", {}).status_code == 404
    assert server.state()["sessions"] == before - 1


# The end


def test_calls_under_way_are_answered_when_the_server_is_told_to_end(tmp_path, beside):
    with (
        running(tmp_path / "log") as server,
        closing(Session(server)) as ann,
        ann.http.stream("GET", "/mcp") as listens,
    ):
        assert listens.status_code == 200
        listening = beside.submit(listens.read)
        plain = later(beside, ann, 1, "linger", {"key": "plain"})
        streamed = later(beside, ann, 2, "linger", {"key": "streamed", "steps": 1})
        modern = beside.submit(_modern_call, server, "linger", {"key": "modern"})
        for key in ("plain", "streamed", "modern"):
            server.wait_for_held(key)
        server.process.send_signal(signal.SIGTERM)
        assert text(plain.result(10).json()) == "lingered"
        assert text(list(events(iter(streamed.result(10).text.splitlines())))[-1]) == "lingered"
        assert modern.result(10) == "lingered"
        listening.result(10)
        assert server.process.wait(10) == 0
    assert (tmp_path / "log").read_text() == ""


def test_a_call_that_never_ends_does_not_keep_the_server_from_ending(tmp_path, beside):
    with running(tmp_path / "log") as server, closing(Session(server)) as ann:
        answer = later(beside, ann, 1, "hold", {"key": "for ever"})
        server.wait_for_held("for ever")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(mcp_probe.GRACE + 8) == 0
        assert answer.exception(10) is not None or answer.result().status_code >= 500


def _modern_call(server: Server, tool: str, arguments: dict[str, Any]) -> str:
    async def talk() -> str:
        async with (
            httpx2.AsyncClient(headers={"authorization": "Bearer token-eve"}, timeout=20) as http,
            mcp.Client(streamable_http_client(f"{server.url}/mcp", http_client=http)) as client,
        ):
            await client.list_tools()
            return (await client.call_tool(tool, arguments)).content[0].text

    return anyio.run(talk)
