"""The reference pages of the MCP server: its tools, and who may call them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from docs import source
from swarm_core import contract as core
from swarm_core import errors
from swarm_core.ops import rules as operations
from swarm_core.store import tokens
from swarm_mcp import contract, permissions, protocol, registry, resources
from swarm_mcp.permissions import RULES, SCOPES, Caller, Relation


def tools_page() -> str:
    parts = [
        "# Tools",
        f"The MCP server's tools, schema version {contract.SCHEMA_VERSION} (`capabilities.experimental.swarm`). "
        "`tools/list` shows each caller the tools it may use; the operator sees them all. The committed contract "
        "is [mcp-tools.schema.json](../contracts/mcp-tools.schema.json).",
    ]
    for name, tool in registry.tools().items():
        shown = registry.definition(name)
        kind = "Changes something." if tool.writes else "Read-only."
        parts.append(f"## {name}\n\n**{tool.title}.** {kind} Scope of automations: `{SCOPES[name]}`.")
        parts.append(tool.description)
        parts.append("Takes:\n\n" + _fields(shown.input_schema))
        parts.append("Returns:\n\n" + _fields(shown.output_schema or {}))
    parts.append("## Resources\n\n" + _resources())
    parts.append("## Prompts\n\n" + _prompts())
    parts.append("## Instructions\n\nWhat the server tells every client:\n\n" + _quoted(protocol.INSTRUCTIONS))
    return "\n\n".join(parts)


def permissions_page() -> str:
    rules = [
        (
            f"`{r.tool}`",
            ", ".join(sorted(r.callers)),
            "any" if r.relations == frozenset(Relation) else ", ".join(sorted(r.relations)),
            f"`{r.name}`",
            r.why,
        )
        for r in RULES
    ]
    return "\n\n".join(
        (
            "# Permissions",
            "Who calls is known from the token of the connection. A call is allowed when a rule names the tool, "
            "the kind of caller, and what the caller is to the instance it acts on; everything else is denied "
            "with `FORBIDDEN`. A denial is an event `tool:denied` with the rule that decided, `default-deny` when "
            "none did.",
            source.table(("tool", "callers", "relation", "rule", "why"), rules),
            "`self`: the instance itself. `reviewer_of`: the review started for it. `parent_of`: the instance it "
            "was started from. `none`: no relationship.",
            "## Rules of the operations",
            "What the table allows may still be refused by the operation itself, whoever calls; the denial then "
            "names one of these:",
            source.table(("rule", "why"), [(f"`{name}`", why) for name, why in operations.RULES.items()]),
            "## Every combination",
            _matrix(),
            "## Scopes of automations",
            "A token of `swarm token create NAME --scope SCOPE` opens only these, whatever the rules allow:",
            source.table(("scope", "opens"), [(f"`{s}`", about) for s, about in tokens.SCOPES.items()]),
            "Any scope but `metrics` alone lets the token connect to `/mcp`; without one the answer is 403.",
        )
    )


def error_codes_page() -> str:
    """The registry in the place where clients of the contract look for it."""
    numbers = [(str(number), f"`{code}`", when) for number, (code, when) in contract.NUMBERS.items()]
    return "\n\n".join(
        (
            "# Error codes of the MCP server",
            "A tool that fails returns `isError: true` and `{ok: false, code, message, error}`; a JSON-RPC error "
            "has the same error object as its `data`, and so has an answer of the "
            "[HTTP API](../reference/http-api.md):",
            source.table(("field", "meaning"), _pairs(core.ERROR_FIELDS)),
            "An argument that is not given is left out: null is refused.",
            "## JSON-RPC errors",
            source.table(("number", "`error.data.code`", "when"), numbers),
            "## Well-known codes",
            "`canonical` is one of these:",
            source.table(("code", "meaning"), _pairs(core.CANONICAL)),
            "## All codes",
            source.table(("code", "meaning"), _pairs(errors.CODES)),
        )
    )


def _pairs(known: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(f"`{name}`", meaning) for name, meaning in known.items()]


def _matrix() -> str:
    head = ("tool", "caller", *Relation)
    rows = []
    every = frozenset(tokens.SCOPES)
    for tool in SCOPES:
        for caller in Caller:
            allowed = [permissions.decide(tool, caller, relation, every).allowed for relation in Relation]
            rows.append((f"`{tool}`", str(caller), *("yes" if a else "" for a in allowed)))
    return source.table(head, rows)


def _fields(schema: dict[str, Any]) -> str:
    rows = list(_rows(schema))
    return source.table(("field", "type", "required", "meaning"), rows) if rows else "Nothing."


def _rows(schema: dict[str, Any], above: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Fields, and below each those of the objects in it."""
    for name, field in schema.get("properties", {}).items():
        needed = "yes" if name in schema.get("required", []) else ""
        yield f"`{above}{name}`", _type(field), needed, str(field.get("description", ""))
        yield from _rows(field.get("items", field), f"{above}{name}{'[]' if 'items' in field else ''}.")


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(f"`{v}`" for v in field["enum"])
    if "anyOf" in field:
        return " or ".join(_type(f) for f in field["anyOf"])
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    if isinstance(field.get("type"), list):
        return " or ".join(field["type"])
    limits = [f"{word} {field[key]}" for key, word in _LIMITS.items() if key in field]
    return " ".join([str(field.get("type", "object")), *limits])


_LIMITS = {"minLength": "from", "maxLength": "to", "minimum": "from", "maximum": "to"}


def _resources() -> str:
    rows = [("`swarm://instances`", "Everything that is not cleaned up.")]
    rows += [(f"`{t.uri_template}`", str(t.description)) for t in resources.TEMPLATES]
    return source.table(("uri", "what"), rows)


def _prompts() -> str:
    rows = [
        (f"`{p.name}`", str(p.description), ", ".join(f"`{a.name}`" for a in p.arguments or []))
        for p in resources.PROMPTS
    ]
    return source.table(("prompt", "what", "takes"), rows)


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())
