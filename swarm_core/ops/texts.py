"""What text is accepted from people and agents, before it is stored anywhere."""

from __future__ import annotations

from swarm_core.errors import InvalidInput


def is_blank(text: str) -> bool:
    """Whether nobody could see anything in it: spaces, control characters, characters without a width."""
    return not any(one.isprintable() and not one.isspace() for one in text)


def check(text: str, what: str, *, max_bytes: int, empty: bool = False, one_line: bool = False) -> None:
    """Raise InvalidInput for text that no file or table could hold or nobody could read."""
    if not empty and is_blank(text):
        raise InvalidInput(f"{what} needs text")
    if "\0" in text:
        raise InvalidInput(f"{what} cannot contain a NUL character", hint="remove the character and try again")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidInput(
            f"{what} must be valid Unicode: it has half a character", hint="remove the character and try again"
        ) from None
    if size > max_bytes:
        raise InvalidInput(
            f"{what} has {size} bytes and no more than {max_bytes} are accepted", hint="shorten it or split it up"
        )
    if one_line and not text.isprintable():
        raise InvalidInput(f"{what} is one line without control characters")


def cut(text: str, longest: int) -> str:
    text = text.strip()
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters)"


def quote(text: str) -> str:
    """Somebody else's words, each line marked as such, so that none can pass for ours."""
    return "\n".join(f"> {line}" for line in text.strip().splitlines())


def storable(text: str) -> str:
    """What came from outside, without what no table or file can hold."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
