"""HTTP of every kind on every path: the server lives, answers in form, and tells nothing it should not."""

from __future__ import annotations

import contextlib
import http.client
import io
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.integration.fuzz_fixture import BOTH, JSON, STATUSES, Reply, Target, fuzzed, target
from tests.mcp_client import VERSION
from tests.odd_json import ANYTHING, Raw, encode, mostly
from tests.odd_messages import documents

__all__ = ["target"]


@dataclass(frozen=True)
class Shot:
    """Bytes for a connection of their own; `whole` when they are one complete request."""

    raw: bytes
    whole: bool
    ending: str
    piece: int


PATHS = mostly(
    st.sampled_from(["/mcp", "/mcp", "/hooks/stop", "/hooks/x", "/metrics", "/health", "/nope"]),
    st.sampled_from(
        [
            *(
                "/mcp/",
                "//mcp",
                "/mcp?a=%ff&b",
                "/%00",
                "/%ff%fe",
                "/hooks/",
                "/hooks/a/b",
                "/hooks/%2e%2e%2f",
                "*",
                "",
            ),
            *(
                "http://evil.invalid/mcp",
                "/hooks/" + "é" * 50,
                "/" + "a" * 20_000,
                "/hooks/\x7f",
                "/hooks/stop#x",
                "/",
            ),
        ]
    ),
    odds=2,
)
VERBS = mostly(
    st.sampled_from(["POST", "POST", "POST", "GET", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"]),
    st.sampled_from(["TRACE", "CONNECT", "gEt", "X" * 60, ""]),
    odds=9,
)
ODD_HEADERS = st.sampled_from(
    [
        *(b"x-instance-id: work-471100-a1", b"x-forwarded-user: operator", b"origin: http://evil.invalid"),
        *(b"expect: 100-continue", b"expect: nothing", b"te: trailers", b"accept-encoding: gzip, br"),
        *(b"content-encoding: gzip", b"mcp-session-id: \xff\xfe", b"mcp-session-id: ../../x", b"last-event-id: 1"),
        *(b"mcp-protocol-version: 2026-07-28", b"mcp-protocol-version: \xff", b"mcp-protocol-version: 1999-01-01"),
        *(
            b"x: " + b"y" * 100_000,
            b"y" * 10_000 + b": x",
            b"no colon",
            b": empty",
            b"a b: c",
            b"x: a\0b",
            b" folded",
        ),
        *(b"cookie: " + b"a=b; " * 5000, b"\r\n".join(b"x-%d: y" % n for n in range(2000)), b"x: \xff\xfe\x80"),
    ]
)
LENGTHS = st.sampled_from([b"0", b"-1", b"+5", b"5 5", b"0x10", b"99999999999999999999", b"1e3", b"", b"\xb2"])


@st.composite
def shots(draw: st.DrawFn, port: int, tokens: dict[str, str]) -> Shot:
    verb, path = draw(VERBS), draw(PATHS)
    version = draw(
        mostly(st.just("HTTP/1.1"), st.sampled_from(["HTTP/1.0", "HTTP/2.0", "HTTP/9.9", "HTTQ", ""]), odds=9)
    )
    odd = draw(mostly(st.just([]), st.lists(ODD_HEADERS, min_size=1, max_size=2), odds=2))
    body = draw(mostly(documents(), st.binary(max_size=300)))
    lines = [
        b"connection: close",
        b"content-type: application/json",
        b"accept: application/json, text/event-stream",
    ]
    host = draw(
        mostly(st.just(f"127.0.0.1:{port}"), st.sampled_from(["evil.invalid", "", "127.0.0.1", "[::1]:x"]), odds=9)
    )
    lines += [b"host: " + host.encode()]
    token = draw(mostly(st.sampled_from([*tokens.values()]), st.sampled_from(["", "x" * 9000, "é", "a b"])))
    scheme = draw(mostly(st.just("Bearer"), st.sampled_from(["bearer", "Basic", "", "Bearer Bearer"])))
    lines += [f"authorization: {scheme} {token}".encode()] * draw(
        mostly(st.just(1), st.sampled_from([0, 2]), odds=6)
    )
    framing = draw(
        mostly(
            st.sampled_from(["length", "length", "chunked"]),
            st.sampled_from(["odd length", "odd chunks", "both", "none"]),
        )
    )
    if framing in ("length", "both"):
        lines.append(b"content-length: %d" % len(body))
    if framing == "odd length":
        lines.append(b"content-length: " + draw(LENGTHS))
    if framing in ("chunked", "odd chunks", "both"):
        lines.append(b"transfer-encoding: chunked")
        body = chunked(body, draw(st.integers(1, 500)))
    if framing == "odd chunks":
        at = draw(st.integers(0, len(body)))
        body = body[:at] + draw(
            st.sampled_from([b"zz\r\n", b"\xff" * 5, b"ffffffffffffffff\r\n", b"-1\r\n", b"0\r\n\r\n"])
        )
    start = f"{verb} {path} {version}\r\n".encode(errors="surrogatepass")
    raw = start + b"\r\n".join([*draw(st.permutations(lines)), *odd]) + b"\r\n\r\n" + body
    whole = framing in ("length", "chunked") and version in ("HTTP/1.1", "HTTP/1.0")
    ending = draw(mostly(st.just("read"), st.sampled_from(["half", "reset", "cut"]), odds=5))
    if ending == "cut":
        raw = raw[: draw(st.integers(0, len(raw)))]
    return Shot(raw, whole and ending == "read", ending, draw(st.sampled_from([1 << 20, 1 << 20, 7, 1])))


def chunked(body: bytes, size: int) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def fire(port: int, shot: Shot, *, patience: float = 10) -> bytes:
    """All that comes back until the server closes. What is not whole is ended here, or both sides would wait."""
    with socket.create_connection(("127.0.0.1", port), timeout=patience) as line:
        with contextlib.suppress(ConnectionError):
            for at in range(0, min(len(shot.raw), 60 * shot.piece), shot.piece):
                line.sendall(shot.raw[at : at + shot.piece])
            line.sendall(shot.raw[60 * shot.piece :])
        if shot.ending == "reset":
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return b""
        with contextlib.suppress(OSError):
            if not shot.whole:
                line.shutdown(socket.SHUT_WR)
        found = b""
        with contextlib.suppress(ConnectionError):
            while part := line.recv(1 << 16):
                found += part
        return found


class _Bytes:
    """What `http.client` takes for a socket."""

    def __init__(self, raw: bytes) -> None:
        self.file = io.BytesIO(raw)
        self.file.close = lambda: None  # type: ignore[method-assign]  # several answers are read from it

    def makefile(self, _: str) -> io.BytesIO:
        return self.file


def answers(raw: bytes, *, verb: str = "") -> list[Reply]:
    """The answers in the bytes, each read to its end; raises for bytes that are none."""
    source, found = _Bytes(raw), []
    while source.file.tell() < len(raw):
        answer = http.client.HTTPResponse(source, method=verb)  # type: ignore[arg-type]
        answer.begin()
        body = answer.read()
        found.append(Reply(answer.status, {n.lower(): v for n, v in answer.getheaders()}, body))
    return found


HTTP_STATUSES = STATUSES | {204, 307, 401, 403}


def test_no_http_is_too_odd(target: Target) -> None:
    target.seen.clear()

    @fuzzed(250)
    @given(shot=shots(target.mcp.port, target.tokens))
    def shoot(shot: Shot) -> None:
        raw = fire(target.mcp.port, shot)
        try:
            found = answers(raw)
        except http.client.IncompleteRead:
            found = answers(raw, verb="HEAD")
        assert found or not shot.whole
        for answer in found:
            target.seen[str(answer.status)] += 1
            if answer.headers.get("content-type", "") == JSON and b'"role"' in answer.body:
                continue  # the page that tells of health
            assert answer.status in HTTP_STATUSES, answer
            if answer.status >= 400:
                target.check_silence(answer.text)
        target.check()

    shoot()
    print(dict(target.seen))
    assert min(target.seen[c] for c in ("200", "400", "401", "403", "404", "405")) > 0, target.seen


HOOKS = st.sampled_from(
    ["stop", "notification", "session_end", "session_start", "x", "SessionEnd", "%00", "é", "a.b"]
)


def test_no_hook_is_too_odd(target: Target) -> None:
    """An agent waits for the answer, so there is one: done, or not understood."""
    target.seen.clear()

    @fuzzed(150)
    @given(event=HOOKS, body=mostly(st.fixed_dictionaries({"detail": ANYTHING}), ANYTHING | st.none()).map(encode))
    @example("stop", encode({"detail": Raw("[" * 970 + "]" * 970)}))
    def shoot(event: str, body: bytes) -> None:
        headers = {"authorization": f"Bearer {target.tokens['review']}", "content-type": JSON}
        reply = target.request("POST", f"/hooks/{quote(event)}", body, headers)
        assert reply.status in (200, 400), reply
        target.seen[str(reply.status)] += 1
        target.check_silence(reply.text)
        target.check()

    shoot()
    print(dict(target.seen))
    assert min(target.seen["200"], target.seen["400"]) > 5


def test_pipelined_requests_are_answered_in_order_whatever_is_among_them(target: Target) -> None:
    session = f"mcp-session-id: {target.session('operator')}\r\nmcp-protocol-version: {VERSION}\r\n"
    ping = encode({"jsonrpc": "2.0", "id": 7, "method": "ping"})
    known = [
        (b"POST", "/mcp", ping, 200),
        (b"POST", "/mcp", b"{", 400),
        (b"GET", "/health", b"", 200),
        (b"POST", "/nope", b"x" * 5000, 404),
        (b"PUT", "/mcp", ping, 405),
        (b"POST", "/mcp", ping, 200),
    ] * 5
    raw = b""
    for verb, path, body, _ in known:
        head = f"{path} HTTP/1.1\r\nhost: 127.0.0.1:{target.mcp.port}\r\ncontent-length: {len(body)}\r\n{session}"
        head += (
            f"authorization: Bearer {target.tokens['operator']}\r\ncontent-type: {JSON}\r\naccept: {BOTH}\r\n\r\n"
        )
        raw += verb + b" " + head.encode() + body
    last = f"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1:{target.mcp.port}\r\nconnection: close\r\n\r\n".encode()
    found = answers(fire(target.mcp.port, Shot(raw + last, True, "read", 1 << 20)))
    assert [answer.status for answer in found] == [status for *_, status in known] + [401]
    target.check()


@pytest.mark.parametrize(("path", "status"), [("/mcp", 413), ("/hooks/stop", 400), ("/nope", 404)])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_body_that_is_too_large_is_refused(target: Target, path: str, status: int, framing: str) -> None:
    body = b'{"a":"' + b"x" * (9 << 20) + b'"}'
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{target.mcp.port}\r\n"
    head += f"authorization: Bearer {target.tokens['review']}\r\ncontent-type: {JSON}\r\naccept: {BOTH}\r\n"
    head += f"content-length: {len(body)}\r\n\r\n" if framing == "length" else "transfer-encoding: chunked\r\n\r\n"
    raw = head.encode() + (body if framing == "length" else chunked(body, 1 << 16))
    with socket.create_connection(("127.0.0.1", target.mcp.port), timeout=20) as line:
        sending = threading.Thread(target=quietly, args=(lambda: line.sendall(raw),), daemon=True)
        sending.start()
        found = line.recv(1 << 16)
        assert found.startswith(f"HTTP/1.1 {status} ".encode()), found
        quietly(lambda: line.shutdown(socket.SHUT_RDWR))
        sending.join(10)
    target.check()


def quietly(work: Callable[[], object]) -> None:
    with contextlib.suppress(OSError):
        work()


def test_bodies_that_never_come_hold_nobody_up(target: Target) -> None:
    """And one that comes a byte at a time is answered when it is there."""
    ping = encode({"jsonrpc": "2.0", "id": 7, "method": "ping"})
    head = f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{target.mcp.port}\r\ncontent-length: {len(ping)}\r\n"
    head += (
        f"mcp-session-id: {target.session('operator')}\r\nauthorization: Bearer {target.tokens['operator']}\r\n"
    )
    raw = f"{head}content-type: {JSON}\r\naccept: {BOTH}\r\nconnection: close\r\n\r\n".encode() + ping
    with contextlib.ExitStack() as stack:
        lines = [socket.create_connection(("127.0.0.1", target.mcp.port), timeout=20) for _ in range(100)]
        for number, line in enumerate(lines):
            stack.enter_context(line)
            line.sendall(raw[: len(raw) * number // len(lines)])
        for _ in range(10):
            began = time.monotonic()
            target.check(target.send("operator", ping))
            assert time.monotonic() - began < 5
        slow = lines[-1]
        for at in range(len(raw) * 99 // 100, len(raw)):
            slow.sendall(raw[at : at + 1])
        assert slow.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    target.check()
