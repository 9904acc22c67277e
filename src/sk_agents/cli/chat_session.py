"""`teal chat` at a terminal: prompt, answers, questions about calls, and commands like `/help`."""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from sk_agents.cli.attachments import mentioned_files, missing_files, read_items
from sk_agents.cli.event_printer import (
    EventPrinter,
    pretty,
    print_approval,
    print_past,
    usage_text,
)
from sk_agents.cli.interaction_reader import InteractionReader, UserLeft
from sk_agents.cli.options import Exit, ServerAccess
from sk_agents.cli.safe_text import one_line
from sk_agents.cli.server_connection import print_error, unopened_client
from sk_agents.cli.terminal import BAD, DIM, Keyboard, Screen
from sk_agents.client import (
    AgentInfo,
    ApprovalRequired,
    Chat,
    ChatSummary,
    ClientError,
    Event,
    Interaction,
    PendingApproval,
    TealClient,
    TealServerError,
)
from sk_agents.client.teal_client import DecisionOptions, MessageOptions
from sk_agents.wire.events import Choice, UsageView
from sk_agents.wire.views import UnavailableServer

T = TypeVar("T")

PROMPT = "you> "
# Typed while the agent works: it is to stop after its step.
STOP = "/stop"
# How many past interactions are shown when a chat is continued.
TAIL = 5
EXCERPT = 60
# How many chats are offered to be continued.
MOST_LISTED = 15
# Another decision can be accepted after these statuses.
UNACCEPTABLE = {403, 422}
CALL = ("yes", "no", "edit", "always")
LATER = "later"
UNKNOWN = ("done", "retry", "give up")
LENT = ("yes", "no", "wait")
ANSWERS = {form for word in (*CALL, *UNKNOWN, *LENT, LATER) for form in (word, word[0])}
CHOICES: dict[str, Choice] = {"d": "done", "r": "retry", "g": "give_up"}


