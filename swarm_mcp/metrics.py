"""Counts of what the server did, as text for Prometheus."""

from __future__ import annotations

import bisect
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping

from swarm_core.store.forge_counts import Counts
from swarm_mcp.call import Call

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Kept on the event loop, so without locks. Labels come from our own tables, never from a client's text."""

    def __init__(self) -> None:
        self._started = time.time()
        self._calls: Counter[tuple[str, str]] = Counter()
        self._seconds: Counter[str] = Counter()
        self._buckets: Counter[tuple[str, int]] = Counter()
        self.refused: Counter[str] = Counter()
        self.hooks: Counter[str] = Counter()
        self.webhooks: Counter[str] = Counter()

    def called(self, tool: str, call: Call, *, known: bool) -> None:
        name = tool if known else "unknown"
        spent = time.perf_counter() - call.began
        self._calls[name, call.code or "ok"] += 1
        self._seconds[name] += spent  # type: ignore[assignment]  # a Counter adds floats as well
        self._buckets[name, bisect.bisect_left(_BOUNDS, spent)] += 1

    def text(
        self,
        *,
        running: int,
        sessions: int,
        statuses: Mapping[str, int],
        newest_event: int,
        forge: Counts | None = None,
    ) -> str:
        lines = _family(
            "swarm_up_seconds", "gauge", "Seconds since the start.", [("", time.time() - self._started)]
        )
        lines += _family("swarm_calls_running", "gauge", "Tool calls under way.", [("", running)])
        lines += _family("swarm_sessions", "gauge", "Open MCP sessions.", [("", sessions)])
        lines += _family("swarm_newest_event", "counter", "Id of the newest event.", [("", newest_event)])
        counted = [(f'status="{s}"', n) for s, n in sorted(statuses.items())]
        lines += _family("swarm_instances", "gauge", "Instances that are not cleaned.", counted)
        calls = [(f'tool="{t}",code="{c}"', n) for (t, c), n in sorted(self._calls.items())]
        lines += _family("swarm_tool_calls_total", "counter", "Tool calls by result.", calls)
        lines += self._histogram()
        refused = [(f'reason="{r}"', n) for r, n in sorted(self.refused.items())]
        lines += _family("swarm_refused_total", "counter", "Requests refused for who sent them.", refused)
        hooks = [(f'outcome="{o}"', n) for o, n in sorted(self.hooks.items())]
        lines += _family("swarm_hooks_total", "counter", "Hook events of agents.", hooks)
        webhooks = [(f'outcome="{o}"', n) for o, n in sorted(self.webhooks.items())]
        lines += _family("swarm_webhooks_total", "counter", "Deliveries of GitHub's webhook.", webhooks)
        if forge is not None:
            lines += _forge(forge)
        return "\n".join(lines) + "\n"

    def _histogram(self) -> list[str]:
        name = "swarm_tool_call_seconds"
        lines = [f"# HELP {name} Duration of tool calls.", f"# TYPE {name} histogram"]
        for tool in sorted(self._seconds):
            total = sum(n for (t, _), n in self._calls.items() if t == tool)
            below = 0
            for place, bound in enumerate(_BOUNDS):
                below += self._buckets[tool, place]
                lines.append(f'{name}_bucket{{tool="{tool}",le="{bound:g}"}} {below}')
            lines.append(f'{name}_bucket{{tool="{tool}",le="+Inf"}} {total}')
            lines.append(f'{name}_sum{{tool="{tool}"}} {self._seconds[tool]:.6f}')
            lines.append(f'{name}_count{{tool="{tool}"}} {total}')
        return lines


def _forge(counts: Counts) -> list[str]:
    left = [
        (f'host="{_label(host)}",resource="{_label(kind)}"', n)
        for (host, kind), n in sorted(counts.remaining.items())
    ]
    lines = _family("swarm_github_remaining", "gauge", "Requests that GitHub still answers.", left)
    lines += _family("swarm_pulls_open", "gauge", "Open pull requests.", [("", counts.open)])
    failed = [("", counts.unanswered)]
    lines += _family("swarm_pulls_unanswered", "gauge", "Open pull requests whose last look failed.", failed)
    about = "Pull requests that wait to be merged."
    return lines + _family("swarm_queue_length", "gauge", about, [("", counts.queued)])


def _label(text: str) -> str:
    """A remote and an answer of GitHub may say anything."""
    return re.sub(r"[^\w.:-]", "_", text[:100], flags=re.ASCII)


def _family(name: str, kind: str, about: str, values: Iterable[tuple[str, float]]) -> list[str]:
    lines = [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    return lines + [f"{name}{{{labels}}} {value}" if labels else f"{name} {value}" for labels, value in values]
