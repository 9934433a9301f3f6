"""What was preserved is on disk when it is said, and reads back from the repository."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from swarm_core import git
from swarm_core.errors import Conflict
from tests.preserving import REF, Bench, fingerprint
from tests.support import git_run, make_repo
from tests.survival.moments import Child, Moment, Outcome


@pytest.fixture
def bench(repo: Path, tmp_path: Path) -> Bench:
    return Bench(repo, tmp_path)


def work(bench: Bench) -> git.Preserved:
    for number in range(200):
        (bench.path / f"new-{number}").write_text(f"content {number}\n")
    make_repo(bench.path / "inner")
    return bench.preserve()


def test_what_was_preserved_reads_back_also_after_git_repacked_it(bench: Bench) -> None:
    preserved = work(bench)
    git.verify_preserved(bench.repo, preserved)
    git_run(bench.repo, "gc", "-q")
    assert not (bench.repo / ".git" / "objects" / "pack" / preserved.pack).exists()
    git.verify_preserved(bench.repo, preserved)


def pack_of(bench: Bench, preserved: git.Preserved) -> Path:
    return bench.repo / ".git" / "objects" / "pack" / preserved.pack


def lose_the_pack(bench: Bench, preserved: git.Preserved) -> git.Preserved:
    pack_of(bench, preserved).unlink()
    return preserved


def lose_one_object(bench: Bench, preserved: git.Preserved) -> git.Preserved:
    content = pack_of(bench, preserved).read_bytes()
    for file in pack_of(bench, preserved).parent.glob(f"{pack_of(bench, preserved).stem}.*"):
        file.unlink()
    git_run(bench.repo, "unpack-objects", "-q", stdin=content)
    blob = git_run(bench.repo, "rev-parse", f"{preserved.commit}:new-7")
    (bench.repo / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    return preserved


def damage_a_byte(bench: Bench, preserved: git.Preserved) -> git.Preserved:
    pack = pack_of(bench, preserved)
    content = bytearray(pack.read_bytes())
    content[len(content) // 2] ^= 0xFF
    pack.chmod(0o644)
    pack.write_bytes(bytes(content))
    return preserved


def move_the_ref(bench: Bench, preserved: git.Preserved) -> git.Preserved:
    git_run(bench.repo, "update-ref", REF, "main")
    return preserved


def delete_the_ref(bench: Bench, preserved: git.Preserved) -> git.Preserved:
    git_run(bench.repo, "update-ref", "-d", REF)
    return preserved


def count_another_file(bench: Bench, preserved: git.Preserved) -> git.Preserved:
    return replace(preserved, files=preserved.files + 1)


def count_another_byte(bench: Bench, preserved: git.Preserved) -> git.Preserved:
    return replace(preserved, bytes=preserved.bytes + 1)


@pytest.mark.parametrize(
    "spoil",
    [
        *(lose_the_pack, lose_one_object, damage_a_byte, move_the_ref, delete_the_ref),
        *(count_another_file, count_another_byte),
    ],
)
def test_a_store_that_lost_something_is_noticed(
    bench: Bench, spoil: Callable[[Bench, git.Preserved], git.Preserved]
) -> None:
    preserved = spoil(bench, work(bench))
    with pytest.raises(Conflict) as caught:
        git.verify_preserved(bench.repo, preserved)
    assert caught.value.code == "WORK_NOT_STORED"


def test_a_preserved_ref_in_another_repository_is_noticed(bench: Bench, tmp_path: Path) -> None:
    preserved = work(bench)
    with pytest.raises(Conflict):
        git.verify_preserved(make_repo(tmp_path / "another"), preserved)


def test_pack_and_ref_are_synced_to_disk_and_not_file_by_file(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(300):
        (bench.path / f"new-{number}").write_text(f"content {number}\n")
    trace = tmp_path / "trace"
    monkeypatch.setenv("GIT_TRACE2_EVENT", str(trace))
    git.preserve(bench.path, ref=REF, message="x")
    monkeypatch.delenv("GIT_TRACE2_EVENT")
    synced: dict[str, int] = {}
    commands: dict[str, str] = {}
    for line in trace.read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "cmd_name":
            commands[event["sid"]] = event["name"]
        if (
            event["event"] == "data"
            and event.get("category") == "fsync"
            and event["key"] == "fsync/hardware-flush"
        ):
            name = commands[event["sid"]]
            synced[name] = synced.get(name, 0) + int(event["value"])
    assert synced.get("update-ref", 0) >= 1
    assert 2 <= synced.get("pack-objects", 0) < 10
    assert sum(synced.values()) < 20


def left_behind(repo: Path) -> list[Path]:
    objects = repo / ".git" / "objects"
    return [place for pattern in ("tmp_*", "swarm-*", "pack/*.keep") for place in objects.glob(pattern)]


def test_a_preserve_leaves_no_quarantine_behind(bench: Bench) -> None:
    work(bench)
    assert left_behind(bench.repo) == []


Preserving = Callable[[Moment], Child]


@pytest.fixture
def preserving(bench: Bench) -> Iterator[Preserving]:
    """Start a preserve of one new file in a process of its own, and wait until it is held at the moment."""
    started: list[Child] = []

    def work() -> Outcome:
        git.preserve(bench.path, ref=REF, message="x")
        return Outcome("done")

    def start(moment: Moment) -> Child:
        (bench.path / "new.txt").write_text("only copy\n")
        started.append(Child(work, moment))
        assert started[-1].wait_moment()
        return started[-1]

    yield start
    for child in started:
        with contextlib.suppress(ChildProcessError):  # it has ended, as it should
            if os.waitpid(child.pid, os.WNOHANG) == (0, 0):
                child.kill()


@pytest.mark.parametrize("before", ["update-ref", "pack-objects", "rev-list", "commit-tree", "write-tree"])
def test_pruning_while_work_is_being_stored_takes_nothing_away(
    bench: Bench, preserving: Preserving, before: str
) -> None:
    git_run(bench.path, "hash-object", "-w", "--stdin", stdin=b"only copy\n")  # known, and reachable from nowhere
    child = preserving(Moment(before, 1))
    git_run(bench.repo, "gc", "-q", "--prune=now")
    child.let_go()
    assert child.end() == Outcome("done")
    git_run(bench.repo, "gc", "-q", "--prune=now")
    assert git_run(bench.repo, "show", f"{REF}:new.txt") == "only copy"
    assert left_behind(bench.repo) == []


def test_a_pack_is_kept_before_git_can_see_it_and_until_its_ref_is_written(
    bench: Bench, preserving: Preserving
) -> None:
    """Otherwise a `git gc` that has read the refs already would delete it after it was read back."""
    child = preserving(Moment("update-ref", 1))
    packs = [place.stem for place in (bench.repo / ".git" / "objects" / "pack").glob("*.pack")]
    kept = [place.stem for place in (bench.repo / ".git" / "objects" / "pack").glob("*.keep")]
    assert packs
    assert kept == packs
    child.let_go()
    assert child.end() == Outcome("done")


@pytest.mark.parametrize("before", ["update-ref", "pack-objects"])
def test_what_a_killed_preserve_leaves_goes_with_the_next_one_but_not_what_another_uses(
    bench: Bench, preserving: Preserving, before: str
) -> None:
    mine = bench.repo / ".git" / "objects" / "pack" / f"pack-{'0' * 40}.keep"
    mine.write_text("mine\n")
    preserving(Moment(before, 1)).kill()
    assert left_behind(bench.repo) != [mine]
    running = preserving(Moment("update-ref", 1))
    used = set(left_behind(bench.repo))
    bench.run("worktree", "add", "-q", "--detach", str(bench.repo.parent / "other"))
    (bench.repo.parent / "other" / "notes.txt").write_text("another\n")
    git.preserve(bench.repo.parent / "other", ref=f"{REF}-other", message="x")
    assert set(left_behind(bench.repo)) == used
    running.let_go()
    assert running.end() == Outcome("done")
    assert left_behind(bench.repo) == [mine]


def test_work_stored_by_an_older_version_comes_back(bench: Bench) -> None:
    """Repositories inside were once fetched under refs/swarm/modules, each with its snapshot."""
    inner = make_repo(bench.path / "inner")
    git_run(inner, "branch", "another")
    head = git_run(inner, "rev-parse", "HEAD")
    (inner / "README.md").write_text("edited\n")
    files = fingerprint(bench.path)
    git_run(inner, "add", "-A")
    tree = git_run(inner, "write-tree")
    git_run(inner, "reset", "-q")
    record = {"head": head, "branch": "main", "index": None, "nested": []}
    snapshot = git_run(inner, "commit-tree", tree, "-p", head, "-m", f"x\n\nSwarm-Record: {json.dumps(record)}")
    git_run(inner, "update-ref", "refs/old/snapshot", snapshot)
    modules = f"refs/swarm/modules/{REF.removeprefix('refs/swarm/preserved/')}/0"
    kept = [f"refs/old/snapshot:{modules}/snapshot", f"refs/heads/*:{modules}/heads/*"]
    git_run(bench.repo, "-c", "protocol.file.allow=always", "fetch", "-q", str(inner), *kept)
    nested = {"path": "inner", "number": 0, "url": None, "head": head, "branch": "main", "submodule": False}
    outer = git_run(bench.repo, "rev-parse", "b")
    record = {"head": outer, "branch": "b", "index": None, "nested": [nested]}
    made = git_run(
        bench.repo, "commit-tree", "b^{tree}", "-p", "b", "-m", f"x\n\nSwarm-Record: {json.dumps(record)}"
    )
    git_run(bench.repo, "update-ref", REF, made)
    bench.replace_worktree()
    for _ in range(2):
        git.restore(bench.path, ref=REF)
        assert fingerprint(bench.path) == files
    assert git.branches(inner) == {"main", "another"}


# Refs that are all that keeps the commits of a branch when it goes


def can_trace() -> bool:
    program = shutil.which("strace")
    return program is not None and subprocess.run([program, "-qq", "true"], capture_output=True).returncode == 0


_DELETE = """
import sys
from pathlib import Path
from swarm_core.git import retire

