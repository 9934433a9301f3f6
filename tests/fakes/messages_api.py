"""A stand-in for the Anthropic Messages API on loopback: the test is the model, and sees every request.

A script is a function from a request to a reply. `Play` is one that is written as rules. The client's own side
requests (titles, summaries) are answered without asking the script.
"""

from __future__ import annotations

import itertools
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

_LONGEST_HOLD_S = 300.0
_PIECE = 40  # characters of one delta


# Replies


@dataclass(frozen=True, slots=True)
class Usage:
    """What one reply is said to have cost, in tokens."""

    input: int = 120
    output: int = 12
    cache_read: int = 0
    cache_write: int = 0


@dataclass(frozen=True, slots=True)
class Text:
    """The model says something and ends its turn."""

    text: str
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The model calls one tool; `id` is made up when it is empty."""

    name: str
    input: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Blocks:
    """Several content blocks in one message, such as a sentence and two tool calls."""

    blocks: tuple[Text | ToolUse, ...]
    usage: Usage | None = None

    def __init__(self, *blocks: Text | ToolUse, usage: Usage | None = None) -> None:
        object.__setattr__(self, "blocks", blocks)
        object.__setattr__(self, "usage", usage)


@dataclass(frozen=True, slots=True)
class Error:
    """An HTTP error in the API's shape, such as Error(429, "rate_limit_error", "slow down")."""

    status: int
    type: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Drop:
    """The connection is cut in the middle of the stream, after `text` was said."""

    text: str = "I was about to"


@dataclass(frozen=True, slots=True)
class Slow:
    """The reply, `seconds` after its stream began."""

    seconds: float
    reply: Reply


@dataclass(frozen=True, slots=True)
class Held:
    """The reply, once the test opens the gate; until then the model thinks."""

    gate: threading.Event
    reply: Reply


Reply = Text | ToolUse | Blocks | Error | Drop | Slow | Held
Script = Callable[["Request"], Reply]


OVERLOADED = Error(529, "overloaded_error", "Overloaded")
RATE_LIMITED = Error(429, "rate_limit_error", "This request would exceed your account's rate limit.")
UNAUTHORISED = Error(401, "authentication_error", "invalid x-api-key")
NO_CREDIT = Error(
    400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API. Please go to Plans."
)
TOO_LONG = Error(400, "invalid_request_error", "prompt is too long: 200251 tokens > 200000 maximum")


# Requests


@dataclass(frozen=True, slots=True)
class ToolResult:
    tool_use_id: str
    text: str
    is_error: bool


@dataclass(frozen=True)
class Request:
    """One request as it came; `number` counts from 1 over all requests, `at` is time.time()."""

    number: int
    at: float
    method: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def is_message(self) -> bool:
        return self.method == "POST" and urlsplit(self.path).path == "/v1/messages"

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def messages(self) -> list[dict[str, Any]]:
        found = self.body.get("messages")
        return found if isinstance(found, list) else []

    @cached_property
    def system(self) -> str:
        """The system prompt; system messages inside the conversation are not part of it."""
        return "\n".join(_texts(self.body.get("system")))

    @cached_property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools offered."""
        return tuple(str(tool.get("name", "")) for tool in self.body.get("tools") or [])

    @cached_property
    def new_messages(self) -> list[dict[str, Any]]:
        """What was added since the model last spoke: prompts, tool results, reminders."""
        turns = self.messages
        last = max((i for i, m in enumerate(turns) if m.get("role") == "assistant"), default=-1)
        return turns[last + 1 :]

    @cached_property
    def new_text(self) -> str:
        """All text added since the model last spoke, tool results and reminders included."""
        return "\n".join(text for m in self.new_messages for text in _texts(m.get("content"), results=True))

    @cached_property
    def last_user_text(self) -> str:
        """What a person, or whoever types for one, said last; "" after a tool call."""
        for message in reversed(self.new_messages):
            if message.get("role") != "user":
                continue
            for text in reversed(_texts(message.get("content"))):
                if not text.lstrip().startswith("<system-reminder>"):
                    return text
        return ""

    @cached_property
    def first_user_text(self) -> str:
        """The prompt the conversation began with."""
        for message in self.messages:
            if message.get("role") == "user":
                for text in _texts(message.get("content")):
                    if not text.lstrip().startswith("<system-reminder>"):
                        return text
        return ""

    @cached_property
    def tool_results(self) -> list[ToolResult]:
        """The results that came since the model last spoke."""
        return [
            ToolResult(
                str(block.get("tool_use_id", "")),
                "\n".join(_texts(block.get("content"))),
                bool(block.get("is_error")),
            )
            for message in self.new_messages
            for block in _blocks(message.get("content"))
            if block.get("type") == "tool_result"
        ]

    @cached_property
    def text(self) -> str:
        """Everything the model can read: system prompt, conversation, tool results."""
        said = [text for m in self.messages for text in _texts(m.get("content"), results=True)]
        return "\n".join([self.system, *said])

    @cached_property
    def session(self) -> str:
        """The client's session id, which `--session-id` chooses; its subagents have the same."""
        user = (self.body.get("metadata") or {}).get("user_id")
        found = re.search(r"session_id\W+([0-9a-f-]{36})", str(user))
        return found[1] if found else self.headers.get("x-claude-code-session-id", "")

    @cached_property
    def conversation(self) -> str:
        """Which conversation it belongs to; a subagent's is apart from its parent's."""
        subagent = self.headers.get("x-claude-code-agent-id")
        return f"{self.session}/{subagent}" if subagent else self.session or self.first_user_text[:200]

    @cached_property
    def side(self) -> str:
        """What the client asks for itself, not for the person: "title", "compact", or "" for a turn."""
        if not self.is_message:
            return "other"
        if "create a detailed summary" in self.last_user_text:
            return "compact"
        return "" if self.tools else "title"


