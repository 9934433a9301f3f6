"""OpenCode (experimental: its MCP connection was seen to work, it was never run with a model here).

Configured through OPENCODE_CONFIG, a layer between the user's and the project's own file. Its session ids cannot
be chosen, and `--continue` may take the session of another worktree of the repository, so it is never resumed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from swarm_core.agents.base import Mute, Plan, Reading, Spec, last_lines, prompt_argument

_CONFIG = "opencode.json"


class OpenCode(Mute):
    name = "opencode"
    title = "OpenCode"
    program = "opencode"
    experimental = True
    install_hint = "npm install -g opencode-ai, then run opencode auth login"
    plain_prompt = False

    def plan(self, spec: Spec, *, resume: bool) -> Plan:
        config = {
            "$schema": "https://opencode.ai/config.json",
            "autoupdate": False,
            "mcp": {
                "swarm": {
                    "type": "remote",
                    "url": f"{spec.coordinator_url}/mcp",
                    "enabled": True,
                    "oauth": False,
                    "headers": {"Authorization": "Bearer {env:SWARM_TOKEN}"},
                }
            },
        }
        return Plan(
            argv=(self.program, f"--prompt={prompt_argument(spec)}"),
            env={
                "OPENCODE_CONFIG": str(Path(spec.instance_dir, _CONFIG)),
                "OPENCODE_DISABLE_AUTOUPDATE": "1",
            },
            files={_CONFIG: json.dumps(config, indent=2) + "\n"},
        )

    def status_files(self, spec_instance_dir: str, pid: int) -> tuple[str, ...]:
        return ()

    def read_status(self, text: str) -> Reading | None:
        return None

    def read_screen(self, text: str) -> Reading | None:
        lines = last_lines(text, 24)
        joined = "\n".join(lines)
        if "Permission required" in joined and "Allow once" in joined:
            return Reading("blocked", "permission prompt")
        if any("esc interrupt" in line or "esc to interrupt" in line for line in lines[-6:]):
            return Reading("busy")
        return None

    def read_hook(self, event: str, body: dict[str, Any]) -> Reading | None:
        return None
