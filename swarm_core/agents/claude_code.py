"""Claude Code: command line, settings, hooks, MCP configuration and the meaning of what it shows.

Never writes the user's configuration: everything goes through files named on the command line.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from swarm_core.agents import claude_screen
from swarm_core.agents.base import (
    Dialog,
    Plan,
    Reading,
    Spec,
    Usage,
    Ways,
    guarded,
    prompt_argument,
)

# SessionStart is not among them: the program does not send it over HTTP.
HTTP_EVENTS = (
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PermissionRequest",
    "Notification",
    "Elicitation",
    "ElicitationResult",
    "Stop",
    "StopFailure",
    "SubagentStart",
    "SubagentStop",
    "PreCompact",
    "PostCompact",
    "SessionEnd",
)
_HOOK_TIMEOUT_S = 3
_PERSON_TIMEOUT_S = 3600  # the dialog is on the screen meanwhile and can be answered there too
_SESSION_START_TIMEOUT_S = 20
_ENV = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
}
# Left by a Claude Code that started swarm; with them the new one believes it is nested.
_UNSET = ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT")
_LONGEST_PROJECT_NAME = 200
_SPOKEN = ("user", "assistant")
_CHAINED = (*_SPOKEN, "attachment", "system")  # the lines of a log that name the one they follow


class ClaudeCode:
    name = "claude"
    title = "Claude Code"
    program = "claude"
    experimental = False
    install_hint = "npm install -g @anthropic-ai/claude-code, then run claude once to sign in"
    plain_prompt = False
    reconnect = "/mcp reconnect swarm"
    writes: Mapping[str, str] = {
        "Edit": "file_path",
        "MultiEdit": "file_path",
        "Write": "file_path",
        "NotebookEdit": "notebook_path",
    }
    shells: Mapping[str, str] = {"Bash": "command"}
    ways = Ways(
        joins=True,
        hooks=frozenset({"PostToolUse", "PostToolUseFailure", "Stop"}),
        confirms=True,
        asks=frozenset({"PermissionRequest"}),
    )

    def plan(self, spec: Spec, *, resume: bool) -> Plan:
        common = (
            f"--mcp-config={Path(spec.instance_dir, 'mcp.json')}",
            "--strict-mcp-config",
            f"--settings={Path(spec.instance_dir, 'settings.json')}",
            "--allowedTools=mcp__swarm__*",
        )
        env = dict(_ENV)
        if os.environ.get("CLAUDE_CONFIG_DIR"):
            env["CLAUDE_CONFIG_DIR"] = os.environ["CLAUDE_CONFIG_DIR"]
        start = (self.program, f"--session-id={spec.conversation_id}", *common, "--", prompt_argument(spec))
        again = (self.program, f"--resume={spec.conversation_id}", *common, *guarded(spec.resume_prompt))
        return Plan(
            argv=start,
            resume_argv=again if resume else None,
            resume_probe=_transcripts(spec.worktree_path, spec.conversation_id) if resume else (),
            env=env,
            unset=_UNSET,
            files={"mcp.json": _mcp_json(spec), "settings.json": _settings_json(spec)},
        )

    def mend_log(self, log: Iterable[bytes]) -> bytes | None:
        return unwritten(log)

    def status_files(self, spec_instance_dir: str, pid: int) -> tuple[str, ...]:
        return (str(_config_dir() / "sessions" / f"{pid}.json"),)

    def read_status(self, text: str) -> Reading | None:
        try:
            body = json.loads(text)
        except ValueError:
            return None
        if not isinstance(body, dict):
            return None
        activity = {"idle": "idle", "busy": "busy", "waiting": "blocked"}.get(str(body.get("status")))
        if activity is None:
            return None
        detail = str(body.get("waitingFor") or "") if activity == "blocked" else ""
        return Reading(activity, detail, _moment(body.get("statusUpdatedAt")))

    def read_screen(self, text: str) -> Reading | None:
        return claude_screen.read(text)

    def read_hook(self, event: str, body: dict[str, Any]) -> Reading | None:
        tool = str(body.get("tool_name") or "")
        match event:
            case "SessionStart":
                return Reading("starting", str(body.get("source") or ""))
            case "PreToolUse" if tool == "AskUserQuestion":
                return Reading("blocked", "question")
            case "UserPromptSubmit" | "PreToolUse" | "PostToolUse" | "PostToolUseFailure":
                return Reading("busy", tool)
            case "SubagentStart":
                return Reading("busy", "subagent")
            case "PreCompact":
                return Reading("busy", "compacting")
            case "ElicitationResult":
                return Reading("busy")
            case "PermissionRequest":
                return Reading("blocked", f"permission: {tool}" if tool else "permission")
            case "Elicitation":
                return Reading("blocked", "elicitation")
            case "Notification":
                return _notification(str(body.get("notification_type") or ""))
            case "Stop":
                return Reading("idle")
            case "StopFailure":
                said, kind = str(body.get("last_assistant_message") or ""), str(body.get("error") or "")
                return Reading("idle", claude_screen.failure(said, kind))
            case "SessionEnd" if body.get("reason") not in ("clear", "resume"):
                return Reading("exited", str(body.get("reason") or ""))
        return None

    def hook_reply(self, event: str, text: str) -> dict[str, Any] | None:
        if event == "Stop":
            return {"decision": "block", "reason": text}
        if event not in self.ways.hooks:
            return None
        return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}

    def permission_reply(self, event: str, *, allow: bool, why: str) -> dict[str, Any]:
        """A no ends the turn, as it does on the screen."""
        no = {"behavior": "deny", "message": why, "interrupt": True}
        decision: dict[str, Any] = {"behavior": "allow"} if allow else no
        return {"hookSpecificOutput": {"hookEventName": event, "decision": decision}}

    def asks_about(self, body: dict[str, Any]) -> str:
        given = body.get("tool_input")
        told = given if isinstance(given, dict) else {}
        names = (told.get(name) for name in ("command", "file_path", "url", "plan"))
        return next((name for name in names if isinstance(name, str)), str(body.get("tool_name") or ""))

    def deny_reply(self, event: str, why: str) -> dict[str, Any] | None:
        if event != "PreToolUse":
            return None
        decision = {"permissionDecision": "deny", "permissionDecisionReason": why}
        return {"hookSpecificOutput": {"hookEventName": event, **decision}}

    def read_dialog(self, text: str) -> Dialog | None:
        return claude_screen.dialog(text)

    def is_receipt(self, line: str) -> bool:
        """What is queued while the program is busy has not been seen yet."""
        return '"type":"queue-operation"' not in line

    def transcripts(self, instance_dir: str, worktree_path: str, conversation_id: str) -> tuple[str, ...]:
        return _transcripts(worktree_path, conversation_id)

    def side_logs(self, worktree_path: str, conversation_id: str) -> tuple[str, ...]:
        mains = _transcripts(worktree_path, conversation_id)
        return tuple(f"{main.removesuffix('.jsonl')}/subagents/**/*.jsonl" for main in mains)

    def read_usage(self, line: str) -> Usage | None:
        if '"usage"' not in line:
            return None
        try:
            entry = json.loads(line)
        except ValueError:
            return None
        message = entry.get("message") if isinstance(entry, dict) and entry.get("type") == "assistant" else None
        used = message.get("usage") if isinstance(message, dict) else None
        if not isinstance(message, dict) or not isinstance(used, dict) or message.get("model") == "<synthetic>":
            return None
        names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        took, gave, read, wrote = (n if isinstance(n := used.get(name), int) and n > 0 else 0 for name in names)
        at = _moment(entry.get("timestamp")) or ""
        return Usage(str(message.get("id")), str(message.get("model")), took, gave, read, wrote, at)


def unwritten(log: Iterable[bytes]) -> bytes | None:
    """What must be added to a log before its conversation is resumed; None when no prompt is in it.

    The program goes on from the last line of its log. It writes the first prompt in parallel with what follows, so
    the answer may stand before its question, and names the true end only when it exits. One that was killed did
    not: the line is made here. Twice is once.
    """
    parents: dict[str, str] = {}
    spoken: set[str] = set()
    last, conversation, prompted, named, line = "", "", False, False, b"\n"
    for line in log:
        entry = _entry(line)
        kind = entry.get("type")
        if kind == "last-prompt":
            named = named or "leafUuid" in entry
        elif kind in _CHAINED and entry.get("uuid") and not entry.get("isSidechain"):
            last, conversation, named = str(entry["uuid"]), str(entry.get("sessionId")), False
            parents[last] = str(entry.get("parentUuid"))
            if kind in _SPOKEN:
                spoken.add(last)
            prompted = prompted or _is_prompt(entry)
    if not prompted:
        return None
    end = b"" if line.endswith(b"\n") else b"\n"
    later = spoken & _descendants(parents, last) - {last}
    if named or not later:
        return end
    leaf = next(uuid for uuid in reversed(parents) if uuid in later)
    said = {"type": "last-prompt", "leafUuid": leaf, "sessionId": conversation}
    return end + json.dumps(said, separators=(",", ":")).encode() + b"\n"


def _entry(line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:  # cut off when the program was killed
        return {}
    return entry if isinstance(entry, dict) else {}


def _is_prompt(entry: dict[str, Any]) -> bool:
    """Results of tools and the feedback of hooks are the user's lines too."""
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    blocks = content if isinstance(content, list) else []
    results = any(isinstance(block, dict) and block.get("type") == "tool_result" for block in blocks)
    return entry["type"] == "user" and not entry.get("isMeta") and not results


