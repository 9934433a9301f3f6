"""The forge of a repository without one: pull requests are rows and Markdown files, merged by git alone."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from swarm_core.errors import Conflict, NotFound
from swarm_core.forge import Draft, Issue, Known, Look, MergeMethod, RemotePull
from swarm_core.hosts.base import Host, IntegrateFacts, Place
from swarm_core.local_forge import LocalIssues
from swarm_core.models import Instance, Pull, PullState
from swarm_core.ops import checking
from swarm_core.ops.context import Context
from swarm_core.store import check_runs, instances, pulls


class LocalForge:
    """What git shows is what is true: a branch whose changes are on its base was merged, by whomever."""

    name = "local"
    repository = ""
    batch = 1

    def __init__(self, context: Context, repo_path: str) -> None:
        self._context = context
        self._repo_path = repo_path
        self._issues = LocalIssues(repo_path)

    def get_issue(self, number: int) -> Issue | None:
        return self._issues.get_issue(number)

    def list_issues(self, *, limit: int) -> list[Issue]:
        return self._issues.list_issues(limit=limit)

    def open_pull(self, draft: Draft) -> RemotePull:
        """Write down what is to be merged and how; inside the transaction that records it."""
        db = self._context.db
        known = pulls.open_of(db, self._repo_path, draft.head_branch)
        number = known.number if known else pulls.next_number(db, self.name, self._repo_path)
        author = instances.get(db, draft.instance_id)
        path = self._context.host(author).write_file(author.id, _file(number), self._text(number, draft))
        return _remote(number, Path(path).as_uri(), draft, PullState.OPEN)

    def look(self, known: Sequence[Known]) -> dict[int, Look]:
        return {one.number: self._look(one) for one in known}

    def log_tail(self, job: int, *, max_bytes: int) -> str:
        return ""

    def merge(
        self,
        number: int,
        *,
        method: MergeMethod,
        head_commit: str,
        title: str,
        decide: Callable[[], str] = lambda: "",
    ) -> str:
        """Merge in a scratch worktree, run the check command there, and move the base branch to just that result.

        The result of the check is recorded before `decide` is asked, which knows whether a failure stops it.
        Whoever closes it or brings another commit while the check runs has kept it from being merged.
        """
        pull = self._pull(number)
        self._require(pull, head_commit)
        recipe, made = self._recipe(pull, method, title), list[str]()
        if recipe.command:
            made = self._check(pull, recipe, again=False)
            now = self._pull(number)
            if now.state == PullState.MERGED and now.merge_commit:
                return now.merge_commit
            self._require(now, head_commit)
        if note := decide():
            recipe = self._recipe(pull, method, f"{title}\n\n{note}", onto=recipe.base_commit)
        facts = checking.land(self._context, self._host(pull), recipe, made=made, reword=bool(note))
        _require_clean(pull, facts)
        return facts["commits"][-1]

    def check(self, number: int, *, method: MergeMethod) -> None:
        """Run the check command on the merged result, though it failed before; Conflict if there is none."""
        pull = self._pull(number)
        self._require(pull, pull.head_commit)
        recipe = self._recipe(pull, method, pull.title)
        if not recipe.command:
            raise Conflict(
                "no check command is configured",
                hint="put one into .swarm/check of the base branch, or `swarm config check_command COMMAND`",
            )
        self._check(pull, recipe, again=True)

    def require_unmoved(self, pull: Pull) -> None:
        """Raise Conflict (PULL_HEAD_MOVED) if the branch has commits that the pull request does not have yet."""
        tip = self._host(pull).branch_tip(_place(pull, pull.head_branch))
        if tip is not None and tip != pull.head_commit:
            raise _moved(pull, pull.head_commit, tip)

    def close_pull(self, number: int) -> RemotePull:
        """What becomes of it is in the record alone, so there is nothing to do but to say so."""
        pull = self._pull(number)
        state = PullState.MERGED if pull.state == PullState.MERGED else PullState.CLOSED
        now = _remote(pull.number, pull.url, draft_of(pull), state)
        return replace(now, merge_commit=pull.merge_commit)

    def delete_branch(self, branch: str, *, at: str) -> bool:
        return False

    def withdraw(self, author: Instance, number: int) -> None:
        """Take back the file of one that could not be recorded."""
        self._context.host(author).remove_file(author.id, _file(number))

    def _recipe(
        self, pull: Pull, method: MergeMethod, message: str, *, onto: str | None = None
    ) -> checking.Recipe:
        return checking.Recipe(
            repo_path=pull.repo_path,
            base_branch=pull.base_branch,
            base_commit=onto or self._base_tip(pull),
            heads=[{"head_commit": pull.head_commit, "method": str(method), "message": message}],
            command=checking.command(self._context, self._host(pull), pull.repo_path, pull.base_branch),
            scratch=f"pull-{pull.id}",
        )

    def _check(self, pull: Pull, recipe: checking.Recipe, *, again: bool) -> list[str]:
        """Run the check, record how it ended and return the commits that were checked.

        One that failed on the same commits is run only `again`.
        """
        known = check_runs.of(self._context.db, pull.id)
        if known is not None and not known.ok and not again and checking.is_of(known, pull, recipe):
            return []
        facts = checking.attempt(self._context, self._host(pull), recipe)
        _require_clean(pull, facts)
        if facts["check"] is not None:
            if not facts["check"]["ok"]:
                checking.try_base(self._context, self._host(pull), recipe, again=again)
            with self._context.db.write():
                checking.record(self._context, pull, recipe.base_commit, recipe.command, facts["check"])
        return facts["commits"]

    def _look(self, one: Known) -> Look:
        """By its recorded commit: that had something its base had not, so it can only be there by a merge."""
        pull = self._pull(one.number)
        host = self._host(pull)
        tip = host.branch_tip(_place(pull, pull.base_branch))
        checking.drop_outdated(self._context, host, pull, tip)
        etags = {"base": tip or "", "head": pull.head_commit}
        if tip is not None and pull.mergeable is not None and one.etags == etags:
            return Look(_remote(pull.number, pull.url, draft_of(pull), PullState.OPEN), None, None, None, etags)
        now = _remote(pull.number, pull.url, draft_of(pull), PullState.OPEN)
        try:
            if host.is_merged(pull.repo_path, pull.head_commit, pull.base_branch):
                now = replace(now, state=str(PullState.MERGED), merge_commit=tip)
            else:
                found = host.predict(pull.repo_path, pull.base_branch, pull.head_commit)
                # With a git that cannot tell beforehand, the merge itself will.
                mergeable = found["clean"] or not found["supported"]
                now = replace(now, mergeable=mergeable, unrelated=not found["related"])
        except NotFound:  # the base branch is gone, so nobody knows
            pass
        return Look(now, [], [], [], etags)

    def _require(self, pull: Pull, head_commit: str) -> None:
        if pull.state != PullState.OPEN:
            raise Conflict(f"pull request #{pull.number} is {pull.state}", code="PULL_NOT_MERGEABLE")
        if pull.head_commit != head_commit:
            raise _moved(pull, head_commit, pull.head_commit)
        self.require_unmoved(pull)

    def _base_tip(self, pull: Pull) -> str:
        tip = self._host(pull).branch_tip(_place(pull, pull.base_branch))
        if tip is None:
            raise NotFound(
                f"there is no branch {pull.base_branch} here to merge into",
                code="GIT_BRANCH_NOT_FOUND",
                hint=f"make it, or `swarm pr close {pull.instance_id}` and open it with --base",
            )
        return tip

    def _pull(self, number: int) -> Pull:
        pull = pulls.numbered(self._context.db, self.name, self._repo_path, number)
        if pull is None:
            raise NotFound(
                f"there is no pull request #{number}", code="PULL_NOT_FOUND", hint="`swarm pr ls` lists them"
            )
        return pull

    def _host(self, pull: Pull) -> Host:
        return self._context.host(instances.get(self._context.db, pull.instance_id))

    def _text(self, number: int, draft: Draft) -> str:
        repo, head, base = (shlex.quote(t) for t in (self._repo_path, draft.head_branch, draft.base_branch))
        return f"""# Pull request #{number}: {draft.title}

