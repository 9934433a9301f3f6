"""The same with scripted agents in tmux: every operation is the real command, killed or raced at real moments."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from swarm_core import config
from tests.survival.inventory import Inventory
from tests.survival.moments import Outcome, session_members
from tests.survival.story import KILL, Step, Story
from tests.survival.world import World

LIMIT = 120.0
_PAUSE = 0.002
COMMANDS: dict[str, list[list[str]]] = {
    "spawn": [["work", "{script}", "--agent", "scripted"]],
    "attempts": [["work", "{script}", "--agent", "scripted", "--count", "2"]],
    "fork": [["fork", "{id}", "{script}"]],
    "stop": [["stop", "{id}"]],
    "restart": [["restart", "{id}"]],
    "clean": [["stop", "{id}"], ["clean", "--yes", "{id}"]],
    "clean_all": [["stop", "--all"], ["clean", "--yes"]],
    "restore": [["restore", "{id}"]],
    "abandon": [["abandon", "{id}"]],
    "pick": [["pick", "--yes", "{id}"]],
    "merge": [["pr", "open", "{id}"], ["pr", "merge", "{id}"]],
    "enqueue": [["pr", "open", "{id}"], ["pr", "queue", "{id}", "--run"]],
    "doctor": [["doctor", "--fix"]],
}


class TmuxWorld(World):
    def script(self) -> str:
        """What a new agent does; it saves every content once, as everybody here."""
        files = [self.text("agent").strip().replace(" ", "-") for _ in range(3)]
        lines = [f"write {name}.txt {name}\nwait 0.1" for name in files]
        return "\n".join([lines[0], f"commit {files[0]}", *lines[1:]])

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "swarm_ui.cli", *args]
        quiet = subprocess.DEVNULL
        env = self.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        return subprocess.Popen(
            argv, cwd=self.repo, env=env, stdin=quiet, stdout=quiet, stderr=subprocess.PIPE, start_new_session=True
        )

    def close(self) -> None:
        """End the agents: every one of them runs in the tmux server of this home."""
        socket = str(config.load(self.environ).tmux_socket)
        subprocess.run(["tmux", "-S", socket, "kill-server"], capture_output=True, check=False, timeout=LIMIT)


class Saver:
    """Saves files in a folder, one after the other, until it is stopped; `saved` are those that succeeded."""

    def __init__(self, world: World, folder: Path) -> None:
        self._world, self._folder = world, folder
        self.saved = Inventory()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._over.is_set():
            text = self._world.text("saved").encode()
            path = self._folder / f"{text.decode().strip()}.txt"
            with contextlib.suppress(OSError):
                path.write_bytes(text)
                oid = hashlib.sha1(b"blob %d\0" % len(text) + text).hexdigest()
                self.saved.kept[oid] = f"file {path.name!r}, saved meanwhile"
            time.sleep(_PAUSE)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join(LIMIT)


class FullStory(Story):
    world: TmuxWorld

    def evening(self, circumstances: Step, *, merging: bool) -> Iterator[Step]:
        yield {"move": "doctor"}
        if merging:
            yield {"move": "merge", "who": 0}
        yield {"move": "clean_all"} | circumstances

    def close(self) -> None:
        self.world.close()

    def _is_ours(self, move: str) -> bool:
        return move in COMMANDS

    def _run(self, step: Step, before: Inventory) -> tuple[Outcome, Inventory]:
        meanwhile = step.get("meanwhile", {})
        do = meanwhile.get("do")
        if do is None or do == KILL:
            return self._command(step, kill_after=meanwhile.get("after") if do else None), before
        if do["move"] == "save":
            return self._save_meanwhile(step, do, before)
        with self._second(do, meanwhile["after"]):
            return self._command(step), before

    def _save_meanwhile(self, step: Step, do: Step, before: Inventory) -> tuple[Outcome, Inventory]:
        folder = self.world.folder(do["who"])
        if folder is None:
            return self._command(step), before
        saver = Saver(self.world, folder)
        with saver.running():
            outcome = self._command(step)
        return outcome, Inventory(before.kept | saver.saved.kept, before.ignored)

    @contextlib.contextmanager
    def _second(self, step: Step, after: float) -> Iterator[None]:
        """Another command that begins a moment after the first."""
        timer = threading.Timer(after, self._command, (step,))
        timer.start()
        try:
            yield
        finally:
            timer.join(LIMIT)

    def _command(self, step: Step, kill_after: float | None = None) -> Outcome:
        row = self.world.row(step.get("who", 0))
        for words in COMMANDS[step["move"]]:
            if row is None and "{id}" in words:
                return Outcome("refused", "NO_INSTANCE")
            names = {"{id}": row.id if row else "", "{script}": ""}
            argv = [names.get(word, word) or self.world.script() for word in words]
            outcome = self._process(argv, kill_after if words is COMMANDS[step["move"]][-1] else None)
            if outcome.how not in ("done", "refused"):
                return outcome
        return outcome

    def _process(self, argv: list[str], kill_after: float | None) -> Outcome:
        process = self.world.start(*argv)
        try:
            _, said = process.communicate(timeout=kill_after or LIMIT)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.communicate(timeout=LIMIT)
            _wait_for_orphans(process.pid)
            return Outcome("killed") if kill_after else Outcome("hung", " ".join(argv))
        how = {0: "done", 1: "refused"}.get(process.returncode, "failed")
        return Outcome(how, said.decode(errors="replace").strip()[-300:])


def _wait_for_orphans(pid: int) -> None:
    deadline = time.monotonic() + LIMIT
    while session_members(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
