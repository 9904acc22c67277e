"""Any instance serves any request: what begins at one is read, decided and ended at the others."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from sk_agents.engine.events import RunEnded
from sk_agents.engine.models import RunStatus
from tests import debian
from tests.chaos.histories import Frame
from tests.chaos.scale import trials
from tests.chaos.served_chaos import Site
from tests.instances.caller import BOUND, Conversation, approve, new_token
from tests.instances.nginx import nginx_before
from tests.instances.tcp_proxy import TcpProxy
from tests.missing import lacks
from tests.patience import seconds

# Conversations that run at the same time; half of them lose the server that they began at.
BATCH = 20
BATCHES = trials(full=15, small=1)
CLIENTS = trials(full=20, small=4)
ROLLS = trials(full=3, small=1)
ALL_NAMES = [
    *("interaction_started", "tool_proposed", "approval_required", "approved"),
    *("tool_call", "tool_result", "answer", "interaction_complete"),
]


def urls(site: Site, first: int = 0) -> list[str]:
    """All servers, beginning with this one."""
    members = site.fleet.members
    return [members[(first + at) % len(members)].server.url for at in range(len(members))]


async def check_transcripts(site: Site, conversations: Sequence[Conversation]) -> None:
    """Every client has read its log as it is stored, and no other answer than 200."""
    logs = await site.read_logs()
    for one in conversations:
        assert one.refusals == []
        log = [event for event in logs[one.chat] if event.run_id == one.interaction]
        assert [frame.id.partition("-")[0] for frame in one.frames] == sorted(
            {frame.id.partition("-")[0] for frame in one.frames}, key=int
        )
        assert isinstance(log[-1], RunEnded)
        assert log[-1].status is RunStatus.COMPLETED
        token = one.text.split()[0]
        assert one.frame("answer")["content"].endswith(f"answer to {token}")


def effects(site: Site, conversation: Conversation) -> int:
    return site.ledger.count(conversation.interaction)


async def test_text_is_read_at_every_instance_while_one_of_them_writes_it(site: Site) -> None:
    async with asyncio.timeout(BOUND):
        # The way between the servers may still be recovering from another test.
        while not await _all_see_it_written(site):
            continue


async def _all_see_it_written(site: Site) -> bool:
    """Whether the readers at all servers saw parts of an answer before it was whole."""
    story = Conversation("told", f"{new_token()} tell:2")
    readers = [Conversation("told", story.text) for _ in urls(site)]
    began = asyncio.Event()

    async def begin(frame: Frame) -> None:
        began.set()

    story.on_frame = begin
    async with asyncio.TaskGroup() as group:
        group.create_task(story.go_through(urls(site)[:1]))
        await began.wait()
        for number, reader in enumerate(readers):
            reader.frames = story.frames[:1]
            group.create_task(reader.go_through(urls(site, number)[:1]))
    whole = story.frame("answer")["content"]
    for reader in readers:
        assert reader.frame("answer")["content"] == whole
        # What is not shown before its end is stored by then.
        assert whole.startswith(reader.preview)
    return all(reader.preview and len(reader.deltas) > 2 for reader in readers)


@pytest.mark.timeout(seconds(1800))
@pytest.mark.parametrize("signals", ["whole", "cut", "black_hole"])
async def test_approval_at_another_instance_takes_effect_once_also_when_the_first_is_killed(
    site: Site, signals_proxy: TcpProxy | None, signals: str
) -> None:
    if signals_proxy is None and signals != "whole":
        return
    chance = random.Random("approvals")
    with disturbed(signals_proxy, signals):
        await approve_many(site, chance, signals)


@contextmanager
def disturbed(proxy: TcpProxy | None, how: str) -> Iterator[None]:
    """What instances say to each other is lost in this way."""
    if proxy is not None and how != "whole":
        getattr(proxy, how)()
    try:
        yield
    finally:
        if proxy is not None:
            proxy.heal()


async def approve_many(site: Site, chance: random.Random, name: str) -> None:
    for batch in range(BATCHES):
        first = site.fleet.members[batch % 3]
        begun_at = urls(site, batch)
        conversations = [
            Conversation(f"approved-{name}-{batch}-{number}", f"{new_token()} sign")
            for number in range(BATCH)
        ]
        waiting = await all_waiting(conversations, begun_at)
        chance.shuffle(conversations)
        spared, bereft = conversations[: BATCH // 2], conversations[BATCH // 2 :]
        await asyncio.gather(*(approve(begun_at[1:], one) for one in spared))
        await asyncio.gather(*(waiting[one.chat] for one in spared))
        deciding = [asyncio.create_task(approve(begun_at[1:], one)) for one in bereft[::2]]
        await asyncio.sleep(chance.uniform(0, 0.05))
        first.kill()
        await asyncio.gather(*deciding)
        await asyncio.gather(*(approve(begun_at[2:], one) for one in bereft[1::2]))
        await asyncio.gather(*waiting.values())
        await site.fleet.heal()
        await check_transcripts(site, conversations)
        assert [effects(site, one) for one in conversations] == [1] * BATCH
        for one in conversations:
            assert [name for name in one.names if name in ALL_NAMES] == [
                name for name in ALL_NAMES if name in one.names
            ]


async def all_waiting(
    conversations: Sequence[Conversation], begun_at: Sequence[str]
) -> dict[str, asyncio.Task[None]]:
    """Each of them, begun at the first server, waits for its approval; they are read on."""
    asked = {one.chat: asyncio.Event() for one in conversations}

    def noticing(chat: str) -> object:
        async def notice(frame: Frame) -> None:
            if frame.name == "approval_required":
                asked[chat].set()

        return notice

    for one in conversations:
        one.on_frame = noticing(one.chat)  # type: ignore[assignment]
    tasks = {one.chat: asyncio.create_task(one.go_through(begun_at)) for one in conversations}
    async with asyncio.timeout(BOUND):
        await asyncio.gather(*(each.wait() for each in asked.values()))
    return tasks


async def test_reader_whose_connection_is_cut_delayed_and_swallowed_misses_nothing(
    site: Site,
) -> None:
    server = site.fleet.members[0].server
    async with TcpProxy("127.0.0.1", server.port) as proxy:
        story = Conversation("cut", f"{new_token()} tell:3")
        steps = iter([proxy.cut, lambda: setattr(proxy, "delay", 0.05), proxy.black_hole])
        loop = asyncio.get_running_loop()

        async def disturb(frame: Frame) -> None:
            if frame.name == "answer_delta" and (step := next(steps, None)) is not None:
                step()
                loop.call_later(0.2, proxy.heal)

        story.on_frame = disturb
        await story.go_through([proxy.url])
    assert story.connections > 2
    await check_transcripts(site, [story])


async def test_nginx_in_front_passes_streams_on_at_once_and_goes_round_a_killed_instance(
    site: Site, tmp_path: Path
) -> None:
    program = debian.program(debian.NGINX)
    if program is None:
        lacks("nginx", "no nginx on this machine, and none can be installed")
    async with nginx_before(program, tmp_path, urls(site)) as front:
        async with httpx.AsyncClient(base_url=front, timeout=BOUND) as client:
            assert (await client.get("/health/ready")).status_code == 200
            assert (await client.get("/metrics")).status_code == 404
        story = Conversation("fronted", f"{new_token()} tell:1")
        await story.go_through([front])
        assert len(story.deltas) > 2
        conversations = [
            Conversation(f"fronted-{number}", f"{new_token()} sign") for number in range(6)
        ]
        waiting = await all_waiting(conversations, [front])
        site.fleet.members[0].kill()
        await asyncio.gather(*(approve([front], one) for one in conversations))
        await asyncio.gather(*waiting.values())
    await site.fleet.heal()
    await check_transcripts(site, [story, *conversations])
    assert [effects(site, one) for one in conversations] == [1] * len(conversations)


@pytest.mark.timeout(seconds(900))
async def test_rolling_restart_under_load_fails_no_run_and_no_request(site: Site) -> None:
    """Besides connections that cannot be made while a server is away: those are tried again."""
    done: list[Conversation] = []
    is_over = asyncio.Event()

    async def talk(number: int) -> None:
        turn = 0
        while not is_over.is_set():
            turn += 1
            words = ("tell:1", "put", "say")[turn % 3]
            one = Conversation(f"rolled-{number}-{turn}", f"{new_token()} {words}")
            done.append(one)
            await one.go_through(urls(site, number + turn))

    async with asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            group.create_task(talk(number))
        for _ in range(ROLLS):
            for member in site.fleet.members:
                member.server.signal(signal.SIGTERM)
                assert await member.server.ended() == 0
                await member.start()
        is_over.set()
    assert len(done) >= CLIENTS
    # What a server that is leaving refuses, it refuses with 503 and a time to come back.
    for one in done:
        one.refusals = [text for text in one.refusals if "shutting_down" not in text]
    await check_transcripts(site, done)
