"""The engine asks the HITL manager of an agent about every call: nothing runs past it."""

from pathlib import Path
from typing import Literal

import pytest

from sk_agents.engine.models import RunStatus, ToolCall
from sk_agents.engine.turns import ToolSpec
from sk_agents.hitl.hitl_manager import HitlManager
from tests.requirements import requirement
from tests.test_tour import touring

Decision = Literal["allow", "ask", "deny"]


@requirement("S002-hitl-before-execution")
@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("What time is it?", RunStatus.COMPLETED),
        ("Send a postcard to Ada", RunStatus.WAITING),
        ("Try something forbidden", RunStatus.COMPLETED),
        ("Do several things at once", RunStatus.WAITING),
    ],
)
async def test_every_call_that_a_model_asks_for_is_inspected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, status: RunStatus
) -> None:
    inspected: set[str] = set()
    verdict = HitlManager.verdict

    def recorded(manager: HitlManager, call: ToolCall, spec: ToolSpec) -> Decision:
        inspected.add(call.id)
        return verdict(manager, call, spec)

    monkeypatch.setattr(HitlManager, "verdict", recorded)
    async with touring(tmp_path) as visitor:
        run = await visitor.ask(said)
    assert run.status is status
    assert run.calls and inspected == set(run.calls)


async def test_call_that_the_manager_denies_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(manager: HitlManager, call: ToolCall, spec: ToolSpec) -> Decision:
        return "deny"

    monkeypatch.setattr(HitlManager, "verdict", denied)
    async with touring(tmp_path) as visitor:
        run = await visitor.ask("What time is it?")
    assert run.calls
    for call in run.calls.values():
        assert call.started is None and call.finished is not None
        assert (call.finished.outcome, call.finished.by) == ("refused", "policy")