def _blocks(content: object) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _texts(content: object, *, results: bool = False) -> list[str]:
    found: list[str] = []
    for block in _blocks(content):
        if block.get("type") == "text":
            found.append(str(block.get("text", "")))
        elif results and block.get("type") == "tool_result":
            found += _texts(block.get("content"))
    return found


# A script written as rules

Predicate = Callable[[Request], bool]
Answer = Reply | Script


def says(text: str) -> Predicate:
    """Something new since the model last spoke contains the text: a prompt, a result, a reminder."""
    return lambda request: text in request.new_text


def asked(text: str) -> Predicate:
    """The last thing a person said contains the text."""
    return lambda request: text in request.last_user_text


def got_result(text: str = "") -> Predicate:
    """A tool result came that contains the text."""
    return lambda request: any(text in result.text for result in request.tool_results)


def anything(_: Request) -> bool:
    return True


@dataclass
class _Rule:
    predicate: Predicate
    marker: str
    answers: tuple[Answer, ...] = ()
    repeats: bool = False


class When:
    """Half a rule; `then` or `always` completes it."""

    def __init__(self, play: Play, rule: _Rule) -> None:
        self._play, self._rule = play, rule

    def then(self, *answers: Answer) -> Play:
        """Once per conversation: the first answer now, the others to the requests that follow."""
        return self._play._add(self._rule, answers, repeats=False)

    def always(self, answer: Answer) -> Play:
        """Every time it holds."""
        return self._play._add(self._rule, (answer,), repeats=True)


class Play:
    """Rules tried in order in every conversation apart; `otherwise` is said when none holds.

    `play.of(marker)` writes rules only for conversations that mention the marker, such as an instance's worktree
    path or its conversation id.
    """

    def __init__(self, otherwise: Answer = Text("ok")) -> None:
        self.otherwise = otherwise
        self._rules: list[_Rule] = []
        self._used: dict[str, set[int]] = {}
        self._next: dict[str, list[Answer]] = {}
        self._lock = threading.Lock()

    def when(self, predicate: Predicate, *, of: str = "") -> When:
        return When(self, _Rule(predicate, of))

    def of(self, marker: str) -> Part:
        return Part(self, marker)

    def _add(self, rule: _Rule, answers: tuple[Answer, ...], *, repeats: bool) -> Play:
        assert answers, "a rule needs an answer"
        rule.answers, rule.repeats = answers, repeats
        with self._lock:
            self._rules.append(rule)
        return self

    def __call__(self, request: Request) -> Reply:
        with self._lock:
            answer = self._choose(request)
        return answer(request) if callable(answer) else answer

    def _choose(self, request: Request) -> Answer:
        waiting = self._next.setdefault(request.conversation, [])
        if waiting:
            return waiting.pop(0)
        used = self._used.setdefault(request.conversation, set())
        for number, rule in enumerate(self._rules):
            if number in used or not _mentions(request, rule.marker) or not rule.predicate(request):
                continue
            if not rule.repeats:
                used.add(number)
                waiting += rule.answers[1:]
            return rule.answers[0]
        return self.otherwise


