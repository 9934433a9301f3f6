"""Starting and ending an agent's session: the one place where tokens are issued and plans become processes."""

from __future__ import annotations

import json
from typing import Any

from swarm_core import process
from swarm_core.agents import table
from swarm_core.agents.base import RESUME_PROMPT, Spec
from swarm_core.hosts.base import SessionFacts, StartOrder
from swarm_core.models import Activity, Instance, Source
from swarm_core.ops.context import Context
from swarm_core.ops.steps import Job
from swarm_core.store import instances, tokens

# The detail of an agent that exited because somebody asked for that.
STOPPED = "stopped"
SCREEN_KEPT = 4000


def start(job: Job, *, resume: bool, prompt: bool = True) -> dict[str, Any]:
    """Start the agent at the instance's epoch. A repeat finds the session and issues nothing new."""
    instance, context = job.instance, job.context
    present = next((s for s in job.host.sessions() if s["instance_id"] == instance.id), None)
    if present is not None and present["epoch"] == instance.epoch:
        return {"pid": present["pid"]}
    with context.db.write():
        token = tokens.issue(context.db, instance.id, instance.epoch)
    facts = job.host.start(_order(context, instance, token, resume=resume, prompt=prompt))
    return {"pid": facts["pid"]}


def end(job: Job, *, grace: float) -> dict[str, Any]:
    """End whatever runs for the instance and keep how it ended."""
    facts, screen = job.host.stop(job.instance.id, grace=grace)
    if facts is None:
        return {}
    return {"exit_code": facts["exit_code"], "exit_signal": facts["exit_signal"], "screen": kept_screen(screen)}


def undo_start(job: Job) -> None:
    job.host.stop(job.instance.id, grace=0)
    with job.context.db.write():
        tokens.revoke(job.context.db, job.instance.id)


def record_start(job: Job) -> None:
    db = job.context.db
    instances.observe(
        db, job.instance.id, Activity.STARTING, source=Source.PROCESS, detail="the program was started"
    )
    instances.set_fields(
        db,
        job.instance.id,
        pid=job.action.details["pid"],
        started_at=db.now(),
        exit_code=None,
        exit_signal=None,
        last_screen="",
    )


def record_end(job: Job) -> None:
    """What is known of an agent that a person ended."""
    db, details = job.context.db, job.action.details
    tokens.revoke(db, job.instance.id)
    instances.observe(db, job.instance.id, Activity.EXITED, source=Source.PROCESS, detail=STOPPED)
    known = {"exit_code": "exit_code", "exit_signal": "exit_signal", "last_screen": "screen"}
    seen = {field: details[key] for field, key in known.items() if key in details}
    instances.set_fields(db, job.instance.id, pid=None, **seen)


def how_it_ended(facts: SessionFacts) -> str:
    if facts["exit_signal"]:
        return f"was killed by signal {facts['exit_signal']}"
    if facts["exit_code"] is None:
        return "ended and left no exit code"
    return f"exited with code {facts['exit_code']}"


def kept_screen(text: str) -> str:
    """The last of a screen, without trailing blank lines and control characters."""
    lines = [line.rstrip() for line in text.rstrip().splitlines()]
    clean = "\n".join("".join(c for c in line if c.isprintable()) for line in lines)
    return clean[-SCREEN_KEPT:]


def _order(context: Context, instance: Instance, token: str, *, resume: bool, prompt: bool) -> StartOrder:
    folder = context.settings.instance_dir(instance.id)
    coordinator = process.running(context.settings, process.COORDINATOR)
    url = coordinator.url if coordinator else context.settings.coordinator_url
    spec = Spec(
        instance_id=instance.id,
        epoch=instance.epoch,
        conversation_id=instance.conversation_id,
        worktree_path=instance.worktree_path,
        instance_dir=str(folder),
        prompt=instance.prompt,
        prompt_path=str(folder / "prompt.md"),
        coordinator_url=url,
        resume_prompt=RESUME_PROMPT if prompt else "",
    )
    plan = table.get(instance.agent).plan(spec, resume=resume)
    return {
        "instance_id": instance.id,
        "agent": instance.agent,
        "epoch": instance.epoch,
        "cwd": instance.worktree_path,
        "argv": list(plan.argv),
        "resume_argv": list(plan.resume_argv) if plan.resume_argv else None,
        "resume_probe": list(plan.resume_probe),
        "resume": resume,
        "env": plan.env | {"SWARM_URL": url},
        "unset": list(plan.unset),
        "files": {"prompt.md": instance.prompt, "instance.json": _card(instance)} | plan.files,
        "secrets": {"SWARM_TOKEN": token},
    }


def _card(instance: Instance) -> str:
    """What a tool inside the session may want to know of its instance."""
    known = {
        "id": instance.id,
        "kind": instance.kind,
        "branch": instance.branch,
        "base_branch": instance.base_branch,
    }
    return json.dumps(known | {"worktree_path": instance.worktree_path}, indent=2) + "\n"
