"""Google's Gemini API: tools, images, thoughts and their signatures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import orjson

from sk_agents.engine.models import Message, Part, Usage
from sk_agents.engine.turns import ModelPiece, Prompt, ToolSpec
from sk_agents.exceptions import ModelProtocolError
from sk_agents.llm.failures import Timing
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.openai_wire import Dialect, encoded, image_data
from sk_agents.llm.replies import StreamedReply, model_of, token_count
from sk_agents.llm.streamed_chat import Endpoint, EventReading, StreamedChat, parsed

KIND = "gemini"
# Older models take a number of tokens, newer ones a level.
BUDGETS = {"none": 0, "minimal": 512, "low": 2048, "medium": 8192, "high": 24576}
MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
LEVELS = {"none": "minimal", "minimal": "minimal", "low": "low", "medium": "medium", "high": "high"}
FINISH_REASONS = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
}
# Google lets calls without a signature pass that carry this instead, such as another model's.
NO_SIGNATURE = "skip_thought_signature_validator"


@dataclass(frozen=True, slots=True)
class _Style:
    """What the model takes: newer ones want signatures, and pictures within results."""

    is_newer: bool
    dialect: Dialect


class GeminiChat(StreamedChat):
    def __init__(
        self, clients: ModelClients, endpoint: Endpoint, timing: Timing | None = None
    ) -> None:
        headers = {"x-goog-api-key": endpoint.key} if endpoint.key else {}
        # An address without a version gets the one that knows all of this.
        version = "" if urlsplit(endpoint.base_url).path.strip("/") else "/v1beta"
        path = f"{version}/models/{quote(endpoint.model, safe='')}:streamGenerateContent?alt=sse"
        super().__init__(clients, endpoint, timing, path, headers)

    def encode(self, prompt: Prompt) -> bytes:
        return encoded(request_body(self.endpoint, prompt))

    def reading(self, reply: StreamedReply) -> GeminiReading:
        return GeminiReading(reply, self.endpoint)


def request_body(endpoint: Endpoint, prompt: Prompt) -> dict[str, Any]:
    style = _Style(_is_newer(endpoint), endpoint.dialect)
    body: dict[str, Any] = {"contents": _contents(prompt.messages, style)}
    system = [message.content for message in prompt.messages if message.role == "system"]
    if system:
        body["systemInstruction"] = {"parts": [{"text": "\n\n".join(system)}]}
    if prompt.tools:
        body["tools"] = [{"functionDeclarations": [_tool(spec) for spec in prompt.tools]}]
        if (choice := prompt.tool_choice) is not None:
            calling: dict[str, Any] = {"mode": MODES.get(choice, "ANY")}
            if choice not in MODES:
                calling["allowedFunctionNames"] = [choice]
            body["toolConfig"] = {"functionCallingConfig": calling}
    body["generationConfig"] = _generation_config(endpoint, prompt)
    return {**body, **endpoint.options.extra_body}


def _generation_config(endpoint: Endpoint, prompt: Prompt) -> dict[str, Any]:
    options = endpoint.options
    given: dict[str, Any] = {
        "temperature": prompt.temperature,
        "topP": options.top_p,
        "seed": options.seed,
        "stopSequences": list(options.stop) or None,
        "maxOutputTokens": prompt.max_tokens,
    }
    config = {name: value for name, value in given.items() if value is not None}
    effort = prompt.reasoning_effort
    if effort is not None:
        thinking: dict[str, Any] = {"includeThoughts": effort != "none"}
        if _is_newer(endpoint):
            thinking["thinkingLevel"] = LEVELS.get(effort, "high")
        else:
            thinking["thinkingBudget"] = BUDGETS.get(effort, BUDGETS["medium"])
        config["thinkingConfig"] = thinking
    if prompt.response_schema is not None:
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = dict(prompt.response_schema)
    return config


def _is_newer(endpoint: Endpoint) -> bool:
    """From Gemini 3 on: thinking has levels, and calls must carry their signatures."""
    return not endpoint.model.removeprefix("models/").startswith(("gemini-1", "gemini-2"))


def _contents(messages: Sequence[Message], style: _Style) -> list[dict[str, Any]]:
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    contents: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "model" if message.role == "assistant" else "user"
        parts = list(_parts(message, names, style))
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"] += parts
        elif parts:
            contents.append({"role": role, "parts": parts})
    return contents


def _parts(message: Message, names: Mapping[str, str], style: _Style) -> Iterator[dict[str, Any]]:
    if message.role == "tool":
        identity = message.tool_call_id or ""
        response: dict[str, Any] = {
            "name": names.get(identity, ""),
            "response": {"result": message.content},
        }
        seen = message.parts if style.dialect.sees_images else ()
        pictures = [_part(part, style) for part in seen]
        if pictures and style.is_newer:
            # From Gemini 3 on a result holds its own pictures.
            response["parts"], pictures = pictures, []
        yield {"functionResponse": response}
        yield from pictures
        return
    if message.parts:
        yield from (_part(part, style) for part in message.parts)
    elif message.content.strip():
        yield {"text": message.content}
    state = message.reasoning_state or {}
    signatures = state["signatures"] if state.get("kind") == KIND else []
    for number, call in enumerate(message.tool_calls):
        part: dict[str, Any] = {"functionCall": {"name": call.name, "args": dict(call.arguments)}}
        if number < len(signatures) and signatures[number]:
            part["thoughtSignature"] = signatures[number]
        elif style.is_newer and number == 0:
            part["thoughtSignature"] = NO_SIGNATURE
        yield part


def _part(part: Part, style: _Style) -> dict[str, Any]:
    if (document := style.dialect.document(part)) and (found := image_data(document.uri)):
        return {"inlineData": {"mimeType": found[0], "data": found[1]}}
    if part.kind != "image":
        return {"text": part.text}
    found = image_data(part.content)
    if found is None:
        return {"fileData": {"fileUri": part.content}}
    media_type, data = found
    return {"inlineData": {"mimeType": media_type, "data": data}}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    declared: dict[str, Any] = {"name": spec.name, "description": spec.description}
    if spec.parameters.get("properties"):
        # One without properties is refused.
        declared["parametersJsonSchema"] = dict(spec.parameters)
    return declared


class GeminiReading(EventReading):
    """Calls come whole; the first of a reply carries the signature of the thoughts before it."""

    def __init__(self, reply: StreamedReply, endpoint: Endpoint) -> None:
        super().__init__(reply, endpoint)
        self._signatures: list[str | None] = []
        self._usage: Mapping[str, Any] = {}

    def end(self) -> list[ModelPiece]:
        usage = self._usage
        thought = token_count(usage.get("thoughtsTokenCount"))
        self.reply.usage = Usage(
            prompt_tokens=token_count(usage.get("promptTokenCount")),
            completion_tokens=token_count(usage.get("candidatesTokenCount")) + thought,
        )
        return super().end()

    def take(self, data: bytes) -> None:
        event = parsed(data)
        try:
            self._take(event)
        except (TypeError, KeyError, AttributeError):
            raise ModelProtocolError("an event of the reply has an unknown form") from None

    def _take(self, event: Mapping[str, Any]) -> None:
        if event.get("error"):
            raise self.failure(event["error"])
        usage = event.get("usageMetadata")
        if isinstance(usage, Mapping):
            # Every event counts; the last one counts all.
            self._usage = usage
        self.reply.model = self.reply.model or model_of(event.get("modelVersion"))
        for candidate in (event.get("candidates") or ())[:1]:
            for part in (candidate.get("content") or {}).get("parts") or ():
                self._take_part(part)
            self._take_reason(candidate.get("finishReason"))
        if (event.get("promptFeedback") or {}).get("blockReason"):
            self._take_reason("SAFETY")

    def _take_part(self, part: Mapping[str, Any]) -> None:
        call = part.get("functionCall")
        if call is not None:
            index = len(self._signatures)
            self._signatures.append(part.get("thoughtSignature"))
            if any(self._signatures):
                self.reply.state = {"kind": KIND, "signatures": self._signatures}
            arguments = orjson.dumps(call.get("args") or {}).decode()
            function = {"name": call["name"], "arguments": arguments}
            self.reply.take_call(index, call.get("id") or f"call_{index}", function)
        elif part.get("text"):
            take = self.reply.take_thought if part.get("thought") else self.reply.take_text
            take(part["text"])

    def _take_reason(self, reason: Any) -> None:
        if not reason:
            return
        known = FINISH_REASONS.get(reason, str(reason).lower()[:64])
        self.reply.finish_reason = "tool_calls" if self._signatures and known == "stop" else known
