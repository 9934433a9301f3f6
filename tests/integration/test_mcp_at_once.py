"""A small read is answered past the SDK's queues: the answers must be those the SDK would have given."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.mcp_fixture import Coordinated
from tests.mcp_client import Answer, HttpClient

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
ASKED: dict[str, dict[str, Any]] = {
    "good": {"limit": 1},
    "unknown argument": {"limt": 1},
    "wrong type": {"limit": "one"},
    "nobody": {"instance_id": "work-99-a1"},
}


def ask(client: HttpClient, arguments: dict[str, Any], *, by_the_sdk: bool) -> Answer:
    """A field of which the protocol knows nothing changes no answer; it only takes the longer way."""
    params: dict[str, Any] = {"name": "query_instances", "arguments": arguments}
    return client.request("tools/call", params | ({"more": True} if by_the_sdk else {}), id=7)


@pytest.mark.parametrize("version", VERSIONS)
def test_both_ways_answer_alike_in_every_protocol_version(mcp: Coordinated, version: str) -> None:
    client = mcp.client(mcp.operator_token, initialize=False)
    client.extra = {"MCP-Protocol-Version": version}
    assert client.initialize(version).result["protocolVersion"] == version
    for name, arguments in ASKED.items():
        quick, usual = (ask(client, arguments, by_the_sdk=sdk) for sdk in (False, True))
        assert quick.message == usual.message, name
        assert quick.status == usual.status, name


def test_both_ways_are_recorded_alike(mcp: Coordinated) -> None:
    client = mcp.operator()
    for by_the_sdk in (False, True):
        ask(client, {"limit": 1}, by_the_sdk=by_the_sdk)
    quick, usual = mcp.events(tool="query_instances")
    assert (quick.name, quick.actor, quick.metadata) == (usual.name, usual.actor, usual.metadata)
