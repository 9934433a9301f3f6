"""Records as the dashboard's JSON: rows of instances, events and the inbox, and everything a page shows at first.

Text that is not ours is plain and bounded here, whatever an agent has written.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from swarm_core import __version__
from swarm_core.models import Activity, Event, Instance, Kind, Overlap, PullState, iso, parse_iso
from swarm_core.ops import inbox, pull_status
from swarm_core.ops.inbox import Act, Board, Item, Need
from swarm_core.ops.pull_status import Facts, readiness
from swarm_core.process import Card
from swarm_core.store import events, overlaps
from swarm_core.swarm import Swarm
from swarm_ui import views
from swarm_ui.views import plain
from swarm_ui.web import vitals

_T = TypeVar("_T")

RECENT = 60
_TITLE = 120
_SHORT = 300
_MORE = 6000
_COMMAND = 500
_CLEAN_MAX = 20_000


def snapshot(swarm: Swarm, now: datetime) -> dict[str, Any]:
    """What a page shows at first, without what is the visitor's own and without health, which takes its time."""
    db, settings = swarm.context.db, swarm.context.settings
    found = inbox.board(db, policy=pull_status.policy(settings))
    names = repo_names({one.repo_path for one in found.instances})
    newest = events.newest(db, limit=RECENT)
    return {
        "last": newest[-1].id if newest else 0,
        "now": iso(now),
        "instances": instances(found, overlaps.listed(db), names, now, budget=settings.number("budget_usd")),
        "inbox": [item(one, names) for one in found.items()],
        "events": [event(one) for one in reversed(newest)],
        "pulls": {"open": len(found.pulls), "queued": found.queued},
        "repos": [{"path": path, "name": name} for path, name in sorted(names.items())],
        "version": __version__,
    }


def health(swarm: Swarm, card: Card, *, viewers: int) -> dict[str, Any]:
    """How swarm itself is; may take a second or two."""
    return vitals.look(swarm, card) | {"viewers": viewers}


def event(one: Event) -> dict[str, Any]:
    return views.event_row(one)


def instances(
    found: Board, met: Sequence[Overlap], names: Mapping[str, str], now: datetime, *, budget: float
) -> list[dict[str, Any]]:
    """All rows. `budget` is the one in force for whoever has none of its own."""
    by_instance = views.overlaps_by_instance(met)
    return [
        instance(
            one,
            found.needs.get(one.id, ()),
            found.pulls.get(one.id),
            now=now,
            repo=names.get(one.repo_path, one.repo_path),
            overlap=views.overlap_note(one, by_instance.get(one.id, ())),
            weight=1 + (one.id in found.reviewed_by),
            budget=budget,
        )
        for one in found.instances
    ]


def by_cost(rows: Iterable[dict[str, Any]], now: datetime) -> list[dict[str, Any]]:
    """Those whose waiting costs most first, as the page sorts them."""

    def cost(row: Mapping[str, Any]) -> float:
        since = row["waiting_since"]
        return row["weight"] * max(0.0, (now - parse_iso(since)).total_seconds()) if since else 0.0

    newest = sorted(rows, key=lambda row: str(row["updated_at"]), reverse=True)
    return sorted(newest, key=lambda row: (views.STATES.index(row["state"]), -cost(row)))


