"""Doctor knows about GitHub: tokens and what they may do, pull requests nobody hears of, what merges left."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from swarm_core import locks
from swarm_core.models import iso, parse_iso
from swarm_core.ops import github_access
from swarm_core.ops.doctor import Check
from swarm_core.ops.quota import account_of
from swarm_core.store import pulls, quota
from swarm_core.swarm import Swarm
from tests.fakes.github_server import TOKEN
from tests.integration.github_fixture import SLUG, HubWorld, hub
from tests.support import git_run
from tests.world import World

__all__ = ["hub"]


def found(swarm: Swarm, *names: str, fix: bool = False) -> list[Check]:
    checks = swarm.doctor(fix=fix)
    assert TOKEN not in repr(checks)
    return [check for check in checks if check.name in names]


def one(swarm: Swarm, name: str = "github") -> Check:
    (check,) = found(swarm, name)
    return check


def with_remote(world: World, url: str = f"https://github.com/{SLUG}.git") -> None:
    git_run(world.repo, "remote", "add", "origin", url)


class Settings(World):
    """A world with other variables."""

    def __init__(self, world: World, **more: str) -> None:
        super().__init__(world.home, world.repo)
        self.more = more

    @property
    def environ(self) -> dict[str, str]:
        return super().environ | self.more


# The token


def test_a_repository_that_is_not_at_github_is_not_spoken_of(world: World) -> None:
    with_remote(world, "https://gitlab.example/acme/widgets.git")
    with world.open() as swarm:
        world.work(swarm)
        assert found(swarm, "github", "gh", "pull requests", "webhook") == []


def test_without_a_token_doctor_says_where_pull_requests_are_kept(world: World) -> None:
    with_remote(world)
    with world.open() as swarm:
        assert found(swarm, "github") == [], "there is no instance yet"
        world.work(swarm)
        check = one(swarm)
        assert check.state == "warn"
        assert f"pull requests of github.com/{SLUG} are kept on this machine" in check.message
        assert "GITHUB_TOKEN" in check.hint


@pytest.mark.parametrize(("forge", "state"), [("local", "ok"), ("github", "fail")])
def test_what_the_setting_means_is_said(world: World, forge: str, state: str) -> None:
    with_remote(world)
    world.home.mkdir()
    (world.home / "config.toml").write_text(f'forge = "{forge}"\n')
    with world.open() as swarm:
        world.work(swarm)
        assert one(swarm).state == state


def test_a_token_that_may_push_is_named_by_its_source_and_never_shown(hub: HubWorld) -> None:
    with hub.open() as swarm:
        hub.work(swarm)
        check = one(swarm)
        assert check.state == "ok"
        assert check.message.endswith(f"/{SLUG}: token from GITHUB_TOKEN")


def test_a_token_from_a_file_is_named_by_its_path(hub: HubWorld) -> None:
    path = hub.home.parent / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    hub.home.mkdir(exist_ok=True)
    (hub.home / "config.toml").write_text(f'github_token_file = "{path}"\n')
    there = Settings(hub, GITHUB_API_URL=hub.api.api_url)
    with there.open() as swarm:
        there.work(swarm)
        assert one(swarm).message.endswith(f"token from {path}")
        path.chmod(0o644)
        check = one(swarm)
        assert check.state == "fail"
        assert str(path) in check.message


def test_a_token_of_gh_is_named_so(hub: HubWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "gh"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho {TOKEN}\n")
    program.chmod(0o755)
    path = f"{program.parent}:{hub.environ['PATH']}"
    there = Settings(hub, GITHUB_API_URL=hub.api.api_url, PATH=path)
    with there.open() as swarm:
        there.work(swarm)
        assert one(swarm).message.endswith("token from `gh auth token`")
        assert (one(swarm, "gh").state, one(swarm, "gh").message) == ("ok", str(program))


def test_what_the_token_may_not_do_is_a_failure(hub: HubWorld) -> None:
    with hub.open() as swarm:
        hub.work(swarm)
        hub.hub.may_push = False
        check = one(swarm)
        assert (check.state, "may not push" in check.message) == ("fail", True)
        hub.hub.may_push = True
        hub.api.scopes = ("read:user",)
        assert (one(swarm).state, "lacks the scope" in one(swarm).message) == ("fail", True)
        hub.api.token = "another"
        check = one(swarm)
        assert check.state == "fail"
        assert "GITHUB_TOKEN" in check.message + check.hint


# When GitHub does not answer


def test_offline_is_a_warning(hub: HubWorld) -> None:
    with hub.open() as swarm:
        hub.work(swarm)
        hub.api.go_down()
        check = one(swarm)
        assert check.state == "warn"
        assert "GITHUB_TOKEN" in check.message, "the token was found all the same"


@pytest.fixture
def mute() -> Iterator[str]:
    """An address that takes connections and says nothing."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_who_takes_connections_and_says_nothing_is_not_waited_for(world: World, mute: str) -> None:
    with_remote(world)
    there = Settings(world, GITHUB_API_URL=mute, GITHUB_TOKEN=TOKEN)
    with there.open() as swarm:
        there.work(swarm)
        (access,) = github_access.examine(swarm.context, within=0.2)
        assert access.offline
        assert access.problem.endswith("did not answer within 0.2 s")


