"""`swarm demo`: three scripted agents in a throwaway repository, told as it happens, checked at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from swarm_core import config, proc
from swarm_core.errors import ExternalFailure, SwarmError
from swarm_core.models import Activity, Event, Instance, parse_iso
from swarm_core.ops.supervise import Supervisor
from swarm_core.swarm import Swarm
from swarm_core.tmux.sessions import Tmux
from swarm_ui import health
from swarm_ui.cli import output

_POLL = 0.1
_HAPPENS_WITHIN = 30.0

Say = Callable[[str], None]

PROMPTS = {
    "storage": """\
Keep the tasks in a file.
write storage.py import json\\n\\n\\ndef save(tasks, path):\\n    path.write_text(json.dumps(tasks))
busy 1.2
commit Save tasks to a file
append storage.py \\n\\ndef load(path):\\n    return json.loads(path.read_text())
busy 1.2
commit Load tasks from a file
""",
    "docs": """\
Write a guide, and survive a crash on the way.
write docs/guide.md # Guide\\n\\nA task is a line of text.
busy 0.9
commit Begin the guide
crash
append docs/guide.md \\nAdd one with `todo add`, see them all with `todo list`.
append README.md \\nStart with docs/guide.md.
busy 0.6
commit Finish the guide
""",
    "spike": """\
Try an idea; nobody knows yet whether it is good.
write spike.py def rank(tasks):\\n    return sorted(tasks, key=len)
commit Try ranking tasks by length
write ideas/naïve.txt Not committed, not lost: ½ an idea.\\n\\tÜnïcödé, tabs, no newline at the end\\c
busy 600
""",
}
UNCOMMITTED = "ideas/naïve.txt"
SENTENCES = {
    "coordinator:started": "watches over the agents",
    "instance:created": "gets the branch {branch}",
    "instance:status running": "runs in a worktree and a tmux session of its own",
    "instance:status terminated": "is stopped; its worktree stays as it is",
    "instance:activity busy": "is busy",
    "instance:activity idle": "is done and waits for a message",
    "instance:exited": "ended without being asked to, and that was noticed: {why}",
    "action:started restart": "is started again to go on with its conversation",
    "work:preserved": "had uncommitted work; it is kept under {ref}",
    "instance:cleaned": "is cleaned: worktree and session are gone, the branch stays",
    "instance:restored": "is restored; uncommitted files that are back: {files}",
}


def demo(*, keep: bool, json: bool) -> None:
    """Show the whole thing in a temporary folder; raises when something did not happen."""
    began = time.monotonic()
    say = output.note if json else _say
    with _place(keep=keep) as (root, environ):
        say(f"A throwaway repository and home in {root}; nothing of yours is touched.")
        result = _play(root, environ, keep=keep, say=say)
    result["checks"] += [] if keep else [{"what": "everything is removed again", "ok": not root.exists()}]
    result["seconds"] = round(time.monotonic() - began, 1)
    missing = [check["what"] for check in result["checks"] if not check["ok"]]
    if not json:
        _tell(result, say=say)
    if missing:
        raise ExternalFailure("did not happen: " + "; ".join(missing), details=result)
    if json:
        output.write_json({"ok": True, **result})


@contextlib.contextmanager
def _place(*, keep: bool) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder with a path short enough for tmux's socket; with all that runs in it, it goes at the end."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    short = Path("/tmp")  # noqa: S108
    root = Path(tempfile.mkdtemp(prefix="swarm-demo-", dir=short if os.access(short, os.W_OK) else None))
    environ = _environment(root)
    done = False
    try:
        yield root, environ
        done = True
    finally:
        if not (keep and done):
            _remove(root, config.load(environ))


def _environment(root: Path) -> dict[str, str]:
    """No setting, git configuration or repository of the person's is used."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SWARM_", "MCP_", "GIT_"))}
    who = {
        f"GIT_{role}_{key}": "demo@swarm.invalid" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")
    }
    unset = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    return clean | who | unset | {"SWARM_HOME": str(root / "home")}


def _remove(root: Path, settings: config.Settings) -> None:
    with contextlib.suppress(SwarmError):
        Tmux(settings.tmux_socket, settings.tmux_config).kill_server()
    deadline = time.monotonic() + 5.0
    while root.exists() and time.monotonic() < deadline:
        shutil.rmtree(root, ignore_errors=True)  # an agent that is just ending may still write
        time.sleep(_POLL if root.exists() else 0)


