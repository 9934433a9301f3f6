"""The real coordinator, with its worker, or stdio server, that kills itself with SIGKILL in the middle of a call.

python -m tests.fakes.crash_coordinator FOLDER [--stdio]

Each checkpoint that a call passes is a line in FOLDER/passed. At the one that FOLDER/kill names the process dies.
While FOLDER/hold exists, the first call that comes to a checkpoint, or to the one that the file names, is a line
in FOLDER/held and waits there until the file is gone; the others go on. Nobody waits inside a transaction, which
would stop them all.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from swarm_core import config
from swarm_mcp import coordinator, pipe

_SUPERVISING = ("supervise", "chores")
_IN_A_TRANSACTION = ":recording"
_HELD_AT_MOST = 100.0


class Control:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server = os.getpid()
        self._lock = threading.Lock()
        self._held: set[str] = set()

    def checkpoint(self, name: str) -> None:
        if threading.current_thread().name in _SUPERVISING:
            return
        self._tell("passed", name)
        if self._said("kill") == name:
            os.kill(self._server, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)  # in the worker: it must not come further until it notices
        if self._said("hold") in ("", name) and not name.endswith(_IN_A_TRANSACTION) and self._is_first(name):
            self._wait(name)

    def _is_first(self, name: str) -> bool:
        with self._lock:
            known = name in self._held
            self._held.add(name)
        return not known

    def _wait(self, name: str) -> None:
        self._tell("held", name)
        deadline = time.monotonic() + _HELD_AT_MOST
        while self._said("hold") is not None and time.monotonic() < deadline:
            time.sleep(0.01)

    def _tell(self, file: str, name: str) -> None:
        with (self._folder / file).open("a") as said:
            said.write(f"{name}\n")

    def _said(self, file: str) -> str | None:
        try:
            return (self._folder / file).read_text()
        except FileNotFoundError:
            return None


def main(folder: Path, *, stdio: bool) -> None:
    serve = pipe.run if stdio else coordinator.run
    serve(config.load(os.environ), os.environ, checkpoint=Control(folder).checkpoint)


if __name__ == "__main__":
    main(Path(sys.argv[1]), stdio="--stdio" in sys.argv)
