"""Whether all that is on a branch was merged with its pull request, squashed or not; asked where it was merged."""

from __future__ import annotations

import logging

from swarm_core.errors import ExternalFailure, InvalidInput
from swarm_core.forge import Known
from swarm_core.models import Instance, Pull, PullState, parse_iso
from swarm_core.ops import forges, pull_look
from swarm_core.ops.context import Context, place
from swarm_core.store import pulls

REF = "refs/swarm/merged/"
_FRESH = 3600.0

log = logging.getLogger(__name__)


def merged_pull(context: Context, instance: Instance) -> Pull | None:
    """The newest pull request of the instance's branch, if it was merged."""
    pull = pulls.newest_of(context.db, instance.repo_path, instance.branch)
    return pull if pull is not None and pull.state == PullState.MERGED else None


def merged_tip(context: Context, instance: Instance, *, person: bool = True) -> str | None:
    """The commit the branch is at, if exactly that was merged; None when it was not or has moved on since."""
    pull = merged_pull(context, instance)
    tip = context.host(instance).branch_tip(place(instance)) if pull is not None else None
    if pull is None or tip is None or tip != pull.head_commit:
        return None
    proven = _at_forge(context, pull, person) if pull.repository else _in_git(context, instance, pull)
    return tip if proven else None


def _in_git(context: Context, instance: Instance, pull: Pull) -> bool:
    """A base branch that was put back since has it no longer."""
    host = context.host(instance)
    commit = pull.merge_commit
    if commit is not None and host.has_commit(pull.repo_path, pull.base_branch, commit):
        return True
    return host.is_merged(pull.repo_path, pull.head_commit, pull.base_branch)


def _at_forge(context: Context, pull: Pull, person: bool) -> bool:
    """GitHub itself has said so; when that is long ago it is asked again, if it answers."""
    age = parse_iso(context.db.now()) - parse_iso(pull.looked_at or pull.created_at)
    if pull.looked_at is not None and age.total_seconds() <= _FRESH:
        return True
    known = Known(pull.number, pull.head_branch, pull.head_commit, pull.base_branch)
    try:
        look = forges.at(context, pull.repository, person=person).look([known]).get(pull.number)
    except (ExternalFailure, InvalidInput) as error:
        log.info("#%d of %s is taken as merged: %s", pull.number, pull.repository, error.message)
        return True
    if look is not None:
        pull_look.take_in(context, pull, look)
    return look is not None and (look.pull.state, look.pull.head_commit) == (PullState.MERGED, pull.head_commit)
