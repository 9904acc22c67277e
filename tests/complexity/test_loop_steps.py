"""One request keeps the event loop no longer at a time the larger a chat is: it takes more steps.

Counted are the calls within one step of the loop, so that no busy machine matters; how long steps
take is said by the watchdog of a running server.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chats.long_chat import fill, turns
from tests.chats.serving import Served, serving
from tests.complexity.work import TIMES, largest_step

# Large enough that the work for the chat outweighs what any request takes.
TURNS = 150
MOST_GROWTH = 2.0


async def read_whole(served: Served, number: int) -> None:
    async with served.stream("GET", "/chats/c/events?after=0") as frames:
        seen = 0
        async for frame in frames:
            seen += frame.name == "interaction_complete"
            if seen == number:
                return


async def read_one(served: Served, number: int) -> None:
    await served.follow(f"int_{number - 1}")


async def take_away(served: Served, number: int) -> None:
    document = await served.get("/chats/c/export")
    assert len(document["events"]) == 3 * number


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


async def largest(folder: Path, request: str, number: int) -> int:
    await fill(folder, turns(number), at_once=3)
    async with serving(folder) as served:
        # What is loaded or built for the first request is not what is looked at.
        await served.get("/chats/c?state=false")
        await REQUESTS[request](served, number)
        with largest_step() as found:
            await REQUESTS[request](served, number)
        return found()


REQUESTS = {
    "the chat's stream from its beginning": read_whole,
    "an interaction's stream": read_one,
    "the chat taken away": take_away,
}


@pytest.mark.parametrize("request_", REQUESTS)
async def test_no_step_grows_with_the_chat(tmp_path: Path, request_: str) -> None:
    small = await largest(made(tmp_path / "small"), request_, TURNS)
    large = await largest(made(tmp_path / "large"), request_, TIMES * TURNS)
    assert large <= MOST_GROWTH * small
