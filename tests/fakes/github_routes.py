"""What the stand-in for GitHub answers below a repository: one function for each question that swarm may ask."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from tests.fakes.github_repo import Issue, Pull, Repo, spelled

_LONGEST_BODY = 65536
_PAGES = frozenset({"page", "per_page"})
_SHA = r"(?P<sha>[0-9a-f]{40})"


@dataclass
class Call:
    """A request below a repository. `publish` puts a job's log where it can be read, and says where."""

    repo: Repo
    words: Mapping[str, str]
    query: Mapping[str, str]
    body: Any
    publish: Callable[[int, bytes], str]

    @property
    def number(self) -> int:
        return int(self.words["number"])

    def pull(self) -> Pull:
        if self.number not in self.repo.pulls:
            raise Refused(404, "Not Found")
        return self.repo.pulls[self.number]


@dataclass
class Reply:
    """`rows` are a list that comes in pages, `wrap` puts a page of it into what is sent."""

    data: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    costs: bool = True
    rows: list[Any] | None = None
    wrap: Callable[[list[Any]], Any] = lambda rows: rows


class Refused(Exception):
    def __init__(self, status: int, message: str, *errors: Any, costs: bool = True) -> None:
        super().__init__(message)
        self.status, self.costs = status, costs
        self.body = {"message": message, **({"errors": list(errors)} if errors else {})}


@dataclass(frozen=True)
class Route:
    method: str
    path: re.Pattern[str]
    answer: Callable[[Call], Reply]
    query: frozenset[str]


ROUTES: list[Route] = []


def route(
    method: str, path: str, *query: str, pages: bool = False
) -> Callable[[Callable[[Call], Reply]], Callable[[Call], Reply]]:
    def register(answer: Callable[[Call], Reply]) -> Callable[[Call], Reply]:
        ROUTES.append(
            Route(method, re.compile(path), answer, frozenset(query) | (_PAGES if pages else frozenset()))
        )
        return answer

    return register


@route("GET", "")
def get_repo(call: Call) -> Reply:
    repo = call.repo
    permissions = {"pull": True, "push": repo.may_push, "admin": False}
    return Reply(_repo_json(repo) | {"private": repo.private, "permissions": permissions})


@route("GET", "/issues", "state", "sort", "direction", pages=True)
def list_issues(call: Call) -> Reply:
    found = _sorted([i for i in call.repo.issues.values() if not i.gone], call.query)
    return Reply(rows=[_issue_json(call.repo, issue) for issue in found])


@route("GET", r"/issues/(?P<number>\d+)")
def get_issue(call: Call) -> Reply:
    issue = call.repo.issues.get(call.number)
    if issue is None:
        raise Refused(404, "Not Found")
    if issue.gone:
        raise Refused(410, "This issue was deleted")
    return Reply(_issue_json(call.repo, issue))


@route("POST", r"/issues/(?P<number>\d+)/labels")
def add_labels(call: Call) -> Reply:
    labels = _fields(call, {"labels": list})["labels"]
    issue = call.repo.issues.get(call.number)
    if issue is None:
        raise Refused(404, "Not Found")
    if any(not isinstance(name, str) or not name or len(name) > 50 for name in labels):
        raise Refused(422, "Validation Failed", {"resource": "Label", "field": "name", "code": "invalid"})
    call.repo.edit(call.number, labels=[*issue.labels, *(name for name in labels if name not in issue.labels)])
    return Reply([{"name": name} for name in issue.labels])


@route("GET", r"/issues/(?P<number>\d+)/comments", pages=True)
def list_issue_comments(call: Call) -> Reply:
    if call.number not in call.repo.issues:
        raise Refused(404, "Not Found")
    return Reply(rows=call.repo.issue_comments.get(call.number, []))


