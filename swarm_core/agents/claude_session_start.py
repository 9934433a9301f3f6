"""Claude Code's SessionStart hook: tells the coordinator and holds the first prompt back until MCP can connect.

Runs as a file under `python -I -S`, the token in its environment. Prints nothing, because its output would become
part of the conversation, and always succeeds, because a session without the coordinator is better than none.
"""

from __future__ import annotations

import http.client
import os
import sys
import time
from urllib.parse import urlsplit

ANSWER_WITHIN_S = 8.0
CONNECT_PAUSE_S = 1.0  # measured: enough for the client's own connection, which cannot be observed from here


def main() -> int:
    url = os.environ.get("SWARM_URL", "")
    body = b"" if sys.stdin.isatty() else sys.stdin.buffer.read()
    if url.startswith(("http://", "https://")) and _answers(url):
        _send(url, "POST", "/hooks/SessionStart", body)
        time.sleep(CONNECT_PAUSE_S)
    return 0


def _answers(url: str) -> bool:
    deadline = time.monotonic() + ANSWER_WITHIN_S
    while not _send(url, "GET", "/health", None):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _send(url: str, method: str, path: str, body: bytes | None) -> bool:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=3)
    headers = {"Authorization": f"Bearer {os.environ.get('SWARM_TOKEN', '')}"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    try:
        connection.request(method, parts.path.rstrip("/") + path, body=body, headers=headers)
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True


if __name__ == "__main__":
    sys.exit(main())
