"""How long after an agent did something else it is shown: told by its hook, its own file, or only its screen."""

from __future__ import annotations

import http.client
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import fleet
from benchmarks.calls import coordinator
from benchmarks.figures import Figure, Options
from benchmarks.ground import Home, wait_for
from swarm_core.store import tokens
from swarm_core.swarm import Swarm
from swarm_core.tmux import command

INSTANCES = 60
LIMIT_HOOK_MS = 1000
LIMIT_MS = 5000
_SCREENS = {"busy": "esc to interrupt", "idle": "❯ "}
_HOOKS = {"busy": "prompt_submit", "idle": "stop"}

Tell = Callable[[str], None]


def measure(root: Path, options: Options) -> Iterator[Figure]:
    count = options.times(30, 10)
    with Home(root / "h") as home:
        first, *_ = fleet.stand_ins(home, INSTANCES)
        with coordinator(home) as (port, _), home.open() as swarm:
            yield from _figures("hook", _times(swarm, first, _by_hook(swarm, first, port), count), LIMIT_HOOK_MS)
            by_file = _by_file(home.settings.instance_dir(first) / "status.json")
            time.sleep(6)  # what a hook said stands for five seconds against anything without a time
            yield from _figures("file", _times(swarm, first, by_file, count), LIMIT_MS)
    with Home(root / "s") as home:
        first, *_ = fleet.stand_ins(home, INSTANCES, status_files=False)
        with coordinator(home), home.open() as swarm:
            yield from _figures("screen", _times(swarm, first, _by_screen(home, first), count), LIMIT_MS)


def _figures(by: str, spent: list[float], limit: float) -> Iterator[Figure]:
    ordered = sorted(spent)
    name = f"activity to row by {by}, {len(spent)} changes of 1 of {INSTANCES}"
    yield Figure(f"{name}: p50", statistics.median(ordered), "ms", limit)
    yield Figure(f"{name}: longest", ordered[-1], "ms", limit)


def _times(swarm: Swarm, instance_id: str, tell: Tell, count: int) -> list[float]:
    """Milliseconds from telling to the row as another process reads it, at any moment of the loop."""
    wait_for(lambda: swarm.find(instance_id).activity == "idle", what="the first look", timeout=20)
    spent = []
    for n in range(count):
        activity = "busy" if n % 2 == 0 else "idle"
        time.sleep(random.uniform(0.1, 0.7))
        began = time.perf_counter()
        tell(activity)
        wait_for(
            lambda wanted=activity: swarm.find(instance_id).activity == wanted,  # type: ignore[misc]
            what=f"{instance_id} {activity}",
            timeout=20,
            every=0.001,
        )
        spent.append((time.perf_counter() - began) * 1000)
    return spent


def _by_hook(swarm: Swarm, instance_id: str, port: int) -> Tell:
    with swarm.context.db.write():
        token = tokens.issue(swarm.context.db, instance_id, swarm.find(instance_id).epoch)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def tell(activity: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("POST", f"/hooks/{_HOOKS[activity]}", body=b"{}", headers=headers)
        if connection.getresponse().status != http.client.OK:
            raise RuntimeError("the hook was refused")
        connection.close()

    return tell


def _by_file(path: Path) -> Tell:
    def tell(activity: str) -> None:
        new = path.with_suffix(".new")
        new.write_text(json.dumps({"activity": activity, "detail": ""}))
        new.replace(path)

    return tell


def _by_screen(home: Home, instance_id: str) -> Tell:
    """What is typed is echoed: the stand-in reads nothing."""

    def tell(activity: str) -> None:
        typed = ["send-keys", "-t", instance_id, "-l", f"{_SCREENS[activity]}\n"]
        command.run(home.settings.tmux_socket, typed)

    return tell
