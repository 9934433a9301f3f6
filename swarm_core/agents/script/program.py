"""The program: runs the steps of its prompt, then waits for messages and runs theirs."""

from __future__ import annotations

# pathlib is slow to import
# ruff: noqa: PTH103, PTH110, PTH118, PTH120, PTH123, PTH202
import os
import re
import signal
import time
from collections import deque
from types import FrameType

from swarm_core.agents.script import commits
from swarm_core.agents.script.journal import Journal, write_status
from swarm_core.agents.script.steps import BadStep, Step, StepFailed, parse_line
from swarm_core.agents.script.terminal import Draft, Terminal, echo, emit, sanitised, show

TYPE_CHECKING = False  # as type checkers know it, without importing typing
if TYPE_CHECKING:
    from typing import Any


HOOK_TIMEOUT_S = 1.0


class Program:
    def __init__(self, *, folder: str, conversation_id: str) -> None:
        self._folder, self._conversation_id = folder, conversation_id
        self._journal = Journal(folder, conversation_id)
        self._terminal = Terminal()
        self._draft = Draft()
        self._queue: deque[tuple[int, bytes]] = deque()
        self._mcp: Any = None
        self._hooks = bool(os.environ.get("SWARM_URL")) and os.environ.get("SWARM_HOOKS") == "1"
        self._git_env: dict[str, str] | None = None
        self._status: tuple[str, str] | None = None
        self._step: int | None = None

    def run(self, prompt: str, *, resume: bool, wait: bool = False) -> int:
        """Run the prompt's steps, then take messages; with `wait` take messages at once."""
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, _end)
        code = 1
        try:
            code = self._run(prompt, resume=resume, wait=wait)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except (BadStep, StepFailed) as error:
            code = 2 if isinstance(error, BadStep) else 1
            show(str(error), before="error: ")
        finally:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            self._hook("session_end", detail=f"exit {code}")
            self._be("exited", f"exit {code}")
            self._terminal.restore()
        return code

    def _run(self, prompt: str, *, resume: bool, wait: bool) -> int:
        self._terminal.start()
        self._be("starting")
        self._hook("session_start", detail="resume" if resume else "startup")
        steps = self._read_prompt(prompt)
        if resume:
            self._queue.extend(self._journal.load())
            show(self._conversation_id, before="resumed conversation ")
        else:
            self._journal.start()
        if not wait:
            self._run_steps("prompt", steps)
        self._hook("stop")
        while True:
            self._handle(*self._next_message())

    def _read_prompt(self, prompt: str) -> list[Step]:
        """The steps of the prompt, checked before the first is run; the rest is shown."""
        steps, task = [], []
        for number, line in enumerate(prompt.split("\n"), start=1):
            try:
                step = parse_line(line)
            except BadStep as error:
                raise BadStep(f"line {number}: {error}") from None
            if step is not None:
                steps.append(step)
            elif line.strip():
                task.append(line)
        if task:
            show("\n".join(task), before="\x1b[2m", after="\x1b[0m\n")
        return steps

    def _run_steps(self, script: str, steps: list[Step], *, message: int | None = None) -> None:
        for index in range(self._journal.done.get(script, -1) + 1, len(steps)):
            if script == "prompt":
                self._step = index
            self._be("busy")
            step = steps[index]
            if step.name in ("exit", "crash"):  # they do not come back to be finished
                self._journal.finish_step(script, index)
                if message is not None and index == len(steps) - 1:
                    self._journal.finish_message(message)
            getattr(self, "_do_" + step.name.replace("-", "_"))(step, script, index)
            self._journal.finish_step(script, index)
            self._hook("step")

    # messages

    def _collect(self, tokens: list[tuple[str, bytes]]) -> None:
        for kind, data in tokens:
            for raw in self._draft.take(kind, data):
                self._take(raw)

    def _take(self, raw: bytes) -> None:
        number, message_id, new = self._journal.received("message", raw)
        if new:
            self._queue.append((number, raw))
        else:
            show(f"{message_id}", before="received again: ")

    def _drain(self) -> None:
        """Everything that has arrived by now belongs to the input box."""
        while self._terminal.has_input():
            self._collect(self._terminal.listen(0))
        self._terminal.forget_escape()

    def _next_message(self) -> tuple[int, bytes]:
        if not self._queue:
            emit("❯ ")
            self._be("idle")
            while not self._queue:
                tokens = self._terminal.listen(None)
                echo(tokens)
                self._collect(tokens)
        return self._queue.popleft()

    def _handle(self, number: int, raw: bytes) -> None:
        text = raw.decode(errors="replace")
        self._be("busy")
        self._hook("prompt_submit", prompt=text)
        show(text, before="received: ")
        steps = []
        for line in re.split(r"\r\n|\r|\n", text):
            try:
                step = parse_line(line)
            except BadStep as error:
                show(str(error), before="not a step: ")
                continue
            if step is not None:
                steps.append(step)
        try:
            self._run_steps(f"message {number}", steps, message=number)
        except StepFailed as error:
            show(str(error), before="error: ")
        self._journal.finish_message(number)
        self._hook("stop")

    # steps

    def _do_write(self, step: Step, script: str, index: int) -> None:
        self._put(step, "w")
        show(step.path, before="wrote ")

    def _do_append(self, step: Step, script: str, index: int) -> None:
        """A run killed between appending and logging must not append twice: the size before is logged first."""
        path = _inside(step.path)
        size = self._journal.begun.get((script, index))
        if size is None:
            size = os.path.getsize(path) if os.path.exists(path) else 0
            self._journal.begin(script, index, size)
        elif os.path.exists(path):
            os.truncate(path, size)
        self._put(step, "a")
        show(step.path, before="appended to ")

    def _put(self, step: Step, mode: str) -> None:
        try:
            path = _inside(step.path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, mode, encoding="utf-8", errors="replace", newline="") as file:
                file.write(step.text)
        except OSError as error:
            raise StepFailed(f"cannot write {step.path}: {error.strerror}") from None

    def _do_commit(self, step: Step, script: str, index: int) -> None:
        env = self._git_env = self._git_env or commits.environment()
        self._git("add", "-A", env=env)
        if commits.run("diff", "--cached", "--quiet", env=env)[0] == 0:
            show("nothing to commit")
            return
        self._git("commit", "-q", "--no-gpg-sign", f"--message={step.text}", env=env)
        show(step.text, before="committed: ")

    def _git(self, *args: str, env: dict[str, str]) -> None:
        code, said = commits.run(*args, env=env)
        if code != 0:
            raise StepFailed(f"git {args[0]} failed with exit code {code}: {said}")

    def _do_call(self, step: Step, script: str, index: int) -> None:
        from swarm_core.agents.script import calls  # noqa: PLC0415  (as slow to import as all the rest)

        self._mcp = self._mcp or calls.Mcp(os.environ.get("SWARM_URL", ""))
        try:
            said = self._mcp.call(step.text, step.value, key=self._journal.key(script, index))
            show(said, before=f"call {sanitised(step.text)}: ")
        except calls.CallFailed as error:
            show(str(error), before=f"call {sanitised(step.text)} failed: ")

    def _do_say(self, step: Step, script: str, index: int) -> None:
        show(step.text)

    def _do_wait(self, step: Step, script: str, index: int) -> None:
        deadline = time.monotonic() + step.value
        while (left := deadline - time.monotonic()) > 0:
            self._collect(self._terminal.listen(left))

    def _do_busy(self, step: Step, script: str, index: int) -> None:
        emit(f"✽ Working… ({step.value:g}s · esc to interrupt)\n")
        self._do_wait(step, script, index)

    def _do_await_message(self, step: Step, script: str, index: int) -> None:
        self._handle(*self._next_message())

    def _do_ask(self, step: Step, script: str, index: int) -> None:
        self._drain()
        show(step.text, before="? ")
        emit("answer ❯ ")
        self._block("question", step.text)
        box, answers = Draft(), list[bytes]()
        while not answers:
            tokens = deque(self._terminal.listen(None))
            echo(list(tokens))
            while tokens and not answers:
                answers = box.take(*tokens.popleft())
            self._collect(list(tokens))
        raw = b"\n".join(answers)
        self._journal.received("answer", raw)
        show(raw.decode(errors="replace"), before="answered: ")

    def _do_dialog(self, step: Step, script: str, index: int) -> None:
        self._drain()
        show(step.text)
        emit("Do you want to proceed?\n❯ 1. Yes\n  2. No\n\nEsc to cancel\n")
        self._block("permission", step.text)
        answer = ""
        while not answer:
            tokens = deque(self._terminal.listen(None, escape_key=True))
            while tokens and not answer:
                answer = _choice(*tokens.popleft())
            self._collect(list(tokens))
        show(answer, before="answered: ")

    def _do_hang(self, step: Step, script: str, index: int) -> None:
        while True:
            signal.pause()

    def _do_crash(self, step: Step, script: str, index: int) -> None:
        import resource  # noqa: PLC0415  (only a crash needs it)

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), signal.SIGSEGV)
        self._do_hang(step, script, index)

    def _do_exit(self, step: Step, script: str, index: int) -> None:
        raise SystemExit(step.value)

    # what others see

    def _block(self, detail: str, text: str) -> None:
        self._be("blocked", detail)
        self._hook("notification", detail=detail, text=text)

    def _be(self, activity: str, detail: str = "") -> None:
        if self._status == (activity, detail):
            return
        self._status = (activity, detail)
        body = {
            "activity": activity,
            "detail": detail,
            "pid": os.getpid(),
            "conversation_id": self._conversation_id,
            "step": self._step,
        }
        try:
            write_status(self._folder, body)
        except OSError as error:
            show(f"cannot write the status: {error.strerror}")

    def _hook(self, event: str, **body: str) -> None:
        """Tell the coordinator; its reply may carry messages."""
        if not self._hooks:
            return
        from swarm_core.agents.script import calls  # noqa: PLC0415  (as slow to import as all the rest)

        url = f"{os.environ['SWARM_URL'].rstrip('/')}/hooks/{event}"
        try:
            said = calls.hook(url, {"conversation_id": self._conversation_id, **body}, HOOK_TIMEOUT_S)
        except (OSError, ValueError):
            return  # nobody listens
        text = said.get("message")
        if isinstance(text, str):
            for part in re.split(r"\n\n(?=\[swarm msg )", text):
                self._take(part.encode(errors="replace"))


