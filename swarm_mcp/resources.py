"""What clients that show resources and prompts can read: instances, feedback, and how to work or review."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import mcp_types as t

from swarm_core.errors import InvalidInput, NotFound
from swarm_core.models import as_json
from swarm_core.ops import describe
from swarm_core.store import feedback, instances
from swarm_core.swarm import Swarm

_JSON = "application/json"
_MOST = 200
_ISSUE = re.compile(r"[1-9][0-9]{0,8}")

TEMPLATES = (
    t.ResourceTemplate(
        name="instance",
        title="One instance",
        uri_template="swarm://instance/{id}",
        description="Status, branch, relationships and last events of an instance.",
        mime_type=_JSON,
    ),
    t.ResourceTemplate(
        name="feedback",
        title="Feedback to an instance",
        uri_template="swarm://feedback/{id}",
        description="What reviewers have said to a work instance, oldest first.",
        mime_type="text/markdown",
    ),
)
PROMPTS = (
    t.Prompt(
        name="work",
        title="Do the work of an issue",
        description="The instructions a work agent starts with.",
        arguments=[
            t.PromptArgument(name="task", description="What is to be done.", required=True),
            t.PromptArgument(name="issue", description="Number of the issue.", required=False),
        ],
    ),
    t.Prompt(
        name="review",
        title="Review an instance",
        description="The instructions a reviewer starts with.",
        arguments=[
            t.PromptArgument(name="instance_id", description="The work to review.", required=True),
            t.PromptArgument(name="focus", description="What to look at besides.", required=False),
        ],
    ),
)


class Reader:
    """Answers reads, in a thread: some of them ask git."""

    def __init__(self, swarm: Swarm) -> None:
        self._swarm = swarm

    def listed(self) -> t.ListResourcesResult:
        everything = t.Resource(
            name="instances",
            title="All instances",
            uri="swarm://instances",
            description="Everything that is not cleaned up.",
            mime_type=_JSON,
        )
        return t.ListResourcesResult(resources=[everything])

    def read(self, uri: str) -> t.ReadResourceResult:
        kind, _, name = uri.removeprefix("swarm://").partition("/")
        readers: dict[str, Callable[[str], tuple[str, str]]] = {
            "instances": self._instances,
            "instance": self._instance,
            "feedback": self._feedback,
        }
        if not uri.startswith("swarm://") or kind not in readers or bool(name) == (kind == "instances"):
            raise NotFound(f"there is no resource {uri[:120]!r}", hint="resources/list shows what there is")
        mime, text = readers[kind](name)
        return t.ReadResourceResult(contents=[t.TextResourceContents(uri=uri, mime_type=mime, text=text)])

    def prompt(self, name: str, arguments: dict[str, str]) -> t.GetPromptResult:
        known = {p.name: p for p in PROMPTS}.get(name)
        if known is None:
            raise NotFound(f"there is no prompt {name[:80]!r}", hint="prompts/list shows what there is")
        names = {a.name for a in known.arguments or []}
        missing = [a.name for a in known.arguments or [] if a.required and not arguments.get(a.name, "").strip()]
        if missing or arguments.keys() - names:
            wrong = missing or sorted(arguments.keys() - names)
            raise InvalidInput(
                f"the prompt {name} takes {', '.join(sorted(names))}; look at {', '.join(wrong)[:200]}"
            )
        text = self._prompt(name, arguments)
        message = t.PromptMessage(role="user", content=t.TextContent(type="text", text=text))
        return t.GetPromptResult(description=known.description, messages=[message])

    def _prompt(self, name: str, arguments: dict[str, str]) -> str:
        if name == "review":
            return self._swarm.review_prompt(arguments["instance_id"], arguments.get("focus", ""))
        issue = arguments.get("issue", "")
        if issue and not _ISSUE.fullmatch(issue):
            raise InvalidInput("issue is a number")
        return self._swarm.work_prompt(arguments["task"], int(issue) if issue else None)

    def _instances(self, _: str) -> tuple[str, str]:
        found, total = instances.query(self._swarm.context.db, limit=_MOST)
        return _JSON, _dumps({"instances": [describe.instance(i) for i in found], "total": total})

    def _instance(self, name: str) -> tuple[str, str]:
        detail = self._swarm.detail(name)
        return _JSON, _dumps(
            describe.instance(detail.instance)
            | {"relationships": [as_json(r) for r in detail.relationships]}
            | {"events": [as_json(e) for e in detail.events]}
        )

    def _feedback(self, name: str) -> tuple[str, str]:
        db = self._swarm.context.db
        said = feedback.of(db, instances.get(db, name).id)
        parts = [f"# {f.feedback_type} ({f.priority}) from {f.sender}, {f.created_at}\n\n{f.body}" for f in said]
        return "text/markdown", "\n\n---\n\n".join(parts) or "No feedback yet."


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
