"""How often a user may call and what a user may spend: the same on every API and process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from sk_agents import wiring
from sk_agents.app import create_app
from sk_agents.authorization.request_authorizer import Principal, RequestAuthorizer
from sk_agents.config.agent_file import load_agent_files
from sk_agents.config.amounts import Amounts
from sk_agents.config.settings import Settings
from sk_agents.engine.models import Usage
from sk_agents.engine.turns import TextDelta, TurnFinished
from sk_agents.exceptions import ConfigurationError
from sk_agents.spending import streams
from sk_agents.testing import ScriptedModelServer, SettableClock
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.chats.proven import ADA, BOB
from tests.chats.serving import listening, write_agent
from tests.patience import seconds
from tests.surfaces.sk_server import CHAT, HELLO, MODEL_URL
from tests.surfaces.test_limits_everywhere import (
    CHATS_HELLO,
    SK,
    TEAL,
    TEAL_HELLO,
    end_of,
    websocket,
)

SAYING = {
    "/chats/c/interactions": CHATS_HELLO,
    "/chat": CHATS_HELLO,
    TEAL: TEAL_HELLO,
    f"{TEAL}/sse": TEAL_HELLO,
    SK: HELLO,
    f"{SK}/sse": HELLO,
}
PRICE = {"prompt": 100_000, "completion": 100_000, "currency": "USD"}
HUNDRED = Usage(prompt_tokens=60, completion_tokens=40)


class KnownAuthorizer(RequestAuthorizer):
    """As if the header were a proof; `root` is an operator."""

    async def authorize_request(self, auth_header: str) -> Principal:
        roles = {"user", "operator"} if auth_header == "root" else {"user"}
        return Principal(auth_header, roles=frozenset(roles))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SettableClock:
    """Of what is counted: no minute ends before a test says so."""
    clock = SettableClock()
    counted = partial(wiring.build_spending, clock=clock)
    monkeypatch.setattr(wiring, "build_spending", counted)
    return clock


@asynccontextmanager
async def serving(
    folder: Path,
    script: Sequence[Turn | Exception] = (),
    *,
    instances: int = 1,
    agent: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[list[httpx.AsyncClient]]:
    """Every API at so many instances on one store, for callers who prove who they are."""
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(ScriptedModelServer(script))
        teal = write_agent(folder / "teal", model.base_url, name="teal", **(agent or {}))
        stateless = folder / "sk.yaml"
        stateless.write_text(CHAT.replace(MODEL_URL, model.base_url))
        clients = []
        for _ in range(instances):
            configured = Settings(store=f"sqlite:///{folder}/c.sqlite", **settings)
            files = load_agent_files([teal, stateless])
            app = create_app(configured, files, authorizer=KnownAuthorizer())
            address = await stack.enter_async_context(listening(app))
            client = httpx.AsyncClient(base_url=address, timeout=seconds(20), headers=ADA)
            clients.append(await stack.enter_async_context(client))
        yield clients


def is_refused(answer: httpx.Response, code: str = "limit_exceeded") -> bool:
    """With a time to come back, in the API's own style."""
    if answer.status_code != 429:
        return False
    assert int(answer.headers["Retry-After"]) > 0
    assert answer.json()["code"] == code
    style = "application/problem+json" if "title" in answer.json() else "application/json"
    assert answer.headers["content-type"] == style
    return True


async def test_requests_of_a_user_are_counted_over_all_apis_and_instances(
    tmp_path: Path, clock: SettableClock
) -> None:
    async with serving(tmp_path, instances=2, requests_per_minute=8) as (one, other):
        seen = [
            (await client.get(path)).status_code
            for client in (one, other)
            for path in ("/chats", "/approvals", f"{TEAL}/tasks/{'0' * 8}", "/agents")
        ]
        assert 429 not in seen
        refused = {path: await one.post(path, json=body) for path, body in SAYING.items()}
        refused["/chats"] = await other.get("/chats")
        assert all(is_refused(answer) for answer in refused.values())
        async with websocket(one) as connection:
            assert await end_of(connection) == 1013
        # What is for everyone is not counted, nor is another user concerned.
        assert (await one.get("/health/live")).status_code == 200
        assert (await other.get("/chats", headers=BOB)).status_code == 200
        clock.advance(int(refused["/chats"].headers["Retry-After"]))
        assert (await one.get("/chats")).status_code == 200


