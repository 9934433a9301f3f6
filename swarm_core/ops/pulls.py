"""Pull requests: opening the one of an instance's branch, closing it, and noting that it was merged."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from swarm_core.errors import Conflict, InvalidInput, NotFound
from swarm_core.forge import Draft, Forge
from swarm_core.hosts.base import BranchFacts
from swarm_core.models import Instance, Kind, Pull, PullState, Relationship, Verdict
from swarm_core.ops import (
    brought,
    forges,
    lineage,
    operations,
    publish,
    pull_body,
    pull_look,
    pull_record,
    replaced,
    texts,
    verdict,
)
from swarm_core.ops.context import Context, nothing, place
from swarm_core.ops.local_pulls import LocalForge, draft_of
from swarm_core.store import instances, pulls

TITLE_MAX = 1024
BODY_MAX = 256 * 1024
_NAMES_MAX = 50


@dataclass(frozen=True, slots=True)
class Wish:
    """What whoever opens a pull request says of it."""

    title: str
    description: str
    base_branch: str | None = None
    draft: bool = False
    labels: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Case:
    """A wish and what was found before it is granted; `facts` only when there is no open pull request yet."""

    work: Instance
    wish: Wish
    base: str
    known: Pull | None
    facts: BranchFacts | None
    head: str | None
    link: Relationship | None
    actor: str
    span: brought.Span | None = None

    @property
    def moves(self) -> bool:
        return self.known is None or self.head not in (None, self.known.head_commit)

    @property
    def uncommitted(self) -> tuple[list[str], int]:
        return (self.facts["dirty"], self.facts["dirty_count"]) if self.facts else ([], 0)


def open_pull(
    context: Context,
    target_id: str,
    wish: Wish,
    *,
    actor: str,
    review_id: str | None = None,
    recorded: Callable[[Pull], None] = nothing,
) -> Pull:
    """Open the pull request of the instance's branch, or return the one that is open, at the branch's commit.

    A reviewer approves by it, so it opens only what it has reviewed: exactly its commit. Uncommitted files do not
    hinder it; the event names them. When nothing could be recorded, no file tells of it.
    """
    _check(wish)
    work = _target(context, target_id)
    link = _link(context, work, review_id)
    base = wish.base_branch or _default_base(context, work)
    known = pulls.open_of(context.db, work.repo_path, work.branch)
    facts = _facts(context, work, base) if known is None else None
    head = facts["head_commit"] if facts else verdict.head_of(context, work)
    if link is not None:
        _check_reviewed(link, head)
        replaced.require_as_committed(context, work, head)
    forge = _forge(context, work, known)
    span = _span(context, work, forge, base, head, known)
    case = _Case(work, wish, base, known, facts, head, link, actor, span)
    if isinstance(forge, LocalForge):
        return _open_here(context, forge, case, recorded)
    if case.moves:
        _publish(context, forge, case)
    return _recorded(context, case, recorded)


def close_pull(context: Context, target_id: str, *, actor: str) -> Pull:
    """Close the open pull request of an instance's branch without merging it; the branch stays."""
    work = _target(context, target_id)
    pull = pulls.open_of(context.db, work.repo_path, work.branch)
    if pull is None:
        raise NotFound(
            f"{work.id} has no open pull request",
            code="PULL_NOT_FOUND",
            hint="`swarm pr ls` lists those that are open",
        )
    after = _forge(context, work, pull).close_pull(pull.number)
    with context.db.write():
        now = pulls.get(context.db, pull.id)
        if after.state == PullState.MERGED:
            return pull_record.merged(context, now, commit=after.merge_commit, actor=actor)
        return pull_record.closed(context, now, actor=actor)


def note_merged(context: Context, target_id: str, *, actor: str) -> Pull:
    """Note that the pull request of an instance's branch was merged, as its forge shows; twice is no change.

    Raises Conflict (PULL_NOT_MERGED) when it was not. An ended instance keeps its status.
    """
    work = _target(context, target_id)
    pull = newest(context, work)
    if pull.state == PullState.MERGED:
        return pull
    found = pull_look.ask(context, _forge(context, work, pull), pull, actor=actor).pull
    if found.state != PullState.MERGED:
        raise Conflict(
            f"{pull.base_branch} does not have commit {verdict.short(pull.head_commit)} of pull request"
            f" #{pull.number}",
            code="PULL_NOT_MERGED",
            hint=f"`swarm pr merge {work.id}` merges it, or `git merge`; the steps are in {pull.url}",
            details={"number": pull.number, "base_branch": pull.base_branch, "head_commit": pull.head_commit},
        )
    return found


def newest(context: Context, work: Instance) -> Pull:
    """The pull request of an instance's branch that is open or was merged."""
    pull = pulls.newest_of(context.db, work.repo_path, work.branch)
    if pull is None or pull.state == PullState.CLOSED:
        raise NotFound(
            f"{work.id} has no open pull request",
            code="PULL_NOT_FOUND",
            hint=f"`swarm pr open {work.id}` opens it",
        )
    return pull


def forge_of(context: Context, pull: Pull, *, person: bool = True) -> Forge:
    """The forge at which a pull request was opened."""
    if pull.forge == LocalForge.name:
        return LocalForge(context, pull.repo_path)
    return forges.at(context, pull.repository, person=person)


def pushed_to(context: Context, pull: Pull) -> Forge:
    """The forge that has the branch of a pull request: another one than got it, when that came from a fork."""
    if pull.forge == LocalForge.name:
        return forge_of(context, pull)
    facts = context.hosts.choose().ensure_repo(pull.repo_path, None)
    owner, (host, _, name) = forges.fork_owner(context, facts, pull.repository), forges.split(pull.repository)
    if not owner:
        return forge_of(context, pull)
    place = forges.github_place(context, facts["remote_url"]) or (host, owner, name)
    return forges.at(context, "/".join(place))


