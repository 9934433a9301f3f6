"""Events that calls on the event loop write together, and calls that are given up meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from swarm_core.store import events
from swarm_core.store.database import Database
from swarm_mcp.backlog import Backlog
from swarm_mcp.loop import LoopStore, Telling
from tests.integration.test_store import exclusively_locked
from tests.world import World


@pytest.fixture
def store(world: World) -> Iterator[LoopStore]:
    with world.open() as swarm, contextlib.closing(LoopStore(world.settings, swarm.context.db)) as made:
        yield made


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


def test_events_that_cannot_be_written_are_written_later_in_order(store: LoopStore) -> None:
    async def note() -> None:
        with exclusively_locked(store.db.path):
            for number in range(20):
                store.note(telling(str(number)))
                await asyncio.sleep(0)
            assert told(store) == []

    asyncio.run(note())
    assert store.backlog.flush(20)
    assert told(store) == [str(number) for number in range(20)]


def test_what_a_full_backlog_drops_is_counted_and_told(world: World) -> None:
    with world.open() as swarm:
        db = swarm.context.db
        backlog = Backlog(db, most=3)
        with exclusively_locked(db.path):
            for number in range(5):
                backlog.add(telling(str(number)))
        assert backlog.flush(20)
        backlog.close(5)
        found = [
            (e.name, e.actor, e.metadata) for e in events.after(db, 0) if e.name.startswith(("tool", "events"))
        ]
        assert [actor for name, actor, _ in found if name == "tool:called"] == ["0", "1", "2"]
        assert [details for name, _, details in found if name == "events:dropped"] == [{"count": 2}]
