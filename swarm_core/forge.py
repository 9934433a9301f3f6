"""Where issues and pull requests live: what a forge can be asked, and what it answers.

Every failure is an ExternalFailure; a forge that asks for patience raises GITHUB_RATE_LIMITED with
`details["retry_at"]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, Protocol, TypeVar
from urllib.parse import urlsplit

TITLE_CHARS = 300

T = TypeVar("T")


class CheckState(StrEnum):
    PENDING = "pending"
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class ReviewState(StrEnum):
    APPROVED = "approved"
    CHANGES_REQUESTED = "changes_requested"
    COMMENTED = "commented"
    DISMISSED = "dismissed"


class MergeMethod(StrEnum):
    MERGE = "merge"
    SQUASH = "squash"
    REBASE = "rebase"


@dataclass(frozen=True, slots=True)
class Issue:
    number: int
    title: str
    body: str
    url: str
    state: str = "open"
    labels: tuple[str, ...] = ()
    assignees: tuple[str, ...] = ()
    updated_at: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """A pull request of an instance that is to be opened; `draft` is one that is not to be merged yet.

    `head_owner` is whose fork has the branch, empty when the repository itself has it.
    """

    title: str
    body: str
    head_branch: str
    base_branch: str
    head_commit: str
    draft: bool = False
    labels: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()
    instance_id: str = ""
    head_owner: str = ""

    @property
    def head(self) -> str:
        return f"{self.head_owner}:{self.head_branch}" if self.head_owner else self.head_branch


@dataclass(frozen=True, slots=True)
class RemotePull:
    """A pull request as the forge has it now. `mergeable` is None while the forge has not worked it out.

    One that is not mergeable because its branch and its base have no commit in common is `unrelated`.
    """

    number: int
    url: str
    state: str
    draft: bool
    title: str
    head_branch: str
    head_commit: str
    base_branch: str
    updated_at: str
    mergeable: bool | None = None
    merge_commit: str | None = None
    unrelated: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a commit. `id` is new for every run; `job` names its log, if the forge keeps one.

    One that failed without `fault`, as when somebody stopped it, hinders a merge and says nothing of the change.
    """

    id: str
    name: str
    state: str
    url: str = ""
    summary: str = ""
    job: int | None = None
    fault: bool = True


@dataclass(frozen=True, slots=True)
class Review:
    """What one person or program has said of a commit as a whole.

    Not `trusted` is whoever has no say in the repository: their words are for people, not for agents.
    """

    id: str
    author: str
    state: str
    body: str
    commit: str
    at: str
    url: str = ""
    trusted: bool = False


@dataclass(frozen=True, slots=True)
class Comment:
    """A remark, on a line of a file or, without `path`, on the whole. `outdated` when its line is gone."""

    id: str
    author: str
    body: str
    at: str
    url: str = ""
    path: str = ""
    line: int | None = None
    outdated: bool = False
    trusted: bool = False


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    """What a conditional question brought: `value` is None when nothing has changed since `etag`."""

    value: T | None
    etag: str


@dataclass(frozen=True, slots=True)
class Known:
    """A pull request as it was at the last look; `etags` are what that look brought."""

    number: int
    head_branch: str
    head_commit: str
    base_branch: str
    updated_at: str = ""
    etags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Look:
    """A pull request now. Checks, reviews or comments that are None have not changed since the last look."""

    pull: RemotePull
    checks: Sequence[Check] | None
    reviews: Sequence[Review] | None
    comments: Sequence[Comment] | None
    etags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Quota:
    """How many requests are left until `reset_at`, as the forge said last."""

    limit: int
    remaining: int
    reset_at: str
    resource: str = "core"


class Gate(Protocol):
    """Stands before every request to a forge, for all processes of one home together."""

    def enter(self, resource: str) -> None:
        """Raises ExternalFailure (GITHUB_RATE_LIMITED, details["retry_at"]) when it may not be asked now.

        A `resource` is what the forge counts by itself: "core" or "graphql".
        """
        ...

    def leave(self, *, status: int | None, quota: Quota | None, retry_after: float | None) -> None:
        """What came of the request; without a status there was no answer. `retry_after` is in seconds."""
        ...


class IssueSource(Protocol):
    def get_issue(self, number: int) -> Issue | None:
        """The issue; None if there is none or it may not be seen."""
        ...

    def list_issues(self, *, limit: int) -> list[Issue]:
        """The open ones, most recently changed first."""
        ...


class Forge(IssueSource, Protocol):
    """`repository` is host/owner/name, empty for the local one; `batch` is how many are looked at together."""

    name: str
    repository: str
    batch: int

    def open_pull(self, draft: Draft) -> RemotePull:
        """Open it; one that is open for the same branches is returned as it is."""
        ...

    def look(self, known: Sequence[Known]) -> dict[int, Look]:
        """What is new of many pull requests at once, by number; one that is gone is left out."""
        ...

    def log_tail(self, job: int, *, max_bytes: int) -> str:
        """The end of a check's log; empty when there is none to be had."""
        ...

    def merge(
        self,
        number: int,
        *,
        method: MergeMethod,
        head_commit: str,
        title: str,
        decide: Callable[[], str] = lambda: "",
    ) -> str:
        """Merge exactly that commit and return the commit it became; raises Conflict if it may not be merged.

        `decide` is called last of all, after whatever takes long: it returns what the message has below its
        title, and when it raises nothing is merged.
        """
        ...

    def close_pull(self, number: int) -> RemotePull:
        """Close it and return what it is then; one that was merged before stays merged."""
        ...

    def delete_branch(self, branch: str, *, at: str) -> bool:
        """Delete a branch that is at the commit; False when it is not there or somewhere else."""
        ...


def split_title(text: str) -> tuple[str, str]:
    """The first line without its heading mark, and the rest; a title too long is kept whole in the body."""
    first, _, rest = text.strip().partition("\n")
    title = re.sub(r"^#{1,6}(\s+|$)", "", first)
    title = "".join(c if c.isprintable() else " " for c in title).strip()
    if len(title) > TITLE_CHARS:
        return title[:TITLE_CHARS], text.strip()
    return title, rest.strip()


_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_SCP = re.compile(r"(?:[^@/\s]+@)?(?P<host>[A-Za-z0-9.-]{2,}):(?P<path>[^\s]+)")
_SSH_ALIASES = {"ssh.github.com": "github.com"}


def parse_remote(url: str) -> tuple[str, str, str] | None:
    """Host, owner and name of a remote's URL; None if it is no such place. Credentials in the URL are dropped.

    The port stays with the host of an http(s) URL, where the API is, and goes with that of an ssh one.
    """
    text = url.strip()
    if "://" in text:
        host, path = _split_url(text)
    else:
        match = _SCP.fullmatch(text)
        host, path = (match["host"], match["path"]) if match else ("", "")
    parts = path.strip("/").removesuffix(".git").split("/")
    if not host or len(parts) != 2 or any(p in (".", "..") or not _NAME.fullmatch(p) for p in parts):
        return None
    host = host.lower()
    return _SSH_ALIASES.get(host, host), parts[0], parts[1]


def _split_url(text: str) -> tuple[str, str]:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "", ""
    if parts.scheme not in ("http", "https", "ssh", "git", "git+ssh", "ssh+git") or parts.query or parts.fragment:
        return "", ""
    host = f"[{host}]" if ":" in host else host
    default = {"http": 80, "https": 443}.get(parts.scheme)
    keeps_port = default is not None and port not in (None, default)
    return (f"{host}:{port}" if keeps_port else host), parts.path
