from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from swarm_core.agents import table
from swarm_core.agents.base import ACTIVITIES, PROMPT_IN_ARGV_BYTES, Plan, Spec
from swarm_core.errors import NotFound

LONG = "x" * (PROMPT_IN_ARGV_BYTES + 1)


def spec_for(folder: Path, prompt: str = "Fix the bug") -> Spec:
    return Spec(
        instance_id="work-1-a1",
        epoch=1,
        conversation_id="11111111-2222-4333-8444-555555555555",
        worktree_path=str(folder / "worktree"),
        instance_dir=str(folder / "instance"),
        prompt=prompt,
        prompt_path=str(folder / "instance" / "prompt.md"),
        coordinator_url="http://127.0.0.1:3001",
    )


@pytest.mark.parametrize("name", table.AGENTS)
def test_every_agent_is_found_under_the_name_it_bears(name):
    agent = table.get(name)
    assert agent.name == name
    assert agent.title
    assert agent.program
    assert agent.install_hint


def test_only_claude_and_scripted_are_not_experimental():
    assert {name for name, agent in table.AGENTS.items() if not agent.experimental} == {"claude", "scripted"}


def test_an_unknown_agent_is_refused_with_the_close_name_and_all_names():
    with pytest.raises(NotFound) as caught:
        table.get("cluade")
    assert caught.value.code == "AGENT_UNKNOWN"
    assert caught.value.hint is not None
    assert "Did you mean claude?" in caught.value.hint
    assert all(name in caught.value.hint for name in table.AGENTS)


def test_an_unknown_agent_like_no_other_gets_no_suggestion():
    with pytest.raises(NotFound) as caught:
        table.get("z" * 10_000)
    assert caught.value.hint is not None
    assert "Did you mean" not in caught.value.hint
    assert len(caught.value.message) < 200


@pytest.mark.parametrize("name", table.AGENTS)
@pytest.mark.parametrize("resume", [False, True])
def test_every_plan_survives_a_trip_through_json(name, resume, tmp_path):
    plan = table.get(name).plan(spec_for(tmp_path), resume=resume)
    again = json.loads(json.dumps(dataclasses.asdict(plan)))
    again = {k: tuple(v) if isinstance(v, list) else v for k, v in again.items()}
    assert Plan(**again) == plan


@pytest.mark.parametrize("name", table.AGENTS)
def test_a_plan_without_resume_can_only_start_anew(name, tmp_path):
    plan = table.get(name).plan(spec_for(tmp_path), resume=False)
    assert plan.resume_argv is None
    assert plan.resume_probe == ()


@pytest.mark.parametrize("name", table.AGENTS)
def test_resume_probes_are_absolute_and_match_only_what_is_there(name, tmp_path):
    plan = table.get(name).plan(spec_for(tmp_path), resume=True)
    assert bool(plan.resume_argv) == bool(plan.resume_probe)
    assert all(probe.startswith("/") for probe in plan.resume_probe)


@pytest.mark.parametrize("name", table.AGENTS)
def test_no_argument_exceeds_what_the_kernel_takes_however_long_the_prompt(name, tmp_path):
    spec = spec_for(tmp_path, LONG * 40)
    plan = table.get(name).plan(spec, resume=True)
    assert max(len(argument.encode()) for argument in plan.argv) < 64 * 1024
    assert any(spec.prompt_path in argument for argument in plan.argv)


@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "opencode"])
@pytest.mark.parametrize(
    "prompt", ["--help me", "two\nlines 'quoted' \"twice\" $HOME", "ünïcode ✓", "y" * PROMPT_IN_ARGV_BYTES]
)
def test_a_prompt_that_fits_is_one_argument_and_never_a_flag(name, prompt, tmp_path):
    argv = table.get(name).plan(spec_for(tmp_path, prompt), resume=False).argv
    assert argv[-1].endswith(prompt)
    assert argv[-2] == "--" or argv[-1] == f"{argv[-1].partition('=')[0]}={prompt}"


@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "opencode"])
def test_a_prompt_with_a_nul_byte_goes_through_its_file(name, tmp_path):
    spec = spec_for(tmp_path, "a\0b")
    argv = table.get(name).plan(spec, resume=False).argv
    assert not any("\0" in argument for argument in argv)
    assert spec.prompt_path in argv[-1]


@pytest.mark.parametrize("name", table.AGENTS)
def test_a_plan_names_the_token_only_by_its_variable(name, tmp_path, monkeypatch):
    monkeypatch.setenv("SWARM_TOKEN", "top-secret-value")
    plan = table.get(name).plan(spec_for(tmp_path), resume=True)
    assert "top-secret-value" not in json.dumps(dataclasses.asdict(plan))
    assert "SWARM_TOKEN" not in plan.env


