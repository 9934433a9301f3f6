"""Worktrees: made, found and moved so that an attempt killed at any instant can be repeated.

The repository's lock covers only git's bookkeeping; files are checked out after it is released.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from swarm_core import locks
from swarm_core.errors import CommandFailed, NotFound
from swarm_core.git import admin
from swarm_core.git.adoption import switch_adopted
from swarm_core.git.command import _git, check_branch_name, check_commit_id, run_post_checkout
from swarm_core.git.history import empty_commit
from swarm_core.git.refs import branches, git_dirs, head_commit, ref_commit
from swarm_core.git.worktree_files import check_out

_INITIALIZING = "initializing"  # git's own lock while it makes a worktree, left behind when it is killed


@dataclass(frozen=True, slots=True)
class WorktreeEntry:
    path: str
    head: str | None
    branch: str | None
    locked: bool
    prunable: bool


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A worktree as it should be: on `branch` (None: detached) at `commit` (None: no commit yet)."""

    repo: Path
    path: Path
    branch: str | None
    commit: str | None

    @property
    def head(self) -> str:
        return f"ref: refs/heads/{self.branch}" if self.branch else str(self.commit)


def add_worktree(
    repo: str | Path,
    path: str | Path,
    *,
    branch: str,
    base_commit: str | None,
    lock: Path,
    keep_open: Sequence[int] = (),
    finished: bool = False,
) -> None:
    """Make a worktree at `path` on the new branch `branch`; twice is safe, also after a kill.

    Files are checked out unless that was completed before, which the entry itself remembers; `finished` says
    so too. Raises Conflict (WORKTREE_EXISTS) when the folder or the branch belongs to something else.
    """
    check_branch_name(branch)
    if base_commit is not None:
        check_commit_id(base_commit)
    wanted = _Wanted(Path(repo), real(path), branch, base_commit)
    finished = finished and wanted.path.exists()
    with locks.hold(lock) as fd:
        entry = _register(wanted, new_branch=True, keep_open=(fd, *keep_open))
    _fill(wanted, entry, keep_open=keep_open, finished=finished)


def attach_worktree(
    repo: str | Path, path: str | Path, *, branch: str, lock: Path, keep_open: Sequence[int] = ()
) -> None:
    """Make a worktree at `path` for a branch that exists; twice is safe.

    A registration of this very path whose folder was deleted by hand is renewed. No hook runs: what it would write
    may stand in the way of the files that are restored next.
    """
    check_branch_name(branch)
    with locks.hold(lock) as fd:
        tip = ref_commit(repo, f"refs/heads/{branch}")
        if tip is None:
            raise NotFound(f"there is no branch {branch}", code="GIT_BRANCH_NOT_FOUND")
        wanted = _Wanted(Path(repo), real(path), branch, tip)
        entry = _register(wanted, new_branch=False, keep_open=(fd, *keep_open))
    _fill(wanted, entry, keep_open=keep_open, finished=False, hook=False)


def add_pooled(repo: str | Path, path: str | Path, *, commit: str, lock: Path) -> None:
    """Make a checked-out worktree on no branch, to be adopted later; twice is safe."""
    check_commit_id(commit)
    wanted = _Wanted(Path(repo), real(path), None, commit)
    with locks.hold(lock) as fd:
        entry = _register(wanted, new_branch=False, keep_open=(fd,))
    _fill(wanted, entry, keep_open=(), finished=False)


def is_unmade(repo: str | Path, path: str | Path) -> bool:
    """Whether a killed git left only its bookkeeping of a worktree there, and no file."""
    place = real(path)
    entry = admin.find(git_dirs(repo)[1], place)
    if entry is None or entry.is_whole:
        return False
    if not os.path.lexists(place):
        return True
    if place.is_symlink() or not place.is_dir():
        return False
    content = {item.name for item in place.iterdir()}
    return not content or (content == {".git"} and not entry.is_ready)


def is_checked_out(repo: str | Path, path: str | Path) -> bool:
    """Whether the files of a worktree of ours were once complete; one we do not know of counts as complete."""
    entry = admin.find(git_dirs(repo)[1], real(path))
    return entry is None or entry.is_ready


