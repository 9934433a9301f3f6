"""A git credential helper of our own: answers `get` for one host with the token in its environment.

git starts it as a program by itself, so it stands on the standard library alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping

USERNAME = "x-access-token"
PASSWORD_VARIABLE = "GIT_PASSWORD_OF_SWARM"  # noqa: S105 - a name, no secret
PLACE_VARIABLE = "GIT_PASSWORD_OF_SWARM_FOR"


def answer(asked: Iterable[str], environ: Mapping[str, str]) -> str:
    """The reply in git's credential protocol; empty for any place but the one the token is for."""
    facts = dict(line.rstrip("\n").partition("=")[::2] for line in asked)
    password, place = environ.get(PASSWORD_VARIABLE), environ.get(PLACE_VARIABLE)
    if not password or place != f"{facts.get('protocol')}://{facts.get('host')}":
        return ""
    return f"username={USERNAME}\npassword={password}\n"


if __name__ == "__main__" and sys.argv[1:] == ["get"]:
    sys.stdout.write(answer(sys.stdin, os.environ))
