"""The records everything else speaks of, their states, and which state may follow which."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

AUTOMATION = "automation:"  # how the name of an automation begins in events


class Kind(StrEnum):
    WORK = "work"
    REVIEW = "review"
    FORK = "fork"
    ADHOC = "adhoc"


class Status(StrEnum):
    """Where an instance is in its life; stored, changed only along TRANSITIONS."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING_REVIEW = "waiting_review"
    CHANGES_REQUESTED = "changes_requested"
    APPROVED = "approved"
    PR_CREATED = "pr_created"
    PR_MERGED = "pr_merged"
    PR_CLOSED = "pr_closed"
    FAILED = "failed"
    TERMINATED = "terminated"


class Activity(StrEnum):
    """What the agent was last seen doing; observed, stored with source and time."""

    STARTING = "starting"
    BUSY = "busy"
    IDLE = "idle"
    BLOCKED = "blocked"
    EXITED = "exited"
    UNKNOWN = "unknown"


class Source(StrEnum):
    """Where an observation comes from, best evidence first."""

    HOOK = "hook"
    FILE = "file"
    PROCESS = "process"
    PANE = "pane"


class Wanted(StrEnum):
    """What a person asked for; reconciling makes it so."""

    RUNNING = "running"
    STOPPED = "stopped"
    REMOVED = "removed"


class ActionState(StrEnum):
    OPEN = "open"
    DONE = "done"
    UNDONE = "undone"


class MessageState(StrEnum):
    ACCEPTED = "accepted"
    INJECTED = "injected"
    SEEN = "seen"
    ACKNOWLEDGED = "acknowledged"
    HELD = "held"
    EXPIRED = "expired"
    FAILED = "failed"


class MessageKind(StrEnum):
    MESSAGE = "message"
    FEEDBACK = "feedback"
    REVIEW = "review"
    NOTICE = "notice"


class PrincipalKind(StrEnum):
    INSTANCE = "instance"
    OPERATOR = "operator"
    AUTOMATION = "automation"


class Verdict(StrEnum):
    """How a review ended; `none` when its agent ended without one, which is never an approval."""

    NEEDS_WORK = "needs_work"
    APPROVED = "approved"
    NONE = "none"


class FeedbackType(StrEnum):
    NEEDS_WORK = "needs_work"
    SUGGESTIONS = "suggestions"
    CLARIFICATION = "clarification"


class Priority(StrEnum):
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class PullState(StrEnum):
    OPEN = "open"
    MERGED = "merged"
    CLOSED = "closed"


_S = Status
TRANSITIONS: dict[Status, frozenset[Status]] = {
    _S.STARTING: frozenset({_S.RUNNING, _S.FAILED, _S.TERMINATED}),
    _S.RUNNING: frozenset(
        {_S.STARTING, _S.WAITING_REVIEW, _S.CHANGES_REQUESTED, _S.APPROVED, _S.PR_CREATED}
        | {_S.FAILED, _S.TERMINATED}
    ),
    _S.WAITING_REVIEW: frozenset(
        {_S.RUNNING, _S.CHANGES_REQUESTED, _S.APPROVED, _S.PR_CREATED, _S.FAILED, _S.TERMINATED}
    ),
    _S.CHANGES_REQUESTED: frozenset(
        {_S.STARTING, _S.RUNNING, _S.WAITING_REVIEW, _S.PR_CREATED, _S.FAILED, _S.TERMINATED}
    ),
    _S.APPROVED: frozenset({_S.RUNNING, _S.PR_CREATED, _S.FAILED, _S.TERMINATED}),
    _S.PR_CREATED: frozenset(
        {_S.RUNNING, _S.WAITING_REVIEW, _S.CHANGES_REQUESTED, _S.PR_MERGED, _S.PR_CLOSED}
        | {_S.FAILED, _S.TERMINATED}
    ),
    _S.PR_MERGED: frozenset({_S.PR_CREATED, _S.TERMINATED}),
    _S.PR_CLOSED: frozenset({_S.STARTING, _S.PR_CREATED, _S.TERMINATED}),
    _S.FAILED: frozenset({_S.STARTING, _S.TERMINATED}),
    _S.TERMINATED: frozenset({_S.STARTING}),
}

