"""This machine without tmux: sessions are files, so that thousands of starts and stops cost nothing."""

from __future__ import annotations

import os
from pathlib import Path

from swarm_core.git import admin
from swarm_core.hosts.base import InstanceFacts, SessionFacts, StartOrder, Watched
from swarm_core.hosts.local import LocalHost


class QuietHost(LocalHost):
    """Everything about repositories and worktrees is the real host's."""

    @property
    def _folder(self) -> Path:
        folder = self._settings.home / "run" / "quiet"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def start(self, order: StartOrder) -> SessionFacts:
        (self._folder / order["instance_id"]).write_text(str(order["epoch"]))
        return _facts(order["instance_id"], order["epoch"])

    def stop(self, instance_id: str, *, grace: float) -> tuple[SessionFacts | None, str]:
        (self._folder / instance_id).unlink(missing_ok=True)
        return None, ""

    def sessions(self) -> list[SessionFacts]:
        return [_facts(path.name, int(path.read_text() or 0)) for path in sorted(self._folder.iterdir())]

    def foreign_sessions(self) -> list[str]:
        return []

    def snapshot(self, watched: list[Watched]) -> dict[str, InstanceFacts]:
        sessions = {facts["instance_id"]: facts for facts in self.sessions()}
        return {
            one["instance_id"]: {
                "session": sessions.get(one["instance_id"]),
                "worktree": Path(one["worktree_path"]).is_dir(),
                "link": _link_problem(Path(one["worktree_path"])),
                "reading": None,
            }
            for one in watched
        }

    def wait(self, timeout: float) -> frozenset[str]:
        return frozenset()

    def screen(self, instance_id: str, *, lines: int | None = None) -> str:
        return ""


def _facts(instance_id: str, epoch: int) -> SessionFacts:
    return {
        "instance_id": instance_id,
        "epoch": epoch,
        "pid": os.getpid(),
        "alive": True,
        "exit_code": None,
        "exit_signal": None,
    }


def _link_problem(path: Path) -> str:
    return admin.link_problem(path) if path.is_dir() else ""
