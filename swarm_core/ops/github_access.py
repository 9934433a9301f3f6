"""Whether GitHub can be used from here: which repositories are there, whose token counts, and what it may do."""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from swarm_core.errors import ExternalFailure, InvalidInput, SwarmError
from swarm_core.models import iso, parse_iso
from swarm_core.ops import forges
from swarm_core.ops.context import Context
from swarm_core.ops.forges import Place
from swarm_core.ops.quota import Governor, account_of
from swarm_core.store import forge_counts, instances

WITHIN = 5.0
UNREACHED_FOR = timedelta(minutes=15)
_VARIABLES = ("GITHUB_TOKEN", "GH_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")
_NO_ANSWER = frozenset({"GITHUB_UNREACHABLE", "GITHUB_RATE_LIMITED"})


@dataclass(frozen=True, slots=True)
class Access:
    """What stands between us and one repository at GitHub.

    `source` says where the token is from, empty without one; `problem` is what hinders, `offline` when only that
    nothing could be asked.
    """

    repository: str
    source: str
    problem: str = ""
    offline: bool = False


@dataclass(frozen=True, slots=True)
class _Found:
    token: str | None = field(repr=False)
    source: str
    problem: str


def examine(context: Context, *, within: float = WITHIN) -> list[Access]:
    """Ask about every repository with instances that is at GitHub, all at once; returns in time, come what may."""
    tokens: dict[str, _Found] = {}
    found = [_access(context, place, tokens) for place in _places(context)]
    asks = [(access, token) for access, token in found if token is not None and not access.problem]
    told = _ask_all(context, asks, within)
    return [told.get(access.repository, access) for access, _ in found]


def unreached(context: Context) -> list[forge_counts.Place]:
    """Repositories with a pull request of which nothing was heard for long."""
    before = iso(parse_iso(context.db.now()) - UNREACHED_FOR)
    return [place for place in forge_counts.places(context.db) if place.since < before]


def _places(context: Context) -> list[Place]:
    """Of repositories that are gone nothing can be said, and that is told elsewhere."""
    found: set[Place] = set()
    for repo_path, host in sorted({(i.repo_path, i.host) for i in instances.listed(context.db)}):
        try:
            remote = context.hosts.get(host).ensure_repo(repo_path, None)["remote_url"]
        except SwarmError:
            continue
        place = forges.github_place(context, remote)
        if place is not None:
            found.add(place)
    return sorted(found)


def _access(context: Context, place: Place, tokens: dict[str, _Found]) -> tuple[Access, str | None]:
    """`tokens` are those found before: gh may take its time."""
    name = "/".join(place)
    if context.settings.text("forge") == "local":
        return Access(name, ""), None
    if place[0] not in tokens:
        tokens[place[0]] = _find(context, place)
    found = tokens[place[0]]
    return Access(name, found.source, problem=found.problem), found.token


def _find(context: Context, place: Place) -> _Found:
    try:
        token = forges.token_of(context, place)
    except InvalidInput as error:
        return _Found(None, "", error.message)
    return _Found(token, _source(context, place, token) if token is not None else "", "")


def _source(context: Context, place: Place, token: str) -> str:
    from swarm_core.github_token import find_token  # noqa: PLC0415  few commands need it

    named = next((n for n in _VARIABLES if context.environ.get(n, "").strip() == token), None)
    if named is not None:
        return named
    file = context.settings.text("github_token_file")
    if file and find_token({}, place[0], token_file=file) == token:
        return file
    return "`gh auth token`"


def _ask_all(context: Context, asks: Sequence[tuple[Access, str]], within: float) -> dict[str, Access]:
    """A thread each, which nobody waits for longer than that: an address may be looked up for minutes."""
    answers: queue.SimpleQueue[Access] = queue.SimpleQueue()
    told: dict[str, Access] = {}
    waiting = 0
    for access, token in asks:
        try:
            host = access.repository.partition("/")[0]
            Governor(context, host, person=True, account=account_of(token)).enter()
        except ExternalFailure as error:
            told[access.repository] = replace(access, problem=error.message, offline=True)
            continue
        late = f"GitHub did not answer within {within:g} s"
        told[access.repository] = replace(access, problem=late, offline=True)
        work = (answers, access, token, forges.api_url_for(context, host), within)
        threading.Thread(target=_ask, args=work, name="github-access", daemon=True).start()
        waiting += 1
    deadline = time.monotonic() + within
    with contextlib.suppress(queue.Empty):
        for _ in range(waiting):
            answer = answers.get(timeout=max(0.0, deadline - time.monotonic()))
            told[answer.repository] = answer
    return told


def _ask(
    answers: queue.SimpleQueue[Access], access: Access, token: str, api_url: str | None, within: float
) -> None:
    """In a thread of its own, without the database: the process may be gone before the answer comes."""
    from swarm_core.github import GitHubForge  # noqa: PLC0415  PyGithub costs 260 ms of CPU to import

    try:
        place, patience = forges.split(access.repository), math.ceil(within)
        forge = GitHubForge(*place, token=token, api_url=api_url, timeout_s=patience)
        forge.scopes()  # what cannot be asked fails here, with a code
        answers.put(replace(access, problem=forge.check_access()))
    except SwarmError as error:
        answers.put(replace(access, problem=error.message, offline=error.code in _NO_ANSWER))
