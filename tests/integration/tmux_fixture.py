"""A real tmux server of a test's own, and small programs to run in it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from swarm_core.tmux import conf, panes
from swarm_core.tmux.panes import Pane
from swarm_core.tmux.sessions import Tmux
from tests.support import wait_until

RAW_RECEIVER = """
import os, sys, tty
tty.setraw(0)
sink = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(1, sys.argv[2].encode() + b"ready")
while data := os.read(0, 65536):
    os.write(sink, data)
"""


@dataclass(frozen=True)
class Server:
    tmux: Tmux
    socket: Path
    config: Path
    folder: Path

    def start(self, name: str, *argv: str, epoch: int = 1, cwd: Path | None = None) -> Pane:
        return self.tmux.new_session(
            name, cwd=cwd or self.folder, argv=argv, epoch=epoch, start_environment=start_environment()
        )

    def python(self, name: str, code: str, *args: str) -> Pane:
        return self.start(name, sys.executable, "-c", code, *args)

    def receiver(self, name: str, *, bracketed: bool = True) -> Path:
        """A program that writes every byte of its input to the returned file."""
        sink = self.folder / f"{name}.bytes"
        self.python(name, RAW_RECEIVER, str(sink), "\x1b[?2004h" if bracketed else "")
        self.until_shows(name, "ready")
        return sink

    def pane(self, name: str) -> Pane:
        return panes.by_instance(panes.list_panes(self.socket))[name]

    def until_dead(self, name: str) -> Pane:
        def ended() -> Pane | None:
            pane = self.pane(name)
            known = pane.exit_code is not None or pane.exit_signal is not None
            return pane if pane.dead and known else None

        pane = wait_until(ended, what=f"{name} ends")
        assert isinstance(pane, Pane)
        return pane

    def until_shows(self, name: str, text: str) -> None:
        wait_until(lambda: text in self.tmux.capture(name), what=f"{name} shows {text!r}")


@contextlib.contextmanager
def tmux_server(folder: Path) -> Iterator[Server]:
    config = folder / "tmux.conf"
    conf.write_config(config, history_limit=1000)
    socket = folder / "s"
    tmux = Tmux(socket, config)
    try:
        yield Server(tmux, socket, config, folder)
    finally:
        tmux.kill_server()


def start_environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "LANG": "C.UTF-8"}


def in_time(pids: Sequence[int]) -> bool:
    """Whether none of the processes runs any more."""
    return not any(_runs(pid) for pid in pids)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
