"""Sequence after sequence until enough were played or something was lost, which is then made small."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as with_seed
from hypothesis.stateful import run_state_machine_as_test

from tests.survival.machine import Layer, machine
from tests.survival.story import Lost, Step, Story, replay
from tests.survival.world import make_template

BATCH = 10
_REPLAYS = 80


@dataclass
class Found:
    """A defect: the shortest sequence that was found for it, the seed that came upon it, and how often it came."""

    seed: int
    lost: Lost
    times: int = 1

    def explains(self, lost: Lost) -> bool:
        """Whether another loss is probably this one with more around it."""
        return lost.kind == self.lost.kind and moves_of(self.lost) <= moves_of(lost)


def moves_of(lost: Lost) -> Counter[str]:
    """The moves that matter; at the end every sequence has the same ones."""
    return Counter(step["move"] for step in lost.steps if step["move"] not in ("reconcile", "drain_pool"))


@dataclass
class Run:
    """Plays in `place`. With `keep_going` a loss that is known already is only counted."""

    layer: Layer
    place: Path
    seed: int
    steps: int = 12
    without: Collection[str] = ()
    keep_going: bool = False
    say: Callable[[str], None] = print
    sequences: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    found: list[Found] = field(default_factory=list)
    odd: dict[str, list[Step]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._world, self._template = self.place / "w", make_template(self.place / "template")

    def play(self, sequences: int, seconds: float) -> None:
        """Until so many sequences were played or so many seconds are over, whichever comes first."""
        began, batch = time.monotonic(), 0
        while self.sequences < sequences and time.monotonic() - began < seconds:
            self._batch(self.seed + batch, min(BATCH, sequences - self.sequences))
            batch += 1
            spent = time.monotonic() - began
            told = ", ".join(f"{count} {how}" for how, count in sorted(self.outcomes.items()))
            self.say(f"{self.sequences} sequences in {spent:.0f} s: {told}; {len(self.found)} losses")
            if self.found and not self.keep_going:
                return

    def _batch(self, seed: int, count: int) -> None:
        losses: list[Lost] = []

        def seen(story: Story, lost: Lost | None) -> None:
            self.sequences += 1
            self._count(story)
            if lost is not None:
                losses.append(lost)

        chosen = settings(
            max_examples=count,
            stateful_step_count=self.steps,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        made = with_seed(seed)(machine(self.layer, self._world, self._template, without=self.without, seen=seen))
        run_state_machine_as_test(made, settings=chosen)
        for lost in losses:
            self._note(seed, lost)

    def _note(self, seed: int, lost: Lost) -> None:
        for known in self.found:
            if known.explains(lost):
                known.times += 1
                return
        self.say(f"seed {seed}: {lost.kind}; making it small")
        small = self.smallest(lost)
        self.found.append(Found(seed, small))
        self.say(f"seed {seed}: {small}")

    def _count(self, story: Story) -> None:
        for number, outcome in enumerate(story.outcomes):
            how = outcome.partition(" ")[0]
            if how:
                self.outcomes[how] += 1
            if how in ("failed", "hung"):
                last = outcome.strip().splitlines()[-1]
                self.odd.setdefault(f"{story.steps[number]['move']}: {last}", story.steps[: number + 1])

    def smallest(self, lost: Lost) -> Lost:
        """Leave out steps and details as long as the same kind of thing is lost."""
        tries, size = _REPLAYS, max(1, len(lost.steps) // 2)
        while size and tries:
            at, smaller = 0, None
            while at < len(lost.steps) - 1 and tries:
                tries -= 1
                smaller = self._again(lost, [*lost.steps[:at], *lost.steps[at + size :]])
                lost = smaller or lost
                at += 0 if smaller else size
            size = size // 2
        return self._plainer(lost)

    def _plainer(self, lost: Lost) -> Lost:
        for at in range(len(lost.steps)):
            for name in ("meanwhile", "where"):
                if name in lost.steps[at]:
                    plain = {key: value for key, value in lost.steps[at].items() if key != name}
                    lost = self._again(lost, [*lost.steps[:at], plain, *lost.steps[at + 1 :]]) or lost
        return lost

    def _again(self, lost: Lost, steps: Sequence[Step]) -> Lost | None:
        story = self.layer.story(self.layer.world.fresh(self._world, self._template))
        try:
            replay(story, steps)
        except Lost as again:
            return again if again.kind == lost.kind else None
        finally:
            story.close()
        return None
