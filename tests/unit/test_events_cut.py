"""What is kept of an event's facts: enough to understand it, nothing secret, nothing that cannot be read again."""

from __future__ import annotations

import json

from hypothesis import given

from swarm_core.store import events
from tests.odd_json import VALID, encode


def test_what_is_large_is_cut():
    kept = events.cut({"text": "x" * 10_000, "k" * 10_000: 1, "list": list(range(1000))})
    assert len(json.dumps(kept)) < 2000
    assert len(events.cut({f"k{n}": n for n in range(5000)})) == 50


def test_numbers_and_text_that_json_or_utf_8_cannot_hold_become_text_that_they_can():
    kept = events.cut({"a": float("nan"), "b": [float("-inf")], "\udc80": "x\ud800y"})
    assert kept == {"a": "nan", "b": ["-inf"], "?": "x?y"}


def test_secrets_are_removed_wherever_they_are():
    assert events.cut([{"a": {"api_key": "x", "Authorization": "y"}}]) == [
        {"a": {"api_key": "[removed]", "Authorization": "[removed]"}}
    ]


@given(VALID)
def test_anything_that_came_as_json_can_be_kept_as_json(value):
    came = json.loads(encode(value))
    text = json.dumps(events.cut({"arguments": came}), ensure_ascii=False, allow_nan=False)
    assert json.loads(text.encode())
