"""Several connections to one database in one process, beside other processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from swarm_core.store import events
from swarm_core.store.database import Database, open_database

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
