"""Mutants that make no difference, each with the reason why none of its tests can notice it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutants.operators import Mutant


@dataclass(frozen=True, slots=True)
class Equivalent:
    """`line` is the mutated line without its indentation; `text` what is put there, if only that
    one of the operator's mutants of the line makes no difference."""

    module: str
    line: str
    operator: str
    reason: str
    text: str | None = None

    def is_of(self, mutant: Mutant, source: str) -> bool:
        return (
            (self.module, self.operator) == (mutant.module, mutant.operator)
            and self.line == mutant.place(source)
            and self.text in (None, mutant.replacement)
        )


EQUIVALENT: tuple[Equivalent, ...] = ()


def is_equivalent(mutant: Mutant, source: str) -> bool:
    return any(one.is_of(mutant, source) for one in EQUIVALENT)
