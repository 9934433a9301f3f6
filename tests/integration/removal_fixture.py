"""A worktree to remove, for the tests of removal."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from swarm_core import git
from swarm_core.errors import Conflict
from swarm_core.git import admin, removal


class Bench:
    """A repository with one worktree on branch `b`."""

    def __init__(self, repo: Path, place: Path) -> None:
        self.repo, self.path, self.lock = repo, place / "wts" / "a", place / "repo.lock"
        git.add_worktree(repo, self.path, branch="b", base_commit=git.head_commit(repo), lock=self.lock)
        self._count = 0

    @property
    def aside(self) -> Path:
        return removal.aside_of(self.path)

    @property
    def entry(self) -> admin.Admin:
        found = admin.find(self.repo / ".git", self.path) or admin.find(self.repo / ".git", self.aside)
        assert found is not None
        return found

    def next_ref(self) -> str:
        self._count += 1
        return f"refs/swarm/preserved/x/{self._count:04}"

    def remove(self) -> list[git.Preserved]:
        return git.remove_worktree(self.repo, self.path, lock=self.lock, ref=self.next_ref(), message="removed")

    def store(self) -> git.Preserved | None:
        return removal.store(self.repo, self.path, lock=self.lock, ref=self.next_ref(), message="removed")

    def refused(self) -> Conflict:
        with pytest.raises(Conflict) as caught:
            self.remove()
        assert caught.value.code == "WORKTREE_KEPT"
        return caught.value

    def assert_gone(self) -> None:
        assert list(self.path.parent.iterdir()) == []
        assert len(git.list_worktrees(self.repo)) == 1
        assert not (self.repo / ".git" / "worktrees").exists()

    def stored(self, name: str) -> set[str]:
        """What every preserved ref has of the file."""
        refs = [ref for ref, _ in git.preserved_refs(self.repo, "x")]
        found = set()
        for ref in refs:
            done = subprocess.run(
                ["git", "-C", str(self.repo), "show", f"{ref}:{name}"],
                capture_output=True,
                check=False,
                timeout=20,
            )
            found |= {done.stdout.decode()} if done.returncode == 0 else set()
        return found
