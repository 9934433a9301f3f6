"""Merging at GitHub: by itself when its checks have passed, and through the queue, which checks here first."""

from __future__ import annotations

from swarm_core.models import Instance
from swarm_core.swarm import Swarm
from tests.integration.github_fixture import HubWorld, hub
from tests.integration.merge_fixture import Check, check, entries, pull_of, told
from tests.integration.review_fixture import commit, named, refusal
from tests.support import git_run

__all__ = ["check", "hub"]


def test_it_is_merged_when_its_checks_have_passed_and_only_at_that_commit(hub: HubWorld) -> None:
    with hub.open() as swarm:
        (one, first), (two, second) = hub.proposed(swarm, "one.txt"), hub.proposed(swarm, "two.txt")
        running = [hub.hub.add_check(p.head_commit, "unit", "in_progress", None) for p in (first, second)]
        refused = refusal(swarm.pulls.merge, one.id)
        assert (refused.code, refused.details["hindrances"]) == (
            "PULL_NOT_MERGEABLE",
            ["checks are not finished: unit"],
        )
        for work in (one, two):
            assert swarm.pulls.merge(work.id, method="squash", auto=True).auto_merge == "squash"
        hub.look(swarm)
        assert (pull_of(swarm, one).state, pull_of(swarm, one).auto_merge) == ("open", "squash")
        commit(two, "later.txt")
        hub.open_pull(swarm, two)
        before = hub.remote_tip("main")
        for run in running:
            hub.hub.finish_check(run, "success")
        hub.look(swarm)
        assert (pull_of(swarm, one).state, pull_of(swarm, one).merge_commit) == ("merged", hub.remote_tip("main"))
        assert git_run(hub.bare, "rev-parse", "main^") == before
        assert (pull_of(swarm, two).state, pull_of(swarm, two).auto_merge) == ("open", "")
        assert swarm.find(one.id).status == "pr_merged"
        assert [e.metadata["on"] for e in named(swarm, "pull:auto", two.id)] == [True, False]


def test_the_queue_checks_here_what_is_ready_there_and_merges_it_there(hub: HubWorld, check: Check) -> None:
    check.use(hub)
    with hub.open() as swarm:
        works = [queued(hub, swarm, name) for name in ("one.txt", "two.txt", "bad.txt")]
        pending = hub.hub.add_check(pull_of(swarm, works[1]).head_commit, "unit", "in_progress", None)
        here = git_run(hub.repo, "rev-parse", "main")
        assert swarm.pulls.run_queue() == 1
        assert [entries(swarm)[work.id].state for work in works] == ["merged", "waiting", "left"]
        assert entries(swarm)[works[1].id].detail == "checks are not finished: unit"
        assert pull_of(swarm, works[0]).merge_commit == hub.remote_tip("main")
        assert "> bad.txt is bad" in told(swarm, works[2])[0].body
        hub.hub.finish_check(pending, "success")
        hub.look(swarm)
        assert swarm.pulls.run_queue() == 1
        assert git_run(hub.bare, "ls-tree", "--name-only", "main").split() == [
            *("README.md", "one.txt", "src", "two.txt"),
        ]
        assert git_run(hub.repo, "rev-parse", "main") == here  # a person pulls when they want


def queued(hub: HubWorld, swarm: Swarm, name: str) -> Instance:
    work, _ = hub.proposed(swarm, name)
    swarm.pulls.enqueue(work.id)
    return work
