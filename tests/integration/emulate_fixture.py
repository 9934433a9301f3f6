"""emulate, a GitHub that nobody here wrote, with a repository, an issue and two people who have tokens.

It speaks of itself as `localhost`, which is the address to ask it at.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from swarm_core.github import GitHubForge
from tests.support import wait_until

PROGRAM = Path(sys.prefix) / "npm" / "node_modules" / ".bin" / "emulate"
OWNER, NAME = "swarm", "widgets"
_TOKENS = {"swarm": "ghp_tokenOfTheSwarm", "ann": "ghp_tokenOfAnn"}
_ATTEMPTS = 3
_LOOPBACK = """
const net = require("net");
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (where, ...rest) {
  const port = typeof where === "object" ? where.port : where;
  const ready = rest.find((one) => typeof one === "function");
  return listen.call(this, { port, host: "127.0.0.1" }, ready);
};
"""

needs_emulate = pytest.mark.skipif(
    shutil.which("npm") is None and not os.environ.get("CI"), reason="npm is missing, which installs it"
)


@dataclass(frozen=True)
class Emulate:
    url: str

    def call(self, method: str, path: str, body: Any = None, *, by: str = "swarm") -> Any:
        """What a person does below the repository."""
        answer = requests.request(
            method,
            f"{self.url}/repos/{OWNER}/{NAME}{path}",
            json=body,
            headers={"Authorization": f"token {_TOKENS[by]}"},
            timeout=30,
        )
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def forge(self, *, token: str | None = _TOKENS["swarm"], name: str = NAME, **more: Any) -> GitHubForge:
        return GitHubForge("localhost", OWNER, name, token=token, api_url=self.url, **more)

    def push(self, branch: str, path: str, text: str) -> str:
        """Commit a file on a branch, which begins at main when it is new; returns the commit."""
        names = {found["name"] for found in self.call("GET", "/branches?per_page=100")}
        if branch not in names:
            self.call("POST", "/git/refs", {"ref": f"refs/heads/{branch}", "sha": self.tip("main")})
        content = base64.b64encode(text.encode()).decode()
        body = {"message": f"Change {path}", "content": content, "branch": branch}
        return str(self.call("PUT", f"/contents/{path}", body)["commit"]["sha"])

    def tip(self, branch: str) -> str:
        return str(self.call("GET", f"/git/ref/heads/{branch}")["object"]["sha"])


@pytest.fixture(scope="module")
def emulate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulate]:
    assert PROGRAM.exists(), "emulate is not installed: run `make setup`"
    with _running(tmp_path_factory.mktemp("emulate")) as url:
        made = Emulate(url)
        made.call("POST", "/issues", {"title": "It is broken", "body": "Please fix it."})
        yield made


@contextlib.contextmanager
def _running(folder: Path) -> Iterator[str]:
    seed = folder / "seed.json"
    seed.write_text(
        json.dumps(
            {
                "tokens": {token: {"login": login, "scopes": ["repo"]} for login, token in _TOKENS.items()},
                "github": {
                    "users": [{"login": login} for login in _TOKENS],
                    "repos": [{"owner": OWNER, "name": NAME, "auto_init": True}],
                },
            }
        )
    )
    process, url = _started(folder, seed)
    try:
        yield url
    finally:
        process.kill()
        process.wait(timeout=30)


def _started(folder: Path, seed: Path) -> tuple[subprocess.Popen[bytes], str]:
    """It takes no port 0, so one that is free is chosen, and another if somebody is faster."""
    for _ in range(_ATTEMPTS):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        url, log = f"http://localhost:{port}", folder / f"{port}.log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [str(PROGRAM), "start", "--service", "github", "--port", str(port), "--seed", str(seed)],
                cwd=folder,
                env={
                    "PATH": os.environ["PATH"],
                    "HOME": str(folder),
                    "NODE_OPTIONS": f"--require={_loopback_only(folder)}",
                },
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
            )
        wait_until(lambda p=process, u=url: p.poll() is not None or _answers(u), timeout=60, what="emulate")
        if process.poll() is None:
            return process, url
    raise AssertionError(f"emulate does not start: {log.read_text()}")


def _loopback_only(folder: Path) -> Path:
    """It would listen on every interface and has no option against that."""
    path = folder / "loopback.cjs"
    path.write_text(_LOOPBACK)
    return path


def _answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/rate_limit", timeout=5).ok
    except requests.RequestException:
        return False