def _check(wish: Wish) -> None:
    texts.check(wish.title, "a title", max_bytes=TITLE_MAX, one_line=True)
    texts.check(wish.description, "a description", max_bytes=BODY_MAX, empty=True)
    for what, names in (("label", wish.labels), ("reviewer", wish.reviewers)):
        if len(names) > _NAMES_MAX:
            raise InvalidInput(f"a pull request has at most {_NAMES_MAX} {what}s")
        for name in names:
            texts.check(name, f"a {what}", max_bytes=200, one_line=True)


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


def _forge(context: Context, work: Instance, known: Pull | None) -> Forge:
    if known is not None:
        return forge_of(context, known)
    facts = context.host(work).ensure_repo(work.repo_path, None)
    return forges.pulls_of(context, work.repo_path, forges.target_url(context, facts))


def _span(
    context: Context, work: Instance, forge: Forge, base: str, head: str | None, known: Pull | None
) -> brought.Span | None:
    if head is None:
        return None
    at_remote = not isinstance(forge, LocalForge)
    return brought.listed(
        context.host(work),
        work.repo_path,
        head,
        base_branch=known.base_branch if known else base.removeprefix("origin/") if at_remote else base,
        at_remote=at_remote,
        known=known.span if known else "",
    )


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


def _draft(context: Context, case: _Case, base: str, *, closes: bool) -> Draft:
    known, work, head = case.known, case.work, case.head
    assert head is not None
    return Draft(
        known.title if known else case.wish.title.strip(),
        known.body if known else pull_body.written(context, work, case.wish.description, head, closes=closes),
        work.branch,
        known.base_branch if known else base,
        head,
        draft=known.draft if known else case.wish.draft,
        labels=case.wish.labels,
        reviewers=case.wish.reviewers,
        instance_id=work.id,
    )


def _publish(context: Context, forge: Forge, case: _Case) -> None:
    """Push and open at GitHub; what an earlier attempt has begun is finished first."""
    work = case.work
    facts = context.host(work).ensure_repo(work.repo_path, None)
    remote, base = facts["remote"] or "origin", case.base
    for name in (remote, context.settings.text("pull_remote")):
        base = base.removeprefix(f"{name}/")
    draft = dataclasses.replace(
        _draft(context, case, base, closes=True),
        head_owner=forges.fork_owner(context, facts, forge.repository),
    )
    last = case.known or pulls.newest_of(context.db, work.repo_path, work.branch)
    order = publish.Order(
        draft=draft,
        repository=forge.repository,
        remote=remote,
        ours=last.pushed_commit if last else None,
        review_id=case.link.child_id if case.link else None,
        uncommitted=case.uncommitted[0],
        uncommitted_count=case.uncommitted[1],
    )
    with context.lock(work.id) as lock:
        operations.carry_out(context, work.id, lock=lock)
        now = pulls.open_of(context.db, work.repo_path, work.branch)
        if now is None or now.head_commit != draft.head_commit:
            publish.request(context, work, order, actor=case.actor)
            operations.carry_out(context, work.id, lock=lock)


def _recorded(context: Context, case: _Case, recorded: Callable[[Pull], None]) -> Pull:
    """What the caller is told of, with whatever an attempt that was finished for somebody else left out."""
    work = case.work
    with context.db.write():
        pull = pulls.open_of(context.db, work.repo_path, work.branch)
        if pull is None:
            raise Conflict(f"the pull request of {work.branch} was closed a moment ago", hint="try again")
        pull = _follow_up(context, case, pull, opens=False)
        recorded(pull)
    return pull


def _open_here(context: Context, forge: LocalForge, case: _Case, recorded: Callable[[Pull], None]) -> Pull:
    """Open it at the local forge, which is a file and a row: all in one transaction."""
    db, work = context.db, case.work
    with contextlib.ExitStack() as undo:
        with db.write():
            known = pulls.open_of(db, work.repo_path, work.branch)
            case = dataclasses.replace(case, known=known)
            if known is None and case.facts is None:
                raise Conflict(f"the pull request of {work.branch} was closed a moment ago", hint="try again")
            if known is not None and not case.moves:
                pull = known
            else:
                number = known.number if known else pulls.next_number(db, forge.name, work.repo_path)
                undo.callback(_take_back, context, forge, work, number)
                pull = _write_down(context, forge, case)
            pull = _follow_up(context, case, pull, opens=known is None)
            recorded(pull)
        undo.pop_all()
    return pull


def _write_down(context: Context, forge: LocalForge, case: _Case) -> Pull:
    draft = _draft(context, case, case.base, closes=False)
    files, count = case.uncommitted
    return pull_record.opened(
        context,
        case.work,
        forge.open_pull(draft),
        forge=forge.name,
        repository="",
        body=draft.body,
        actor=case.actor,
        uncommitted={"uncommitted": files, "uncommitted_count": count},
    )


def _follow_up(context: Context, case: _Case, pull: Pull, *, opens: bool) -> Pull:
    pull = brought.keep(context.db, pull, case.span)
    if case.actor == case.work.id:
        instances.heard_from(context.db, case.work.id)
    if case.link is not None:
        pull_record.approve(context, case.link, pull, case.actor, opens=opens)
    pull_record.on_instance(context, case.work, pull, case.actor)
    return pull


def _take_back(context: Context, forge: LocalForge, work: Instance, number: int) -> None:
    """Make the file what the record says, after a failure; another may have used the number since."""
    with context.db.write():
        pull = pulls.open_of(context.db, work.repo_path, work.branch)
        if pull is not None and pull.number == number:
            forge.open_pull(draft_of(pull))
        else:
            forge.withdraw(work, number)
