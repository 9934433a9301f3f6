"""What every answer of the MCP server looks like, checked the same way by every test of it."""

from __future__ import annotations

import json
from typing import Any

from docs import contract as snapshot
from swarm_core.contract import CANONICAL, CATEGORIES, ERROR_FIELDS
from swarm_core.errors import CODES
from tests.mcp_client import Answer

TOOLS = json.loads(snapshot.SNAPSHOT.read_text())["tools"]


def check_failure(answer: Answer, code: str, tool: str) -> dict[str, Any]:
    """A tool error in the one shape there is; returns its payload."""
    payload = answer.payload
    assert answer.result["isError"] is True
    assert (payload["ok"], payload["code"], payload["message"]) == (
        False,
        payload["error"]["code"],
        payload["error"]["message"],
    )
    assert payload["code"] == code
    assert code in CODES
    assert payload["error"].keys() == ERROR_FIELDS.keys()
    assert payload["error"]["tool_name"] == tool
    assert payload["error"]["category"] in CATEGORIES
    assert payload["error"]["canonical"] in CANONICAL
    return payload


def check_invalid(answer: Answer, *mentioned: str) -> None:
    """A violation of the schema: the number, the code, the details, and the words a client shows."""
    error = answer.error
    assert (error["code"], error["data"]["code"]) == (-32602, "INVALID_REQUEST")
    assert error["data"].keys() == ERROR_FIELDS.keys()
    assert error["data"]["message"] == error["message"]
    for field in mentioned:
        assert field in error["message"]
    for detail in error["data"]["details"]:
        assert detail.keys() >= {"path", "type", "message"}
    assert error["data"]["details"]
