"""Waiting before another attempt: long enough to be polite, never without bound."""

from datetime import UTC, datetime

import pytest

from sk_agents.exceptions import (
    ModelError,
    ModelProtocolError,
    ModelRateLimited,
    ModelUnavailable,
)
from sk_agents.llm.failures import Attempts, RetryPolicy, parse_retry_after
from tests.llm.loopback import Waits

NOW = datetime(2030, 1, 1, tzinfo=UTC)


async def all_attempts(waits: Waits, failure: ModelError, policy: RetryPolicy) -> int:
    attempts = Attempts(policy, waits.timing)
    while await attempts.may_repeat_after(failure):
        assert attempts.made < 100
    return attempts.made


async def test_waits_double_and_their_number_is_bounded() -> None:
    waits = Waits()
    made = await all_attempts(waits, ModelUnavailable(), RetryPolicy(attempts=4, first_wait=1))
    assert (made, waits.seconds) == (4, [1, 2, 4])


async def test_no_wait_is_longer_than_the_longest() -> None:
    waits = Waits()
    await all_attempts(
        waits, ModelUnavailable(), RetryPolicy(6, first_wait=1, longest_wait=3, total_wait=100)
    )
    assert waits.seconds == [1, 2, 3, 3, 3]


async def test_all_waits_together_are_bounded() -> None:
    waits = Waits()
    await all_attempts(waits, ModelUnavailable(), RetryPolicy(50, first_wait=1, total_wait=10))
    assert sum(waits.seconds) <= 10


async def test_time_of_the_attempts_themselves_counts() -> None:
    waits = Waits()
    attempts = Attempts(RetryPolicy(total_wait=60), waits.timing)
    waits.clock.advance(300)
    assert not await attempts.may_repeat_after(ModelUnavailable())


async def test_providers_wish_is_respected() -> None:
    waits = Waits()
    await all_attempts(waits, ModelRateLimited(retry_after=7), RetryPolicy(2))
    assert waits.seconds[0] >= 7


async def test_wish_beyond_the_bound_ends_the_attempts_without_a_wait() -> None:
    waits = Waits()
    made = await all_attempts(waits, ModelRateLimited(retry_after=3600), RetryPolicy())
    assert (made, waits.seconds) == (1, [])


async def test_dropped_connection_is_repeated_once_without_a_wait() -> None:
    waits = Waits()
    await all_attempts(waits, ModelUnavailable(dropped=True), RetryPolicy(3, first_wait=1))
    assert waits.seconds == [2]


@pytest.mark.parametrize("failure", [ModelProtocolError(), ModelRateLimited(is_final=True)])
async def test_what_would_fail_again_is_not_repeated(failure: ModelError) -> None:
    assert await all_attempts(Waits(), failure, RetryPolicy()) == 1


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("12", 12),
        ("1.5", 1.5),
        ("-3", 0),
        ("Tue, 01 Jan 2030 00:00:30 GMT", 30),
        ("Mon, 31 Dec 2029 00:00:30 GMT", 0),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("1" * 100, None),
    ],
)
def test_retry_after_is_a_number_or_a_date(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, NOW) == seconds
