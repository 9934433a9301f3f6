"""The grammar of instance ids and what is derived from one: branch, session, worktree folder."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from swarm_core.errors import InvalidInput

_GRAMMAR = re.compile(r"(work|review|fork|adhoc)(?:-([1-9]\d{0,8}))?-a([1-9]\d{0,5})(?:-r([2-9]|[1-9]\d+))?")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.]+")


@dataclass(frozen=True, slots=True)
class InstanceId:
    kind: str
    issue: int | None
    number: int
    round: int = 1

    def __str__(self) -> str:
        issue = f"-{self.issue}" if self.issue is not None else ""
        round_ = f"-r{self.round}" if self.round > 1 else ""
        return f"{self.kind}{issue}-a{self.number}{round_}"


def parse(text: str) -> InstanceId:
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        raise InvalidInput(
            f"{text[:80]!r} is not an instance id",
            code="INVALID_INSTANCE_ID",
            hint="ids look like work-123-a1, fork-a2 or review-123-a1-r2; `swarm ls` lists them",
        )
    kind, issue, number, round_ = match.groups()
    return InstanceId(kind, int(issue) if issue else None, int(number), int(round_ or 1))


def is_id(text: str) -> bool:
    return _GRAMMAR.fullmatch(text) is not None


def branch(instance_id: str) -> str:
    return f"{parse(instance_id).kind}/{instance_id}"


def repo_folder(repo_path: str) -> str:
    """A folder name for a repository, readable and distinct for two of the same name."""
    name = _UNSAFE.sub("-", Path(repo_path).name).strip("-.")[:40] or "repo"
    return f"{name}-{hashlib.sha256(repo_path.encode(errors='surrogateescape')).hexdigest()[:8]}"
