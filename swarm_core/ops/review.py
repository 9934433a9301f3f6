"""Review: another agent looks at committed work. What must hold before one starts, and reserving it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from swarm_core import ids
from swarm_core.agents import table
from swarm_core.errors import Conflict, InvalidInput, NotFound
from swarm_core.hosts.base import BranchFacts, RepoFacts
from swarm_core.models import Instance, Kind, Relationship, Status, Verdict
from swarm_core.ops import lineage, prompts, replaced, spawn, templates
from swarm_core.ops.context import Context, nothing, place
from swarm_core.store import events, feedback, instances, relationships
from swarm_core.store.database import Database

LIMIT = "all review rounds are used"
_AUTHORS = frozenset({Kind.WORK, Kind.FORK})
_WAYS_OUT = [
    "open the pull request now and say in it what is left to do",
    "abandon the work: set its status to failed and say why",
    "ask a person to look at the feedback and to allow more rounds (swarm config review_rounds N)",
]
_HINTS = {
    Status.STARTING: "wait until it runs",
    Status.WAITING_REVIEW: "wait for the verdict of the review that is under way",
    Status.FAILED: "restart it first",
    Status.TERMINATED: "restart it first",
    Status.PR_MERGED: "its work is merged; start new work for more",
    Status.PR_CLOSED: "restart it first",
}


def check(context: Context, work_id: str, *, actor: str) -> Instance:
    """The work, if its record allows a review now; one that has had all its rounds is marked for a person."""
    with _limit_marked(context.db, work_id, actor):
        return _check(context, work_id, actor)


def reserve(
    context: Context,
    work_id: str,
    *,
    agent: str,
    focus: str,
    actor: str,
    reserved: Callable[[Instance], None] = nothing,
) -> Instance:
    """Reserve the review of what the work's branch holds now; the work waits from the same transaction on."""
    spawn.check_text(focus, None, None)
    work = check(context, work_id, actor=actor)
    context.report("looking at what there is to review")
    facts = _facts(context, work)
    _check_branch(work, facts)
    replaced.require_as_committed(context, work, facts["head_commit"])
    repo = context.host(work).ensure_repo(work.repo_path, work.branch)
    repo["base_commit"] = facts["head_commit"]
    template = None if table.get(agent).plain_prompt else _template(context, work)
    with _limit_marked(context.db, work_id, actor), context.db.write():
        _check(context, work_id, actor)  # another may have asked meanwhile
        about = _round(context, work, facts, focus, actor)
        wish = _wish(context.db, work, repo, agent, template, about)
        review = spawn.reserve(context, wish, actor=actor, reserved=reserved)
        _wait_for(context.db, work, review, about, actor)
    return review


def rounds_used(db: Database, work_id: str) -> int:
    """Reviews since the work got its present scope."""
    since = events.last_at(db, work_id, "work:rescoped") or ""
    return sum(link.created_at > since for link in relationships.reviews_of(db, work_id))


def end_round(db: Database, work_id: str, *, actor: str, reason: str) -> None:
    """The review that is under way, if any, decides nothing any more; inside the caller's transaction."""
    link = relationships.open_review(db, work_id)
    if link is not None:
        relationships.set_verdict(db, link.id, Verdict.NONE)
        told = {"review": link.child_id, "round": link.round, "reason": reason}
        events.add(db, "review:ended", instance_id=work_id, actor=actor, metadata=told)


def unmark(db: Database, work_id: str) -> None:
    """No person is needed for more review rounds any longer; inside the caller's transaction."""
    if instances.get(db, work_id).needs_person.startswith(LIMIT):
        instances.set_fields(db, work_id, needs_person="")


def prompt(context: Context, work: Instance, focus: str) -> str:
    """What a reviewer of the work would be told if it started now, here."""
    if work.kind == Kind.REVIEW:
        raise InvalidInput(f"{work.id} is a review", hint=f"name the work it reviews: {work.parent_id}")
    about = _round(context, work, _facts(context, work), focus, "operator")
    return prompts.review(_template(context, work), about)(work)


def _check(context: Context, work_id: str, actor: str) -> Instance:
    db = context.db
    work = instances.get(db, work_id)
    if work.kind not in _AUTHORS and (work.kind != Kind.ADHOC or ids.is_id(actor)):
        raise InvalidInput(
            f"{work_id} is of kind {work.kind}, which has no review",
            hint="work and forks are reviewed; of a review, name the work it reviews",
        )
    speaks = work.status == Status.STARTING and actor == work_id
    under_way = relationships.open_review(db, work_id)
    if work.status != Status.RUNNING and not speaks:
        raise Conflict(
            f"{work_id} is {work.status}, and only running work is reviewed",
            code="WORKFLOW_INVALID_STATE",
            hint=_HINTS.get(Status(work.status), 'set its status to "running" first'),
            details={"status": work.status, "review": under_way.child_id if under_way else None},
        )
    if under_way is not None:
        raise Conflict(
            f"{under_way.child_id} is reviewing {work_id}",
            code="REVIEW_IN_PROGRESS",
            hint="wait for its verdict",
            details={"review": under_way.child_id, "round": under_way.round},
        )
    rounds, limit = rounds_used(db, work_id), context.settings.integer("review_rounds")
    if rounds >= limit:
        raise Conflict(
            f"{work_id} has had {rounds} of {limit} review rounds",
            code="REVIEW_LIMIT_EXCEEDED",
            hint=_WAYS_OUT[0],
            details={"current_iteration": rounds, "max_iterations": limit, "suggestions": _WAYS_OUT},
        )
    return work


