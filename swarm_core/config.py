"""Settings: one table of names, read once from the environment and `config.toml`, passed in everywhere."""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from swarm_core import files, ids
from swarm_core.errors import ExternalFailure, InvalidInput

_SOCKET_MAX = 96  # sun_path holds 108 bytes on Linux and 104 on macOS, tmux needs a few


@dataclass(frozen=True, slots=True)
class Setting:
    key: str
    default: str | int | float
    doc: str
    env: str | None = None
    low: float | None = None
    high: float | None = None
    schemes: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()

    def parse(self, raw: object) -> str | int | float:
        """The value in the default's type; raises InvalidInput with what is allowed."""
        if isinstance(raw, bool) or not isinstance(raw, str | int | float):
            raise self._refused(raw, "it must be plain text or a number")
        if isinstance(self.default, str):
            if not str(raw).isprintable() or (self.default and not str(raw)):
                raise self._refused(raw, "it must be plain text")
            if self.schemes and str(raw) and not _is_url(str(raw), self.schemes):
                raise self._refused(raw, f"it must be an address that begins with {_listed(self.schemes)}")
            if self.choices and str(raw) not in self.choices:
                raise self._refused(raw, f"it must be one of {', '.join(self.choices)}")
            return str(raw)
        if isinstance(raw, str) and not raw.isascii():  # int and float take the digits of every script
            raise self._refused(raw, "it must be a number in the digits 0 to 9")
        try:
            value = type(self.default)(raw)
        except (ValueError, OverflowError):
            raise self._refused(raw, f"it must be of type {type(self.default).__name__}") from None
        if isinstance(raw, float) and raw != value:
            raise self._refused(raw, "it must be a whole number")
        if self.low is not None and self.high is not None and not self.low <= value <= self.high:
            raise self._refused(raw, f"it must be between {self.low:g} and {self.high:g}")
        return value

    def _refused(self, raw: object, why: str) -> InvalidInput:
        where = f" (or {self.env})" if self.env else ""
        # An address may hold a secret, and what is refused is logged.
        value = "what it is" if self.schemes else repr(str(raw)[:80])
        return InvalidInput(
            f"{self.key}{where} cannot be {value}: {why}",
            code="INVALID_SETTING",
            hint=f"`swarm config {self.key} {self.default if self.default != '' else repr('')}` sets the default",
        )


def _is_url(text: str, schemes: tuple[str, ...]) -> bool:
    try:
        parts = urlsplit(text)
        return (
            parts.scheme in schemes
            and bool(parts.hostname)
            and parts.port != 0
            and text.isascii()
            and " " not in text
        )
    except ValueError:
        return False


def _listed(schemes: tuple[str, ...]) -> str:
    return " or ".join(f"{scheme}://" for scheme in schemes)


