"""Secrets out of text that is kept: events, the search index and logs. By the name of a field and by its form."""

from __future__ import annotations

import base64
import binascii
import functools
import re

REMOVED = "[removed]"
# Names of fields whose value is a secret, whatever it looks like.
NAME = re.compile(
    r"token|secret|passw|passphrase|(?:_|-|db|pg|user)pass$|(?:api|access|account|private|signing|encryption)[_-]?key"
    r"|authorization|credential|cookie",
    re.IGNORECASE,
)

_SHORTEST = 8
_OUR_LENGTH = 43
# Without one of these, or a long word, there is nothing to look for. They are in lower case, and the beginnings of
# tokens are kept by a character that each such token has.
_BEGINNINGS = {
    "_": (
        "gh",
        "_pat_",
        "npm_",
        "hf_",
        "sk_",
        "rk_",
        "glsa_",
        "glc_",
        "_v1_",
        "dckr_",
        "shp",
        "whsec_",
        "lin_a",
        "rubyg",
        "sntry",
    ),
    "-": ("gl", "sk-", "xox", "xapp-", "pypi-", "gocspx-", "age-secret", "sq0", "pmak-"),
    ".": ("eyj", "ya29.", "hvs.", "hvb.", "sg.", ".slack.com/", ".com/api/webhooks/"),
    "": ("akia", "asia", "aiza", "att3", "ctt3", "dapi", ":aa", "1//0"),
}
_NAMES = (
    *("passw", "passp", "_pass", "-pass", "bpass", "gpass", "rpass", "pwd", "secret", "token", "key", "authoriz"),
    *("credential", "sig=", "signature="),
)
_NO_SECRETS = frozenset({"none", "null", "true", "false", "...", "***", REMOVED})


def text(said: str) -> str:
    """The text with what looks like a secret replaced by `[removed]`; hashes, ids and ordinary words stay."""
    if len(said) < _SHORTEST:
        return said
    lower = said.lower()
    if "private" in lower:
        said = _key_block().sub(REMOVED, said)
    if "://" in lower and "@" in lower:
        said = _address().sub(_in_address, said)
    if _may_be_known(lower):
        said = _known().sub(_without_known, said)
    for name in _NAMES:
        if name in lower:
            said = _without_named(said, lower)
            break
    if "cookie" in lower:
        said = _cookie().sub(rf"\1{REMOVED}", said)
    if "bearer" in lower:
        said = _bearer().sub(lambda m: f"{m[1]}{REMOVED}" if _is_odd(m[2]) else m[0], said)
    if "basic" in lower:
        said = _basic().sub(lambda m: f"{m[1]}{REMOVED}" if _is_pair(m[2]) else m[0], said)
    if len(said) < _OUR_LENGTH:
        return said
    return _ours().sub(lambda m: REMOVED if _is_random(m[0]) else m[0], said)


def _may_be_known(lower: str) -> bool:
    for sign, beginnings in _BEGINNINGS.items():
        if sign in lower:
            for beginning in beginnings:
                if beginning in lower:
                    return True
    return False


def _in_address(found: re.Match[str]) -> str:
    """`user:password@host`, and a token that stands alone before the host; a port and a path stay."""
    name, password = found["name"], found["password"]
    if password is None:
        return REMOVED if _is_odd(found["alone"]) else found["alone"]
    return found[0] if re.match(r"\d{1,5}(?:/|$)", password) and "/" in password else f"{name}:{REMOVED}"


def _without_known(found: re.Match[str]) -> str:
    if found["sk"] is not None and not any(map(str.isdigit, found["sk"])):
        return found[0]
    if found["jwt"] is not None and not re.match(r"[\w-]{11,}\.[\w-]{8}", found["jwt"]):
        return found[0]
    return f"{found['hook'] or ''}{REMOVED}"


def _without_named(said: str, lower: str) -> str:
    if "authoriz" in lower:
        said = _header().sub(lambda m: f"{m[1]}{REMOVED}" if _is_odd(m[2]) else m[0], said)
    if "<" in said:
        said = _element().sub(lambda m: f"{m[1]}{REMOVED}" if _is_inside(m) else m[0], said)
    return _without_assigned(said)


def _is_inside(element: re.Match[str]) -> bool:
    """Whether `<password>x` is an element, and not a word of a usage message."""
    value = element[2].strip()
    return value not in ("", REMOVED) and (element[3] == "</" or (len(value.split()) == 1 and _is_odd(value)))