def _play(root: Path, environ: Mapping[str, str], *, keep: bool, say: Say) -> dict[str, Any]:
    repo, settings = Repository(root / "todo", environ), config.load(environ)
    with contextlib.ExitStack() as stack:
        swarm = stack.enter_context(Swarm.open(settings, environ))
        pool = stack.enter_context(ThreadPoolExecutor(max_workers=1))
        supervisor = Supervisor(swarm.context)
        thread = threading.Thread(target=supervisor.run, name="supervise")
        thread.start()
        stack.callback(thread.join)
        stack.callback(supervisor.stop)
        result = Show(swarm, repo, pool, say).play(stop=not keep)
        return result | {"repo": str(repo.path), "home": str(settings.home), "kept": str(root) if keep else None}


class Repository:
    """The throwaway repository: one commit on main."""

    def __init__(self, path: Path, environ: Mapping[str, str]) -> None:
        self.path = path
        self._environ = dict(environ)
        path.mkdir()
        self.git("init", "-q", "--template=")
        self.git("symbolic-ref", "HEAD", "refs/heads/main")
        (path / "README.md").write_text("# todo\n\nA list of things to do.\n")
        (path / "todo.py").write_text("def main():\n    print('nothing to do')\n")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "A list of things to do")
        self.base = self.git("rev-parse", "main")

    def git(self, *words: str) -> str:
        return proc.run(["git", "-C", str(self.path), *words], env=self._environ).text.strip()

    def heads(self) -> dict[str, str]:
        """Every branch with the subject of its last commit, from one process."""
        lines = self.git("for-each-ref", "refs/heads", "--format=%(refname:short) %(objectname) %(subject)")
        return {line.partition(" ")[0]: line.partition(" ")[2] for line in lines.splitlines()}

    def summary(self, branch: str) -> dict[str, int]:
        commits = int(self.git("rev-list", "--count", f"{self.base}..{branch}"))
        lines = [n.split("\t") for n in self.git("diff", "--numstat", self.base, branch).splitlines()]
        added, deleted = (sum(int(n[i]) for n in lines) for i in (0, 1))
        counted = {"commits": commits, "files_changed": len(lines)}
        return counted | {"lines_added": added, "lines_deleted": deleted}


