"""Reconcile: what is recorded against what is there. The certain is mended, the rest is reported."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from swarm_core.errors import HostLost, SwarmError
from swarm_core.hosts.base import Host, InstanceFacts, ReadingFacts, SessionFacts, Watched
from swarm_core.models import (
    FOLDER_PROBLEMS,
    UNLINKED,
    WORKTREE_GONE,
    Action,
    Activity,
    Instance,
    Kind,
    Source,
    Status,
    Wanted,
    parse_iso,
)
from swarm_core.ops import dialogs, folders, operations, session
from swarm_core.ops.context import Context
from swarm_core.store import actions, events, hosts, instances, tokens

_ENDS_WITH_ITS_AGENT = frozenset({Status.STARTING, Status.RUNNING, Status.CHANGES_REQUESTED})
_VERDICT_GIVEN = frozenset({Status.APPROVED, Status.CHANGES_REQUESTED})
_END_KNOWN_WITHIN = 0.5
_STUCK = "what was found"
_HOOK_HOLDS = 5.0
_UNLINKED = {reason: problem for problem, reason in UNLINKED.items()}
SESSION_LOST = "session lost"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was not as recorded; `mended` says whether it is now."""

    instance_id: str
    what: str
    mended: bool
    hint: str = ""


def reconcile(context: Context) -> list[Finding]:
    """Finish what was interrupted, then look at everything."""
    return finish_open(context) + look(context)


def look(context: Context) -> list[Finding]:
    """Look at all instances at once and mend one by one, each under its lock; those in other hands are left."""
    findings: list[Finding] = []
    current = instances.listed(context.db)
    for host in context.hosts:
        mine = [i for i in current if i.host == host.name]
        try:
            findings += _look_at_host(context, host, mine)
        except HostLost as error:
            with context.db.write():
                hosts.lost(context.db, host.name, error.message)
    return findings


def finish_open(context: Context, *, patience: float = 0.0) -> list[Finding]:
    """Finish or undo what killed processes left in the middle.

    What began less than `patience` seconds ago is left to whoever began it: they are about to take its lock.
    """
    groups = interrupted(context, patience=patience).values()
    return [finding for group in groups for finding in finish(context, group)]


def interrupted(context: Context, *, patience: float) -> dict[str, list[Action]]:
    """What killed processes left in the middle, by repository."""
    found: dict[str, list[Action]] = {}
    for action in actions.all_open(context.db):
        age = (parse_iso(context.db.now()) - parse_iso(action.started_at)).total_seconds()
        if not 0 <= age < patience:
            found.setdefault(instances.get(context.db, action.instance_id).repo_path, []).append(action)
    return found


def finish(context: Context, some: Sequence[Action]) -> list[Finding]:
    findings: list[Finding] = []
    for action in some:
        findings += _guarded(context, action.instance_id, f"an interrupted {action.kind}", _finish)
    return findings


def _look_at_host(context: Context, host: Host, mine: list[Instance]) -> list[Finding]:
    """One look at a host. If it is lost nothing is known, so nothing is recorded of its instances."""
    findings: list[Finding] = []
    facts = host.snapshot([_watched(i) for i in mine])
    if hosts.state(context.db, host.name) == "lost":
        with context.db.write():
            hosts.seen(context.db, host.name)
    for instance in mine:
        if _decide(instance, facts[instance.id]) is None:
            _observe(context, instance, facts[instance.id])
            if _may_ask(instance, facts[instance.id]):
                dialogs.refresh(context, instances.get(context.db, instance.id))
            if instance.problem.startswith(_STUCK):
                with context.db.write():
                    instances.set_fields(context.db, instance.id, problem="")
        else:
            findings += _guarded(context, instance.id, _STUCK, _mend)
    return findings


def _may_ask(instance: Instance, facts: InstanceFacts) -> bool:
    """Whether a question is, was or has come up; asking the database about everybody costs more than the look."""
    reading = facts["reading"]
    seen = reading is not None and reading["activity"] == Activity.BLOCKED
    return seen or bool(instance.blocked_on) or instance.activity == Activity.BLOCKED


def _guarded(
    context: Context, instance_id: str, what: str, work: Callable[[Context, str, int], list[Finding]]
) -> list[Finding]:
    """One instance's trouble is its own: it is written down, and the others get their turn."""
    try:
        with context.lock(instance_id, timeout=0) as lock:
            return work(context, instance_id, lock)
    except HostLost:
        raise
    except SwarmError as error:
        if error.code == "INSTANCE_BUSY":
            return []
        return [_stuck(context, instance_id, f"{what} could not be dealt with: {error.message}", error.hint or "")]
    except Exception as error:  # a bug that one instance brings to light must not blind us to the others
        log.exception("%s of %s", what, instance_id)
        return [_stuck(context, instance_id, f"{what} met a bug: {type(error).__name__}: {error}", "")]