FOLDERS = ("agents", "backups", "instances", "locks", "logs", "run", "scratch", "worktrees")  # of a home
SETTINGS: dict[str, Setting] = {
    s.key: s
    for s in (
        Setting("agent", "claude", "Agent used when --agent is not given.", env="SWARM_AGENT"),
        Setting("pool", 0, "Warm worktrees kept ready per repository; 0 is off.", low=0, high=32),
        Setting("mcp_port", 3001, "Port of the coordinator.", env="MCP_SERVER_PORT", low=0, high=65535),
        Setting("ui_port", 3000, "Port of the dashboard.", env="SWARM_UI_PORT", low=0, high=65535),
        Setting("log_level", "info", "Verbosity of logs.", env="MCP_LOG_LEVEL"),
        Setting(
            "tool_timeout_ms",
            120_000,
            "Milliseconds until a tool call is ended; 0 is never. By default 600000 for spawns and pull requests.",
            env="MCP_TOOL_TIMEOUT",
            low=0,
            high=86_400_000,
        ),
        Setting("queue_max", 64, "Tool calls that may be under way at once.", low=1, high=1024),
        Setting("review_rounds", 3, "Reviews of one piece of work before a person is needed.", low=1, high=100),
        Setting("review_hours", 24.0, "Hours until a review without a verdict is over.", low=0.001, high=8760),
        Setting(
            "message_hours", 72.0, "Hours until a message that was not seen is given up.", low=0.001, high=8760
        ),
        Setting(
            "budget_usd",
            0.0,
            "US dollars an instance without a budget of its own may use before it is held; 0 is no limit.",
            low=0,
            high=1_000_000,
        ),
        Setting(
            "notify_terminal", 1, "Tell attached people in their terminal who needs them: 0 or 1.", low=0, high=1
        ),
        Setting("notify_desktop", 0, "Tell it on the desktop with notify-send: 0 or 1.", low=0, high=1),
        Setting(
            "notify_webhook",
            "",
            "Address that is told by a POST of JSON, as of ntfy or Slack; empty is none.",
            schemes=("https", "http"),
        ),
        Setting("notify_after", 3.0, "Seconds a question of an agent lasts before it is told.", low=0, high=86400),
        Setting(
            "forge",
            "auto",
            "Where pull requests are opened: github, local, or auto: GitHub if the remote and a token are there.",
            choices=("auto", "github", "local"),
        ),
        Setting(
            "pull_remote",
            "origin",
            "Remote that gets pull requests and has the issues: `upstream` when origin is your fork of it.",
            env="SWARM_PULL_REMOTE",
        ),
        Setting("github_hosts", "github.com", "Hosts that are GitHub, with commas between them."),
        Setting("github_token_file", "", "File with a GitHub token, used when the environment has none."),
        Setting(
            "github_hourly", 500, "Requests an hour that following pull requests may use.", low=10, high=1_000_000
        ),
        Setting(
            "github_reserve", 20, "Percent of GitHub's quota that is kept for what people ask.", low=0, high=100
        ),
        Setting("github_trusted", "", "Logins whose comments agents are told besides those of collaborators."),
        Setting(
            "checks_grace",
            90.0,
            "Seconds after a push in which a pull request without checks waits for them to begin.",
            env="SWARM_CHECKS_GRACE",
            low=0,
            high=86400,
        ),
        Setting("merge_method", "merge", "How pull requests are merged.", choices=("merge", "squash", "rebase")),
        Setting(
            "required_approvals",
            0,
            "Approvals of its newest commit that a pull request needs before it is merged.",
            low=0,
            high=10,
        ),
        Setting("check_command", "", "Program and arguments that must succeed on a merged result; empty is none."),
        Setting("check_minutes", 30.0, "Minutes until a check command has failed.", low=0.01, high=1440),
        Setting(
            "clean_merged", 0, "Remove worktree and branch of merged work without asking: 0 or 1.", low=0, high=1
        ),
        Setting("stop_grace", 5.0, "Seconds an agent gets to end by itself on stop.", low=0, high=600),
        Setting("start_timeout", 20.0, "Seconds until a program that does not start has failed.", low=1, high=600),
        Setting(
            "lock_timeout",
            60.0,
            "Seconds to wait for another process's work on an instance.",
            low=0,
            high=600,
        ),
        Setting("busy_timeout", 5.0, "Seconds to wait for a locked database.", low=0, high=600),
        Setting("backups_kept", 10, "Backups kept in SWARM_HOME/backups; 0 keeps all.", low=0, high=100_000),
        Setting(
            "keep_events_days",
            90.0,
            "Days that events of cleaned instances and of no instance are kept; 0 keeps them for ever.",
            low=0,
            high=36500,
        ),
        Setting(
            "keep_messages_days",
            365.0,
            "Days that messages and feedback of cleaned instances are kept; 0 keeps them for ever.",
            low=0,
            high=36500,
        ),
        Setting(
            "keep_preserved_days",
            0.0,
            "Days that preserved work of cleaned instances is kept, its newest always; 0 keeps it for ever.",
            low=0,
            high=36500,
        ),
        Setting(
            "keep_log_mb",
            64,
            "Megabytes of each log before it is moved to .old, replacing that one; 0 never moves it.",
            low=0,
            high=1_000_000,
        ),
        Setting(
            "history_limit",
            2000,
            "Lines of scrollback kept per session (0.55 KB each).",
            low=100,
            high=100000,
        ),
    )
}

