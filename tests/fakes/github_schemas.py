"""What GitHub publishes of its API: REST and webhooks as OpenAPI, for github.com and the newest Enterprise Server.

`python -m tests.fakes.github_schemas FOLDER` cuts what npm installed in FOLDER down to what tests need and puts it
into the virtual environment. Without it nothing is checked, except in CI, where it must be there.
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.fakes.strict_schema import Schema, Schemas

FOLDER = Path(sys.prefix) / "github"
GRAPHQL = FOLDER / "schema.graphql"
EDITIONS = ("github.com", "enterprise")
_DROPPED = frozenset(
    {"description", "summary", "example", "examples", "externalDocs", "x-github", "tags", "headers"}
)
_NAMED = frozenset({"properties", "schemas", "paths", "webhooks", "responses", "parameters", "patternProperties"})
# GitHub answers any request so, documented or not.
_ANYWHERE = frozenset({301, 307, 400, 401, 403, 404, 410, 429})
_ERROR: Schema = {"$ref": "#/components/schemas/basic-error"}


@dataclass(frozen=True)
class Operation:
    """One line of GitHub's reference, such as `GET /repos/{owner}/{repo}/pulls`."""

    name: str
    words: tuple[str, ...]
    said: Schema

    def fits(self, words: list[str]) -> bool:
        """A placeholder is one word; what may be several stands at the end and is called `ref`."""
        if self.words[-1] == "{ref}" and len(words) > len(self.words):
            words = words[: len(self.words)]
        pairs = zip(self.words, words, strict=True) if len(words) == len(self.words) else ()
        return bool(pairs) and all(ours == theirs or ours[:1] == "{" for ours, theirs in pairs)