@contextlib.contextmanager
def _limit_marked(db: Database, work_id: str, actor: str) -> Iterator[None]:
    """The mark outlives the refused call, which is why it has a transaction of its own."""
    try:
        yield
    except Conflict as error:
        if error.code == "REVIEW_LIMIT_EXCEEDED":
            with db.write():
                if not instances.get(db, work_id).needs_person.startswith(LIMIT):
                    why = f"{LIMIT} ({error.details['max_iterations']})"
                    instances.set_fields(db, work_id, needs_person=why)
                    events.add(db, "review:limit", instance_id=work_id, actor=actor, metadata=error.details)
        raise


def _facts(context: Context, work: Instance) -> BranchFacts:
    base = lineage.origin(context.db, work).base_branch
    return context.host(work).branch_state(place(work), base)


def _check_branch(work: Instance, facts: BranchFacts) -> None:
    """Only what is committed on the work's own branch can be reviewed, so there must be nothing else."""
    if not facts["worktree"]:
        raise NotFound(f"the worktree of {work.id} is gone", code="WORKTREE_NOT_FOUND")
    if facts["on_branch"] != work.branch:
        raise Conflict(
            f"the worktree of {work.id} is not on its branch {work.branch}",
            code="WORKFLOW_INVALID_STATE",
            hint=f"bring your commits to {work.branch} and check it out",
            details={"branch": work.branch, "on_branch": facts["on_branch"]},
        )
    if facts["own_commits"] == 0:
        raise Conflict(
            f"{work.branch} has no commit of its own",
            code="NO_CHANGES",
            hint="commit your work, then ask again",
            details={"branch": work.branch, "uncommitted": facts["dirty"]},
        )
    if facts["dirty_count"]:
        raise Conflict(
            f"{work.id} has {facts['dirty_count']} uncommitted files",
            code="UNCOMMITTED_CHANGES",
            hint="commit them, or remove what does not belong to the work, then ask again",
            details={"files": facts["dirty"], "count": facts["dirty_count"]},
        )


def _template(context: Context, work: Instance) -> str | None:
    """The repository's own, from a commit that no agent has written."""
    first = lineage.origin(context.db, work)
    commit = lineage.trusted_commit(context.db, first.repo_path, first.base_branch, first.base_commit)
    return templates.find(context.host(work), work.repo_path, commit, "review")


def _round(context: Context, work: Instance, facts: BranchFacts, focus: str, actor: str) -> prompts.Round:
    db = context.db
    before = relationships.reviews_of(db, work.id)
    said = feedback.of(db, work.id)
    return prompts.Round(
        work=work,
        facts=facts,
        base_branch=lineage.origin(db, work).base_branch,
        number=len(before) + 1,
        limit=context.settings.integer("review_rounds"),
        focus=focus,
        by_author=actor == work.id,
        earlier=[(link, [f for f in said if f.relationship_id == link.id]) for link in before],
    )


def _wish(
    db: Database, work: Instance, repo: RepoFacts, agent: str, template: str | None, about: prompts.Round
) -> spawn.Wish:
    text = about.focus if about.focus.strip() else prompts.PLAIN_REVIEW
    plain = table.get(agent).plain_prompt
    return spawn.Wish(
        kind=Kind.REVIEW,
        repo=repo,
        agent=agent,
        prompt=(lambda _: text) if plain else prompts.review(template, about),
        issue_number=work.issue_number,
        issue_title=work.issue_title,
        parent=work,
        relation=relationships.REVIEW,
        round=about.number,
        number=_number(db, work, [link for link, _ in about.earlier]),
    )


def _number(db: Database, work: Instance, earlier: list[Relationship]) -> int:
    """A work's reviews carry its number, or the one the first of them got because that was taken."""
    return instances.get(db, earlier[-1].child_id).agent_number if earlier else work.agent_number


def _wait_for(db: Database, work: Instance, review: Instance, about: prompts.Round, actor: str) -> None:
    instances.heard_from(db, work.id)
    instances.change_status(
        db, work.id, Status.WAITING_REVIEW, actor=actor, reason=f"waits for the verdict of {review.id}"
    )
    unmark(db, work.id)
    told = {"review": review.id, "round": about.number, "commit": review.base_commit, "limit": about.limit}
    events.add(db, "review:requested", instance_id=work.id, actor=actor, metadata=told)
