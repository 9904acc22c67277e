"""Calls of plugin methods: what comes back, what is streamed, what goes wrong."""

import asyncio
import threading
from dataclasses import replace

import pytest
from pydantic import BaseModel

from sk_agents.engine.turns import ToolChunk, ToolResult
from sk_agents.exceptions import ToolError
from sk_agents.ska_types import MAX_EXTRA_DATA, BasePlugin
from sk_agents.tools import ToolContext, kernel_function
from sk_agents.tools.plugins import MOST_STREAMED
from tests.tools.calls import CONTEXT, call, pieces, result, toolbox


class Point(BaseModel):
    x: int


class Returns(BasePlugin):
    @kernel_function
    def text(self) -> str:
        return "as it is"

    @kernel_function
    def model(self) -> Point:
        return Point(x=1)

    @kernel_function
    def models(self) -> list[Point]:
        return [Point(x=1), Point(x=2)]

    @kernel_function
    def mapping(self) -> dict[str, object]:
        return {"ä": [None, True, 1.5]}

    @kernel_function
    def nothing(self) -> None:
        return None

    @kernel_function
    def number(self) -> int:
        return 7

    @kernel_function
    def foreign(self) -> object:
        return Exception("an object")

    @kernel_function
    def unstorable(self) -> str:
        return "a\x00b\ud800c"

    @kernel_function
    @staticmethod
    def static(x: int) -> int:
        return x

    @kernel_function
    @classmethod
    def of_class(cls, x: int) -> str:
        return f"{cls.__name__}{x}"


@pytest.mark.parametrize(
    ("function", "text"),
    [
        ("text", "as it is"),
        ("model", '{"x":1}'),
        ("models", '[{"x":1},{"x":2}]'),
        ("mapping", '{"ä":[null,true,1.5]}'),
        ("nothing", "null"),
        ("number", "7"),
        ("foreign", '"an object"'),
        ("unstorable", "a\ufffdb\ufffdc"),
    ],
)
async def test_result_is_text_or_json(function: str, text: str) -> None:
    assert (await result(toolbox(Returns), f"Returns-{function}")).content == text


async def test_static_and_class_methods_are_tools_too() -> None:
    box = toolbox(Returns)
    assert (await result(box, "Returns-static", {"x": 3})).content == "3"
    assert (await result(box, "Returns-of_class", {"x": 3})).content == "Returns3"


class Streams(BasePlugin):
    closed: list[str] = []

    @kernel_function
    async def count(self, to: int) -> object:
        for number in range(to):
            yield f"{number} "
        self.extra_data_collector.add_extra_data("counted", str(to))

    @kernel_function
    async def flood(self) -> object:
        try:
            while True:
                yield "x" * (MOST_STREAMED // 4)
        finally:
            self.closed.append("flood")


async def test_async_generator_streams_chunks_and_their_text_is_the_result() -> None:
    found = await pieces(toolbox(Streams), call("Streams-count", {"to": 3}))
    assert found == [
        ToolChunk("0 "),
        ToolChunk("1 "),
        ToolChunk("2 "),
        ToolResult("0 1 2 ", {"items": [{"key": "counted", "value": "3"}]}),
    ]


async def test_endless_stream_is_stopped_and_its_generator_closed() -> None:
    found = await pieces(toolbox(Streams), call("Streams-flood"))
    assert len(found[-1].content) < MOST_STREAMED + 100
    assert "Stopped" in found[-1].content[-100:]
    assert Streams.closed == ["flood"]


async def test_closing_a_run_closes_the_tool() -> None:
    Streams.closed.clear()
    stream = toolbox(Streams).run(call("Streams-flood"), CONTEXT)
    await anext(stream)
    await stream.aclose()
    assert Streams.closed == ["flood"]


class Fails(BasePlugin):
    @kernel_function
    def tells(self) -> str:
        raise ToolError("There is no such city.")

    @kernel_function
    def breaks(self) -> str:
        raise KeyError("secret detail")

    @kernel_function
    def leaves(self) -> str:
        raise SystemExit(1)

    @kernel_function
    async def leaves_later(self) -> str:
        raise SystemExit(1)

    @kernel_function
    async def gives_up(self) -> str:
        raise asyncio.CancelledError

    @kernel_function
    def iterates(self) -> str:
        raise StopIteration

    @kernel_function
    def floods(self) -> str:
        self.extra_data_collector.add_extra_data("k", "x" * MAX_EXTRA_DATA)
        return "never"


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        ("tells", ToolError, "There is no such city"),
        ("breaks", KeyError, "secret detail"),
        ("leaves", ToolError, "tried to end"),
        ("leaves_later", ToolError, "tried to end"),
        ("gives_up", ToolError, "gave up"),
        ("iterates", RuntimeError, "StopIteration"),
        ("floods", ToolError, "extra data is limited"),
    ],
)
async def test_failing_tool_harms_nobody(function: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        await result(toolbox(Fails), f"Fails-{function}")


class Waits(BasePlugin):
    @kernel_function
    async def for_ever(self) -> str:
        await asyncio.Event().wait()
        return "never"


async def test_cancelling_a_call_cancels_an_async_tool() -> None:
    task = asyncio.create_task(result(toolbox(Waits), "Waits-for_ever"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class Knows(BasePlugin):
    requires_authorization = True

    @kernel_function
    def key(self, context: ToolContext) -> str:
        return context.idempotency_key

    @kernel_function
    def thread(self) -> str:
        return threading.current_thread().name


async def test_tool_gets_the_context_it_asks_for_and_the_model_does_not_see_it() -> None:
    box = toolbox(Knows)
    assert box.specs()[0].parameters["properties"] == {}
    assert (await result(box, "Knows-key")).content == "k1"


async def test_blocking_method_runs_in_a_thread() -> None:
    assert (await result(toolbox(Knows), "Knows-thread")).content == "worker"


async def test_plugin_that_needs_authorization_is_not_called_without() -> None:
    box = toolbox(Knows)
    spec = box.spec("Knows-key")
    assert spec is not None and spec.requires_authorization
    with pytest.raises(ToolError, match="signed in"):
        await result(box, "Knows-key", context=replace(CONTEXT, authorization=None))
