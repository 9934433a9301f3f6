"""Instance ids: every one that can be made reads back, nothing else is one."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm_core import ids
from swarm_core.errors import InvalidInput
from swarm_core.ids import InstanceId
from swarm_core.models import Kind

KINDS = st.sampled_from([str(kind) for kind in Kind])
ISSUES = st.none() | st.integers(1, 999_999_999)
NUMBERS = st.integers(1, 999_999)
IDS = st.builds(InstanceId, KINDS, ISSUES, NUMBERS, st.integers(1, 500))


@given(IDS)
def test_an_id_reads_back_as_what_it_was_made_of(made: InstanceId) -> None:
    assert ids.parse(str(made)) == made
    assert ids.is_id(str(made))


@given(IDS, IDS)
def test_two_instances_have_two_ids(one: InstanceId, other: InstanceId) -> None:
    assert (str(one) == str(other)) == (one == other)


@given(st.text(max_size=40))
def test_a_text_is_an_id_only_if_it_reads_back_as_itself(text: str) -> None:
    if ids.is_id(text):
        assert str(ids.parse(text)) == text
    else:
        with pytest.raises(InvalidInput) as refused:
            ids.parse(text)
        assert refused.value.code == "INVALID_INSTANCE_ID"
        assert refused.value.hint


@given(IDS, st.text(min_size=1, max_size=5))
def test_nothing_may_stand_before_or_after_an_id(made: InstanceId, more: str) -> None:
    for text in (f"{more}{made}", f"{made}{more}"):
        if ids.is_id(text):
            assert str(ids.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        *("work-a0", "work-0-a1", "work-01-a1", "work-a01", "work-a1-r1", "work-a1-r0", "work-a1-r02", "work--a1"),
        *("work-a", "work", "a1", "WORK-a1", "work-a1\n", " work-a1", "work-a1/", "work-1-a1-r2-r3", "job-a1", ""),
        *("work-1000000000-a1", "work-a1000000", "work-a١", "work-²-a1"),
    ],
)
def test_what_only_looks_like_an_id_is_none(text: str) -> None:
    assert not ids.is_id(text)


@given(IDS)
def test_an_id_is_fit_for_a_branch_a_session_and_a_folder(made: InstanceId) -> None:
    text = str(made)
    assert ids.branch(text) == f"{made.kind}/{text}"
    assert not set(text) & set("/.:;#{}$ '\"\\")
    assert text.isascii()
    assert len(text) < 60


def test_git_accepts_the_branch_of_the_longest_id() -> None:
    longest = str(InstanceId("review", 999_999_999, 999_999, 500))
    argv = ["git", "check-ref-format", "--branch", ids.branch(longest)]
    assert subprocess.run(argv, capture_output=True, check=False).returncode == 0


@given(st.text(min_size=1, max_size=300).filter(lambda text: "\0" not in text))
def test_a_repository_gets_a_plain_folder_name_whatever_its_path(path: str) -> None:
    folder = ids.repo_folder(f"/somewhere/{path}")
    assert len(folder) <= 49
    assert folder.isascii()
    assert "/" not in folder
    assert not folder.startswith((".", "-"))


@given(st.text(min_size=1, max_size=60), st.text(min_size=1, max_size=60))
def test_two_repositories_get_two_folders(one: str, other: str) -> None:
    assert (ids.repo_folder(f"/a/{one}") == ids.repo_folder(f"/a/{other}")) == (one == other)


def test_a_repository_whose_path_is_not_utf_8_gets_a_folder() -> None:
    assert ids.repo_folder("/a/\udcff") != ids.repo_folder("/a/\udcfe")
