"""Secrets do not stay in what is kept, whatever stands around them; and ordinary text stays as it is."""

from __future__ import annotations

import base64
import json
import secrets
import string
import uuid

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from swarm_core import redact
from swarm_core.store import events

_WORD = string.ascii_letters + string.digits


def _of(alphabet: str, least: int, most: int) -> st.SearchStrategy[str]:
    return st.text(alphabet, min_size=least, max_size=most)


# Each with the part of it that must be gone.
SECRETS = st.one_of(
    *(_of(_WORD, 20, 40).map(lambda s, p=p: (f"{p}{s}", s)) for p in ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    _of(_WORD + "_", 22, 80).map(lambda s: (f"github_pat_{s}", s)),
    _of(_WORD, 20, 48).map(lambda s: (f"sk-ant-api03-{s}", s)),
    _of(string.ascii_uppercase + string.digits, 16, 16).map(lambda s: (f"AKIA{s}", s)),
    _of(string.digits, 10, 12).map(lambda s: (f"xoxb-{s}-abcdef", s)),
    _of(_WORD + "-._", 8, 60).map(lambda s: (f"Bearer 1{s}2", s)),
    st.tuples(_of(_WORD, 1, 9), _of(_WORD, 6, 20)).map(
        lambda p: (
            f"Basic {base64.b64encode(':'.join(p).encode()).decode()}",
            base64.b64encode(":".join(p).encode()).decode(),
        )
    ),
    _of(_WORD + "!$%*", 6, 30).map(lambda s: (f"password=x{s}", f"x{s}")),
    _of(_WORD, 8, 30).map(lambda s: (f"API_TOKEN=z{s}", f"z{s}")),
    _of(_WORD, 8, 30).map(lambda s: (f'"client_secret": "z{s}"', f"z{s}")),
    _of(_WORD, 8, 30).map(lambda s: (f"https://bot:q{s}@example.invalid/a.git", f"q{s}")),
    _of(_WORD + "+/\n", 40, 200).map(
        lambda s: (f"-----BEGIN OPENSSH PRIVATE KEY-----\n{s}\n-----END OPENSSH PRIVATE KEY-----", s)
    ),
    st.builds(lambda: secrets.token_urlsafe(32))
    .filter(lambda s: any(c.isdigit() for c in s))
    .map(lambda s: (s, s)),
)
SECRETS |= st.builds(lambda: secrets.token_urlsafe(32)).map(
    lambda s: (f"http://127.0.0.1:3000/?t=aB1{s[3:]}", s[3:])
)
_PLAIN = st.text(string.ascii_lowercase + " ,.\n", max_size=60)


@given(SECRETS, _PLAIN, _PLAIN)
def test_a_secret_is_removed_wherever_it_stands(secret, before, after):
    said, hidden = secret
    assume(hidden not in f"{before} {after}")
    kept = redact.text(f"{before} {said} {after}")
    assert hidden not in kept
    assert redact.REMOVED in kept
    assert kept.startswith(f"{before} ")


@given(SECRETS, st.integers(0, 700))
def test_no_event_keeps_a_secret_even_where_it_is_cut(secret, place):
    said, hidden = secret
    kept = json.dumps(events.cut({"arguments": {"feedback": "x " * (place // 2) + said}}), ensure_ascii=False)
    assert hidden not in kept
    assert hidden[:12] not in kept


@pytest.mark.parametrize(
    "said",
    [
        "5060593f4b6a9b0f9f1a2c3d4e5f60718293a4b5 and 5060593",
        str(uuid.UUID(int=2**127 + 12345)),
        "sha256:" + "0123456789abcdef" * 4,
        "SHA256:uNiVztksCsDhcc0u9e8BgrJXVGDSzEbTdYKXvJ3iqQ4",
        "work-123-a1 branch work/work-123-a1, src/app.py:3, risk-assessment-of-2026-q1",
        "Basic understanding, Basic JavaScript; a bearer token is needed; Bearer tokens are short",
        "1500 input tokens, tokens: 1500, max_tokens=4096, token: str, password: required, secret: none",
        "git@github.com:owner/name.git, https://user@example.invalid/x, https://example.invalid:8080/a?b=c",
        "the key is on the desk; keyboard: qwertz; monkey=banana; primary key: id",
        "test_a_message_of_an_agent_that_is_not_there_is_refused_at_once",
        "eyJ is how a token begins; sk-learn-contrib-examples; desk-management-application",
        "",
    ],
)
def test_ordinary_text_stays_as_it_is(said):
    assert redact.text(said) == said


@given(st.text(max_size=2000))
def test_anything_can_be_looked_at_and_a_second_look_finds_no_more(said):
    once = redact.text(said)
    assert redact.text(once) == once


def test_a_secret_in_an_event_is_removed_by_its_name_too():
    assert events.cut({"password": "plain", "note": "Bearer abc123def456"}) == {
        "password": redact.REMOVED,
        "note": f"Bearer {redact.REMOVED}",
    }


@pytest.mark.parametrize(
    ("said", "hidden"),
    [
        ('password="correct horse battery"', "horse battery"),
        ("Authorization: token 0123456789abcdef", "0123456789abcdef"),
        ("Authorization: ApiKey Xy12345678", "Xy12345678"),
        ('{\\"password\\": \\"hunter2x\\"}', "hunter2x"),
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nabcdef\n-----END PGP PRIVATE KEY BLOCK-----", "abcdef"),
        ("password=abc,def", "def"),
        ("postgres://user:p@ss1@db.invalid/x", "ss1"),
        ("mysql://admin:s3cr/et@db.invalid", "s3cr"),
        ("https://TOKENabc123456789xyz@host.invalid/x", "TOKENabc123456789xyz"),
        ("password := hunter2x", "hunter2x"),
        ('password=>"hunter2x"', "hunter2x"),
        ('password: ["hunter2x"]', "hunter2x"),
        ("passphrase=hunter2x", "hunter2x"),
        ("AccountKey=c2VjcmV0==", "c2VjcmV0"),
        ("hf_" + "a1" * 12, "a1a1"),
        ("pypi-AgEIcHlwaS5vcmcCJ", "AgEIcHlwaS5vcmcCJ"),
        ("xapp-1-A0-123456", "123456"),
        ("dop_v1_" + "a1" * 16, "a1a1"),
        ("glrt-abcdefghijklmnop12", "abcdefghijklmnop12"),
        ("https://hooks.slack.com/services/T000/B000/XXXXXXXXXXXXXXXX", "XXXXXXXXXXXXXXXX"),
        ("eyJhbGciOiJub25l.eyJzdWIiOiIxIn0.", "eyJzdWIiOiIxIn0"),
    ],
)
def test_forms_that_secrets_take_elsewhere_are_known(said: str, hidden: str) -> None:
    assert hidden not in redact.text(f"it says {said} there")


@pytest.mark.parametrize(
    "said",
    [
        "http://localhost:3000/users/@me is fine",
        "tokens: 500 of 1000",
        "git@github.com:acme/x.git",
        "glob-pattern-of-many-files here",
        "the password is wrong: try again",
    ],
)
def test_ordinary_text_with_such_words_stays(said: str) -> None:
    assert redact.text(said) == said