def _without_assigned(said: str) -> str:
    """Walk from name to name; each search begins where the last value ended, so the work grows with the text."""
    kept, done = [], 0
    lower = said.lower()
    if len(lower) != len(said):
        lower = "".join(one.lower() if len(one.lower()) == 1 else one for one in said)
    found = _assigned().search(lower)
    while found is not None:
        at = found.end()
        while True:
            start, end = _value(said, at)
            if _is_secret(found, said[start:end], quoted=start > at):
                kept += [said[done:start], REMOVED]
                done = end
            at = max(end, at)
            following = _following().match(said, at) if found["list"] else None
            if following is None:
                break
            at = following.end()
        found = _assigned().search(lower, at)
    return "".join([*kept, said[done:]])


def _value(said: str, at: int) -> tuple[int, int]:
    """Where the value that begins here starts and ends, without its quotes."""
    opened = _quote().match(said, at)
    if opened is None:
        bare = _bare().match(said, at)
        end = bare.end() if bare is not None else at
        while end > at and said[end - 1] == ",":
            end -= 1
        return at, end
    depth, mark = len(opened[1]), opened[2]
    start = opened.end()
    for close in _closing(mark[0]).finditer(said, start):
        escapes = len(close[1])
        # A quote inside the value has more backslashes than the one that opened it, or is doubled.
        escaped = escapes > depth and escapes % (2 * depth + 2) != depth
        doubled = len(close[2]) % 2 == 0 if mark == mark[0] else len(close[2]) < len(mark)
        if not escaped and not doubled:
            return start, close.start(2) - min(depth, escapes)
    return start, len(said)


def _is_secret(found: re.Match[str], value: str, *, quoted: bool) -> bool:
    """`password=x` always; `password: x` only when x is quoted or no plain word. Counts of tokens stay."""
    name, bare = found["name"], value.rstrip(".)]}")
    if not value or value.lower() in _NO_SECRETS or bare.lower() in _NO_SECRETS:
        return False
    if name.startswith("token") and bare.isdigit():
        return False
    if name.startswith(("private", "ssh")) and re.match(r"(?:~|\.{0,2})/", value):
        return False  # the path of a key
    return quoted or found["sign"][0] not in ":-!" or found["sign"] == ":=" or _is_odd(value)


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


# The patterns are compiled when the first text needs them: many commands keep none. Each consumes what it has
# scanned, or bounds the scan, so that no text makes it look at the same place again and again.


@functools.cache
def _key_block() -> re.Pattern[str]:
    return re.compile(
        r"-----BEGIN\s[A-Z ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END\s[A-Z ]*PRIVATE KEY(?: BLOCK)?-----|\Z)",
        re.DOTALL,
    )


@functools.cache
def _address() -> re.Pattern[str]:
    # A quote belongs to the password unless what follows it says that it ends a string.
    return re.compile(
        r"(?<=://)(?:(?P<name>[^\s/:@\"'<>]*+):(?P<password>(?:[^\s\"'<>]|[\"'](?=[^\s,:;+)\]}\"'<>])){1,200})(?=@[\w.-])"
        r"|(?P<alone>[^\s/:@\"'<>]{16,}+)(?=@[\w.-]))"
    )


@functools.cache
def _known() -> re.Pattern[str]:
    """Tokens that say by their beginning what they are."""
    return re.compile(
        r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{10,}|github_pat_\w{10,}"
        r"|gl(?:pat|rt|dt|ft|soat|imt|agent|cbt|ptt|oas|ffct)-[\w-]{16,}|glsa_\w{32,}|glc_[A-Za-z0-9+/=]{32,}"
        r"|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{16,}|rubygems_[0-9a-f]{40,}|hf_[A-Za-z0-9]{20,}"
        r"|(?P<sk>sk-[\w-]{16,})|[rs]k_(?:live|test)_\w{10,}|whsec_[A-Za-z0-9+/=]{20,}|sq0[a-z]{3}-[\w-]{20,}"
        r"|(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])|AIza[\w-]{30,}|ya29\.[\w.-]{16,}|1//0[\w-]{30,}|GOCSPX-[\w-]{16,}"
        r"|xox[a-z]-[\w-]{10,}|xapp-[\w-]{10,}|do[opr]_v1_[0-9a-f]{20,}|dapi[0-9a-f]{32}|dckr_[op]at_[\w-]{16,}"
        r"|hv[bs]\.[\w-]{20,}|shp(?:at|ca|pa|ss)_[0-9A-Fa-f]{32}|SG\.[\w-]{16,64}\.[\w-]{16,}|lin_api_\w{20,}"
        r"|AGE-SECRET-KEY-1[0-9A-Z]{30,}|AT[AC]TT3[\w=-]{20,}|PMAK-[0-9a-f]{24}-[0-9a-f]{20,}"
        r"|sntrys_[\w+/=-]{20,}|sntryu_[0-9a-f]{40,}|\d{8,10}:AA[\w-]{32,}"
        r"|(?P<hook>(?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks)/)[\w/-]{20,}"
        r"|(?P<jwt>eyJ[\w-]{8,}(?:\.[\w-]*){0,2}))"
    )


