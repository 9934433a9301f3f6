"""The records everything else speaks of, their states, and which state may follow which."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any


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
    "pull:closed": "A pull request was closed without being merged.",
    "pull:reopened": "A closed pull request is open again.",
    "pull:ready": "A draft pull request may be reviewed and merged from now on.",
    "pull:checks": "The checks of a pull request's commit came to another result; metadata has it.",
    "pull:reviewed": "Somebody reviewed a pull request at the forge; metadata has who and how.",
    "pull:commented": "Somebody commented on a pull request at the forge.",
    "pull:conflict": "A pull request cannot be merged any more: its base branch changed the same lines.",
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
}


@dataclass(frozen=True, slots=True)
class Instance:
    """One agent with its worktree, branch and session.

    `reason` says why the status is what it is. Whatever the status, a person has to look when `problem` says what
    reconciling or an operation could not mend, or `needs_person` why the work cannot go on without one.
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
        return f"automation:{self.name}" if self.kind == PrincipalKind.AUTOMATION else self.name


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
    nobody knows.
    `auto_merge` is how it is to be merged as soon as that may be, at `auto_commit` alone.
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