WORKTREE_GONE = "the worktree is gone"
# Why a removal kept the folder of a worktree, by the reason in the details of WORKTREE_KEPT.
KEPT = {
    "no_folder": "it is a link or a file, not a folder",
    "other_device": "it, or a folder in it, is on another device",
    "locked": "a person has locked the worktree",
    "holds_repository": "the repository itself is in it",
    "lends": "objects or refs that the repository uses are in it",
    "no_link": "its .git is gone",
    "bent_link": "its .git does not lead to the entry that registers it",
    "works_elsewhere": "git works on another folder or repository there",
    "unregistered": "git does not know it as a worktree of the repository",
    "not_stored": "what is in it could not be read back from the repository",
    "unreadable": "files in it cannot be read, or change while they are read",
    "git_in_git": "git cannot store what is named .git inside a git folder",
    "other_worktree": "another repository's worktree in it has staged files, an operation or commits on no branch",
    "staged_lost": "what is staged in it is in no object and no file any more",
    "special": "a named pipe, a device or a huge file is in the place of one that git reads",
    "stuck": "git did not end in it within its time limit",
    "writing": "something keeps writing into it",
    "open": "a program has files in it open for writing",
    "left": "files in it were written or changed after it was stored",
    "undeletable": "it, or files in it, cannot be moved or deleted",
    "recreated": "it was made again after the worktree was stored and removed",
}
# The problem of an instance whose folder is not its worktree any more, and the reason in KEPT.
UNLINKED = {f"the worktree cannot be used: {KEPT[reason]}": reason for reason in ("no_link", "bent_link")}
FOLDER_PROBLEMS = frozenset({WORKTREE_GONE, *UNLINKED})
_PROCESS = re.compile(r"\(process (\d+)\)\Z")
# What a person does about it; {repo} is ` -C REPOSITORY` or nothing.
_REMEDIES = {
    "no_folder": "put the worktree's own folder back at {path}, or `mv {path} {path}.kept`",
    "other_device": "unmount what is mounted at or below {path} (`findmnt` lists it)",
    "locked": "`git{repo} worktree unlock {path}`",
    "holds_repository": "move the repository out of {path}",
    "lends": (
        "if objects/info/alternates of the repository names it, `git{repo} repack -a -d` and delete that line;"
        " if a link leads there, move it from {path} into the link's place: {files}"
    ),
    "no_link": "`git{repo} worktree repair`",
    "bent_link": "`mv {path}/.git {path}.git`, `git{repo} worktree repair`",
    "works_elsewhere": "mend what `git -C {path} rev-parse --show-toplevel --git-common-dir` shows",
    "unregistered": "`mv {path} {path}.kept`",
    "not_stored": "`git{repo} fsck`",
    "unreadable": "make readable, or end what writes: {files}",
    "git_in_git": "move it out of the git folder, or delete it: {files}",
    "other_worktree": "move it out of {path} with `git worktree move`, or commit to a branch in it: {files}",
    "staged_lost": "`git -C {path} rm --cached -f` what is lost: {files}",
    "special": "look at it and remove it, or the setting that names it: {files}",
    "stuck": "look at what `git -C {path} status` waits for",
    "writing": "end the program that writes {files}",
    "open": "`kill {pids}`",
    "left": "save what you need of {path}, `rm -r {path}`",
    "undeletable": "`sudo chattr -R -i -a {path}`, or make the folder above it writable",
    "recreated": "save what you need of {path}, `rm -r {path}`",
}
# The removal has begun then, and a file that was made deletable is not as it was seen.
_STORED_UNDELETABLE = (
    "what was in it is stored; if nothing was written there since, `sudo chattr -R -i -a {path}`,"
    " `sudo rm -r {path}`"
)


def remedy(reason: str, path: str, files: Sequence[str] = (), repo: str = "") -> str:
    """Return what a person does about a folder that was kept for `reason`, one of KEPT."""
    pids = dict.fromkeys(found[1] for name in files if (found := _PROCESS.search(name)))
    known = _STORED_UNDELETABLE if reason == "undeletable" and files else _REMEDIES[reason]
    return known.format(
        path=shlex.quote(path),
        repo=f" -C {shlex.quote(repo)}" if repo else "",
        files=", ".join(files[:3]) or "in it",
        pids=" ".join(pids) or "PID",
    )


ENDED = frozenset({_S.FAILED, _S.TERMINATED, _S.PR_MERGED, _S.PR_CLOSED})

