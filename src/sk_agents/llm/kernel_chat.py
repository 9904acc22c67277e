"""A chat client of semantic-kernel, from a factory of the operator's own, as a `Model`.

It is known by its methods alone: `get_streaming_chat_message_contents`, or
`get_chat_message_contents` where it cannot stream. Nothing of the library is imported before such
a client is there. Its kernel only shows the client which tools there are. It never calls one.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from sk_agents.engine.models import Message
from sk_agents.engine.turns import ModelPiece, Prompt, ToolSpec
from sk_agents.exceptions import ModelError, ModelUnavailable
from sk_agents.llm.failures import Attempts, RetryPolicy, Timing, refusal
from sk_agents.llm.openai_wire import encoded, response_format
from sk_agents.llm.replies import StreamedReply

logger = logging.getLogger(__name__)

STREAMING = "get_streaming_chat_message_contents"
WHOLE = "get_chat_message_contents"
MOST_CAUSES = 8
# Parts of the names under which client libraries report that no answer came.
UNREACHED = ("Timeout", "Connect")

LIBRARY = "semantic_kernel"
# The library wants every function to belong to a plugin.
NO_PLUGIN = "tool"
MOST_DEPTH = 32
_ROLES = {"system": "SYSTEM", "user": "USER", "assistant": "ASSISTANT", "tool": "TOOL"}


class KernelChat:
    """`structured` says that the model takes a schema for its answer."""

    def __init__(
        self,
        name: str,
        service: Any,
        *,
        structured: bool = False,
        retry: RetryPolicy | None = None,
        timing: Timing | None = None,
    ) -> None:
        self._name = name
        self._service = service
        self._structured = structured
        self._retry = retry or RetryPolicy()
        self._timing = timing or Timing()
        self._words: KernelTypes | None = None

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[ModelPiece]]:
        attempts = Attempts(self._retry, self._timing)
        while True:
            reply = StreamedReply(prompt.limits)
            try:
                async with aclosing(self._attempt(prompt, reply)) as steps:
                    async for pieces in steps:
                        yield pieces
                return
            except ModelError as error:
                failure = error
            except Exception as error:
                # The client is foreign code.
                failure = _failure(error)
            await attempts.repeat_after(failure, self._name, is_begun=reply.begun)

    async def _attempt(
        self, prompt: Prompt, reply: StreamedReply
    ) -> AsyncGenerator[list[ModelPiece]]:
        request = await self._request(prompt)
        async with aclosing(self._contents(request, reply)) as contents:
            async for content in contents:
                reply.take(chunk_of(content))
                pieces = reply.drain()
                if pieces:
                    yield pieces
        # A client that ends without an error has said everything, with or without a reason.
        reply.finish()
        yield reply.drain()

    async def _contents(self, request: dict[str, Any], reply: StreamedReply) -> AsyncGenerator[Any]:
        streaming = getattr(self._service, STREAMING, None)
        if streaming is not None:
            try:
                batches = streaming(**request)
                if inspect.isawaitable(batches):
                    batches = await batches
                async with aclosing(batches):
                    async for batch in batches:
                        yield _first(batch)
                return
            except NotImplementedError:
                if reply.begun or not hasattr(self._service, WHOLE):
                    raise
        whole = getattr(self._service, WHOLE)
        if inspect.iscoroutinefunction(whole):
            batch = await whole(**request)
        else:
            batch = await asyncio.to_thread(whole, **request)
            batch = await batch if inspect.isawaitable(batch) else batch
        yield _first(batch)

    async def _request(self, prompt: Prompt) -> dict[str, Any]:
        if self._words is None:
            # Some of the library's modules take long to import.
            self._words = await asyncio.to_thread(KernelTypes)
        words = self._words
        request = {
            "chat_history": words.chat_history(prompt.messages),
            "settings": words.execution_settings(
                self._service, prompt, structured=self._structured
            ),
        }
        return {**request, "kernel": words.kernel(prompt.tools)} if prompt.tools else request


def _first(batch: Any) -> Any:
    """Of several answers to one prompt only the first is ours."""
    return batch[0] if isinstance(batch, list | tuple) and batch else batch


def _failure(error: Exception) -> ModelError:
    """What a status anywhere among the causes means; the library wraps its clients' errors."""
    logger.warning("the model's client failed with %s", type(error).__name__)
    for cause in _causes(error):
        status = getattr(cause, "status_code", None)
        if isinstance(status, int) and 400 <= status < 600:
            document = {"message": str(cause), "code": getattr(cause, "code", None)}
            return refusal(status, encoded({"error": document}), None)
        name = type(cause).__name__
        if isinstance(cause, OSError) or any(part in name for part in UNREACHED):
            return ModelUnavailable(f"the provider cannot be reached ({name})")
    return ModelError(f"the model's client failed ({type(error).__name__})")


