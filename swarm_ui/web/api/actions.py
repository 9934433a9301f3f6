"""What a person can do at the dashboard: each request is translated, checked and handed to the runner."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel

from swarm_core.agents import table
from swarm_core.errors import Conflict, InvalidInput, NotFound, SwarmError
from swarm_core.models import Instance, PullState, Status, as_json
from swarm_core.ops import spawn
from swarm_core.ops.pull_status import readiness
from swarm_core.store import dismissed, instances, relationships
from swarm_core.swarm import Swarm
from swarm_ui.web.api.bodies import (
    Abandon,
    Answer,
    Approve,
    Body,
    Budget,
    ClientError,
    Confirmed,
    Enqueue,
    Feedback,
    Fork,
    Keys,
    Merge,
    Message,
    OpenPull,
    Rescope,
    Restore,
    Review,
    Spawn,
)
from swarm_ui.web.endpoint import Endpoint, Question
from swarm_ui.web.runner import Wish, nothing
from swarm_ui.web.slow import GIT, TMUX
from swarm_ui.web.threads import shared

_ERRORS_A_MINUTE = 30
_LONGEST_ERROR = 4000

log = logging.getLogger(__name__)

Done = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Act:
    """What one action does with an instance, and what is looked at before it is accepted.

    One that takes something away says so in `takes_away`, and is asked for twice.
    """

    name: str
    summary: str
    do: Callable[[Swarm, Instance, Any, str], Done]
    body: type[Body] = Body
    check: Callable[[Swarm, Instance, Any], None] = lambda swarm, instance, body: None
    takes_away: str = ""

    def endpoint(self) -> Endpoint:
        answer = self.answer_twice if self.takes_away else self.answer
        return _endpoint(f"/api/v1/instances/{{id}}/{self.name}", self.summary, answer, body=self.body)

    def answer(self, asked: Question) -> dict[str, Any]:
        return _accepted(asked, self._wish(asked, asked.site.swarm.find(asked.path["id"])))

    async def answer_twice(self, asked: Question) -> dict[str, Any]:
        """Without `confirm`: CONFIRM_NEEDED with what it takes away; `leftovers` is null while git hangs."""
        found = await shared(asked.site.swarm.find, asked.path["id"])
        wish = self._wish(asked, found)
        if not asked.body.confirm and not await shared(asked.site.runner.knows, wish):
            left = await _leftovers(asked, found)
            told = await shared(_taken_away, asked.site.swarm, found, left)
            raise _unconfirmed(f"this {self.takes_away.format(found.id)}", told)
        return await shared(_accepted, asked, wish)

    def _wish(self, asked: Question, found: Instance) -> Wish:
        swarm, body, by = asked.site.swarm, asked.body, asked.visitor.name
        return Wish(
            self.name,
            found.id,
            body.model_dump(),
            by,
            work=lambda reporting: self.do(reporting, found, body, by),
            check=lambda: self.check(swarm, found, body),
            key=asked.key,
        )


def _accepted(asked: Question, wish: Wish) -> dict[str, Any]:
    return {"action": asked.site.runner.accept(wish)}


# Actions on one instance


def _told(instance: Instance) -> Done:
    return {"instance": {"id": instance.id, "status": instance.status, "activity": instance.activity}}


def _message(swarm: Swarm, instance: Instance, body: Message, by: str) -> Done:
    sent = swarm.message(instance.id, body.body, sender=by)
    return {"message": {"id": sent.id, "state": sent.state}}


def _can_hear(swarm: Swarm, instance: Instance, body: Message | Feedback) -> None:
    if instance.cleaned:
        raise Conflict(f"{instance.id} was cleaned", hint=f"`swarm restore {instance.id}` brings it back")
    if "\0" in body.body:
        raise InvalidInput("a message cannot contain a NUL character")


def _answer(swarm: Swarm, instance: Instance, body: Answer, by: str) -> Done:
    done = swarm.answer(instance.id, choice=body.choice, text=body.text, digest=body.digest, actor=by)
    said = done["choices"][body.choice - 1] if body.choice is not None else body.text
    return {"question": done["text"], "answer": said}


def _approve(swarm: Swarm, instance: Instance, body: Approve, by: str) -> Done:
    return _told(swarm.accept(instance.id, message=body.message, actor=by))


def _rescope(swarm: Swarm, instance: Instance, body: Rescope, by: str) -> Done:
    return _told(swarm.rescope(instance.id, body.task, actor=by))


def _abandon(swarm: Swarm, instance: Instance, body: Abandon, by: str) -> Done:
    return _told(swarm.abandon(instance.id, why=body.why, actor=by))


def _restart(swarm: Swarm, instance: Instance, body: Body, by: str) -> Done:
    return _told(swarm.restart(instance.id, actor=by))


def _stop(swarm: Swarm, instance: Instance, body: Confirmed, by: str) -> Done:
    return _told(swarm.stop(instance.id, actor=by))


def _clean(swarm: Swarm, instance: Instance, body: Confirmed, by: str) -> Done:
    return _told(swarm.clean(instance.id, actor=by))


def _restore(swarm: Swarm, instance: Instance, body: Restore, by: str) -> Done:
    return _told(swarm.restore(instance.id, ref=body.ref, actor=by))


def _fork(swarm: Swarm, instance: Instance, body: Fork, by: str) -> Done:
    return _told(swarm.fork(instance.id, body.prompt, agent=body.agent, name=body.name, actor=by))


def _review(swarm: Swarm, instance: Instance, body: Review, by: str) -> Done:
    return _told(swarm.request_review(instance.id, reviewer_prompt=body.focus, agent=body.agent, actor=by))


def _agent_is_known(swarm: Swarm, instance: Instance, body: Fork | Review) -> None:
    if body.agent is not None:
        table.get(body.agent)


def _feedback(swarm: Swarm, instance: Instance, body: Feedback, by: str) -> Done:
    sent = swarm.send_feedback(
        instance.id, body.body, feedback_type=body.feedback_type, priority=body.priority, actor=by
    )
    return {"feedback": {"id": sent.id, "message_id": sent.message_id}}


def _budget(swarm: Swarm, instance: Instance, body: Budget, by: str) -> Done:
    now = swarm.budget(instance.id, usd=body.usd, raise_by=body.raise_by, none=body.none, actor=by)
    return {"limit_usd": now.limit_usd, "own": now.own, "cost_usd": now.instance.cost_usd}


def _pull(swarm: Swarm, instance: Instance, body: OpenPull, by: str) -> Done:
    title = body.title.strip() or swarm.pulls.title_of(instance.id)
    return _told_pull(
        swarm.open_pull(instance.id, title=title, description=body.description, draft=body.draft, actor=by)
    )


def _merge(swarm: Swarm, instance: Instance, body: Merge, by: str) -> Done:
    merged = swarm.pulls.merge(instance.id, method=body.method, auto=body.auto, anyway=body.anyway, actor=by)
    return _told_pull(merged)


def _no_auto(swarm: Swarm, instance: Instance, body: Body, by: str) -> Done:
    return _told_pull(swarm.pulls.no_auto(instance.id, actor=by))


def _close_pull(swarm: Swarm, instance: Instance, body: Confirmed, by: str) -> Done:
    return _told_pull(swarm.pulls.close(instance.id, actor=by))


def _enqueue(swarm: Swarm, instance: Instance, body: Enqueue, by: str) -> Done:
    queued = swarm.pulls.enqueue(instance.id, method=body.method, actor=by)
    return {"queued": {"id": queued.id, "state": queued.state}}


def _dequeue(swarm: Swarm, instance: Instance, body: Body, by: str) -> Done:
    queued = swarm.pulls.dequeue(instance.id, actor=by)
    return {"queued": {"id": queued.id, "state": queued.state}}


def _told_pull(pull: Any) -> Done:
    names = ("number", "url", "state", "auto_merge")
    return {"pull": {name: value for name, value in as_json(pull).items() if name in names}}


def _has_pull(swarm: Swarm, instance: Instance, body: Body) -> None:
    if swarm.pulls.of(instance.id).pull.state != PullState.OPEN:
        raise NotFound(f"{instance.id} has no open pull request", code="PULL_NOT_FOUND")


# What takes something away is asked for twice


def _confirmed_pull(swarm: Swarm, instance: Instance, body: Confirmed) -> None:
    _has_pull(swarm, instance, body)
    if not body.confirm:
        found = swarm.pulls.of(instance.id)
        pull, result = found.pull, readiness(found)
        names = ("number", "title", "url", "head_branch", "base_branch", "head_commit", "auto_merge")
        told = {name: value for name, value in as_json(pull).items() if name in names}
        told |= {"status": str(result.state), "ready": result.ready, "hindrances": result.sentences}
        done = "merges" if isinstance(body, Merge) else "closes"
        raise _unconfirmed(f"this {done} pull request #{pull.number} of {instance.id}", {"pull": told})


def _unconfirmed(message: str, details: Done) -> Conflict:
    return Conflict(
        message, code="CONFIRM_NEEDED", hint='ask the person, then send it with "confirm": true', details=details
    )


async def _leftovers(asked: Question, instance: Instance) -> Mapping[str, Any] | None:
    """What lies in the worktree and is nowhere else; None of a folder that is gone, and while git hangs."""
    with contextlib.suppress(SwarmError):
        return await asked.site.pools[GIT].run(lambda: asked.site.swarm.leftovers(instance))
    return None


def _taken_away(swarm: Swarm, instance: Instance, left: Mapping[str, Any] | None) -> Done:
    return {
        "status": instance.status,
        "activity": instance.activity,
        "leftovers": dict(left) if left is not None else None,
        "waiting": _waiting(swarm, instance),
    }


def _waiting(swarm: Swarm, instance: Instance) -> list[str]:
    """The work whose review this is, if it waits for the verdict; the reviews of this work that are under way."""
    db = swarm.context.db
    found = []
    for link in relationships.of(db, instance.id):
        other = instances.find(db, link.parent_id if link.child_id == instance.id else link.child_id)
        if other is None or link.type != relationships.REVIEW or link.verdict is not None or other.ended:
            continue
        if link.parent_id == instance.id or other.status == Status.WAITING_REVIEW:
            found.append(other.id)
    return found


# What is not about one instance, or is done before the answer


async def _spawn(asked: Question) -> dict[str, Any]:
    body, by, swarm = asked.body, asked.visitor.name, asked.site.swarm

    def check() -> None:
        if not PurePath(body.repo).is_absolute():
            raise InvalidInput("repo is the whole path of a repository", hint="it begins with /")
        spawn.check_text(body.prompt, body.name, body.issue)
        if body.agent is not None:
            table.get(body.agent)
        swarm.context.hosts.choose().ensure_repo(body.repo, body.base)
        spawn.check_task(body.prompt, body.issue, adhoc=False)

    def work(reporting: Swarm) -> Done:
        made = reporting.work(**body.model_dump(), actor=by)
        return {"instances": [dict(_told(one)["instance"]) for one in made]}

    wish = Wish("spawn", None, body.model_dump(), by, work=work, key=asked.key)
    if not await shared(asked.site.runner.knows, wish):
        await asked.site.pools[GIT].run(check)
    return await shared(_accepted, asked, wish)


def _dismiss(asked: Question) -> dict[str, Any]:
    instance_id, _, key = asked.path["id"].partition(":")
    found = asked.site.swarm.find(instance_id)
    if not key or len(key) > 200 or not key.isprintable():
        raise NotFound("there is no such item", hint="an item is named <instance>:<need>")

    def work(reporting: Swarm) -> Done:
        with reporting.context.db.write():
            dismissed.add(reporting.context.db, found.id, key, by=asked.visitor.name)
        return {"dismissed": asked.path["id"]}

    wish = Wish("dismiss", found.id, {"key": key}, asked.visitor.name, work=work, check=nothing, key=asked.key)
    return _accepted(asked, wish)


def _keys(asked: Question) -> dict[str, Any]:
    """At once, without an action of its own: a person waits for every key."""
    body = asked.body
    found = asked.site.swarm.find(asked.path["id"])
    count = asked.site.swarm.type_keys(found.id, text=body.text, keys=body.keys, actor=asked.visitor.name)
    done = {"id": None, "name": "keys", "instance": found.id, "by": asked.visitor.name, "state": "done"}
    return {"action": done | {"result": {"keys": count}}}


def _action(asked: Question) -> dict[str, Any]:
    return {"action": asked.site.runner.get(asked.path["id"])}


class _Flood:
    """A page that fails in a loop must not fill the log."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._lock = threading.Lock()
        self._times: deque[float] = deque()

    def lets_through(self) -> bool:
        now = time.monotonic()
        with self._lock:
            while self._times and self._times[0] <= now - self._seconds:
                self._times.popleft()
            if len(self._times) >= self._most:
                return False
            self._times.append(now)
            return True


