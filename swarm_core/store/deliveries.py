"""Webhook deliveries that were taken, so that none counts twice, and the pull requests that one is about."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from swarm_core.models import PullState
from swarm_core.store.database import Database


def take(db: Database, names: Sequence[str]) -> bool:
    """Remember a delivery under all its names; False when one of them is known already."""
    now = db.now()
    sql = "INSERT INTO webhook_deliveries (id, at) VALUES (?, ?) ON CONFLICT DO NOTHING"
    new = [db.execute(sql, (name, now)).rowcount == 1 for name in names]
    return all(new)


def forget(db: Database, *, before: str) -> None:
    db.execute("DELETE FROM webhook_deliveries WHERE at < ?", (before,))


def meant(
    db: Database, repository: str, *, numbers: Collection[int], commits: Collection[str]
) -> list[tuple[str, int]]:
    """Repository and number of the pull requests at GitHub that have such a number or are at such a commit.

    Merged ones are over; a closed one may be opened again.

    GitHub does not tell names apart by case, and a remote may be spelled in any.
    """
    rows = db.rows(
        f"SELECT repository, number, head_commit FROM pulls WHERE state <> '{PullState.MERGED}'"
        " AND forge = 'github' AND lower(repository) = lower(?)",
        (repository,),
    )
    found = {(str(r[0]), int(r[1])) for r in rows if r[1] in numbers or r[2] in commits}
    return sorted(found)
