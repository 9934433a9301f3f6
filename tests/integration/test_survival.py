"""What must survive: sequences that have lost work once, random ones, and that a loss would be noticed at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import git_run
from tests.survival import inventory
from tests.survival.stories import STORIES

SEED = int(os.environ.get("SURVIVAL_SEED", "20261118"))


def model(*options: str, timeout: float) -> str:
    """Run the model in a process of its own: it forks, and this one has threads."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.survival", *options],
        capture_output=True,
        check=False,
        timeout=timeout,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    said = done.stdout.decode(errors="replace")
    again = f"python -m tests.survival {' '.join(options)}"
    assert done.returncode == 0, f"{again}\n{said[-20_000:]}\n{done.stderr.decode(errors='replace')[-20_000:]}"
    return said


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", STORIES)
def test_a_sequence_that_has_lost_work_once_loses_nothing(name: str) -> None:
    model("--replay", name, timeout=280)


@pytest.mark.timeout(500)
@pytest.mark.parametrize("seed", [SEED, SEED + 1000])
def test_random_work_of_agents_against_every_operation_loses_nothing(seed: int) -> None:
    figures = json.loads(model("--sequences", "40", "--seed", str(seed), "--json", timeout=480))
    assert figures["sequences"] >= 40
    assert figures["outcomes"]["killed"] > 0
    assert not figures["unforeseen"], json.dumps(figures["unforeseen"])


@pytest.mark.timeout(500)
def test_random_work_of_scripted_agents_against_the_real_command_loses_nothing() -> None:
    options = ("--layer", "full", "--sequences", "4", "--steps", "6", "--seed", str(SEED))
    figures = json.loads(model(*options, "--json", timeout=480))
    assert figures["sequences"] >= 4
    assert figures["outcomes"]["done"] > 0


# The oracle itself: what it counts, and what it does not


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def untracked(tree: Path) -> Callable[[], object]:
    write(tree / "new\nname", "untracked")
    return (tree / "new\nname").unlink


def staged(tree: Path) -> Callable[[], object]:
    write(tree / "README.md", "staged")
    git_run(tree, "add", "-A")
    write(tree / "README.md", "# A project\n")
    return lambda: git_run(tree, "reset", "-q")


def older_stash(tree: Path) -> Callable[[], object]:
    for text in ("one", "two"):
        write(tree / "README.md", text)
        git_run(tree, "stash")
    return lambda: git_run(tree, "stash", "drop", "stash@{1}")


def reset_away(tree: Path) -> Callable[[], object]:
    git_run(tree, "commit", "-q", "--allow-empty", "-m", "left")
    git_run(tree, "reset", "-q", "--hard", "HEAD~1")

    def forget() -> None:
        (Path(git_run(tree, "rev-parse", "--absolute-git-dir")) / "ORIG_HEAD").unlink()
        git_run(tree, "reflog", "expire", "--expire=now", "--all")

    return forget


def worktree_ref(tree: Path) -> Callable[[], object]:
    blob = git_run(tree, "hash-object", "-w", "--stdin", stdin=b"private")
    git_run(tree, "update-ref", "refs/worktree/x", blob)
    return lambda: git_run(tree, "update-ref", "-d", "refs/worktree/x")


def nested_commit(tree: Path) -> Callable[[], object]:
    (tree / "nested").mkdir()
    git_run(tree / "nested", "init", "-q")
    git_run(tree / "nested", "commit", "-q", "--allow-empty", "-m", "inside")
    return lambda: (tree / "nested" / ".git").rename(tree.parent / "gone")


def tracked_and_ignored(tree: Path) -> Callable[[], object]:
    write(tree / "secret", "tracked")
    git_run(tree, "add", "-A")
    git_run(tree, "commit", "-q", "-m", "secret")
    write(tree / ".gitignore", "secret\n")
    write(tree / "secret", "changed")
    (Path(git_run(tree, "rev-parse", "--absolute-git-dir")) / "index").unlink()
    return (tree / "secret").unlink


@pytest.mark.parametrize(
    "make", [untracked, staged, older_stash, reset_away, worktree_ref, nested_commit, tracked_and_ignored]
)
def test_the_model_notices_that_something_is_gone(
    repo: Path, tmp_path: Path, make: Callable[[Path], Callable[[], object]]
) -> None:
    tree = tmp_path / "tree"
    git_run(repo, "worktree", "add", "-q", "-b", "work", str(tree))
    destroy = make(tree)
    before = inventory.take(repo, tmp_path / "home")
    assert before.lost_in(inventory.take(repo, tmp_path / "home")) == {}
    destroy()
    assert before.lost_in(inventory.take(repo, tmp_path / "home")) != {}


def test_the_model_reads_a_submodule_whose_files_are_elsewhere_at_the_moment(repo: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    git_run(repo, "worktree", "add", "-q", "-b", "work", str(tree))
    git_run(repo, "clone", "-q", "--bare", str(repo), str(tmp_path / "library"))
    allow = ("-c", "protocol.file.allow=always")
    git_run(tree, *allow, "submodule", "--quiet", "add", str(tmp_path / "library"), "sub")
    git_run(tree / "sub", "commit", "-q", "--allow-empty", "-m", "only here")
    inside = git_run(tree / "sub", "rev-parse", "HEAD")
    tree.rename(tmp_path / "moved")
    assert inside in inventory.take(repo, tmp_path / "home", tmp_path / "moved").kept


def test_ignored_files_may_go_only_together_with_their_worktree(repo: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    git_run(repo, "worktree", "add", "-q", "-b", "work", str(tree))
    write(tree / ".gitignore", "*.log\n")
    git_run(tree, "add", "-A")
    git_run(tree, "commit", "-q", "-m", "ignore")
    write(tree / "debug.log", "ignored")
    before = inventory.take(repo, tmp_path / "home")
    (tree / "debug.log").unlink()
    assert len(before.lost_in(inventory.take(repo, tmp_path / "home"))) == 1
    git_run(repo, "worktree", "remove", "--force", str(tree))
    assert before.lost_in(inventory.take(repo, tmp_path / "home")) == {}
