"""What a measurement says: values in one unit, and ratios with the bars they must clear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ratio:
    """`value` compared with a bar; `at_least` says on which side of it is good."""

    name: str
    value: float
    bar: float
    at_least: bool = True

    @property
    def holds(self) -> bool:
        return self.value >= self.bar if self.at_least else self.value <= self.bar

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        verdict = "ok" if self.holds else "MISSED"
        return f"{self.name:<60} {self.value:8.2f}   bar {sign} {self.bar:<6g} {verdict}"


@dataclass(frozen=True, slots=True)
class Report:
    title: str
    lines: Sequence[str]
    ratios: Sequence[Ratio]

    def __str__(self) -> str:
        return "\n".join([self.title, "", *self.lines, "", *map(str, self.ratios), ""])

    @property
    def holds(self) -> bool:
        return all(ratio.holds for ratio in self.ratios)
