"""Anthropic's Messages API: tools, images, thoughts that are sent back, prompts that are cached."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sk_agents.engine.models import Message, Part, Usage
from sk_agents.engine.turns import Prompt, ToolSpec
from sk_agents.exceptions import ModelProtocolError
from sk_agents.llm.failures import Timing
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.openai_wire import Dialect, image_data
from sk_agents.llm.replies import StreamedReply, model_of, token_count
from sk_agents.llm.streamed_chat import Endpoint, EventReading, StreamedChat, parsed

VERSION = "2023-06-01"
KIND = "anthropic"
# The API wants a bound; this one fits every model that is still served.
USUAL_MAX_TOKENS = 8192
# What older models may think, in tokens, at each effort; newer ones take the effort itself.
BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384}
OLDER = re.compile(r"claude-(3|(sonnet|opus|haiku)-4(-[0-5])?(-20\d{6})?$)")
# Other words are the name of a tool.
CHOICES = {"auto": "auto", "none": "none", "required": "any"}
CACHED = {"cache_control": {"type": "ephemeral"}}
FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


class AnthropicMessages(StreamedChat):
    dispensable = frozenset({"temperature", "top_p", "thinking"})

    def __init__(
        self, clients: ModelClients, endpoint: Endpoint, timing: Timing | None = None
    ) -> None:
        headers = {"anthropic-version": VERSION}
        if endpoint.key:
            headers["x-api-key"] = endpoint.key
        path = "/messages" if endpoint.base_url.endswith("/v1") else "/v1/messages"
        super().__init__(clients, endpoint, timing, path, headers)

    def encode(self, prompt: Prompt) -> bytes:
        return self.encoded_body(request_body(self.endpoint, prompt))

    def reading(self, reply: StreamedReply) -> MessagesReading:
        return MessagesReading(reply, self.endpoint)


def request_body(endpoint: Endpoint, prompt: Prompt) -> dict[str, Any]:
    options = endpoint.options
    body: dict[str, Any] = {
        "model": endpoint.model,
        "stream": True,
        "max_tokens": prompt.max_tokens or USUAL_MAX_TOKENS,
        "messages": _with_cache(_turns(prompt.messages, endpoint.dialect)),
    }
    system = [message.content for message in prompt.messages if message.role == "system"]
    if system:
        body["system"] = [{"type": "text", "text": "\n\n".join(system), **CACHED}]
    if prompt.tools:
        body["tools"] = [_tool(spec) for spec in prompt.tools]
        body["tools"][-1] |= CACHED
        if choice := _tool_choice(prompt):
            body["tool_choice"] = choice
    if prompt.temperature is not None:
        # OpenAI's scale goes to 2.
        body["temperature"] = min(prompt.temperature, 1.0)
    if options.top_p is not None:
        body["top_p"] = options.top_p
    if options.stop:
        body["stop_sequences"] = list(options.stop)
    if prompt.reasoning_effort not in (None, "none"):
        _add_thinking(body, prompt.reasoning_effort or "")
    if "thinking" in body and body.get("tool_choice", {}).get("type") in {"any", "tool"}:
        # A model that thinks cannot be made to call.
        body["tool_choice"] = {**body["tool_choice"], "type": "auto"}
        body["tool_choice"].pop("name", None)
    if prompt.response_schema is not None:
        schema = {"type": "json_schema", "schema": dict(prompt.response_schema)}
        body["output_config"] = {**body.get("output_config", {}), "format": schema}
    return {**body, **options.extra_body}


def _tool_choice(prompt: Prompt) -> dict[str, Any] | None:
    choice = prompt.tool_choice
    if choice is None and prompt.parallel_tool_calls is not False:
        return None
    kind = CHOICES.get(choice or "auto", "tool")
    found: dict[str, Any] = {"type": kind}
    if kind == "tool":
        found["name"] = choice
    if prompt.parallel_tool_calls is False and kind != "none":
        found["disable_parallel_tool_use"] = True
    return found


def _add_thinking(body: dict[str, Any], effort: str) -> None:
    # Neither goes together with thinking.
    body.pop("temperature", None)
    body.pop("top_p", None)
    if not OLDER.search(body["model"]):
        body["thinking"] = {"type": "adaptive"}
        body["output_config"] = {"effort": effort if effort != "minimal" else "low"}
        return
    budget = BUDGETS.get(effort, BUDGETS["medium"])
    body["thinking"] = {"type": "enabled", "budget_tokens": budget}
    # The bound is one of thoughts and answer together.
    body["max_tokens"] += budget


def _turns(messages: Sequence[Message], dialect: Dialect) -> list[dict[str, Any]]:
    """Messages of one side that follow each other are one: results belong together."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = list(_blocks(message, dialect))
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return turns


