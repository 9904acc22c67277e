"""What all tests of the engine share."""

import pytest

from sk_agents.engine.reading import watch

NEVER = 1e6
POLL_SECONDS = watch.POLL_SECONDS


@pytest.fixture(autouse=True)
def signals_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """No reader looks at the store by itself: a signal that is not sent would only make it slow."""
    monkeypatch.setattr(watch, "POLL_SECONDS", NEVER)


@pytest.fixture
def readers_look(signals_are_enough: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they do in a process that no other one sends signals to."""
    monkeypatch.setattr(watch, "POLL_SECONDS", POLL_SECONDS)
