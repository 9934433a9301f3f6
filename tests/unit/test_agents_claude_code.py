from __future__ import annotations

import glob
import json
import os
import shlex
from pathlib import Path

import pytest

from swarm_core.agents.base import Reading, Spec
from swarm_core.agents.claude_code import HTTP_EVENTS, ClaudeCode, unwritten

ID = "11111111-2222-4333-8444-555555555555"
CLAUDE = ClaudeCode()


def spec_for(folder: Path, worktree: Path | None = None) -> Spec:
    return Spec(
        instance_id="work-1-a1",
        epoch=1,
        conversation_id=ID,
        worktree_path=str(worktree or folder / "work.tree_1"),
        instance_dir=str(folder / "instance"),
        prompt="Fix it",
        prompt_path=str(folder / "instance" / "prompt.md"),
        coordinator_url="http://127.0.0.1:3001",
    )


def test_the_command_line_uses_values_with_equals_and_guards_the_prompt(tmp_path):
    argv = CLAUDE.plan(spec_for(tmp_path), resume=False).argv
    assert argv == (
        "claude",
        f"--session-id={ID}",
        f"--mcp-config={tmp_path}/instance/mcp.json",
        "--strict-mcp-config",
        f"--settings={tmp_path}/instance/settings.json",
        "--allowedTools=mcp__swarm__*",
        "--",
        "Fix it",
    )


def test_permissions_are_never_skipped_and_no_sandbox_is_claimed(tmp_path):
    plan = CLAUDE.plan(spec_for(tmp_path), resume=True)
    words = " ".join([*plan.argv, *(plan.resume_argv or ()), *plan.files.values(), *plan.env])
    assert "skip-permissions" not in words
    assert "bypassPermissions" not in words
    assert "SANDBOX" not in words


def test_resume_names_the_same_conversation_and_does_not_repeat_the_prompt(tmp_path):
    again = CLAUDE.plan(spec_for(tmp_path), resume=True).resume_argv
    assert again is not None
    assert again[1] == f"--resume={ID}"
    assert again[-2] == "--"
    assert "Fix it" not in again


def matches(probes: tuple[str, ...]) -> list[str]:
    return [match for probe in probes for match in glob.glob(probe)]  # noqa: PTH207  (patterns are absolute)


def test_the_probe_matches_exactly_the_transcript_of_this_worktree(tmp_path, monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "conf[1]"))
    spec = spec_for(tmp_path)
    probes = CLAUDE.plan(spec, resume=True).resume_probe
    assert matches(probes) == []
    name = "".join(c if c.isascii() and c.isalnum() else "-" for c in spec.worktree_path)
    transcript = tmp_path / "conf[1]" / "projects" / name / f"{ID}.jsonl"
    transcript.parent.mkdir(parents=True)
    transcript.touch()
    (transcript.parent / "99999999-2222-4333-8444-555555555555.jsonl").touch()
    assert matches(probes) == [str(transcript)]


def test_the_probe_follows_a_symlinked_worktree_to_its_real_path(tmp_path):
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    probes = CLAUDE.plan(spec_for(tmp_path, tmp_path / "link"), resume=True).resume_probe
    assert any("-real/" in probe for probe in probes)
    assert all(probe.startswith(f"{os.environ['HOME']}/.claude/projects/") for probe in probes)


def test_a_very_long_worktree_path_is_probed_by_its_beginning(tmp_path):
    spec = spec_for(tmp_path, Path("/" + "a" * 150 + "/" + "b" * 150))
    (probe,) = CLAUDE.plan(spec, resume=True).resume_probe
    assert probe.endswith(f"*/{ID}.jsonl")


