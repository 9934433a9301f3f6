"""A message as the agent reads it: a header that names it, so that its receipt can be found, then the text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from swarm_core.models import Message
from swarm_core.tmux.text import clean

MESSAGE_MAX = 100 * 1024
_HEADER = re.compile(r"\[swarm msg ([0-9a-f]{12}) ")


def write(message: Message, *, longest: int = MESSAGE_MAX) -> str:
    """The message with its header. What cannot be handed over as it is, is named by its document.

    The header comes first because a prompt that begins with `!`, `/` or `#` is a command to some programs.
    """
    body = clean(message.body)
    about = f" exact text: {message.document}" if message.document and body != message.body else ""
    if len(body.encode()) > longest:
        body = f"This message is too long to be handed over here. Read it in the file {message.document}"
        about = ""
    return f"[swarm msg {message.id} from {message.sender}{about}]\n{body}"


def join(found: Sequence[Message], *, longest: int) -> tuple[str, list[Message]]:
    """As many messages as fit, at least one, as one text; and which they are."""
    texts: list[str] = []
    taken: list[Message] = []
    for message in found:
        text = write(message)
        if taken and len("\n\n".join([*texts, text]).encode()) > longest:
            break
        texts.append(text)
        taken.append(message)
    return "\n\n".join(texts), taken


def named_in(text: str) -> list[str]:
    """Ids of the messages a text carries."""
    return list(dict.fromkeys(_HEADER.findall(text)))
