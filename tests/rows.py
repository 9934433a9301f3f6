"""Rows written straight into a database, and read from it, for tests that need records and no agents."""

from __future__ import annotations

import dataclasses
from typing import Any

from swarm_core.models import Activity, Feedback, Instance, Kind, Message, Pull, Source, Status, Wanted
from swarm_core.store import feedback, hosts, instances, messages
from swarm_core.store.database import Database


def add_instance(db: Database, instance_id: str = "work-1-a1", **fields: Any) -> Instance:
    now = db.now()
    known: dict[str, Any] = {
        "kind": Kind.WORK,
        "status": Status.RUNNING,
        "wanted": Wanted.RUNNING,
        "host": "local",
        "epoch": 1,
        "repo_path": "/srv/shop",
        "worktree_path": f"/srv/worktrees/{instance_id}",
        "branch": f"work/{instance_id}",
        "base_branch": "main",
        "base_commit": "0" * 40,
        "tmux_session": instance_id,
        "agent": "scripted",
        "conversation_id": f"conversation-{instance_id}",
        "agent_number": 1,
        "activity": Activity.IDLE,
        "activity_source": Source.FILE,
        "activity_at": now,
        "created_at": now,
        "updated_at": now,
    }
    instance = Instance(id=instance_id, **(known | fields))
    with db.write():
        hosts.seen(db, "local")
        instances.insert(db, instance, actor="operator")
    return instance


def add_message(db: Database, body: str, *, to: str = "work-1-a1", sender: str = "operator") -> Message:
    with db.write():
        return messages.accept(db, to, sender=sender, body=body)


def add_feedback(db: Database, body: str, *, to: str = "work-1-a1", sender: str = "review-1-a1") -> Feedback:
    """Feedback and the message that carries it, in one transaction."""
    with db.write():
        message = messages.accept(db, to, sender=sender, body=body)
        said = Feedback(
            id=f"feedback-{message.id}",
            sender=sender,
            to_instance=to,
            relationship_id=None,
            feedback_type="needs_work",
            priority="high",
            body=body,
            file_path=f"feedback/{message.id}.md",
            message_id=message.id,
            reviewed_commit=None,
            head_commit=None,
            created_at=db.now(),
        )
        return feedback.insert(db, said)


def pulls_of(db: Database, instance_id: str) -> list[Pull]:
    """The pull requests of an instance's branch, oldest first."""
    names = ", ".join(f.name for f in dataclasses.fields(Pull))
    rows = db.rows(f"SELECT {names} FROM pulls WHERE instance_id = ? ORDER BY id", (instance_id,))
    return [Pull(*row) for row in rows]
