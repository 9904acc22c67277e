"""A request to an MCP server that is under way, and what the server asks the user during it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sk_agents.engine.turns import Completed, Completion, Question, ToolContext
from sk_agents.exceptions import ToolError
from sk_agents.tools.json_schema import ArgumentSchema, UnusableSchema

MOST_QUESTIONS = 5
MOST_TEXT = 2_000

T = TypeVar("T")
Wanted = TypeVar("Wanted")


class ServerRefused(Exception):
    """What this server offers is not usable, and will not be the next time either."""


class SessionLost(Exception):
    """The session ended before the answer came."""


class SessionUnknown(SessionLost):
    """The server does not know this session any more, and did not take the call."""


@dataclass(eq=False, slots=True)
class LiveCall:
    """`user` is the user whose id the server gets, if it gets one. `context` is that of a tool's
    call; what a user reads outside of a run has none.

    The transport sets `is_sent` once the server may have got the call, and `is_disowned` if the
    server has answered that it does not know the session. `refusal` is what the server was told
    last when it did not get a model's answer.
    """

    server: str
    seconds: float
    user: str | None = None
    context: ToolContext | None = None
    limit: asyncio.Timeout | None = None
    asked: int = 0
    is_sent: bool = False
    is_disowned: bool = False
    refusal: str | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def ask(self, text: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
        """The user's answer as the server's form wants it; `None` if there is none.

        While a person is asked, the call's time stands still.
        """
        try:
            form = ArgumentSchema(schema)
        except UnusableSchema:
            return None
        shown = f"The MCP server '{self.server}' asks: {text[:MOST_TEXT]}"
        try:
            answer = await self._answer(Question(shown, choices=_choices(form), schema=form.schema))
            return _filled(form, answer)
        except ToolError:
            return None

    async def choose(self, text: str, *choices: str) -> str | None:
        """Which of them the user chose; `None` if there is no answer."""
        try:
            chosen = await self._answer(Question(text, choices=choices))
        except ToolError:
            return None
        return str(chosen)

    async def complete(self, wanted: Completion) -> Completed:
        """What the agent's model answers, once the user allows it to be asked.

        Raises:
            ToolError: it was not asked, or has not answered.
        """
        return await self._put(self.context.complete if self.context is not None else None, wanted)

    async def _answer(self, question: Question) -> Any:
        """Raises ToolError: there is none."""
        return await self._put(self.context.ask if self.context is not None else None, question)

    async def _put(self, put: Callable[[Wanted], Awaitable[T]] | None, wanted: Wanted) -> T:
        """Raises ToolError: nobody can be asked, and as `put`."""
        if put is None or self.asked >= MOST_QUESTIONS:
            raise ToolError("No person can be asked.")
        async with self._turn:
            self.asked += 1
            self._reschedule(None)
            try:
                return await put(wanted)
            finally:
                self._reschedule(asyncio.get_running_loop().time() + self.seconds)

    def _reschedule(self, when: float | None) -> None:
        # The call may be over by now: its question may outlive it for a moment.
        with suppress(RuntimeError):
            if self.limit is not None:
                self.limit.reschedule(when)


# Whose call the running code belongs to: the library carries it to the request that is sent, and
# from the stream that answers it back to what the server asks there.
CURRENT_CALL: ContextVar[LiveCall | None] = ContextVar("mcp_call", default=None)


def _choices(form: ArgumentSchema) -> tuple[str, ...]:
    """Those of a form with one field and nothing else to say."""
    fields = list(form.schema["properties"].values())
    if len(fields) != 1 or not isinstance(fields[0], Mapping):
        return ()
    found = fields[0].get("enum", ())
    return tuple(found) if all(isinstance(choice, str) for choice in found) else ()


def _filled(form: ArgumentSchema, answer: Any) -> dict[str, Any]:
    """Raises ToolError: the answer does not fit the form."""
    fields = list(form.schema["properties"])
    if not isinstance(answer, Mapping):
        if len(fields) != 1:
            raise ToolError("The form needs more than one answer.")
        answer = {fields[0]: answer}
    return form.check(answer)
