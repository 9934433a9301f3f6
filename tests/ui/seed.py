"""Data as a busy day leaves it, written through the store: every state, and every way to need a person."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from swarm_core.forge import Check, Comment, Issue, Quota, Review
from swarm_core.models import Feedback, Instance, Overlap, Pull, Verdict, iso
from swarm_core.ops import attention
from swarm_core.ops.reconcile import SESSION_LOST
from swarm_core.store import (
    events,
    feedback,
    hosts,
    instances,
    issues,
    messages,
    notices,
    overlaps,
    pull_facts,
    pulls,
    queue,
    quota,
    relationships,
    usage,
)
from swarm_core.store.database import Database, open_database

SHOP, API, DOCS = "/srv/shop", "/srv/payments-api", "/srv/handbook"
XSS = "<img src=x onerror=alert(1)><script>alert(2)</script><svg/onload=alert(3)>\"'`${7*7}{{7*7}}</textarea>"
ANSI = "\x1b[31mred\x1b[0m\x1b]8;;javascript:alert(4)\x07click\x1b]8;;\x07\x1b]52;c;aGk=\x07\x1b]0;title\x07"
RTL = "\u202egnp.exe\u202c \u2066isolated\u2069 \u200b\ufeff\x00\x07\x7f\u0085 😀 漢字 é"
HOSTILE = f"{XSS} {ANSI} {RTL}"
LONG = f"{XSS} " + "longline" * 131_072
SCREEN = "\n".join(
    [
        "\x1b[1m● Update(src/checkout/totals.py)\x1b[0m",
        "  \x1b[32m+    total = sum(line.price * line.amount for line in basket)\x1b[0m",
        "  \x1b[31m-    total = basket.total\x1b[0m",
        "",
        "● Bash(pytest -q tests/checkout)",
        "  \x1b[31mFAILED\x1b[0m tests/checkout/test_totals.py::test_rounding - assert 10.01 == 10.00",
        "  1 failed, 41 passed in 2.31s",
        "",
        "❯ ",
    ]
)


class Clock:
    """A time that the seed moves, so that ages are those of a day and not of a moment."""

    def __init__(self) -> None:
        self.started = datetime.now(UTC)
        self.ago = timedelta()

    def __call__(self) -> datetime:
        return self.started - self.ago if self.ago else datetime.now(UTC)


@dataclass
class Town:
    """Who is who among what was written."""

    dialog: str = "work-142-a1"
    question: str = "work-150-a1"
    failed: str = "work-131-a1"
    lost: str = "work-127-a1"
    rounds: str = "work-118-a1"
    held: str = "work-160-a1"
    ready: str = "work-109-a1"
    red: str = "work-112-a1"
    stale: str = "work-104-a1"
    running: str = "work-171-a1"
    idle: str = "work-172-a1"
    starting: str = "work-173-a1"
    merged: str = "work-98-a1"
    waiting_review: str = "work-165-a1"
    review: str = "review-165-a1"
    fork: str = "fork-171-a1"
    adhoc: str = "adhoc-a1"
    ids: list[str] = field(default_factory=list)

    @property
    def needing(self) -> list[str]:
        return [self.dialog, self.question, self.failed, self.lost, self.rounds, self.held, self.ready, self.red]


@dataclass
class Seed:
    """Writes into one database; `at` says how long ago. `shop` and `places` may be real ones."""

    db: Database
    clock: Clock
    shop: str = SHOP
    places: dict[str, dict[str, str]] = field(default_factory=dict)
    town: Town = field(default_factory=Town)
    number: int = 0

    @contextmanager
    def at(self, minutes: float) -> Iterator[None]:
        before, self.clock.ago = self.clock.ago, timedelta(minutes=minutes)
        try:
            with self.db.write():
                hosts.seen(self.db, "local")
                yield
        finally:
            self.clock.ago = before

    def instance(self, instance_id: str, *, minutes: float = 10, **fields: Any) -> Instance:
        """A record; `minutes` is how long it has been as it is."""
        self.number += 1
        now, issue = self.db.now(), _issue(instance_id)
        known: dict[str, Any] = {
            "kind": instance_id.split("-")[0],
            "status": "running",
            "wanted": "running",
            "host": "local",
            "epoch": 1,
            "repo_path": self.shop,
            "worktree_path": f"/srv/worktrees/{instance_id}",
            "branch": f"swarm/{instance_id}",
            "base_branch": "main",
            "base_commit": _commit("base"),
            "head_commit": _commit(instance_id),
            "tmux_session": instance_id,
            "agent": "claude",
            "conversation_id": f"conversation-{instance_id}",
            "agent_number": self.number,
            "activity": "busy",
            "activity_source": "hook",
            "activity_at": now,
            "created_at": now,
            "updated_at": now,
            "started_at": now,
            "issue_number": issue,
        }
        record = Instance(id=instance_id, **(known | fields | self.places.get(instance_id, {})))
        with self.at(minutes):
            when = self.db.now()
            stamped = dict.fromkeys(("activity_at", "created_at", "updated_at", "started_at"), when)
            record = dataclasses.replace(record, **{k: v for k, v in stamped.items() if k not in fields})
            instances.insert(self.db, record, actor="operator")
            for reason in attention.reasons(record):
                notices.raise_(self.db, record.id, reason.key, reason.text)
        self.town.ids.append(instance_id)
        return record

    def event(self, name: str, instance_id: str | None = None, *, actor: str = "supervisor", **more: Any) -> int:
        with self.db.write():
            return events.add(self.db, name, instance_id=instance_id, actor=actor, **more)

    def pull(self, instance: str, number: int, *, minutes: float = 30, **fields: Any) -> Pull:
        with self.at(minutes):
            found = instances.get(self.db, instance)
            now = self.db.now()
            known: dict[str, Any] = {
                "id": 0,
                "forge": "github",
                "repo_path": found.repo_path,
                "number": number,
                "url": f"https://github.com/acme/shop/pull/{number}",
                "instance_id": instance,
                "opened_by": instance,
                "head_branch": found.branch,
                "base_branch": "main",
                "head_commit": found.head_commit,
                "title": found.issue_title or found.name or "A change",
                "body": "What it changes and why.",
                "state": "open",
                "created_at": now,
                "updated_at": now,
                "repository": "github.com/acme/shop",
                "pushed_commit": found.head_commit,
                "head_at": now,
                "mergeable": True,
                "looked_at": iso(datetime.now(UTC)),
            }
            made = pulls.insert(self.db, Pull(**(known | fields)))
            instances.set_fields(self.db, instance, pr_number=number, pr_url=made.url)
            events.add(self.db, "pull:opened", instance_id=instance, actor=instance, metadata={"number": number})
        return made

    def checks(self, pull: Pull, **states: str) -> None:
        with self.db.write():
            made = [
                Check(
                    f"c{pull.id}-{name}", name, state, f"https://github.com/acme/shop/runs/{n}", f"{name} {state}"
                )
                for n, (name, state) in enumerate(states.items())
            ]
            pull_facts.replace_checks(self.db, pull.id, made)

    def feedback(self, body: str, *, to: str, sender: str, minutes: float = 20, **fields: Any) -> Feedback:
        with self.at(minutes):
            message = messages.accept(self.db, to, sender=sender, body=body)
            known: dict[str, Any] = {
                "id": f"fb-{message.id}",
                "sender": sender,
                "to_instance": to,
                "relationship_id": None,
                "feedback_type": "needs_work",
                "priority": "high",
                "body": body,
                "file_path": f"feedback/{message.id}.md",
                "message_id": message.id,
                "reviewed_commit": _commit("base"),
                "head_commit": _commit(to),
                "created_at": self.db.now(),
            }
            return feedback.insert(self.db, Feedback(**(known | fields)))

    def message(self, body: str, *, to: str, state: str = "accepted", minutes: float = 15) -> str:
        """A message in any state of the ledger, brought there by the ledger's own steps."""
        with self.at(minutes):
            made = messages.accept(self.db, to, sender="operator", body=body)
            if state == "held":
                messages.hold(self.db, to, why="it shows a dialog")
            if state in ("injected", "seen", "acknowledged"):
                messages.inject(self.db, [made.id], how="paste")
            if state in ("seen", "acknowledged"):
                messages.see(self.db, made.id, evidence="its own log")
            if state == "acknowledged":
                messages.acknowledge(self.db, to)
            if state == "failed":
                messages.fail(self.db, made.id, why="the program ended")
            if state == "expired":
                messages.withdraw(self.db, made.id, why="no longer true")
        return made.id

    def many_events(self, count: int, *, ids: list[str] | None = None) -> int:
        """So many events in one statement, spread over instances and names; the id of the last."""
        whom = json.dumps(ids or self.town.ids or [None])
        names = json.dumps(
            [
                "tool:called",
                "instance:activity",
                "message:seen",
                "instance:status",
                "tool:denied",
                "review:requested",
            ]
        )
        with self.db.write():
            self.db.execute(
                """
                INSERT INTO mcp_events (at, instance_id, actor, tool_name, name, success, error_code,
                    error_message,
                    duration_ms, status_from, status_to, metadata)
                WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :count)
                SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now', printf('-%d seconds', (:count - i) / 4)),
                    json_extract(:ids, '$[' || (i % json_array_length(:ids)) || ']'),
                    'supervisor',
                    CASE WHEN i % 6 IN (0, 4) THEN 'query_instances' END,
                    json_extract(:names, '$[' || (i % 6) || ']'),
                    i % 97 <> 0,
                    CASE WHEN i % 97 = 0 THEN 'TIMED_OUT' END,
                    CASE WHEN i % 97 = 0 THEN 'it took longer than it may' END,
                    CASE WHEN i % 6 = 0 THEN i % 900 END,
                    CASE WHEN i % 6 = 3 THEN 'starting' END,
                    CASE WHEN i % 6 = 3 THEN 'running' END,
                    json_object('number', i, 'detail', 'step ' || i)
                FROM n
                """,
                {"count": count, "ids": whom, "names": names},
            )
        return events.newest_id(self.db)


