"""The object every front end holds: one home, one database, and everything that can be asked of them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from swarm_core import ids, process
from swarm_core.agents import table
from swarm_core.config import Settings, check_home
from swarm_core.errors import Conflict, ExternalFailure, InvalidInput, NotFound, SwarmError
from swarm_core.forge import Issue
from swarm_core.hosts.base import DialogFacts, Host, Leftovers, ReadingFacts, RepoFacts
from swarm_core.hosts.local import LocalHost
from swarm_core.hosts.pool import HostPool
from swarm_core.models import (
    Event,
    Feedback,
    Hit,
    Instance,
    Kind,
    Message,
    Overlap,
    Preserved,
    Principal,
    Pull,
    Relationship,
    Status,
    Wanted,
)
from swarm_core.ops import (
    changes,
    clean,
    decide,
    dialogs,
    feedback,
    lineage,
    operations,
    post,
    prompts,
    pulls,
    reconcile,
    restart,
    restore,
    resume,
    review,
    search,
    spawn,
    stop,
    templates,
    texts,
    tokens,
    typing,
)
from swarm_core.ops import status as statuses
from swarm_core.ops.context import Context, Report, nothing, place, talk
from swarm_core.ops.pull_status import Facts
from swarm_core.ops.reconcile import Finding
from swarm_core.ops.tokens import Issued
from swarm_core.store import events, instances, messages, overlaps, preserved, relationships
from swarm_core.store import search as search_index
from swarm_core.store.database import Database, make_folder, open_database, utc_now
from swarm_core.store.tokens import TokenRow

if TYPE_CHECKING:
    from swarm_core.attempts import Attempts
    from swarm_core.desk import PullDesk
    from swarm_core.ops.backup import Backup
    from swarm_core.ops.budget import Account
    from swarm_core.ops.doctor import Check
    from swarm_core.ops.issues import Listing
    from swarm_core.ops.retention import Pruned

COUNT_MAX = 32
_PARALLEL_STARTS = 4


@dataclass(frozen=True, slots=True)
class Detail:
    """One instance with everything that hangs on it."""

    instance: Instance
    relationships: list[Relationship]
    messages: list[Message]
    preserved: list[Preserved]
    events: list[Event]
    account: Account
    overlaps: list[Overlap]
    pull: Facts | None


def _silent(_: str) -> None:
    return


class Swarm:
    def __init__(self, context: Context, environ: Mapping[str, str]) -> None:
        self.context = context
        self._environ = environ

    @classmethod
    def open(
        cls,
        settings: Settings,
        environ: Mapping[str, str],
        *,
        report: Report = _silent,
        checkpoint: Report = _silent,
        clock: Callable[[], datetime] = utc_now,
    ) -> Swarm:
        make_folder(settings.home)
        check_home(settings.home)
        wait, in_use = settings.number("busy_timeout"), process.files_in_use(settings)
        db = open_database(settings.database_path, busy_timeout=wait, clock=clock, in_use=in_use)
        host = LocalHost(settings, environ)
        return cls(Context(db, settings, HostPool([host]), report, checkpoint, environ=environ), environ)

    def on(self, db: Database) -> Swarm:
        """The same swarm with another connection to its database; whoever opened that closes it."""
        return Swarm(dataclasses.replace(self.context, db=db), self._environ)

    def reporting(self, report: Report) -> Swarm:
        """The same swarm, telling somebody else what it does."""
        return Swarm(dataclasses.replace(self.context, report=report), self._environ)

    def close(self) -> None:
        self.context.hosts.close()
        self.context.db.close()

    def __enter__(self) -> Swarm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Asking

    def instances(self, *, include_cleaned: bool = False, repo: str | None = None) -> list[Instance]:
        repo_path = self._host.ensure_repo(repo, None)["repo_path"] if repo else None
        return instances.listed(self.context.db, include_cleaned=include_cleaned, repo_path=repo_path)

    def find(self, id_or_name: str) -> Instance:
        """The instance with this id, or the one that carries this name."""
        if ids.is_id(id_or_name):
            return instances.get(self.context.db, id_or_name)
        found = instances.named(self.context.db, id_or_name)
        if len(found) > 1:
            raise Conflict(
                f"{len(found)} instances are named {id_or_name!r}",
                hint="use an id: " + ", ".join(i.id for i in found),
            )
        return found[0] if found else instances.get(self.context.db, id_or_name)

    def detail(self, id_or_name: str) -> Detail:
        from swarm_core.ops import budget  # noqa: PLC0415  few commands need it, and it costs all of them 10 ms

        instance, db = self.find(id_or_name), self.context.db
        return Detail(
            instance=instance,
            relationships=relationships.of(db, instance.id),
            messages=messages.of(db, instance.id),
            preserved=preserved.of(db, instance.id),
            events=events.newest(db, instance_id=instance.id, limit=20),
            account=budget.account(self.context, instance),
            overlaps=overlaps.of(db, instance.id),
            pull=self.pulls.newest(instance),
        )

    def overlaps(self) -> list[Overlap]:
        """Which two instances change the same places, as the coordinator last saw it."""
        return overlaps.listed(self.context.db)

    def events(self, *, after: int | None = None, instance_id: str | None = None, limit: int = 50) -> list[Event]:
        """The newest events, or those after a cursor; oldest first either way."""
        if after is None:
            return events.newest(self.context.db, instance_id=instance_id, limit=limit)
        return events.after(self.context.db, after, instance_id=instance_id, limit=limit)

    def issues(self, repo: str = ".", *, limit: int = 30) -> Listing:
        """Open issues of a repository and who works on them; copies when GitHub does not answer."""
        from swarm_core.ops import issues  # noqa: PLC0415  as above

        return issues.listing(self.context, self._host.ensure_repo(repo, None), limit=limit)

    def search(
        self,
        query: str,
        *,
        kinds: Sequence[str] = (),
        instance: str | None = None,
        since: str | None = None,
        until: str | None = None,
        limit: int = 20,
    ) -> list[Hit]:
        """Events, feedback and messages that have all the words, best first."""
        only = self.find(instance).id if instance is not None else None
        return search.find(
            self.context, query, kinds=kinds, instance_id=only, since=since, until=until, limit=limit
        )

    def unsearched(self) -> int:
        """About how many rows no search finds yet, because they are not indexed."""
        return search_index.unindexed(self.context.db)

    def screen(self, instance: Instance, *, lines: int | None = None) -> str:
        """What the session shows, or the last screen that was kept of it."""
        host = self.context.host(instance)
        if any(s["instance_id"] == instance.id for s in host.sessions()):
            return host.screen(instance.id, lines=lines)
        return instance.last_screen

    def attach_argv(self, instance: Instance, *, read_only: bool = False) -> list[str]:
        host = self.context.host(instance)
        if not any(s["instance_id"] == instance.id for s in host.sessions()):
            raise NotFound(
                f"{instance.id} has no session",
                code="TMUX_SESSION_NOT_FOUND",
                hint=f"`swarm restart {instance.id}` starts it; `swarm logs {instance.id}` shows its last screen",
            )
        return host.attach_argv(instance.id, read_only=read_only)

    def review_link(self, review_id: str) -> Relationship:
        """What a review reviews: the work, the round and the commit."""
        return relationships.review_link(self.context.db, review_id)

    def work_prompt(self, task: str, issue: int | None = None) -> str:
        """Our instructions for a task, for whoever works without an instance of ours."""
        spawn.check_text(task, None, issue)
        return prompts.work_steps(prompts.task(task, issue_number=issue, issue=None))

    def review_prompt(self, instance_id: str, focus: str = "") -> str:
        """The instructions for reviewing an instance as it is now, for whoever reviews it by hand."""
        spawn.check_text(focus, None, None)
        return review.prompt(self.context, self.find(instance_id), focus)

    # Doing

    def work(
        self,
        prompt: str = "",
        *,
        repo: str = ".",
        base: str | None = None,
        issue: int | None = None,
        agent: str | Sequence[str] | None = None,
        name: str | None = None,
        count: int = 1,
        adhoc: bool = False,
        actor: str = "operator",
    ) -> list[Instance]:
        """Start `count` attempts at the same task, dealt to the agents in turn; each agent gets at least one.

        An `adhoc` instance has no task. Checks everything before it leaves a trace.
        """
        spawn.check_text(prompt, name, issue)
        spawn.check_task(prompt, issue, adhoc=adhoc)
        named = [agent] if agent is None or isinstance(agent, str) else [*agent]
        if not 1 <= count <= COUNT_MAX or not 1 <= len(named) <= COUNT_MAX:
            raise InvalidInput(f"--count is between 1 and {COUNT_MAX}", hint="start more with a second command")
        agents = [self._agent(one) for one in named]
        facts = self._host.ensure_repo(repo, base)
        found = self._issue(facts, issue, required=texts.is_blank(prompt))
        text = prompts.task(prompt, issue_number=issue, issue=found)
        spawn.check_text(text, name, issue)
        template = self._work_template(facts) if text else None
        wishes = [
            spawn.Wish(
                kind=Kind.ADHOC if adhoc else Kind.WORK,
                repo=facts,
                agent=chosen,
                prompt=prompts.work(
                    template, text, issue_number=issue, issue=found, plain=table.get(chosen).plain_prompt
                ),
                issue_number=issue,
                issue_title=found.title if found else None,
                name=name,
            )
            for chosen in agents
        ]
        dealt = [wishes[n % len(wishes)] for n in range(max(count, len(wishes)))]
        return self._start(spawn.reserve_attempts(self.context, dealt, actor=actor))

    def fork(
        self,
        parent_id: str,
        prompt: str = "",
        *,
        agent: str | None = None,
        name: str | None = None,
        adhoc: bool = False,
        actor: str = "operator",
        reserved: Callable[[Instance], None] = nothing,
    ) -> Instance:
        """A second attempt from another instance's last commit; its uncommitted files are not taken along.

        Without a prompt its task is the parent's, unless it is `adhoc` and has none. `reserved` is called inside
        the transaction that reserves it.
        """
        parent = self.find(parent_id)
        text = prompt if adhoc or not texts.is_blank(prompt) else parent.prompt
        spawn.check_text(prompt, name, None)
        spawn.check_task(text, None, adhoc=adhoc)
        facts = self._host.ensure_repo(parent.repo_path, None)
        if parent.branch in facts["branches"]:
            facts = self._host.ensure_repo(parent.repo_path, parent.branch)
        wish = spawn.Wish(
            kind=Kind.FORK,
            repo=facts,
            agent=self._agent(agent or parent.agent),
            prompt=lambda _: "" if adhoc else text,
            issue_number=parent.issue_number,
            issue_title=parent.issue_title,
            name=name,
            parent=parent,
        )
        return self._start([spawn.reserve(self.context, wish, actor=actor, reserved=reserved)])[0]

    def request_review(
        self,
        work_id: str,
        *,
        reviewer_prompt: str = "",
        agent: str | None = None,
        actor: str = "operator",
        reserved: Callable[[Instance], None] = nothing,
    ) -> Instance:
        """Start a reviewer of what the work has committed; the work waits for its verdict.

        `reserved` is called inside the transaction that reserves it.
        """
        work = review.check(self.context, self.find(work_id).id, actor=actor)
        made = review.reserve(
            self.context,
            work.id,
            agent=self._agent(agent or work.agent),
            focus=reviewer_prompt,
            actor=actor,
            reserved=reserved,
        )
        return self._start([made])[0]

    def send_feedback(
        self,
        target_id: str,
        body: str,
        *,
        feedback_type: str,
        priority: str = "medium",
        actor: str = "operator",
        review_id: str | None = None,
        recorded: Callable[[Feedback], None] = nothing,
    ) -> Feedback:
        """Say something to an instance about its work, as the reviewer `review_id` or as a person."""
        return feedback.send(
            self.context,
            self.find(target_id).id,
            body,
            feedback_type=feedback_type,
            priority=priority,
            actor=actor,
            review_id=review_id,
            recorded=recorded,
        )

    def set_status(
        self,
        instance_id: str,
        status: str,
        *,
        message: str = "",
        actor: str = "operator",
        by_person: bool = False,
        recorded: Callable[[Instance], None] = nothing,
    ) -> Instance:
        """Change a status as the instance itself or a person may; see `ops.status`."""
        return statuses.set_status(
            self.context,
            self.find(instance_id),
            status,
            message=message,
            actor=actor,
            by_person=by_person,
            recorded=recorded,
        )

    def open_pull(
        self,
        target_id: str,
        *,
        title: str,
        description: str,
        base_branch: str | None = None,
        draft: bool = False,
        labels: Sequence[str] = (),
        reviewers: Sequence[str] = (),
        actor: str = "operator",
        review_id: str | None = None,
        recorded: Callable[[Pull], None] = nothing,
    ) -> Pull:
        """Open the pull request of an instance's branch; one that is open is brought to the branch's commit."""
        wish = pulls.Wish(title, description, base_branch, draft, tuple(labels), tuple(reviewers))
        target = self.find(target_id).id
        return pulls.open_pull(self.context, target, wish, actor=actor, review_id=review_id, recorded=recorded)

    @property
    def pulls(self) -> PullDesk:
        """Everything else about pull requests."""
        from swarm_core.desk import PullDesk  # noqa: PLC0415  few commands need it

        return PullDesk(self.context, self.find)

    @property
    def attempts(self) -> Attempts:
        """Everything about several attempts at one task."""
        from swarm_core.attempts import Attempts  # noqa: PLC0415  few commands need it

        def settle(instance_id: str) -> object:
            return self._request(instance_id, lambda _: None)

        return Attempts(self.context, find=self.find, take_in=self._take_in, settle=settle)

    def note_merged(self, target_id: str, *, actor: str = "operator") -> Pull:
        """Note that the pull request of an instance's branch was merged; git is asked whether it was."""
        return pulls.note_merged(self.context, self.find(target_id).id, actor=actor)

    def finish_spawn(self, instance_id: str) -> Instance:
        """Carry a reserved spawn to its end; the coordinator may have been quicker, also to fail."""
        with contextlib.ExitStack() as stack:
            try:
                lock = stack.enter_context(self.context.lock(instance_id))
            except ExternalFailure as error:
                spawn.give_up(self.context, instance_id, error)
                raise
            instance = operations.carry_out(self.context, instance_id, lock=lock)
        if instance.cleaned:
            raise ExternalFailure(
                f"{instance_id} could not be started: {instance.reason}", code="AGENT_START_FAILED"
            )
        return instance

    def stop(self, id_or_name: str, *, actor: str = "operator") -> Instance:
        """End the agent and keep its work; stopping what is stopped changes nothing."""
        instance = self.find(id_or_name)
        with self.context.lock(instance.id) as lock:
            instance = operations.carry_out(self.context, instance.id, lock=lock)
            if instance.wanted != Wanted.RUNNING:
                return instance
            stop.request(self.context, instance, actor=actor)
            return operations.carry_out(self.context, instance.id, lock=lock)

    def restart(self, id_or_name: str, *, prompt: bool = True, actor: str = "operator") -> Instance:
        """Start the agent again in its conversation; without `prompt` it waits there for a message."""
        return self._request(id_or_name, lambda i: restart.request(self.context, i, prompt=prompt, actor=actor))

    def restore(self, id_or_name: str, *, ref: str | None = None, actor: str = "operator") -> Instance:
        return self._request(id_or_name, lambda i: restore.request(self.context, i, ref=ref, actor=actor))

    def clean(self, id_or_name: str, *, actor: str = "operator") -> Instance:
        return self._request(id_or_name, lambda i: clean.request(self.context, i, actor=actor))

    def cleanable(self) -> list[Instance]:
        """Ended instances that still hold a worktree, session or files."""
        return [i for i in self.instances() if i.ended and i.wanted != Wanted.RUNNING]

    def stopped_with_open_pull(self) -> list[Instance]:
        """Stopped instances that are not ended, since their pull request is open; they hold a worktree too."""
        return [i for i in self.instances() if i.status == Status.PR_CREATED and i.wanted != Wanted.RUNNING]

    def leftovers(self, instance: Instance) -> Leftovers:
        return self.context.host(instance).leftovers(place(instance))

    def message(self, id_or_name: str, body: str, *, sender: str = "operator") -> Message:
        """Record a message for the instance; it is kept from now on, whatever happens to its agent."""
        return post.post(self.context, self.find(id_or_name), body, sender=sender)

    def answer(
        self,
        id_or_name: str,
        *,
        choice: int | None = None,
        text: str | None = None,
        digest: str | None = None,
        actor: str = "operator",
    ) -> DialogFacts:
        """Answer what the agent asks, if it still asks that."""
        found = self.find(id_or_name)
        return dialogs.answer(self.context, found, choice=choice, text=text, digest=digest, actor=actor)

    def type_keys(
        self, id_or_name: str, *, text: str = "", keys: Sequence[str] = (), actor: str = "operator"
    ) -> int:
        """Type text or press keys at the agent's terminal, never into a dialog; returns how many keys."""
        return typing.type_keys(self.context, self.find(id_or_name), text=text, keys=keys, actor=actor)

    def explain(self, id_or_name: str) -> list[ReadingFacts]:
        """What every source says of the agent now, best first."""
        found = self.find(id_or_name)
        return self.context.host(found).evidence(talk(found))

    def accept(self, id_or_name: str, *, message: str = "", actor: str = "operator") -> Instance:
        return decide.accept(self.context, self.find(id_or_name), message=message, actor=actor)

    def rescope(self, id_or_name: str, task: str, *, actor: str = "operator") -> Instance:
        return decide.rescope(self.context, self.find(id_or_name), task, actor=actor)

    def abandon(self, id_or_name: str, *, why: str = "", actor: str = "operator") -> Instance:
        done = decide.abandon(self.context, self.find(id_or_name), why=why, actor=actor)
        return self._request(done.id, lambda _: None)

    def budget(
        self,
        id_or_name: str,
        *,
        usd: float | None = None,
        raise_by: float | None = None,
        none: bool = False,
        actor: str = "operator",
    ) -> Account:
        """What an instance has used and may use; first sets its budget, raises it, or takes every limit away."""
        from swarm_core.ops import budget  # noqa: PLC0415  as above

        found = self.find(id_or_name)
        budget.check_prices(self.context)
        self._take_in([found])
        if raise_by is not None:
            found = budget.raise_(self.context, found, raise_by, actor=actor)
        elif none or usd is not None:
            found = budget.set_budget(self.context, found, None if none else usd, actor=actor)
        return budget.account(self.context, self.find(found.id))

    def costs(self) -> list[Account]:
        """What every instance has used, the cleaned ones that used nothing left out."""
        from swarm_core.ops import budget  # noqa: PLC0415  few commands need it, and it costs all of them 10 ms

        budget.check_prices(self.context)
        self._take_in(self.instances())
        found = self.instances(include_cleaned=True)
        return [budget.account(self.context, i) for i in found if i.tokens_used or not i.cleaned]

    def lost(self) -> list[Instance]:
        """Instances that lost their session, as in a reboot, and have work left; `restart` resumes each."""
        return [i for i in resume.lost(self.context.db) if not resume.why_over(self.context.db, i)]

    def lost_and_over(self) -> list[tuple[Instance, str]]:
        """Instances that lost their session and have nothing left to do, with the code that says why."""
        db = self.context.db
        return [(i, why) for i in resume.lost(db) if (why := resume.why_over(db, i))]

    def list_tokens(self, *, include_revoked: bool = False) -> list[TokenRow]:
        return tokens.listed(self.context, include_revoked=include_revoked)

    def create_token(self, name: str, scopes: Sequence[str]) -> Issued:
        return tokens.create(self.context, name, scopes)

    def rotate_token(self, name: str) -> Issued:
        """A new token for an automation, an instance (by id or name) or `operator`; the old one ends at once."""
        return tokens.rotate(self.context, name, self.find)

    def revoke_token(self, name: str) -> Principal:
        return tokens.revoke(self.context, name, self.find)

    def ensure_operator_token(self) -> Path:
        """The private file with the operator's valid token; makes a new one when it cannot be trusted."""
        return tokens.ensure_operator(self.context)

    def reconcile(self) -> list[Finding]:
        return reconcile.reconcile(self.context)

    def doctor(self, *, fix: bool = False, repo: str | None = None) -> list[Check]:
        """Everything that can be wrong; `repo` names the new place of a repository that was moved."""
        from swarm_core.ops import doctor  # noqa: PLC0415  as above

        adopted = doctor.adopt_repository(self.context, repo) if fix and repo else []
        return adopted + doctor.examine(self.context, fix=fix)

    def refresh_changes(self, limit: int) -> None:
        """Count changed lines of the instances whose counts are oldest."""
        stale = [i for i in self.instances() if changes.may_have_happened(i)]
        for instance in sorted(stale, key=lambda i: i.changes_at or "")[:limit]:
            changes.refresh(self.context, instance)

    def drain_pools(self) -> int:
        return sum(host.drain_pools() for host in self.context.hosts)

    def fill_pool(self, repo: str) -> int:
        facts = self._host.ensure_repo(repo, None)
        return self._host.fill_pool(facts["repo_path"], self.context.settings.integer("pool"))

    def backup(self, to: Path | None = None) -> Backup:
        """Copy the database, verified, to a new file or to the home's backups, of which the oldest go."""
        from swarm_core.ops import backup  # noqa: PLC0415  as above

        return backup.take(self.context, to)

    def prune(self, *, dry_run: bool) -> Pruned:
        """Delete what is older than the settings keep it, and never what is still needed."""
        from swarm_core.ops import retention  # noqa: PLC0415  as above

        return retention.prune(self.context, dry_run=dry_run)

    def coordinator(self) -> str | None:
        """Who holds the database as its coordinator; None when nobody does."""
        return process.holder(self.context.settings.coordinator_lock)

    def _take_in(self, found: list[Instance]) -> None:
        """Read the agents' logs in place of a coordinator; what cannot be read is shown as it was last known."""
        from swarm_core.ops import budget, ledger  # noqa: PLC0415  as above

        if self.coordinator() is None:
            for instance in found:
                with contextlib.suppress(SwarmError):
                    ledger.take_in(self.context, instance)
                    budget.check(self.context, self.find(instance.id))

    @property
    def _host(self) -> Host:
        return self.context.hosts.choose()

    def _start(self, reserved: list[Instance]) -> list[Instance]:
        """Carry out the reserved spawns; a failure does not stop the others.

        One alone runs in the calling thread, where its cancellation is heard.
        """
        if len(reserved) == 1:
            return [self.finish_spawn(reserved[0].id)]
        with ThreadPoolExecutor(max_workers=_PARALLEL_STARTS) as pool:
            runs = [pool.submit(self.finish_spawn, i.id) for i in reserved]
        failed = [(i, e) for i, r in zip(reserved, runs, strict=True) if (e := r.exception()) is not None]
        if not failed:
            return [r.result() for r in runs]
        first = failed[0][1]
        if isinstance(first, SwarmError):
            first.details["failed"] = [i.id for i, _ in failed]
            first.details["started"] = [i.id for i in reserved if i.id not in first.details["failed"]]
        raise first

    def _request(self, id_or_name: str, request: Callable[[Instance], None]) -> Instance:
        """Finish what is open, record the new intent, carry it out; all alone with the instance."""
        instance = self.find(id_or_name)
        with self.context.lock(instance.id) as lock:
            instance = operations.carry_out(self.context, instance.id, lock=lock)
            reconcile.settle(self.context, instance)
            request(instances.get(self.context.db, instance.id))
            return operations.carry_out(self.context, instance.id, lock=lock)

    def capabilities(self) -> dict[str, dict[str, bool]]:
        """Which agents and programs are installed."""
        agents = {name: self._has(agent.program) for name, agent in table.AGENTS.items()}
        return {"agents": agents, "programs": {name: self._has(name) for name in ("git", "tmux", "gh")}}

    def _has(self, program: str) -> bool:
        return shutil.which(program, path=self._environ.get("PATH", os.defpath)) is not None

    def _agent(self, name: str | None) -> str:
        agent = table.get(name or self.context.settings.text("agent"))
        if not self._has(agent.program):
            raise NotFound(
                f"{agent.title} is not installed: there is no {agent.program} on PATH",
                code="AGENT_NOT_INSTALLED",
                hint=f"{agent.install_hint}; or try --agent scripted",
            )
        return agent.name

    def _work_template(self, facts: RepoFacts) -> str | None:
        """The repository's own, from a commit that no agent has written."""
        repo_path = facts["repo_path"]
        commit = lineage.trusted_commit(self.context.db, repo_path, facts["base_branch"], facts["base_commit"])
        return templates.find(self._host, repo_path, commit, "work")

    def _issue(self, repo: RepoFacts, number: int | None, *, required: bool) -> Issue | None:
        if number is None:
            return None
        from swarm_core.ops import issues  # noqa: PLC0415  as above

        try:
            return issues.require(self.context, repo, number, required=required)
        except ExternalFailure as error:
            if required:
                raise
            self.context.report(f"going on without the text of issue #{number}: {error.message}")
            return None
