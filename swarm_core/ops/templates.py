"""Prompt templates: what a repository puts in the place of ours, and filling in the names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from swarm_core.errors import InvalidInput
from swarm_core.hosts.base import Host

FOLDER = ".swarm/prompts"
MAX_BYTES = 256 * 1024
_NAME = re.compile(r"\{\{[ \t]*([^{}\n]*?)[ \t]*\}\}")


def find(host: Host, repo_path: str, commit: str | None, name: str) -> str | None:
    """The repository's own template as the commit has it; None when it has none."""
    if commit is None:
        return None
    path = f"{FOLDER}/{name}.md"
    try:
        return host.read_file(repo_path, commit, path, max_bytes=MAX_BYTES)
    except InvalidInput as error:
        raise InvalidInput(
            f"the template cannot be used: {error.message}",
            code="TEMPLATE_INVALID",
            hint=f"{path} is a UTF-8 text file of at most {MAX_BYTES >> 10} KB, committed on the base branch",
        ) from error


def fill(template: str, values: Mapping[str, str], *, sections: Mapping[str, str]) -> str:
    """The template with the values in the place of their names.

    `sections` name the values that must not get lost: one that the template leaves out is added at its end,
    under a heading. What a value contains is never taken for a name.
    """
    used = {found[1] for found in _NAME.finditer(template)}
    unknown = sorted(used - values.keys())
    if unknown:
        raise InvalidInput(
            f"the template names {', '.join(unknown)[:200]!r}, which does not exist",
            code="TEMPLATE_INVALID",
            hint=f"known names: {', '.join(sorted(values))}",
            details={"unknown": unknown[:20], "known": sorted(values)},
        )
    text = _NAME.sub(lambda found: values[found[1]], template).strip()
    for name, heading in sections.items():
        if name not in used and values[name].strip():
            text += f"\n\n## {heading}\n\n{values[name].strip()}"
    return text