@contextmanager
def seeding(path: Path) -> Iterator[Seed]:
    clock = Clock()
    db = open_database(path, clock=clock)
    try:
        yield Seed(db, clock)
    finally:
        db.close()


def fill(seed: Seed, *, hostile: bool = False) -> Town:
    """The whole town: about 25 instances of three repositories, with everything that belongs to them."""
    _waiting(seed)
    _pulls(seed)
    _at_work(seed)
    _talk(seed)
    _history(seed)
    if hostile:
        _hostile(seed)
    return seed.town


def crowd(seed: Seed, count: int) -> list[str]:
    """Many more instances, in every state that is no call for a person."""
    kinds = (("running", "busy"), ("running", "idle"), ("terminated", "exited"), ("pr_merged", "exited"))
    made = []
    for n in range(count):
        status, activity = kinds[n % 4]
        wanted = "running" if status == "running" else "stopped"
        issue = f"Tidy module {n} of the warehouse"
        made.append(f"work-{1000 + n}-a1")
        seed.instance(
            made[-1],
            minutes=n + 5,
            status=status,
            activity=activity,
            wanted=wanted,
            issue_title=issue,
            lines_added=n,
            files_changed=n % 9,
            repo_path=(seed.shop, API, DOCS)[n % 3],
        )
    return made


