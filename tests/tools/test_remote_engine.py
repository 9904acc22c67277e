"""Remote tools in an engine's hands: what runs unasked, what waits, what nobody can know."""

import asyncio
from pathlib import Path
from typing import Any, Self, cast

from sk_agents.engine.models import RunStatus
from sk_agents.hitl.policy import ApprovalPolicy
from sk_agents.testing.scripted_model import calls, says
from sk_agents.tools.openapi.clients import RemoteClients
from tests.engine.kit import is_asked_anew, talking
from tests.patience import seconds
from tests.tools.remote_service import Service, catalog, load


class Cutting:
    """A service that takes each request and hangs up."""

    def __init__(self) -> None:
        self.methods: list[str] = []
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._cut, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _cut(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.methods.append(head.split()[0].decode())
        writer.transport.abort()


def parts(folder: Path, service: Service | Cutting, clients: RemoteClients, **entry: Any) -> Any:
    box = load(folder, catalog(folder, server_url=service.url, **entry), clients)
    return {
        "tools": cast(Any, box),
        "policy": cast(Any, ApprovalPolicy(declared=box.requires_approval)),
    }


REMOVE = ("Pets-removePet", {"petId": "7"})


async def test_question_runs_at_once_and_a_change_waits_for_a_person(tmp_path: Path) -> None:
    script = [calls(("Pets-list_pets", {})), calls(REMOVE), says("done")]
    async with asyncio.timeout(seconds(20)), Service() as service, RemoteClients() as clients:
        remote = parts(tmp_path, service, clients, forward_authorization=True)
        async with talking(tmp_path, script=script, **remote) as talk:
            run = await talk.ask(authorization="Bearer ada")
            assert run.status is RunStatus.WAITING
            assert [request[:2] for request in service.requests] == [("GET", "/pets?limit=10")]
            assert service.requests[0][2]["Authorization"] == "Bearer ada"
            (approval,) = await talk.approvals("r1")
            await talk.decide(approval)
            assert (await talk.ended("r1")).status is RunStatus.COMPLETED
            assert [request[:2] for request in service.requests[1:]] == [("DELETE", "/pets/7")]


async def test_change_that_the_operator_frees_runs_unasked(tmp_path: Path) -> None:
    async with asyncio.timeout(seconds(20)), Service() as service, RemoteClients() as clients:
        made = parts(tmp_path, service, clients, requires_approval=False)
        async with talking(tmp_path, script=[calls(REMOVE), says("done")], **made) as talk:
            assert (await talk.ask()).status is RunStatus.COMPLETED


async def test_change_without_an_answer_is_asked_about_and_not_repeated(tmp_path: Path) -> None:
    async with asyncio.timeout(seconds(20)), Service() as service, RemoteClients() as clients:
        service.is_stuck = True
        made = parts(tmp_path, service, clients, timeout=0.2)
        async with talking(tmp_path, script=[calls(REMOVE), says("done")], **made) as talk:
            await talk.ask()
            (first,) = await talk.approvals("r1")
            await talk.decide(first)
            state = await talk.until(is_asked_anew(first))
            (asked,) = state.run("r1").pending_approvals
            assert asked.request.kind == "outcome_unknown"
            await talk.decide(asked.request.approval_id, choice="done")
            assert (await talk.ended("r1")).status is RunStatus.COMPLETED
            assert len(service.requests) == 1


async def test_change_whose_connection_broke_is_asked_about_and_not_repeated(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(seconds(20)), Cutting() as service, RemoteClients() as clients:
        made = parts(tmp_path, service, clients, requires_approval=False)
        async with talking(tmp_path, script=[calls(REMOVE), says("done")], **made) as talk:
            run = await talk.ask()
            (asked,) = run.pending_approvals
            assert asked.request.kind == "outcome_unknown"
            await talk.decide(asked.request.approval_id, choice="give_up")
            assert (await talk.ended("r1")).status is RunStatus.COMPLETED
            assert service.methods == ["DELETE"]


async def test_question_whose_connection_broke_is_put_once_more(tmp_path: Path) -> None:
    script = [calls(("Pets-list_pets", {})), says("done")]
    async with asyncio.timeout(seconds(20)), Cutting() as service, RemoteClients() as clients:
        async with talking(tmp_path, script=script, **parts(tmp_path, service, clients)) as talk:
            assert (await talk.ask()).status is RunStatus.COMPLETED
            assert await talk.results("r1") == ["The service broke off."]
            assert set(service.methods) == {"GET"} and len(service.methods) >= 2


async def test_change_that_was_never_sent_is_an_error(tmp_path: Path) -> None:
    async with Cutting() as gone:
        pass
    async with asyncio.timeout(seconds(20)), RemoteClients() as clients:
        made = parts(tmp_path, gone, clients, requires_approval=False)
        async with talking(tmp_path, script=[calls(REMOVE), says("done")], **made) as talk:
            assert (await talk.ask()).status is RunStatus.COMPLETED
            (told,) = await talk.results("r1")
            assert told is not None and "nothing was sent" in told