_ESCAPED = r"\\{0,15}[\"']"
# Each begins with a letter, which is what the search skips to.
_NAMED = (
    r"pass(?:words?|wd|phrases?|(?<=[_-]pass)|(?<=dbpass)|(?<=pgpass)|(?<=userpass))|pwd|secrets?|tokens?|credentials?"
    r"|authorization|(?:api|access|account|private|secret|signing|encryption|master|auth|deploy|ssh)[_-]?keys?"
    r"|sig(?:nature)?(?:(?<=[?&]sig)|(?<=[?&]signature))|x-(?:amz|goog)-signature"
)


@functools.cache
def _assigned() -> re.Pattern[str]:
    """From the name to where its value begins, in lower case."""
    return re.compile(
        rf"(?P<name>{_NAMED})(?:{_ESCAPED}|%22|%27)?\s*+(?P<sign>!?={{1,3}}>?|:=|->|:|%3[ad])\s*+"
        rf"(?:[|>][+-]?[ \t]*+\n\s*+)?(?P<list>\[(?!removed\])\s*+|\((?={_ESCAPED}))?"
        r"(?:(?:bearer|basic|token|apikey)\s++)?"
    )


@functools.cache
def _bare() -> re.Pattern[str]:
    return re.compile(r"(?:[^\s\"';&]|[\"'](?=\w))++")


@functools.cache
def _quote() -> re.Pattern[str]:
    return re.compile(r"(\\{0,15})(\"{3}|'{3}|\"\"(?=\w)|''(?=\w)|[\"'])")


@functools.cache
def _closing(mark: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\\)(\\*+)({mark}+)")


@functools.cache
def _following() -> re.Pattern[str]:
    """What is between two items of a list."""
    return re.compile(rf"(?:{_ESCAPED}){{0,3}}\s*+,\s*+(?=[^\s\])}}])")


@functools.cache
def _header() -> re.Pattern[str]:
    one = rf"(?:[\w-]++=)?+(?:{_ESCAPED}[^\"'\\\r\n]*+{_ESCAPED}|[^\s,\"'\\]++)"
    return re.compile(
        rf"(authorization(?:{_ESCAPED})?\s*+[:=]\s*+(?:{_ESCAPED})?"
        r"(?:digest|hawk|oauth|mac|signature|negotiate|ntlm|[\w-]{0,20}(?:hmac|sha)[\w-]{0,20})\s++)"
        rf"({one}(?:\s*+,\s*+{one})*+)",
        re.IGNORECASE,
    )


@functools.cache
def _element() -> re.Pattern[str]:
    return re.compile(
        rf"(<[\w.:-]{{0,40}}(?:{_NAMED})[\w.:-]{{0,40}}(?:\s[^<>]*+)?>(?:<!\[CDATA\[)?)([^<]++)(?=(</?|\Z))",
        re.IGNORECASE,
    )


@functools.cache
def _cookie() -> re.Pattern[str]:
    """Both headers, to the end of the line or of the string; prose has no `name=` behind the colon."""
    return re.compile(
        rf"(cookie2?(?:{_ESCAPED})?\s*+:\s*+(?:{_ESCAPED})?)[\w!#$%&*+.^`|~-]++="
        rf"(?:[^\r\n\"'\\]|(?<==){_ESCAPED}|{_ESCAPED}(?=;))*+",
        re.IGNORECASE,
    )


@functools.cache
def _bearer() -> re.Pattern[str]:
    return re.compile(r"\b(bearer\s++)([\w.~+/=-]{6,})", re.IGNORECASE)


@functools.cache
def _basic() -> re.Pattern[str]:
    return re.compile(r"\b(basic\s++)([A-Za-z0-9+/]{6,}={0,2})", re.IGNORECASE)


@functools.cache
def _ours() -> re.Pattern[str]:
    """256 bits in base64url. A fingerprint of SSH has the same length and says what it is."""
    return re.compile(r"(?<![\w/+-])(?<!SHA256:)[\w-]{43}(?![\w/+=-])", re.ASCII)
