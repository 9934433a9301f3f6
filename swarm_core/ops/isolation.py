"""Agents change their own worktrees only: what a tool would write elsewhere is refused, and what was is reported.

A program that an agent runs may write anywhere, so the main checkout is also compared with what it was.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swarm_core.errors import SwarmError
from swarm_core.hosts.base import CheckoutFacts
from swarm_core.models import Activity, Instance, MessageKind, Wanted, as_json, parse_iso
from swarm_core.ops import places
from swarm_core.ops.attention import STRAYED
from swarm_core.ops.context import Context, place
from swarm_core.ops.pace import PAUSE_PER_COST, Pace
from swarm_core.store import checkouts, events, instances, messages
from swarm_core.store.database import Database

BEFORE, AFTER = "PreToolUse", "PostToolUse"
MAIN = ""
_WRITERS = {"Edit": "file_path", "MultiEdit": "file_path", "Write": "file_path", "NotebookEdit": "notebook_path"}
_LOOK_EVERY = 10.0
_UNWATCHED = 60.0
_MAY_WRITE = frozenset({Activity.BUSY, Activity.STARTING, Activity.UNKNOWN})
_ACTOR = "supervisor"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stray:
    """A file outside its agent's worktree: of the worktree of `owner`, or of the main checkout, which is MAIN."""

    path: str
    folder: str
    owner: str

    @property
    def name(self) -> str:
        return os.path.relpath(self.path, self.folder)

    @property
    def where(self) -> str:
        return f"the worktree of {self.owner}" if self.owner else "the main checkout"


def found_in(db: Database, instance: Instance, event: str, body: Mapping[str, Any]) -> Stray | None:
    """The file that a tool is about to write, or has written, where the agent may not."""
    path = _written(body) if event in (BEFORE, AFTER) else None
    if path is None or _is_inside(path, os.path.realpath(instance.worktree_path)):
        return None
    others = {owner: os.path.realpath(folder) for owner, folder in checkouts.worktrees(db).items()}
    return next(iter(stray(instance, others, [path], free=_free(instance))), None)


def stray(
    instance: Instance, others: Mapping[str, str], paths: Iterable[str], *, free: Sequence[str] = ()
) -> list[Stray]:
    """Which of the paths lie in the main checkout or in the worktree of another, by the innermost folder.

    `free` are folders where everybody may write. All paths are absolute and without links.
    """
    own = os.path.realpath(instance.worktree_path)
    folders = {os.path.realpath(instance.repo_path): MAIN} | {f: i for i, f in others.items() if i != instance.id}
    folders |= dict.fromkeys((*free, own), instance.id)
    found = []
    for path in paths:
        around = [folder for folder in folders if _is_inside(path, folder)]
        inmost = max(around, key=len, default=own)
        if folders[inmost] != instance.id:
            found.append(Stray(path, inmost, folders[inmost]))
    return found


def refusal(instance: Instance, found: Stray) -> str:
    """Why the agent may not write there, and where it may."""
    return (
        f"{places.printable(found.path)} is in {found.where}, and you may change files of your own worktree only."
        f" Yours is {instance.worktree_path}: the same file is"
        f" {places.printable(os.path.join(instance.worktree_path, found.name))}"  # noqa: PTH118  a host's path
    )


def record(db: Database, instance: Instance, found: Stray, *, tool: str, denied: bool) -> None:
    """Write down an attempt that was refused, or a file that was written all the same; within a transaction."""
    told: dict[str, Any] = {"path": found.path, "where": found.where, "owner": found.owner or None}
    if denied:
        events.add(
            db,
            "tool:denied",
            instance_id=instance.id,
            actor=instance.id,
            tool_name=tool,
            error_code="FORBIDDEN",
            error_message=f"{tool} in {found.where}",
            metadata=told | {"rule": "isolation"},
        )
        return
    facts, seen_at = checkouts.read(db, instance.repo_path)
    mine = as_json(found) | {"instance_id": instance.id}
    if mine in facts["strays"]:
        return
    facts["strays"].append(mine)
    checkouts.write(db, instance.repo_path, facts, seen_at=seen_at or db.now())
    told |= {"certain": True, "tool": tool, "files": [found.name]}
    events.add(db, "checkout:touched", instance_id=instance.id, actor=instance.id, metadata=told)
    _call_person(db, instance.id, facts)
    body = f"You have changed a file that is not yours. {refusal(instance, found)}. Take the change back there."
    messages.accept(db, instance.id, sender="swarm", body=body, kind=MessageKind.NOTICE)


