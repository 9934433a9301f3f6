"""Merging a pull request: when nothing hinders it, at exactly the commit that was seen."""

from __future__ import annotations

import logging

from swarm_core.errors import Cancelled, Conflict, SwarmError
from swarm_core.forge import Forge, MergeMethod
from swarm_core.models import Instance, MessageKind, Pull, PullState
from swarm_core.ops import post, pull_look, pull_record, pulls, texts
from swarm_core.ops.context import Context
from swarm_core.ops.local_pulls import LocalForge
from swarm_core.ops.pull_status import Facts
from swarm_core.store import events, messages
from swarm_core.store import pulls as store

# Only another commit helps against these, and a merge that happens by itself is for one commit alone.
_AUTHOR_HAS_TO = frozenset({"CHECK_FAILED", "MERGE_CONFLICT", "PULL_HEAD_MOVED"})
_OUTPUT = 3000

log = logging.getLogger(__name__)


def method_of(context: Context, name: str | None) -> MergeMethod:
    return MergeMethod(name or context.settings.text("merge_method"))


def merge(context: Context, work: Instance, *, method: MergeMethod, actor: str) -> Pull:
    """Merge the pull request of an instance's branch now; raises Conflict (PULL_NOT_MERGEABLE) with why not."""
    forge, facts = _now(context, work)
    if facts.pull.state == PullState.MERGED:
        return facts.pull
    _require_ready(facts, work)
    return carry_out(context, forge, facts.pull, method, actor=actor)


def merge_when_ready(context: Context, work: Instance, *, method: MergeMethod, actor: str) -> Pull:
    """Merge it as soon as nothing hinders it; only at the commit it is at now."""
    forge, facts = _now(context, work)
    pull = facts.pull
    if pull.state == PullState.MERGED:
        return pull
    if pull.state == PullState.CLOSED:
        _require_ready(facts, work)
    if not facts.hindrances and pull.mergeable is not None:
        return carry_out(context, forge, pull, method, actor=actor)
    with context.db.write():
        _require_newest(context, pull)
        now = store.get(context.db, pull.id)
        told = {"number": pull.number, "on": True, "method": str(method), "commit": now.head_commit}
        events.add(context.db, "pull:auto", instance_id=work.id, actor=actor, metadata=told)
        return store.change(context.db, now, auto_merge=str(method), auto_commit=now.head_commit, next_at=None)


def no_longer(context: Context, work: Instance, *, actor: str) -> Pull:
    """A merge that was to happen by itself is not wanted any more."""
    with context.db.write():
        pull = pulls.newest(context, work)
        return _take_back(context, pull, f"{actor} took it back", actor=actor) if pull.auto_merge else pull


def merge_if_asked(context: Context, forge: Forge, facts: Facts) -> None:
    """Carry out what `merge_when_ready` was asked for; what stands in its way now is tried again at the next look.

    Not what only another commit helps against: that ends it, and its agent is told.
    """
    pull = facts.pull
    if not pull.auto_merge:
        return
    try:
        if pull.auto_commit != pull.head_commit:
            raise Conflict(f"it moved on to {pull.head_commit[:12]}", code="PULL_HEAD_MOVED")
        _require_unmoved(forge, pull)
        if not facts.hindrances and pull.mergeable is not None:
            carry_out(context, forge, pull, MergeMethod(pull.auto_merge), actor="swarm")
    except Cancelled:
        raise
    except SwarmError as error:
        _put_off(context, pull, error)


def merge_asked(context: Context) -> None:
    """Carry it out for all pull requests of the local forge; their checks may take long."""
    for pull in store.to_be_merged(context.db):
        if not pull.repository:
            forge = pulls.forge_of(context, pull)
            merge_if_asked(context, forge, refreshed(context, forge, pull))


def refreshed(context: Context, forge: Forge, pull: Pull) -> Facts:
    """The pull request as its forge has it now."""
    return pull_look.ask(context, forge, pull)


