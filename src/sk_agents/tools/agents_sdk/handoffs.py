"""Handoffs: a tool whose result says that another agent goes on with the conversation.

The call and its result are in the log like every other. Which agent speaks is read from there
(`team.py`), so that it is the same one after a restart and at another instance.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from sk_agents.engine.models import Effect, Message, ToolCall
from sk_agents.engine.turns import ToolContext, ToolResult
from sk_agents.exceptions import AgentCodeFailed, ConfigurationError
from sk_agents.tools.agents_sdk.author_code import AuthorContexts, called, enclosed, own_kind
from sk_agents.tools.agents_sdk.member import is_agent
from sk_agents.tools.base_tool import Tool, ToolStream, text_of, tool_spec
from sk_agents.tools.declarations import declaration_of
from sk_agents.tools.json_schema import ArgumentSchema, UnusableSchema

_FOREIGN = re.compile(r"[^a-z0-9_]")
_NOTHING: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
_MODULE = "agents.handoffs"


class HandoffTool(Tool):
    """It only reads, unless its author has a function called: then the policy decides as about any
    tool. `target` is the agent that goes on."""

    def __init__(self, given: Any, place: str, contexts: AuthorContexts) -> None:
        """Of an `Agent`, or of a `Handoff`, which says more about it.

        Raises:
            ConfigurationError: it asks for something we do not do.
        """
        self.source, self._contexts = given, contexts
        self.is_enabled: Any = getattr(given, "is_enabled", True)
        self.input_filter: Any = getattr(given, "input_filter", None)
        if hasattr(given, "on_invoke_handoff"):
            self.origin = f"{place}handoff '{given.tool_name}'"
            self.target = _target(given, self.origin)
            self._invoke: Any = given.on_invoke_handoff
            name, description = given.tool_name, given.tool_description
            schema = given.input_json_schema or _NOTHING
            around = enclosed(given.on_invoke_handoff, "on_handoff")
            has_effect = around is None or around["on_handoff"] is not None
            if getattr(given, "nest_handoff_history", None):
                raise ConfigurationError(f"{self.origin}: nest_handoff_history is not done here")
        elif not is_agent(given):
            kind = type(given).__name__
            raise ConfigurationError(f"{place}handoffs: a {kind} is no agent of the SDK")
        else:
            self.target, self._invoke, has_effect, schema = given, None, False, _NOTHING
            name = _FOREIGN.sub("_", f"transfer_to_{given.name}".lower())
            self.origin = f"{place}handoff '{name}'"
            about = getattr(given, "handoff_description", None) or ""
            description = f"Hand the conversation over to the agent {given.name}. {about}".strip()
        self._has_effect = has_effect
        declaration = declaration_of(given)
        self.requires_approval = declaration.requires_approval
        try:
            self._arguments = ArgumentSchema(schema)
        except UnusableSchema as error:
            raise ConfigurationError(f"{self.origin}: its schema is unusable: {error}") from None
        self.spec = tool_spec(
            name=name,
            description=description,
            parameters=self._arguments.schema,
            origin=self.origin,
            effect=declaration.effect if has_effect else Effect.READ_ONLY,
            timeout=declaration.timeout,
        )

    def is_same(self, other: HandoffTool) -> bool:
        """Whether both do the same: several agents may hand over to one."""
        if self.source is other.source:
            return True
        is_plain = not (self._has_effect or other._has_effect)
        return (
            is_plain
            and self.target is other.target
            and self.spec == other.spec
            and self.input_filter is other.input_filter
            and self.is_enabled is other.is_enabled
        )

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self._arguments.check(arguments)

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolStream:
        if self._invoke is not None:
            what = f"on_handoff of '{self.spec.name}'"
            text = json.dumps(arguments, ensure_ascii=False)
            found = await called(what, self._invoke, await self._contexts.wrapped(context), text)
            if found is not self.target:
                raise AgentCodeFailed(f"{what} names another agent than when the server started.")
        yield ToolResult(json.dumps({"assistant": self.target.name}, ensure_ascii=False))

    async def filtered(self, messages: Sequence[Message], context: ToolContext) -> list[Message]:
        """What the next agent is to see of the conversation before it.

        Raises:
            AgentCodeFailed: the filter fails, or returns something that is no conversation.
        """
        if self.input_filter is None:
            return list(messages)
        what = f"input_filter of '{self.spec.name}'"
        kind = own_kind(_MODULE, "HandoffInputData") or SimpleNamespace
        items = [(item, message) for message in messages for item in _items(message)]
        data = kind(
            input_history=tuple(item for item, _ in items),
            pre_handoff_items=(),
            new_items=(),
            run_context=await self._contexts.wrapped(context),
        )
        found = await called(what, self.input_filter, data)
        try:
            # An item that comes back as it is stands for its message, pictures and all.
            known = {id(item): message for item, message in items if "role" in item}
            return _messages(_said(found), known)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise AgentCodeFailed(f"{what} returned what is no conversation.") from error


def _target(given: Any, origin: str) -> Any:
    reference = getattr(given, "_agent_ref", None)
    target = reference() if reference is not None else None
    if target is None:
        raise ConfigurationError(f"{origin}: its agent is not known before it is called")
    return target


def _items(message: Message) -> Iterator[dict[str, Any]]:
    """As the SDK writes a conversation down: one item for each text, call and result."""
    if message.role == "tool":
        identity, output = message.tool_call_id, message.content
        yield {"type": "function_call_output", "call_id": identity, "output": output}
        return
    texts = [part.content for part in message.parts if part.kind != "image"]
    text = message.content or "\n".join(texts)
    if text or not message.tool_calls:
        yield {"role": message.role, "content": text}
    for call in message.tool_calls:
        yield {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": json.dumps(call.arguments, ensure_ascii=False),
        }


def _said(found: Any) -> list[Any]:
    history = found.input_history
    items = [{"role": "user", "content": history}] if isinstance(history, str) else [*history]
    new = found.new_items if getattr(found, "input_items", None) is None else found.input_items
    return items + [item.to_input_item() for item in (*found.pre_handoff_items, *new)]


def _messages(items: Sequence[Any], known: Mapping[int, Message]) -> list[Message]:
    """The conversation that the items are; a call without its result is left out, and so is a
    result without its call."""
    results = {item["call_id"] for item in items if item.get("type") == "function_call_output"}
    messages: list[Message] = []
    called_ids: set[str] = set()
    for item in items:
        match item.get("type"):
            case "function_call":
                if item["call_id"] not in results:
                    continue
                called_ids.add(item["call_id"])
                plugin, _, function = str(item["name"]).rpartition("-")
                call = ToolCall(
                    id=item["call_id"],
                    plugin_name=plugin,
                    function_name=function,
                    arguments=json.loads(item["arguments"]),
                )
                if messages and messages[-1].tool_calls:
                    calls = (*messages.pop().tool_calls, call)
                    messages.append(Message(role="assistant", tool_calls=calls))
                else:
                    messages.append(Message(role="assistant", tool_calls=(call,)))
            case "function_call_output":
                if item["call_id"] in called_ids:
                    text = text_of(item["output"])
                    messages.append(
                        Message(role="tool", content=text, tool_call_id=item["call_id"])
                    )
            case None | "message":
                message = known.get(id(item))
                if message is None or message.tool_calls:
                    message = Message(role=item["role"], content=_text(item["content"]))
                messages.append(message)
            case kind:
                raise ValueError(f"items of type {kind} are not known")
    return messages


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)