kind, repo, tip, lock = sys.argv[1:]
if kind == "merged":
    gone = retire.retire_branch(repo, "gone", tip, ref="refs/swarm/merged/x", lock=Path(lock))
else:
    gone = retire.delete_branch(repo, "gone", lock=Path(lock))
sys.exit(0 if gone else 1)
"""


@pytest.mark.skipif(not can_trace(), reason="strace is not installed or may not trace")
@pytest.mark.parametrize("kind", ["held", "logged", "merged", "other branch"])
def test_what_keeps_the_commits_of_a_branch_is_on_disk_before_the_branch_goes(
    repo: Path, tmp_path: Path, kind: str
) -> None:
    tip = git_run(repo, "commit-tree", "-m", "only here", "-p", "HEAD", "HEAD^{tree}")
    git_run(repo, "branch", "gone", tip)
    if kind == "held":
        git_run(repo, "tag", "seen", tip)
    if kind == "logged":
        git_run(repo, "update-ref", "refs/heads/gone", "main")
    if kind == "other branch":
        git_run(repo, "branch", "other", tip)
    trace = tmp_path / "trace"
    calls = "trace=fsync,rename,link,unlink,renameat,renameat2,unlinkat"
    program = [
        sys.executable,
        "-c",
        _DELETE,
        kind,
        str(repo),
        git_run(repo, "rev-parse", "gone"),
        str(tmp_path / "lock"),
    ]
    argv = ["strace", "-f", "-y", "-e", calls, "-o", str(trace), *program]
    subprocess.run(argv, check=True, timeout=60, cwd=Path(__file__).parents[2])
    lines = trace.read_text().splitlines()
    gone = next(n for n, line in enumerate(lines) if re.search(r'unlink.*"[^"]*refs/heads/gone"', line))
    synced = {
        found[1]: n for n, line in enumerate(lines[:gone]) if (found := re.search(r"fsync\(\d+<([^>]*)>", line))
    }
    ref = git_run(repo, "for-each-ref", "--format=%(refname)", "refs/swarm", "refs/heads/other")
    place = repo / ".git" / ref
    assert all(str(one) in synced for one in (place, place.parent, repo / ".git/refs"))
    if kind != "other branch":
        renamed = next(n for n, line in enumerate(lines) if re.search(rf'rename.*"[^"]*{ref}"', line))
        assert renamed < synced[str(place.parent)] < gone
        assert synced[f"{place}.lock"] < renamed
    if kind == "logged":
        oid = git_run(repo, "rev-parse", ref)
        written = repo / ".git/objects" / oid[:2]
        assert all(str(one) in synced for one in (written, written / oid[2:], written.parent))