def carry_out(context: Context, forge: Forge, pull: Pull, method: MergeMethod, *, actor: str) -> Pull:
    """Ask the forge, and note before who did: somebody else may see the merge first, or we may be killed."""
    with context.db.write():
        told = {"number": pull.number, "commit": pull.head_commit, "method": str(method)}
        events.add(context.db, pull_look.MERGING, instance_id=pull.instance_id, actor=actor, metadata=told)
    commit = forge.merge(pull.number, method=method, head_commit=pull.head_commit, title=title_of(pull))
    with context.db.write():
        return pull_record.merged(context, store.get(context.db, pull.id), commit=commit, actor=actor)


def title_of(pull: Pull) -> str:
    """The first line of the commit that a merge makes."""
    return f"{pull.title} (#{pull.number})"


def require_head(context: Context, pull: Pull) -> None:
    """Raise Conflict (PULL_HEAD_MOVED) if a merge here would leave out commits that the branch has by now."""
    if not pull.repository:
        _require_unmoved(pulls.forge_of(context, pull), pull)


def tell_author(context: Context, instance_id: str, body: str) -> str:
    """A message to the agent, in the caller's transaction; returns its id."""
    return messages.accept(
        context.db,
        instance_id,
        sender="swarm",
        body=body,
        kind=MessageKind.NOTICE,
        expires_after=post.expiry(context),
    ).id


def said_by_check(output: str) -> str:
    """The end of what a check command said, marked as its words."""
    return texts.quote(output[-_OUTPUT:])


def _now(context: Context, work: Instance) -> tuple[Forge, Facts]:
    """The newest pull request, freshly looked at, if a merge would leave nothing out."""
    pull = pulls.newest(context, work)
    forge = pulls.forge_of(context, pull)
    if pull.state != PullState.OPEN:
        return forge, pull_look.facts_of(context, pull)
    facts = refreshed(context, forge, pull)
    if facts.pull.state == PullState.OPEN:
        _require_newest(context, facts.pull)
        _require_unmoved(forge, facts.pull)
    return forge, facts


def _require_newest(context: Context, pull: Pull) -> None:
    """Raise Conflict (PULL_HEAD_MOVED) if it is judged at another commit than the one that is recorded."""
    now = store.get(context.db, pull.id)
    if (now.state, now.head_commit) != (pull.state, pull.head_commit):
        raise Conflict(
            f"pull request #{pull.number} has changed a moment ago", code="PULL_HEAD_MOVED", hint="try again"
        )


def _require_unmoved(forge: Forge, pull: Pull) -> None:
    if isinstance(forge, LocalForge):
        forge.require_unmoved(pull)


def _require_ready(facts: Facts, work: Instance) -> None:
    hindrances = facts.hindrances
    if hindrances:
        raise Conflict(
            f"pull request #{facts.pull.number} cannot be merged: {'; '.join(hindrances)}",
            code="PULL_NOT_MERGEABLE",
            hint=f"`swarm pr merge {work.id} --auto` merges it when that is over; `swarm pr show {work.id}`",
            details={"number": facts.pull.number, "hindrances": hindrances, "commit": facts.pull.head_commit},
        )


def _put_off(context: Context, pull: Pull, error: SwarmError) -> None:
    where = pull.repository or pull.repo_path
    log.warning("#%s of %s is not merged yet: %s (%s)", pull.number, where, error.message, error.code)
    with context.db.write():
        now = store.looked(context.db, store.get(context.db, pull.id), failure=f"{error.message} [{error.code}]")
        if error.code not in _AUTHOR_HAS_TO or not now.auto_merge or now.auto_commit != pull.auto_commit:
            return
        _take_back(context, now, error.message, actor="swarm")
        if error.code != "PULL_HEAD_MOVED":
            said = said_by_check(error.details.get("output", ""))
            body = f"Your pull request #{pull.number} was to be merged and was not: {error.message}.\n\n{said}"
            what = "Fix it on your branch, run the tests, commit, and call create_pull_request again."
            tell_author(context, pull.instance_id, f"{body.strip()}\n\n{what}")


def _take_back(context: Context, pull: Pull, why: str, *, actor: str) -> Pull:
    told = {"number": pull.number, "on": False, "why": why}
    events.add(context.db, "pull:auto", instance_id=pull.instance_id, actor=actor, metadata=told)
    return store.change(context.db, pull, auto_merge="", auto_commit=None)
