"""Several connections to one database in one process, beside other processes."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from swarm_core.errors import SwarmError
from swarm_core.store import events
from swarm_core.store.database import Database, log_files, open_database
from tests.integration.test_mcp_log_size import times_begun_anew
from tests.integration.test_store import exclusively_locked
from tests.support import wait_until

_COUNT = """
import sys
from pathlib import Path
from swarm_core.store import events
from swarm_core.store.database import open_database
db = open_database(Path(sys.argv[1]))
print(len(events.newest(db)))
db.close()
"""


def counted_elsewhere(path: Path) -> int:
    done = subprocess.run([sys.executable, "-c", _COUNT, str(path)], capture_output=True, timeout=60, check=True)
    return int(done.stdout)


def write_one(db: Database) -> None:
    with db.write():
        events.add(db, "coordinator:started", actor="test")


def test_opening_a_second_connection_does_not_hide_the_firsts_rows_from_other_processes(tmp_path: Path) -> None:
    path = tmp_path / "swarm.db"
    first = open_database(path)
    write_one(first)
    second = open_database(path)
    assert counted_elsewhere(path) == 1
    write_one(first)
    assert counted_elsewhere(path) == 2
    write_one(second)
    assert counted_elsewhere(path) == 3
    second.close()
    write_one(first)
    assert counted_elsewhere(path) == 4
    first.close()
    assert counted_elsewhere(path) == 4


def test_threads_that_share_a_connection_wait_for_a_locked_file_together_and_read_meanwhile(
    tmp_path: Path,
) -> None:
    db = open_database(tmp_path / "swarm.db", busy_timeout=1.0)

    def refused() -> str:
        with pytest.raises(SwarmError) as failed:
            write_one(db)
        return failed.value.code

    with exclusively_locked(db.path), ThreadPoolExecutor(8) as threads:
        began = time.monotonic()
        waiting = [threads.submit(refused) for _ in range(8)]
        while not all(w.done() for w in waiting):
            asked = time.monotonic()
            assert events.newest(db) == []
            assert time.monotonic() - asked < 0.8
            time.sleep(0.01)
        assert {w.result() for w in waiting} == {"DATABASE_LOCKED"}
        assert 0.9 < time.monotonic() - began < 4
    write_one(db)
    assert len(events.newest(db)) == 1
    db.close()


def test_a_checkpoint_waits_for_the_transaction_of_another_thread(tmp_path: Path) -> None:
    db = open_database(tmp_path / "swarm.db")
    begun, end = threading.Event(), threading.Event()

    def write_slowly() -> None:
        with db.write():
            events.add(db, "coordinator:started", actor="test")
            begun.set()
            assert end.wait(30)

    with ThreadPoolExecutor(2) as threads:
        writing = threads.submit(write_slowly)
        assert begun.wait(30)
        moving = threads.submit(db.checkpoint)
        end.set()
        writing.result(30)
        moving.result(30)
    db.close()


def test_a_log_that_is_written_without_a_pause_begins_anew_at_each_checkpoint(tmp_path: Path) -> None:
    db = open_database(tmp_path / "swarm.db")
    log, end = log_files(db.path)[0], threading.Event()
    busy = open_database(db.path, synced=False, turn=db.turn)

    def write_on() -> None:
        while not end.is_set():
            write_one(busy)

    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write_on)
        try:
            wait_until(lambda: log.stat().st_size > 0, timeout=30, what="the first write")
            for _ in range(20):
                before = times_begun_anew(log)
                db.checkpoint()
                wait_until(lambda before=before: times_begun_anew(log) > before, timeout=10, what="a new log")
        finally:
            end.set()
        writing.result(30)
    busy.close()
    db.close()
