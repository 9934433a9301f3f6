"""Records as people see them: rows, labels and reasons, the same in every front end.

Pure functions: the time is passed in and nothing is looked up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from swarm_core.models import Activity, Event, Instance, Message, Overlap, Status, as_json, parse_iso
from swarm_core.ops import attention, inbox, places
from swarm_core.store import events

if TYPE_CHECKING:
    from swarm_core.ops.budget import Account

WAITING, ERROR, RUNNING, STARTING, IDLE, DONE = STATES = (
    "waiting",
    "error",
    "running",
    "starting",
    "idle",
    "done",
)
_WAITS = frozenset({attention.BLOCKED, "needs_person", "strayed", "budget_held", inbox.PULL_READY})
_WRONG = frozenset({attention.FAILED, "exited", "session_lost", "problem", "error", inbox.PULL_FAILED})
_OVER = frozenset({Status.TERMINATED, Status.PR_MERGED, Status.PR_CLOSED})
_ACTIVE = {Activity.STARTING: STARTING, Activity.BLOCKED: WAITING, Activity.IDLE: IDLE, Activity.EXITED: IDLE}
_EVENT = 240
# What a terminal would act on, and what would make text read in another order than it is written.
_SEQUENCE = re.compile("\x1b(?:\\[[0-9;:?]*[ -/]*[@-~]|[\\]PX^_].*?(?:\x07|\x1b\\\\|\\Z)|[ -/]*[0-~])", re.DOTALL)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LONG = ("prompt", "last_screen")
_BOX = 12
_AGES = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a list of instances."""

    id: str
    name: str
    kind: str
    status: str
    activity: str
    branch: str
    changes: str
    needs_you: str


def row(instance: Instance, now: datetime, needs: Sequence[inbox.Need] | None = None) -> Row:
    return Row(
        id=instance.id,
        name=instance.name or "",
        kind=instance.kind,
        status=instance.status,
        activity=activity_label(instance, now),
        branch=instance.branch,
        changes=changes_label(instance),
        needs_you=needs_you(instance, needs),
    )


def needs_you(instance: Instance, needs: Sequence[inbox.Need] | None = None) -> str:
    """Why a person should look at the instance; empty when nothing waits for one.

    `needs` are those of the inbox, which knows of pull requests too; without them the instance alone is asked.
    """
    return "; ".join(one.text for one in (attention.reasons(instance) if needs is None else needs))


def state(instance: Instance, needs: Iterable[inbox.Need]) -> str:
    """One of STATES: whether it waits for a person who can act, has come to grief, or how its agent is."""
    kinds = {need.key.partition(":")[0] for need in needs}
    if kinds & _WAITS:
        return WAITING
    if kinds & _WRONG or instance.status == Status.FAILED:
        return ERROR
    if instance.status in _OVER:
        return DONE
    if instance.status == Status.STARTING:
        return STARTING
    return _ACTIVE.get(Activity(instance.activity), RUNNING)


def plain(text: str, longest: int, *, lines: bool = True) -> str:
    """Text that is only text, cut when it is longer; without `lines` it is one line.

    Terminal sequences are gone, control characters but newline and tab, and marks that turn its direction.
    """
    if not text:
        return text
    if not text.isprintable() or not text.isascii():
        # Much more than can be shown is not worth cleaning.
        text = _CONTROL.sub("", _SEQUENCE.sub("", text[: 4 * longest + 1000].replace("\r\n", "\n")))
    if not lines:
        text = " ".join(text.split())
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def event_row(event: Event) -> dict[str, Any]:
    """An event as lists show it."""
    return {
        "id": event.id,
        "at": event.at,
        "instance": event.instance_id,
        "actor": plain(event.actor, 100, lines=False),
        "name": event.name,
        "tool": plain(event.tool_name, 100, lines=False) if event.tool_name else None,
        "level": events.level(event),
        "text": plain(_event_text(event), _EVENT, lines=False),
        "from": event.status_from,
        "to": event.status_to,
        "ms": None if event.duration_ms is None else round(event.duration_ms, 1),
        "code": event.error_code,
    }