ENVIRONMENT: dict[str, str] = {
    "SWARM_HOME": "Folder that holds the database, worktrees and sessions (default ~/.swarm).",
    "MCP_DATABASE_PATH": "The SQLite file (default SWARM_HOME/swarm.db).",
    "GITHUB_TOKEN": "Token for GitHub; read when needed, never stored and never handed to an agent.",
    "GITHUB_API_URL": "Base address of GitHub's API for enterprise hosts.",
    "SWARM_WEBHOOK_SECRET": "Secret of GitHub's webhook; without it POST /webhooks/github is refused.",
}


@dataclass(frozen=True, slots=True)
class Settings:
    home: Path
    database_path: Path
    values: Mapping[str, str | int | float]
    given: frozenset[str] = frozenset()  # the settings that somebody has set, be it to their default

    def number(self, key: str) -> float:
        return float(self.values[key])

    def integer(self, key: str) -> int:
        return int(self.values[key])

    def text(self, key: str) -> str:
        return str(self.values[key])

    @property
    def own_folders(self) -> tuple[str, str]:
        """Folders whose place on this machine concerns no client."""
        return str(self.home), str(self.database_path.parent)

    @property
    def coordinator_url(self) -> str:
        return f"http://127.0.0.1:{self.integer('mcp_port')}"

    @property
    def ui_url(self) -> str:
        return f"http://127.0.0.1:{self.integer('ui_port')}"

    @property
    def config_path(self) -> Path:
        return self.home / "config.toml"

    @property
    def prices_path(self) -> Path:
        """Prices of models that count before the ones we know."""
        return self.home / "prices.toml"

    @property
    def operator_token(self) -> Path:
        return self.home / "operator.token"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @property
    def backups(self) -> Path:
        return self.home / "backups"

    @property
    def locks(self) -> Path:
        return self.home / "locks"

    @property
    def worktrees(self) -> Path:
        return self.home / "worktrees"

    @property
    def coordinator_lock(self) -> Path:
        """One coordinator per database, whatever home it was started with."""
        return self._beside_database("swarm.lock", ".lock")

    @property
    def server_locks(self) -> Path:
        """The folder in which the servers of one database find each other, whatever homes they have."""
        return self._beside_database("locks", ".locks")

    def _beside_database(self, name: str, ending: str) -> Path:
        """A path next to the real file: `name` for a swarm.db, or the file's name with the ending."""
        path = Path(os.path.realpath(self.database_path))
        return path.with_name(name if path.name == "swarm.db" else path.name + ending)

    def repo_lock(self, repo_path: str) -> Path:
        """Held around git's bookkeeping in one repository."""
        return self.locks / f"repo-{ids.repo_folder(repo_path)}.lock"

    def instance_dir(self, instance_id: str) -> Path:
        return self.home / "instances" / instance_id

    @property
    def tmux_config(self) -> Path:
        return self.home / "tmux.conf"

    @property
    def tmux_socket(self) -> Path:
        """Fixed by the home alone, so that no environment variable can lead to a second server."""
        inside = self.home / "tmux.sock"
        return inside if len(os.fsencode(inside)) <= _SOCKET_MAX else self.short_folder / "tmux.sock"

    def agent_tmux(self, instance_id: str) -> Path:
        """Where an agent's own tmux, should it start one, keeps its socket."""
        inside = self.home / "agents" / instance_id
        socket = inside / f"tmux-{os.getuid()}" / "default"
        return inside if len(os.fsencode(socket)) <= _SOCKET_MAX else self.short_folder / instance_id

    @property
    def short_folder(self) -> Path:
        """For sockets whose path would be too long in the home; to be used only if it is our own."""
        digest = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:16]
        return Path("/tmp") / f"swarm-{os.getuid()}-{digest}"  # noqa: S108


