"""stdin and stdout as clients use them: a process of its own, lines written by hand, some of them wrong."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import anyio
import mcp
import pytest
from mcp import StdioServerParameters

from swarm_mcp.stdio import LONGEST_LINE
from tests.fakes import mcp_probe
from tests.support import wait_until

COMMAND = [sys.executable, "-P", mcp_probe.__file__, "stdio"]
ABOUT = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


class Peer:
    """A client that writes what it likes and keeps every line it is sent."""

    def __init__(self, log: Path, *arguments: str, hears: bool = True) -> None:
        self.log = log
        self.lines: list[bytes] = []
        with log.open("w") as stderr:
            self.process = subprocess.Popen(
                [*COMMAND, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, bufsize=0
            )
        self._hearing = threading.Thread(target=self._hear, daemon=True)
        if hears:
            self._hearing.start()

    def _hear(self) -> None:
        with open(self.process.stdout.fileno(), "rb", closefd=False) as lines:
            for line in lines:
                self.lines.append(line)

    def send(self, *messages: dict[str, Any] | bytes) -> None:
        whole = b"".join(m if isinstance(m, bytes) else json.dumps(m).encode() + b"\n" for m in messages)
        left = memoryview(whole)
        while left:
            left = left[self.process.stdin.write(left) :]

    def shake_hands(self) -> None:
        self.send(request("init", "initialize", ABOUT), notification("notifications/initialized"))
        assert self.answer("init")["result"]["serverInfo"]["name"] == "probe"

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in list(self.lines)]

    def errors(self) -> list[tuple[Any, int, str]]:
        found = [message for message in self.messages if "error" in message]
        return [(m["id"], m["error"]["code"], (m["error"].get("data") or {}).get("code")) for m in found]

    def answer(self, request_id: Any) -> dict[str, Any]:
        def found() -> list[dict[str, Any]]:
            return [m for m in self.messages if m.get("id") == request_id and type(m["id"]) is type(request_id)]

        return wait_until(found, what=f"an answer to {request_id!r}")[0]

    def ended(self, within: float = 30.0) -> int:
        """The exit status, once all that was written has been heard."""
        status = self.process.wait(within)
        if self._hearing.is_alive():
            self._hearing.join(5)
        return status

    def close(self) -> None:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                pipe.close()
        self.process.wait(5)
        if self._hearing.ident is not None:
            self._hearing.join(5)


def request(request_id: Any, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}


def notification(method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params or {}}


def call(request_id: Any, tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": f"of-{request_id}"}}
    return request(request_id, "tools/call", params)


def text(message: dict[str, Any]) -> str:
    return message["result"]["content"][0]["text"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "stderr"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with closing(Peer(tmp_path_factory.mktemp("probe") / "stderr")) as made:
        made.shake_hands()
        yield made


@pytest.fixture
def lasting(shared: Peer) -> Peer:
    """For tests after which the server still runs."""
    shared.lines.clear()
    return shared


@pytest.fixture
def peer(log: Path) -> Iterator[Peer]:
    """Waits for answers longer than any test does: one that ends had none to wait for."""
    with closing(Peer(log, "--answer-within", "60")) as made:
        made.shake_hands()
        yield made


# Messages


def test_an_answer_has_the_id_of_its_request(lasting):
    ids = [0, 1, -5, 2**60, "0", "seven", "ünï"]
    lasting.send(*(call(request_id, "echo", text=f"{request_id!r} ☃\u2028\n") for request_id in ids))
    assert [text(lasting.answer(request_id)) for request_id in ids] == [
        f"{request_id!r} ☃\u2028\n" for request_id in ids
    ]


def test_many_requests_at_once_are_all_answered(lasting):
    lasting.send(*(call(n, "echo", text=str(n)) for n in range(1500)))
    wait_until(lambda: len(lasting.lines) == 1500, what="1500 answers")
    assert {m["id"]: text(m) for m in lasting.messages} == {n: str(n) for n in range(1500)}


def test_progress_comes_in_order_before_the_result(lasting):
    lasting.send(call(1, "progress", steps=50))
    lasting.answer(1)
    *progress, result = lasting.messages
    assert [message["params"]["progress"] for message in progress] == list(range(1, 51))
    assert text(result) == "done"


def test_a_message_may_come_in_pieces_and_with_other_line_ends(lasting):
    whole = json.dumps(call(1, "echo", text="pieces")).encode()
    lasting.send(b"\n \r\n", whole[:20])
    lasting.send(whole[20:] + b"\r\n\n")
    assert text(lasting.answer(1)) == "pieces"
    assert lasting.errors() == []


def test_a_large_message_passes_both_ways(lasting):
    size = LONGEST_LINE - 1000
    lasting.send(call(1, "echo", text="x" * size))
    assert len(text(lasting.answer(1))) == size


def test_half_a_surrogate_pair_does_not_lose_the_answer(lasting):
    lasting.send(call(1, "odd"), call(2, "echo", text="next"))
    assert text(lasting.answer(1)) == "name-?"
    assert text(lasting.answer(2)) == "next"


def test_a_cancelled_request_is_not_answered_and_not_waited_for(peer):
    peer.send(call(1, "hold", key="k"), notification("notifications/cancelled", {"requestId": 1}))
    peer.send(call(2, "echo"))
    peer.answer(2)
    peer.process.stdin.close()
    assert peer.ended() == 0
    assert [message["id"] for message in peer.messages] == ["init", 2]


def test_the_cancel_notification_of_old_clients_reaches_the_server(lasting):
    lasting.send(notification("$/cancelRequest", {"id": 77}))
    wait_until(lambda: _state(lasting)["noticed"] == [{"id": 77}])


def test_no_thread_serves(lasting):
    assert _state(lasting)["threads"] == 1


def _state(peer: Peer) -> dict[str, Any]:
    request_id = f"state-{len(peer.lines)}"
    peer.send(call(request_id, "state"))
    return ast.literal_eval(text(peer.answer(request_id)))


# What is no message


def test_a_line_that_is_no_message_is_refused_without_being_repeated(lasting):
    rubbish = [
        (b"PINEAPPLE", -32700, None),
        (b"\x00\xff", -32700, None),
        (b"17", -32600, None),
        (json.dumps([request(1, "PINEAPPLE")]).encode(), -32600, None),
        (json.dumps({"id": 3, "method": "PINEAPPLE"}).encode(), -32600, 3),
    ]
    for n, (line, _, _) in enumerate(rubbish):
        lasting.send(line + b"\n", call(f"after-{n}", "echo", text="alive"))
        assert text(lasting.answer(f"after-{n}")) == "alive"
    assert lasting.errors() == [(request_id, number, "INVALID_REQUEST") for _, number, request_id in rubbish]
    assert b"PINEAPPLE" not in b"".join(lasting.lines)


def test_rubbish_before_the_first_request_is_refused_too(log):
    with closing(Peer(log)) as peer:
        peer.send(b"hello\n", b"[]\n")
        peer.shake_hands()
        assert peer.errors() == [(None, -32700, "INVALID_REQUEST"), (None, -32600, "INVALID_REQUEST")]


def test_a_line_that_is_too_long_is_refused_once_and_skipped_to_its_end(lasting):
    piece = b"x" * 2**20
    for _ in range(2 * LONGEST_LINE // len(piece)):
        lasting.send(piece)
    wait_until(lambda: len(lasting.errors()) == 1, what="the refusal, before the line has ended")
    lasting.send(piece + b"\n", call(1, "echo", text="alive"))
    assert text(lasting.answer(1)) == "alive"
    assert lasting.errors() == [(None, -32600, "INVALID_REQUEST")]


def test_framing_by_content_length_is_refused_and_survived(lasting):
    body = json.dumps(call(1, "echo", text="framed")).encode()
    lasting.send(b"Content-Length: %d\r\n\r\n%b" % (len(body), body) * 2)
    wait_until(lambda: lasting.errors()[:1] == [(None, -32700, "INVALID_REQUEST")])
    lasting.send(b"\n", call(2, "echo", text="alive"))
    assert text(lasting.answer(2)) == "alive"


# The end


def _close(peer: Peer) -> None:
    peer.process.stdin.close()


def _exit(peer: Peer) -> None:
    peer.send(request("bye", "shutdown"), notification("exit"))


def _terminate(peer: Peer) -> None:
    peer.process.send_signal(signal.SIGTERM)


ENDS = pytest.mark.parametrize("end", [_close, _exit, _terminate], ids=["eof", "exit", "sigterm"])


@ENDS
def test_an_idle_server_ends_at_once(peer, end):
    end(peer)
    assert peer.ended() == 0
    assert peer.log.read_text() == ""


@ENDS
def test_requests_under_way_are_answered_before_the_end(peer, end):
    peer.send(call(1, "slow", seconds=0.5), call(2, "slow", seconds=0.7), call(3, "echo"))
    peer.answer(3)
    end(peer)
    assert peer.ended() == 0
    assert [text(peer.answer(n)) for n in (1, 2)] == ["slow", "slow"]
    assert peer.errors() == []


@ENDS
def test_a_request_that_never_ends_is_given_up(log, end):
    with closing(Peer(log, "--answer-within", "0.3")) as peer:
        peer.shake_hands()
        peer.send(call(1, "hold", key="for ever"), call(2, "echo"))
        peer.answer(2)
        end(peer)
        assert peer.ended() == 0
        assert [(wrong, code) for wrong, code, _ in peer.errors()] == [(1, -32603)]


def test_shutdown_is_answered_before_exit(peer):
    _exit(peer)
    assert peer.ended() == 0
    assert peer.answer("bye")["result"] == {}


def test_nothing_after_exit_is_read(peer):
    peer.send(notification("exit"), call(1, "echo"))
    assert peer.ended() == 0
    assert [message["id"] for message in peer.messages] == ["init"]


def test_a_server_nobody_talks_to_ends_too(log):
    for end in (_close, _terminate):
        with closing(Peer(log)) as peer:
            peer.send(b"\n" if end is _close else b"rubbish\n")
            if end is _terminate:
                wait_until(lambda heard=peer: heard.lines)
            end(peer)
            assert peer.ended() == 0


# stdout is for the protocol alone


def test_stray_output_goes_to_stderr_and_children_get_no_input(peer):
    peer.send(call(1, "print", text="stray"), call(2, "echo"))
    assert text(peer.answer(1)) == "0"
    assert text(peer.answer(2)) == ""
    peer.process.stdin.close()
    assert peer.ended() == 0
    assert [message["id"] for message in peer.messages] == ["init", 1, 2]
    said = peer.log.read_text()
    assert all(f"stray from {source}" in said for source in ("print", "fd 1", "a child"))


# Clients that do not read


def test_a_client_that_does_not_read_is_not_read_from_for_ever(log):
    with closing(Peer(log, hears=False)) as peer:
        peer.send(request("init", "initialize", ABOUT), notification("notifications/initialized"))
        os.set_blocking(peer.process.stdin.fileno(), False)
        sent = _flood(peer, [json.dumps(call(n, "big", size=10_000)).encode() + b"\n" for n in range(20_000)])
        assert sent < 20_000
        assert _resident(peer.process.pid) < 200 * 2**20
        peer.process.stdin.close()
        peer.process.stdout.close()
        assert peer.process.wait(30) == 0
        assert log.read_text() == ""


def _flood(peer: Peer, lines: list[bytes]) -> int:
    """Write until the server has taken nothing for two seconds; how many lines went out."""
    for n, line in enumerate(lines):
        deadline = time.monotonic() + 2
        while peer.process.stdin.write(line) is None:
            if time.monotonic() > deadline:
                return n
            time.sleep(0.01)
    return len(lines)


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_client_that_reads_late_gets_everything(log):
    with closing(Peer(log, hears=False)) as peer:
        peer.send(request("init", "initialize", ABOUT), notification("notifications/initialized"))
        peer.send(*(call(n, "big", size=10_000) for n in range(300)))
        peer.process.stdin.close()
        lines = _all_of(peer.process.stdout.fileno()).splitlines()
        assert [len(text(json.loads(line))) for line in lines[1:]] == [10_000] * 300
        assert peer.process.wait(30) == 0


def _all_of(fd: int) -> bytes:
    pieces = []
    while piece := os.read(fd, 2**16):
        pieces.append(piece)
    return b"".join(pieces)


def test_a_client_that_stops_listening_ends_the_server_quietly(log):
    with closing(Peer(log, "--answer-within", "0.3", hears=False)) as peer:
        peer.send(request("init", "initialize", ABOUT), notification("notifications/initialized"))
        peer.process.stdout.readline()
        peer.process.stdout.close()
        peer.send(call(1, "echo"), call(2, "hold", key="k"))
        assert peer.process.wait(30) == 0
        assert log.read_text() == ""


# Other things than pipes


def test_a_file_is_read_to_its_end_and_a_file_is_written(tmp_path):
    asked = [request("init", "initialize", ABOUT), *(call(n, "slow", seconds=0.1) for n in range(3))]
    (tmp_path / "in").write_text("\n".join(json.dumps(message) for message in asked))
    with (tmp_path / "in").open() as stdin, (tmp_path / "out").open("w") as stdout:
        done = subprocess.run(COMMAND, stdin=stdin, stdout=stdout, timeout=60, check=False)
    answers = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert done.returncode == 0
    assert sorted(str(answer["id"]) for answer in answers if "result" in answer) == ["0", "1", "2", "init"]


def test_no_input_at_all_is_the_end():
    done = subprocess.run(COMMAND, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_sdk_client_is_served_in_both_eras(mode):
    heard: list[float] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        heard.append(done)

    async def talk() -> tuple[str, list[str]]:
        program = StdioServerParameters(command=COMMAND[0], args=COMMAND[1:])
        async with mcp.Client(program, mode=mode) as client:
            plain = await client.call_tool("echo", {"text": "hello"})
            told = await client.call_tool("progress", {"steps": 3}, progress_callback=progress)
            return client.protocol_version, [plain.content[0].text, told.content[0].text]

    version = "2026-07-28" if mode == "auto" else "2025-11-25"
    assert anyio.run(talk) == (version, ["hello", "done"])
    assert heard == [1, 2, 3]