class Edition:
    """GitHub's API of one of its products."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._rest = json.loads((FOLDER / f"rest-{name}.json").read_bytes())
        self._rest["components"]["schemas"] |= _amended(self._rest["components"]["schemas"])
        self._schemas = Schemas(self._rest)
        self._operations: dict[str, list[Operation]] = {}
        for path, methods in self._rest["paths"].items():
            for method, said in methods.items():
                found = Operation(f"{method.upper()} {path}", tuple(path.split("/")), said)
                self._operations.setdefault(method.upper(), []).append(found)

    def operation(self, method: str, path: str) -> Operation | None:
        """The one that fits best: the longest, and of these the one with the fewest placeholders."""
        path = re.sub(r"^/repositories/\d+", "/repos/owner/name", path)  # where GitHub redirects after a rename
        words = path.split("/")
        found = [one for one in self._operations.get(method, ()) if one.fits(words)]
        return max(found, key=lambda one: (len(one.words), -one.name.count("{")), default=None)

    def asked(self, method: str, target: str, body: bytes) -> list[str]:
        """What is wrong with a request below the API's address."""
        parts = urlsplit(target)
        found = self.operation(method, parts.path)
        if found is None:
            return [f"there is no {method} {parts.path}"]
        parameters = {(p["in"], p["name"]): p for p in map(self._resolved, found.said.get("parameters", ()))}
        faults = []
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            if ("query", name) not in parameters:
                faults.append(f"unknown parameter {name}")
                continue
            schema = parameters["query", name]["schema"]
            faults += [f"parameter {name}{f}" for f in self._schemas.faults(schema, _typed(schema, value))]
        given = {name for name, _ in parse_qsl(parts.query)}
        needed = [name for (where, name), p in parameters.items() if where == "query" and p.get("required")]
        faults += [f"parameter {name} is missing" for name in needed if name not in given]
        wanted = found.said.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
        if body:
            faults += self._schemas.faults(wanted, json.loads(body)) if wanted is not None else ["a body"]
        elif found.said.get("requestBody", {}).get("required"):
            faults.append("no body")
        return [f"{self.name}: {found.name}: {fault}" for fault in faults]

    def whole(self, method: str, path: str, status: int, given: Any) -> Any:
        """The answer with every field that GitHub always sends."""
        schema = self._answer(method, path, status)
        return self._schemas.whole(schema, given) if schema is not None else given

    def answered(self, method: str, path: str, status: int, data: Any) -> list[str]:
        """What is wrong with an answer."""
        found = self.operation(method, path)
        if found is None:
            return []  # said of the request
        schema = self._answer(method, path, status)
        if schema is None:
            is_known = str(status) in found.said["responses"]
            faults = [] if is_known and data is None else [f"not documented, with {str(data)[:100]}"]
        else:
            faults = self._schemas.faults(schema, data)
        return [f"{self.name}: {found.name}: {status}: {fault}" for fault in faults]

    def delivery(self, event: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """A webhook's payload with every field that GitHub always sends."""
        document, schema = self._hook(event, given)
        whole: dict[str, Any] = document.whole(schema, dict(given))
        return whole

    def delivered(self, event: str, payload: Mapping[str, Any]) -> list[str]:
        """What is wrong with a webhook's payload."""
        document, schema = self._hook(event, payload)
        faults = document.faults(schema, payload)
        return [f"{self.name}: {event}: {fault}" for fault in faults]

    def _hook(self, event: str, payload: Mapping[str, Any]) -> tuple[Schemas, Schema]:
        hooks, document = self._hooks
        name = event if event == "status" else f"{event}-{payload['action']}"
        said = hooks[name.replace("_", "-")]["post"]
        return document, said["requestBody"]["content"]["application/json"]["schema"]

    @functools.cached_property
    def _hooks(self) -> tuple[Mapping[str, Any], Schemas]:
        found = json.loads((FOLDER / f"webhooks-{self.name}.json").read_bytes())
        return found["webhooks"], Schemas(found)

    def _answer(self, method: str, path: str, status: int) -> Schema | None:
        found = self.operation(method, path)
        responses = found.said["responses"] if found else {}
        said = self._resolved(responses.get(str(status), {}))
        schema: Schema | None = said.get("content", {}).get("application/json", {}).get("schema")
        is_error = status >= 400 if str(status) in responses else status in _ANYWHERE
        return _ERROR if schema is None and is_error else schema

    def _resolved(self, said: Schema) -> Schema:
        if "$ref" not in said:
            return said
        _, _, kind, name = str(said["$ref"]).split("/")
        found: Schema = self._rest["components"][kind][name]
        return found


@functools.cache
def editions() -> tuple[Edition, ...]:
    """Both of them; none where nobody has installed them."""
    if (FOLDER / "rest-github.com.json").exists():
        return tuple(map(Edition, EDITIONS))
    assert not os.environ.get("CI"), f"GitHub's schemas are not in {FOLDER}: run make setup"
    return ()


def _amended(schemas: Mapping[str, Any]) -> dict[str, Any]:
    """What GitHub publishes elsewhere: GraphQL has two more conclusions, webhooks comments without a line and pull
    requests whose fork was deleted.
    """

    def changed(name: str, field: str, **more: Any) -> dict[str, Any]:
        fields = schemas[name]["properties"]
        return {name: schemas[name] | {"properties": fields | {field: fields[field] | more}}}

    def forkless(name: str) -> dict[str, Any]:
        head = schemas[name]["properties"]["head"]
        repo = {"anyOf": [head["properties"]["repo"], {"type": "null"}]}
        return changed(name, "head", properties=head["properties"] | {"repo": repo})

    conclusions = [*schemas["check-run"]["properties"]["conclusion"]["enum"], "stale", "startup_failure"]
    return (
        changed("check-run", "conclusion", enum=conclusions)
        | changed("pull-request-review-comment", "line", nullable=True)
        | forkless("pull-request")
        | forkless("pull-request-simple")
    )


def _typed(schema: Schema, value: str) -> Any:
    is_number = schema.get("type") == "integer" and re.fullmatch(r"-?\d+", value)
    return int(value) if is_number else value == "true" if schema.get("type") == "boolean" else value


def cut(modules: Path, to: Path) -> None:
    """Keep what is checked: the files have 400 MB, most of them examples, prose and other editions."""
    to.mkdir(parents=True, exist_ok=True)
    for kind, package in (("webhooks", "openapi-webhooks"), ("rest", "openapi")):
        generated = modules / "@octokit" / package / "generated"
        newest = max(
            generated.glob("ghes-*[0-9].json"), key=lambda path: [*map(int, re.findall(r"\d+", path.name))]
        )
        for edition, path in (("enterprise", newest), ("github.com", generated / "api.github.com.json")):
            slim = _slim(json.loads(path.read_bytes()))
            kept = {name: slim[name] for name in ("paths", "webhooks", "components") if name in slim}
            (to / f"{kind}-{edition}.json").write_text(json.dumps(kept, separators=(",", ":")))
    (to / GRAPHQL.name).write_bytes((modules / "@octokit" / "graphql-schema" / "schema.graphql").read_bytes())


def _slim(said: Any, *, named: bool = False) -> Any:
    if isinstance(said, list):
        return [_slim(one) for one in said]
    if not isinstance(said, dict):
        return said
    kept = {name: value for name, value in said.items() if named or name not in _DROPPED}
    return {name: _slim(value, named=name in _NAMED and not named) for name, value in kept.items()}


if __name__ == "__main__":
    cut(Path(sys.argv[1]), FOLDER)
