"""Clean-up after a merge: squashed branches go when exactly they were merged, and nothing is ever lost."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from swarm_core.errors import Conflict
from swarm_core.models import Instance
from swarm_core.ops import clean_merged, merge_proof
from swarm_core.ops.clean_merged import Sweeper
from swarm_core.store import pulls
from swarm_core.swarm import Swarm
from tests.fakes.github_server import TOKEN
from tests.integration.cli_fixture import Cli
from tests.integration.github_fixture import HubWorld, hub
from tests.integration.review_fixture import commit, finished_work, named
from tests.integration.test_cli_commands import Terminal
from tests.support import git_run
from tests.world import World, assert_agreement

__all__ = ["hub"]
LONG_AGO = "2020-01-01T00:00:00.000+00:00"


def squash(repo: Path, branch: str) -> None:
    git_run(repo, "merge", "-q", "--squash", branch)
    git_run(repo, "commit", "-q", "-m", f"squashed {branch}")


def made(world: World, swarm: Swarm, name: str, prompt: str = "say ready") -> Instance:
    work = world.work(swarm, prompt)
    commit(work, name)
    return work


def merged_here(world: World, swarm: Swarm, name: str = "made.txt") -> Instance:
    """Work whose pull request was squashed into main by git alone, its agent idle."""
    work = made(world, swarm, name)
    world.wait_idle(swarm, work.id)
    swarm.open_pull(work.id, title="Make it", description="")
    squash(world.repo, work.branch)
    swarm.note_merged(work.id)
    return swarm.find(work.id)


def merged_there(hub: HubWorld, swarm: Swarm, method: str = "squash") -> Instance:
    work, pull = hub.proposed(swarm)
    hub.wait_idle(swarm, work.id)
    hub.hub.merge_by_hand(pull.number, method)
    hub.look(swarm)
    found = swarm.find(work.id)
    assert found.status == "pr_merged"
    return found


def kept_ref(world: World, work: Instance) -> str | None:
    found = git_run(world.repo, "for-each-ref", "--format=%(objectname)", f"{merge_proof.REF}{work.id}")
    return found or None


def age_look(swarm: Swarm) -> None:
    with swarm.context.db.write():
        swarm.context.db.execute("UPDATE pulls SET looked_at = ?", (LONG_AGO,))


# The branch


def test_a_squashed_branch_goes_with_its_worktree_and_a_ref_keeps_its_commits(world: World) -> None:
    with world.open() as swarm:
        work = merged_here(world, swarm)
        tip = git_run(world.repo, "rev-parse", work.branch)
        swarm.stop(work.id)
        swarm.clean(work.id)
        assert world.branches() == {"main"}
        assert kept_ref(world, work) == tip
        (event,) = named(swarm, "instance:cleaned", work.id)
        assert event.metadata["branch_deleted"] is True
        assert event.metadata["merged_ref"] == f"refs/swarm/merged/{work.id}"
        assert_agreement(world, swarm)


def test_restore_brings_the_branch_back_where_it_was(world: World) -> None:
    with world.open() as swarm:
        work = merged_here(world, swarm)
        tip = git_run(world.repo, "rev-parse", work.branch)
        (Path(work.worktree_path) / "loose.txt").write_text("loose\n")
        swarm.stop(work.id)
        swarm.clean(work.id)
        git_run(world.repo, "reflog", "expire", "--expire=now", "--all")
        git_run(world.repo, "gc", "-q", "--prune=now")
        swarm.restore(work.id)
        assert git_run(world.repo, "rev-parse", work.branch) == tip
        assert (Path(work.worktree_path) / "made.txt").read_text() == "made\n"
        assert (Path(work.worktree_path) / "loose.txt").read_text() == "loose\n"
        assert_agreement(world, swarm)
        swarm.clean(work.id)
        assert world.branches() == {"main"}, "a second time is the same"
        assert kept_ref(world, work) == tip


def test_commits_after_the_merge_keep_the_branch(world: World) -> None:
    with world.open() as swarm:
        work = merged_here(world, swarm)
        later = commit(work, "later.txt")
        swarm.stop(work.id)
        swarm.clean(work.id)
        assert git_run(world.repo, "rev-parse", work.branch) == later
        assert kept_ref(world, work) is None


def test_a_base_that_was_put_back_keeps_the_branch(world: World) -> None:
    with world.open() as swarm:
        work = merged_here(world, swarm)
        git_run(world.repo, "reset", "-q", "--hard", "HEAD~1")
        swarm.stop(work.id)
        swarm.clean(work.id)
        assert work.branch in world.branches()


@pytest.mark.parametrize("state", ["open", "closed"])
def test_a_pull_request_that_was_not_merged_keeps_the_branch(world: World, state: str) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        swarm.open_pull(work.id, title="Make it", description="")
        if state == "closed":
            swarm.pulls.close(work.id)
        swarm.stop(work.id)
        if state == "open":
            swarm.set_status(work.id, "terminated", by_person=True)
        swarm.clean(work.id)
        assert work.branch in world.branches()


def test_only_the_newest_pull_request_of_a_branch_counts(world: World) -> None:
    with world.open() as swarm:
        work = merged_here(world, swarm)
        old = swarm.pulls.of(work.id).pull
        with swarm.context.db.write():
            newer = {f: getattr(old, f) for f in type(old).__slots__}
            pulls.insert(swarm.context.db, type(old)(**newer | {"number": 99, "state": "closed"}))
        assert merge_proof.merged_tip(swarm.context, work) is None


def test_what_the_ref_kept_before_is_kept_beside_it(world: World) -> None:
    with world.open() as swarm:
        work = merged_here(world, swarm)
        other = git_run(world.repo, "commit-tree", "-m", "another", "HEAD^{tree}")
        git_run(world.repo, "update-ref", f"refs/swarm/merged/{work.id}", other)
        swarm.stop(work.id)
        swarm.clean(work.id)
        assert git_run(world.repo, "rev-parse", f"refs/swarm/merged/{work.id}-{other[:12]}") == other
        assert git_run(world.repo, "cat-file", "-t", f"refs/swarm/merged/{work.id}") == "commit"


def test_a_branch_that_is_checked_out_elsewhere_stays(world: World, tmp_path: Path) -> None:
    with world.open() as swarm:
        work = merged_here(world, swarm)
        git_run(world.repo, "worktree", "add", "-q", "-f", str(tmp_path / "mine"), work.branch)
        swarm.stop(work.id)
        swarm.clean(work.id)
        assert work.branch in world.branches()


# Merged at GitHub


@pytest.mark.parametrize("method", ["squash", "rebase", "merge"])
def test_what_github_merged_goes_although_no_branch_here_has_it(hub: HubWorld, method: str) -> None:
    with hub.open() as swarm:
        work = merged_there(hub, swarm, method)
        tip = git_run(hub.repo, "rev-parse", work.branch)
        asked = len(hub.api.requests)
        clean_merged.clean_one(swarm.context, work.id, actor="kim")
        assert work.branch not in hub.branches()
        assert git_run(hub.repo, "cat-file", "-t", tip) == "commit"
        assert len(hub.api.requests) == asked, "what was seen a moment ago is not asked again"


def test_what_was_seen_long_ago_is_asked_again(hub: HubWorld) -> None:
    with hub.open() as swarm:
        work = merged_there(hub, swarm)
        age_look(swarm)
        asked = len(hub.api.requests)
        clean_merged.clean_one(swarm.context, work.id, actor="kim")
        assert work.branch not in hub.branches()
        assert len(hub.api.requests) > asked
        assert (swarm.pulls.of(work.id).pull.looked_at or "") > LONG_AGO


def test_what_github_knows_as_open_after_all_stays(hub: HubWorld) -> None:
    with hub.open() as swarm:
        work = merged_there(hub, swarm)
        age_look(swarm)
        number = swarm.pulls.of(work.id).pull.number
        hub.hub.edit(number, state="open", merged_at=None, merge_commit=None)
        clean_merged.clean_one(swarm.context, work.id, actor="kim")
        assert work.branch in hub.branches()


def test_a_pull_request_that_github_no_longer_knows_keeps_the_branch(hub: HubWorld) -> None:
    with hub.open() as swarm:
        work = merged_there(hub, swarm)
        age_look(swarm)
        hub.hub.issues.clear()
        clean_merged.clean_one(swarm.context, work.id, actor="kim")
        assert work.branch in hub.branches()


def test_when_github_does_not_answer_what_it_said_before_holds(hub: HubWorld) -> None:
    with hub.open() as swarm:
        work = merged_there(hub, swarm)
        age_look(swarm)
        hub.api.go_down()
        clean_merged.clean_one(swarm.context, work.id, actor="kim")
        assert work.branch not in hub.branches()
        assert kept_ref(hub, work) is not None


# The command


def test_the_offer_names_what_goes_and_how_much_that_frees(world: World) -> None:
    with world.open() as swarm:
        work, moved = merged_here(world, swarm), merged_here(world, swarm, "two.txt")
        made(world, swarm, "three.txt")
        (Path(work.worktree_path) / "loose.txt").write_text("loose\n")
        commit(moved, "later.txt")
    ran = command(world, "clean", "--merged", "--dry-run", "--json")
    first, second = json.loads(ran.stdout)
    assert [first["id"], second["id"]] == [work.id, moved.id]
    assert (first["pull"], first["dirty_files"], first["dirty"], first["branch_goes"], first["cleaned"]) == (
        *(1, 1, [{"path": "loose.txt", "bytes": 6}]),
        *(True, False),
    )
    assert (second["dirty_files"], second["branch_goes"], second["left"]) == (0, False, "")
    assert first["bytes"] > 0
    shown = command(world, "clean", "--merged", "--dry-run").stdout.decode()
    assert "preserved: loose.txt (6 B)" in shown
    assert "2 to clean" in shown
    assert set(world.worktrees()) >= {work.worktree_path, moved.worktree_path}, "nothing was removed"


def test_idle_agents_are_ended_and_everything_of_theirs_goes(world: World) -> None:
    with world.open() as swarm:
        work = merged_here(world, swarm)
        other = made(world, swarm, "three.txt")
        assert swarm.find(work.id).wanted == "running"
    (done,) = json.loads(command(world, "clean", "--merged", "--yes", "--json").stdout)
    assert (done["id"], done["cleaned"], done["branch_deleted"]) == (work.id, True, True)
    assert done["merged_ref"] == f"refs/swarm/merged/{work.id}"
    assert world.branches() == {"main", other.branch}
    with world.open() as swarm:
        assert swarm.find(work.id).status == "pr_merged"
        assert_agreement(world, swarm)
    assert command(world, "clean", "--merged", "--yes").stdout == b"nothing was merged that is not clean\n"
    assert json.loads(command(world, "clean", "--merged", "--yes", "--json").stdout) == []


def test_a_person_is_asked_with_all_that_goes_and_may_say_no(world: World) -> None:
    with world.open() as swarm:
        work = merged_here(world, swarm)
    cli = Cli(world.home, world.repo)
    with Terminal(cli, "clean", "--merged") as terminal:
        terminal.until("[y/N]")
        assert "1 to clean" in terminal.seen
        terminal.type("n\n")
        assert terminal.ended() == 1
    assert work.worktree_path in world.worktrees()
    with Terminal(cli, "clean", "--merged") as terminal:
        terminal.until("[y/N]")
        terminal.type("y\n")
        assert terminal.ended() == 0
    assert world.worktrees() == {}


def test_uncommitted_files_are_preserved(world: World) -> None:
    with world.open() as swarm:
        work = merged_here(world, swarm)
        (Path(work.worktree_path) / "loose.txt").write_text("loose\n")
    (done,) = json.loads(command(world, "clean", "--merged", "--yes", "--json").stdout)
    assert git_run(world.repo, "show", f"{done['preserved']}:loose.txt") == "loose"


def test_a_busy_agent_is_left_and_named(world: World) -> None:
    with world.open() as swarm:
        busy = made(world, swarm, "busy.txt", "hang")
        swarm.open_pull(busy.id, title="Make it", description="")
        squash(world.repo, busy.branch)
        swarm.note_merged(busy.id)
        calm = merged_here(world, swarm)
        with pytest.raises(Conflict) as refused:
            clean_merged.clean_one(swarm.context, busy.id, actor="kim")
        assert refused.value.code == "INSTANCE_RUNNING"
    ran = command(world, "clean", "--merged", "--yes", "--json")
    told = {one["id"]: one for one in json.loads(ran.stdout)}
    assert (told[busy.id]["cleaned"], told[calm.id]["cleaned"]) == (False, True)
    assert told[busy.id]["left"].startswith("its agent is")
    assert world.sessions() == {busy.id: True}
    assert busy.id in command(world, "clean", "--merged", "--yes").stdout.decode()


def test_ids_that_were_not_merged_are_refused_by_name(world: World) -> None:
    with world.open() as swarm:
        work, other = merged_here(world, swarm), made(world, swarm, "two.txt")
    ran = command(world, "clean", work.id, other.id, "--merged", "--yes", "--json", code=1)
    first, second = json.loads(ran.stdout)
    assert first["cleaned"] is True
    assert second["error"]["code"] == "PULL_NOT_MERGED"
    assert set(world.sessions()) == {other.id}


def test_the_branch_at_github_goes_only_when_asked_for(hub: HubWorld) -> None:
    with hub.open() as swarm:
        first, second = merged_there(hub, swarm), merged_there_again(hub, swarm)
    command(hub, "clean", first.id, "--merged", "--yes")
    assert hub.remote_tip(first.branch)
    ran = command(hub, "clean", second.id, "--merged", "--remote", "--yes", "--json")
    (done,) = json.loads(ran.stdout)
    assert (done["remote_deleted"], done["remote_problem"]) == (True, "")
    assert git_run(hub.bare, "for-each-ref", f"refs/heads/{second.branch}") == ""
    for text in (ran.stdout, ran.stderr):
        assert TOKEN.encode() not in text


def merged_there_again(hub: HubWorld, swarm: Swarm) -> Instance:
    work, pull = hub.proposed(swarm, "again.txt")
    hub.wait_idle(swarm, work.id)
    hub.hub.merge_by_hand(pull.number, "squash")
    hub.look(swarm)
    return swarm.find(work.id)


def test_a_branch_at_github_that_has_moved_on_stays(hub: HubWorld) -> None:
    with hub.open() as swarm:
        work = merged_there(hub, swarm)
        later = commit(work, "later.txt")
        git_run(Path(work.worktree_path), "push", "-q", str(hub.bare), work.branch)
    (done,) = json.loads(command(hub, "clean", "--merged", "--remote", "--yes", "--json").stdout)
    assert (done["cleaned"], done["branch_deleted"], done["remote_deleted"]) == (True, False, False)
    assert hub.remote_tip(work.branch) == later


def test_when_github_is_away_the_clean_up_here_is_done_all_the_same(hub: HubWorld) -> None:
    with hub.open() as swarm:
        work = merged_there(hub, swarm)
    hub.api.go_down()
    (done,) = json.loads(command(hub, "clean", "--merged", "--remote", "--yes", "--json").stdout)
    assert (done["id"], done["cleaned"], done["remote_deleted"]) == (work.id, True, False)
    assert "GITHUB_UNREACHABLE" in done["remote_problem"]


def test_remote_needs_merged_and_yes_is_needed_without_a_terminal(world: World) -> None:
    command(world, "clean", "--remote", "--yes", code=2)
    command(world, "clean", "--merged", code=2)


def command(world: World, *args: str, code: int = 0) -> subprocess.CompletedProcess[bytes]:
    ran = world.command(*args)
    assert ran.returncode == code, ran.stderr.decode()
    return ran


# Unasked


def swept(world: World, **options: Any) -> None:
    with world.open(**options) as swarm:
        Sweeper(swarm.context).look()


def calm(swarm: Swarm, work: Instance) -> None:
    with swarm.context.db.write():
        swarm.context.db.execute("UPDATE instances SET activity_at = ? WHERE id = ?", (LONG_AGO, work.id))


def allow(world: World) -> None:
    (world.home / "config.toml").write_text("clean_merged = 1\n")


def test_nothing_is_cleaned_unasked_without_the_setting(world: World) -> None:
    with world.open() as swarm:
        work = merged_here(world, swarm)
        calm(swarm, work)
    swept(world)
    assert work.worktree_path in world.worktrees()
    allow(world)
    swept(world)
    assert world.worktrees() == {}
    with world.open() as swarm:
        (event,) = named(swarm, "instance:cleaned", work.id)
        assert event.actor == "supervisor"
        assert_agreement(world, swarm)


def test_an_agent_that_was_idle_for_less_than_ten_minutes_is_left(world: World) -> None:
    with world.open() as swarm:
        work = merged_here(world, swarm)
        allow(world)
    swept(world)
    assert work.worktree_path in world.worktrees()


def test_an_agent_that_a_message_waits_for_is_left(world: World) -> None:
    with world.open() as swarm:
        work = merged_here(world, swarm)
        calm(swarm, work)
        swarm.message(work.id, "one more thing")
        allow(world)
    swept(world)
    assert work.worktree_path in world.worktrees()


@pytest.mark.parametrize("hindrance", ["dirty", "commit", "elsewhere"])
def test_what_holds_something_of_its_own_is_left_and_told_once(world: World, hindrance: str) -> None:
    with world.open() as swarm:
        work = merged_here(world, swarm)
        if hindrance == "dirty":
            (Path(work.worktree_path) / "loose.txt").write_text("loose\n")
        elif hindrance == "commit":
            commit(work, "later.txt")
        else:
            git_run(Path(work.worktree_path), "switch", "-q", "-c", "mine")
        calm(swarm, work)
        allow(world)
    with world.open() as swarm:
        sweeper = Sweeper(swarm.context)
        for _ in range(2):
            sweeper._pace._due = 0.0
            sweeper.look()
        assert work.worktree_path in world.worktrees()
        (event,) = [e for e in named(swarm, "instance:problem", work.id) if "not cleaned" in e.metadata["what"]]
        assert ("loose.txt" in event.metadata["what"]) == (hindrance == "dirty")
        assert swarm.find(work.id).problem == "", "nobody is called for it"
