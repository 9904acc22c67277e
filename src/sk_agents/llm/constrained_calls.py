"""Tool calls from a model that was never taught any.

The model is held to a JSON schema in which it either answers or names a tool with arguments that
fit that tool; what it writes is turned back into the engine's pieces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sk_agents.engine.models import Message
from sk_agents.engine.turns import CallRequested, Prompt, ToolSpec
from sk_agents.exceptions import ModelProtocolError
from sk_agents.llm.openai_wire import encoded, part_text

ANSWER = re.compile(r'\s*\{\s*"answer"\s*:\s*"')
WHOLE_CHARACTERS = re.compile(r'(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
INSTRUCTION = (
    'Reply in JSON: {"answer": "..."} to answer, or {"tool": "<name>", "arguments": {...}} to use '
    "one of these tools:"
)


def offers_calls(prompt: Prompt) -> bool:
    """A tool's result is answered, not followed by another call: a small model would not stop."""
    return bool(prompt.tools) and (not prompt.messages or prompt.messages[-1].role != "tool")


def constrained(prompt: Prompt) -> Prompt:
    """The same prompt for a model that knows neither tools nor images."""
    if not offers_calls(prompt):
        return replace(prompt, messages=plain_messages(prompt.messages), tools=())
    messages = plain_messages(prompt.messages)
    offer = "\n".join([INSTRUCTION, *map(_described, prompt.tools)])
    if messages and messages[0].role == "system":
        first = Message(role="system", content=f"{messages[0].content}\n\n{offer}")
        messages = [first, *messages[1:]]
    else:
        messages = [Message(role="system", content=offer), *messages]
    return replace(prompt, messages=messages, tools=(), response_schema=reply_schema(prompt.tools))


def reply_schema(tools: Iterable[ToolSpec]) -> dict[str, Any]:
    """An answer, or a call of one of the tools."""
    answer = _closed_object({"answer": {"type": "string"}})
    calls = [
        _closed_object({"tool": {"const": spec.name}, "arguments": dict(spec.parameters)})
        for spec in tools
    ]
    return {"anyOf": [*calls, answer]}


def plain_messages(messages: Sequence[Message]) -> list[Message]:
    """Calls and results told as text."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    return [_plain(message, names) for message in messages]


def answer_so_far(text: str) -> str:
    """The answer in a reply that is still being written; empty if it is none."""
    opening = ANSWER.match(text)
    if opening is None:
        return ""
    whole = WHOLE_CHARACTERS.match(text, opening.end())
    assert whole is not None
    answer = json.loads(f'"{whole[0]}"', strict=False)
    assert isinstance(answer, str)
    return answer[:-1] if answer and "\ud800" <= answer[-1] <= "\udbff" else answer


def requested_call(text: str) -> CallRequested | None:
    """The call that a complete reply asks for; `None` if it is an answer.

    Raises:
        ModelProtocolError: neither.
    """
    if ANSWER.match(text):
        return None
    try:
        reply = json.loads(text)
        return CallRequested("local_0", str(reply["tool"]), encoded(reply["arguments"]).decode())
    except (ValueError, KeyError, TypeError):
        raise ModelProtocolError("the local model did not finish its reply") from None


def _plain(message: Message, names: dict[str, str]) -> Message:
    content = message.content
    if message.parts:
        content = "\n".join(
            "[an image]" if part.kind == "image" else part_text(part) for part in message.parts
        )
    if message.role == "tool":
        name = names.get(message.tool_call_id or "", "the tool")
        return Message(role="user", content=f"Result of {name}: {content}")
    told = [
        encoded({"tool": call.name, "arguments": call.arguments}).decode()
        for call in message.tool_calls
    ]
    return Message(role=message.role, content="\n".join(filter(None, [content, *told])))


def _described(spec: ToolSpec) -> str:
    properties = spec.parameters.get("properties") or {}
    return f"- {spec.name}({', '.join(properties)}): {spec.description}"


def _closed_object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
