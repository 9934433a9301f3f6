"""Indexes a database for search in a process of its own.

python -m tests.fakes.catch_up DATABASE [STATEMENT NUMBER]

With a STATEMENT it kills itself with SIGKILL before SQLite runs the one of that NUMBER that begins so.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from swarm_core.store import search
from swarm_core.store.database import open_database


def main(path: str, statement: str = "", number: str = "0") -> None:
    db = open_database(Path(path), busy_timeout=30)
    print("ready", flush=True)
    sys.stdin.readline()
    seen = 0

    def before(sql: str) -> None:
        nonlocal seen
        seen += sql.startswith(statement)
        if seen == int(number):
            os.kill(os.getpid(), signal.SIGKILL)

    if statement:
        db._connection.set_trace_callback(before)
    print(search.catch_up(db), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
