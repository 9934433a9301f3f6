"""A world whose repository is at GitHub: the strict stand-in, and a real git remote reached over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from swarm_core.models import Instance, Pull
from swarm_core.ops.follow import Follower
from swarm_core.store import pulls
from swarm_core.swarm import Swarm
from tests.fakes import git_http, github_server
from tests.fakes.github_git import GitRemote
from tests.fakes.github_repo import Repo
from tests.fakes.github_server import TOKEN, GitHubServer
from tests.integration.review_fixture import commit
from tests.support import git_run
from tests.world import World

SLUG = "acme/widgets"


class HubWorld(World):
    """`api` is GitHub, `git` its git server, `bare` the repository there."""

    def __init__(self, world: World, api: GitHubServer, git: git_http.GitHTTPServer, bare: Path) -> None:
        super().__init__(world.home, world.repo)
        self.api = api
        self.git = git
        self.bare = bare

    @property
    def environ(self) -> dict[str, str]:
        reached = {"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": self.api.api_url}
        return super().environ | reached | {"SWARM_CHECKS_GRACE": "0"}

    @property
    def hub(self) -> Repo:
        return self.api.repo(SLUG)

    def open_pull(self, swarm: Swarm, work: Instance, title: str = "Make it", **options: object) -> Pull:
        return swarm.open_pull(work.id, title=title, description="It was not made.", **options)  # type: ignore[arg-type]

    def proposed(self, swarm: Swarm, name: str = "made.txt", text: str = "made\n") -> tuple[Instance, Pull]:
        """An agent's work that is committed, pushed and proposed."""
        work = self.work(swarm)
        commit(work, name, text)
        return work, self.open_pull(swarm, work)

    def look(self, swarm: Swarm) -> None:
        """Follow everything once, whether or not it is due."""
        with swarm.context.db.write():
            for pull in pulls.listed(swarm.context.db):
                pulls.looked(swarm.context.db, pull, next_at=None)
        Follower(swarm.context).look()

    def remote_tip(self, branch: str) -> str:
        return git_run(self.bare, "rev-parse", f"refs/heads/{branch}")


@pytest.fixture
def hub(world: World, tmp_path: Path) -> Iterator[HubWorld]:
    with ExitStack() as stack:
        served = stack.enter_context(git_http.serve(tmp_path / "remotes", password=TOKEN))
        api = stack.enter_context(github_server.running())
        bare = served.create(SLUG)
        git_run(world.repo, "push", "-q", str(bare), "main")
        git_run(world.repo, "remote", "add", "origin", f"{served.url}/{SLUG}.git")
        api.repo(SLUG, remote=GitRemote(bare))
        yield HubWorld(world, api, served, bare)