def test_the_configuration_folder_of_the_person_is_handed_on_and_never_written(tmp_path, monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/conf")
    plan = CLAUDE.plan(spec_for(tmp_path), resume=False)
    assert plan.env["CLAUDE_CONFIG_DIR"] == "/conf"
    assert CLAUDE.status_files("/any", 7) == ("/conf/sessions/7.json",)
    assert set(plan.files) == {"mcp.json", "settings.json"}


def test_telemetry_and_updates_are_off_and_nesting_marks_are_removed(tmp_path):
    plan = CLAUDE.plan(spec_for(tmp_path), resume=False)
    assert plan.env["DISABLE_TELEMETRY"] == "1"
    assert plan.env["DISABLE_AUTOUPDATER"] == "1"
    assert "CLAUDECODE" in plan.unset


def test_the_mcp_server_is_always_loaded_with_the_token_from_the_environment(tmp_path):
    server = json.loads(CLAUDE.plan(spec_for(tmp_path), resume=False).files["mcp.json"])["mcpServers"]["swarm"]
    assert server == {
        "type": "http",
        "url": "http://127.0.0.1:3001/mcp",
        "alwaysLoad": True,
        "headers": {"Authorization": "Bearer ${SWARM_TOKEN}"},
    }


def test_every_status_event_is_an_http_hook_that_may_read_the_token(tmp_path):
    hooks = json.loads(CLAUDE.plan(spec_for(tmp_path), resume=False).files["settings.json"])["hooks"]
    assert set(hooks) == {*HTTP_EVENTS, "SessionStart"}
    for event in HTTP_EVENTS:
        (hook,) = hooks[event][0]["hooks"]
        assert hook["type"] == "http"
        assert hook["url"] == f"http://127.0.0.1:3001/hooks/{event}"
        assert hook["headers"] == {"Authorization": "Bearer $SWARM_TOKEN"}
        assert hook["allowedEnvVars"] == ["SWARM_TOKEN"]


def test_session_start_is_a_command_of_existing_files_without_the_token(tmp_path):
    hooks = json.loads(CLAUDE.plan(spec_for(tmp_path), resume=False).files["settings.json"])["hooks"]
    (hook,) = hooks["SessionStart"][0]["hooks"]
    assert hook["type"] == "command"
    program, *_, script = shlex.split(hook["command"])
    assert Path(program).exists()
    assert Path(script).is_file()
    assert "TOKEN" not in hook["command"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{"status":"idle","statusUpdatedAt":1700000000123}',
            Reading("idle", "", "2023-11-14T22:13:20.123+00:00"),
        ),
        ('{"status":"busy"}', Reading("busy")),
        (
            '{"status":"waiting","waitingFor":"permission prompt","statusUpdatedAt":"2026-01-02T03:04:05Z"}',
            Reading("blocked", "permission prompt", "2026-01-02T03:04:05.000+00:00"),
        ),
        ('{"status":"busy","statusUpdatedAt":1e300}', Reading("busy")),
        ('{"status":"busy","statusUpdatedAt":true}', Reading("busy")),
        ('{"status":"dreaming"}', None),
        ('{"status":"idle"', None),
        ("[1]", None),
    ],
)
def test_the_sessions_file_is_read(text, expected):
    assert CLAUDE.read_status(text) == expected


