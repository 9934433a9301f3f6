"""GitHub as a forge, through PyGithub: what is asked, and what the answers mean."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from swarm_core import github_look, github_overview
from swarm_core import github_records as records
from swarm_core.errors import Conflict, ExternalFailure, NotFound, SwarmError
from swarm_core.forge import (
    Check,
    Comment,
    Draft,
    Gate,
    Issue,
    Known,
    Look,
    MergeMethod,
    RemotePull,
    Review,
    Seen,
)
from swarm_core.github_http import PER_PAGE, Answer, Api, Question, segment
from swarm_core.github_log import read_tail

TIMEOUT_S = 10
_MOST_ISSUE_PAGES = 10
_TRIES = 100  # looks after which it is asked again what the server can do
_WRITE_SCOPES = frozenset({"repo", "public_repo"})

log = logging.getLogger(__name__)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class GitHubForge:
    """One repository at GitHub. `clock` is what a time to ask again is counted from."""

    name = "github"
    batch = github_overview.MOST

    def __init__(
        self,
        host: str,
        owner: str,
        name: str,
        *,
        token: str | None,
        api_url: str | None,
        gate: Gate | None = None,
        timeout_s: int = TIMEOUT_S,
        clock: Callable[[], datetime] = _utc_now,
    ) -> None:
        self.slug: str | None = f"{owner}/{name}"
        self.repository = f"{host}/{owner}/{name}"
        self._owner, self._name = owner, name
        self._token = token
        self._clock = clock
        self._together = github_overview.MOST  # none where there is no GraphQL
        self._tries = _TRIES
        self._root = f"/repos/{segment(owner)}/{segment(name)}"
        url = api_url or api_url_of(host)
        self._api = Api(url, host=host, token=token, gate=gate, timeout_s=timeout_s, clock=clock)

    def get_issue(self, number: int) -> Issue | None:
        """The issue, None if there is none or it may not be seen: GitHub does not tell these apart."""
        if number < 1:
            return None
        answer = self._ask("GET", f"issues/{int(number)}", accept=(404, 410))
        with self._understood():
            return records.issue(answer.data) if answer.status == 200 else None

    def list_issues(self, *, limit: int) -> list[Issue]:
        found: list[Issue] = []
        params = {"state": "open", "sort": "updated", "direction": "desc", "per_page": str(PER_PAGE)}
        for page in range(1, _MOST_ISSUE_PAGES + 1):
            answer = self._ask("GET", "issues", params=params | {"page": str(page)})
            with self._understood():
                # GitHub lists pull requests among the issues.
                found += [records.issue(each) for each in answer.data if not each.get("pull_request")]
                if len(found) >= limit or len(answer.data) < PER_PAGE:
                    break
        return found[: max(limit, 0)]

    def open_pull(self, draft: Draft) -> RemotePull:
        """Open it; labels and reviewers that GitHub does not take are a warning, for the pull request is there."""
        body = {
            "title": draft.title,
            "body": draft.body,
            "head": draft.head,
            "base": draft.base_branch,
            "draft": draft.draft,
        }
        answer = self._ask("POST", "pulls", body=body, accept=(422,))
        if answer.status == 422:
            return self._not_opened(draft, answer)
        with self._understood():
            pull = records.pull(answer.data)
        self._decorate(pull.number, draft)
        return pull

    def list_pulls(self, etag: str) -> Seen[list[RemotePull]]:
        question = self._question("pulls", state="open", sort="updated", direction="desc")
        seen = self._api.read([question], etag)
        if seen.value is None:
            return Seen(None, seen.etag)
        with self._understood():
            pulls = {pull.number: pull for pull in map(records.pull, seen.value[0])}
        return Seen([replace(p, mergeable=None) for p in pulls.values()], seen.etag)

    def get_pull(self, number: int, etag: str) -> Seen[RemotePull]:
        with self._pull_named(number):
            answer = self._ask("GET", f"pulls/{int(number)}", etag=etag)
        if answer.status == 304:
            return Seen(None, etag)
        with self._understood():
            return Seen(records.pull(answer.data), answer.etag)

    def checks(self, commit: str, etag: str) -> Seen[list[Check]]:
        """Of GitHub's two kinds: runs, and the statuses that older services set."""
        at = f"commits/{segment(commit)}"
        runs = self._question(f"{at}/check-runs", key="check_runs", filter="latest")
        seen = self._api.read([runs, self._question(f"{at}/status", key="statuses")], etag)
        if seen.value is None:
            return Seen(None, seen.etag)
        with self._understood():
            found = [*map(records.check_of_run, seen.value[0]), *map(records.check_of_status, seen.value[1])]
        return Seen(list({check.id: check for check in found}.values()), seen.etag)

    def summary(self, check: Check) -> str:
        """What a run of a check found; empty for one that GitHub does not tell of."""
        number = records.number_of_run(check)
        if number is None:
            return check.summary
        try:
            answer = self._ask("GET", f"check-runs/{number}")
        except ExternalFailure as error:
            if error.code == "GITHUB_RATE_LIMITED" or not (
                error.details.get("status") or error.details.get("too_large")
            ):
                raise
            log.warning("%s: what the check %r found is not known: %s", self.repository, check.name, error.message)
            return ""
        with self._understood():
            return records.summary_of_run(answer.data)

    def reviews(self, number: int, etag: str) -> Seen[list[Review]]:
        with self._pull_named(number):
            seen = self._api.read([self._question(f"pulls/{int(number)}/reviews")], etag)
        if seen.value is None:
            return Seen(None, seen.etag)
        with self._understood():
            found = {review.id: review for review in map(records.review, seen.value[0]) if review}
        return Seen(list(found.values()), seen.etag)

    def comments(self, number: int, etag: str) -> Seen[list[Comment]]:
        with self._pull_named(number):
            seen = self._api.read(
                [
                    self._question(f"pulls/{int(number)}/comments"),
                    self._question(f"issues/{int(number)}/comments"),
                ],
                etag,
            )
        if seen.value is None:
            return Seen(None, seen.etag)
        with self._understood():
            on_lines, on_whole = seen.value
            found = [*map(records.comment_on_line, on_lines), *map(records.comment_on_whole, on_whole)]
        unique = {comment.id: comment for comment in found}
        return Seen(sorted(unique.values(), key=lambda comment: comment.at), seen.etag)

    def look(self, known: Sequence[Known]) -> dict[int, Look]:
        """One question about all of them, and more about those that changed."""
        return github_look.look(self, known, self._now(known), self._clock()) if known else {}

    def log_tail(self, job: int, *, max_bytes: int) -> str:
        answer = self._ask("GET", f"actions/jobs/{int(job)}/logs", accept=(302, 404, 410))
        location = answer.headers.get("Location", "")
        return read_tail(self._api, location, max_bytes=max_bytes) if answer.status == 302 and location else ""

    def merge(
        self,
        number: int,
        *,
        method: MergeMethod,
        head_commit: str,
        title: str,
        decide: Callable[[], str] = lambda: "",
    ) -> str:
        note, body = decide(), {"sha": head_commit, "merge_method": str(method)}
        if title and method is not MergeMethod.REBASE:
            body["commit_title"] = title
            body |= {"commit_message": note} if note else {}
        with self._pull_named(number):
            # GitHub documents all three for a merge that may not be; 409 is for a head that has moved.
            answer = self._ask("PUT", f"pulls/{int(number)}/merge", body=body, accept=(405, 409, 422))
        if answer.status == 200:
            with self._understood():
                return str(answer.data["sha"])
        moved = answer.status == 409
        if not moved:
            now = self.get_pull(number, "").value
            moved = now is not None and now.head_commit != head_commit
            if now and not moved and now.state == "merged" and now.merge_commit:
                return now.merge_commit  # by an earlier call whose answer was lost, or by a person
        raise Conflict(
            self._api.cleaned(f"GitHub does not merge #{number}: {answer.said}"),
            code="PULL_HEAD_MOVED" if moved else "PULL_NOT_MERGEABLE",
            details={"number": number},
        )

    def close_pull(self, number: int) -> RemotePull:
        with self._pull_named(number):
            answer = self._ask("PATCH", f"pulls/{int(number)}", body={"state": "closed"})
        with self._understood():
            return records.pull(answer.data)

    def delete_branch(self, branch: str, *, at: str) -> bool:
        parts = branch.split("/")
        if any(part in ("", ".", "..") for part in parts):
            return False
        ref = "/".join(segment(part) for part in parts)
        found = self._ask("GET", f"git/ref/heads/{ref}", accept=(404, 422))
        if found.status != 200:
            return False
        with self._understood():
            if found.data["object"]["sha"] != at:
                return False
        return self._ask("DELETE", f"git/refs/heads/{ref}", accept=(404, 422)).status == 204

    def scopes(self) -> tuple[str, ...] | None:
        """The scopes of a classic token; None for one that has none to show. Costs no quota."""
        if not self._token:
            return None
        return _scopes(self._api.ask("GET", "/rate_limit", accept=(404,)))  # 404: an enterprise without limits

    def check_access(self) -> str:
        """What keeps the token from opening pull requests here, as a sentence; empty if nothing does."""
        if not self._token:
            return f"there is no token for {self._api.host}"
        try:
            answer = self._api.ask("GET", self._root)
            with self._understood():
                may_push = (answer.data.get("permissions") or {}).get("push")
                private = bool(answer.data.get("private"))
        except ExternalFailure as error:
            missing = error.details.get("status") == 404
            return f"{self.slug} is not there, or the token may not see it" if missing else error.message
        if may_push is False:
            return f"the token's owner may not push to {self.slug}"
        scopes = _scopes(answer)
        needed = {"repo"} if private else _WRITE_SCOPES
        if scopes is not None and not needed & set(scopes):
            return f"the token lacks the scope {' or '.join(sorted(needed))}"
        return ""

    def _now(self, known: Sequence[Known]) -> dict[int, github_look.Now]:
        """Together, if they can be asked for so; whether they can is tried again after many looks."""
        self._tries -= 1
        if self._tries <= 0:
            self._tries, self._together = _TRIES, github_overview.MOST
        try:
            return self._all_together([one.number for one in known]) if self._together else self._one_by_one(known)
        except github_overview.NoOverviewError:
            self._tries, self._together = _TRIES, 0
            return self._one_by_one(known)

    def _all_together(self, numbers: Sequence[int]) -> dict[int, github_look.Now]:
        """As many at once as GitHub answers for: what is too much for it, or for us, is asked for in halves."""
        found: dict[int, github_look.Now] = {}
        asked = 0
        while some := numbers[asked : asked + self._together]:
            try:
                with self._understood():
                    found |= github_overview.ask(self._api, self._owner, self._name, some)
            except github_overview.TooMuchError as error:
                if len(some) == 1:
                    self._together = github_overview.MOST
                    raise error.failure from None
                self._tries, self._together = _TRIES, len(some) // 2
            else:
                asked += len(some)
        return found

    def _one_by_one(self, known: Sequence[Known]) -> dict[int, github_look.Now]:
        """One that is not found is gone only if its repository is there, which GitHub hides by the same answer."""
        found = {}
        missing = False
        for one in known:
            memory = _remembered(one.etags.get("pull", ""))
            etag, before = memory or ("", None)
            try:
                seen = self.get_pull(one.number, etag)
            except NotFound:
                missing = True
                continue
            pull = seen.value or before
            if pull is not None:
                found[one.number] = github_look.Now(pull, memory=_memory(seen.etag, pull))
        if missing:
            self._api.ask("GET", self._root)
        return found

    def _ask(self, verb: str, path: str, **how: Any) -> Answer:
        return self._api.ask(verb, f"{self._root}/{path}", **how)

    def _question(self, path: str, *, key: str = "", **params: str) -> Question:
        return Question(f"{self._root}/{path}", params, key)

    def _find(self, head_branch: str, more: dict[str, str], *, fork: str = "") -> RemotePull | None:
        """The open one of a branch of ours, or of the `fork` of that owner."""
        params = {"state": "open", "head": f"{fork or self._owner}:{head_branch}"} | more
        answer = self._ask("GET", "pulls", params=params)
        with self._understood():
            # GitHub leaves out a filter that it does not understand.
            found = [records.pull(each) for each in answer.data if records.is_own(each) != bool(fork)]
        head = f"{fork}:{head_branch}" if fork else head_branch
        return next((p for p in found if p.head_branch == head and p.state == "open"), None)

    def _not_opened(self, draft: Draft, answer: Answer) -> RemotePull:
        """GitHub tells the reasons of a 422 apart only by its words."""
        said = answer.said.lower()
        if "already exists" in said:
            found = self._find(draft.head_branch, {"base": draft.base_branch}, fork=draft.head_owner)
            found = found or self._listed(draft)
            if found is not None:
                # An earlier opening may have got no further than this, and to ask twice changes nothing.
                self._decorate(found.number, draft)
                return found
        if "no commits between" in said:
            raise Conflict(
                f"{draft.head_branch} has no commit that {draft.base_branch} has not", code="NO_CHANGES"
            )
        if draft.draft and "draft" in said:
            log.warning("%s does not take drafts: %s is opened as ready", self.repository, draft.head_branch)
            return self.open_pull(replace(draft, draft=False))
        hint = f"Check that {draft.head_branch} and {draft.base_branch} have been pushed."
        raise self._api.failure(answer.status, answer.said, hint=hint)

    def _listed(self, draft: Draft) -> RemotePull | None:
        """Found without the owner's name, which is another one after the repository was handed over."""
        branches = (draft.head, draft.base_branch)
        pulls = self.list_pulls("").value or []
        return next((p for p in pulls if (p.head_branch, p.base_branch) == branches), None)

    def _decorate(self, number: int, draft: Draft) -> None:
        if draft.labels:
            self._try("labels", f"issues/{number}/labels", {"labels": list(draft.labels)})
        people = [name for name in draft.reviewers if "/" not in name]
        teams = [name.partition("/")[2] for name in draft.reviewers if "/" in name]
        asked = {"reviewers": people, "team_reviewers": teams}
        if people or teams:
            self._try("reviewers", f"pulls/{number}/requested_reviewers", {k: v for k, v in asked.items() if v})

    def _try(self, what: str, path: str, body: dict[str, list[str]]) -> None:
        try:
            self._ask("POST", path, body=body)
        except SwarmError as error:
            log.warning("%s: a pull request is without its %s: %s", self.repository, what, error.message)

    @contextlib.contextmanager
    def _understood(self) -> Iterator[None]:
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._api.not_understood(type(error).__name__) from None

    @contextlib.contextmanager
    def _pull_named(self, number: int) -> Iterator[None]:
        try:
            yield
        except ExternalFailure as error:
            if error.details.get("status") != 404:
                raise
            raise NotFound(
                f"{self.slug} has no pull request #{number}", code="PULL_NOT_FOUND", hint=error.hint
            ) from None


def api_url_of(host: str) -> str:
    return "https://api.github.com" if host == "github.com" else f"https://{host}/api/v3"


def _memory(etag: str, pull: RemotePull) -> str:
    return json.dumps({"etag": etag, "pull": asdict(pull)}) if etag else ""


def _remembered(memory: str) -> tuple[str, RemotePull] | None:
    try:
        found = json.loads(memory) if memory else {}
        return str(found["etag"]), RemotePull(**found["pull"])
    except (ValueError, TypeError, KeyError):
        return None


def _scopes(answer: Answer) -> tuple[str, ...] | None:
    shown = answer.headers.get("X-OAuth-Scopes")
    return None if shown is None else tuple(scope.strip() for scope in shown.split(",") if scope.strip())
