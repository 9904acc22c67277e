"""Functions that an agent's author wrote beside its tools: instructions, checks, conditions."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sk_agents.engine.turns import ToolContext
from sk_agents.exceptions import AgentCodeFailed
from sk_agents.tools.plugins import contained

logger = logging.getLogger(__name__)

MOST_SECONDS = 120.0
# Of the threads that were last at work.
MOST_CONTEXTS = 1_000
# So deep one function may be wrapped in others.
_MOST_LAYERS = 20
_CONTEXTS = "agents.run_context"


@dataclass(frozen=True, slots=True)
class Context:
    """What a function is given where the SDK's own kind is not loaded."""

    context: Any


async def called(what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns, awaited if need be.

    Raises:
        AgentCodeFailed: it raises, or takes too long. The message says which one, never why: its
            own words may hold anything.
    """
    try:
        async with asyncio.timeout(MOST_SECONDS):
            with contained():
                result = function(*arguments)
                return await result if inspect.isawaitable(result) else result
    except Exception as error:
        logger.exception("a function of an agent's author failed", extra={"function": what})
        raise AgentCodeFailed(f"{what} failed with {type(error).__name__}.") from error


class AuthorContexts:
    """What an agent's functions get as `context.context`: our `ToolContext`, or what the operator's
    function makes of it, once for each thread. It is kept in this process's memory alone."""

    def __init__(self, make: Callable[[ToolContext], Any] | None = None) -> None:
        self._make = make
        self._made: OrderedDict[str, Any] = OrderedDict()

    async def of(self, context: ToolContext) -> Any:
        """Raises AgentCodeFailed."""
        if self._make is None:
            return context
        if context.thread_id not in self._made:
            made = await called("openai_context", self._make, context)
            self._made.setdefault(context.thread_id, made)
            while len(self._made) > MOST_CONTEXTS:
                self._made.popitem(last=False)
        self._made.move_to_end(context.thread_id)
        return self._made[context.thread_id]

    async def wrapped(self, context: ToolContext) -> Any:
        """In the SDK's own kind, where the author's file has imported it."""
        kind = getattr(sys.modules.get(_CONTEXTS), "RunContextWrapper", Context)
        return kind(context=await self.of(context))


def own_kind(module: str, name: str) -> Any:
    """A class of the SDK, if the author's file has imported the SDK."""
    return getattr(sys.modules.get(module), name, None)


def enclosed(function: Any, name: str) -> Mapping[str, Any] | None:
    """The variables around the innermost function that knows one of this name.

    The SDK keeps some of what an author asks for in no field of an object, only there.
    """
    waiting, seen = [function], 0
    while waiting and seen < _MOST_LAYERS:
        layer, seen = waiting.pop(0), seen + 1
        if inspect.isfunction(layer):
            variables = dict(_variables(layer))
            if name in variables:
                return variables
            waiting += filter(callable, variables.values())
        elif isinstance(layer, functools.partial):
            waiting += filter(callable, (layer.func, *layer.args))
        else:
            waiting += filter(callable, getattr(layer, "__dict__", {}).values())
    return None


def _variables(function: Any) -> Iterator[tuple[str, Any]]:
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue
