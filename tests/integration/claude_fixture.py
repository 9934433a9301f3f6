"""The real Claude Code with a scripted model, started by swarm in tmux: nothing but the model is a stand-in."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from swarm_core.models import Instance
from swarm_core.swarm import Swarm
from tests.fakes.messages_api import MessagesApi, Play, Script
from tests.integration.mcp_fixture import Coordinated
from tests.support import wait_until
from tests.world import World

PROGRAM_VARIABLE = "SWARM_TEST_CLAUDE"
INSTALLED = Path(sys.prefix) / "npm" / "node_modules" / ".bin" / "claude"
API_KEY = "dummy-key-for-the-stand-in-0123456789"
_QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
}
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def find_program() -> Path | None:
    """The program the person names, else the one that `make setup` installed."""
    named = os.environ.get(PROGRAM_VARIABLE)
    found = Path(named) if named else INSTALLED
    return found.absolute() if found.exists() else None


@pytest.fixture(scope="session")
def claude_program() -> Path:
    """Found before the test's environment is emptied, which a fixture of the session is."""
    found = find_program()
    if found is None:
        said = f"Claude Code is not installed at {INSTALLED} and {PROGRAM_VARIABLE} names no program"
        if os.environ.get("CI"):
            pytest.fail(said)
        pytest.skip(said)
    return found


@dataclass
class ClaudeHome:
    """A person's home with a signed-in Claude Code that has nothing left to ask."""

    folder: Path
    program: Path
    api_url: str

    @property
    def config(self) -> Path:
        return self.folder / "claude-config"

    def write(self, *trusted: Path, **more: Any) -> None:
        """Make it; `trusted` are repositories it works in without asking, `more` goes into .claude.json."""
        self.config.mkdir(parents=True, exist_ok=True)
        known = {
            "hasCompletedOnboarding": True,
            "customApiKeyResponses": {"approved": [API_KEY[-20:]], "rejected": []},
            "projects": {os.path.realpath(repo): {"hasTrustDialogAccepted": True} for repo in trusted},
        }
        (self.config / ".claude.json").write_text(json.dumps(known | more, indent=2))
        programs = self.folder / "bin"
        programs.mkdir(exist_ok=True)
        (programs / "claude").unlink(missing_ok=True)
        (programs / "claude").symlink_to(self.program)

    @property
    def environ(self) -> dict[str, str]:
        """To be laid over an environment without proxies and without variables of another Claude Code."""
        return {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.folder),
            "CLAUDE_CONFIG_DIR": str(self.config),
            "ANTHROPIC_BASE_URL": self.api_url,
            "ANTHROPIC_API_KEY": API_KEY,
            "NO_PROXY": "127.0.0.1,localhost",
        } | _QUIET

    def sessions(self) -> list[dict[str, Any]]:
        """What each running program says of itself."""
        found = []
        for path in sorted(self.config.glob("sessions/*.json")):
            try:
                found.append(json.loads(path.read_text()))
            except (ValueError, FileNotFoundError):
                continue  # being written, or ended meanwhile
        return found

    def transcript(self, conversation_id: str, cwd: str | Path) -> list[dict[str, Any]]:
        """The conversation as the program keeps it; empty when there is none yet."""
        path = self.transcript_path(conversation_id, cwd)
        if not path.exists():
            return []
        whole = path.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines() if line]

    def transcript_path(self, conversation_id: str, cwd: str | Path) -> Path:
        folder = re.sub(r"[^A-Za-z0-9]", "-", os.path.realpath(cwd))
        return self.config / "projects" / folder / f"{conversation_id}.jsonl"


@dataclass
class ClaudeWorld:
    """A coordinator, a scripted model and the real program between them."""

    mcp: Coordinated
    api: MessagesApi
    home: ClaudeHome

    @property
    def world(self) -> World:
        return self.mcp.world

    def play(self, script: Script) -> None:
        """What the model does from now on."""
        self.api.script = script

    def work(self, swarm: Swarm, prompt: str, **options: Any) -> Instance:
        return swarm.work(prompt, repo=str(self.world.repo), agent="claude", **options)[0]

    def find(self, instance: Instance | str) -> Instance:
        """The instance as the database has it now."""
        with self.world.open() as swarm:
            return swarm.find(instance if isinstance(instance, str) else instance.id)

    def wait_activity(self, instance: Instance, *activities: str, timeout: float = 30.0) -> Instance:
        """Until the coordinator has it down as one of the activities."""
        with self.world.open() as swarm:
            seen: list[str] = []

            def reached() -> Instance | None:
                found = swarm.find(instance.id)
                if seen[-1:] != [found.activity]:
                    seen.append(found.activity)
                return found if found.activity in activities else None

            found = wait_until(reached, timeout=timeout, what=f"{instance.id} {activities}")
        assert isinstance(found, Instance)
        return found

    def transcript(self, instance: Instance) -> list[dict[str, Any]]:
        return self.home.transcript(instance.conversation_id, instance.worktree_path)

    def screen(self, instance: Instance) -> str:
        with self.world.open() as swarm:
            return swarm.screen(swarm.find(instance.id))


@pytest.fixture
def messages() -> Iterator[MessagesApi]:
    """A model that says "ok" until the test gives it a play."""
    with MessagesApi(Play()) as api:
        yield api


@pytest.fixture
def claude_home(
    claude_program: Path, messages: MessagesApi, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ClaudeHome:
    """The environment of this test is that of a person who uses Claude Code in the repository."""
    home = ClaudeHome(tmp_path / "claude-home", claude_program, messages.url)
    home.write(repo)
    for name in _PROXIES:
        monkeypatch.delenv(name, raising=False)
    for name, value in home.environ.items():
        monkeypatch.setenv(name, value)
    return home


@pytest.fixture
def claude_world(
    claude_home: ClaudeHome, messages: MessagesApi, short_tmp: Path, repo: Path, tmp_path: Path
) -> Iterator[ClaudeWorld]:
    """Works in every folder of tests; `play` gives the model its part."""
    world = World(short_tmp / "h", repo)
    coordinated = Coordinated(world, tmp_path)
    try:
        coordinated.start()
        yield ClaudeWorld(coordinated, messages, claude_home)
    finally:
        coordinated.end()
        world.kill_tmux()
