"""JSON-RPC as no client sends it on purpose: messages, nearly messages, and bytes that are none."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.mcp_client import VERSION
from tests.odd_json import ANYTHING, VALID, Raw, encode, mostly

MODERN = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def call(tool: str, arguments: Any, *, modern: bool, meta: Any = None) -> tuple[bytes, dict[str, str]]:
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    if not modern:
        return encode(message | {"params": params | ({} if meta is None else {"_meta": meta})}), {}
    headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": tool}
    return encode(message | {"params": params | {"_meta": META}}), headers


def usually(likely: Any) -> st.SearchStrategy[Any]:
    return mostly(likely if isinstance(likely, st.SearchStrategy) else st.just(likely), VALID, odds=8)


METHODS = st.sampled_from(
    [
        *("initialize", "ping", "tools/list", "tools/call", "resources/list", "resources/templates/list"),
        *("resources/read", "resources/subscribe", "prompts/list", "prompts/get", "completion/complete"),
        *(
            "logging/setLevel",
            "shutdown",
            "server/discover",
            "tasks/get",
            "subscriptions/listen",
            "elicitation/create",
        ),
        *("notifications/initialized", "notifications/cancelled", "notifications/progress", "$/cancelRequest"),
        *("notifications/roots/list_changed", "", "tools/call ", "TOOLS/CALL", "rpc.x", "\0", "x" * 5000),
    ]
)
TOKENS = st.sampled_from([1, "1", "", "t" * 100_000, Raw("9" * 4000), 1.5, -1, True, None, [], {}]) | VALID
IDS = mostly(st.integers(1, 10) | st.text(max_size=3), TOKENS)
METAS = st.fixed_dictionaries(
    {},
    optional={
        "progressToken": TOKENS,
        "swarm/idempotencyKey": TOKENS,
        "claudecode/toolUseId": TOKENS,
        "io.modelcontextprotocol/protocolVersion": usually(MODERN),
        "io.modelcontextprotocol/clientCapabilities": usually({}),
        "io.modelcontextprotocol/clientInfo": usually({"name": "f", "version": "1"}),
        "x/y": VALID,
    },
)
URIS = st.sampled_from(
    [
        *(
            "swarm://instances",
            "swarm://instance/work-471100-a1",
            "swarm://feedback/work-471100-a1",
            "swarm://",
            "",
        ),
        *(
            "swarm://instance/../../etc/passwd",
            "file:///etc/passwd",
            "swarm://instance/%00",
            "swarm://feedback/\0",
        ),
    ]
)
PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "name": usually(
            st.sampled_from(["query_instances", "search", "send_feedback", "work", "review", "no_such"])
        ),
        "arguments": usually(
            st.sampled_from(
                [
                    *({}, {"query": "ready"}, {"limit": 1}, {"task": "t"}, {"task": "t", "issue": "-1"}),
                    *({"instance_id": "work-471100-a1"}, {"instance_id": "x", "focus": "f"}, None),
                ]
            )
        ),
        "_meta": usually(METAS),
        "uri": usually(URIS),
        "cursor": VALID,
        "requestId": TOKENS,
        "id": TOKENS,
        "protocolVersion": usually(st.sampled_from(["2024-11-05", VERSION, MODERN, "1999-01-01"])),
        "capabilities": usually({}),
        "clientInfo": usually({"name": "f", "version": "1"}),
        "level": usually("debug"),
        "ref": usually({"type": "ref/prompt", "name": "work"}),
        "argument": usually({"name": "task", "value": ""}),
    },
)
ENVELOPES = st.fixed_dictionaries(
    {"jsonrpc": usually("2.0")},
    optional={
        "id": IDS,
        "method": usually(METHODS),
        "params": usually(PARAMS),
        "result": ANYTHING,
        "error": ANYTHING | st.just({"code": 0, "message": "m"}),
        "extra": ANYTHING,
    },
)
REQUESTS = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "id": IDS, "method": METHODS}, optional={"params": usually(PARAMS)}
)
NOTIFICATIONS = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "method": METHODS}, optional={"params": usually(PARAMS)}
)


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """One message, several in a batch, or bytes that are nearly one."""
    rubbish = ENVELOPES | st.lists(ENVELOPES, max_size=3) | ANYTHING
    message = draw(mostly(mostly(REQUESTS, NOTIFICATIONS), rubbish, odds=3))
    raw = encode(message)
    how = draw(st.sampled_from(["whole"] * 18 + ["cut", "flip", "more", "utf-16", "bom", "bytes"]))
    at = draw(st.integers(0, min(len(raw), 400)))
    if how == "cut":
        return raw[:at]
    if how == "flip":
        return raw[:at] + bytes([draw(st.integers(0, 255))]) + raw[at + 1 :]
    if how == "bytes":
        return draw(st.binary(max_size=200))
    return {"more": raw + b"}x", "utf-16": raw.decode().encode("utf-16"), "bom": b"\xef\xbb\xbf" + raw}.get(
        how, raw
    )
