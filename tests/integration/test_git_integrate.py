"""Merging in a scratch worktree and landing the result, on real git; nobody's files are touched unasked."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from swarm_core.errors import CommandFailed, Conflict, InvalidInput
from swarm_core.git import integrate
from tests.support import git_run, wait_until

METHODS: list[integrate.Method] = ["merge", "squash", "rebase"]


def commit(path: Path, name: str, content: str, message: str = "") -> str:
    (path / name).write_text(content)
    git_run(path, "add", "-A")
    git_run(path, "commit", "-q", "-m", message or f"{name}: {content.strip()[:20]}")
    return git_run(path, "rev-parse", "HEAD")


@pytest.fixture
def topic(repo: Path) -> Path:
    """main with one commit of its own, a branch `topic` with two; checked out at main."""
    git_run(repo, "checkout", "-q", "-b", "topic")
    commit(repo, "a.txt", "a\n")
    commit(repo, "b.txt", "b\n")
    git_run(repo, "checkout", "-q", "main")
    commit(repo, "c.txt", "c\n")
    return repo


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "repo.lock"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch" / "one"


def rev(path: Path, name: str) -> str:
    return git_run(path, "rev-parse", name)


def seen(repo: Path) -> tuple[str, str, str, str]:
    """All that a person sees of their repository."""
    return (
        git_run(repo, "for-each-ref"),
        git_run(repo, "status", "--porcelain", "--branch"),
        git_run(repo, "worktree", "list"),
        git_run(repo, "stash", "list"),
    )


def merged(topic: Path, folder: Path, lock: Path, method: integrate.Method = "merge") -> str:
    with integrate.scratch(topic, rev(topic, "main"), folder, lock=lock) as path:
        return integrate.combine(path, rev(topic, "topic"), method, "Merge the topic")


def test_a_scratch_is_a_checkout_that_leaves_no_trace(topic: Path, folder: Path, lock: Path) -> None:
    before = seen(topic)
    with integrate.scratch(topic, rev(topic, "topic"), folder, lock=lock) as path:
        assert (path / "a.txt").read_text() == "a\n"
        assert git_run(path, "status", "--porcelain") == ""
        (path / "left.txt").write_text("x")
    assert seen(topic) == before
    assert list(folder.parent.iterdir()) == []


def test_a_scratch_is_removed_whatever_happens_in_it(topic: Path, folder: Path, lock: Path) -> None:
    before, head = seen(topic), rev(topic, "topic")
    with contextlib.suppress(ZeroDivisionError), integrate.scratch(topic, head, folder, lock=lock) as path:
        (path / ".git").unlink()
        (path / "src").chmod(0o500)
        raise ZeroDivisionError
    assert seen(topic) == before
    assert list(folder.parent.iterdir()) == []


def test_a_scratch_runs_no_hook(topic: Path, folder: Path, lock: Path) -> None:
    for name in (
        "post-checkout",
        "pre-commit",
        "commit-msg",
        "post-merge",
        "prepare-commit-msg",
        "pre-merge-commit",
    ):
        path = topic / ".git" / "hooks" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho {name} >> {topic.parent}/hooks\nexit 1\n")
        path.chmod(0o755)
    for method in METHODS:
        merged(topic, folder, lock, method)
    assert not (topic.parent / "hooks").exists()


def test_what_a_killed_process_left_is_taken_over(topic: Path, folder: Path, lock: Path) -> None:
    before = seen(topic)
    program = f"""
import os, signal
from pathlib import Path
from swarm_core.git import integrate
with integrate.scratch({str(topic)!r}, {rev(topic, "topic")!r}, {str(folder)!r}, lock=Path({str(lock)!r})) as path:
    (path / "junk").write_text("x")
    (path / "a.txt").write_text("changed")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (folder / "junk").exists()
    with integrate.scratch(topic, rev(topic, "main"), folder, lock=lock) as path:
        assert rev(path, "HEAD") == rev(topic, "main")
        assert git_run(path, "status", "--porcelain") == ""
    assert seen(topic) == before