RULE = "─" * 40
SCREENS = {
    "busy": (
        f"● Reading\n✽ Composing… (5s · ↓ 66 tokens)\n{RULE}\n❯ \n{RULE}\n  esc to interrupt",
        Reading("busy"),
    ),
    "retrying": (
        f"✻ API error · Retrying in 3s · attempt 4/10\n{RULE}\n❯ \n{RULE}\n  esc to interrupt",
        Reading("busy", "retrying"),
    ),
    "idle": (f"● Done.\n✻ Worked for 7s\n{RULE}\n❯ \n{RULE}\n  ? for shortcuts", Reading("idle")),
    "idle in bypass mode": (f"● Done.\n{RULE}\n❯ \n{RULE}\n  ⏵⏵ bypass permissions on", Reading("idle")),
    "permission": (
        "Bash command\n  rm -rf build\nDo you want to proceed?\n❯ 1. Yes\n  2. No\nEsc to cancel",
        Reading("blocked", "permission"),
    ),
    "edit in a box": (
        "│ Do you want to make this edit to a.py?\n│ ❯ 1. Yes\n│   2. No",
        Reading("blocked", "permission"),
    ),
    "elicitation": ("MCP server “swarm” requests your input\n  name: ", Reading("blocked", "elicitation")),
    "trust": (
        "Do you trust the files in this folder?\n❯ 1. Yes, proceed\n  2. No, exit",
        Reading("blocked", "trust"),
    ),
    "some other choice": ("Pick one\n❯ 1. Red\n  2. Blue\nEsc to cancel", Reading("blocked", "question")),
    "overloaded": (
        f"● API Error: 529 Overloaded\n{RULE}\n❯ \n{RULE}\n  ? for shortcuts",
        Reading("idle", "error: overloaded"),
    ),
    "credit": (f"● Credit balance too low\n{RULE}\n❯ \n{RULE}", Reading("idle", "error: out of credit")),
    "context": (f"● Prompt is too long\n{RULE}\n❯ \n{RULE}", Reading("idle", "error: context full")),
    "login": (f"● Please run /login · API Error: 403\n{RULE}\n❯ \n{RULE}", Reading("idle", "error: login needed")),
    "an old error above a good answer": (
        f"● API Error: 529 Overloaded\n❯ again\n● Done.\n{RULE}\n❯ \n{RULE}\n  ? for shortcuts",
        Reading("idle"),
    ),
    "an answer that quotes a dialog": (
        "● The code prints Do you want to proceed? and esc to interrupt\n"
        + "  more\n" * 6
        + f"{RULE}\n❯ \n{RULE}\n  ? for shortcuts",
        Reading("idle"),
    ),
    "a shell": ("$ ls\nREADME.md", None),
    "nothing": ("", None),
}


@pytest.mark.parametrize("name", SCREENS)
def test_the_screen_is_read(name):
    text, expected = SCREENS[name]
    assert CLAUDE.read_screen(text) == expected


@pytest.mark.parametrize(
    ("event", "body", "expected"),
    [
        ("SessionStart", {"source": "resume"}, Reading("starting", "resume")),
        ("UserPromptSubmit", {"prompt": "x"}, Reading("busy")),
        ("PreToolUse", {"tool_name": "Bash"}, Reading("busy", "Bash")),
        ("PreToolUse", {"tool_name": "AskUserQuestion"}, Reading("blocked", "question")),
        ("PostToolUse", {"tool_name": "Bash"}, Reading("busy", "Bash")),
        ("PostToolUseFailure", {"tool_name": "Bash"}, Reading("busy", "Bash")),
        ("PermissionRequest", {"tool_name": "Bash"}, Reading("blocked", "permission: Bash")),
        ("Notification", {"notification_type": "permission_prompt"}, Reading("blocked", "permission prompt")),
        # A reminder about an idle prompt begins and ends no turn.
        ("Notification", {"notification_type": "idle_prompt"}, None),
        ("Notification", {"notification_type": "auth_success"}, None),
        ("Elicitation", {}, Reading("blocked", "elicitation")),
        ("ElicitationResult", {}, Reading("busy")),
        ("Stop", {"stop_hook_active": False}, Reading("idle")),
        ("StopFailure", {"error": "rate_limit"}, Reading("idle", "error: rate limited")),
        (
            "StopFailure",
            {
                "error": "server_error",
                "last_assistant_message": "API Error: 529 Overloaded. Try again.\nAPI Error",
            },
            Reading("idle", "error: overloaded"),
        ),
        (
            "StopFailure",
            {"error": "invalid_request", "last_assistant_message": "Prompt is too long"},
            Reading("idle", "error: context full"),
        ),
        ("StopFailure", {}, Reading("idle", "error: api error")),
        ("SubagentStart", {}, Reading("busy", "subagent")),
        ("SubagentStop", {}, None),
        ("PreCompact", {}, Reading("busy", "compacting")),
        ("PostCompact", {}, None),
        ("SessionEnd", {"reason": "prompt_input_exit"}, Reading("exited", "prompt_input_exit")),
        ("SessionEnd", {"reason": "clear"}, None),
        ("SomethingNew", {}, None),
    ],
)
def test_hooks_are_read(event, body, expected):
    assert CLAUDE.read_hook(event, body) == expected


