"""Issues to work on: asked of where they are, and as they were when that does not answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from swarm_core.errors import ExternalFailure, InvalidInput, NotFound
from swarm_core.forge import Issue
from swarm_core.hosts.base import RepoFacts
from swarm_core.models import Instance, Kind, parse_iso
from swarm_core.ops import forges
from swarm_core.ops.context import Context
from swarm_core.store import instances, issues

LIMIT_MAX = 1000
LOCAL = ".swarm/issues"
_SURELY_ALL = 100  # GitHub lists pull requests among the issues, so a longer list may have been broken off
_PASSING = frozenset({"GITHUB_UNREACHABLE", "GITHUB_RATE_LIMITED"})
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


@dataclass(frozen=True, slots=True)
class Listing:
    """Open issues of one repository; `as_of` is when the oldest copy was made, None when these are no copies."""

    source: str
    repo_path: str
    issues: Sequence[Issue]
    workers: Mapping[int, Sequence[Instance]] = field(default_factory=dict)
    as_of: str | None = None
    failure: str = ""


def get(context: Context, repo: RepoFacts, number: int) -> Issue | None:
    """The issue; None if there is none. A copy of it serves while GitHub does not answer, and is reported."""
    place = forges.github_place(context, forges.target_url(context, repo))
    source = forges.issues_of(context, repo["repo_path"], forges.target_url(context, repo))
    if place is None:
        return source.get_issue(number)
    try:
        answer = source.get_issue(number)
    except ExternalFailure as error:
        return _copied(context, place, number, error)
    found = _storable(answer) if answer else None
    with context.db.write():
        if found is None:
            issues.forget(context.db, place, number)
        else:
            issues.put(context.db, place, [found])
    return found


def require(context: Context, repo: RepoFacts, number: int, *, required: bool) -> Issue | None:
    """The issue; raises NotFound when there is none, and None when that is not certain and it is not `required`.

    Without a token GitHub does not show private issues, and without GitHub issues may be kept anywhere.
    """
    found = get(context, repo, number)
    place = forges.github_place(context, forges.target_url(context, repo))
    certain = place is not None and forges.token_of(context, place) is not None
    if found is None and (required or certain):
        where = "/".join(place[1:]) if place else f"{LOCAL} of {repo['repo_path']}"
        raise NotFound(
            f"there is no issue #{number} in {where}",
            code="ISSUE_NOT_FOUND",
            hint="`swarm issues` lists the open ones; "
            + ("leave --issue out to work without one" if certain else "give a PROMPT to work without its text"),
        )
    return found


def listing(context: Context, repo: RepoFacts, *, limit: int) -> Listing:
    """The open issues and who works on them; copies, with their age, while GitHub does not answer."""
    if not 1 <= limit <= LIMIT_MAX:
        raise InvalidInput(f"--limit is between 1 and {LIMIT_MAX}", hint="for example --limit 30")
    place = forges.github_place(context, forges.target_url(context, repo))
    source = forges.issues_of(context, repo["repo_path"], forges.target_url(context, repo))
    workers = _workers(context, repo["repo_path"])
    if place is None:
        return Listing(LOCAL, repo["repo_path"], source.list_issues(limit=limit), workers)
    try:
        found = [_storable(issue) for issue in source.list_issues(limit=limit)]
    except ExternalFailure as error:
        return _copies(context, place, repo["repo_path"], workers, limit, error)
    with context.db.write():
        issues.put(context.db, place, found)
        issues.close_others(context.db, place, found, complete=len(found) < limit <= _SURELY_ALL)
    return Listing("/".join(place), repo["repo_path"], found, workers)


def ago(context: Context, at: str) -> str:
    """How long ago that was, in words of one unit."""
    seconds = max(0, int((parse_iso(context.db.now()) - parse_iso(at)).total_seconds()))
    return next((f"{seconds // size} {unit}" for size, unit in _UNITS if seconds >= size), f"{seconds} s")


def _storable(issue: Issue) -> Issue:
    """Without what neither a table nor a prompt can hold: anybody may write an issue."""
    texts = {name: getattr(issue, name) for name in ("title", "body", "url")}
    return replace(issue, **{k: v.encode(errors="replace").decode().replace("\0", "�") for k, v in texts.items()})


def _copied(context: Context, place: forges.Place, number: int, error: ExternalFailure) -> Issue:
    copy = issues.find(context.db, place, number)
    if copy is None or error.code not in _PASSING:
        raise error
    age = ago(context, copy.synced_at)
    context.report(f"going on with issue #{number} as it was {age} ago: {error.message}")
    return copy.issue


def _copies(
    context: Context,
    place: forges.Place,
    repo_path: str,
    workers: Mapping[int, Sequence[Instance]],
    limit: int,
    error: ExternalFailure,
) -> Listing:
    copies = issues.open_ones(context.db, place, limit=limit)
    if not copies or error.code not in _PASSING:
        raise error
    as_of = min(copy.synced_at for copy in copies)
    known = [copy.issue for copy in copies]
    return Listing("/".join(place), repo_path, known, workers, as_of=as_of, failure=error.message)


def _workers(context: Context, repo_path: str) -> dict[int, list[Instance]]:
    """Who is at each issue of the repository or was, as long as it is not cleaned; a review is no work."""
    found: dict[int, list[Instance]] = {}
    for one in instances.listed(context.db, repo_path=repo_path):
        if one.issue_number is not None and one.kind != Kind.REVIEW:
            found.setdefault(one.issue_number, []).append(one)
    return found
