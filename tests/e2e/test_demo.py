"""`swarm demo` from end to end, as a person without any configuration runs it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from swarm_core.tmux.command import is_up
from tests.support import git_run, wait_until

COMMAND = [sys.executable, "-m", "swarm_ui.cli"]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A path to programs and an empty home; nothing else."""
    home = tmp_path / "empty"
    home.mkdir()
    return {"PATH": os.environ["PATH"], "HOME": str(home)}


def demo(environ: dict[str, str], *words: str) -> subprocess.CompletedProcess[bytes]:
    argv = [*COMMAND, "demo", *words]
    return subprocess.run(argv, env=environ, capture_output=True, timeout=110, check=False)


def processes_naming(text: str) -> list[str]:
    """Command lines of running processes that name `text` there or in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line, given = ((folder / name).read_bytes() for name in ("cmdline", "environ"))
        except OSError:
            continue
        if text.encode() in line + given:
            found.append(line.replace(b"\0", b" ").decode(errors="replace"))
    return found


def assert_nothing_is_left(root: str) -> None:
    assert not Path(root).exists()
    assert processes_naming(root) == []


def test_the_demo_plays_the_whole_loop_and_leaves_nothing_behind(environ: dict[str, str]) -> None:
    done = demo(environ, "--json")
    assert done.returncode == 0, done.stderr.decode()
    result: dict[str, Any] = json.loads(done.stdout)
    assert (result["ok"], result["agent"], result["kept"]) == (True, "scripted", None)
    agents = {a["name"]: a for a in result["agents"]}
    assert {name: a["commits"] for name, a in agents.items()} == {"storage": 2, "docs": 3}
    assert {a["status"] for a in agents.values()} == {"pr_merged"}
    assert {a["pr_number"] for a in agents.values()} == {1, 2}
    assert all(a["lines_added"] > 0 for a in agents.values())
    rounds = [(r["id"], r["round"], r["verdict"]) for r in agents["storage"]["reviews"]]
    assert rounds == [("review-a1", 1, "needs_work"), ("review-a1-r2", 2, "approved")]
    assert len(result["checks"]) == 17
    assert all(c["ok"] for c in result["checks"])
    assert result["preserved"]["restored"] is True
    assert_nothing_is_left(str(Path(result["home"]).parent))
    assert list(Path(environ["HOME"]).iterdir()) == []


def test_the_demo_tells_what_happens_in_order_and_sums_up(environ: dict[str, str]) -> None:
    done = demo(environ)
    assert done.returncode == 0, done.stderr.decode()
    text = done.stdout.decode()
    lines = [line[9:].split(maxsplit=1) for line in text.split("\n\n")[0].splitlines()[1:]]
    told = [f"{who} {what}" for who, what in lines]
    for story in (_STORAGE, _DOCS):
        places = [next(i for i, line in enumerate(told) if line.startswith(part)) for part in story]
        assert places == sorted(places), told
    assert sum(" committed " in line for line in told) == 5
    assert "+9 -0" in text
    assert "NO " not in text


_STORAGE = [
    "storage gets the branch work/work-a1",
    "storage asks for a review of",
    "review-a1 reads the change",
    "review-a1 sends storage feedback: needs_work",
    "review-a1 gives its verdict",
    "storage has seen the message of review-a1:",
    "review-a1-r2 reads the change",
    "review-a1-r2 gives its verdict",
    "storage has seen the message of review-a1-r2",
    "storage opens pull request #2",
    "operator merges work/work-a1 into main",
    "storage its pull request #2 is noted as merged",
]
_DOCS = [
    "docs gets the branch work/work-a2",
    "docs ended without being asked to",
    "docs is started again",
    "operator sends docs a message",
    "docs has seen the message of operator",
    "docs opens pull request #1",
    "operator merges work/work-a2 into main",
    "docs had uncommitted work",
    "docs is cleaned",
    "docs is restored",
]


def test_keep_leaves_a_place_to_look_around(environ: dict[str, str]) -> None:
    done = demo(environ, "--keep", "--json")
    assert done.returncode == 0, done.stderr.decode()
    result = json.loads(done.stdout)
    root, home, repo = Path(result["kept"]), Path(result["home"]), Path(result["repo"])
    try:
        inside = environ | {"SWARM_HOME": str(home)}
        listed = subprocess.run(
            [*COMMAND, "ls", "--json"], env=inside, capture_output=True, timeout=60, check=True
        )
        assert {i["id"] for i in json.loads(listed.stdout)} == {"work-a1", "work-a2", "review-a1", "review-a1-r2"}
        assert is_up(home / "tmux.sock")
        assert not [line for line in processes_naming(str(root)) if "swarm_mcp" in line]
        first = git_run(repo, "rev-list", "--max-parents=0", "main")
        for agent in result["agents"]:
            own = git_run(repo, "rev-list", "--count", f"{first}..{agent['branch']}")
            assert int(own) == agent["commits"]
            assert git_run(repo, "rev-list", f"main..{agent['branch']}") == ""
        stopped = subprocess.run(
            [*COMMAND, "stop", "--all"], env=inside, capture_output=True, timeout=60, check=False
        )
        assert stopped.returncode == 0
        wait_until(lambda: not is_up(home / "tmux.sock"), what="the last session ended the server")
    finally:
        subprocess.run(["tmux", "-S", str(home / "tmux.sock"), "kill-server"], capture_output=True, check=False)
        shutil.rmtree(root)


@pytest.mark.parametrize(
    ("moment", "signals", "codes"),
    [
        ("A throwaway", [signal.SIGHUP], {130}),
        ("runs in a worktree", [signal.SIGTERM], {130}),
        ("asks for a review", [signal.SIGINT, signal.SIGINT], {130}),
        ("reads the change", [signal.SIGINT], {130}),
        ("merges", [signal.SIGTERM, signal.SIGINT], {130}),
        ("everything is ended and removed", [signal.SIGINT], {0, 130}),
    ],
)
def test_an_interrupted_demo_cleans_up(
    environ: dict[str, str], moment: str, signals: list[signal.Signals], codes: set[int]
) -> None:
    argv = [*COMMAND, "demo"]
    with subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        line = child.stdout.readline().decode()
        root = line.split(" in ")[1].split(";")[0]
        assert root.startswith(tempfile.gettempdir())
        while moment not in line:
            line = child.stdout.readline().decode()
            assert line, f"it ended before it said {moment!r}"
        for number in signals:
            child.send_signal(number)
        child.stdout.read()
        assert child.wait(60) in codes
    assert_nothing_is_left(root)


_HELD_BACK = """
import os, signal
from swarm_ui.cli import demo
try:
    with demo._uninterrupted():
        os.kill(os.getpid(), signal.SIGTERM)
        print("made")
    print("not reached")
except KeyboardInterrupt:
    os.kill(os.getpid(), signal.SIGINT)
    print("undone")
"""


def test_an_interruption_waits_until_what_was_made_can_be_undone_and_does_not_come_twice() -> None:
    done = subprocess.run([sys.executable, "-c", _HELD_BACK], capture_output=True, timeout=60, check=False)
    assert done.stdout.decode().split() == ["made", "undone"], done.stderr.decode()


def test_there_is_no_demo_with_an_agent_that_nobody_has_tried_it_with(environ: dict[str, str]) -> None:
    for agent, code in (("codex", "INVALID_INPUT"), ("nobody", "AGENT_UNKNOWN")):
        done = demo(environ, "--json", "--agent", agent)
        assert done.returncode == 1
        assert json.loads(done.stdout)["error"]["code"] == code


def test_without_tmux_the_demo_says_what_to_install(environ: dict[str, str], tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    git = shutil.which("git")
    assert git is not None
    (programs / "git").symlink_to(git)
    done = demo(environ | {"PATH": str(programs)}, "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["code"] == "TMUX_NOT_AVAILABLE"
