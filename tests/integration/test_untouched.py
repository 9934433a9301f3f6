"""What swarm never touches, and what never leaks: the person's tmux, git, agent settings; tokens."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm_core.errors import SwarmError
from swarm_core.models import Instance
from swarm_core.swarm import Swarm
from tests.support import git_run, token_owner, wait_until
from tests.world import World, assert_agreement

_FORGE_SECRET = "ghp_forge_secret_0123456789"


def whole_life(world: World, swarm: Swarm) -> Instance:
    """Work, a commit, stop, restart, clean, restore, and one more instance that goes on."""
    instance = world.work(swarm, "write a.txt x\ncommit a\nwrite half.txt y")
    world.wait_idle(swarm, instance.id)
    swarm.stop(instance.id)
    swarm.restart(instance.id)
    swarm.stop(instance.id)
    swarm.clean(instance.id)
    swarm.restore(instance.id)
    fork = swarm.fork(instance.id, "say forked")
    swarm.doctor(fix=True)
    return fork


def contents(*places: Path) -> dict[str, tuple[int, bytes]]:
    """Mode and bytes of every file in these places."""
    files = [f for place in places for f in ([place] if place.is_file() else place.rglob("*"))]
    return {str(f): (f.stat().st_mode, f.read_bytes() if f.is_file() else b"") for f in files}


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person with settings of every kind in their home."""
    home = Path(os.environ["HOME"])
    (home / ".gitconfig").write_text(
        "[user]\n\tname = Per Son\n[core]\n\teditor = false\n[alias]\n\tst = status\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / ".gitconfig"))
    (home / ".claude" / "projects").mkdir(parents=True)
    (home / ".claude" / "settings.json").write_text('{"theme": "dark"}\n')
    (home / ".claude.json").write_text('{"numStartups": 7}\n')
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text('model = "x"\n')
    (home / ".tmux.conf").write_text("set -g status-left 'MINE'\nset -g @mine 1\n")
    (home / ".config" / "tmux").mkdir(parents=True)
    (home / ".config" / "tmux" / "tmux.conf").write_text("set -g @mine 2\n")
    return home


@pytest.fixture
def own_tmux(short_tmp: Path, person: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The person's own tmux server on the default socket; the environment of a shell inside it."""
    env = {"TMUX_TMPDIR": str(short_tmp / "t")}
    (short_tmp / "t").mkdir()
    environ = os.environ | env
    start = ["tmux", "new-session", "-d", "-s", "mine", "sleep 600"]
    subprocess.run(start, env=environ, check=True, timeout=20)
    shown = ["tmux", "display-message", "-p", "#{socket_path},#{pid},0"]
    inside = subprocess.run(shown, env=environ, check=True, timeout=20, capture_output=True, text=True)
    monkeypatch.setenv("TMUX_TMPDIR", env["TMUX_TMPDIR"])
    monkeypatch.setenv("TMUX", inside.stdout.strip())
    monkeypatch.setenv("TMUX_PANE", "%0")
    yield environ
    subprocess.run(["tmux", "kill-server"], env=environ, check=True, timeout=20)


def look_at_tmux(environ: dict[str, str]) -> list[str]:
    questions = [
        ["list-panes", "-a", "-F", "#{session_name} #{pane_id} #{pane_pid} #{pane_dead} #{pane_width}"],
        ["show-options", "-g"],
        ["show-options", "-s"],
        ["show-environment", "-g"],
        ["list-keys"],
        ["list-buffers"],
        ["display-message", "-p", "#{pid} #{version} #{session_attached}"],
    ]
    return [
        subprocess.run(["tmux", *q], env=environ, check=True, timeout=20, capture_output=True, text=True).stdout
        for q in questions
    ]


def test_the_persons_tmux_server_is_the_same_before_and_after_a_whole_life(
    world: World, own_tmux: dict[str, str]
) -> None:
    before = look_at_tmux(own_tmux)
    with world.open() as swarm:
        whole_life(world, swarm)
        assert look_at_tmux(own_tmux) == before
        assert_agreement(world, swarm)
    assert look_at_tmux(own_tmux) == before


def test_our_tmux_server_does_not_read_the_persons_settings(world: World, person: Path) -> None:
    with world.open() as swarm:
        world.work(swarm)
    argv = ["tmux", "-S", str(world.settings.tmux_socket), "show-options", "-g"]
    shown = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=20).stdout
    assert "MINE" not in shown
    assert "@mine" not in shown


def test_the_persons_settings_hooks_and_checkout_are_byte_for_byte_the_same(world: World, person: Path) -> None:
    hook = world.repo / ".git" / "hooks" / "post-commit"
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o755)
    (world.repo / ".git" / "info").mkdir(exist_ok=True)
    (world.repo / ".git" / "info" / "exclude").write_text("# mine\n")
    watched = [person, hook.parent, world.repo / ".git" / "config", world.repo / ".git" / "info"]
    watched += [world.repo / ".git" / "HEAD", world.repo / ".git" / "index", world.repo / "README.md"]
    git_run(world.repo, "status")
    before = contents(*watched)
    assert len(before) > 10
    with world.open() as swarm:
        fork = whole_life(world, swarm)
        world.wait_idle(swarm, fork.id)
    assert contents(*watched) == before
    assert git_run(world.repo, "status", "--porcelain", "--ignored") == ""
    assert git_run(world.repo, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert git_run(world.repo, "stash", "list") == ""


def test_nothing_of_ours_shows_up_in_the_worktree(world: World) -> None:
    with world.open() as swarm:
        instance = world.work(swarm)
        world.wait_idle(swarm, instance.id)
        assert git_run(Path(instance.worktree_path), "status", "--porcelain", "--ignored") == ""


def process_environment(pid: int) -> dict[str, str]:
    raw = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(os.fsdecode(pair).split("=", 1) for pair in raw if pair)


def test_an_agent_knows_its_own_token_and_nobody_elses_secret(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", _FORGE_SECRET)
    monkeypatch.setenv("GH_TOKEN", _FORGE_SECRET)
    monkeypatch.setenv("SWARM_TOKEN", "the callers own")
    monkeypatch.setenv("MINE", "kept")
    with world.open() as swarm:
        # git itself must not be led astray while we start; only the agent would inherit these
        first = world.work(swarm)
        second = world.work(swarm)
        assert first.pid is not None
        assert second.pid is not None
        environment = process_environment(first.pid)
        assert environment["MINE"] == "kept"
        assert not {"GITHUB_TOKEN", "GH_TOKEN", "GIT_DIR", "GIT_INDEX_FILE", "TMUX"} & environment.keys()
        assert Path(environment["TMUX_TMPDIR"]).is_relative_to(world.home)
        assert environment["SWARM_INSTANCE"] == first.id
        token, other = environment["SWARM_TOKEN"], process_environment(second.pid)["SWARM_TOKEN"]
        db = swarm.context.db
        assert token_owner(db, token) == first.id
        assert token_owner(db, other) == second.id
        assert token_owner(db, "the callers own") is None
        again = swarm.restart(first.id)
        assert again.pid is not None
        fresh = process_environment(again.pid)["SWARM_TOKEN"]
        assert token_owner(db, token) is None
        assert token_owner(db, fresh) == first.id
        swarm.stop(first.id)
        assert token_owner(db, fresh) is None
        assert token_owner(db, other) == second.id


def test_variables_of_a_hook_that_starts_swarm_do_not_reach_the_agent(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    with world.open() as swarm:
        instance = world.work(swarm, "write a.txt x\ncommit a")
        assert instance.pid is not None
        assert not [name for name in process_environment(instance.pid) if name in ("GIT_DIR", "GIT_INDEX_FILE")]
        world.wait_idle(swarm, instance.id)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"):
        monkeypatch.delenv(name)
    assert git_run(world.repo, "rev-list", "--count", f"main..{instance.branch}") == "1"
    assert not (tmp_path / "elsewhere").exists()


def test_no_secret_is_seen_by_ps_tmux_events_logs_or_any_file(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", _FORGE_SECRET)
    with world.open() as swarm:
        instance = world.wait_idle(swarm, world.work(swarm, "write a.txt x\ncommit a").id)
        other = world.wait_idle(swarm, world.work(swarm).id)
        assert instance.pid is not None
        assert other.pid is not None
        secrets = [process_environment(i.pid)["SWARM_TOKEN"] for i in (instance, other)] + [_FORGE_SECRET]
        socket = str(world.settings.tmux_socket)
        shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
        for words in (
            ["show-environment", "-g"],
            ["show-environment", "-t", f"={other.id}"],
            ["list-panes", "-a"],
        ):
            argv = ["tmux", "-S", socket, *words]
            shown += subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        shown += swarm.screen(instance) + repr(swarm.events(limit=1000)) + repr(swarm.instances())
        assert [s for s in secrets if s in shown] == []
        holding = [
            str(f)
            for f in world.home.rglob("*")
            if f.is_file() and any(s.encode() in f.read_bytes() for s in secrets)
        ]
        assert holding == []
        assert [s for s in secrets if s.encode() in b"".join(v for _, v in contents(world.repo).values())] == []


def test_the_servers_own_environment_holds_no_secret(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", _FORGE_SECRET)
    with world.open() as swarm:
        world.work(swarm)
    argv = ["tmux", "-S", str(world.settings.tmux_socket), "display-message", "-p", "#{pid}"]
    pid = int(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    environment = process_environment(pid)
    assert "SWARM_TOKEN" not in environment
    assert _FORGE_SECRET not in environment.values()


def test_everything_in_the_home_is_private(world: World) -> None:
    os.umask(0o000)
    try:
        with world.open() as swarm:
            instance = world.work(swarm, "say ready")
            world.wait_idle(swarm, instance.id)
            swarm.stop(instance.id)
            swarm.restart(instance.id)
    finally:
        os.umask(0o022)
    assert stat.S_IMODE(world.home.stat().st_mode) == 0o700
    inside = [p for p in world.home.rglob("*") if "worktrees" not in p.relative_to(world.home).parts]
    assert len(inside) > 8
    open_to_others = {
        str(p.relative_to(world.home)): oct(p.lstat().st_mode)
        for p in inside
        if p.lstat().st_mode & (0o077 if p.is_file() else 0o007)
    }
    assert open_to_others == {}


def test_a_socket_folder_in_tmp_that_somebody_else_made_is_refused(short_tmp: Path, repo: Path) -> None:
    world = World(short_tmp / ("h" * 120), repo)
    folder = world.settings.tmux_socket.parent
    assert not folder.is_relative_to(world.home)
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    try:
        with pytest.raises(SwarmError) as refused, world.open():
            pass
        assert refused.value.hint
        folder.chmod(0o700)
        with world.open() as swarm:
            assert world.work(swarm).status == "running"
            assert_agreement(world, swarm)
    finally:
        world.kill_tmux()
        shutil.rmtree(folder)


def test_a_home_that_is_open_to_others_is_told_and_closed(world: World) -> None:
    with world.open() as swarm:
        world.home.chmod(0o755)
        assert [c.state for c in swarm.doctor() if c.name == "home"] == ["fail"]
        assert [c.state for c in swarm.doctor(fix=True) if c.name == "home"] == ["fixed"]
        assert stat.S_IMODE(world.home.stat().st_mode) == 0o700


def test_the_end_of_one_agent_leaves_other_processes_of_the_person_alone(world: World) -> None:
    with subprocess.Popen(["sleep", "600"], cwd=world.repo, env=world.environ) as bystander:
        with world.open() as swarm:
            instance = world.work(swarm)
            swarm.stop(instance.id)
            swarm.clean(instance.id)
            wait_until(lambda: not world.sessions(), what="the session to end")
        assert bystander.poll() is None
        bystander.kill()
