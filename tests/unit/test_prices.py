"""Prices of models: known families, a file of one's own, and no guesses."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm_core.agents import prices
from swarm_core.agents.base import Usage
from swarm_core.agents.prices import Price
from swarm_core.errors import InvalidInput

OPUS, OLD_OPUS, SONNET = (5, 25), (15, 75), (3, 15)
HAIKU, OLD_HAIKU = (1, 5), (0.8, 4)


def used(model: str, *counts: int) -> Usage:
    took, gave, read, wrote = counts
    return Usage("msg_1", model, took, gave, read, wrote, "")


@pytest.mark.parametrize(
    ("model", "usd"),
    [
        ("claude-opus-4-5-20251101", OPUS),
        ("claude-opus-4-6", OPUS),
        ("claude-opus-4-8[1m]", OPUS),
        ("claude-opus-4-1-20250805", OLD_OPUS),
        ("claude-opus-4-20250514", OLD_OPUS),
        ("claude-opus-4-0", OLD_OPUS),
        ("claude-3-opus-20240229", OLD_OPUS),
        ("claude-3-opus-latest", OLD_OPUS),
        ("claude-sonnet-4-5-20250929", SONNET),
        ("claude-sonnet-4-20250514", SONNET),
        ("claude-3-7-sonnet-latest", SONNET),
        ("us.anthropic.claude-3-5-sonnet-20241022-v2:0", SONNET),
        ("anthropic.claude-sonnet-4-5-20250929-v1:0", SONNET),
        ("claude-haiku-4-5-20251001", HAIKU),
        ("claude-haiku-4-5@20251001", HAIKU),
        ("claude-3-5-haiku-20241022", OLD_HAIKU),
    ],
)
def test_known_models_have_their_price(model: str, usd: tuple[float, float]) -> None:
    found = prices.Prices().find(model)
    assert found is not None
    assert (found.input, found.output) == usd
    assert found.cache_read == pytest.approx(usd[0] * 0.1)
    assert found.cache_write == pytest.approx(usd[0] * 1.25)


@pytest.mark.parametrize(
    "model",
    [
        "",
        "<synthetic>",
        "gpt-5",
        "claude",
        "claude-opus-4-10",
        "claude-opus-5",
        "claude-opus-4-5-tuned",
        "not-claude-opus-4-5",
        "claude-haiku-4-6",
        "claude-2.1",
        "CLAUDE-OPUS-4-5",
    ],
)
def test_the_price_of_any_other_model_is_not_guessed(model: str) -> None:
    assert prices.Prices().find(model) is None


def test_every_kind_of_token_has_its_own_price() -> None:
    price = Price(input=1, output=10, cache_read=100, cache_write=1000)
    assert price.of(used("any", 1_000_000, 0, 0, 0)) == 1
    assert price.of(used("any", 0, 1_000_000, 0, 0)) == 10
    assert price.of(used("any", 0, 0, 1_000_000, 0)) == 100
    assert price.of(used("any", 0, 0, 0, 1_000_000)) == 1000
    assert price.of(used("any", 500_000, 100_000, 10_000, 1000)) == pytest.approx(3.5)


def test_without_a_file_the_table_counts(tmp_path: Path) -> None:
    assert prices.load(tmp_path / "prices.toml") == prices.Prices()


def test_a_file_counts_before_the_table_and_its_first_pattern_first(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(
        '["claude-opus-4-5*"]\ninput = 4\noutput = 20.5\ncache_write = 8\n["claude-*"]\ninput = 1\noutput = 2\n'
    )
    found = prices.load(path)
    assert found.find("claude-opus-4-5-20251101") == Price(4, 20.5, 0.4, 8)
    assert found.find("claude-next") == prices.price(1, 2)
    assert found.find("gpt-5") is None


@pytest.mark.parametrize(
    "text",
    [
        "not toml",
        b"\xff\xfe = 1",
        "input = 5",
        '["a"]\ninput = 5',
        '["a"]\ninput = 5\noutput = 5\ncached = 1',
        '["a"]\ninput = "5"\noutput = 5',
        '["a"]\ninput = true\noutput = 5',
        '["a"]\ninput = -1\noutput = 5',
        '["a"]\ninput = nan\noutput = 5',
        '["a"]\ninput = inf\noutput = 5',
    ],
)
def test_a_file_that_says_something_else_is_refused(tmp_path: Path, text: str | bytes) -> None:
    path = tmp_path / "prices.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidInput) as refused:
        prices.load(path)
    assert refused.value.code == "INVALID_SETTING"


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").mkdir()
    with pytest.raises(InvalidInput):
        prices.load(tmp_path / "prices.toml")
