"""The HTTP API: its reference page, and the committed contract with what a change would break.

`python -m docs.http --write` writes the contract again once `contract.SCHEMA_VERSION` says enough.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from docs import source
from swarm_core import contract
from swarm_ui.web import openapi

SNAPSHOT = source.ROOT / "docs" / "contracts" / "http-api.openapi.json"


def http_page() -> str:
    document = openapi.document()
    parts = [
        "# HTTP API",
        "The dashboard answers programs as it answers its own pages. Every JSON answer is an envelope: "
        "`{ok, result, _meta}`, or `{ok, error, _meta}` with the error object below. "
        f"The schema version is {contract.SCHEMA_VERSION}. The committed contract is "
        "[http-api.openapi.json](../contracts/http-api.openapi.json). `GET /openapi.json` serves it as it is, for "
        "generic OpenAPI clients; `GET /api/v1/openapi.json` serves it in the envelope.",
        "Send `Authorization: Bearer` with the operator's token (`operator.token` in SWARM_HOME) or that of an "
        "automation with the scope `read`; see [tokens](../how-to/tokens.md). Agents speak to the coordinator and "
        "not to the dashboard. Whatever acts answers 202 with an action; `GET /api/v1/actions/{id}` tells its "
        "outcome, and the same `Idempotency-Key` again is the same action.",
        "`GET /ws` opens a WebSocket on which every event arrives as `{id, event, data}`; `?since=` goes on after "
        "an event's id. `GET /api/v1/stream` is what the pages themselves read.",
        "`query_instances`, `query_pulls` and `search` of the [MCP server](tools.md) give the same results as "
        "`GET /api/v1/instances`, `GET /api/v1/pulls` and `POST /search`.",
        "## Errors",
        "Over HTTP and [MCP](../contracts/mcp-error-codes.md) an error is the same object. Paths of this machine "
        "are cut down to their last part. A field that is not given is left out of a request: null is refused.",
        source.table(("field", "meaning"), [(f"`{name}`", said) for name, said in contract.ERROR_FIELDS.items()]),
        "## Status codes",
        source.table(("status", "when"), [(f"`{code}`", text) for code, text in openapi.FAILURES.items()]),
        "## Every request",
    ]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(f"### {method.upper()} {path}\n\n{operation['summary']}")
            if "description" in operation:
                parts.append(operation["description"])
            if rows := [*_parameters(operation), *_body(operation, document)]:
                parts.append(source.table(("given", "where", "type", "meaning"), rows))
    return "\n\n".join(parts)


def _parameters(operation: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for one in operation.get("parameters", ()):
        needed = "required" if one["required"] else ""
        said = ", ".join(part for part in (needed, one.get("description", "")) if part)
        yield f"`{one['name']}`", one["in"], _type(one["schema"]), said


def _body(operation: dict[str, Any], document: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    if "requestBody" not in operation:
        return
    name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    schema = document["components"]["schemas"][name]
    for field, one in schema.get("properties", {}).items():
        needed = "required" if field in schema.get("required", ()) else ""
        said = ", ".join(part for part in (needed, one.get("description", "")) if part)
        yield f"`{field}`", "body", _type(one), said


def _type(schema: dict[str, Any]) -> str:
    choices = [one for one in schema.get("anyOf", (schema,)) if one.get("type") != "null"]
    told = []
    for one in choices:
        if "enum" in one:
            told.append(", ".join(f"`{value}`" for value in one["enum"]))
        elif "const" in one:
            told.append(f"`{one['const']}`")
        else:
            told.append(str(one.get("type", "any")) + _bounds(one))
    return " or ".join(told)


def _bounds(schema: dict[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    return f" {low} to {high}" if low is not None and high is not None and high < 2**53 else ""


def text() -> str:
    return json.dumps(openapi.document(), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def broken(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What a program that was written for the old document could no longer do."""
    found = []
    for path, methods in old["paths"].items():
        for method, before in methods.items():
            after = new["paths"].get(path, {}).get(method)
            if after is None:
                found.append(f"{method.upper()} {path} is gone")
                continue
            taken, given = _names(before, old), _names(after, new)
            found += [f"{method.upper()} {path} takes no {name}" for name in taken.keys() - given.keys()]
            fresh = [name for name, needed in given.items() if needed and not taken.get(name, False)]
            found += [f"{method.upper()} {path} needs {name}" for name in fresh]
    return sorted(found)


def _names(operation: dict[str, Any], document: dict[str, Any]) -> dict[str, bool]:
    """What is given with a request, and whether it must be."""
    told = {one["name"]: bool(one["required"]) for one in operation.get("parameters", ())}
    if "requestBody" in operation:
        reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        schema = document["components"]["schemas"][reference.rpartition("/")[2]]
        told |= {name: name in schema.get("required", ()) for name in schema.get("properties", {})}
    return told


def problem(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """Why the contract cannot be written as it is; None when it can."""
    raised = new["info"]["version"].split(".")[0] != old["info"]["version"].split(".")[0]
    if (found := broken(old, new)) and not raised:
        return f"raise the major part of SCHEMA_VERSION in swarm_core/contract.py: {'; '.join(found)}"
    return None


def main(arguments: list[str]) -> int:
    if "--write" not in arguments:
        sys.stdout.write(text())
        return 0
    said = problem(json.loads(SNAPSHOT.read_text()), openapi.document()) if SNAPSHOT.exists() else None
    if said is not None:
        sys.stderr.write(f"{said}\n")
        return 1
    SNAPSHOT.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