def _causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    for _ in range(MOST_CAUSES):
        if found is None:
            return
        yield found
        inside = (entry for entry in found.args if isinstance(entry, BaseException))
        found = found.__cause__ or next(inside, None) or found.__context__


class KernelTypes:
    """The library's classes, imported when this is made."""

    def __init__(self) -> None:
        contents = _module("contents")
        self.role = _module("contents.utils.author_role").AuthorRole
        self.history = _module("contents.chat_history").ChatHistory
        self.message = contents.ChatMessageContent
        self.text = contents.TextContent
        self.image = contents.ImageContent
        self.call = contents.FunctionCallContent
        self.result = contents.FunctionResultContent
        self.settings = _module("connectors.ai.prompt_execution_settings").PromptExecutionSettings
        self._known: tuple[tuple[str, ...], Any] | None = None

    def chat_history(self, messages: Iterable[Message]) -> Any:
        history = self.history()
        names: dict[str, str] = {}
        for message in messages:
            names.update({call.id: call.name for call in message.tool_calls})
            history.add_message(self._message(message, names))
        return history

    def execution_settings(self, service: Any, prompt: Prompt, *, structured: bool) -> Any:
        named = getattr(service, "get_prompt_execution_settings_class", None)
        kind = named() if callable(named) else self.settings
        values: dict[str, Any] = {
            "temperature": prompt.temperature,
            "max_tokens": prompt.max_tokens,
            "reasoning_effort": prompt.reasoning_effort,
        }
        if structured and prompt.response_schema is not None:
            values["response_format"] = response_format(prompt.response_schema)
        settings = kind(**{name: value for name, value in values.items() if value is not None})
        if prompt.tools:
            behavior = _module("connectors.ai.function_choice_behavior").FunctionChoiceBehavior
            settings.function_choice_behavior = _choice(behavior, prompt.tool_choice)
        return settings

    def kernel(self, tools: Sequence[ToolSpec]) -> Any:
        """One that knows these tools; the same one as long as they stay the same."""
        key = tuple(f"{spec.name} {spec.definition_digest}" for spec in tools)
        if self._known is None or self._known[0] != key:
            kernel = _module("kernel").Kernel()
            plugins: dict[str, list[Any]] = {}
            for spec in tools:
                plugin, _, function = kernel_name(spec.name).partition("-")
                plugins.setdefault(plugin, []).append(_function(plugin, function, spec))
            for plugin, functions in plugins.items():
                kernel.add_functions(plugin_name=plugin, functions=functions)
            self._known = (key, kernel)
        return self._known[1]

    def _message(self, message: Message, names: Mapping[str, str]) -> Any:
        role = getattr(self.role, _ROLES[message.role])
        if message.role == "tool":
            identity = message.tool_call_id or ""
            name = kernel_name(names.get(identity, "unknown"))
            result = self.result(id=identity, name=name, result=message.content)
            return self.message(role=role, items=[result])
        items = [
            self.image(data_uri=part.content) if part.kind == "image" else self.text(text=part.text)
            for part in message.parts
        ]
        if message.content or not (items or message.tool_calls):
            items.insert(0, self.text(text=message.content))
        for call in message.tool_calls:
            arguments = encoded(call.arguments).decode()
            items.append(self.call(id=call.id, name=kernel_name(call.name), arguments=arguments))
        return self.message(role=role, items=items)


