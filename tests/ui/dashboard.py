"""The dashboard as its own process on a free port, with a home and a tmux server of its own."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from swarm_core import process
from swarm_core.ops import links
from swarm_core.store.database import Database, open_database
from swarm_core.tmux.conf import write_config
from swarm_core.tmux.sessions import Tmux
from tests.support import git_run, wait_until
from tests.ui import seed
from tests.world import World

_CHANGED = """\
from steps import STEPS


def checkout(basket):
    for step in STEPS:
        print(f"{step}: {len(basket)} lines")
"""


@dataclass
class Dashboard:
    """`kill` and `start` are a crash and a restart on the same port, as the page sees them."""

    world: World
    folder: Path
    port: int = 0
    child: subprocess.Popen[bytes] | None = None
    starts: int = 0

    def start(self, **environ: str) -> None:
        self.starts += 1
        argv = [sys.executable, "-P", "-m", "swarm_ui.web"]
        given = self.world.environ | {"SWARM_UI_PORT": str(self.port)} | environ
        with self.log.open("wb") as sink:
            self.child = subprocess.Popen(argv, env=given, stdout=subprocess.DEVNULL, stderr=sink)

        def listens() -> int:
            assert self.child is not None
            assert self.child.poll() is None, self.log.read_text()[-3000:]
            card = process.running(self.world.settings, process.DASHBOARD)
            return card.port if card and card.pid == self.child.pid else 0

        self.port = int(wait_until(listens, timeout=30, what="the dashboard listens"))

    @property
    def log(self) -> Path:
        return self.folder / f"dashboard-{self.starts}.log"

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.child is not None
        return self.child.pid

    def link(self, *, read_only: bool = False, name: str = "") -> str:
        """A link as `swarm link` makes it."""
        with self.world.open() as swarm:
            made = links.make(swarm.context, may_write=not read_only, name=name)
        return f"{self.base}/?token={made.token}"

    @property
    def token(self) -> str:
        """The operator's, made when there is none."""
        with self.world.open() as swarm:
            return swarm.ensure_operator_token().read_text().strip()

    def kill(self) -> None:
        assert self.child is not None
        self.child.send_signal(signal.SIGKILL)
        self.child.wait(20)

    def stop(self) -> int:
        assert self.child is not None
        self.child.terminate()
        return self.child.wait(30)

    def end(self) -> None:
        """End it and its tmux server, whose end clients that a killed dashboard left behind would hold up."""
        if self.child is not None and self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(10)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait(20)
        self.world.kill_tmux()
        socket = os.fsencode(self.world.settings.tmux_socket)
        for found in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if socket in found.read_bytes().split(b"\0"):
                    os.kill(int(found.parent.name), signal.SIGKILL)

    @contextlib.contextmanager
    def db(self) -> Iterator[Database]:
        """What another process sees."""
        db = open_database(self.world.settings.database_path)
        try:
            yield db
        finally:
            db.close()

    @contextlib.contextmanager
    def seeding(self) -> Iterator[seed.Seed]:
        with seed.seeding(self.world.settings.database_path) as made:
            yield made

    def town(self, *, hostile: bool = False) -> seed.Town:
        """Write the whole town; the agent at work has a real worktree with changes in it."""
        repo, name = self.world.repo, seed.Town().running
        path = self.folder / "worktrees" / name
        git_run(repo, "worktree", "add", "-q", "-b", f"swarm/{name}", str(path))
        place = {"worktree_path": str(path), "base_commit": git_run(repo, "rev-parse", "main")}
        (path / "src" / "app.py").write_text(_CHANGED)
        (path / "src" / "steps.py").write_text("STEPS = ('address', 'delivery', 'payment', 'review')\n")
        git_run(path, "add", "-A")
        git_run(path, "commit", "-q", "-m", "Split the checkout into steps")
        place["head_commit"] = git_run(path, "rev-parse", "HEAD")
        (path / "README.md").write_text("# A shop\n\nThe checkout has four steps.\n")
        with self.seeding() as seeding:
            seeding.shop, seeding.places = str(repo), {name: place}
            return seed.fill(seeding, hostile=hostile)

    def session(self, name: str, script: str = "", *, cols: int = 100, rows: int = 30) -> None:
        """A real session of the instance, in which a small shell program runs and then what is typed is shown."""
        settings = self.world.settings
        write_config(settings.tmux_config)
        tmux = Tmux(settings.tmux_socket, settings.tmux_config)
        folder = self.folder / "sessions"
        folder.mkdir(exist_ok=True)
        argv = ["sh", "-c", script or "exec cat"]
        tmux.new_session(name, cwd=folder, argv=argv, epoch=1, start_environment=os.environ)
        self.tmux("resize-window", "-t", f"={name}:", "-x", str(cols), "-y", str(rows))

    def tmux(self, *words: str) -> str:
        socket = str(self.world.settings.tmux_socket)
        done = subprocess.run(["tmux", "-S", socket, *words], capture_output=True, check=False, timeout=20)
        assert done.returncode == 0, f"{shlex.join(words)}: {done.stderr.decode()}"
        return done.stdout.decode(errors="replace")

    def screen(self, name: str) -> str:
        """What its pane shows; nothing when it has none."""
        panes = self.tmux("list-sessions", "-F", "#{session_name}").splitlines()
        return self.tmux("capture-pane", "-p", "-t", f"={name}:") if name in panes else ""

    def type(self, name: str, text: str) -> None:
        """As the agent's program writes: `cat` shows what is typed."""
        self.tmux("send-keys", "-t", f"={name}:", "-l", text)

    def memory(self) -> int:
        """Bytes of memory that the process has of its own and shares."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")
