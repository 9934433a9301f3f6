"""What waits for a person, and what that person can do about it: the one source for every front end.

Everything is read in a few queries, however many instances there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from swarm_core.errors import NotFound
from swarm_core.models import WORKTREE_GONE, Activity, Instance, Pull
from swarm_core.ops import attention, dialogs, pull_known
from swarm_core.ops.attention import Reason
from swarm_core.ops.context import Context
from swarm_core.ops.pull_status import (
    Facts,
    Policy,
    PullStatus,
    Readiness,
    ReasonCode,
    policy,
    readiness,
    sentence,
)
from swarm_core.store import check_runs, dismissed, glance, instances, messages, notices, verdicts
from swarm_core.store.database import Database

PULL_READY = "pull_ready"
PULL_FAILED = "pull_failed"
_LABEL = 60
_AT_WORK = frozenset({Activity.BUSY, Activity.STARTING, Activity.BLOCKED})
_RED = frozenset(
    {
        PullStatus.BLOCKED,
        PullStatus.CHECKS_FAILED,
        PullStatus.CONFLICT,
        PullStatus.CHANGES_REQUESTED,
        PullStatus.REVIEW_OUTDATED,
    }
)
_GREEN = frozenset({PullStatus.APPROVED, PullStatus.CHECKS_PASSED, PullStatus.OPEN})


@dataclass(frozen=True, slots=True)
class Act:
    """Something a person can do: the name of an action, what the button says, and what the action is given.

    A value None in `body` is one that the person has to fill in.
    """

    act: str
    label: str
    body: Mapping[str, Any] = field(default_factory=dict)
    primary: bool = False
    danger: bool = False


@dataclass(frozen=True, slots=True)
class Need:
    """`key` is the same as long as the need is; `acts` has what helps most first and looking at it last."""

    key: str
    text: str
    more: str
    command: str
    since: str
    acts: Sequence[Act]


@dataclass(frozen=True, slots=True)
class Item:
    instance: Instance
    need: Need

    @property
    def id(self) -> str:
        return f"{self.instance.id}:{self.need.key}"


@dataclass(frozen=True, slots=True)
class Board:
    """All instances and what each of them needs. Prompts are cut; `reviewed_by` has who waits, by reviewer."""

    instances: Sequence[Instance]
    needs: Mapping[str, Sequence[Need]]
    pulls: Mapping[str, Facts]
    reviewed_by: Mapping[str, str]
    queued: int

    def items(self) -> list[Item]:
        """What waits for a person, the oldest first."""
        found = [Item(one, need) for one in self.instances for need in self.needs.get(one.id, ())]
        return sorted(found, key=lambda item: (item.need.since, item.id))


EMPTY = Board((), {}, {}, {}, 0)


def board(db: Database, *, policy: Policy) -> Board:
    """What a person has dismissed is left out until it is needed anew."""
    listed, now = glance.instances(db), db.now()
    checks, reviews, comments = glance.checks(db), glance.reviews(db), glance.comments(db)
    judged, runs, reviewers = verdicts.of_open_pulls(db), check_runs.of_open_pulls(db), glance.reviewers(db)
    opened, pulls = glance.open_pulls(db), dict[str, Facts]()
    commits = pull_known.commits_of(db, opened, judged)
    for pull in opened:
        said = (checks.get(pull.id, ()), reviews.get(pull.id, ()), comments.get(pull.id, ()))
        pulls[pull.instance_id] = Facts(
            pull,
            *said,
            verdicts=judged.get(pull.id, ()),
            commits=commits.get(pull.id, {}),
            check_run=runs.get(pull.id),
            reviewer=reviewers.get(pull.instance_id),
            now=now,
            policy=policy,
        )
    raised = {(n.instance_id, n.reason): n.raised_at for n in notices.lasting(db)}
    seen, unread, queued = dismissed.listed(db), messages.waiting_for(db), glance.queued(db)
    needs = {}
    for one in listed:
        facts = pulls.get(one.id)
        waits = facts is not None and (facts.pull.id in queued or bool(facts.pull.auto_merge))
        found = needs_of(one, facts, raised, has_mail=one.id in unread, merges_itself=waits)
        needs[one.id] = [need for need in found if seen.get((one.id, need.key), "") < need.since]
    return Board(listed, needs, pulls, glance.under_review(db), len(queued))


def needs_of(
    instance: Instance,
    pull: Facts | None,
    raised: Mapping[tuple[str, str], str],
    *,
    has_mail: bool = False,
    merges_itself: bool = False,
) -> list[Need]:
    """What one instance needs, the gravest first.

    `pull` is its open pull request. `raised` says since when each need is known, `has_mail` that the agent has
    messages still to read, and `merges_itself` that swarm merges the pull request as soon as it is ready.
    """
    found = [
        Need(
            key=reason.key,
            text=reason.text,
            more=reason.more,
            command=reason.command,
            since=raised.get((instance.id, reason.key)) or _since(instance, reason),
            acts=[*_acts(instance, reason), _OPEN],
        )
        for reason in attention.reasons(instance)
    ]
    if pull is not None and not instance.cleaned:
        found += _of_pull(instance, pull, has_mail=has_mail, merges_itself=merges_itself)
    return found


def dismiss(context: Context, item_id: str, *, actor: str) -> Item:
    """Take something out of the inbox until it is needed anew; raises NotFound when it is not there."""
    instance_id, _, key = item_id.partition(":")
    found = board(context.db, policy=policy(context.settings))
    for item in found.items():
        if (item.instance.id, item.need.key) == (instance_id, key):
            with context.db.write():
                instances.get(context.db, instance_id)
                dismissed.add(context.db, instance_id, key, by=actor)
            return item
    raise NotFound(f"nothing waits for you as {item_id[:120]!r}", hint="it may be over; look at the inbox again")


_OPEN = Act("open", "Open")


def _since(instance: Instance, reason: Reason) -> str:
    """For what the coordinator has not noted: when the agent came to this."""
    return (instance.terminated_at if reason.key == attention.FAILED else None) or instance.activity_at


def _acts(instance: Instance, reason: Reason) -> Iterator[Act]:
    kind = reason.key.partition(":")[0]
    if kind == attention.BLOCKED:
        yield from _answers(instance)
    elif kind == "needs_person":
        yield Act("approve", "Approve", primary=True)
        yield Act("rescope", "Rescope", {"task": None})
        yield Act("abandon", "Abandon", danger=True)
    elif kind in (attention.FAILED, "exited", "session_lost"):
        yield Act("restart", "Restart", primary=True)
    elif kind == "error":
        yield Act("message", "Message", {"body": None}, primary=True)
        yield Act("restart", "Restart")
    elif kind == "strayed":
        yield Act("message", "Message", {"body": None}, primary=True)
    elif kind == "kept":
        yield Act("clean", "Clean", primary=True, danger=True)
    elif kind == "problem" and instance.problem == WORKTREE_GONE:
        yield Act("stop", "Stop", danger=True)
        yield Act("restore", "Restore")
    elif kind.startswith("budget"):
        short = max(0.0, instance.cost_usd - (instance.budget_usd or 0.0))
        more = float(math.ceil(short + max(1.0, instance.cost_usd / 2)))
        yield Act("budget", f"Raise by ${more:g}", {"raise_by": more}, primary=True)


def _answers(instance: Instance) -> Iterator[Act]:
    asked = dialogs.shown(instance)
    if asked is None:
        return
    digest = str(asked["digest"])
    for number, choice in enumerate(asked["choices"], start=1):
        text = " ".join(str(choice).split())
        label = text if len(text) <= _LABEL else f"{text[: _LABEL - 1]}…"
        yield Act("answer", label or str(number), {"choice": number, "digest": digest}, primary=number == 1)
    if not asked["choices"]:
        yield Act("answer", "Answer", {"text": None, "digest": digest}, primary=True)


def _of_pull(instance: Instance, found: Facts, *, has_mail: bool, merges_itself: bool) -> Iterator[Need]:
    """Ready to be merged while nobody changes it, or not to be merged and nobody sees to that."""
    pull, result = found.pull, readiness(found)
    state = result.state
    at = f"{pull.number}@{pull.head_commit[:12]}"
    since = pull.head_at or pull.created_at  # not when it was last looked at, or a dismissed one would come back
    nobody = instance.activity == Activity.EXITED or (instance.activity == Activity.IDLE and not has_mail)
    if state in _GREEN and result.ready:
        if merges_itself or instance.activity in _AT_WORK:
            return
        acts = [Act("merge", f"Merge #{pull.number}", primary=True), Act("enqueue", "Queue"), _OPEN]
        text = f"pull request #{pull.number} can be merged{_why(result)}"
        command = f"swarm pr merge {instance.id}"
        yield Need(f"{PULL_READY}:{at}", text, pull.title, command, since, acts)
    elif state in _RED and nobody:
        ended = instance.activity == Activity.EXITED
        acts = [Act("restart", "Restart", primary=True)] if ended else []
        acts += [Act("message", "Message", {"body": None}, primary=not ended), *_more_acts(pull, result), _OPEN]
        text = f"pull request #{pull.number}: {'; '.join(result.sentences) or state}, and nobody is at it"
        command = f"swarm restart {instance.id}" if ended else f"swarm msg {instance.id} TEXT"
        yield Need(f"{PULL_FAILED}:{at}", text, pull.title, command, since, acts)


def _more_acts(pull: Pull, result: Readiness) -> list[Act]:
    """What lifts a request for changes; one that GitHub's reviewers made is taken back there."""
    codes = {reason.code for reason in result.blockers}
    found = [Act("review", "Review")] if ReasonCode.REVIEW_OUTDATED in codes else []
    ours = ReasonCode.CHANGES_REQUESTED in codes and not pull.repository
    return [*found, Act("approve", "Approve")] if ours or found else []


def _why(result: Readiness) -> str:
    said = {reason.code: sentence(reason) for reason in result.reasons}
    if ReasonCode.CHECK_OUTDATED in said:
        return f", but {said[ReasonCode.CHECK_OUTDATED]}"
    return f": {said.get(ReasonCode.APPROVED) or said.get(ReasonCode.CHECKS_PASSED) or 'no blockers'}"
