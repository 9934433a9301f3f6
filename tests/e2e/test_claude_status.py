"""What is shown of the real Claude Code in every situation: activity, detail, and where that is known from.

With `tests/integration/test_status_table.py`, the scripted agent's, these are the situations we tell apart.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import threading

import pytest

from swarm_core.hosts.base import SENT
from swarm_core.models import Instance
from swarm_core.ops import attention
from swarm_core.ops.context import talk
from swarm_core.swarm import Swarm
from tests.e2e.test_claude_dialogs import QUESTION, TOUCH
from tests.e2e.test_claude_messages import LOOK, idle
from tests.fakes.messages_api import (
    NO_CREDIT,
    OVERLOADED,
    RATE_LIMITED,
    TOO_LONG,
    UNAUTHORISED,
    Error,
    Held,
    Play,
    Reply,
    Text,
    ToolUse,
    asked,
)
from tests.integration.claude_fixture import ClaudeWorld, claude_home, claude_program, claude_world, messages
from tests.support import wait_until

__all__ = ["claude_home", "claude_program", "claude_world", "messages"]

PLAN = ToolUse("ExitPlanMode", {"plan": "1. Look.\n2. Leap."})
Shown = tuple[str, str, str]


def now(swarm: Swarm, work: Instance) -> Shown:
    found = swarm.find(work.id)
    return found.activity, found.activity_detail, found.activity_source


def becomes(swarm: Swarm, work: Instance, *expected: Shown) -> list[Shown]:
    """Until one of these is shown; returns all that were."""
    seen: list[Shown] = []

    def reached() -> bool:
        seen.append(now(swarm, work))
        return seen[-1] in expected

    try:
        wait_until(reached, timeout=30, what=f"{expected}")
    except pytest.fail.Exception:
        pytest.fail(f"expected {expected}, was shown {list(dict.fromkeys(seen))}")
    return seen


def history(swarm: Swarm, work: Instance) -> list[Shown]:
    """Every activity that was shown, with what was said of it when it began."""
    found = swarm.events(after=0, instance_id=work.id, limit=10_000)
    told = [e.metadata for e in found if e.name == "instance:activity"]
    return [(m["to"], m["detail"], m["source"]) for m in told]


def types(swarm: Swarm, work: Instance, text: str) -> None:
    """As a person does at its terminal, once it takes input."""
    host = swarm.context.host(work)
    wait_until(lambda: host.hand_over(talk(work), text) == SENT, timeout=20, what=f"{text} is typed")


def test_a_turn_from_the_start_of_the_program_to_its_end(claude_world: ClaudeWorld) -> None:
    prompt, called = threading.Event(), threading.Event()
    claude_world.play(Play().when(asked("look around")).then(Held(prompt, LOOK), Held(called, Text("Done."))))
    with claude_world.world.open() as swarm:
        work = claude_world.work(swarm, "look around")
        seen = becomes(swarm, work, ("busy", "", "hook"))
        # An instance starts as starting: that its program says so too is a change only after another look.
        assert ("starting", "startup", "hook") in [*seen, *history(swarm, work)]
        prompt.set()
        becomes(swarm, work, ("busy", LOOK.name, "hook"))
        called.set()
        becomes(swarm, work, ("idle", "", "hook"))


@pytest.mark.parametrize(
    ("call", "detail", "kind"),
    [
        (TOUCH, "permission: Bash", "permission"),
        (QUESTION, "question", "question"),
        (PLAN, "permission: ExitPlanMode", "plan"),
    ],
    ids=["permission", "question", "plan"],
)
def test_a_claude_that_waits_for_a_person_is_blocked(
    claude_world: ClaudeWorld, call: ToolUse, detail: str, kind: str
) -> None:
    mode = {"permissions": {"defaultMode": "plan" if kind == "plan" else "default"}}
    (claude_world.home.config / "settings.json").write_text(json.dumps(mode))
    claude_world.play(Play().when(asked("look around")).then(call, Text("Done.")))
    with claude_world.world.open() as swarm:
        work = claude_world.work(swarm, "look around")
        becomes(swarm, work, ("blocked", detail, "hook"))
        wait_until(
            lambda: ("pane", "blocked", kind) in evidence(swarm, work),
            timeout=20,
            what="the dialog is on its screen",
        )


def evidence(swarm: Swarm, work: Instance) -> list[Shown]:
    return [(e["source"], e["activity"], e["detail"]) for e in swarm.explain(work.id)]


FAILURES = {
    "rate limited": RATE_LIMITED,
    "overloaded": OVERLOADED,
    "out of credit": NO_CREDIT,
    "context full": TOO_LONG,
    "login needed": UNAUTHORISED,
    "model not available": Error(404, "not_found_error", "model: nobody"),
    "api error": Error(500, "api_error", "Internal server error"),
}


def test_what_stopped_a_turn_is_told_apart(claude_world: ClaudeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CODE_MAX_RETRIES", "0")
    with claude_world.world.open() as swarm:
        work = idle(claude_world, swarm)
        for detail, error in FAILURES.items():
            claude_world.play(Play(otherwise=error))
            swarm.message(work.id, "go on")
            becomes(swarm, work, ("idle", f"error: {detail}", "hook"))
            wait_until(lambda: ("file", "idle", "") in evidence(swarm, work), what="its file says idle")
            swarm.reconcile()
            assert now(swarm, work) == ("idle", f"error: {detail}", "hook")
            claude_world.play(Play())
            swarm.message(work.id, "and now?")
            becomes(swarm, work, ("idle", "", "hook"))


def hooks_heard(claude_world: ClaudeWorld) -> int:
    """Hooks that the coordinator has received so far, whatever it made of them."""
    headers = {"Authorization": f"Bearer {claude_world.mcp.operator_token}"}
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", claude_world.mcp.port)) as connection:
        connection.request("GET", "/metrics", headers=headers)
        text = connection.getresponse().read().decode()
    return sum(int(n) for n in re.findall(r"^swarm_hooks_total\{.*\} (\d+)", text, re.MULTILINE))


def test_an_error_outlasts_the_idle_notification_and_ends_with_the_next_turn(
    claude_world: ClaudeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CODE_MAX_RETRIES", "0")
    claude_world.home.write(claude_world.world.repo, messageIdleNotifThresholdMs=1000)
    with claude_world.world.open() as swarm:
        work = idle(claude_world, swarm)
        claude_world.play(Play(otherwise=NO_CREDIT))
        swarm.message(work.id, "go on")
        becomes(swarm, work, ("idle", "error: out of credit", "hook"))
        heard = hooks_heard(claude_world)
        wait_until(lambda: hooks_heard(claude_world) > heard, timeout=30, what="the idle notification arrives")
        swarm.reconcile()
        assert now(swarm, work) == ("idle", "error: out of credit", "hook")
        assert [reason.key for reason in attention.reasons(swarm.find(work.id))] == ["error"]
        claude_world.play(Play())
        swarm.message(work.id, "and now?")
        becomes(swarm, work, ("idle", "", "hook"))
        assert attention.reasons(swarm.find(work.id)) == []


def test_a_model_that_does_not_answer_is_asked_again_and_that_is_busy(claude_world: ClaudeWorld) -> None:
    reply: list[Reply] = [OVERLOADED]
    claude_world.play(lambda _: reply[0])
    with claude_world.world.open() as swarm:
        work = claude_world.work(swarm, "look around")
        becomes(swarm, work, ("busy", "", "hook"))
        wait_until(lambda: len(claude_world.api.turns()) > 1, timeout=30, what="it asks again")
        wait_until(
            lambda: ("pane", "busy", "retrying") in evidence(swarm, work), timeout=30, what="its screen says so"
        )
        assert now(swarm, work)[0] == "busy"
        reply[0] = Text("At last.")
        becomes(swarm, work, ("idle", "", "hook"))


def test_an_interrupted_claude_is_idle_although_no_hook_says_so(claude_world: ClaudeWorld) -> None:
    claude_world.play(Play().when(asked("look around")).then(Held(threading.Event(), Text("Never said."))))
    with claude_world.world.open() as swarm:
        work = claude_world.work(swarm, "look around")
        claude_world.api.wait_for(asked("look around"))
        becomes(swarm, work, ("busy", "", "hook"))
        swarm.context.host(work)._tmux.send_keys(work.id, "Escape")  # type: ignore[attr-defined]
        becomes(swarm, work, ("idle", "", "file"))


def test_a_claude_that_compacts_its_conversation_is_busy(claude_world: ClaudeWorld) -> None:
    with claude_world.world.open() as swarm:
        work = idle(claude_world, swarm)
        types(swarm, work, "/compact")
        wait_until(
            lambda: ("busy", "compacting", "hook") in history(swarm, work),
            timeout=30,
            what="it is seen compacting",
        )
        claude_world.wait_activity(work, "idle")


def test_a_killed_claude_and_one_that_left_are_told_apart(claude_world: ClaudeWorld) -> None:
    with claude_world.world.open() as swarm:
        killed, left = idle(claude_world, swarm), idle(claude_world, swarm)
        assert killed.pid is not None
        os.kill(killed.pid, signal.SIGKILL)
        types(swarm, left, "/exit")
        becomes(swarm, killed, ("exited", "was killed by signal 9", "process"))
        becomes(swarm, left, ("exited", "exited with code 0", "process"))
        assert (swarm.find(killed.id).status, swarm.find(left.id).status) == ("failed", "terminated")
