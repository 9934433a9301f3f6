"""Many processes that spawn in one repository at the same instant: failures, and spawns per second."""

from __future__ import annotations

import multiprocessing
import shutil
import statistics
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

from benchmarks.figures import Figure, Options
from benchmarks.ground import Home, make_repo
from swarm_core.errors import SwarmError
from swarm_core.models import Status
from swarm_core.tmux.panes import list_panes

WIDTHS = (16, 32)
_BOUND = 120.0


def measure(root: Path, options: Options) -> Iterator[Figure]:
    rounds = options.times(3, 1)
    for width in WIDTHS:
        results = [_round(root / f"r{width}-{n}", width) for n in range(rounds)]
        problems = [p for found, _ in results for p in found]
        for problem in problems[:5]:
            print(f"  {problem}")
        rate = statistics.median(width / took for _, took in results)
        yield Figure(f"parallel {width}, {rounds} rounds: failures", len(problems), "", 0)
        yield Figure(f"parallel {width}: spawns per second", rate, "/s")


def _round(root: Path, width: int) -> tuple[list[str], float]:
    """One burst in a fresh home and repository: what went wrong, and seconds until all returned."""
    try:
        repo = make_repo(root / "repo", 200)
        with Home(root / "h") as home:
            answers, took = _burst(home, repo, width)
            return _problems(home, repo, answers), took
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _burst(home: Home, repo: Path, width: int) -> tuple[list[str], float]:
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(width + 1)
    pipes, workers = [], []
    for _ in range(width):
        ours, theirs = context.Pipe(duplex=False)
        workers.append(context.Process(target=_spawn, args=(home, repo, barrier, theirs)))
        pipes.append(ours)
    try:
        for worker in workers:
            worker.start()
        barrier.wait(_BOUND)
        began = time.perf_counter()
        answers = [p.recv() if p.poll(_BOUND) else "error: no answer" for p in pipes]
        return answers, time.perf_counter() - began
    finally:
        for worker in workers:
            worker.join(5)
            worker.kill()
            worker.join()


def _spawn(home: Home, repo: Path, barrier: Barrier, answer: Connection) -> None:
    with home.open() as swarm:
        barrier.wait(_BOUND)
        try:
            instance = swarm.work("say ready", repo=str(repo), agent="scripted")[0]
            answer.send(instance.id)
        except SwarmError as error:
            answer.send(f"error: {error.code} {error.message}")


def _problems(home: Home, repo: Path, answers: list[str]) -> list[str]:
    problems = [a for a in answers if a.startswith("error")]
    alive = {p.instance for p in list_panes(home.settings.tmux_socket) if not p.dead}
    with home.open() as swarm:
        rows = {i.id: i for i in swarm.instances()}
    for name in set(answers) - set(problems):
        row = rows.get(name)
        if answers.count(name) > 1:
            problems.append(f"{name} was given out twice")
        if row is None or row.status != Status.RUNNING or not Path(row.worktree_path, "area0").is_dir():
            problems.append(f"{name} is not running with its files")
        if name not in alive:
            problems.append(f"{name} has no session")
    return problems
