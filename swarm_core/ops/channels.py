"""Ways to reach a person outside the terminal: the desktop and a webhook. What fails raises a SwarmError."""

from __future__ import annotations

import base64
import contextlib
import html
import http.client
import json
import shutil
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from swarm_core import proc
from swarm_core.errors import ExternalFailure

TIMEOUT = 5.0
_LINE = 200
_TEXT = 1500
# ntfy shows JSON that is sent to a topic as it is, unless told where in it title and text are.
_NTFY = {"X-Template": "yes", "X-Title": "{{.title}}", "X-Message": "{{.message}}"}


@dataclass(frozen=True, slots=True)
class Call:
    """What a person is told; `priority` goes from 1 to 5."""

    instance_id: str
    reason: str
    title: str
    text: str
    more: str
    command: str
    priority: int


def line(calls: Sequence[Call]) -> str:
    """All of them in one line for a terminal, which has room for no more."""
    if len(calls) == 1:
        return plain(f"{calls[0].title}: {calls[0].text} | {calls[0].command}")
    named = ", ".join(dict.fromkeys(f"{call.title}: {call.text}" for call in calls))
    return plain(f"swarm ls | {len(calls)} reasons to look: {named}")


def desktop(call: Call) -> None:
    """Show it with notify-send."""
    program = shutil.which("notify-send")
    if program is None:
        raise ExternalFailure("notify-send is not installed", hint="`swarm config notify_desktop 0` turns it off")
    # notify-send reads backslash escapes in the body, and what shows it reads markup.
    body = html.escape(_body(call), quote=False).replace("\\", "\\\\")
    urgency = "critical" if call.priority > 3 else "normal"
    proc.run(
        [program, "--app-name=swarm", f"--urgency={urgency}", "--", plain(f"swarm: {call.title}"), body],
        timeout=TIMEOUT,
    )


def webhook(url: str, call: Call) -> None:
    """POST it as JSON that ntfy and receivers of Slack's format understand.

    The address may hold a secret: no failure repeats any part of it, and no redirect is followed.
    """
    parts = urlsplit(url)
    address = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Content-Type": "application/json", "User-Agent": "swarm", **_NTFY, **_authorization(parts)}
    headers |= {"X-Priority": str(call.priority), "X-Tags": "warning,swarm"}
    try:
        with _connection(parts) as connection:
            connection.request("POST", address, json.dumps(_payload(call)).encode(), headers)
            with connection.getresponse() as response:
                status = response.status
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        kind = type(error).__name__
        raise ExternalFailure(f"the webhook cannot be reached or did not answer in time ({kind})") from None
    if 300 <= status < 400:
        raise ExternalFailure(f"the webhook leads elsewhere (HTTP {status})", hint="set the address it leads to")
    if not 200 <= status < 300:
        raise ExternalFailure(f"the webhook answered with HTTP {status}")


def plain(text: str, limit: int = _LINE) -> str:
    """One line that is only text, cut."""
    words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return words if len(words) <= limit else f"{words[: limit - 1]}…"


def _body(call: Call) -> str:
    shown = "\n".join(filter(None, (plain(part) for part in call.more.splitlines())))
    return "\n".join(filter(None, (plain(call.text), shown[:_TEXT], plain(call.command))))


def _payload(call: Call) -> dict[str, Any]:
    return {
        "text": _slack(f"{plain(call.title)}: {_body(call)}"),
        "title": plain(f"swarm: {call.title}"),
        "message": _body(call),
        "tags": ["warning", "swarm"],
        "priority": call.priority,
        "instance": call.instance_id,
        "reason": call.reason,
        "command": plain(call.command),
    }


def _slack(text: str) -> str:
    """Text in which no mention of a channel or a person calls everybody."""
    return html.escape(text, quote=False).replace("@", "@\u200b")


def _authorization(parts: SplitResult) -> dict[str, str]:
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


@contextlib.contextmanager
def _connection(parts: SplitResult) -> Iterator[http.client.HTTPConnection]:
    """A connection that is cut after TIMEOUT, also under a receiver that answers a byte at a time."""
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT)
    connection.connect()
    end = threading.Timer(TIMEOUT, _cut, [connection])
    end.daemon = True
    end.start()
    try:
        yield connection
    finally:
        end.cancel()
        connection.close()


def _cut(connection: http.client.HTTPConnection) -> None:
    """The plain socket's own method: that of a TLS socket is not made for a second thread."""
    with contextlib.suppress(OSError, TypeError):  # closed meanwhile, or not open any more
        socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)
