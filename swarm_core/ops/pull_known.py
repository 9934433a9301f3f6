"""What is recorded of pull requests, with everything that belongs to them; many are read at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from swarm_core.models import CommitVerdict, Pull
from swarm_core.ops.pull_status import Facts, Policy
from swarm_core.store import check_runs, pull_commits, pull_facts, relationships, verdicts
from swarm_core.store.database import Database


def facts_of(db: Database, pulls: Sequence[Pull], *, policy: Policy) -> list[Facts]:
    """In their order, as of now."""
    keys = [pull.id for pull in pulls]
    checks, reviews = pull_facts.checks_of(db, keys), pull_facts.reviews_of(db, keys)
    comments = pull_facts.comments_of(db, keys)
    judged, runs = verdicts.of_pulls(db, keys), check_runs.of_pulls(db, keys)
    reviewers = relationships.open_reviews_of(db, [pull.instance_id for pull in pulls])
    commits, now = commits_of(db, pulls, judged), db.now()
    return [
        Facts(
            pull,
            checks.get(pull.id, []),
            reviews.get(pull.id, []),
            comments.get(pull.id, []),
            verdicts=judged.get(pull.id, []),
            commits=commits.get(pull.id, {}),
            check_run=runs.get(pull.id),
            reviewer=reviewers.get(pull.instance_id),
            now=now,
            policy=policy,
        )
        for pull in pulls
    ]


def commits_of(
    db: Database, pulls: Sequence[Pull], judged: Mapping[int, Sequence[CommitVerdict]]
) -> dict[int, dict[str, list[str]]]:
    """What they would bring below their heads; only of those with a verdict on another commit than the head."""
    keys = [pull.id for pull in pulls if any(one.commit != pull.head_commit for one in judged.get(pull.id, ()))]
    return pull_commits.of_pulls(db, keys)
