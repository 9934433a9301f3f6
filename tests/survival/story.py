"""A sequence of moves that is carried out step by step, and the oracle that looks after each of swarm's.

A step is JSON: `{"move": "edit", "who": 0, "file": "README.md"}`. One of swarm's may have `meanwhile`, the moment
at which it is killed, or at which an agent or another operation acts:
`{"before": "update-ref", "number": 1, "do": "kill"}`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.survival import agent_moves, swarm_moves
from tests.survival.agent_moves import AGENTS_ONLY, Site
from tests.survival.inventory import Inventory
from tests.survival.moments import Child, Moment, Outcome
from tests.survival.world import PERSON, World

Step = dict[str, Any]
KILL = "kill"
EVERY = 0
# How long an operation that began in the middle of another one may block it before both go on.
_BLOCKED = 0.4
_MAX_INSTANCES = 4
_NAMED = 8
_KINDS = ("nested", "ignored file", "file", "index entry", "autostash", "stash", "log of", "ref", "HEAD", "commit")


AGENT_MOVES: dict[str, Callable[..., None]] = {
    name: function
    for name, function in vars(agent_moves).items()
    if inspect.isfunction(function) and function.__module__ == agent_moves.__name__
}


class Lost(AssertionError):
    """Something was nowhere any more after an operation of swarm's."""

    def __init__(self, steps: Sequence[Step], lost: dict[str, str]) -> None:
        self.steps, self.lost = list(steps), lost
        said = [f"  {oid[:12]} {what}" for oid, what in list(lost.items())[:_NAMED]]
        said += [f"  and {len(lost) - _NAMED} more"] if len(lost) > _NAMED else []
        super().__init__("\n".join(["lost:", *said, as_lines("after", steps)]))

    @property
    def kind(self) -> str:
        """Which operation lost what kind of thing: two losses alike are one defect, or nearly."""
        heads = [what.partition(":")[0] for what in self.lost.values()]
        named = next((word for word in _KINDS if any(word in head for head in heads)), heads[0])
        return f"{self.steps[-1]['move']}: {named}"


class Story:
    def __init__(self, world: World) -> None:
        self.world = world
        self.steps: list[Step] = []
        self.outcomes: list[str] = []
        self.failures: list[str] = []
        self.interrupted = 0
        self._known: Inventory | None = None

    def play(self, step: Step) -> None:
        """Carry out one step; raises Lost."""
        self.steps.append(step)
        if self._is_ours(step["move"]):
            self._ours(step)
        else:
            self._known = None
            self._theirs(step)
            self.outcomes.append("")

    def evening(self, circumstances: Step, *, merging: bool) -> Iterator[Step]:
        """What was interrupted is taken up, work is merged or not, and everything is stopped and cleaned."""
        yield {"move": "reconcile"}
        everybody = range(len(self.world.rows()))
        if merging:
            yield from ({"move": "merge", "who": number} for number in everybody)
        for number in everybody:
            yield {"move": "clean", "who": number} | (circumstances if number == 0 else {})
        yield {"move": "drain_pool"}

    def close(self) -> None:
        """End whatever the sequence has started."""

    def _is_ours(self, move: str) -> bool:
        return move in swarm_moves.OPERATIONS

    def _theirs(self, step: Step, held: Path | None = None) -> None:
        who = step.get("who", PERSON)
        move, arguments = (
            step["move"],
            {k: v for k, v in step.items() if k not in ("move", "who", "where", "held")},
        )
        if who == PERSON and move in AGENTS_ONLY:
            return
        row = None if who == PERSON else self.world.row(who)
        at = held or self.world.folder(who, step.get("where", "."))
        if at is None and move == "recreate" and row is not None:
            at = row.path
        if at is not None:
            try:
                AGENT_MOVES[move](Site(self.world, at, row), **arguments)
            except OSError as error:
                self.failures.append(f"{move}: {error}")

    def _ours(self, step: Step) -> None:
        if step["move"] in ("spawn", "attempts", "fork", "review") and len(self.world.rows()) >= _MAX_INSTANCES:
            self.outcomes.append("too many")
            return
        before = self._known or self.world.inventory()
        outcome, needed = self._run(step, before)
        self.outcomes.append(f"{outcome.how} {outcome.detail}".strip())
        self._known = self.world.inventory()
        if lost := needed.lost_in(self._known):
            raise Lost(self.steps, {oid: f"{where}: {self.world.show(oid)}" for oid, where in lost.items()})

    def _run(self, step: Step, before: Inventory) -> tuple[Outcome, Inventory]:
        work = partial(swarm_moves.perform, self.world, step["move"], step.get("who", 0))
        meanwhile = step.get("meanwhile")
        if meanwhile is None:
            return Child(work).end(), before
        do = meanwhile["do"]
        held = self.world.hold(do.get("who", 0)) if do != KILL and do.get("held") else None
        try:
            child = Child(work, Moment(meanwhile["before"], meanwhile["number"], kill=do == KILL))
            if not child.wait_moment():
                return child.end(), before
            self.interrupted += 1
            if do == KILL:
                return child.kill(), before
            if do["move"] in swarm_moves.OPERATIONS:
                return self._two_at_once(child, do), before
            return self._write_meanwhile(child, do, held, before)
        finally:
            self.world.let_go()

    def _two_at_once(self, child: Child, other: Step) -> Outcome:
        second = Child(partial(swarm_moves.perform, self.world, other["move"], other.get("who", 0)))
        second.ended_within(_BLOCKED)
        child.let_go()
        first, then = child.end(), second.end()
        return Outcome(first.how, f"{first.detail} | {then.how} {then.detail}")

    def _write_meanwhile(
        self, child: Child, step: Step, held: Path | None, before: Inventory
    ) -> tuple[Outcome, Inventory]:
        """What the agent itself has taken away is not ours; what it has saved counts from now on."""
        found = self.world.inventory()
        self._theirs(step, held)
        left = self.world.inventory()
        child.let_go()
        needed = Inventory(
            {o: w for o, w in before.kept.items() if o in left.kept or o not in found.kept} | left.kept,
            {o: w for o, w in before.ignored.items() if o in left.ignored or o not in found.ignored},
        )
        return child.end(), needed


def as_lines(what: str, steps: Sequence[Step]) -> str:
    """The sequence as --replay takes it, under a heading."""
    return "\n".join([f"{what}:", *(f"  {json.dumps(step)}" for step in steps)])


def replay(story: Story, steps: Sequence[Step]) -> None:
    """The same sequence again; raises Lost where it loses something."""
    for step in steps:
        story.play(step)


def numbered(steps: Sequence[Step], number: int) -> list[Step]:
    """The sequence with its moment numbered EVERY made a certain one."""
    return [_numbered(step, number) for step in steps]


def _numbered(step: Step, number: int) -> Step:
    meanwhile = step.get("meanwhile", {})
    return step | {"meanwhile": meanwhile | {"number": number}} if meanwhile.get("number") == EVERY else step
