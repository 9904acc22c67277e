"""What a server's memory holds after many conversations: no more than after some."""

import gc
import tracemalloc
from pathlib import Path

from sk_agents.engine.threads import Threads
from sk_agents.testing.scripted_model import Script, ScriptedModel, says
from tests.engine.kit import talking
from tests.requirements import requirement

ROOM = 200_000
SAID = "a word " * 1000
ROUNDS = 100


@requirement("S004-11.3-bounded-memory")
async def test_memory_after_many_conversations_is_what_it_was_after_some(tmp_path: Path) -> None:
    model = ScriptedModel([])
    async with talking(tmp_path, model=model) as talk:
        talk.engine._services.threads = Threads(talk.store, max_bytes=ROOM)
        used = []
        tracemalloc.start()
        try:
            for round in range(3):
                for number in range(ROUNDS):
                    # Nothing of the test's own may pile up.
                    model.script, model.prompts = Script([says(SAID)]), []
                    await talk.ask(thread=f"{round}-{number}")
                gc.collect()
                used.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
    warm, *later = used
    assert len(SAID) * ROUNDS > 3 * ROOM
    assert max(later) - warm < len(SAID) * ROUNDS / 10
