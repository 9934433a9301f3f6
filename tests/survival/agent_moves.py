"""What agents and people do in a folder, one thing at a time, with plain files and real git.

Every move may fail, as theirs do, and every content is written once, so that a loss names exactly one save.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.survival.world import Row, World


@dataclass(frozen=True)
class Site:
    """Where a move is made: `at` is the folder; `row` is the instance, none for the person's own checkout."""

    world: World
    at: Path
    row: Row | None

    def git(self, *args: str, stdin: str | None = None, **env: str) -> str:
        return self.world.git(self.at, *args, stdin=stdin, **env).stdout.strip()

    def write(self, name: str, what: str = "text") -> None:
        """Save a file as an editor does; a folder or link in the way is the agent's own to replace."""
        path = self.at / name
        if path.is_dir() and not path.is_symlink():
            return
        if not any(p.is_file() or p.is_symlink() for p in path.parents if p != self.at and self.at in p.parents):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.write_text(self.world.text(f"{what} {name}"))

    @property
    def git_dir(self) -> Path:
        return Path(self.git("rev-parse", "--absolute-git-dir") or self.at / ".git")


Move = Callable[..., None]


def edit(site: Site, file: str) -> None:
    site.write(file)


def overwrite(site: Site, file: str) -> None:
    """Save in place, as a program does that has the file open."""
    path = site.at / file
    if path.is_file() and not path.is_symlink():
        with path.open("r+") as sink:
            sink.write(site.world.text(f"over {file}"))


def recreate(site: Site, file: str) -> None:
    """Make the folders first, as a program does that was told a path; see `needs_folder`."""
    site.at.mkdir(parents=True, exist_ok=True)
    site.write(file, "anew")


def delete(site: Site, file: str) -> None:
    path = site.at / file
    if path.is_symlink() or path.is_file():
        path.unlink()


def rename(site: Site, file: str, to: str) -> None:
    site.git("mv", "-k", "--", file, to)


def make_executable(site: Site, file: str) -> None:
    path = site.at / file
    if path.is_file() and not path.is_symlink():
        path.chmod(0o755)


def make_read_only(site: Site, file: str) -> None:
    path = site.at / file
    if path.is_file() and not path.is_symlink():
        path.chmod(0o444)


def link(site: Site, file: str) -> None:
    path = site.at / file
    if not path.is_dir() and path.parent.is_dir():
        path.unlink(missing_ok=True)
        path.symlink_to(site.world.text("target").strip())


def ignore(site: Site, file: str) -> None:
    """Have git ignore a file, tracked or not."""
    with (site.at / ".gitignore").open("ab") as sink:
        sink.write(b"/" + os.fsencode(file) + b"\n")


def same_stat(site: Site, file: str) -> None:
    """Change a file so that its size and time stay, in a repository that trusts these."""
    path = site.at / file
    if path.is_file() and not path.is_symlink() and path.stat().st_size > 8:
        site.git("config", "core.trustctime", "false")
        site.git("config", "core.checkStat", "minimal")
        facts = path.stat()
        text = site.world.text("s").strip().encode()
        path.write_bytes(text[: facts.st_size].ljust(facts.st_size, b"."))
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def fold_case(site: Site) -> None:
    """A second file whose name differs only in case, in a repository that says it cannot have both."""
    site.git("config", "core.ignorecase", "true")
    site.write("readme.md")


def git_file(site: Site) -> None:
    """A file of one's own that is called .git."""
    folder = site.at / "vendor"
    folder.mkdir(exist_ok=True)
    if not (folder / ".git").exists():
        (folder / ".git").write_text(site.world.text("not a repository"))
        (folder / "vendor.txt").write_text(site.world.text("vendor"))


def stage(site: Site) -> None:
    site.git("add", "-A")


def stage_one(site: Site, file: str) -> None:
    site.git("add", "-f", "--", file)


def stage_part(site: Site, file: str) -> None:
    """Stage one content and save another."""
    site.write(file, "staged")
    site.git("add", "-f", "--", file)
    site.write(file, "beyond the index")


