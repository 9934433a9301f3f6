"""What git knows beside the files (operations in progress, stages, refs, reflogs) is stored and brought back."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from swarm_core import git
from swarm_core.errors import SwarmError
from tests.preserving import REF, Bench, commit_files, fingerprint, holds, is_held
from tests.support import git_run


@pytest.fixture
def bench(repo: Path, tmp_path: Path) -> Bench:
    return Bench(repo, tmp_path)


def fails(bench: Bench, *args: str) -> None:
    with pytest.raises(AssertionError):
        bench.run(*args)


def state(bench: Bench) -> Path:
    return Path(git_run(bench.path, "rev-parse", "--absolute-git-dir"))


def conflict(bench: Bench) -> None:
    """Commit `mine` on the branch and `main's` on main, in the same line."""
    (bench.path / "README.md").write_text("mine\n")
    bench.run("commit", "-q", "-am", "mine")
    (bench.repo / "README.md").write_text("main's\n")
    git_run(bench.repo, "commit", "-q", "-am", "main's")


def test_the_autostash_of_a_rebase_that_applies_patches_is_stored_and_the_rebase_goes_on(bench: Bench) -> None:
    conflict(bench)
    (bench.path / "src" / "app.py").write_text("stashed away\n")
    fails(bench, "rebase", "-q", "--apply", "--autostash", "main")
    assert (state(bench) / "rebase-apply" / "autostash").is_file()
    bench.preserve()
    bench.replace_worktree()
    assert holds(bench.repo, b"stashed away\n")
    git.restore(bench.path, ref=REF)
    (bench.path / "README.md").write_text("both\n")
    bench.run("add", "-A")
    bench.run("rebase", "--continue")
    assert (bench.path / "src" / "app.py").read_text() == "stashed away\n"
    assert git.current_branch(bench.path) == "b"


def test_a_merge_comes_back_with_its_stages_and_can_be_concluded(bench: Bench) -> None:
    conflict(bench)
    (bench.path / "staged.txt").write_text("staged\n")
    fails(bench, "merge", "-q", "main")
    bench.run("add", "staged.txt")
    (bench.path / "staged.txt").write_text("edited later\n")
    before = bench.run("ls-files", "--stage"), bench.status()
    bench.preserve()
    bench.replace_worktree()
    git_run(bench.repo, "gc", "-q", "--prune=now")
    for _ in range(2):
        git.restore(bench.path, ref=REF)
        assert (bench.run("ls-files", "--stage"), bench.status()) == before
    assert holds(bench.repo, b"staged\n")
    (bench.path / "README.md").write_text("both\n")
    bench.run("commit", "-q", "-am", "merged")
    assert len(bench.run("rev-list", "--parents", "-1", "HEAD").split()) == 3


def test_a_pick_in_progress_comes_back(bench: Bench) -> None:
    conflict(bench)
    fails(bench, "cherry-pick", "main")
    bench.preserve()
    bench.replace_worktree()
    git.restore(bench.path, ref=REF)
    assert bench.run("rev-parse", "CHERRY_PICK_HEAD") == git_run(bench.repo, "rev-parse", "main")
    bench.run("cherry-pick", "--abort")
    assert bench.status() == ""


def test_a_bisection_comes_back_with_its_marks(bench: Bench) -> None:
    bench.run("commit", "-q", "--allow-empty", "-m", "one")
    bench.run("commit", "-q", "--allow-empty", "-m", "two")
    bench.run("bisect", "start", "HEAD", "HEAD~2")
    before = bench.run("bisect", "log"), bench.run("for-each-ref", "refs/bisect"), git.head_commit(bench.path)
    assert "refs/bisect" in before[1]
    bench.preserve()
    bench.replace_worktree()
    git.restore(bench.path, ref=REF)
    after = bench.run("bisect", "log"), bench.run("for-each-ref", "refs/bisect"), git.head_commit(bench.path)
    assert after == before


@pytest.mark.parametrize("name", ["refs/worktree/deep/mine", "refs/rewritten/onto"])
def test_refs_of_the_worktree_alone_are_stored_and_come_back(bench: Bench, name: str) -> None:
    made = bench.run("commit-tree", "HEAD^{tree}", "-m", "only here")
    bench.run("update-ref", name, made)
    bench.preserve()
    bench.replace_worktree()
    assert is_held(bench.repo, made)
    git.restore(bench.path, ref=REF)
    assert bench.run("rev-parse", name) == made


def lost_by_reset(bench: Bench) -> None:
    bench.run("reset", "-q", "--hard", "HEAD~1")


def lost_by_amending(bench: Bench) -> None:
    bench.run("commit", "-q", "--amend", "-m", "another")


def lost_by_leaving(bench: Bench) -> None:
    bench.run("checkout", "-q", "--detach")
    bench.run("commit", "-q", "--allow-empty", "-m", "nowhere")
    bench.run("checkout", "-q", "b")


@pytest.mark.parametrize("lose", [lost_by_reset, lost_by_amending, lost_by_leaving])
def test_commits_that_only_the_reflog_knows_are_stored_and_the_reflog_comes_back(bench: Bench, lose) -> None:
    (bench.path / "precious.txt").write_text("precious\n")
    bench.run("add", "-A")
    bench.run("commit", "-q", "-m", "precious")
    lose(bench)
    known = bench.run("reflog", "--format=%H").split()
    bench.preserve()
    bench.replace_worktree()
    git_run(bench.repo, "reflog", "expire", "--expire=now", "--all")
    git_run(bench.repo, "gc", "-q", "--prune=now")
    assert all(is_held(bench.repo, commit) for commit in known)
    restored = git.restore(bench.path, ref=REF)
    assert set(known) <= set(bench.run("reflog", "--format=%H").split())
    assert git.restore(bench.path, ref=REF) == restored


def test_what_was_fetched_and_never_merged_is_stored(bench: Bench, tmp_path: Path) -> None:
    other = tmp_path / "other"
    git_run(tmp_path, "clone", "-q", str(bench.repo), str(other))
    git_run(other, "commit", "-q", "--allow-empty", "-m", "theirs")
    bench.run("fetch", "-q", str(other), "main")
    bench.preserve()
    assert is_held(bench.repo, git_run(other, "rev-parse", "HEAD"))


@pytest.mark.parametrize("damage", [b"", None, b"DIRC garbage"])
def test_tracked_but_ignored_files_are_stored_when_the_index_is_gone(
    repo: Path, tmp_path: Path, damage: bytes | None
) -> None:
    commit_files(repo, {".gitignore": b"*.log\n", "kept.log": b"tracked\n", "same.log": b"same\n"})
    bench = Bench(repo, tmp_path)
    (bench.path / "kept.log").write_text("changed\n")
    if damage is None:
        (state(bench) / "index").unlink()
    else:
        (state(bench) / "index").write_bytes(damage)
    preserved = git.preserve(bench.path, ref=REF, message="x")
    assert preserved is not None
    assert (preserved.files, preserved.bytes) == (1, len("changed\n"))
    bench.replace_worktree()
    git.restore(bench.path, ref=REF)
    assert (bench.path / "kept.log").read_text() == "changed\n"
    assert (bench.path / "same.log").read_text() == "same\n"


def test_a_missing_index_alone_is_no_work(bench: Bench) -> None:
    (state(bench) / "index").unlink()
    assert git.preserve(bench.path, ref=REF, message="x") is None


def test_names_that_differ_only_in_case_are_both_stored(bench: Bench) -> None:
    bench.run("config", "core.ignoreCase", "true")
    (bench.path / "readme.md").write_text("another file\n")
    (bench.path / "SRC").mkdir()
    (bench.path / "SRC" / "APP.PY").write_text("a third\n")
    bench.preserve()
    assert holds(bench.repo, b"another file\n")
    assert holds(bench.repo, b"a third\n")


def test_a_change_that_keeps_size_and_time_is_stored_whatever_the_configuration_says(bench: Bench) -> None:
    place = bench.path / "README.md"
    os.utime(place, (1, 1))
    bench.run("update-index", "--refresh")
    for name, value in (("core.trustctime", "false"), ("core.checkStat", "minimal"), ("core.ignoreStat", "true")):
        bench.run("config", name, value)
    place.write_text("# A PROJECT\n")
    os.utime(place, (1, 1))
    assert git.preserve(bench.path, ref=REF, message="x") is not None
    assert holds(bench.repo, b"# A PROJECT\n")


@pytest.mark.parametrize("name", [".GIT", ".Git", "deep/.gIt"])
def test_files_named_like_gits_own_folder_come_back(bench: Bench, name: str) -> None:
    (bench.path / name).mkdir(parents=True)
    (bench.path / name / "config").write_text("mine\n")
    (bench.path / "git~1").write_text("short name\n")
    files = fingerprint(bench.path)
    bench.preserve()
    bench.replace_worktree()
    for _ in range(2):
        git.restore(bench.path, ref=REF)
        assert fingerprint(bench.path) == files


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_something_named_git_that_is_no_repository_comes_back(bench: Bench, kind: str) -> None:
    (bench.path / "odd").mkdir()
    (bench.path / "odd" / "beside").write_text("beside\n")
    if kind == "file":
        (bench.path / "odd" / ".git").write_text("not a git file\n")
    else:
        (bench.path / "odd" / ".git").mkdir()
        (bench.path / "odd" / ".git" / "notes").write_text("not a git file\n")
    bench.preserve()
    assert holds(bench.repo, b"not a git file\n")
    bench.replace_worktree()
    git.restore(bench.path, ref=REF)
    place = bench.path / "odd" / ".git" if kind == "file" else bench.path / "odd" / ".git" / "notes"
    assert place.read_text() == "not a git file\n"
    assert (bench.path / "odd" / "beside").read_text() == "beside\n"


def test_a_split_index_stays_as_it_is_and_its_work_is_stored(bench: Bench) -> None:
    bench.run("config", "core.splitIndex", "true")
    (bench.path / "staged.txt").write_text("staged\n")
    bench.run("add", "-A")
    bench.run("update-index", "--split-index")
    before = sorted(file.name for file in state(bench).iterdir())
    bench.round_trip()
    assert any(name.startswith("sharedindex.") for name in before)


def test_pipes_sockets_hard_links_and_empty_folders_do_not_stand_in_the_way(bench: Bench) -> None:
    os.mkfifo(bench.path / "pipe")
    os.mkfifo(bench.path / "src" / "pipe")
    (bench.path / "one").write_text("linked\n")
    os.link(bench.path / "one", bench.path / "two")
    (bench.path / "empty").mkdir()
    (bench.path / "README.md").unlink()
    os.mkfifo(bench.path / "README.md")
    preserved = git.preserve(bench.path, ref=REF, message="x")
    assert preserved is not None
    names = git_run(bench.repo, "ls-tree", "-r", "--name-only", preserved.commit).split("\n")
    assert sorted(names) == ["one", "src/app.py", "two"]


def test_what_cannot_be_read_is_refused_by_name(bench: Bench) -> None:
    (bench.path / "closed").mkdir()
    (bench.path / "closed" / "inside").write_text("inside\n")
    (bench.path / "closed").chmod(0)
    try:
        readable = bool(list((bench.path / "closed").iterdir()))
    except PermissionError:
        readable = False
    if readable:
        pytest.skip("permissions do not bind this user")
    with pytest.raises(SwarmError) as caught:
        git.preserve(bench.path, ref=REF, message="x")
    assert caught.value.code == "WORK_NOT_STORED"
    assert caught.value.details["files"] == ["closed"]


def test_no_filter_or_file_watcher_of_the_agent_takes_part(bench: Bench, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    evil = f"touch {ran}; cat"
    bench.run("config", "filter.evil.clean", evil)
    bench.run("config", "filter.evil.process", evil)
    bench.run("config", "filter.evil.required", "true")
    bench.run("config", "core.fsmonitor", f"touch {ran}")
    index = Path(bench.run("rev-parse", "--path-format=absolute", "--git-path", "index"))
    changed = (bench.path / "src" / "app.py").stat().st_mtime_ns
    os.utime(index, ns=(changed, changed))  # as if the file had been written in the very moment of the index
    (bench.path / ".gitattributes").write_text("* filter=evil\n")
    (bench.path / "README.md").write_text("precious\n")
    preserved = git.preserve(bench.path, ref=REF, message="x")
    assert preserved is not None
    assert holds(bench.repo, b"precious\n")
    assert not ran.exists()


def test_a_replaced_commit_does_not_hide_work(bench: Bench) -> None:
    (bench.path / "README.md").write_text("precious\n")
    bench.run("add", "-A")
    wanted = bench.run("write-tree")
    fake = bench.run("commit-tree", wanted, "-m", "fake")
    bench.run("replace", "HEAD", fake)
    assert git.preserve(bench.path, ref=REF, message="x") is not None


def test_a_worktree_that_was_renamed_is_stored(bench: Bench, tmp_path: Path) -> None:
    (bench.path / "README.md").write_text("edited\n")
    inner = bench.path / "linked"
    bench.run("worktree", "add", "-q", "--detach", str(inner))
    (inner / "README.md").write_text("edited inside\n")
    aside = tmp_path / ".wt.removed-1"
    bench.path.rename(aside)
    preserved = git.preserve(aside, ref=REF, message="x")
    assert preserved is not None
    assert holds(bench.repo, b"edited\n")
    assert holds(bench.repo, b"edited inside\n")


def test_a_repository_with_sha256_keeps_its_work(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    git_run(tmp_path, "init", "-q", "--object-format=sha256", "-b", "main", str(repo))
    commit_files(repo, {"README.md": b"# A project\n"})
    bench = Bench(repo, tmp_path)
    (bench.path / "README.md").write_text("edited\n")
    (bench.path / "new.txt").write_text("new\n")
    bench.run("add", "new.txt")
    bench.round_trip()


def test_a_file_that_keeps_changing_is_refused(bench: Bench) -> None:
    writer = subprocess.Popen(
        ["sh", "-c", 'while :; do head -c 3000000 /dev/urandom > "$0/noise"; done', str(bench.path)]
    )
    try:
        outcome = None
        for number in range(5):
            try:
                git.preserve(bench.path, ref=f"{REF}-{number}", message="x")
            except SwarmError as error:
                outcome = error.code
                break
    finally:
        writer.kill()
        writer.wait()
    assert outcome == "WORK_NOT_STORED"


@pytest.mark.parametrize("lose", [lost_by_reset, lost_by_amending])
def test_a_commit_of_the_reflog_that_only_the_pushed_branch_has_is_stored(bench: Bench, lose) -> None:
    (bench.path / "precious.txt").write_text("precious\n")
    bench.run("add", "-A")
    bench.run("commit", "-q", "-m", "precious")
    pushed = bench.run("rev-parse", "HEAD")
    bench.run("update-ref", "refs/remotes/origin/b", pushed)
    lose(bench)
    bench.preserve()
    bench.run("update-ref", "-d", "refs/remotes/origin/b")
    bench.replace_worktree()
    assert is_held(bench.repo, pushed)


def test_what_another_branch_was_pushed_to_is_not_stored_again(bench: Bench) -> None:
    bench.run("commit", "-q", "--allow-empty", "-m", "pushed")
    bench.run("update-ref", "refs/remotes/origin/other", "HEAD")
    bench.run("reset", "-q", "--hard", "HEAD~1")
    assert git.preserve(bench.path, ref=REF, message="stopped") is None


def test_a_commit_that_only_a_symbolic_branch_seems_to_have_is_stored(bench: Bench) -> None:
    bench.run("symbolic-ref", "refs/heads/alias", "HEAD")
    bench.run("checkout", "-q", "--detach")
    bench.run("commit", "-q", "--allow-empty", "-m", "nowhere")
    made = bench.run("rev-parse", "HEAD")
    bench.preserve()
    bench.remove()
    assert is_held(bench.repo, made)


def test_a_merge_of_notes_in_progress_is_stored_and_comes_back(bench: Bench) -> None:
    for ref, note in (("commits", "ours"), ("theirs", "another")):
        bench.run("notes", f"--ref={ref}", "add", "-m", note, "HEAD")
    fails(bench, "notes", "merge", "theirs")
    [conflicted] = (state(bench) / "NOTES_MERGE_WORKTREE").iterdir()
    conflicted.write_text("resolved by hand\n")
    bench.preserve()
    bench.replace_worktree()
    git.restore(bench.path, ref=REF)
    bench.run("notes", "merge", "--commit")
    assert bench.run("notes", "show", "HEAD") == "resolved by hand"


@pytest.mark.parametrize("executable", [True, False])
def test_an_executable_bit_is_stored_although_the_configuration_says_that_there_are_none(
    bench: Bench, executable: bool
) -> None:
    for name, mode in (("run", 0o755), ("plain", 0o644), ("other", 0o755)):
        (bench.path / name).write_text("x\n")
        (bench.path / name).chmod(mode)
    bench.run("add", "-A")
    bench.run("commit", "-q", "-m", "files")
    bench.run("config", "core.fileMode", "false")
    (bench.path / ("plain" if executable else "run")).chmod(0o755 if executable else 0o644)
    files = fingerprint(bench.path)
    bench.preserve()
    bench.replace_worktree()
    git.restore(bench.path, ref=REF)
    assert fingerprint(bench.path) == files


def test_where_no_file_is_executable_the_configuration_says_whether_there_are_such_bits(bench: Bench) -> None:
    (bench.path / "run").write_text("x\n")
    bench.run("add", "--chmod=+x", "run")
    bench.run("commit", "-q", "-m", "files")
    bench.run("config", "core.fileMode", "false")
    assert git.preserve(bench.path, ref=REF, message="stopped") is None
