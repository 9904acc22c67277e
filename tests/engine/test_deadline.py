"""A task that takes longer than it may is cancelled, and knows why."""

from __future__ import annotations

import asyncio

import pytest

from sk_agents.engine.run.deadline import Deadline, ended_within
from tests.patience import seconds


def this_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def test_what_takes_too_long_raises_timeout_error_and_leaves_no_cancel_behind() -> None:
    task = this_task()
    with pytest.raises(TimeoutError):
        with Deadline(task, 0):
            await forever()
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_what_ends_in_time_is_not_cancelled_later() -> None:
    with Deadline(this_task(), 0):
        pass
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_another_cancel_is_no_timeout() -> None:
    begun = asyncio.Event()

    async def work() -> None:
        with Deadline(this_task(), seconds(3600)):
            begun.set()
            await forever()

    task = asyncio.get_running_loop().create_task(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancel_beside_the_timeout_stays_a_cancel() -> None:
    async def work() -> None:
        own = this_task()
        with Deadline(own, 0):
            own.get_loop().call_later(0, own.cancel)
            await forever()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.get_running_loop().create_task(work())


async def test_time_stands_still_while_it_is_paused() -> None:
    with pytest.raises(TimeoutError):
        with Deadline(this_task(), 0) as deadline:
            deadline.pause()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            deadline.go_on()
            await forever()


async def test_task_that_ends_is_waited_for_no_longer() -> None:
    task = asyncio.get_running_loop().create_task(asyncio.sleep(0))
    async with asyncio.timeout(seconds(5)):
        await ended_within(task, 3600)
    assert task.done()


async def test_task_that_goes_on_is_waited_for_only_so_long() -> None:
    task = asyncio.get_running_loop().create_task(forever())
    await ended_within(task, 0)
    assert not task.done()
    task.cancel()
