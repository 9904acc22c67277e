"""The measurement runs: seen by `make bench` before it measures, on a machine at rest."""

import pytest

from tests.bench import model_client


@pytest.mark.bench
def test_client_is_measured_beside_a_bare_reader() -> None:
    report = model_client.measure(calls=3, repetitions=1)
    assert [line.split()[0] for line in report.lines] == ["burst,"] * 5 + ["steps,"] * 5
    assert all(ratio.value > 0 for ratio in report.ratios)
