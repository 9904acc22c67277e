"""The desk of the tour: tools that look useful or dangerous and change nothing outside of here."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, ClassVar, Literal, NamedTuple

from sk_agents.ska_types import BasePlugin
from sk_agents.tools import ToolContext, ToolError, kernel_function, tool

logger = logging.getLogger(__name__)

Unit = Literal["km", "mi", "kg", "lb", "C", "F"]
# What it measures, and how to come to the kind's first unit: times the factor, plus the offset.
UNITS: dict[Unit, tuple[str, float, float]] = {
    "km": ("length", 1.0, 0.0),
    "mi": ("length", 1.609344, 0.0),
    "kg": ("mass", 1.0, 0.0),
    "lb": ("mass", 0.45359237, 0.0),
    "C": ("temperature", 1.0, 0.0),
    "F": ("temperature", 5 / 9, -160 / 9),
}
LINE_SECONDS = 0.1


class Postcard(NamedTuple):
    user_id: str
    to: str
    text: str


class Desk(BasePlugin):
    # Kept in memory and only here: nothing is ever mailed.
    sent: ClassVar[deque[Postcard]] = deque(maxlen=200)

    @tool(effect="read_only")
    @kernel_function(description="The date and the time now, in UTC.")
    def now(self) -> str:
        return datetime.now(UTC).strftime("%A, %d %B %Y, %H:%M:%S UTC")

    @tool(effect="read_only")
    @kernel_function(description="Convert an amount between two units of the same kind.")
    def convert(self, amount: float, unit: Unit, into: Unit) -> str:
        (kind, factor, offset), (other, divisor, shift) = UNITS[unit], UNITS[into]
        if kind != other:
            raise ToolError(f"{unit} measures {kind}, {into} measures {other}.")
        return f"{amount:g} {unit} = {(amount * factor + offset - shift) / divisor:.4g} {into}"

    @tool(effect="at_most_once", requires_approval=True)
    @kernel_function(description="Send a postcard. It cannot be called back.")
    def send_postcard(
        self,
        to: Annotated[str, "Who gets it"],
        text: Annotated[str, "What it says"],
        context: ToolContext,
    ) -> str:
        self.sent.append(Postcard(context.user_id, to[:100], text[:500]))
        logger.info("a postcard of the tour was written", extra={"run_id": context.run_id})
        return f"The postcard to {to} is on its way: “{text}”"

    @tool(effect="read_only")
    @kernel_function(description="The postcards you have sent.")
    def outbox(self, context: ToolContext) -> str:
        cards = [card for card in self.sent if card.user_id == context.user_id]
        lines = [f"{number}. to {card.to}: “{card.text}”" for number, card in enumerate(cards, 1)]
        return "\n".join(lines) or "No postcard was sent since the server started."

    @tool(effect="read_only")
    @kernel_function(description="Open a drawer of the desk and say what is in it.")
    def open_drawer(self, drawer: Literal["top", "middle", "bottom"]) -> str:
        match drawer:
            case "top":
                raise ToolError("The top drawer is locked. The key is in the bottom drawer.")
            case "middle":
                raise RuntimeError("the handle came off")
            case "bottom":
                return "a small key and a stamp"

    @tool(effect="at_most_once")
    @kernel_function(description="Put every paper of the archive through the shredder.")
    def shred_archive(self) -> str:
        return "There is no archive. Had there been one, nothing would have happened to it."

    @tool(effect="read_only")
    @kernel_function(description="Print a report line by line.")
    async def print_report(
        self, lines: Annotated[int, "How many lines, at most 40"]
    ) -> AsyncIterator[str]:
        total = max(1, min(lines, 40))
        for line in range(1, total + 1):
            await asyncio.sleep(LINE_SECONDS)
            yield f"line {line} of {total}\n"
