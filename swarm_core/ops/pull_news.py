"""News of a pull request that its agent has to know: told once each, in one message, and only while it is true."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from swarm_core.forge import Check, CheckState, Comment, Review, ReviewState
from swarm_core.models import Instance, MessageKind, MessageState, Pull, PullState, parse_iso
from swarm_core.ops import post, pull_look, texts
from swarm_core.ops.context import Context, place
from swarm_core.ops.pull_status import Facts
from swarm_core.store import events, instances, messages, pull_facts, pulls

LOG_BYTES = 16 * 1024
_PATIENCE = 120.0  # seconds that a failed check waits for the others to end
_LONGEST_PATIENCE = 1800.0
_URL = re.compile(r"https?://[!-~]{1,500}")
_SHOWN = 2000
_NOT_BEGUN = frozenset({MessageState.ACCEPTED, MessageState.HELD})
_LOG_SHOWN = 3000
_NEXT = """What to do: fix it on your branch, run the tests, commit, and call create_pull_request again: that
brings your commits to the pull request. Answer by your work; you cannot write on the pull request."""

Log = Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Piece:
    """One thing that is true of a pull request now. `key` stays the same as long as it is the same thing."""

    key: str
    text: str
    check: Check | None = None


def pieces(facts: Facts) -> list[Piece]:
    """Everything that is true now and an agent has to act on."""
    if facts.pull.state != PullState.OPEN:
        return []
    failed = [check for check in facts.checks if check.state == CheckState.FAILED and check.fault]
    found = [_failed(check) for check in failed]
    if facts.pull.mergeable is False:
        found.append(_conflict(facts.pull))
    found += [_review(review) for review in _said(facts)]
    found += [_comment(c) for c in facts.comments if c.trusted and not c.outdated]
    return found


def tell(context: Context, facts: Facts, log: Log) -> str | None:
    """Send what is new to the agent and take back what is no longer true; the id of the message, if one was sent.

    `log` brings the end of a check's log. It is asked before anything is written, and only for what is told.
    """
    pull = facts.pull
    work = instances.get(context.db, pull.instance_id)
    now = pieces(facts)
    _take_back(context, pull, {piece.key for piece in now})
    told = pull_facts.told(context.db, pull.id)
    fresh = [piece for piece in now if told.get(piece.key) is None]
    if not fresh:
        return None
    with context.db.write():
        pull_facts.note(context.db, pull.id, [piece.key for piece in fresh], message_id=None)
    if not _is_time(context, facts, work, fresh):
        return None
    logs = {p.key: log(p.check.job) for p in fresh if p.check is not None and p.check.job is not None}
    return _send(context, work, pull, fresh, logs)


def _is_time(context: Context, facts: Facts, work: Instance, fresh: Iterable[Piece]) -> bool:
    """Not while the author has commits that are not at the forge yet, nor while more checks are about to fail.

    Neither waits for ever: an author may have stopped there, and a check may never end.
    """
    if work.cleaned or work.ended:
        return False
    now, since = context.db.now(), pull_facts.since(context.db, facts.pull.id)
    oldest = min(since.get(piece.key, now) for piece in fresh)
    waited = (parse_iso(now) - parse_iso(oldest)).total_seconds()
    if _has_more(context, work, facts.pull):
        return waited >= _LONGEST_PATIENCE
    failing = facts.checks_state == CheckState.FAILED and any(c.state == CheckState.PENDING for c in facts.checks)
    return not failing or waited >= _PATIENCE


def _has_more(context: Context, work: Instance, pull: Pull) -> bool:
    """Whether the author's branch has commits that were not pushed; that others pushed more is no such thing."""
    tip = context.host(work).branch_tip(place(work))
    return tip is not None and tip not in (pull.head_commit, pull.pushed_commit)


