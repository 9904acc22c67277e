"""How long is long enough: every bound of a wait in the tests, times one factor.

A bound only ends a test that would wait for ever, so a slow machine may stretch all of them:
`TEAL_TEST_PATIENCE=5 make test`.
"""

import os

VARIABLE = "TEAL_TEST_PATIENCE"
# The longest that one test may take, as in pyproject.toml.
TEST_SECONDS = 120


def seconds(bound: float) -> float:
    return bound * factor()


def factor() -> float:
    given = float(os.environ.get(VARIABLE) or 1)
    if given < 1:
        raise ValueError(f"{VARIABLE} stretches bounds; {given} would shorten them")
    return given
