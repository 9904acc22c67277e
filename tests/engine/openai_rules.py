"""OpenAI's rules for the messages of a chat, as strict as its server checks them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ROLES = {"system", "user", "assistant", "tool"}


def problems(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a provider would refuse in this history; empty if nothing."""
    found: list[str] = []
    open_calls: list[str] = []
    seen: set[str] = set()
    for position, message in enumerate(messages):
        role = message.get("role")
        where = f"message {position} ({role})"
        if role not in ROLES:
            found.append(f"{where}: unknown role")
        if role == "tool":
            call_id = message.get("tool_call_id")
            if call_id in open_calls:
                open_calls.remove(str(call_id))
            else:
                found.append(f"{where}: answers no call of the message before")
            if not isinstance(message.get("content"), str):
                found.append(f"{where}: content is not text")
            continue
        if open_calls:
            found.append(f"{where}: comes before the results of {', '.join(open_calls)}")
            open_calls = []
        if role == "assistant":
            found.extend(f"{where}: {problem}" for problem in _assistant(message, seen))
            open_calls = [str(call.get("id")) for call in message.get("tool_calls") or ()]
        elif not _has_content(message):
            found.append(f"{where}: is empty")
    if open_calls:
        found.append(f"the history ends before the results of {', '.join(open_calls)}")
    if not messages or messages[-1].get("role") not in {"user", "tool"}:
        found.append("the history does not end with something to answer")
    return found


def _assistant(message: Mapping[str, Any], seen: set[str]) -> list[str]:
    found = []
    calls = message.get("tool_calls")
    if not _has_content(message) and not calls:
        found.append("is empty")
    if calls is not None and not calls:
        found.append("has an empty list of calls")
    for call in calls or ():
        if not call.get("id") or call["id"] in seen:
            found.append(f"call id {call.get('id')!r} is missing or used before")
        seen.add(str(call.get("id")))
        if call.get("type") != "function" or not NAME.fullmatch(call["function"]["name"]):
            found.append(f"{call['function']['name']!r} cannot be a function's name")
        if not isinstance(_parsed(call["function"]["arguments"]), dict):
            found.append("arguments are no JSON object")
    return found


def _has_content(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    return bool(content.strip()) if isinstance(content, str) else bool(content)


def _parsed(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return None