async def test_requests_are_never_more_than_the_limit_and_less_by_a_block_at_most(
    tmp_path: Path, clock: SettableClock
) -> None:
    async with serving(tmp_path, instances=2, requests_per_minute=200) as (one, other):
        assert (await other.get("/agents")).status_code == 200
        async with asyncio.timeout(seconds(60)):
            answers = await asyncio.gather(*(one.get("/agents") for _ in range(220)))
        served = sum(answer.status_code == 200 for answer in answers)
        # The other instance has taken ten and used one.
        assert served == 190
        rest = [(await other.get("/agents")).status_code for _ in range(12)]
        assert rest.count(200) == 9


@pytest.mark.parametrize("path", SAYING)
async def test_used_up_tokens_of_an_hour_refuse_a_turn_on_every_api(
    tmp_path: Path, clock: SettableClock, path: str
) -> None:
    script = [says("x", usage=Usage(prompt_tokens=9_000, completion_tokens=1_000))] * 3
    async with serving(tmp_path, script, instances=2, tokens_per_hour=10_000) as (one, other):
        assert (await one.post("/chat", json=CHATS_HELLO)).status_code == 200
        refused = await other.post(path, json=SAYING[path])
        if path == f"{SK}/sse":
            assert "budget_exceeded" in refused.text
        else:
            assert is_refused(refused, "budget_exceeded"), refused.text
            assert "10000 tokens you have for an hour" in refused.text
        assert (await one.post(SK, json=HELLO, headers=BOB)).status_code == 200
        clock.advance(3600)
        assert (await one.post(SK, json=HELLO)).status_code == 200


async def test_turn_that_cannot_be_paid_is_too_many_on_apis_that_wait(
    tmp_path: Path, clock: SettableClock
) -> None:
    async with serving(tmp_path, [says("never")], budget_run="10 tokens") as (client,):
        for path, body in (("/chat", CHATS_HELLO), (TEAL, TEAL_HELLO), (SK, HELLO)):
            answer = await client.post(path, json=body)
            assert is_refused(answer, "budget_exceeded"), answer.text
            assert int(answer.headers["Retry-After"]) > 1, "not again at once"
        frames = (await client.post("/chats/c/interactions", json=CHATS_HELLO)).text
        assert "budget_exceeded" in frames


async def test_budget_smaller_than_one_call_is_told_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = {"price": PRICE, "max_tokens": 10, "budget": {"user": "0.50 USD", "agent": "9 USD"}}
    async with serving(tmp_path, agent=agent):
        told = [line.getMessage() for line in caplog.records if "every turn" in line.message]
    assert len(told) == 1
    assert "the budget user of 0.5 USD is smaller" in told[0] and "answer, 1 USD" in told[0]


async def test_approval_says_that_the_budget_is_why_it_is_asked(tmp_path: Path) -> None:
    script = [calls(("Mail-look", {"what": "Oslo"}), usage=HUNDRED), says("x")]
    agent = {"price": PRICE, "budget": {"run": "15 USD", "soft": 0.5}, "max_tokens": 10}
    async with serving(tmp_path, script, agent=agent) as (client,):
        await client.post("/chat", json=CHATS_HELLO)
        (asked,) = (await client.get("/approvals")).json()["approvals"]
    assert asked["budget"] == "10 USD of the 15 USD of this turn are spent. May this turn go on?"


async def test_streams_at_another_instance_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "PERIOD_SECONDS", 0.1)
    gate = asyncio.Event()
    script: list[Turn] = [[TextDelta("one "), gate, TurnFinished()]]
    async with serving(tmp_path, script, instances=2, streams_per_user=1) as (one, other):
        async with one.stream("POST", "/chats/c/interactions", json=CHATS_HELLO) as held:
            await anext(held.aiter_lines())
            status = 200
            async with asyncio.timeout(seconds(20)):
                while status != 429:
                    async with other.stream("GET", "/chats/c/events") as refused:
                        status = refused.status_code
            gate.set()


async def test_usage_shows_a_user_their_own_rows_and_an_operator_all(tmp_path: Path) -> None:
    script = [says("x", usage=HUNDRED)] * 4
    root = {"Authorization": "root"}
    async with serving(tmp_path, script, instances=2, agent={"price": PRICE}) as (one, other):
        for path in ("/chat", TEAL, SK):
            assert (await one.post(path, json=SAYING[path])).status_code == 200
        await one.post("/chat", json=CHATS_HELLO, headers=BOB)
        await one.get("/usage")  # writes what this instance has
        mine = (await other.get("/usage")).json()
        forbidden = await other.get("/usage?all=true")
        everything = (await other.get("/usage?all=true", headers=root)).json()
        later = (await other.get("/usage?since=2999-01-01")).json()
        wrong = await other.get("/usage?since=yesterday")
    rows = {row["agent"]: row for row in mine["rows"]}
    assert rows.keys() == {"teal", "Helper"}
    assert (rows["teal"]["calls"], rows["teal"]["prompt_tokens"]) == (2, 120)
    assert rows["teal"]["cost"] == [{"amount": 20.0, "currency": "USD"}]
    assert (rows["Helper"]["model"] != "", rows["Helper"]["cost"]) == (True, [])
    assert forbidden.status_code == 403
    assert {row["user_id"] for row in everything["rows"]} == {"ada_lovelace", "bob"}
    assert later["rows"] == []
    assert wrong.status_code == 422