def _send(context: Context, work: Instance, pull: Pull, fresh: list[Piece], logs: Mapping[str, str]) -> str | None:
    host, message_id = context.host(work), messages.new_id()
    name = f"messages/{message_id}.md"
    with contextlib.ExitStack() as undo:
        undo.callback(host.remove_file, work.id, name)
        path = host.write_file(work.id, name, _text(pull, fresh, logs, whole=True))
        with context.db.write():
            now = pulls.get(context.db, pull.id)
            known = pull_facts.told(context.db, pull.id)
            if now.state != PullState.OPEN or now.head_commit != pull.head_commit:
                return None
            if any(known.get(piece.key) is not None for piece in fresh):
                return None  # another process was quicker; the rest is told at the next look
            if not {piece.key for piece in fresh} <= {p.key for p in pieces(pull_look.facts_of(context, now))}:
                return None  # something was over while the logs were read
            body = f"{_text(pull, fresh, logs, whole=False)}\n\nAll of it is in {path}"
            message = messages.accept(
                context.db,
                work.id,
                sender=pull.forge,
                body=body,
                kind=MessageKind.NOTICE,
                document=path,
                expires_after=post.expiry(context),
                message_id=message_id,
            )
            keys = [piece.key for piece in fresh]
            pull_facts.note(context.db, pull.id, keys, message_id=message.id)
            about = {"number": pull.number, "message_id": message.id, "news": keys[:50]}
            events.add(context.db, "pull:told", instance_id=work.id, actor=pull.forge, metadata=about)
        undo.pop_all()
    return message.id


def _take_back(context: Context, pull: Pull, true: set[str]) -> None:
    """What is over is not told; a message that nobody has seen yet goes when anything in it is true no more.

    The rest of it is told again.
    """
    db, told = context.db, pull_facts.told(context.db, pull.id)
    over = {key for key in told if key not in true}
    waiting = [m for m in {told[key] for key in over} if m is not None and messages.get(db, m).state in _NOT_BEGUN]
    if not waiting and not any(told[key] is None for key in over):
        return
    with db.write():
        for message_id in waiting:
            if messages.withdraw(db, message_id, why="it is no longer true"):
                about = {"number": pull.number, "message_id": message_id}
                events.add(db, "pull:outdated", instance_id=pull.instance_id, actor=pull.forge, metadata=about)
        pull_facts.forget(db, pull.id, over)


def _said(facts: Facts) -> list[Review]:
    """Requests for changes that still stand, and remarks on the whole."""
    standing = {r.id for r in facts.last_words.values() if r.state == ReviewState.CHANGES_REQUESTED}
    return [
        review
        for review in facts.reviews
        if review.trusted
        and (review.id in standing or (review.state == ReviewState.COMMENTED and review.body.strip()))
    ]


def _failed(check: Check) -> Piece:
    said = f"\n{texts.quote(texts.cut(check.summary, _SHOWN))}" if check.summary.strip() else ""
    return Piece(f"check:{check.id}", f"The check {check.name!r} failed. {_link(check.url)}{said}", check)


def _conflict(pull: Pull) -> Piece:
    if pull.unrelated:
        text = f"The pull request shares no commit with {pull.base_branch}. Rebase your branch onto it."
        return Piece(f"unrelated:{pull.head_commit}", text)
    text = (
        f"The pull request conflicts with {pull.base_branch}: both change the same lines."
        f" Bring {pull.base_branch} as it is at the remote into your branch (fetch, then merge or rebase)."
    )
    return Piece(f"conflict:{pull.head_commit}", text)


def _review(review: Review) -> Piece:
    verb = "requests changes" if review.state == ReviewState.CHANGES_REQUESTED else "reviewed"
    body = texts.quote(review.body) if review.body.strip() else ""
    return Piece(f"review:{review.id}", f"{review.author} {verb}. {_link(review.url)}\n{body}".strip())


def _comment(comment: Comment) -> Piece:
    at = f" on {comment.path}:{comment.line}" if comment.path else ""
    return Piece(
        f"comment:{comment.id}",
        f"{comment.author} commented{at}. {_link(comment.url)}\n{texts.quote(comment.body)}",
    )


def _link(url: str) -> str:
    """An address, if it is one: whoever runs checks may write anything there."""
    return url if _URL.fullmatch(url) else ""


def _text(pull: Pull, fresh: list[Piece], logs: Mapping[str, str], *, whole: bool) -> str:
    """As a message, where long pieces are cut, or as the file that has all of them."""
    parts = [f"News of your pull request #{pull.number} ({pull.url}) at commit {pull.head_commit}:"]
    if pull.pushed_commit not in (None, pull.head_commit):
        parts.append("Somebody else has pushed to your branch: fetch it and bring it into your work first.")
    for piece in fresh:
        text = piece.text if whole else texts.cut(piece.text, _SHOWN)
        if log := logs.get(piece.key, ""):
            text += f"\nThe end of its log:\n{texts.quote(log if whole else log[-_LOG_SHOWN:])}"
        parts.append(text)
    return "\n\n".join([*parts, _NEXT])
