"""Callers who try at random what they may and may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.scale import trials
from tests.patience import seconds
from tests.security import callers


@pytest.mark.timeout(seconds(900))
@pytest.mark.parametrize("seed", range(1, trials(10, 2) + 1))
def test_callers_who_try_anything_get_at_nothing_of_others(tmp_path: Path, seed: int) -> None:
    found = callers.findings(tmp_path, seed, trials(2000, 100))
    assert found.mistakes == []
    assert found.asked >= trials(2000, 100)
