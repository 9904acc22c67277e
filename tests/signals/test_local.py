"""Wake-ups inside one process: none is lost, none comes too early."""

import asyncio
import gc

import pytest

from sk_agents.signals.local import LocalSignals
from tests.patience import seconds


@pytest.fixture
def signals() -> LocalSignals:
    return LocalSignals()


async def test_waiter_is_woken_by_its_own_thread_only(signals: LocalSignals) -> None:
    async with (
        asyncio.timeout(seconds(5)),
        signals.subscribe("a") as one,
        signals.subscribe("b") as other,
    ):
        waiting = asyncio.create_task(one.wait(seconds(60)))
        elsewhere = asyncio.create_task(other.wait(0.02))
        await asyncio.sleep(0)
        signals.notify("a")
        assert await waiting is True
        assert await elsewhere is False


async def test_all_who_wait_for_a_thread_are_woken(signals: LocalSignals) -> None:
    async with (
        asyncio.timeout(seconds(5)),
        signals.subscribe("a") as one,
        signals.subscribe("a") as other,
    ):
        waiting = [asyncio.create_task(each.wait(seconds(60))) for each in (one, other)]
        await asyncio.sleep(0)
        signals.notify("a")
        assert await asyncio.gather(*waiting) == [True, True]


async def test_change_between_two_waits_is_reported_once(signals: LocalSignals) -> None:
    async with asyncio.timeout(seconds(5)), signals.subscribe("a") as changes:
        signals.notify("a")
        signals.notify("a", local=True)
        assert await changes.wait(seconds(60)) is True
        assert await changes.wait(0.01) is False


async def test_wait_ends_at_its_own_time_whatever_earlier_ones_asked_for(
    signals: LocalSignals,
) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(seconds(5)), signals.subscribe("a") as changes:
        for bound in (60, 0.02, 0.06, 0.02, 60, 0.04):
            since = loop.time()
            if bound == 60:
                loop.call_soon(signals.notify, "a")
            assert await changes.wait(bound) is (bound == 60)
            assert bound == 60 or loop.time() - since >= bound


async def test_who_has_left_is_forgotten_with_its_wait(signals: LocalSignals) -> None:
    async with signals.subscribe("a") as changes:
        waiting = asyncio.create_task(changes.wait(seconds(60)))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        signals.notify("a")
        assert await changes.wait(seconds(60)) is True
    signals.notify("a")
    async with asyncio.timeout(seconds(5)), signals.subscribe("a") as later:
        assert await later.wait(0.01) is False


async def test_each_of_many_waits_ends_at_its_own_time(signals: LocalSignals) -> None:
    loop = asyncio.get_running_loop()
    ended: list[float] = []

    async def wait(seconds: float) -> None:
        async with signals.subscribe(f"thread {seconds}") as changes:
            since = loop.time()
            assert await changes.wait(seconds) is False
            assert loop.time() - since >= seconds
            ended.append(seconds)

    times = [0.08, 0.02, 0.06, 0.04, 0.02]
    async with asyncio.timeout(seconds(5)):
        await asyncio.gather(*map(wait, times))
    assert ended == sorted(times)


async def test_waits_that_were_woken_are_not_kept_past_their_time(signals: LocalSignals) -> None:
    def futures() -> int:
        return sum(type(kept) is asyncio.Future for kept in gc.get_objects())

    async with asyncio.timeout(seconds(5)), signals.subscribe("a") as changes:
        before = futures()
        for _ in range(100):
            asyncio.get_running_loop().call_soon(signals.notify, "a")
            assert await changes.wait(0.02) is True
        assert await changes.wait(0.05) is False
        assert futures() - before < 10
