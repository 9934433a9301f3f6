"""Taking in what a forge says of a pull request: facts are stored, and what follows from a change is done."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any, TypeVar

from swarm_core.forge import Check, Comment, Look, Review
from swarm_core.models import Pull, PullState
from swarm_core.ops import pull_record, texts
from swarm_core.ops.context import Context
from swarm_core.ops.pull_status import Facts
from swarm_core.store import events, pull_facts, pulls

_S = TypeVar("_S", Review, Comment)
_R = TypeVar("_R", Check, Review, Comment)


def facts_of(context: Context, pull: Pull) -> Facts:
    """A pull request as it is known now."""
    db, key = context.db, pull.id
    return Facts(pull, pull_facts.checks(db, key), pull_facts.reviews(db, key), pull_facts.comments(db, key))


def take_in(context: Context, pull: Pull, look: Look) -> Facts:
    """Store what a look has brought and tell what changed, in one transaction. A later look than ours is kept."""
    with context.db.write():
        before = facts_of(context, pulls.get(context.db, pull.id))
        if before.pull.looked_at != pull.looked_at or before.pull.head_commit != pull.head_commit:
            return before
        _store(context, before, look)
        after = facts_of(context, pulls.get(context.db, pull.id))
        _tell(context, before, after)
        _end(context, after.pull, look)
        return facts_of(context, pulls.get(context.db, pull.id))


def _store(context: Context, before: Facts, look: Look) -> None:
    db, remote, pull = context.db, look.pull, before.pull
    moved = remote.head_commit != pull.head_commit
    now: dict[str, Any] = {
        "url": remote.url,
        "title": texts.storable(remote.title),
        "draft": remote.draft,
        "head_commit": remote.head_commit,
        "base_branch": remote.base_branch,
        # While GitHub works it out nothing is known of the new commit, but all of the old one.
        "mergeable": remote.mergeable if remote.mergeable is not None or moved else pull.mergeable,
    }
    changed = {name: value for name, value in now.items() if getattr(pull, name) != value}
    if changed:
        pull = pulls.change(db, pull, **changed)
    pulls.looked(
        db,
        pull,
        forge_updated_at=remote.updated_at,
        etags=json.dumps(dict(look.etags)),
        looked_at=db.now(),
        failures=0,
        failure="",
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
            pulls.change(context.db, new, auto_merge="", auto_commit=None)
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


def _end(context: Context, pull: Pull, look: Look) -> None:
    if look.pull.state == PullState.MERGED:
        pull_record.merged(context, pull, commit=look.pull.merge_commit, actor=pull.forge)
    elif look.pull.state == PullState.CLOSED:
        pull_record.closed(context, pull, actor=pull.forge)


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
