"""Preserved work that a repository holds and the database does not know, as after a backup was restored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from swarm_core import ids
from swarm_core.models import Instance
from swarm_core.ops.context import Context
from swarm_core.ops.removal import ref_time
from swarm_core.store import actions, instances, preserved

_WHY = "found in the repository"


def record(context: Context, instance: Instance) -> list[str]:
    """Record the refs that hold work of this very instance; returns the new ones."""
    known = {one.ref for one in preserved.of(context.db, instance.id)}
    host = context.host(instance)
    new = [
        ref
        for ref in host.preserved_refs(instance.repo_path, instance.id)
        if ref not in known and _is_of(instance, ref)
    ]
    found = [facts for ref in new if (facts := host.preserved_work(instance.repo_path, ref)) is not None]
    with context.db.write():
        for facts in found:
            preserved.add(
                context.db,
                instance.id,
                repo_path=instance.repo_path,
                ref=facts["ref"],
                commit=facts["commit"],
                files=facts["files"],
                size=facts["bytes"],
                why=_WHY,
            )
    return [facts["ref"] for facts in found]


def unrecorded(context: Context) -> Iterator[tuple[str, str, Instance | None]]:
    """Repository, ref, and whose work it is; None when the database has no such instance."""
    every = {i.id: i for i in instances.listed(context.db, include_cleaned=True)}
    busy = {action.instance_id for action in actions.all_open(context.db)}
    places = {i.repo_path: context.host(i) for i in every.values() if Path(i.repo_path).is_dir()}
    for repo_path, host in sorted(places.items()):
        refs = host.preserved_refs(repo_path, None)
        unknown = preserved.unknown(context.db, list(refs))
        for ref in unknown:
            name = ref.split("/")[3]
            owner = every.get(name)
            if ids.is_id(name) and name not in busy:
                mine = owner is not None and owner.repo_path == repo_path and _is_of(owner, ref)
                yield repo_path, ref, owner if mine else None


def _is_of(instance: Instance, ref: str) -> bool:
    """Whether the ref was made after the instance: an id that a restored database gives again had work before."""
    time = ref.split("/")[4:5]  # a ref that an agent made up may have none
    return time >= [ref_time(instance.created_at)]
