"""What an agent does to its worktree, seen from the dashboard: its diffs may fail, everybody else is answered."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from swarm_core.ops import links
from swarm_ui.web import openapi
from tests.integration.merge_fixture import proposed
from tests.integration.web_fixture import Answer, Web, dashboard_process, serving
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


# What each action must be given to get as far as its check.
_BODIES = {
    "/search": {"query": "ready"},
    "/search/stream": {"query": "ready"},
    "/api/v1/client-errors": {"message": "oops"},
    "/api/v1/instances/{id}/answer": {"digest": "0" * 12, "choice": 1},
    "/api/v1/instances/{id}/budget": {"usd": 1.0},
    "/api/v1/instances/{id}/feedback": {"body": "well", "feedback_type": "suggestions"},
    "/api/v1/instances/{id}/keys": {"keys": ["Escape"]},
    "/api/v1/instances/{id}/message": {"body": "hello"},
    "/api/v1/instances/{id}/rescope": {"task": "less"},
}
_STREAM = "/api/v1/stream"  # it does not end by itself
_OPERATIONS = [(e.method, e.path) for e in (*openapi.endpoints(), *openapi.streams()) if e.path != _STREAM]


def ask(web: Web, world: World, instance_id: str, method: str, path: str) -> Answer:
    """Ask for one of the operations, about an instance that has a pull request in the queue."""
    where = path.replace("{id}", f"{instance_id}:x" if "/inbox/" in path else instance_id)
    if method == "GET":
        return web.get(where + (f"?repo={quote(str(world.repo))}" if path == "/api/v1/issues" else ""))
    spawned = {"repo": str(world.repo), "prompt": "say ready"}
    return web.post(where, spawned if path == "/api/v1/instances" else _BODIES.get(path, {}))


def test_nothing_starts_a_program_on_the_threads_that_all_requests_share(world: World) -> None:
    """Doing so is a bug, and answered as one."""
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        swarm.pulls.enqueue(work.id)
        live = world.work(swarm, "say ready")
        with serving(world.settings, swarm) as web:
            asked = [(method, path, one.id) for method, path in _OPERATIONS for one in (work, live)]
            found = [one for one in asked if b"a bug in swarm" in ask(web, world, one[2], *one[:2]).body]
            assert not found


@pytest.mark.parametrize("asks", ["GET", "POST"])
def test_when_git_hangs_no_operation_keeps_other_requests_waiting(world: World, tmp_path: Path, asks: str) -> None:
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        swarm.pulls.enqueue(work.id)
        operations = [(method, path) for method, path in _OPERATIONS if method == asks]
        with (
            serving(world.settings, swarm) as web,
            hanging_git(tmp_path) as hangs,
            ThreadPoolExecutor(400) as pool,
        ):
            for method, path in operations:
                began = time.monotonic()
                for _ in range(9):
                    pool.submit(ask, web, world, work.id, method, path)
                assert web.get("/health", Authorization=None).status == 200
                assert web.get("/api/v1/instances").status == 200
                token = links.make(swarm.context, may_write=False, name="", hours=None).token
                assert web.get(f"/?token={token}", Authorization=None).status == 303
                assert time.monotonic() - began < 8, f"{method} {path} keeps others waiting"
            assert hangs.exists()


def test_while_git_hangs_an_agent_can_be_stopped(world: World, tmp_path: Path) -> None:
    """What would be taken away is not known then, and whoever confirms it is told so."""
    with world.open() as swarm:
        work = world.work(swarm, "say ready")
        where = f"/api/v1/instances/{work.id}/stop"
        with serving(world.settings, swarm) as web, hanging_git(tmp_path) as hangs, ThreadPoolExecutor(12) as pool:
            for _ in range(12):
                pool.submit(web.get, f"/api/v1/instances/{work.id}/diff")
            wait_until(hangs.exists, what="git hangs")
            unconfirmed = web.post(where)
            assert (unconfirmed.status, unconfirmed.code) == (409, "CONFIRM_NEEDED")
            assert unconfirmed.json["error"]["details"]["leftovers"] is None
            began = time.monotonic()
            assert web.post(where, {"confirm": True}).result["action"]["state"] == "accepted"
            assert time.monotonic() - began < 5


def memory(pid: int, name: str) -> int:
    """In kilobytes: VmRSS is what a process has now, VmHWM the most it ever had."""
    found = re.search(rf"^{name}:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="only Linux tells the memory of a process this way"
)
def test_a_huge_diff_is_cut_while_it_is_read(world: World) -> None:
    with world.open() as swarm, dashboard_process(world) as card:
        token = swarm.ensure_operator_token().read_text().strip()
        work = world.work(swarm, "say ready")

        def show() -> dict[str, Any]:
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", card.port, timeout=60)) as connection:
                where = f"/api/v1/instances/{work.id}/diff"
                connection.request("GET", where, headers={"Authorization": f"Bearer {token}"})
                answer = connection.getresponse()
                told: dict[str, Any] = json.loads(answer.read())
                assert answer.status == 200, told
                return told["result"]  # type: ignore[no-any-return]

        assert show()["cut"] is False
        before = memory(card.pid, "VmRSS")
        with (Path(work.worktree_path) / "huge.txt").open("w") as file:
            for _ in range(300):
                file.write("x" * 999_999 + "\n")
        assert show()["cut"] is True
        assert memory(card.pid, "VmHWM") - before < 100_000  # of three hundred thousand