async def test_budgets_show_a_user_what_is_left_and_an_operator_all(
    tmp_path: Path, clock: SettableClock
) -> None:
    script = [says("x", usage=HUNDRED)] * 2
    root = {"Authorization": "root"}
    agent = {
        "price": PRICE,
        "max_tokens": 50,
        "budget": {"user": "50 USD", "agent": "90 USD", "run": "30 USD"},
    }
    budgets = {
        "budget_user": Amounts(tokens=1_000),
        "budget_day": Amounts(tokens=5_000),
        "tokens_per_hour": 700,
    }
    async with serving(tmp_path, script, instances=2, agent=agent, **budgets) as (one, other):
        for who in (ADA, BOB):
            said = await one.post("/chat", json=CHATS_HELLO, headers=who)
            assert said.status_code == 200, said.text
        mine = (await other.get("/budgets")).json()
        new = (await other.get("/budgets", headers={"Authorization": "eve"})).json()
        forbidden = await other.get("/budgets?all=true")
        everything = (await other.get("/budgets?all=true", headers=root)).json()
    assert forbidden.status_code == 403
    assert mine["run"] == everything["run"] == ["30 USD"]
    left = {(row["scope"], row["unit"], row["agent"]): row["left"] for row in mine["rows"]}
    assert left == {
        ("user", "tokens", None): 900,
        ("user", "USD", "teal"): 40.0,
        ("hour", "tokens", None): 600,
    }
    assert {row["user_id"] for row in mine["rows"]} == {"ada_lovelace"}
    assert {(row["spent"], row["left"] == row["most"]) for row in new["rows"]} == {(0, True)}
    rows = {
        (row["scope"], row["user_id"], row["agent"], row["unit"]): (row["spent"], row["left"])
        for row in everything["rows"]
    }
    both = ("ada_lovelace", "bob")
    expected: dict[tuple[Any, ...], tuple[float, float]] = {
        **{("user", user, None, "tokens"): (100, 900) for user in both},
        **{("user", user, "teal", "USD"): (10.0, 40.0) for user in both},
        **{("hour", user, None, "tokens"): (100, 600) for user in both},
        ("agent", None, "teal", "USD"): (20.0, 70.0),
        ("day", None, None, "tokens"): (200, 4800),
        # Of those who have spent nothing.
        ("user", None, None, "tokens"): (0, 1000),
        ("user", None, "teal", "USD"): (0, 50.0),
        ("hour", None, None, "tokens"): (0, 700),
    }
    assert rows == expected
    ends = {row["scope"]: row["resets_at"] for row in everything["rows"]}
    assert ends["hour"] <= ends["day"] == ends["user"] == ends["agent"]


async def test_usage_that_is_not_to_be_kept_is_not(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("x", usage=HUNDRED)], usage_days=0) as (client,):
        await client.post("/chat", json=CHATS_HELLO)
        assert (await client.get("/usage")).json()["rows"] == []


async def test_usage_of_a_server_that_is_stopped_is_kept(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("x", usage=HUNDRED)]) as (client,):
        await client.post("/chat", json=CHATS_HELLO)
    async with serving(tmp_path) as (client,):
        assert len((await client.get("/usage")).json()["rows"]) == 1


@pytest.mark.parametrize(
    ("agent", "settings", "said"),
    [
        ({"budget": {"run": "1 USD"}}, {}, "budget needs a price to count USD"),
        (
            {"budget": {"run": "1 EUR"}, "price": PRICE},
            {},
            "price is in USD, but a budget is in EUR",
        ),
        ({"price": PRICE}, {"budget_day": "1 EUR"}, "price is in USD, but a budget is in EUR"),
        ({"budget": {"runs": "1 USD"}}, {}, "budget.runs is not known here"),
        ({"budget": {"run": "one dollar"}}, {}, "must be like `0.50 USD`"),
    ],
)
async def test_budget_that_cannot_be_counted_stops_the_start(
    tmp_path: Path, agent: dict[str, Any], settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        async with serving(tmp_path, agent=agent, **settings):
            pass
