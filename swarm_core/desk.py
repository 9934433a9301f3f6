"""Pull requests as front ends see them: a part of the object every front end holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from swarm_core.errors import InvalidInput, NotFound
from swarm_core.forge import split_title
from swarm_core.models import Instance, Pull, PullState, Queued
from swarm_core.ops import follow, merging, pull_known, pull_look, pulls, queue
from swarm_core.ops.context import Context
from swarm_core.ops.pull_status import Facts, policy
from swarm_core.ops.queue import Outlook
from swarm_core.store import instances
from swarm_core.store import pulls as store
from swarm_core.store import queue as queue_store

_TITLE = 200

Find = Callable[[str], Instance]


class PullDesk:
    def __init__(self, context: Context, find: Find) -> None:
        self._context = context
        self._find = find

    def listed(self, *, include_over: bool = False, limit: int = 1000) -> list[Facts]:
        """The open ones, or all, newest first, as they were last seen; at most so many."""
        found = store.listed(self._context.db, include_over=include_over, limit=limit)
        return pull_known.facts_of(self._context.db, found, policy=policy(self._context.settings))

    def of(self, id_or_name: str) -> Facts:
        """The newest pull request of an instance's branch, in whatever state."""
        work = self._author(id_or_name)
        pull = store.newest_of(self._context.db, work.repo_path, work.branch)
        if pull is None:
            raise NotFound(
                f"{work.id} has no pull request", code="PULL_NOT_FOUND", hint=f"`swarm pr open {work.id}` opens it"
            )
        return self._facts(pull)

    def newest(self, instance: Instance) -> Facts | None:
        """The newest pull request of the instance's own branch; None if there is none."""
        pull = store.newest_of(self._context.db, instance.repo_path, instance.branch)
        return self._facts(pull) if pull is not None else None

    def look(self, found: Iterable[Facts]) -> None:
        """Ask the forges now, for a person who waits; raises what hinders the first that cannot be asked."""
        places: dict[tuple[str, str], list[Pull]] = {}
        for one in found:
            if one.pull.state == PullState.OPEN:
                place = (one.pull.forge, one.pull.repository or one.pull.repo_path)
                places.setdefault(place, []).append(store.get(self._context.db, one.pull.id))
        for (_, where), pulls_there in places.items():
            self._context.report(f"asking {where} about {len(pulls_there)} pull requests")
            forge = pulls.forge_of(self._context, pulls_there[0])
            for some in follow.batches(pulls_there, forge.batch):
                follow.look_at(self._context, forge, some)

    def merge(
        self,
        id_or_name: str,
        *,
        method: str | None = None,
        auto: bool = False,
        anyway: str | None = None,
        actor: str = "operator",
    ) -> Pull:
        """Merge it now, or with `auto` as soon as it is ready; `anyway` as in `merging.merge`."""
        work, how = self._author(id_or_name), merging.method_of(self._context, method)
        if not auto:
            return merging.merge(self._context, work, method=how, actor=actor, anyway=anyway)
        if anyway is not None:
            raise InvalidInput(
                "a reason to merge anyway is for what is known now", hint="merge it now, or leave the reason out"
            )
        return merging.merge_when_ready(self._context, work, method=how, actor=actor)

    def check(self, id_or_name: str, *, method: str | None = None) -> None:
        """Run the check command on the merged result now and keep what it says."""
        merging.check(self._context, self._author(id_or_name), method=merging.method_of(self._context, method))

    def no_auto(self, id_or_name: str, *, actor: str = "operator") -> Pull:
        return merging.no_longer(self._context, self._author(id_or_name), actor=actor)

    def close(self, id_or_name: str, *, actor: str = "operator") -> Pull:
        return pulls.close_pull(self._context, self._author(id_or_name).id, actor=actor)

    def delete_branch(self, pull: Pull) -> bool:
        """Delete its branch at the forge; False if that is gone or has moved on from what was merged."""
        self._context.report(f"deleting {pull.head_branch} at {pull.repository or pull.repo_path}")
        return pulls.pushed_to(self._context, pull).delete_branch(pull.head_branch, at=pull.head_commit)

    def enqueue(self, id_or_name: str, *, method: str | None = None, actor: str = "operator") -> Queued:
        how = merging.method_of(self._context, method)
        return queue.add(self._context, self._author(id_or_name), method=how, actor=actor)

    def dequeue(self, id_or_name: str, *, actor: str = "operator") -> Queued:
        return queue.leave(self._context, self._author(id_or_name), actor=actor)

    def queue(self) -> list[Outlook]:
        return queue.outlook(self._context)

    def queue_over(self, limit: int = 10) -> list[Queued]:
        """What left the queue last, merged or not."""
        return queue_store.newest(self._context.db, limit=limit)

    def run_queue(self) -> int:
        """Merge what can be merged now; returns how many were."""
        return queue.run(self._context, again=True)

    def queue_is_busy(self) -> bool:
        return queue.is_busy(self._context)

    def title_of(self, id_or_name: str) -> str:
        """What a pull request is called when nobody says: the issue's title, or the first line of the task."""
        work = self._author(id_or_name)
        title, _ = split_title(work.issue_title or work.prompt)
        return title[:_TITLE] or f"Work of {work.id}"

    def _author(self, id_or_name: str) -> Instance:
        """The instance whose branch is meant; a review stands for the work it reviews."""
        found = self._find(id_or_name)
        if found.kind == "review" and found.parent_id is not None:
            return instances.get(self._context.db, found.parent_id)
        return found

    def _facts(self, pull: Pull) -> Facts:
        return pull_look.facts_of(self._context, pull)