@route("GET", "/pulls", "state", "head", "base", "sort", "direction", pages=True)
def list_pulls(call: Call) -> Reply:
    owner, _, branch = call.query.get("head", "").partition(":")
    found = _sorted(list(call.repo.pulls.values()), call.query)
    if branch:  # a filter of another shape is left out
        found = [p for p in found if isinstance(p, Pull) and (p.head_owner, p.head) == (owner, branch)]
    if base := call.query.get("base"):
        found = [p for p in found if isinstance(p, Pull) and p.base == base]
    return Reply(rows=[_pull_json(call.repo, p) for p in found if isinstance(p, Pull)])


@route("POST", "/pulls")
def open_pull(call: Call) -> Reply:
    repo = call.repo
    asked = _fields(call, {"title": str, "head": str, "base": str}, {"body": str, "draft": bool})
    title, base, draft = asked["title"], asked["base"], asked.get("draft", False)
    owner, _, head = asked["head"].rpartition(":")
    fork = owner if owner in repo.forks else ""
    source = repo.source(owner)
    if not title.strip():
        raise Refused(422, "Validation Failed", _invalid("title", "missing_field"))
    if len(asked.get("body", "")) > _LONGEST_BODY:
        raise Refused(
            422, "Validation Failed", _custom(f"body is too long (maximum is {_LONGEST_BODY} characters)")
        )
    if not repo.remote.tip(base):
        raise Refused(422, "Validation Failed", _invalid("base", "invalid"))
    if not source.remote.tip(head) or owner not in ("", repo.owner, *repo.forks):
        raise Refused(422, "Validation Failed", _invalid("head", "invalid"))
    label = (source.owner, head, base)
    if any(p.state == "open" and (p.head_owner, p.head, p.base) == label for p in repo.pulls.values()):
        said = f"A pull request already exists for {source.owner}:{head}."
        raise Refused(422, "Validation Failed", _custom(said))
    if not fork and not repo.remote.is_ahead(base, head):
        raise Refused(422, "Validation Failed", _custom(f"No commits between {base} and {head}"))
    if draft and not repo.takes_drafts:
        raise Refused(422, "Draft pull requests are not supported in this repository.")
    number = repo.add_pull(head, title, base=base, body=asked.get("body", ""), draft=draft, fork=fork)
    return Reply(_whole_pull_json(repo, repo.pulls[number]), 201)


@route("GET", r"/pulls/(?P<number>\d+)")
def get_pull(call: Call) -> Reply:
    return Reply(_whole_pull_json(call.repo, call.pull()))


@route("PATCH", r"/pulls/(?P<number>\d+)")
def edit_pull(call: Call) -> Reply:
    pull = call.pull()
    asked = _fields(call, {}, {"state": str, "title": str, "body": str, "base": str})
    if asked.get("state", "open") not in ("open", "closed"):
        raise Refused(422, "Validation Failed", _invalid("state", "invalid"))
    if asked.get("state") == "open" and pull.merged_at:
        raise Refused(422, "Validation Failed", _custom("state cannot be changed. The pull request is merged."))
    if any(getattr(pull, name) != value for name, value in asked.items()):
        call.repo.edit(pull.number, **asked)
    return Reply(_whole_pull_json(call.repo, pull))


@route("PUT", r"/pulls/(?P<number>\d+)/merge")
def merge_pull(call: Call) -> Reply:
    repo, pull = call.repo, call.pull()
    asked = _fields(call, {}, {"sha": str, "merge_method": str, "commit_title": str, "commit_message": str})
    method = asked.get("merge_method", "merge")
    if method not in ("merge", "squash", "rebase"):
        raise Refused(422, "Validation Failed", _invalid("merge_method", "invalid"))
    if pull.state != "open" or not repo.remote.can_merge(pull.base, pull.head):
        raise Refused(405, "Pull Request is not mergeable")
    if pull.draft:
        raise Refused(405, "Pull Request is still a draft")
    if repo.refuses:
        raise Refused(405, repo.refuses)
    if method not in repo.methods:
        raise Refused(405, f"{method.capitalize()} merges are not allowed on this repository.")
    if asked.get("sha", pull.head_sha) != pull.head_sha:
        raise Refused(409, "Head branch was modified. Review and try the merge again.")
    parts = (asked.get("commit_title", ""), asked.get("commit_message", ""))
    made = repo.merge(pull, method, "\n\n".join(part for part in parts if part))
    return Reply({"sha": made, "merged": True, "message": "Pull Request successfully merged"})