def line(kind, uuid="", parent=None, **more):
    """One line of a log; those with a uuid are chained by their parents."""
    chained = {"uuid": uuid, "parentUuid": parent, "isSidechain": False} if uuid else {}
    return json.dumps({"type": kind, "sessionId": ID, **chained, **more}, separators=(",", ":")).encode() + b"\n"


def spoken(kind, uuid, parent, content):
    return line(kind, uuid, parent, message={"role": kind, "content": content})


TOOL_RESULT = [{"type": "tool_result", "tool_use_id": "t1", "content": "one"}]
QUESTION = (
    spoken("user", "u1", None, "look around"),
    line("attachment", "x1", "u1"),
    line("attachment", "x2", "x1"),
)
ANSWER = (
    spoken("assistant", "a1", "x2", [{"type": "tool_use", "id": "t1"}]),
    spoken("user", "r1", "a1", TOOL_RESULT),
    spoken("assistant", "a2", "r1", [{"type": "text", "text": "a heron"}]),
    line("system", "s1", "a2"),
)
MODE, SNAPSHOT = line("mode"), line("file-history-snapshot")


@pytest.mark.parametrize("count", range(1, 8))
def test_a_log_in_order_needs_nothing_wherever_it_ends(count):
    assert unwritten([MODE, SNAPSHOT, *[*QUESTION, *ANSWER][:count]]) == b""


def test_a_log_with_the_answer_before_its_question_is_told_once_which_is_last():
    log = [MODE, *ANSWER, SNAPSHOT, *QUESTION]
    added = unwritten(log)
    assert added is not None
    assert json.loads(added) == {"type": "last-prompt", "leafUuid": "a2", "sessionId": ID}
    assert unwritten([*log, added]) == b""
    assert unwritten([*log, added, spoken("user", "u2", "a2", "go on")]) == b""


def test_only_what_follows_the_last_line_is_later_than_it():
    went_back = [spoken("user", "u2", "x2", "something else"), spoken("assistant", "a3", "u2", "a stork")]
    assert unwritten([*QUESTION, *ANSWER, *went_back]) == b""
    assert unwritten([*ANSWER, *QUESTION[:2]]) == b""  # the line that would join them is lost
    assert unwritten([QUESTION[1], QUESTION[0]]) == b""
    assert unwritten([spoken("user", "u1", "u2", "a"), spoken("user", "u2", "u1", "b")]) is not None


@pytest.mark.parametrize("leaf", ["u1", None])
def test_what_the_program_itself_calls_last_is_left_alone(leaf):
    assert unwritten([*ANSWER, *QUESTION, line("last-prompt", leafUuid=leaf, explicit=True)]) == b""


def test_lines_of_subagents_and_of_other_kinds_do_not_end_a_conversation():
    beside = line("assistant", "b1", "x2").replace(b'"isSidechain":false', b'"isSidechain":true')
    added = unwritten([*ANSWER, *QUESTION, beside, SNAPSHOT, line("last-prompt", lastPrompt="look around")])
    assert added is not None
    assert json.loads(added)["leafUuid"] == "a2"


def test_a_line_that_was_cut_off_is_ended_so_that_the_next_one_can_be_read():
    assert unwritten([*QUESTION, ANSWER[0][:-20]]) == b"\n"
    assert unwritten([*QUESTION, ANSWER[0].rstrip()]) == b"\n"
    added = unwritten([*ANSWER, *QUESTION, MODE[:-5]])
    assert added is not None
    assert added.startswith(b'\n{"type":"last-prompt"')


@pytest.mark.parametrize(
    "log",
    [
        [],
        [MODE, SNAPSHOT],
        ANSWER,
        [*ANSWER, line("user", "h1", "s1", isMeta=True, message={"content": "Stop hook feedback:"})],
        [b"[]\n", b"no json\n", b"\xff\n"],
    ],
    ids=["empty", "metadata", "answer", "feedback", "unreadable"],
)
def test_a_log_without_a_prompt_cannot_be_resumed(log):
    assert unwritten(log) is None
