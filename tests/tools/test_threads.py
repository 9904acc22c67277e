"""Threads of blocking tools: bounded, and not trusted to come back."""

import asyncio
import contextvars
import threading

import pytest

from sk_agents.exceptions import ToolError
from sk_agents.tools.threads import CallThreads


async def started(threads: CallThreads, gate: threading.Event) -> asyncio.Task[bool]:
    """A call that is inside its thread and stays there until the gate opens."""
    loop, inside = asyncio.get_running_loop(), asyncio.Event()

    def wait() -> bool:
        loop.call_soon_threadsafe(inside.set)
        return gate.wait(60)

    task = asyncio.create_task(threads.run(wait))
    async with asyncio.timeout(5):
        await inside.wait()
    return task


async def test_abandoned_calls_are_counted_until_they_come_back() -> None:
    threads, gate = CallThreads(abandoned=2), threading.Event()
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
        if thread.name == "tool":
            thread.join(5)
    # Both have told the loop; it listens at its next turn.
    await asyncio.sleep(0)
    assert threads.abandoned == 0
    assert await threads.run(lambda: 1) == 1


async def test_abandoned_call_frees_its_slot() -> None:
    threads, gate = CallThreads(running=1), threading.Event()
    task = await started(threads, gate)
    second = asyncio.create_task(threads.run(lambda: 2))
    task.cancel()
    async with asyncio.timeout(5):
        assert await second == 2
    gate.set()


async def test_no_more_calls_run_at_once_than_there_are_slots() -> None:
    threads, gate = CallThreads(running=1), threading.Event()
    task = await started(threads, gate)
    ran: list[int] = []
    second = asyncio.create_task(threads.run(lambda: ran.append(1)))
    await asyncio.sleep(0)
    assert ran == []
    gate.set()
    async with asyncio.timeout(5):
        assert await task
        await second
    assert ran == [1]


async def test_context_variables_reach_the_thread() -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")
    assert await CallThreads().run(variable.get) == "set"


def test_thread_that_ends_after_its_loop_disturbs_nobody() -> None:
    gate, threads = threading.Event(), CallThreads()
    ended = threading.Event()

    async def leave() -> None:
        (await started(threads, gate)).cancel()

    asyncio.run(leave())
    for thread in threading.enumerate():
        if thread.name == "tool":
            gate.set()
            thread.join(5)
            ended.set()
    assert ended.is_set()