def asked(text: str, choices: list[str], *, kind: str = "permission", at: str = "", detail: str = "") -> str:
    """What stands in a blocked instance's row when its screen was read."""
    digest = hashlib.sha256(f"{text}{choices}".encode()).hexdigest()[:16]
    since = f"{at} {detail}"
    told = {"text": text, "choices": choices, "kind": kind, "digest": digest}
    return json.dumps({"since": since, "read_at": iso(datetime.now(UTC)), **told})


def _waiting(seed: Seed) -> None:
    town = seed.town
    question = "Bash command\n  rm -rf build && make release\nDo you want to proceed?"
    seed.instance(
        town.dialog,
        minutes=12,
        activity="blocked",
        activity_detail="permission",
        issue_title="Rate limit the login form",
        blocked_on=asked(question, ["Yes", "Yes, and do not ask again", "No, and tell it what to do instead"]),
        files_changed=4,
        lines_added=120,
        lines_deleted=18,
        cost_usd=1.42,
        tokens_used=310_000,
    )
    seed.instance(
        town.question,
        minutes=33,
        repo_path=API,
        activity="blocked",
        activity_detail="question",
        issue_title="Retry webhooks that time out",
        blocked_on=asked("Which currency is the fee in when the card has none?", [], kind="question"),
        files_changed=2,
        lines_added=44,
    )
    seed.instance(
        town.failed,
        minutes=48,
        status="failed",
        wanted="stopped",
        activity="exited",
        activity_source="process",
        exit_code=1,
        reason="the agent ended with exit code 1",
        issue_title="Move sessions to Redis",
        last_screen=SCREEN,
        files_changed=7,
        lines_added=210,
        lines_deleted=95,
    )
    seed.instance(
        town.lost,
        minutes=52,
        repo_path=API,
        status="failed",
        activity="exited",
        activity_source="process",
        activity_detail=SESSION_LOST,
        reason="its session is gone",
        issue_title="Sign payment receipts",
    )
    seed.instance(
        town.rounds,
        minutes=90,
        status="changes_requested",
        activity="idle",
        needs_person="all review rounds are used (3 of 3) and the last one sent the work back",
        issue_title="Show taxes by country",
        files_changed=11,
        lines_added=402,
        lines_deleted=133,
    )
    seed.instance(
        town.held,
        minutes=20,
        activity="idle",
        budget_usd=5.0,
        budget_state="held",
        cost_usd=5.12,
        tokens_used=2_400_000,
        issue_title="Speed up the product search",
        files_changed=3,
        lines_added=77,
    )


