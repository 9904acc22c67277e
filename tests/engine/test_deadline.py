"""A part of a task's work, cut off when its time is up."""

from __future__ import annotations

import asyncio

import pytest

from sk_agents.engine.run.deadline import Deadline


async def for_ever() -> None:
    await asyncio.get_running_loop().create_future()


async def test_work_past_its_time_is_cut_off_and_the_task_goes_on() -> None:
    with pytest.raises(TimeoutError), Deadline(0.01):
        await for_ever()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_work_that_is_done_in_time_is_not_disturbed_later() -> None:
    with Deadline(0.01):
        pass
    passed = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.02, passed.set_result, None)
    await passed


async def test_error_of_the_work_is_its_own() -> None:
    with pytest.raises(ValueError, match="mine"), Deadline(10):
        raise ValueError("mine")


async def test_cancelled_task_is_cancelled_not_late() -> None:
    async def work() -> None:
        with Deadline(10):
            await for_ever()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_task_that_is_cancelled_when_its_time_is_up_is_cancelled() -> None:
    async def work() -> None:
        with Deadline(0.0):
            asyncio.get_running_loop().call_soon(task.cancel)
            await for_ever()

    task = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_inner_deadline_does_not_end_the_outer_one() -> None:
    with Deadline(10):
        with pytest.raises(TimeoutError), Deadline(0.01):
            await for_ever()
        await asyncio.sleep(0)
    with pytest.raises(TimeoutError), Deadline(0.01), Deadline(10):
        await for_ever()
