"""Which forge a repository has: GitHub when its remote is there and a token is at hand, else the local one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swarm_core.errors import ExternalFailure
from swarm_core.forge import Forge, IssueSource, parse_remote
from swarm_core.github_token import Token, find_token, vouches
from swarm_core.hosts.base import RepoFacts
from swarm_core.local_forge import LocalIssues
from swarm_core.models import parse_iso
from swarm_core.ops.context import Context
from swarm_core.ops.local_pulls import LocalForge
from swarm_core.ops.quota import Governor, account_of

if TYPE_CHECKING:
    from swarm_core.github import GitHubForge

Place = tuple[str, str, str]


def github_place(context: Context, remote_url: str | None) -> Place | None:
    """Host, owner and name of a remote that is on GitHub; None for any other."""
    parsed = parse_remote(remote_url) if remote_url else None
    hosts = [name.strip().lower() for name in context.settings.text("github_hosts").split(",")]
    known = parsed is not None and (
        parsed[0] in hosts or vouches(context.environ.get("GITHUB_API_URL"), parsed[0])
    )
    return parsed if known else None


def target_url(context: Context, repo: RepoFacts) -> str | None:
    """The address of the repository that gets pull requests and has the issues."""
    return repo["remotes"].get(context.settings.text("pull_remote")) or repo["remote_url"]


def fork_owner(context: Context, repo: RepoFacts, repository: str) -> str:
    """Whose fork is pushed to; empty when that is the repository itself."""
    place = github_place(context, repo["remote_url"])
    is_fork = place is not None and "/".join(place).lower() != repository.lower()
    return place[1] if place is not None and is_fork else ""


def issues_of(context: Context, repo_path: str, remote_url: str | None) -> IssueSource:
    """Where the issues are; those of a public repository can be read without a token."""
    place = github_place(context, remote_url)
    return LocalIssues(repo_path) if place is None else _github(context, place, token_of(context, place))


def pulls_of(context: Context, repo_path: str, remote_url: str | None, *, person: bool = True) -> Forge:
    """Where pull requests are opened."""
    wanted, place = context.settings.text("forge"), github_place(context, remote_url)
    token = token_of(context, place) if place is not None and wanted != "local" else None
    if place is not None and token is not None:
        return _github(context, place, token, person=person)
    if wanted == "github":
        raise ExternalFailure(
            "there is no GitHub token" if place else "the repository has no remote on GitHub",
            code="GITHUB_UNAUTHORIZED",
            hint="set GITHUB_TOKEN or sign in with `gh auth login`, or `swarm config forge auto`",
        )
    return LocalForge(context, repo_path)


def at(context: Context, repository: str, *, person: bool = True) -> GitHubForge:
    """The forge of a pull request that was opened at GitHub."""
    place = split(repository)
    token = token_of(context, place)
    if token is None:
        raise ExternalFailure(
            f"there is no GitHub token for {repository}",
            code="GITHUB_UNAUTHORIZED",
            hint="set GITHUB_TOKEN where the coordinator is started, or sign in with `gh auth login`",
        )
    return _github(context, place, token, person=person)


def split(repository: str) -> Place:
    host, owner, name = repository.split("/")
    return host, owner, name


def token_of(context: Context, place: Place) -> Token | None:
    return find_token(context.environ, place[0], token_file=context.settings.text("github_token_file"))


def api_url_for(context: Context, host: str) -> str | None:
    """The address of the API that a person has given, if it is meant for the host."""
    given = context.environ.get("GITHUB_API_URL")
    return given if host == "github.com" or vouches(given, host) else None


def _github(context: Context, place: Place, token: str | None, *, person: bool = True) -> GitHubForge:
    # PyGithub costs 260 ms of CPU to import and most commands do not need it.
    from swarm_core.github import GitHubForge  # noqa: PLC0415

    host, owner, name = place
    mine = api_url_for(context, host)
    gate, clock = Governor(context, host, person, account_of(token)), lambda: parse_iso(context.db.now())
    return GitHubForge(host, owner, name, token=token, api_url=mine, gate=gate, clock=clock)
