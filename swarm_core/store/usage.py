"""What agents' models have used, one row for each answer; the sums stand in the instance's own row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from swarm_core.store.database import Database

_COUNTS = "input_tokens, output_tokens, cache_read_tokens, cache_write_tokens"
_SUMS = ", ".join(f"coalesce(sum({name}), 0)" for name in (*_COUNTS.split(", "), "cost_usd"))


@dataclass(frozen=True, slots=True)
class Used:
    """What one answer has used. A cost of 0 is one that nobody knows."""

    message_id: str
    model: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: float
    at: str

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_write_tokens


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over answers; `model` is empty when they are those of all models."""

    model: str
    answers: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: float


def add(db: Database, instance_id: str, used: Iterable[Used]) -> None:
    """Record answers; call inside a transaction.

    An answer that is known counts once: what is told of it again replaces it if it is more, or if only now its
    price is known.
    """
    tokens, cost = 0, 0.0
    for one in used:
        row = db.row(
            f"SELECT {_COUNTS}, cost_usd FROM usage WHERE instance_id = ? AND message_id = ?",
            (instance_id, one.message_id),
        )
        counted, priced = (sum(row[:4]), float(row[4])) if row else (0, 0.0)
        if one.tokens > counted or (one.tokens == counted and one.cost_usd > priced == 0):
            _put(db, instance_id, one)
            tokens += one.tokens - counted
            cost += one.cost_usd - priced
    if tokens or cost:
        db.execute(
            "UPDATE instances SET tokens_used = tokens_used + ?, cost_usd = cost_usd + ?, updated_at = ?"
            " WHERE id = ?",
            (tokens, cost, db.now(), instance_id),
        )


def totals(db: Database, instance_id: str) -> Totals:
    row = db.row(f"SELECT '', count(*), {_SUMS} FROM usage WHERE instance_id = ?", (instance_id,))
    assert row is not None
    return Totals(*row)


def by_model(db: Database, instance_id: str) -> list[Totals]:
    """The sums of each model, the dearest first."""
    rows = db.rows(
        f"SELECT model, count(*), {_SUMS} FROM usage WHERE instance_id = ? GROUP BY model"
        " ORDER BY sum(cost_usd) DESC, model",
        (instance_id,),
    )
    return [Totals(*r) for r in rows]


def _put(db: Database, instance_id: str, one: Used) -> None:
    db.execute(
        f"INSERT OR REPLACE INTO usage (instance_id, message_id, model, {_COUNTS}, cost_usd, at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(instance_id, one.message_id, one.model),
            *(one.input_tokens, one.output_tokens, one.cache_read_tokens, one.cache_write_tokens),
            *(one.cost_usd, one.at),
        ),
    )
