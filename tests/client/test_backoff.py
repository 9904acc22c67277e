"""How long a client waits, and when it stops waiting."""

import pytest

from sk_agents.client.connection import LONGEST_WAIT, Backoff
from sk_agents.client.errors import ProtocolError, ServerUnreachable, TealServerError
from tests.client.paces import SettableTime

GONE = ServerUnreachable("gone")


async def test_waits_grow_up_to_a_bound_and_then_it_is_over() -> None:
    time = SettableTime(chance=1.0)
    patience = Backoff(60.0, time.pace)
    with pytest.raises(ServerUnreachable):
        for _ in range(1000):
            await patience.wait(GONE)
    assert time.waits[:6] == [0.25, 0.5, 1.0, 2.0, 4.0, LONGEST_WAIT]
    assert max(time.waits) == LONGEST_WAIT
    assert 60.0 - LONGEST_WAIT < sum(time.waits) <= 60.0


async def test_waits_are_spread() -> None:
    time = SettableTime(chance=0.0)
    await Backoff(60.0, time.pace).wait(GONE)
    assert time.waits == [0.125]


async def test_no_patience_tries_once() -> None:
    time = SettableTime()
    with pytest.raises(ServerUnreachable):
        await Backoff(0.0, time.pace).wait(GONE)
    assert time.waits == []


async def test_progress_starts_time_and_waits_anew() -> None:
    time = SettableTime(chance=1.0)
    patience = Backoff(10.0, time.pace)
    for _ in range(20):
        await patience.wait(GONE)
        await patience.wait(GONE)
        patience.note_progress()
    assert time.waits == [0.25, 0.5] * 20


async def test_short_signs_of_life_start_the_time_anew_but_not_the_waits() -> None:
    time = SettableTime(chance=1.0)
    patience = Backoff(10.0, time.pace)
    for _ in range(50):
        await patience.wait(GONE)
        patience.note_life()
    assert time.waits[-40:] == [LONGEST_WAIT] * 40


async def test_life_that_lasted_counts_as_progress() -> None:
    time = SettableTime(chance=1.0)
    patience = Backoff(10.0, time.pace)
    for _ in range(5):
        await patience.wait(GONE)
        time.now += LONGEST_WAIT + 1
        patience.note_life()
    assert time.waits == [0.25] * 5


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_server_says_when_to_come_back(status: int) -> None:
    time = SettableTime(chance=1.0)
    await Backoff(60.0, time.pace).wait(TealServerError(status, {}, retry_after=7.0))
    assert 7.0 < time.waits[0] < 8.0


async def test_stream_says_when_to_come_back() -> None:
    time = SettableTime(chance=1.0)
    await Backoff(60.0, time.pace).wait(GONE, at_least=3.0)
    assert 3.0 < time.waits[0] < 4.0


async def test_being_told_to_come_back_too_late_is_a_refusal_at_once() -> None:
    time = SettableTime()
    refusal = TealServerError(429, {"code": "limit_exceeded"}, retry_after=600.0)
    with pytest.raises(TealServerError) as raised:
        await Backoff(60.0, time.pace).wait(refusal)
    assert raised.value is refusal
    assert time.waits == []


@pytest.mark.parametrize(
    "failure",
    [
        TealServerError(400, {}),
        TealServerError(404, {}),
        TealServerError(409, {}),
        TealServerError(500, {}),
        ProtocolError("?"),
        ServerUnreachable("certificate", is_passing=False),
    ],
    ids=str,
)
async def test_what_another_try_would_not_change_is_raised_at_once(failure: Exception) -> None:
    assert isinstance(failure, TealServerError | ProtocolError | ServerUnreachable)
    time = SettableTime()
    with pytest.raises(type(failure)):
        await Backoff(60.0, time.pace).wait(failure)
    assert time.waits == []
