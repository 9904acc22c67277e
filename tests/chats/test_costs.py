"""What an interaction cost: said where the model has a price, and never otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.models import Cost, Price, Usage
from sk_agents.testing.scripted_model import calls, says
from sk_agents.wire.frames import CHAT_FRAMES, INTERACTION_FRAMES
from tests.chats.serving import first, id_of, serving
from tests.chats.test_openapi import check

PRICE = {"prompt": 2.5, "completion": 10, "currency": "EUR"}
ASKED = Usage(prompt_tokens=1_000, completion_tokens=100)
ANSWERED = Usage(prompt_tokens=2_000, completion_tokens=200)
SCRIPT = [
    calls(("Mail-look", {"what": "Oslo"}), usage=ASKED),
    says("It is cold.", usage=ANSWERED),
]
# 3,000 tokens read at 2.5 and 300 written at 10 for a million.
COST = {"amount": 0.0105, "currency": "EUR"}


async def test_every_round_of_an_interaction_counts_for_its_cost(tmp_path: Path) -> None:
    async with serving(tmp_path, SCRIPT, agent={"price": PRICE}) as served:
        frames = await served.say("How is Oslo?")
        chat = await served.get("/chats/c")
        alone = await served.get(f"/chats/c/interactions/{id_of(frames)}")
    ended = first(frames, "interaction_complete")
    assert ended["usage"]["total_tokens"] == 3_300
    assert ended["cost"] == COST
    assert chat["interactions"][0]["cost"] == COST
    assert alone["cost"] == COST
    INTERACTION_FRAMES["interaction_complete"][0].model_validate(ended)


async def test_each_step_says_what_it_cost_where_details_are_wanted(tmp_path: Path) -> None:
    script = [
        calls(("Mail-send", {"to": "ada"}), ("Mail-look", {"what": "Oslo"}), usage=ASKED),
        says("It is cold.", usage=ANSWERED),
    ]
    async with serving(tmp_path, script, agent={"price": PRICE}) as served:
        frames = await served.say_until("approval_required")
        await served.decide(first(frames, "approval_required"))
        plain = await served.follow(id_of(frames))
        detailed = await served.follow(id_of(frames), params={"details": "true"})
    stored = [(frame.name, frame.id) for frame in plain if frame.is_durable]
    assert stored == [(frame.name, frame.id) for frame in detailed]
    assert [frame.name for frame in plain if "usage" in frame.data] == ["interaction_complete"]
    spent = [(frame.name, frame.data["cost"]) for frame in detailed if "usage" in frame.data]
    assert spent == [
        ("approval_required", {"amount": 0.0035, "currency": "EUR"}),
        ("answer", {"amount": 0.007, "currency": "EUR"}),
        ("interaction_complete", COST),
    ]
    for frame in detailed:
        check(frame, CHAT_FRAMES)


async def test_cost_stays_what_it_was_when_prices_change(tmp_path: Path) -> None:
    async with serving(tmp_path, SCRIPT, agent={"price": PRICE}) as served:
        await served.say("How is Oslo?")
    for price in ({**PRICE, "prompt": 100}, None):
        async with serving(tmp_path, agent={"price": price}) as served:
            assert (await served.get("/chats/c"))["interactions"][0]["cost"] == COST


@pytest.mark.parametrize(
    ("price", "usage"), [(None, ANSWERED), (PRICE, Usage())], ids=["no price", "no count"]
)
async def test_cost_that_is_not_known_is_not_said(tmp_path: Path, price: Any, usage: Usage) -> None:
    async with serving(tmp_path, [says("Hi.", usage=usage)], agent={"price": price}) as served:
        frames = await served.say()
        chat = await served.get("/chats/c")
    assert "cost" not in first(frames, "interaction_complete")
    assert chat["interactions"][0]["cost"] is None


async def test_stopped_interaction_says_what_it_cost_until_then(tmp_path: Path) -> None:
    script = [calls(("Mail-send", {"to": "ada"}), usage=ASKED)]
    async with serving(tmp_path, script, agent={"price": PRICE}) as served:
        frames = await served.say_until("approval_required")
        await served.client.post(f"/chats/c/interactions/{id_of(frames)}/cancel")
        ended = first(await served.follow(id_of(frames)), "interaction_complete")
    assert ended["status"] == "CANCELLED"
    assert ended["cost"] == {"amount": 0.0035, "currency": "EUR"}
    chats_own = {**ended, "at": "2026-01-01T00:00:00Z"}
    CHAT_FRAMES["interaction_complete"][0].model_validate(chats_own)


def test_sum_of_costs_is_known_only_if_all_of_it_is() -> None:
    euros = Price(prompt=1, completion=0, currency="EUR").applied(ASKED)
    dollars = Price(prompt=1, completion=0, currency="USD").applied(ASKED)
    assert (euros + euros).cost == Cost(amount=0.002, currency="EUR")
    assert (Usage() + euros).cost == euros.cost == Cost(amount=0.001, currency="EUR")
    assert (euros + ASKED).cost is None
    assert (euros + dollars).cost is None


def test_amounts_have_no_digits_of_the_processors_own() -> None:
    total = Usage()
    for _ in range(3):
        total += Price(prompt=0.1, completion=0.2, currency="USD").applied(
            Usage(prompt_tokens=1, completion_tokens=1)
        )
    assert total.cost == Cost(amount=0.0000009, currency="USD")
