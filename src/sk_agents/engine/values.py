"""Values that never change, made and looked at for little.

Of dataclasses the type checker sees to it:

    from sk_agents.engine.values import dataclass

    @dataclass(frozen=True, slots=True)
    class Claim:
        owner: str

`dataclasses` guards a frozen value at run time too, and for that sets each field with a call of
`object.__setattr__`: four times the time of a plain one. A plain turn makes 35 such values of 136
fields in all, a twentieth of its CPU. So this one is for what each turn makes.

`members_at_hand` is for enums that each turn looks at: a plain one names their members 109 times.
"""

from __future__ import annotations

import dataclasses
import sys
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

E = TypeVar("E", bound=type[Enum])

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen: bool = False, **options: Any) -> Any:
        return dataclasses.dataclass(unsafe_hash=frozen, **options)


def members_at_hand(kind: E) -> E:
    """Python 3.11 finds a member by a method each time; later ones do what this does."""
    if sys.version_info < (3, 12):
        for name, member in kind.__members__.items():
            type.__setattr__(kind, name, member)
    return kind