EVENTS: dict[str, str] = {
    "instance:created": "An id was reserved and the instance is being started.",
    "instance:status": "The status changed; status_from and status_to say how.",
    "instance:activity": "The agent was seen doing something else; metadata has source and detail.",
    "instance:exited": "The agent's program ended; metadata has exit code or signal.",
    "instance:typed": "A person typed at the agent's terminal; metadata has how many keys since the last event.",
    "instance:repaired": "Reconciling mended what was certain; metadata says what.",
    "instance:problem": "Reconciling found what it cannot mend alone; metadata says what.",
    "instance:cleaned": "The worktree was removed; preserved work and branch are named.",
    "instance:restored": "Worktree and preserved work were brought back.",
    "work:preserved": "Uncommitted work was stored under a ref.",
    "action:started": "A multi-step operation was recorded before its first step.",
    "action:done": "All steps of the operation are done.",
    "action:undone": "The operation failed and its steps were undone; error_code says why.",
    "message:accepted": "A message for an instance was recorded.",
    "message:injected": "A message is being handed to the agent; metadata says how.",
    "message:seen": "The agent's own log or hook shows that it has the message.",
    "message:acknowledged": "The turn in which the agent saw the message has ended.",
    "message:held": "A message waits because the agent shows a dialog.",
    "message:lost": "It is certain that a message did not arrive; it is sent again.",
    "message:expired": "A message was not seen in time and is given up.",
    "message:failed": "A message could not be delivered; metadata says why.",
    "review:requested": "A review of a commit was started; metadata has round and commit.",
    "review:verdict": "A review ended with a verdict; metadata says which, and whether the work had moved on.",
    "review:ended": "A reviewer ended without a verdict; the work is running again.",
    "review:limit": "No more review rounds are allowed; the instance needs a person.",
    "review:timeout": "A review gave no verdict in time; nothing was approved and the instance needs a person.",
    "review:disagreement": "A commit that was sent back was sent back again; the instance needs a person.",
    "work:accepted": "A person approved the work as it is.",
    "work:rescoped": "A person gave the work another scope; review rounds count from here.",
    "work:abandoned": "A person gave the work up; files and commits stay.",
    "budget:set": "Somebody gave an instance a budget or took it away; metadata has both and the cost so far.",
    "budget:warned": "An instance has used 80 % of its budget.",
    "budget:held": "An instance has used up its budget; its agent may use no tools until a person raises it.",
    "budget:raised": "The budget is above the cost again; an agent that was held is told that it may go on.",
    "dialog:shown": "A blocked agent asks something; metadata has the text, the choices and a digest.",
    "dialog:answered": "Somebody answered what an agent asked; metadata has question and answer.",
    "dialog:closed": "What an agent asked is over without an answer from here.",
    "notice:raised": "An instance needs a person; metadata has the reason.",
    "notice:sent": "A channel has told of a notice, or was given up: then error_message says why.",
    "notice:over": "What needed a person is over.",
    "feedback:sent": "Feedback for an instance was recorded.",
    "pull:opened": "A pull request was opened.",
    "pull:updated": "An open pull request was asked for again at another commit; metadata has both.",
    "pull:merging": "The forge is asked to merge a pull request; metadata has the commit and how.",
    "pull:merged": "A pull request was merged; metadata has the commit it became.",
    "pull:overridden": "A person merges a pull request against a verdict or a check; metadata has the reason.",
    "pull:checked": "The check command was run on a pull request; metadata has the commits and the result.",
    "pull:closed": "A pull request was closed without being merged.",
    "pull:reopened": "A closed pull request is open again.",
    "pull:ready": "A draft pull request may be reviewed and merged from now on.",
    "pull:checks": "The checks of a pull request's commit came to another result; metadata has it.",
    "pull:reviewed": "Somebody reviewed a pull request at the forge; metadata has who and how.",
    "pull:commented": "Somebody commented on a pull request at the forge.",
    "pull:conflict": "A pull request conflicts with its base branch, or shares no commit with it.",
    "pull:told": "News of a pull request was sent to its agent as a message.",
    "pull:outdated": "News of a pull request was no longer true and was taken back before the agent saw it.",
    "pull:auto": "A pull request is to be merged as soon as it may be, or no longer; metadata says which.",
    "queue:added": "A pull request was put into the merge queue.",
    "queue:left": "A pull request left the merge queue without being merged; metadata says why.",
    "queue:tried": "A batch of the merge queue was put together and checked; metadata has the result.",
    "overlap:found": "Two running instances change the same places; metadata has the files.",
    "overlap:over": "Two instances no longer change the same places.",
    "checkout:touched": "Files of a main checkout or of another's worktree were changed; metadata says which.",
    "forge:lost": "GitHub does not answer; what is known of its pull requests is getting old.",
    "forge:back": "GitHub answers again.",
    "forge:limited": "GitHub wants no more requests until the time in metadata.",
    "webhook:refused": "A webhook delivery was refused; error_message says why.",
    "attempt:picked": "One of several attempts at a task was picked; the others were closed.",
    "dashboard:acted": "Somebody acted at the dashboard; tool_name says what, error_code why if it failed.",
    "tool:called": "A tool was called; error_code says why if it failed.",
    "tool:denied": "A tool call was not allowed; metadata names the rule that decided.",
    "tool:interrupted": "The server died in the middle of a tool call.",
    "events:dropped": "Events of answered calls found the backlog full; metadata has how many.",
    "auth:refused": "A request was refused for who sent it; error_message says why. In a flood, metadata.count"
    " tells of those that have no event of their own.",
    "token:issued": "A token was made for a principal.",
    "token:revoked": "A principal's tokens were revoked.",
    "link:made": "Somebody made a link to the dashboard; metadata says what it opens and until when.",
    "link:ended": "A link to the dashboard was revoked, and with it the visits it began.",
    "visit:started": "Somebody came in to the dashboard with a link.",
    "visit:ended": "A visit to the dashboard was ended.",
    "mcp:connected": "An agent has connected to the coordinator for the first time since its start.",
    "mcp:reconnect": "An agent that never connected was told to try again.",
    "host:lost": "A host did not answer; nothing is known of its instances until it is back.",
    "host:back": "A host that was lost answers again.",
    "coordinator:started": "The coordinator took the database and adopted the live instances.",
    "coordinator:stopped": "The coordinator ended in good order.",
    "data:saved": "The database was copied and the copy verified; metadata says where it is.",
    "data:restored": "A backup took the database's place; metadata says which, and where the former one is.",
    "data:pruned": "Old rows, logs or preserved work were deleted; metadata has how many of each.",
}