def test_a_scratch_of_a_repository_that_was_made_anew_is_taken_over(topic: Path, folder: Path, lock: Path) -> None:
    git_run(topic, "worktree", "add", "-q", "--detach", str(folder), "topic")
    entry = next((topic / ".git" / "worktrees").iterdir())
    entry.rename(topic.parent / "gone")
    assert len(merged(topic, folder, lock)) == 40
    assert not folder.exists()


@pytest.mark.parametrize("what", ["files", "repository", "file", "link"])
def test_what_is_no_scratch_is_never_removed(topic: Path, folder: Path, lock: Path, what: str) -> None:
    if what == "file":
        folder.write_text("mine")
    elif what == "link":
        folder.symlink_to(topic)
    else:
        folder.mkdir()
        (folder / "mine.txt").write_text("mine")
    if what == "repository":
        git_run(folder, "init", "-q")
    with pytest.raises(Conflict), integrate.scratch(topic, rev(topic, "main"), folder, lock=lock):
        pass
    assert os.path.lexists(folder)
    assert (topic / "README.md").exists()
    assert what in ("file", "link") or (folder / "mine.txt").read_text() == "mine"


def test_a_merge_is_one_commit_with_two_parents(topic: Path, folder: Path, lock: Path) -> None:
    before = seen(topic)
    made = merged(topic, folder, lock, "merge")
    assert git_run(topic, "show", "-s", "--format=%P %s", made).split(" ", 2) == [
        rev(topic, "main"),
        rev(topic, "topic"),
        "Merge the topic",
    ]
    assert git_run(topic, "ls-tree", "--name-only", made).split() == [
        "README.md",
        "a.txt",
        "b.txt",
        "c.txt",
        "src",
    ]
    assert seen(topic) == before


def test_a_merge_commit_is_made_even_where_none_is_needed(topic: Path, folder: Path, lock: Path) -> None:
    git_run(topic, "reset", "-q", "--hard", "main~1")
    assert git_run(topic, "show", "-s", "--format=%P", merged(topic, folder, lock)).split() == [
        rev(topic, "main"),
        rev(topic, "topic"),
    ]


