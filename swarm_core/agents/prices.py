"""What models cost: a table of public list prices, and a file of your own that counts before it.

What comes out is an estimate. A model that is in neither has no price; none is guessed.
"""

from __future__ import annotations

import fnmatch
import math
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from swarm_core.agents.base import Usage
from swarm_core.errors import InvalidInput

_MILLION = 1_000_000
_CACHE_READ, _CACHE_WRITE = 0.1, 1.25  # of the price of input
_KEYS = ("input", "output", "cache_read", "cache_write")


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens of each kind."""

    input: float
    output: float
    cache_read: float
    cache_write: float

    def of(self, used: Usage) -> float:
        parts = (
            used.input_tokens * self.input,
            used.output_tokens * self.output,
            used.cache_read_tokens * self.cache_read,
            used.cache_write_tokens * self.cache_write,
        )
        return math.fsum(parts) / _MILLION


@dataclass(frozen=True, slots=True)
class Prices:
    """`own` are patterns of names with their prices; the first that fits counts, before the table."""

    own: tuple[tuple[str, Price], ...] = ()

    def find(self, model: str) -> Price | None:
        """The price of a model; None when it is not known."""
        for pattern, price in self.own:
            if fnmatch.fnmatchcase(model, pattern):
                return price
        name = _NAME.fullmatch(model)
        if name is None:
            return None
        return _TABLE.get(f"{name['family'] or name['after']}-{name['version'] or name['before']}")


def load(path: Path) -> Prices:
    """The prices with those of a `prices.toml`, if there is one."""
    try:
        with path.open("rb") as file:
            stored = tomllib.load(file)
    except FileNotFoundError:
        return Prices()
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _refused(path, f"it is not valid TOML: {error}") from None
    except OSError as error:
        raise _refused(path, f"it cannot be read: {error.strerror}") from None
    return Prices(tuple((pattern, _parse(path, pattern, given)) for pattern, given in stored.items()))


def _parse(path: Path, pattern: str, given: object) -> Price:
    if not isinstance(given, dict) or not {"input", "output"} <= given.keys() <= set(_KEYS):
        raise _refused(path, f"{pattern!r} needs input and output, and may have cache_read and cache_write")
    for key, value in given.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value <= _MILLION:
            raise _refused(path, f"{key} of {pattern!r} must be US dollars for a million tokens")
    made = price(float(given["input"]), float(given["output"]))
    read, write = given.get("cache_read", made.cache_read), given.get("cache_write", made.cache_write)
    return Price(made.input, made.output, float(read), float(write))


def _refused(path: Path, why: str) -> InvalidInput:
    hint = 'a price is written as: ["claude-opus-4-5*"] and below it input = 5 and output = 25'
    return InvalidInput(f"{path} cannot be used: {why}", code="INVALID_SETTING", hint=hint)


def price(input_usd: float, output_usd: float) -> Price:
    """A price with what reading and writing a cache costs in proportion to input."""
    return Price(input_usd, output_usd, input_usd * _CACHE_READ, input_usd * _CACHE_WRITE)


# claude-opus-4-5-20251101, claude-3-5-haiku-latest; as Bedrock and Vertex spell them; with a longer context.
_FAMILIES = "opus|sonnet|haiku"
_NAME = re.compile(
    rf"(?:(?:[a-z]+\.)?anthropic\.)?claude-"
    rf"(?:(?P<family>{_FAMILIES})-(?P<version>\d(?:-\d)?)|(?P<before>\d(?:-\d)?)-(?P<after>{_FAMILIES}))"
    r"(?:-latest|[-@]\d{8})?(?:-v\d(?::\d)?)?(?:\[1m\])?"
)
_TABLE: dict[str, Price] = {
    **dict.fromkeys([f"opus-4-{minor}" for minor in range(5, 10)], price(5, 25)),
    **dict.fromkeys(["opus-3", "opus-4", "opus-4-0", "opus-4-1"], price(15, 75)),
    **dict.fromkeys(["sonnet-3", "sonnet-3-5", "sonnet-3-7", "sonnet-4"], price(3, 15)),
    **dict.fromkeys([f"sonnet-4-{minor}" for minor in range(10)], price(3, 15)),
    "haiku-4-5": price(1, 5),
    "haiku-3-5": price(0.8, 4),
}