def chunk_of(content: Any) -> dict[str, Any]:
    """A message of the library, whole or a piece, as a chunk of a chat completion."""
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for item in getattr(content, "items", None) or ():
        text = getattr(item, "text", None)
        if hasattr(item, "arguments"):
            calls.append(_wire_call(item))
        elif isinstance(text, str):
            is_thought = "reasoning" in type(item).__name__.lower()
            (thoughts if is_thought else texts).append(text)
    if not (texts or thoughts or calls):
        text = getattr(content, "content", None)
        texts = [text] if isinstance(text, str) else []
    delta: dict[str, Any] = {"content": "".join(texts)}
    if thoughts:
        delta["reasoning_content"] = "".join(thoughts)
    if calls:
        delta["tool_calls"] = calls
    reason = getattr(content, "finish_reason", None)
    choice = {"delta": delta, "finish_reason": getattr(reason, "value", reason)}
    return {"choices": [choice], "usage": _usage(getattr(content, "metadata", None))}


def _choice(behavior: Any, choice: str | None) -> Any:
    match choice:
        case None | "auto":
            return behavior.Auto(auto_invoke=False)
        case "none":
            return behavior.NoneInvoke()
        case "required":
            return behavior.Required(auto_invoke=False)
        case _:
            named = {"included_functions": [kernel_name(choice)]}
            return behavior.Required(auto_invoke=False, filters=named)


def kernel_name(name: str) -> str:
    return name if "-" in name else f"{NO_PLUGIN}-{name}"


def _wire_call(item: Any) -> dict[str, Any]:
    arguments = item.arguments
    if isinstance(arguments, Mapping):
        arguments = dict(arguments)
    name = (getattr(item, "name", None) or "").removeprefix(f"{NO_PLUGIN}-")
    return {
        "index": getattr(item, "index", None),
        "id": getattr(item, "id", None),
        "function": {"name": name or None, "arguments": arguments},
    }


def _usage(metadata: Any) -> dict[str, Any] | None:
    usage = metadata.get("usage") if isinstance(metadata, Mapping) else None
    if usage is None:
        return None
    return {name: getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens")}


def _function(plugin: str, name: str, spec: ToolSpec) -> Any:
    mark = _module("functions.kernel_function_decorator").kernel_function

    @mark(name=name, description=spec.description)  # type: ignore[untyped-decorator]  # the library is not there to be read
    def never_called(**_: Any) -> str:
        raise NotImplementedError

    parameter = _module("functions.kernel_parameter_metadata").KernelParameterMetadata
    required = spec.parameters.get("required", ())
    shared = spec.parameters.get("$defs", {})
    return _module("functions.kernel_function_from_method").KernelFunctionFromMethod(
        method=never_called,
        plugin_name=plugin,
        parameters=[
            # Unchecked: some tools have arguments whose names the library would refuse.
            parameter.model_construct(
                name=entry,
                description=schema.get("description", ""),
                default_value=None,
                is_required=entry in required,
                type_=str(schema.get("type", "object")),
                type_object=None,
                schema_data=written_out(schema, shared),
                include_in_function_choices=True,
            )
            for entry, schema in spec.parameters.get("properties", {}).items()
        ],
    )


def written_out(schema: Any, shared: Mapping[str, Any], depth: int = 0) -> Any:
    """Without references: each parameter's schema stands by itself there."""
    if depth > MOST_DEPTH:
        return {}
    if isinstance(schema, list):
        return [written_out(entry, shared, depth + 1) for entry in schema]
    if not isinstance(schema, Mapping):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str):
        target = shared.get(reference.removeprefix("#/$defs/"), {})
        beside = {name: value for name, value in schema.items() if name != "$ref"}
        return written_out({**target, **beside}, shared, depth + 8)
    return {name: written_out(value, shared, depth + 1) for name, value in schema.items()}


def _module(name: str) -> Any:
    return importlib.import_module(f"{LIBRARY}.{name}")
