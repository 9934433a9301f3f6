"""The stage of the demo: its repository, and whatever is waited for, what happens meanwhile is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from swarm_core import ids, proc
from swarm_core.errors import ExternalFailure
from swarm_core.models import Event, Instance, Kind, Pull, Relationship, parse_iso
from swarm_core.store import relationships
from swarm_core.swarm import Swarm

HAPPENS_WITHIN = 30.0

Say = Callable[[str], None]

SENTENCES = {
    "coordinator:started": "the coordinator watches over the agents and answers their calls",
    "instance:created": "gets the branch {branch}",
    "instance:status starting running": "runs in a worktree and a tmux session of its own",
    "instance:activity busy": "is busy",
    "instance:activity idle": "is done for now and waits for a message",
    "instance:exited": "ended without being asked to, and that was noticed: {why}",
    "action:started restart": "is started again to go on with its conversation",
    "review:requested": "asks for a review of {commit:.7}: round {round} of {limit}, by {review}",
    "review:ended": "is told that {review} ended without a verdict",
    "message:seen": "has seen the message of {sender}: {evidence} shows it",
    "message:lost": "did not get the message of {sender}, which is sent again: {why}",
    "dialog:answered": "got an answer to its question",
    "pull:opened": "opens pull request #{number}: {branch} into {base_branch}",
    "pull:merged": "its pull request #{number} is noted as merged: {base_branch} has {commit:.7}",
    "work:preserved": "had uncommitted work; it is kept under {ref}",
    "instance:cleaned": "is cleaned: worktree and session are gone, the commits stay",
    "instance:restored": "is restored; uncommitted files that are back: {files}",
}
# Of these, whoever did it is named and not the instance it was done to.
BY_ACTOR = {
    "feedback:sent": "sends {to} feedback: {feedback_type}, priority {priority}",
    "review:verdict": "gives its verdict on {reviewed_commit:.7} of {to}: {verdict}",
    "message:accepted message": "sends {to} a message",
}
# Of a reviewer, only this: the rest is told of the work it reviews.
OF_REVIEWS = {"instance:status starting running": "reads the change in a worktree of its own"}


class Repository:
    """The throwaway repository: one commit on main."""

    def __init__(self, path: Path, environ: Mapping[str, str], files: Mapping[str, str]) -> None:
        self.path = path
        self._environ = dict(environ)
        path.mkdir()
        self.git("init", "-q", "--template=")
        self.git("symbolic-ref", "HEAD", "refs/heads/main")
        for name, text in files.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "A list of things to do")
        self.base = self.git("rev-parse", "main")

    def git(self, *words: str) -> str:
        return proc.run(["git", "-C", str(self.path), *words], env=self._environ).text.strip()

    def heads(self) -> dict[str, tuple[str, str]]:
        """The branch of every work, with its last commit and that one's subject, from one process."""
        lines = self.git("for-each-ref", "refs/heads/work", "--format=%(refname:short) %(objectname) %(subject)")
        split = [line.split(" ", 2) for line in lines.splitlines()]
        return {branch: (commit, subject) for branch, commit, subject in split}

    def summary(self, branch: str) -> dict[str, int]:
        commits = int(self.git("rev-list", "--count", f"{self.base}..{branch}"))
        lines = [n.split("\t") for n in self.git("diff", "--numstat", self.base, branch).splitlines()]
        added, deleted = (sum(int(n[i]) for n in lines if n[i].isdigit()) for i in (0, 1))
        counted = {"commits": commits, "files_changed": len(lines)}
        return counted | {"lines_added": added, "lines_deleted": deleted}

    def on_main(self) -> set[str]:
        """The commits that main has got since the beginning."""
        return set(self.git("rev-list", f"{self.base}..main").split())