- branch: {draft.head_branch} at {draft.head_commit}
- into: {draft.base_branch}

{draft.body.strip()}

## Look at it, merge it

    git -C {repo} diff {base}...{head}
    git -C {repo} switch {base} && git -C {repo} merge {head}
"""


def draft_of(pull: Pull) -> Draft:
    return Draft(
        pull.title,
        pull.body,
        pull.head_branch,
        pull.base_branch,
        pull.head_commit,
        draft=pull.draft,
        instance_id=pull.instance_id,
    )


def _require_clean(pull: Pull, facts: IntegrateFacts) -> None:
    if facts["conflict"] is not None:
        raise checking.conflict(pull, facts["conflict"]["files"])


def _moved(pull: Pull, expected: str, found: str) -> Conflict:
    return Conflict(
        f"{pull.head_branch} has moved on to {found[:12]}, and pull request #{pull.number} was to be merged at"
        f" {expected[:12]}",
        code="PULL_HEAD_MOVED",
        hint=f"`swarm pr open {pull.instance_id}` brings the newest commit in, then merge it again",
        details={"number": pull.number, "expected": expected, "found": found},
    )


def _place(pull: Pull, branch: str) -> Place:
    return {
        "instance_id": pull.instance_id,
        "repo_path": pull.repo_path,
        "worktree_path": pull.repo_path,
        "branch": branch,
        "base_commit": None,
    }


def _file(number: int) -> str:
    return f"pulls/{number}.md"


def _remote(number: int, url: str, draft: Draft, state: PullState) -> RemotePull:
    return RemotePull(
        number=number,
        url=url,
        state=str(state),
        draft=draft.draft,
        title=draft.title,
        head_branch=draft.head_branch,
        head_commit=draft.head_commit,
        base_branch=draft.base_branch,
        updated_at="",
    )