def _pulls(seed: Seed) -> None:
    town = seed.town
    done = {"status": "pr_created", "activity": "idle"}
    seed.instance(
        town.ready, minutes=140, issue_title="Cache price lists", lines_added=64, files_changed=3, **done
    )
    ready = seed.pull(town.ready, 41, minutes=60)
    seed.checks(ready, tests="passed", lint="passed", build="passed")
    seed.instance(
        town.red,
        minutes=150,
        status="pr_created",
        activity="exited",
        activity_source="process",
        wanted="stopped",
        issue_title="Upgrade the template engine",
        lines_added=12,
        lines_deleted=9,
        files_changed=2,
    )
    red = seed.pull(town.red, 42, minutes=55)
    seed.checks(red, tests="failed", lint="passed", build="passed")
    seed.instance(town.stale, minutes=300, issue_title="Delete unused images", lines_deleted=900, **done)
    ago = iso(datetime.now(UTC) - timedelta(hours=3))
    stale = seed.pull(
        town.stale, 39, minutes=240, looked_at=ago, failures=4, failure="GitHub does not answer", mergeable=None
    )
    seed.checks(stale, tests="pending", lint="passed")
    seed.instance(
        town.merged,
        minutes=600,
        status="pr_merged",
        activity="exited",
        activity_source="process",
        wanted="stopped",
        issue_title="Log in with a passkey",
        lines_added=510,
        files_changed=19,
        terminated_at=iso(datetime.now(UTC) - timedelta(minutes=400)),
    )
    seed.pull(town.merged, 33, minutes=500, state="merged", merge_commit=_commit("merged"))
    with seed.db.write():
        said = Review(
            "r1", "anna", "approved", "Good, and faster than before.", ready.head_commit, ago, trusted=True
        )
        more = Review("r2", "ben", "changes_requested", "The old template is still used.", red.head_commit, ago)
        pull_facts.replace_reviews(seed.db, ready.id, [said])
        pull_facts.replace_reviews(seed.db, red.id, [more])
        remark = Comment(
            "k1", "ben", "Should this be 60 seconds?", ago, path="src/prices.py", line=88, trusted=True
        )
        pull_facts.replace_comments(seed.db, ready.id, [remark])
        until = iso(datetime.now(UTC) + timedelta(minutes=40))
        share = Quota(5000, 4312, until)
        quota.spend(seed.db, "github.com", "core", share, window_at=ago, counts=True, account="acme-bot")
        place = ("github.com", "acme", "shop")
        listed = [
            Issue(
                142, "Rate limit the login form", "Ten tries an hour.", "https://github.com/acme/shop/issues/142"
            ),
            Issue(180, "Export orders as CSV", "For the bookkeepers.", "https://github.com/acme/shop/issues/180"),
        ]
        issues.put(seed.db, place, listed)
    _queued(seed, ago)