class _RetryNotice(logging.Handler):
    """Shows the user that the server does not answer and is called again."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.WARNING)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        self._screen.note("the server does not answer; trying again")


def run_chat(
    access: ServerAccess,
    chat_id: str | None,
    agent: str | None,
    *,
    fold_thinking: bool,
    plain: bool = False,
    resume: bool = False,
) -> Exit:
    """Talk until the user leaves. With `resume` the user chooses one of the last chats first."""
    screen = Screen(plain=plain)
    handler = _RetryNotice(screen)
    logger = logging.getLogger("sk_agents.client")
    logger.addHandler(handler)
    try:
        with asyncio.Runner() as runner:
            agents = runner.run(first_contact(access))
            client = runner.run(unopened_client(access).__aenter__())
            try:
                session = ChatSession(runner, client, screen, agents, fold_thinking=fold_thinking)
                session.agent = agent
                return session.run(chat_id, choose=resume)
            finally:
                runner.run(_leave(client))
    except (ClientError, ValueError) as error:
        return print_error(error, access.server)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    finally:
        logger.removeHandler(handler)


async def _leave(client: TealClient) -> None:
    """What an answer that the user left still asks of the server ends before its connection."""
    asked = asyncio.all_tasks() - {asyncio.current_task()}
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    await client.__aexit__(None, None, None)


async def first_contact(access: ServerAccess) -> tuple[AgentInfo, ...]:
    """A server that is missing at the start is an error at once; later the session waits for it."""
    async with unopened_client(access, give_up_after=0) as client:
        return await client.agents()


@dataclass(frozen=True, slots=True)
class UserDecision:
    approved: bool
    verdict: DecisionOptions = field(default_factory=DecisionOptions)


class ApprovalPrompt:
    """Asks the user about calls. It only returns the decision: the server may refuse it.

    With `may_wait` the user may decide later.
    """

    def __init__(self, screen: Screen, keyboard: Keyboard, *, may_wait: bool = False) -> None:
        self._screen = screen
        self._keyboard = keyboard
        self._later: tuple[str, ...] = (LATER,) if may_wait else ()

    def ask(self, approval: ApprovalRequired | PendingApproval) -> UserDecision | None:
        """`None`: not decided now."""
        match approval.kind:
            case "tool":
                return self._ask_about_call(approval)
            case "outcome_unknown":
                key = self._key("What happened? [d]one / [r]etry / [g]ive up", UNKNOWN)
                return None if key == "l" else UserDecision(True, {"choice": CHOICES[key]})
            case "question":
                return self._ask_question(approval)
            case "auth":
                key = self._key("Run it as you? [y]es / [n]o / [w]ait", LENT)
                return None if key in "wl" else UserDecision(key == "y")

    def _ask_about_call(self, approval: ApprovalRequired | PendingApproval) -> UserDecision | None:
        needs_reason = approval.reason_required is True
        always = "" if needs_reason else " / [a]lways in this chat"
        words = CALL[:-1] if needs_reason else CALL
        while True:
            key = self._key(f"Run it? [y]es / [n]o / [e]dit{always}", words)
            match key:
                case "l":
                    return None
                case "y":
                    return UserDecision(True, self._reason("Why?") if needs_reason else {})
                case "a":
                    return UserDecision(True, {"remember": "thread"})
                case "n":
                    return UserDecision(
                        False, self._reason("Why not?", is_optional=not needs_reason)
                    )
            if (arguments := self._edited(approval.tool_input)) is not None:
                reason = self._reason("Why?") if needs_reason else {}
                return UserDecision(True, {"edited_arguments": arguments, **reason})

    def _reason(self, question: str, *, is_optional: bool = False) -> DecisionOptions:
        """Asked for until there is one, if a rule wants one."""
        note = "(empty: no reason)" if is_optional else "(a rule wants a reason)"
        while True:
            reason = self._line(f"{question} {note} ").strip()
            if reason:
                return {"message": reason}
            if is_optional:
                return {}

    def _edited(self, tool_input: str) -> dict[str, Any] | None:
        """Other arguments; `None` if they did not change or are not a JSON object."""
        before = pretty(tool_input)
        try:
            text = self._keyboard.text("Arguments as JSON: ", before, suffix=".json")
            arguments = json.loads(text)
        except ValueError as error:
            self._screen.line(f"This is not JSON: {error}", BAD)
            return None
        except (OSError, subprocess.CalledProcessError) as error:
            self._screen.line(f"The editor failed: {error}", BAD)
            return None
        if not isinstance(arguments, dict):
            self._screen.line("Arguments must be a JSON object.", BAD)
            return None
        if arguments == json.loads(before):
            self._screen.note("nothing was changed")
            return None
        return arguments

    def _ask_question(self, approval: ApprovalRequired | PendingApproval) -> UserDecision:
        if approval.choices:
            return self._ask_which(approval.choices)
        schema = approval.answer_schema or {}
        if schema:
            self._screen.line(f"  {json.dumps(schema, ensure_ascii=False)}", DIM)
        while True:
            text = self._line("Your answer (empty: none) ").strip()
            if not text:
                return UserDecision(False)
            if schema.get("type", "string") == "string":
                return UserDecision(True, {"answer": text})
            try:
                return UserDecision(True, {"answer": json.loads(text)})
            except ValueError as error:
                self._screen.line(f"This is not JSON: {error}", BAD)

    def _ask_which(self, choices: Sequence[str]) -> UserDecision:
        numbered = {str(number): choice for number, choice in enumerate(choices, 1)}
        while True:
            text = self._line("Which one? (its number or text; empty: none) ").strip()
            if not text:
                return UserDecision(False)
            chosen = numbered.get(text, text)
            if chosen in choices:
                return UserDecision(True, {"answer": chosen})
            self._screen.note("that is none of them")

    def _key(self, prompt: str, words: tuple[str, ...]) -> str:
        """The first letter of the chosen word. Whole sentences decide nothing."""
        later = " / [l]ater" if self._later else ""
        while True:
            typed = self._line(f"{prompt}{later}: ").strip().lower()
            for word in (*words, *self._later):
                if typed in (word[0], word):
                    return word[0]
            *others, last = (word[0] for word in (*words, *self._later))
            self._screen.note(f"answer with {', '.join(others)} or {last}")

    def _line(self, prompt: str) -> str:
        self._screen.end_line()
        return self._keyboard.answer(prompt)


class ChatSession:
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
        # What goes with the next message.
        self.items: list[dict[str, Any]] = []
        self.is_over = False
        self._runner = runner
        self._fold = fold_thinking
        self._prompt = ApprovalPrompt(screen, self.keyboard)
        # What came too late for the interaction it was typed for.
        self._unsaid = ""

    def run(self, chat_id: str | None, *, choose: bool = False) -> Exit:
        names = ", ".join(one_line(agent.name) for agent in self.agents)
        # Each fits a narrow terminal: a line that does not is broken inside of a word.
        for hint in (
            f"Agents: {names or 'none'}.",
            "/help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves.",
            f"While the agent works, type to tell it more; {STOP} stops it after its step.",
        ):
            self.screen.line(hint, DIM)
        self.keyboard.complete_with(_completions)
        if choose:
            chat_id = self._chosen_chat()
        if chat_id is not None:
            self.resume(chat_id)
        while not self.is_over:
            try:
                unsaid, self._unsaid = self._unsaid, ""
                typed = self.keyboard.line(PROMPT, unsaid).strip()
            except EOFError:
                break
            except KeyboardInterrupt:
                self.screen.note("Ctrl-D or /quit leaves")
                continue
            if typed:
                self._handle(typed)
        self.screen.line(f"Continue with: teal chat {self.chat.id}", DIM)
        return Exit.DONE

    def wait(self, work: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await work

        return self._runner.run(awaited())

    def run_interaction(self, events: AsyncGenerator[Event, None]) -> None:
        """Print an interaction to its end, and ask the user whenever it needs a decision."""
        printer = EventPrinter(self.screen, fold_thinking=self._fold, with_costs=True)
        reader = InteractionReader(
            self.chat, printer.print, self._print_stopping, self._handle_meanwhile
        )
        try:
            self._runner.run(reader.read(events))
            while reader.open_approvals:
                self._ask_all(reader)
                self._runner.run(reader.read_on())
        except UserLeft:
            self.screen.note("left before its end")
        except EOFError:
            self.is_over = True
            self.screen.note("it waits for your decision")
        except KeyboardInterrupt:
            self._stop(reader)

    async def _handle_meanwhile(self, interaction_id: str, line: str) -> None:
        """What was typed while the agent works: something for it, or that it is to stop."""
        try:
            if line == STOP:
                await self.chat.cancel(interaction_id, after="step")
            elif line.startswith("/"):
                self.screen.note(f"while the agent works there is only {STOP}")
            elif line.lower() in ANSWERS:
                # Typed ahead of a question: it neither answers that nor is it for the agent.
                self.screen.note("nothing is asked yet")
            elif line:
                await self.chat.steer(interaction_id, line)
        except TealServerError as error:
            self._print_refusal(error)
            # Not lost: it is at the next prompt.
            self._unsaid = "\n".join(filter(None, (self._unsaid, line)))
        except ClientError as error:
            self.screen.line(f"✗ {one_line(str(error))}", BAD)

    def say(self, message: str, items: Sequence[dict[str, Any]] = ()) -> None:
        """With what was attached before. It is attached to one message only."""
        options: MessageOptions = {"agent": self.agent} if self.agent else {}
        if attached := [*self.items, *items]:
            options["items"] = attached
            self.items = []
        self.run_interaction(self.chat.say(message, **options))

    def _handle(self, typed: str) -> None:
        try:
            if typed.startswith("/"):
                _run_command(self, typed)
            else:
                self._say_with_files(typed)
        except TealServerError as error:
            self._print_refusal(error)
        except (ClientError, ValueError) as error:
            self.screen.line(f"✗ {one_line(str(error))}", BAD)
        except EOFError:
            self.is_over = True
        except KeyboardInterrupt:
            self.screen.line()

    def _say_with_files(self, message: str) -> None:
        """Send it with the files that it names."""
        paths = mentioned_files(message)
        if paths:
            self.screen.note(f"with {', '.join(one_line(path.name) for path in paths)}")
        for name in missing_files(message):
            self.screen.note(f"there is no file {one_line(name)}; it is sent as a word")
        self.say(message, read_items(paths))

    def _chosen_chat(self) -> str | None:
        """One of the last chats; `None` for a new one."""
        chats = self.last_chats()
        if not chats:
            self.screen.note("there is no chat yet")
            return None
        print_chats(self.screen, chats)
        while True:
            try:
                typed = self.keyboard.answer("Which one? (empty: a new chat) ").strip()
            except (EOFError, KeyboardInterrupt):
                self.is_over = True
                return None
            if not typed:
                return None
            if typed.isdecimal() and 1 <= int(typed) <= len(chats):
                return chats[int(typed) - 1].id

    def last_chats(self, text: str | None = None) -> list[ChatSummary]:
        async def read() -> list[ChatSummary]:
            found: list[ChatSummary] = []
            async with aclosing(self.client.chats(text)) as chats:
                async for chat in chats:
                    found.append(chat)
                    if len(found) == MOST_LISTED:
                        break
            return found

        return self.wait(read())

    def resume(self, chat_id: str) -> None:
        """Show the last messages of a chat, then read on what runs or waits in it."""
        self.chat = self.client.chat(chat_id)
        try:
            history = self.wait(self.chat.history(state=False))
        except TealServerError as error:
            if error.status != 404:
                raise
            self.screen.line(f"A new chat: {self.chat.id}", DIM)
            return
        still_open = {"RUNNING", "WAITING_APPROVAL"}
        for interaction in [i for i in history.interactions if i.status not in still_open][-TAIL:]:
            print_past(self.screen, interaction)
        for interaction in history.interactions:
            if interaction.status in still_open:
                self.screen.line(f"> {interaction.user_message}")
                self.run_interaction(self.chat.watch(interaction.id))

    def _ask_all(self, reader: InteractionReader) -> None:
        for approval in reader.open_approvals:
            shown = self._as_it_stands(approval)
            print_approval(self.screen, shown)
            if isinstance(shown, PendingApproval) and shown.may_decide is False:
                self.screen.note("others decide; Ctrl-C cancels the run")
                reader.mark_decided(approval)
                continue
            if shown.sign_in is not None:
                self._send_to_sign_in(approval.approval_id, shown.sign_in)
                reader.mark_decided(approval)
                continue
            while True:
                decision = self._prompt.ask(approval)
                if decision is None or self._decide(approval, decision):
                    break
            reader.mark_decided(approval)

    def _send_to_sign_in(self, approval_id: str, server: str) -> None:
        """The user signs in in a browser; the interaction goes on by itself."""
        agent = self.wait(self.client.approval(approval_id)).agent
        link = self.wait(self.client.begin_sign_in(server, agent=agent or self.agent))
        self.screen.line(f"Open this address to sign in to {one_line(server)}:")
        self.screen.line(one_line(link.url))
        self.screen.note("it goes on by itself then; Ctrl-C cancels the run")

    def _as_it_stands(self, approval: ApprovalRequired) -> ApprovalRequired | PendingApproval:
        """With its late result, or with whether this user is one of those who decide."""
        if approval.kind != "outcome_unknown" and approval.review is None:
            return approval
        try:
            return self.wait(self.client.approval(approval.approval_id))
        except TealServerError:
            return approval

    def _decide(self, approval: ApprovalRequired, decision: UserDecision) -> bool:
        """False if the user must be asked again."""
        decide = self.chat.approve if decision.approved else self.chat.reject
        try:
            self.wait(decide(approval, **decision.verdict))
        except TealServerError as error:
            self._print_refusal(error)
            return error.status not in UNACCEPTABLE
        return True

    def _stop(self, reader: InteractionReader) -> None:
        """After Ctrl-C at a question: cancel the interaction, and print its end."""
        self.screen.line()
        if not reader.reply.interaction_id:
            return
        self.wait(reader.stop())
        for approval in reader.open_approvals:
            reader.mark_decided(approval)
        with suppress(UserLeft):
            self._runner.run(reader.read_on())

    def _print_stopping(self) -> None:
        self.screen.note("stopping; Ctrl-C again leaves at once")

    def _print_refusal(self, error: TealServerError) -> None:
        self.screen.line(f"✗ {one_line(error.detail)} ({error.code})", BAD)


def new_chat_id() -> str:
    return f"chat_{uuid4().hex}"


def _run_command(session: ChatSession, typed: str) -> None:
    """Raises ClientError: the server refused."""
    name, _, rest = typed[1:].partition(" ")
    command = COMMANDS.get(name.lower())
    if command is None:
        session.screen.line(f"There is no /{one_line(name)}; /help lists the commands.", BAD)
        return
    command.run(session, rest.strip())


def print_chats(screen: Screen, chats: Sequence[ChatSummary]) -> None:
    screen.table(
        ["", "title", "agent", "status", "changed"],
        [
            *(
                [str(number), chat.title or chat.id, chat.agent, chat.status, chat.updated_at[:16]]
                for number, chat in enumerate(chats, 1)
            )
        ],
    )


def _completions(word: str) -> list[str]:
    """What Tab offers: commands after `/`, files after `@`."""
    if word.startswith("/"):
        return [f"/{name} " for name in COMMANDS if f"/{name}".startswith(word)]
    if word.startswith("@"):
        return [f"@{path}" for path in _paths(word[1:])]
    return []


def _paths(start: str) -> list[str]:
    folder, _, name = start.rpartition("/")
    place = Path(f"{folder}/" if "/" in start else ".").expanduser()
    try:
        found = sorted(path for path in place.iterdir() if path.name.startswith(name))
    except OSError:
        return []
    prefix = f"{folder}/" if "/" in start else ""
    return [f"{prefix}{path.name}{'/' if path.is_dir() else ' '}" for path in found]


def _help(session: ChatSession, rest: str) -> None:
    session.screen.table(
        ["command", ""], [[command.form, command.help] for command in COMMANDS.values()]
    )


def _history(session: ChatSession, rest: str) -> None:
    count = int(rest) if rest.isdecimal() else None
    interactions = session.wait(session.chat.history(state=False)).interactions
    for interaction in interactions if count is None else interactions[-count:]:
        print_past(session.screen, interaction)


def _edit(session: ChatSession, rest: str) -> None:
    last = _last(session)
    if last is None:
        return
    message = rest or session.keyboard.line("new message: ", last.user_message).strip()
    if not message:
        session.screen.note("nothing was changed")
        return
    session.run_interaction(session.chat.edit(last.id, message))


def _regenerate(session: ChatSession, rest: str) -> None:
    last = _last(session)
    if last is not None:
        session.run_interaction(session.chat.regenerate(last.id))


def _branches(session: ChatSession, rest: str) -> None:
    branches = session.wait(session.chat.branches()).branches
    if not rest:
        session.screen.table(
            ["", "message", "status", "shown"],
            [
                [
                    str(number),
                    each.user_message[:EXCERPT],
                    each.status,
                    "yes" if each.visible else "",
                ]
                for number, each in enumerate(branches, 1)
            ],
        )
        session.screen.line("/branches N shows the branch that message N is on.", DIM)
        return
    number = int(rest) if rest.isdecimal() else 0
    if not 1 <= number <= len(branches):
        session.screen.line("There is no message with this number; /branches lists them.", BAD)
        return
    session.wait(session.chat.switch(branches[number - 1].interaction_id))
    _history(session, "")


def _branch(session: ChatSession, rest: str) -> None:
    """Say something else in the place of an earlier message."""
    first, _, message = rest.partition(" ")
    number = int(first) if first.isdecimal() else 0
    branches = session.wait(session.chat.branches()).branches
    if not 1 <= number <= len(branches):
        session.screen.line("/branch N TEXT needs a message's number; see /branches.", BAD)
        return
    chosen = branches[number - 1]
    text = message.strip() or session.keyboard.line("new message: ", chosen.user_message).strip()
    if text:
        session.run_interaction(session.chat.edit(chosen.interaction_id, text))


def _chats(session: ChatSession, rest: str) -> None:
    """Without a number, a list; with one, that chat is continued."""
    chats = session.last_chats(None if rest.isdecimal() else rest or None)
    if not rest.isdecimal():
        print_chats(session.screen, chats)
        session.screen.line("/chats N continues one of the last chats.", DIM)
    elif 1 <= int(rest) <= len(chats):
        session.resume(chats[int(rest) - 1].id)
    else:
        session.screen.line("There is no chat with this number; /chats lists them.", BAD)


def _cost(session: ChatSession, rest: str) -> None:
    """Of all branches: what was replaced has cost something, too."""

    async def read() -> list[Interaction]:
        return [one async for one in session.chat.interactions(superseded=True)]

    all_of_them = session.wait(read())
    usage = UsageView(
        prompt_tokens=sum(one.usage.prompt_tokens for one in all_of_them),
        completion_tokens=sum(one.usage.completion_tokens for one in all_of_them),
    )
    count = f"{len(all_of_them)} message{'' if len(all_of_them) == 1 else 's'}"
    session.screen.line(f"{count}: {usage_text(usage, [one.cost for one in all_of_them])}")


def _model(session: ChatSession, rest: str) -> None:
    """Models belong to agents: choosing a model chooses an agent that has it."""
    if not rest:
        _agent(session, "")
        return
    named = [agent.name for agent in session.agents if agent.model == rest]
    if not named:
        session.screen.line("No agent has this model; /model lists them.", BAD)
        return
    _agent(session, named[0])


def _agent(session: ChatSession, rest: str) -> None:
    if not rest:
        rows = [
            [agent.name, agent.model or "", agent.description or ""] for agent in session.agents
        ]
        session.screen.table(["agent", "model", "description"], rows)
        return
    if rest not in {agent.name for agent in session.agents}:
        session.screen.line("There is no agent with this name; /agent lists them.", BAD)
        return
    session.agent = rest
    session.screen.note(f"{rest} answers from now on")


def _title(session: ChatSession, rest: str) -> None:
    if rest:
        session.wait(session.chat.rename(rest))
    title = session.wait(session.chat.history(state=False)).title
    session.screen.line(f"Title: {one_line(title or '')}")


def _new(session: ChatSession, rest: str) -> None:
    session.chat = session.client.chat(new_chat_id())
    session.screen.line(f"A new chat: {session.chat.id}", DIM)


def _prompt(session: ChatSession, rest: str) -> None:
    """List the prompts of the agent's MCP servers, or fill one in and say it."""
    known = session.wait(session.client.prompts(session.agent))
    server, _, rest = rest.partition(" ")
    name, _, given = rest.strip().partition(" ")
    if not name:
        session.screen.table(
            ["server", "prompt", "arguments", "description"],
            [
                [
                    one.server,
                    one.name,
                    " ".join(f"{a.name}{'' if a.required else '?'}" for a in one.arguments),
                    one.description or one.title or "",
                ]
                for one in known.prompts
            ],
        )
        _print_unavailable(session, known.unavailable)
        session.screen.line("/prompt SERVER PROMPT [ARGUMENT=VALUE ...] says one.", DIM)
        return
    prompt = next((p for p in known.prompts if (p.server, p.name) == (server, name)), None)
    if prompt is None:
        session.screen.line("There is no such prompt; /prompt lists them.", BAD)
        return
    arguments = dict(_pair(word) for word in shlex.split(given))
    for argument in prompt.arguments:
        if argument.required and argument.name not in arguments:
            about = f" ({one_line(argument.description)})" if argument.description else ""
            typed = session.keyboard.answer(f"{one_line(argument.name)}{about}: ")
            arguments[argument.name] = typed.strip()
    filled = session.wait(session.client.fill_prompt(server, name, arguments, agent=session.agent))
    session.screen.line(f"> {filled.user_message}")
    session.say(filled.user_message, [item.model_dump() for item in filled.items])


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals:
        raise ValueError(f"{word}: write ARGUMENT=VALUE, a value with spaces in quotes")
    return name, value


