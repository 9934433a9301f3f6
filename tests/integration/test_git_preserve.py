"""Work that is not committed, stored and brought back byte for byte, on real git."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from swarm_core import git
from swarm_core.errors import Conflict, InvalidInput, NotFound
from tests.preserving import REF, Bench, commit_files, fingerprint
from tests.support import git_run, make_repo


@pytest.fixture
def bench(repo: Path, tmp_path: Path) -> Bench:
    return Bench(repo, tmp_path)


def test_a_clean_worktree_on_its_branch_stores_nothing(bench: Bench) -> None:
    assert git.preserve(bench.path, ref=REF, message="x") is None
    assert git.preserved_refs(bench.repo, "work-1-a1") == []


def test_a_touched_file_is_no_work(bench: Bench) -> None:
    os.utime(bench.path / "README.md", (1, 1))
    assert git.preserve(bench.path, ref=REF, message="x") is None


@pytest.mark.parametrize(
    "content",
    [bytes(range(256)) * 4, b"", b"one\r\ntwo\r\n", b"mixed\r\nends\n", b"no newline at end", b"\xef\xbb\xbfbom"],
)
@pytest.mark.parametrize("attributes", ["", "* text=auto eol=lf\n", "* text=auto eol=crlf\n", "* text ident\n"])
def test_content_comes_back_byte_for_byte_whatever_the_attributes(
    repo: Path, tmp_path: Path, content: bytes, attributes: str
) -> None:
    commit_files(repo, {".gitattributes": attributes.encode(), "tracked.txt": b"before $Id$\n"})
    bench = Bench(repo, tmp_path)
    (bench.path / "tracked.txt").write_bytes(content + b"$Id$ edited\r\n")
    (bench.path / "new.txt").write_bytes(content)
    files = fingerprint(bench.path)
    bench.preserve()
    bench.replace_worktree()
    git.restore(bench.path, ref=REF)
    assert fingerprint(bench.path) == files


def test_a_change_of_line_ends_alone_is_kept(repo: Path, tmp_path: Path) -> None:
    commit_files(repo, {".gitattributes": b"* text=auto\n", "file.txt": b"a\nb\n"})
    bench = Bench(repo, tmp_path)
    (bench.path / "file.txt").write_bytes(b"a\r\nb\r\n")
    bench.preserve()
    bench.replace_worktree()
    git.restore(bench.path, ref=REF)
    assert (bench.path / "file.txt").read_bytes() == b"a\r\nb\r\n"


ODD_NAMES = [
    b"with space",
    b"new\nline",
    b"tab\there",
    "ünïcode-日本".encode(),
    b"\xff\xfe-not-utf8",
    b"-leading-dash",
    b"--force",
    b'"quoted"',
    b"back\\slash",
    b"ends with cr\r",
    b":(glob)*",
    b"star*",
    b"dir \n x/file",
    b"#hash",
    b"trailing ",
]


@pytest.mark.parametrize("name", ODD_NAMES)
@pytest.mark.parametrize("tracked", [True, False])
def test_files_with_odd_names_come_back(repo: Path, tmp_path: Path, name: bytes, tracked: bool) -> None:
    def put(root: Path, content: bytes) -> None:
        path = root / os.fsdecode(name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)

    if tracked:
        put(repo, b"before\n")
        git_run(repo, "add", "-A")
        git_run(repo, "commit", "-q", "-m", "odd")
    bench = Bench(repo, tmp_path)
    put(bench.path, b"after\n")
    bench.round_trip()


def change_exec_bit(bench: Bench) -> None:
    (bench.path / "src" / "app.py").chmod(0o755)
    (bench.path / "tool").write_text("#!/bin/sh\n")
    (bench.path / "tool").chmod(0o755)


def make_links(bench: Bench) -> None:
    (bench.path / "link").symlink_to("src/app.py")
    (bench.path / "dangling").symlink_to("no/where\nelse")
    (bench.path / "to-folder").symlink_to("src")
    (bench.path / "README.md").unlink()
    (bench.path / "README.md").symlink_to("src/app.py")


def delete_file(bench: Bench) -> None:
    (bench.path / "src" / "app.py").unlink()


def delete_staged(bench: Bench) -> None:
    bench.run("rm", "-q", "src/app.py")


def rename_file(bench: Bench) -> None:
    bench.run("mv", "src/app.py", "src/main.py")
    (bench.path / "src" / "main.py").write_text("print('renamed')\n")


def stage_then_edit(bench: Bench) -> None:
    (bench.path / "README.md").write_text("staged\n")
    (bench.path / "new.txt").write_text("staged new\n")
    bench.run("add", "-A")
    (bench.path / "README.md").write_text("not staged\n")
    (bench.path / "other.txt").write_text("untracked\n")


def stage_then_revert(bench: Bench) -> None:
    (bench.path / "README.md").write_text("staged\n")
    bench.run("add", "-A")
    (bench.path / "README.md").write_text("# A project\n")


def stage_then_delete(bench: Bench) -> None:
    (bench.path / "new.txt").write_text("only in the index\n")
    bench.run("add", "new.txt")
    (bench.path / "new.txt").unlink()


def unstage_deletion(bench: Bench) -> None:
    bench.run("rm", "-q", "--cached", "README.md")


def file_becomes_folder(bench: Bench) -> None:
    (bench.path / "README.md").unlink()
    (bench.path / "README.md").mkdir()
    (bench.path / "README.md" / "inside").write_text("inside\n")


def folder_becomes_file(bench: Bench) -> None:
    (bench.path / "src" / "app.py").unlink()
    (bench.path / "src").rmdir()
    (bench.path / "src").write_text("a file now\n")


def folder_becomes_link(bench: Bench) -> None:
    (bench.path / "src").rename(bench.path / "moved")
    (bench.path / "src").symlink_to("moved")


def empty_files(bench: Bench) -> None:
    (bench.path / "README.md").write_bytes(b"")
    (bench.path / "empty").touch()


@pytest.mark.parametrize(
    "work",
    [
        change_exec_bit,
        make_links,
        delete_file,
        delete_staged,
        rename_file,
        stage_then_edit,
        stage_then_revert,
        stage_then_delete,
        unstage_deletion,
        file_becomes_folder,
        folder_becomes_file,
        folder_becomes_link,
        empty_files,
    ],
)
def test_every_kind_of_change_comes_back_with_its_staging(bench: Bench, work: Callable[[Bench], None]) -> None:
    work(bench)
    bench.round_trip()


def test_intended_files_are_kept_even_when_empty(bench: Bench) -> None:
    (bench.path / "empty").touch()
    (bench.path / "full").write_text("full\n")
    bench.run("add", "-N", "empty", "full")
    files = fingerprint(bench.path)
    bench.preserve()
    bench.replace_worktree()
    git.restore(bench.path, ref=REF)
    assert fingerprint(bench.path) == files


def test_tracked_but_ignored_files_stay_and_ignored_ones_are_not_stored(repo: Path, tmp_path: Path) -> None:
    commit_files(repo, {".gitignore": b"*.log\nsecret/\n", "kept.log": b"tracked\n", "old.log": b"tracked\n"})
    bench = Bench(repo, tmp_path)
    (bench.path / "kept.log").write_text("changed\n")
    (bench.path / "noise.log").write_text("ignored\n")
    (bench.path / "secret").mkdir()
    (bench.path / "secret" / "key").write_text("ignored\n")
    preserved = bench.preserve()
    assert (preserved.files, preserved.bytes) == (1, len("changed\n"))
    names = git_run(repo, "ls-tree", "-r", "--name-only", preserved.commit).split("\n")
    assert {"kept.log", "old.log"} <= set(names)
    assert not {"noise.log", "secret/key"} & set(names)


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_a_change_hidden_from_git_status_is_kept(bench: Bench, flag: str) -> None:
    bench.run("update-index", flag, "README.md")
    (bench.path / "README.md").write_text("hidden\n")
    assert git.is_dirty(bench.path)
    bench.preserve()
    bench.replace_worktree()
    git.restore(bench.path, ref=REF)
    assert (bench.path / "README.md").read_text() == "hidden\n"


def test_a_sparse_checkout_deletes_nothing_in_the_snapshot(bench: Bench) -> None:
    bench.run("sparse-checkout", "set", "--no-cone", "/README.md")
    assert not (bench.path / "src").exists()
    (bench.path / "README.md").write_text("sparse\n")
    preserved = bench.preserve()
    assert "src/app.py" in git_run(bench.repo, "ls-tree", "-r", "--name-only", preserved.commit)
    assert preserved.files == 1


def test_an_empty_repository_keeps_its_first_files(tmp_path: Path) -> None:
    repo = tmp_path / "empty"
    git_run(tmp_path, "init", "-q", "-b", "main", str(repo))
    bench = Bench(repo, tmp_path)
    assert git.preserve(bench.path, ref=REF, message="x") is None
    (bench.path / "staged").write_text("staged\n")
    bench.run("add", "staged")
    (bench.path / "loose").write_text("loose\n")
    bench.round_trip()


def test_a_commit_on_no_branch_is_kept_and_gone_back_to(bench: Bench) -> None:
    bench.run("checkout", "-q", "--detach")
    bench.run("commit", "-q", "--allow-empty", "-m", "nowhere")
    (bench.path / "more.txt").write_text("committed on no branch\n")
    bench.run("add", "-A")
    bench.run("commit", "-q", "-m", "nowhere else")
    lost = git.head_commit(bench.path)
    bench.preserve()
    bench.replace_worktree()
    assert git.head_commit(bench.path) != lost
    git.restore(bench.path, ref=REF)
    assert git.head_commit(bench.path) == lost
    assert git.current_branch(bench.path) is None
    assert bench.status() == ""


def test_a_detached_commit_on_a_branch_needs_no_snapshot(bench: Bench) -> None:
    bench.run("checkout", "-q", "--detach")
    assert git.preserve(bench.path, ref=REF, message="x") is None


def test_a_merge_conflict_in_progress_is_kept(bench: Bench) -> None:
    for branch, content in (("one", "one\n"), ("two", "two\n")):
        bench.run("checkout", "-q", "-b", branch, "main")
        (bench.path / "README.md").write_text(content)
        bench.run("commit", "-q", "-am", branch)
    theirs = git_run(bench.repo, "rev-parse", "one")
    bench.run("checkout", "-q", "b")
    bench.run("reset", "-q", "--hard", "two")
    with pytest.raises(AssertionError):
        bench.run("merge", "-q", "one")
    git_run(bench.repo, "branch", "-D", "one")
    (bench.path / "README.md").write_text("half resolved <<<<<<<\n")
    (bench.path / "fresh.txt").write_text("fresh\n")
    files = fingerprint(bench.path)
    preserved = bench.preserve()
    assert theirs in git_run(bench.repo, "rev-list", "--parents", "-1", preserved.commit)
    bench.replace_worktree()
    git.restore(bench.path, ref=REF)
    assert fingerprint(bench.path) == files


def test_a_rebase_stopped_at_a_conflict_is_kept(bench: Bench) -> None:
    (bench.path / "README.md").write_text("mine\n")
    bench.run("commit", "-q", "-am", "mine")
    (bench.repo / "README.md").write_text("main's\n")
    git_run(bench.repo, "commit", "-q", "-am", "main's")
    (bench.path / "src" / "app.py").write_text("stashed away\n")
    with pytest.raises(AssertionError):
        bench.run("rebase", "-q", "--autostash", "main")
    (bench.path / "README.md").write_text("resolving\n")
    files = fingerprint(bench.path)
    preserved = bench.preserve()
    git_dir = Path(git_run(bench.path, "rev-parse", "--absolute-git-dir"))
    autostash = (git_dir / "rebase-merge" / "autostash").read_text().strip()
    assert autostash in git_run(bench.repo, "rev-list", "--parents", "-1", preserved.commit)
    bench.replace_worktree()
    git.restore(bench.path, ref=REF)
    assert fingerprint(bench.path) == files


@pytest.fixture
def with_submodule(repo: Path, tmp_path: Path) -> Bench:
    make_repo(tmp_path / "library")
    git_run(repo, "-c", "protocol.file.allow=always", "submodule", "-q", "add", str(tmp_path / "library"), "lib")
    git_run(repo, "commit", "-q", "-m", "submodule")
    return Bench(repo, tmp_path)


def test_a_submodule_that_is_not_initialised_is_no_work(with_submodule: Bench) -> None:
    bench = with_submodule
    assert git.preserve(bench.path, ref=REF, message="x") is None
    (bench.path / "README.md").write_text("edited\n")
    bench.round_trip()


def test_a_clean_submodule_is_no_work_and_goes_with_its_worktree(with_submodule: Bench) -> None:
    bench = with_submodule
    bench.run("submodule", "-q", "update", "--init")
    assert git.preserve(bench.path, ref=REF, message="x") is None
    bench.remove()
    assert not bench.path.exists()


def test_work_inside_a_submodule_survives_the_removal_of_its_worktree(with_submodule: Bench) -> None:
    bench = with_submodule
    bench.run("submodule", "-q", "update", "--init")
    inner = bench.path / "lib"
    git_run(inner, "checkout", "-q", "-b", "inner-branch")
    (inner / "src" / "app.py").write_bytes(b"committed inside\r\n")
    git_run(inner, "commit", "-q", "-am", "inside")
    commit = git_run(inner, "rev-parse", "HEAD")
    (inner / "src" / "app.py").write_bytes(b"dirty inside\r\n")
    (inner / "untracked").write_bytes(b"\0\1\2")
    files = fingerprint(bench.path)
    bench.preserve()
    bench.replace_worktree()
    assert not (inner / "src").exists()
    for _ in range(2):
        git.restore(bench.path, ref=REF)
        assert fingerprint(bench.path) == files
    assert git_run(inner, "rev-parse", "HEAD") == commit
    assert git.current_branch(inner) == "inner-branch"


@pytest.mark.parametrize("how", ["deinit", "rm", "folder"])
def test_what_a_submodule_whose_folder_is_gone_has_committed_comes_back(with_submodule: Bench, how: str) -> None:
    bench = with_submodule
    bench.run("submodule", "-q", "update", "--init")
    inner = bench.path / "lib"
    git_run(inner, "checkout", "-q", "-b", "inner-branch")
    (inner / "src" / "app.py").write_bytes(b"committed inside\r\n")
    git_run(inner, "commit", "-q", "-am", "inside")
    commit = git_run(inner, "rev-parse", "HEAD")
    (inner / "src" / "app.py").write_bytes(b"stashed inside\r\n")
    git_run(inner, "stash", "-q")
    stash = git_run(inner, "rev-parse", "refs/stash")
    if how == "deinit":
        bench.run("submodule", "-q", "deinit", "-f", "lib")
    elif how == "rm":
        bench.run("rm", "-q", "-f", "lib")
        bench.run("commit", "-q", "-m", "without it")
    else:
        shutil.rmtree(inner)
    bench.preserve()
    bench.replace_worktree()
    modules = Path(bench.run("rev-parse", "--path-format=absolute", "--git-dir")) / "modules" / "lib"
    for _ in range(2):
        git.restore(bench.path, ref=REF)
        found = git_run(modules, "--git-dir=.", "rev-parse", "inner-branch", "refs/stash")
        assert found.split() == [commit, stash]


def test_nested_repositories_at_any_depth_come_back(bench: Bench) -> None:
    outer = make_repo(bench.path / "vendor" / "outer")
    git_run(outer, "branch", "another")
    (outer / "README.md").write_text("dirty\n")
    deep = make_repo(outer / "deep")
    git_run(deep, "checkout", "-q", "--detach")
    git_run(deep, "commit", "-q", "--allow-empty", "-m", "nowhere")
    (deep / "untracked").write_text("deep\n")
    commit = git_run(deep, "rev-parse", "HEAD")
    files = fingerprint(bench.path)
    bench.preserve()
    bench.replace_worktree()
    assert not outer.exists()
    for _ in range(2):
        git.restore(bench.path, ref=REF)
        assert fingerprint(bench.path) == files
    assert git_run(deep, "rev-parse", "HEAD") == commit
    assert git.branches(outer) == {"main", "another"}


def test_hooks_signing_and_a_missing_identity_do_not_matter(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("pre-commit", "commit-msg", "post-commit", "reference-transaction", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/ran.log\nexit 1\n")
        (hooks / name).chmod(0o755)
    git_run(bench.repo, "config", "commit.gpgsign", "true")
    git_run(bench.repo, "config", "gpg.program", "/bin/false")
    git_run(bench.repo, "config", "user.useConfigOnly", "true")
    git_run(bench.repo, "config", "core.hooksPath", str(hooks))
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.delenv(f"GIT_{role}_NAME")
        monkeypatch.delenv(f"GIT_{role}_EMAIL")
    config = (bench.repo / ".git" / "config").read_bytes()
    (bench.path / "README.md").write_text("edited\n")
    preserved = git.preserve(bench.path, ref=REF, message="x")
    assert preserved is not None
    git_run(bench.path, "-c", "core.hooksPath=/dev/null", "checkout", "-q", "--", "README.md")
    git.restore(bench.path, ref=REF)
    assert (bench.path / "README.md").read_text() == "edited\n"
    assert not (tmp_path / "ran.log").exists()
    assert (bench.repo / ".git" / "config").read_bytes() == config


def test_configuration_and_hooks_are_the_same_bytes_after_everything(bench: Bench) -> None:
    def theirs() -> dict[str, tuple[str, bytes]]:
        config = (bench.repo / ".git" / "config").read_bytes()
        return {**fingerprint(bench.repo / ".git" / "hooks"), "config": ("-", config)}

    before = theirs()
    main_checkout = fingerprint(bench.repo)
    (bench.path / "README.md").write_text("edited\n")
    make_repo(bench.path / "nested")
    bench.round_trip()
    git.change_stats(bench.path, git.head_commit(bench.repo))
    git.predict_merge(bench.repo, "main", "b")
    bench.remove()
    assert git.delete_branch(bench.repo, "b", lock=bench.lock)
    assert theirs() == before
    assert fingerprint(bench.repo) == main_checkout


def lose(repo: Path, oid: str) -> None:
    (repo / ".git" / "objects" / oid[:2] / oid[2:]).unlink()


def empty(repo: Path, oid: str) -> None:
    """What a power loss leaves of an object that was not synced."""
    place = repo / ".git" / "objects" / oid[:2] / oid[2:]
    place.chmod(0o644)
    place.write_bytes(b"")


@pytest.mark.parametrize("damage", [lose, empty])
@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("where", [".", "inner"])
def test_a_file_whose_content_the_repository_has_lost_is_stored_though_it_is_unchanged(
    bench: Bench, damage: Callable[[Path, str], None], staged: bool, where: str
) -> None:
    if where == "inner":
        bench.run("worktree", "add", "-q", "-b", "inner", "inner")
    root = bench.path / where
    (root / "only.txt").write_text("the only copy\n")
    git_run(root, "add", "-A", ".")
    if not staged:
        git_run(root, "commit", "-q", "-m", "only")
    os.utime(root / "only.txt", (1, 1))
    git_run(root, "update-index", "-q", "--refresh")
    git_run(root, "write-tree")
    oid = git_run(root, "rev-parse", ":only.txt")
    damage(bench.repo, oid)
    bench.remove()
    assert git_run(bench.repo, "cat-file", "blob", oid) == "the only copy"
    git_run(bench.repo, "gc", "-q", "--prune=now")
    assert git_run(bench.repo, "cat-file", "blob", oid) == "the only copy"


@pytest.mark.parametrize(
    "then", ["the index is deleted", "the file is touched", "only a copy of it is left", "it is ignored instead"]
)
def test_a_lost_content_is_stored_again_however_git_sees_its_file(bench: Bench, then: str) -> None:
    (bench.path / "only.txt").write_text("the only copy\n")
    bench.run("add", "-A")
    bench.run("commit", "-q", "-m", "only")
    oid = bench.run("rev-parse", "HEAD:only.txt")
    lose(bench.repo, oid)
    if then == "the index is deleted":
        Path(bench.run("rev-parse", "--path-format=absolute", "--git-path", "index")).unlink()
    elif then == "the file is touched":
        os.utime(bench.path / "only.txt", (1, 1))
    elif then == "it is ignored instead":
        bench.run("rm", "-q", "--cached", "only.txt")
        (bench.path / ".gitignore").write_text("only.txt\n")
    else:
        (bench.path / "only.txt").rename(bench.path / "copy.txt")
    bench.remove()
    git_run(bench.repo, "gc", "-q", "--prune=now")
    assert git_run(bench.repo, "cat-file", "blob", oid) == "the only copy"


def test_restoring_refuses_to_overwrite_newer_work_and_changes_nothing(bench: Bench) -> None:
    (bench.path / "README.md").write_text("preserved\n")
    (bench.path / "new.txt").write_text("preserved\n")
    (bench.path / "src" / "app.py").unlink()
    bench.preserve()
    bench.replace_worktree()
    (bench.path / "new.txt").write_text("newer\n")
    (bench.path / "src" / "app.py").write_text("newer\n")
    files = fingerprint(bench.path)
    with pytest.raises(Conflict) as caught:
        git.restore(bench.path, ref=REF)
    assert caught.value.code == "RESTORE_WOULD_OVERWRITE"
    assert caught.value.details["files"] == ["new.txt", "src/app.py"]
    assert fingerprint(bench.path) == files


@pytest.mark.parametrize("name", ["README.md", "new.txt", "other.txt"])
def test_restoring_refuses_to_drop_what_is_staged_since(bench: Bench, name: str) -> None:
    (bench.path / "README.md").write_text("preserved\n")
    (bench.path / "new.txt").write_text("preserved\n")
    bench.run("add", "-A")
    bench.preserve()
    bench.replace_worktree()
    before = (bench.path / name).read_bytes() if (bench.path / name).exists() else None
    (bench.path / name).write_text("newer\n")
    bench.run("add", name)
    if before is None:
        (bench.path / name).unlink()
    else:
        (bench.path / name).write_bytes(before)
    files, status = fingerprint(bench.path), bench.status()
    with pytest.raises(Conflict) as caught:
        git.restore(bench.path, ref=REF)
    assert caught.value.code == "RESTORE_WOULD_OVERWRITE"
    assert caught.value.details["files"] == [name]
    assert (fingerprint(bench.path), bench.status()) == (files, status)
    assert bench.run("show", f":{name}") == "newer"
    bench.run("reset", "-q")
    git.restore(bench.path, ref=REF)
    assert (bench.path / "new.txt").read_text() == "preserved\n"


def test_a_folder_in_the_way_of_a_file_is_refused(bench: Bench) -> None:
    (bench.path / "thing").write_text("preserved\n")
    (bench.path / "sub").mkdir()
    (bench.path / "sub" / "x").write_text("preserved\n")
    bench.preserve()
    bench.replace_worktree()
    (bench.path / "thing").mkdir()
    (bench.path / "thing" / "newer").write_text("newer\n")
    (bench.path / "sub").write_text("newer\n")
    with pytest.raises(Conflict) as caught:
        git.restore(bench.path, ref=REF)
    assert caught.value.details["files"] == ["sub", "thing/newer"]


def test_work_is_restored_onto_a_branch_that_went_on(bench: Bench) -> None:
    (bench.path / "new.txt").write_text("preserved\n")
    bench.preserve()
    bench.replace_worktree()
    (bench.path / "README.md").write_text("later commit\n")
    bench.run("commit", "-q", "-am", "later")
    assert git.restore(bench.path, ref=REF).files == ["new.txt"]
    assert bench.status() == "?? new.txt\0"
    assert (bench.path / "README.md").read_text() == "later commit\n"


def test_a_ref_is_written_once_listed_and_deleted_with_its_modules(bench: Bench) -> None:
    make_repo(bench.path / "nested")
    preserved = bench.preserve()
    with pytest.raises(Conflict):
        git.preserve(bench.path, ref=REF, message="again")
    assert git.preserved_refs(bench.repo, "work-1-a1") == [(REF, preserved.commit)]
    assert git.preserved_refs(bench.repo, "work-1-a") == []
    assert git.delete_ref(bench.repo, REF, preserved.commit)
    assert not git.delete_ref(bench.repo, REF, preserved.commit)
    assert git_run(bench.repo, "for-each-ref", "refs/swarm") == ""


def test_an_unknown_ref_is_not_found_and_a_foreign_one_refused(bench: Bench) -> None:
    with pytest.raises(NotFound) as caught:
        git.restore(bench.path, ref=REF)
    assert caught.value.code == "NOTHING_PRESERVED"
    for ref in ("refs/heads/main", "refs/swarm/../heads/main", "--all"):
        with pytest.raises(InvalidInput):
            git.restore(bench.path, ref=ref)
        with pytest.raises(InvalidInput):
            git.preserve(bench.path, ref=ref, message="x")
        with pytest.raises(InvalidInput):
            git.delete_ref(bench.repo, ref, "0" * 40)


def test_a_preserved_snapshot_survives_garbage_collection(bench: Bench) -> None:
    (bench.path / "new.txt").write_text("preserved\n")
    make_repo(bench.path / "nested")
    (bench.path / "nested" / "loose").write_text("loose\n")
    files = fingerprint(bench.path)
    bench.preserve()
    bench.replace_worktree()
    git_run(bench.repo, "gc", "-q", "--prune=now")
    git.restore(bench.path, ref=REF)
    assert fingerprint(bench.path) == files
