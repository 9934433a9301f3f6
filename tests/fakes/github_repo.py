"""A repository of the stand-in for GitHub: its issues, pull requests, checks, reviews and comments.

The methods are what people and services do at GitHub; each moves the clock's time into what it changes. A check
moves no pull request's `updated_at`, as at GitHub.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol


class Remote(Protocol):
    """The branches of a repository."""

    def tip(self, branch: str) -> str | None: ...

    def is_ahead(self, base: str, head: str) -> bool:
        """Whether the head branch has commits that the base branch has not."""
        ...

    def can_merge(self, base: str, head: str) -> bool: ...

    def has(self, branch: str, commit: str) -> bool:
        """Whether the branch contains the commit, so that its pull request counts as merged."""
        ...

    def merge(self, base: str, head: str, method: str, message: str) -> str: ...

    def delete(self, branch: str) -> None: ...


class Branches:
    """Branches without a git behind them: names and made-up commits."""

    def __init__(self) -> None:
        self.tips: dict[str, str] = {"main": sha(0)}
        self.conflicting: set[str] = set()
        self._commits = itertools.count(1_000_000)

    def tip(self, branch: str) -> str | None:
        return self.tips.get(branch)

    def is_ahead(self, base: str, head: str) -> bool:
        return self.tips[base] != self.tips[head]

    def can_merge(self, base: str, head: str) -> bool:
        return head not in self.conflicting

    def has(self, branch: str, commit: str) -> bool:
        return False

    def merge(self, base: str, head: str, method: str, message: str) -> str:
        self.tips[base] = sha(next(self._commits))
        return self.tips[base]

    def delete(self, branch: str) -> None:
        del self.tips[branch]


def sha(number: int) -> str:
    return f"{number:040x}"


@dataclass
class Issue:
    number: int
    title: str
    body: str | None
    labels: list[str]
    assignees: list[str]
    created_at: datetime
    updated_at: datetime
    state: str = "open"
    gone: bool = False


@dataclass
class Pull(Issue):
    """An issue with branches. `head_repo` is another repository's id when it comes from a fork."""

    head: str = ""
    base: str = ""
    head_sha: str = ""
    draft: bool = False
    head_owner: str = ""
    head_repo: int = 0
    merged_at: datetime | None = None
    merge_commit: str | None = None
    looked: bool = False
    reviewers: list[str] = field(default_factory=list)
    reviews: list[dict[str, Any]] = field(default_factory=list)
    line_comments: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Repo:
    """`refuses` is why a protected branch takes no merge; `lazy` works out `mergeable` only after a first look."""

    id: int
    owner: str
    name: str
    now: Callable[[], datetime]
    remote: Remote = field(default_factory=Branches)
    private: bool = False
    may_push: bool = True
    takes_drafts: bool = True
    lazy: bool = False
    refuses: str = ""
    methods: frozenset[str] = frozenset({"merge", "squash", "rebase"})
    collaborators: set[str] = field(default_factory=set)
    forks: dict[str, Repo] = field(default_factory=dict)
    issues: dict[int, Issue] = field(default_factory=dict)
    issue_comments: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    runs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    statuses: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    logs: dict[int, bytes | None] = field(default_factory=dict)
    pushed_at: datetime | None = None

    def __post_init__(self) -> None:
        self.pushed_at = self.now()
        self._numbers = itertools.count(1)
        self._ids = itertools.count(1001)

    @property
    def slug(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def pulls(self) -> dict[int, Pull]:
        return {number: issue for number, issue in self.issues.items() if isinstance(issue, Pull)}

    @property
    def branches(self) -> Branches:
        assert isinstance(self.remote, Branches), "the branches are in a real repository"
        return self.remote

    # People

    def add_issue(
        self, title: str, body: str | None = None, *, labels: tuple[str, ...] = (), assignees: tuple[str, ...] = ()
    ) -> int:
        number, now = next(self._numbers), self.now()
        self.issues[number] = Issue(number, title, body, list(labels), list(assignees), now, now)
        return number

    def add_pull(
        self,
        head: str,
        title: str = "A change",
        *,
        base: str = "main",
        body: str = "",
        draft: bool = False,
        head_sha: str = "",
        fork: str = "",
    ) -> int:
        """Opened by a person; a `fork` is the owner of the repository that has the branch."""
        number, now = next(self._numbers), self.now()
        if head_sha and not fork:
            self.branches.tips[head] = head_sha
        tip = head_sha or self.source(fork).remote.tip(head)
        assert tip, f"there is no branch {head}"
        self.issues[number] = Pull(
            number,
            title,
            body,
            [],
            [],
            now,
            now,
            head=head,
            base=base,
            head_sha=tip,
            draft=draft,
            head_owner=fork or self.owner,
            head_repo=self.forks[fork].id if fork in self.forks else self.id + 500_000 if fork else self.id,
        )
        return number

    def source(self, owner: str) -> Repo:
        """The repository of an owner that branches come from: a fork, or this one."""
        return self.forks.get(owner, self)

    def delete_fork(self, owner: str) -> None:
        """Its pull requests stay, and their branches are of an unknown repository."""
        gone = self.forks.pop(owner)
        for pull in self.pulls.values():
            if pull.head_repo == gone.id:
                pull.head_repo = 0
                self._touch(pull)

    def push(self, branch: str, commit: str) -> None:
        self.branches.tips[branch] = commit
        self.refresh()

    def refresh(self) -> None:
        """See what was pushed since."""
        for pull in self.pulls.values():
            source = self.source(pull.head_owner)
            if pull.state != "open" or pull.head_repo != source.id:
                continue
            tip = source.remote.tip(pull.head)
            if tip and tip != pull.head_sha:
                pull.head_sha, pull.looked, self.pushed_at = tip, False, self.now()
                self._touch(pull)
            if self.remote.has(pull.base, pull.head_sha):
                self._end(pull, merge_commit=pull.head_sha)

    def add_review(
        self,
        number: int,
        author: str,
        state: str,
        body: str = "",
        *,
        commit: str = "",
        association: str = "MEMBER",
    ) -> int:
        """`state` is APPROVED, CHANGES_REQUESTED, COMMENTED, DISMISSED, or PENDING while it is being written."""
        pull, made = self.pulls[number], next(self._ids)
        pull.reviews.append(
            {
                "id": made,
                "user": {"login": author},
                "body": body,
                "state": state,
                "commit_id": commit or pull.head_sha,
                "html_url": f"{self.page}/pull/{number}#pullrequestreview-{made}",
                "author_association": association,
                **({} if state == "PENDING" else {"submitted_at": spelled(self.now())}),
            }
        )
        if state != "PENDING":
            self._touch(pull)
        return made

    def dismiss_review(self, number: int, review: int) -> None:
        next(r for r in self.pulls[number].reviews if r["id"] == review)["state"] = "DISMISSED"
        self._touch(self.pulls[number])

    def add_comment(
        self,
        number: int,
        author: str,
        body: str,
        *,
        path: str = "",
        line: int | None = None,
        association: str = "MEMBER",
    ) -> int:
        """On a line of a file with `path`, else on the whole."""
        made, at = next(self._ids), spelled(self.now())
        comment = {
            "id": made,
            "user": {"login": author} if author else None,
            "body": body,
            "created_at": at,
            "updated_at": at,
            "author_association": association,
            "html_url": f"{self.page}/pull/{number}#{'discussion_r' if path else 'issuecomment-'}{made}",
        }
        if path:
            comment |= {"path": path, "line": line, "original_line": line, "subject_type": "line"}
            self.pulls[number].line_comments.append(comment)
        else:
            self.issue_comments.setdefault(number, []).append(comment)
        self._touch(self.issues[number])
        return made

    def outdate(self, number: int, comment: int) -> None:
        """The line of a comment is gone; that alone changes no `updated_at`."""
        next(c for c in self.pulls[number].line_comments if c["id"] == comment)["line"] = None

    def delete_comment(self, number: int, comment: int) -> None:
        for kept in (self.pulls[number].line_comments, self.issue_comments.get(number, [])):
            kept[:] = [c for c in kept if c["id"] != comment]
        self._touch(self.pulls[number])

    def edit(self, number: int, **fields: Any) -> None:
        for name, value in fields.items():
            assert hasattr(self.issues[number], name)
            setattr(self.issues[number], name, value)
        self._touch(self.issues[number])

    def merge_by_hand(self, number: int, method: str = "merge") -> str:
        return self.merge(self.pulls[number], method, "")

    def close(self, number: int) -> None:
        self.edit(number, state="closed")

    def reopen(self, number: int) -> None:
        self.edit(number, state="open")

    # Services

    def add_check(
        self,
        commit: str,
        name: str,
        status: str = "completed",
        conclusion: str | None = "success",
        *,
        log: str | bytes | None = None,
        title: str | None = None,
        summary: str | None = None,
        app: str = "github-actions",
        details_url: str = "",
    ) -> int:
        """A run of a check; a later one of the same name and app takes its place. A `log` is that of its job."""
        made = next(self._ids)
        url = details_url or f"{self.page}/actions/runs/7/job/{made}"
        self.runs.setdefault(commit, []).append(
            {
                "id": made,
                "name": name,
                "head_sha": commit,
                "status": status,
                "conclusion": conclusion if status == "completed" else None,
                "details_url": url,
                "html_url": f"{self.page}/runs/{made}",
                "output": {"title": title, "summary": summary},
                "app": {"slug": app},
            }
        )
        self.logs[made] = log.encode() if isinstance(log, str) else log
        return made

    def finish_check(self, check: int, conclusion: str, *, log: str | bytes | None = None) -> None:
        run = next(run for runs in self.runs.values() for run in runs if run["id"] == check)
        run |= {"status": "completed", "conclusion": conclusion}
        self.logs[check] = log.encode() if isinstance(log, str) else log

    def add_status(
        self, commit: str, context: str, state: str, description: str | None = None, target_url: str | None = None
    ) -> int:
        """As older services do: success, failure, error or pending."""
        made = next(self._ids)
        known = self.statuses.setdefault(commit, [])
        known[:] = [status for status in known if status["context"] != context]
        said = {"description": description, "target_url": target_url}
        at = spelled(self.now())
        known.append({"id": made, "context": context, "state": state, "created_at": at, "updated_at": at, **said})
        return made

    # GitHub itself

    @property
    def page(self) -> str:
        return f"https://github.example/{self.slug}"

    def can_merge(self, pull: Pull) -> bool | None:
        """GitHub works it out in the background; a first look may come too early."""
        if pull.state != "open" or (self.lazy and not pull.looked):
            pull.looked = True
            return None
        return pull.head_repo != self.id or self.remote.can_merge(pull.base, pull.head)

    def merge(self, pull: Pull, method: str, title: str) -> str:
        words = title or f"Merge pull request #{pull.number} from {pull.head_owner}/{pull.head}"
        self._end(pull, merge_commit=self.remote.merge(pull.base, pull.head, method, words))
        self.pushed_at = self.now()
        assert pull.merge_commit
        return pull.merge_commit

    def next_number(self) -> int:
        return next(self._numbers)

    def _end(self, pull: Pull, *, merge_commit: str) -> None:
        pull.state, pull.merge_commit, pull.merged_at = "closed", merge_commit, self.now()
        self._touch(pull)

    def _touch(self, issue: Issue) -> None:
        issue.updated_at = self.now()


def spelled(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