def _stuck(context: Context, instance_id: str, what: str, hint: str) -> Finding:
    if instances.get(context.db, instance_id).problem != what:
        with context.db.write():
            instances.set_fields(context.db, instance_id, problem=what)
            told = {"what": what}
            events.add(context.db, "instance:problem", instance_id=instance_id, actor="supervisor", metadata=told)
    return Finding(instance_id, what, False, hint)


def _finish(context: Context, instance_id: str, lock: int) -> list[Finding]:
    action = actions.open_for(context.db, instance_id)
    if action is None:
        return []
    operations.carry_out(context, instance_id, lock=lock)
    return [Finding(instance_id, f"an interrupted {action.kind} was brought to its end", True)]


def strangers(context: Context) -> list[str]:
    """Sessions on our tmux server that no row knows; reported, never ended."""
    known = {i.id for i in instances.listed(context.db, include_cleaned=True)}
    lost = [s["instance_id"] for h in context.hosts for s in h.sessions()]
    foreign = [name for h in context.hosts for name in h.foreign_sessions()]
    return [name for name in lost if name not in known] + foreign


def _watched(instance: Instance) -> Watched:
    return {"instance_id": instance.id, "agent": instance.agent, "worktree_path": instance.worktree_path}


def _decide(instance: Instance, facts: InstanceFacts) -> str | None:
    """What is wrong with an instance that has no open action; None when all is as recorded."""
    found = facts["session"]
    if found is not None and found["alive"] and instance.wanted != Wanted.RUNNING:
        return "unwanted"
    if instance.wanted == Wanted.RUNNING:
        if found is None:
            return "lost"
        if not found["alive"]:
            return "exited"
        if found["epoch"] != instance.epoch:
            return "unwanted"
    if instance.problem not in FOLDER_PROBLEMS and instance.problem:
        return None
    return "worktree" if _folder_problem(instance, facts) != instance.problem else None


def _folder_problem(instance: Instance, facts: InstanceFacts) -> str:
    """One of FOLDER_PROBLEMS, or nothing; a folder that a removal kept is reported as that."""
    if not facts["worktree"]:
        return "" if is_aside(instance) else WORKTREE_GONE
    return "" if instance.kept else _UNLINKED.get(facts["link"], "")


def is_aside(instance: Instance) -> bool:
    """Whether a removal had to leave the folder beside its place."""
    return bool(instance.kept) and json.loads(instance.kept)["path"] != instance.worktree_path


def settle(context: Context, instance: Instance) -> list[Finding]:
    """Make the record of one instance true; the caller holds its lock and it has no open action."""
    facts = context.host(instance).snapshot([_watched(instance)])[instance.id]
    wrong = _decide(instance, facts)
    return [_MENDERS[wrong](context, instance, facts)] if wrong and not instance.cleaned else []


def _mend(context: Context, instance_id: str, lock: int) -> list[Finding]:
    """Look again, alone with the instance, and make the record true."""
    if actions.open_for(context.db, instance_id) is not None:
        return []
    return settle(context, instances.get(context.db, instance_id))


def _mend_unwanted(context: Context, instance: Instance, facts: InstanceFacts) -> Finding:
    context.host(instance).stop(instance.id, grace=context.settings.number("stop_grace"))
    with context.db.write():
        tokens.revoke(context.db, instance.id)
    what = "a session that nobody wants any more was ended"
    _tell(context, instance, what, mended=True)
    return Finding(instance.id, what, True)


def _mend_lost(context: Context, instance: Instance, facts: InstanceFacts) -> Finding:
    why = "its tmux session is gone"
    context.host(instance).stop(instance.id, grace=context.settings.number("stop_grace"))
    done = instance.kind == Kind.REVIEW and instance.status in _VERDICT_GIVEN
    status = Status.TERMINATED if done else Status.FAILED
    _record_end(context, instance, status, why, detail=SESSION_LOST)
    return Finding(instance.id, why, True, f"`swarm restart {instance.id}` resumes the conversation")


