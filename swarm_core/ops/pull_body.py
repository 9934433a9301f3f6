"""The text of a pull request: what its author says, and what we know of how the work came about."""

from __future__ import annotations

import re

from swarm_core.models import Instance, Verdict
from swarm_core.ops import lineage, templates
from swarm_core.ops.context import Context
from swarm_core.store import checked, relationships

BODY_MAX = 60_000  # GitHub takes 65,536 characters
_TEMPLATE = """{{ summary }}

{{ closes }}

{{ reviews }}

{{ tests }}

{{ cost }}"""
_VERDICTS = {
    str(Verdict.APPROVED): "approved",
    str(Verdict.NEEDS_WORK): "asked for changes",
    str(Verdict.NONE): "ended without a verdict",
}


def written(context: Context, work: Instance, summary: str, head: str, *, closes: bool) -> str:
    """The author's summary, the issue it closes, reviews, tests and cost, in the repository's template or ours.

    `closes` is whether the forge closes the issue when it reads so.
    """
    values = {
        "summary": _cut(summary.strip()),
        "closes": _closes(work, summary) if closes else "",
        "reviews": _reviews(context, work),
        "tests": _tests(context, work, head),
        "cost": _cost(work),
        "instance_id": work.id,
        "agent": work.agent,
        "issue_number": str(work.issue_number or ""),
        "issue_title": work.issue_title or "",
    }
    text = templates.fill(_template(context, work) or _TEMPLATE, values, sections={"summary": "Summary"})
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _template(context: Context, work: Instance) -> str | None:
    """The repository's own, from a commit that no agent has written."""
    first = lineage.origin(context.db, work)
    commit = lineage.trusted_commit(context.db, first.repo_path, first.base_branch, first.base_commit)
    return templates.find(context.host(work), work.repo_path, commit, "pull_request")


def _closes(work: Instance, summary: str) -> str:
    number = work.issue_number
    if number is None or re.search(rf"#{number}\b", summary):
        return ""
    return f"Closes #{number}"


def _reviews(context: Context, work: Instance) -> str:
    rounds = relationships.reviews_of(context.db, work.id)
    lines = [
        f"- round {link.round}: {link.child_id} {_VERDICTS.get(link.verdict or '', 'has not decided yet')}"
        f" on {link.head_commit[:12] if link.head_commit else 'no commit'}"
        for link in rounds
    ]
    return "\n".join(["## Reviews", "", *lines]) if lines else ""


def _tests(context: Context, work: Instance, head: str) -> str:
    found = checked.of(context.db, work.repo_path, head)
    lines = [f"- `{one.command}`: {'passed' if one.ok else 'failed'} in {one.seconds:.0f} s" for one in found]
    return "\n".join(["## Tests", "", *lines]) if lines else ""


def _cost(work: Instance) -> str:
    if not work.tokens_used:
        return ""
    return f"Made by {work.id} ({work.agent}): {work.tokens_used:,} tokens, about {work.cost_usd:.2f} USD."


def _cut(text: str) -> str:
    return text if len(text) <= BODY_MAX else f"{text[:BODY_MAX]}\n\n[cut: {len(text)} characters]"