@dataclass(frozen=True, slots=True)
class Instance:
    """One agent with its worktree, branch and session.

    `reason` says why the status is what it is. Whatever the status, a person has to look when `problem` says what
    reconciling or an operation could not mend, or `needs_person` why the work cannot go on without one. `kept`
    says as JSON (reason, path, files) why the folder of its worktree could not be removed.
    """

    id: str
    kind: str
    status: str
    wanted: str
    host: str
    epoch: int
    repo_path: str
    worktree_path: str
    branch: str
    base_branch: str
    base_commit: str | None
    tmux_session: str
    agent: str
    conversation_id: str
    agent_number: int
    activity: str
    activity_source: str
    activity_at: str
    created_at: str
    updated_at: str
    activity_detail: str = ""
    name: str | None = None
    issue_number: int | None = None
    issue_title: str | None = None
    prompt: str = ""
    parent_id: str | None = None
    head_commit: str | None = None
    pid: int | None = None
    pr_number: int | None = None
    pr_url: str | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    last_screen: str = ""
    reason: str = ""
    problem: str = ""
    files_changed: int = 0
    lines_added: int = 0
    lines_deleted: int = 0
    changes_at: str | None = None
    started_at: str | None = None
    terminated_at: str | None = None
    cleaned_at: str | None = None
    needs_person: str = ""
    blocked_on: str = ""
    budget_usd: float | None = None
    budget_state: str = ""
    cost_usd: float = 0.0
    tokens_used: int = 0
    attempt_group: str | None = None
    kept: str = ""

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def cleaned(self) -> bool:
        return self.cleaned_at is not None


@dataclass(frozen=True, slots=True)
class Relationship:
    id: int
    parent_id: str
    child_id: str
    type: str
    round: int
    head_commit: str | None
    created_at: str
    verdict: str | None = None
    verdict_at: str | None = None


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a token speaks for: an instance, the operator, or a named automation."""

    kind: str
    name: str
    scopes: frozenset[str] = frozenset()

    @property
    def actor(self) -> str:
        """The name in events."""
        return f"{AUTOMATION}{self.name}" if self.kind == PrincipalKind.AUTOMATION else self.name


@dataclass(frozen=True, slots=True)
class Feedback:
    """What was said to an instance about its work; `message_id` is the ledger's row that carries it there."""

    id: str
    sender: str
    to_instance: str
    relationship_id: int | None
    feedback_type: str
    priority: str
    body: str
    file_path: str
    message_id: str
    reviewed_commit: str | None
    head_commit: str | None
    created_at: str
    delivery_status: str = "queued"

    @property
    def stale(self) -> bool:
        """Whether the work has moved on since the commit that was reviewed."""
        return self.reviewed_commit is not None and self.reviewed_commit != self.head_commit


