"""Work for a client, for as long as the client is there."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")

LEFT = {"http.disconnect", "websocket.disconnect"}


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T | None:
    """What `work` returns, or `None` if the client left first; then it was stopped."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        await _stopped(leaving)
        await _stopped(working)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] not in LEFT:
        pass


async def _stopped(task: asyncio.Future[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        # Seen here, or already by whoever asked for the result.
        task.exception()