@route("GET", r"/pulls/(?P<number>\d+)/reviews", pages=True)
def list_reviews(call: Call) -> Reply:
    return Reply(rows=call.pull().reviews)


@route("GET", r"/pulls/(?P<number>\d+)/comments", pages=True)
def list_line_comments(call: Call) -> Reply:
    return Reply(rows=call.pull().line_comments)


@route("POST", r"/pulls/(?P<number>\d+)/requested_reviewers")
def request_reviewers(call: Call) -> Reply:
    pull = call.pull()
    asked = _fields(call, {}, {"reviewers": list, "team_reviewers": list})
    names = [*asked.get("reviewers", []), *asked.get("team_reviewers", [])]
    if any(name not in call.repo.collaborators for name in names):
        said = "Reviews may only be requested from collaborators. One or more of the users or teams is not."
        raise Refused(422, said)
    call.repo.edit(pull.number, reviewers=[*pull.reviewers, *(n for n in names if n not in pull.reviewers)])
    return Reply(_pull_json(call.repo, pull), 201)


@route("GET", f"/commits/{_SHA}/check-runs", "filter", "status", "check_name", pages=True)
def list_check_runs(call: Call) -> Reply:
    runs = call.repo.runs.get(call.words["sha"], [])
    if call.query.get("filter", "latest") == "latest":
        runs = list({(run["app"]["slug"], run["name"]): run for run in runs}.values())
    return Reply(rows=runs, wrap=lambda page: {"total_count": len(runs), "check_runs": page})


@route("GET", r"/check-runs/(?P<number>\d+)")
def get_check_run(call: Call) -> Reply:
    found = [run for runs in call.repo.runs.values() for run in runs if run["id"] == call.number]
    if not found:
        raise Refused(404, "Not Found")
    return Reply(found[0])


@route("GET", f"/commits/{_SHA}/status", pages=True)
def combined_status(call: Call) -> Reply:
    sha = call.words["sha"]
    rows = call.repo.statuses.get(sha, [])
    states = {row["state"] for row in rows}
    state = "failure" if states & {"failure", "error"} else "success" if states == {"success"} else "pending"
    return Reply(
        rows=rows, wrap=lambda page: {"state": state, "sha": sha, "total_count": len(rows), "statuses": page}
    )


@route("GET", r"/git/ref/heads/(?P<branch>.+)")
def get_ref(call: Call) -> Reply:
    branch = unquote(call.words["branch"])
    tip = call.repo.remote.tip(branch)
    if tip is None:
        raise Refused(404, "Not Found")
    return Reply({"ref": f"refs/heads/{branch}", "object": {"type": "commit", "sha": tip}})


@route("DELETE", r"/git/refs/heads/(?P<branch>.+)")
def delete_ref(call: Call) -> Reply:
    branch = unquote(call.words["branch"])
    if call.repo.remote.tip(branch) is None:
        raise Refused(422, "Reference does not exist")
    call.repo.remote.delete(branch)
    for pull in call.repo.pulls.values():
        if pull.state == "open" and pull.head == branch:
            call.repo.close(pull.number)
    return Reply(status=204)


@route("GET", r"/actions/jobs/(?P<number>\d+)/logs")
def get_log(call: Call) -> Reply:
    if call.number not in call.repo.logs:
        raise Refused(404, "Not Found")
    text = call.repo.logs[call.number]
    if text is None:
        raise Refused(410, "Server Error. Logs have expired.")
    return Reply(status=302, headers={"Location": call.publish(call.number, text)})


