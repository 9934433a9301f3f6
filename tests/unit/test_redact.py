"""Secrets do not stay in what is kept, whatever stands around them; and ordinary text stays as it is."""

from __future__ import annotations

import base64
import json
import secrets
import string
import time
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
        ("AGE-SECRET-KEY-1" + "Q" * 58, "QQQQ"),
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


S = "Zx9Qw8Er7Ty6Ui5Op4"


@pytest.mark.parametrize(
    "said",
    [
        f'{{"password": "ab\'{S}"}}',
        f'"password": "ab\\"{S}"',
        f'"password": "ab\\\\\\"{S}", "b": 1',
        f'{{\\"password\\": \\"ab\\\\\\"{S}\\"}}',
        f'{{\\\\\\"password\\\\\\": \\\\\\"{S}\\\\\\"}}',
        f'password = ["a", "{S}"]',
        f'"tokens": ["none", "a]", \'{S}\']',
        f"tokens: [abc1, {S}]",
        f"password == {S}",
        f"password != '{S}'",
        f"password -> {S}",
        f"password=ab'{S}",
        f"password=''{S}''",
        f"secret='a''{S}'",
        f"password: |\n  {S}",
        f"PASSWORD%3D{S}%26a%3Db",
        f"%22password%22%3A%22{S}%22",
        f"<password>{S}</password>",
        f"<db:userPassword type='x'>{S}<",
        f"<token><![CDATA[{S}]]></token>",
        f"https://u:pa'{S}@host/x",
        f"https://host/?a=b&sig={S}",
        f"https://host/x?X-Amz-Signature={S}",
        f"DB_PASS={S}",
        f"pgpass: {S}",
        f"PRIVATE_KEY={S}",
        f"SECRET_KEY = '{S}'",
        f"Cookie: theme=dark; session={S}",
        f'Set-Cookie: sid="{S}"; HttpOnly',
        f'{{"Cookie": "a=b; sid={S}"}}',
        f"Authorization: Digest {S}",
        f'Authorization: Digest username="bob", realm="a b", response="{S}"',
        f"authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/2020, Signature={S}",
        f"İ password={S}",
        f"https://discord.com/api/webhooks/123/{S * 3}",
        f"-----BEGIN\u00a0RSA PRIVATE KEY-----\n{S}",
        *(
            f"{beginning}{S}{S}"
            for beginning in (
                *(
                    "ya29.",
                    "GOCSPX-",
                    "dckr_pat_",
                    "hvs.",
                    "AIza",
                    "1//0",
                    "ATATT3",
                    "123456789:AA",
                    "whsec_",
                    "sq0atp-",
                ),
                *(
                    "sk-ant-api03-",
                    "sk_live_",
                    "rk_live_",
                    "xoxb-",
                    "xoxp-",
                    "glpat-",
                    "npm_",
                    "pypi-",
                    "lin_api_",
                ),
                *(
                    "SG.ngeVfQFYQlKU0ufo8x5d1A.",
                    "glsa_",
                    "sntrys_",
                    "github_pat_",
                    "glc_",
                    "ATCTT3",
                    "hvb.",
                    "dckr_oat_",
                ),
            )
        ),
    ],
)
def test_the_whole_value_is_removed_however_it_is_written(said: str) -> None:
    kept = redact.text(f"it says {said}")
    assert S not in kept
    assert redact.REMOVED in kept
    assert redact.text(kept) == kept


@pytest.mark.parametrize(
    "beginning",
    [
        "shpat_",
        "shpss_",
        "dapi",
        "rubygems_0123456789abcdef",
        "dop_v1_",
        "sntryu_abcdef01",
        "PMAK-0123456789abcdef01234567-",
    ],
)
def test_a_token_in_hexadecimal_is_known_by_its_beginning(beginning: str) -> None:
    digits = "0123456789abcdef" * 2
    assert digits not in redact.text(f"it says {beginning}{digits} there")


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ('{"password": "a\\"b", "id": 7}', '{"password": "[removed]", "id": 7}'),
        ('{"password": "a\\\\", "id": 7}', '{"password": "[removed]", "id": 7}'),
        ("password='it''s', id=7", "password='[removed]', id=7"),
        ('secret = ["a", "b"] id 7', 'secret = ["[removed]", "[removed]"] id 7'),
        ('password="" and id 7', 'password="" and id 7'),
        ('curl -H "Cookie: a=b" https://example.invalid', 'curl -H "Cookie: [removed]" https://example.invalid'),
        ("Authorization: Digest a1, b=c2 for id 7", "Authorization: Digest [removed] for id 7"),
        ("<password>x y</password><id>7</id>", "<password>[removed]</password><id>7</id>"),
        ("password=[removed] id 7", "password=[removed] id 7"),
    ],
)
def test_what_follows_a_secret_stays(said: str, kept: str) -> None:
    assert redact.text(said) == kept


@pytest.mark.parametrize(
    "said",
    [
        "password reset page, the token expired, private key of the host, a secret -> nothing",
        "swarm login <token> <name>, then wait",
        "tests pass: 12, bypass=1, first pass=ok, --- PASS: TestX1 (0.00s), compass: N1",
        "signature: f(x1) -> y2; design=x1",
        "Cookie: the session needs one; cookies: 3",
        "Authorization: Negotiate access first; Authorization: Digest is old",
        "PRIVATE_KEY=/home/me/.ssh/id_ed25519, ssh_key: ~/.ssh/id_rsa",
        '{"url":"https://h:80/","mail":"a@example.invalid"}',
        "shpat_ and hvs. and ya29. are beginnings; SG.1; tasks 12345678:AB",
    ],
)
def test_ordinary_text_near_the_forms_of_secrets_stays(said: str) -> None:
    assert redact.text(said) == said


@pytest.mark.parametrize("name", ["DB_PASS", "passphrase", "private_key", "Set-Cookie", "credentials", "API-Key"])
def test_a_field_is_a_secret_by_more_names(name: str) -> None:
    assert events.cut({name: ["plain"]}) == {name: redact.REMOVED}


HOSTILE = [
    *(
        "sk-",
        "eyJ-",
        "-eyJa",
        "eyJaaaaaaaa.",
        "glpat-",
        "SG.aaaaaaaaaaaaaaaaaaaa",
        "1",
        "ya29.",
        "AGE-SECRET-KEY-1",
    ),
    *(
        "password:\0 ",
        "password: [\0 ",
        "password",
        'password="',
        "password='x''",
        "password=\0\\",
        'password="\0\\',
    ),
    *('password="\\" ', "password=[a,", "password=[\0'',", "password=\0,", "token: token ", "password:|\0\n"),
    *(
        "<password ",
        "<password>",
        "<pass",
        "<\0password",
        "://a:",
        "://",
        "://a:'",
        "a://b@",
        "cookie:",
        "cookie: a=",
    ),
    *(
        "cookie: \0a",
        "authorization: digest a=",
        "authorization: digest\0 ",
        "authorization: digest \0,a",
        "bearer ",
    ),
    *(
        "authorization:\0hmac",
        "basic\0 ",
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN A",
        "-----BEGIN\0 ",
        "sig",
        "a-",
    ),
]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_the_work_grows_with_the_text_and_not_with_its_square(hostile: str) -> None:
    first, _, again = hostile.rpartition("\0")

    def work(size: int) -> float:
        said = first + again * (size // len(again))
        began = time.thread_time()
        redact.text(said)
        return time.thread_time() - began

    work(100)
    small = max(min(work(1 << 15) for _ in range(3)), 1e-3)
    # 32 times as much text; its square would be 1024 times as much work.
    assert work(1 << 20) < 200 * small
