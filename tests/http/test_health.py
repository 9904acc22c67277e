"""Whether the server is ready: asked by anybody, as often as they like."""

import asyncio

from sk_agents.http.health import Health


async def test_many_who_ask_at_once_share_one_look_at_the_store() -> None:
    gate, pings = asyncio.Event(), 0

    async def ping() -> None:
        nonlocal pings
        pings += 1
        await gate.wait()

    health = Health()
    health.watch("store", ping)
    asking = [asyncio.create_task(health.ready()) for _ in range(100)]
    await asyncio.sleep(0)
    gate.set()
    assert {report["status"] for report in await asyncio.gather(*asking)} == {"healthy"}
    assert pings == 1
    await health.ready()
    assert pings == 2


async def test_one_who_leaves_does_not_end_the_look_of_the_others() -> None:
    gate = asyncio.Event()
    health = Health()
    health.watch("store", gate.wait)
    first, second = (asyncio.create_task(health.ready()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    gate.set()
    assert (await second)["status"] == "healthy"
