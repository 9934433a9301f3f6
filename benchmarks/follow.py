"""What following many pull requests costs of GitHub's quota in an hour, and how late changes are noticed."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks import fleet
from benchmarks.figures import Figure, Options
from benchmarks.ground import Home
from swarm_core.models import Pull, PullState
from swarm_core.ops.follow import Follower
from swarm_core.store import pulls
from swarm_core.swarm import Swarm
from tests.fakes import github_server
from tests.fakes.github_repo import Repo, sha
from tests.fakes.github_server import TOKEN, GitHubServer

PULLS = 200
LIMIT_REQUESTS = 500
HOUR = 3600
STEP = 5
_SLUG = "acme/widgets"
_CHECKS = 3

Sign = Callable[[], bool]


@dataclass
class Clock:
    now: datetime = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@dataclass
class Story:
    """What people and services do in the hour, and when each change is noticed here."""

    swarm: Swarm
    repo: Repo
    clock: Clock
    plan: dict[int, list[Callable[[], None]]] = field(default_factory=dict)
    waiting: list[tuple[datetime, Sign]] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)

    def at(self, second: float, act: Callable[[], None]) -> None:
        self.plan.setdefault(int(second) // STEP * STEP, []).append(act)

    def expect(self, sign: Sign) -> None:
        self.waiting.append((self.clock.now, sign))

    def step(self, second: int) -> None:
        for act in self.plan.pop(second, []):
            act()

    def notice(self) -> None:
        left = []
        for since, sign in self.waiting:
            if sign():
                self.delays.append((self.clock.now - since).total_seconds())
            else:
                left.append((since, sign))
        self.waiting = left


def measure(root: Path, options: Options) -> Iterator[Figure]:
    for name, quiet in (("every pull request pushed, checked, a third of them discussed", False), ("calm", True)):
        yield from _hour(root / ("calm" if quiet else "busy"), name, options, quiet=quiet)


def _hour(root: Path, name: str, options: Options, *, quiet: bool) -> Iterator[Figure]:
    clock, count = Clock(), options.times(PULLS, PULLS)
    with github_server.running(now=clock) as api, Home(root) as home:
        environ = home.environ | {"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": api.api_url}
        with Swarm.open(home.settings, environ, clock=clock) as swarm:
            story = _story(swarm, api, clock, count, quiet=quiet)
            began = time.process_time()
            follower = Follower(swarm.context)
            for second in range(0, HOUR, STEP):
                story.step(second)
                follower.look()
                story.notice()
                clock.now += timedelta(seconds=STEP)
            spent = time.process_time() - began
        yield Figure(f"{count} pull requests, an hour, {name}: requests of quota", api.counted, "", LIMIT_REQUESTS)
        yield Figure(f"{name}: requests in all, with those that cost nothing", len(api.requests), "")
        yield Figure(f"{name}: CPU for the hour, stand-in included", spent, "s")
        if story.delays:
            yield Figure(
                f"{name}: {len(story.delays)} changes noticed after, p50", statistics.median(story.delays), "s"
            )
            yield Figure(f"{name}: changes noticed after, longest", max(story.delays), "s")
            yield Figure(f"{name}: changes not noticed", len(story.waiting), "")


def _story(swarm: Swarm, api: GitHubServer, clock: Clock, count: int, *, quiet: bool) -> Story:
    """The same every time: each pull request gets a push and checks, some fail, some are discussed or merged."""
    chance, repo = random.Random(5), api.repo(_SLUG)
    story = Story(swarm, repo, clock)
    names = fleet.rows(swarm, count)
    for number, name in enumerate(names, start=1):
        there = repo.add_pull(f"swarm/{name}", head_sha=sha(number))
        with swarm.context.db.write():
            pull = pulls.insert(swarm.context.db, _pull(swarm, api, name, there, sha(number)))
        for n in range(_CHECKS):
            repo.add_check(sha(number), f"check {n}")
        if not quiet:
            _live(story, pull, number, chance)
    return story


def _live(story: Story, pull: Pull, number: int, chance: random.Random) -> None:
    repo, pushed = story.repo, chance.uniform(0, 2400)

    def now() -> Pull:
        return pulls.get(story.swarm.context.db, pull.id)

    def push() -> None:
        commit = sha(10_000 + number)
        repo.push(pull.head_branch, commit)
        story.expect(lambda: now().head_commit == commit)
        checks = [repo.add_check(commit, f"check {n}", "in_progress", None) for n in range(_CHECKS)]
        ends = chance.uniform(120, 900)
        failed = chance.random() < 0.2

        def end() -> None:
            for n, check in enumerate(checks):
                repo.finish_check(check, "failure" if failed and n == 0 else "success", log="boom\n")
            wanted = "failed" if failed else "passed"
            story.expect(lambda: story.swarm.pulls.of(pull.instance_id).checks_state == wanted)

        story.at(pushed + ends, end)

    def comment() -> None:
        repo.add_comment(pull.number, "kim", "why?", path="made.txt", line=1)
        had = len(story.swarm.pulls.of(pull.instance_id).comments)
        story.expect(lambda: len(story.swarm.pulls.of(pull.instance_id).comments) > had)

    def merge() -> None:
        repo.merge_by_hand(pull.number)
        story.expect(lambda: now().state == PullState.MERGED)

    story.at(pushed, push)
    if chance.random() < 0.33:
        story.at(chance.uniform(0, 3300), comment)
    if chance.random() < 0.1:
        story.at(chance.uniform(3330, 3400), merge)


def _pull(swarm: Swarm, api: GitHubServer, name: str, number: int, commit: str) -> Pull:
    now = swarm.context.db.now()
    return Pull(
        id=0,
        forge="github",
        repo_path="/srv/shop",
        number=number,
        url=f"https://github.example/{_SLUG}/pull/{number}",
        instance_id=name,
        opened_by=name,
        head_branch=f"swarm/{name}",
        base_branch="main",
        head_commit=commit,
        title="A change",
        body="",
        state=PullState.OPEN,
        created_at=now,
        updated_at=now,
        repository=f"127.0.0.1:{api.port}/{_SLUG}",
        pushed_commit=commit,
    )
