"""What a machine may lack, and what becomes of a test that needs it.

The test is skipped, and the end of the run names it with its reason. Where `CI` is `true` it fails
instead: a test that silently does not run proves nothing. `TEAL_TEST_WITHOUT=browser,root` names
the parts that a CI does without on purpose.
"""

import os
from typing import Literal, NoReturn, get_args

import pytest

VARIABLE = "TEAL_TEST_WITHOUT"

Part = Literal[
    "browser",
    "ipv6",
    "libraries",
    "linux",
    "nginx",
    "page",
    "pooler",
    "proxy",
    "redis",
    "root",
    "sandbox",
]


def lacks(part: Part, reason: str) -> NoReturn:
    """End the test: this machine has no such part."""
    if os.environ.get("CI") == "true" and part not in declined():
        pytest.fail(f"{reason} ({VARIABLE}={part} does without it)", pytrace=False)
    pytest.skip(reason)


def declined() -> set[str]:
    named = set(filter(None, os.environ.get(VARIABLE, "").split(",")))
    if strangers := named - set(get_args(Part)):
        raise ValueError(f"{VARIABLE}: {', '.join(sorted(strangers))}: no such part")
    return named