def _resource(session: ChatSession, rest: str) -> None:
    """List what the agent's MCP servers have to read, or attach something of it."""
    server, _, uri = rest.partition(" ")
    if not uri.strip():
        known = session.wait(session.client.resources(session.agent))
        rows = [[r.server, r.uri, r.title or r.name, r.mime_type or ""] for r in known.resources]
        rows += [
            [t.server, t.uri_template, t.title or t.name, t.mime_type or ""]
            for t in known.templates
        ]
        session.screen.table(["server", "address", "name", "type"], rows)
        _print_unavailable(session, known.unavailable)
        session.screen.line("/resource SERVER ADDRESS attaches one to your next message.", DIM)
        return
    read = session.wait(session.client.read_resource(server, uri.strip(), agent=session.agent))
    session.items += [item.model_dump() for item in read.items]
    session.screen.note(f"attached to your next message: {one_line(uri.strip())}")


def _print_unavailable(session: ChatSession, servers: Sequence[UnavailableServer]) -> None:
    for one in servers:
        session.screen.line(f"✗ {one_line(one.server)}: {one_line(one.reason)}", BAD)


def _stop(session: ChatSession, rest: str) -> None:
    session.screen.note("nothing is at work; type /stop while the agent works")


def _quit(session: ChatSession, rest: str) -> None:
    session.is_over = True


