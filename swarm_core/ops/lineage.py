"""Where work comes from: through forks and agents' branches back to what a person has written."""

from __future__ import annotations

from swarm_core import ids
from swarm_core.models import Instance
from swarm_core.store import instances
from swarm_core.store.database import Database


def origin(db: Database, instance: Instance) -> Instance:
    """The instance that a person started, of which this one is a fork or a review, or itself."""
    while instance.parent_id is not None:
        instance = instances.get(db, instance.parent_id)
    return instance


def trusted_commit(db: Database, repo_path: str, base_branch: str, base_commit: str | None) -> str | None:
    """The base commit, or what it leads back to when the base is an agent's branch.

    What an agent has committed must not become the instructions of whoever reviews it or works on from there.
    """
    seen: set[str] = set()
    while (author := _author(db, repo_path, base_branch)) is not None and author.id not in seen:
        seen.add(author.id)
        first = origin(db, author)
        base_branch, base_commit = first.base_branch, first.base_commit
    return base_commit


def _author(db: Database, repo_path: str, branch: str) -> Instance | None:
    name = branch.rpartition("/")[2]
    found = instances.find(db, name) if ids.is_id(name) else None
    return found if found is not None and found.repo_path == repo_path else None
