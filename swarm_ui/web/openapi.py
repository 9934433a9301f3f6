"""The description of the HTTP API, made from the tables of its endpoints."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from swarm_core import contract
from swarm_ui.web import stream, ws
from swarm_ui.web.api import (
    actions,
    events,
    health,
    inbox,
    instances,
    missions,
    pulls,
    repos,
    search,
    status,
    terminal,
    threads,
)
from swarm_ui.web.asking import Described
from swarm_ui.web.endpoint import Endpoint, Nothing, Question
from swarm_ui.web.site import Site

_API = "/api/v1"
# As it is, for generic clients, which know no envelope; under `_API` every answer is one.
RAW = "/openapi.json"
PATH = f"{_API}/openapi.json"
_MODULES = (status, search, instances, terminal, events, threads, pulls, inbox, health, missions, repos, actions)
_REFS = "#/components/schemas/{model}"
_PARAMETER = re.compile(r"{(\w+)}")
FAILURES = {
    "400": "The request is not what the endpoint takes (INVALID_REQUEST).",
    "401": "Nobody is signed in (UNAUTHORIZED).",
    "403": "It is not allowed, or asked for another repository (FORBIDDEN).",
    "404": "What was named does not exist.",
    "409": "The present state does not allow it, or there is no database (NO_INDEX).",
    "413": "The body is too large (INVALID_REQUEST).",
    "415": "The body is not JSON (INVALID_REQUEST).",
    "500": "A bug, or something outside swarm failed (INTERNAL).",
    "503": "The database cannot be read now, or too much is under way (QUEUE_OVERLOADED); try again.",
}
_BODY_FAILURES = ("413", "415")


def endpoints() -> tuple[Endpoint, ...]:
    return (*(one for module in _MODULES for one in module.ENDPOINTS), _OWN)


def _described(_: Question) -> dict[str, Any]:
    return document()


_OWN = Endpoint("GET", PATH, "This description.", _described)


def streams() -> tuple[Described, ...]:
    return tuple(one for module in (*_MODULES, stream, ws) for one in getattr(module, "DESCRIBED", ()))


def routes(site: Site) -> list[BaseRoute]:
    def answer(_: Request) -> Response:
        return JSONResponse(document())

    return [Route(RAW, answer, methods=["GET"])]


@functools.cache
def document() -> dict[str, Any]:
    """OpenAPI 3.1. Everything a page or a program may ask for is in it."""
    schemas: dict[str, Any] = {"Meta": _META, "Error": _ERROR, "Failure": _FAILURE}
    paths: dict[str, dict[str, Any]] = {}
    for one in endpoints():
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, schemas)
    for other in streams():
        paths.setdefault(other.path, {})[other.method.lower()] = _stream(other, schemas)
    own: dict[str, Any] = {"operationId": "get_openapi", "tags": ["openapi"], "summary": "This description, raw."}
    own["responses"] = {"200": {"description": "OpenAPI 3.1.", "content": {"application/json": {"schema": _ANY}}}}
    paths[RAW] = {"get": own}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": contract.NAME,
            "version": contract.SCHEMA_VERSION,
            "description": "The dashboard's HTTP API. Every JSON answer is an envelope: `ok`, `result` or `error`,"
            " and `_meta`. Sign in with the one-time link of `swarm link`, or send a token of `swarm token`.",
        },
        "security": [{"cookie": []}, {"bearer": []}],
        "paths": {path: paths[path] for path in sorted(paths)},
        "components": {
            "schemas": {name: schemas[name] for name in sorted(schemas)},
            "securitySchemes": {
                "cookie": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "swarm_PORT",
                    "description": "The session; PORT is the dashboard's. Writing needs Origin as well.",
                },
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


_ANY: dict[str, Any] = {"type": "object"}
_META = {
    "type": "object",
    "required": ["schemaVersion", "toolVersion", "ts", "durationMs"],
    "properties": {
        "schemaVersion": {"type": "string"},
        "toolVersion": {"type": "string"},
        "ts": {"type": "string", "format": "date-time"},
        "durationMs": {"type": "number", "minimum": 0},
    },
}
_TEXT = {"type": "string"}
_MAYBE_TEXT = {"type": ["string", "null"]}
_ERROR_TYPES: dict[str, dict[str, Any]] = {
    "code": _TEXT,
    "message": _TEXT,
    "details": {"type": ["object", "array"]},
    "recovery_hint": _MAYBE_TEXT,
    "instance_id": _MAYBE_TEXT,
    "tool_name": _MAYBE_TEXT,
    "category": {"enum": list(contract.CATEGORIES)},
    "canonical": {"enum": list(contract.CANONICAL)},
    "retry": {"type": "boolean"},
}
_ERROR = {
    "type": "object",
    "required": list(contract.ERROR_FIELDS),
    "properties": {
        name: _ERROR_TYPES[name] | {"description": about} for name, about in contract.ERROR_FIELDS.items()
    },
}
_FAILURE = {
    "type": "object",
    "required": ["ok", "error", "_meta"],
    "properties": {
        "ok": {"const": False},
        "error": {"$ref": "#/components/schemas/Error"},
        "_meta": {"$ref": "#/components/schemas/Meta"},
    },
}


def _operation(one: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    told = _common(one.method, one.path, one.summary, one.query, one.body, schemas)
    said = (one.answer.__doc__ or "").strip()
    if said:
        told["description"] = " ".join(said.split())
    if one.method == "POST" and one.path.startswith(_API):
        told["parameters"] = [*told.get("parameters", []), _KEY]
    envelope = {
        "type": "object",
        "required": ["ok", "result", "_meta"],
        "properties": {
            "ok": {"const": True},
            "result": dict(one.result) if one.result is not None else _ANY,
            "_meta": {"$ref": "#/components/schemas/Meta"},
        },
    }
    told["responses"] = {
        str(one.status): {"description": one.summary, "content": {"application/json": {"schema": envelope}}},
        **_failures(one.method),
    }
    if one.open:
        told["security"] = []
    return told


def _stream(one: Described, schemas: dict[str, Any]) -> dict[str, Any]:
    told = _common(one.method, one.path, one.summary, one.query, one.body, schemas)
    content = {one.media: {"schema": {"type": "string"}}} if one.media else {}
    done = {"description": one.summary} | ({"content": content} if content else {})
    told["responses"] = {"200" if content else "101": done, **_failures(one.method)}
    return told


_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key again is the same action.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]([ -~]*[!-~])?$"},
}


def _common(
    method: str, path: str, summary: str, query: type[BaseModel], body: type[BaseModel], schemas: dict[str, Any]
) -> dict[str, Any]:
    told: dict[str, Any] = {"operationId": _name(method, path), "tags": [_tag(path)], "summary": summary}
    parameters = [*_path_parameters(path), *_query_parameters(query, schemas)]
    if parameters:
        told["parameters"] = parameters
    if method == "POST":
        content = {"application/json": {"schema": _schema(body, schemas)}}
        told["requestBody"] = {"required": True, "content": content}
    return told


def _name(method: str, path: str) -> str:
    above = [] if path.startswith(_API) else ["top"]
    return "_".join([method.lower(), *above, *re.findall(r"\w+", path.removeprefix(_API))])


def _tag(path: str) -> str:
    return path.removeprefix(_API).strip("/").partition("/")[0] or "dashboard"


def _path_parameters(path: str) -> Iterator[dict[str, Any]]:
    for name in _PARAMETER.findall(path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _query_parameters(model: type[BaseModel], schemas: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if model is Nothing:
        return
    found = model.model_json_schema(ref_template=_REFS)
    schemas |= found.pop("$defs", {})
    for name, schema in found.get("properties", {}).items():
        told = {"name": name, "in": "query", "required": name in found.get("required", ())}
        if "description" in schema:
            told["description"] = schema["description"]
        yield told | {"schema": _given(schema)}


def _given(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a parameter or field that may be left out but not be null."""
    told = {k: v for k, v in schema.items() if k not in ("title", "description")}
    choices: Sequence[dict[str, Any]] = [s for s in told.get("anyOf", ()) if s.get("type") != "null"]
    if "anyOf" in told and len(choices) == 1:
        del told["anyOf"]
        told |= {k: v for k, v in choices[0].items() if k not in ("title", "description")}
    if told.get("default", ...) is None:
        del told["default"]
    return told


def _schema(model: type[BaseModel], schemas: dict[str, Any]) -> dict[str, Any]:
    found = model.model_json_schema(ref_template=_REFS)
    schemas |= found.pop("$defs", {})
    for field, schema in found.get("properties", {}).items():
        about = {"description": schema["description"]} if "description" in schema else {}
        found["properties"][field] = _given(schema) | about
    name = f"{model.__module__.rpartition('.')[2].capitalize()}{model.__name__}"
    schemas[name] = found
    return {"$ref": _REFS.format(model=name)}


def _failures(method: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Failure"}}}
    return {
        code: {"description": text, "content": content}
        for code, text in FAILURES.items()
        if method == "POST" or code not in _BODY_FAILURES
    }
