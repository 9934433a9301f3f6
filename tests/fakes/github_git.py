"""The branches of the stand-in for GitHub in a real bare repository, which people and swarm push to."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support import git_run


class GitRemote:
    def __init__(self, path: Path) -> None:
        self.path = path

    def tip(self, branch: str) -> str | None:
        done = self._try("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}^{{commit}}")
        return done.stdout.strip() if done.returncode == 0 else None

    def is_ahead(self, base: str, head: str) -> bool:
        return git_run(self.path, "rev-list", "--count", f"refs/heads/{base}..refs/heads/{head}") != "0"

    def can_merge(self, base: str, head: str) -> bool:
        return self._try("merge-tree", "--write-tree", f"refs/heads/{base}", f"refs/heads/{head}").returncode == 0

    def has(self, branch: str, commit: str) -> bool:
        return self._try("merge-base", "--is-ancestor", commit, f"refs/heads/{branch}").returncode == 0

    def merge(self, base: str, head: str, method: str, message: str) -> str:
        """A rebase is made as one commit too: what matters here is that its commit is a new one."""
        parent, tip = self.tip(base), self.tip(head)
        assert parent
        assert tip
        tree = git_run(self.path, "merge-tree", "--write-tree", parent, tip).splitlines()[0]
        parents = ["-p", parent, *(["-p", tip] if method == "merge" else [])]
        made = git_run(self.path, "commit-tree", tree, *parents, "-m", message)
        git_run(self.path, "update-ref", f"refs/heads/{base}", made, parent)
        return made

    def delete(self, branch: str) -> None:
        git_run(self.path, "update-ref", "-d", f"refs/heads/{branch}")

    def _try(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["git", "-C", str(self.path), *args], capture_output=True, text=True, check=False, timeout=60
        )
