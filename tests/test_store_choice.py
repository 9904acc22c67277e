"""The store is a setting, and a client cannot tell which one was chosen."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from sk_agents.app import create_app
from sk_agents.config.agent_file import load_agent_files
from sk_agents.config.settings import load_settings
from tests.requirements import requirement
from tests.test_serve import AGENT

STORES = ("memory:", "sqlite://{}/teal.sqlite", "file://{}/chats")
CHAT = "/chats/c"
# Made by chance or by the clock, so different each time.
CHANCE = re.compile(
    r"int_[\w-]+|[0-9a-f]{32}|\d{4}-\d\d-\d\dT[\d:.]+Z"
    r"|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?<=\d-)[0-9a-f]{8}\b"
)


# Shown only if the reader is there before what they preview is stored.
PREVIEW = re.compile(r"event: \w+_delta\ndata: .*\n\n")


def plain(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, CHANCE.sub("*", PREVIEW.sub("", response.text))


async def conversation(client: httpx.AsyncClient) -> list[Any]:
    """What a client is answered to what a client does: also to what cannot be done."""
    said = [
        plain(await client.post(f"{CHAT}/interactions", json={"user_message": text}))
        for text in ("one", "two")
    ]
    said.append(plain(await client.get(CHAT)))
    said.append(plain(await client.patch(CHAT, json={"title": "Renamed"})))
    said.append(plain(await client.get("/chats")))
    first = (await client.get(CHAT)).json()["interactions"][0]["id"]
    edited = await client.post(
        f"{CHAT}/interactions/{first}/edit", json={"new_user_message": "three"}
    )
    said.append(plain(edited))
    said.append(plain(await client.get(f"{CHAT}/branches")))
    said.append(plain(await client.get("/chats/unknown")))
    said.append(plain(await client.delete(CHAT)))
    said.append(plain(await client.get(CHAT)))
    return said


@requirement("S000-state-providers")
async def test_clients_see_the_same_from_every_store_that_the_setting_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.yaml").write_text(AGENT.format(name="Echo"))
    files = load_agent_files([tmp_path / "agent.yaml"])
    seen: dict[str, list[Any]] = {}
    for store in STORES:
        monkeypatch.setenv("TA_STORE", store.format(tmp_path))
        app = create_app(load_settings(), files)
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://test") as client,
        ):
            ready = (await client.get("/health/ready")).json()
            assert ready["dependencies"]["store"]["kind"] == store.partition(":")[0]
            seen[store] = await conversation(client)
    first, second, third = seen.values()
    assert [status for status, _ in first] == [200, 200, 200, 200, 200, 200, 200, 404, 204, 404]
    assert second == first
    assert third == first
