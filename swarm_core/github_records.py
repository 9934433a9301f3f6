"""What GitHub's JSON says, as our records; another shape is a KeyError, TypeError, ValueError, AttributeError."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from swarm_core.forge import Check, CheckState, Comment, Issue, RemotePull, Review, ReviewState
from swarm_core.models import iso, parse_iso

SUMMARY_CHARS = 2000
Json = Mapping[str, Any]

_CONCLUSIONS = {
    "success": CheckState.PASSED,
    "neutral": CheckState.PASSED,
    "skipped": CheckState.SKIPPED,
    "failure": CheckState.FAILED,
    "timed_out": CheckState.FAILED,
    "cancelled": CheckState.FAILED,
    "action_required": CheckState.FAILED,
    "startup_failure": CheckState.FAILED,
    "stale": CheckState.FAILED,
}
_NO_FAULT = frozenset({"cancelled", "action_required", "stale", "neutral"})
_STATUSES = {"success": CheckState.PASSED, "failure": CheckState.FAILED, "error": CheckState.FAILED}
_REVIEWS = {state.name: state for state in ReviewState}
_HAVE_A_SAY = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
_JOB = re.compile(r"/actions/runs/\d+/jobs?/(\d+)")


def issue(found: Json) -> Issue:
    return Issue(
        int(found["number"]),
        str(found["title"]),
        text(found.get("body")),
        str(found["html_url"]),
        state=str(found.get("state") or "open"),
        labels=tuple(_name(label, "name") for label in found.get("labels") or ()),
        assignees=tuple(_name(person, "login") for person in found.get("assignees") or ()),
        updated_at=time_of(found.get("updated_at")),
    )


def pull(found: Json) -> RemotePull:
    """One from a fork has `owner:branch` as its branch, which no branch of the repository can be called."""
    head, merged = found["head"], bool(found.get("merged") or found.get("merged_at"))
    return RemotePull(
        number=int(found["number"]),
        url=str(found["html_url"]),
        state="merged" if merged else str(found["state"]),
        draft=bool(found.get("draft")),
        title=str(found["title"]),
        head_branch=str(head["ref"] if is_own(found) else head.get("label") or f"?:{head['ref']}"),
        head_commit=str(head["sha"]),
        base_branch=str(found["base"]["ref"]),
        updated_at=time_of(found.get("updated_at")),
        mergeable=found.get("mergeable"),
        # While it is open this is a commit that GitHub tries the merge with.
        merge_commit=found.get("merge_commit_sha") if merged else None,
    )


def is_own(found: Json) -> bool:
    """Whether the branch of a pull request is in the repository it is for."""
    head, base = found["head"].get("repo"), found["base"].get("repo")
    return bool(head) and bool(base) and head["id"] == base["id"]


def check_of_run(found: Json) -> Check:
    url, conclusion = text(found.get("details_url") or found.get("html_url")), text(found.get("conclusion"))
    state = check_state(text(found.get("status")), conclusion)
    number, app = int(found["id"]), (found.get("app") or {}).get("slug")
    job, name = job_of(number, app, url), str(found["name"])
    return Check(run_id(number), name, state, url, summary_of_run(found), job, has_fault(conclusion))


def summary_of_run(found: Json) -> str:
    output = found.get("output") or {}
    return "\n\n".join(t for t in (text(output.get("title")), text(output.get("summary"))) if t)[:SUMMARY_CHARS]


def run_id(number: int) -> str:
    return f"run:{number}"


def number_of_run(check: Check) -> int | None:
    """What GitHub calls a run; None for a status, which is none."""
    kind, _, number = check.id.partition(":")
    return int(number) if kind == "run" else None


def has_fault(conclusion: str) -> bool:
    return conclusion not in _NO_FAULT


def check_state(status: str, conclusion: str) -> CheckState:
    """What is not over, or ends in a way we do not know, is pending."""
    return _CONCLUSIONS.get(conclusion, CheckState.PENDING) if status == "completed" else CheckState.PENDING


def job_of(number: int, app: str | None, url: str) -> int | None:
    """The job whose log belongs to a run of a check; for GitHub's own it is the run itself."""
    if app == "github-actions":
        return number
    match = _JOB.search(url)
    return int(match[1]) if match else None


def check_of_status(found: Json) -> Check:
    state = _STATUSES.get(text(found.get("state")), CheckState.PENDING)
    said, url = text(found.get("description")), text(found.get("target_url"))
    context, at = str(found["context"]), time_of(found.get("created_at"))
    return Check(status_id(context, text(found.get("state")), at), context, state, url, said[:SUMMARY_CHARS])


def status_id(context: str, state: str, at: str) -> str:
    """Of what REST and GraphQL both tell: their own ids of one status are a number there and a word here."""
    return f"status:{context}:{state.lower()}:{at}"


def review(found: Json) -> Review | None:
    """None for one that is not yet handed in."""
    state = _REVIEWS.get(text(found.get("state")).upper())
    if state is None:
        return None
    return Review(
        id=str(int(found["id"])),
        author=_author(found),
        state=state,
        body=text(found.get("body")),
        commit=text(found.get("commit_id")),
        at=time_of(found.get("submitted_at")),
        url=text(found.get("html_url")),
        trusted=found.get("author_association") in _HAVE_A_SAY,
    )


def comment_on_line(found: Json) -> Comment:
    line, of_file = found.get("line"), found.get("subject_type") == "file"
    return Comment(
        id=f"review:{int(found['id'])}",
        author=_author(found),
        body=text(found.get("body")),
        at=time_of(found.get("created_at")),
        url=text(found.get("html_url")),
        trusted=found.get("author_association") in _HAVE_A_SAY,
        path=str(found["path"]),
        line=line if line is not None else found.get("original_line"),
        outdated=line is None and not of_file,
    )


def comment_on_whole(found: Json) -> Comment:
    return Comment(
        id=f"issue:{int(found['id'])}",
        author=_author(found),
        body=text(found.get("body")),
        at=time_of(found.get("created_at")),
        url=text(found.get("html_url")),
        trusted=found.get("author_association") in _HAVE_A_SAY,
    )


def _author(found: Json) -> str:
    return _name(found.get("user") or {"login": "ghost"}, "login")  # GitHub's name for who is gone


def _name(found: Any, key: str) -> str:
    return str(found if isinstance(found, str) else found[key])


def text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def time_of(value: Any) -> str:
    return iso(parse_iso(value)) if isinstance(value, str) and value else ""