def list_worktrees(repo: str | Path) -> list[WorktreeEntry]:
    """All worktrees of the repository, the main checkout first."""
    listed = os.fsdecode(_git(repo, "worktree", "list", "--porcelain", "-z"))
    return [_entry(block) for block in listed.split("\0\0") if block]


def move_worktree(repo: str | Path, src: str | Path, dst: str | Path, *, lock: Path) -> None:
    """Move a worktree; twice is safe. Raises Conflict (WORKTREE_EXISTS) when `dst` is something else."""
    with locks.hold(lock) as fd:
        relocate(Path(repo), real(src), real(dst), keep_open=(fd,))


def repair_worktrees(repo: str | Path, paths: Sequence[str | Path]) -> None:
    """Connect worktrees and repository again after the repository (or the worktrees) moved."""
    _git(repo, "worktree", "repair", "--", *(str(path) for path in paths))


def real(path: str | Path) -> Path:
    """The path as git registers it: links in the folders above are followed, the last part is kept."""
    place = Path(path).absolute()
    return Path(os.path.realpath(place.parent)) / place.name


def relocate(repo: Path, src: Path, dst: Path, *, keep_open: Sequence[int]) -> None:
    """Move a worktree while the caller holds the repository's lock; also finishes a move that was killed."""
    common_dir = git_dirs(repo)[1]
    if admin.find(common_dir, dst) is not None and not os.path.lexists(src):
        return
    entry = admin.find(common_dir, src)
    if entry is not None and admin.linked_folder(dst) == entry.folder:
        _git(repo, "worktree", "repair", "--", str(dst), keep_open=keep_open)
        return
    if os.path.lexists(dst):
        raise admin.taken(dst, "something is there already")
    if entry is None:
        raise NotFound(f"{src} is not a worktree of {repo}", code="WORKTREE_NOT_FOUND")
    dst.parent.mkdir(parents=True, exist_ok=True)
    _git(repo, "worktree", "move", "--", str(src), str(dst), keep_open=keep_open)


def _register(wanted: _Wanted, *, new_branch: bool, keep_open: Sequence[int]) -> admin.Admin:
    """Do git's bookkeeping; the common case costs one git command, only a failure looks closer."""
    common_dir = git_dirs(wanted.repo)[1]
    _finish_move(wanted, common_dir)
    if not os.path.lexists(wanted.path):
        try:
            _add(wanted, new_branch=new_branch, keep_open=keep_open)
        except CommandFailed:
            _clear_for(wanted, common_dir)
            _add(wanted, new_branch=new_branch and not _branch_waits(wanted, common_dir), keep_open=keep_open)
    else:
        entry = admin.find(common_dir, wanted.path)
        if entry is None or not entry.is_whole or not _is_as_wanted(entry, wanted):
            _clear_for(wanted, common_dir)
            _add(wanted, new_branch=new_branch and not _branch_waits(wanted, common_dir), keep_open=keep_open)
    entry = admin.find(common_dir, wanted.path)
    if entry is None:
        raise admin.taken(wanted.path, "git did not register it")
    return entry


def _finish_move(wanted: _Wanted, common_dir: Path) -> None:
    """Register a pooled worktree whose adoption was killed between git's rename and its bookkeeping."""
    linked = admin.linked_folder(wanted.path)
    for entry in admin.all_entries(common_dir) if linked else ():
        if entry.folder == linked and entry.is_adopting and not os.path.lexists(entry.path):
            _git(wanted.repo, "worktree", "repair", "--", str(wanted.path))


def _add(wanted: _Wanted, *, new_branch: bool, keep_open: Sequence[int]) -> None:
    path, branch = str(wanted.path), str(wanted.branch)
    common = ("worktree", "add", "--quiet", "--no-checkout")
    if wanted.commit is None:
        start = empty_commit(wanted.repo)
        _git(wanted.repo, *common, "--detach", "--", path, start, keep_open=keep_open)
        _make_unborn(wanted, keep_open=keep_open)
    elif wanted.branch is None:
        _git(wanted.repo, *common, "--detach", "--", path, wanted.commit, keep_open=keep_open)
    elif new_branch:
        how = ("--no-track", "-b", branch)
        _git(wanted.repo, *common, *how, "--", path, wanted.commit, keep_open=keep_open)
    else:
        _git(wanted.repo, *common, "--", path, branch, keep_open=keep_open)