def _queued(seed: Seed, ago: str) -> None:
    for number, state in ((44, queue.WAITING), (45, queue.MERGING), (40, queue.LEFT)):
        name = f"work-{number + 60}-a2"
        seed.instance(
            name,
            minutes=180 + number,
            status="pr_created",
            activity="busy" if state == queue.LEFT else "idle",
            issue_title=f"Part {number} of the new basket",
            lines_added=number,
            files_changed=2,
        )
        made = seed.pull(name, number, minutes=100)
        seed.checks(made, tests="passed")
        with seed.db.write():
            entry = queue.add(seed.db, made, method="squash", asked_by="operator")
            if state != queue.WAITING:
                detail = "tests failed together with #38" if state == queue.LEFT else "checking the batch"
                queue.change(seed.db, entry, state=state, detail=detail)


def _at_work(seed: Seed) -> None:
    town = seed.town
    seed.instance(
        town.running,
        minutes=3,
        issue_title="Split the checkout into steps",
        files_changed=6,
        lines_added=188,
        lines_deleted=40,
        cost_usd=0.86,
        tokens_used=190_000,
        prompt="Split the checkout into steps.\nKeep the totals where they are.",
    )
    seed.instance(
        town.fork,
        minutes=2,
        parent_id=town.running,
        kind="fork",
        name="checkout-without-js",
        prompt="The same without JavaScript.",
        lines_added=12,
        files_changed=1,
    )
    seed.instance(town.idle, minutes=14, activity="idle", issue_title="Write the migration guide", repo_path=DOCS)
    seed.instance(
        town.starting, minutes=0.2, status="starting", activity="starting", issue_title="Translate the emails"
    )
    seed.instance(
        town.waiting_review,
        minutes=25,
        status="waiting_review",
        activity="idle",
        issue_title="Validate addresses",
        repo_path=API,
        lines_added=94,
        files_changed=5,
    )
    seed.instance(town.review, minutes=24, parent_id=town.waiting_review, repo_path=API, agent="codex")
    seed.instance(town.adhoc, minutes=70, activity="idle", name="look-around", repo_path=DOCS, agent="scripted")
    for n in range(1, 4):
        seed.instance(
            f"review-118-a{n}",
            minutes=130 - 10 * n,
            parent_id=town.rounds,
            status="terminated",
            activity="exited",
            activity_source="process",
            wanted="stopped",
        )
    for n in (1, 2):
        seed.instance(
            f"work-155-a{n}",
            minutes=18,
            issue_title="Attempts at the image resizer",
            attempt_group="g1",
            lines_added=31,
        )
    for n in range(1, 4):
        child = f"review-118-a{n}"
        with seed.at(130 - 10 * n):
            relationships.add(
                seed.db, town.rounds, child, "spawned_review", head_commit=_commit(f"r{n}"), round_=n
            )
        with seed.at(124 - 10 * n):
            link = relationships.review_link(seed.db, child)
            relationships.set_verdict(seed.db, link.id, Verdict.NEEDS_WORK)
    with seed.at(24):
        relationships.add(seed.db, town.running, town.fork, relationships.FORK, head_commit=_commit("f"))
        relationships.add(
            seed.db,
            town.waiting_review,
            town.review,
            relationships.REVIEW,
            head_commit=_commit(town.waiting_review),
        )
        files = {"src/checkout/totals.py": [[10, 44]], "src/checkout/steps.py": [[1, 90]]}
        conflicts = ["src/checkout/totals.py"]
        overlaps.put(seed.db, Overlap(town.fork, town.running, files, conflicts, seed.db.now()))


def _talk(seed: Seed) -> None:
    town = seed.town
    for n, state in enumerate(("acknowledged", "seen", "injected", "accepted", "failed", "expired")):
        seed.message(f"Message number {n}: please also update the changelog.", to=town.running, state=state)
    seed.message("Do not release before Friday.", to=town.dialog, state="held")
    for n in range(1, 4):
        seed.feedback(
            f"Round {n}: src/tax/rates.py:{40 + n} rounds before it sums. tests/tax/test_rates.py has no case.",
            to=town.rounds,
            sender=f"review-118-a{n}",
            minutes=125 - 10 * n,
            reviewed_commit=_commit(f"r{n}"),
        )
    with seed.at(90):
        for waiting in messages.undelivered(seed.db, town.rounds):
            messages.inject(seed.db, [waiting.id], how="paste")
            messages.see(seed.db, waiting.id, evidence="its own log")
        messages.acknowledge(seed.db, town.rounds)
    seed.feedback(
        "src/address.py:12 accepts an empty street.", to=town.waiting_review, sender="operator", minutes=22
    )
    with seed.db.write():
        for n, model in enumerate(("claude-opus", "claude-haiku")):
            used = usage.Used(f"m{n}", model, 12_000, 900, 80_000, 4_000, 0.43, seed.db.now())
            usage.add(seed.db, town.running, [used])


