"""The scripted agent: the adapter of the deterministic program shipped for demos and tests."""

from __future__ import annotations

import glob
import json
import os
import sys
from pathlib import Path
from typing import Any

from swarm_core.agents.base import ACTIVITIES, Dialog, Mute, Plan, Reading, Spec, Ways, last_lines


class Scripted(Mute):
    name = "scripted"
    title = "Scripted agent"
    program = sys.executable
    experimental = False
    install_hint = "it is part of swarm"
    plain_prompt = True
    ways = Ways(settle=0.0, gap=0.0, hooks=frozenset({"stop", "step"}), confirms=True)

    def plan(self, spec: Spec, *, resume: bool) -> Plan:
        argv = (
            sys.executable,
            "-I",
            "-S",
            str(Path(__file__).with_name("scripted_program.py")),
            f"--prompt={spec.prompt_path}",
            f"--dir={spec.instance_dir}",
            f"--conversation={spec.conversation_id}",
        )
        again = (*argv, "--resume") if spec.resume_prompt else (*argv, "--resume", "--wait")
        log = glob.escape(str(Path(spec.instance_dir, "conversation.jsonl")))
        return Plan(
            argv=argv,
            resume_argv=again if resume else None,
            resume_probe=(log,) if resume else (),
            env={"SWARM_HOOKS": "1"} if os.environ.get("SWARM_HOOKS") == "1" else {},
            files={"status.json": json.dumps({"activity": "starting"})},  # an earlier start's would mislead
        )

    def status_files(self, spec_instance_dir: str, pid: int) -> tuple[str, ...]:
        return (str(Path(spec_instance_dir, "status.json")),)

    def read_status(self, text: str) -> Reading | None:
        try:
            body = json.loads(text)
        except ValueError:
            return None
        if not isinstance(body, dict) or body.get("activity") not in ACTIVITIES:
            return None
        at = body.get("at")
        return Reading(body["activity"], str(body.get("detail") or ""), at if isinstance(at, str) else None)

    def read_screen(self, text: str) -> Reading | None:
        """The program only ever adds lines, so the last line that means something decides."""
        for line in reversed(last_lines(text, 12)):
            if line == "Esc to cancel":
                return Reading("blocked", "permission")
            if line.startswith("answer ❯"):
                return Reading("blocked", "question")
            if "esc to interrupt" in line:
                return Reading("busy")
            if line.startswith("❯"):
                return Reading("idle")
            if line.startswith(("answered:", "received:")):
                return Reading("busy")
        return None

    def read_hook(self, event: str, body: dict[str, Any]) -> Reading | None:
        detail = str(body.get("detail") or "")
        activity = {
            "session_start": "starting",
            "prompt_submit": "busy",
            "step": "busy",
            "notification": "blocked",
            "stop": "idle",
            "session_end": "exited",
        }.get(event)
        return Reading(activity, detail) if activity else None

    def hook_reply(self, event: str, text: str) -> dict[str, Any] | None:
        return {"message": text} if event in self.ways.hooks else None

    def read_dialog(self, text: str) -> Dialog | None:
        lines = [line.rstrip() for line in text.rstrip().splitlines()]
        if lines and lines[-1] == "Esc to cancel" and "Do you want to proceed?" in lines:
            start = len(lines) - 1 - lines[::-1].index("Do you want to proceed?")
            asked = lines[max(0, start - 1) : start + 1]
            return Dialog("\n".join(asked), ("Yes", "No"), ("1", "2"), "permission")
        if lines and lines[-1].startswith("answer ❯"):
            asked = [line for line in lines if line.startswith("? ")]
            return Dialog(asked[-1][2:] if asked else "", kind="question")
        return None

    def is_receipt(self, line: str) -> bool:
        """A paste that answered a question was taken for the answer."""
        return '"kind": "answer"' not in line

    def transcripts(self, instance_dir: str, worktree_path: str, conversation_id: str) -> tuple[str, ...]:
        return (glob.escape(str(Path(instance_dir, "received.jsonl"))),)