def load(environ: Mapping[str, str], **flags: object) -> Settings:
    """Settings from flags, then the environment, then `config.toml`, then defaults. Creates nothing.

    Raises NOT_PRIVATE for a home or `config.toml` that another user made or can write to: its settings name
    programs that are run.
    """
    home = home_of(environ)
    check_home(home)
    database = environ.get("MCP_DATABASE_PATH")
    stored = read_file(home / "config.toml")
    values: dict[str, str | int | float] = {}
    given = set()
    for key, setting in SETTINGS.items():
        raw = flags.get(key)
        if raw is None and setting.env:
            raw = environ.get(setting.env) or None
        if raw is None:
            raw = stored.get(key)
        if raw is not None:
            given.add(key)
        values[key] = setting.parse(setting.default if raw is None else raw)
    path = _absolute(database, environ) if database else home / "swarm.db"
    return Settings(home=home, database_path=path, values=values, given=frozenset(given))


def check_home(home: Path) -> None:
    """Raise NOT_PRIVATE for a home that another user made, can write to, or left something in when they could.

    The home may be a link, since only who owns the folder above it can make one; our folders in it may not.
    """
    files.check_own(home)
    with files.errors():
        names = os.listdir(home) if home.is_dir() else []  # noqa: PTH208
    for name in names:
        files.check_maker(home / name)
    for name in FOLDERS:
        files.check_own_folder(home / name)


def home_of(environ: Mapping[str, str]) -> Path:
    return _absolute(environ.get("SWARM_HOME") or "~/.swarm", environ)


def close_home(environ: Mapping[str, str]) -> list[Path]:
    """Stop others from writing to our home, its folders and `config.toml`; returns what they could write to."""
    closed = []
    home = home_of(environ)
    for path in (home, home / "config.toml", *(home / name for name in FOLDERS)):
        try:
            files.check_own(path)
        except ExternalFailure:
            if path.stat().st_uid != os.geteuid() or (path != home and path.is_symlink()):
                raise
            path.chmod(0o700 if path.is_dir() else 0o600)
            closed.append(path)
    return closed


def read_file(path: Path) -> dict[str, object]:
    """The keys of a `config.toml`; a missing file is empty, an unknown key or bad TOML is an error."""
    try:
        files.check_own(path)
        with path.open("rb") as file:
            stored = tomllib.load(file)
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        hint = "correct the file, or move it away and set values with `swarm config`"
        raise InvalidInput(f"{path} is not valid TOML: {error}", code="INVALID_SETTING", hint=hint) from None
    except OSError as error:
        hint = "check that SWARM_HOME is a folder of yours and the file can be read"
        raise InvalidInput(f"cannot read {path}: {error.strerror}", code="INVALID_SETTING", hint=hint) from None
    for key in stored:
        lookup(key)
    return stored


def lookup(key: str) -> Setting:
    if key not in SETTINGS:
        raise InvalidInput(
            f"there is no setting {key[:80]!r}",
            code="INVALID_SETTING",
            hint="settings: " + ", ".join(SETTINGS),
        )
    return SETTINGS[key]


def write_value(path: Path, key: str, raw: str) -> str | int | float:
    """Set one key of `config.toml`, replacing the file in one step."""
    value = lookup(key).parse(raw)
    stored = read_file(path) | {key: value}
    text = "".join(f"{k} = {_toml(v)}\n" for k, v in sorted(stored.items()))
    try:
        files.write_private(path, text.encode(), synced=True)
    except OSError as error:
        hint = "set SWARM_HOME to a folder you can write"
        raise InvalidInput(f"cannot write {path}: {error.strerror}", code="INVALID_SETTING", hint=hint) from error
    return value


def _toml(value: object) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)


def _absolute(text: str, environ: Mapping[str, str]) -> Path:
    if "\0" in text:
        raise InvalidInput("a path cannot contain a NUL character", code="INVALID_SETTING")
    if text.startswith("~/") and "HOME" in environ:
        text = environ["HOME"] + text[1:]
    return Path(os.path.abspath(os.path.expanduser(text)))  # noqa: PTH100, PTH111
