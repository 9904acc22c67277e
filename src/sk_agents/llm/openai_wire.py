"""A prompt in the words of OpenAI's chat completions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary

import orjson

from sk_agents.engine.models import Attachment, Message, Part, ToolCall
from sk_agents.engine.run.conversation import Conversation, Past
from sk_agents.engine.turns import Prompt, ToolSpec
from sk_agents.interactions import spelled_part


@dataclass(frozen=True, slots=True)
class Dialect:
    """Where endpoints that call themselves compatible differ, and whether the model is sent the
    pictures that tools return, and PDFs themselves instead of their text."""

    max_tokens_field: str = "max_tokens"
    asks_for_usage: bool = True
    sees_images: bool = False
    reads_pdfs: bool = False
    left_out: frozenset[str] = frozenset()

    def document(self, part: Part) -> Attachment | None:
        """What the model reads itself instead of the part's text."""
        if not self.reads_pdfs or (part.pages or 0) > MAX_PAGES:
            return None
        return part.original


PLAIN = Dialect()
# Of one PDF; providers refuse a request with more, so that longer ones go as text.
MAX_PAGES = 100
# Other words are the name of a tool.
TOOL_CHOICES = ("auto", "none", "required")
# One of them is what a provider knows if it does not know the other.
MAX_TOKENS_FIELDS = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}
# What an answer can do without, if its provider does not know it.
DISPENSABLE = frozenset(
    (
        *("temperature", "top_p", "seed", "stop", "stream_options", "reasoning_effort"),
        # What the model then asks for at once is not run at once.
        "parallel_tool_calls",
        *MAX_TOKENS_FIELDS,
    )
)


def request_body(model: str, prompt: Prompt, dialect: Dialect = PLAIN) -> dict[str, Any]:
    """The body of a streamed request. What the prompt leaves open is not sent."""
    body = request_options(model, prompt, dialect)
    body["messages"] = [
        wire_message(message, dialect) for message in shown(prompt.messages, dialect)
    ]
    return body


def shown(messages: Iterable[Message], dialect: Dialect) -> Iterable[Message]:
    """The messages as chat completions take them: a tool's result is text only, so the pictures of
    a round follow its last result, as if the user had sent them."""
    return _with_pictures(messages) if dialect.sees_images else messages


def _with_pictures(messages: Iterable[Message]) -> Iterator[Message]:
    pictures: list[Part] = []
    for message in messages:
        if pictures and message.role != "tool":
            yield _pictures_message(pictures)
            pictures = []
        yield message
        if message.parts and message.role == "tool":
            pictures.extend(message.parts)
    if pictures:
        yield _pictures_message(pictures)


def _pictures_message(pictures: Sequence[Part]) -> Message:
    number = f"{len(pictures)} pictures" if len(pictures) > 1 else "picture"
    return Message(role="user", parts=(Part(content=f"[The {number} above, in order]"), *pictures))


@dataclass(slots=True)
class _EncodedPast:
    """The first `count` messages of a past, as they are sent."""

    wire: bytearray = field(default_factory=bytearray)
    count: int = 0


class RequestEncoder:
    """`request_body` as bytes, for one model.

    A conversation's past is encoded once, and what stands beside the messages only when it differs
    from the last time: an agent's tools are the same at every turn.
    """

    def __init__(
        self, model: str, dialect: Dialect = PLAIN, more: Mapping[str, Any] | None = None
    ) -> None:
        """`more` is sent beside what the prompt says, and wins over it."""
        self._model = model
        self._dialect = dialect
        self._more = more or {}
        self._last: Prompt | None = None
        self._options = b""
        # An agent's are the same object at every turn.
        self._last_instructions: Sequence[Message] = ()
        self._instructions: list[bytes | bytearray] = []
        self._pasts: WeakKeyDictionary[Past, _EncodedPast] = WeakKeyDictionary()

    def encode(self, prompt: Prompt) -> bytes:
        if self._last is None or not _has_same_options(prompt, self._last):
            options = {**request_options(self._model, prompt, self._dialect), **self._more}
            for name in self._dialect.left_out:
                options.pop(name, None)
            self._options = encoded(options)
            self._last = replace(prompt, messages=())
        messages = b",".join(self._encoded_messages(prompt.messages))
        return b'{"messages":[%b],%b' % (messages, self._options[1:])

    def leave_out(self, parameter: str) -> bool:
        """From now on; True if that changes anything that may be changed."""
        dialect = self._dialect
        if parameter not in DISPENSABLE or parameter in dialect.left_out:
            return False
        if parameter == dialect.max_tokens_field and not (
            dialect.left_out & MAX_TOKENS_FIELDS.keys()
        ):
            dialect = replace(dialect, max_tokens_field=MAX_TOKENS_FIELDS[parameter])
        self._dialect = replace(dialect, left_out=dialect.left_out | {parameter})
        self._last = None
        return True

    def _encoded_messages(self, messages: Sequence[Message]) -> list[bytes | bytearray]:
        if not isinstance(messages, Conversation):
            return self._each_encoded(messages)
        past = [self._encoded_past(messages)] if messages.past_length else []
        now = self._each_encoded(messages.now)
        if messages.instructions is not self._last_instructions:
            self._instructions = self._each_encoded(messages.instructions)
            self._last_instructions = messages.instructions
        return [*self._instructions, *past, *now]

    def _encoded_past(self, messages: Conversation) -> bytes | bytearray:
        """Only what has been added to the past is looked at."""
        past = self._pasts.get(messages.past)
        if past is None:
            past = self._pasts[messages.past] = _EncodedPast()
        if past.count > messages.past_length:
            # An older prompt than the last one of its conversation.
            return b",".join(self._each_encoded(messages.past.messages[: messages.past_length]))
        # It grows by whole runs: no round is cut in two.
        added = islice(messages.past.messages, past.count, messages.past_length)
        for message in shown(added, self._dialect):
            if past.wire:
                past.wire += b","
            past.wire += encoded(wire_message(message, self._dialect))
        past.count = messages.past_length
        return past.wire

    def _each_encoded(self, messages: Iterable[Message]) -> list[bytes | bytearray]:
        dialect = self._dialect
        return [encoded(wire_message(message, dialect)) for message in shown(messages, dialect)]