def _blocks(message: Message, dialect: Dialect) -> Iterator[dict[str, Any]]:
    if message.role == "tool":
        content: str | list[dict[str, Any]] = message.content or "(no output)"
        if dialect.sees_images and message.parts:
            parts = (Part(content=str(content)), *message.parts)
            content = [_part(part, dialect) for part in parts]
        yield {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": content}
        return
    state = message.reasoning_state or {}
    if state.get("kind") == KIND:
        yield from state["blocks"]
    if message.parts:
        yield from (_part(part, dialect) for part in message.parts)
    elif message.content.strip():
        yield {"type": "text", "text": message.content}
    for call in message.tool_calls:
        yield {
            "type": "tool_use",
            "id": call.id,
            "name": call.name,
            "input": dict(call.arguments),
        }


def _part(part: Part, dialect: Dialect) -> dict[str, Any]:
    if (document := dialect.document(part)) and (found := image_data(document.uri)):
        source = {"type": "base64", "media_type": found[0], "data": found[1]}
        return {"type": "document", "source": source, "title": part.name or "file.pdf"}
    if part.kind != "image":
        return {"type": "text", "text": part.text}
    found = image_data(part.content)
    if found is None:
        return {"type": "image", "source": {"type": "url", "url": part.content}}
    media_type, data = found
    source = {"type": "base64", "media_type": media_type, "data": data}
    return {"type": "image", "source": source}


def _with_cache(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The next request begins with all of this one: its end is worth keeping."""
    if turns and turns[-1]["content"][-1]["type"] not in {"thinking", "redacted_thinking"}:
        turns[-1]["content"][-1] = {**turns[-1]["content"][-1], **CACHED}
    return turns


def _tool(spec: ToolSpec) -> dict[str, Any]:
    schema = dict(spec.parameters)
    schema.setdefault("type", "object")
    return {"name": spec.name, "description": spec.description, "input_schema": schema}


class MessagesReading(EventReading):
    """Blocks come one after the other; those of thoughts are kept whole, for the next request."""

    def __init__(self, reply: StreamedReply, endpoint: Endpoint) -> None:
        super().__init__(reply, endpoint)
        self._thoughts: dict[int, dict[str, Any]] = {}
        self._prompt_tokens = 0

    def take(self, data: bytes) -> None:
        event = parsed(data)
        try:
            self._take(event)
        except (TypeError, KeyError, AttributeError):
            raise ModelProtocolError("an event of the reply has an unknown form") from None

    def _take(self, event: Mapping[str, Any]) -> None:
        match event["type"]:
            case "content_block_delta":
                self._take_delta(event["index"], event["delta"])
            case "content_block_start":
                self._begin_block(event["index"], event["content_block"])
            case "message_start":
                self._prompt_tokens = _prompt_tokens(event["message"].get("usage") or {})
                self.reply.model = model_of(event["message"].get("model"))
            case "message_delta":
                self._take_end(event)
            case "message_stop":
                blocks = [block for _, block in sorted(self._thoughts.items())]
                self.reply.state = {"kind": KIND, "blocks": blocks} if blocks else None
                self.reply.finish()
            case "error":
                raise self.failure(event["error"])

    def _begin_block(self, index: int, block: Mapping[str, Any]) -> None:
        match block["type"]:
            case "tool_use":
                self.reply.take_call(index, block["id"], {"name": block["name"]})
            case "thinking":
                self._thoughts[index] = {"type": "thinking", "thinking": "", "signature": ""}
                self._think(index, block.get("thinking", ""))
            case "redacted_thinking":
                self._thoughts[index] = {"type": "redacted_thinking", "data": block["data"]}
            case "text":
                self.reply.take_text(block.get("text", ""))

    def _take_delta(self, index: int, delta: Mapping[str, Any]) -> None:
        match delta["type"]:
            case "text_delta":
                self.reply.take_text(delta["text"])
            case "input_json_delta":
                self.reply.take_call(index, None, {"arguments": delta["partial_json"]})
            case "thinking_delta":
                self._think(index, delta["thinking"])
            case "signature_delta":
                self._thoughts[index]["signature"] += delta["signature"]

    def _think(self, index: int, thought: str) -> None:
        self._thoughts[index]["thinking"] += thought
        self.reply.take_thought(thought)

    def _take_end(self, event: Mapping[str, Any]) -> None:
        reason = event["delta"].get("stop_reason")
        if reason:
            self.reply.finish_reason = FINISH_REASONS.get(reason, str(reason)[:64])
        usage = event.get("usage") or {}
        self.reply.usage = Usage(
            prompt_tokens=_prompt_tokens(usage) or self._prompt_tokens,
            completion_tokens=token_count(usage.get("output_tokens")),
        )


def _prompt_tokens(usage: Mapping[str, Any]) -> int:
    """Those that were read from the cache or written to it are counted apart."""
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return sum(token_count(usage.get(name)) for name in names)
