"""Progress is passed on now and then, in order, and its last word is never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from swarm_mcp.progress import Throttle

Sent = list[tuple[float, str]]


def play(story: Callable[[Throttle, Sent], Awaitable[None]]) -> Sent:
    sent: Sent = []

    async def send(count: float, text: str) -> None:
        sent.append((count, text))

    asyncio.run(story(Throttle(send), sent))
    return sent


async def turns() -> None:
    """Let what is due happen; a quarter of a second does not pass meanwhile."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_the_first_word_goes_out_at_once_and_of_a_burst_the_last():
    async def story(throttle: Throttle, sent: Sent) -> None:
        throttle.report("first")
        await turns()
        assert sent == [(1, "first")]
        for n in range(500):
            throttle.report(f"word {n}")
            await turns()
        assert sent == [(1, "first")]
        await throttle.flush()
        throttle.stop()

    assert play(story) == [(1, "first"), (2, "word 499")]


def test_what_waits_goes_out_when_its_time_has_come():
    async def story(throttle: Throttle, sent: Sent) -> None:
        throttle.report("first")
        await turns()
        throttle.report("second")
        throttle.report("third")
        async with asyncio.timeout(10):
            while len(sent) < 2:
                await asyncio.sleep(0.01)

    assert play(story) == [(1, "first"), (2, "third")]


def test_nothing_is_said_after_the_stop():
    async def story(throttle: Throttle, sent: Sent) -> None:
        throttle.report("first")
        await turns()
        throttle.report("second")
        pending = throttle.pending
        throttle.stop()
        throttle.report("third")
        await throttle.flush()
        await turns()
        assert pending is not None
        assert pending.cancelled()
        assert throttle.pending is pending

    assert play(story) == [(1, "first")]
