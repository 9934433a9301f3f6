"""Finding repositories and the commits new work starts from, on real git."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from swarm_core import git
from swarm_core.errors import CommandFailed, ExternalFailure, InvalidInput, NotFound
from swarm_core.git.command import _git
from tests.support import git_run, make_repo


def test_a_subfolder_and_a_linked_worktree_lead_to_the_main_checkout(repo: Path, tmp_path: Path) -> None:
    git_run(repo, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    expected = git.RepoInfo(
        path=str(repo),
        common_dir=str(repo / ".git"),
        default_branch="main",
        head_commit=git_run(repo, "rev-parse", "HEAD"),
        remote_url=None,
    )
    assert git.inspect(repo) == expected
    assert git.inspect(repo / "src") == expected
    assert git.inspect(tmp_path / "side" / "src") == expected


def test_a_symbolic_link_to_the_repository_is_followed(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(repo)
    assert git.inspect(tmp_path / "link").path == str(repo)


def test_a_repository_whose_git_folder_lies_elsewhere_is_found(tmp_path: Path) -> None:
    place = tmp_path / "files"
    git_run(tmp_path, "init", "-q", "-b", "main", f"--separate-git-dir={tmp_path / 'elsewhere'}", str(place))
    info = git.inspect(place)
    assert (info.path, info.common_dir) == (str(place), str(tmp_path / "elsewhere"))


def test_a_submodule_is_a_repository_of_its_own(repo: Path, tmp_path: Path) -> None:
    make_repo(tmp_path / "library")
    git_run(repo, "-c", "protocol.file.allow=always", "submodule", "-q", "add", str(tmp_path / "library"), "lib")
    assert git.inspect(repo / "lib" / "src").path == str(repo / "lib")


def test_a_repository_without_commits_has_a_branch_and_no_commit(tmp_path: Path) -> None:
    git_run(tmp_path, "init", "-q", "-b", "trunk", "empty")
    info = git.inspect(tmp_path / "empty")
    assert (info.default_branch, info.head_commit) == ("trunk", None)
    assert git.resolve_base(info.path, None) == git.Base("trunk", None)


def test_a_detached_checkout_has_no_branch(repo: Path) -> None:
    git_run(repo, "checkout", "-q", "--detach")
    commit = git_run(repo, "rev-parse", "HEAD")
    assert git.inspect(repo).default_branch is None
    assert git.resolve_base(str(repo), None) == git.Base("HEAD", commit)


def test_packed_refs_are_read(repo: Path) -> None:
    commit = git_run(repo, "rev-parse", "HEAD")
    git_run(repo, "pack-refs", "--all")
    assert git.head_commit(repo) == commit


def test_the_remote_address_comes_without_its_token(repo: Path) -> None:
    git_run(repo, "remote", "add", "origin", "https://person:secret@example.invalid/a/b.git")
    assert git.inspect(repo).remote_url == "https://example.invalid/a/b.git"


@pytest.mark.parametrize("name", ["missing", "plain", "plain/file.txt"])
def test_what_is_no_repository_is_not_found(tmp_path: Path, name: str) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "file.txt").write_text("x")
    with pytest.raises(NotFound) as caught:
        git.inspect(tmp_path / name)
    assert caught.value.code == "GIT_REPOSITORY_NOT_FOUND"
    assert caught.value.hint


def test_a_bare_repository_is_refused(repo: Path, tmp_path: Path) -> None:
    git_run(tmp_path, "clone", "-q", "--bare", str(repo), "bare.git")
    with pytest.raises(InvalidInput) as caught:
        git.inspect(tmp_path / "bare.git")
    assert caught.value.code == "GIT_REPOSITORY_INVALID"


def test_a_worktree_of_a_bare_repository_is_refused(repo: Path, tmp_path: Path) -> None:
    git_run(tmp_path, "clone", "-q", "--bare", str(repo), "proj/.git")
    git_run(tmp_path / "proj", "worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    with pytest.raises(InvalidInput):
        git.inspect(tmp_path / "linked")


def test_a_damaged_repository_is_called_invalid(repo: Path) -> None:
    (repo / ".git" / "HEAD").write_text("nonsense\n")
    with pytest.raises(InvalidInput) as caught:
        git.inspect(repo)
    assert caught.value.code == "GIT_REPOSITORY_INVALID"
    assert "fsck" in str(caught.value.hint)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_repository_of_another_user_comes_with_the_way_to_trust_it(repo: Path) -> None:
    for path in (repo, repo / ".git"):
        os.chown(path, 12345, 12345)
    with pytest.raises(InvalidInput) as caught:
        git.inspect(repo)
    assert "safe.directory" in str(caught.value.hint)


def test_a_base_may_be_a_branch_a_remote_branch_a_tag_or_a_commit(repo: Path) -> None:
    commit = git_run(repo, "rev-parse", "HEAD")
    git_run(repo, "tag", "-a", "-m", "v", "v1")
    git_run(repo, "update-ref", "refs/remotes/origin/topic", commit)
    assert git.resolve_base(str(repo), "main") == git.Base("main", commit)
    assert git.resolve_base(str(repo), "v1") == git.Base("v1", commit)
    assert git.resolve_base(str(repo), "origin/topic") == git.Base("origin/topic", commit)
    assert git.resolve_base(str(repo), "topic") == git.Base("origin/topic", commit)
    assert git.resolve_base(str(repo), commit[:10]).commit == commit


def test_a_branch_wins_over_a_tag_of_the_same_name(repo: Path) -> None:
    git_run(repo, "tag", "same")
    git_run(repo, "checkout", "-q", "-b", "same")
    git_run(repo, "commit", "-q", "--allow-empty", "-m", "more")
    assert git.resolve_base(str(repo), "same").commit == git_run(repo, "rev-parse", "refs/heads/same")


def test_an_unknown_base_names_close_branches(repo: Path) -> None:
    git_run(repo, "branch", "feature/login")
    with pytest.raises(NotFound) as caught:
        git.resolve_base(str(repo), "feature/logn")
    assert caught.value.code == "GIT_BRANCH_NOT_FOUND"
    assert "feature/login" in str(caught.value.hint)


BAD_NAMES = [
    "",
    "-x",
    "--upload-pack=x",
    "a..b",
    "a b",
    "a\nb",
    "a\0b",
    "a\x7fb",
    "a~",
    "a^",
    "a:b",
    "a?",
    "a*",
    "a[b",
    "a\\b",
    "/a",
    "a/",
    "a//b",
    ".a",
    "a/.b",
    "a.lock",
    "a.lock/b",
    "a.",
    "@",
    "a@{b",
    "HEAD",
    "x" * 300,
    "\udcff",
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_git_would_refuse_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        git.check_branch_name(name)
    assert caught.value.code == "INVALID_BRANCH_NAME"


@pytest.mark.parametrize("name", ["-x", "a..b", "a\nb", "a\0b", "main:README.md", "--all", ""])
def test_a_base_that_is_no_name_is_refused(repo: Path, name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        git.resolve_base(str(repo), name)
    assert caught.value.code == "INVALID_BRANCH_NAME"


@pytest.mark.parametrize("name", ["main", "work/work-1-a1", "über/ä", "a.b", "a-b", "a@b", "x" * 200])
def test_a_name_is_accepted_here_and_by_git(repo: Path, name: str) -> None:
    git.check_branch_name(name)
    git_run(repo, "check-ref-format", "--branch", name)


def test_branches_are_listed_by_prefix(repo: Path) -> None:
    for name in ("work/a1", "work/a2", "worker", "review/a1"):
        git_run(repo, "branch", name)
    assert git.branches(repo) == {"main", "work/a1", "work/a2", "worker", "review/a1"}
    assert git.branches(repo, "work/") == {"work/a1", "work/a2"}
    assert git.branches(repo, "work/a2") == {"work/a2"}
    assert git.branches(repo, "work") == {"work/a1", "work/a2", "worker"}


def test_a_failing_command_has_one_name_and_its_exit_code(repo: Path) -> None:
    with pytest.raises(CommandFailed) as caught:
        _git(repo, "cat-file", "blob", "0" * 40)
    assert caught.value.code == "GIT_COMMAND_FAILED"
    assert caught.value.details["exit_code"] == 128


def test_variables_of_a_surrounding_hook_do_not_lead_elsewhere(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_repo(tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    assert git.inspect(repo).path == str(repo)


def test_a_missing_git_is_named_with_a_hint(repo: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ExternalFailure) as caught:
        git.inspect(repo)
    assert "apt-get install git" in str(caught.value.hint)


def test_the_version_is_a_tuple_of_numbers() -> None:
    assert (2, 20) < git.git_version() < (99,)


def test_refs_are_read_while_git_itself_fails(repo: Path, tmp_path: Path) -> None:
    """GitPython runs git when it is imported; nothing of how that is avoided is left for agents to inherit."""
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 128\n")
    program.chmod(0o755)
    code = "import os, sys; from swarm_core.git import refs; print(refs.head_commit(sys.argv[1]), *os.environ)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(repo)],
        env={**os.environ, "PATH": str(program.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    commit, *names = done.stdout.split()
    assert commit == git_run(repo, "rev-parse", "HEAD")
    assert [name for name in names if name.startswith("GIT_PYTHON")] == []


_FIRST_USES = """
import sys, threading
from swarm_core.git import command, refs
sys.setswitchinterval(1e-6)
barrier, loaded, wrong = threading.Barrier(12), threading.Event(), []

def load():
    barrier.wait()
    refs.head_commit(sys.argv[1])

def copy():
    barrier.wait()
    while not loaded.is_set():
        try:
            wrong.extend(name for name in command.clean_environment() if name.startswith("GIT_PYTHON"))
        except Exception as error:
            wrong.append(repr(error))

loading = [threading.Thread(target=load) for _ in range(8)]
copying = [threading.Thread(target=copy) for _ in range(4)]
for thread in loading + copying:
    thread.start()
for thread in loading:
    thread.join()
loaded.set()
for thread in copying:
    thread.join()
print(*sorted(set(wrong)))
"""


def test_threads_that_read_refs_for_the_first_time_change_nobodys_environment(repo: Path) -> None:
    argv = [sys.executable, "-c", _FIRST_USES, str(repo)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
    assert done.stderr == ""
