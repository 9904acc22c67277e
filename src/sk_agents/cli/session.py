"""`teal chat` with a person: prompt, stream, questions, commands."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable
from contextlib import suppress
from typing import TypeVar
from uuid import uuid4

from sk_agents.cli.asking import Asking, Decision, show
from sk_agents.cli.exits import Exit
from sk_agents.cli.following import Follower, Left
from sk_agents.cli.keyboard import Keyboard
from sk_agents.cli.neutral import one_line
from sk_agents.cli.options import Target
from sk_agents.cli.reaching import client_of, complain
from sk_agents.cli.screen import BAD, DIM, NOTE, Screen
from sk_agents.cli.slash import run_command
from sk_agents.cli.telling import Teller, tell_past
from sk_agents.client import (
    AgentInfo,
    ApprovalRequired,
    Chat,
    ClientError,
    Event,
    History,
    Interaction,
    PendingApproval,
    TealClient,
    TealServerError,
)
from sk_agents.client.chat import MessageOptions

T = TypeVar("T")

PROMPT = "you> "
TAIL = 5
# What a reviewer can mend by deciding otherwise.
UNACCEPTABLE = {403, 422}


class _Patience(logging.Handler):
    """Tells the person that the server is away and is being called again."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.WARNING)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        self._screen.line("(the server does not answer; trying again)", NOTE)


def talk(target: Target, chat_id: str | None, agent: str | None, *, fold_thinking: bool) -> Exit:
    """Talk until the person leaves."""
    screen = Screen()
    handler = _Patience(screen)
    logger = logging.getLogger("sk_agents.client")
    logger.addHandler(handler)
    try:
        with asyncio.Runner() as runner:
            agents = runner.run(_first_contact(target))
            client = runner.run(client_of(target).__aenter__())
            try:
                session = Session(runner, client, screen, agents, fold_thinking=fold_thinking)
                session.agent = agent
                return session.run(chat_id)
            finally:
                runner.run(client.__aexit__(None, None, None))
    except (ClientError, ValueError) as error:
        return complain(error, target.server)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    finally:
        logger.removeHandler(handler)


async def _first_contact(target: Target) -> tuple[AgentInfo, ...]:
    """A server that is not there is told at once; one that goes away later is waited for."""
    async with client_of(target, give_up_after=0) as client:
        return await client.agents()


class Session:
    """`agent` answers the next messages instead of the chat's own, if it is set."""

    def __init__(
        self,
        runner: asyncio.Runner,
        client: TealClient,
        screen: Screen,
        agents: tuple[AgentInfo, ...],
        *,
        fold_thinking: bool,
    ) -> None:
        self.client = client
        self.screen = screen
        self.keyboard = Keyboard()
        self.agents = agents
        self.agent: str | None = None
        self.chat: Chat = client.chat(new_chat_id())
        self.is_over = False
        self._runner = runner
        self._fold = fold_thinking
        self._asking = Asking(screen, self.keyboard)

    def run(self, chat_id: str | None) -> Exit:
        names = ", ".join(one_line(agent.name) for agent in self.agents)
        self.screen.line(
            f"Agents: {names or 'none'}. /help lists the commands, Ctrl-D leaves.", DIM
        )
        if chat_id is not None:
            self.resume(chat_id)
        while not self.is_over:
            try:
                typed = self.keyboard.line(PROMPT).strip()
            except EOFError:
                break
            except KeyboardInterrupt:
                self.screen.line("(Ctrl-D or /quit leaves)", NOTE)
                continue
            if typed:
                self._take(typed)
        self.screen.line(f"Go on with: teal chat {self.chat.id}", DIM)
        return Exit.DONE

    def wait(self, work: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await work

        return self._runner.run(awaited())

    def resume(self, chat_id: str) -> None:
        """Show the tail of a chat; go on reading what runs or waits in it."""
        self.chat = self.client.chat(chat_id)
        history = self._known_history()
        if history is None:
            return
        over, still_open = _split(history)
        for interaction in over[-TAIL:]:
            tell_past(self.screen, interaction)
        for interaction in still_open:
            self.screen.line(f"> {interaction.user_message}")
            self.play(self.chat.watch(interaction.id))

    def start_anew(self) -> None:
        self.chat = self.client.chat(new_chat_id())

    def play(self, events: AsyncGenerator[Event, None]) -> None:
        """Read along to the end, with all questions on the way."""
        teller = Teller(self.screen, fold_thinking=self._fold)
        follower = Follower(self.chat, teller.tell, self._tell_stopping)
        try:
            self._runner.run(follower.follow(events))
            while follower.open_approvals:
                self._ask_all(follower)
                self._runner.run(follower.follow(follower.further_events()))
        except Left:
            self.screen.line("(left before its end)", NOTE)
        except EOFError:
            self.is_over = True
            self.screen.line("(it waits for your decision)", NOTE)
        except KeyboardInterrupt:
            self._stop(follower)

    def say(self, message: str) -> None:
        options: MessageOptions = {"agent": self.agent} if self.agent else {}
        self.play(self.chat.say(message, **options))

    def _tell_stopping(self) -> None:
        self.screen.line("(stopping; Ctrl-C again leaves at once)", NOTE)

    def _take(self, typed: str) -> None:
        try:
            if typed.startswith("/"):
                run_command(self, typed)
            else:
                self.say(typed)
        except TealServerError as error:
            self.screen.line(f"✗ {one_line(error.detail)} ({error.code})", BAD)
        except (ClientError, ValueError) as error:
            self.screen.line(f"✗ {one_line(str(error))}", BAD)
        except EOFError:
            self.is_over = True
        except KeyboardInterrupt:
            self.screen.line()

    def _known_history(self) -> History | None:
        try:
            return self.wait(self.chat.history(state=False))
        except TealServerError as error:
            if error.status != 404:
                raise
        self.screen.line(f"A new chat: {self.chat.id}", DIM)
        return None

    def _ask_all(self, follower: Follower) -> None:
        for approval in follower.open_approvals:
            show(self.screen, self._with_late_result(approval))
            while True:
                decision = self._asking.ask(approval)
                if decision is None or self._decide(approval, decision):
                    break
            follower.note_decided(approval)

    def _with_late_result(self, approval: ApprovalRequired) -> ApprovalRequired | PendingApproval:
        if approval.kind != "outcome_unknown":
            return approval
        try:
            return self.wait(self.client.approval(approval.approval_id))
        except TealServerError:
            return approval

    def _decide(self, approval: ApprovalRequired, decision: Decision) -> bool:
        """False if the person must be asked again."""
        decide = self.chat.approve if decision.approved else self.chat.reject
        try:
            self.wait(decide(approval, **decision.verdict))
        except TealServerError as error:
            self.screen.line(f"✗ {one_line(error.detail)} ({error.code})", BAD)
            return error.status not in UNACCEPTABLE
        return True

    def _stop(self, follower: Follower) -> None:
        """Ctrl-C at a question: the interaction is cancelled, and its end is told."""
        self.screen.line()
        if not follower.reply.interaction_id:
            return
        self.wait(follower.stop())
        for approval in follower.open_approvals:
            follower.note_decided(approval)
        with suppress(Left):
            self._runner.run(follower.follow(follower.further_events()))


def new_chat_id() -> str:
    return f"chat_{uuid4().hex}"


def _split(history: History) -> tuple[list[Interaction], list[Interaction]]:
    """What is over, and what runs, waits for a person or for its turn."""
    over = [i for i in history.interactions if i.status not in {"RUNNING", "WAITING_APPROVAL"}]
    return over, [i for i in history.interactions if i not in over]
