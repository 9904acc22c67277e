"""A real service on loopback with an OpenAPI document, and the catalog that names it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import yaml
from aiohttp import web

from sk_agents.config.settings import Settings
from sk_agents.tools.openapi.clients import RemoteClients
from sk_agents.tools.openapi.services import load_remote_tools
from sk_agents.tools.toolbox import AgentToolbox

PETS: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Pets", "version": "1"},
    "paths": {
        "/pets": {
            "get": {
                "operationId": "list.pets",
                "summary": "List pets",
                "description": "All of them.",
                "parameters": [
                    {
                        "name": "limit",
                        "in": "query",
                        "description": "How many",
                        "schema": {"type": "integer", "minimum": 1, "default": 10},
                    },
                    {
                        "name": "tag",
                        "in": "query",
                        "schema": {"type": "array", "items": {"enum": ["a", "b"]}},
                    },
                    {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
                ],
            },
            "post": {
                "operationId": "addPet",
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}
                    },
                },
            },
        },
        "/pets/{petId}": {
            "parameters": [
                {"name": "petId", "in": "path", "required": True, "schema": {"type": "string"}}
            ],
            "get": {"summary": "One pet"},
            "delete": {"operationId": "removePet"},
        },
    },
    "components": {
        "schemas": {
            "Pet": {
                "type": "object",
                "required": ["name", "id"],
                "properties": {
                    "id": {"type": "integer", "readOnly": True},
                    "name": {"type": "string", "description": "What it is called"},
                    "owner": {"$ref": "#/components/schemas/Owner"},
                    "nickname": {"type": "string", "nullable": True, "default": "none"},
                },
            },
            "Owner": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "pets": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}},
                },
            },
        }
    },
}


class Service:
    """Answers each request with `answer` and keeps what came; `document` is at /openapi."""

    def __init__(self, document: Mapping[str, Any] | str = PETS) -> None:
        self.document = document
        self.answer = web.Response
        self.requests: list[tuple[str, str, Mapping[str, str], str]] = []
        self.arrived = asyncio.Event()
        self.status = 200
        self.body: str | bytes = '{"ok":true}'
        self.headers: dict[str, str] = {"Content-Type": "application/json"}
        self.is_stuck = False
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/openapi", self._describe)
        app.router.add_route("*", "/{rest:.*}", self._serve)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _describe(self, request: web.Request) -> web.Response:
        text = self.document if isinstance(self.document, str) else json.dumps(self.document)
        self.requests.append((request.method, request.path_qs, dict(request.headers), ""))
        if self.status != 200:
            return web.Response(status=self.status, headers=self.headers)
        return web.Response(text=text)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.text()
        self.requests.append((request.method, request.raw_path, dict(request.headers), body))
        self.arrived.set()
        if self.is_stuck:
            await asyncio.Event().wait()
        return web.Response(status=self.status, body=self.body, headers=self.headers)


def catalog(folder: Path, **entry: Any) -> Settings:
    """A catalog with one plugin, Pets, whose document lies beside it unless the entry says more."""
    (folder / "pets.json").write_text(json.dumps(PETS))
    plugin = {"plugin_name": "Pets", "openapi_json_path": "pets.json", **entry}
    return written_catalog(folder, yaml.safe_dump({"remote_plugins": [plugin]}))


def written_catalog(folder: Path, text: str) -> Settings:
    path = folder / "remote.yaml"
    path.write_text(text)
    return Settings(remote_plugin_path=path)


def load(folder: Path, settings: Settings, clients: RemoteClients, *names: str) -> AgentToolbox:
    tools = load_remote_tools(
        names or ("Pets",), settings=settings, agent_file=folder / "config.yaml", clients=clients
    )
    return AgentToolbox(tools)
