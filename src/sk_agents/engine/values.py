"""Dataclasses whose values never change: the type checker sees to it, and making one costs little.

    from sk_agents.engine.values import dataclass

    @dataclass(frozen=True, slots=True)
    class Claim:
        owner: str

`dataclasses` guards a frozen value at run time too, and for that sets each field with a call of
`object.__setattr__`: four times the time of a plain one. A plain turn makes 35 such values of 136
fields in all, a twentieth of its CPU. So this one is for what each turn makes.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen: bool = False, **options: Any) -> Any:
        return dataclasses.dataclass(unsafe_hash=frozen, **options)