def _mend_exited(context: Context, instance: Instance, facts: InstanceFacts) -> Finding:
    found = _final(context, instance, facts["session"])
    how = session.how_it_ended(found)
    screen = session.kept_screen(context.host(instance).screen(instance.id))
    ended_well = found["exit_code"] == 0 and not found["exit_signal"]
    status = Status.TERMINATED if ended_well else Status.FAILED
    known = {"exit_code": found["exit_code"], "exit_signal": found["exit_signal"], "last_screen": screen}
    _record_end(context, instance, status, f"the agent {how}", detail=how, **known)
    return Finding(instance.id, f"the agent {how}", True, f"`swarm logs {instance.id}` shows its last screen")


def _final(context: Context, instance: Instance, found: SessionFacts | None) -> SessionFacts:
    """tmux knows code or signal a moment after the end itself; an old one never knows the signal."""
    deadline = time.monotonic() + _END_KNOWN_WITHIN
    assert found is not None
    while found["exit_code"] is None and found["exit_signal"] is None and time.monotonic() < deadline:
        time.sleep(0.02)
        found = next((s for s in context.host(instance).sessions() if s["instance_id"] == instance.id), found)
    return found


def _mend_worktree(context: Context, instance: Instance, facts: InstanceFacts) -> Finding:
    problem = _folder_problem(instance, facts)
    what = problem or "the worktree is back"
    with context.db.write():
        instances.set_fields(context.db, instance.id, problem=problem)
        if problem == WORKTREE_GONE and instance.kept:
            instances.set_fields(context.db, instance.id, kept="")
    _tell(context, instance, what, mended=not problem)
    return Finding(instance.id, what, not problem, folders.problem_remedy(instance, problem) if problem else "")


_MENDERS = {"unwanted": _mend_unwanted, "lost": _mend_lost, "exited": _mend_exited, "worktree": _mend_worktree}


def _record_end(
    context: Context, instance: Instance, status: Status, why: str, *, detail: str, **known: Any
) -> None:
    """The agent is gone without anybody having stopped it."""
    db = context.db
    with db.write():
        tokens.revoke(db, instance.id)
        instances.observe(db, instance.id, Activity.EXITED, source=Source.PROCESS, detail=detail)
        if _ends_with_its_agent(instances.get(db, instance.id)):
            instances.change_status(db, instance.id, status, actor="supervisor", reason=why)
        instances.set_fields(db, instance.id, wanted=Wanted.STOPPED, reason=why, pid=None, **known)
        told = {k: known.get(k) for k in ("exit_code", "exit_signal")} | {"why": why}
        events.add(db, "instance:exited", instance_id=instance.id, actor="supervisor", metadata=told)


def _ends_with_its_agent(instance: Instance) -> bool:
    """A pull request and work that is reviewed or approved live on; a reviewer's task ends with its verdict."""
    given = instance.kind == Kind.REVIEW and instance.status == Status.APPROVED
    return given or instance.status in _ENDS_WITH_ITS_AGENT


def _observe(context: Context, instance: Instance, facts: InstanceFacts) -> None:
    """Write down news only: a look at an unchanged fleet writes nothing."""
    reading = facts["reading"]
    if reading is None:
        return
    known = (instance.activity, instance.activity_source, instance.activity_detail)
    if known == (reading["activity"], reading["source"], reading["detail"]):
        return
    with context.db.write():
        now = instances.get(context.db, instance.id)
        if now.wanted != Wanted.RUNNING or now.epoch != instance.epoch:
            return  # stopped or started again since the look; what was seen is history
        if _knows_better(now, reading, context.db.now()):
            return
        instances.observe(
            context.db,
            instance.id,
            Activity(reading["activity"]),
            source=reading["source"],
            detail=reading["detail"],
            at=reading["at"],
        )


def _knows_better(instance: Instance, reading: ReadingFacts, now: str) -> bool:
    """Whether what the agent itself reported through a hook is better evidence than what was seen from outside.

    A file that says the same a moment later does not know why. An idle screen does not undo an error either: that
    lasts until the next turn begins.
    """
    if instance.activity_source != Source.HOOK:
        return False
    if reading["source"] == Source.PROCESS:
        return True
    if reading["at"] is not None:
        later = (parse_iso(reading["at"]) - parse_iso(instance.activity_at)).total_seconds()
        return later <= (_HOOK_HOLDS if reading["activity"] == instance.activity else 0.0)
    if reading["activity"] == instance.activity == Activity.IDLE and not reading["detail"]:
        return True
    return (parse_iso(now) - parse_iso(instance.activity_at)).total_seconds() < _HOOK_HOLDS


def _tell(context: Context, instance: Instance, what: str, *, mended: bool) -> None:
    name = "instance:repaired" if mended else "instance:problem"
    with context.db.write():
        events.add(context.db, name, instance_id=instance.id, actor="supervisor", metadata={"what": what})
