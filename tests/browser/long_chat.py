"""A chat of ten thousand events, as a document to be imported, and the way back through it."""

from __future__ import annotations

from typing import Any

from tests.browser.tab import Tab

RUNS = 1_000
AT = "2026-01-01T00:00:00Z"
ANSWER = """answer {number}, with **words** and a list:

- one thing
- `another` thing

```python
def answer(question: str) -> int:
    return {number}
```
"""


def archive(runs: int = RUNS) -> dict[str, Any]:
    """Of `runs` messages, each with a thought, two calls of a tool and an answer: ten events."""
    events = [event for number in range(runs) for event in _events(number)]
    return {"format": "teal-chat", "version": 1, "agent": "tour", "title": "Long", "events": events}


async def scroll_back(tab: Tab, messages: int) -> None:
    """Until so many messages are there."""
    # Neither by roles nor by expectations: of a page this long each look takes them seconds.
    while (shown := await tab.page.locator(".turn").count()) < messages:
        await tab.page.evaluate("document.querySelector('.conversation').scrollTop = 0")
        await tab.page.wait_for_function(
            "shown => document.querySelectorAll('.turn').length > shown", arg=shown
        )


def _events(number: int) -> list[dict[str, Any]]:
    message = {"parts": [{"content": f"question {number}"}]}
    parent = {"parent_run": f"run_{number - 1}"} if number else {}
    told: list[dict[str, Any]] = [
        {"type": "run_started", "message": message, **parent},
        {"type": "thinking", "round": 1, "content": "Let me look twice.", "spoken": True},
        *_call(f"call_{number}_1", number),
        *_call(f"call_{number}_2", number),
        {"type": "answered", "round": 3, "content": ANSWER.replace("{number}", str(number))},
        {"type": "run_ended", "status": "completed"},
    ]
    return [{**event, "at": AT, "run_id": f"run_{number}"} for event in told]


def _call(call_id: str, number: int) -> list[dict[str, Any]]:
    names = {"plugin_name": "Desk", "function_name": "look", "effect": "read_only"}
    arguments = {"what": f"number {number}"}
    return [
        {"type": "tool_proposed", "round": 1, "call_id": call_id, **names, "arguments": arguments},
        {"type": "tool_started", "call_id": call_id},
        {"type": "tool_finished", "call_id": call_id, "result": "x" * 200},
    ]