def unstage(site: Site) -> None:
    site.git("reset", "-q")


def intend_to_add(site: Site, file: str) -> None:
    site.write(file)
    site.git("add", "-N", "-f", "--", file)


def remove_cached(site: Site, file: str) -> None:
    site.git("rm", "-q", "--cached", "--", file)


def commit(site: Site, file: str) -> None:
    site.write(file, "committed")
    site.git("add", "-f", "--", file)
    site.git("commit", "-q", "-m", site.world.text("commit").strip(), "--", file)


def commit_all(site: Site) -> None:
    site.git("add", "-A")
    site.git("commit", "-q", "--allow-empty", "-m", site.world.text("all").strip())


def amend(site: Site, file: str) -> None:
    site.write(file, "amended")
    site.git("add", "-f", "--", file)
    site.git("commit", "-q", "--amend", "-m", site.world.text("amended").strip())


def stash(site: Site, file: str) -> None:
    site.write(file, "stashed")
    site.git("stash", "push", "-q", "--include-untracked")


def stash_pop(site: Site) -> None:
    site.git("stash", "pop", "-q")


def rebase(site: Site, backend: str) -> None:
    """Stops half-way if a commit conflicts with the branch `other`."""
    site.git("rebase", "-q", f"--{backend}", "--autostash", "other")


def rebase_break(site: Site) -> None:
    """An interactive rebase that stops before its first commit."""
    editor = f"{shutil.which('sed')} -i 1ibreak"
    site.git("rebase", "-q", "-i", "--autostash", "HEAD~1", GIT_SEQUENCE_EDITOR=editor)


def merge_other(site: Site) -> None:
    site.git("merge", "-q", "--autostash", "--no-edit", "other")


def cherry_pick(site: Site) -> None:
    site.git("cherry-pick", "other")


def revert(site: Site) -> None:
    site.git("revert", "--no-commit", "HEAD")


def abort(site: Site, what: str) -> None:
    site.git(what, "--abort")


def reset(site: Site, how: str, to: str) -> None:
    site.git("reset", "-q", f"--{how}", to)


def detach(site: Site) -> None:
    site.git("checkout", "-q", "--detach")


def switch(site: Site, to: str) -> None:
    """To a branch of one's own, the instance's, or the one before."""
    branch = site.row.branch if to == "own" and site.row else to
    site.git("checkout", "-q", *(["-B", "mine"] if to == "new" else [branch]))


def nested_repository(site: Site, folder: str) -> None:
    place = site.at / folder
    if not place.exists():
        place.mkdir(parents=True)
        site.world.git(place, "init", "-q", "-b", "main", "--template=")
        (place / "inner.txt").write_text(site.world.text("inner"))
        site.world.git(place, "add", "-A")
        site.world.git(place, "commit", "-q", "-m", "inner")


def bare_repository(site: Site, folder: str) -> None:
    """A repository without files, with a commit that is nowhere else."""
    place = site.at / folder
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        site.world.git(site.at, "init", "-q", "--bare", "-b", "main", "--template=", folder)
        private_ref(Site(site.world, place, None), "refs/heads/main")


def nested_worktree(site: Site, folder: str) -> None:
    site.git("worktree", "add", "-q", "--detach", folder)


def submodule(site: Site) -> None:
    site.git("submodule", "--quiet", "add", str(site.world.library), "sub")


def private_ref(site: Site, ref: str) -> None:
    """A commit that only a ref of one's own leads to."""
    blob = site.git("hash-object", "-w", "--stdin", stdin=site.world.text("private"))
    tree = site.git("mktree", stdin=f"100644 blob {blob}\tprivate\n")
    made = site.git("commit-tree", tree, "-m", site.world.text("private").strip())
    site.git("update-ref", ref, made)


def tag(site: Site) -> None:
    site.git("tag", "-f", "-m", site.world.text("tag").strip(), "v1")


def untag(site: Site) -> None:
    site.git("tag", "-d", "v1")


def branch_off(site: Site) -> None:
    site.git("branch", "-f", "spare")


