"""What is recorded of pull requests, with everything that hangs on them; many are read at once."""

from __future__ import annotations

from collections.abc import Sequence

from swarm_core.models import Pull
from swarm_core.ops.pull_status import Facts
from swarm_core.store import pull_facts
from swarm_core.store.database import Database


def facts_of(db: Database, pulls: Sequence[Pull], *, grace: float = 0.0) -> list[Facts]:
    """In their order, as of now; `grace` as in Facts."""
    keys = [pull.id for pull in pulls]
    checks, reviews = pull_facts.checks_of(db, keys), pull_facts.reviews_of(db, keys)
    comments = pull_facts.comments_of(db, keys)
    now = db.now()
    return [
        Facts(
            pull,
            checks.get(pull.id, []),
            reviews.get(pull.id, []),
            comments.get(pull.id, []),
            now=now,
            grace=grace,
        )
        for pull in pulls
    ]
