"""git, for the commit step."""

from __future__ import annotations

import os
import signal

from swarm_core.agents.script.steps import StepFailed


def environment() -> dict[str, str]:
    """The environment for git: without the token, with an identity if the person configured none."""
    env = {key: value for key, value in os.environ.items() if key != "SWARM_TOKEN"}
    env |= {"GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true"}
    for role in ("AUTHOR", "COMMITTER"):
        if run("-c", "user.useConfigOnly=true", "var", f"GIT_{role}_IDENT", env=env)[0] != 0:
            env |= {f"GIT_{role}_NAME": "Scripted Agent", f"GIT_{role}_EMAIL": "scripted@swarm.invalid"}
    return env


def run(*args: str, env: dict[str, str]) -> tuple[int, str]:
    """Run git to its end in a group of its own that does not outlive a signal to this program."""
    source, sink = os.pipe()
    null = os.open(os.devnull, os.O_RDONLY)
    actions = [
        (os.POSIX_SPAWN_DUP2, null, 0),
        (os.POSIX_SPAWN_DUP2, sink, 1),
        (os.POSIX_SPAWN_DUP2, sink, 2),
    ]
    try:
        pid = os.posix_spawnp("git", ["git", *args], env, file_actions=actions, setpgroup=0)
    except OSError as error:
        os.close(source)
        raise StepFailed(f"cannot run git: {error.strerror}") from None
    finally:
        os.close(sink)
        os.close(null)
    said = b""
    try:
        while chunk := os.read(source, 65536):
            said = (said + chunk)[-8192:]
        _, status = os.waitpid(pid, 0)
    except BaseException:
        os.killpg(pid, signal.SIGTERM)
        raise
    finally:
        os.close(source)
    return os.waitstatus_to_exitcode(status), said.decode(errors="replace").strip()