def test_while_github_wants_no_requests_none_is_sent(hub: HubWorld) -> None:
    with hub.open() as swarm:
        hub.work(swarm)
        db = swarm.context.db
        (access,) = github_access.examine(swarm.context)
        host = access.repository.partition("/")[0]
        asked = len(hub.api.requests)
        with db.write():
            until = iso(parse_iso(db.now()) + timedelta(hours=1))
            quota.block(db, host, until, account=account_of(TOKEN))
        assert one(swarm).state == "warn"
        assert len(hub.api.requests) == asked


# Pull requests that nobody hears of


def test_a_pull_request_that_was_not_heard_of_for_long_is_named(hub: HubWorld) -> None:
    with hub.open() as swarm:
        _, pull = hub.proposed(swarm)
        hub.look(swarm)
        assert one(swarm, "pull requests").state == "ok"
        db = swarm.context.db
        for minutes, state in ((14, "ok"), (16, "warn")):
            with db.write():
                then = iso(parse_iso(db.now()) - timedelta(minutes=minutes))
                pulls.looked(db, pulls.get(db, pull.id), looked_at=then)
            assert one(swarm, "pull requests").state == state
        check = one(swarm, "pull requests")
        assert SLUG in check.message
        assert "swarm up" in check.hint
        hub.api.go_down()
        hub.look(swarm)
        assert "GITHUB_UNREACHABLE" in one(swarm, "pull requests").message


# The webhook


@pytest.mark.parametrize(("secret", "states"), [("", []), ("x" * 15, ["warn"]), ("x" * 16, ["ok"])])
def test_a_secret_that_is_too_short_is_a_warning(world: World, secret: str, states: list[str]) -> None:
    with Settings(world, SWARM_WEBHOOK_SECRET=secret).open() as swarm:
        checks = found(swarm, "webhook")
        assert [check.state for check in checks] == states
        assert not secret or secret not in repr(checks)


# What merges left behind


def leave_scratch(world: World, name: str) -> Path:
    path = world.home / "scratch" / "repo-12345678" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    git_run(world.repo, "worktree", "add", "-q", "--detach", str(path), "HEAD")
    (path / "half-merged.txt").write_text("half\n")
    return path


def test_scratch_that_was_left_behind_is_removed_and_what_is_in_use_is_not(world: World) -> None:
    with world.open() as swarm:
        assert one(swarm, "scratch").state == "ok"
        left, used = leave_scratch(world, "pull-1"), leave_scratch(world, "queue")
        with locks.hold(swarm.context.settings.locks / "scratch-repo-12345678-queue.lock"):
            check = one(swarm, "scratch")
            assert (check.state, check.hint) == ("warn", "swarm doctor --fix")
            assert str(left) in check.message
            assert left.is_dir(), "only looked at"
            assert [c.state for c in found(swarm, "scratch", fix=True)] == ["fixed"]
            assert not left.exists()
            assert used.is_dir()
        assert str(left) not in world.worktrees()
        assert str(used) in world.worktrees()
        assert [c.state for c in found(swarm, "scratch", fix=True)] == ["fixed"]
        assert world.worktrees() == {}
        assert one(swarm, "scratch").state == "ok"


def test_scratch_of_a_repository_that_is_gone_is_removed_too(world: World, tmp_path: Path) -> None:
    with world.open() as swarm:
        left = leave_scratch(world, "pull-1")
        world.repo.rename(tmp_path / "elsewhere")
        assert [c.state for c in found(swarm, "scratch", fix=True)] == ["fixed"]
        assert not left.exists()


# The command


def test_the_command_tells_it_and_never_the_token(hub: HubWorld) -> None:
    with hub.open() as swarm:
        hub.work(swarm)
    ran: subprocess.CompletedProcess[bytes] = hub.command("doctor", "--json")
    assert any(check["name"] == "github" for check in json.loads(ran.stdout)["checks"])
    assert TOKEN.encode() not in ran.stdout + ran.stderr
