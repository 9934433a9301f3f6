"""Replaced objects and grafts: what a reviewer, a check and a diff see is what main gets, or nothing is done."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from swarm_core import git
from swarm_core.ops import doctor
from tests.integration.merge_fixture import Check, check, put, rev
from tests.integration.review_fixture import approve, code_of, commit, finished_work, refusal
from tests.support import git_run
from tests.world import World

__all__ = ["check"]

EVIL, HARMLESS = "evil\n", "harmless\n"


def deceive(repo: Path, branch: str, name: str = "made.txt") -> str:
    """Put a harmless blob in the place of the one that a branch has; returns the replaced object."""
    blob = git_run(repo, "rev-parse", f"{branch}:{name}")
    other = git_run(repo, "hash-object", "-w", "--stdin", stdin=HARMLESS.encode())
    git_run(repo, "replace", blob, other)
    return blob


def graft(repo: Path, branch: str) -> None:
    """Give a branch's commit another parent, in the file that older gits read."""
    tip = git_run(repo, "rev-parse", branch)
    (repo / ".git/info").mkdir(exist_ok=True)
    (repo / ".git/info/grafts").write_text(f"{tip}\n")


def test_a_replaced_blob_is_named_and_review_and_merge_are_refused_while_it_exists(
    world: World, check: Check
) -> None:
    check.use(world, "grep -q evil made.txt && { echo evil; exit 1; }")
    with world.open() as swarm:
        work = finished_work(world, swarm)
        commit(work, "made.txt", EVIL)
        blob = deceive(world.repo, work.branch)
        before = rev(world.repo, "main")
        refused = refusal(swarm.request_review, work.id)
        assert (refused.code, refused.details["refs"]) == ("REPLACED_OBJECTS", [f"refs/replace/{blob}"])
        assert f"replace -d {blob}" in (refused.hint or "")
        swarm.open_pull(work.id, title="Make it", description="")
        refused = refusal(swarm.pulls.merge, work.id)
        assert (refused.code, refused.details["refs"]) == ("REPLACED_OBJECTS", [f"refs/replace/{blob}"])
        assert code_of(swarm.pulls.merge, work.id, anyway="I know better") == "REPLACED_OBJECTS"
        swarm.pulls.enqueue(work.id)
        assert swarm.pulls.run_queue() == 0
        assert rev(world.repo, "main") == before
        assert any(
            c.name == "replaced objects" and c.state == "fail" for c in doctor.examine(swarm.context, fix=False)
        )
        git_run(world.repo, "replace", "-d", blob)
        swarm.pulls.dequeue(work.id)
        assert code_of(swarm.pulls.merge, work.id) == "CHECK_FAILED"
        assert rev(world.repo, "main") == before


def test_an_approval_is_refused_while_objects_are_replaced_and_a_request_for_changes_is_not(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)
        blob = deceive(world.repo, work.branch)
        assert code_of(approve, swarm, review) == "REPLACED_OBJECTS"
        options = {"title": "Make it", "description": "", "actor": review.id, "review_id": review.id}
        assert code_of(swarm.open_pull, work.id, **options) == "REPLACED_OBJECTS"
        assert code_of(swarm.accept, work.id) == "REPLACED_OBJECTS"
        git_run(world.repo, "replace", "-d", blob)
        assert approve(swarm, review).status == "approved"


def test_a_graft_counts_as_a_replaced_object(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        graft(world.repo, work.branch)
        refused = refusal(swarm.request_review, work.id)
        assert (refused.code, refused.details["refs"]) == ("REPLACED_OBJECTS", ["info/grafts"])


def test_replaced_objects_in_a_packed_ref_file_are_found(world: World) -> None:
    put(world.repo, "work/x", {"made.txt": EVIL}, start="refs/heads/main")
    blob = deceive(world.repo, "work/x")
    git_run(world.repo, "pack-refs", "--all")
    assert git.replaced(world.repo) == [f"refs/replace/{blob}"]


def test_a_diff_shows_what_was_committed_and_not_what_replaces_it(world: World) -> None:
    put(world.repo, "work/x", {"made.txt": EVIL}, start="refs/heads/main")
    deceive(world.repo, "work/x")
    with world.open() as swarm:
        host = swarm.context.hosts.choose()
        ends = (rev(world.repo, "main"), rev(world.repo, "work/x"))
        assert "+evil" in host.diff_between(str(world.repo), *ends, max_bytes=10_000)


def test_the_git_of_a_reviewer_sees_the_objects_as_committed(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        commit(work, "made.txt", EVIL)
        review = swarm.request_review(work.id)
        deceive(world.repo, work.branch)
        pairs = Path(f"/proc/{swarm.find(review.id).pid}/environ").read_bytes().decode().split("\0")
        environ = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        seen = subprocess.run(
            ["git", "-C", review.worktree_path, "show", f"{work.branch}:made.txt"],
            env=environ,
            capture_output=True,
            text=True,
            check=True,
        )
        assert seen.stdout == EVIL


@pytest.mark.parametrize("name", ["made.txt", "it.txt"])
def test_a_check_runs_on_what_was_committed(world: World, check: Check, name: str) -> None:
    """Its files are the true ones, and so is what its own git shows: of a replaced blob, commit and graft."""
    seen = check.folder / "seen"
    put(world.repo, "work/x", {name: EVIL}, start="refs/heads/main")
    deceive(world.repo, "work/x", name)
    tip = rev(world.repo, "work/x")
    git_run(world.repo, "replace", tip, rev(world.repo, "main"))
    graft(world.repo, tip)
    with world.open() as swarm:
        host = swarm.context.hosts.choose()
        script = f"cat {name} >{seen}; git show {tip}:{name} >>{seen}; git log --format=%H {tip} >>{seen}"
        facts = host.integrate(
            {
                "repo_path": str(world.repo),
                "base_branch": None,
                "base_commit": rev(world.repo, "main"),
                "heads": [{"head_commit": tip, "method": "merge", "message": "x"}],
                "check": ["sh", "-c", script],
                "check_timeout": 60.0,
                "land": False,
                "scratch": "one",
            }
        )
    assert facts["check"] == {"ok": True, "output": ""}
    assert seen.read_text().splitlines() == ["evil", "evil", tip, rev(world.repo, "main")]
