"""The judge of effects is there for as many as an experiment has."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.ledger import ask_ledger, running_ledger

# More than fits into a pipe and what asyncio reads ahead of it.
BYTES = 300_000


async def test_ledger_answers_also_when_its_test_waits_for_no_effect(tmp_path: Path) -> None:
    effect = {"run_id": "run", "call_id": "x" * 30_000, "key": "k", "hold": False}
    count = BYTES // 30_000
    async with running_ledger(tmp_path / "ledger") as ledger:
        for _ in range(count):
            await ask_ledger(ledger.port, effect)
        assert ledger.count("run") == count
        first = await ledger.next_effect()
    assert first["call_id"] == effect["call_id"]
