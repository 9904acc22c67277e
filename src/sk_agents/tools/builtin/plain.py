"""Small tools that touch nothing: arithmetic, the time, a question to the user."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator

from sk_agents.engine.models import Effect
from sk_agents.engine.turns import ToolContext
from sk_agents.exceptions import ToolError
from sk_agents.tools.answers import usable
from sk_agents.tools.builtin.calculator import calculated
from sk_agents.tools.builtin.function_tool import Offer
from sk_agents.tools.results import text_of

_Schema = Annotated[dict[str, Any], AfterValidator(usable)]
_ZONE = re.compile(r"[A-Za-z0-9_+-]{1,32}(?:/[A-Za-z0-9_+-]{1,32}){0,2}")


class MathTools:
    def offers(self) -> Iterator[Offer]:
        yield Offer("Math", self.calculate, Effect.READ_ONLY, asks=None, timeout=10)

    async def calculate(
        self, expression: Annotated[str, "An arithmetic expression, such as (2 + 3) * 4"]
    ) -> str:
        """Compute an arithmetic expression exactly. Use it instead of computing by heart."""
        return calculated(expression)


class ClockTools:
    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now

    def offers(self) -> Iterator[Offer]:
        yield Offer("Clock", self.current_time, Effect.READ_ONLY, asks=None, timeout=10)

    def current_time(
        self, zone: Annotated[str, "An IANA time zone, such as Europe/Oslo"] = "UTC"
    ) -> str:
        """Tell the date, the weekday and the time."""
        try:
            if not _ZONE.fullmatch(zone):
                raise ValueError
            place = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ToolError(
                f"There is no time zone {ascii(zone[:64])}. Zones are named like Europe/Oslo."
            ) from None
        now = self._now().astimezone(place)
        return f"{now:%A} {now.isoformat(timespec='seconds')} ({zone})"


class UserTools:
    def offers(self) -> Iterator[Offer]:
        # It asks by itself; where nobody can be asked, it must not even be tried.
        yield Offer("User", self.ask_user, Effect.READ_ONLY, is_question=True)

    async def ask_user(
        self,
        question: Annotated[str, "What to ask, in full sentences"],
        choices: Annotated[list[str] | None, "The answers to choose from"] = None,
        schema: Annotated[_Schema | None, "A JSON schema of the answer"] = None,
        *,
        context: ToolContext,
    ) -> str:
        """Ask the user and wait for the answer. Only for what you cannot find out yourself."""
        if context.answer is None:
            raise ToolError("There is no answer: the user could not be asked.")
        return text_of(context.answer)
