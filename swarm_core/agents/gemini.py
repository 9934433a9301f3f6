"""Gemini CLI (experimental: built from its documentation, never run with a model here).

Configured through GEMINI_CLI_SYSTEM_DEFAULTS_PATH, the weakest layer: what the user, the project or the
administrator set stays in force, and nothing is written to ~/.gemini.
"""

from __future__ import annotations

import glob
import json
import os
from pathlib import Path
from typing import Any

from swarm_core.agents.base import Mute, Plan, Reading, Spec, last_lines, prompt_argument

_SETTINGS = "gemini.json"
_DIALOGS = ("Apply this change?", "Allow execution", "Do you want to proceed?", "Do you trust")


class Gemini(Mute):
    name = "gemini"
    title = "Gemini CLI"
    program = "gemini"
    experimental = True
    install_hint = "npm install -g @google/gemini-cli, then run gemini once to sign in"
    plain_prompt = False

    def plan(self, spec: Spec, *, resume: bool) -> Plan:
        settings = {
            "general": {"enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False},
            "mcpServers": {
                "swarm": {
                    "httpUrl": f"{spec.coordinator_url}/mcp",
                    "headers": {"Authorization": "Bearer ${SWARM_TOKEN}"},
                    "trust": True,
                }
            },
        }
        start = (
            self.program,
            f"--session-id={spec.conversation_id}",
            f"--prompt-interactive={prompt_argument(spec)}",
        )
        said = (f"--prompt-interactive={spec.resume_prompt}",) if spec.resume_prompt else ()
        again = (self.program, f"--resume={spec.conversation_id}", *said)
        return Plan(
            argv=start,
            resume_argv=again if resume else None,
            resume_probe=_chats(spec) if resume else (),
            env={"GEMINI_CLI_SYSTEM_DEFAULTS_PATH": str(Path(spec.instance_dir, _SETTINGS))},
            files={_SETTINGS: json.dumps(settings, indent=2) + "\n"},
        )

    def status_files(self, spec_instance_dir: str, pid: int) -> tuple[str, ...]:
        return ()

    def read_status(self, text: str) -> Reading | None:
        return None

    def read_screen(self, text: str) -> Reading | None:
        lines = [line.strip("│ ") for line in last_lines(text, 24)]
        if any(line.startswith("● 1.") for line in lines) and any(
            line.startswith(dialog) for line in lines for dialog in _DIALOGS
        ):
            return Reading("blocked", "permission prompt")
        if any("esc to cancel" in line for line in lines[-8:]):
            return Reading("busy")
        return Reading("idle") if any("Type your message" in line for line in lines[-6:]) else None

    def read_hook(self, event: str, body: dict[str, Any]) -> Reading | None:
        return None


def _chats(spec: Spec) -> tuple[str, ...]:
    home = Path(os.environ.get("GEMINI_CLI_HOME") or Path.home())
    folder = glob.escape(str(home / ".gemini" / "tmp"))
    return (f"{folder}/*/chats/session-*-{spec.conversation_id[:8]}.json*",)
