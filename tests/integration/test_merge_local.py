"""Merging at the local forge: in a scratch, checked, at one commit; whatever fails leaves the base as it was."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from swarm_core.hosts import merging
from swarm_core.models import Instance
from swarm_core.ops import places
from swarm_core.ops.local_pulls import LocalForge
from swarm_core.store import checked
from swarm_core.swarm import Swarm
from tests.integration.merge_fixture import (
    Check,
    Clock,
    check,
    commit_main,
    configure,
    die_at,
    left_over,
    look,
    proposed,
    pull_of,
    put,
    rev,
    told,
)
from tests.integration.review_fixture import all_at_once, code_of, commit, finished_work, named, refusal
from tests.support import git_run
from tests.world import World, assert_agreement

__all__ = ["check"]

SHAPES = {"merge": (2, "Make it (#1)"), "squash": (1, "Make it (#1)"), "rebase": (1, "add more.txt")}


@pytest.mark.parametrize("method", SHAPES)
def test_the_work_of_an_agent_is_merged_in_each_way(world: World, check: Check, method: str) -> None:
    check.use(world)
    with world.open() as swarm:
        work = finished_work(world, swarm)
        commit(work, "more.txt")
        swarm.open_pull(work.id, title="Make it", description="")
        before = commit_main(world.repo, {"meanwhile.txt": "by a person\n"})
        pull = swarm.pulls.merge(work.id, method=method, actor="kim")
        tip = rev(world.repo, "main")
        assert (pull.state, pull.merge_commit, swarm.find(work.id).status) == ("merged", tip, "pr_merged")
        parents, subject = SHAPES[method]
        assert git_run(world.repo, "log", "-1", "--format=%s", tip) == subject
        assert len(git_run(world.repo, "log", "-1", "--format=%P", tip).split()) == parents
        assert git_run(world.repo, "merge-base", before, tip) == before
        assert (world.repo / "more.txt").read_text() == "made\n"
        [event] = named(swarm, "pull:merged", work.id)
        assert (event.actor, event.metadata["merge_commit"]) == ("kim", tip)
        assert check.runs == 1
        assert left_over(world) == []
        assert swarm.pulls.merge(work.id) == pull
        assert rev(world.repo, "main") == tip
        assert_agreement(world, swarm)


def test_the_check_is_what_the_base_says_not_the_setting_and_not_the_agent(world: World, check: Check) -> None:
    check.use(world, "exit 9")
    seen = check.folder / "seen"
    commit_main(world.repo, {".swarm/check": f"# it isn't much\nsh -c 'ls >{seen}\n ls'\n"})
    with world.open() as swarm:
        work = proposed(world, swarm, 1, {"1.txt": "1\n", ".swarm/check": "true\n"})
        assert swarm.pulls.merge(work.id).state == "merged"
    assert "1.txt" in seen.read_text()
    assert check.runs == 0


def test_a_base_that_an_agent_has_written_does_not_say_what_the_check_is(world: World, check: Check) -> None:
    check.use(world)
    with world.open() as swarm:
        below = proposed(world, swarm, 1, {".swarm/check": "true\n"})
        work = proposed(world, swarm, 2, {"bad.txt": "2\n"}, base_branch=below.branch)
        assert code_of(swarm.pulls.merge, work.id) == "CHECK_FAILED"


def test_a_failing_check_leaves_the_base_as_it_was_and_says_why(world: World, check: Check) -> None:
    check.use(world)
    with world.open() as swarm:
        work = proposed(world, swarm, 1, {"bad.txt": "1\n"})
        before = rev(world.repo, "main")
        refused = refusal(swarm.pulls.merge, work.id)
        assert (refused.code, refused.hint is not None) == ("CHECK_FAILED", True)
        assert "bad.txt is bad" in refused.message
        assert "bad.txt is bad" in refused.details["output"]
        assert rev(world.repo, "main") == before
        assert (pull_of(swarm, work).state, left_over(world)) == ("open", [])
        assert code_of(swarm.pulls.merge, work.id) == "CHECK_FAILED"
        assert check.runs == 2  # with it and without; not again until `swarm pr check` asks for it


@pytest.mark.parametrize(
    "text",
    ["a 'b", "one\ntwo\n", "#!/bin/sh\nfalse\n", "echo a; exit 1", "echo a && false", "echo a | false", "echo >a"],
)
def test_a_check_that_cannot_be_read_is_refused(world: World, text: str) -> None:
    commit_main(world.repo, {".swarm/check": text})
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        before = rev(world.repo, "main")
        assert code_of(swarm.pulls.merge, work.id) == "INVALID_SETTING"
        assert rev(world.repo, "main") == before


def test_what_a_check_said_is_kept_for_the_commit_if_that_is_what_was_checked(world: World, check: Check) -> None:
    check.use(world)
    with world.open() as swarm:
        works = [proposed(world, swarm, n) for n in (1, 2)]
        heads = [pull_of(swarm, work).head_commit for work in works]
        for work in works:
            swarm.pulls.merge(work.id)
        results = [checked.of(swarm.context.db, str(world.repo), head) for head in heads]
        assert [(r.ok, r.command) for r in results[0]] == [(True, f"sh {check.script}")]
        assert results[1] == []  # it was merged with something else


def test_a_conflict_is_refused_and_leaves_the_base_as_it_was(world: World, check: Check) -> None:
    check.use(world)
    with world.open() as swarm:
        work = proposed(world, swarm, 1, {"README.md": "1\n"})
        before = commit_main(world.repo, {"README.md": "by a person\n"})
        refused = refusal(swarm.pulls.merge, work.id)
        assert (refused.code, refused.details["hindrances"]) == ("PULL_NOT_MERGEABLE", ["it conflicts with main"])
        assert (rev(world.repo, "main"), check.runs, left_over(world)) == (before, 0, [])


def test_a_conflict_of_single_commits_shows_when_they_are_rebased(world: World) -> None:
    with world.open() as swarm:
        work = proposed(world, swarm, 1, {"README.md": "1\n"})
        put(world.repo, work.branch, {"README.md": "by a person\n", "y": "y\n"})
        swarm.open_pull(work.id, title="Make it", description="")
        before = commit_main(world.repo, {"README.md": "by a person\n", "x": "x\n"})
        refused = refusal(swarm.pulls.merge, work.id, method="rebase")
        assert (refused.code, refused.details["files"]) == ("MERGE_CONFLICT", ["README.md"])
        assert (rev(world.repo, "main"), left_over(world)) == (before, [])


def test_a_base_that_moves_while_the_check_runs_is_not_overwritten(world: World, check: Check) -> None:
    by_a_person = f"git -C {world.repo} commit -q --allow-empty -m person"
    check.use(world, check.once(f"env -u GIT_DIR -u GIT_WORK_TREE {by_a_person}"))
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        refused = refusal(swarm.pulls.merge, work.id)
        assert (refused.code, refused.details["reason"]) == ("CONFLICT", "base_moved")
        person = rev(world.repo, "main")
        assert git_run(world.repo, "log", "-1", "--format=%s") == "person"
        assert swarm.pulls.merge(work.id).state == "merged"
        assert rev(world.repo, "main^1") == person
        assert check.runs == 2


def test_a_dirty_checkout_keeps_its_files_and_the_check_is_not_run_again(world: World, check: Check) -> None:
    check.use(world)
    with world.open() as swarm:
        work = proposed(world, swarm, 1, {"README.md": "1\n"})
        before = rev(world.repo, "main")
        (world.repo / "README.md").write_text("not committed\n")
        refused = refusal(swarm.pulls.merge, work.id)
        assert (refused.code, refused.details["files"]) == ("CONFLICT", ["README.md"])
        assert (world.repo / "README.md").read_text() == "not committed\n"
        assert (rev(world.repo, "main"), pull_of(swarm, work).state) == (before, "open")
        git_run(world.repo, "checkout", "-q", "--", "README.md")
        assert swarm.pulls.merge(work.id).state == "merged"
        assert check.runs == 1
        assert (world.repo / "README.md").read_text() == "1\n"


@pytest.mark.parametrize("noticed_by", ["look", "merge"])
@pytest.mark.parametrize("checkpoint", ["merge:land:before", "merge:land:after"])
@pytest.mark.parametrize("method", ["merge", "squash"])
def test_a_killed_merge_is_true_afterwards_and_happens_once(
    world: World, checkpoint: str, method: str, noticed_by: str
) -> None:
    configure(world, merge_method=method)
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        before = rev(world.repo, "main")
        assert die_at(world, checkpoint, work.id) == -signal.SIGKILL
        landed = rev(world.repo, "main")
        assert (landed != before) == checkpoint.endswith("after")
        assert pull_of(swarm, work).state == "open"
        if noticed_by == "merge":
            swarm.pulls.merge(work.id)
        else:
            look(swarm)
        merged = rev(world.repo, "main")
        if landed != before:
            assert merged == landed
        pull = pull_of(swarm, work)
        assert (pull.state == "merged") == (merged != before)
        assert len(named(swarm, "pull:merged")) == (pull.state == "merged")
        assert left_over(world) == []


def test_a_merge_killed_in_its_check_leaves_the_base_and_the_next_one_merges(world: World, check: Check) -> None:
    check.use(world, check.once("kill -9 $PPID"))
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        before = rev(world.repo, "main")
        assert die_at(world, "never", work.id) == -signal.SIGKILL
        assert rev(world.repo, "main") == before
        assert swarm.pulls.merge(work.id).state == "merged"
        assert left_over(world) == []


def test_of_many_that_merge_it_at_once_one_does(world: World) -> None:
    with world.open() as swarm:
        work = proposed(world, swarm, 1)

        def ask(mine: Swarm) -> str:
            return code_of(mine.pulls.merge, work.id)

        codes = all_at_once(world, [ask] * 3)
        assert "" in codes
        assert set(codes) <= {"", "INSTANCE_BUSY", "CONFLICT", "PULL_NOT_MERGEABLE"}
        assert git_run(world.repo, "rev-list", "--count", "--merges", "main") == "1"
        assert (len(named(swarm, "pull:merged")), left_over(world)) == (1, [])


@pytest.mark.parametrize("how", ["merge", "auto", "queue"])
def test_newer_commits_of_the_branch_are_not_silently_left_out(world: World, how: str) -> None:
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        newer = put(world.repo, work.branch, {"later.txt": "later\n"})
        before = rev(world.repo, "main")
        ask: dict[str, Callable[[], object]] = {
            "merge": lambda: swarm.pulls.merge(work.id),
            "auto": lambda: swarm.pulls.merge(work.id, auto=True),
            "queue": lambda: swarm.pulls.enqueue(work.id),
        }
        refused = refusal(ask[how])
        assert (refused.code, refused.details["found"]) == ("PULL_HEAD_MOVED", newer)
        assert f"`swarm pr open {work.id}`" in (refused.hint or "")
        assert rev(world.repo, "main") == before
        swarm.open_pull(work.id, title="Make it", description="")
        ask[how]()
        swarm.pulls.run_queue()
        assert pull_of(swarm, work).state == "merged"
        assert (world.repo / "later.txt").read_text() == "later\n"


def test_a_branch_that_is_gone_is_merged_at_the_recorded_commit(world: World) -> None:
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        git_run(world.repo, "branch", "-q", "-D", work.branch)
        assert swarm.pulls.merge(work.id).state == "merged"


def test_a_base_that_is_gone_is_said(world: World) -> None:
    git_run(world.repo, "branch", "release")
    with world.open() as swarm:
        work = proposed(world, swarm, 1, base_branch="release")
        git_run(world.repo, "branch", "-q", "-D", "release")
        assert code_of(swarm.pulls.merge, work.id) == "GIT_BRANCH_NOT_FOUND"
        assert pull_of(swarm, work).state == "open"


def test_what_is_closed_or_moved_on_while_the_check_runs_is_not_merged(world: World, check: Check) -> None:
    check.use(world, check.once(check.held()))
    with world.open() as swarm:
        works = [proposed(world, swarm, n) for n in (1, 2)]
        before = rev(world.repo, "main")
        codes: list[str] = []

        def merge() -> None:
            with world.open() as mine:
                codes.append(code_of(mine.pulls.merge, works[0].id))

        thread = threading.Thread(target=merge, daemon=True)
        thread.start()
        try:
            check.wait_held()
            swarm.pulls.close(works[0].id)
        finally:
            check.let_go()
            thread.join(60)
        assert codes == ["PULL_NOT_MERGEABLE"]
        assert (rev(world.repo, "main"), pull_of(swarm, works[0]).state) == (before, "closed")


def test_a_draft_stays_one_and_is_not_merged(world: World) -> None:
    with world.open() as swarm:
        work = proposed(world, swarm, 1, draft=True)
        look(swarm)
        assert refusal(swarm.pulls.merge, work.id).details["hindrances"] == ["it is a draft"]
        assert pull_of(swarm, work).draft
        assert named(swarm, "pull:ready") == []


def test_without_a_pull_request_nothing_is_merged(world: World) -> None:
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        swarm.pulls.close(work.id)
        assert code_of(swarm.pulls.merge, work.id) == "PULL_NOT_FOUND"
        assert code_of(swarm.pulls.merge, work.id, auto=True) == "PULL_NOT_FOUND"


# Merging when nothing hinders it


def hindered(world: World, swarm: Swarm, **options: str) -> Instance:
    """A pull request in conflict that is to be merged when that is over."""
    work = proposed(world, swarm, 1, {"README.md": "1\n"})
    commit_main(world.repo, {"README.md": "by a person\n"})
    pull = swarm.pulls.merge(work.id, auto=True, **options)
    assert (pull.state, pull.auto_commit) == ("open", rev(world.repo, work.branch))
    return work


def unhinder(world: World) -> str:
    return commit_main(world.repo, {"README.md": "# A project\n"})


def test_it_is_merged_by_the_follower_when_nothing_hinders_it(world: World) -> None:
    clock = Clock()
    with world.open(clock=clock) as swarm:
        work = hindered(world, swarm, method="squash")
        look(swarm)
        assert (pull_of(swarm, work).state, pull_of(swarm, work).auto_merge) == ("open", "squash")
        before = unhinder(world)
        clock.pass_by(60)
        look(swarm)
        assert pull_of(swarm, work).state == "merged"
        assert rev(world.repo, "main^") == before
        assert [e.metadata["on"] for e in named(swarm, "pull:auto")] == [True]


def test_with_nothing_in_the_way_it_is_merged_at_once(world: World) -> None:
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        assert swarm.pulls.merge(work.id, auto=True).state == "merged"


@pytest.mark.parametrize("how", ["taken back", "moved on", "newer commits", "closed"])
def test_it_is_not_merged_when_it_is_not_what_was_asked_for(world: World, how: str) -> None:
    clock = Clock()
    with world.open(clock=clock) as swarm:
        work = hindered(world, swarm)
        if how == "taken back":
            assert swarm.pulls.no_auto(work.id).auto_merge == ""
            assert swarm.pulls.no_auto(work.id).auto_merge == ""
        elif how == "closed":
            swarm.pulls.close(work.id)
        else:
            put(world.repo, work.branch, {"later.txt": "later\n"})
            if how == "moved on":
                swarm.open_pull(work.id, title="Make it", description="")
        before = unhinder(world)
        for _ in range(2):
            clock.pass_by(60)
            look(swarm)
        pull = pull_of(swarm, work)
        assert (pull.state, pull.auto_merge) == ("closed" if how == "closed" else "open", "")
        assert rev(world.repo, "main") == before
        assert [e.metadata["on"] for e in named(swarm, "pull:auto")] == [True, False][: 1 + (how != "closed")]


def test_a_check_that_fails_ends_it_and_the_agent_is_told_why_once(world: World, check: Check) -> None:
    clock = Clock()
    check.use(world)
    with world.open(clock=clock) as swarm:
        work = proposed(world, swarm, 1, {"README.md": "1\n", "bad.txt": "1\n"})
        commit_main(world.repo, {"README.md": "by a person\n"})
        swarm.pulls.merge(work.id, auto=True)
        before = unhinder(world)
        for _ in range(3):
            clock.pass_by(60)
            look(swarm)
        assert (pull_of(swarm, work).auto_merge, rev(world.repo, "main"), check.runs) == ("", before, 2)
        [message] = told(swarm, work)
        assert "> bad.txt is bad" in message.body


def test_a_checkout_in_the_way_is_waited_for(world: World, check: Check) -> None:
    clock = Clock()
    check.use(world)
    with world.open(clock=clock) as swarm:
        work = hindered(world, swarm)
        unhinder(world)
        (world.repo / "README.md").write_text("not committed\n")
        for _ in range(2):
            clock.pass_by(60)
            look(swarm)
        assert "README.md" in pull_of(swarm, work).failure
        git_run(world.repo, "checkout", "-q", "--", "README.md")
        clock.pass_by(60)
        look(swarm)
        assert (pull_of(swarm, work).state, check.runs) == ("merged", 1)


def test_the_command_merges_and_says_what_it_became(world: World, check: Check) -> None:
    check.use(world)
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
    done = world.command("pr", "merge", work.id, "--squash", "--json")
    assert done.returncode == 0, done.stdout
    body = json.loads(done.stdout)
    assert (body["state"], body["merge_commit"]) == ("merged", rev(world.repo, "main"))
    assert Path(world.repo / "1.txt").exists()


def test_closing_says_what_has_become_of_it(world: World) -> None:
    with world.open() as swarm:
        closed, merged = (proposed(world, swarm, n) for n in (1, 2))
        swarm.pulls.merge(merged.id)
        forge = LocalForge(swarm.context, str(world.repo))
        first, second = (forge.close_pull(pull_of(swarm, work).number) for work in (closed, merged))
        assert (first.number, first.state, first.head_commit) == (1, "closed", rev(world.repo, closed.branch))
        assert (second.state, second.merge_commit) == ("merged", rev(world.repo, "main"))
        assert swarm.pulls.close(closed.id).state == "closed"


def test_names_of_files_are_made_printable_in_one_place() -> None:
    assert places.printable is merging.printable
