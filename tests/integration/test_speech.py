"""What the host types into an agent's terminal, and what it refuses to: the last guard before the keys."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from swarm_core.agents.claude_code import ClaudeCode
from swarm_core.errors import Conflict
from swarm_core.hosts.look import Look
from swarm_core.hosts.speech import Speech
from swarm_core.models import Instance
from swarm_core.ops.context import talk
from swarm_core.swarm import Swarm
from swarm_core.tmux.sessions import Tmux
from tests.support import wait_until
from tests.world import World


@pytest.fixture
def swarm(world: World) -> Iterator[Swarm]:
    with world.open() as opened:
        yield opened


def shows(world: World, swarm: Swarm, prompt: str, text: str) -> Instance:
    work = world.work(swarm, prompt)
    wait_until(lambda: text in swarm.screen(work), timeout=20, what=f"{text!r} on its screen")
    return work


@pytest.mark.parametrize(
    ("prompt", "on_screen", "outcome"),
    [
        ("dialog Delete everything?", "Esc to cancel", "blocked"),
        ("ask Which colour?", "answer ❯", "blocked"),
        ("busy 600", "esc to interrupt", "busy"),
    ],
)
def test_who_is_not_idle_is_not_typed_to(
    world: World, swarm: Swarm, prompt: str, on_screen: str, outcome: str
) -> None:
    work = shows(world, swarm, prompt, on_screen)
    host, before = swarm.context.host(work), swarm.screen(work)
    assert host.can_hear(talk(work)) == outcome
    assert host.hand_over(talk(work), "[swarm msg 0123456789ab from operator]\n1") == outcome
    assert swarm.screen(work) == before
    assert not (world.settings.instance_dir(work.id) / "received.jsonl").exists()


def test_who_is_gone_is_said_to_be(world: World, swarm: Swarm) -> None:
    work = world.wait_idle(swarm, world.work(swarm).id)
    swarm.stop(work.id)
    host = swarm.context.host(work)
    assert (host.can_hear(talk(work)), host.hand_over(talk(work), "hello")) == ("gone", "gone")


def test_enter_is_pressed_only_on_what_is_ours(world: World, swarm: Swarm) -> None:
    work = world.wait_idle(swarm, world.work(swarm).id)
    host = swarm.context.host(work)
    assert not host.press_enter(talk(work))
    host._tmux.send_keys(work.id, "h", "i")  # type: ignore[attr-defined]
    assert not host.press_enter(talk(work))


def test_what_a_log_says_is_told_once_and_after_a_start_again(world: World, swarm: Swarm) -> None:
    work = world.wait_idle(swarm, world.work(swarm).id)
    host = swarm.context.host(work)
    assert host.hand_over(talk(work), "[swarm msg 0123456789ab from operator]\nsay hello") == "sent"
    path = world.settings.instance_dir(work.id) / "received.jsonl"
    wait_until(path.exists, timeout=20, what="it is received")
    assert host.read_log(talk(work))["received"] == ["0123456789ab"]
    assert host.read_log(talk(work))["received"] == []
    with path.open("a") as log:
        log.write('{"kind": "message", "text": "[swarm msg ba9876543210 from x]')
    assert host.read_log(talk(work))["received"] == [], "the line is not whole yet"
    with path.open("a") as log:
        log.write('\\nsay hi"}\n{"kind": "answer", "text": "[swarm msg aaaaaaaaaaaa from x]"}\n')
    assert host.read_log(talk(work))["received"] == ["ba9876543210"], "an answer to a question is no receipt"
    with world.open() as later:
        found = later.context.host(work).read_log(talk(work))["received"]
    assert found == ["0123456789ab", "ba9876543210"]


def test_a_screen_that_cannot_be_read_may_show_a_dialog(
    world: World, swarm: Swarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the tmux client that was to read it is killed; the file still says idle."""
    work = world.wait_idle(swarm, world.work(swarm).id)
    host = swarm.context.host(work)
    assert host.can_hear(talk(work)) == "sent"
    monkeypatch.setattr(Look, "_panes_with_screens", lambda self, panes: [])
    monkeypatch.setattr(Look, "_capture", lambda self, panes: {})
    assert host.can_hear(talk(work)) == "unclear"
    assert host.hand_over(talk(work), "[swarm msg 0123456789ab from operator]\nsay hello") == "unclear"
    assert not (world.settings.instance_dir(work.id) / "received.jsonl").exists()


@pytest.mark.parametrize(
    "line", ["[" * 100_000, '{"type":"assistant","usage":1,"timestamp":"0001-01-01T00:00:00+14:00"}']
)
def test_a_line_that_cannot_be_read_stops_nothing(world: World, swarm: Swarm, line: str) -> None:
    work = world.wait_idle(swarm, world.work(swarm).id)
    path = world.settings.instance_dir(work.id) / "received.jsonl"
    path.write_text(line + '"usage"\n{"kind": "message", "text": "[swarm msg 0123456789ab from x]"}\n')
    host = swarm.context.host(work)
    claude = talk(work) | {"agent": "claude"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClaudeCode, "transcripts", lambda *_: (str(path),))
        assert host.read_log(claude)["received"] == ["0123456789ab"]  # type: ignore[arg-type]


class Slow(Tmux):
    """A program that takes its time: what is pressed arrives a second later."""

    def __init__(self, world: World) -> None:
        super().__init__(world.settings.tmux_socket, world.settings.tmux_config)
        self.pressed: list[str] = []

    def send_keys(self, name: str, *keys: str) -> None:
        self.pressed += keys
        threading.Timer(1.0, super().send_keys, [name, *keys]).start()


def test_whoever_answers_second_does_not_find_the_question_that_is_answered(world: World, swarm: Swarm) -> None:
    """As long as the program has not taken the first answer, its screen shows the question all the same."""
    work = shows(world, swarm, "dialog Delete the build folder?", "Esc to cancel")
    slow = Slow(world)
    hosts = [Speech(world.settings, slow, Look(world.settings)) for _ in range(2)]
    asked = hosts[0].dialog(talk(work))
    assert asked is not None
    outcomes: list[str] = []

    def answer(host: Speech) -> None:
        try:
            outcomes.append(host.answer(talk(work), asked["digest"], 1, "")["kind"])
        except Conflict as error:
            outcomes.append(error.code)

    people = [threading.Thread(target=answer, args=[host]) for host in (*hosts, hosts[0])]
    for person in people:
        person.start()
    for person in people:
        person.join()
    assert sorted(outcomes) == ["DIALOG_CHANGED", "DIALOG_CHANGED", "permission"]
    assert slow.pressed == ["1"]
