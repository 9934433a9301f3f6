"""What is shown of the scripted agent in every situation: activity, detail, where that is known from, and status.

With `tests/e2e/test_claude_status.py`, which has the real Claude Code's, these are the situations we tell apart.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from swarm_core.agents import table
from swarm_core.models import WORKTREE_GONE, Activity, Instance, Source
from swarm_core.store import instances
from swarm_core.store.database import utc_now
from swarm_core.swarm import Swarm
from tests.integration.review_fixture import commit
from tests.support import wait_until
from tests.world import World

Act = Callable[[World, Swarm, Instance], object]


@dataclass(frozen=True)
class Situation:
    """What the agent is told to do, what happens to it once it does that, and what is shown then."""

    prompt: str
    activity: str
    detail: str
    source: str
    status: str = "running"
    happens: Act | None = None
    problem: str = ""


def tmux(world: World, *words: str) -> None:
    argv = ["tmux", "-S", str(world.settings.tmux_socket), *words]
    subprocess.run(argv, capture_output=True, check=True, timeout=20)


def loses_its_status_file(world: World, _: Swarm, work: Instance) -> None:
    """And clears its screen: nothing says any more what it does."""
    (world.settings.instance_dir(work.id) / "status.json").unlink()
    tmux(world, "send-keys", "-t", work.id, "-R")
    tmux(world, "clear-history", "-t", work.id)


def asks_for_a_review(_: World, swarm: Swarm, work: Instance) -> None:
    commit(work)
    swarm.request_review(work.id)


SITUATIONS = {
    "just started": Situation("say ready", "starting", "the program was started", "process"),
    "idle": Situation("say ready", "idle", "", "file"),
    "busy": Situation("busy 600", "busy", "", "file"),
    "asks for permission": Situation("dialog Delete it?", "blocked", "permission", "file"),
    "asks a question": Situation("ask Which colour?", "blocked", "question", "file"),
    "hung": Situation("hang", "busy", "", "file"),
    "nothing tells": Situation(
        "hang", "unknown", "the program runs; nothing says what it does", "process", happens=loses_its_status_file
    ),
    "crashed": Situation("crash", "exited", f"was killed by signal {signal.SIGSEGV:d}", "process", "failed"),
    "killed": Situation(
        "say ready",
        "exited",
        f"was killed by signal {signal.SIGKILL:d}",
        "process",
        "failed",
        lambda _, __, work: os.kill(work.pid or 0, signal.SIGKILL),
    ),
    "done": Situation("exit 0", "exited", "exited with code 0", "process", "terminated"),
    "gave up": Situation("exit 3", "exited", "exited with code 3", "process", "failed"),
    "its session was killed": Situation(
        "say ready",
        "exited",
        "session lost",
        "process",
        "failed",
        lambda world, _, work: tmux(world, "kill-session", "-t", work.id),
    ),
    "tmux was killed": Situation(
        "say ready", "exited", "session lost", "process", "failed", lambda world, _, __: world.kill_tmux()
    ),
    "stopped": Situation(
        "say ready", "exited", "stopped", "process", "terminated", lambda _, swarm, work: swarm.stop(work.id)
    ),
    "waits for its review": Situation("say ready", "idle", "", "file", "waiting_review", asks_for_a_review),
    "its worktree is gone": Situation(
        "say ready",
        "idle",
        "",
        "file",
        happens=lambda _, __, work: shutil.rmtree(work.worktree_path),
        problem=WORKTREE_GONE,
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_what_is_shown(world: World, name: str) -> None:
    expected = SITUATIONS[name]
    with world.open() as swarm:
        work = world.work(swarm, expected.prompt)
        seen: list[tuple[str, ...]] = []

        if expected.happens is not None:
            wait_until(
                lambda: has_begun(swarm, work, expected.prompt), timeout=20, what="the agent is where it is to be"
            )
            expected.happens(world, swarm, swarm.find(work.id))
        end = (expected.activity, expected.detail, expected.source, expected.status, expected.problem)

        def reached() -> bool:
            found = swarm.find(work.id)
            shown = (found.activity, found.activity_detail, found.activity_source, found.status, found.problem)
            seen.append(shown)
            if shown != end:
                swarm.reconcile()
            return shown == end

        try:
            wait_until(reached, timeout=20)
        except pytest.fail.Exception:
            pytest.fail(f"{name}: expected {end}, was shown {list(dict.fromkeys(seen))}")


def has_begun(swarm: Swarm, work: Instance, prompt: str) -> bool:
    swarm.reconcile()
    return swarm.find(work.id).activity == ("busy" if prompt == "hang" else "idle")


IDLE_SCREEN = Path(__file__).parents[1] / "fixtures" / "claude_screens" / "idle_new.txt"
HOOKS = (
    ("UserPromptSubmit", {"prompt": "go on"}),
    ("StopFailure", {"error": "billing_error", "last_assistant_message": "Credit balance is too low"}),
    ("Notification", {"notification_type": "idle_prompt", "message": "Claude is waiting for your input"}),
)


def test_an_error_lasts_while_the_screen_is_idle_and_shows_it_no_more(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat {IDLE_SCREEN}\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    with world.open() as swarm:
        (work,) = swarm.work("look around", repo=str(world.repo), agent="claude")
        shown = wait_until(
            lambda: swarm.reconcile() is None or swarm.find(work.id).activity_source == "pane", what="a screen"
        )
        assert shown
        readings = [reading for hook in HOOKS if (reading := table.get("claude").read_hook(*hook))]
        for reading in readings:
            with swarm.context.db.write():
                activity = Activity(reading.activity)
                instances.observe(swarm.context.db, work.id, activity, source=Source.HOOK, detail=reading.detail)
    with world.open(clock=lambda: utc_now() + timedelta(minutes=10)) as later:
        later.reconcile()
        found = later.find(work.id)
    assert (found.activity, found.activity_detail) == ("idle", "error: out of credit")
