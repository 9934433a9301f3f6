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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from swarm_core.agents.base import (
    RESUME_PROMPT,
    Dialog,
    Plan,
    Reading,
    Spec,
    Usage,
    Ways,
    last_lines,
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


class ClaudeCode:
    name = "claude"
    title = "Claude Code"
    program = "claude"
    experimental = False
    install_hint = "npm install -g @anthropic-ai/claude-code, then run claude once to sign in"
    plain_prompt = False
    reconnect = "/mcp reconnect swarm"
    ways = Ways(joins=True, hooks=frozenset({"PostToolUse", "PostToolUseFailure", "Stop"}), confirms=True)

    def plan(self, spec: Spec, *, resume: bool) -> Plan:
        common = (
            f"--mcp-config={Path(spec.instance_dir, 'mcp.json')}",
            "--strict-mcp-config",
            f"--settings={Path(spec.instance_dir, 'settings.json')}",
            "--allowedTools=mcp__swarm__*",
            "--",
        )
        env = dict(_ENV)
        if os.environ.get("CLAUDE_CONFIG_DIR"):
            env["CLAUDE_CONFIG_DIR"] = os.environ["CLAUDE_CONFIG_DIR"]
        start = (self.program, f"--session-id={spec.conversation_id}", *common, prompt_argument(spec))
        again = (self.program, f"--resume={spec.conversation_id}", *common, RESUME_PROMPT)
        return Plan(
            argv=start,
            resume_argv=again if resume else None,
            resume_probe=_transcripts(spec.worktree_path, spec.conversation_id) if resume else (),
            env=env,
            unset=_UNSET,
            files={"mcp.json": _mcp_json(spec), "settings.json": _settings_json(spec)},
        )

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
        lines = last_lines(text, 24)
        joined = "\n".join(lines)
        blocked = _dialog(lines, joined)
        if blocked is not None:
            return Reading("blocked", blocked)
        # The footer is below the answer; an answer that quotes it further up is not the footer.
        if any("esc to interrupt" in line for line in lines[-4:]):
            return Reading("busy", "retrying" if re.search(r"· Retrying in \d+s", joined) else "")
        if not any(_is_prompt_box(line) for line in lines[-6:]):
            return None
        return Reading("idle", _error_shown(lines))

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
                return Reading("idle", f"error: {body.get('error') or 'unknown'}")
            case "SessionEnd" if body.get("reason") not in ("clear", "resume"):
                return Reading("exited", str(body.get("reason") or ""))
        return None

    def hook_reply(self, event: str, text: str) -> dict[str, Any] | None:
        if event == "Stop":
            return {"decision": "block", "reason": text}
        if event not in self.ways.hooks:
            return None
        return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}

    def deny_reply(self, event: str, why: str) -> dict[str, Any] | None:
        if event != "PreToolUse":
            return None
        decision = {"permissionDecision": "deny", "permissionDecisionReason": why}
        return {"hookSpecificOutput": {"hookEventName": event, **decision}}

    def read_dialog(self, text: str) -> Dialog | None:
        lines = [_unframed(line) for line in text.rstrip().splitlines()]
        chosen = [index for index, line in enumerate(lines) if _CHOICE.match(line)]
        if not chosen or _dialog(last_lines(text, 24), text) is None:
            return None
        first = last = chosen[-1]
        while first > 0 and _OPTION.match(lines[first - 1]):
            first -= 1
        while last + 1 < len(lines) and (_OPTION.match(lines[last + 1]) or _continues(lines, last + 1)):
            last += 1
        options = _options(lines[first : last + 1])
        above = lines[:first]
        rule = max((n for n, line in enumerate(above) if _RULE.fullmatch(line)), default=-1)
        asked = "\n".join(above[rule + 1 :]).strip()
        keys = tuple(number for number, _ in options)
        return Dialog(asked, tuple(label for _, label in options), keys, _dialog(last_lines(text, 24), text) or "")

    def is_receipt(self, line: str) -> bool:
        """What is queued while the program is busy has not been seen yet."""
        return '"type":"queue-operation"' not in line

    def transcripts(self, instance_dir: str, worktree_path: str, conversation_id: str) -> tuple[str, ...]:
        return _transcripts(worktree_path, conversation_id)

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
                        "timeout": _HOOK_TIMEOUT_S,
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
    except (ValueError, OverflowError, OSError):
        return None
    return at.astimezone(UTC).isoformat(timespec="milliseconds") if at.tzinfo else None


_DIALOGS = (
    (re.compile(r"^Do you want to (proceed|make this edit|create|allow)\b"), "permission prompt"),
    (re.compile(r"^MCP server .+ requests your input"), "elicitation"),
    (re.compile(r"\btrust (the files in )?this folder\b"), "trust"),
    (re.compile(r"Bypass Permissions mode", re.IGNORECASE), "bypass warning"),
    (re.compile(r"^Select login method"), "login"),
)
_CHOICE = re.compile(r"^(│\s*)?❯\s*\d+\.\s")
_OPTION = re.compile(r"^(?:❯\s*|\s*)(\d+)\.\s+(.*)$")
_RULE = re.compile(r"[─━╌▔_-]{8,}.*")


def _unframed(line: str) -> str:
    return re.sub(r"\s*│\s*$", "", re.sub(r"^\s*│\s?", "", line)).rstrip()


def _continues(lines: list[str], index: int) -> bool:
    """A line that belongs to the choice above it: indented, and not the hint below the choices."""
    line = lines[index]
    return bool(re.match(r"\s{3,}\S", line)) and "Esc to" not in line and "Enter to" not in line


def _options(lines: list[str]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for line in lines:
        if option := _OPTION.match(line):
            found.append((option[1], option[2].strip()))
        elif found:
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
    return found


def _dialog(lines: list[str], joined: str) -> str | None:
    """The kind of dialog on the screen; a dialog has a chosen line and stands at the bottom."""
    if any(re.match(r"MCP server .+ requests your input", line.lstrip("│ ")) for line in lines):
        return "elicitation"
    choices = [index for index, line in enumerate(lines) if _CHOICE.match(line)]
    if not choices or len(lines) - choices[-1] > 8:
        return None
    above = [line.lstrip("│ ") for line in lines[: choices[-1]]]
    for line in reversed(above):
        for pattern, kind in _DIALOGS:
            if pattern.search(line):
                return kind
    return "choice" if re.search(r"Esc to (cancel|exit)|Enter to confirm", joined) else None


def _is_prompt_box(line: str) -> bool:
    return line.lstrip("│ ").startswith("❯") or "? for shortcuts" in line or line.startswith("⏵⏵")


_ERRORS = (
    (re.compile(r"^● API Error: (529|429)"), "overloaded"),
    (re.compile(r"Credit balance (is )?too low"), "out of credit"),
    (re.compile(r"Prompt is too long"), "context full"),
    (re.compile(r"Please run /login"), "login needed"),
    (re.compile(r"^● API Error"), "api error"),
)


def _error_shown(lines: list[str]) -> str:
    """The error of the last answer, if it was one: nothing but its own turn line follows it."""
    for line in reversed(lines):
        for pattern, kind in _ERRORS:
            if pattern.search(line):
                return f"error: {kind}"
        if line.startswith("●"):
            return ""
    return ""


def _notification(kind: str) -> Reading | None:
    return {
        "permission_prompt": Reading("blocked", "permission prompt"),
        "elicitation_dialog": Reading("blocked", "elicitation"),
        "idle_prompt": Reading("idle"),
    }.get(kind)
