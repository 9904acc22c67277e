"""The demo with a workspace: its own agent file, script and folder, in a real engine."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from sk_agents.config.agent_file import read_agent_file, read_agent_specs
from sk_agents.engine.models import RunStatus
from sk_agents.hitl.policy import ApprovalPolicy
from sk_agents.hitl.rules import read_approvals, refuse_strays
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.providers import ModelSpec, build_model
from sk_agents.tools.builtin.loader import BuiltinTools
from sk_agents.tools.toolbox import AgentToolbox
from sk_agents.worker_threads import WorkerThreads
from tests.engine.kit import Talk, talking
from tests.patience import seconds

DEMO = Path(__file__).parent.parent.parent / "demos" / "files"


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    copied = tmp_path / "files"
    shutil.copytree(DEMO, copied)
    return copied


@asynccontextmanager
async def served(demo: Path) -> AsyncIterator[Talk]:
    path = demo / "config.yaml"
    (spec,) = read_agent_specs(read_agent_file(path)).values()
    block = read_agent_file(path).document["spec"]["agent"]["builtin"]
    box = AgentToolbox(BuiltinTools(WorkerThreads()).load(block, path=path))
    rules = read_approvals(spec.approvals, path=path)
    refuse_strays(rules, box.specs(), path=path)
    policy = ApprovalPolicy(rules, declared=box.requires_approval)
    async with ModelClients() as clients:
        model = build_model(ModelSpec(spec.model, folder=demo), clients, {})
        setup: Any = {"tools": box, "policy": policy, "model": model}
        async with asyncio.timeout(seconds(30)), talking(demo.parent, **cast(Any, setup)) as talk:
            yield talk


async def test_reading_is_free(demo: Path) -> None:
    async with served(demo) as talk:
        assert (await talk.ask("What is in the folder?")).status is RunStatus.COMPLETED
        (listed,) = await talk.results("r1")
        assert listed is not None
        assert sorted(line.split()[0] for line in listed.splitlines()) == [
            *("notes/", "notes/README.txt", "shopping.md"),
        ]


async def test_change_waits_and_is_made_when_allowed(demo: Path) -> None:
    async with served(demo) as talk:
        assert (await talk.ask("Tick off the milk")).status is RunStatus.WAITING
        assert "- [ ] milk" in (demo / "work" / "shopping.md").read_text()
        (approval,) = await talk.approvals("r1")
        await talk.decide(approval)
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert "- [x] milk" in (demo / "work" / "shopping.md").read_text()


async def test_note_is_written_unasked_by_a_rule(demo: Path) -> None:
    async with served(demo) as talk:
        assert (await talk.ask("Write a note")).status is RunStatus.COMPLETED
        assert (demo / "work" / "notes" / "hello.txt").exists()


async def test_nothing_leads_out_and_nothing_is_deleted(demo: Path) -> None:
    async with served(demo) as talk:
        await talk.ask("Show me something outside of the folder")
        first, second = await talk.results("r1")
        assert first is not None and "'..' cannot be used" in first
        assert second is not None and "relative to the workspace" in second
        assert (await talk.ask("Delete the list")).status is RunStatus.COMPLETED
        assert (demo / "work" / "shopping.md").exists()