def instance(
    one: Instance,
    needs: Sequence[Need],
    pull: Facts | None,
    *,
    now: datetime,
    repo: str,
    overlap: str = "",
    weight: int = 1,
    budget: float = 0.0,
) -> dict[str, Any]:
    own = one.budget_usd
    return {
        "id": one.id,
        "name": plain(one.name, _TITLE, lines=False) if one.name else None,
        "title": title(one),
        "kind": one.kind,
        "status": one.status,
        "state": views.state(one, needs),
        "activity": one.activity,
        "activity_source": one.activity_source,
        "detail": plain(one.activity_detail, _SHORT, lines=False),
        "since": one.activity_at,
        "agent": one.agent,
        "repo": repo,
        "repo_path": one.repo_path,
        "branch": one.branch,
        "base": one.base_branch,
        "parent": one.parent_id,
        "issue": one.issue_number,
        "needs": [need(n) for n in needs],
        "waiting_since": min((n.since for n in needs), default=None),
        "weight": weight,
        "reason": plain(one.reason, _SHORT, lines=False),
        "pr": _pull(one, pull, now),
        "files": one.files_changed,
        "added": one.lines_added,
        "deleted": one.lines_deleted,
        "cost": round(one.cost_usd, 4),
        "tokens": one.tokens_used,
        "budget": (budget if own is None else own) or None,
        "budget_state": one.budget_state,
        "overlap": plain(overlap, _SHORT, lines=False),
        "group": one.attempt_group,
        "created_at": one.created_at,
        "updated_at": one.updated_at,
        "ended": one.terminated_at or (one.activity_at if one.activity == Activity.EXITED else None),
        "exit": one.exit_code if one.exit_code is not None or one.exit_signal is None else -one.exit_signal,
    }


def title(one: Instance) -> str:
    """What people call it: its name, its issue, what it reviews, or the first line of its task."""
    first = next((line for line in one.prompt[:4000].splitlines() if line.strip(" #\t")), "")
    said = one.name or one.issue_title or (_reviews(one) if one.kind == Kind.REVIEW else first.strip(" #\t"))
    return plain(said or one.id, _TITLE, lines=False)


def _reviews(one: Instance) -> str:
    return f"Review of {one.parent_id}" if one.parent_id else "Review"


def _pull(one: Instance, found: Facts | None, now: datetime) -> dict[str, Any] | None:
    if found is None:
        if one.pr_number is None:
            return None
        over = {"pr_merged": PullState.MERGED, "pr_closed": PullState.CLOSED}.get(one.status)
        told = str(over) if over else "unknown"
        return {"number": one.pr_number, "url": one.pr_url, "status": told, "state": told} | _FRESH
    pull, result = found.pull, readiness(found)
    looked = (now - parse_iso(pull.looked_at)).total_seconds() if pull.looked_at else None
    return {
        "number": pull.number,
        "url": pull.url,
        "status": str(result.state),
        "state": pull.state,
        "ready": result.ready,
        "reasons": [plain(text, _SHORT, lines=False) for text in result.sentences],
        "stale": pull.failures > 0,
        "age_s": None if looked is None else round(max(0.0, looked), 1),
    }


_FRESH = {"stale": False, "age_s": None}


def item(one: Item, names: Mapping[str, str]) -> dict[str, Any]:
    """One of what waits for a person."""
    where = one.instance.repo_path
    about = {"instance": one.instance.id, "title": title(one.instance), "repo": names.get(where, where)}
    return {"id": one.id, **about, **need(one.need), "dismissed": False}


def need(one: Need) -> dict[str, Any]:
    return {
        "key": one.key,
        "text": plain(one.text, _SHORT, lines=False),
        "more": plain(one.more, _MORE),
        "command": plain(one.command, _COMMAND, lines=False),
        "since": one.since,
        "acts": [act(a) for a in one.acts],
    }


def act(one: Act) -> dict[str, Any]:
    return {
        "act": one.act,
        "label": plain(one.label, 80, lines=False),
        "body": dict(one.body),
        "primary": one.primary,
        "danger": one.danger,
    }


def repo_names(paths: Iterable[str]) -> dict[str, str]:
    """Each path's last folder, with the one above where two would be called the same."""
    found = {path: path.rstrip("/").rpartition("/")[2] or path for path in paths}
    counted = collections.Counter(found.values())
    return {p: n if counted[n] == 1 else "/".join(p.rstrip("/").split("/")[-2:]) for p, n in found.items()}


def clean(value: _T) -> _T:
    """Any JSON with all its text plain and bounded."""
    cleaned: _T = _clean(value)
    return cleaned


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value, _CLEAN_MAX)
    if isinstance(value, Mapping):
        return {key: _clean(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(one) for one in value]
    return value
