"""Posting a message: it is checked, written down with its document, and delivered when the agent can take it."""

from __future__ import annotations

import contextlib
from datetime import timedelta

from swarm_core.errors import Conflict
from swarm_core.models import Instance, Message
from swarm_core.ops import envelopes, texts
from swarm_core.ops.context import Context
from swarm_core.store import messages
from swarm_core.tmux.text import clean

BODY_MAX = 1 << 20


def post(context: Context, instance: Instance, body: str, *, sender: str) -> Message:
    """Record a message; it is kept from now on, whatever happens to the agent.

    A file holds the exact text of what cannot be typed: control characters, or more than a terminal takes.
    """
    texts.check(body, "a message", max_bytes=BODY_MAX)
    if instance.cleaned:
        raise Conflict(f"{instance.id} was cleaned", hint=f"`swarm restore {instance.id}` brings it back")
    message_id, path = messages.new_id(), None
    with contextlib.ExitStack() as undo:
        if clean(body) != body or len(body.encode()) > envelopes.MESSAGE_MAX:
            name = f"messages/{message_id}.md"
            undo.callback(context.host(instance).remove_file, instance.id, name)
            path = context.host(instance).write_file(instance.id, name, body)
        with context.db.write():
            message = messages.accept(
                context.db,
                instance.id,
                sender=sender,
                body=body,
                document=path,
                expires_after=expiry(context),
                message_id=message_id,
            )
        undo.pop_all()
    return message


def expiry(context: Context) -> timedelta:
    return timedelta(hours=context.settings.number("message_hours"))