_flood = _Flood(_ERRORS_A_MINUTE, 60.0)


def _client_error(asked: Question) -> dict[str, Any]:
    if not _flood.lets_through():
        return {"logged": False}
    told = [f"{name}: {_plain(str(value))}" for name, value in asked.body.model_dump().items() if value]
    log.warning("a page of %s failed; %s", asked.visitor.name, "; ".join(told))
    return {"logged": True}


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text[:_LONGEST_ERROR])


_ENDS = "ends the agent of {}"
_REMOVES = "removes the worktree of {}; files that are not committed are preserved"
_ACTS = (
    _Act("message", "Send a message to an agent.", _message, Message, _can_hear),
    _Act("answer", "Answer the question with that digest, if the agent still shows it.", _answer, Answer),
    _Act("approve", "Approve work as it is, whatever its reviews say.", _approve, Approve),
    _Act("rescope", "Give work another scope.", _rescope, Rescope),
    _Act("abandon", "Give work up; its files and commits stay.", _abandon, Abandon, takes_away=_ENDS),
    _Act("restart", "Start an agent again, in its conversation.", _restart),
    _Act("stop", "End an agent; its work stays.", _stop, Confirmed, takes_away=_ENDS),
    _Act("fork", "Start a second attempt from an instance's last commit.", _fork, Fork, _agent_is_known),
    _Act("review", "Start a review of what an instance has committed.", _review, Review, _agent_is_known),
    _Act("feedback", "Say something about an instance's work.", _feedback, Feedback, _can_hear),
    _Act("clean", "Remove the worktree of an instance that has ended.", _clean, Confirmed, takes_away=_REMOVES),
    _Act("restore", "Bring back the worktree and preserved work of an instance.", _restore, Restore),
    _Act("budget", "Set, raise or take away an instance's budget.", _budget, Budget),
    _Act("pull", "Open the pull request of an instance's branch.", _pull, OpenPull),
    _Act("merge", "Merge a pull request now, or as soon as nothing hinders it.", _merge, Merge, _confirmed_pull),
    _Act("no_auto", "Do not merge a pull request by itself any more.", _no_auto, check=_has_pull),
    _Act("enqueue", "Put a pull request into the merge queue.", _enqueue, Enqueue, _has_pull),
    _Act("dequeue", "Take a pull request out of the merge queue.", _dequeue),
    _Act("close_pull", "Close a pull request without merging it.", _close_pull, Confirmed, _confirmed_pull),
)