class Watch:
    """One per database, in the coordinator: compares main checkouts with what they were while agents work."""

    def __init__(self, context: Context, *, pause_per_cost: float = PAUSE_PER_COST) -> None:
        self._context = context
        self._every = _LOOK_EVERY if pause_per_cost else 0.0
        self._pace = Pace(0.0, pause_per_cost=pause_per_cost)
        self._looked: dict[str, float] = {}
        self._left: set[str] = set()

    def look(self) -> None:
        """At the checkout that was not looked at for the longest time."""
        if not self._pace.is_due:
            return
        listed = instances.listed(self._context.db)
        running = [i for i in listed if i.wanted == Wanted.RUNNING and not i.ended]
        repos = {i.repo_path for i in running} | set(checkouts.with_strays(self._context.db))
        self._left |= self._looked.keys() - repos
        self._looked = {repo: at for repo, at in self._looked.items() if repo in repos}
        due = [r for r in sorted(repos) if time.monotonic() - self._looked.get(r, float("-inf")) >= self._every]
        if due:
            with self._pace.turn():
                repo = min(due, key=lambda r: self._looked.get(r, 0.0))
                self._looked[repo] = time.monotonic()
                self._look_at(repo, [i for i in listed if i.repo_path == repo])

    def _look_at(self, repo: str, here: list[Instance]) -> None:
        if not here:
            return
        try:
            now = self._context.host(here[0]).checkout_state(repo)
        except SwarmError as error:
            log.debug("the checkout %s cannot be looked at: %s", repo, error.message)
            return
        settled = self._settled(repo, here, now)
        db = self._context.db
        with db.write():
            facts, seen_at = checkouts.read(db, repo)
            # Whoever changed it while no agent was there, or for a long time, was none of those that are here now.
            watched = seen_at is not None and _seconds(seen_at, db.now()) <= self._gap and repo not in self._left
            self._left.discard(repo)
            news = changed(facts["seen"], now) if watched and facts["seen"] else {}
            self._tell(repo, news, facts, _at_work(here, seen_at or ""))
            over = {s["instance_id"] for s in facts["strays"] if s in settled}
            facts = {"seen": now, "strays": [s for s in facts["strays"] if s not in settled]}
            checkouts.write(db, repo, facts, seen_at=db.now())
            for instance_id in over:
                _call_person(db, instance_id, facts)

    @property
    def _gap(self) -> float:
        return max(_UNWATCHED, 3 * self._pace.pause)

    def _tell(self, repo: str, news: dict[str, Any], facts: dict[str, Any], at_work: list[str]) -> None:
        db = self._context.db
        known = {os.path.relpath(s["path"], repo) for s in facts["strays"] if s["owner"] == MAIN}
        if "files" in news:
            news["files"] = [name for name in news["files"] if name not in known]
        if "head" in news and checkouts.is_merge(db, repo, news["head"][1]):
            del news["head"]
        if at_work and any(news.values()):
            told = {"where": "the main checkout", "repo_path": repo, "certain": False, "while": at_work}
            events.add(db, "checkout:touched", actor=_ACTOR, metadata=told | news)

    def _settled(self, repo: str, here: list[Instance], now: CheckoutFacts) -> list[dict[str, Any]]:
        """What agents wrote where it should not be, and is committed there or taken back."""
        facts, _ = checkouts.read(self._context.db, repo)
        by_id = {i.id: i for i in here}
        return [s for s in facts["strays"] if self._is_settled(s, by_id, now)]

    def _is_settled(self, one: dict[str, Any], by_id: Mapping[str, Instance], now: CheckoutFacts) -> bool:
        dirty: Mapping[str, Any] = now
        if one["owner"] != MAIN:
            owner = by_id.get(one["owner"])
            if owner is None or one["instance_id"] not in by_id:
                return True
            try:
                dirty = self._context.host(owner).branch_state(place(owner), owner.base_branch)
            except SwarmError:
                return False
        name = places.printable(os.path.relpath(one["path"], one["folder"]))
        return name not in dirty["dirty"] and dirty["dirty_count"] == len(dirty["dirty"])


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """How a checkout differs from what it was: files that became dirty, another branch, another commit."""
    news: dict[str, Any] = {}
    files = [name for name in now["dirty"] if name not in before["dirty"]]
    # Of many files only the first are named: others come into sight when those before them are committed.
    named = before["dirty_count"] == len(before["dirty"])
    if files and (named or now["dirty_count"] > before["dirty_count"]):
        news["files"] = files
    for what in ("branch", "head"):
        if now[what] != before[what]:
            news[what] = [before[what], now[what]]
    return news


def _call_person(db: Database, instance_id: str, facts: Mapping[str, Any]) -> None:
    """A person is needed while something is left that the agent wrote elsewhere; other reasons stay."""
    said = instances.get(db, instance_id).needs_person
    if said and not said.startswith(STRAYED):
        return
    left = [Stray(s["path"], s["folder"], s["owner"]) for s in facts["strays"] if s["instance_id"] == instance_id]
    text = ", ".join(f"{places.printable(s.name)} of {s.where}" for s in left)
    now = f"{STRAYED}: {text}" if left else ""
    if now != said:
        instances.set_fields(db, instance_id, needs_person=now)


def _written(body: Mapping[str, Any]) -> str | None:
    """The file that a tool writes, without links."""
    given, key = body.get("tool_input"), _WRITERS.get(str(body.get("tool_name")))
    path = given.get(key) if isinstance(given, dict) and key else None
    if not isinstance(path, str) or not path or "\0" in path:
        return None
    cwd = body.get("cwd")
    start = cwd if isinstance(cwd, str) and cwd.startswith("/") and "\0" not in cwd else "/"
    return os.path.realpath(os.path.join(start, os.path.expanduser(path)))  # noqa: PTH111, PTH118


def _free(instance: Instance) -> list[str]:
    """Where it may write besides: temporary files, Claude Code's own, and what git keeps of its worktree."""
    configured = os.environ.get("CLAUDE_CONFIG_DIR") or str(Path.home() / ".claude")
    found = [tempfile.gettempdir(), "/tmp", configured]  # noqa: S108  a name, nothing is made there
    try:
        link = Path(instance.worktree_path, ".git").read_text()
    except (OSError, UnicodeDecodeError):
        link = ""
    if link.startswith("gitdir: "):
        found.append(link.removeprefix("gitdir: ").strip())
    return [os.path.realpath(folder) for folder in found]


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _at_work(here: Iterable[Instance], since: str) -> list[str]:
    """Who was seen at work since the last look."""
    running = [i for i in here if i.wanted == Wanted.RUNNING and not i.ended]
    return [i.id for i in running if i.activity in _MAY_WRITE or i.activity_at >= since]


def _seconds(since: str, now: str) -> float:
    return (parse_iso(now) - parse_iso(since)).total_seconds()
