"""What a viewer is told adds up to what there is, from whichever version it begins; and its queue has an end."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from swarm_core.models import Event
from swarm_ui.web import hub
from swarm_ui.web.endpoint import Visitor
from swarm_ui.web.frames import Change
from swarm_ui.web.hub import Client
from swarm_ui.web.state import RECENT, State

ANNA = Visitor("operator:anna", may_write=True, how="cookie")


def row(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "state": "running", "pr": None, **fields}


class Page:
    """What a page has after the news it was told."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.parts: dict[str, Any] = {}

    def hear(self, news: list[tuple[str, Any]]) -> None:
        for name, data in news:
            if name != "instances":
                old = self.parts.get(name)
                self.parts[name] = {**old, **data} if isinstance(old, dict) else data
                continue
            for one in data:
                if one.get("gone"):
                    self.rows.pop(one["id"], None)
                else:
                    self.rows[one["id"]] = {**self.rows.get(one["id"], {}), **one}


rows = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2), max_size=4).map(
    lambda found: [row(name, n=n) for name, n in found.items()]
)
parts = st.fixed_dictionaries({"open": st.integers(0, 2), "queued": st.integers(0, 2)})


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(rows, parts), min_size=1, max_size=6), st.data())
def test_patches_from_any_version_on_add_up_to_what_there_is(
    steps: list[tuple[list[dict[str, Any]], dict[str, int]]], data: st.DataObject
) -> None:
    state, always, came_back = State(), Page(), Page()
    left_at = data.draw(st.integers(0, len(steps) - 1))
    version = 0
    for n, (found, pulls) in enumerate(steps):
        state, news = state.with_rows(found)
        state, more = state.with_part("pulls", pulls)
        always.hear(news + more)
        if n <= left_at:
            came_back.hear(news + more)
            version = state.version
        assert always.rows == {r["id"]: r for r in found}
        assert always.parts == {"pulls": pulls}
    came_back.hear(state.since(version))
    assert (came_back.rows, came_back.parts) == (always.rows, always.parts)


def test_a_patch_has_only_what_changed() -> None:
    state, _ = State().with_rows([row("a", cost=1), row("b", cost=1)])
    state, news = state.with_rows([row("a", cost=2), row("b", cost=1)])
    assert news == [("instances", [{"id": "a", "cost": 2}])]


def test_a_clock_that_goes_on_is_no_news() -> None:
    pull = {"number": 1, "age_s": 1.0}
    state, _ = State().with_rows([row("a", pr=pull)])
    state, _ = state.with_part("health", {"github": [{"silent_s": 1, "problem": None}], "viewers": 1})
    later, news = state.with_rows([row("a", pr=pull | {"age_s": 9.0})])
    later, more = later.with_part("health", {"github": [{"silent_s": 3, "problem": None}], "viewers": 2})
    assert (news, more, later.version) == ([], [], state.version)
    assert later.rows["a"]["pr"]["age_s"] == 9.0


def test_only_changed_keys_of_health_are_told() -> None:
    state, _ = State().with_part("health", {"tmux": {"up": True}, "coordinator": {"ok": True}})
    _, news = state.with_part("health", {"tmux": {"up": False}, "coordinator": {"ok": True}})
    assert news == [("health", {"tmux": {"up": False}})]


def test_the_newest_events_are_remembered_newest_first() -> None:
    state = State().after([{"id": n} for n in range(1, 50)]).after([{"id": n} for n in range(50, 100)])
    assert state.last == 99
    assert [e["id"] for e in state.snapshot()["events"]] == list(range(99, 99 - RECENT, -1))


def events(first: int, last: int) -> Change:
    unknown = (
        "instance_id",
        "tool_name",
        "error_code",
        "error_message",
        "duration_ms",
        "status_from",
        "status_to",
    )
    known = {"at": "t", "name": "x:y", "actor": "a", "success": True} | dict.fromkeys(unknown)
    told = [Event(id=n, metadata={"n": n}, **known) for n in range(first, last)]  # type: ignore[arg-type]
    return Change("events", [{"id": e.id} for e in told], State(), told)


def test_a_viewer_who_does_not_read_is_let_go_and_its_queue_is_empty() -> None:
    async def run() -> None:
        client = Client(ANNA, since=0)
        for n in range(1, hub.QUEUE_FRAMES + 1):
            client.hear(events(n, n + 1))
        assert not client.over
        client.hear(events(1000, 1001))
        assert client.over
        client.hear(events(1001, 1002))
        assert await client.wait(0) == []
        client.close()

    asyncio.run(run())


def test_a_few_large_frames_are_too_much_as_well() -> None:
    async def run() -> None:
        client = Client(ANNA, since=0)
        client.put(b"x" * hub.QUEUE_BYTES)
        assert not client.over
        client.put(b"x")
        assert client.over
        client.close()

    asyncio.run(run())


def test_whoever_reads_may_hear_any_number() -> None:
    async def run() -> None:
        client = Client(ANNA, since=0)
        for _ in range(2 * hub.QUEUE_FRAMES):
            client.put(b"x" * (hub.QUEUE_BYTES // 10))
            assert len(await client.wait(0)) == 1
        assert not client.over
        client.close()

    asyncio.run(run())


def test_a_task_that_cannot_send_what_is_left_is_cancelled() -> None:
    async def run() -> None:
        async def stuck() -> None:
            client = Client(ANNA, since=0)
            client.end(0.0)
            await asyncio.Event().wait()

        task = asyncio.create_task(stuck())
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(run())


def test_a_burst_is_not_too_much_for_one_that_hears_events_alone() -> None:
    async def run() -> None:
        client = Client(ANNA, since=0, rows=False)
        client.hear(events(1, 501))
        assert not client.over
        assert len(await client.wait(0)) == 500
        client.close()

    asyncio.run(run())


def test_one_that_hears_events_alone_gets_one_message_each() -> None:
    async def run() -> None:
        client = Client(ANNA, since=0, rows=False)
        client.hear(Change("instances", [row("a")], State()))
        client.hear(events(1, 3))
        assert [text for text in await client.wait(0) if isinstance(text, str)] == [
            '{"id":1,"event":"x:y","data":{"id":1,"metadata":{"n":1}}}',
            '{"id":2,"event":"x:y","data":{"id":2,"metadata":{"n":2}}}',
        ]
        client.close()

    asyncio.run(run())