def rename_branch(site: Site) -> None:
    site.git("branch", "-M", site.world.text("renamed").strip().replace(" ", "-"))


def symbolic_branch(site: Site, to: str) -> None:
    """Make a branch, without a log, that is only another name for what the worktree has checked out."""
    target = "HEAD" if to == "HEAD" else site.git("symbolic-ref", "-q", "HEAD") or "HEAD"
    site.git("-c", "core.logAllRefUpdates=false", "symbolic-ref", "refs/heads/alias", target)


def delete_branch(site: Site) -> None:
    """Behind git's back, which would refuse while it is checked out."""
    site.git("update-ref", "-d", site.git("symbolic-ref", "-q", "HEAD") or "refs/heads/spare")


def delete_index(site: Site) -> None:
    (site.git_dir / "index").unlink(missing_ok=True)


def corrupt_index(site: Site) -> None:
    index = site.git_dir / "index"
    if index.is_file():
        index.write_bytes(b"DIRX" + index.read_bytes()[4:])


def leave_lock(site: Site) -> None:
    """What a git that was killed leaves behind."""
    if site.git_dir.is_dir():
        (site.git_dir / "index.lock").touch()


def collect_garbage(site: Site) -> None:
    site.git("gc", "-q", "--prune=now")


def lose_object(site: Site, file: str) -> None:
    """Commit a file whose content the repository then loses, as after a power loss: the file is the only copy."""
    commit(site, file)
    oid = site.git("rev-parse", "--verify", "-q", f"HEAD:{file}")
    shared = site.git("rev-parse", "--path-format=absolute", "--git-common-dir")
    if oid and shared:
        (Path(shared) / "objects" / oid[:2] / oid[2:]).unlink(missing_ok=True)


def prune_worktrees(site: Site) -> None:
    site.git("worktree", "prune", "--expire=now")


def expire_logs(site: Site) -> None:
    site.git("reflog", "expire", "--expire=now", "--all")


def replace(site: Site) -> None:
    blob = site.git("hash-object", "-w", "--stdin", stdin=site.world.text("replacement"))
    site.git("replace", "-f", site.git("rev-parse", "HEAD:README.md"), blob)


def bisect(site: Site) -> None:
    site.git("bisect", "start", "HEAD", "HEAD~1")


def sparse(site: Site) -> None:
    site.git("sparse-checkout", "set", "--no-cone", "/README.md")


def hide(site: Site, file: str, how: str) -> None:
    """Have git take a changed file for unchanged."""
    site.git("update-index", f"--{how}", "--", file)
    site.write(file, "hidden")


def remove_dot_git(site: Site) -> None:
    path = site.at / ".git"
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def begin_anew(site: Site) -> None:
    """Make a repository of one's own out of the worktree."""
    remove_dot_git(site)
    site.git("init", "-q", "-b", "main", "--template=")


def bend_dot_git(site: Site, to: str) -> None:
    """Have `.git` lead somewhere else: the main repository, a repository inside, or one of its own."""
    path = site.at / ".git"
    targets = {"main": site.world.repo / ".git", "nested": site.at / "nested" / ".git"}
    target = targets.get(to, site.world.elsewhere / "own.git")
    if not target.exists() and to == "own":
        site.world.git(site.world.elsewhere, "init", "-q", "--template=", "--separate-git-dir=own.git", "own")
    if target.exists() and (path.is_file() or not path.exists()):
        path.unlink(missing_ok=True)
        path.write_text(f"gitdir: {target}\n")


def work_elsewhere(site: Site) -> None:
    site.git("config", "extensions.worktreeConfig", "true")
    site.git("config", "--worktree", "core.worktree", str(site.world.elsewhere))


def delete_folder(site: Site) -> None:
    shutil.rmtree(site.at, ignore_errors=True)


def lock_worktree(site: Site) -> None:
    site.git("worktree", "lock", str(site.at))


# Those that a person would not do to their own checkout, which is the repository itself.
AGENTS_ONLY = frozenset(
    {"remove_dot_git", "begin_anew", "bend_dot_git", "work_elsewhere", "delete_folder", "recreate", "lose_object"}
)
