"""Which lines pieces of work touch and where they meet; git's own merge is the judge."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swarm_core.git import overlap
from swarm_core.git.overlap import WHOLE
from tests.support import git_run, make_repo

LINES = "".join(f"line {n}\n" for n in range(1, 41))


def commit(repo: Path, files: dict[str, str | bytes | None], base: str = "HEAD") -> str:
    """A commit with these files on top of another, without touching a checkout; None deletes one."""
    index = repo.parent / "index-of-test"
    index.unlink(missing_ok=True)
    env = {**os.environ, "GIT_INDEX_FILE": str(index)}

    def run(*args: str, data: bytes | None = None) -> str:
        done = subprocess.run(["git", "-C", repo, *args], env=env, input=data, capture_output=True, check=True)
        return done.stdout.decode().strip()

    run("read-tree", base)
    for name, content in files.items():
        if content is None:
            run("update-index", "--force-remove", "--", name)
            continue
        data = content if isinstance(content, bytes) else content.encode()
        blob = run("hash-object", "-w", "--stdin", data=data)
        run("update-index", "-z", "--add", "--index-info", data=f"100644 {blob}\t{name}\0".encode())
    return run("commit-tree", run("write-tree"), "-p", run("rev-parse", base), "-m", "x")


def edited(*changes: tuple[int, int, str]) -> str:
    """LINES with [first, last] replaced by a text; last before first inserts before the first."""
    lines = LINES.splitlines(keepends=True)
    for first, last, text in sorted(changes, reverse=True):
        lines[first - 1 : last] = [text] if text else []
    return "".join(lines)


@pytest.fixture
def base(repo: Path) -> str:
    git_run(repo, "reset", "-q", "--hard", commit(repo, {"f.txt": LINES, "data.bin": b"\0\1\2"}))
    return git_run(repo, "rev-parse", "HEAD")


def test_changed_lines_are_those_of_the_base(repo: Path, base: str) -> None:
    made = commit(repo, {"f.txt": edited((3, 4, "new\nnew\nnew\n"), (10, 9, "inserted\n"), (20, 22, ""))})
    assert overlap.touched(repo, base, made) == {"f.txt": [(3, 4), (9, 10), (20, 22)]}
    assert overlap.touched(repo, base, base) == {}


def test_new_deleted_binary_and_renamed_files_count_as_a_whole(repo: Path, base: str) -> None:
    made = commit(
        repo,
        {"new.txt": "a\n", "empty": "", "README.md": None, "data.bin": b"\0\3", "f.txt": None, "g.txt": LINES},
    )
    names = ["README.md", "data.bin", "empty", "f.txt", "g.txt", "new.txt"]
    assert overlap.touched(repo, base, made) == {name: [WHOLE] for name in names}


def test_without_a_start_everything_is_new(repo: Path) -> None:
    head = git_run(repo, "rev-parse", "HEAD")
    assert overlap.touched(repo, None, head) == {"README.md": [WHOLE], "src/app.py": [WHOLE]}


@pytest.mark.parametrize(
    "name", ["a b.txt", "tab\tname", "line\nbreak", 'quo"te\\', "ümlaut", "-x", " b/x", "x b"]
)
def test_odd_names_come_as_they_are(repo: Path, base: str, name: str) -> None:
    made = commit(repo, {name: LINES})
    assert overlap.touched(repo, base, made) == {name: [WHOLE]}
    again = commit(repo, {name: edited((2, 2, "x\n"))}, made)
    assert overlap.touched(repo, made, again) == {name: [(2, 2)]}


def test_lines_that_look_like_a_patch_are_not_taken_for_one(repo: Path, base: str) -> None:
    text = "diff --git a/x b/x\n@@ -1,2 +3,4 @@\n-- a/y\n++ b/z\nnew file mode 100644\nBinary files \n"
    first = commit(repo, {"f.txt": text + LINES})
    second = commit(repo, {"f.txt": "".join(f"{line}!\n" for line in text.splitlines()) + LINES}, first)
    assert overlap.touched(repo, first, second) == {"f.txt": [(1, 6)]}


def test_a_change_of_mode_touches_no_line_and_of_kind_the_whole(repo: Path, base: str) -> None:
    (repo / "f.txt").chmod(0o755)
    (repo / "README.md").unlink()
    (repo / "README.md").symlink_to("f.txt")
    assert overlap.touched_in(repo, base) == {"README.md": [WHOLE], "f.txt": []}


def test_a_worktree_counts_with_all_that_is_not_committed(repo: Path, base: str) -> None:
    git_run(repo, "reset", "-q", "--hard", commit(repo, {"f.txt": edited((3, 3, "x\n"))}))
    (repo / "f.txt").write_text(edited((3, 3, "x\n"), (30, 30, "y\n")))
    (repo / "README.md").write_text("staged\n")
    git_run(repo, "add", "README.md")
    (repo / "fresh.txt").write_text("x")
    (repo / ".gitignore").write_text("ignored\n")
    (repo / "ignored").write_text("x")
    index = (repo / ".git" / "index").read_bytes()
    assert overlap.touched_in(repo, base) == {
        "README.md": [(1, 1)],
        "f.txt": [(3, 3), (30, 30)],
        "fresh.txt": [WHOLE],
        ".gitignore": [WHOLE],
    }
    assert (repo / ".git" / "index").read_bytes() == index


def test_a_worktree_in_the_middle_of_a_conflict_counts_too(repo: Path, base: str) -> None:
    theirs = commit(repo, {"f.txt": edited((3, 3, "theirs\n"))})
    git_run(repo, "reset", "-q", "--hard", commit(repo, {"f.txt": edited((3, 3, "ours\n"))}))
    subprocess.run(["git", "-C", repo, "merge", "-q", theirs], capture_output=True, check=False)
    assert overlap.touched_in(repo, base) == {"f.txt": [(3, 3)]}
    (repo / "f.txt").unlink()
    assert overlap.touched_in(repo, base) == {"f.txt": [WHOLE]}


def test_settings_of_the_person_change_nothing(repo: Path, base: str) -> None:
    made = commit(repo, {"f.txt": edited((3, 3, "x\n"), (9, 9, "y\n")), "ümlaut": "x"})
    for key, value in {
        "diff.noprefix": "true",
        "diff.mnemonicPrefix": "true",
        "diff.context": "9",
        "diff.interHunkContext": "9",
        "diff.renames": "copies",
        "diff.external": "false",
        "color.diff": "always",
        "color.ui": "always",
        "core.quotePath": "false",
        "diff.algorithm": "patience",
    }.items():
        git_run(repo, "config", key, value)
    assert overlap.touched(repo, base, made) == {"f.txt": [(3, 3), (9, 9)], "ümlaut": [WHOLE]}


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ([(1, 2)], [(5, 6)], [(1, 2)]),
        ([(1, 2)], [(6, 7)], []),
        ([(6, 7)], [(1, 2)], []),
        ([(10, 10)], [(1, 1), (5, 20), (40, 41)], [(10, 10)]),
        ([(1, 1), (5, 20), (40, 41)], [(10, 10)], [(5, 20)]),
        ([(1, 100)], [(1, 2), (50, 50)], [(1, 100)]),
        ([WHOLE], [(50, 50)], [WHOLE]),
        ([(50, 50)], [WHOLE], [WHOLE]),
        ([], [WHOLE], [WHOLE]),
        ([], [(1, 1)], []),
        ([], [], []),
    ],
)
def test_ranges_meet_when_they_are_near(
    one: list[overlap.Range], other: list[overlap.Range], found: list[overlap.Range]
) -> None:
    assert overlap.overlaps({"f": one, "mine": [(1, 1)]}, {"f": other, "theirs": [(1, 1)]}) == (
        {"f": found} if found else {}
    )


def test_ranges_that_went_through_json_meet_too() -> None:
    assert overlap.overlaps({"f": [[0, 2**31 - 1]]}, {"f": [[3, 3]]}) == {"f": [WHOLE]}  # type: ignore[dict-item]


def test_the_last_common_commit_of_many_is_found(repo: Path, base: str) -> None:
    one, other = commit(repo, {"a": "a"}, base), commit(repo, {"b": "b"}, base)
    later = commit(repo, {"c": "c"}, one)
    assert overlap.common_start(repo, [one, other, later]) == base
    assert overlap.common_start(repo, [one, later, later]) == one
    assert overlap.common_start(repo, []) is None
    assert overlap.common_start(repo, [one, git_run(repo, "commit-tree", f"{one}^{{tree}}", "-m", "x")]) is None


def test_changes_are_told_in_lines_of_an_older_commit(repo: Path, base: str) -> None:
    """The base has moved on: ten lines more at the top, two gone, line 20 rewritten as three."""
    moved = commit(
        repo, {"f.txt": edited((1, 0, "top\n" * 10), (5, 6, ""), (20, 20, "a\nb\nc\n")), "later": "x\n"}, base
    )
    text = git_run(repo, "show", f"{moved}:f.txt") + "\n"
    lines = text.splitlines(keepends=True)
    for number in (1, 12, 29, 45):
        lines[number - 1] = "mine\n"
    mine = commit(repo, {"f.txt": "".join(lines), "later": "y\n", "new": "n\n"}, moved)
    found = overlap.touched(repo, moved, mine)
    assert found == {"f.txt": [(1, 1), (12, 12), (29, 29), (45, 45)], "later": [(1, 1)], "new": [WHOLE]}
    assert overlap.carried_back(repo, found, moved, base) == {
        "f.txt": [(0, 1), (2, 2), (20, 20), (35, 35)],
        "later": [WHOLE],
        "new": [WHOLE],
    }
    assert overlap.carried_back(repo, found, moved, moved) == found


edits = st.lists(
    st.tuples(
        st.integers(1, 13), st.integers(0, 3), st.lists(st.sampled_from(["a\n", "b\n", "\n", "}\n"]), max_size=3)
    ),
    min_size=1,
    max_size=3,
)
texts = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "}\n", "  x\n"]), min_size=1, max_size=13)


def rewritten(lines: list[str], changes: list[tuple[int, int, list[str]]]) -> str:
    copy = list(lines)
    for first, count, text in changes:
        copy[first - 1 : first - 1 + count] = text
    return "".join(copy)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One repository for many examples: each adds only objects."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        for role in ("AUTHOR", "COMMITTER"):
            patch.setenv(f"GIT_{role}_NAME", "Test Person")
            patch.setenv(f"GIT_{role}_EMAIL", "person@example.invalid")
        yield make_repo(tmp_path_factory.mktemp("overlap") / "repo")


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(lines=texts, ours=edits, theirs=edits)
def test_where_git_sees_a_conflict_there_is_an_overlap(
    shared: Path,
    lines: list[str],
    ours: list[tuple[int, int, list[str]]],
    theirs: list[tuple[int, int, list[str]]],
) -> None:
    base = commit(shared, {"f": "".join(lines)})
    one = commit(shared, {"f": rewritten(lines, ours)}, base)
    other = commit(shared, {"f": rewritten(lines, theirs)}, base)
    argv = ["git", "-C", shared, "merge-tree", "--write-tree", one, other]
    conflict = subprocess.run(argv, capture_output=True, check=False).returncode == 1
    found = overlap.overlaps(overlap.touched(shared, base, one), overlap.touched(shared, base, other))
    assert found or not conflict
