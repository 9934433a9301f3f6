"""Many processes and threads at once on one repository: nothing fails and everything agrees afterwards.

SWARM_STRESS_ROUNDS=100 runs the full promise; each round has a repository and a home of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import git_run, make_repo
from tests.world import World, assert_agreement

_ROUNDS = int(os.environ.get("SWARM_STRESS_ROUNDS", "2"))
_ROOT = str(Path(__file__).parents[2])
_CHILD = """
import json, os, sys
from swarm_core import config
from swarm_core.errors import SwarmError
from swarm_core.swarm import Swarm

print("ready", flush=True)
sys.stdin.readline()
answers = []
with Swarm.open(config.load(os.environ), os.environ) as swarm:
    for name, arguments, options in json.loads(sys.argv[1]):
        try:
            made = getattr(swarm, name)(*arguments, **options)
        except SwarmError as error:
            answers.append({"code": error.code, "message": error.message})
        else:
            answers.append([i.id for i in made] if isinstance(made, list) else made.status)
print(json.dumps(answers))
"""
Call = tuple[str, list[Any], dict[str, Any]]


def at_once(world: World, scripts: list[list[Call]]) -> list[list[Any]]:
    """Run each list of calls in a process of its own, all let go at the same moment; their answers."""
    env = world.environ | {"PYTHONPATH": _ROOT}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    started = [
        subprocess.Popen([sys.executable, "-c", _CHILD, json.dumps(script)], env=env, cwd=world.repo, **pipes)
        for script in scripts
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n", process.communicate()[1].decode()
    for process in started:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    answers = []
    for process in started:
        out, err = process.communicate(timeout=100)
        assert process.returncode == 0, err.decode()
        answers.append(json.loads(out))
    return answers


def work(**options: Any) -> Call:
    return ("work", ["say ready"], {"agent": "scripted", **options})


@contextmanager
def fresh(folder: Path, *, cloned: bool = False) -> Iterator[World]:
    repo = make_repo(folder / "origin")
    if cloned:
        git_run(folder, "clone", "-q", str(repo), str(folder / "clone"))
        git_run(repo, "commit", "-q", "--allow-empty", "-m", "newer")
        repo = folder / "clone"
        git_run(repo, "fetch", "-q")
    world = World(folder / "h", repo)
    try:
        yield world
    finally:
        world.kill_tmux()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.timeout(100 + 60 * _ROUNDS)
@pytest.mark.parametrize(
    ("processes", "each", "base"),
    [(4, 4, "main"), (2, 16, "main"), (4, 8, "origin/main")],
    ids=["16 local", "32 local", "32 from a remote branch"],
)
def test_many_spawns_at_once_all_succeed(short_tmp: Path, processes: int, each: int, base: str) -> None:
    for number in range(_ROUNDS):
        with fresh(short_tmp / str(number), cloned=base != "main") as world:
            settings_before = (world.repo / ".git" / "config").read_bytes()
            answers = at_once(world, [[work(count=each, base=base)]] * processes)
            ids = [one for [made] in answers for one in made]
            assert sorted(ids) == sorted(f"work-a{n + 1}" for n in range(processes * each))
            with world.open() as swarm:
                assert swarm.reconcile() == []
                assert {i.status for i in swarm.instances()} == {"running"}
                assert_agreement(world, swarm)
            expected = git_run(world.repo, "rev-parse", base)
            heads = git_run(world.repo, "for-each-ref", "--format=%(objectname)", "refs/heads/work").split()
            assert heads == [expected] * len(ids)
            assert (world.repo / ".git" / "config").read_bytes() == settings_before
            assert git_run(world.repo, "status", "--porcelain") == ""


def test_sixteen_threads_of_one_process_spawn_at_once(world: World) -> None:
    with world.open() as swarm:
        with ThreadPoolExecutor(16) as pool:
            made = list(pool.map(lambda _: world.work(swarm), range(16)))
        assert sorted(i.agent_number for i in made) == list(range(1, 17))
        assert swarm.reconcile() == []
        assert_agreement(world, swarm)


@pytest.mark.timeout(100 + 60 * _ROUNDS)
def test_processes_that_spawn_for_the_same_issue_never_get_the_same_id(short_tmp: Path) -> None:
    for number in range(max(_ROUNDS // 2, 1)):
        with fresh(short_tmp / str(number)) as world:
            answers = at_once(world, [[work(issue=7), work(issue=7)]] * 16)
            ids = [one for script in answers for made in script for one in made]
            assert sorted(ids) == sorted(f"work-7-a{n}" for n in range(1, 33))
            with world.open() as swarm:
                assert swarm.reconcile() == []
                assert_agreement(world, swarm)


def test_the_same_instance_in_eight_hands_ends_in_one_consistent_state(world: World) -> None:
    with world.open() as swarm:
        instance = world.work(swarm)
        world.wait_idle(swarm, instance.id)
        (Path(instance.worktree_path) / "half.txt").write_text("kept")
    order = ["stop", "restart", "clean", "restore"]
    scripts: list[list[Call]] = [[(order[(n + k) % 4], [instance.id], {}) for k in range(2)] for n in range(8)]
    answers = at_once(world, scripts)
    codes = {one["code"] for script in answers for one in script if isinstance(one, dict)}
    assert codes <= {"CONFLICT", "INSTANCE_RUNNING", "NOTHING_PRESERVED", "RESTORE_WOULD_OVERWRITE"}, answers
    with world.open() as swarm:
        assert swarm.reconcile() == []
        assert_agreement(world, swarm)
        if swarm.find(instance.id).cleaned:
            swarm.restore(instance.id)
        assert (Path(instance.worktree_path) / "half.txt").read_text() == "kept"


def test_eight_processes_that_stop_the_same_instance_stop_it_once(world: World) -> None:
    with world.open() as swarm:
        instance = world.work(swarm)
    answers = at_once(world, [[("stop", [instance.id], {})]] * 8)
    assert answers == [["terminated"]] * 8
    with world.open() as swarm:
        done = [e for e in swarm.events(instance_id=instance.id) if e.name == "action:done"]
        assert [e.metadata["action"] for e in done] == ["spawn", "stop"]
        assert_agreement(world, swarm)


def test_a_supervisor_that_looks_all_the_time_disturbs_no_spawn(world: World) -> None:
    with world.open() as watcher, world.open() as swarm, ThreadPoolExecutor(1) as pool:
        spawns = pool.submit(lambda: [world.work(swarm) for _ in range(6)])
        while not spawns.done():
            assert all(finding.mended for finding in watcher.reconcile())
        assert {i.status for i in spawns.result()} == {"running"}
        assert_agreement(world, watcher)


def test_of_two_processes_that_want_one_name_one_gets_it(world: World) -> None:
    wanted: Call = ("work", ["say ready"], {"repo": str(world.repo), "agent": "scripted", "name": "login fix"})
    answers = [answer for [answer] in at_once(world, [[wanted]] * 4)]
    assert [a["code"] for a in answers if isinstance(a, dict)] == ["NAME_TAKEN"] * 3
    with world.open() as swarm:
        assert [i.name for i in swarm.instances(include_cleaned=True)] == ["login fix"]
        assert_agreement(world, swarm)
