"""Random work of agents and people against every operation of swarm: is a byte of it gone afterwards?

python -m tests.survival --sequences 2000 --seed 7 [--seconds 3600] [--without MOVE,MOVE] [--keep-going] [--json]
python -m tests.survival --replay FILE_OR_NAME

A sequence is decided by its seed alone. Ends with 1 when something was lost, names the seed, shows the shortest
sequence that loses it and keeps the folder; that sequence, as JSON lines, is what --replay takes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sys
from pathlib import Path

from tests.survival.machine import LAYERS
from tests.survival.run import Run
from tests.survival.stories import STORIES
from tests.survival.story import AGENT_MOVES, Lost, numbered, replay
from tests.survival.world import environ, make_template, remove, workplace


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.survival", description=__doc__)
    parser.add_argument("--sequences", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--steps", type=int, default=12, help="moves per sequence")
    parser.add_argument("--layer", choices=LAYERS, default="fast", help="full: the command, with agents in tmux")
    parser.add_argument("--without", default="", help="moves that are never made, separated by commas")
    parser.add_argument("--only", default="", help="the only moves that are made")
    parser.add_argument("--keep-going", action="store_true", help="look for further losses")
    parser.add_argument(
        "--replay", help="a file with a sequence, one JSON object per line, or the name of a known one"
    )
    parser.add_argument("--json", action="store_true", help="only figures, at the end")
    chosen = parser.parse_args(arguments)
    place = workplace()
    _isolate(place)
    lost = _replay(place, chosen) if chosen.replay else _run(place, chosen)
    if lost:
        print(f"the folder {place} was kept", file=sys.stderr)
        return 1
    remove(place)
    return 0


def _isolate(place: Path) -> None:
    """Nothing of the person who runs this reaches git or swarm."""
    os.environ |= {name: value for name, value in environ(place / "w").items() if name.startswith("GIT_")}
    for name in [name for name in os.environ if name.startswith(("SWARM_", "MCP_", "GITHUB_", "GH_"))]:
        del os.environ[name]


def _run(place: Path, chosen: argparse.Namespace) -> bool:
    say = (lambda _: None) if chosen.json else (lambda text: print(text, flush=True))
    layer = LAYERS[chosen.layer]
    without, only = ({name for name in text.split(",") if name} for text in (chosen.without, chosen.only))
    without |= {*AGENT_MOVES, *layer.operations} - only if only else set()
    run = Run(layer, place, chosen.seed, chosen.steps, without, chosen.keep_going, say)
    say(f"seed {chosen.seed}, in {place}")
    run.play(chosen.sequences, chosen.seconds)
    for what, steps in run.odd.items():
        say(f"not a loss, but unforeseen: {what}\n  " + "\n  ".join(json.dumps(step) for step in steps))
    found = [{"seed": f.seed, "times": f.times, "lost": f.lost.lost, "steps": f.lost.steps} for f in run.found]
    figures = {"seed": chosen.seed, "sequences": run.sequences, "outcomes": dict(run.outcomes), "lost": found}
    print(json.dumps(figures | {"unforeseen": run.odd}) if chosen.json else f"{len(found)} losses")
    return bool(found)


def _replay(place: Path, chosen: argparse.Namespace) -> bool:
    steps = STORIES.get(chosen.replay) or [
        json.loads(line) for line in Path(chosen.replay).read_text().splitlines()
    ]
    layer, template = LAYERS[chosen.layer], make_template(place / "template")
    for number in itertools.count(1):
        story = layer.story(layer.world.fresh(place / "w", template))
        try:
            replay(story, numbered(steps, number))
        except Lost as lost:
            print(lost)
            return True
        finally:
            story.close()
        if numbered(steps, 1) == numbered(steps, 2) or not story.interrupted:
            break
    for step, outcome in zip(story.steps, story.outcomes, strict=True):
        print(f"{json.dumps(step)} {outcome}")
    print(f"nothing is lost; played {number} times")
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