def _inside(path: str) -> str:
    root = os.path.realpath(".")
    real = os.path.realpath(os.path.join(root, path))
    if not real.startswith(root.rstrip("/") + "/"):
        raise StepFailed(f"{path} is outside the worktree")
    return real


def _choice(kind: str, data: bytes) -> str:
    """What a key does to the open dialog; everything else is swallowed."""
    if kind == "enter":
        return "yes"
    if kind == "escape":
        return "no"
    if kind == "typed":
        digit = re.search(rb"[12]", data)
        return {b"1": "yes", b"2": "no"}[digit[0]] if digit else ""
    return ""


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main(argv: list[str]) -> int:
    options = dict(argument.lstrip("-").partition("=")[::2] for argument in argv)
    if unknown := set(options) - {"prompt", "dir", "conversation", "resume", "wait"}:
        show(", ".join(sorted(unknown)), before="error: unknown options: ")
        return 2
    folder = options.get("dir") or os.environ.get("SWARM_INSTANCE_DIR") or "."
    try:
        with open(options.get("prompt") or os.path.join(folder, "prompt.md"), "rb") as file:
            prompt = file.read().decode(errors="replace")
    except OSError as error:
        show(f"cannot read the prompt: {error}", before="error: ")
        return 2
    program = Program(folder=folder, conversation_id=options.get("conversation") or "none")
    return program.run(prompt, resume="resume" in options, wait="wait" in options)
