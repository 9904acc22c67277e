"""What a server's memory holds after many conversations: no more than after some."""

import gc
import tracemalloc
from pathlib import Path

from sk_agents.engine.threads.known import KnownThreads
from sk_agents.testing.scripted_model import Script, ScriptedModel, says
from tests.engine.kit import talking
from tests.requirements import requirement

SOME, MANY = 50, 250
SMALL, ENDLESS = 50_000, 10**9


async def growth(folder: Path, room: int) -> int:
    """By how many bytes memory grows from some conversations to many."""
    model = ScriptedModel([])
    used = []
    async with talking(folder, model=model) as talk:
        talk.engine.parts.services.threads = KnownThreads(talk.store, max_bytes=room)
        tracemalloc.start()
        try:
            for number in range(MANY):
                # Nothing of the test's own may pile up.
                model.script, model.prompts = Script([says("a word " * 50)]), []
                await talk.ask(thread=f"t{number}")
                if number + 1 in (SOME, MANY):
                    gc.collect()
                    used.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
    return used[1] - used[0]


@requirement("S004-11.3-bounded-memory")
async def test_memory_grows_with_conversations_up_to_its_bound_alone(tmp_path: Path) -> None:
    (tmp_path / "endless").mkdir()
    (tmp_path / "small").mkdir()
    endless = await growth(tmp_path / "endless", ENDLESS)
    # Most of what is left are timers that the event loop has not thrown away yet.
    assert await growth(tmp_path / "small", SMALL) < endless / 3
