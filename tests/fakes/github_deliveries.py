"""Webhook deliveries as GitHub publishes them, for github.com and for Enterprise Server."""

from __future__ import annotations

from typing import Any

from tests.fakes.github_schemas import editions

# One action of each event; a status has none.
ACTIONS = {
    "pull_request": "reopened",
    "pull_request_review": "submitted",
    "pull_request_review_comment": "created",
    "pull_request_review_thread": "resolved",
    "issue_comment": "created",
    "check_run": "completed",
    "check_suite": "completed",
    "workflow_run": "completed",
    "workflow_job": "completed",
}


def delivery(event: str, **said: Any) -> dict[str, Any]:
    """What GitHub sends of an event that says this, whole; a field that it does not send fails the test."""
    given = {"action": ACTIONS[event]} | said if event in ACTIONS else said
    payload = given
    for one in editions():
        payload = one.delivery(event, given)
        faults = one.delivered(event, payload)
        assert faults == [], faults
    return payload
