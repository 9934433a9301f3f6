"""What an agent program is to the rest of the project: a plan to start it and pure readings of its state.

Everything here is plain data that survives a trip through JSON; the token is never part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

ACTIVITIES = ("starting", "busy", "idle", "blocked", "exited", "unknown")
PROMPT_IN_ARGV_BYTES = 32 * 1024
RESUME_PROMPT = (
    "You were stopped and are running again in the same conversation. "
    "Look at the state of your work; continue it if it is unfinished, else wait for messages."
)


@dataclass(frozen=True, slots=True)
class Spec:
    """One instance that is to run: who it is, where it works, what it is asked.

    A resumed conversation goes on with `resume_prompt`; empty, it waits for a message.
    """

    instance_id: str
    epoch: int
    conversation_id: str
    worktree_path: str
    instance_dir: str
    prompt: str
    prompt_path: str
    coordinator_url: str
    resume_prompt: str = RESUME_PROMPT


@dataclass(frozen=True, slots=True)
class Plan:
    """How to start the program.

    The host writes `files` (names relative to the instance's folder) with mode 0600, then runs `argv`, or
    `resume_argv` if a file matches one of the absolute glob patterns in `resume_probe` and the agent can resume
    from it (`mend_log`). Any other, left by a program that was killed before it wrote anything down, is put aside.
    The host itself adds SWARM_TOKEN, SWARM_INSTANCE, SWARM_EPOCH, SWARM_URL and SWARM_INSTANCE_DIR to the
    environment.
    """

    argv: tuple[str, ...]
    resume_argv: tuple[str, ...] | None = None
    resume_probe: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ways:
    """How messages reach the program, and how it is known that they did.

    An idle program gets one paste and, `settle` seconds later, Enter; `gap` is the least time between two pastes,
    `joins` allows several messages in one. Of `hooks`, the reply may carry messages into a running turn. A program
    that `confirms` keeps a log of its own in which every message it has taken is found. A hook of `asks` waits for
    a person, who answers the program's dialog through its reply.
    """

    settle: float = 0.3
    gap: float = 1.0
    joins: bool = False
    hooks: frozenset[str] = frozenset()
    confirms: bool = False
    asks: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Dialog:
    """A question on the screen: its text, and the choices with the keys that take them."""

    text: str
    choices: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    kind: str = "question"


@dataclass(frozen=True, slots=True)
class Usage:
    """What one answer of a model has used."""

    message_id: str
    model: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    at: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What one piece of evidence says: an activity, its reason, and since when if the evidence tells."""

    activity: str
    detail: str = ""
    at: str | None = None


class Agent(Protocol):
    """One agent program.

    `plain_prompt` says that it carries out its prompt line by line, so that nothing may be written around what it
    was asked: instructions meant for a model would be taken for steps. `reconnect` is what to type when it started
    without its tools and would never look for them again; empty when it does by itself. Of its tools `writes`
    are those that write a file, and `shells` those that run a command, each with the name of the argument that
    holds the path or the command.
    """

    name: str
    title: str
    program: str
    experimental: bool
    install_hint: str
    plain_prompt: bool
    ways: Ways
    reconnect: str
    writes: Mapping[str, str]
    shells: Mapping[str, str]

    def plan(self, spec: Spec, *, resume: bool) -> Plan:
        """How to start; with `resume`, also how to go on with the conversation if there is one."""

    def mend_log(self, log: Iterable[bytes]) -> bytes | None:
        """What a killed program left out of its log, to be added before a resume; None when it cannot resume."""

    def status_files(self, spec_instance_dir: str, pid: int) -> tuple[str, ...]:
        """Absolute paths of the files the program keeps its own status in, best first."""

    def read_status(self, text: str) -> Reading | None:
        """What a status file says; None if it says nothing that is understood."""

    def read_screen(self, text: str) -> Reading | None:
        """What the screen means; None if it cannot be told."""

    def read_hook(self, event: str, body: dict[str, Any]) -> Reading | None:
        """What a hook event means; None if it says nothing about activity."""

    def hook_reply(self, event: str, text: str) -> dict[str, Any] | None:
        """The reply to a hook that hands the text to the agent; None for a hook that cannot."""

    def permission_reply(self, event: str, *, allow: bool, why: str) -> dict[str, Any]:
        """The reply to a hook of `asks` that answers the dialog."""

    def asks_about(self, body: dict[str, Any]) -> str:
        """What a hook of `asks` wants to do, in the words that its dialog shows."""

    def deny_reply(self, event: str, why: str) -> dict[str, Any] | None:
        """The reply to a hook that forbids what the agent is about to do; None for a hook that cannot."""

    def read_dialog(self, text: str) -> Dialog | None:
        """The question the screen asks; None when it asks none."""

    def transcripts(self, instance_dir: str, worktree_path: str, conversation_id: str) -> tuple[str, ...]:
        """Glob patterns of the log the program itself keeps of the conversation."""

    def side_logs(self, worktree_path: str, conversation_id: str) -> tuple[str, ...]:
        """Glob patterns of logs that tell of usage alone, such as those of subagents."""

    def is_receipt(self, line: str) -> bool:
        """Whether a line of that log which names a message shows that the agent has taken it."""

    def read_usage(self, line: str) -> Usage | None:
        """What a line of that log says about tokens."""


class Mute:
    """Defaults of a program that has no hooks and keeps no log we can read."""

    ways = Ways()
    reconnect = ""
    writes: Mapping[str, str] = {}
    shells: Mapping[str, str] = {}

    def mend_log(self, log: Iterable[bytes]) -> bytes | None:
        return b""

    def hook_reply(self, event: str, text: str) -> dict[str, Any] | None:
        return None

    def permission_reply(self, event: str, *, allow: bool, why: str) -> dict[str, Any]:
        return {}

    def asks_about(self, body: dict[str, Any]) -> str:
        return ""

    def deny_reply(self, event: str, why: str) -> dict[str, Any] | None:
        return None

    def read_dialog(self, text: str) -> Dialog | None:
        return None

    def transcripts(self, instance_dir: str, worktree_path: str, conversation_id: str) -> tuple[str, ...]:
        return ()

    def side_logs(self, worktree_path: str, conversation_id: str) -> tuple[str, ...]:
        return ()

    def is_receipt(self, line: str) -> bool:
        return True

    def read_usage(self, line: str) -> Usage | None:
        return None


def prompt_argument(spec: Spec) -> str:
    """The prompt as one argument; a prompt too long for an argument, or not fit for one, is named by its file."""
    fits = len(spec.prompt.encode(errors="replace")) <= PROMPT_IN_ARGV_BYTES and "\0" not in spec.prompt
    return spec.prompt if fits else f"Read the file {spec.prompt_path} and do what it says."


def guarded(prompt: str) -> tuple[str, ...]:
    """The prompt as an argument that is not taken for an option; nothing for an empty one."""
    return ("--", prompt) if prompt else ()


def last_lines(text: str, count: int) -> list[str]:
    """The last lines that are not blank, stripped, top to bottom."""
    return [line.strip() for line in text.splitlines() if line.strip()][-count:]
