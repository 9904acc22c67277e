"""The client for every endpoint that speaks OpenAI's chat completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sk_agents.engine.turns import ModelPiece, Prompt
from sk_agents.exceptions import ModelProtocolError
from sk_agents.llm.failures import Timing
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.openai_wire import RequestEncoder
from sk_agents.llm.replies import PlainChunks, StreamedReply, model_of, plain_text, usage_of
from sk_agents.llm.streamed_chat import Endpoint, EventReading, StreamedChat, parsed

PATH = "/chat/completions"
DONE = b"[DONE]"


class OpenAIChat(StreamedChat):
    """A `Model` behind one endpoint.

    Raises:
        ConfigurationError: the key cannot be sent as a header.
    """

    def __init__(
        self,
        clients: ModelClients,
        endpoint: Endpoint,
        timing: Timing | None = None,
        *,
        path: str = PATH,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`headers` prove who asks; without them the key does, as a bearer."""
        if headers is None:
            headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
        super().__init__(clients, endpoint, timing, path, headers)
        self._encoder = RequestEncoder(endpoint.model, endpoint.dialect, _options(endpoint))

    def encode(self, prompt: Prompt) -> bytes:
        return self._encoder.encode(prompt)

    def reading(self, reply: StreamedReply) -> ChatReading:
        return ChatReading(reply, self.endpoint)

    def leave_out(self, parameter: str) -> bool:
        return self._encoder.leave_out(parameter)

    def take_whole(self, reply: StreamedReply, document: Any) -> None:
        try:
            (choice, *_) = document["choices"]
            reply.take({"choices": [{**choice, "delta": choice["message"]}]})
        except (TypeError, KeyError, ValueError):
            raise ModelProtocolError("the reply is a JSON document without a choice") from None
        reply.finish_reason = reply.finish_reason or "stop"
        reply.usage = usage_of(document.get("usage"))
        reply.model = model_of(document.get("model"))


def _options(endpoint: Endpoint) -> dict[str, Any]:
    options = endpoint.options
    given = {"top_p": options.top_p, "stop": list(options.stop) or None, "seed": options.seed}
    kept = {name: value for name, value in given.items() if value is not None}
    return {**kept, **options.extra_body}


class ChatReading(EventReading):
    """Most chunks are a piece of text and nothing else; those are not parsed one by one."""

    def __init__(self, reply: StreamedReply, endpoint: Endpoint) -> None:
        super().__init__(reply, endpoint)
        self._plain = PlainChunks()

    def feed(self, read: bytes) -> list[ModelPiece]:
        self._count(read)
        reply, plain, at = self.reply, self._plain, 0
        events = self._events.feed(read)
        while at < len(events):
            text, count = plain.text(events, at)
            if count:
                reply.take_text(text)
                at += count
                continue
            self.take(events[at])
            at += 1
            if reply.finished:
                break
        return reply.drain()

    def take(self, data: bytes) -> None:
        if data == DONE:
            self.reply.finish()
            return
        chunk = parsed(data)
        text = plain_text(chunk)
        if text is not None:
            self.reply.take_text(text)
            self._plain.learn(data, text)
            return
        if isinstance(chunk, dict) and chunk.get("error"):
            raise self.failure(chunk["error"])
        self.reply.take(chunk)
