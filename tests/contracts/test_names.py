"""Every error code, event, setting and variable is in its table, is used, and is documented."""

from __future__ import annotations

import pytest

from docs import generate, source
from swarm_core.config import ENVIRONMENT, SETTINGS
from swarm_core.errors import CODES
from swarm_core.models import EVENTS, TRANSITIONS, Status

_REFERENCE = source.ROOT / "docs" / "reference"


def test_every_code_in_the_source_is_in_the_table():
    assert sorted(source.error_codes().keys() - CODES.keys()) == []


def test_every_code_in_the_table_is_used():
    assert sorted(CODES.keys() - source.error_codes().keys()) == []


def test_every_event_in_the_source_is_in_the_table():
    assert sorted(source.event_names() - EVENTS.keys()) == []


def test_every_event_in_the_table_is_written_somewhere():
    assert sorted(EVENTS.keys() - source.event_names()) == []


def test_every_setting_is_read_and_nothing_else_is():
    assert sorted(source.settings_read()) == sorted(SETTINGS)


def test_every_variable_is_documented_and_used():
    ours = {s.env for s in SETTINGS.values() if s.env} | ENVIRONMENT.keys()
    documented = ours | generate.HANDED_TO_AGENTS.keys() | generate.INTERNAL.keys()
    assert sorted(source.variables() - documented) == []
    assert sorted(documented - source.texts()) == []


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("error-codes.md", CODES),
        ("events.md", EVENTS),
        ("settings.md", {*SETTINGS, *ENVIRONMENT}),
        ("statuses.md", list(Status)),
    ],
)
def test_every_word_has_its_line_in_the_reference(page, words):
    text = (_REFERENCE / page).read_text()
    assert [word for word in words if f"| `{word}` |" not in text] == []


def test_every_status_has_a_row_of_transitions_and_can_be_reached():
    assert set(TRANSITIONS) == set(Status)
    assert {to for moves in TRANSITIONS.values() for to in moves} == set(Status)


def test_meanings_are_sentences():
    for meaning in [*CODES.values(), *EVENTS.values(), *ENVIRONMENT.values(), *(s.doc for s in SETTINGS.values())]:
        assert meaning[:1].isalpha(), meaning
        assert meaning.endswith("."), meaning
