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
    """Command lines of running processes that name `text`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line:
            found.append(line)
    return found


def test_the_demo_shows_three_agents_and_leaves_nothing_behind(environ: dict[str, str]) -> None:
    done = demo(environ, "--json")
    assert done.returncode == 0, done.stderr.decode()
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["ok"] is True
    assert result["seconds"] < 60
    assert {a["name"]: a["commits"] for a in result["agents"]} == {"storage": 2, "docs": 2, "spike": 1}
    assert all(a["lines_added"] > 0 for a in result["agents"])
    assert all(c["ok"] for c in result["checks"])
    assert result["preserved"]["restored"] is True
    root = Path(result["home"]).parent
    assert not root.exists()
    assert processes_naming(str(root)) == []
    assert list(Path(environ["HOME"]).iterdir()) == []


def test_the_demo_tells_what_happens_in_sentences_and_sums_up(environ: dict[str, str]) -> None:
    done = demo(environ)
    assert done.returncode == 0, done.stderr.decode()
    text = done.stdout.decode()
    for part in ("gets the branch work/work-a1", "committed", "is cleaned", "is restored", "+9 -0"):
        assert part in text
    assert "NO " not in text


def test_keep_leaves_a_place_to_look_around(environ: dict[str, str]) -> None:
    done = demo(environ, "--keep", "--json")
    assert done.returncode == 0, done.stderr.decode()
    result = json.loads(done.stdout)
    root, home = Path(result["kept"]), Path(result["home"])
    try:
        inside = environ | {"SWARM_HOME": str(home)}
        listed = subprocess.run(
            [*COMMAND, "ls", "--json"], env=inside, capture_output=True, timeout=60, check=True
        )
        assert b"work-a3" in listed.stdout
        assert is_up(home / "tmux.sock")
        for agent in result["agents"]:
            own = git_run(Path(result["repo"]), "rev-list", "--count", f"main..{agent['branch']}")
            assert int(own) == agent["commits"]
        stopped = subprocess.run(
            [*COMMAND, "stop", "--all"], env=inside, capture_output=True, timeout=60, check=False
        )
        assert stopped.returncode == 0
        wait_until(lambda: not is_up(home / "tmux.sock"), what="the last session ended the server")
    finally:
        subprocess.run(["tmux", "-S", str(home / "tmux.sock"), "kill-server"], capture_output=True, check=False)
        shutil.rmtree(root)


def test_an_interrupted_demo_cleans_up(environ: dict[str, str]) -> None:
    argv = [*COMMAND, "demo"]
    with subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        root = child.stdout.readline().decode().split(" in ")[1].split(";")[0]
        assert root.startswith(tempfile.gettempdir())
        while "runs in a worktree" not in child.stdout.readline().decode():
            assert child.poll() is None
        child.send_signal(signal.SIGTERM)
        child.stdout.read()
        assert child.wait(60) == 130
    assert not Path(root).exists()
    wait_until(lambda: processes_naming(root) == [], what="nothing runs there any more")


def test_without_tmux_the_demo_says_what_to_install(environ: dict[str, str], tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    git = shutil.which("git")
    assert git is not None
    (programs / "git").symlink_to(git)
    done = demo(environ | {"PATH": str(programs)}, "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["code"] == "TMUX_NOT_AVAILABLE"
