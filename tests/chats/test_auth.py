"""A tool that acts in its caller's name, for callers who come without proof of theirs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sk_agents.testing.scripted_model import calls, says
from tests.chats.serving import Served, serving

PLUGIN = """
from sk_agents.ska_types import BasePlugin
from sk_agents.tools import kernel_function, tool


class Bank(BasePlugin):
    requires_authorization = True

    @tool(effect="read_only")
    @kernel_function(description="How much is there?")
    def balance(self) -> str:
        return f"seen with {self.authorization}"
"""
MINE = {"Authorization": "Bearer mine"}


@asynccontextmanager
async def asked(folder: Path, **settings: Any) -> AsyncIterator[tuple[Served, dict[str, Any]]]:
    """A server, and what a call that needs nobody's approval waits for."""
    plugin = folder / "bank.py"
    plugin.write_text(PLUGIN)
    plugin.chmod(0o600)
    script = [calls(("Bank-balance", {})), says("Enough.")]
    async with serving(
        folder, script, agent={"plugins": ["Bank"]}, plugin_module=str(plugin), **settings
    ) as served:
        frames = await served.say_until("approval_required")
        yield served, frames[-1].data


async def told(served: Served) -> str:
    content: str = served.model.requests[-1]["messages"][-1]["content"]
    return content


async def results(served: Served, shown: dict[str, Any]) -> list[str]:
    path = f"/chats/c/interactions/{shown['interaction_id']}/events"
    frames = await served.read("GET", path)
    assert frames[-1].data["status"] == "COMPLETED"
    return [frame.data["tool_output"] for frame in frames if frame.name == "tool_result"]


async def test_yes_needs_a_header_and_the_tool_gets_it(tmp_path: Path) -> None:
    async with asked(tmp_path) as (served, shown):
        assert (shown["kind"], shown["tool_name"]) == ("auth", "Bank-balance")
        path = f"{served.url}/chats/c/interactions/{shown['interaction_id']}/approve"
        yes = {"approval_id": shown["approval_id"], "approved": True}
        bare = await served.client.post(path, json=yes)
        assert (bare.status_code, bare.json()["code"]) == (422, "invalid_input")
        assert "Authorization header" in bare.json()["detail"]
        assert len((await served.get("/approvals"))["approvals"]) == 1
        answer = await served.client.post(path, json=yes, headers=MINE)
        assert answer.status_code == 200, answer.text
        assert await results(served, shown) == ["seen with Bearer mine"]


async def test_no_is_told_to_the_model_and_needs_no_header(tmp_path: Path) -> None:
    async with asked(tmp_path) as (served, shown):
        path = f"{served.url}/approvals/{shown['approval_id']}"
        answer = await served.client.post(path, json={"approved": False, "message": "not now"})
        assert answer.status_code == 200, answer.text
        await results(served, shown)
        assert "not now" in await told(served)


async def test_header_is_stored_nowhere(tmp_path: Path) -> None:
    async with asked(tmp_path, store=f"file://{tmp_path}/store") as (served, shown):
        secret = {"Authorization": "Bearer s3cr3t-of-mine"}
        path = f"{served.url}/approvals/{shown['approval_id']}"
        await served.client.post(path, json={"approved": False}, headers=secret)
        await results(served, shown)
    kept = b"".join(path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file())
    assert b"Bank-balance" in kept or b"balance" in kept
    assert b"s3cr3t" not in kept