def _history(seed: Seed) -> None:
    town = seed.town
    for n in range(40):
        with seed.at(40 - n):
            events.add(
                seed.db,
                "tool:called",
                instance_id=town.running if n % 3 else town.waiting_review,
                actor=town.running,
                tool_name=("query_instances", "send_feedback", "search")[n % 3],
                duration_ms=4.0 + n,
                error_code="TIMED_OUT" if n == 17 else None,
                error_message="it took longer than 120 s" if n == 17 else None,
            )
    seed.event("forge:lost", metadata={"host": "github.com"})
    seed.event("coordinator:started", actor="coordinator")


def _hostile(seed: Seed) -> None:
    """Every field that an agent, a forge or a repository fills, with what must stay text."""
    bad = "work-666-a1"
    seed.instance(
        bad,
        minutes=4,
        repo_path=f"/srv/{XSS.replace('/', '∕')}",
        branch=f"swarm/{XSS}",
        issue_title=HOSTILE,
        prompt=LONG,
        name=None,
        agent="claude",
        activity="blocked",
        activity_detail=HOSTILE,
        blocked_on=asked(HOSTILE.replace("\x00", ""), [XSS, ANSI, RTL.replace("\x00", "")]),
        reason=HOSTILE,
        problem=HOSTILE,
        needs_person=HOSTILE,
        last_screen=LONG,
        worktree_path=f"/srv/worktrees/{XSS.replace('/', '∕')}",
        lines_added=10**9,
        files_changed=10**9,
        cost_usd=1e15,
    )
    seed.instance(
        "work-667-a1",
        minutes=4,
        status="failed",
        wanted="stopped",
        activity="exited",
        activity_source="process",
        reason=LONG,
        name=f"{XSS} by name",
        last_screen=f"{ANSI}{XSS}\n{LONG}",
    )
    made = seed.pull(bad, 66, title=HOSTILE, body=LONG, url="javascript:alert(5)", failure=HOSTILE)
    ago = iso(datetime.now(UTC))
    with seed.db.write():
        evil = "javascript:alert(6)"
        pull_facts.replace_checks(seed.db, made.id, [Check("x", HOSTILE, "failed", evil, LONG[:60_000])])
        pull_facts.replace_reviews(seed.db, made.id, [Review("x", XSS, "approved", HOSTILE, "c", ago, evil)])
        pull_facts.replace_comments(seed.db, made.id, [Comment("x", XSS, HOSTILE, ago, evil, path=XSS, line=1)])
        entry = queue.add(seed.db, made, method="merge", asked_by=XSS)
        queue.change(seed.db, entry, state=queue.LEFT, detail=HOSTILE)
        other = Overlap(seed.town.running, bad, {XSS: [[1, 2]]}, [XSS], ago)
        overlaps.put(seed.db, other)
    seed.feedback(LONG, to=bad, sender=XSS)
    seed.feedback(HOSTILE, to=seed.town.waiting_review, sender=seed.town.review)
    seed.message(HOSTILE, to=bad)
    seed.message(LONG, to=bad)
    for name in ("tool:called", "instance:problem", "auth:refused"):
        seed.event(
            name,
            bad,
            actor=XSS,
            tool_name=XSS,
            error_code="INTERNAL",
            error_message=HOSTILE,
            metadata={"reason": HOSTILE, XSS: HOSTILE, "long": LONG},
        )


def _issue(instance_id: str) -> int | None:
    parts = instance_id.split("-")
    return int(parts[1]) if len(parts) > 2 and parts[1].isdigit() else None


def _commit(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:40]
