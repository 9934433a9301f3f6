"""Taking in what a forge says of a pull request: facts are stored, and what follows from a change is done."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any, TypeVar

from swarm_core.forge import Check, Comment, Forge, Known, Look, Review
from swarm_core.models import Pull, PullState, parse_iso
from swarm_core.ops import brought, pull_known, pull_record, texts
from swarm_core.ops.context import Context
from swarm_core.ops.pull_status import Facts, policy
from swarm_core.store import events, instances, pull_facts
from swarm_core.store import pulls as store
from swarm_core.store.database import Database

MERGING = "pull:merging"
_LONGEST_LOOK = 600.0
_LONGEST_MERGE = 300.0
_RECENT = 50
_NOTICED_AFTER = 120.0  # seconds within which GitHub has certainly noticed a push
_S = TypeVar("_S", Review, Comment)
_R = TypeVar("_R", Check, Review, Comment)


def facts_of(context: Context, pull: Pull) -> Facts:
    """A pull request as it is known now."""
    [found] = pull_known.facts_of(context.db, [pull], policy=policy(context.settings))
    return found


def ask(context: Context, forge: Forge, pull: Pull, *, actor: str | None = None) -> Facts:
    """Ask the forge now, take in what it says, and return that: whoever acts on it acts on nothing older."""
    asked_at = context.db.now()
    look = forge.look([known_of(pull)]).get(pull.number)
    if look is None:
        return facts_of(context, store.get(context.db, pull.id))
    taken = take_in(context, pull, look, asked_at=asked_at, actor=actor)
    return judged(context, taken, look) if taken.pull.state == PullState.OPEN else taken


def judged(context: Context, known: Facts, look: Look) -> Facts:
    """What is known, with what a look has said of it in the place of what others may have stored since."""
    remote = look.pull
    same = remote.head_commit == known.pull.head_commit
    said = remote if remote.mergeable is not None or not same else known.pull
    pull = dataclasses.replace(
        known.pull,
        head_commit=remote.head_commit,
        draft=remote.draft,
        mergeable=said.mergeable if same else None,
        unrelated=said.unrelated,
    )
    checks = look.checks if look.checks is not None else known.checks if same else ()
    reviews = known.reviews if look.reviews is None else _trusted(context, look.reviews)
    return dataclasses.replace(known, pull=pull, checks=checks, reviews=reviews)


def known_of(pull: Pull) -> Known:
    """What a look may take as known."""
    return Known(
        number=pull.number,
        head_branch=pull.head_branch,
        head_commit=pull.head_commit,
        base_branch=pull.base_branch,
        updated_at=pull.forge_updated_at,
        etags=json.loads(pull.etags),
    )


def take_in(
    context: Context, pull: Pull, look: Look, *, asked_at: str | None = None, actor: str | None = None
) -> Facts:
    """Store what a look has brought and tell what changed, in one transaction.

    Not what was asked before a look that is stored already, or before we pushed: GitHub's answer may be older than
    the push that it follows.
    """
    db, replaced = context.db, replaced_now(context, pull)
    span = _span(context, pull, look)
    with db.write():
        before = facts_of(context, store.get(db, pull.id))
        if _is_older(before.pull, look, asked_at or db.now(), db.now()):
            return before
        if look.pull.state == PullState.OPEN:
            pull_record.reopened(context, before.pull, actor=actor or pull.forge)
        _store(context, before, look, asked_at or db.now(), replaced)
        brought.keep(db, store.get(db, pull.id), span)
        after = facts_of(context, store.get(db, pull.id))
        _tell(context, before, after)
        _end(context, after.pull, look, actor)
        return facts_of(context, store.get(db, pull.id))


def _is_older(known: Pull, look: Look, asked_at: str, now: str) -> bool:
    ahead = (parse_iso(known.looked_at) - parse_iso(asked_at)).total_seconds() if known.looked_at else 0.0
    if 0 < ahead < _LONGEST_LOOK:  # a clock that was put back is no reason to believe nothing any more
        return True
    moved = look.pull.state == PullState.OPEN and look.pull.head_commit != known.head_commit
    if not moved or known.head_commit != known.pushed_commit or known.head_at is None:
        return False
    age = (parse_iso(now) - parse_iso(known.head_at)).total_seconds()
    return known.head_at >= asked_at or age < _NOTICED_AFTER


def replaced_now(context: Context, pull: Pull) -> str:
    """What `Pull.replaced` is to be; ask before the transaction."""
    return " ".join(context.host(instances.get(context.db, pull.instance_id)).replaced(pull.repo_path))


def _span(context: Context, pull: Pull, look: Look) -> brought.Span | None:
    if look.pull.state != PullState.OPEN:
        return None
    host = context.host(instances.get(context.db, pull.instance_id))
    there = dataclasses.replace(pull, base_branch=look.pull.base_branch)
    return brought.of_pull(host, there, head=look.pull.head_commit, known=pull.span)


def _store(context: Context, before: Facts, look: Look, asked_at: str, replaced: str) -> None:
    db, remote, pull = context.db, look.pull, before.pull
    moved = remote.head_commit != pull.head_commit
    # While GitHub works it out nothing is known of the new commit, but all of the old one.
    said = remote if remote.mergeable is not None or moved else pull
    now: dict[str, Any] = {
        "url": remote.url,
        "title": texts.storable(remote.title),
        "draft": remote.draft,
        "head_commit": remote.head_commit,
        "base_branch": remote.base_branch,
        "mergeable": said.mergeable,
        "unrelated": said.unrelated,
    }
    if moved:
        now["head_at"] = db.now()
    changed = {name: value for name, value in now.items() if getattr(pull, name) != value}
    if changed:
        pull = store.change(db, pull, **changed)
    store.looked(
        db,
        pull,
        forge_updated_at=remote.updated_at,
        etags=json.dumps(dict(look.etags)),
        looked_at=asked_at,
        failures=0,
        failure="",
        replaced=replaced,
    )
    if look.checks is not None:
        pull_facts.replace_checks(db, pull.id, _storable(look.checks))
    elif moved:
        pull_facts.replace_checks(db, pull.id, [])
    if look.reviews is not None:
        pull_facts.replace_reviews(db, pull.id, _storable(_trusted(context, look.reviews)))
    if look.comments is not None:
        pull_facts.replace_comments(db, pull.id, _storable(_trusted(context, look.comments)))


def _tell(context: Context, before: Facts, after: Facts) -> None:
    old, new = before.pull, after.pull
    if old.head_commit != new.head_commit:
        _event(context, new, "pull:updated", {"from": old.head_commit, "commit": new.head_commit})
        if new.auto_merge and new.auto_commit != new.head_commit:
            store.change(context.db, new, auto_merge="", auto_commit=None)
            why = f"it moved on to {new.head_commit[:12]}"
            _event(context, new, "pull:auto", {"on": False, "why": why})
    if old.draft and not new.draft:
        _event(context, new, "pull:ready", {})
    if before.checks_state != after.checks_state:
        failed = [c.name for c in after.checks if c.state == "failed"]
        told = {"from": before.checks_state, "to": after.checks_state, "failed": failed[:20]}
        _event(context, new, "pull:checks", told | {"commit": new.head_commit})
    if old.mergeable is not False and new.mergeable is False:
        _event(context, new, "pull:conflict", {"base_branch": new.base_branch, "commit": new.head_commit})
    seen = {(review.id, review.state) for review in before.reviews}
    for review in after.reviews:
        if (review.id, review.state) not in seen:
            said: dict[str, Any] = {"by": review.author, "state": review.state, "commit": review.commit}
            _event(context, new, "pull:reviewed", said | {"trusted": review.trusted})
    ids = {comment.id for comment in before.comments}
    for comment in after.comments:
        if comment.id not in ids:
            at = f"{comment.path}:{comment.line}" if comment.path else ""
            _event(context, new, "pull:commented", {"by": comment.author, "at": at, "trusted": comment.trusted})


def _asked_by(db: Database, pull: Pull) -> str | None:
    """Who of us has asked the forge for the merge a moment ago, if anybody has."""
    for event in reversed(events.newest(db, instance_id=pull.instance_id, limit=_RECENT)):
        if event.name == MERGING and event.metadata.get("number") == pull.number:
            age = (parse_iso(db.now()) - parse_iso(event.at)).total_seconds()
            return event.actor if age < _LONGEST_MERGE and event.metadata["commit"] == pull.head_commit else None
    return None


def _end(context: Context, pull: Pull, look: Look, actor: str | None) -> None:
    if look.pull.state == PullState.MERGED:
        who = actor or _asked_by(context.db, pull) or pull.forge
        pull_record.merged(context, pull, commit=look.pull.merge_commit, actor=who)
    elif look.pull.state == PullState.CLOSED:
        pull_record.closed(context, pull, actor=actor or pull.forge)


def _event(context: Context, pull: Pull, name: str, more: dict[str, Any]) -> None:
    told = {"number": pull.number, "url": pull.url, **more}
    events.add(context.db, name, instance_id=pull.instance_id, actor=pull.forge, metadata=told)


def _trusted(context: Context, said: Sequence[_S]) -> list[_S]:
    """With those whom the setting trusts besides the forge's own collaborators."""
    names = {name.strip().lower() for name in context.settings.text("github_trusted").split(",")}
    return [dataclasses.replace(one, trusted=one.trusted or one.author.lower() in names) for one in said]


def _storable(records: Sequence[_R]) -> list[_R]:
    """Whatever words came with them, a table can hold them."""
    kept = []
    for record in records:
        said = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
        words: dict[str, Any] = {n: texts.storable(v) for n, v in said.items() if isinstance(v, str)}
        kept.append(dataclasses.replace(record, **words))
    return kept
