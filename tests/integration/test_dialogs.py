"""What a blocked agent asks is kept with it, and only the question that is still shown can be answered."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from swarm_core.errors import SwarmError
from swarm_core.models import Instance
from swarm_core.ops import dialogs
from swarm_core.ops.context import talk
from swarm_core.swarm import Swarm
from tests.support import wait_until
from tests.world import World


@pytest.fixture
def swarm(world: World) -> Iterator[Swarm]:
    with world.open() as opened:
        yield opened


def blocked(world: World, swarm: Swarm, prompt: str) -> Instance:
    work = world.work(swarm, prompt)

    def asks() -> bool:
        swarm.reconcile()
        return dialogs.shown(swarm.find(work.id)) is not None

    wait_until(asks, timeout=20, what="the question is read")
    return swarm.find(work.id)


def ends(world: World, swarm: Swarm, work: Instance) -> str:
    world.wait_idle(swarm, work.id)
    return swarm.screen(swarm.find(work.id))


def test_the_question_is_kept_with_its_text_and_choices(world: World, swarm: Swarm) -> None:
    work = blocked(world, swarm, "dialog Delete the build folder?")
    asked = dialogs.shown(work)
    assert asked is not None
    assert asked["text"] == "Delete the build folder?\nDo you want to proceed?"
    assert (asked["choices"], asked["kind"]) == (["Yes", "No"], "permission")
    (told,) = [e for e in swarm.events(limit=100) if e.name == "dialog:shown"]
    assert told.metadata["digest"] == asked["digest"]


@pytest.mark.parametrize(("choice", "answer"), [(1, "yes"), (2, "no")])
def test_a_choice_is_taken_and_who_took_it_is_known(world: World, swarm: Swarm, choice: int, answer: str) -> None:
    work = blocked(world, swarm, "dialog Delete the build folder?")
    asked = swarm.answer(work.id, choice=choice, actor="kim")
    assert asked["choices"][choice - 1].lower() == answer
    assert f"answered: {answer}" in ends(world, swarm, work)
    assert swarm.find(work.id).blocked_on == ""
    (told,) = [e for e in swarm.events(limit=100) if e.name == "dialog:answered"]
    assert (told.actor, told.metadata["choice"], told.metadata["answer"].lower()) == ("kim", choice, answer)
    assert "Delete the build folder?" in told.metadata["question"]


def test_an_open_question_is_answered_with_words(world: World, swarm: Swarm) -> None:
    work = blocked(world, swarm, "ask Which colour?")
    swarm.answer(work.id, text="blue, please")
    assert "answered: blue, please" in ends(world, swarm, work)


def test_a_question_that_was_answered_meanwhile_is_not_answered_again(world: World, swarm: Swarm) -> None:
    """The second dialog looks alike; its text differs, so the answer to the first is not given to it."""
    work = blocked(world, swarm, "dialog Delete the build folder?\ndialog Delete the home folder?")
    first = dialogs.shown(work)
    assert first is not None
    swarm.context.host(work).answer(talk(work), first["digest"], 2, "")
    wait_until(lambda: "home folder" in swarm.screen(work), timeout=20, what="the next question")
    with pytest.raises(SwarmError) as failed:
        swarm.answer(work.id, choice=1)
    assert failed.value.code == "DIALOG_CHANGED"
    assert "home folder" in json.dumps(failed.value.details)
    assert "answered: yes" not in swarm.screen(work)


def test_who_asks_nothing_cannot_be_answered(world: World, swarm: Swarm) -> None:
    work = world.wait_idle(swarm, world.work(swarm).id)
    with pytest.raises(SwarmError) as failed:
        swarm.answer(work.id, choice=1)
    assert failed.value.code == "DIALOG_CHANGED"


@pytest.mark.parametrize("choice", [0, 3, 99])
def test_a_choice_that_there_is_not_presses_nothing(world: World, swarm: Swarm, choice: int) -> None:
    work = blocked(world, swarm, "dialog Delete the build folder?")
    with pytest.raises(SwarmError) as failed:
        swarm.answer(work.id, choice=choice)
    assert failed.value.code == "INVALID_INPUT"
    assert "answered" not in swarm.screen(work)
    assert dialogs.shown(swarm.find(work.id)) is not None


def test_a_question_that_is_over_is_forgotten(world: World, swarm: Swarm) -> None:
    work = blocked(world, swarm, "dialog Delete the build folder?")
    asked = dialogs.shown(work)
    assert asked is not None
    swarm.context.host(work).answer(talk(work), asked["digest"], 2, "")
    world.wait_idle(swarm, work.id)
    swarm.reconcile()
    assert swarm.find(work.id).blocked_on == ""
    assert [e.metadata for e in swarm.events(limit=100) if e.name == "dialog:closed"] == [
        {"digest": asked["digest"]}
    ]


def test_the_command_line_shows_and_answers_it(world: World, swarm: Swarm) -> None:
    work = blocked(world, swarm, "dialog Delete the build folder?")
    shown = world.command("show", work.id).stdout.decode()
    assert "Delete the build folder?" in shown
    assert "2. No" in shown
    assert f"swarm answer {work.id} --choice N" in shown
    done = world.command("answer", work.id, "--choice", "2")
    assert (done.returncode, done.stdout) == (0, b"answered: No\n")
    again = world.command("answer", work.id, "--choice", "2", "--json")
    assert (again.returncode, json.loads(again.stdout)["error"]["code"]) == (1, "DIALOG_CHANGED")


def test_explaining_names_every_source_and_the_rule(world: World, swarm: Swarm) -> None:
    work = world.wait_idle(swarm, world.work(swarm).id)
    told = json.loads(world.command("show", work.id, "--explain", "--json").stdout)["evidence"]
    assert [(e["source"], e["activity"]) for e in told] == [
        ("file", "idle"),
        ("process", "unknown"),
        ("pane", "idle"),
    ]
    text = world.command("show", work.id, "--explain").stdout.decode()
    assert "recorded: idle from file" in text
    assert "rule: the program keeps its status in a file" in text
