"""Sequences that have lost work once, in the shortest form that was found; every run of the tests plays them.

A moment numbered EVERY is tried at every moment there is: swarm may change the order of what it does.
"""

from __future__ import annotations

from tests.survival.moments import ANY
from tests.survival.story import EVERY, KILL, Step


def _move(move: str, **arguments: object) -> Step:
    return {"move": move, "who": 0} | arguments


def _person(move: str, **arguments: object) -> Step:
    return {"move": move, "who": -1} | arguments


def _clean(do: object = None) -> Step:
    return _move("clean") | ({"meanwhile": {"before": ANY, "number": EVERY, "do": do}} if do else {})


_SPAWN = _move("spawn")
_KILLED_SPAWN = _SPAWN | {"meanwhile": {"before": ANY, "number": EVERY, "do": KILL}}
_NESTED = _move("nested_repository", folder="nested")

STORIES: dict[str, list[Step]] = {
    "a work and its fork are cleaned at the same time": [
        _SPAWN,
        _move("commit", file="notes.txt"),
        _move("fork"),
        _move("stop", who=1),
        _clean(_move("clean", who=1)),
    ],
    "a worktree becomes a repository of its own": [
        _SPAWN,
        _move("begin_anew"),
        _move("commit", file="README.md"),
        _clean(),
    ],
    "a worktree has lost its link to the repository": [
        _SPAWN,
        _move("edit", file="README.md"),
        _move("remove_dot_git"),
        _clean(),
    ],
    "a worktree's link leads to the main repository": [
        _SPAWN,
        _move("edit", file="README.md"),
        _move("bend_dot_git", to="main"),
        _clean(),
    ],
    "a worktree's link leads to another repository": [
        _SPAWN,
        _move("edit", file="README.md"),
        _move("bend_dot_git", to="own"),
        _clean(),
    ],
    "a worktree's link leads to a repository inside": [
        _SPAWN,
        _NESTED,
        _move("edit", file="README.md"),
        _move("bend_dot_git", to="nested"),
        _clean(),
    ],
    "a worktree's settings name another folder": [
        _SPAWN,
        _move("work_elsewhere"),
        _move("edit", file="README.md"),
        _NESTED,
        _clean(),
    ],
    "a save while clean runs": [_SPAWN, _clean(_move("edit", file="README.md"))],
    "a save while clean runs, by a program inside the folder": [
        _SPAWN,
        _clean(_move("edit", file="README.md", held=True)),
    ],
    "a save while clean runs, by a program that makes the folder": [
        _SPAWN,
        _clean(_move("recreate", file="README.md")),
    ],
    "something is staged while clean runs": [_SPAWN, _clean(_move("stage_part", file="notes.txt"))],
    "something is committed while clean runs": [_SPAWN, _clean(_move("commit", file="notes.txt", held=True))],
    "clean is killed": [_SPAWN, _move("stage_part", file="notes.txt"), _clean(KILL), _move("doctor"), _clean()],
    "a rebase stopped half-way, merging": [
        _SPAWN,
        _move("stage_part", file="src/app.py"),
        _move("rebase", backend="merge"),
        _clean(),
    ],
    "a rebase stopped half-way, applying": [
        _SPAWN,
        _move("stage_part", file="src/app.py"),
        _move("rebase", backend="apply"),
        _clean(),
    ],
    "a merge stopped half-way": [_SPAWN, _move("merge_other"), _move("stage_part", file="notes.txt"), _clean()],
    "a pick stopped half-way": [_SPAWN, _move("cherry_pick"), _move("stage_part", file="notes.txt"), _clean()],
    "two stashes in a repository inside": [
        _SPAWN,
        _NESTED,
        _move("stash", where="nested", file="inner.txt"),
        _move("stash", where="nested", file="inner.txt"),
        _clean(),
    ],
    "a ref of one's own in a repository inside": [
        _SPAWN,
        _NESTED,
        _move("private_ref", where="nested", ref="refs/custom/x"),
        _clean(),
    ],
    "a commit on no branch in a repository inside": [
        _SPAWN,
        _NESTED,
        _move("detach", where="nested"),
        _move("commit", where="nested", file="inner.txt"),
        _move("switch", where="nested", to="-"),
        _clean(),
    ],
    "a ref of the worktree alone": [_SPAWN, _move("private_ref", ref="refs/worktree/x"), _clean()],
    "a bisection of commits on no branch": [
        _SPAWN,
        _move("detach"),
        _move("commit", file="notes.txt"),
        _move("bisect"),
        _clean(),
    ],
    "an ignored file is tracked and the index is deleted": [
        _SPAWN,
        _move("commit", file="data"),
        _move("edit", file="data"),
        _move("delete_index"),
        _clean(),
    ],
    "the index is broken": [_SPAWN, _move("edit", file="README.md"), _move("corrupt_index"), _clean()],
    "a commit was reset away": [
        _SPAWN,
        _move("commit", file="notes.txt"),
        _move("reset", how="hard", to="main"),
        _clean(),
    ],
    "a commit was amended": [
        _SPAWN,
        _move("commit", file="notes.txt"),
        _move("amend", file="notes.txt"),
        _clean(),
    ],
    "a commit on no branch was left": [
        _SPAWN,
        _move("detach"),
        _move("commit", file="notes.txt"),
        _move("switch", to="own"),
        _clean(),
    ],
    "another name for the branch is all that seems to have its commits": [
        _SPAWN,
        _move("commit", file="notes.txt"),
        _move("symbolic_branch", to="branch"),
        _clean(),
    ],
    "another name for HEAD is all that seems to have a commit": [
        _SPAWN,
        _move("symbolic_branch", to="HEAD"),
        _move("detach"),
        _move("commit", file="notes.txt"),
        _clean(),
    ],
    "a branch is deleted under its worktree": [
        _SPAWN,
        _move("commit", file="notes.txt"),
        _move("delete_branch"),
        _clean(),
    ],
    "a worktree's folder is deleted when something is staged": [
        _SPAWN,
        _move("stage_part", file="notes.txt"),
        _move("delete_folder"),
        _clean(),
    ],
    "a file hides behind another's name": [_SPAWN, _move("fold_case"), _clean()],
    "a file is called as git's own": [_SPAWN, _move("git_file"), _clean()],
    "a change keeps size and time": [_SPAWN, _move("same_stat", file=".gitignore"), _clean()],
    "a worktree inside a worktree": [
        _SPAWN,
        _move("nested_worktree", folder="inner"),
        _move("edit", where="inner", file="README.md"),
        _clean(),
    ],
    "a worktree inside an ignored folder of a worktree": [
        _SPAWN,
        _move("nested_worktree", folder="ignored/inner"),
        _move("edit", where="ignored/inner", file="README.md"),
        _clean(),
    ],
    "a bare repository in an ignored folder": [
        _SPAWN,
        _move("bare_repository", folder="ignored/bare"),
        _clean(),
    ],
    "a bare repository in a folder that a rule of the index ignores": [
        _SPAWN,
        _move("bare_repository", folder="ignored/bare"),
        _move("sparse"),
        _clean(),
    ],
    "the repository has lost the content of a file": [_SPAWN, _move("lose_object", file="notes.txt"), _clean()],
    "the repository has lost the content of a file, and the index is gone": [
        _SPAWN,
        _move("lose_object", file="notes.txt"),
        _move("delete_index"),
        _clean(),
    ],
    "the repository has lost the content of a file that is not tracked any more and ignored": [
        _SPAWN,
        _move("lose_object", file="data/x"),
        _move("remove_cached", file="data/x"),
        _clean(),
    ],
    "the repository has lost a folder of its last commit": [
        _SPAWN,
        _move("commit", file="secrets/readme"),
        _move("lose_object", file="secrets"),
        _clean(),
    ],
    "a restore was killed and somebody stages something": [
        _SPAWN,
        _move("stage_part", file="notes.txt"),
        _clean(),
        _move("restore") | {"meanwhile": {"before": ANY, "number": EVERY, "do": KILL}},
        _move("stage_part", file="README.md"),
        _move("reconcile"),
    ],
    "a merge adds a file where an ignored folder is": [
        _SPAWN,
        _person("edit", file="data/x"),
        _move("commit", file="data"),
        _move("merge"),
    ],
    "a merge adds a folder where an ignored file is": [
        _SPAWN,
        _person("edit", file="secrets"),
        _move("commit", file="secrets/readme"),
        _move("merge"),
    ],
    "a spawn was killed and somebody edits what is there": [
        _KILLED_SPAWN,
        _move("edit", file="README.md"),
        _move("reconcile"),
    ],
    "a spawn was killed and somebody stages something": [
        _KILLED_SPAWN,
        _move("stage_part", file="notes.txt"),
        _move("reconcile"),
    ],
}
