"""Typing at an agent's terminal: into an idle program, never into a question, and told without what was typed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from swarm_core.errors import Conflict, InvalidInput
from swarm_core.models import Instance
from swarm_core.ops import typing
from swarm_core.ops.context import talk
from swarm_core.swarm import Swarm
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


def typed(swarm: Swarm) -> list[tuple[str, dict[str, object]]]:
    return [(e.actor, e.metadata) for e in swarm.events(limit=500) if e.name == "instance:typed"]


def refusal(swarm: Swarm, work: Instance, **what: object) -> str:
    with pytest.raises(Conflict) as refused:
        swarm.type_keys(work.id, **what)
    return refused.value.code


def submitted(world: World, work: Instance) -> str:
    """The first line that the program has taken from its input."""
    received = world.settings.instance_dir(work.id) / "received.jsonl"
    wait_until(lambda: received.exists() and received.read_text().endswith("\n"), what="a line was submitted")
    found = json.loads(received.read_text().splitlines()[0])["text"]
    assert isinstance(found, str)
    return found


def tmux(world: World, *words: str) -> str:
    argv = ["tmux", "-S", str(world.settings.tmux_socket), *words]
    return subprocess.run(argv, capture_output=True, check=True, timeout=20).stdout.decode().strip()


def test_text_and_keys_reach_an_idle_program_as_if_by_hand(world: World, swarm: Swarm) -> None:
    work = world.wait_idle(swarm, world.work(swarm).id)
    assert swarm.type_keys(work.id, text="say $(x) ; #{pane_id} 'ü'") == 25
    wait_until(lambda: "❯ say $(x) ; #{pane_id} 'ü'" in swarm.screen(work), what="the text in its input")
    assert swarm.type_keys(work.id, keys=["BSpace", "BSpace", "BSpace", "Enter"]) == 4
    assert submitted(world, work) == "say $(x) ; #{pane_id} "


@pytest.mark.parametrize(
    ("prompt", "on_screen"),
    [("dialog Delete everything?", "Esc to cancel"), ("ask Which colour?", "answer ❯")],
)
@pytest.mark.parametrize(
    "what", [{"text": "1"}, {"text": "y"}, {"keys": ["Enter"]}, {"keys": ["Escape"]}, {"keys": ["C-c"]}]
)
def test_nothing_is_typed_into_a_question(
    world: World, swarm: Swarm, prompt: str, on_screen: str, what: dict[str, object]
) -> None:
    work = shows(world, swarm, prompt, on_screen)
    before = swarm.screen(work)
    assert refusal(swarm, work, **what) == "DIALOG_OPEN"
    assert swarm.screen(work) == before
    assert typed(swarm) == []


def test_only_escape_and_ctrl_c_reach_a_program_at_work(world: World, swarm: Swarm) -> None:
    work = shows(world, swarm, "busy 600", "esc to interrupt")
    for what in ({"text": "1"}, {"keys": ["Enter"]}, {"keys": ["Escape", "Enter"]}):
        assert refusal(swarm, work, **what) == "AGENT_BUSY"
    assert swarm.type_keys(work.id, keys=["Escape"]) == 1
    assert swarm.type_keys(work.id, keys=["C-c"]) == 1
    assert typed(swarm) == [("operator", {"keys": 1})]


def test_keys_and_text_are_what_the_program_reads(world: World, swarm: Swarm) -> None:
    from swarm_core.tmux.sessions import Tmux

    sessions = Tmux(world.settings.tmux_socket, world.settings.tmux_config)
    argv = ["/bin/sh", "-c", "stty raw -echo; echo ready; exec cat -v"]
    sessions.new_session("reader", cwd=world.repo, argv=argv, epoch=1, start_environment=world.environ)
    wait_until(lambda: "ready" in sessions.capture("reader"), what="it reads")
    sessions.press("reader", ["Escape", "C-c", "Up", "Enter", "BSpace"])
    sessions.type_text("reader", "-t x; 'y'")
    wait_until(lambda: "^[^C^[[A^M^?-t x; 'y'" in sessions.capture("reader"), what="all in order, no marks")


def test_a_program_that_has_ended_is_typed_to_by_nobody(world: World, swarm: Swarm) -> None:
    """tmux 3.3 crashes, with all sessions, when it pastes into a dead pane."""
    other = world.wait_idle(swarm, world.work(swarm).id)
    work = world.wait_idle(swarm, world.work(swarm).id)
    host = swarm.context.host(work)
    (pid,) = [s["pid"] for s in host.sessions() if s["instance_id"] == work.id]
    os.kill(pid, signal.SIGKILL)
    assert refusal(swarm, work, text="hello") == "TMUX_SESSION_NOT_FOUND"
    wait_until(lambda: not world.sessions()[work.id], what="the pane is dead")
    for what in ({"text": "hello"}, {"keys": ["C-c"]}):
        assert refusal(swarm, work, **what) == "TMUX_SESSION_NOT_FOUND"
    assert host.type_keys(talk(work), "hello", []) == "gone"
    assert world.sessions()[other.id]
    swarm.stop(work.id)
    assert refusal(swarm, work, keys=["C-c"]) == "TMUX_SESSION_NOT_FOUND"


def test_the_server_itself_looks_whether_the_pane_is_dead(world: World, swarm: Swarm) -> None:
    """Between a look and the keys a program may die; what was looked up before does not count."""
    from swarm_core.tmux.sessions import Tmux

    work = world.wait_idle(swarm, world.work(swarm).id)
    sessions = Tmux(world.settings.tmux_socket, world.settings.tmux_config)
    seen = sessions.find(work.id)
    assert seen is not None
    os.kill(seen.pid, signal.SIGKILL)
    wait_until(lambda: not world.sessions()[work.id], what="the pane is dead")

    class Late(Tmux):
        def _live(self, name: str):
            return seen

    late = Late(world.settings.tmux_socket, world.settings.tmux_config)
    for attempt in (lambda: late.press(work.id, ["Enter"]), lambda: late.type_text(work.id, "x")):
        with pytest.raises(Conflict):
            attempt()
    assert work.id in world.sessions(), "the tmux server lives"


def test_a_person_who_scrolls_is_put_back_and_the_keys_arrive(world: World, swarm: Swarm) -> None:
    work = world.wait_idle(swarm, world.work(swarm).id)
    tmux(world, "copy-mode", "-t", f"={work.id}:")
    swarm.type_keys(work.id, text="hello")
    tmux(world, "copy-mode", "-t", f"={work.id}:")
    swarm.type_keys(work.id, keys=["BSpace", "Enter"])
    assert submitted(world, work) == "hell"
    assert tmux(world, "display-message", "-p", "-t", f"={work.id}:", "#{pane_in_mode}") == "0"


@pytest.mark.parametrize(
    "what",
    [
        {},
        {"text": "a", "keys": ["Enter"]},
        {"text": "a\rb"},
        {"text": "a\nb"},
        {"text": "\x1b[201~"},
        {"text": "\x03"},
        {"text": "a\x7f"},
        {"text": "\0"},
        {"text": "x" * (typing.TEXT_MAX + 1)},
        {"text": "ü" * typing.TEXT_MAX},
        {"text": "\ud800"},
        {"keys": ["q"]},
        {"keys": ["Enter", "-X"]},
        {"keys": ["C-z"]},
        {"keys": ["; kill-server"]},
        {"keys": ["Enter"] * (typing.KEYS_MAX + 1)},
    ],
)
def test_what_can_never_be_typed_is_refused(what: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        typing.check(**{"text": "", "keys": []} | what)


def test_every_key_of_the_list_is_one_that_tmux_knows(world: World, swarm: Swarm) -> None:
    """tmux types the name of a key it does not know, letter by letter."""
    from swarm_core.hosts.base import KEYS

    work = world.wait_idle(swarm, world.work(swarm, "say ready").id)
    ours = sorted(KEYS - {"C-d", "C-c"})
    for key in ours:
        tmux(world, "bind-key", "-T", "tried", key, "display-message", "x")
    assert len(tmux(world, "list-keys", "-T", "tried").splitlines()) == len(ours)
    assert swarm.type_keys(work.id, keys=["Left"]) == 1


def test_who_typed_is_told_once_in_a_while_and_never_what(world: World, swarm: Swarm) -> None:
    work = world.wait_idle(swarm, world.work(swarm).id)
    for letter in "hunter2":
        swarm.type_keys(work.id, text=letter, actor="operator:anna")
    swarm.type_keys(work.id, keys=["BSpace"] * 7, actor="operator:ben")
    assert typed(swarm) == [("operator:anna", {"keys": 1}), ("operator:ben", {"keys": 7})]
    at, waiting = swarm.context.typed[work.id, "operator:anna"]
    assert waiting == 6
    swarm.context.typed[work.id, "operator:anna"] = (at - 60, waiting)
    swarm.type_keys(work.id, text="x", actor="operator:anna")
    assert typed(swarm)[-1] == ("operator:anna", {"keys": 7})
    assert "hunter2" not in json.dumps([e.metadata for e in swarm.events(limit=500)])
