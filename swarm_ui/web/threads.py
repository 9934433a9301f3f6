"""The few threads that all requests share: for what reads or writes the database, and starts no program."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import TypeVar

from starlette.concurrency import run_in_threadpool

from swarm_core import proc

_T = TypeVar("_T")


async def shared(work: Callable[..., _T], *args: object, **named: object) -> _T:
    """Call `work` in a shared thread; one that starts a program is a bug, because everybody would wait for it.

    Programs belong into one of the site's pools, see `slow`.
    """
    return await run_in_threadpool(_guarded, functools.partial(work, *args, **named))


async def for_streams(work: Callable[..., _T], *args: object) -> _T:
    """As `shared`, in other threads: many viewers that arrive at once keep no request waiting."""
    return await asyncio.to_thread(_guarded, functools.partial(work, *args))


def _guarded(work: Callable[[], _T]) -> _T:
    with proc.refused("requests of others wait for this thread"):
        return work()
