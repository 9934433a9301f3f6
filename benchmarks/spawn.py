"""From the call to a live agent, against git and tmux by hand; both in turn, on the same repository."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, Options
from benchmarks.ground import Home, make_repo, run, timed, wait_for
from swarm_core.agents import scripted_program
from swarm_core.models import Instance, Status
from swarm_core.swarm import Swarm

SIZES = {1_000: 2.0, 10_000: 1.2, 100_000: 1.2}
POOLED_SIZE, POOLED_LIMIT = 100_000, 0.15
_POOL_MAX = 5
_ROUNDS = {1_000: (21, 7), 10_000: (11, 5), 100_000: (5, 3)}


def measure(root: Path, options: Options) -> Iterator[Figure]:
    sizes = [size for size in SIZES if not options.quick or size < POOLED_SIZE]
    for size in sizes:
        repo = make_repo(root / f"repo{size}", size)
        rounds = options.times(*_ROUNDS[size])
        yield from _against_raw(root, repo, size, rounds)
        run("rm", "-rf", repo)


def _against_raw(root: Path, repo: Path, size: int, rounds: int) -> Iterator[Figure]:
    spent: dict[str, list[tuple[float, float]]] = {"raw": [], "swarm": []}
    with Home(root / "h") as home, Raw(root / "raw", repo) as raw, home.open() as swarm:
        _once(swarm, repo, clean=False)  # keeps the tmux server up, as Raw does
        for n in range(rounds):
            turns = [("raw", raw.once), ("swarm", lambda: _once(swarm, repo))]
            for name, once in turns if n % 2 else reversed(turns):
                spent[name].append(once())
    label = f"spawn {size // 1000}k files"
    by_hand, ours = _medians(spent["raw"]), _medians(spent["swarm"])
    yield Figure(f"{label}: by hand", by_hand[0] * 1000, "ms")
    yield Figure(f"{label}: swarm", ours[0] * 1000, "ms")
    yield Figure(f"{label}: ratio", ours[0] / by_hand[0], "x", SIZES[size])
    yield Figure(f"{label}: ratio of the least times", min(spent["swarm"])[0] / min(spent["raw"])[0], "x")
    yield Figure(f"{label}: ratio of processor time", ours[1] / by_hand[1], "x")
    if size == POOLED_SIZE:
        warm = _medians(_from_pool(root, repo, rounds))
        yield Figure(f"{label}: swarm, warm pool", warm[0] * 1000, "ms")
        yield Figure(f"{label}: ratio, warm pool", warm[0] / by_hand[0], "x", POOLED_LIMIT)


def _medians(spent: list[tuple[float, float]]) -> tuple[float, float]:
    return statistics.median(wall for wall, _ in spent), statistics.median(cpu for _, cpu in spent)


def _once(swarm: Swarm, repo: Path, *, clean: bool = True) -> tuple[float, float]:
    """One spawn, timed from the call to its return with the agent running."""
    made: list[Instance] = []
    _settle()
    took = timed(lambda: made.extend(swarm.work("say ready", repo=str(repo), agent="scripted")))
    instance = made[0]
    if instance.status != Status.RUNNING:
        raise RuntimeError(f"{instance.id} is {instance.status}")
    status = swarm.context.settings.instance_dir(instance.id) / "status.json"
    wait_for(lambda: status.exists() and '"idle"' in status.read_text(), what="the agent idle")
    if clean:
        swarm.stop(instance.id)
        swarm.clean(instance.id)
    return took


def _from_pool(root: Path, repo: Path, rounds: int) -> list[tuple[float, float]]:
    pool = min(rounds, _POOL_MAX)
    with Home(root / "p", pool=pool) as home, home.open() as swarm:
        if swarm.fill_pool(str(repo)) != pool:
            raise RuntimeError("the pool was not filled")
        spent = [_once(swarm, repo, clean=False) for _ in range(pool)]
        return spent[1:]  # the first one started the tmux server


def _settle() -> None:
    """What the last round wrote must not be written back during this one."""
    os.sync()


class Raw:
    """`git worktree add` and `tmux new-session` with the same program, on a tmux server of its own."""

    def __init__(self, folder: Path, repo: Path) -> None:
        self._folder, self._repo = folder, repo
        self._tmux = ["tmux", "-S", str(folder / "s"), "-f", os.devnull]
        self._count = 0

    def __enter__(self) -> Raw:
        self._folder.mkdir()
        (self._folder / "prompt.md").write_text("say ready")
        run(*self._tmux, "new-session", "-d", "-s", "keeper", "sleep", "3600")
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True, timeout=20)
        run("rm", "-rf", self._folder)

    def once(self) -> tuple[float, float]:
        self._count += 1
        name = f"raw-{self._count}"
        path, status = self._folder / name, self._folder / "status.json"
        status.unlink(missing_ok=True)
        program = [sys.executable, "-I", "-S", scripted_program.__file__]
        program += [f"--prompt={self._folder / 'prompt.md'}", f"--dir={self._folder}", f"--conversation={name}"]

        def by_hand() -> None:
            run("git", "-C", self._repo, "worktree", "add", "-q", "-b", name, path, "main")
            run(*self._tmux, "new-session", "-d", "-s", name, "-c", path, *program)

        _settle()
        took = timed(by_hand)
        wait_for(lambda: status.exists() and '"idle"' in status.read_text(), what="the program idle")
        run(*self._tmux, "kill-session", "-t", name)
        run("git", "-C", self._repo, "worktree", "remove", "--force", path)
        run("git", "-C", self._repo, "branch", "-q", "-D", name)
        return took
