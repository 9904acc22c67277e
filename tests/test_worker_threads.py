"""Threads for blocking functions: bounded, and not trusted to come back."""

import asyncio
import contextvars
import sys
import threading

import pytest

from sk_agents.exceptions import ToolError
from sk_agents.worker_threads import ThreadEnded, WorkerThreads
from tests.patience import seconds


async def started(threads: WorkerThreads, gate: threading.Event) -> asyncio.Task[bool]:
    """A call that is inside its thread and stays there until the gate opens."""
    loop, inside = asyncio.get_running_loop(), asyncio.Event()

    def wait() -> bool:
        loop.call_soon_threadsafe(inside.set)
        return gate.wait(seconds(60))

    task = asyncio.create_task(threads.run(wait))
    async with asyncio.timeout(seconds(5)):
        await inside.wait()
    return task


async def test_abandoned_calls_are_counted_until_they_come_back() -> None:
    threads, gate = WorkerThreads(most_abandoned=2), threading.Event()
    for _ in range(2):
        task = await started(threads, gate)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert threads.abandoned == 2
    with pytest.raises(ToolError, match="still hang"):
        await threads.run(lambda: 1)
    gate.set()
    for thread in threading.enumerate():
        if thread.name == "worker":
            thread.join(seconds(5))
    # Both have called the loop; it takes their results at its next turn.
    await asyncio.sleep(0)
    assert threads.abandoned == 0
    assert await threads.run(lambda: 1) == 1


async def test_abandoned_call_frees_its_slot_where_abandoned_calls_are_bounded() -> None:
    threads, gate = WorkerThreads(1, most_abandoned=1), threading.Event()
    task = await started(threads, gate)
    second = asyncio.create_task(threads.run(lambda: 2))
    task.cancel()
    with pytest.raises(ToolError, match="still hang"):
        await second
    gate.set()


async def test_abandoned_call_lets_the_next_one_start() -> None:
    threads, gate = WorkerThreads(1, most_abandoned=2), threading.Event()
    task = await started(threads, gate)
    second = asyncio.create_task(threads.run(lambda: 2))
    task.cancel()
    async with asyncio.timeout(seconds(5)):
        assert await second == 2
    gate.set()


async def test_abandoned_call_keeps_its_slot_until_it_returns() -> None:
    threads, gate = WorkerThreads(1), threading.Event()
    task = await started(threads, gate)
    second = asyncio.create_task(threads.run(lambda: 2))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not second.done()
    gate.set()
    async with asyncio.timeout(seconds(5)):
        assert await second == 2
    assert threads.abandoned == 0


async def test_function_cannot_end_the_process() -> None:
    with pytest.raises(ThreadEnded):
        await WorkerThreads().run(sys.exit)


async def test_no_more_calls_run_at_once_than_there_are_slots() -> None:
    threads, gate = WorkerThreads(1), threading.Event()
    task = await started(threads, gate)
    ran: list[int] = []
    second = asyncio.create_task(threads.run(lambda: ran.append(1)))
    await asyncio.sleep(0)
    assert ran == []
    gate.set()
    async with asyncio.timeout(seconds(5)):
        assert await task
        await second
    assert ran == [1]


async def test_context_variables_reach_the_thread() -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")
    assert await WorkerThreads().run(variable.get) == "set"


def test_thread_that_ends_after_its_loop_disturbs_nothing() -> None:
    gate, threads = threading.Event(), WorkerThreads()
    ended = threading.Event()

    async def leave() -> None:
        (await started(threads, gate)).cancel()

    asyncio.run(leave())
    for thread in threading.enumerate():
        if thread.name == "worker":
            gate.set()
            thread.join(seconds(5))
            ended.set()
    assert ended.is_set()
