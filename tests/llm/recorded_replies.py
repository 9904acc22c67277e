"""Streams as the providers' documentation shows them, with values of our own.

Each reply thinks, says something and asks for two calls.
"""

from __future__ import annotations

import json
from typing import Any


def events(*documents: dict[str, Any], named: bool = False) -> bytes:
    """As a stream; `named` events have their type on a line of its own, too."""
    lines = []
    for document in documents:
        if named:
            lines.append(f"event: {document['type']}\n")
        lines.append(f"data: {json.dumps(document, ensure_ascii=False)}\n\n")
    return "".join(lines).encode()


def _block(index: int, block: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def _json(text: str) -> dict[str, Any]:
    return {"type": "input_json_delta", "partial_json": text}


ANTHROPIC = events(
    {
        "type": "message_start",
        "message": {
            "id": "msg_01",
            "type": "message",
            "role": "assistant",
            "model": "claude-x",
            "content": [],
            "stop_reason": None,
            "usage": {"input_tokens": 20, "cache_read_input_tokens": 5, "output_tokens": 1},
        },
    },
    *_block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Two cities: "},
        {"type": "thinking_delta", "thinking": "Köln, Paris."},
        {"type": "signature_delta", "signature": "sig-"},
        {"type": "signature_delta", "signature": "1"},
    ),
    {"type": "ping"},
    *_block(1, {"type": "redacted_thinking", "data": "c2VjcmV0"}),
    *_block(2, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Let me look 👀."}),
    *_block(
        3,
        {"type": "tool_use", "id": "toolu_1", "name": "weather-today", "input": {}},
        _json(""),
        _json('{"city": "K'),
        _json('öln"}'),
    ),
    *_block(
        4, {"type": "tool_use", "id": "toolu_2", "name": "weather-today", "input": {}}, _json("")
    ),
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 31},
    },
    {"type": "message_stop"},
    named=True,
)


def _candidate(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "candidates": [{"content": {"role": "model", "parts": list(parts)}, "index": 0, **more}],
        "usageMetadata": {
            "promptTokenCount": 25,
            "candidatesTokenCount": 11,
            "thoughtsTokenCount": 20,
            "totalTokenCount": 56,
        },
        "modelVersion": "gemini-x",
    }


GEMINI = events(
    _candidate({"text": "Two cities: ", "thought": True}),
    _candidate({"text": "Köln, Paris.", "thought": True}),
    _candidate({"text": "Let me look "}),
    _candidate({"text": "👀."}),
    _candidate(
        {
            "functionCall": {"name": "weather-today", "args": {"city": "Köln"}},
            "thoughtSignature": "sig-1",
        },
        {"functionCall": {"name": "weather-today", "args": {}}},
    ),
    _candidate({"text": ""}, finishReason="STOP"),
)


def _item(index: int, item: dict[str, Any], done: bool = False) -> dict[str, Any]:
    kind = "response.output_item.done" if done else "response.output_item.added"
    return {"type": kind, "output_index": index, "item": item}


def _reasoning(**more: Any) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs_1", "summary": [], **more}


def _call(number: int, arguments: str = "") -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "name": "weather-today",
        "arguments": arguments,
        "status": "in_progress",
    }


SUMMARY = [{"type": "summary_text", "text": "Two cities: Köln, Paris."}]
RESPONSES = events(
    {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}},
    _item(0, _reasoning()),
    {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 0},
    {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "Two cities: "},
    {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "Köln, Paris."},
    _item(0, _reasoning(summary=SUMMARY, encrypted_content="gAAA", status=None), done=True),
    _item(1, {"type": "message", "id": "msg_1", "role": "assistant", "content": []}),
    {"type": "response.output_text.delta", "output_index": 1, "delta": "Let me look "},
    {"type": "response.output_text.delta", "output_index": 1, "delta": "👀."},
    _item(2, _call(1)),
    {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '{"city": "K'},
    {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": 'öln"}'},
    _item(2, _call(1, '{"city": "Köln"}'), done=True),
    _item(3, _call(2)),
    _item(3, _call(2, ""), done=True),
    {
        "type": "response.completed",
        "response": {
            "id": "resp_1",
            "status": "completed",
            "usage": {"input_tokens": 25, "output_tokens": 31, "total_tokens": 56},
        },
    },
    named=True,
)