def _is_as_wanted(entry: admin.Admin, wanted: _Wanted) -> bool:
    if entry.is_adopting and wanted.branch and not entry.head.startswith("ref: "):
        return True
    if entry.head == wanted.head:
        moved_on = not entry.is_ready and head_commit(wanted.path) != wanted.commit
        if moved_on:
            raise admin.taken(wanted.path, f"branch {wanted.branch} is not where it should start")
        return True
    if wanted.commit is None and entry.head == empty_commit(wanted.repo):
        entry.drop_stale_locks()
        _make_unborn(wanted, keep_open=())
        return True
    raise admin.taken(wanted.path, f"a worktree is there, on {entry.head.removeprefix('ref: refs/heads/')}")


def _clear_for(wanted: _Wanted, common_dir: Path) -> None:
    """Remove what a killed attempt left, or say what is in the way."""
    entry = admin.find(common_dir, wanted.path)
    if entry is not None and entry.is_locked:
        raise admin.taken(wanted.path, "a locked worktree is registered there")
    admin.clear_leftovers(common_dir, wanted.path)
    if entry is not None:
        admin.forget(entry)
    if wanted.branch is None:
        return
    admin.drop_stale_branch_lock(common_dir, wanted.branch)
    elsewhere = admin.holders(common_dir, wanted.branch)
    if elsewhere and wanted.commit is not None:
        where = admin.checkout_of(common_dir, elsewhere[0])
        raise admin.taken(
            wanted.path,
            f"branch {wanted.branch} is checked out at {where}",
            hint=f"go on there, or check another branch out in {where} first",
        )


def _branch_waits(wanted: _Wanted, common_dir: Path) -> bool:
    """Whether the branch exists where it should start; a killed attempt leaves its branch behind."""
    if wanted.branch is None or wanted.commit is None:
        return False
    tip = ref_commit(wanted.repo, f"refs/heads/{wanted.branch}")
    if tip is not None and tip != wanted.commit:
        raise admin.taken(wanted.path, f"branch {wanted.branch} exists at another commit")
    parents = [wanted.branch.rsplit("/", depth)[0] for depth in range(1, wanted.branch.count("/") + 1)]
    blocked = sorted(branches(wanted.repo) & set(parents)) or sorted(branches(wanted.repo, f"{wanted.branch}/"))
    if tip is None and blocked:
        raise admin.taken(wanted.path, f"branch {blocked[0]} exists, so {wanted.branch} cannot")
    return tip is not None


def _fill(
    wanted: _Wanted, entry: admin.Admin, *, keep_open: Sequence[int], finished: bool, hook: bool = True
) -> None:
    if entry.is_adopting and wanted.branch and wanted.commit:
        switch_adopted(entry, wanted.branch, wanted.commit, resumed=True, keep_open=keep_open)
    if finished or entry.is_ready:
        entry.mark_ready()
        return
    entry.drop_stale_locks()
    if wanted.branch is not None:
        admin.drop_stale_branch_lock(git_dirs(wanted.repo)[1], wanted.branch)
    if wanted.commit is not None:
        check_out(wanted.path, wanted.commit, keep_open=keep_open)
        if hook:
            run_post_checkout(wanted.path, None, wanted.commit)
    entry.mark_ready()


def _make_unborn(wanted: _Wanted, *, keep_open: Sequence[int]) -> None:
    _git(wanted.path, "symbolic-ref", "HEAD", f"refs/heads/{wanted.branch}", keep_open=keep_open)


def _entry(block: str) -> WorktreeEntry:
    fields = dict(line.partition(" ")[::2] for line in block.split("\0") if line)
    head = fields.get("HEAD", "")
    return WorktreeEntry(
        path=fields["worktree"],
        head=head if head.strip("0") else None,
        branch=fields["branch"].removeprefix("refs/heads/") if "branch" in fields else None,
        locked=fields.get("locked", _INITIALIZING) != _INITIALIZING,
        prunable="prunable" in fields,
    )
