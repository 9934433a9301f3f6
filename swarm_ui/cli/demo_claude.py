"""The demo with Claude Code: a small task, a review by another Claude Code, a pull request and its merge."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from typing import Any

from swarm_core import proc
from swarm_core.agents import table
from swarm_core.errors import ExternalFailure, NotFound, SwarmError
from swarm_core.models import Activity, Instance, PullState
from swarm_ui import views
from swarm_ui.cli.demo_stage import Stage

LIMIT = 600.0
_ASKED_WITHIN = 30.0
_QUIET = 30.0
_POLL = 0.5
_TASK = """\
Add a module storage.py to this repository with two functions: save(tasks, path) writes a list of strings to a JSON
file, load(path) reads it back and gives an empty list when there is no file. Test both in test_storage.py with
unittest (`python3 -m unittest`). Keep it as small as that, and change nothing else.
"""
_ALLOWED = [
    "Edit(./**)",
    *(f"Bash(git {word}:*)" for word in ("add", "commit", "status", "diff", "log", "show", "branch", "rev-parse")),
    "Bash(python3 -m unittest:*)",
    "Bash(ls:*)",
]
FILES = {
    "README.md": "# todo\n\nA list of things to do.\n",
    "todo.py": "def main():\n    print('nothing to do')\n",
    ".gitignore": "__pycache__/\n",
    # What it may do in this repository without asking; for anything else it asks.
    ".claude/settings.json": json.dumps({"permissions": {"allow": _ALLOWED}}, indent=2) + "\n",
}


def require(environ: Mapping[str, str]) -> None:
    """Raise NotFound or ExternalFailure that says what is missing."""
    agent = table.get("claude")
    if shutil.which(agent.program, path=environ.get("PATH")) is None:
        raise NotFound(
            f"{agent.title} is not installed: there is no {agent.program} on PATH",
            code="AGENT_NOT_INSTALLED",
            hint=f"{agent.install_hint}; `swarm demo` needs no account",
        )
    said = proc.run([agent.program, "auth", "status"], env=environ, check=False, timeout=_ASKED_WITHIN)
    if said.returncode != 0:
        raise ExternalFailure(
            f"{agent.title} is not signed in: `claude auth status` ends with exit code {said.returncode}",
            code="AGENT_NOT_SIGNED_IN",
            hint="run claude once and sign in, or set ANTHROPIC_API_KEY; `swarm demo` needs no account",
        )


def perform(stage: Stage) -> dict[str, Any]:
    stage.poll = _POLL
    swarm, watch = stage.swarm, _Watch(stage)
    minutes = f"{LIMIT / 60:g} minutes"
    stage.tell("swarm", f"Claude Code works on your account for up to {minutes}; it keeps its own log")
    stage.start("storage", swarm.work_prompt(_TASK), agent="claude")
    branch = stage.find("storage").branch
    watch.until("storage commits its work", lambda: stage.repo.summary(branch)["commits"] > 0)
    watch.until("a reviewer gives its verdict", lambda: any(link.verdict for link in stage.reviews("storage")))
    watch.until("a pull request is opened", lambda: stage.find("storage").pr_number is not None)
    pull = stage.merge("storage")
    stage.check("the pull request is merged", pull.state == PullState.MERGED)
    stage.check("main has the work", pull.head_commit in stage.repo.on_main())
    return {"agents": stage.agents(), "preserved": None}


class _Watch:
    """What a person would do beside real agents: trust the folder, and be told what else is asked."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._deadline = time.monotonic() + LIMIT
        self._told: set[str] = set()

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        def met() -> bool:
            if condition():
                return True
            for instance in self._stage.swarm.instances():
                self._look_after(instance)
            return condition()

        self._stage.happens(what, met, within=max(0.0, self._deadline - time.monotonic()))

    def _look_after(self, instance: Instance) -> None:
        asked = json.loads(instance.blocked_on) if instance.blocked_on else {}
        if instance.activity == Activity.BLOCKED and asked.get("digest"):
            self._asked(instance, asked)
        elif instance.activity == Activity.EXITED and instance.name:
            raise ExternalFailure(
                f"the agent of {instance.name} ended: {instance.reason or instance.activity_detail}",
                hint="run claude in a folder of your own and see whether it works there",
                details={"screen": instance.last_screen[-2000:]},
            )
        elif instance.activity != Activity.BLOCKED and (needs := views.needs_you(instance)):
            self._once(instance, needs, f"needs you: {needs}")
        elif self._stage.silence > _QUIET:
            self._stage.tell(instance.name or instance.id, f"is still {instance.activity}")

    def _asked(self, instance: Instance, asked: dict[str, Any]) -> None:
        """The folder is the demo's own, so it is trusted; every other question is the person's."""
        yes = [n for n, text in enumerate(asked["choices"], start=1) if text.lower().startswith("yes")]
        if asked["kind"] == "trust" and yes:
            try:
                self._stage.doing(self._stage.swarm.answer, instance.id, choice=yes[0], digest=asked["digest"])
                self._stage.tell(instance.name or instance.id, "may trust the demo's own folder")
            except SwarmError as error:
                self._once(instance, error.message, f"was not answered: {error.message}")
            return
        home = self._stage.swarm.context.settings.home
        lines = views.dialog_lines(instance)
        self._once(instance, asked["digest"], f"asks you: {' / '.join(lines[:-1])}")
        self._once(instance, lines[-1], f"answer it with: SWARM_HOME={home} {lines[-1]}")

    def _once(self, instance: Instance, key: str, what: str) -> None:
        if f"{instance.id} {key}" not in self._told:
            self._told.add(f"{instance.id} {key}")
            self._stage.tell(instance.name or instance.id, what)