def _last(session: ChatSession) -> Interaction | None:
    interactions = session.wait(session.chat.history(state=False)).interactions
    if not interactions:
        session.screen.note("this chat has no messages yet")
        return None
    return interactions[-1]


@dataclass(frozen=True, slots=True)
class Command:
    run: Callable[[ChatSession, str], None]
    form: str
    help: str


COMMANDS: Mapping[str, Command] = {
    "help": Command(_help, "/help", "show this list"),
    "history": Command(_history, "/history [N]", "show all messages, or the last N"),
    "edit": Command(_edit, "/edit [TEXT]", "replace your last message"),
    "regenerate": Command(_regenerate, "/regenerate", "get a new answer to your last message"),
    "branches": Command(_branches, "/branches [N]", "list all messages, also edited ones; show N"),
    "branch": Command(_branch, "/branch N [TEXT]", "say something else in the place of message N"),
    "agent": Command(_agent, "/agent [NAME]", "list the agents, or choose the one that answers"),
    "prompt": Command(
        _prompt, "/prompt [SERVER PROMPT ...]", "list prompts of MCP servers, or say one"
    ),
    "resource": Command(
        _resource, "/resource [SERVER ADDRESS]", "list what MCP servers have, or attach it"
    ),
    "model": Command(_model, "/model [NAME]", "list the models, or choose an agent by its model"),
    "cost": Command(_cost, "/cost", "show what this chat has used"),
    "chats": Command(_chats, "/chats [N|TEXT]", "list the last chats, find some, continue one"),
    "title": Command(_title, "/title [TEXT]", "show or change the chat's title"),
    "stop": Command(_stop, STOP, "while the agent works: stop it after this step"),
    "new": Command(_new, "/new", "begin a new chat"),
    "quit": Command(_quit, "/quit", "leave; a running answer is not lost"),
}