class Stage:
    """What a play is made of. Nothing is told twice."""

    def __init__(self, swarm: Swarm, repo: Repository, pool: ThreadPoolExecutor, say: Say) -> None:
        self.swarm = swarm
        self.repo = repo
        self.checks: list[dict[str, Any]] = []
        self.poll = 0.1
        self._pool = pool
        self._say = say
        self._began = datetime.now(UTC)
        self._told_at = time.monotonic()
        self._cursor = 0
        self._commits = {repo.base}
        self._ids: dict[str, str] = {}

    @property
    def silence(self) -> float:
        """Seconds since something was told."""
        return time.monotonic() - self._told_at

    def start(self, name: str, prompt: str, *, agent: str) -> None:
        made = self.doing(self.swarm.work, prompt, repo=str(self.repo.path), agent=agent, name=name)
        self._ids[name] = made[0].id

    def find(self, name: str) -> Instance:
        return self.swarm.find(self._ids[name])

    def reviews(self, name: str) -> list[Relationship]:
        """The review rounds of a work, first to last."""
        return relationships.reviews_of(self.swarm.context.db, self._ids[name])

    def doing(self, operation: Callable[..., Any], *args: Any, **options: Any) -> Any:
        run = self._pool.submit(operation, *args, **options)
        while not run.done():
            self.follow()
            time.sleep(self.poll)
        self.follow()
        return run.result()

    def happens(self, what: str, condition: Callable[[], bool], *, within: float = HAPPENS_WITHIN) -> None:
        deadline = time.monotonic() + within
        while not condition():
            if time.monotonic() > deadline:
                raise ExternalFailure(
                    f"did not happen within {within:.0f} s: {what}", details={"checks": self.checks}
                )
            self.follow()
            time.sleep(self.poll)
        self.check(what, True)

    def check(self, what: str, ok: bool) -> None:
        self.checks.append({"what": what, "ok": ok})
        self.follow()

    def merge(self, name: str) -> Pull:
        """What a maintainer does with a pull request: merge it with git, then have it noted."""
        work = self.find(name)
        self.tell("operator", f"merges {work.branch} into main")
        message = f"Merge pull request #{work.pr_number} from {work.branch}"
        self.repo.git("merge", "-q", "--no-ff", "-m", message, work.branch)
        pull = self.doing(self.swarm.note_merged, work.id)
        assert isinstance(pull, Pull)
        return pull

    def agents(self) -> list[dict[str, Any]]:
        """Every work as it is now, with its review rounds."""
        facts = ("id", "name", "branch", "status", "activity", "pr_number", "pr_url")
        told = []
        for name in self._ids:
            work = self.find(name)
            links = [{"id": r.child_id, "round": r.round, "verdict": r.verdict} for r in self.reviews(name)]
            one = {f: getattr(work, f) for f in facts} | self.repo.summary(work.branch) | {"reviews": links}
            told.append(one)
        return told

    def follow(self) -> None:
        """Tell the new events and commits."""
        for event in self.swarm.events(after=self._cursor, limit=500):
            self._cursor = event.id
            self._tell_event(event)
        for branch, (commit, subject) in self.repo.heads().items():
            if commit not in self._commits:
                self._commits.add(commit)
                self.tell(self._name(branch.rpartition("/")[2]), f"committed {commit[:7]} “{subject}”")

    def tell(self, who: str, what: str, *, at: datetime | None = None) -> None:
        self._told_at = time.monotonic()
        seconds = ((at or datetime.now(UTC)) - self._began).total_seconds()
        self._say(f"{max(0.0, seconds):6.2f}s  {who:<12} {what}")

    def _tell_event(self, event: Event) -> None:
        instance = self.swarm.find(event.instance_id) if event.instance_id else None
        table = OF_REVIEWS if instance is not None and instance.kind == Kind.REVIEW else SENTENCES
        to = self._name(event.instance_id)
        for words, who in ((table, to), (BY_ACTOR, self._name(event.actor))):
            for key in _keys(event):
                if key in words:
                    said = words[key].format_map(event.metadata | {"to": to})
                    self.tell(who, said, at=parse_iso(event.at))
                    return

    def _name(self, who: str | None) -> str:
        """How an instance is called here; a person and swarm itself by their own names."""
        if who is None or not ids.is_id(who):
            return who or "swarm"
        return self.swarm.find(who).name or who


def _keys(event: Event) -> tuple[str, ...]:
    """What a sentence may be kept under, from the general to the particular."""
    told = event.metadata
    which = event.status_to or told.get("to") or told.get("action") or told.get("kind") or ""
    return event.name, f"{event.name} {which}", f"{event.name} {event.status_from or ''} {which}"
