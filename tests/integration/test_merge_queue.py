"""The merge queue: checked together, bisected, in order; conflicts go to their authors; nothing happens twice."""

from __future__ import annotations

import math
import signal
import threading
from pathlib import Path

import pytest

from swarm_core.hosts.base import HeadOrder
from swarm_core.models import Instance
from swarm_core.ops import checking, queue
from swarm_core.ops.merger import Merger
from swarm_core.swarm import Swarm
from tests.integration.mcp_fixture import Coordinated
from tests.integration.merge_fixture import (
    Check,
    Clock,
    check,
    commit_main,
    die_at,
    entries,
    left_over,
    look,
    proposed,
    pull_of,
    put,
    rev,
    states,
    told,
)
from tests.integration.review_fixture import all_at_once, code_of, commit, finished_work, head, named, refusal
from tests.support import git_run, wait_until
from tests.world import World, assert_agreement

__all__ = ["check"]

BOTH = [(1, "bad.txt"), (2, "good.txt")]


def queued(world: World, swarm: Swarm, *numbers: int, bad: int = 0) -> list[Instance]:
    """Pull requests in the queue, each with a file of its own; that of `bad` makes the check fail."""
    works = []
    for n in numbers:
        works.append(proposed(world, swarm, n, {f"bad{n}.txt": "x\n"} if n == bad else None))
        swarm.pulls.enqueue(works[-1].id)
    return works


def subjects(world: World, since: str) -> list[str]:
    shown = git_run(world.repo, "log", "--first-parent", "--reverse", "--format=%s", f"{since}..main")
    return shown.splitlines()


def remark(swarm: Swarm, work: Instance) -> str:
    return entries(swarm)[work.id].detail


def test_work_of_agents_is_merged_together_in_the_order_it_came(world: World, check: Check) -> None:
    check.use(world)
    with world.open() as swarm:
        works = [finished_work(world, swarm) for _ in range(2)]
        commit(works[0], "one.txt")
        commit(works[1], "two.txt")
        git_run(Path(works[1].worktree_path), "rm", "-q", "made.txt")
        git_run(Path(works[1].worktree_path), "commit", "-q", "-m", "not two of it")
        before = rev(world.repo, "main")
        for work in reversed(works):
            swarm.open_pull(work.id, title=f"Make {work.id}", description="")
            swarm.pulls.enqueue(work.id, actor="kim")
        assert swarm.pulls.run_queue() == 2
        assert subjects(world, before) == [f"Make {w.id} (#{n})" for n, w in enumerate(reversed(works), start=1)]
        assert {entry.state for entry in entries(swarm).values()} == {"merged"}
        for work in works:
            pull = pull_of(swarm, work)
            assert (pull.state, swarm.find(work.id).status) == ("merged", "pr_merged")
            assert rev(world.repo, f"{pull.merge_commit}^2") == head(work)
        assert pull_of(swarm, works[0]).merge_commit == rev(world.repo, "main")
        assert [e.actor for e in named(swarm, "pull:merged")] == ["kim", "kim"]
        assert (check.runs, left_over(world)) == (1, [])
        assert_agreement(world, swarm)


@pytest.mark.parametrize("bad", [1, 5, 8])
def test_a_failing_batch_is_bisected_and_only_the_culprit_leaves(world: World, check: Check, bad: int) -> None:
    check.use(world)
    with world.open() as swarm:
        works = queued(world, swarm, *range(1, 9), bad=bad)
        before = rev(world.repo, "main")
        assert swarm.pulls.run_queue() == 7
        assert states(swarm) == [(str(n), "left" if n == bad else "merged") for n in range(1, 9)]
        assert subjects(world, before) == [f"Make {n} (#{n})" for n in range(1, 9) if n != bad]
        # the whole, its bisection, the base if nothing before was good, and what came after the culprit
        assert check.runs == 1 + math.log2(8) + (bad == 1) + (bad != 8)
        [message] = told(swarm, works[bad - 1])
        assert f"> bad{bad}.txt is bad" in message.body
        assert pull_of(swarm, works[bad - 1]).state == "open"
        assert sum(len(told(swarm, work)) for work in works) == 1
        [left] = named(swarm, "queue:left")
        assert left.instance_id == works[bad - 1].id


