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
