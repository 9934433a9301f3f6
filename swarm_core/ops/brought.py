"""The commits that a pull request would bring to its base: a request for changes of any of them counts.

They are listed when head or base have moved, and stored: lists read them without starting git.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from swarm_core.hosts.base import Host
from swarm_core.models import Pull
from swarm_core.store import pull_commits, pulls
from swarm_core.store.database import Database


@dataclass(frozen=True, slots=True)
class Span:
    """The commits from a base to a head, each with its parents; None are those that are stored already."""

    base: str
    head: str
    commits: Mapping[str, Sequence[str]] | None

    @property
    def key(self) -> str:
        return f"{self.base}..{self.head}"


def listed(
    host: Host,
    repo_path: str,
    head: str,
    *,
    base_branch: str,
    at_remote: bool,
    base: str | None = None,
    known: str = "",
) -> Span | None:
    """What leads to the head beyond its base, where that is known to be; None if git cannot list it."""
    base = base or host.base_tip(repo_path, base_branch, at_remote=at_remote)
    if base is None:
        return None
    if known == (span := Span(base, head, None)).key:
        return span
    commits = host.commits_beyond(repo_path, base, head)
    return None if commits is None else Span(base, head, commits)


def of_pull(
    host: Host, pull: Pull, *, head: str | None = None, base: str | None = None, known: str = ""
) -> Span | None:
    """The same of a pull request; ask before the transaction.

    `known` is what is stored, for a look. A merge lists them again: another look may have stored others meanwhile.
    """
    return listed(
        host,
        pull.repo_path,
        head or pull.head_commit,
        base_branch=pull.base_branch,
        at_remote=bool(pull.repository),
        base=base,
        known=known,
    )


def keep(db: Database, pull: Pull, span: Span | None) -> Pull:
    """Store it with the pull request, in the caller's transaction; not what belongs to another head."""
    if span is None or span.commits is None or span.head != pull.head_commit:
        return pull
    below = {commit: parents for commit, parents in span.commits.items() if commit != span.head}
    pull_commits.replace(db, pull.id, below)
    return pulls.looked(db, pull, span=span.key)


def drop(db: Database, pull: Pull) -> Pull:
    """Forget them: it is over."""
    pull_commits.drop(db, pull.id)
    return pulls.looked(db, pull, span="")
