"""Codex CLI (experimental: built from its documentation and configuration, never run with a model here).

Configured by `-c` overrides alone, so nothing is written to CODEX_HOME. Its session ids cannot be chosen: a
conversation is resumed as the last one of this worktree, once a finished turn has left its mark.
"""

from __future__ import annotations

import glob
import json
import os
import sys
from pathlib import Path
from typing import Any

from swarm_core.agents.base import Mute, Plan, Reading, Spec, guarded, last_lines, prompt_argument

_TURN_FILE = "codex-turn.json"
_KEEP_TURN = "import sys; open(sys.argv[1], 'w').write(sys.argv[-1])"
_DIALOGS = (
    "Would you like to run the following command?",
    "Would you like to make the following edits?",
    "Would you like to grant",
    "Do you trust the contents of this directory?",
)


class Codex(Mute):
    name = "codex"
    title = "Codex CLI"
    program = "codex"
    experimental = True
    install_hint = "npm install -g @openai/codex, then run codex login"
    plain_prompt = False

    def plan(self, spec: Spec, *, resume: bool) -> Plan:
        turn_file = str(Path(spec.instance_dir, _TURN_FILE))
        overrides = {
            "mcp_servers.swarm.url": f"{spec.coordinator_url}/mcp",
            "mcp_servers.swarm.bearer_token_env_var": "SWARM_TOKEN",
            "mcp_servers.swarm.default_tools_approval_mode": "approve",
            "notify": [sys.executable, "-I", "-S", "-c", _KEEP_TURN, turn_file],
            "check_for_update_on_startup": False,
        }
        # A JSON string, list or boolean is also a TOML value.
        flags = tuple(part for key, value in overrides.items() for part in ("-c", f"{key}={json.dumps(value)}"))
        env = {"CODEX_HOME": os.environ["CODEX_HOME"]} if os.environ.get("CODEX_HOME") else {}
        again = (self.program, "resume", "--last", *flags, *guarded(spec.resume_prompt))
        return Plan(
            argv=(self.program, *flags, "--", prompt_argument(spec)),
            resume_argv=again if resume else None,
            resume_probe=(glob.escape(turn_file),) if resume else (),
            env=env,
        )

    def status_files(self, spec_instance_dir: str, pid: int) -> tuple[str, ...]:
        return ()

    def read_status(self, text: str) -> Reading | None:
        return None

    def read_screen(self, text: str) -> Reading | None:
        lines = last_lines(text, 24)
        if any(line.startswith("› 1.") for line in lines) and any(
            line.startswith(dialog) for line in lines for dialog in _DIALOGS
        ):
            return Reading("blocked", "permission prompt")
        if any("esc to interrupt" in line for line in lines[-6:]):
            return Reading("busy")
        return Reading("idle") if any(line.startswith("›") for line in lines[-4:]) else None

    def read_hook(self, event: str, body: dict[str, Any]) -> Reading | None:
        return None