def test_a_squash_is_one_commit_by_the_author_of_the_work(
    topic: Path, folder: Path, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_AUTHOR_NAME", "An Agent")
    git_run(topic, "checkout", "-q", "topic")
    commit(topic, "d.txt", "d\n")
    git_run(topic, "checkout", "-q", "main")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Somebody")
    made = merged(topic, folder, lock, "squash")
    assert git_run(topic, "show", "-s", "--format=%P|%an|%cn|%s", made) == (
        f"{rev(topic, 'main')}|An Agent|Test Person|Merge the topic"
    )
    assert git_run(topic, "diff", "--name-only", "main", made).split() == ["a.txt", "b.txt", "d.txt"]


def test_a_rebase_replays_each_commit(topic: Path, folder: Path, lock: Path) -> None:
    made = merged(topic, folder, lock, "rebase")
    assert git_run(topic, "log", "--format=%s", f"main..{made}").splitlines() == ["b.txt: b", "a.txt: a"]
    assert rev(topic, f"{made}~2") == rev(topic, "main")


def test_a_rebase_moves_no_other_branch(topic: Path, folder: Path, lock: Path) -> None:
    git_run(topic, "branch", "part", "topic~1")
    git_run(topic, "config", "rebase.updateRefs", "true")
    before = seen(topic)
    merged(topic, folder, lock, "rebase")
    assert seen(topic) == before


def test_a_rebase_of_what_needs_none_is_the_branch_itself(topic: Path, folder: Path, lock: Path) -> None:
    git_run(topic, "reset", "-q", "--hard", "main~1")
    assert merged(topic, folder, lock, "rebase") == rev(topic, "topic")


@pytest.mark.parametrize("method", METHODS)
def test_what_is_there_already_is_not_merged_again(
    topic: Path, folder: Path, lock: Path, method: integrate.Method
) -> None:
    git_run(topic, "merge", "-q", "--no-edit", "topic")
    assert merged(topic, folder, lock, method) == rev(topic, "main")


@pytest.mark.parametrize("method", ["squash", "rebase"])
def test_changes_that_are_there_already_make_no_commit(
    topic: Path, folder: Path, lock: Path, method: integrate.Method
) -> None:
    git_run(topic, "cherry-pick", "topic~1", "topic")
    assert merged(topic, folder, lock, method) == rev(topic, "main")


@pytest.mark.parametrize("method", METHODS)
def test_a_conflict_names_its_files_and_leaves_the_scratch_as_it_was(
    topic: Path, folder: Path, lock: Path, method: integrate.Method
) -> None:
    commit(topic, "b.txt", "another\n")
    (topic / "a.txt").mkdir()
    commit(topic, "a.txt/in a folder", "x\n")
    base, before = rev(topic, "main"), seen(topic)
    with integrate.scratch(topic, base, folder, lock=lock) as path:
        files = sorted(item.name for item in path.iterdir())
        with pytest.raises(Conflict) as caught:
            integrate.combine(path, rev(topic, "topic"), method, "Merge")
        assert caught.value.code == "MERGE_CONFLICT"
        assert any(name.startswith(("a.txt", "b.txt")) for name in caught.value.details["files"])
        assert rev(path, "HEAD") == base
        assert git_run(path, "status", "--porcelain", "--ignored") == ""
        assert sorted(item.name for item in path.iterdir()) == files
        git_run(topic, "branch", "good", "topic~1")
        good = commit_elsewhere(topic, base)
        assert integrate.combine(path, good, method, "Merge") != base
    git_run(topic, "branch", "-D", "good")
    assert seen(topic) == before


def commit_elsewhere(repo: Path, parent: str) -> str:
    """A commit on top of the parent's parent that conflicts with nothing."""
    blob = git_run(repo, "hash-object", "-w", "--stdin", stdin=b"new\n")
    listed = git_run(repo, "ls-tree", f"{parent}~1")
    tree = git_run(repo, "mktree", stdin=f"{listed}\n100644 blob {blob}\tnew.txt\n".encode())
    return git_run(repo, "commit-tree", tree, "-p", f"{parent}~1", "-m", "new")


def test_histories_without_a_common_commit_are_a_conflict(topic: Path, folder: Path, lock: Path) -> None:
    other = git_run(topic, "commit-tree", "topic^{tree}", "-m", "alone")
    with integrate.scratch(topic, rev(topic, "main"), folder, lock=lock) as path:
        for method in METHODS:
            with pytest.raises(Conflict) as caught:
                integrate.combine(path, other, method, "x")
            assert caught.value.code == "MERGE_CONFLICT"


def test_a_failure_that_is_no_conflict_is_not_called_one(topic: Path, folder: Path, lock: Path) -> None:
    with integrate.scratch(topic, rev(topic, "main"), folder, lock=lock) as path:
        with pytest.raises(CommandFailed):
            integrate.combine(path, "1" * 40, "merge", "x")
        Path(git_run(path, "rev-parse", "--absolute-git-dir"), "index.lock").touch()
        with pytest.raises(CommandFailed):
            integrate.combine(path, rev(topic, "topic"), "merge", "x")
        assert rev(path, "HEAD") == rev(topic, "main")
        assert integrate.combine(path, rev(topic, "topic"), "merge", "x") != rev(topic, "main")


@pytest.mark.parametrize("method", METHODS)
def test_settings_of_the_person_do_not_get_in_the_way(
    topic: Path, folder: Path, lock: Path, method: integrate.Method
) -> None:
    for key, value in {
        "merge.ff": "only",
        "commit.gpgSign": "true",
        "gpg.program": "false",
        "merge.verifySignatures": "true",
        "rebase.autoSquash": "true",
        "rebase.rebaseMerges": "true",
        "core.editor": "false",
        "sequence.editor": "false",
        "commit.template": "nowhere",
        "merge.autoStash": "true",
    }.items():
        git_run(topic, "config", key, value)
    assert git_run(topic, "show", "-s", "--format=%an", merged(topic, folder, lock, method)) == "Test Person"
    git_run(topic, "config", "merge.ff", "false")
    assert merged(topic, folder, lock, method) != rev(topic, "main")


@pytest.mark.parametrize("method", METHODS)
def test_without_an_identity_ours_is_used(
    topic: Path, folder: Path, lock: Path, method: integrate.Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.delenv(f"GIT_{role}_NAME")
        monkeypatch.delenv(f"GIT_{role}_EMAIL")
    made = merged(topic, folder, lock, method)
    assert git_run(topic, "show", "-s", "--format=%cn <%ce>", made) == "swarm <swarm@localhost>"
    git_run(topic, "config", "user.name", "Configured")
    git_run(topic, "config", "user.email", "c@example.invalid")
    assert git_run(topic, "show", "-s", "--format=%cn", merged(topic, folder, lock, method)) == "Configured"


def test_a_message_is_taken_as_it_is(topic: Path, folder: Path, lock: Path) -> None:
    message = "Closes #7\n\n# no comment\n" + "x" * 200_000
    with integrate.scratch(topic, rev(topic, "main"), folder, lock=lock) as path:
        made = integrate.combine(path, rev(topic, "topic"), "squash", message)
    assert git_run(topic, "show", "-s", "--format=%B", made) == message


def check(path: Path, *argv: str, timeout: float = 60, size: int = 1000, **env: str) -> tuple[bool, str]:
    environ = {"PATH": os.environ["PATH"], **env}
    log = path.parent / "log"
    answer = integrate.run_check(path, argv, timeout=timeout, max_output=size, env=environ, log=log)
    assert not log.exists()
    return answer


def test_a_check_runs_in_the_scratch_and_says_what_it_printed(topic: Path) -> None:
    assert check(topic, "sh", "-c", 'echo out; echo err >&2; cat README.md; test -z "$(cat)"') == (
        True,
        "out\nerr\n# A project",
    )
    assert check(topic, "sh", "-c", "echo bad; exit 3") == (False, "bad\n\n[exit code 3]")


def test_no_word_of_a_check_is_read_by_a_shell(topic: Path) -> None:
    assert check(topic, "printf", "%s|", "$HOME", "a b", "; touch x", "`id`") == (
        True,
        "$HOME|a b|; touch x|`id`|",
    )
    assert not (topic / "x").exists()


def test_a_check_sees_the_given_environment_alone(topic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    ok, output = check(topic, "env", MINE="yes")
    assert ok
    assert "MINE=yes" in output
    assert "secret" not in output


def test_a_program_that_does_not_exist_is_a_failed_check(topic: Path) -> None:
    ok, output = check(topic, "no-such-program")
    assert not ok
    assert "no-such-program" in output
    with pytest.raises(InvalidInput):
        check(topic)


def test_of_much_output_the_end_is_kept_without_colours(topic: Path) -> None:
    ok, output = check(topic, "sh", "-c", "seq 100000; printf '\\033[31mred\\033[0m\\r\\n\\001end'", size=100)
    assert ok
    assert output.endswith("99999\n100000\nred\nend")
    assert len(output) < 200


def test_at_the_timeout_every_process_of_a_check_is_ended(topic: Path) -> None:
    script = "sleep 1000 & echo $! $$; wait"
    ok, output = check(topic, "sh", "-c", script, timeout=1)
    assert not ok
    assert "longer than 1 s" in output
    for pid in output.split()[:2]:
        wait_until(lambda pid=pid: not alive(int(pid)), what=pid)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_check_that_leaves_something_running_does_not_wait_for_it(topic: Path) -> None:
    ok, output = check(topic, "sh", "-c", "sleep 1000 & echo $!", timeout=100)
    assert ok
    os.kill(int(output), signal.SIGKILL)


def test_landing_moves_the_branch_and_the_files_of_the_checkout(topic: Path, folder: Path, lock: Path) -> None:
    base, made = rev(topic, "main"), merged(topic, folder, lock)
    (topic / "mine.txt").write_text("untracked")
    (topic / "c.txt").write_text("changed, and not by the merge\n")
    (topic / "src" / "app.py").write_text("staged\n")
    git_run(topic, "add", "src/app.py")
    integrate.land(topic, "main", made, base, lock=lock, what="topic")
    integrate.land(topic, "main", made, base, lock=lock, what="topic")
    assert rev(topic, "main") == made
    assert git_run(topic, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert (topic / "a.txt").read_text() == "a\n"
    assert (topic / "c.txt").read_text() == "changed, and not by the merge\n"
    assert git_run(topic, "status", "--porcelain").splitlines() == ["M c.txt", "M  src/app.py", "?? mine.txt"]
    assert git_run(topic, "reflog", "-1", "--format=%gs", "main") == "swarm: merge topic"
    assert git_run(topic, "reflog", "-1", "--format=%gs", "HEAD") == "swarm: merge topic"


def test_landing_on_a_branch_that_nobody_has_checked_out_moves_it_alone(
    topic: Path, folder: Path, lock: Path
) -> None:
    base, made = rev(topic, "main"), merged(topic, folder, lock)
    git_run(topic, "checkout", "-q", "--detach", "topic")
    (topic / "a.txt").write_text("dirty")
    integrate.land(topic, "main", made, base, lock=lock)
    assert rev(topic, "main") == made
    assert rev(topic, "HEAD") == rev(topic, "topic")
    assert (topic / "a.txt").read_text() == "dirty"


def test_landing_on_a_branch_of_a_linked_worktree_moves_its_files(
    topic: Path, folder: Path, lock: Path, tmp_path: Path
) -> None:
    base, made = rev(topic, "main"), merged(topic, folder, lock)
    git_run(topic, "checkout", "-q", "topic")
    git_run(topic, "worktree", "add", "-q", str(tmp_path / "side"), "main")
    integrate.land(topic, "main", made, base, lock=lock)
    assert (tmp_path / "side" / "a.txt").exists()
    assert git_run(tmp_path / "side", "status", "--porcelain") == ""
    assert git_run(topic, "status", "--porcelain") == ""


def put_in_the_way(topic: Path, how: str) -> None:
    if how == "changed":
        (topic / "README.md").write_text("mine\n")
    elif how == "staged":
        (topic / "README.md").write_text("mine\n")
        git_run(topic, "add", "README.md")
    elif how == "untracked":
        (topic / "a.txt").write_text("mine\n")
    elif how == "ignored":
        (topic / ".git" / "info").mkdir(exist_ok=True)
        (topic / ".git" / "info" / "exclude").write_text("a.txt\n")
        (topic / "a.txt").write_text("mine\n")


@pytest.mark.parametrize("how", ["changed", "staged", "untracked", "ignored"])
def test_uncommitted_changes_are_never_overwritten(topic: Path, folder: Path, lock: Path, how: str) -> None:
    git_run(topic, "checkout", "-q", "topic")
    commit(topic, "README.md", "from topic\n")
    git_run(topic, "checkout", "-q", "main")
    base, made = rev(topic, "main"), merged(topic, folder, lock)
    put_in_the_way(topic, how)
    files = {path.name: path.read_bytes() for path in topic.iterdir() if path.is_file()}
    before = seen(topic)
    with pytest.raises(Conflict) as caught:
        integrate.land(topic, "main", made, base, lock=lock)
    assert caught.value.code == "CONFLICT"
    assert caught.value.details["reason"] == "checkout"
    assert str(topic) in caught.value.message
    assert ("a.txt" if how in ("untracked", "ignored") else "README.md") in caught.value.message
    assert caught.value.hint
    assert seen(topic) == before
    assert {path.name: path.read_bytes() for path in topic.iterdir() if path.is_file()} == files


def begin_merge(topic: Path) -> None:
    git_run(topic, "merge", "-q", "--no-commit", "--no-ff", "topic~1")


def begin_rebase(topic: Path) -> None:
    commit(topic, "b.txt", "other\n")
    subprocess.run(["git", "-C", str(topic), "rebase", "-q", "topic"], capture_output=True, check=False)


def begin_bisect(topic: Path) -> None:
    git_run(topic, "bisect", "start")


@pytest.mark.parametrize("begin", [begin_merge, begin_rebase, begin_bisect])
def test_a_checkout_in_the_middle_of_something_is_left_alone(
    topic: Path, folder: Path, lock: Path, begin: Callable[[Path], None]
) -> None:
    begin(topic)
    base, made = rev(topic, "main"), merged_onto(topic, folder, lock)
    before = seen(topic)
    with pytest.raises(Conflict) as caught:
        integrate.land(topic, "main", made, base, lock=lock)
    assert caught.value.details["reason"] == "checkout"
    assert seen(topic) == before


def merged_onto(topic: Path, folder: Path, lock: Path) -> str:
    with integrate.scratch(topic, rev(topic, "main"), folder, lock=lock) as path:
        return integrate.combine(path, rev(topic, "topic~1"), "merge", "x")


def test_a_branch_that_is_checked_out_twice_or_in_a_folder_that_is_gone_is_left_alone(
    topic: Path, folder: Path, lock: Path, tmp_path: Path
) -> None:
    base, made = rev(topic, "main"), merged(topic, folder, lock)
    git_run(topic, "worktree", "add", "-q", "--force", str(tmp_path / "side"), "main")
    with pytest.raises(Conflict):
        integrate.land(topic, "main", made, base, lock=lock)
    git_run(topic, "checkout", "-q", "topic")
    (tmp_path / "side").rename(tmp_path / "unmounted")
    with pytest.raises(Conflict) as caught:
        integrate.land(topic, "main", made, base, lock=lock)
    assert caught.value.details["path"] == str(tmp_path / "side")
    assert rev(topic, "main") == base


@pytest.mark.parametrize("checked_out", [True, False])
def test_a_base_that_has_moved_is_not_moved_again(
    topic: Path, folder: Path, lock: Path, checked_out: bool
) -> None:
    base, made = rev(topic, "main"), merged(topic, folder, lock)
    later = commit(topic, "later.txt", "x\n")
    if not checked_out:
        git_run(topic, "checkout", "-q", "topic")
    before = seen(topic)
    with pytest.raises(Conflict) as caught:
        integrate.land(topic, "main", made, base, lock=lock)
    assert caught.value.details == {"reason": "base_moved", "branch": "main", "expected": base, "found": later}
    assert seen(topic) == before


def test_what_was_landed_and_built_upon_is_landed(topic: Path, folder: Path, lock: Path) -> None:
    base, made = rev(topic, "main"), merged(topic, folder, lock)
    integrate.land(topic, "main", made, base, lock=lock)
    later = commit(topic, "later.txt", "x\n")
    integrate.land(topic, "main", made, base, lock=lock)
    assert rev(topic, "main") == later


def test_only_a_descendant_is_landed(topic: Path, lock: Path) -> None:
    with pytest.raises(InvalidInput):
        integrate.land(topic, "main", rev(topic, "topic"), rev(topic, "main"), lock=lock)


def test_a_branch_that_another_git_holds_is_left_alone(topic: Path, folder: Path, lock: Path) -> None:
    base, made = rev(topic, "main"), merged(topic, folder, lock)
    (topic / ".git" / "refs" / "heads" / "main.lock").touch()
    before = seen(topic)
    with pytest.raises(Conflict) as caught:
        integrate.land(topic, "main", made, base, lock=lock)
    assert caught.value.details["reason"] == "checkout"
    assert seen(topic) == before


def test_a_git_that_does_not_answer_is_not_waited_for(
    topic: Path, folder: Path, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent can tell git to wait for the branch without end."""
    base, made = rev(topic, "main"), merged(topic, folder, lock)
    before = git_run(topic, "status", "--porcelain")
    git_run(topic, "config", "core.filesRefLockTimeout", "-1")
    held = topic / ".git" / "refs" / "heads" / "main.lock"
    held.touch()
    monkeypatch.setattr(integrate, "_ANSWER_TIMEOUT", 0.3)
    with pytest.raises(Conflict) as caught:
        integrate.land(topic, "main", made, base, lock=lock)
    assert caught.value.details["reason"] == "checkout"
    assert (rev(topic, "main"), git_run(topic, "status", "--porcelain")) == (base, before)
    held.unlink()
    integrate.land(topic, "main", made, base, lock=lock)
    assert rev(topic, "main") == made


def test_an_index_that_another_git_holds_is_left_alone(topic: Path, folder: Path, lock: Path) -> None:
    base, made = rev(topic, "main"), merged(topic, folder, lock)
    (topic / ".git" / "index.lock").touch()
    with pytest.raises(Conflict):
        integrate.land(topic, "main", made, base, lock=lock)
    assert rev(topic, "main") == base
    assert not (topic / ".git" / "refs" / "heads" / "main.lock").exists()


def test_while_the_files_follow_no_other_git_can_move_the_branch(topic: Path, folder: Path, lock: Path) -> None:
    """A filter runs while files are written: what it tries to do to the branch fails."""
    git_run(topic, "config", "filter.race.smudge", "git update-ref refs/heads/main main~1; echo $? >&2; cat")
    git_run(topic, "config", "filter.race.clean", "cat")
    git_run(topic, "checkout", "-q", "topic")
    commit(topic, ".gitattributes", "b2.txt filter=race\n")
    commit(topic, "b2.txt", "b2\n")
    git_run(topic, "checkout", "-q", "main")
    base = rev(topic, "main")
    git_run(topic, "config", "filter.race.smudge", "cat")
    made = merged(topic, folder, lock)
    git_run(
        topic, "config", "filter.race.smudge", f"git update-ref refs/heads/main main~1 || touch {lock}.held; cat"
    )
    integrate.land(topic, "main", made, base, lock=lock)
    assert Path(f"{lock}.held").exists()
    assert rev(topic, "main") == made
    assert git_run(topic, "status", "--porcelain") == ""


def test_a_landing_that_was_killed_among_the_files_is_finished(topic: Path, folder: Path, lock: Path) -> None:
    base, made = rev(topic, "main"), merged(topic, folder, lock)
    again = merged(topic, folder, lock)
    git_run(topic, "read-tree", "-m", "-u", base, made)
    assert rev(topic, "main") == base
    integrate.land(topic, "main", again, base, lock=lock)
    assert git_run(topic, "status", "--porcelain") == ""


def test_landing_in_a_checkout_whose_files_were_only_touched_succeeds(
    topic: Path, folder: Path, lock: Path
) -> None:
    git_run(topic, "checkout", "-q", "topic")
    commit(topic, "README.md", "from topic\n")
    git_run(topic, "checkout", "-q", "main")
    base, made = rev(topic, "main"), merged(topic, folder, lock)
    os.utime(topic / "README.md", (1, 1))
    integrate.land(topic, "main", made, base, lock=lock)
    assert (topic / "README.md").read_text() == "from topic\n"


def test_landing_runs_no_hook(topic: Path, folder: Path, lock: Path) -> None:
    base, made = rev(topic, "main"), merged(topic, folder, lock)
    for name in ("post-merge", "reference-transaction", "post-checkout", "post-index-change"):
        path = topic / ".git" / "hooks" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\nexit 1\n")
        path.chmod(0o755)
    integrate.land(topic, "main", made, base, lock=lock)
    assert rev(topic, "main") == made
