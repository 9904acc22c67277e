"""A call that acts in its caller's name, whose server is killed: it waits for the caller."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from sk_agents.testing import ScriptedModelServer
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.chaos.server_process import Server
from tests.chats.serving import write_agent

PLUGIN = """
from sk_agents.ska_types import BasePlugin
from sk_agents.tools import kernel_function


class Bank(BasePlugin):
    requires_authorization = True

    @kernel_function(description="Pay.")
    def pay(self, cents: int) -> str:
        return f"{self.authorization} paid {cents}"
"""
# To the authorizer, both are Ada.
FIRST, LATER = {"Authorization": "Bearer ada"}, {"Authorization": "bearer  ada"}
BOB = {"Authorization": "Bearer bob"}
AUTHORIZER = {
    "TA_AUTHORIZER_MODULE": "sk_agents.testing.header_authorizer",
    "TA_AUTHORIZER_CLASS": "HeaderAuthorizer",
}
PAY = [calls(("Bank-pay", {"cents": 5})), says("Paid.")]


@asynccontextmanager
async def bank(folder: Path, script: Sequence[Turn] = PAY) -> AsyncIterator[Server]:
    """Not started yet."""
    async with ScriptedModelServer(script) as model:
        agent = write_agent(folder / "bank", model.base_url, plugins=["Bank"])
        (folder / "bank" / "custom_plugins.py").write_text(PLUGIN)
        served = Server(folder, agent)
        served.environment = dict(AUTHORIZER)
        try:
            yield served
        finally:
            await served.close()


async def question(
    served: Server, path: str, last: str | None = None
) -> tuple[dict[str, Any], str]:
    """The next approval of the interaction, and the id of its frame."""
    headers = FIRST if last is None else {**FIRST, "Last-Event-ID": last}
    async with served.stream("GET", f"{path}/events", headers=headers) as events:
        async for event in events:
            if event.event == "approval_required":
                return event.json(), event.id
    raise AssertionError("nothing was asked")


async def start(served: Server) -> tuple[str, dict[str, Any], str]:
    """The interaction, and what it asks first."""
    body = {"user_message": "pay"}
    async with served.stream("POST", "/chats/c/interactions", json=body, headers=FIRST) as events:
        async for event in events:
            if event.event == "approval_required":
                asked = event.json()
                return f"/chats/c/interactions/{asked['interaction_id']}", asked, event.id
    raise AssertionError("nothing was asked")


async def decided(served: Server, asked: dict[str, Any], headers: dict[str, str]) -> httpx.Response:
    body = {"approved": True, "digest": asked["digest"]}
    url = f"{served.url}/approvals/{asked['approval_id']}"
    return await served.client.post(url, json=body, headers=headers)


async def tool_results(served: Server, path: str) -> list[str]:
    async with served.stream("GET", f"{path}/events", headers=FIRST) as events:
        return [e.json()["tool_output"] async for e in events if e.event == "tool_result"]


async def test_call_approved_and_not_started_waits_for_its_caller_after_kill_9(
    tmp_path: Path,
) -> None:
    async with bank(tmp_path) as served:
        served.environment["TEAL_FAILPOINT"] = "approval_decided:kill"
        await served.start()
        path, asked, last = await start(served)
        try:
            await decided(served, asked, FIRST)
        except httpx.HTTPError:
            pass
        del served.environment["TEAL_FAILPOINT"]
        await served.restart()
        again, _ = await question(served, path, last)
        assert (asked["kind"], again["kind"]) == ("tool", "auth")
        assert (again["tool_name"], again["tool_input"]) == ("Bank-pay", asked["tool_input"])
        assert (await decided(served, again, BOB)).status_code == 404
        assert (await decided(served, again, {})).status_code == 401
        answer = await decided(served, again, LATER)
        assert answer.status_code == 200, answer.text
        assert await tool_results(served, path) == ["bearer  ada paid 5"]


async def test_call_that_waits_for_its_caller_still_waits_after_kill_9(tmp_path: Path) -> None:
    async with bank(tmp_path) as served:
        served.environment["TEAL_FAILPOINT"] = "approval_decided:kill"
        await served.start()
        path, asked, last = await start(served)
        try:
            await decided(served, asked, FIRST)
        except httpx.HTTPError:
            pass
        del served.environment["TEAL_FAILPOINT"]
        await served.restart()
        again, _ = await question(served, path, last)
        served.kill()
        await served.restart()
        inbox = await served.client.get(f"{served.url}/approvals", headers=LATER)
        [waiting] = inbox.json()["approvals"]
        assert {key: waiting[key] for key in again} == again
        body = {"approval_id": again["approval_id"], "approved": True}
        answer = await served.client.post(f"{served.url}{path}/approve", json=body, headers=LATER)
        assert answer.status_code == 200, answer.text
        assert await tool_results(served, path) == ["bearer  ada paid 5"]
