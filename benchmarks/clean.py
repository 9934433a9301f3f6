"""Removing a worktree with uncommitted work, against storing it and `git worktree remove --force` by hand."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, Options
from benchmarks.ground import Home, make_repo, output, run, timed, wait_for
from swarm_core.swarm import Swarm

# By hand nothing is verified, read back or looked at again, and no agent's session is ended.
SIZES = {1_000: 2.2, 10_000: 2.1}
_ROUNDS = {1_000: (15, 5), 10_000: (9, 3)}
_CHANGED, _NEW = 50, 50


def measure(root: Path, options: Options) -> Iterator[Figure]:
    for size in SIZES:
        repo = make_repo(root / f"repo{size}", size)
        yield from _against_raw(root, repo, size, options.times(*_ROUNDS[size]))
        run("rm", "-rf", repo)


def _against_raw(root: Path, repo: Path, size: int, rounds: int) -> Iterator[Figure]:
    spent: dict[str, list[float]] = {"raw": [], "swarm": []}
    with Home(root / "h") as home, home.open() as swarm:
        for n in range(rounds):
            turns = [("raw", lambda n=n: _by_hand(root, repo, n)), ("swarm", lambda: _once(swarm, repo))]
            for name, once in turns if n % 2 else reversed(turns):
                spent[name].append(once())
    by_hand, ours = (statistics.median(spent[name]) for name in ("raw", "swarm"))
    label = f"clean {size // 1000}k files"
    yield Figure(f"{label}: by hand", by_hand * 1000, "ms")
    yield Figure(f"{label}: swarm", ours * 1000, "ms")
    yield Figure(f"{label}: swarm, least", min(spent["swarm"]) * 1000, "ms")
    yield Figure(f"{label}: ratio", ours / by_hand, "x", SIZES[size])


def _once(swarm: Swarm, repo: Path) -> float:
    [instance] = swarm.work("say ready", repo=str(repo), agent="scripted")
    status = swarm.context.settings.instance_dir(instance.id) / "status.json"
    wait_for(lambda: status.exists() and '"idle"' in status.read_text(), what="the agent idle")
    swarm.stop(instance.id)
    path = Path(instance.worktree_path)
    _change(path)
    os.sync()
    took = timed(lambda: swarm.clean(instance.id))[0]
    if path.exists() or len(swarm.detail(instance.id).preserved) != 1:
        raise RuntimeError(f"{instance.id} was not cleaned")
    return took


def _by_hand(root: Path, repo: Path, n: int) -> float:
    path, index = root / f"raw{n}", root / f"index{n}"
    run("git", "-C", repo, "worktree", "add", "-q", "-b", f"raw{n}", path, "main")
    _change(path)
    os.sync()

    def remove() -> None:
        own = output("git", "-C", path, "rev-parse", "--absolute-git-dir")
        run("cp", f"{own}/index", index)
        git = ("env", f"GIT_INDEX_FILE={index}", "git", "-C", path)
        run(*git, "add", "-A")
        tree = output(*git, "write-tree")
        stored = output(*git, "commit-tree", tree, "-p", "HEAD", "-m", "stored")
        run("git", "-C", path, "update-ref", f"refs/raw/{n}", stored)
        run("git", "-C", repo, "worktree", "remove", "--force", path)
        run("git", "-C", repo, "branch", "-q", "-D", f"raw{n}")

    return timed(remove)[0]


def _change(path: Path) -> None:
    """Change some tracked files and add some that git does not know."""
    for number, file in enumerate(sorted(path.glob("area*/part*/*.py"))[:_CHANGED]):
        file.write_text(f"changed {number}\n" * 20)
    for number in range(_NEW):
        (path / f"new{number}.txt").write_text(f"new {number}\n" * 20)
