"""Tokens that a person hands out: of named automations, of the operator, and a new one for a live instance."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from swarm_core import files, ids
from swarm_core.errors import Conflict, ExternalFailure, InvalidInput, NotFound
from swarm_core.models import Instance, Principal, PrincipalKind, Wanted
from swarm_core.ops.context import Context
from swarm_core.store import events, instances, tokens
from swarm_core.store.tokens import OPERATOR, SCOPES, TokenRow

_NAME = re.compile(r"[a-z0-9._-]{1,64}")
_FILE_MAX = 1024
MISSING = "it is missing"

Find = Callable[[str], Instance]


@dataclass(frozen=True, slots=True)
class Issued:
    """A new token. Nobody can read it again later, and the record's own text leaves it out."""

    kind: str
    name: str
    token: str = field(repr=False)


def listed(context: Context, *, include_revoked: bool) -> list[TokenRow]:
    return tokens.listed(context.db, include_revoked=include_revoked)


def create(context: Context, name: str, scopes: Sequence[str]) -> Issued:
    """A token for a named automation; a name that has one is a Conflict."""
    _check_name(name)
    _check_scopes(scopes)
    with context.db.write():
        if tokens.automation_scopes(context.db, name) is not None:
            raise Conflict(f"{name} has a token already", hint=f"`swarm token rotate {name}` replaces it")
        token = tokens.issue_automation(context.db, name, set(scopes))
    return Issued(PrincipalKind.AUTOMATION, name, token)


def rotate(context: Context, name: str, find: Find) -> Issued:
    """A new token in place of the one the operator, an automation or an instance has; that one ends at once."""
    if name == OPERATOR:
        with context.db.write():
            token = _renew_operator(context)
        return Issued(PrincipalKind.OPERATOR, OPERATOR, token)
    with context.db.write():
        scopes = tokens.automation_scopes(context.db, name)
        if scopes is not None:
            return Issued(PrincipalKind.AUTOMATION, name, tokens.issue_automation(context.db, name, scopes))
    return _rotate_instance(context, _instance(find, name).id)


def revoke(context: Context, name: str, find: Find) -> Principal:
    """End the token of an automation or an instance."""
    if name == OPERATOR:
        raise InvalidInput(
            "the operator's token can be replaced but not taken away",
            hint="`swarm token rotate operator` replaces it",
        )
    db = context.db
    with db.write():
        if tokens.revoke_automation(db, name):
            return Principal(PrincipalKind.AUTOMATION, name)
    instance = _instance(find, name)
    with db.write():
        if not tokens.has_valid(db, PrincipalKind.INSTANCE, instance.id):
            raise _unknown(instance.id)
        tokens.revoke(db, instance.id)
        _tell(context, "token:revoked", instance.id)
    return Principal(PrincipalKind.INSTANCE, instance.id)


def ensure_operator(context: Context) -> Path:
    """Make sure that the operator's file is private and its token valid, with a new token where it is not."""
    if operator_problem(context) is not None:
        with context.db.write():
            # Another process may have been quicker.
            if operator_problem(context) is not None:
                _renew_operator(context)
    return context.settings.operator_token


def operator_problem(context: Context) -> str | None:
    """Why the operator's file cannot be trusted or used; None when all is well."""
    try:
        fd = os.open(context.settings.operator_token, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return MISSING
    except OSError as error:
        return "it is a symbolic link" if error.errno == errno.ELOOP else f"it cannot be read: {error.strerror}"
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            return "it is not a file"
        if facts.st_uid != os.geteuid():
            return "it belongs to another user"
        if facts.st_mode & 0o077:
            return f"it is open to others (mode {stat.S_IMODE(facts.st_mode):o})"
        text = os.read(fd, _FILE_MAX).decode("ascii", errors="replace").strip()
    finally:
        os.close(fd)
    found = tokens.lookup(context.db, text)
    valid = found.principal is not None and found.principal.kind == PrincipalKind.OPERATOR
    return None if valid else f"its token is not valid: {found.reason or 'it is not the operator'}"


def _rotate_instance(context: Context, instance_id: str) -> Issued:
    with context.lock(instance_id), context.db.write():
        instance = instances.get(context.db, instance_id)
        if instance.ended or instance.cleaned or instance.wanted != Wanted.RUNNING:
            raise Conflict(
                f"{instance_id} has ended, and only a live agent has a token",
                hint=f"`swarm restart {instance_id}` starts it with a new one",
            )
        token = tokens.issue(context.db, instance_id, instance.epoch)
        _tell(context, "token:revoked", instance_id)
        _tell(context, "token:issued", instance_id)
    return Issued(PrincipalKind.INSTANCE, instance_id, token)


def _renew_operator(context: Context) -> str:
    """Inside the caller's transaction, which the failure to write the file undoes."""
    token = tokens.issue_operator(context.db)
    path = context.settings.operator_token
    try:
        files.write_private(path, f"{token}\n".encode(), synced=True)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise ExternalFailure(
            f"cannot write {path}: {error.strerror}",
            code="DISK_FULL" if full else None,
            hint="free space, then try again" if full else "move away what is there, or check its folder",
        ) from error
    return token


def _instance(find: Find, name: str) -> Instance:
    try:
        return find(name)
    except NotFound:
        raise _unknown(name) from None


def _unknown(name: str) -> NotFound:
    # A token that somebody gave in place of a name must not come back in a message.
    shown = name if _NAME.fullmatch(name) or ids.is_id(name) else "this name"
    return NotFound(
        f"no valid token belongs to {shown}", code="TOKEN_NOT_FOUND", hint="`swarm token list --all` shows all"
    )


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or name == OPERATOR or ids.is_id(name):
        raise InvalidInput(
            "an automation cannot have this name",
            hint=f"1 to 64 of a-z, 0-9, dot, underscore and dash; not {OPERATOR} and not like an instance id",
        )


def _check_scopes(scopes: Sequence[str]) -> None:
    known = ", ".join(SCOPES)
    if not scopes:
        raise InvalidInput("a token needs at least one scope", hint=f"scopes: {known}")
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown:
        raise InvalidInput(f"there is no scope {unknown[0][:80]!r}", hint=f"scopes: {known}")


def _tell(context: Context, name: str, instance_id: str) -> None:
    known = {"kind": str(PrincipalKind.INSTANCE), "name": instance_id}
    events.add(context.db, name, instance_id=instance_id, actor=OPERATOR, metadata=known)
