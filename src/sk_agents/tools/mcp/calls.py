"""The call of an MCP tool that is under way, and what its server asks the user meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from sk_agents.engine.turns import Question, ToolContext
from sk_agents.exceptions import ToolError
from sk_agents.tools.mcp.schema import Arguments, UnusableSchema

MOST_QUESTIONS = 5
MOST_TEXT = 2_000


class ServerRefused(Exception):
    """What this server offers is not usable, and will not be the next time either."""


class LinkLost(Exception):
    """The connection ended before the answer came."""


class SessionGone(LinkLost):
    """The server does not know this connection any more, and took nothing of it."""


@dataclass(eq=False, slots=True)
class LiveCall:
    """`user` is who the server is told it works for, if it is told at all.

    Its transport says whether the server may have got the call, and whether it has answered that
    it does not know the session the call came in.
    """

    server: str
    context: ToolContext
    seconds: float
    user: str | None = None
    limit: asyncio.Timeout | None = None
    asked: int = 0
    is_sent: bool = False
    is_disowned: bool = False
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def ask(self, text: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
        """The user's answer as the server's form wants it; `None` if there is none.

        While a person is asked, the call's time stands still.
        """
        if self.context.ask is None or self.asked >= MOST_QUESTIONS:
            return None
        try:
            form = Arguments(schema)
        except UnusableSchema:
            return None
        async with self._turn:
            self.asked += 1
            self._hold()
            try:
                return _filled(form, await self.context.ask(self._question(text, form)))
            except ToolError:
                return None
            finally:
                self._go_on()

    def _question(self, text: str, form: Arguments) -> Question:
        shown = f"The MCP server '{self.server}' asks: {text[:MOST_TEXT]}"
        return Question(shown, choices=_choices(form), schema=form.schema)

    def _hold(self) -> None:
        self._reschedule(None)

    def _go_on(self) -> None:
        self._reschedule(asyncio.get_running_loop().time() + self.seconds)

    def _reschedule(self, when: float | None) -> None:
        # The call may be over by now: its question outlives it until somebody notices.
        with suppress(RuntimeError):
            if self.limit is not None:
                self.limit.reschedule(when)


# Whose call the running code belongs to: the library carries it to the request that is sent, and
# from the stream that answers it back to what the server asks there.
CURRENT: ContextVar[LiveCall | None] = ContextVar("mcp_call", default=None)


def _choices(form: Arguments) -> tuple[str, ...]:
    """Those of a form with one field and nothing else to say."""
    fields = list(form.schema["properties"].values())
    if len(fields) != 1 or not isinstance(fields[0], Mapping):
        return ()
    found = fields[0].get("enum", ())
    return tuple(found) if all(isinstance(choice, str) for choice in found) else ()


def _filled(form: Arguments, answer: Any) -> dict[str, Any]:
    """Raises ToolError: the answer does not fit the form."""
    fields = list(form.schema["properties"])
    if not isinstance(answer, Mapping):
        if len(fields) != 1:
            raise ToolError("The form needs more than one answer.")
        answer = {fields[0]: answer}
    return form.check(answer)
