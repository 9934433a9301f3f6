"""Pull requests as rows, labels and JSON, for every front end. Pure: records in, text out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from swarm_core.models import Queued, as_json, parse_iso
from swarm_core.ops import describe
from swarm_core.ops.pull_status import Facts, ReasonCode, readiness, sentence
from swarm_core.ops.queue import Outlook
from swarm_core.store.quota import Share

_BODY = 200
_SHOWN = 2000


def pull_json(found: Facts, now: str) -> dict[str, Any]:
    """One pull request with its derived status, for `--json`."""
    body, result = as_json(found.pull), readiness(found)
    del body["etags"], body["replaced"], body["span"]
    return body | {
        "status": str(result.state),
        "ready": result.ready,
        "reasons": [reason.as_json() for reason in result.reasons],
        "hindrances": result.sentences,
        "approved_by": list(result.approved_by),
        "changes_requested_by": list(result.refused_by),
        "age_s": age(found, now),
        "checks": _checks_json(found),
        "verdicts": [describe.verdict(one) for one in found.verdicts],
        "reviews": [as_json(review) for review in found.reviews],
        "comments": [as_json(comment) for comment in found.comments],
    }


def _checks_json(found: Facts) -> list[dict[str, Any]]:
    listed = [as_json(check) for check in found.all_checks]
    if found.own_check is not None:
        listed[-1]["output"] = found.own_check.output
    return listed


def next_step(found: Facts) -> str:
    """What a person may want to do with it now."""
    pull, blockers = found.pull, readiness(found).sentences
    if pull.state == "merged":
        return f"`swarm stop {pull.instance_id}` and `swarm clean {pull.instance_id}` take its worktree away"
    if pull.state == "closed":
        return f"the branch {pull.head_branch} stays; `swarm pr open {pull.instance_id}` opens another"
    if pull.auto_merge:
        why = "; ".join(blockers) or "nothing that is known"
        return f"it is merged ({pull.auto_merge}) when nothing hinders it; now: {why}"
    if blockers:
        return f"not to be merged yet: {'; '.join(blockers)}; `swarm pr show {pull.instance_id}`"
    return f"`swarm pr merge {pull.instance_id}` merges it, `swarm pr queue {pull.instance_id}` after others"


def row(found: Facts, now: str) -> tuple[str, ...]:
    pull = found.pull
    state = f"{readiness(found).state}{f', {pull.auto_merge} when ready' if pull.auto_merge else ''}"
    return (
        pull.instance_id,
        f"#{pull.number}",
        state,
        checks_label(found),
        reviews_label(found),
        seen_label(found, now),
        pull.title,
    )


def checks_label(found: Facts) -> str:
    counted = Counter(check.state for check in found.all_checks)
    return ", ".join(f"{counted[s]} {s}" for s in ("failed", "pending", "passed") if counted[s])


def reviews_label(found: Facts) -> str:
    result = readiness(found)
    parts = [f"approved by {', '.join(result.approved_by)}"] if result.approved_by else []
    if result.refused_by:
        parts.append(f"refused by {', '.join(result.refused_by)}")
    comments = sum(not comment.outdated for comment in found.comments)
    return "; ".join([*parts, *([f"{comments} comments"] if comments else [])])


def age(found: Facts, now: str) -> float | None:
    """Seconds since the forge was last heard of it."""
    looked = found.pull.looked_at
    return None if looked is None else (parse_iso(now) - parse_iso(looked)).total_seconds()


def seen_label(found: Facts, now: str) -> str:
    """How old the facts are, and that nobody answers if so; nothing once it is over."""
    if found.pull.state != "open":
        return ""
    seconds = age(found, now)
    told = "not looked at yet" if seconds is None else f"{span(seconds)} ago"
    return f"{told}, no answer since" if found.pull.failures and seconds is not None else told


def fields(found: Facts, now: str) -> list[tuple[str, str]]:
    pull, result = found.pull, readiness(found)
    return [
        ("pull request", f"#{pull.number} {pull.title}"),
        ("url", pull.url),
        ("instance", pull.instance_id),
        ("status", str(result.state)),
        ("ready", ready_label(found)),
        ("merged by itself", f"{pull.auto_merge} at {(pull.auto_commit or '')[:12]}" if pull.auto_merge else ""),
        ("branch", f"{pull.head_branch} at {pull.head_commit[:12]} into {pull.base_branch}"),
        ("merged as", (pull.merge_commit or "")[:12]),
        ("seen", seen_label(found, now)),
        ("problem", pull.failure),
    ]


def ready_label(found: Facts) -> str:
    """Whether it can be merged, with the reasons; nothing once it is over."""
    result = readiness(found)
    if found.pull.state != "open":
        return ""
    if not result.ready:
        return f"no: {'; '.join(result.sentences)}"
    return f"yes{''.join(f'; {sentence(reason)}' for reason in result.reasons)}".replace("yes; ", "yes: ", 1)


def sections(found: Facts) -> Iterator[tuple[str, list[str]]]:
    body = found.pull.body.strip()
    if body:
        lines = body[:_SHOWN].splitlines()
        yield "description", [*lines, "…"] if len(body) > _SHOWN else lines
    if found.all_checks:
        yield "checks", [f"{check.state:8} {check.name}  {check.url}".rstrip() for check in found.all_checks]
    if found.own_check is not None and found.own_check.output:
        yield f"output of {found.own_check.command}", found.own_check.output.splitlines()
    if found.verdicts:
        yield "verdicts", [f"{v.verdict:10} {v.commit[:12]} by {v.by} at {v.at}" for v in found.verdicts]
    if found.reviews:
        yield "reviews", [_said(r.author, r.state, r.body, trusted=r.trusted) for r in found.reviews]
    if found.comments:
        lines = []
        for one in found.comments:
            at = f"on {one.path}:{one.line}" if one.path else "commented"
            how = f"{at} (outdated)" if one.outdated else at
            lines.append(_said(one.author, how, one.body, trusted=one.trusted))
        yield "comments", lines


def outlook_json(one: Outlook) -> dict[str, Any]:
    return queued_json(one.entry) | {
        "number": one.number,
        "title": one.title,
        "reasons": [reason.as_json() for reason in one.readiness.reasons],
        "hindrances": one.readiness.sentences,
        "conflicts": one.conflicts,
    }


def queued_json(entry: Queued) -> dict[str, Any]:
    return as_json(entry)


def queue_rows(waiting: Sequence[Outlook], over: Sequence[Queued]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for one in waiting:
        conflicts = [f"conflicts with {who} in {', '.join(files[:3])}" for who, files in one.conflicts.items()]
        others = [sentence(r) for r in one.readiness.blockers if r.code != ReasonCode.CONFLICT]
        remark = "; ".join(dict.fromkeys(filter(None, [one.entry.detail, *others, *conflicts])))
        rows.append((one.entry.instance_id, f"#{one.number}", one.entry.state, one.entry.method, remark))
    return [*rows, *((e.instance_id, "", e.state, e.method, e.detail) for e in over)]


def quota_label(share: Share, now: str) -> str:
    """As in "GitHub 342/5000, resets in 23 min"."""
    kind = "" if share.resource == "core" else f" {share.resource}"
    host = "" if share.host == "github.com" else f" ({share.host})"
    left = f"{share.remaining}/{share.quota}" if share.quota is not None else "not known yet"
    resets = f", resets in {span(_until(share.reset_at, now))}" if share.reset_at and share.reset_at > now else ""
    waits = f", waits {span(_until(share.blocked_until, now))}" if (share.blocked_until or "") > now else ""
    return f"GitHub{kind}{host} {left}{resets}{waits}"


def span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.0f} h"


def _until(moment: str | None, now: str) -> float:
    return (parse_iso(moment or now) - parse_iso(now)).total_seconds()


def _said(author: str, how: str, body: str, *, trusted: bool) -> str:
    text = " ".join(body.split())
    short = text if len(text) <= _BODY else f"{text[:_BODY]}…"
    who = author if trusted else f"{author} (no say here, not told to the agent)"
    return f"{who} {how}: {json.dumps(short, ensure_ascii=False)}"
