"""What an agent does to its worktree, seen from the dashboard: its diffs may fail, everybody else is answered."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from swarm_core import git
from tests.integration.web_fixture import serving
from tests.support import git_run, wait_until
from tests.world import World


def test_a_filter_that_an_agent_configured_does_not_run_for_a_diff(world: World) -> None:
    with world.open() as swarm, serving(world.settings, swarm) as web:
        work = world.work(swarm, "say ready")
        path, ran = Path(work.worktree_path), world.repo.parent / "ran"
        (path / ".gitattributes").write_text("* filter=slow\n")
        git_run(path, "config", "filter.slow.clean", f"touch '{ran}'; sleep 300")
        git_run(path, "config", "filter.slow.required", "true")
        tracked = git_run(path, "ls-files").splitlines()[0]
        (path / tracked).write_text("changed\n")
        answer = web.get(f"/api/v1/instances/{work.id}/diff")
        assert tracked in [one["path"] for one in answer.result["files"]]
        assert not ran.exists()


@contextlib.contextmanager
def hanging_git(folder: Path) -> Iterator[Path]:
    """A git on PATH that says it was started, and then nothing."""
    began, program = folder / "began", folder / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch '{began}'\nsleep 300\n")
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        yield began


def test_when_git_hangs_diffs_are_refused_and_everything_else_is_answered(world: World, tmp_path: Path) -> None:
    with world.open() as swarm:
        work = world.work(swarm, "say ready")
        with serving(world.settings, swarm) as web, hanging_git(tmp_path) as hangs, ThreadPoolExecutor(12) as pool:
            asked = [pool.submit(web.get, f"/api/v1/instances/{work.id}/diff") for _ in range(12)]
            wait_until(hangs.exists, what="git hangs")
            for page in ("/health", "/api/v1/instances", "/api/v1/snapshot", "/api/v1/events"):
                assert web.get(page).status == 200, page
            codes = sorted(one.result(60).code for one in asked)
            assert set(codes) == {"QUEUE_OVERLOADED", "TIMED_OUT"}, codes
            assert all(one.result().json["error"]["recovery_hint"] for one in asked)
        with serving(world.settings, swarm) as web:
            assert web.get(f"/api/v1/instances/{work.id}/diff").status == 200


def test_a_huge_diff_is_cut_while_it_is_read(world: World) -> None:
    with world.open() as swarm:
        work = world.work(swarm, "say ready")
        path = Path(work.worktree_path)
        with (path / "huge.txt").open("w") as file:
            for _ in range(100):
                file.write("x" * 999_999 + "\n")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        text = git.diff(path, work.base_commit, max_bytes=100_000)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert len(text) <= 100_200
        assert "diff cut" in text
        assert grown < 50_000  # kilobytes, of a hundred thousand
