"""Why an instance needs a person, and the command with which that person acts. Nothing is looked up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from swarm_core.models import FOLDER_PROBLEMS, KEPT, Activity, Instance, Kind, Status
from swarm_core.ops import dialogs, folders
from swarm_core.ops.reconcile import SESSION_LOST
from swarm_core.ops.session import STOPPED

BLOCKED = "blocked"
FAILED = "failed"
BUDGET_WARNED = "budget_warned"
STRAYED = "it changed files that are not its own"
_ERROR = "error: "
_WAITS_FOR_OTHERS = frozenset({Status.WAITING_REVIEW, Status.APPROVED, Status.PR_CREATED})
# What agents call the same thing in their hooks and on their screens.
_ERRORS = {
    "rate_limit": "rate limited",
    "overloaded": "rate limited",
    "billing_error": "out of credit",
    "authentication_failed": "login needed",
    "api error": "the model's service failed",
    "server_error": "the model's service failed",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """`key` is the same as long as the reason is, `text` is a few words, `more` what the agent itself shows."""

    key: str
    text: str
    command: str
    more: str = ""


def reasons(instance: Instance) -> list[Reason]:
    """All that waits for a person, the gravest first; empty when nothing does."""
    return [] if instance.cleaned else list(_reasons(instance))


def is_read(instance: Instance) -> bool:
    """Whether the screen of a blocked instance was read since it is blocked, with or without a question on it."""
    return bool(instance.blocked_on and json.loads(instance.blocked_on).get("since"))


def _reasons(instance: Instance) -> Iterator[Reason]:
    if instance.needs_person.startswith(STRAYED):
        look = f"swarm events --instance {instance.id}, then swarm msg {instance.id} TEXT"
        yield Reason("strayed", instance.needs_person, look)
    elif instance.needs_person:
        act = f"swarm accept {instance.id}, swarm rescope {instance.id} TASK or swarm abandon {instance.id}"
        yield Reason("needs_person", instance.needs_person, act)
    if instance.kept:
        kept = json.loads(instance.kept)
        more = "\n".join([kept["path"], *kept["files"]])
        text = f"its folder was kept: {KEPT[kept['reason']]}"
        yield Reason("kept", text, folders.kept_remedy(instance).replace("`", ""), more)
    if instance.problem:
        mend = "swarm doctor --fix"
        if instance.problem in FOLDER_PROBLEMS:
            mend = folders.problem_remedy(instance, instance.problem).replace("`", "")
        yield Reason("problem", instance.problem, mend)
    if instance.status == Status.FAILED:
        yield _ended(instance, f"failed: {instance.reason}" if instance.reason else "failed")
    if instance.ended:
        return
    if instance.activity == Activity.BLOCKED:
        yield _blocked(instance)
    ended_by_itself = instance.activity == Activity.EXITED and instance.activity_detail != STOPPED
    if ended_by_itself and instance.status in _WAITS_FOR_OTHERS and instance.reason:
        yield _ended(instance, f"{instance.status}, but {instance.reason}")
    if instance.activity == Activity.IDLE and instance.activity_detail.startswith(_ERROR):
        kind = instance.activity_detail.removeprefix(_ERROR)
        text = f"stopped by an error: {_ERRORS.get(kind, kind)}"
        yield Reason("error", text, f"swarm attach {instance.id}, or swarm msg {instance.id} TEXT")
    yield from _budget(instance)


def _ended(instance: Instance, text: str) -> Reason:
    if instance.kind != Kind.REVIEW and instance.activity_detail == SESSION_LOST:
        return Reason("session_lost", text, "swarm resume")
    key = FAILED if instance.status == Status.FAILED else "exited"
    if instance.kind == Kind.REVIEW and instance.parent_id:  # its round is over, and a restart would not reopen it
        return Reason(key, text, f"swarm logs {instance.id}, then swarm review {instance.parent_id}")
    return Reason(key, text, f"swarm logs {instance.id}, then swarm restart {instance.id}")


def _blocked(instance: Instance) -> Reason:
    """Another question is another reason, though the agent was blocked all the time."""
    text = f"blocked: {instance.activity_detail}" if instance.activity_detail else "blocked"
    asked = dialogs.shown(instance)
    if asked is None:
        return Reason(BLOCKED, text, f"swarm attach {instance.id}")
    choices = [f"{number}. {choice}" for number, choice in enumerate(asked["choices"], start=1)]
    how = "--choice N" if choices else "--text TEXT"
    more = "\n".join([str(asked["text"]), *choices])
    return Reason(f"{BLOCKED}:{asked['digest']}", text, f"swarm answer {instance.id} {how}", more)


def _budget(instance: Instance) -> Iterator[Reason]:
    spent = f"about {instance.cost_usd:.2f} USD so far"
    command = f"swarm budget {instance.id} --raise USD"
    if instance.budget_state == "warned":
        yield Reason(BUDGET_WARNED, "its budget is nearly used", command, spent)
    elif instance.budget_state == "held":
        yield Reason("budget_held", "its budget is used up", command, spent)
