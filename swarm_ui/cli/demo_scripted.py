"""The demo with scripted agents: one goes through two review rounds, one crashes; both end with a merge."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swarm_core import overview
from swarm_core.models import MessageState, PullState, Verdict
from swarm_ui.cli.demo_stage import Stage

FILES = {
    "README.md": "# todo\n\nA list of things to do.\n",
    "todo.py": "def main():\n    print('nothing to do')\n",
}
UNCOMMITTED = "ideas/naïve.txt"
_SEEN = (MessageState.SEEN, MessageState.ACKNOWLEDGED)


def _call(tool: str, **arguments: str) -> str:
    return f"call {tool} {json.dumps(arguments)}"


_FEEDBACK = """\
Tasks are saved, but nothing reads them back.

- [high] storage.py:4: add load(), or a list does not outlive the program

This is the change, in steps that the author carries out:
append storage.py \\n\\ndef load(path):\\n    return json.loads(path.read_text())
busy 0.5
commit Load tasks from a file
"""
_ROUND_1 = f"""\
Read the change. Something is missing, so it goes back.
busy 0.7
{_call("send_feedback", feedback=_FEEDBACK, feedback_type="needs_work", priority="high")}
"""
_ROUND_2 = f"""\
Read the change again. What was missing is there, so it is approved.
busy 0.7
{_call("update_instance_status", status="approved", message="load() reads what save() has written.")}
"""
STORAGE = f"""\
Keep the tasks in a file, have it reviewed, and open the pull request once it is approved.
write storage.py import json\\n\\n\\ndef save(tasks, path):\\n    path.write_text(json.dumps(tasks))
busy 0.5
commit Save tasks to a file
{_call("spawn_review_instance", reviewer_prompt=_ROUND_1)}
await-message
{_call("spawn_review_instance", reviewer_prompt=_ROUND_2)}
await-message
{_call("create_pull_request", title="Keep tasks in a file", description="save() and load(), reviewed twice.")}
"""
DOCS = f"""\
Write a guide, survive a crash on the way, and open a pull request.
write docs/guide.md # Guide\\n\\nA task is a line of text.
busy 0.3
commit Begin the guide
crash
append docs/guide.md \\nAdd one with `todo add`, see them all with `todo list`.
append README.md \\nStart with docs/guide.md.
busy 0.8
commit Finish the guide
await-message
write {UNCOMMITTED} Not committed, not lost: ½ an idea.\\n\\tÜnïcödé, tabs, no newline at the end\\c
{_call("create_pull_request", title="A guide", description="How to add, list and remove a task.")}
"""
MESSAGE = """\
Please tell too how a task is removed.
append docs/guide.md \\nRemove one with `todo done`.
commit Tell how a task is removed
"""


def require(environ: Mapping[str, str]) -> None:
    """It needs nothing that is not part of swarm."""


def perform(stage: Stage) -> dict[str, Any]:
    stage.start("storage", STORAGE, agent="scripted")
    stage.start("docs", DOCS, agent="scripted")
    _crash_and_message(stage)
    kept = _merge_clean_restore(stage)
    _reviews(stage)
    return {"agents": stage.agents(), "preserved": kept}


def _crash_and_message(stage: Stage) -> None:
    """The crash is noticed, the conversation goes on, and a message reaches it."""
    swarm = stage.swarm
    stage.happens("the crash of docs is noticed", lambda: stage.find("docs").exit_signal == signal.SIGSEGV)
    before = stage.find("docs")
    stage.doing(swarm.restart, before.id)
    sent = swarm.message(before.id, MESSAGE)
    stage.check(
        "docs is started again in the same conversation",
        (stage.find("docs").epoch, stage.find("docs").conversation_id)
        == (before.epoch + 1, before.conversation_id),
    )
    live = overview.live_sessions(swarm.context.settings)
    stage.check("the agents run at the same time", live >= 2)
    stage.happens("docs has seen the message that came while it worked", lambda: _seen(stage, "docs", sent.id))
    stage.happens("docs opens its pull request", lambda: stage.find("docs").pr_number is not None)
    subjects = stage.repo.git("log", "--reverse", "--format=%s", f"{stage.repo.base}..{before.branch}")
    wanted = ["Begin the guide", "Finish the guide", "Tell how a task is removed"]
    stage.check("docs did every step once, before and after the crash", subjects.splitlines() == wanted)


def _merge_clean_restore(stage: Stage) -> dict[str, Any]:
    """Merged work is taken away; what was not committed comes back."""
    docs = stage.find("docs")
    file = Path(docs.worktree_path, UNCOMMITTED)
    before = file.read_bytes()
    pull = stage.merge("docs")
    stage.check("the pull request of docs is merged", pull.state == PullState.MERGED)
    stage.doing(stage.swarm.stop, docs.id)
    stage.doing(stage.swarm.clean, docs.id)
    stage.check("the worktree of docs was removed", not Path(docs.worktree_path).exists())
    stage.doing(stage.swarm.restore, docs.id)
    same = file.exists() and file.read_bytes() == before
    stage.check("the uncommitted file of docs came back byte for byte", same)
    stored = stage.swarm.detail(docs.id).preserved[-1]
    return {"ref": stored.ref, "file": UNCOMMITTED, "bytes": len(before), "restored": same}


def _reviews(stage: Stage) -> None:
    """Sent back, reworked, approved, opened, merged."""

    def verdicts() -> list[str | None]:
        return [link.verdict for link in stage.reviews("storage")]

    stage.happens("the first review sends storage back", lambda: verdicts()[:1] == [Verdict.NEEDS_WORK])
    first = stage.reviews("storage")[0]
    stage.happens("storage has seen the feedback", lambda: _seen_from(stage, "storage", first.child_id))
    stage.happens("the second review approves it", lambda: verdicts()[1:] == [Verdict.APPROVED])
    second = stage.reviews("storage")[1]
    commits = stage.repo.git("rev-list", "--reverse", f"{stage.repo.base}..{stage.find('storage').branch}").split()
    reviewed = [first.head_commit, second.head_commit]
    stage.check("each round reviewed one commit, the second the rework", reviewed == commits)
    stage.happens("storage opens its pull request", lambda: stage.find("storage").pr_number is not None)
    pull = stage.merge("storage")
    stage.check("the pull request of storage is merged", pull.state == PullState.MERGED)
    stage.check("main has the work of both", {pull.head_commit, *commits} <= stage.repo.on_main())


def _seen(stage: Stage, name: str, message_id: str) -> bool:
    found = stage.swarm.detail(stage.find(name).id).messages
    return any(m.id == message_id and m.state in _SEEN for m in found)


def _seen_from(stage: Stage, name: str, sender: str) -> bool:
    found = stage.swarm.detail(stage.find(name).id).messages
    return any(m.sender == sender and m.state in _SEEN for m in found)
