"""Attempts side by side: what each has done, which files only one of them touches, checks, reviews, cost."""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from swarm_core.errors import Conflict, InvalidInput
from swarm_core.hosts.base import BranchFacts
from swarm_core.models import Activity, Instance, Kind, Relationship, parse_iso
from swarm_core.ops import attempts, checking, lineage
from swarm_core.ops.context import Context, place
from swarm_core.store import attempts as attempt_rows
from swarm_core.store import checked, relationships

MOST = 32
DIFF_BYTES = 200_000
_UNDER_WAY = "under way"
_AT_REST = frozenset({Activity.IDLE, Activity.BLOCKED, Activity.EXITED})


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The last review: its verdict, or that it is under way. `of_head` says whether it is of what is there now."""

    review_id: str
    round: int
    verdict: str
    of_head: bool


@dataclass(frozen=True, slots=True)
class Side:
    """One attempt. `files` are all it touches, committed or not; `only` those that no other side touches."""

    instance: Instance
    facts: BranchFacts
    files: Sequence[str]
    only: Sequence[str]
    seconds: float
    check: checked.Checked | None = None
    review: Reviewed | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """`shared` are the files that all sides touch. Without a group these are instances that somebody has named."""

    repo_path: str
    group: str | None
    picked: str | None
    sides: Sequence[Side]
    shared: Sequence[str]


def chosen(context: Context, named: Sequence[Instance]) -> list[Instance]:
    """Whom to compare: the named ones, or all attempts of the group that a single one is of."""
    found = list({i.id: i for i in named}.values())
    if len(found) == 1:
        found = attempts.of(context, found[0])
    if not 1 <= len(found) <= MOST:
        raise InvalidInput(f"1 to {MOST} instances can be compared", hint="name one of a group, or several")
    for one in found:
        if one.kind == Kind.REVIEW:
            raise InvalidInput(
                f"{one.id} is a review and has no work of its own",
                hint=f"name the work it reviews: {one.parent_id}",
            )
        if one.repo_path != found[0].repo_path:
            raise InvalidInput(
                f"{found[0].id} and {one.id} are of different repositories",
                hint="compare instances of one repository",
                details={"repositories": sorted({i.repo_path for i in found})},
            )
    return found


def compare(context: Context, members: Sequence[Instance], *, run_check: bool = False) -> Comparison:
    """What each has done until now. With `run_check` the check command is run where it has not succeeded yet."""
    db, now = context.db, context.db.now()
    states = {one.id: _state(context, one) for one in members}
    if run_check:
        _check(context, [(one, states[one.id]) for one in members])
    touched = _touched(context, members)
    shared, only = split_files(touched)
    sides = []
    for one in members:
        head = states[one.id]["head_commit"]
        results = checked.of(db, one.repo_path, head) if head and states[one.id]["own_commits"] else []
        sides.append(
            Side(
                instance=one,
                facts=states[one.id],
                files=sorted(touched[one.id]),
                only=only[one.id],
                seconds=seconds_of(one, now),
                check=results[-1] if results else None,
                review=last_review(relationships.reviews_of(db, one.id), head),
            )
        )
    groups = {one.attempt_group for one in members}
    return Comparison(
        repo_path=members[0].repo_path,
        group=groups.pop() if len(groups) == 1 else None,
        picked=attempt_rows.picked(db, [one.id for one in members]),
        sides=sides,
        shared=shared,
    )


def diff_of(context: Context, side: Side) -> str:
    """What it has changed since it left its base, uncommitted files included; the end of much is cut off."""
    facts = side.facts
    start = facts["start"] or side.instance.base_commit
    host = context.host(side.instance)
    return host.diff(place(side.instance), start, facts["head_commit"], max_bytes=DIFF_BYTES)


def diff_between(context: Context, one: Side, other: Side) -> str:
    """What leads from one's last commit to the other's."""
    heads = [side.facts["head_commit"] for side in (one, other)]
    for side, head in zip((one, other), heads, strict=True):
        if head is None:
            raise Conflict(
                f"{side.instance.id} has no commit", code="NO_CHANGES", hint="its branch is gone or empty"
            )
    host = context.host(one.instance)
    return host.diff_between(one.instance.repo_path, str(heads[0]), str(heads[1]), max_bytes=DIFF_BYTES)


def split_files(touched: Mapping[str, Collection[str]]) -> tuple[list[str], dict[str, list[str]]]:
    """The files that all touch, and for each those that nobody else does; one alone shares nothing."""
    count: dict[str, int] = {}
    for files in touched.values():
        for name in set(files):
            count[name] = count.get(name, 0) + 1
    shared = sorted(name for name, by in count.items() if by == len(touched) > 1)
    only = {one: sorted(name for name in set(files) if count[name] == 1) for one, files in touched.items()}
    return shared, only


def seconds_of(instance: Instance, now: str) -> float:
    """How long its agent has been at it: until it ended or came to rest, else until now; 0 if it never started."""
    if instance.started_at is None:
        return 0.0
    rests = instance.activity_at if instance.activity in _AT_REST else None
    until = min(t for t in (instance.terminated_at, rests, now) if t is not None)
    return max(0.0, (parse_iso(until) - parse_iso(instance.started_at)).total_seconds())


def last_review(links: Sequence[Relationship], head: str | None) -> Reviewed | None:
    if not links:
        return None
    last = links[-1]
    return Reviewed(last.child_id, last.round, last.verdict or _UNDER_WAY, last.head_commit == head)


def _state(context: Context, one: Instance) -> BranchFacts:
    base = lineage.origin(context.db, one).base_branch
    return context.host(one).branch_state(place(one), base)


def _touched(context: Context, members: Sequence[Instance]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for host in {one.host for one in members}:
        there = [place(one) for one in members if one.host == host]
        found |= {name: list(files) for name, files in context.hosts.get(host).touched(there).items()}
    return {one.id: found.get(one.id, []) for one in members}


def _check(context: Context, members: Sequence[tuple[Instance, BranchFacts]]) -> None:
    """Run the check command on each last commit as it is, one after another; each result is kept at once.

    Attempts may have come to the same commit, which is checked once.
    """
    first = members[0][0]
    base = lineage.origin(context.db, first).base_branch
    argv = checking.command(context, context.host(first), first.repo_path, base)
    if not argv:
        raise InvalidInput(
            "there is no check command",
            code="INVALID_SETTING",
            hint=f"write it into {checking.FILE} of {base}, or `swarm config check_command COMMAND`",
        )
    heads = {head: one for one, facts in members if (head := _unchecked(context, one, facts, shlex.join(argv)))}
    for number, (head, one) in enumerate(heads.items(), start=1):
        context.report(f"checking {one.id} ({number} of {len(heads)})")
        began = time.monotonic()
        facts = context.host(one).integrate(
            {
                "repo_path": one.repo_path,
                "base_branch": None,
                "base_commit": head,
                "heads": [],
                "check": argv,
                "check_timeout": checking.timeout(context),
                "land": False,
                "scratch": f"compare-{one.id}",
            }
        )
        result, seconds = facts["check"], time.monotonic() - began
        assert result is not None
        with context.db.write():
            checked.put(
                *(context.db, one.repo_path, head, shlex.join(argv)),
                ok=result["ok"],
                output=result["output"],
                seconds=seconds,
            )


def _unchecked(context: Context, one: Instance, facts: BranchFacts, command: str) -> str | None:
    """The commit to check: none where nothing was committed or the same command has succeeded already."""
    head = facts["head_commit"]
    if head is None or not facts["own_commits"]:
        return None
    known = checked.of(context.db, one.repo_path, head)
    return None if any(c.ok and c.command == command for c in known) else head
