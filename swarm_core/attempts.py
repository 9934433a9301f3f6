"""Several attempts at one task as front ends see them: a part of the object every front end holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swarm_core.errors import SwarmError
from swarm_core.models import Instance
from swarm_core.ops import attempts, compare
from swarm_core.ops.attempts import Picked
from swarm_core.ops.compare import Comparison
from swarm_core.ops.context import Context


class Attempts:
    """`take_in` reads the agents' logs when no coordinator does, `settle` carries out what is wanted of one."""

    def __init__(
        self,
        context: Context,
        *,
        find: Callable[[str], Instance],
        take_in: Callable[[list[Instance]], None],
        settle: Callable[[str], object],
    ) -> None:
        self._context = context
        self._find = find
        self._take_in = take_in
        self._settle = settle

    def of(self, id_or_name: str) -> list[Instance]:
        """All attempts at the instance's task, in the order they were started."""
        return attempts.of(self._context, self._find(id_or_name))

    def compare(self, ids_or_names: Sequence[str], *, run_check: bool = False) -> Comparison:
        """Attempts side by side: a group, of which one is named, or the named ones."""
        members = compare.chosen(self._context, [self._find(one) for one in ids_or_names])
        self._take_in(members)
        return compare.compare(self._context, [self._find(one.id) for one in members], run_check=run_check)

    def ended_by_picking(self, id_or_name: str) -> list[Instance]:
        """Whom picking this attempt would end, or whose pull request it would close."""
        return attempts.to_end(self._context, self._find(id_or_name))

    def pick(self, id_or_name: str, *, keep: bool = False, actor: str = "operator") -> Picked:
        """Pick one of several attempts: the others end, and their pull requests are closed, unless kept."""
        done = attempts.pick(self._context, self._find(id_or_name).id, keep=keep, actor=actor)
        for one in (*done.ended, *done.reviews):
            self._context.report(f"ending {one}")
            try:
                self._settle(one)
            except SwarmError as error:
                done.failures[one] = error
        if not keep:
            attempts.close_pulls(self._context, done, actor=actor)
        return done
