"""Results of tools on the wire: as the SDK would write them, and as text that parses to the same."""

from __future__ import annotations

import json

import pytest
from mcp_types.methods import serialize_server_result
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS

from swarm_mcp import contract

PAYLOAD = {"instances": [{"id": "work-a1", "name": None, "cost": 0.25, "text": 'é "quoted" \n'}], "total": 1}


@pytest.mark.parametrize("is_error", [False, True])
@pytest.mark.parametrize("version", KNOWN_PROTOCOL_VERSIONS)
def test_a_result_is_spelt_for_each_version_as_the_sdk_spells_it(version: str, is_error: bool) -> None:
    answer = contract.result(PAYLOAD, is_error=is_error)
    assert contract.sent_to(version, answer) == serialize_server_result("tools/call", version, answer)


@pytest.mark.parametrize("odd", ["plain", "\udc80 half a character", "\x00\x1f", "😀"])
def test_the_text_of_a_result_is_its_payload_as_compact_json(odd: str) -> None:
    payload = {**PAYLOAD, "odd": odd, odd: 2**70}
    [content] = contract.result(payload)["content"]
    assert json.loads(content["text"]) == payload
    assert ": " not in content["text"].replace(odd, "")
    assert "\\u" not in content["text"] or odd == "\x00\x1f"
