"""Many live instances at once: real agents, or rows with a cheap process in a real session each."""

from __future__ import annotations

import json
import os
from pathlib import Path

from benchmarks.ground import Home, wait_for
from swarm_core.models import Activity, Instance, Kind, Source, Status, Wanted
from swarm_core.store import hosts, instances
from swarm_core.swarm import COUNT_MAX, Swarm
from swarm_core.tmux.conf import write_config
from swarm_core.tmux.sessions import Tmux

_SCREEN = "\n".join(f"{n:3} some output of an agent at work, as it fills most of a line" for n in range(40))
_PROMPT = "Fix the login form: " + "the error message stays after the second attempt. " * 10


def stand_ins(home: Home, count: int, *, status_files: bool = True) -> list[str]:
    """Rows of running instances, each with a session in which `sleep` runs; all are as recorded.

    Without status files what the agents do can be seen on their screens alone.
    """
    settings = home.settings
    screen = settings.home / "screen.txt"
    with home.open() as swarm:
        names = rows(swarm, count)
        screen.write_text(f"{_SCREEN}\n❯ \n")
        write_config(settings.tmux_config)
        tmux = Tmux(settings.tmux_socket, settings.tmux_config)
        for name in names:
            worktree = settings.worktrees / "shop" / name
            worktree.mkdir(parents=True)
            folder = settings.instance_dir(name)
            folder.mkdir(parents=True)
            if status_files:
                (folder / "status.json").write_text(json.dumps({"activity": "idle", "detail": ""}))
            show = ["sh", "-c", 'cat "$0"; exec sleep 3600', str(screen)]
            tmux.new_session(name, cwd=worktree, argv=show, epoch=1, start_environment=os.environ)
    return names


def agents(home: Home, repo: Path, count: int) -> list[Instance]:
    """Real scripted agents that have done their work, with their changes counted."""
    with home.open() as swarm:
        for n in range(0, count, COUNT_MAX):
            swarm.work("say ready", repo=str(repo), agent="scripted", count=min(COUNT_MAX, count - n))
        wait_for(lambda: _all_idle(swarm), what="all agents idle", every=0.1)
        swarm.refresh_changes(count)
        return swarm.instances()


def _all_idle(swarm: Swarm) -> bool:
    swarm.reconcile()
    return all(i.activity == Activity.IDLE for i in swarm.instances())


def rows(swarm: Swarm, count: int) -> list[str]:
    """Records of running instances, without worktrees or sessions."""
    db, names = swarm.context.db, [f"work-{n}" for n in range(1, count + 1)]
    with db.write():
        hosts.seen(db, "local")
        for number, name in enumerate(names, 1):
            now = db.now()
            record = Instance(
                id=name,
                kind=Kind.WORK,
                status=Status.RUNNING,
                wanted=Wanted.RUNNING,
                host="local",
                epoch=1,
                repo_path="/srv/shop",
                worktree_path=str(swarm.context.settings.worktrees / "shop" / name),
                branch=f"swarm/{name}",
                base_branch="main",
                base_commit="0" * 40,
                head_commit="0" * 40,
                tmux_session=name,
                agent="scripted",
                conversation_id=f"conversation-{number}",
                agent_number=number,
                activity=Activity.IDLE,
                activity_source=Source.FILE,
                activity_at=now,
                created_at=now,
                updated_at=now,
                started_at=now,
                changes_at=now,
                files_changed=3,
                lines_added=number,
                lines_deleted=2,
                prompt=_PROMPT,
            )
            instances.insert(db, record, actor="operator")
    return names
