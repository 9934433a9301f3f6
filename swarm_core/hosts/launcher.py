"""The first program in a session: takes its environment from a private file and becomes the agent.

Runs as a plain file under `python -I -S` and imports nothing a bare interpreter has not loaded already (json
alone doubles the start). The file is deleted before the agent runs; no secret is in argv or in tmux.
"""

import os
import sys


def pack(cwd: str, umask: int, argv: "list[str]", environment: "dict[str, str]") -> bytes:
    """The order file: folder, umask, number of arguments, arguments, NAME=value pairs, each ended by NUL."""
    fields = [cwd, str(umask), str(len(argv)), *argv, *(f"{k}={v}" for k, v in environment.items())]
    return b"".join(os.fsencode(f) + b"\0" for f in fields)


def main(order_path: str, ready_path: str) -> None:
    with open(order_path, "rb") as file:  # noqa: PTH123
        fields = file.read().split(b"\0")[:-1]
    os.unlink(order_path)  # noqa: PTH108
    cwd, umask, count = fields[0], int(fields[1]), int(fields[2])
    argv = fields[3 : 3 + count]
    environment = dict(pair.split(b"=", 1) for pair in fields[3 + count :])
    # TMUX is left out: with it, `tmux kill-server` typed by one agent would end them all.
    if b"TERM" in os.environb:
        environment[b"TERM"] = os.environb[b"TERM"]
    ready = _open_ready(ready_path)
    try:
        os.umask(umask)  # the user's own, not the tmux server's
        os.chdir(cwd)
        os.execvpe(argv[0], argv, environment)  # noqa: S606
    except OSError as error:
        message = f"cannot start {os.fsdecode(argv[0])}: {error.strerror}"
        if ready is not None:
            os.write(ready, message.encode(errors="replace"))
        sys.stderr.write(message + "\n")
        sys.exit(127)


def _open_ready(path: str) -> "int | None":
    """The pipe the starter listens on; a successful exec closes it, which says that the agent runs."""
    try:
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
