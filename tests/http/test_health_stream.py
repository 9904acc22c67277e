"""The stream that tells whether streams arrive as they are sent."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import httpx_sse

from sk_agents.http.front import TealApp
from sk_agents.http.health import BEATING_AT_ONCE, BEATS, Health, health_operations
from tests.http.toy import serving


@contextmanager
def asking(streams: int = BEATING_AT_ONCE) -> Iterator[httpx.Client]:
    app = TealApp()
    app.add_operations(health_operations(Health(), streams=streams))
    with serving(app) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        yield client


def test_beats_say_when_they_were_sent_and_soon_end() -> None:
    with asking() as client, httpx_sse.connect_sse(client, "GET", "/health/stream") as source:
        headers = source.response.headers
        events = list(source.iter_sse())
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert (headers["cache-control"], headers["x-accel-buffering"]) == ("no-cache", "no")
    assert {event.event for event in events} == {"beat"}
    beats = [json.loads(event.data) for event in events]
    assert [(beat["number"], beat["of"]) for beat in beats] == [
        (number, BEATS) for number in range(1, BEATS + 1)
    ]
    times = [beat["after_ms"] for beat in beats]
    assert times == sorted(set(times))


def test_too_many_at_once_are_429_and_nothing_is_sent() -> None:
    with asking(streams=0) as client:
        answer = client.get("/health/stream")
    assert (answer.status_code, answer.json()["code"]) == (429, "limit_exceeded")


def test_room_is_free_again_after_each() -> None:
    with asking(streams=1) as client:
        assert [client.get("/health/stream").status_code for _ in range(3)] == [200] * 3
