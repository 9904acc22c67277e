"""Plugin classes as tools: each method marked with `kernel_function` is one.

Every call gets an object of its own, so what one call leaves on it no other call and no other user
can see.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

from sk_agents.config.class_loader import load_class
from sk_agents.config.settings import Settings
from sk_agents.engine.turns import Preview, ToolChunk, ToolContext
from sk_agents.exceptions import ConfigurationError, ToolError
from sk_agents.ska_types import BasePlugin, ExtraDataCollector
from sk_agents.tools.attachments import preview_of, result_of
from sk_agents.tools.base_tool import Tool, ToolStream, text_of, tool_spec
from sk_agents.tools.declarations import (
    declaration_of,
    has_declaration,
    is_offered,
    offered_description,
    offered_name,
)
from sk_agents.tools.parameters import parameters_of
from sk_agents.tools.semantic_kernel_stub import install_kernel_stub
from sk_agents.worker_threads import ThreadEnded, WorkerThreads

logger = logging.getLogger(__name__)

USUAL_FILE = "custom_plugins.py"
# Where a tool that streams without end is stopped; the engine may keep less.
MOST_STREAMED = 8 * 1024 * 1024


class PluginMethodTool(Tool):
    """One method of a plugin class."""

    def __init__(
        self, plugin: type[BasePlugin], attribute: str, threads: WorkerThreads, origin: str
    ) -> None:
        function = getattr(plugin, attribute)
        raw = inspect.getattr_static(plugin, attribute)
        declaration = declaration_of(raw)
        self.origin = f"{origin}: {plugin.__name__}.{attribute}"
        if inspect.isgeneratorfunction(function):
            raise ConfigurationError(f"{self.origin}: a method that yields must be async")
        bound = isinstance(raw, staticmethod | classmethod)
        self._parameters = parameters_of(function, bound=bound, origin=self.origin)
        self._plugin, self._attribute, self._threads = plugin, attribute, threads
        self._streams = inspect.isasyncgenfunction(function)
        self._blocks = not (self._streams or inspect.iscoroutinefunction(function))
        self._preview = declaration.preview
        self.requires_approval = declaration.requires_approval
        self.spec = tool_spec(
            name=f"{plugin.__name__}-{offered_name(raw)}",
            description=offered_description(raw),
            parameters=self._parameters.schema,
            origin=self.origin,
            effect=declaration.effect,
            timeout=declaration.timeout,
            requires_authorization=plugin.requires_authorization,
            title=declaration.title,
        )

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self._parameters.check(arguments)

    async def preview(self, arguments: dict[str, Any], context: ToolContext) -> Preview | None:
        """Made by code of the plugin: if that fails, the arguments are shown alone."""
        function = self._preview
        if function is None:
            return None
        values = self._parameters.values(arguments)
        if self._parameters.context is not None:
            values[self._parameters.context] = context

        def call() -> Any:
            # Nothing was allowed yet: it gets no header of the user.
            return function(self._plugin(None, ExtraDataCollector()), **values)

        try:
            with contained():
                blocks = not inspect.iscoroutinefunction(function)
                result = await self._threads.run(call) if blocks else call()
                returned = await result if inspect.isawaitable(result) else result
                return preview_of(returned)
        except ToolError:
            raise
        except Exception:
            logger.exception("a preview failed", extra={"tool": self.spec.name})
            return None

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolStream:
        if self.spec.requires_authorization and context.authorization is None:
            raise ToolError("This tool needs the caller to be signed in.")
        values = self._parameters.values(arguments)
        if self._parameters.context is not None:
            values[self._parameters.context] = context
        collector = ExtraDataCollector()

        def call() -> Any:
            plugin = self._plugin(context.authorization, collector)
            return getattr(plugin, self._attribute)(**values)

        with contained():
            if self._streams:
                pieces = []
                async with aclosing(_bounded(call())) as stream:
                    async for piece in stream:
                        pieces.append(piece)
                        yield ToolChunk(piece)
                returned: Any = "".join(pieces)
            else:
                result = await self._threads.run(call) if self._blocks else call()
                returned = await result if inspect.isawaitable(result) else result
        extra_data = collector.get_extra_data()
        yield result_of(returned, extra_data.model_dump() if extra_data else None)


async def _bounded(stream: AsyncGenerator[Any]) -> AsyncGenerator[str]:
    left = MOST_STREAMED
    async with aclosing(stream):
        async for piece in stream:
            text = text_of(piece)
            left -= len(text)
            if left < 0:
                yield f"\n(Stopped: more than {MOST_STREAMED} characters.)"
                return
            yield text


@contextmanager
def contained() -> Iterator[None]:
    """A tool may neither end the process nor pass for a cancelled call."""
    try:
        yield
    except (SystemExit, KeyboardInterrupt, ThreadEnded):
        raise ToolError("The tool tried to end the process it runs in.") from None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise ToolError("The tool gave up.") from None


def plugin_tools(
    plugin: type[BasePlugin], *, threads: WorkerThreads, origin: str
) -> list[PluginMethodTool]:
    """The tools of one class in the order of their definition, inherited ones first.

    Raises:
        ConfigurationError: a method that cannot be a tool, a constructor that cannot be called
            with the two arguments, or nothing to offer.
    """
    _check_constructor(plugin, origin)
    attributes = dict.fromkeys(name for base in reversed(plugin.__mro__) for name in vars(base))
    offered = []
    for name in attributes:
        # A decorator outside of `staticmethod` marks that object and not the function in it.
        method = inspect.getattr_static(plugin, name)
        if is_offered(method):
            offered.append(name)
        elif has_declaration(method):
            raise ConfigurationError(
                f"{origin}: {plugin.__name__}.{name} has @tool, but not @kernel_function"
            )
    if not offered:
        raise ConfigurationError(f"{origin}: {plugin.__name__} has no method with @kernel_function")
    return [PluginMethodTool(plugin, name, threads, origin) for name in offered]


def load_plugin_tools(
    names: Sequence[str], *, settings: Settings, agent_file: Path, threads: WorkerThreads
) -> list[PluginMethodTool]:
    """The tools of the classes an agent file names, from `TA_PLUGIN_MODULE` or the file beside it.

    Raises:
        ConfigurationError: no module, no such class, or a class that cannot be used.
    """
    beside = agent_file.parent / USUAL_FILE
    if settings.plugin_module is not None:
        module, source = settings.plugin_module, "TA_PLUGIN_MODULE"
    elif beside.is_file():
        module, source = str(beside), f"{agent_file}: plugins"
    elif names:
        raise ConfigurationError(
            f"{agent_file}: plugins needs TA_PLUGIN_MODULE or a file {USUAL_FILE} beside it"
        )
    else:
        return []
    install_kernel_stub()
    return [
        tool
        for name in names
        for plugin in [load_class(module, name, BasePlugin, source=source)]
        for tool in plugin_tools(plugin, threads=threads, origin=module)
    ]


def _check_constructor(plugin: type[BasePlugin], origin: str) -> None:
    try:
        inspect.signature(plugin).bind(None, ExtraDataCollector())
    except TypeError as error:
        raise ConfigurationError(
            f"{origin}: {plugin.__name__} cannot be built with an authorization and a collector: "
            f"{error}"
        ) from None
