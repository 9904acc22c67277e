"""Errors and health over HTTP."""

import asyncio
import inspect
import re

import httpx
import pytest
from fastapi import FastAPI

from sk_agents import exceptions
from sk_agents.authorization.dummy_authorizer import DummyAuthorizer
from sk_agents.exceptions import LimitExceeded, StateCorrupt, StoreUnavailable, TealError
from sk_agents.http.caller import CallerCheck
from sk_agents.http.errors import status_of
from sk_agents.http.front import TealApp
from sk_agents.http.health import Health, health_operations

TREE = [
    error
    for _, error in inspect.getmembers(exceptions, inspect.isclass)
    if issubclass(error, TealError)
]


def application(error: Exception | None = None, health: Health | None = None) -> FastAPI:
    app = TealApp()
    app.state.caller_check = CallerCheck(DummyAuthorizer())
    app.add_operations(health_operations(health or Health()))

    @app.get("/fail")
    async def fail(number: int = 0) -> None:
        if error is not None:
            raise error

    return app


async def get(app: FastAPI, path: str = "/fail", **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.get(path, headers=headers)


@pytest.mark.parametrize("error", TREE, ids=lambda error: error.__name__)
async def test_every_error_of_the_tree_has_its_status_and_body(error: type[TealError]) -> None:
    response = await get(application(error()))
    assert response.status_code == status_of(error()) >= 400
    assert response.headers["Content-Type"] == "application/problem+json"
    body = response.json()
    assert body.keys() == {"type", "title", "status", "detail", "code", "correlation_id"}
    assert (body["status"], body["code"]) == (response.status_code, error.code)
    assert body["correlation_id"] == response.headers["X-Correlation-Id"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ("Unauthenticated", 401),
        ("Forbidden", 403),
        ("ThreadNotFound", 404),
        ("ThreadBusy", 409),
        ("InvalidInput", 422),
        ("LimitExceeded", 429),
        ("StoreFull", 503),
        ("StoreBusy", 503),
        ("StateCorrupt", 500),
    ],
)
def test_status_is_that_of_the_nearest_class(error: str, status: int) -> None:
    assert status_of(getattr(exceptions, error)()) == status


@pytest.mark.parametrize(
    "error", [StoreUnavailable("canary"), StateCorrupt("canary"), KeyError("canary")], ids=repr
)
async def test_failure_of_the_server_tells_no_details(error: Exception) -> None:
    response = await get(application(error))
    assert response.status_code >= 500
    assert "canary" not in response.text
    assert response.json()["correlation_id"] == response.headers["X-Correlation-Id"]


async def test_busy_server_says_when_to_come_back() -> None:
    assert (await get(application(LimitExceeded(retry_after=7)))).headers["Retry-After"] == "7"


async def test_invalid_request_says_where_without_repeating_it() -> None:
    response = await get(application(), "/fail?number=canary")
    assert response.status_code == 422
    assert response.json()["errors"][0]["loc"] == ["query", "number"]
    assert "canary" not in response.text


async def test_unknown_path_and_method_have_the_same_body() -> None:
    assert (await get(application(), "/nowhere")).json()["code"] == "not_found"


async def test_harmless_correlation_id_is_kept() -> None:
    response = await get(application(), "/health/live", **{"X-Correlation-Id": "my-id.1"})
    assert response.headers["X-Correlation-Id"] == "my-id.1"


@pytest.mark.parametrize("sent", ["", "a b", "a" * 129, "<script>"])
async def test_other_correlation_ids_are_replaced(sent: str) -> None:
    response = await get(application(), "/health/live", **{"X-Correlation-Id": sent})
    assert re.fullmatch(r"[0-9a-f]{32}", response.headers["X-Correlation-Id"])


async def test_live_answers_without_asking_anybody() -> None:
    health = Health()
    health.watch("store", asyncio.Event().wait)
    body = (await get(application(health=health), "/health/live")).json()
    assert body["alive"] is True
    assert body["timestamp"].endswith("Z")


async def test_ready_reports_each_dependency() -> None:
    health = Health()

    async def fine() -> None:
        pass

    health.watch("store", fine, kind="memory")
    response = await get(application(health=health), "/health/ready")
    assert response.status_code == 200
    body = response.json()
    assert body.keys() == {"status", "timestamp", "version", "uptime", "dependencies"}
    assert body["status"] == "healthy"
    assert body["dependencies"] == {"store": {"status": "up", "kind": "memory"}}


async def test_ready_is_503_when_one_dependency_is_down_or_silent() -> None:
    health = Health(ping_timeout=0.01)

    async def broken() -> None:
        raise StoreUnavailable("canary")

    health.watch("broken", broken)
    health.watch("silent", asyncio.Event().wait)
    response = await get(application(health=health), "/health/ready")
    assert response.status_code == 503
    assert response.json()["status"] == "unhealthy"
    assert {d["status"] for d in response.json()["dependencies"].values()} == {"down"}
    assert "canary" not in response.text
