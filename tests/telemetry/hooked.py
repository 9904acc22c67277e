"""Which tests need an engine that tells an observer what it does."""

from inspect import signature

import pytest

from sk_agents.engine.engine import Engine

needs_observed_engine = pytest.mark.skipif(
    "observer" not in signature(Engine.__init__).parameters,
    reason="the engine takes no observer yet",
)
