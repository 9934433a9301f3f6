"""What an agent writes into the shared repository changes neither what is merged nor what is seen of it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from swarm_core import git, proc
from swarm_core.errors import ExternalFailure, TimedOut
from swarm_core.git import sound
from swarm_core.hosts.environment import for_agents
from swarm_core.ops import doctor
from swarm_core.store import verdicts
from tests.integration.merge_fixture import (
    Check,
    check,
    commit_main,
    left_over,
    proposed,
    pull_of,
    put,
    rev,
)
from tests.integration.review_fixture import approve, code_of, commit, finished_work, refusal
from tests.support import git_run
from tests.world import World

__all__ = ["check"]

LINES = "a\nb\nc\nd\ne\n"


def disagreeing(world: World) -> tuple[dict[str, str], str]:
    """Files for a branch, and what a merge of them makes of `f`; main has changed another line of it."""
    commit_main(world.repo, {"f": LINES})
    return {"f": LINES.replace("e", "work")}, LINES.replace("a", "main").replace("e", "work")


def evil_driver(world: World, mark: Path) -> None:
    git_run(world.repo, "config", "merge.evil.driver", f"touch {mark}; echo evil >%A")


def attribute(world: World, line: str) -> None:
    (world.repo / ".git/info").mkdir(exist_ok=True)
    (world.repo / ".git/info/attributes").write_text(f"{line}\n")


# Merge drivers, attributes and filters of the repository


@pytest.mark.parametrize("method", ["merge", "squash", "rebase"])
@pytest.mark.parametrize("named_in", ["info", "tree", "config"])
def test_a_merge_driver_of_the_repository_neither_runs_nor_changes_what_is_merged(
    world: World, tmp_path: Path, method: str, named_in: str
) -> None:
    mark = tmp_path / "ran"
    files, merged = disagreeing(world)
    if named_in == "tree":
        commit_main(world.repo, {".gitattributes": "f merge=evil\n"})
    with world.open() as swarm:
        work = proposed(world, swarm, 1, files)
        commit_main(world.repo, {"f": LINES.replace("a", "main")})
        evil_driver(world, mark)
        if named_in == "info":
            attribute(world, "f merge=evil")
        if named_in == "config":
            git_run(world.repo, "config", "merge.default", "evil")
        swarm.pulls.merge(work.id, method=method)
        assert (git_run(world.repo, "show", "main:f") + "\n", mark.exists()) == (merged, False)
        assert left_over(world) == []


def test_attributes_of_the_repository_do_not_settle_a_conflict(world: World) -> None:
    commit_main(world.repo, {"f": LINES})
    with world.open() as swarm:
        work = proposed(world, swarm, 1, {"f": LINES.replace("a", "work")})
        commit_main(world.repo, {"f": LINES.replace("a", "main")})
        attribute(world, "f merge=union")
        assert not git.predict_merge(world.repo, "main", work.branch).clean
        assert code_of(swarm.pulls.merge, work.id) in {"MERGE_CONFLICT", "PULL_NOT_MERGEABLE"}


def test_attributes_that_the_base_has_committed_hold_for_a_merge(world: World) -> None:
    commit_main(world.repo, {"f": LINES, ".gitattributes": "f merge=union\n"})
    with world.open() as swarm:
        work = proposed(world, swarm, 1, {"f": LINES.replace("a", "work")})
        commit_main(world.repo, {"f": LINES.replace("a", "main")})
        swarm.pulls.merge(work.id)
        assert sorted(git_run(world.repo, "show", "main:f").split()) == ["b", "c", "d", "e", "main", "work"]


def test_a_merge_driver_does_not_make_unmerged_work_look_merged(world: World, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    commit_main(world.repo, {"f": LINES})
    with world.open() as swarm:
        work = proposed(world, swarm, 1, {"f": LINES.replace("e", "work")})
        commit_main(world.repo, {"f": LINES.replace("a", "main")})
        git_run(world.repo, "config", "merge.evil.driver", f"touch {mark}")
        attribute(world, "f merge=evil")
        assert not git.is_merged(world.repo, work.branch, "main")
        assert (pull_of(swarm, work).state, mark.exists()) == ("open", False)


def test_a_filter_of_the_repository_does_not_change_what_a_check_sees(
    world: World, check: Check, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    check.use(world, "grep -q evil made.txt && { echo evil; exit 1; }")
    with world.open() as swarm:
        work = proposed(world, swarm, 1, {"made.txt": "evil\n"})
        git_run(world.repo, "config", "filter.hide.smudge", f"touch {mark}; echo harmless")
        attribute(world, "made.txt filter=hide")
        assert code_of(swarm.pulls.merge, work.id) == "CHECK_FAILED"
        assert not mark.exists()


def test_who_a_person_is_in_the_repository_signs_the_merge(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        for name in ("NAME", "EMAIL"):
            for role in ("AUTHOR", "COMMITTER"):
                monkeypatch.delenv(f"GIT_{role}_{name}")
        git_run(world.repo, "config", "user.name", "Kim Local")
        git_run(world.repo, "config", "user.email", "kim@local.invalid")
        swarm.pulls.merge(work.id, method="merge")
        assert git_run(world.repo, "log", "-1", "--format=%cn <%ce>", "main") == "Kim Local <kim@local.invalid>"


# Objects that are not what their names say


def loose(repo: Path, name: str) -> Path:
    return repo / ".git/objects" / name[:2] / name[2:]


def forge(repo: Path, name: str, content: bytes) -> None:
    """Put other content into the file of an object; git reads it without a word."""
    kind = git_run(repo, "cat-file", "-t", name)
    path = loose(repo, name)
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(zlib.compress(b"%s %d\0" % (kind.encode(), len(content)) + content))


def forge_blob(repo: Path, branch: str, name: str = "made.txt", content: bytes = b"harmless\n") -> str:
    blob = git_run(repo, "rev-parse", f"{branch}:{name}")
    forge(repo, blob, content)
    assert git_run(repo, "cat-file", "blob", blob).encode() + b"\n" == content
    return blob


def test_a_forged_blob_is_neither_reviewed_nor_approved(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        commit(work, "made.txt", "evil\n")
        review = swarm.request_review(work.id)
        blob = forge_blob(world.repo, work.branch)
        refused = refusal(approve, swarm, review)
        assert (refused.code, refused.details["objects"]) == ("DAMAGED_OBJECTS", [blob])
        assert "fsck" in (refused.hint or "")
        options = {"title": "Make it", "description": "", "actor": review.id, "review_id": review.id}
        assert code_of(swarm.open_pull, work.id, **options) == "DAMAGED_OBJECTS"
        assert code_of(swarm.accept, work.id) == "DAMAGED_OBJECTS"
        other = finished_work(world, swarm)
        commit(other, "made.txt", "bad\n")
        forge_blob(world.repo, other.branch)
        assert code_of(swarm.request_review, other.id) == "DAMAGED_OBJECTS"
        assert swarm.find(other.id).status == "running"


@pytest.mark.parametrize("what", ["blob", "tree", "commit"])
def test_a_pull_request_with_a_forged_object_is_not_merged_and_the_doctor_names_it(
    world: World, check: Check, what: str
) -> None:
    check.use(world)
    with world.open() as swarm:
        work, good = proposed(world, swarm, 1, {"made.txt": "evil\n"}), proposed(world, swarm, 2)
        before, tip = rev(world.repo, "main"), rev(world.repo, work.branch)
        name = {"blob": f"{tip}:made.txt", "tree": f"{tip}^{{tree}}", "commit": tip}[what]
        found = rev(world.repo, name)
        content = {"blob": b"harmless\n", "tree": b"", "commit": commit_of(world.repo, tip, "main^{tree}")}[what]
        forge(world.repo, found, content)
        assert code_of(swarm.pulls.merge, work.id) == "DAMAGED_OBJECTS"
        assert code_of(swarm.pulls.merge, work.id, anyway="I know better") == "DAMAGED_OBJECTS"
        assert check.runs == 0
        [said] = [c for c in doctor.examine(swarm.context, fix=False) if c.name == "damaged objects"]
        assert (said.state, found in said.message) == ("fail", True)
        assert rev(world.repo, "main") == before
        for one in (work, good):
            swarm.pulls.enqueue(one.id)
        assert swarm.pulls.run_queue() == 1
        assert [pull_of(swarm, one).state for one in (work, good)] == ["open", "merged"]


def commit_of(repo: Path, commit: str, tree: str) -> bytes:
    """A commit with other files, as git stores it."""
    head, _, rest = git_run(repo, "cat-file", "commit", commit).partition("\n")
    assert head.startswith("tree ")
    return f"tree {rev(repo, tree)}\n{rest}\n".encode()


def test_an_object_that_is_forged_while_the_check_runs_does_not_land(world: World, check: Check) -> None:
    blob = git_run(world.repo, "hash-object", "-w", "--stdin", stdin=b"evil\n")
    forged, path = check.folder / "forged", loose(world.repo, blob)
    forged.write_bytes(zlib.compress(b"blob 9\0harmless\n"))
    check.use(world, f"rm -f {path}; cp {forged} {path}")
    with world.open() as swarm:
        work = proposed(world, swarm, 1, {"made.txt": "evil\n"})
        before = rev(world.repo, "main")
        assert code_of(swarm.pulls.merge, work.id) == "DAMAGED_OBJECTS"
        assert rev(world.repo, "main") == before


def test_a_forged_file_of_the_base_that_a_merge_would_mix_in_is_found(world: World) -> None:
    files, _ = disagreeing(world)
    with world.open() as swarm:
        work = proposed(world, swarm, 1, files)
        commit_main(world.repo, {"f": LINES.replace("a", "main")})
        before = rev(world.repo, "main")
        forge_blob(world.repo, "main", "f", LINES.replace("a", "evil").encode())
        assert code_of(swarm.pulls.merge, work.id) == "DAMAGED_OBJECTS"
        assert rev(world.repo, "main") == before


def entry(repo: Path, name: str, content: str) -> bytes:
    """A file of a tree, as git stores it."""
    blob = git_run(repo, "hash-object", "-w", "--stdin", stdin=content.encode())
    return b"100644 %s\0" % name.encode() + bytes.fromhex(blob)


@pytest.mark.parametrize("folder", ["", "sub/"])
def test_a_forged_tree_of_the_base_that_hides_a_change_is_found_while_the_base_stands_still(
    world: World, folder: str
) -> None:
    commit_main(world.repo, {f"{folder}f": "good\n"})
    with world.open() as swarm:
        work = proposed(world, swarm, 1, {f"{folder}f": "evil\n", f"{folder}g": "harmless\n"})
        before, tree = rev(world.repo, "main"), rev(world.repo, f"main:{folder}")
        forge(world.repo, tree, entry(world.repo, "f", "evil\n"))
        assert f"{folder}f" not in git_run(world.repo, "diff", "--name-only", "main", work.branch).split()
        refused = refusal(swarm.pulls.merge, work.id)
        assert (refused.code, tree in refused.details["objects"]) == ("DAMAGED_OBJECTS", True)
        assert rev(world.repo, "main") == before


def test_a_forged_file_that_git_leaves_out_because_of_a_forged_folder_is_found(
    world: World,
) -> None:
    commit_main(world.repo, {"sub/f": "good\n"})
    with world.open() as swarm:
        work = proposed(world, swarm, 1, {"made.txt": "evil\n"})
        put(world.repo, work.branch, {"made.txt": "good\n"})
        swarm.open_pull(work.id, title="Make it", description="")
        first = f"{work.branch}~1"
        forge(world.repo, rev(world.repo, "main:sub"), entry(world.repo, "f", "evil\n"))
        blob = forge_blob(world.repo, first)
        refused = refusal(swarm.pulls.merge, work.id, method="merge")
        assert (refused.code, blob in refused.details["objects"]) == ("DAMAGED_OBJECTS", True)


def test_a_file_name_that_looks_like_an_answer_of_git_hides_no_forged_file(world: World) -> None:
    files, _ = disagreeing(world)
    with world.open() as swarm:
        tree = rev(world.repo, "main^{tree}")
        asked = [r"\n".join([tree[:10]] * number) for number in range(10, 20)]
        named = {f'":0 0 {names} 0 A"': "made\n" for names in asked}
        work = proposed(world, swarm, 1, {**files, **named})
        commit_main(world.repo, {"f": LINES.replace("a", "main")})
        blob = forge_blob(world.repo, "main", "f", LINES.replace("a", "evil").encode())
        refused = refusal(swarm.pulls.merge, work.id)
        assert (refused.code, refused.details["objects"]) == ("DAMAGED_OBJECTS", [blob])


@pytest.mark.parametrize("folder", ["", "sub/"])
@pytest.mark.parametrize("what", ["missing", "garbage"])
def test_a_folder_that_git_cannot_read_is_named_and_stops_only_its_own_pull_request(
    world: World, check: Check, what: str, folder: str
) -> None:
    check.use(world)
    commit_main(world.repo, {f"{folder}f": LINES})
    with world.open() as swarm:
        work = proposed(world, swarm, 1, {f"{folder}f": LINES.replace("e", "work")})
        tree = rev(world.repo, f"main:{folder}")
        commit_main(world.repo, {f"{folder}f": LINES.replace("a", "main")})
        good = proposed(world, swarm, 2)
        forge(world.repo, tree, b"garbage")
        if what == "missing":
            loose(world.repo, tree).unlink()
        refused = refusal(swarm.pulls.merge, work.id)
        assert (refused.code, refused.details.get("objects")) == ("DAMAGED_OBJECTS", [tree])
        [said] = [c for c in doctor.examine(swarm.context, fix=False) if c.name == "damaged objects"]
        assert (said.state, tree in said.message) == ("fail", True)
        for one in (work, good):
            swarm.pulls.enqueue(one.id)
        assert swarm.pulls.run_queue() == 1
        assert [pull_of(swarm, one).state for one in (work, good)] == ["open", "merged"]


def slow_object(world: World) -> tuple[str, str]:
    """A base and a head with a file that git waits for."""
    base = commit_main(world.repo, {"f": "f\n"})
    head = put(world.repo, "slow", {"made.txt": "made\n", "more.txt": "more\n"}, start="refs/heads/main")
    path = loose(world.repo, rev(world.repo, "slow:made.txt"))
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    return base, head


def test_objects_that_were_not_read_in_time_are_not_called_damaged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, head = slow_object(world)
    monkeypatch.setattr(sound, "LONG_TIMEOUT", 0.1)
    with pytest.raises(TimedOut):
        sound.require_sound(world.repo, base, head)


def test_objects_are_not_called_damaged_because_git_was_killed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, head = slow_object(world)
    start = proc.start_pipes

    def start_and_kill(argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        process = start(argv, env=env)
        proc.end_group(process.pid)
        return process

    monkeypatch.setattr(proc, "start_pipes", start_and_kill)
    with pytest.raises(ExternalFailure, match="signal 9"):
        sound.require_sound(world.repo, base, head)


def many_files(world: World) -> tuple[str, str]:
    """A base and a head with many files, each object in a file of its own."""
    base = commit_main(world.repo, {"f": "f\n"})
    git_run(world.repo, "config", "fastimport.unpackLimit", "10000")
    files = {f"{number}.txt": f"{number}\n" * 9 for number in range(600)}
    return base, put(world.repo, "work", files, start="refs/heads/main")


def rewrite(repo: Path, name: str, data: bytes) -> None:
    loose(repo, name).unlink()
    loose(repo, name).write_bytes(data)


@pytest.mark.parametrize("content", [b"blob 99\0short\n", b"blob 6\0short\nand more\n"])
def test_an_object_with_another_size_than_it_says_is_the_only_one_that_is_named(
    world: World, content: bytes
) -> None:
    base, head = many_files(world)
    blob = rev(world.repo, "work:7.txt")
    rewrite(world.repo, blob, zlib.compress(content))
    assert sound.damaged(world.repo, base, head) == [blob]


def test_an_object_that_goes_on_with_an_answer_of_git_does_not_hide_a_forged_one(world: World) -> None:
    base, head = many_files(world)
    *_, sly, forged = sorted(git_run(world.repo, "ls-tree", "--object-only", "work").split())
    good, real = (git_run(world.repo, "cat-file", "blob", name).encode() + b"\n" for name in (sly, forged))
    answer = b"\n%s blob %d\n%s" % (forged.encode(), len(real), real)
    rewrite(world.repo, sly, zlib.compress(b"blob %d\0" % len(good) + good + answer))
    forge(world.repo, forged, b"harmless\n")
    assert forged in sound.damaged(world.repo, base, head)


def test_many_objects_that_git_complains_about_are_all_named(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sound, "LONG_TIMEOUT", 30.0)
    base, head = many_files(world)
    names = git_run(world.repo, "diff", "--raw", "--no-abbrev", base, head).splitlines()
    blobs = sorted(name.split()[3] for name in names)
    for blob in blobs:
        rewrite(world.repo, blob, b"garbage")
    assert sound.damaged(world.repo, base, head) == blobs


def test_a_history_that_a_shallow_file_cuts_off_is_found(world: World) -> None:
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        tip = put(world.repo, work.branch, {"more.txt": "more\n"})
        swarm.open_pull(work.id, title="Make it", description="")
        (world.repo / ".git/shallow").write_text(f"{tip}\n")
        assert git_run(world.repo, "rev-list", "--count", tip) == "1"
        assert code_of(swarm.pulls.merge, work.id) == "DAMAGED_OBJECTS"


def test_a_shallow_clone_merges(world: World, tmp_path: Path) -> None:
    commit_main(world.repo, {"f": LINES})
    full = tmp_path / "full"
    world.repo.rename(full)
    git_run(tmp_path, "clone", "-q", "--depth=1", full.as_uri(), str(world.repo))
    git_run(world.repo, "remote", "remove", "origin")
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        commit_main(world.repo, {"g": "g\n"})
        assert swarm.pulls.merge(work.id, method="merge").state == "merged"


# The commit graph


def hide_parent(repo: Path, commit: str, parent: str) -> None:
    """Write a commit graph which says that a commit has this parent."""
    git_run(repo, "commit-graph", "write", "--reachable")
    path = repo / ".git/objects/info/commit-graph"
    data = bytearray(path.read_bytes())
    chunks = {}
    for number in range(data[6]):
        entry = data[8 + 12 * number : 20 + 12 * number]
        chunks[bytes(entry[:4])] = int.from_bytes(entry[4:], "big")
    count = int.from_bytes(data[chunks[b"OIDF"] + 4 * 255 :][:4], "big")
    names = [data[chunks[b"OIDL"] + 20 * n :][:20].hex() for n in range(count)]
    at = chunks[b"CDAT"] + 36 * names.index(commit) + 20
    data[at : at + 4] = names.index(parent).to_bytes(4, "big")
    data[-20:] = hashlib.sha1(data[:-20], usedforsecurity=False).digest()
    path.unlink()
    path.write_bytes(data)


def test_a_forged_commit_graph_hides_no_commit(world: World) -> None:
    """Not from a merge, and not from the git of a reviewer."""
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        refused = pull_of(swarm, work).head_commit
        other = proposed(world, swarm, 2)
        git_run(world.repo, "update-ref", f"refs/heads/{other.branch}", refused)
        middle = put(world.repo, other.branch, {"middle.txt": "middle\n"})
        tip = put(world.repo, other.branch, {"top.txt": "top\n"})
        hide_parent(world.repo, middle, rev(world.repo, "main"))
        listing = ["git", "-C", str(world.repo), "rev-list", "--count", f"main..{tip}"]
        assert subprocess.run(listing, capture_output=True, text=True, check=True).stdout == "2\n"
        env = for_agents(os.environ)
        assert subprocess.run(listing, env=env, capture_output=True, text=True, check=True).stdout == "3\n"
        swarm.open_pull(other.id, title="On top", description="")
        with swarm.context.db.write():
            verdicts.add(swarm.context.db, work.id, refused, "needs_work", by="kim")
        assert code_of(swarm.pulls.merge, other.id) == "PULL_NOT_MERGEABLE"


# What was checked is what lands

# A merge that is made again in the next second is another commit.
NEXT_SECOND = "until [ $(date +%s) -gt $(git log -1 --format=%ct) ]; do :; done"


@pytest.mark.parametrize("anyway", [None, "I have read it"])
def test_the_commit_that_was_checked_is_the_one_that_lands(world: World, check: Check, anyway: str | None) -> None:
    seen = check.folder / "seen"
    files, _ = disagreeing(world)
    check.use(world, f"git rev-parse HEAD HEAD^{{tree}} >{seen}", NEXT_SECOND)
    with world.open() as swarm:
        work = proposed(world, swarm, 1, files)
        commit_main(world.repo, {"f": LINES.replace("a", "main")})
        if anyway:
            with swarm.context.db.write():
                verdicts.add(swarm.context.db, work.id, pull_of(swarm, work).head_commit, "needs_work", by="kim")
        swarm.pulls.merge(work.id, method="merge", anyway=anyway)
        checked, tree = seen.read_text().split()
        assert rev(world.repo, "main^{tree}") == tree
        if anyway is None:
            assert rev(world.repo, "main") == checked
        else:
            assert f"Merged-anyway: {anyway}" in git_run(world.repo, "log", "-1", "--format=%B", "main")
            kept = "--format=%P %an %ae %at %cn %ce %ct"
            assert git_run(world.repo, "log", "-1", kept, "main") == git_run(
                world.repo, "log", "-1", kept, checked
            )


def test_the_commits_that_the_queue_checked_are_those_that_land(world: World, check: Check) -> None:
    seen = check.folder / "seen"
    check.use(world, f"git rev-parse HEAD >{seen}", NEXT_SECOND)
    with world.open() as swarm:
        for number in (1, 2):
            swarm.pulls.enqueue(proposed(world, swarm, number).id)
        assert swarm.pulls.run_queue() == 2
        assert rev(world.repo, "main") == seen.read_text().strip()
