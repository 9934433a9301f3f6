"""The command that lists what there is to work on: issues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from swarm_ui.cli import output, parameters

if TYPE_CHECKING:
    from swarm_core.forge import Issue
    from swarm_core.models import Instance
    from swarm_core.ops.issues import Listing

_TITLE = 48
_LABELS = 20


def issues(
    repo: Annotated[str, typer.Option(metavar="PATH", help="Repository.")] = ".",
    limit: Annotated[int, typer.Option(metavar="N", help="How many at most.")] = 30,
    json: parameters.Json = False,
) -> None:
    """List open issues and which instances work on them.

    From GitHub, or from .swarm/issues/N.md when the repository is not there. When GitHub does not
    answer, what it said last is shown, with its age.

    --json prints an object: source, repo_path, as_of (null when not from the cache), failure and issues:
    number, title, url, labels, assignees, updated_at, instances (id, status).

    \b
    Example:
      swarm issues --repo ~/shop --limit 10
      swarm work --issue 12
    """
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        swarm.context.report("asking for the issues")
        found = swarm.issues(repo, limit=limit)
        now = swarm.context.db.now()
    if json:
        output.write_json(_json(found))
        return
    if found.issues:
        _table(found, now)
    else:
        output.write(f"no open issues in {found.source}")
    _say_source(found, now)


def _json(found: Listing) -> dict[str, Any]:
    return {
        "source": found.source,
        "repo_path": found.repo_path,
        "as_of": found.as_of,
        "failure": found.failure,
        "issues": [_issue_json(issue, found.workers.get(issue.number, ())) for issue in found.issues],
    }


def _issue_json(issue: Issue, workers: Any) -> dict[str, Any]:
    return {
        "number": issue.number,
        "title": issue.title,
        "url": issue.url,
        "labels": list(issue.labels),
        "assignees": list(issue.assignees),
        "updated_at": issue.updated_at or None,
        "instances": [{"id": one.id, "status": one.status} for one in workers],
    }


def _table(found: Listing, now: str) -> None:
    from swarm_core.models import parse_iso
    from swarm_ui import views

    rows, styles = [], []
    for issue in found.issues:
        age = views.age(issue.updated_at, parse_iso(now)) if issue.updated_at else ""
        labels = output.cut(output.plain(", ".join(issue.labels)), _LABELS)
        title = output.cut(output.plain(issue.title), _TITLE)
        workers = ", ".join(_worker(one) for one in found.workers.get(issue.number, ()))
        rows.append((f"#{issue.number}", title, labels, ", ".join(issue.assignees), age, workers))
        styles.append(("bold", "", "dim", "", "", "green"))
    output.columns(("ISSUE", "TITLE", "LABELS", "ASSIGNEE", "CHANGED", "INSTANCES"), rows, styles)


def _worker(one: Instance) -> str:
    return f"{one.id} ({one.status})" if one.ended else one.id


def _say_source(found: Listing, now: str) -> None:
    if found.as_of is None:
        output.note(f"from {found.source}")
        return
    from swarm_core.models import parse_iso
    from swarm_ui import views

    age = views.age(found.as_of, parse_iso(now))
    output.note(f"from {found.source} as it was {age} ago: {found.failure}")
