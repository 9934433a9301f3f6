"""Spawn: a new instance from nothing to a running agent."""

from __future__ import annotations

import contextlib
import dataclasses
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swarm_core import ids
from swarm_core.agents import table
from swarm_core.errors import Conflict, InvalidInput, SwarmError
from swarm_core.hosts.base import Host, RepoFacts
from swarm_core.models import TRANSITIONS, Activity, Instance, Kind, Source, Status, Wanted
from swarm_core.ops import removal, session, texts
from swarm_core.ops.context import Context, nothing, place
from swarm_core.ops.prompts import Prompt
from swarm_core.ops.steps import Job, Operation, Step
from swarm_core.store import actions, hosts, instances, relationships, tokens

PROMPT_MAX = 4 << 20
NAME_MAX = 80
ISSUE_MAX = 999_999_999


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person or agent asked to be spawned, already checked against the repository.

    The prompt is written when id and places are known. `relation` is to the parent, `round` that of a review, and
    `number` the agent number to begin with when the next one is not wanted. `group` is that of the attempts it is
    one of, empty for the first of them: its id names the group.
    """

    kind: Kind
    repo: RepoFacts
    agent: str
    prompt: Prompt
    issue_number: int | None = None
    issue_title: str | None = None
    name: str | None = None
    parent: Instance | None = None
    relation: str = relationships.FORK
    round: int = 1
    number: int | None = None
    group: str | None = None


def check_text(prompt: str, name: str | None, issue: int | None) -> None:
    """Refuse what no agent, file or table could hold."""
    if len(prompt.encode(errors="surrogatepass")) > PROMPT_MAX:
        raise InvalidInput(
            f"the prompt has more than {PROMPT_MAX >> 20} MB",
            code="PROMPT_TOO_LARGE",
            hint="put the material into a file of the repository and name it in the prompt",
        )
    if "\0" in prompt or (name is not None and "\0" in name):
        raise InvalidInput("text cannot contain a NUL character", hint="remove the character and try again")
    if name is not None and (
        not name.strip() or len(name) > NAME_MAX or not name.isprintable() or ids.is_id(name)
    ):
        raise InvalidInput(
            f"a name is 1 to {NAME_MAX} printable characters and no instance id",
            hint='for example --name "login fix"',
        )
    if name is not None and (name.startswith("-") or name != name.strip()):
        raise InvalidInput(
            "a name cannot start with a dash, or start or end with a space", hint='for example --name "login fix"'
        )
    if issue is not None and not 1 <= issue <= ISSUE_MAX:
        raise InvalidInput(f"an issue number is between 1 and {ISSUE_MAX}", hint="for example --issue 123")


def check_task(prompt: str, issue: int | None, *, adhoc: bool) -> None:
    """Refuse an agent without a task, which would cost money for nothing, unless that is asked for."""
    if adhoc == bool(issue or not texts.is_blank(prompt)):
        raise InvalidInput(
            "an adhoc instance has no task" if adhoc else "there is no task",
            hint="leave --adhoc out"
            if adhoc
            else "give a PROMPT or --issue N, or --adhoc for an agent without a task",
        )


def reserve(
    context: Context, wish: Wish, *, actor: str, reserved: Callable[[Instance], None] = nothing
) -> Instance:
    """Allocate the id and record row, intent and event in one transaction; nothing else has happened yet.

    `reserved` is called inside the transaction.
    """
    agent = table.get(wish.agent)
    db, host = context.db, context.host(wish.parent) if wish.parent else context.hosts.choose()
    with db.write():
        hosts.seen(db, host.name)
        folder = context.settings.worktrees / ids.repo_folder(wish.repo["repo_path"])
        instance_id = _free_id(context, wish, host, folder)
        number = ids.parse(instance_id).number
        now = db.now()
        instance = Instance(
            id=instance_id,
            kind=wish.kind,
            status=Status.STARTING,
            wanted=Wanted.RUNNING,
            host=host.name,
            epoch=1,
            repo_path=wish.repo["repo_path"],
            worktree_path=str(folder / instance_id),
            branch=ids.branch(instance_id),
            base_branch=wish.repo["base_branch"],
            base_commit=wish.repo["base_commit"],
            head_commit=wish.repo["base_commit"],
            tmux_session=instance_id,
            agent=agent.name,
            conversation_id=str(uuid.uuid4()),
            agent_number=number,
            activity=Activity.STARTING,
            activity_source=Source.PROCESS,
            activity_at=now,
            created_at=now,
            updated_at=now,
            name=wish.name,
            issue_number=wish.issue_number,
            issue_title=wish.issue_title,
            parent_id=wish.parent.id if wish.parent else None,
            attempt_group=instance_id if wish.group == "" else wish.group,
        )
        _require_free_name(context, instance)
        instance = dataclasses.replace(instance, prompt=wish.prompt(instance))
        check_text(instance.prompt, wish.name, wish.issue_number)
        instances.insert(db, instance, actor=actor)
        if wish.parent is not None:
            head = wish.repo["base_commit"]
            relationships.add(db, wish.parent.id, instance_id, wish.relation, head_commit=head, round_=wish.round)
        actions.start(db, instance_id, "spawn", actor=actor)
        reserved(instance)
    return instance


def reserve_attempts(context: Context, wishes: Sequence[Wish], *, actor: str) -> list[Instance]:
    """Reserve instances for the same task in one transaction; several are attempts of one group.

    A name is given to one instance alone, so the attempts are named `NAME 1`, `NAME 2` and so on.
    """
    if len(wishes) == 1:
        return [reserve(context, wishes[0], actor=actor)]
    made: list[Instance] = []
    with context.db.write():
        for number, wish in enumerate(wishes, start=1):
            group, name = made[0].id if made else "", f"{wish.name} {number}" if wish.name else None
            made.append(reserve(context, dataclasses.replace(wish, group=group, name=name), actor=actor))
    return made


def _require_free_name(context: Context, instance: Instance) -> None:
    """Raise Conflict when another instance has the name; call inside the transaction. A cleaned one has none."""
    taken = instances.named(context.db, instance.name) if instance.name else []
    other = next((i for i in taken if not i.cleaned), None)
    if other is not None:
        raise Conflict(
            f"{other.id} is named {instance.name!r} already",
            code="NAME_TAKEN",
            hint=f"choose another name, or clean {other.id} first",
            details={"instance_id": other.id},
        )


def give_up(context: Context, instance_id: str, error: SwarmError) -> None:
    """Note of a spawn that could not even be begun that it failed, so that whoever takes it up undoes it."""
    with contextlib.suppress(SwarmError), context.db.write():
        action = actions.open_for(context.db, instance_id)
        if action is not None and action.error_code is None:
            actions.failing(context.db, action, error)


def _free_id(context: Context, wish: Wish, host: Host, folder: Path) -> str:
    """The next id that no row, branch, folder or earlier database has used, and whose branch git can make."""
    number = wish.number or instances.next_number(context.db, wish.kind, wish.issue_number)
    taken = _taken_branches(wish)
    while True:
        instance_id = str(ids.InstanceId(wish.kind, wish.issue_number, number, wish.round))
        known = ids.branch(instance_id) in taken or instances.find(context.db, instance_id) is not None
        if not known and not host.is_taken(instance_id, str(folder / instance_id)):
            return instance_id
        number += 1


def _taken_branches(wish: Wish) -> set[str]:
    """The branches there are and the names above them, since git makes none below a branch or above one."""
    there = wish.repo["branches"]
    above = ids.branch(str(ids.InstanceId(wish.kind, wish.issue_number, 1, wish.round))).rpartition("/")[0]
    if above in there:
        raise Conflict(
            f"branch {above} exists, so git can make no branch below {above}/",
            code="BRANCH_BLOCKED",
            hint=f"rename it: git branch -m {above} NEW_NAME",
            details={"branch": above},
        )
    return {name.rsplit("/", depth)[0] for name in there for depth in range(name.count("/") + 1)}


def _worktree(job: Job) -> None:
    job.host.ensure_worktree(place(job.instance), keep_open=job.lock)


def _undo_worktree(job: Job) -> None:
    """Take back what the step made; when the place was taken, it made nothing."""
    if job.action.error_code == "WORKTREE_EXISTS" and "worktree" not in job.action.steps_done:
        return
    if removal.undo_worktree(job):
        job.host.remove_files(job.instance.id)


def _session(job: Job) -> dict[str, Any]:
    return session.start(job, resume=False)


def _done(job: Job) -> None:
    """The agent may have been quicker and have said more of its status already."""
    if job.instance.status == Status.STARTING:
        instances.change_status(job.context.db, job.instance.id, Status.RUNNING, actor=job.action.actor)
    if job.instance.wanted != Wanted.RUNNING:  # it was given up while it started
        tokens.revoke(job.context.db, job.instance.id)


def _failing(job: Job, why: str) -> None:
    """Nobody waits for it any longer: the author of a review goes on."""
    db = job.context.db
    tokens.revoke(db, job.instance.id)
    if Status.FAILED in TRANSITIONS[Status(job.instance.status)]:
        instances.change_status(db, job.instance.id, Status.FAILED, actor=job.action.actor, reason=why)


def _undone(job: Job, why: str) -> None:
    """The row stays as a record of the attempt; nothing else does, unless the folder had to be kept."""
    db = job.context.db
    _failing(job, why)
    instances.observe(db, job.instance.id, Activity.EXITED, source=Source.PROCESS, detail="never started")
    if job.instance.kept:
        instances.set_fields(db, job.instance.id, wanted=Wanted.STOPPED, pid=None)
    else:
        instances.set_fields(db, job.instance.id, wanted=Wanted.REMOVED, cleaned_at=db.now(), pid=None)


SPAWN = Operation(
    kind="spawn",
    steps=(
        Step("worktree", _worktree, undo=_undo_worktree, saying="making the worktree"),
        Step(
            "session", _session, undo=session.undo_start, record=session.record_start, saying="starting the agent"
        ),
    ),
    done=_done,
    undone=_undone,
    failing=_failing,
)
