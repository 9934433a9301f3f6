"""Git on a repository's objects without its configuration and attributes: agents can write all of these.

A merge driver or filter named in `.git/config`, or an attribute in `.git/info/attributes`, would decide what a
merge contains or what a check sees. Committed attributes hold, and so does the person's own configuration.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from swarm_core.git.command import _git, nul_list, with_settings
from swarm_core.git.refs import git_dirs

# The repository's format, what its file system can do, who the person is, and where missing objects come from.
_FORMAT = re.compile(r"core\.repositoryformatversion|extensions\.(?!worktreeconfig$)\w+")
_KEPT = re.compile(
    r"core\.(filemode|symlinks|ignorecase|precomposeunicode|longpaths)"
    r"|(user|author|committer)\.(name|email)"
    r"|remote\..*\.(url|promisor|partialclonefilter)"
)


@contextlib.contextmanager
def apart(path: str | Path) -> Iterator[dict[str, str]]:
    """Environment for git in a repository or worktree, whose common folder is an empty one while this lasts.

    HEAD, index and objects are the real ones. No branch exists there: name commits by their ids.
    """
    git_dir, common_dir = git_dirs(path)
    listed = nul_list(_git(path, "config", "-z", "--includes", "--file", str(common_dir / "config"), "--list"))
    settings = [(key, value) for key, _, value in (item.partition("\n") for item in listed)]
    with tempfile.TemporaryDirectory(prefix="swarm-git-") as folder:
        place = Path(folder)
        (place / "refs").mkdir()
        (place / "HEAD").write_text("ref: refs/heads/none\n")
        (place / "config").write_text(_format([pair for pair in settings if _FORMAT.fullmatch(pair[0])]))
        if (common_dir / "reftable").is_dir():
            (place / "reftable").symlink_to(common_dir / "reftable")
        env = {
            "GIT_DIR": str(git_dir),
            "GIT_COMMON_DIR": folder,
            "GIT_OBJECT_DIRECTORY": str(common_dir / "objects"),
            "GIT_WORK_TREE": str(path),
        }
        if (common_dir / "shallow").exists():
            env["GIT_SHALLOW_FILE"] = str(common_dir / "shallow")
        kept = [pair for pair in settings if _KEPT.fullmatch(pair[0])]
        # Where the filter of git-lfs looks for files; without it, it would ask the server for each.
        kept.append(("lfs.storage", str(common_dir / "lfs")))
        yield env | with_settings(os.environ, kept)


def _format(settings: list[tuple[str, str]]) -> str:
    lines = ["[core]", "\tbare = false"]
    for key, value in settings:
        section, _, name = key.partition(".")
        quoted = value.replace("\\", "\\\\").replace('"', '\\"')
        lines += [f"[{section}]", f'\t{name} = "{quoted}"']
    return "\n".join(lines) + "\n"
