"""How many streams a user may hold."""

from contextlib import ExitStack

import httpx
import pytest

from sk_agents.exceptions import LimitExceeded
from sk_agents.http.limits import PER_USER, StreamSlots
from tests.http.toy import Wire, eventually, request, serving, status, toy_app


@pytest.mark.parametrize("limit", [1, 3, PER_USER])
def test_s8_streams_up_to_the_limit_are_held(limit: int) -> None:
    slots = StreamSlots(limit)
    with ExitStack() as stack:
        for _ in range(limit - 1):
            stack.enter_context(slots.held("alice"))
        with slots.held("alice"):
            with pytest.raises(LimitExceeded), slots.held("alice"):
                pass
            with slots.held("bob"):
                pass
        with slots.held("alice"):
            pass


def test_s8_without_a_limit_there_is_none() -> None:
    slots = StreamSlots(None)
    with ExitStack() as stack:
        for _ in range(10 * PER_USER):
            stack.enter_context(slots.held("dummyuser"))
        assert slots.by_user == {"dummyuser": 10 * PER_USER}


def test_user_without_streams_is_forgotten() -> None:
    slots = StreamSlots()
    with slots.held("alice"):
        pass
    assert "alice" not in slots.by_user


def test_slot_is_free_again_after_a_failure() -> None:
    slots = StreamSlots(1)
    for _ in range(3):
        with pytest.raises(KeyError), slots.held("alice"):
            raise KeyError


def test_one_stream_too_many_is_429_until_another_ends() -> None:
    with serving(toy_app(slots=StreamSlots(2))) as port:
        address = f"http://127.0.0.1:{port}/stream?user="

        def refused() -> bool:
            with httpx.stream("GET", f"{address}alice") as response:
                return response.status_code == 429

        with Wire(port) as one:
            one.send(request("GET", "/stream?user=alice")).until(b"hello")
            with Wire(port) as two:
                two.send(request("GET", "/stream?user=alice")).until(b"hello")
                answer = httpx.get(f"{address}alice")
                assert (answer.status_code, answer.json()["code"]) == (429, "limit_exceeded")
                assert int(answer.headers["Retry-After"]) > 0
                with Wire(port) as other:
                    other.send(request("GET", "/stream?user=bob")).until(b"hello")
            eventually(lambda: not refused())


def test_refused_stream_has_sent_nothing() -> None:
    with serving(toy_app(slots=StreamSlots(1))) as port, Wire(port) as one:
        one.send(request("GET", "/stream?user=a")).until(b"hello")
        with Wire(port) as two:
            answer = two.send(request("GET", "/stream?user=a")).until(b"}")
        assert status(answer) == 429
        assert b"event-stream" not in answer
