"""What Claude Code's screen means: pure functions of its text, tested on captured screens."""

from __future__ import annotations

import re
from dataclasses import dataclass

from swarm_core.agents.base import Dialog, Reading, last_lines

_LOOKED_AT = 60
_CHOSEN = r"\s*❯\s*(\d+)\.\s"
_OPTION = r"\s*❯?\s*(\d+)\.\s+(.*)"
_INPUT = r"\s*❯(?!\s*\d+\.\s)"
_BORDER = r"─{20,}\s*"  # a line inside a command is indented
_RULE = r"\s*[╌┄]{20,}\s*"
_COMMAND = r"[│\s]*❯\s*[!/#]"  # what a person has begun would take a message for its rest
_HINT = r"Esc to|Enter to|ctrl\+|Tab to|shift\+tab"
_KINDS = (
    (r"\s*Do you want to (use this API key)", "api key"),
    (r"\s*Do you want to \w+", "permission"),
    (r"(?i)trust (the files in )?this folder|one you trust", "trust"),
    (r"(?i)Bypass Permissions mode", "bypass warning"),
    (r"(?i)plan mode|written up a plan", "plan"),
    (r"\s*Select login method", "login"),
    (r"\s*MCP server .+ requests your input", "elicitation"),
)
_ELICITATION = r"\s*MCP server .+ requests your input"
_ERRORS = (
    (r"(?i)^● API Error: .*(\(429\)|429|rate.limit)", "rate limited"),
    (r"^● API Error: 529", "overloaded"),
    (r"(?i)Credit balance (is )?too low|^● API Error: 402", "out of credit"),
    (r"Prompt is too long", "context full"),
    (r"Please run /login|Invalid API key", "login needed"),
    (r"^● There's an issue with the selected model", "model not available"),
    (r"^● API Error", "api error"),
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
    below = [line for line in lines[-6:] if _is_input(line)]
    typed = [line for line in below if line.lstrip("│ ").startswith("❯")]
    if not below or (typed and re.match(_COMMAND, typed[-1])):  # earlier lines are what was submitted
        return None
    return Reading("idle", _error_shown(lines))


def dialog(text: str) -> Dialog | None:
    """The question at the bottom of the screen. Whatever looks like one is one: nothing may be typed into it."""
    lines = [_unframed(line) for line in text.rstrip().splitlines()][-_LOOKED_AT:]
    found = _choices(lines)
    if found is None:
        form = next((n for n, line in enumerate(lines) if re.match(_ELICITATION, line)), None)
        return None if form is None else Dialog("\n".join(lines[form:]).strip(), kind="elicitation")
    above = lines[: found.first]
    border = max((n for n, line in enumerate(above) if re.fullmatch(_BORDER, line)), default=-1)
    asked = "\n".join(line.strip() for line in above[border + 1 :] if not re.fullmatch(_RULE, line)).strip()
    kind = next((kind for pattern, kind in _KINDS if re.search(pattern, asked)), "question")
    keys = tuple(number for number, _ in found.options)
    return Dialog(asked, tuple(label for _, label in found.options), keys, kind)


def failure(said: str, kind: str) -> str:
    """What a turn failed of, in the words of a screen: `said` is what stands on it, `kind` the hook's own word."""
    shown = _error_shown([f"● {line}" for line in said.splitlines()[:1]])
    return shown or f"error: {_FAILURES.get(kind, 'api error')}"


def _choices(lines: list[str]) -> _Choices | None:
    """The numbered choices around the chosen one; None when an input line stands below it."""
    chosen = next((n for n in range(len(lines) - 1, -1, -1) if re.match(_CHOSEN, lines[n])), None)
    if chosen is None or any(re.match(_INPUT, line) for line in lines[chosen + 1 :]):
        return None
    match = re.match(_CHOSEN, lines[chosen])
    assert match is not None
    first, number = chosen, int(match[1])
    for n in range(chosen - 1, -1, -1):  # what is chosen need not be the first
        option = re.match(_OPTION, lines[n])
        if number == 1 or re.fullmatch(_BORDER, lines[n]):
            break
        if option and int(option[1]) == number - 1:
            first, number = n, number - 1
    options: list[tuple[str, str]] = []
    for line in lines[first:]:
        option = re.match(_OPTION, line)
        if option and int(option[1]) == len(options) + 1:
            options.append((option[1], option[2].strip()))
        elif options and line.strip() and not re.fullmatch(_BORDER, line) and not re.search(_HINT, line):
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
            if re.search(pattern, line):
                return f"error: {kind}"
        if line.startswith("●"):
            return ""
    return ""
