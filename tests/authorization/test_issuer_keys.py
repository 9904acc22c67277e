"""An issuer's keys: rotated under load, asked for by strangers, and away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from sk_agents.authorization.issuer import Issuer
from sk_agents.exceptions import AuthorizerUnavailable, Unauthenticated
from tests.authorization.issuer import TENANT, TestIssuer, jwk, running_issuer
from tests.patience import seconds

LOADERS = 8


class Time:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def published() -> AsyncIterator[TestIssuer]:
    async with running_issuer() as issuer:
        yield issuer


def place(issuer: TestIssuer) -> str:
    return f"{issuer.url}/{TENANT}/v2.0/.well-known/openid-configuration"


async def test_twenty_rotations_under_load_refuse_no_good_key(published: TestIssuer) -> None:
    issuer = Issuer(place(published), min_interval=0.01)
    newest, is_over = 0, False
    found: asyncio.Queue[str] = asyncio.Queue()

    async def load() -> None:
        while not is_over:
            key = await issuer.key(f"key-{newest}")
            found.put_nowait(str(key.key_id))
            await asyncio.sleep(0)

    async with asyncio.timeout(seconds(30)), asyncio.TaskGroup() as group:
        for _ in range(LOADERS):
            group.create_task(load())
        for rotation in range(1, 21):
            # One real key under many ids: what is rotated here are names.
            published.keys = [jwk(0, kid=f"key-{n}") for n in (rotation - 1, rotation)]
            newest = rotation
            seen = 0
            while seen < 2 * LOADERS:
                seen += await found.get() == f"key-{rotation}"
        is_over = True
    with pytest.raises(Unauthenticated):
        await issuer.key("key-0")


async def test_ten_thousand_unknown_keys_cost_one_fetch_an_interval(published: TestIssuer) -> None:
    issuer = Issuer(place(published), min_interval=0.2)
    await issuer.key("key-0")
    began = asyncio.get_running_loop().time()
    answers = await asyncio.gather(
        *(issuer.key(f"stranger-{n}") for n in range(10_000)), return_exceptions=True
    )
    elapsed = asyncio.get_running_loop().time() - began
    assert all(isinstance(answer, Unauthenticated) for answer in answers)
    assert published.fetches <= 2 + elapsed / 0.2


@pytest.mark.parametrize(
    "strange",
    [
        {"key_ops": 5},
        {"key_ops": {"verify": True}},
        {"key_ops": ["wrapKey"]},
        {"use": []},
        {"kty": ["RSA"]},
        {"n": 5},
        {"n": "!"},
        {"alg": 5},
    ],
    ids=str,
)
async def test_strange_key_is_not_used_and_the_keys_beside_it_are(
    published: TestIssuer, strange: dict[str, object]
) -> None:
    published.keys = [{**jwk(0, kid="strange"), **strange}, jwk(0, kid="good")]
    issuer = Issuer(place(published), min_interval=0.01)
    await issuer.key("good")
    with pytest.raises(Unauthenticated):
        await issuer.key("strange")


async def test_known_keys_serve_while_the_issuer_is_away_and_no_longer(
    published: TestIssuer,
) -> None:
    time = Time()
    issuer = Issuer(place(published), min_interval=0.0, max_stale=86_400.0, now=time)
    await issuer.key("key-0")
    published.is_down = True
    time.now += 86_399
    await issuer.key("key-0")
    with pytest.raises(Unauthenticated):
        await issuer.key("unknown")
    time.now += 1
    with pytest.raises(AuthorizerUnavailable):
        await issuer.key("key-0")
    published.is_down = False
    time.now += 10
    await issuer.key("key-0")


async def test_removed_key_is_refused_once_the_keys_were_read_again(published: TestIssuer) -> None:
    time = Time()
    issuer = Issuer(place(published), now=time)
    await issuer.key("key-0")
    published.keys = [jwk(0, kid="key-1")]
    time.now += 3_600
    await issuer.key("key-1")
    with pytest.raises(Unauthenticated):
        # A new look is allowed after the interval only; until then the answer is the same.
        time.now += 5
        await issuer.key("key-0")


async def test_start_without_the_issuer_is_unavailable_and_recovers(published: TestIssuer) -> None:
    published.is_down = True
    time = Time()
    issuer = Issuer(place(published), now=time)
    for _ in range(50):
        with pytest.raises(AuthorizerUnavailable):
            await issuer.ping()
    assert len(published.asked) == 1
    published.is_down = False
    time.now += 5
    await issuer.ping()


async def test_issuer_that_calls_itself_otherwise_is_not_used(published: TestIssuer) -> None:
    with pytest.raises(AuthorizerUnavailable):
        await Issuer(place(published), expected=f"{published.url}/other").name()
