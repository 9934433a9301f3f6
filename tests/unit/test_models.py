"""The states of an instance: each can be reached, ended is ended, and records read back."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from swarm_core.models import (
    ENDED,
    EVENTS,
    TRANSITIONS,
    Message,
    Status,
    as_json,
    iso,
    parse_iso,
)


def reachable(start: Status) -> set[Status]:
    found, queue = {start}, [start]
    while queue:
        fresh = TRANSITIONS[queue.pop()] - found
        found |= fresh
        queue += fresh
    return found


def test_every_status_has_its_row_and_can_be_reached_from_the_start() -> None:
    assert set(TRANSITIONS) == set(Status)
    assert reachable(Status.STARTING) == set(Status)


def test_no_status_is_followed_by_itself() -> None:
    assert [s for s in Status if s in TRANSITIONS[s]] == []


def test_every_living_status_can_end_as_failed_and_as_terminated() -> None:
    for status in set(Status) - ENDED:
        assert {Status.FAILED, Status.TERMINATED} <= TRANSITIONS[status], status


def test_what_has_ended_comes_back_only_through_a_start_or_another_pull_request() -> None:
    for status in ENDED:
        proposed = {Status.PR_CREATED} if status in (Status.PR_MERGED, Status.PR_CLOSED) else set()
        assert TRANSITIONS[status] <= {Status.STARTING, Status.TERMINATED} | proposed, status


def test_a_merged_pull_request_is_the_end() -> None:
    assert Status.STARTING not in TRANSITIONS[Status.PR_MERGED]


def test_only_starting_leads_out_of_the_start_into_running() -> None:
    assert TRANSITIONS[Status.STARTING] == {Status.RUNNING, Status.FAILED, Status.TERMINATED}


def test_every_event_is_named_by_noun_and_verb_and_explained() -> None:
    for name, meaning in EVENTS.items():
        noun, _, verb = name.partition(":")
        assert noun.isalpha()
        assert verb.isalpha()
        assert meaning.endswith(".")


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))])))
def test_a_time_is_written_in_utc_with_milliseconds_and_reads_back(moment: datetime) -> None:
    try:
        moment.astimezone(UTC)
    except OverflowError:
        return
    text = iso(moment)
    assert text.endswith("Z")
    assert len(text.partition(".")[2]) == 4
    assert abs(parse_iso(text) - moment) < timedelta(milliseconds=1)


@given(st.datetimes(timezones=st.just(UTC)), st.datetimes(timezones=st.just(UTC)))
def test_times_sort_as_text_as_they_sort_as_times(one: datetime, other: datetime) -> None:
    cut = [m.replace(microsecond=m.microsecond // 1000 * 1000) for m in (one, other)]
    assert (cut[0] < cut[1]) == (iso(one) < iso(other))


def test_a_record_as_json_keeps_the_order_of_its_fields() -> None:
    message = Message("m1", "work-a1", "operator", "accepted", "text", "t", "t", 0)
    assert list(as_json(message)) == list(Message.__dataclass_fields__)
    assert Message(**json.loads(json.dumps(as_json(message)))) == message
