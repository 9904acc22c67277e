from __future__ import annotations

from typing import Any

import pytest

from sk_agents.engine.events import ThreadChanged
from sk_agents.engine.ports import Store
from sk_agents.exceptions import InvalidInput
from sk_agents.testing.commits import (
    USER,
    answered,
    append,
    call_proposed,
    create,
    start_run,
    thought,
)
from sk_agents.testing.store_contract.case import StoreCases, every_event, refused

TEXTS = {
    "emoji": "👩‍👩‍👧‍👦 🇫🇮 👍🏽",
    "combining": "e\u0301 and é are not the same",
    "right-to-left": "\u202bשלום עולם\u202c العربية",
    "separators": "a\u2028b\u2029c\x85d\r\ne\rf\tg\x0bh\x1ci",
    "nul": "before\x00after\x00",
    "controls": "\x01\x1b[31m\x7f\ufeff\ufffe\uffff",
    "json": '{"v": 1}\n\\u0000 "quotes" \\',
    "astral": "\U0001f600\U0010ffff",
    "replacement": "\ufffd",
    "empty": "",
    "spaces": "  two  ",
}

TOO_DEEP: dict[str, Any] = {}
_level = TOO_DEEP
for _ in range(220):
    _level["in"] = {}
    _level = _level["in"]


def shallow(depth: int) -> dict[str, Any]:
    return {} if depth == 0 else {"in": shallow(depth - 1)}


class TextCases(StoreCases):
    """Every text comes back as it was given, or is refused as a whole."""

    @pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
    async def test_text_reads_back_unchanged(self, store: Store, text: str) -> None:
        call = call_proposed("c", arguments={"text": text, f"key {text}": [text]})
        committed = await store.commit(create("t", thought(text), answered(text), call))
        assert await every_event(store, "t") == list(committed.events)
        assert committed.events[1].model_dump()["content"] == text

    @pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
    async def test_metadata_reads_back_unchanged(self, store: Store, text: str) -> None:
        head = (await store.commit(create("t", metadata={"title": text}))).thread
        assert (await store.thread("t")).metadata == {"title": text}
        await store.commit(append(head, ThreadChanged(metadata={f"k{text}": text})))
        assert (await store.thread("t")).metadata == {"title": text, f"k{text}": text}

    @pytest.mark.parametrize("half", ["\ud800", "a\udfffb"])
    async def test_half_of_a_surrogate_pair_is_refused(self, store: Store, half: str) -> None:
        head = (await store.commit(start_run("t"))).thread
        await refused(store, append(head, thought(half)), InvalidInput)
        await refused(store, append(head, thought("good"), answered(half)), InvalidInput)
        in_value = call_proposed("c", arguments={"x": [half]})
        await refused(store, append(head, in_value), InvalidInput)
        in_key = call_proposed("c", arguments={half: 1})
        await refused(store, append(head, in_key), InvalidInput)

    async def test_new_thread_with_half_of_a_surrogate_pair_is_refused(self, store: Store) -> None:
        await refused(store, create("t", thought("\ud800")), InvalidInput)
        await refused(store, create("t", metadata={"title": "\ud800"}), InvalidInput)

    @pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
    async def test_number_that_json_does_not_know_is_refused(
        self, store: Store, number: float
    ) -> None:
        head = (await store.commit(start_run("t"))).thread
        call = call_proposed("c", arguments={"x": [number]})
        await refused(store, append(head, call), InvalidInput)

    async def test_value_nested_too_deep_is_refused_or_kept_but_never_unreadable(
        self, store: Store
    ) -> None:
        head = (await store.commit(start_run("t"))).thread
        try:
            await store.commit(append(head, call_proposed("c", arguments=TOO_DEEP)))
        except InvalidInput:
            assert await store.thread("t") == head
        await every_event(store, "t")
        await store.events_after("t", 0)

    async def test_value_nested_a_hundred_deep_is_kept(self, store: Store) -> None:
        committed = await store.commit(create("t", call_proposed("c", arguments=shallow(100))))
        assert await every_event(store, "t") == list(committed.events)

    async def test_numbers_keep_their_value(self, store: Store) -> None:
        numbers = [0.1, 1e-300, 1.7976931348623157e308, -0.0, 2**53 + 1, 2**64, -(2**70)]
        await store.commit(create("t", call_proposed("c", arguments={"x": numbers})))
        (event,) = await every_event(store, "t")
        assert event.model_dump()["arguments"] == {"x": numbers}

    async def test_ids_may_hold_any_text(self, store: Store) -> None:
        for name in ("a/b", "../up", "..", "a b", "Ä", "a:b", "con", "x" * 200, "A", "a", "%41"):
            await store.commit(start_run(name, f"run-{name}"))
        for name in ("a/b", "../up", "..", "a b", "Ä", "a:b", "con", "x" * 200, "A", "a", "%41"):
            assert (await store.thread(name)).thread_id == name
            assert [event.run_id for event in await every_event(store, name)] == [f"run-{name}"]
            found = await store.find("run", f"run-{name}")
            assert found is not None
            assert (found.thread_id, found.user_id) == (name, USER)