def _event_text(event: Event) -> str:
    """What is to be said beside name, statuses and tool, what failed first."""
    parts = [event.error_message or ""]
    parts += [f"{k}={_short(v)}" for k, v in event.metadata.items() if v not in (None, "", {}, [])]
    return " ".join(part for part in parts if part)


def age(iso: str, now: datetime) -> str:
    """How long ago in one unit; a time ahead of the clock counts as now."""
    seconds = max(0, int((now - parse_iso(iso)).total_seconds()))
    for size, unit in _AGES:
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return "0s"


def activity_label(instance: Instance, now: datetime) -> str:
    """What the agent was last seen doing, where that was seen, and since when."""
    return f"{instance.activity} ({instance.activity_source}, {age(instance.activity_at, now)})"


def changes_label(instance: Instance) -> str:
    """Lines added and deleted; empty while nobody has counted."""
    if instance.changes_at is None:
        return ""
    return f"+{instance.lines_added} -{instance.lines_deleted}"


def size_label(size: int) -> str:
    value, unit = float(size), "B"
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def event_label(event: Event) -> str:
    """What happened, in one line, without time and instance."""
    parts = [event.name]
    if event.status_to:
        parts.append(f"{event.status_from} -> {event.status_to}" if event.status_from else event.status_to)
    parts += [f"{k}={_short(v)}" for k, v in event.metadata.items() if v not in (None, "", {}, [])]
    if event.error_code:
        parts.append(f"[{event.error_code}] {event.error_message or ''}".rstrip())
    return " ".join(parts)


def instance_json(
    instance: Instance, *, full: bool = False, needs: Sequence[inbox.Need] | None = None
) -> dict[str, Any]:
    """The stable JSON shape: every field and `needs_you`; the long texts only when `full`."""
    body = as_json(instance)
    if not full:
        for name in _LONG:
            del body[name]
    return body | {"needs_you": needs_you(instance, needs)}


def overlaps_by_instance(found: Sequence[Overlap]) -> dict[str, list[Overlap]]:
    by_id: dict[str, list[Overlap]] = {}
    for overlap in found:
        for instance_id in (overlap.one, overlap.other):
            by_id.setdefault(instance_id, []).append(overlap)
    return by_id


def overlap_note(instance: Instance, found: Sequence[Overlap]) -> str:
    """With whom an instance meets, in a few words; not where both only change the same file."""
    parts = []
    for level, words in ((places.CONFLICT, "would conflict with"), (places.OVERLAP, "overlaps")):
        others = [_other(overlap, instance.id) for overlap in found if places.level(overlap) == level]
        more = f" and {len(others) - 2} more" if len(others) > 2 else ""
        parts += [f"{words} {', '.join(others[:2])}{more}"] if others else []
    return "; ".join(parts)


def overlap_lines(instance: Instance, found: Sequence[Overlap]) -> list[str]:
    """With whom an instance meets and where, the gravest first."""
    lines = []
    for overlap in sorted(found, key=lambda o: -places.LEVELS.index(places.level(o))):
        near = {path: ranges for path, ranges in overlap.files.items() if ranges}
        far = {path: ranges for path, ranges in overlap.files.items() if not ranges}
        parts = [f"same places in {places.label(near)}"] if near else []
        parts += [f"other places of {places.label(far)}"] if far else []
        named = places.names(overlap.conflicts)
        parts += [f"would conflict today in {named} (as committed)"] if overlap.conflicts else []
        lines.append(f"{_other(overlap, instance.id)}: {'; '.join(parts)}")
    return lines


def overlaps_json(instance: Instance, found: Sequence[Overlap]) -> list[dict[str, Any]]:
    """The stable JSON shape of an instance's overlaps; lines [0, 2147483647] are a whole file."""
    return [
        {
            "instance_id": _other(overlap, instance.id),
            "level": places.level(overlap) or "file",
            "files": overlap.files,
            "conflicts": overlap.conflicts,
            "conflicts_of": "commits",
            "seen_at": overlap.seen_at,
            "told_at": overlap.told_at,
        }
        for overlap in found
    ]


def _other(overlap: Overlap, instance_id: str) -> str:
    return overlap.other if overlap.one == instance_id else overlap.one


