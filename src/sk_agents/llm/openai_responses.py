"""OpenAI's Responses API, for models that reason: what they reasoned is kept, encrypted, and sent
back with the results of their calls. Nothing is stored at OpenAI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sk_agents.engine.models import Message, Part, Usage
from sk_agents.engine.turns import Prompt, ToolSpec
from sk_agents.exceptions import ModelProtocolError
from sk_agents.llm.failures import Timing
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.openai_wire import TOOL_CHOICES, Dialect, encoded, response_format
from sk_agents.llm.replies import StreamedReply, model_of, token_count
from sk_agents.llm.streamed_chat import Endpoint, EventReading, StreamedChat, parsed

KIND = "openai_responses"
INCOMPLETE = {"max_output_tokens": "length", "content_filter": "content_filter"}


class OpenAIResponses(StreamedChat):
    dispensable = frozenset({"temperature", "top_p", "reasoning"})

    def __init__(
        self, clients: ModelClients, endpoint: Endpoint, timing: Timing | None = None
    ) -> None:
        headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
        super().__init__(clients, endpoint, timing, "/responses", headers)

    def encode(self, prompt: Prompt) -> bytes:
        return self.encoded_body(request_body(self.endpoint, prompt))

    def reading(self, reply: StreamedReply) -> ResponsesReading:
        return ResponsesReading(reply, self.endpoint)


def request_body(endpoint: Endpoint, prompt: Prompt) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": endpoint.model,
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "input": [
            item for message in prompt.messages for item in _items(message, endpoint.dialect)
        ],
    }
    if prompt.tools:
        body["tools"] = [_tool(spec) for spec in prompt.tools]
        if (choice := prompt.tool_choice) is not None:
            named = {"type": "function", "name": choice}
            body["tool_choice"] = choice if choice in TOOL_CHOICES else named
        if prompt.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = prompt.parallel_tool_calls
    if prompt.reasoning_effort is not None:
        body["reasoning"] = {"effort": prompt.reasoning_effort, "summary": "auto"}
    given = {
        "temperature": prompt.temperature,
        "top_p": endpoint.options.top_p,
        "max_output_tokens": prompt.max_tokens,
    }
    body |= {name: value for name, value in given.items() if value is not None}
    if prompt.response_schema is not None:
        named = response_format(prompt.response_schema)["json_schema"]
        body["text"] = {"format": {"type": "json_schema", **named}}
    return {**body, **endpoint.options.extra_body}


def _items(message: Message, dialect: Dialect) -> Iterator[dict[str, Any]]:
    if message.role == "tool":
        output: str | list[dict[str, Any]] = message.content
        if dialect.sees_images and message.parts:
            parts = (Part(content=message.content), *message.parts)
            output = [_part(part, dialect) for part in parts]
        identity = message.tool_call_id
        yield {"type": "function_call_output", "call_id": identity, "output": output}
        return
    state = message.reasoning_state or {}
    if state.get("kind") == KIND:
        yield from state["items"]
    is_ours = message.role == "assistant"
    if message.parts:
        yield {"role": message.role, "content": [_part(part, dialect) for part in message.parts]}
    elif message.content.strip() or not (is_ours and message.tool_calls):
        # OpenAI's newer name for what an operator says.
        role = "developer" if message.role == "system" else message.role
        yield {"role": role, "content": message.content}
    for call in message.tool_calls:
        yield {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": encoded(call.arguments).decode(),
        }


def _part(part: Part, dialect: Dialect) -> dict[str, Any]:
    if (document := dialect.document(part)) is not None:
        name = part.name or "file.pdf"
        return {"type": "input_file", "filename": name, "file_data": document.uri}
    if part.kind == "image":
        return {"type": "input_image", "image_url": part.content}
    return {"type": "input_text", "text": part.text}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": dict(spec.parameters),
        # Otherwise every argument would be required.
        "strict": False,
    }


class ResponsesReading(EventReading):
    def __init__(self, reply: StreamedReply, endpoint: Endpoint) -> None:
        super().__init__(reply, endpoint)
        self._items: list[dict[str, Any]] = []
        self._has_calls = False
        # The calls whose arguments came in pieces; some servers send them only at the end.
        self._streamed: set[int] = set()

    def take(self, data: bytes) -> None:
        if data == b"[DONE]":
            return
        event = parsed(data)
        try:
            self._take(event)
        except (TypeError, KeyError, AttributeError):
            raise ModelProtocolError("an event of the reply has an unknown form") from None

    def _take(self, event: Mapping[str, Any]) -> None:
        match event["type"]:
            case "response.output_text.delta" | "response.refusal.delta":
                self.reply.take_text(event["delta"])
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self.reply.take_thought(event["delta"])
            case "response.reasoning_summary_part.added" if event.get("summary_index"):
                self.reply.take_thought("\n\n")
            case "response.output_item.added" if event["item"]["type"] == "function_call":
                item = event["item"]
                self._has_calls = True
                function = {"name": item["name"], "arguments": item.get("arguments") or None}
                self.reply.take_call(event["output_index"], item["call_id"], function)
            case "response.function_call_arguments.delta":
                self._streamed.add(event["output_index"])
                self.reply.take_call(event["output_index"], None, {"arguments": event["delta"]})
            case "response.output_item.done":
                self._take_item(event["output_index"], event["item"])
            case "response.completed" | "response.incomplete":
                self._end(event["response"])
            case "response.failed":
                raise self.failure((event["response"].get("error")) or {"message": "it failed"})
            case "error":
                raise self.failure(event.get("error") or event)

    def _take_item(self, index: int, item: Mapping[str, Any]) -> None:
        if item["type"] == "reasoning":
            self._items.append(_kept(item))
        elif item["type"] == "function_call" and index not in self._streamed:
            self.reply.take_call(index, item["call_id"], {"arguments": item["arguments"]})

    def _end(self, response: Mapping[str, Any]) -> None:
        usage = response.get("usage") or {}
        self.reply.usage = Usage(
            prompt_tokens=token_count(usage.get("input_tokens")),
            completion_tokens=token_count(usage.get("output_tokens")),
        )
        self.reply.model = model_of(response.get("model"))
        reason = (response.get("incomplete_details") or {}).get("reason")
        ended = "tool_calls" if self._has_calls else "stop"
        self.reply.finish_reason = INCOMPLETE.get(reason, str(reason)[:64]) if reason else ended
        self.reply.state = {"kind": KIND, "items": self._items} if self._items else None
        self.reply.finish()


def _kept(item: Mapping[str, Any]) -> dict[str, Any]:
    """What a reasoning item must have when it is sent back."""
    names = ("type", "id", "summary", "encrypted_content")
    return {name: item[name] for name in names if item.get(name) is not None}