@pytest.mark.parametrize("name", table.AGENTS)
def test_files_of_a_plan_stay_inside_the_instances_folder(name, tmp_path):
    for relative in table.get(name).plan(spec_for(tmp_path), resume=True).files:
        assert not relative.startswith("/")
        assert ".." not in Path(relative).parts


@pytest.mark.parametrize("name", table.AGENTS)
def test_planning_writes_nothing(name, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    table.get(name).plan(spec_for(tmp_path), resume=True)
    table.get(name).status_files(str(tmp_path / "instance"), 42)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", table.AGENTS)
@pytest.mark.parametrize("text", ["", "\n\n", "}{", "[]", "null", '{"status": 3}', "❯", "\x1b[31m", "x" * 100_000])
def test_readings_of_any_text_are_an_activity_or_nothing(name, text):
    agent = table.get(name)
    for reading in (agent.read_status(text), agent.read_screen(text), agent.read_hook(text, {})):
        assert reading is None or reading.activity in ACTIVITIES


@pytest.mark.parametrize("name", ["codex", "gemini", "opencode"])
def test_agents_that_keep_no_status_file_name_none(name, tmp_path):
    assert table.get(name).status_files(str(tmp_path), 1) == ()


@pytest.mark.parametrize(
    ("name", "lines", "activity"),
    [
        (
            "codex",
            ["Would you like to run the following command?", "$ rm x", "› 1. Yes, proceed (y)", "  2. No (esc)"],
            "blocked",
        ),
        ("codex", ["• Working (3s • esc to interrupt)", "› Ask Codex to do anything"], "busy"),
        ("codex", ["› Ask Codex to do anything", "  ? for shortcuts"], "idle"),
        ("codex", ["some output"], None),
        ("gemini", ["│ Apply this change?", "│ ● 1. Yes, allow once", "│   2. No"], "blocked"),
        ("gemini", ["⠏ Thinking... (esc to cancel, 3s)", "> Type your message or @path/to/file"], "busy"),
        ("gemini", ["> Type your message or @path/to/file"], "idle"),
        ("opencode", ["△ Permission required", "Allow once  Allow always  Reject"], "blocked"),
        ("opencode", ["working", "esc interrupt"], "busy"),
        ("opencode", ["anything else"], None),
    ],
)
def test_screens_of_the_experimental_agents_are_read(name, lines, activity):
    reading = table.get(name).read_screen("\n".join(lines))
    assert (reading.activity if reading else None) == activity


def test_codex_gets_the_server_by_overrides_and_keeps_its_own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("CODEX_HOME", "/some/where")
    plan = table.get("codex").plan(spec_for(tmp_path), resume=True)
    assert 'mcp_servers.swarm.url="http://127.0.0.1:3001/mcp"' in plan.argv
    assert 'mcp_servers.swarm.bearer_token_env_var="SWARM_TOKEN"' in plan.argv
    assert plan.env == {"CODEX_HOME": "/some/where"}
    assert plan.files == {}


def test_codexes_notify_program_leaves_the_mark_that_resume_looks_for(tmp_path):
    (tmp_path / "instance").mkdir()
    plan = table.get("codex").plan(spec_for(tmp_path), resume=True)
    notify = next(a for a in plan.argv if a.startswith("notify="))
    command = json.loads(notify.partition("=")[2])
    subprocess.run([*command, '{"type":"agent-turn-complete"}'], check=True)
    assert Path(plan.resume_probe[0]).read_text() == '{"type":"agent-turn-complete"}'


def test_gemini_and_opencode_take_the_server_from_files_named_in_their_environment(tmp_path):
    gemini = table.get("gemini").plan(spec_for(tmp_path), resume=False)
    server = json.loads(gemini.files["gemini.json"])["mcpServers"]["swarm"]
    assert server["httpUrl"] == "http://127.0.0.1:3001/mcp"
    assert server["headers"] == {"Authorization": "Bearer ${SWARM_TOKEN}"}
    assert gemini.env["GEMINI_CLI_SYSTEM_DEFAULTS_PATH"] == str(tmp_path / "instance" / "gemini.json")
    opencode = table.get("opencode").plan(spec_for(tmp_path), resume=False)
    server = json.loads(opencode.files["opencode.json"])["mcp"]["swarm"]
    assert server["headers"] == {"Authorization": "Bearer {env:SWARM_TOKEN}"}
    assert opencode.env["OPENCODE_CONFIG"] == str(tmp_path / "instance" / "opencode.json")


def test_the_table_imports_no_heavy_package():
    done = subprocess.run(
        [sys.executable, "-c", "import sys, swarm_core.agents.table; print('\\n'.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert not {"pydantic", "github", "git", "libtmux", "requests"} & set(done.stdout.split())
