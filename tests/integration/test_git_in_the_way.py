"""Landing a merge where untracked or ignored files lie in the way: they are named and nothing changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm_core.errors import Conflict
from swarm_core.git import integrate
from tests.integration.test_git_integrate import commit, folder, lock, merged, rev, seen, topic
from tests.support import git_run

__all__ = ["folder", "lock", "topic"]

# The path that a merge adds, what lies there untracked, and what is named as being in the way
IN_THE_WAY = {
    "a folder where a file is added": ("data", ["data/one", "data/deep/two"], ["data/deep/two", "data/one"]),
    "a file where a folder is added": ("secrets/readme", ["secrets"], ["secrets"]),
    "a file where a folder of folders is added": ("a/b/c", ["a"], ["a"]),
    "a file where a file is added": ("data", ["data"], ["data"]),
    "a file in a folder that is added": ("a/b", ["a/b", "a/c"], ["a/b"]),
    "a folder named .git where a file is added": (
        "data",
        ["data/.git/notes", "data/.git/deep/f", "data/sub/.git/.git/g"],
        ["data/.git/deep/f", "data/.git/notes", "data/sub/.git/.git/g"],
    ),
    "a folder named .git in one that is added": ("a/b/c", ["a/b/c/.git/notes", "a/.git/x"], ["a/b/c/.git/notes"]),
}


@pytest.mark.parametrize("ignored", [True, False])
@pytest.mark.parametrize(("added", "there", "named"), IN_THE_WAY.values(), ids=list(IN_THE_WAY))
def test_files_that_git_does_not_track_are_named_when_a_merge_would_delete_them(
    topic: Path, folder: Path, lock: Path, added: str, there: list[str], named: list[str], ignored: bool
) -> None:
    git_run(topic, "checkout", "-q", "topic")
    (topic / added).parent.mkdir(parents=True, exist_ok=True)
    commit(topic, added, "from topic\n")
    git_run(topic, "checkout", "-q", "main")
    if ignored:
        (topic / ".git/info/exclude").write_text("/data\n/secrets\n/a\n")
    base, made = rev(topic, "main"), merged(topic, folder, lock)
    for name in there:
        (topic / name).parent.mkdir(parents=True, exist_ok=True)
        (topic / name).write_text("mine\n")
    before = seen(topic)
    with pytest.raises(Conflict) as caught:
        integrate.land(topic, "main", made, base, lock=lock)
    assert (caught.value.details["reason"], caught.value.details["files"]) == ("checkout", named)
    assert {(topic / name).read_text() for name in there} == {"mine\n"}
    assert (rev(topic, "main"), seen(topic)) == (base, before)


def test_a_repository_that_lies_where_a_merge_adds_a_file_is_named(topic: Path, folder: Path, lock: Path) -> None:
    git_run(topic, "checkout", "-q", "topic")
    commit(topic, "data", "from topic\n")
    git_run(topic, "checkout", "-q", "main")
    (topic / ".git/info/exclude").write_text("/data\n")
    base, made = rev(topic, "main"), merged(topic, folder, lock)
    (topic / "data/inner").mkdir(parents=True)
    git_run(topic / "data/inner", "init", "-q")
    with pytest.raises(Conflict) as caught:
        integrate.land(topic, "main", made, base, lock=lock)
    assert caught.value.details["files"] == ["data/inner/"]
    assert (topic / "data/inner/.git/HEAD").exists()


def test_a_tracked_folder_becomes_a_file_and_a_tracked_file_a_folder(
    topic: Path, folder: Path, lock: Path
) -> None:
    (topic / "one").mkdir()
    commit(topic, "one/inner", "x\n")
    commit(topic, "two", "x\n")
    git_run(topic, "checkout", "-q", "-B", "topic")
    git_run(topic, "rm", "-q", "-r", "one", "two")
    commit(topic, "one", "now a file\n")
    (topic / "two").mkdir()
    commit(topic, "two/inner", "now in a folder\n")
    git_run(topic, "checkout", "-q", "main")
    (topic / "empty").mkdir()
    base, made = rev(topic, "main"), merged(topic, folder, lock)
    integrate.land(topic, "main", made, base, lock=lock)
    assert (topic / "one").read_text() == "now a file\n"
    assert (topic / "two/inner").read_text() == "now in a folder\n"


def test_an_ignored_file_beside_the_tracked_ones_of_a_folder_that_becomes_a_file_is_named(
    topic: Path, folder: Path, lock: Path
) -> None:
    (topic / "one").mkdir()
    commit(topic, "one/inner", "x\n")
    git_run(topic, "checkout", "-q", "-B", "topic")
    git_run(topic, "rm", "-q", "-r", "one")
    commit(topic, "one", "now a file\n")
    git_run(topic, "checkout", "-q", "main")
    (topic / ".git/info/exclude").write_text("*.env\n")
    base, made = rev(topic, "main"), merged(topic, folder, lock)
    (topic / "one/local.env").write_text("mine\n")
    with pytest.raises(Conflict) as caught:
        integrate.land(topic, "main", made, base, lock=lock)
    assert caught.value.details["files"] == ["one/local.env"]
    assert (topic / "one/local.env").read_text() == "mine\n"


def test_a_folder_named_git_beside_the_tracked_files_of_a_folder_that_becomes_a_file_is_named(
    topic: Path, folder: Path, lock: Path
) -> None:
    (topic / "one").mkdir()
    commit(topic, "one/inner", "x\n")
    git_run(topic, "checkout", "-q", "-B", "topic")
    git_run(topic, "rm", "-q", "-r", "one")
    commit(topic, "one", "now a file\n")
    git_run(topic, "checkout", "-q", "main")
    base, made = rev(topic, "main"), merged(topic, folder, lock)
    (topic / "one/.git").mkdir()
    (topic / "one/.git/notes").write_text("mine\n")
    with pytest.raises(Conflict) as caught:
        integrate.land(topic, "main", made, base, lock=lock)
    assert caught.value.details["files"] == ["one/.git/notes"]
    assert (topic / "one/.git/notes").read_text() == "mine\n"


def test_a_staged_file_in_a_folder_where_a_merge_adds_a_file_is_named(repo: Path, lock: Path) -> None:
    (repo / "data").mkdir()
    (repo / "data/new").write_text("mine\n")
    git_run(repo, "add", "data/new")
    assert refused(repo, lock, changing(repo, blob(repo, "data"))) == ["data/new"]
    assert (repo / "data/new").read_text() == "mine\n"


def test_a_folder_in_the_place_of_a_file_that_a_merge_changes_or_removes_is_named(repo: Path, lock: Path) -> None:
    (repo / "README.md").unlink()
    (repo / "README.md/.git").mkdir(parents=True)
    (repo / "README.md/.git/notes").write_text("mine\n")
    for line in (blob(repo, "README.md"), f"{_AWAY}\tREADME.md"):
        assert refused(repo, lock, changing(repo, line)) == ["README.md/.git/notes"]
    assert (repo / "README.md/.git/notes").read_text() == "mine\n"


def test_empty_folders_make_room_for_a_file_that_a_merge_adds(repo: Path, lock: Path) -> None:
    (repo / "data/.git/deep").mkdir(parents=True)
    made = changing(repo, blob(repo, "data"))
    integrate.land(repo, "main", made, rev(repo, "main"), lock=lock)
    assert (repo / "data").read_text() == "from topic\n"


def test_a_merge_whose_files_were_written_already_is_finished(repo: Path, lock: Path) -> None:
    made = changing(repo, blob(repo, "data/one"), module("lib"))
    git_run(repo, "read-tree", "-m", "-u", "main", made)
    git_run(repo / "lib", "init", "-q")
    integrate.land(repo, "main", made, rev(repo, "main"), lock=lock)
    assert (rev(repo, "main"), (repo / "data/one").read_text()) == (made, "from topic\n")


# Submodules and links: git looks at neither what lies in the one nor where the other leads

_AWAY = f"0 {'0' * 40}"


def changing(repo: Path, *lines: str) -> str:
    """A commit on top of main whose files differ by lines for `git update-index --index-info`."""
    apart = repo.parent / "apart"
    git_run(repo, "worktree", "add", "-q", "--no-checkout", "--detach", str(apart), "main")
    git_run(apart, "read-tree", "main")
    git_run(apart, "update-index", "--index-info", stdin="".join(f"{line}\n" for line in lines).encode())
    tree = git_run(apart, "write-tree")
    git_run(repo, "worktree", "remove", "--force", str(apart))
    return git_run(repo, "commit-tree", "-p", "main", "-m", "changed", tree)


def module(name: str, commit: str = "1" * 40) -> str:
    return f"160000 {commit}\t{name}"


def blob(repo: Path, name: str) -> str:
    oid = git_run(repo, "hash-object", "-w", "--stdin", stdin=b"from topic\n")
    return f"100644 {oid}\t{name}"


def refused(repo: Path, lock: Path, made: str) -> list[str]:
    """What is named as being in the way; nothing was changed."""
    base, before = rev(repo, "main"), seen(repo)
    with pytest.raises(Conflict) as caught:
        integrate.land(repo, "main", made, base, lock=lock)
    assert caught.value.details["reason"] == "checkout"
    assert (rev(repo, "main"), seen(repo)) == (base, before)
    return list(caught.value.details["files"])


def with_module(repo: Path, name: str = "sm") -> None:
    """Record a submodule on main, in a folder with a repository."""
    (repo / name).mkdir(parents=True)
    git_run(repo / name, "init", "-q")
    commit(repo / name, "readme", "x\n")
    git_run(repo, "-c", "advice.addEmbeddedRepo=false", "add", name)
    git_run(repo, "commit", "-q", "-m", "with a submodule")


@pytest.mark.parametrize("hidden_by", ["nothing", "diff.ignoreSubmodules", "submodule.data.ignore", ".gitmodules"])
def test_an_ignored_file_where_a_merge_adds_a_submodule_is_named_whatever_the_configuration_says(
    repo: Path, lock: Path, hidden_by: str
) -> None:
    (repo / ".git/info/exclude").write_text("/data\n")
    (repo / "data").write_text("mine\n")
    if hidden_by == ".gitmodules":
        (repo / ".gitmodules").write_text('[submodule "data"]\n\tpath = data\n\tignore = all\n')
    elif hidden_by == "submodule.data.ignore":
        (repo / ".gitmodules").write_text('[submodule "data"]\n\tpath = data\n')
    if hidden_by.count(".") == 2 or hidden_by.startswith("diff"):
        git_run(repo, "config", hidden_by, "all")
    assert refused(repo, lock, changing(repo, module("data"))) == ["data"]
    assert (repo / "data").read_text() == "mine\n"


def test_work_in_a_submodule_that_a_merge_replaces_by_a_file_is_named(repo: Path, lock: Path) -> None:
    with_module(repo)
    (repo / "sm" / "new").write_text("mine\n")
    assert refused(repo, lock, changing(repo, f"{_AWAY}\tsm", blob(repo, "sm"))) == ["sm"]
    assert (repo / "sm" / "new").read_text() == "mine\n"


def test_an_ignored_file_in_a_submodule_that_a_merge_replaces_by_a_folder_is_named(repo: Path, lock: Path) -> None:
    with_module(repo)
    (repo / ".git/info/exclude").write_text("/sm/local.env\n")
    (repo / "sm" / "local.env").write_text("mine\n")
    made = changing(repo, f"{_AWAY}\tsm", blob(repo, "sm/local.env"))
    assert refused(repo, lock, made) == ["sm/local.env"]
    assert (repo / "sm" / "local.env").read_text() == "mine\n"


def test_a_submodule_in_a_folder_that_a_merge_replaces_by_a_file_is_named(repo: Path, lock: Path) -> None:
    with_module(repo, "libs/sm")
    (repo / "libs/sm/new").write_text("mine\n")
    assert refused(repo, lock, changing(repo, f"{_AWAY}\tlibs/sm", blob(repo, "libs"))) == ["libs/sm/"]
    assert (repo / "libs/sm/new").read_text() == "mine\n"


def test_a_file_in_the_place_of_a_submodule_that_a_merge_moves_is_named(repo: Path, lock: Path) -> None:
    with_module(repo)
    (repo / "sm").rename(repo.parent / "elsewhere")
    (repo / "sm").write_text("mine\n")
    assert refused(repo, lock, changing(repo, module("sm"))) == ["sm"]
    assert (repo / "sm").read_text() == "mine\n"


def test_a_link_in_the_place_of_a_submodule_that_a_merge_moves_is_named(repo: Path, lock: Path) -> None:
    with_module(repo)
    (repo / "sm").rename(repo.parent / "elsewhere")
    (repo / "sm").symlink_to(repo.parent / "elsewhere")
    base, made = rev(repo, "main"), changing(repo, module("sm"))
    with pytest.raises(Conflict) as caught:
        integrate.land(repo, "main", made, base, lock=lock)
    assert (caught.value.details["files"], rev(repo, "main")) == (["sm"], base)
    assert (repo / "sm").is_symlink()


def test_a_submodule_with_files_follows_a_merge_that_moves_or_removes_it(repo: Path, lock: Path) -> None:
    with_module(repo)
    (repo / "sm" / "new").write_text("mine\n")
    for line in (module("sm"), f"{_AWAY}\tsm"):
        made = changing(repo, line)
        integrate.land(repo, "main", made, rev(repo, "main"), lock=lock)
        assert rev(repo, "main") == made
        assert (repo / "sm" / "new").read_text() == "mine\n"


@pytest.mark.parametrize("target", ["nowhere", "elsewhere"])
def test_a_link_in_the_place_of_a_tracked_folder_is_named_when_a_merge_changes_a_file_in_it(
    repo: Path, lock: Path, target: str
) -> None:
    (repo.parent / "elsewhere").mkdir()
    (repo / "src").rename(repo.parent / "moved")
    (repo / "src").symlink_to(repo.parent / target)
    assert refused(repo, lock, changing(repo, blob(repo, "src/app.py"))) == ["src"]
    assert (repo / "src").is_symlink()


def test_a_link_in_the_place_of_a_tracked_folder_stays_when_a_merge_changes_another(
    repo: Path, lock: Path
) -> None:
    (repo / "src").rename(repo.parent / "moved")
    (repo / "src").symlink_to(repo.parent / "moved")
    made = changing(repo, blob(repo, "README.md"))
    integrate.land(repo, "main", made, rev(repo, "main"), lock=lock)
    assert (repo / "src").is_symlink()
    assert (repo / "README.md").read_text() == "from topic\n"


def test_an_untracked_file_is_named_although_the_configuration_says_that_case_does_not_matter(
    repo: Path, lock: Path
) -> None:
    commit(repo, "DATA", "tracked\n")
    (repo / ".git/info/exclude").write_text("/data\n")
    (repo / "data").write_text("mine\n")
    git_run(repo, "config", "core.ignoreCase", "true")
    assert refused(repo, lock, changing(repo, blob(repo, "data"))) == ["data"]
    assert (repo / "data").read_text() == "mine\n"
