"""The committed contract of the MCP tools: its snapshot, and which part of the version a change has to raise.

`python -m docs.contract --write` writes the snapshot again once `contract.SCHEMA_VERSION` says enough.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from docs import source
from swarm_mcp import contract, registry

SNAPSHOT = source.ROOT / "docs" / "contracts" / "mcp-tools.schema.json"
_PARTS = ("major", "minor", "patch")
# A keyword that narrows what is accepted breaks clients; one of these only tells more.
_WORDS = ("description", "title", "annotations", "examples")


def current() -> dict[str, Any]:
    tools = [registry.definition(name) for name in registry.tools()]
    return {
        "schemaVersion": contract.SCHEMA_VERSION,
        "tools": {
            tool.name: {
                "title": tool.title,
                "description": tool.description,
                "inputSchema": tool.input_schema,
                "outputSchema": tool.output_schema,
                "annotations": tool.annotations.model_dump(by_alias=True, exclude_none=True)
                if tool.annotations
                else {},
            }
            for tool in tools
        },
    }


def text() -> str:
    return json.dumps(current(), indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def needed(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """`major`, `minor` or `patch`: what the version has to be raised by; None when nothing changed."""
    found = {_tool(old["tools"].get(n), new["tools"].get(n)) for n in old["tools"].keys() | new["tools"].keys()}
    return next((part for part in _PARTS if part in found), None)


def problem(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """Why the snapshot cannot be committed as it is; None when all is well."""
    part = needed(old, new)
    if part is None and old["schemaVersion"] == new["schemaVersion"]:
        return None
    if part is not None and not _raised(old["schemaVersion"], new["schemaVersion"], part):
        return (
            f"the tools changed: raise the {part} part of SCHEMA_VERSION in swarm_core/contract.py"
            f" (it was {old['schemaVersion']}), then run `python -m docs.contract --write`"
        )
    return "the snapshot is behind: run `python -m docs.contract --write`"


def _tool(old: dict[str, Any] | None, new: dict[str, Any] | None) -> str | None:
    if old is None or new is None:
        return "major" if new is None else "minor"
    found = {_schema(old["inputSchema"], new["inputSchema"], taken=True)}
    found.add(_schema(old["outputSchema"], new["outputSchema"], taken=False))
    found.add("patch" if any(old[w] != new[w] for w in ("title", "description", "annotations")) else None)
    return next((part for part in _PARTS if part in found), None)


def _schema(old: dict[str, Any], new: dict[str, Any], *, taken: bool) -> str | None:
    """`taken` schemas describe what we accept, the others what we return; rows inside them count alike."""
    if old == new:
        return None
    before, after = old.get("properties", {}), new.get("properties", {})
    was, needed = set(old.get("required", [])), set(new.get("required", []))
    if before.keys() - after.keys() or (needed - was if taken else was - needed):
        return "major"
    inside = ("properties", "required", "items")
    rest = [_bare({k: v for k, v in schema.items() if k not in inside}) for schema in (old, new)]
    if rest[0] != rest[1]:
        return "major"
    found = {_schema(before[name], after[name], taken=taken) for name in before}
    found.add(_schema(old.get("items", {}), new.get("items", {}), taken=taken))
    found.add("minor" if after.keys() - before.keys() or needed - was else "patch")
    return next((part for part in _PARTS if part in found), None)


def _bare(node: Any) -> Any:
    """The node without the words that only explain it."""
    if isinstance(node, dict):
        return {k: _bare(v) for k, v in node.items() if k not in _WORDS}
    return [_bare(n) for n in node] if isinstance(node, list) else node


def _raised(old: str, new: str, part: str) -> bool:
    before, after = ([int(n) for n in version.split(".")] for version in (old, new))
    place = _PARTS.index(part)
    return after[: place + 1] > before[: place + 1]


def main(arguments: list[str]) -> int:
    committed = json.loads(SNAPSHOT.read_text()) if SNAPSHOT.exists() else None
    if "--write" not in arguments:
        sys.stdout.write(text())
        return 0
    part = needed(committed, current()) if committed else None
    if committed and part and not _raised(committed["schemaVersion"], contract.SCHEMA_VERSION, part):
        sys.stderr.write(f"{problem(committed, current())}\n")
        return 1
    SNAPSHOT.parent.mkdir(parents=True, exist_ok=True)
    SNAPSHOT.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
