"""Every failure the project names, as conditions with a stable code.

SwarmError
├── InvalidInput       the request can never work as asked
│   └── InvalidRequest it does not match the schema; `violations` lists how
├── NotFound           what was named does not exist
├── Conflict           the state does not allow it now
├── Denied             the caller may not do it
├── Cancelled          the work was told to stop, and undid itself
└── ExternalFailure    git, tmux, GitHub, SQLite or an agent program failed
    ├── CommandFailed  a program ended with a failure
    ├── TimedOut       a program or wait took too long and was ended
    ├── HostError      a host answered: it failed
    └── HostLost       a host did not answer: nothing is known
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

CODES: dict[str, str] = {
    "INVALID_INPUT": "An argument can never be accepted as given.",
    "INVALID_INSTANCE_ID": "The text is not an instance id.",
    "INVALID_BRANCH_NAME": "git does not accept the branch name.",
    "INVALID_SETTING": "A setting or its value is not known.",
    "PROMPT_TOO_LARGE": "The prompt is larger than an agent can take.",
    "GIT_REPOSITORY_NOT_FOUND": "The path is not inside a git repository.",
    "GIT_REPOSITORY_INVALID": "The repository cannot hold worktrees (bare or damaged).",
    "GIT_BRANCH_NOT_FOUND": "The base branch or commit does not exist.",
    "AGENT_UNKNOWN": "No agent has this name.",
    "AGENT_NOT_INSTALLED": "The agent's program is not on PATH.",
    "AGENT_NOT_SIGNED_IN": "The agent's program has no account to work with.",
    "NOT_FOUND": "What was named does not exist.",
    "INSTANCE_NOT_FOUND": "No instance has this id or name.",
    "NOTHING_PRESERVED": "There is no preserved work for this instance.",
    "WORKTREE_NOT_FOUND": "The instance's worktree folder is gone.",
    "ISSUE_NOT_FOUND": "The forge has no issue with this number.",
    "NAME_TAKEN": "Another instance that is not cleaned has the name.",
    "CONFLICT": "The present state does not allow the operation.",
    "INVALID_STATUS_TRANSITION": "The status cannot change this way.",
    "DIALOG_CHANGED": "The agent no longer shows the question that was to be answered.",
    "DIALOG_OPEN": "The agent asks something, and nothing is typed into a question.",
    "AGENT_BUSY": "The agent is at work and takes no keys but Escape and Ctrl-C.",
    "SCREEN_UNCLEAR": "The agent's screen is not understood, so nothing is typed.",
    "CONFIRM_NEEDED": "The action takes something away and was not confirmed.",
    "KEY_REUSED": "The idempotency key was used for another request.",
    "INSTANCE_BUSY": "Another process is working on the instance.",
    "INSTANCE_RUNNING": "The instance must be stopped first.",
    "WORKTREE_EXISTS": "The folder or branch for a new worktree is taken.",
    "WORKTREE_KEPT": "The folder of a worktree was not removed; details say what was unexpected.",
    "WORKTREE_MISMATCH": "The folder is not the worktree that git registered there; details say why.",
    "BRANCH_BLOCKED": "A branch exists above the name of the new one, so git cannot make it.",
    "RESTORE_WOULD_OVERWRITE": "Files in the worktree differ from what would be restored.",
    "WORK_NOT_STORED": "Work could not be stored in the repository, so its folder stays.",
    "STALE_EPOCH": "A newer start of the instance exists.",
    "COORDINATOR_RUNNING": "Another coordinator holds the database.",
    "NOT_PRIVATE": "A folder or file belongs to another user, can be written by others, or is a link.",
    "BACKUP_INVALID": "The file is not a complete database of swarm.",
    "FILE_EXISTS": "A file is in the way and is not overwritten.",
    "ALREADY_UP": "swarm is already up for this home.",
    "PORT_IN_USE": "The port is taken by another program.",
    "DENIED": "The caller may not do this.",
    "FORBIDDEN": "No permission rule lets the caller do this.",
    "UNAUTHORIZED": "No valid token came with the request.",
    "INVALID_REQUEST": "The request or its arguments do not match the schema.",
    "CANCELLED": "The work was cancelled and undone.",
    "TOOL_TIMEOUT": "A tool took longer than it may and was ended.",
    "QUEUE_OVERLOADED": "Too many calls are under way.",
    "SHUTTING_DOWN": "The server ends; the call was not carried out.",
    "INTERRUPTED": "The server died in the middle of the call.",
    "REQUEST_IN_PROGRESS": "The same call is still under way.",
    "NO_CHANGES": "There is no commit to review or merge.",
    "UNCOMMITTED_CHANGES": "The worktree has files that are not committed.",
    "WORKFLOW_INVALID_STATE": "The instance is not in the state the step needs.",
    "REVIEW_IN_PROGRESS": "Another review of the work is under way.",
    "REVIEW_LIMIT_EXCEEDED": "The work has had all its review rounds.",
    "PULL_NOT_FOUND": "There is no such pull request.",
    "PULL_NOT_MERGEABLE": "Checks, approvals or conflicts do not allow the merge now.",
    "PULL_HEAD_MOVED": "The pull request is at another commit than the one that was to be merged.",
    "MERGE_CONFLICT": "The branches change the same lines.",
    "CHECK_FAILED": "The configured check command failed on the merged result.",
    "PUSH_REJECTED": "The remote does not take the branch as it is.",
    "REPLACED_OBJECTS": "Replace refs or grafts hide what was committed; nothing is approved or merged with them.",
    "DAMAGED_OBJECTS": "Git objects are not what their names say; nothing is approved or merged with them.",
    "PULL_NOT_MERGED": "The base branch does not have the pull request's commit.",
    "TEMPLATE_INVALID": "A prompt template of the repository cannot be used.",
    "TOKEN_NOT_FOUND": "No token belongs to this name.",
    "LINK_NOT_FOUND": "No link or visit has this id or name.",
    "DASHBOARD_NOT_RUNNING": "There is no dashboard that a link could lead to.",
    "INTERNAL": "A bug in swarm; its traceback is in the log.",
    "EXTERNAL_FAILURE": "Something outside swarm failed.",
    "COMMAND_FAILED": "A program ended with a failure.",
    "TIMED_OUT": "A program or wait took too long and was ended.",
    "GIT_COMMAND_FAILED": "A git command failed.",
    "SPECIAL_FILE": "A named pipe, a device or a huge file is in the place of one that git or swarm has to read.",
    "TMUX_NOT_AVAILABLE": "tmux is not installed or does not answer.",
    "TMUX_COMMAND_FAILED": "A tmux command failed.",
    "TMUX_SESSION_NOT_FOUND": "The instance has no tmux session.",
    "AGENT_START_FAILED": "The agent's program could not be started.",
    "GITHUB_ERROR": "GitHub answered with an error.",
    "GITHUB_UNREACHABLE": "GitHub did not answer, or has a problem of its own.",
    "GITHUB_RATE_LIMITED": "GitHub wants no more requests for a while, or the share of the quota is used.",
    "GITHUB_UNAUTHORIZED": "The GitHub token is missing, not valid, or may not do this.",
    "NO_INDEX": "The database is gone, so nothing can be looked up.",
    "DATABASE_REPLACED": "Another file took the database's place while it was open; nothing is written to it.",
    "OTHER_DATABASE": "The coordinator or dashboard of this home uses another database.",
    "DATABASE_ERROR": "SQLite failed.",
    "DATABASE_LOCKED": "Another process holds the database longer than the wait.",
    "DATABASE_CORRUPT": "The database file is damaged or is no database.",
    "DATABASE_READ_ONLY": "The database or its folder cannot be written.",
    "DATABASE_TOO_NEW": "The database was written by a newer swarm.",
    "DISK_FULL": "No space is left on the device.",
    "HOST_ERROR": "A host answered that the operation failed.",
    "HOST_LOST": "A host did not answer; nothing is known of its state.",
}


class SwarmError(Exception):
    """A condition with a code for programs, a message for people and a hint for what to do next."""

    code = "EXTERNAL_FAILURE"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.hint = hint
        self.details = dict(details or {})

    def as_json(self) -> dict[str, Any]:
        """The one shape in which every front end reports a failure."""
        body: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.hint:
            body["hint"] = self.hint
        if self.details:
            body["details"] = self.details
        return body


class InvalidInput(SwarmError):
    code = "INVALID_INPUT"


class InvalidRequest(InvalidInput):
    code = "INVALID_REQUEST"

    def __init__(
        self,
        message: str,
        *,
        violations: Sequence[Mapping[str, Any]] = (),
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, hint=hint, details=details)
        self.violations = list(violations)


class NotFound(SwarmError):
    code = "NOT_FOUND"


class Conflict(SwarmError):
    code = "CONFLICT"


class Denied(SwarmError):
    code = "DENIED"


class Cancelled(SwarmError):
    code = "CANCELLED"


class ExternalFailure(SwarmError):
    code = "EXTERNAL_FAILURE"


class CommandFailed(ExternalFailure):
    code = "COMMAND_FAILED"


class TimedOut(ExternalFailure):
    code = "TIMED_OUT"


class HostError(ExternalFailure):
    code = "HOST_ERROR"


class HostLost(ExternalFailure):
    code = "HOST_LOST"
