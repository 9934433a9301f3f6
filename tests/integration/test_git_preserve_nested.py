"""Repositories and worktrees inside a worktree are stored with everything in them, and come back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from swarm_core import git
from tests.preserving import REF, Bench, commit_files, fingerprint, holds, is_held
from tests.support import git_run, make_repo


@pytest.fixture
def bench(repo: Path, tmp_path: Path) -> Bench:
    return Bench(repo, tmp_path)


def everything(inner: Path) -> tuple[str, str, str, str]:
    return (
        git_run(inner, "for-each-ref"),
        git_run(inner, "stash", "list", "--format=%H"),
        git_run(inner, "reflog", "--format=%H"),
        git_run(inner, "status", "--porcelain"),
    )


def stash(inner: Path, content: str) -> str:
    (inner / "README.md").write_text(content)
    git_run(inner, "stash", "-q")
    return git_run(inner, "rev-parse", "refs/stash")


def test_a_nested_repository_comes_back_with_every_ref_stash_and_reflog(bench: Bench) -> None:
    inner = make_repo(bench.path / "inner")
    stashes = [stash(inner, f"stash {number}\n") for number in range(3)]
    for name in ("refs/notes/mine", "refs/custom/deep/one", "refs/worktree/here"):
        git_run(inner, "update-ref", name, git_run(inner, "commit-tree", "HEAD^{tree}", "-m", name))
    git_run(inner, "tag", "-a", "-m", "annotated", "v1")
    (inner / "more.txt").write_text("thrown away\n")
    git_run(inner, "add", "-A")
    git_run(inner, "commit", "-q", "-m", "thrown away")
    git_run(inner, "reset", "-q", "--hard", "HEAD~1")
    git_run(inner, "commit", "-q", "--allow-empty", "-m", "on a detached head")
    git_run(inner, "checkout", "-q", "--detach")
    (inner / "README.md").write_text("staged\n")
    git_run(inner, "add", "-A")
    (inner / "README.md").write_text("not staged\n")
    before, files = everything(inner), fingerprint(bench.path)
    bench.preserve()
    bench.replace_worktree()
    git_run(bench.repo, "gc", "-q", "--prune=now")
    assert all(is_held(bench.repo, commit) for commit in stashes)
    assert holds(bench.repo, b"thrown away\n")
    assert holds(bench.repo, b"staged\n")
    for _ in range(2):
        git.restore(bench.path, ref=REF)
        assert everything(inner) == before
        assert fingerprint(bench.path) == files
    git_run(inner, "fsck", "--strict")
    assert git_run(inner, "cat-file", "-t", "v1") == "tag"


def test_a_conflict_inside_a_nested_repository_comes_back(bench: Bench) -> None:
    inner = make_repo(bench.path / "inner")
    git_run(inner, "checkout", "-q", "-b", "other")
    (inner / "README.md").write_text("other\n")
    git_run(inner, "commit", "-q", "-am", "other")
    git_run(inner, "checkout", "-q", "main")
    (inner / "README.md").write_text("main\n")
    git_run(inner, "commit", "-q", "-am", "main")
    with pytest.raises(AssertionError):
        git_run(inner, "merge", "other")
    stages = git_run(inner, "ls-files", "--stage")
    bench.preserve()
    bench.replace_worktree()
    git.restore(bench.path, ref=REF)
    assert git_run(inner, "ls-files", "--stage") == stages
    assert (inner / ".git" / "MERGE_HEAD").is_file()


def test_a_repository_without_commits_and_one_among_tracked_files_come_back(bench: Bench) -> None:
    git_run(bench.path, "init", "-q", "-b", "main", "unborn")
    (bench.path / "unborn" / "first").write_text("first\n")
    git_run(bench.path / "src", "init", "-q", "-b", "main")
    git_run(bench.path / "src", "add", "-A")
    git_run(bench.path / "src", "commit", "-q", "-m", "inside a tracked folder")
    made = git_run(bench.path / "src", "rev-parse", "HEAD")
    files = fingerprint(bench.path)
    bench.preserve()
    assert is_held(bench.repo, made)
    bench.replace_worktree()
    git.restore(bench.path, ref=REF)
    assert fingerprint(bench.path) == files
    assert git_run(bench.path / "src", "rev-parse", "HEAD") == made
    assert (bench.path / "unborn" / ".git" / "HEAD").is_file()


def test_a_linked_worktree_of_a_nested_repository_comes_back(bench: Bench) -> None:
    inner = make_repo(bench.path / "inner")
    git_run(inner, "worktree", "add", "-q", "-b", "side", str(bench.path / "side"))
    (bench.path / "side" / "new").write_text("beside\n")
    git_run(bench.path / "side", "add", "-A")
    git_run(bench.path / "side", "stash", "-q")
    (bench.path / "side" / "loose").write_text("loose\n")
    before, files = everything(bench.path / "side"), fingerprint(bench.path)
    bench.preserve()
    bench.replace_worktree()
    git.restore(bench.path, ref=REF)
    assert everything(bench.path / "side") == before
    assert fingerprint(bench.path) == files


def shallow(bench: Bench, tmp_path: Path) -> Path:
    origin = make_repo(tmp_path / "origin")
    git_run(origin, "commit", "-q", "--allow-empty", "-m", "second")
    git_run(bench.path, "clone", "-q", "--depth=1", f"file://{origin}", "inner")
    return bench.path / "inner"


def sha256(bench: Bench, tmp_path: Path) -> Path:
    inner = bench.path / "inner"
    git_run(bench.path, "init", "-q", "--object-format=sha256", "-b", "main", "inner")
    commit_files(inner, {"README.md": b"other hashes\n"})
    return inner


def damaged(bench: Bench, tmp_path: Path) -> Path:
    inner = make_repo(bench.path / "inner")
    blob = git_run(inner, "rev-parse", "HEAD:src/app.py")
    (inner / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    return inner


@pytest.mark.parametrize("make", [shallow, sha256, damaged])
def test_repositories_whose_commits_cannot_be_taken_over_come_back_byte_for_byte(
    bench: Bench, tmp_path: Path, make
) -> None:
    inner = make(bench, tmp_path)
    (inner / "README.md").write_text("edited\n")
    git_run(inner, "commit", "-q", "-am", "edited")
    (inner / "loose").write_text("loose\n")
    before, files = everything(inner), fingerprint(bench.path)
    bench.preserve()
    git_run(bench.repo, "fsck")
    assert not (bench.repo / ".git" / "shallow").exists()
    bench.replace_worktree()
    git.restore(bench.path, ref=REF)
    assert everything(inner) == before
    assert fingerprint(bench.path) == files


def test_a_repository_in_an_ignored_folder_is_stored_for_its_own_commits_alone(repo: Path, tmp_path: Path) -> None:
    commit_files(repo, {".gitignore": b"ignored/\n"})
    bench = Bench(repo, tmp_path)
    origin = make_repo(tmp_path / "origin")
    (bench.path / "ignored").mkdir()
    git_run(bench.path / "ignored", "clone", "-q", str(origin), "clone")
    (bench.path / "ignored" / "clone" / "scratch").write_text("scratch\n")
    assert git.preserve(bench.path, ref=REF, message="x") is None
    (bench.path / "ignored" / "clone" / "README.md").write_text("committed\n")
    git_run(bench.path / "ignored" / "clone", "commit", "-q", "-am", "local")
    bench.preserve()
    assert holds(bench.repo, b"committed\n")


def committed_into(git_dir: Path, content: bytes) -> str:
    """A commit on `main` of a repository without files."""
    git_run(git_dir.parent, "init", "-q", "--bare", "-b", "main", str(git_dir))
    blob = git_run(git_dir, "hash-object", "-w", "--stdin", stdin=content)
    tree = git_run(git_dir, "mktree", stdin=f"100644 blob {blob}\tfile\n".encode())
    commit = git_run(git_dir, "commit-tree", tree, "-m", "only here")
    git_run(git_dir, "update-ref", "refs/heads/main", commit)
    return commit


@pytest.mark.parametrize("place", ["ignored/deep/bare.git", "bare.git", "modules", "inner/bare.git"])
def test_a_bare_repository_of_which_git_ignores_anything_comes_back(
    repo: Path, tmp_path: Path, place: str
) -> None:
    commit_files(repo, {".gitignore": b"ignored/\npacked-refs\nobjects/\n"})
    bench = Bench(repo, tmp_path)
    if place.startswith("inner"):
        make_repo(bench.path / "inner")
    git_dir = bench.path / place
    git_dir.parent.mkdir(parents=True, exist_ok=True)
    commit = committed_into(git_dir, b"bare\n")
    git_run(git_dir, "pack-refs", "--all")
    bench.preserve()
    bench.replace_worktree()
    assert not git_dir.exists()
    for _ in range(2):
        git.restore(bench.path, ref=REF)
        assert git_run(git_dir, "rev-parse", "main") == commit
    assert git_run(git_dir, "show", "main:file") == "bare"
    git_run(git_dir, "fsck", "--strict")


def test_a_repository_whose_git_folder_is_in_an_ignored_folder_comes_back(repo: Path, tmp_path: Path) -> None:
    commit_files(repo, {".gitignore": b"ignored/\n"})
    bench = Bench(repo, tmp_path)
    (bench.path / "ignored").mkdir()
    inner = bench.path / "inner"
    git_run(bench.path, "init", "-q", f"--separate-git-dir={bench.path / 'ignored' / 'store'}", str(inner))
    commit_files(inner, {"file": b"committed\n"})
    (inner / "file").write_text("staged\n")
    git_run(inner, "add", "-A")
    (inner / "file").write_text("not staged\n")
    before, files = everything(inner), fingerprint(inner)
    bench.remove()
    [ref] = git_run(bench.repo, "for-each-ref", "--format=%(refname)", "refs/swarm/preserved").split()
    git.attach_worktree(bench.repo, bench.path, branch="b", lock=bench.lock)
    for _ in range(2):
        git.restore(bench.path, ref=ref)
        assert everything(inner) == before
        assert fingerprint(inner) == files


def test_a_bare_repository_without_commits_of_its_own_in_an_ignored_folder_is_not_stored(
    repo: Path, tmp_path: Path
) -> None:
    commit_files(repo, {".gitignore": b"ignored/\n"})
    bench = Bench(repo, tmp_path)
    (bench.path / "ignored").mkdir()
    git_run(bench.path, "init", "-q", "--bare", "ignored/bare.git")
    assert git.preserve(bench.path, ref=REF, message="x") is None


def test_repositories_inside_a_linked_worktree_come_back_with_it(repo: Path, tmp_path: Path) -> None:
    commit_files(repo, {".gitignore": b"ignored/\n"})
    bench = Bench(repo, tmp_path)
    bench.run("worktree", "add", "-q", "-b", "inner", str(bench.path / "sub"))
    (bench.path / "sub" / "new").write_text("new\n")
    nested = make_repo(bench.path / "sub" / "nested")
    (bench.path / "sub" / "ignored").mkdir()
    commit = committed_into(bench.path / "sub" / "ignored" / "bare.git", b"bare\n")
    before = everything(nested)
    bench.preserve()
    bench.replace_worktree()
    for _ in range(2):
        git.restore(bench.path, ref=REF)
        assert everything(nested) == before
        assert (bench.path / "sub" / "new").read_text() == "new\n"
        assert git_run(bench.path / "sub" / "ignored" / "bare.git", "rev-parse", "main") == commit


def stage_alone(outside: Path) -> None:
    (outside / "new.txt").write_text("only here\n")
    git_run(outside, "add", "-A")
    (outside / "new.txt").unlink()


def refer_alone(outside: Path) -> None:
    blob = git_run(outside, "hash-object", "-w", "--stdin", stdin=b"only here\n")
    git_run(outside, "update-ref", "refs/worktree/x", blob)


@pytest.mark.parametrize("use", [stage_alone, refer_alone])
@pytest.mark.parametrize("folder", [True, False])
def test_what_a_worktree_elsewhere_has_in_a_submodule_is_stored_with_the_submodule(
    repo: Path, tmp_path: Path, use: Callable[[Path], None], folder: bool
) -> None:
    make_repo(tmp_path / "library")
    git_run(repo, "-c", "protocol.file.allow=always", "submodule", "-q", "add", str(tmp_path / "library"), "lib")
    git_run(repo, "commit", "-q", "-m", "submodule")
    bench = Bench(repo, tmp_path)
    bench.run("submodule", "-q", "update", "--init")
    git_run(bench.path / "lib", "worktree", "add", "-q", "--detach", str(tmp_path / "outside"))
    use(tmp_path / "outside")
    if not folder:
        bench.run("submodule", "-q", "deinit", "-f", "lib")
    bench.remove()
    assert holds(bench.repo, b"only here\n")


@pytest.mark.parametrize("ignored", [True, False])
def test_a_linked_worktree_inside_a_worktree_is_stored_and_comes_back(
    repo: Path, tmp_path: Path, ignored: bool
) -> None:
    if ignored:
        commit_files(repo, {".gitignore": b"sub/\n"})
    bench = Bench(repo, tmp_path)
    inner = bench.path / "sub" / "tree"
    bench.run("worktree", "add", "-q", "-b", "inner", str(inner))
    (inner / "README.md").write_text("edited inside\n")
    (inner / "new").write_text("staged inside\n")
    git_run(inner, "add", "new")
    (inner / "new").write_text("edited again\n")
    git_run(inner, "worktree", "add", "-q", "--detach", str(inner / "deeper"))
    git_run(inner / "deeper", "commit", "-q", "--allow-empty", "-m", "on no branch")
    lost = git_run(inner / "deeper", "rev-parse", "HEAD")
    before, files = git_run(inner, "status", "--porcelain"), fingerprint(bench.path)
    assert sorted(e.path for e in git.linked_worktrees_below(bench.path)) == [inner, inner / "deeper"]
    bench.preserve()
    for content in (b"edited inside\n", b"staged inside\n", b"edited again\n"):
        assert holds(bench.repo, content)
    assert is_held(bench.repo, lost)
    for entry in git.linked_worktrees_below(bench.path):
        git_run(bench.repo, "worktree", "remove", "--force", "--force", str(entry.path))
    bench.replace_worktree()
    for _ in range(2):
        git.restore(bench.path, ref=REF)
        assert fingerprint(bench.path) == files
        assert git_run(inner, "status", "--porcelain") == before
    assert git.current_branch(inner) == "inner"
    assert git_run(inner / "deeper", "rev-parse", "HEAD") == lost


def test_a_clean_linked_worktree_inside_needs_no_snapshot_and_is_known_to_the_remover(bench: Bench) -> None:
    bench.run("worktree", "add", "-q", "-b", "inner", str(bench.path / "sub"))
    assert git.preserve(bench.path, ref=REF, message="x") is None
    assert [entry.path for entry in git.linked_worktrees_below(bench.path)] == [bench.path / "sub"]
    assert git.linked_worktrees_below(bench.path / "sub") == []


def test_a_registered_worktree_whose_git_file_was_deleted_keeps_its_commits(bench: Bench) -> None:
    inner = bench.path / "sub"
    bench.run("worktree", "add", "-q", "--detach", str(inner))
    git_run(inner, "commit", "-q", "--allow-empty", "-m", "on no branch")
    lost = git_run(inner, "rev-parse", "HEAD")
    (inner / ".git").unlink()
    (inner / "README.md").write_text("loose now\n")
    bench.preserve()
    assert is_held(bench.repo, lost)
    assert holds(bench.repo, b"loose now\n")


def test_a_worktree_of_a_repository_elsewhere_keeps_its_files_and_nothing_is_written_there(
    bench: Bench, tmp_path: Path
) -> None:
    other = make_repo(tmp_path / "other")
    git_run(other, "worktree", "add", "-q", "-b", "theirs", str(bench.path / "foreign"))
    (bench.path / "foreign" / "README.md").write_text("edited\n")
    before = git_run(other, "for-each-ref")
    bench.preserve()
    assert git_run(other, "for-each-ref") == before
    assert holds(bench.repo, b"edited\n")


def test_a_submodule_in_progress_comes_back_with_its_stashes(repo: Path, tmp_path: Path) -> None:
    make_repo(tmp_path / "library")
    git_run(repo, "-c", "protocol.file.allow=always", "submodule", "-q", "add", str(tmp_path / "library"), "lib")
    git_run(repo, "commit", "-q", "-m", "submodule")
    bench = Bench(repo, tmp_path)
    bench.run("submodule", "-q", "update", "--init")
    stashes = [stash(bench.path / "lib", f"stash {number}\n") for number in range(2)]
    files = fingerprint(bench.path)
    bench.preserve()
    assert all(is_held(bench.repo, commit) for commit in stashes)
    bench.replace_worktree()
    for _ in range(2):
        git.restore(bench.path, ref=REF)
        assert fingerprint(bench.path) == files
    assert git_run(bench.path / "lib", "stash", "list", "--format=%H").split() == stashes[::-1]
    bench.run("submodule", "status")
