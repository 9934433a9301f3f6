"""A coordinator whose git and tmux fail on command, and what must hold of it after every failure."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from swarm_core.models import Instance
from swarm_core.store import actions
from tests.integration.mcp_fixture import Coordinated
from tests.integration.review_fixture import finished_work
from tests.integration.test_store import exclusively_locked
from tests.mcp_client import Answer, Client
from tests.support import make_repo, wait_until
from tests.world import World, assert_agreement

# Threads beside those of tools: the loop, the two of supervision, and what asyncio keeps for small things.
_OTHER_THREADS = 3 + min(32, (os.cpu_count() or 1) + 4)
_WRAPPER = """#!/bin/sh
mode='{folder}/{name}.mode'
if [ -e "$mode" ]; then
    read -r how word < "$mode"
    case " $* " in *"$word"*)
        if [ "$how" = hang ]; then
            echo $$ > '{folder}/{name}.hangs'
            while [ -e "$mode" ]; do sleep 0.05; done
        else
            echo "fatal: told to fail in $PWD, see '{folder}/my home (é)/log':/usr/lib/{name}-core" >&2
            exit 128
        fi
    esac
fi
exec '{program}' "$@"
"""


class Broken:
    """Its folders have names that are hard to recognise as paths in a text."""

    def __init__(self, folder: Path, **settings: float) -> None:
        self.folder = folder
        self.world = World(folder / "my home (é)", make_repo(folder / "re po, [ü]"))
        self.mcp = Coordinated(self.world, folder)
        self.settings: dict[str, float] = {"busy_timeout": 0.4, "queue_max": 8, **settings}
        self.called = 0

    def start(self, **environ: str) -> None:
        self.world.home.mkdir(exist_ok=True)
        text = "".join(f"{name} = {value}\n" for name, value in self.settings.items())
        (self.world.home / "config.toml").write_text(text)
        programs = self.folder / "bin"
        programs.mkdir(exist_ok=True)
        for name in ("git", "tmux"):
            wrapper = _WRAPPER.format(folder=self.folder, name=name, program=shutil.which(name))
            (programs / name).write_text(wrapper)
            (programs / name).chmod(0o755)
        self.mcp.start(PATH=f"{programs}{os.pathsep}{os.environ['PATH']}", **environ)

    def work(self, prompt: str = "say ready", **options: Any) -> Instance:
        with self.mcp.swarm() as swarm:
            return finished_work(self.world, swarm, prompt, **options)

    def find(self, instance: Instance | str) -> Instance:
        with self.mcp.swarm() as swarm:
            return swarm.find(instance if isinstance(instance, str) else instance.id)

    @contextlib.contextmanager
    def failing(self, program: str, word: str = "") -> Iterator[None]:
        """Calls of the program fail that have the word among their arguments."""
        with self._mode(program, f"fail {word}"):
            yield

    @contextlib.contextmanager
    def hanging(self, program: str, word: str = "") -> Iterator[Path]:
        """They wait until the end of the block, then go on; the file has the pid of the last one that does."""
        hangs = self.folder / f"{program}.hangs"
        hangs.unlink(missing_ok=True)
        with self._mode(program, f"hang {word}"):
            yield hangs

    @contextlib.contextmanager
    def _mode(self, program: str, text: str) -> Iterator[None]:
        mode = self.folder / f"{program}.mode"
        mode.write_text(f"{text}\n")
        try:
            yield
        finally:
            mode.unlink()

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Another process has the database."""
        return exclusively_locked(self.world.settings.database_path)

    # Calling

    def call(self, client: Client, tool: str, meta: dict[str, Any] | None = None, **arguments: Any) -> Answer:
        self.called += 1
        return client.call(tool, meta, **arguments)

    def fails(self, client: Client, tool: str, *codes: str, category: str, **arguments: Any) -> dict[str, Any]:
        """The call ends in a tool error that says what it is and nothing about this machine."""
        return self.check_failure(self.call(client, tool, **arguments), *codes, category=category)

    def check_failure(self, answer: Answer, *codes: str, category: str) -> dict[str, Any]:
        error: dict[str, Any] = answer.payload["error"]
        assert answer.result["isError"]
        assert (error["code"] in codes, error["category"]) == (True, category), error
        assert error["message"]
        told = json.dumps(answer.payload, ensure_ascii=False)
        secrets = [str(self.folder), self.world.home.name, self.world.repo.name, sys.prefix, "/usr/", "Traceback"]
        assert [secret for secret in secrets if secret in told] == []
        return error

    def settled(self) -> None:
        """Everything is as recorded, nothing is left over, and everybody is served."""
        self._serves()
        with self.mcp.swarm() as swarm:
            wait_until(lambda: not actions.all_open(swarm.context.db), timeout=30, what="no open action")
            assert_agreement(self.world, swarm)
            assert swarm.context.db.check() == []
        wait_until(lambda: self._health()["ok"], timeout=30, what="it is healthy")
        wait_until(lambda: len(self.calls()) == self.called, what="every call is an event")
        most = int(self.settings["queue_max"]) + _OTHER_THREADS
        wait_until(lambda: len(list(self._proc("task").iterdir())) <= most, what="no thread is left over")
        wait_until(lambda: not self._leftovers(), what="no child is left over")
        for line in self.mcp.log.read_text().splitlines():
            assert "traceback" not in json.loads(line), line

    def calls(self) -> list[str | None]:
        return [e.error_code for e in self.mcp.events() if e.name in ("tool:called", "tool:denied")]

    def _serves(self) -> None:
        """64 calls, eight at a time."""

        def ask(_: int) -> None:
            with contextlib.closing(self.mcp.client(self.mcp.operator_token)) as client:
                for n in range(8):
                    assert client.call("search", query="x").ok if n % 2 else client.call("query_instances").ok

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(ask, range(8)))
        self.called += 64

    def _health(self) -> dict[str, Any]:
        client = self.mcp.client(None, initialize=False)
        return client.post(b"", "/health", "GET").message

    def _proc(self, name: str) -> Path:
        assert self.mcp.child is not None
        return Path(f"/proc/{self.mcp.child.pid}/{name}")

    def _leftovers(self) -> list[str]:
        """Children that are dead or should be."""
        found = []
        for pid in self._proc(f"task/{self.mcp.child.pid}/children").read_text().split():  # type: ignore[union-attr]
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{pid}/stat").read_text()
                name, state = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2]
                if state == "Z" or name in ("git", "sleep"):
                    found.append(stat)
        return found

    def end(self) -> None:
        self.mcp.end()
        self.world.kill_tmux()


@pytest.fixture
def broken(short_tmp: Path) -> Iterator[Broken]:
    """It is started."""
    made = Broken(short_tmp)
    made.start()
    yield made
    made.end()


@pytest.fixture
def unstarted(short_tmp: Path) -> Iterator[Broken]:
    """For tests that choose settings."""
    made = Broken(short_tmp)
    yield made
    made.end()