@dataclass(frozen=True, slots=True)
class Pull:
    """A pull request: what we know of it, and what the forge said of it at `looked_at`.

    `head_commit` is the forge's since `head_at`, `pushed_commit` what we pushed last. `mergeable` is None while
    nobody knows; `unrelated` says that it has no commit in common with its base.
    `auto_merge` is how it is to be merged as soon as that may be, at `auto_commit` alone. `replaced` names the
    refs and files that replaced objects of its repository at the last look, separated by spaces. `span` is the
    BASE..HEAD whose commits are stored with it.
    """

    id: int
    forge: str
    repo_path: str
    number: int
    url: str
    instance_id: str
    opened_by: str
    head_branch: str
    base_branch: str
    head_commit: str
    title: str
    body: str
    state: str
    created_at: str
    updated_at: str
    repository: str = ""
    draft: bool = False
    pushed_commit: str | None = None
    head_at: str | None = None
    mergeable: bool | None = None
    merge_commit: str | None = None
    forge_updated_at: str = ""
    etags: str = "{}"
    looked_at: str | None = None
    next_at: str | None = None
    failures: int = 0
    failure: str = ""
    auto_merge: str = ""
    auto_commit: str | None = None
    closed_at: str | None = None
    replaced: str = ""
    span: str = ""
    unrelated: bool = False


@dataclass(frozen=True, slots=True)
class CommitVerdict:
    """What a reviewer or a person decided about one commit of an instance's work."""

    instance_id: str
    commit: str
    verdict: str
    by: str
    at: str


@dataclass(frozen=True, slots=True)
class CheckRun:
    """How the check command ended on a pull request's head merged into a commit of its base.

    `base_commit` is empty for a failure on an earlier commit of the base.
    """

    pull_id: int
    head_commit: str
    base_commit: str
    command: str
    ok: bool
    output: str
    at: str


@dataclass(frozen=True, slots=True)
class Queued:
    """A pull request that waits to be merged after others; it is merged at `head_commit` or not at all."""

    id: int
    pull_id: int
    instance_id: str
    repo_path: str
    base_branch: str
    head_commit: str
    method: str
    state: str
    detail: str
    asked_by: str
    created_at: str
    updated_at: str


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two instances that change the same places; `conflicts` are the files that would not merge today."""

    one: str
    other: str
    files: dict[str, list[list[int]]]
    conflicts: list[str]
    seen_at: str
    told_at: str | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """Something that was found; `excerpt` is the passage around the words."""

    kind: str
    ref: str
    instance_id: str | None
    at: str
    title: str
    excerpt: str

    def as_json(self) -> dict[str, Any]:
        """As clients and `--json` show it."""
        known = {"kind": self.kind, "id": self.ref, "instance_id": self.instance_id, "at": self.at}
        return known | {"title": self.title, "excerpt": self.excerpt}


@dataclass(frozen=True, slots=True)
class Action:
    """The recorded intent of a multi-step operation and how far it came."""

    id: int
    instance_id: str
    kind: str
    state: str
    actor: str
    steps_done: tuple[str, ...]
    details: dict[str, Any]
    started_at: str
    finished_at: str | None
    error_code: str | None
    error_message: str | None


@dataclass(frozen=True, slots=True)
class Event:
    id: int
    at: str
    instance_id: str | None
    actor: str
    tool_name: str | None
    name: str
    success: bool
    error_code: str | None
    error_message: str | None
    duration_ms: float | None
    status_from: str | None
    status_to: str | None
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    id: str
    instance_id: str
    sender: str
    state: str
    body: str
    created_at: str
    updated_at: str
    attempts: int
    error: str = ""
    kind: str = "message"
    document: str | None = None
    next_at: str | None = None
    injected_at: str | None = None
    seen_at: str | None = None
    acknowledged_at: str | None = None
    expires_at: str | None = None
    how: str = ""


@dataclass(frozen=True, slots=True)
class Preserved:
    """Uncommitted work stored under a ref."""

    id: int
    instance_id: str
    repo_path: str
    ref: str
    commit: str
    files: int
    bytes: int
    why: str
    created_at: str
    restored_at: str | None = None


def as_json(record: Any) -> dict[str, Any]:
    """A record as a JSON object, fields in their declared order."""
    return dataclasses.asdict(record)


def iso(moment: datetime) -> str:
    """Aware UTC with milliseconds, the one spelling of times."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_iso(text: str) -> datetime:
    return datetime.fromisoformat(text)
