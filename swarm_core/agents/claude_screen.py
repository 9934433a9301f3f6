"""What Claude Code's screen means: pure functions of its text, tested on captured screens."""

from __future__ import annotations

import re
from dataclasses import dataclass

from swarm_core.agents.base import Dialog, Reading, last_lines

_LOOKED_AT = 60
_CHOSEN = re.compile(r"\s*❯\s*(\d+)\.\s")
_OPTION = re.compile(r"\s*❯?\s*(\d+)\.\s+(.*)")
_INPUT = re.compile(r"\s*❯(?!\s*\d+\.\s)")
_BORDER = re.compile(r"─{20,}\s*")  # a line inside a command is indented
_RULE = re.compile(r"\s*[╌┄]{20,}\s*")
_COMMAND = re.compile(r"[│\s]*❯\s*[!/#]")  # what a person has begun would take a message for its rest
_HINT = re.compile(r"Esc to|Enter to|ctrl\+|Tab to|shift\+tab")
_KINDS = (
    (re.compile(r"\s*Do you want to (use this API key)"), "api key"),
    (re.compile(r"\s*Do you want to \w+"), "permission"),
    (re.compile(r"trust (the files in )?this folder|one you trust", re.IGNORECASE), "trust"),
    (re.compile(r"Bypass Permissions mode", re.IGNORECASE), "bypass warning"),
    (re.compile(r"plan mode|written up a plan", re.IGNORECASE), "plan"),
    (re.compile(r"\s*Select login method"), "login"),
    (re.compile(r"\s*MCP server .+ requests your input"), "elicitation"),
)
_ELICITATION = re.compile(r"\s*MCP server .+ requests your input")
_ERRORS = (
    (re.compile(r"^● API Error: .*(\(429\)|429|rate.limit)", re.IGNORECASE), "rate limited"),
    (re.compile(r"^● API Error: 529"), "overloaded"),
    (re.compile(r"Credit balance (is )?too low|^● API Error: 402", re.IGNORECASE), "out of credit"),
    (re.compile(r"Prompt is too long"), "context full"),
    (re.compile(r"Please run /login|Invalid API key"), "login needed"),
    (re.compile(r"^● There's an issue with the selected model"), "model not available"),
    (re.compile(r"^● API Error"), "api error"),
)
_FAILURES = {
    "rate_limit": "rate limited",
    "billing_error": "out of credit",
    "authentication_failed": "login needed",
    "model_not_found": "model not available",
}


@dataclass(frozen=True, slots=True)
class _Choices:
    """Where the choices of a dialog stand, and what they are."""

    first: int
    options: tuple[tuple[str, str], ...]


def read(text: str) -> Reading | None:
    """What the program does, as far as its screen tells."""
    lines = last_lines(text, 24)
    asked = dialog(text)
    if asked is not None:
        return Reading("blocked", asked.kind)
    # The footer is below the answer; an answer that quotes it further up is not the footer.
    if any("esc to interrupt" in line for line in lines[-4:]):
        return Reading("busy", "retrying" if re.search(r"· Retrying in \d+s", "\n".join(lines)) else "")
    if not any(_is_input(line) for line in lines[-6:]) or any(_COMMAND.match(line) for line in lines[-6:]):
        return None
    return Reading("idle", _error_shown(lines))


def dialog(text: str) -> Dialog | None:
    """The question at the bottom of the screen. Whatever looks like one is one: nothing may be typed into it."""
    lines = [_unframed(line) for line in text.rstrip().splitlines()][-_LOOKED_AT:]
    found = _choices(lines)
    if found is None:
        form = next((n for n, line in enumerate(lines) if _ELICITATION.match(line)), None)
        return None if form is None else Dialog("\n".join(lines[form:]).strip(), kind="elicitation")
    above = lines[: found.first]
    border = max((n for n, line in enumerate(above) if _BORDER.fullmatch(line)), default=-1)
    asked = "\n".join(line.strip() for line in above[border + 1 :] if not _RULE.fullmatch(line)).strip()
    kind = next((kind for pattern, kind in _KINDS if pattern.search(asked)), "question")
    keys = tuple(number for number, _ in found.options)
    return Dialog(asked, tuple(label for _, label in found.options), keys, kind)


def failure(said: str, kind: str) -> str:
    """What a turn failed of, in the words of a screen: `said` is what stands on it, `kind` the hook's own word."""
    shown = _error_shown([f"● {line}" for line in said.splitlines()[:1]])
    return shown or f"error: {_FAILURES.get(kind, 'api error')}"


def _choices(lines: list[str]) -> _Choices | None:
    """The numbered choices around the chosen one; None when an input line stands below it."""
    chosen = next((n for n in range(len(lines) - 1, -1, -1) if _CHOSEN.match(lines[n])), None)
    if chosen is None or any(_INPUT.match(line) for line in lines[chosen + 1 :]):
        return None
    match = _CHOSEN.match(lines[chosen])
    assert match is not None
    first, number = chosen, int(match[1])
    for n in range(chosen - 1, -1, -1):  # what is chosen need not be the first
        option = _OPTION.match(lines[n])
        if number == 1 or _BORDER.fullmatch(lines[n]):
            break
        if option and int(option[1]) == number - 1:
            first, number = n, number - 1
    options: list[tuple[str, str]] = []
    for line in lines[first:]:
        option = _OPTION.match(line)
        if option and int(option[1]) == len(options) + 1:
            options.append((option[1], option[2].strip()))
        elif options and line.strip() and not _BORDER.fullmatch(line) and not _HINT.search(line):
            options[-1] = (options[-1][0], f"{options[-1][1]} · {line.strip()}")
    return _Choices(first, tuple(options))


def _unframed(line: str) -> str:
    return re.sub(r"\s*│\s*$", "", re.sub(r"^\s*│\s?", "", line)).rstrip()


def _is_input(line: str) -> bool:
    return line.lstrip("│ ").startswith("❯") or "? for shortcuts" in line or line.startswith("⏵⏵")


def _error_shown(lines: list[str]) -> str:
    """The error of the last answer, if it was one: nothing but its own turn line follows it."""
    for line in reversed(lines):
        for pattern, kind in _ERRORS:
            if pattern.search(line):
                return f"error: {kind}"
        if line.startswith("●"):
            return ""
    return ""
