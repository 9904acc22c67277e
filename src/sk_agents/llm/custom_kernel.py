"""A prompt in semantic-kernel's words, and its replies in those of a streamed chat completion.

Nothing of that library is imported before a factory of the operator's own has given us a client of
it. Its kernel is used for one thing only: to show the client which tools there are. It never calls
one.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sk_agents.engine.models import Message, Part, ToolCall
from sk_agents.engine.turns import Prompt, ToolSpec
from sk_agents.llm.openai_wire import encoded, part_text, response_format

LIBRARY = "semantic_kernel"
# The library wants every function to belong to a plugin.
NO_PLUGIN = "tool"
MOST_DEPTH = 32
_ROLES = {"system": "SYSTEM", "user": "USER", "assistant": "ASSISTANT", "tool": "TOOL"}


class KernelWords:
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
            settings.function_choice_behavior = behavior.Auto(auto_invoke=False)
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
            text = message.content or "\n".join(map(part_text, message.parts))
            return self.message(role=role, items=[self.result(id=identity, name=name, result=text)])
        items = [self._part(part) for part in message.parts]
        if message.content or not (items or message.tool_calls):
            items.insert(0, self.text(text=message.content))
        items += [self._call(call) for call in message.tool_calls]
        return self.message(role=role, items=items)

    def _part(self, part: Part) -> Any:
        if part.kind == "image":
            return self.image(data_uri=part.content)
        return self.text(text=part_text(part))

    def _call(self, call: ToolCall) -> Any:
        arguments = encoded(call.arguments).decode()
        return self.call(id=call.id, name=kernel_name(call.name), arguments=arguments)


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


def kernel_name(name: str) -> str:
    return name if "-" in name else f"{NO_PLUGIN}-{name}"


def own_name(name: str) -> str:
    return name.removeprefix(f"{NO_PLUGIN}-")


def _wire_call(item: Any) -> dict[str, Any]:
    arguments = item.arguments
    if isinstance(arguments, Mapping):
        arguments = dict(arguments)
    name = getattr(item, "name", None)
    return {
        "index": getattr(item, "index", None),
        "id": getattr(item, "id", None),
        "function": {"name": own_name(name) if name else None, "arguments": arguments},
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