def _has_same_options(one: Prompt, other: Prompt) -> bool:
    return (
        one.tools == other.tools
        and one.temperature == other.temperature
        and one.max_tokens == other.max_tokens
        and one.reasoning_effort == other.reasoning_effort
        and one.response_schema == other.response_schema
        and one.tool_choice == other.tool_choice
        and one.parallel_tool_calls == other.parallel_tool_calls
    )


def request_options(model: str, prompt: Prompt, dialect: Dialect) -> dict[str, Any]:
    """Everything but the messages."""
    body: dict[str, Any] = {"model": model, "stream": True}
    if dialect.asks_for_usage:
        body["stream_options"] = {"include_usage": True}
    if prompt.tools:
        body["tools"] = [wire_tool(spec) for spec in prompt.tools]
        if prompt.tool_choice is not None:
            body["tool_choice"] = _tool_choice(prompt.tool_choice)
        if prompt.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = prompt.parallel_tool_calls
    if prompt.temperature is not None:
        body["temperature"] = prompt.temperature
    if prompt.max_tokens is not None:
        body[dialect.max_tokens_field] = prompt.max_tokens
    if prompt.reasoning_effort is not None:
        body["reasoning_effort"] = prompt.reasoning_effort
    if prompt.response_schema is not None:
        body["response_format"] = response_format(prompt.response_schema)
    return body


def encoded(document: Any) -> bytes:
    """As JSON, also where it holds numbers or halves of characters that orjson refuses."""
    try:
        return orjson.dumps(document, default=dict)
    except TypeError:
        return json.dumps(document, default=dict, separators=(",", ":")).encode()


def wire_message(message: Message, dialect: Dialect = PLAIN) -> dict[str, Any]:
    role = message.role
    if role == "tool":
        return {"role": role, "tool_call_id": message.tool_call_id, "content": message.content}
    if message.tool_calls:
        calls = [wire_call(call) for call in message.tool_calls]
        return {"role": role, "content": _content(message, dialect) or None, "tool_calls": calls}
    content = _content(message, dialect) if message.parts else message.content
    return {"role": role, "content": content}


def _content(message: Message, dialect: Dialect) -> str | list[dict[str, Any]]:
    if not message.parts:
        return message.content
    if any(part.kind == "image" or dialect.document(part) for part in message.parts):
        return [_wire_part(part, dialect) for part in message.parts]
    # Small servers know text only as a string, not as a list of parts.
    return "\n".join(part.text for part in message.parts)


def _wire_part(part: Part, dialect: Dialect) -> dict[str, Any]:
    document = dialect.document(part)
    if document is None:
        return spelled_part(part)
    return {
        "type": "file",
        "file": {"filename": part.name or "file.pdf", "file_data": document.uri},
    }


def image_data(uri: str) -> tuple[str, str] | None:
    """Media type and base64 of a data URI; `None` if it is another address."""
    kind, comma, data = uri.partition(";base64,")
    if not (comma and kind.startswith("data:")):
        return None
    return kind.removeprefix("data:"), data


def wire_call(call: ToolCall) -> dict[str, Any]:
    arguments = encoded(call.arguments).decode()
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def wire_tool(spec: ToolSpec) -> dict[str, Any]:
    function = {
        "name": spec.name,
        "description": spec.description,
        "parameters": dict(spec.parameters),
    }
    return {"type": "function", "function": function}


def _tool_choice(choice: str) -> str | dict[str, Any]:
    return choice if choice in TOOL_CHOICES else {"type": "function", "function": {"name": choice}}


def response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Strict mode is asked for only where the schema is as closed as that mode demands."""
    named = {"name": _schema_name(schema), "schema": dict(schema), "strict": is_closed(schema)}
    return {"type": "json_schema", "json_schema": named}


def _schema_name(schema: Mapping[str, Any]) -> str:
    title = str(schema.get("title", "response"))
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in title)[:64]


def is_closed(schema: Any) -> bool:
    """Every object in it forbids further properties and requires all it names."""
    if isinstance(schema, list):
        return all(map(is_closed, schema))
    if not isinstance(schema, Mapping):
        return True
    properties = schema.get("properties")
    if schema.get("type") == "object" or isinstance(properties, Mapping):
        named = set(properties or ())
        if schema.get("additionalProperties") is not False:
            return False
        if named != set(schema.get("required", ())):
            return False
    return all(map(is_closed, schema.values()))