class Part:
    """The rules of one agent in a play."""

    def __init__(self, play: Play, marker: str) -> None:
        self._play, self._marker = play, marker

    def when(self, predicate: Predicate) -> When:
        return self._play.when(predicate, of=self._marker)


def _mentions(request: Request, marker: str) -> bool:
    return not marker or marker in (request.session, request.conversation) or marker in request.text


# The server


class MessagesApi(ThreadingHTTPServer):
    """`with MessagesApi(script) as api:` serves on `api.url`; a failure inside the script is raised at the end."""

    daemon_threads = True

    def __init__(self, script: Script | None = None, *, usage: Usage = Usage()) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: Script = script or Play()
        self.usage = usage
        self.closing = threading.Event()
        self.failures: list[BaseException] = []
        self._requests: list[Request] = []
        self._news = threading.Condition()
        self._ids = itertools.count(1)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def requests(self) -> list[Request]:
        """Everything that was asked so far, side requests included."""
        with self._news:
            return list(self._requests)

    def turns(self, marker: str = "") -> list[Request]:
        """The requests of real turns, of the conversations that mention the marker."""
        return [r for r in self.requests if not r.side and _mentions(r, marker)]

    def wait_for(self, predicate: Predicate, *, marker: str = "", timeout: float = 30.0) -> Request:
        """The first turn of which the predicate holds, as soon as it is there."""
        deadline = time.monotonic() + timeout
        with self._news:
            while True:
                turns = (r for r in self._requests if not r.side and _mentions(r, marker))
                found = next((r for r in turns if predicate(r)), None)
                if found is not None:
                    return found
                left = deadline - time.monotonic()
                assert left > 0, f"not asked within {timeout:g} s: {[r.new_text[-300:] for r in self._requests]}"
                self._news.wait(left)

    def record(self, method: str, path: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> Request:
        with self._news:
            request = Request(len(self._requests) + 1, time.time(), method, path, headers, body)
            self._requests.append(request)
            self._news.notify_all()
        return request

    def decide(self, request: Request) -> Reply:
        if request.side:
            return _SIDE.get(request.side, Text("ok"))
        try:
            return self.script(request)
        except Exception as error:  # noqa: BLE001 - the test hears of it in __exit__; the client must not retry
            self.failures.append(error)
            return Error(400, "invalid_request_error", f"the script failed: {error!r}")

    def new_id(self, prefix: str) -> str:
        return f"{prefix}_{next(self._ids):06d}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception() if hasattr(sys, "exception") else sys.exc_info()[1]
        if error is not None and not isinstance(error, ConnectionError | TimeoutError):
            self.failures.append(error)

    def __enter__(self) -> MessagesApi:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.closing.set()
        self.shutdown()
        self.server_close()
        self._thread.join(10)
        if self.failures and kind is None:
            raise self.failures[0]


class _Handler(BaseHTTPRequestHandler):
    server: MessagesApi
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_HEAD(self) -> None:
        self._record({})
        self._json(200, {})

    def do_GET(self) -> None:
        self._record({})
        path = urlsplit(self.path).path
        if path == "/v1/models":
            return self._json(200, {"data": [], "has_more": False, "first_id": None, "last_id": None})
        return self._json(200, {}) if path == "/" else self._error(_NOT_FOUND)

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(data or b"{}")
        except ValueError:
            body = None
        request = self._record(body if isinstance(body, dict) else {})
        match urlsplit(self.path).path:
            case _ if body is None:
                self._error(Error(400, "invalid_request_error", "the body is no JSON"))
            case "/v1/messages":
                self._reply(request, self.server.decide(request))
            case "/v1/messages/count_tokens":
                self._json(200, {"input_tokens": max(1, len(data) // 4)})
            case _:
                self._error(_NOT_FOUND)

    def _record(self, body: Mapping[str, Any]) -> Request:
        headers = {name.lower(): value for name, value in self.headers.items()}
        return self.server.record(self.command, self.path, headers, body)

    def _reply(self, request: Request, reply: Reply) -> None:
        match reply:
            case Slow(seconds, inner):
                self.server.closing.wait(seconds)
                self._reply(request, inner)
            case Held(gate, inner):
                _wait_for_either(gate, self.server.closing)
                self._reply(request, inner)
            case Error():
                self._error(reply)
            case Drop(text):
                self._cut(request, text)
            case Text() | ToolUse():
                self._message(request, (reply,), reply.usage)
            case Blocks(blocks, usage):
                self._message(request, blocks, usage)

    def _message(self, request: Request, blocks: Iterable[Text | ToolUse], usage: Usage | None) -> None:
        message = self._envelope(request, blocks, usage or self.server.usage)
        if request.stream:
            with self._events() as send:
                for event in _stream(message):
                    send(event)
        else:
            self._json(200, message)

    def _envelope(self, request: Request, blocks: Iterable[Text | ToolUse], usage: Usage) -> dict[str, Any]:
        content = [self._content(block) for block in blocks]
        calls = any(block["type"] == "tool_use" for block in content)
        return {
            "id": self.server.new_id("msg_stub"),
            "type": "message",
            "role": "assistant",
            "model": request.model,
            "content": content,
            "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": usage.input,
                "cache_creation_input_tokens": usage.cache_write,
                "cache_read_input_tokens": usage.cache_read,
                "output_tokens": usage.output,
                "service_tier": "standard",
            },
        }

    def _content(self, block: Text | ToolUse) -> dict[str, Any]:
        if isinstance(block, Text):
            return {"type": "text", "text": block.text}
        made = block.id or self.server.new_id("toolu_stub")
        return {"type": "tool_use", "id": made, "name": block.name, "input": dict(block.input)}

    def _cut(self, request: Request, text: str) -> None:
        events = itertools.takewhile(
            lambda event: event["type"] != "content_block_stop",
            _stream(self._envelope(request, [Text(text)], self.server.usage)),
        )
        self._start_events()
        for event in events:
            self._chunk(_frame(event))
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def _events(self) -> Iterator[Callable[[dict[str, Any]], None]]:
        self._start_events()
        yield lambda event: self._chunk(_frame(event))
        self._chunk(b"")

    def _start_events(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("request-id", self.server.new_id("req_stub"))
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _error(self, error: Error) -> None:
        said = {"type": "error", "error": {"type": error.type, "message": error.message}}
        made = self.server.new_id("req_stub")
        self._json(error.status, said | {"request_id": made}, **{"request-id": made, **error.headers})

    def _json(self, status: int, body: Mapping[str, Any], **headers: str) -> None:
        data = b"" if self.command == "HEAD" else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


_SIDE = {"title": Text("A conversation"), "compact": Text("<summary>What was done so far.</summary>")}
_NOT_FOUND = Error(404, "not_found_error", "Not found")


def _wait_for_either(gate: threading.Event, closing: threading.Event) -> None:
    deadline = time.monotonic() + _LONGEST_HOLD_S
    while not gate.wait(0.05) and not closing.is_set():
        assert time.monotonic() < deadline, f"nobody opened the gate within {_LONGEST_HOLD_S:g} s"


def _frame(event: Mapping[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _stream(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of a whole message, in the API's order."""
    empty = {"content": [], "stop_reason": None, "usage": message["usage"] | {"output_tokens": 1}}
    yield {"type": "message_start", "message": {**message, **empty}}
    for index, block in enumerate(message["content"]):
        yield from _block_events(index, block)
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    spent = {name: count for name, count in message["usage"].items() if name != "service_tier"}
    yield {"type": "message_delta", "delta": delta, "usage": spent}
    yield {"type": "message_stop"}


def _block_events(index: int, block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    empty: dict[str, Any]
    if block["type"] == "text":
        empty, kind, key, whole = {"text": ""}, "text_delta", "text", block["text"]
    else:
        empty, kind, key, whole = {"input": {}}, "input_json_delta", "partial_json", json.dumps(block["input"])
    yield {"type": "content_block_start", "index": index, "content_block": {**block, **empty}}
    if index == 0:
        yield {"type": "ping"}
    for at in range(0, len(whole), _PIECE):
        delta = {"type": kind, key: whole[at : at + _PIECE]}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}