def _fields(call: Call, needed: Mapping[str, type], optional: Mapping[str, type] | None = None) -> dict[str, Any]:
    """The body, if every field is known and of its type."""
    known = {**needed, **(optional or {})}
    if not isinstance(call.body, dict):
        raise Refused(400, "Problems parsing JSON")
    for name, value in call.body.items():
        if name not in known:
            raise Refused(422, f'Invalid request.\n\n"{name}" is not a permitted key.')
        if not isinstance(value, known[name]):
            raise Refused(422, f"Invalid request.\n\nFor '{name}', {value!r} is not a {known[name].__name__}.")
    for name in needed:
        if name not in call.body:
            raise Refused(422, f'Invalid request.\n\n"{name}" wasn\'t supplied.')
    return dict(call.body)


def _sorted(issues: list[Any], query: Mapping[str, str]) -> list[Issue]:
    state, sort, direction = (
        query.get("state", "open"),
        query.get("sort", "created"),
        query.get("direction", "desc"),
    )
    good = state in ("open", "closed", "all") and sort in ("created", "updated") and direction in ("asc", "desc")
    if not good:
        raise Refused(422, "Validation Failed", _invalid("state", "invalid"))
    found = [issue for issue in issues if state in ("all", issue.state)]

    def key(issue: Issue) -> tuple[Any, int]:
        return (issue.updated_at if sort == "updated" else issue.created_at, issue.number)

    return sorted(found, key=key, reverse=direction == "desc")


def _custom(message: str) -> dict[str, str]:
    return {"resource": "PullRequest", "code": "custom", "message": message}


def _invalid(name: str, code: str) -> dict[str, str]:
    return {"resource": "PullRequest", "field": name, "code": code}


def _repo_json(repo: Repo) -> dict[str, Any]:
    """Part of every pull request, so that the ETags of all of them change with every push to any branch."""
    assert repo.pushed_at
    return {
        "id": repo.id,
        "name": repo.name,
        "full_name": repo.slug,
        "owner": {"login": repo.owner},
        "pushed_at": spelled(repo.pushed_at),
        "open_issues_count": sum(issue.state == "open" for issue in repo.issues.values()),
    }


def _issue_json(repo: Repo, issue: Issue) -> dict[str, Any]:
    kind = "pull" if isinstance(issue, Pull) else "issues"
    found = {
        "number": issue.number,
        "title": issue.title,
        "body": issue.body,
        "state": issue.state,
        "labels": [{"name": name} for name in issue.labels],
        "assignees": [{"login": name} for name in issue.assignees],
        "created_at": spelled(issue.created_at),
        "updated_at": spelled(issue.updated_at),
        "html_url": f"{repo.page}/{kind}/{issue.number}",
    }
    if isinstance(issue, Pull):
        found["pull_request"] = {"url": f"{repo.page}/pulls/{issue.number}"}
    return found


def _pull_json(repo: Repo, pull: Pull) -> dict[str, Any]:
    """As in a list: without what GitHub has to work out or count."""
    own = pull.head_repo == repo.id
    found = _issue_json(repo, pull)
    del found["pull_request"]
    return found | {
        "draft": pull.draft,
        "merged_at": spelled(pull.merged_at) if pull.merged_at else None,
        "merge_commit_sha": pull.merge_commit or "f" * 40,
        "requested_reviewers": [{"login": name} for name in pull.reviewers],
        "head": {
            "label": f"{pull.head_owner}:{pull.head}",
            "ref": pull.head,
            "sha": pull.head_sha,
            "repo": _repo_json(repo) if own else {"id": pull.head_repo} if pull.head_repo else None,
        },
        "base": {"label": f"{repo.owner}:{pull.base}", "ref": pull.base, "sha": "", "repo": _repo_json(repo)},
    }


def _whole_pull_json(repo: Repo, pull: Pull) -> dict[str, Any]:
    return _pull_json(repo, pull) | {
        "merged": pull.merged_at is not None,
        "mergeable": repo.can_merge(pull),
        "comments": len(repo.issue_comments.get(pull.number, [])),
        "review_comments": len(pull.line_comments),
    }
