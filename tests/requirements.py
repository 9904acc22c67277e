"""Every testable sentence of the seeds as `id -> Requirement`, and the mark a test carries.

A test that shows a behaviour says so with `@requirement("S001-authorizer-dummy")`. An entry without
a test has a reason instead. `test_requirements.py` holds both directions.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from tests.seeds.requirement import Requirement
from tests.seeds.s000 import S000
from tests.seeds.s001 import S001
from tests.seeds.s002 import S002
from tests.seeds.s003 import S003
from tests.seeds.s004_api import S004_API
from tests.seeds.s004_design import S004_DESIGN

SEEDS: tuple[dict[str, Requirement], ...] = (S000, S001, S002, S003, S004_API, S004_DESIGN)
REQUIREMENTS: dict[str, Requirement] = {id: entry for seed in SEEDS for id, entry in seed.items()}

ATTRIBUTE = "requirement_ids"

Marked = TypeVar("Marked", bound=Callable[..., Any])


class UnknownRequirement(LookupError):
    """A test names a requirement that no seed has."""


def requirement(*ids: str) -> Callable[[Marked], Marked]:
    """Mark a test as showing these behaviours.

    Raises:
        UnknownRequirement: an id is not in the manifest, or none is given.
    """
    unknown = [id for id in ids if id not in REQUIREMENTS]
    if unknown or not ids:
        raise UnknownRequirement(f"not in tests/requirements.py: {', '.join(unknown) or 'no id'}")

    def mark(test: Marked) -> Marked:
        setattr(test, ATTRIBUTE, (*ids, *getattr(test, ATTRIBUTE, ())))
        return test

    return mark