def new_lines(before: list[str], now: list[str]) -> list[str]:
    """The lines of a screen that were not in the one before, which may have scrolled.

    Its lowest lines may have been drawn again, as an input box is; then they and what is above them are new.
    """
    best = 0
    for dropped in range(min(len(before), _BOX)):
        kept = before[: len(before) - dropped]
        best = max(best, _overlap(kept, now))
    return now[best:]


def _overlap(before: list[str], now: list[str]) -> int:
    """How many of the first lines of `now` are the last lines of `before`."""
    for start, line in enumerate(before):
        if now[:1] == [line] and now[: len(before) - start] == before[start:]:
            return len(before) - start
    return 0


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def message_label(message: Message, now: datetime, body: str) -> str:
    """A message with its receipt: how far it is known to have come, and how."""
    at = message.acknowledged_at or message.seen_at or message.injected_at or message.created_at
    more = [f"{age(at, now)} ago"]
    more += [message.how] if message.how else []
    more += [message.error] if message.error else []
    return f"{message.id} {message.state} ({', '.join(more)}) from {message.sender}: {body}"


def dialog_lines(instance: Instance) -> list[str]:
    """What a blocked agent asks, with the numbers that answer it."""
    asked = json.loads(instance.blocked_on) if instance.blocked_on else {}
    if not asked.get("digest"):
        return []
    choices = [f"  {number}. {text}" for number, text in enumerate(asked["choices"], start=1)]
    how = f"swarm answer {instance.id} {'--choice N' if choices else '--text TEXT'} --digest {asked['digest']}"
    about = str(asked.get("about") or "")
    hidden = "".join(about.split()) not in "".join(asked["text"].split())
    wants = ["it wants, as its hook says:", *about.splitlines(), ""] if hidden else []
    return [*wants, *asked["text"].splitlines(), *choices, how]


def cost_label(account: Account) -> str:
    """What an instance has used, and what of that nobody knows the price of."""
    one = account.instance
    if not one.tokens_used:
        return ""
    unknown = f"; unknown price: {', '.join(account.unknown_price)}" if account.unknown_price else ""
    return f"${one.cost_usd:.2f} (estimate), {one.tokens_used:,} tokens{unknown}"


def budget_label(account: Account) -> str:
    """The budget in force and how much of it is used; empty without one."""
    if account.limit_usd is None:
        return ""
    used = account.instance.cost_usd / account.limit_usd
    whose = "" if account.own else ", by default"
    state = f": {account.instance.budget_state}" if account.instance.budget_state else ""
    return f"${account.limit_usd:.2f}{whose}, {used:.0%} used{state}"


def account_json(account: Account) -> dict[str, Any]:
    """The stable JSON shape of what an instance has used; a model without a known price has the cost null."""
    one, used = account.instance, as_json(account.used)
    del used["model"], used["cost_usd"]
    models = [
        as_json(m) | ({"cost_usd": None} if m.model in account.unknown_price else {}) for m in account.models
    ]
    return {
        "id": one.id,
        "name": one.name,
        "cost_usd": one.cost_usd,
        "estimate": True,
        "tokens_used": one.tokens_used,
        "budget_usd": account.limit_usd,
        "budget_is_default": account.limit_usd is not None and not account.own,
        "budget_state": one.budget_state,
        "used": used,
        "models": models,
        "unknown_price": account.unknown_price,
    }


def evidence_lines(instance: Instance, evidence: Sequence[Mapping[str, Any]], now: datetime) -> list[str]:
    """Which source decided, and what all of them say now."""
    recorded = (
        f"recorded: {instance.activity} from {instance.activity_source}, {age(instance.activity_at, now)} ago"
    )
    lines = [f"{recorded} {f'({instance.activity_detail})' if instance.activity_detail else ''}".rstrip()]
    lines.append(f"rule: {_RULES[instance.activity_source]}")
    for one in evidence:
        lasts = f", since {age(one['at'], now)}" if one["at"] else ""
        detail = f" ({one['detail']})" if one["detail"] else ""
        lines.append(f"{one['source']} now: {one['activity']}{detail}{lasts}")
    return lines


_RULES = {
    "hook": "what the agent's own program reports counts before what others see, unless a file is newer",
    "file": "the program keeps its status in a file, which counts before its screen",
    "process": "nothing but the process itself can be asked",
    "pane": "neither hook nor file says anything, so the screen is read",
}
