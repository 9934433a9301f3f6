"""Merging a pull request: when nothing hinders it, at exactly the commit that was seen."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from swarm_core.errors import Cancelled, CommandFailed, Conflict, InvalidInput, SwarmError
from swarm_core.forge import CheckState, Forge, MergeMethod
from swarm_core.hosts.base import Host
from swarm_core.models import Instance, MessageKind, Pull, PullState
from swarm_core.ops import brought, checking, forges, post, pull_look, pull_record, pulls, replaced, rules, texts
from swarm_core.ops.context import Context
from swarm_core.ops.local_pulls import LocalForge
from swarm_core.ops.pull_status import OVERRIDABLE, Facts, Reason, ReasonCode, readiness, sentence
from swarm_core.store import check_runs, events, instances, messages, verdicts
from swarm_core.store import pulls as store

# Only another commit helps against these, and a merge that happens by itself is for one commit alone.
_AUTHOR_HAS_TO = frozenset({"CHECK_FAILED", "MERGE_CONFLICT", "PULL_HEAD_MOVED"})
_OUTPUT = 3000
_REASON_MAX = 500

log = logging.getLogger(__name__)


def method_of(context: Context, name: str | None) -> MergeMethod:
    return MergeMethod(name or context.settings.text("merge_method"))


def merge(context: Context, work: Instance, *, method: MergeMethod, actor: str, anyway: str | None = None) -> Pull:
    """Merge the pull request of an instance's branch now; raises Conflict (PULL_NOT_MERGEABLE) with why not.

    `anyway` is a person's reason to merge against verdicts and checks; nothing else is overridden by it.
    """
    if anyway is not None:
        _check_override(anyway, method, actor)
    forge, facts = _now(context, work)
    if facts.pull.state == PullState.MERGED:
        return facts.pull
    # What the check says of it now is found out before it counts; a failure of before is known.
    _require_ready(context, facts, anyway=anyway is not None)
    return carry_out(context, forge, facts.pull, method, actor=actor, anyway=anyway)


def merge_when_ready(context: Context, work: Instance, *, method: MergeMethod, actor: str) -> Pull:
    """Merge it as soon as nothing hinders it; only at the commit it is at now."""
    forge, facts = _now(context, work)
    pull = facts.pull
    if pull.state == PullState.MERGED:
        return pull
    if pull.state == PullState.CLOSED:
        _require_ready(context, facts)
    result = readiness(facts)
    if result.ready and result.settled:
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
        result = readiness(facts)
        if result.ready and result.settled:
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
    run = check_runs.of(context.db, pull.id)
    refused = verdicts.refused_besides(context.db, pull.repo_path, pull.head_commit)
    if pull.repository and (run is not None or refused):
        host = context.host(instances.get(context.db, pull.instance_id))
        checking.drop_outdated(context, host, pull, base_commit(context, host, pull))
    return pull_look.ask(context, forge, pull)


def check(context: Context, work: Instance, *, method: MergeMethod) -> None:
    """Run the check command on an open pull request of the local forge and keep what it says."""
    forge, facts = _now(context, work)
    if not isinstance(forge, LocalForge):
        raise InvalidInput(
            f"pull request #{facts.pull.number} is checked by {facts.pull.forge}",
            hint=f"`swarm pr queue {work.id}` checks it together with others before it is merged",
        )
    forge.check(facts.pull.number, method=method)
    run = check_runs.of(context.db, facts.pull.id)
    if run is not None and not run.ok:
        raise checking.failed(context, facts.pull, run)


def carry_out(
    context: Context, forge: Forge, pull: Pull, method: MergeMethod, *, actor: str, anyway: str | None = None
) -> Pull:
    """Ask the forge, and note before who did: somebody else may see the merge first, or we may be killed.

    Whether it may be merged is decided once more, in the transaction that notes it and after the check has run:
    a verdict that comes before that counts.
    """

    def decide() -> str:
        hidden, span = pull_look.replaced_now(context, pull), _span(context, pull, anyway=anyway is not None)
        with context.db.write():
            now = store.looked(context.db, store.get(context.db, pull.id), replaced=hidden)
            now = brought.keep(context.db, now, span)
            if now.head_commit != pull.head_commit:
                _require_newest(context, pull)
            facts = pull_look.facts_of(context, now)
            _require_ready(context, facts, anyway=anyway is not None)
            overrides = anyway is not None and not readiness(facts).ready
            _note_decision(context, facts, method, actor=actor, anyway=anyway)
        return f"Merged-anyway: {anyway} (by {_one_line(actor)})" if overrides else ""

    if pull.repository:
        require_sound(context, pull)
    commit = forge.merge(
        pull.number, method=method, head_commit=pull.head_commit, title=title_of(pull), decide=decide
    )
    with context.db.write():
        return pull_record.merged(context, store.get(context.db, pull.id), commit=commit, actor=actor)


def base_commit(context: Context, host: Host, pull: Pull) -> str:
    """Where the base is now: at the forge, for one that merges there."""
    facts = host.ensure_repo(pull.repo_path, None if pull.repository else pull.base_branch)
    commit = facts["base_commit"]
    if pull.repository:
        token = forges.token_of(context, forges.split(pull.repository))
        commit = host.fetch(pull.repo_path, facts["remote"] or "origin", pull.base_branch, token)
    if commit is None:
        raise Conflict(f"{pull.base_branch} has no commit to merge into", code="GIT_BRANCH_NOT_FOUND")
    return commit


def _span(context: Context, pull: Pull, *, anyway: bool) -> brought.Span | None:
    """The commits a merge brings now; raises Conflict if they may be refused ones and nobody can tell.

    At a forge the base is asked for: what is noted here of where it is can be old, or be written by an agent.
    """
    host = context.host(instances.get(context.db, pull.instance_id))
    refused = verdicts.refused_besides(context.db, pull.repo_path, pull.head_commit)
    if pull.repository and not refused:
        return None
    base = base_commit(context, host, pull) if pull.repository else None
    found = brought.of_pull(host, pull, base=base)
    if found is None and pull.repository:
        facts = host.ensure_repo(pull.repo_path, None)
        token = forges.token_of(context, forges.split(pull.repository))
        host.fetch(pull.repo_path, facts["remote"] or "origin", pull.head_branch, token)
        found = brought.of_pull(host, pull, base=base)
    if found is None and refused and not anyway:
        raise Conflict(
            f"the commits of pull request #{pull.number} cannot be listed here, and some commits are refused",
            code="PULL_NOT_MERGEABLE",
            hint=f"`git fetch` {pull.head_branch}, or `swarm pr merge {pull.instance_id} --anyway REASON`",
        )
    return found


def require_sound(context: Context, pull: Pull) -> None:
    """Raise Conflict (DAMAGED_OBJECTS) if what git shows of it here is not what was committed.

    A commit that others have pushed to the forge may not be here: then nobody has seen it here either.
    """
    host = context.host(instances.get(context.db, pull.instance_id))
    base = host.base_tip(pull.repo_path, pull.base_branch, at_remote=bool(pull.repository))
    if base is None:
        return
    if not pull.repository or host.commits_beyond(pull.repo_path, base, pull.head_commit) is not None:
        host.require_sound(pull.repo_path, [base], pull.head_commit)


def _one_line(name: str) -> str:
    return "".join(c if c.isprintable() else " " for c in name)


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
    try:
        facts = refreshed(context, forge, pull)
    except CommandFailed:
        require_sound(context, pull)  # names what git has stumbled over, if it is that
        raise
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


def _check_override(reason: str, method: MergeMethod, actor: str) -> None:
    if not rules.is_person(actor):
        raise rules.denied(
            rules.ONLY_A_PERSON_OVERRIDES,
            f"{actor} cannot merge against a verdict or a check",
            hint="ask a person to run `swarm pr merge INSTANCE --anyway REASON`",
        )
    texts.check(reason, "a reason", max_bytes=_REASON_MAX, one_line=True)
    if method is MergeMethod.REBASE:
        raise InvalidInput(
            "a rebase makes no commit whose message could carry the reason", hint="use --merge or --squash"
        )


def _require_ready(context: Context, facts: Facts, *, anyway: bool = False) -> None:
    """Raise Conflict (CHECK_FAILED, REPLACED_OBJECTS, PULL_NOT_MERGEABLE) unless it can be merged."""
    blockers = [r for r in readiness(facts).blockers if not (anyway and r.code in OVERRIDABLE)]
    if not blockers:
        return
    pull, run = facts.pull, facts.own_check
    said = [sentence(reason) for reason in blockers]
    details = {
        "number": pull.number,
        "commit": pull.head_commit,
        "hindrances": said,
        "reasons": [reason.as_json() for reason in blockers],
    }
    if any(reason.code == ReasonCode.REPLACED_OBJECTS for reason in blockers):
        raise replaced.refusal(pull.repo_path, pull.replaced.split(), **details)
    if run is not None and not run.ok and _is_own_check(blockers, facts):
        raise checking.failed(context, pull, run, **details)
    raise Conflict(
        f"pull request #{pull.number} cannot be merged: {'; '.join(said)}",
        code="PULL_NOT_MERGEABLE",
        hint=_way_out(pull, blockers),
        details=details,
    )


def _is_own_check(blockers: Sequence[Reason], facts: Facts) -> bool:
    """Whether our check alone is in the way."""
    forge = any(check.state == CheckState.FAILED for check in facts.checks)
    return not forge and all(reason.code == ReasonCode.CHECKS_FAILED for reason in blockers)


def _way_out(pull: Pull, blockers: Sequence[Reason]) -> str:
    name = pull.instance_id
    if any(reason.code == ReasonCode.UNRELATED_HISTORIES for reason in blockers):
        return checking.onto_base(pull)
    later = f"`swarm pr merge {name} --auto` merges it when that is over; `swarm pr show {name}`"
    if all(reason.code in OVERRIDABLE for reason in blockers):
        return f"{later}; a person can merge it all the same: `swarm pr merge {name} --anyway REASON`"
    return later


def _note_decision(context: Context, facts: Facts, method: MergeMethod, *, actor: str, anyway: str | None) -> None:
    pull, blockers = facts.pull, readiness(facts).blockers
    told = {"number": pull.number, "commit": pull.head_commit, "method": str(method)}
    events.add(context.db, pull_look.MERGING, instance_id=pull.instance_id, actor=actor, metadata=told)
    if anyway is not None and blockers:
        told |= {"reason": anyway, "reasons": [reason.as_json() for reason in blockers]}
        events.add(context.db, "pull:overridden", instance_id=pull.instance_id, actor=actor, metadata=told)


def _put_off(context: Context, pull: Pull, error: SwarmError) -> None:
    where = pull.repository or pull.repo_path
    log.warning("#%s of %s is not merged yet: %s (%s)", pull.number, where, error.message, error.code)
    with context.db.write():
        now = store.looked(context.db, store.get(context.db, pull.id), failure=f"{error.message} [{error.code}]")
        if error.code not in _AUTHOR_HAS_TO or error.details.get("base_fails"):
            return
        if not now.auto_merge or now.auto_commit != pull.auto_commit:
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
