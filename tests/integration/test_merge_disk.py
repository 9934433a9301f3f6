"""A full disk while pull requests are merged: the base stays, the reason is shown, and space is all it needs."""

from __future__ import annotations

import os

from tests.integration.merge_fixture import commit_main, entries, left_over, proposed, pull_of, rev
from tests.integration.review_fixture import refusal
from tests.integration.test_situations_disk import assert_clear, fill, own_mounts, small_disk
from tests.support import git_run
from tests.world import World

__all__ = ["own_mounts"]


def test_without_space_for_the_scratch_nothing_is_merged_and_nothing_lost(world: World) -> None:
    (world.repo / "heavy.bin").write_bytes(os.urandom(1 << 20))
    before = commit_main(world.repo, {"README.md": "heavy\n"})
    with world.open() as swarm, small_disk(world.home / "scratch"):
        works = [proposed(world, swarm, n) for n in (1, 2, 3)]
        for work in works[1:]:
            swarm.pulls.enqueue(work.id)
        filler = fill(world.home / "scratch", but=100_000)
        assert_clear(refusal(swarm.pulls.merge, works[0].id))
        assert swarm.pulls.run_queue() == 0
        remarks = {entry.detail for entry in entries(swarm).values()}
        assert len(remarks) == 1
        assert remarks.pop().endswith("]")
        assert rev(world.repo, "main") == before
        assert [pull_of(swarm, work).state for work in works] == ["open"] * 3
        filler.unlink()
        assert swarm.pulls.merge(works[0].id).state == "merged"
        assert swarm.pulls.run_queue() == 2
        assert left_over(world) == []
        git_run(world.repo, "fsck", "--no-progress")
