"""What every operation needs: the database, the hosts, the settings."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from swarm_core import locks
from swarm_core.agents.base import Usage
from swarm_core.config import Settings
from swarm_core.hosts.base import Host, Place, Talk
from swarm_core.hosts.pool import HostPool
from swarm_core.models import Instance
from swarm_core.store.database import Database

Report = Callable[[str], None]


def _silent(_: str) -> None:
    return


def nothing(_: object) -> None:
    """For whoever does not need to be told inside the transaction of an effect."""


@dataclass(slots=True)
class Shelf:
    """What was read of one agent's own log and is not written down yet; only for whoever holds the lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    received: set[str] = field(default_factory=set)
    used: dict[str, Usage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Context:
    """`report` hears what is being done, for a person who waits; `checkpoint` is told of every step.

    `typed` has by instance and person when typing was last told of, and how many keys are not told of yet.
    """

    db: Database
    settings: Settings
    hosts: HostPool
    report: Report = _silent
    checkpoint: Report = field(default=_silent)
    shelves: dict[str, Shelf] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    typed: dict[tuple[str, str], tuple[float, int]] = field(default_factory=dict)

    def host(self, instance: Instance) -> Host:
        return self.hosts.get(instance.host)

    def shelf(self, instance_id: str) -> Shelf:
        """As the hosts do, all connections of a process share what was read."""
        return self.shelves.setdefault(instance_id, Shelf())

    @contextlib.contextmanager
    def lock(self, instance_id: str, *, timeout: float | None = None) -> Iterator[int]:
        """Alone with one instance among all processes; programs started meanwhile keep it until they end."""
        wait = self.settings.number("lock_timeout") if timeout is None else timeout
        with locks.hold(self.settings.locks / f"{instance_id}.lock", timeout=wait) as fd:
            yield fd


def talk(instance: Instance) -> Talk:
    return {
        "instance_id": instance.id,
        "agent": instance.agent,
        "worktree_path": instance.worktree_path,
        "conversation_id": instance.conversation_id,
    }


def place(instance: Instance) -> Place:
    return {
        "instance_id": instance.id,
        "repo_path": instance.repo_path,
        "worktree_path": instance.worktree_path,
        "branch": instance.branch,
        "base_commit": instance.base_commit,
    }
