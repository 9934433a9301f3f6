"""The stand-in's GraphQL: the one question that swarm asks, with only the fields that GitHub's schema has."""

from __future__ import annotations

import re
from typing import Any

from tests.fakes import github_queries
from tests.fakes.github_repo import Pull, Repo, spelled
from tests.fakes.github_schemas import editions

_MERGEABLE = {True: "MERGEABLE", False: "CONFLICTING", None: "UNKNOWN"}


# Answers with the status 200 that are none, by the kind of failure.
BROKEN: dict[str, dict[str, Any]] = {
    "graphql_limited": {"errors": [{"type": "RATE_LIMITED", "message": "API rate limit already exceeded."}]},
    "graphql_forbidden": {
        "data": {"repository": {}},
        "errors": [{"type": "FORBIDDEN", "message": "Resource not accessible by personal access token"}],
    },
    "graphql_silent": {"data": {"repository": {"p1": None}}},
    "graphql_heavy": {
        "data": None,
        "errors": [{"type": "RESOURCE_LIMITS_EXCEEDED", "message": "Resource limits for this query exceeded."}],
    },
    "graphql_broken": {"data": None, "errors": [{"message": "Something went wrong while executing your query."}]},
}


def answer(repo: Repo | None, query: str) -> dict[str, Any]:
    """Data and errors, both of which may come. A field that is not in the schema is an error and nothing else."""
    asked = {alias: int(number) for alias, number in re.findall(r"(\w+): pullRequest\(number: (\d+)\)", query)}
    if wrong := github_queries.check(query).errors if editions() else ():
        return {"errors": [{"extensions": {"code": "undefinedField"}, "message": said} for said in wrong]}
    if repo is None:
        said = {"type": "NOT_FOUND", "path": ["repository"], "message": "Could not resolve to a Repository."}
        return {"data": {"repository": None}, "errors": [said]}
    pulls = {alias: repo.pulls.get(number) for alias, number in asked.items()}
    errors = [
        {"type": "NOT_FOUND", "path": ["repository", alias], "message": "Could not resolve to a PullRequest"}
        for alias, pull in pulls.items()
        if pull is None
    ]
    found = {alias: pull and _pull(repo, pull) for alias, pull in pulls.items()}
    return {"data": {"repository": found}} | ({"errors": errors} if errors else {})


def faults(query: str, reply: dict[str, Any]) -> list[str]:
    """What GitHub's schema has not: a field of the query, or of what the stand-in answers."""
    if "data" not in reply or not editions():
        return [f"graphql: {error['message']}" for error in reply.get("errors", ())]
    found = [] if reply["data"] is None else github_queries.check(query).faults(reply["data"])
    return [f"graphql: {fault}" for fault in found]


def _pull(repo: Repo, pull: Pull) -> dict[str, Any]:
    return {
        "number": pull.number,
        "url": f"{repo.page}/pull/{pull.number}",
        "state": "MERGED" if pull.merged_at else pull.state.upper(),
        "isDraft": pull.draft,
        "title": pull.title,
        "headRefName": pull.head,
        "headRefOid": pull.head_sha,
        "baseRefName": pull.base,
        "updatedAt": spelled(pull.updated_at),
        "mergeable": _MERGEABLE[repo.can_merge(pull)],
        "isCrossRepository": pull.head_repo != repo.id,
        "headRepositoryOwner": {"login": pull.head_owner} if pull.head_repo else None,
        "mergeCommit": {"oid": pull.merge_commit} if pull.merge_commit else None,
        "reviews": {"totalCount": len(pull.reviews)},
        "comments": {"totalCount": len(repo.issue_comments.get(pull.number, []))},
        "reviewThreads": {"totalCount": len(pull.line_comments)},
        "commits": {
            "nodes": [{"commit": {"oid": pull.head_sha, "statusCheckRollup": _rollup(repo, pull.head_sha)}}]
        },
    }


def _rollup(repo: Repo, commit: str) -> dict[str, Any] | None:
    latest = {(run["app"]["slug"], run["name"]): run for run in repo.runs.get(commit, [])}.values()
    nodes = [*map(_run, latest), *map(_status, repo.statuses.get(commit, []))]
    if not nodes:
        return None
    page = {"hasNextPage": len(nodes) > 100}
    return {"contexts": {"pageInfo": page, "nodes": nodes[:100]}}


def _run(run: dict[str, Any]) -> dict[str, Any]:
    return {
        "__typename": "CheckRun",
        "databaseId": run["id"],
        "name": run["name"],
        "status": run["status"].upper(),
        "conclusion": run["conclusion"] and run["conclusion"].upper(),
        "detailsUrl": run["details_url"],
        "checkSuite": {"app": {"slug": run["app"]["slug"]}},
    }


def _status(status: dict[str, Any]) -> dict[str, Any]:
    return {
        "__typename": "StatusContext",
        "context": status["context"],
        "state": status["state"].upper(),
        "createdAt": status["created_at"],
        "targetUrl": status["target_url"],
        "description": status["description"],
    }