def _descendants(parents: dict[str, str], root: str) -> set[str]:
    children: dict[str, list[str]] = {}
    for uuid, parent in parents.items():
        children.setdefault(parent, []).append(uuid)
    found: set[str] = set()
    todo = [root]
    while todo:
        new = [uuid for uuid in children.get(todo.pop(), ()) if uuid not in found]
        found.update(new)
        todo += new
    return found


def _config_dir() -> Path:
    configured = os.environ.get("CLAUDE_CONFIG_DIR")
    return Path(configured) if configured else Path.home() / ".claude"


def _transcripts(worktree_path: str, conversation_id: str) -> tuple[str, ...]:
    """Where the conversation's transcript may be: the program names the folder after its real cwd."""
    projects = glob.escape(str(_config_dir() / "projects"))
    patterns = []
    for cwd in dict.fromkeys((worktree_path, os.path.realpath(worktree_path))):
        folder = re.sub(r"[^A-Za-z0-9]", "-", cwd)
        if len(folder) > _LONGEST_PROJECT_NAME:
            folder = folder[: _LONGEST_PROJECT_NAME // 2] + "*"
        patterns.append(f"{projects}/{folder}/{conversation_id}.jsonl")
    return tuple(patterns)


def _mcp_json(spec: Spec) -> str:
    server = {
        "type": "http",
        "url": f"{spec.coordinator_url}/mcp",
        "alwaysLoad": True,
        "headers": {"Authorization": "Bearer ${SWARM_TOKEN}"},
    }
    return json.dumps({"mcpServers": {"swarm": server}}, indent=2) + "\n"


def _settings_json(spec: Spec) -> str:
    hooks: dict[str, Any] = {
        event: [
            {
                "hooks": [
                    {
                        "type": "http",
                        "url": f"{spec.coordinator_url}/hooks/{event}",
                        "timeout": _PERSON_TIMEOUT_S if event == "PermissionRequest" else _HOOK_TIMEOUT_S,
                        "headers": {"Authorization": "Bearer $SWARM_TOKEN"},
                        "allowedEnvVars": ["SWARM_TOKEN"],
                    }
                ]
            }
        ]
        for event in HTTP_EVENTS
    }
    # A first prompt is sent before MCP is connected unless a SessionStart hook holds it back.
    waiter = (sys.executable, "-I", "-S", str(Path(__file__).with_name("claude_session_start.py")))
    hooks["SessionStart"] = [
        {"hooks": [{"type": "command", "command": shlex.join(waiter), "timeout": _SESSION_START_TIMEOUT_S}]}
    ]
    return json.dumps({"hooks": hooks}, indent=2) + "\n"


def _moment(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        ms = None if isinstance(value, str) else value / 1000
        at = datetime.fromisoformat(str(value)) if ms is None else datetime.fromtimestamp(ms, UTC)
        return at.astimezone(UTC).isoformat(timespec="milliseconds") if at.tzinfo else None
    except (ValueError, OverflowError, OSError):
        return None


def _notification(kind: str) -> Reading | None:
    """An `idle_prompt` says nothing: the turn ended earlier, and its own hook said how."""
    return {
        "permission_prompt": Reading("blocked", "permission prompt"),
        "elicitation_dialog": Reading("blocked", "elicitation"),
    }.get(kind)
