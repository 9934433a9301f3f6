"""A repository with a worktree whose work is preserved, removed and restored, and what is compared then."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from swarm_core import git
from tests.support import git_run

REF = "refs/swarm/preserved/work-1-a1/20260101T000000Z"


class Bench:
    """A repository with one worktree on branch `b`, which can be preserved, removed and restored."""

    def __init__(self, repo: Path, place: Path) -> None:
        self.repo = repo
        self.path = place / "wt"
        self.lock = place / "repo.lock"
        git.add_worktree(repo, self.path, branch="b", base_commit=git.head_commit(repo), lock=self.lock)

    def run(self, *args: str) -> str:
        return git_run(self.path, "-c", "protocol.file.allow=always", *args)

    def status(self) -> str:
        return git_run(self.path, "status", "--porcelain=v1", "-z", "--untracked-files=all")

    def preserve(self) -> git.Preserved:
        before = fingerprint(self.path), self.status(), index_bytes(self.path), refs(self.repo)
        preserved = git.preserve(self.path, ref=REF, message="stopped")
        assert preserved is not None
        after = fingerprint(self.path), self.status(), index_bytes(self.path), refs(self.repo)
        assert before == after
        return preserved

    def remove(self) -> None:
        ref = f"refs/swarm/preserved/removed/{secrets.token_hex(4)}"
        git.remove_worktree(self.repo, self.path, lock=self.lock, ref=ref, message="removed")

    def replace_worktree(self) -> None:
        self.remove()
        if git.head_commit(self.repo) is None:
            git.add_worktree(self.repo, self.path, branch="b", base_commit=None, lock=self.lock)
        else:
            git.attach_worktree(self.repo, self.path, branch="b", lock=self.lock)

    def round_trip(self) -> None:
        """Preserve, delete the worktree, make it again, restore twice: files and staging must be the same."""
        files, status = fingerprint(self.path), self.status()
        self.preserve()
        self.replace_worktree()
        assert fingerprint(self.path) != files or self.status() != status
        for _ in range(2):
            git.restore(self.path, ref=REF)
            assert fingerprint(self.path) == files
            assert self.status() == status


def fingerprint(root: Path) -> dict[str, tuple[str, bytes]]:
    """Every file below `root` by name: kind or exec bit, and content."""
    found: dict[str, tuple[str, bytes]] = {}
    for path in root.rglob("*"):
        if ".git" in path.relative_to(root).parts or (path.is_dir() and not path.is_symlink()):
            continue
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = ("link", os.fsencode(path.readlink()))
        else:
            found[name] = ("x" if path.stat().st_mode & stat.S_IXUSR else "-", path.read_bytes())
    return found


def index_bytes(path: Path) -> bytes:
    index = Path(git_run(path, "rev-parse", "--absolute-git-dir")) / "index"
    return index.read_bytes() if index.exists() else b""


def refs(repo: Path) -> str:
    return git_run(repo, "for-each-ref", "refs/heads", "refs/tags", "refs/remotes")


def commit_files(repo: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_bytes(content)
    git_run(repo, "add", "-A", "-f")
    git_run(repo, "commit", "-q", "-m", "more files")


def is_held(repo: Path, oid: str) -> bool:
    """Whether the object is reachable from a ref of the repository."""
    listed = git_run(repo, "rev-list", "--objects", "--all", "--no-object-names").split()
    return oid in listed


def holds(repo: Path, content: bytes) -> bool:
    """Whether a ref of the repository reaches a file with exactly this content."""
    return is_held(repo, git_run(repo, "hash-object", "--stdin", stdin=content))
