"""HTTP, for tool calls and hooks: imported by the first step that needs it."""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.parse

TYPE_CHECKING = False  # as type checkers know it, without importing typing
if TYPE_CHECKING:
    from typing import Any

CALL_RETRY_S = 5.0
CALL_TIMEOUT_S = 660.0


class CallFailed(Exception):
    """The tool did not answer with a result."""


class Mcp:
    """One MCP session over Streamable HTTP, opened at the first call and again whenever the server forgot it."""

    VERSION = "2025-11-25"

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/") + "/mcp"
        self._session: str | None = None
        self._ready = False
        self._last_id = 0

    def call(self, tool: str, arguments: dict[str, Any], *, key: str) -> str:
        """The tool's result as text; raises CallFailed. Calls with the same key have their effect once."""
        if not self._url.startswith(("http://", "https://")):
            raise CallFailed("SWARM_URL is not set")
        params = {"name": tool, "arguments": arguments, "_meta": {"swarm/idempotencyKey": key}}
        for last in (False, True):
            if not self._ready:
                self._initialise()
            status, reply = self._request("tools/call", params)
            if status != 404 or last:
                return self._result(status, reply)
            self._ready, self._session = False, None
        raise AssertionError("unreachable")

    def _initialise(self) -> None:
        about = {
            "protocolVersion": self.VERSION,
            "capabilities": {},
            "clientInfo": {"name": "swarm-scripted", "version": "1"},
        }
        status, reply = self._request("initialize", about)
        if status != 200 or "result" not in reply:
            raise CallFailed(self._reason(status, reply))
        self._ready = True
        self._request("notifications/initialized", None)

    def _request(self, method: str, params: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
        """Send one message; HTTP status and JSON-RPC reply ({} for none)."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            self._last_id += 1
            message |= {"id": self._last_id, "params": params}
        headers = {"Accept": "application/json, text/event-stream"}
        if self._ready:
            headers["MCP-Protocol-Version"] = self.VERSION
        if self._session:
            headers["Mcp-Session-Id"] = self._session
        response, connection = self._send(message, headers)
        try:
            self._session = response.getheader("Mcp-Session-Id") or self._session
            kind = response.getheader("Content-Type") or ""
            if kind.startswith("text/event-stream"):
                return response.status, self._event(response, message.get("id"))
            return response.status, _json_object(response.read())
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise CallFailed(f"the answer broke off: {error}") from None
        finally:
            connection.close()

    def _send(
        self, message: dict[str, Any], headers: dict[str, str]
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
        deadline = time.monotonic() + CALL_RETRY_S
        while True:
            try:
                return post(self._url, message, headers, CALL_TIMEOUT_S)
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise CallFailed("the coordinator does not answer (connection refused)") from None
                time.sleep(0.1)
            except (OSError, ValueError) as error:
                raise CallFailed(f"the connection failed: {error}") from None

    def _event(self, response: http.client.HTTPResponse, wanted: int | None) -> dict[str, Any]:
        """The reply in a stream of server-sent events, past progress and other notifications."""
        data: list[bytes] = []
        for line in response:
            if line.startswith(b"data:"):
                data.append(line[5:].strip())
            elif not line.strip() and data:
                event = _json_object(b"\n".join(data))
                if event.get("id") == wanted and ("result" in event or "error" in event):
                    return event
                data = []
        raise CallFailed("the answer broke off")

    def _result(self, status: int, reply: dict[str, Any]) -> str:
        result = reply.get("result")
        if status != 200 or not isinstance(result, dict):
            raise CallFailed(self._reason(status, reply))
        texts = [c.get("text", "") for c in result.get("content") or [] if isinstance(c, dict)]
        structured = result.get("structuredContent")
        text = json.dumps(structured) if structured is not None else "\n".join(texts)
        if result.get("isError"):
            raise CallFailed(text)
        return text

    def _reason(self, status: int, reply: dict[str, Any]) -> str:
        error = reply.get("error")
        said = error.get("message") if isinstance(error, dict) else error or reply.get("error_description")
        return f"{said or 'no reply'} (HTTP {status})"


def hook(url: str, body: dict[str, Any], timeout: float) -> dict[str, Any]:
    """Post a hook and return what was replied; a refusal is no reply, whatever it says."""
    response, connection = post(url, body, {}, timeout)
    try:
        said = _json_object(response.read())
        return said if response.status == 200 else {}
    except http.client.HTTPException as error:
        raise ConnectionError(type(error).__name__) from None
    finally:
        connection.close()


def _json_object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def post(
    url: str, body: dict[str, Any], headers: dict[str, str], timeout: float
) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
    """Send JSON with this instance's token; the response and its connection, which the caller closes."""
    parts = urllib.parse.urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=timeout)
    sent = {
        "Content-Type": "application/json",
        "Authorization": f"Bearer {os.environ.get('SWARM_TOKEN', '')}",
        **headers,
    }
    try:
        connection.request("POST", parts.path, body=json.dumps(body).encode(), headers=sent)
        return connection.getresponse(), connection
    except http.client.HTTPException as error:
        connection.close()
        raise ConnectionError(type(error).__name__) from None
    except OSError:
        connection.close()
        raise