class Show:
    """The scenario, and its telling: whatever is waited for, events and commits are told meanwhile."""

    def __init__(self, swarm: Swarm, repo: Repository, pool: ThreadPoolExecutor, say: Say) -> None:
        self._swarm = swarm
        self._repo = repo
        self._pool = pool
        self._say = say
        self._began = datetime.now(UTC)
        self._cursor = 0
        self._heads = repo.heads()
        self._ids: dict[str, str] = {}
        self._checks: list[dict[str, Any]] = []

    def play(self, *, stop: bool) -> dict[str, Any]:
        work = self._swarm.work
        for name, prompt in PROMPTS.items():
            made = self.doing(work, prompt, repo=str(self._repo.path), agent="scripted", name=name)
            self._ids[name] = made[0].id
        self._happens("the crash of docs is noticed", lambda: self._at("docs").exit_signal == signal.SIGSEGV)
        self.doing(self._swarm.restart, self._ids["docs"])
        settings = self._swarm.context.settings
        self._happens("three agents run at the same time", lambda: health.live_sessions(settings) == len(PROMPTS))
        kept = self._stop_clean_restore()
        self._happens("storage finishes its work", lambda: self._finished("storage"))
        self._happens("docs finishes its work after the crash", lambda: self._finished("docs"))
        self._check("main is as it was", self._repo.git("rev-parse", "main") == self._repo.base)
        for name in ("storage", "docs") if stop else ():
            self.doing(self._swarm.stop, self._ids[name])
        return {"agents": self._agents(), "preserved": kept, "checks": self._checks}

    def doing(self, operation: Callable[..., Any], *args: Any, **options: Any) -> Any:
        run = self._pool.submit(operation, *args, **options)
        while not run.done():
            self._follow()
            time.sleep(_POLL)
        self._follow()
        return run.result()

    def _stop_clean_restore(self) -> dict[str, Any]:
        """The agent with uncommitted work is stopped and removed; the work comes back."""
        spike = self._at("spike")
        file = Path(spike.worktree_path, UNCOMMITTED)
        self._happens("spike has uncommitted work", lambda: file.exists() and file.stat().st_size > 0)
        self.doing(self._swarm.stop, spike.id)
        before = file.read_bytes()
        self.doing(self._swarm.clean, spike.id)
        self._check("the worktree of spike was removed", not Path(spike.worktree_path).exists())
        self.doing(self._swarm.restore, spike.id)
        same = file.exists() and file.read_bytes() == before
        self._check("the uncommitted file of spike came back byte for byte", same)
        stored = self._swarm.detail(spike.id).preserved[-1]
        return {"ref": stored.ref, "file": UNCOMMITTED, "bytes": len(before), "restored": same}

    def _finished(self, name: str) -> bool:
        agent, wanted = self._at(name), PROMPTS[name].count("\ncommit ")
        return agent.activity == Activity.IDLE and self._repo.summary(agent.branch)["commits"] == wanted

    def _at(self, name: str) -> Instance:
        return self._swarm.find(self._ids[name])

    def _agents(self) -> list[dict[str, Any]]:
        found = [self._at(name) for name in PROMPTS]
        facts = ("id", "name", "branch", "status", "activity")
        return [{f: getattr(i, f) for f in facts} | self._repo.summary(i.branch) for i in found]

    def _happens(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _HAPPENS_WITHIN
        while not condition():
            if time.monotonic() > deadline:
                raise ExternalFailure(f"did not happen within {_HAPPENS_WITHIN:g} s: {what}")
            self._follow()
            time.sleep(_POLL)
        self._check(what, True)

    def _check(self, what: str, ok: bool) -> None:
        self._checks.append({"what": what, "ok": ok})
        self._follow()

    def _follow(self) -> None:
        """Tell the new events and commits."""
        for event in self._swarm.events(after=self._cursor, limit=500):
            self._cursor = event.id
            if sentence := _sentence(event):
                self._line(parse_iso(event.at), event.instance_id, sentence)
        before, self._heads = self._heads, self._repo.heads()
        for branch, head in self._heads.items():
            commit, _, subject = head.partition(" ")
            if before.get(branch) != head and commit != self._repo.base:
                self._line(datetime.now(UTC), branch.rpartition("/")[2], f"committed {commit[:7]} “{subject}”")

    def _line(self, at: datetime, instance_id: str | None, what: str) -> None:
        who = (self._swarm.find(instance_id).name if instance_id else None) or "swarm"
        self._say(f"{max(0.0, (at - self._began).total_seconds()):6.2f}s  {who:<8} {what}")


def _sentence(event: Event) -> str:
    """What happened, for a person; empty for what another event tells better."""
    told = event.metadata
    which = event.status_to or told.get("to") or told.get("action") or ""
    return (SENTENCES.get(event.name) or SENTENCES.get(f"{event.name} {which}") or "").format_map(told)


def _tell(result: dict[str, Any], *, say: Say) -> None:
    say("")
    head = ("agent", "id", "branch", "commits", "files", "lines", "status")
    keys = ("name", "id", "branch", "commits", "files_changed", "lines", "status")
    agents = [a | {"lines": f"+{a['lines_added']} -{a['lines_deleted']}"} for a in result["agents"]]
    output.columns(head, [[str(a[key]) for key in keys] for a in agents], [[""] * len(head)] * len(agents))
    say("")
    for check in result["checks"]:
        say(f"{'yes' if check['ok'] else 'NO '}  {check['what']}")
    say(f"\nAll of it in {result['seconds']} s, with real git, tmux and SQLite.")
    if result["kept"]:
        home = f"SWARM_HOME={result['home']} swarm"
        say(f"\nLook around:\n  {home} ls\n  {home} attach {result['agents'][0]['id']}\n  {home} events")
        say(f"  git -C {result['repo']} log --graph --all --oneline")
        say(f"Remove it:\n  {home} stop --all; rm -rf {result['kept']}")


def _say(text: str) -> None:
    output.write(text)
    output.flush()
