"""Pull requests: opening the one of an instance's branch, and noting that it was merged."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from swarm_core.errors import Conflict, InvalidInput, NotFound
from swarm_core.forge import Draft, LocalForge, PullForge
from swarm_core.hosts.base import BranchFacts
from swarm_core.models import TRANSITIONS, Instance, Kind, Pull, PullState, Relationship, Status, Verdict
from swarm_core.ops import lineage, review, texts, verdict
from swarm_core.ops.context import Context, nothing, place
from swarm_core.store import events, instances, pulls, relationships

TITLE_MAX = 1024
BODY_MAX = 256 * 1024


@dataclass(frozen=True, slots=True)
class _Wish:
    title: str
    body: str
    base: str
    actor: str


def open_pull(
    context: Context,
    target_id: str,
    *,
    title: str,
    description: str,
    base_branch: str | None,
    actor: str,
    review_id: str | None = None,
    recorded: Callable[[Pull], None] = nothing,
) -> Pull:
    """Open the pull request of the instance's branch, or return the one that is open, at the branch's commit.

    A reviewer approves by it, so it opens only what it has reviewed: exactly its commit. Uncommitted files do not
    hinder it; the event names them. When nothing could be recorded, no file tells of it.
    """
    texts.check(title, "a title", max_bytes=TITLE_MAX, one_line=True)
    texts.check(description, "a description", max_bytes=BODY_MAX, empty=True)
    work = _target(context, target_id)
    link = _link(context, work, review_id)
    wish = _Wish(title.strip(), description, base_branch or _default_base(context, work), actor)
    facts = None
    if pulls.open_of(context.db, work.repo_path, work.branch) is None:
        facts = _facts(context, work, wish.base)
    head = facts["head_commit"] if facts else verdict.head_of(context, work)
    if link is not None:
        _check_reviewed(link, head)
    with contextlib.ExitStack() as undo:
        with context.db.write():
            if actor == work.id:
                instances.heard_from(context.db, work.id)
            pull = pulls.open_of(context.db, work.repo_path, work.branch)
            opens = pull is None
            pull = (
                _move(context, work, pull, head, actor, undo) if pull else _open(context, work, wish, facts, undo)
            )
            if link is not None:
                _approve(context, link, pull, actor, opens=opens)
            _record(context, work, pull, actor)
            recorded(pull)
        undo.pop_all()
    return pull


def note_merged(context: Context, target_id: str, *, actor: str) -> Pull:
    """Note that the pull request of an instance's branch was merged, as git shows; twice is no change.

    Merged is one whose own commit is on the base branch, as a merge or a fast-forward leaves it. Raises Conflict
    (PULL_NOT_MERGED) for any other. An ended instance keeps its status.
    """
    work = _target(context, target_id)
    pull = _newest(context, work)
    if pull.state == PullState.MERGED:
        return pull
    if not context.host(work).has_commit(work.repo_path, pull.base_branch, pull.head_commit):
        raise Conflict(
            f"{pull.base_branch} does not have commit {verdict.short(pull.head_commit)} of pull request"
            f" #{pull.number}",
            code="PULL_NOT_MERGED",
            hint=f"merge it with `git merge`; the steps are in {pull.url}",
            details={"number": pull.number, "base_branch": pull.base_branch, "head_commit": pull.head_commit},
        )
    with context.db.write():
        now = _newest(context, work)
        if now.state == PullState.MERGED:
            return now
        if now != pull:
            raise Conflict(f"pull request #{pull.number} has changed a moment ago", hint="try again")
        merged = pulls.set_state(context.db, pull, PullState.MERGED)
        told = {"number": pull.number, "url": pull.url, "commit": pull.head_commit}
        told |= {"branch": pull.head_branch, "base_branch": pull.base_branch}
        events.add(context.db, "pull:merged", instance_id=work.id, actor=actor, metadata=told)
        if Status.PR_MERGED in TRANSITIONS[Status(instances.get(context.db, work.id).status)]:
            reason = f"pull request #{pull.number}"
            instances.change_status(context.db, work.id, Status.PR_MERGED, actor=actor, reason=reason)
    return merged


def _newest(context: Context, work: Instance) -> Pull:
    pull = pulls.newest_of(context.db, work.repo_path, work.branch)
    if pull is None or pull.state == PullState.CLOSED:
        raise NotFound(f"{work.id} has no open pull request", hint=f"`swarm show {work.id}` tells where it is")
    return pull


def _target(context: Context, target_id: str) -> Instance:
    work = instances.get(context.db, target_id)
    if work.kind == Kind.REVIEW:
        raise InvalidInput(
            f"{target_id} is a review and has no work of its own",
            hint=f"name the work it reviews: {work.parent_id}",
        )
    return work


def _link(context: Context, work: Instance, review_id: str | None) -> Relationship | None:
    if review_id is None:
        return None
    link = verdict.link_of(context.db, review_id, work.id)
    if link.verdict != Verdict.APPROVED:
        verdict.require_open(context.db, link)
    return link


def _default_base(context: Context, work: Instance) -> str:
    """Where the work began; that of a fork is where the work it was forked from began."""
    return lineage.origin(context.db, work).base_branch


def _facts(context: Context, work: Instance, base: str) -> BranchFacts:
    """What would be merged, after everything that could be wrong with it was looked at."""
    host = context.host(work)
    if base == work.branch:
        raise InvalidInput(f"{base} cannot be merged into itself", hint="name another base_branch")
    repo = host.ensure_repo(work.repo_path, base)
    if repo["base_branch"] not in repo["branches"] and not repo["base_branch"].startswith("origin/"):
        raise NotFound(
            f"there is no branch {base[:200]}",
            code="GIT_BRANCH_NOT_FOUND",
            hint="name the branch to merge into as base_branch",
            details={"name": base[:200]},
        )
    facts = host.branch_state(place(work), base)
    if facts["head_commit"] is None or facts["commits"] == 0:
        raise Conflict(
            f"{work.branch} has no commit that {base} has not",
            code="NO_CHANGES",
            hint="commit your work, then ask again",
            details={"branch": work.branch, "base_branch": base, "uncommitted": facts["dirty"]},
        )
    return facts


def _check_reviewed(link: Relationship, head: str | None) -> None:
    if link.head_commit != head:
        raise Conflict(
            f"the work has moved on from {verdict.short(link.head_commit)} to {verdict.short(head)} since it was"
            " reviewed, and what was not reviewed is not approved",
            code="WORKFLOW_INVALID_STATE",
            hint=f"{link.parent_id} has to ask for another review",
            details={"reviewed_commit": link.head_commit, "head_commit": head, "stale": True},
        )


def _open(
    context: Context, work: Instance, wish: _Wish, facts: BranchFacts | None, undo: contextlib.ExitStack
) -> Pull:
    db, forge = context.db, _forge(context, work)
    if facts is None or facts["head_commit"] is None:
        raise Conflict(f"the pull request of {work.branch} was closed a moment ago", hint="try again")
    head = facts["head_commit"]
    number = pulls.next_number(db, forge.name, work.repo_path)
    undo.callback(_take_back, context, work, number)
    opened = forge.open_pull(Draft(wish.title, wish.body, work.branch, wish.base, head), next_number=number)
    now = db.now()
    pull = pulls.insert(
        db,
        Pull(
            id=0,
            forge=forge.name,
            repo_path=work.repo_path,
            number=opened.number,
            url=opened.url,
            instance_id=work.id,
            opened_by=wish.actor,
            head_branch=work.branch,
            base_branch=wish.base,
            head_commit=head,
            title=wish.title,
            body=wish.body,
            state=PullState.OPEN,
            created_at=now,
            updated_at=now,
        ),
    )
    told = {"number": pull.number, "url": pull.url, "branch": pull.head_branch, "base_branch": pull.base_branch}
    told |= {"commit": head, "uncommitted": facts["dirty"], "uncommitted_count": facts["dirty_count"]}
    events.add(db, "pull:opened", instance_id=work.id, actor=wish.actor, metadata=told)
    return pull


def _move(
    context: Context, work: Instance, pull: Pull, head: str | None, actor: str, undo: contextlib.ExitStack
) -> Pull:
    """The open one at the commit its branch is at now; without a branch it stays where it was."""
    if head is None or head == pull.head_commit:
        return pull
    undo.callback(_take_back, context, work, pull.number)
    moved = pulls.set_head(context.db, pull, head)
    _write(context, work, moved)
    told = {"number": pull.number, "url": pull.url, "from": pull.head_commit, "commit": head}
    events.add(context.db, "pull:updated", instance_id=work.id, actor=actor, metadata=told)
    return moved


def _take_back(context: Context, work: Instance, number: int) -> None:
    """Make the file what the record says, after a failure; another may have used the number since."""
    with context.db.write():
        pull = pulls.open_of(context.db, work.repo_path, work.branch)
        if pull is not None and pull.number == number:
            _write(context, work, pull)
        else:
            _forge(context, work).withdraw(number)


def _write(context: Context, work: Instance, pull: Pull) -> None:
    draft = Draft(pull.title, pull.body, pull.head_branch, pull.base_branch, pull.head_commit)
    _forge(context, work).open_pull(draft, next_number=pull.number)


def _forge(context: Context, work: Instance) -> PullForge:
    """Where the pull request is kept: here, also for a repository whose remote is on GitHub."""
    host = context.host(work)
    return LocalForge(
        work.repo_path,
        keep=lambda name, text: host.write_file(work.id, name, text),
        drop=lambda name: host.remove_file(work.id, name),
    )


def _approve(context: Context, link: Relationship, pull: Pull, actor: str, *, opens: bool) -> None:
    db = context.db
    link = relationships.review_link(db, link.child_id)
    decides = link.verdict != Verdict.APPROVED
    if decides:
        reason = f"pull request #{pull.number}"
        verdict.give(db, link, Verdict.APPROVED, actor=actor, head_commit=link.head_commit, reason=reason)
    if decides or opens:
        where = f"Pull request #{pull.number} is open: {pull.url}"
        verdict.tell_approved(db, link, actor=actor, stale=False, more=where)
    instances.set_fields(db, link.child_id, pr_number=pull.number, pr_url=pull.url)


def _record(context: Context, work: Instance, pull: Pull, actor: str) -> None:
    """An ended instance keeps its status: the pull request lives without its agent."""
    db = context.db
    work = instances.get(db, work.id)
    if Status.PR_CREATED in TRANSITIONS[Status(work.status)]:
        reason = f"pull request #{pull.number}"
        instances.change_status(db, work.id, Status.PR_CREATED, actor=actor, reason=reason)
    instances.set_fields(db, work.id, pr_number=pull.number, pr_url=pull.url)
    review.unmark(db, work.id)
