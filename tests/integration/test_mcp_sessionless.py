"""Clients of the era without sessions: nothing but the token tells one from the other."""

from __future__ import annotations

import asyncio

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.integration.mcp_fixture import Coordinated
from tests.integration.review_fixture import finished_work


async def fork(url: str, token: str, prompt: str) -> dict[str, object]:
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        assert client.protocol_version == "2026-07-28"
        answer = await client.call_tool("spawn_fork_instance", {"prompt": prompt})
        assert not answer.is_error, answer
        return dict(answer.structured_content or {})


def test_two_clients_of_one_agent_may_use_the_same_request_id_at_once(mcp: Coordinated) -> None:
    with mcp.swarm() as swarm:
        work = finished_work(mcp.world, swarm)
    token, url = mcp.token(work), f"http://127.0.0.1:{mcp.port}/mcp"

    async def both() -> list[dict[str, object]]:
        return await asyncio.gather(*(fork(url, token, f"say fork {n}") for n in range(4)))

    made = {str(answer["fork_instance_id"]) for answer in asyncio.run(both())}
    assert len(made) == 4
