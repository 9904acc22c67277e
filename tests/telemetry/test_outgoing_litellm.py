"""Providers that litellm speaks to are told the trace, too, whatever their API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest
from aiohttp import web
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import SpanContext, TraceFlags

from sk_agents.exceptions import ModelRefused
from sk_agents.llm.litellm_chat import LitellmChat, load_litellm
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.providers import ModelSpec, build_model
from sk_agents.telemetry.spans import current_traceparent, within
from sk_agents.testing import ScriptedModelServer
from sk_agents.testing.scripted_model import says
from tests.llm.loopback import text_of

pytestmark = pytest.mark.filterwarnings("ignore")  # litellm's own warnings are not ours to mend

TRACE, CALLER = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
TRACEPARENT = f"00-{TRACE:032x}-{CALLER:016x}-01"


@pytest.fixture(scope="module", autouse=True)
def litellm() -> None:
    """Its import takes longer than a call may."""
    load_litellm()


@contextmanager
def in_the_trace() -> Iterator[None]:
    context = SpanContext(TRACE, CALLER, is_remote=True, trace_flags=TraceFlags(1))
    token = attach(within(context))
    try:
        yield
    finally:
        detach(token)


@contextmanager
def outside_any_trace() -> Iterator[None]:
    token = attach(Context())
    try:
        yield
    finally:
        detach(token)


def model_at(url: str, trace: Callable[[], str | None] | None) -> LitellmChat:
    spec = ModelSpec("litellm/openai/m", url)
    model = build_model(spec, ModelClients(trace=trace), {"TA_API_KEY": "k"})
    assert isinstance(model, LitellmChat)
    return model


class Unwilling:
    """Says no to everybody, and remembers the headers it was sent."""

    def __init__(self) -> None:
        self.headers: list[Mapping[str, str]] = []
        self.url = ""

    async def __aenter__(self) -> Unwilling:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._refuse)
        self._runner = web.AppRunner(app, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._runner.cleanup()

    async def _refuse(self, request: web.Request) -> web.Response:
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        return web.json_response({"error": {"message": "no"}}, status=401)


async def test_model_behind_litellm_is_told_the_trace_of_the_call() -> None:
    async with ScriptedModelServer([says("one"), says("two")]) as server:
        model = model_at(server.base_url, current_traceparent)
        with in_the_trace():
            assert await text_of(model) == "one"
        with outside_any_trace():
            assert await text_of(model) == "two"
    assert [headers.get("traceparent") for headers in server.headers] == [TRACEPARENT, None]


async def test_model_behind_litellm_is_told_nothing_without_telemetry() -> None:
    async with ScriptedModelServer([says("one")]) as server:
        with in_the_trace():
            assert await text_of(model_at(server.base_url, None)) == "one"
    assert "traceparent" not in server.headers[0]


@pytest.mark.parametrize("name", ["anthropic/claude-x", "gemini/gemini-x", "cohere/command-x"])
async def test_other_apis_are_told_the_trace_beside_their_own_headers(name: str) -> None:
    async with Unwilling() as provider:
        options = {"api_base": provider.url, "extra_headers": {"X-Own": "1"}}
        model = LitellmChat(name, "k", options=options, trace=lambda: TRACEPARENT)
        with pytest.raises(ModelRefused):
            await text_of(model)
    [headers] = provider.headers
    assert (headers["traceparent"], headers["x-own"]) == (TRACEPARENT, "1")
