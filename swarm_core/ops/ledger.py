"""The one place that reads agents' own logs: what a log says of messages and of usage is recorded together.

A log tells everything once; whoever asks first must not keep it from the others.
"""

from __future__ import annotations

import dataclasses
import logging

from swarm_core.agents import prices
from swarm_core.agents.base import Usage
from swarm_core.errors import InvalidInput
from swarm_core.models import Instance, iso, parse_iso
from swarm_core.ops.context import Context, Shelf, talk
from swarm_core.store import messages, usage

_MOST_TOKENS = 1_000_000_000  # an agent can write into its own log what it likes
_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_LONGEST_NAME = 200
_KNOWN_AT_MOST = 1000

log = logging.getLogger(__name__)


def take_in(context: Context, instance: Instance) -> None:
    """Record what is new in the agent's own log; not to be called inside a transaction.

    When it returns, everything that any thread has read of the log is written down. What cannot be written is kept
    for the next time.
    """
    shelf = context.shelf(instance.id)
    with shelf.lock:
        _read(context, instance, shelf)
        if not shelf.received and not shelf.used:
            return
        priced = _priced(context, shelf)
        with context.db.write():
            usage.add(context.db, instance.id, priced)
            known = {m.id for m in messages.undelivered(context.db, instance.id, limit=_KNOWN_AT_MOST)}
            for message_id in sorted(shelf.received & known):
                messages.see(context.db, message_id, evidence="its own log")
        shelf.received.clear()
        shelf.used.clear()


def price_list(context: Context) -> prices.Prices:
    """The prices in force; a file that cannot be used must not keep usage and receipts from being recorded."""
    try:
        return prices.load(context.settings.prices_path)
    except InvalidInput as error:
        log.warning("%s", error.message)
        return prices.Prices()


def _read(context: Context, instance: Instance, shelf: Shelf) -> None:
    facts = context.host(instance).read_log(talk(instance))
    shelf.received.update(facts["received"])
    for told in facts["usage"]:
        one = _bounded(Usage(**told))
        before = shelf.used.get(one.message_id)
        if before is None or _tokens(one) >= _tokens(before):
            shelf.used[one.message_id] = one


def _priced(context: Context, shelf: Shelf) -> list[usage.Used]:
    if not shelf.used:
        return []
    known, now = price_list(context), context.db.now()
    return [_row(one, known, now) for one in shelf.used.values()]


def _row(one: Usage, known: prices.Prices, now: str) -> usage.Used:
    found = known.find(one.model)
    fields = dataclasses.asdict(one) | {"at": iso(parse_iso(one.at)) if one.at else now}
    return usage.Used(**fields, cost_usd=found.of(one) if found else 0.0)


def _bounded(one: Usage) -> Usage:
    counts = {name: min(getattr(one, name), _MOST_TOKENS) for name in _COUNTS}
    return dataclasses.replace(one, message_id=_kept(one.message_id), model=_kept(one.model), **counts)


def _tokens(one: Usage) -> int:
    return one.input_tokens + one.output_tokens + one.cache_read_tokens + one.cache_write_tokens


def _kept(text: str) -> str:
    """Half a surrogate pair, which JSON can spell, cannot be stored."""
    return text[:_LONGEST_NAME].encode(errors="replace").decode()
