"""The text an agent starts with."""

from __future__ import annotations

from swarm_core.forge import Issue


def work(prompt: str, *, issue_number: int | None, issue: Issue | None) -> str:
    """The person's words, after the issue they belong to."""
    if issue_number is None:
        return prompt
    title = f": {issue.title}" if issue else ""
    parts = [f"# Work on issue #{issue_number}{title}"]
    if issue and issue.url:
        parts.append(issue.url)
    if issue and issue.body.strip():
        parts.append(issue.body.strip())
    if prompt:
        parts.append(prompt)
    return "\n\n".join(parts)
