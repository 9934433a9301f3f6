"""Secrets out of text that is kept: events, the search index and logs. By the name of a field and by its form."""

from __future__ import annotations

import base64
import binascii
import functools
import re

REMOVED = "[removed]"
# Names of fields whose value is a secret, whatever it looks like.
NAME = re.compile(r"token|secret|password|api_?key|authorization", re.IGNORECASE)

_SHORTEST = 8
_OUR_LENGTH = 43
# Without one of these, or a long word, there is nothing to look for.
_SIGNS = (
    *("gh", "github_pat_", "gl", "npm_", "sk-", "sk_", "rk_", "akia", "asia", "aiza", "xox", "xapp-", "eyj"),
    *("hf_", "pypi-", "dop_v1_", "hooks.slack.com", "bearer", "basic", "private key", "@"),
    *("passw", "passp", "pwd", "secret", "token", "key", "authorization", "credential"),
)
_NO_SECRETS = frozenset({"none", "null", "true", "false", "...", "***", REMOVED})


def text(said: str) -> str:
    """The text with what looks like a secret replaced by `[removed]`; hashes, ids and ordinary words stay."""
    if len(said) < _SHORTEST:
        return said
    lower = said.lower()
    if any(sign in lower for sign in _SIGNS):
        key_block, in_address, known, assigned, bearer, basic, _ = _patterns()
        said = key_block.sub(REMOVED, said)
        said = in_address.sub(_in_address, said)
        said = known.sub(REMOVED, said)
        said = assigned.sub(_assigned, said)
        said = bearer.sub(lambda m: f"{m[1]}{m[2]}{REMOVED}" if _is_odd(m[3]) else m[0], said)
        said = basic.sub(lambda m: f"{m[1]}{m[2]}{REMOVED}" if _is_pair(m[3]) else m[0], said)
    if len(said) < _OUR_LENGTH:
        return said
    return _patterns()[-1].sub(lambda m: REMOVED if _is_random(m[0]) else m[0], said)


def _in_address(found: re.Match[str]) -> str:
    """`user:password@host`, and a token that stands alone before the host; a port and a path stay."""
    name, password = found["name"], found["password"]
    if password is None:
        return REMOVED if _is_odd(found["alone"]) else found["alone"]
    return found[0] if re.match(r"\d{1,5}(?:/|$)", password) and "/" in password else f"{name}:{REMOVED}"


def _assigned(found: re.Match[str]) -> str:
    """`password=x` always; `password: x` only when x is quoted or no plain word. Counts of tokens stay."""
    group = "bare" if found["quoted"] is None else "quoted"
    value = found[group].rstrip(",")
    plain = value.lower().rstrip(".)]}") in _NO_SECRETS
    counted = found[1].lower().startswith("token") and value.rstrip(".)]}").isdigit()
    sure = found["sign"] != ":" or group == "quoted" or _is_odd(value)
    if plain or counted or not sure or not value:
        return found[0]
    start = found.start(group) - found.start()
    return f"{found[0][:start]}{REMOVED}{found[0][start + len(value) :]}"


def _is_odd(word: str) -> bool:
    """Whether it is no plain word: it has a digit, a sign or a capital in the middle, or is very long."""
    bare = word.strip(".,:;!?()[]{}")
    return len(bare) >= 20 or not bare.isalpha() or not (bare.islower() or bare[1:].islower() or bare.isupper())


def _is_pair(word: str) -> bool:
    """Whether it is a name and a password in base64."""
    try:
        return b":" in base64.b64decode(word + "=" * (-len(word) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False


def _is_random(word: str) -> bool:
    upper, lower = sum(map(str.isupper, word)), sum(map(str.islower, word))
    return upper >= 6 and lower >= 6 and any(map(str.isdigit, word))


@functools.cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    """Compiled when the first text needs them: many commands keep none."""
    return (
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|\Z)",
            re.DOTALL,
        ),
        re.compile(
            r"(?<=://)(?:(?P<name>[^\s/:@\"'<>]*):(?P<password>[^\s\"'<>]{1,200})(?=@[\w.-])"
            r"|(?P<alone>[^\s/:@\"'<>]{16,})(?=@[\w.-]))"
        ),
        # Tokens that say by their beginning what they are.
        re.compile(
            r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{10,}|github_pat_\w{10,}|gl(?:pat|rt|dt|ft|soat|imt|agent|cbt|ptt|oas)-[\w-]{16,}"
            r"|hf_[A-Za-z0-9]{20,}|pypi-[\w-]{16,}|xapp-[\w-]{10,}|dop_v1_[0-9a-f]{20,}"
            r"|(?<=hooks\.slack\.com/services/)[\w/]{20,}"
            r"|npm_[A-Za-z0-9]{30,}|sk-(?=[\w-]*[0-9])[\w-]{16,}|[rs]k_(?:live|test)_\w{10,}"
            r"|(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])|AIza[\w-]{30,}|xox[a-z]-[\w-]{10,}"
            r"|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?)"
        ),
        re.compile(
            r"((?:passwords?|passwd|passphrases?|pwd|secrets?|tokens?|(?:api|access|account)[_-]?keys?|credentials?"
            r"|authorization)\\?[\"']?\s*(?P<sign>:=|=>|=|:)\s*\[?\s*(?:(?:bearer|basic|token|apikey)\s+)?)"
            r"(?:\\?[\"'](?P<quoted>[^\"'\\]*)|(?P<bare>[^\s\"';&]+))",
            re.IGNORECASE,
        ),
        re.compile(r"\b(bearer)(\s+)([\w.~+/=-]{6,})", re.IGNORECASE),
        re.compile(r"\b(basic)(\s+)([A-Za-z0-9+/]{6,}={0,2})", re.IGNORECASE),
        # Our own: 256 bits in base64url. A fingerprint of SSH has the same length and says what it is.
        re.compile(r"(?<![\w/+-])(?<!SHA256:)[\w-]{43}(?![\w/+=-])", re.ASCII),
    )
