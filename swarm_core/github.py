"""GitHub as a forge, through PyGithub; every failure is an ExternalFailure that never carries the token."""

from __future__ import annotations

import requests
from github import Auth, Github, GithubException

from swarm_core.errors import ExternalFailure
from swarm_core.forge import Issue

TIMEOUT_S = 10


class GitHubForge:
    name = "github"

    def __init__(
        self,
        host: str,
        owner: str,
        name: str,
        *,
        token: str | None,
        api_url: str | None,
        timeout_s: int = TIMEOUT_S,
    ) -> None:
        self.slug: str | None = f"{owner}/{name}"
        self._host = host
        self._token = token
        self._github = Github(
            base_url=api_url or api_url_of(host),
            auth=Auth.Token(token) if token else None,
            timeout=timeout_s,
            retry=None,
            seconds_between_requests=None,
            seconds_between_writes=None,
            user_agent="swarm",
        )

    def get_issue(self, number: int) -> Issue | None:
        """The issue, None if there is none or it may not be seen: GitHub does not tell these apart."""
        if number < 1:
            return None
        try:
            # One request; the object API would read the repository first.
            _, found = self._github.requester.requestJsonAndCheck("GET", f"/repos/{self.slug}/issues/{number}")
            return Issue(int(found["number"]), str(found["title"]), found["body"] or "", str(found["html_url"]))
        except GithubException as error:
            if error.status in (404, 410):
                return None
            raise self._failure(error.status, _said(error)) from None
        except requests.Timeout:
            raise self._failure(None, "it did not answer in time") from None
        except requests.RequestException as error:
            raise self._failure(None, f"it cannot be reached ({type(error).__name__})") from None
        except (
            RuntimeError,
            ValueError,
            AssertionError,
        ) as error:  # PyGithub's own: a redirect, a reply that is no JSON
            raise self._failure(None, f"its answer was not understood: {error}") from None

    def _failure(self, status: int | None, said: str) -> ExternalFailure:
        message = f"GitHub ({self._host}): {f'HTTP {status}: ' if status else ''}{said}"
        if self._token:
            message = message.replace(self._token, "***")
        return ExternalFailure(
            message, code="GITHUB_ERROR", hint=_hint(status), details={"host": self._host, "status": status}
        )


def api_url_of(host: str) -> str:
    return "https://api.github.com" if host == "github.com" else f"https://{host}/api/v3"


def _said(error: GithubException) -> str:
    message = error.data.get("message") if isinstance(error.data, dict) else None
    return str(message or "no message")[:300]


def _hint(status: int | None) -> str:
    if status == 401:
        return "The token is not valid there; renew it or unset it."
    if status in (403, 429):
        return "The token may not read this repository, or too many requests were made; wait or use another token."
    if status is not None and status >= 500:
        return "GitHub has a problem; try again later."
    return "Check the network, the proxy and the host name, then try again."
