"""Events that calls on the event loop write together, and calls that are given up meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from swarm_core.store import events
from swarm_core.store.database import Database
from swarm_mcp.loop import LoopStore, Telling
from tests.world import World


@pytest.fixture
def store(world: World) -> Iterator[LoopStore]:
    world.home.mkdir(parents=True)
    made = LoopStore(world.settings)
    yield made
    made.close()


def telling(who: str) -> Telling:
    def tell(db: Database) -> None:
        events.add(db, "tool:called", actor=who)

    return tell


async def call(store: LoopStore, who: str) -> None:
    """As the dispatcher does it: a call that is given up before it was told of is told of as that."""
    told = False
    try:
        await store.write(telling(who))
        told = True
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        if not told:
            await store.write(telling(f"{who}, given up"))
        raise


def told(store: LoopStore) -> list[str]:
    return [event.actor for event in events.after(store.db, 0, limit=100)]


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("others", [0, 2])
def test_a_call_that_is_given_up_is_told_of_once(store: LoopStore, turns: int, others: int) -> None:
    async def give_up() -> None:
        tasks = [asyncio.create_task(call(store, f"call {n}")) for n in range(1 + others)]
        for _ in range(turns):
            await asyncio.sleep(0)  # a turn of the loop
        assert tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        assert tasks[0].cancelling() == 1
        for task in tasks[1:]:
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(give_up())
    found = told(store)
    # In no turn at all it has not begun.
    assert [who.partition(",")[0] for who in sorted(found)] == [f"call {n}" for n in range(turns == 0, 1 + others)]


def test_of_calls_that_were_all_given_up_nothing_is_written(store: LoopStore) -> None:
    async def give_up() -> None:
        tasks = [asyncio.create_task(store.write(telling("nobody"))) for _ in range(3)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await store.write(telling("the next"))

    asyncio.run(give_up())
    assert told(store) == ["the next"]