def test_a_base_that_fails_by_itself_is_nobodys_fault(world: World, check: Check) -> None:
    check.use(world)
    with world.open() as swarm:
        works = queued(world, swarm, 1, 2)
        commit_main(world.repo, {"bad.txt": "by a person\n"})
        assert queue.run(swarm.context) == 0
        runs = check.runs
        assert states(swarm) == [("1", "waiting"), ("2", "waiting")]
        assert "[CHECK_FAILED]" in remark(swarm, works[0])
        assert [told(swarm, work) for work in works] == [[], []]
        assert queue.run(swarm.context) == 0
        assert check.runs == runs  # not again, as long as the base is the same
        git_run(world.repo, "rm", "-q", "bad.txt")
        git_run(world.repo, "commit", "-q", "-m", "mended")
        assert queue.run(swarm.context) == 2


def test_the_author_of_a_conflict_is_asked_once_and_it_goes_on_with_the_next_commit(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        other = proposed(world, swarm, 2)
        swarm.open_pull(work.id, title="Make it", description="")
        commit_main(world.repo, {"made.txt": "by a person\n"})
        for one in (work, other):
            swarm.pulls.enqueue(one.id)
        assert [swarm.pulls.run_queue() for _ in range(3)] == [1, 0, 0]
        assert (entries(swarm)[work.id].state, pull_of(swarm, other).state) == ("waiting", "merged")
        assert "made.txt" in remark(swarm, work)
        look(swarm)  # whoever follows it does not tell the same again
        [message] = told(swarm, work)
        assert "made.txt" in message.body
        git_run(Path(work.worktree_path), "merge", "-q", "-X", "ours", "-m", "up to date", "main")
        assert swarm.pulls.run_queue() == 0  # its author has not said that it is ready
        swarm.open_pull(work.id, title="Make it", description="", actor=work.id)
        assert swarm.pulls.run_queue() == 1
        assert pull_of(swarm, work).head_commit == head(work)
        assert len(told(swarm, work)) == 1
        assert (world.repo / "made.txt").read_text() == "made\n"


def test_who_was_told_of_the_conflict_by_the_follower_is_not_asked_again(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        swarm.open_pull(work.id, title="Make it", description="")
        commit_main(world.repo, {"made.txt": "by a person\n"})
        look(swarm)
        assert len(told(swarm, work)) == 1
        swarm.pulls.enqueue(work.id)
        swarm.pulls.run_queue()
        assert len(told(swarm, work)) == 1
        assert remark(swarm, work)


def test_one_that_conflicts_with_another_waits_for_it_and_is_asked_then(world: World, check: Check) -> None:
    check.use(world)
    with world.open() as swarm:
        works = [proposed(world, swarm, n, {"README.md": f"{n}\n"}) for n in (1, 2)]
        works.append(proposed(world, swarm, 3))
        for work in works:
            swarm.pulls.enqueue(work.id)
        shown = swarm.pulls.queue()
        assert [one.conflicts for one in shown] == [{}, {works[0].id: ["README.md"]}, {}]
        assert swarm.pulls.run_queue() == 2
        assert states(swarm) == [("1", "merged"), ("2", "waiting"), ("3", "merged")]
        assert (world.repo / "README.md").read_text() == "1\n"
        [message] = told(swarm, works[1])
        assert "README.md" in message.body
        [asked] = swarm.pulls.queue()
        codes = [str(reason.code) for reason in asked.readiness.blockers]
        assert (asked.conflicts, codes) == ({"main": ["README.md"]}, ["conflict"])
        assert check.runs == 1


def test_one_that_conflicts_only_with_a_culprit_is_merged_and_nobody_is_asked(world: World, check: Check) -> None:
    check.use(world)
    with world.open() as swarm:
        works = [proposed(world, swarm, n, {"README.md": f"{n}\n", name: "x\n"}) for n, name in BOTH]
        for work in works:
            swarm.pulls.enqueue(work.id)
        assert swarm.pulls.run_queue() == 1
        assert states(swarm) == [("1", "left"), ("2", "merged")]
        assert told(swarm, works[1]) == []


def test_an_agent_that_does_not_run_cannot_answer_and_that_is_said(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        swarm.open_pull(work.id, title="Make it", description="")
        swarm.stop(work.id)
        commit_main(world.repo, {"made.txt": "by a person\n"})
        swarm.pulls.enqueue(work.id)
        swarm.pulls.run_queue()
        assert f"`swarm restart {work.id}`" in remark(swarm, work)


@pytest.mark.parametrize("checkpoint", ["merge:land:before", "merge:land:after"])
def test_what_a_killed_process_was_merging_is_settled_by_the_next(
    world: World, check: Check, checkpoint: str
) -> None:
    check.use(world)
    with world.open() as swarm:
        works = queued(world, swarm, 1, 2, 3)
        before = rev(world.repo, "main")
        assert die_at(world, checkpoint, "queue") == -signal.SIGKILL
        assert {entry.state for entry in entries(swarm).values()} == {"merging"}
        landed = rev(world.repo, "main")
        assert (landed != before) == checkpoint.endswith("after")
        assert code_of(swarm.pulls.dequeue, works[0].id) == "CONFLICT"
        assert swarm.pulls.run_queue() == (0 if landed != before else 3)
        assert states(swarm) == [("1", "merged"), ("2", "merged"), ("3", "merged")]
        assert subjects(world, before) == ["Make 1 (#1)", "Make 2 (#2)", "Make 3 (#3)"]
        assert [pull_of(swarm, work).state for work in works] == ["merged"] * 3
        assert len(named(swarm, "pull:merged")) == 3
        assert (check.runs, left_over(world)) == (1, [])


def test_many_that_work_it_off_at_once_do_it_once(world: World, check: Check) -> None:
    check.use(world)
    with world.open() as swarm:
        queued(world, swarm, 1, 2, 3)
        before = rev(world.repo, "main")

        def run(mine: Swarm) -> int:
            return mine.pulls.run_queue()

        assert sum(all_at_once(world, [run] * 3)) == 3
        assert subjects(world, before) == ["Make 1 (#1)", "Make 2 (#2)", "Make 3 (#3)"]
        assert (check.runs, len(named(swarm, "pull:merged"))) == (1, 3)


@pytest.mark.parametrize("how", ["removed", "closed", "moved on", "newer commits"])
def test_what_is_taken_away_while_the_check_runs_is_not_merged(world: World, check: Check, how: str) -> None:
    check.use(world, check.once(check.held()))
    with world.open() as swarm:
        works = queued(world, swarm, 1, 2)

        def work_off() -> None:
            with world.open() as mine:
                mine.pulls.run_queue()

        thread = threading.Thread(target=work_off, daemon=True)
        thread.start()
        try:
            check.wait_held()
            assert swarm.pulls.queue_is_busy()
            if how == "removed":
                swarm.pulls.dequeue(works[0].id)
            elif how == "closed":
                swarm.pulls.close(works[0].id)
            else:
                put(world.repo, works[0].branch, {"later.txt": "later\n"})
                if how == "moved on":
                    swarm.open_pull(works[0].id, title="Make it", description="")
        finally:
            check.let_go()
            thread.join(60)
        assert states(swarm) == [("1", "waiting" if how == "newer commits" else "left"), ("2", "merged")]
        assert pull_of(swarm, works[0]).state == ("closed" if how == "closed" else "open")
        assert not (world.repo / "1.txt").exists()
        if how == "newer commits":
            assert f"`swarm pr open {works[0].id}`" in remark(swarm, works[0])


def test_what_is_over_or_not_ready_is_not_merged(world: World) -> None:
    with world.open() as swarm:
        closed, merged, moved, removed = queued(world, swarm, 1, 2, 3, 4)
        draft = proposed(world, swarm, 5, draft=True)
        swarm.pulls.enqueue(draft.id)
        swarm.pulls.close(closed.id)
        git_run(world.repo, "merge", "-q", "--no-ff", "-m", "by hand", merged.branch)
        put(world.repo, moved.branch, {"later.txt": "later\n"})
        swarm.open_pull(moved.id, title="Make it", description="")
        assert swarm.pulls.dequeue(removed.id).state == "left"
        before = rev(world.repo, "main")
        assert swarm.pulls.run_queue() == 0
        assert rev(world.repo, "main") == before
        expected = [("1", "left"), ("2", "merged"), ("3", "left"), ("4", "left"), ("5", "waiting")]
        assert states(swarm) == expected
        assert remark(swarm, draft) == "it is a draft"
        assert pull_of(swarm, merged).state == "merged"
        assert code_of(swarm.pulls.dequeue, removed.id) == "CONFLICT"
        assert swarm.pulls.enqueue(removed.id).state == "waiting"
        assert swarm.pulls.run_queue() == 1


def test_it_is_queued_once(world: World) -> None:
    with world.open() as swarm:
        [work] = queued(world, swarm, 1)
        assert refusal(swarm.pulls.enqueue, work.id).hint
        swarm.pulls.run_queue()
        assert code_of(swarm.pulls.enqueue, work.id) == "PULL_NOT_MERGEABLE"


def test_what_fails_is_the_remark_and_the_queue_goes_on_when_it_is_over(world: World, check: Check) -> None:
    check.use(world)
    with world.open() as swarm:
        works = queued(world, swarm, 1, 2)
        before = rev(world.repo, "main")
        (world.home / "scratch").write_text("in the way of every scratch folder")
        assert swarm.pulls.run_queue() == 0
        assert remark(swarm, works[0]) == remark(swarm, works[1])
        assert remark(swarm, works[0]).endswith("]")
        (world.home / "scratch").unlink()
        (world.repo / "1.txt").write_text("not committed\n")
        assert [swarm.pulls.run_queue() for _ in range(2)] == [0, 0]
        assert "1.txt" in remark(swarm, works[0])
        assert states(swarm) == [("1", "waiting"), ("2", "waiting")]
        assert (rev(world.repo, "main"), (world.repo / "1.txt").read_text()) == (before, "not committed\n")
        (world.repo / "1.txt").unlink()
        assert swarm.pulls.run_queue() == 2
        assert (check.runs, [e.detail for e in entries(swarm).values()]) == (1, ["", ""])


def test_a_base_that_moves_while_the_check_runs_is_tried_again_at_once(world: World, check: Check) -> None:
    check.use(world, check.once(f"git -C {world.repo} commit -q --allow-empty -m person"))
    with world.open() as swarm:
        queued(world, swarm, 1, 2)
        before = rev(world.repo, "main")
        assert swarm.pulls.run_queue() == 2
        assert subjects(world, before) == ["person", "Make 1 (#1)", "Make 2 (#2)"]
        assert check.runs == 2


def test_each_repository_and_branch_has_a_line_of_its_own(world: World, check: Check) -> None:
    check.use(world)
    git_run(world.repo, "branch", "release")
    with world.open() as swarm:
        queued(world, swarm, 1)
        for number, name in ((2, "2.txt"), (3, "bad.txt")):
            swarm.pulls.enqueue(proposed(world, swarm, number, {name: "x\n"}, base_branch="release").id)
        assert swarm.pulls.run_queue() == 2
        assert states(swarm) == [("1", "merged"), ("2", "merged"), ("3", "left")]
        names = ["README.md", "src"]
        assert git_run(world.repo, "ls-tree", "--name-only", "main").split() == ["1.txt", *names]
        assert git_run(world.repo, "ls-tree", "--name-only", "release").split() == ["2.txt", *names]


def test_more_than_a_batch_is_merged_in_several(world: World, check: Check) -> None:
    check.use(world)
    with world.open() as swarm:
        queued(world, swarm, *range(1, queue.BATCH + 3))
        assert swarm.pulls.run_queue() == queue.BATCH + 2
        assert check.runs == 2


# In the background


def test_the_merger_works_off_what_comes_and_what_changes(world: World) -> None:
    with world.open() as swarm:
        merger = Merger(swarm.context)
        merger.look()
        [first] = queued(world, swarm, 1)
        merger.look()
        assert pull_of(swarm, first).state == "merged"
        work = proposed(world, swarm, 2, {"1.txt": "2\n"})
        commit_main(world.repo, {"1.txt": "by a person\n"})
        swarm.pulls.enqueue(work.id)
        merger.look()
        assert pull_of(swarm, work).state == "open"
        put(world.repo, work.branch, {"1.txt": "by a person\n", "2.txt": "2\n"})
        swarm.open_pull(work.id, title="Make it", description="")
        merger.look()
        assert pull_of(swarm, work).state == "merged"


def test_stopping_the_merger_ends_a_check_and_leaves_the_entry_waiting(world: World, check: Check) -> None:
    check.use(world, check.once(f"echo $$ >{check.folder}/pid", check.held()))
    with world.open() as swarm:
        [work] = queued(world, swarm, 1)
        before = rev(world.repo, "main")
        merger = Merger(swarm.context)
        thread = threading.Thread(target=merger.run, daemon=True)
        thread.start()
        try:
            check.wait_held()
        finally:
            merger.stop()
            thread.join(30)
        assert not thread.is_alive()
        pid = (check.folder / "pid").read_text().strip()
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), what="the check to end")
        assert (entries(swarm)[work.id].state, remark(swarm, work)) == ("waiting", "")
        assert (rev(world.repo, "main"), left_over(world)) == (before, [])
        assert swarm.pulls.run_queue() == 1


def test_the_coordinator_works_it_off_and_when_it_ends_a_check_ends_with_it(
    stopped_mcp: Coordinated, check: Check
) -> None:
    world = stopped_mcp.world
    check.use(world, check.once(f"echo $$ >{check.folder}/pid", check.held()))
    with world.open() as swarm:
        stopped_mcp.start()
        [work] = queued(world, swarm, 1)
        check.wait_held()
        assert stopped_mcp.stop() == 0
        pid = (check.folder / "pid").read_text().strip()
        assert not Path(f"/proc/{pid}").exists()
        assert (entries(swarm)[work.id].state, pull_of(swarm, work).state) == ("waiting", "open")
        stopped_mcp.start()
        wait_until(lambda: pull_of(swarm, work).state == "merged", timeout=60, what="the queue is worked off")
        assert rev(world.repo, "main^2") == pull_of(swarm, work).head_commit


def test_what_left_the_queue_is_shown_last_first_without_sorting_all_there_ever_was(world: World) -> None:
    with world.open(clock=Clock()) as swarm:
        works = queued(world, swarm, 1, 2, 3)
        for n in (1, 2, 0):
            swarm.pulls.dequeue(works[n].id)
        db = swarm.context.db
        seen: list[str] = []
        db._connection.set_trace_callback(seen.append)
        found = swarm.pulls.queue_over(2)
        db._connection.set_trace_callback(None)
        assert [entry.instance_id for entry in found] == [works[0].id, works[2].id]
        [query] = seen
        assert not [row["detail"] for row in db.rows(f"EXPLAIN QUERY PLAN {query}") if "B-TREE" in row["detail"]]


def test_what_is_known_of_one_way_to_merge_says_nothing_of_another() -> None:
    def name(*methods: str) -> str:
        heads: list[HeadOrder] = [{"head_commit": "c", "method": method, "message": ""} for method in methods]
        return checking.Recipe("/r", "main", "b", heads, ["true"], "queue").name

    assert len({name(), name("merge"), name("squash"), name("rebase"), name("merge", "squash")}) == 5
    assert name("merge") == name("merge")
