"""Repositories and worktrees inside a worktree are stored with everything in them, and come back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from swarm_core import git
from swarm_core.errors import Conflict
from swarm_core.git import removal
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


def assert_kept(bench: Bench, reason: str, named: str) -> None:
    """The dry run says what a removal does: nothing is changed."""
    before = fingerprint(bench.path)
    expected = removal.hindrance(bench.repo, bench.path)
    assert expected is not None
    assert (expected.path, expected.reason, list(expected.files)) == (bench.path, reason, [named])
    with pytest.raises(Conflict) as caught:
        bench.remove()
    assert caught.value.code == "WORKTREE_KEPT"
    assert (caught.value.details["reason"], caught.value.details["files"]) == (reason, [named])
    assert fingerprint(bench.path) == before
    assert not git.preserved_refs(bench.repo, None)


def repository_in_a_git_folder(root: Path) -> None:
    make_repo(root / ".git" / "sub")


def worktree_in_a_git_folder(root: Path) -> None:
    git_run(root, "worktree", "add", "-q", "--detach", str(root / ".git" / "sub"))


def file_in_a_git_folder(root: Path) -> None:
    (root / ".git" / "sub" / ".GIT" / "deep").mkdir(parents=True)
    (root / ".git" / "sub" / ".GIT" / "deep" / "file").write_text("only here\n")


@pytest.mark.parametrize("use", [repository_in_a_git_folder, worktree_in_a_git_folder, file_in_a_git_folder])
@pytest.mark.parametrize("place", ["inner", "ignored/inner"])
def test_what_is_named_git_inside_a_git_folder_keeps_the_worktree(
    repo: Path, tmp_path: Path, use: Callable[[Path], None], place: str
) -> None:
    commit_files(repo, {".gitignore": b"ignored/\n"})
    bench = Bench(repo, tmp_path)
    git_run(bench.path, "clone", "-q", str(make_repo(tmp_path / "origin")), place)
    use(bench.path / place)
    [name] = [one.name for one in (bench.path / place / ".git" / "sub").iterdir() if one.name.lower() == ".git"]
    assert_kept(bench, "git_in_git", f"{place}/.git/sub/{name}")
    (bench.path / place / ".git" / "sub").rename(tmp_path / "moved")
    bench.remove()


@pytest.mark.parametrize("above", [".gIt", "z/.git"])
def test_a_folder_named_git_inside_one_that_is_no_repository_keeps_the_worktree(bench: Bench, above: str) -> None:
    (bench.path / above / ".git" / "q").mkdir(parents=True)
    (bench.path / above / ".git" / "q" / "x").write_text("only here\n")
    assert_kept(bench, "git_in_git", f"{above}/.git")


def test_a_repository_in_the_git_folder_of_the_worktree_keeps_the_worktree(bench: Bench) -> None:
    own = Path(bench.run("rev-parse", "--absolute-git-dir"))
    make_repo(own / "sub")
    assert_kept(bench, "git_in_git", str(own / "sub" / ".git"))


def test_a_repository_inside_a_bare_one_is_stored_with_it(repo: Path, tmp_path: Path) -> None:
    commit_files(repo, {".gitignore": b"ignored/\n"})
    bench = Bench(repo, tmp_path)
    (bench.path / "ignored").mkdir()
    outer = committed_into(bench.path / "ignored" / "bare.git", b"bare\n")
    inner = git_run(make_repo(bench.path / "ignored" / "bare.git" / "sub"), "rev-parse", "HEAD")
    bench.remove()
    assert is_held(bench.repo, outer)
    assert is_held(bench.repo, inner)


def pushed(inner: Path, url: str) -> str:
    """A commit that a remote branch has, of a remote with that address."""
    commit_files(inner, {"file": b"pushed\n"})
    git_run(inner, "push", "-q", "origin", "HEAD:main")
    git_run(inner, "remote", "set-url", "origin", url)
    return git_run(inner, "rev-parse", "HEAD")


@pytest.mark.parametrize(
    "url",
    [
        "{root}/ignored/origin.git",
        "file://{root}/ignored/origin.git",
        "../origin.git",
        "{root}/../gone.git",
        "file:///nowhere/gone.git",
        "{link}/ignored/origin.git",
    ],
)
def test_a_remote_that_goes_with_the_worktree_or_is_gone_holds_no_commit(
    repo: Path, tmp_path: Path, url: str
) -> None:
    commit_files(repo, {".gitignore": b"ignored/\n"})
    bench = Bench(repo, tmp_path)
    (tmp_path / "link").symlink_to(bench.path)
    (bench.path / "ignored").mkdir()
    git_run(tmp_path, "init", "-q", "--bare", "-b", "main", "origin.git")
    git_run(bench.path / "ignored", "clone", "-q", str(tmp_path / "origin.git"), "clone")
    git_run(bench.path / "ignored", "init", "-q", "--bare", "origin.git")
    told = url.format(root=bench.path, link=tmp_path / "link")
    commit = pushed(bench.path / "ignored" / "clone", told)
    bench.preserve()
    assert is_held(bench.repo, commit)


@pytest.mark.parametrize("how", ["pushurl", "removed", "second"])
def test_a_remote_branch_counts_only_if_every_address_of_its_remote_stays(
    repo: Path, tmp_path: Path, how: str
) -> None:
    commit_files(repo, {".gitignore": b"ignored/\n"})
    bench = Bench(repo, tmp_path)
    (bench.path / "ignored").mkdir()
    git_run(tmp_path, "init", "-q", "--bare", "-b", "main", "origin.git")
    inner = bench.path / "ignored" / "clone"
    git_run(bench.path / "ignored", "clone", "-q", str(tmp_path / "origin.git"), "clone")
    commit = pushed(inner, str(tmp_path / "origin.git"))
    assert git.preserve(bench.path, ref=REF, message="x") is None
    if how == "pushurl":
        git_run(inner, "remote", "set-url", "--push", "origin", str(bench.path / "ignored" / "mirror.git"))
    elif how == "second":
        git_run(inner, "remote", "set-url", "--add", "origin", str(bench.path / "ignored" / "mirror.git"))
    else:
        git_run(inner, "config", "--remove-section", "remote.origin")
    bench.preserve()
    assert is_held(bench.repo, commit)


def foreign_worktree(repo: Path, tmp_path: Path, place: str) -> tuple[Bench, Path, Path]:
    """A bench with a detached worktree of another repository inside."""
    commit_files(repo, {".gitignore": b"ignored/\n"})
    bench, other = Bench(repo, tmp_path), make_repo(tmp_path / "other")
    git_run(other, "worktree", "add", "-q", "--detach", str(bench.path / place))
    return bench, other, bench.path / place


def commit_detached(inner: Path) -> None:
    commit_files(inner, {"new.txt": b"only here\n"})


def reset_away(inner: Path) -> None:
    commit_detached(inner)
    git_run(inner, "reset", "-q", "--hard", "HEAD~1")


def start_bisecting(inner: Path) -> None:
    git_run(inner, "bisect", "start")


@pytest.mark.parametrize("use", [stage_alone, refer_alone, commit_detached, reset_away, start_bisecting])
@pytest.mark.parametrize("place", ["foreign", "ignored/foreign"])
def test_work_that_only_a_worktree_of_another_repository_knows_keeps_the_folder(
    repo: Path, tmp_path: Path, use: Callable[[Path], None], place: str
) -> None:
    bench, other, inner = foreign_worktree(repo, tmp_path, place)
    use(inner)
    objects = fingerprint(other / ".git" / "objects")
    assert_kept(bench, "other_worktree", place)
    assert fingerprint(other / ".git" / "objects") == objects
    git_run(other, "worktree", "move", str(inner), str(tmp_path / "moved"))
    bench.remove()


@pytest.mark.parametrize("place", ["foreign", "ignored/foreign"])
def test_files_in_a_worktree_of_another_repository_are_stored_and_come_back(
    repo: Path, tmp_path: Path, place: str
) -> None:
    bench, _, inner = foreign_worktree(repo, tmp_path, place)
    assert removal.hindrance(bench.repo, bench.path) is None
    (inner / "README.md").write_text("edited\n")
    (inner / "new.txt").write_text("untracked\n")
    before, files = git_run(inner, "status", "--porcelain"), fingerprint(inner)
    bench.preserve()
    bench.replace_worktree()
    git.restore(bench.path, ref=REF)
    assert fingerprint(inner) == files
    assert git_run(inner, "status", "--porcelain") == before


def test_a_copy_of_a_worktree_that_stays_elsewhere_does_not_keep_the_folder(repo: Path, tmp_path: Path) -> None:
    bench, other, _ = foreign_worktree(repo, tmp_path, "foreign")
    outside = tmp_path / "outside"
    git_run(other, "worktree", "add", "-q", "--detach", str(outside))
    commit_detached(outside)
    shutil.copytree(outside, bench.path / "ignored" / "copy")
    assert removal.hindrance(bench.repo, bench.path) is None
    bench.remove()
