"""What is promised is on the disk before it is said."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from swarm_core.store import events
from swarm_core.store.database import Database
from swarm_mcp.loop import LoopStore
from tests.rows import add_instance
from tests.support import wait_until
from tests.world import World

_PROGRAM = """
import os, sys
from swarm_core import config
from swarm_core.swarm import Swarm
from swarm_core.store import actions, instances

with Swarm.open(config.load(os.environ), os.environ) as swarm:
    db = swarm.context.db
    def message(): swarm.message("work-1-a1", "a short one")
    def long_message(): swarm.message("work-1-a1", "with \\x07 a bell")
    def verdict(): swarm.send_feedback("work-1-a1", "please", feedback_type="suggestions")
    def token(): swarm.create_token("ci", ["read"])
    def operator_token(): swarm.ensure_operator_token()
    def intent():
        with db.write():
            actions.start(db, "work-1-a1", "stop", actor="operator")
    def status():
        with db.write():
            instances.set_fields(db, "work-1-a1", name="another")
    locals()[sys.argv[1]]()
    os.write(1, b"accepted")
"""


def test_a_commit_that_waits_for_the_disk_keeps_no_other_writer_waiting(world: World) -> None:
    with world.open() as swarm, contextlib.closing(LoopStore(world.settings, swarm.context.db)) as store:
        db = swarm.context.db
        with db._syncing, ThreadPoolExecutor(2) as pool:  # as while another sync takes its time
            told = [pool.submit(_tell, db, name) for name in ("first", "second")]
            wait_until(lambda: {"first", "second"} <= _told(store.db), what="both are committed")
            _tell(store.db, "third")
            assert not any(one.done() for one in told)
            db._syncing.release()
            try:
                wait([*told], timeout=10)
                assert all(one.done() for one in told)
            finally:
                db._syncing.acquire()


def _tell(db: Database, actor: str) -> None:
    with db.write():
        events.add(db, "tool:called", actor=actor)


def _told(db: Database) -> set[str]:
    return {row["actor"] for row in db.rows("SELECT actor FROM mcp_events")}


def _can_trace() -> bool:
    program = shutil.which("strace")
    return program is not None and subprocess.run([program, "-qq", "true"], capture_output=True).returncode == 0


def _calls(world: World, kind: str, log: Path) -> list[str]:
    """The writes and syncs of one promise, up to the moment it is said."""
    names = "trace=write,pwrite64,fsync,fdatasync,rename,renameat,renameat2"
    argv = ["strace", "-f", "-y", "-e", names, "-o", str(log), sys.executable, "-c", _PROGRAM, kind]
    done = subprocess.run(argv, env=world.environ, capture_output=True, timeout=60, check=False)
    assert done.stdout == b"accepted", done.stderr.decode()[-2000:]
    lines = log.read_text().splitlines()
    return lines[: next(n for n, line in enumerate(lines) if '"accepted"' in line)]


def _last(calls: list[str], pattern: str) -> int:
    return max((n for n, line in enumerate(calls) if re.search(pattern, line)), default=-1)


@pytest.mark.skipif(not _can_trace(), reason="strace is not installed or may not trace")
@pytest.mark.parametrize(
    "kind", ["message", "long_message", "verdict", "token", "operator_token", "intent", "status"]
)
def test_the_log_is_synced_after_its_last_write_and_before_the_answer(
    world: World, tmp_path: Path, kind: str
) -> None:
    with world.open() as swarm:
        add_instance(swarm.context.db)
    calls = _calls(world, kind, tmp_path / "trace")
    written = _last(calls, r"pwrite64\(\d+<[^>]*swarm\.db-wal>")
    assert -1 < written < _last(calls, r"f(data)?sync\(\d+<[^>]*swarm\.db-wal>")


@pytest.mark.skipif(not _can_trace(), reason="strace is not installed or may not trace")
@pytest.mark.parametrize(
    ("kind", "file"), [("long_message", r"messages/\S*\.md"), ("operator_token", "operator.token")]
)
def test_a_promised_file_and_its_name_are_synced_before_the_row_that_names_it(
    world: World, tmp_path: Path, kind: str, file: str
) -> None:
    with world.open() as swarm:
        add_instance(swarm.context.db)
    calls = _calls(world, kind, tmp_path / "trace")
    renamed = _last(calls, rf"rename.*{file}")
    assert -1 < _last(calls, r"fsync\(\d+<[^>]*\.new>") < renamed
    folder = _last(calls[: _last(calls, r"pwrite64\(\d+<[^>]*swarm\.db-wal>")], r"fsync\(\d+<[^>.]*>")
    assert folder > renamed
