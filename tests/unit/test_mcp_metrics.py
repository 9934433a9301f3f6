"""Counts as Prometheus text."""

from __future__ import annotations

from swarm_mcp.metrics import Metrics


def test_a_large_count_keeps_all_its_digits():
    metrics = Metrics()
    metrics.hooks["observed"] = 12_345_678
    text = metrics.text(running=0, sessions=0, statuses={"running": 3}, newest_event=1_234_567)
    assert "swarm_newest_event 1234567\n" in text
    assert 'swarm_hooks_total{outcome="observed"} 12345678\n' in text
    assert 'swarm_instances{status="running"} 3\n' in text
