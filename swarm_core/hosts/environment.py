"""What an agent inherits of the environment it is started from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from swarm_core.config import ENVIRONMENT, SETTINGS
from swarm_core.git.command import as_committed
from swarm_core.github_token import SECRETS

_NOT_FOR_AGENTS = frozenset(
    {"TMUX", "TMUX_PANE", "TMUX_TMPDIR"}
    | SECRETS
    | {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY"}
    | ENVIRONMENT.keys()
    | {setting.env for setting in SETTINGS.values() if setting.env}
)


def for_agents(environ: Mapping[str, str], *, ceiling: Path | None = None) -> dict[str, str]:
    """What an agent may inherit: the person's environment without our settings and forge tokens.

    Its git, and that of a check, does not follow replaced objects: a reviewer sees what was committed. It does not
    look for a repository above `ceiling` either, so an agent whose `.git` is gone commits nowhere.
    """
    mine = {
        name: value
        for name, value in environ.items()
        if name not in _NOT_FOR_AGENTS and not name.startswith("SWARM_")
    }
    if ceiling is not None:
        mine["GIT_CEILING_DIRECTORIES"] = ":".join(
            filter(None, (str(ceiling), mine.get("GIT_CEILING_DIRECTORIES")))
        )
    return as_committed(mine)
