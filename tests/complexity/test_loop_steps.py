"""One request keeps the event loop no longer at a time the larger a chat is: it takes more steps.

Counted are the calls within one step of the loop, so that no busy machine matters; how long steps
take is said by the watchdog of a running server.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sk_agents.engine.models import NewThread
from tests.chats.long_chat import fill, fill_thread, turns
from tests.chats.serving import Served, serving
from tests.complexity.work import TIMES, largest_step
from tests.surfaces import teal_server

# Large enough that the work for the chat outweighs what any request takes.
TURNS = 150
MOST_GROWTH = 2.0
# A few milliseconds, whatever they grow with.
FEW_CALLS = 12_000


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


async def read_document(served: Served, number: int) -> None:
    document = await served.get("/chats/c?state=false")
    assert len(document["interactions"]) == number


async def read_branches(served: Served, number: int) -> None:
    assert len((await served.get("/chats/c/branches"))["branches"]) == number


async def find_passages(served: Served, number: int) -> None:
    assert not (await served.get("/chats/c/passages?q=nowhere"))["passages"]


async def read_shared(served: Served, number: int) -> None:
    shared = await served.get(f"/shared/{await link(served)}")
    assert len(shared["interactions"]) == number


async def copy_shared(served: Served, number: int) -> None:
    copied = await served.client.post(f"/shared/{await link(served)}/copy")
    assert copied.status_code == 201


async def link(served: Served) -> str:
    made = await served.client.post("/chats/c/shares", json={})
    return str(made.json()["share_id"])


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
    "the chat as a document": read_document,
    "the chat's branches": read_branches,
    "a text looked for in the chat": find_passages,
    "the chat behind a link": read_shared,
    "a copy of the chat behind a link": copy_shared,
}


@pytest.mark.parametrize("request_", REQUESTS)
async def test_no_step_grows_with_the_chat(tmp_path: Path, request_: str) -> None:
    small = await largest(made(tmp_path / "small"), request_, TURNS)
    large = await largest(made(tmp_path / "large"), request_, TIMES * TURNS)
    assert large <= max(MOST_GROWTH * small, FEW_CALLS)


async def largest_of_task(folder: Path, number: int) -> int:
    task_id = "5c3f7f0e-0a52-4f0e-9d0a-7f1d8e1b2c3d"
    async with teal_server.place(folder, []) as at:
        await fill_thread(
            f"sqlite://{at.database}",
            task_id,
            NewThread("alice", surface="tealagents", session_id="s"),
            turns(number),
        )
        async with teal_server.serving(at) as server:
            place = f"{teal_server.P}/tasks/{task_id}"
            assert (await server.get(place)).status_code == 200
            with largest_step() as found:
                task = (await server.get(place)).json()
            assert len(task["trace"]) >= number
            return found()


async def test_no_step_grows_with_the_task(tmp_path: Path) -> None:
    small = await largest_of_task(made(tmp_path / "small"), TURNS)
    large = await largest_of_task(made(tmp_path / "large"), TIMES * TURNS)
    assert large <= max(MOST_GROWTH * small, FEW_CALLS)
