"""Many pull requests in one question: GitHub's GraphQL tells of fifty what REST tells of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from swarm_core.errors import ExternalFailure
from swarm_core.forge import Check, CheckState, RemotePull
from swarm_core.github_http import Api
from swarm_core.github_look import Now
from swarm_core.github_records import (
    SUMMARY_CHARS,
    check_state,
    has_fault,
    job_of,
    run_id,
    status_id,
    text,
    time_of,
)

MOST = 50
_FRAGMENT = """
fragment Facts on PullRequest {
  number url state isDraft title headRefName headRefOid baseRefName updatedAt mergeable isCrossRepository
  headRepositoryOwner { login }
  mergeCommit { oid }
  reviews { totalCount } comments { totalCount } reviewThreads { totalCount }
  commits(last: 1) { nodes { commit { oid statusCheckRollup { contexts(first: 100) {
    pageInfo { hasNextPage }
    nodes {
      __typename
      ... on CheckRun { databaseId name status conclusion detailsUrl checkSuite { app { slug } } }
      ... on StatusContext { context state createdAt targetUrl description }
    }
  } } } } }
}
"""
_STATES = {"SUCCESS": CheckState.PASSED, "FAILURE": CheckState.FAILED, "ERROR": CheckState.FAILED}
_MERGEABLE = {"MERGEABLE": True, "CONFLICTING": False}
_NOT_ALLOWED = frozenset({"FORBIDDEN", "INSUFFICIENT_SCOPES"})
_TOO_MUCH = frozenset({"RESOURCE_LIMITS_EXCEEDED", "MAX_NODE_LIMIT_EXCEEDED"})
_TOO_LONG = frozenset({502, 504})  # GitHub's answer to what it has worked on for ten seconds

Json = Mapping[str, Any]


class NoOverviewError(Exception):
    """This server or this token does not answer such questions."""


class TooMuchError(Exception):
    """It may be that fewer can be asked for; `failure` is what it is if not."""

    def __init__(self, failure: ExternalFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def ask(api: Api, owner: str, name: str, numbers: Sequence[int]) -> dict[int, Now]:
    """Each pull request that is there with its checks, if they all fit, and how much is said of it."""
    body = {"query": query(numbers), "variables": {"owner": owner, "name": name}}
    try:
        answer = api.ask("POST", api.graphql_path, body=body, accept=(404,), resource="graphql")
    except ExternalFailure as error:
        if error.details.get("too_large") or error.details.get("status") in _TOO_LONG:
            raise TooMuchError(error) from None
        raise
    data = answer.data if isinstance(answer.data, Mapping) else {}
    errors = [error for error in data.get("errors") or () if isinstance(error, Mapping)]
    kinds = {str(error.get("type") or (error.get("extensions") or {}).get("code")) for error in errors}
    if "RATE_LIMITED" in kinds:
        raise api.limited(answer)
    if answer.status == 404 or kinds & _NOT_ALLOWED or "undefinedField" in kinds:
        raise NoOverviewError
    if kinds & _TOO_MUCH:
        raise TooMuchError(api.not_understood(answer.said))
    repository = (data.get("data") or {}).get("repository")
    if kinds - {"NOT_FOUND"} or not isinstance(repository, Mapping):
        missing = kinds == {"NOT_FOUND"}
        raise api.failure(404, f"there is no {owner}/{name}") if missing else api.not_understood(answer.said)
    found = [node for node in repository.values() if node is not None]
    if len(repository) - len(found) > len(errors):
        raise api.not_understood("a pull request is left out without a word")
    return {int(node["number"]): Now(_pull(node), _checks(node), *_talk(node)) for node in found}


def query(numbers: Sequence[int]) -> str:
    asked = "\n".join(f"  p{int(number)}: pullRequest(number: {int(number)}) {{ ...Facts }}" for number in numbers)
    head = "query Pulls($owner: String!, $name: String!) { repository(owner: $owner, name: $name) {"
    return f"{head}\n{asked}\n}} }}{_FRAGMENT}"


def _pull(node: Json) -> RemotePull:
    branch, owner = str(node["headRefName"]), (node["headRepositoryOwner"] or {}).get("login", "?")
    return RemotePull(
        number=int(node["number"]),
        url=str(node["url"]),
        state=str(node["state"]).lower(),
        draft=bool(node["isDraft"]),
        title=str(node["title"]),
        head_branch=f"{owner}:{branch}" if node["isCrossRepository"] else branch,
        head_commit=str(node["headRefOid"]),
        base_branch=str(node["baseRefName"]),
        updated_at=time_of(node["updatedAt"]),
        mergeable=_MERGEABLE.get(str(node["mergeable"])),
        merge_commit=node["mergeCommit"]["oid"] if node["state"] == "MERGED" and node["mergeCommit"] else None,
    )


def _talk(node: Json) -> tuple[int, int]:
    """How many reviews and how many comments there are."""
    reviews, whole, lines = (int(node[n]["totalCount"]) for n in ("reviews", "comments", "reviewThreads"))
    return reviews, whole + lines


def _checks(node: Json) -> list[Check] | None:
    """Those of the newest commit, if that is the one the pull request is at."""
    commits = node["commits"]["nodes"]
    commit = commits[0]["commit"] if commits else None
    if commit is None or commit["oid"] != node["headRefOid"]:
        return None
    rollup = commit["statusCheckRollup"]
    if rollup is None:
        return []
    if rollup["contexts"]["pageInfo"]["hasNextPage"]:
        return None
    return [_check(context) for context in rollup["contexts"]["nodes"] if context is not None]


def _check(context: Json) -> Check:
    """What a run found is not asked for: up to 64 KB each make an answer that nobody can read."""
    if context["__typename"] == "StatusContext":
        state = _STATES.get(str(context["state"]), CheckState.PENDING)
        said, url = text(context["description"])[:SUMMARY_CHARS], text(context["targetUrl"])
        name, key = str(context["context"]), str(context["state"])
        return Check(status_id(name, key, time_of(context["createdAt"])), name, state, url, said)
    url, number = text(context["detailsUrl"]), int(context["databaseId"])
    app = ((context["checkSuite"] or {}).get("app") or {}).get("slug")
    conclusion = text(context["conclusion"]).lower()
    state, job = check_state(text(context["status"]).lower(), conclusion), job_of(number, app, url)
    return Check(run_id(number), str(context["name"]), state, url, "", job, has_fault(conclusion))