_FRAME = {
    "type": "object",
    "required": ["action"],
    "properties": {
        "action": {
            "type": "object",
            "required": ["id", "name", "instance", "by", "state"],
            "properties": {
                "id": {"type": ["string", "null"]},
                "name": {"type": "string"},
                "instance": {"type": ["string", "null"]},
                "by": {"type": "string"},
                "state": {"enum": ["accepted", "running", "done", "failed"]},
                "text": {"type": "string"},
                "error": {"type": "object"},
                "result": {"type": ["object", "null"]},
            },
        }
    },
}


def _endpoint(
    path: str, summary: str, answer: Callable[[Question], Any], *, body: type[BaseModel] = Body, **more: Any
) -> Endpoint:
    how: dict[str, Any] = {"status": 202, "result": _FRAME} | more
    return Endpoint("POST", path, summary, answer, body=body, writes=True, **how)


ENDPOINTS = (
    _endpoint("/api/v1/instances", "Start agents in a repository.", _spawn, body=Spawn),
    *(act.endpoint() for act in _ACTS),
    _endpoint(
        "/api/v1/instances/{id}/keys", "Type at an agent's terminal.", _keys, body=Keys, status=200, runs=TMUX
    ),
    _endpoint("/api/v1/inbox/{id}/dismiss", "Show an item no more until it is needed anew.", _dismiss),
    Endpoint("GET", "/api/v1/actions/{id}", "How far an action is.", _action, result=_FRAME),
    Endpoint(
        "POST",
        "/api/v1/client-errors",
        "Tell the log of a failure in a page.",
        _client_error,
        body=ClientError,
        result={"type": "object", "properties": {"logged": {"type": "boolean"}}, "required": ["logged"]},
    ),
)
