"""The commands inside a chat: `/help` and its siblings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sk_agents.cli.neutral import one_line
from sk_agents.cli.screen import BAD, DIM, NOTE
from sk_agents.cli.telling import tell_past
from sk_agents.client import Interaction

if TYPE_CHECKING:
    from sk_agents.cli.session import Session

EXCERPT = 60


@dataclass(frozen=True, slots=True)
class Command:
    run: Callable[[Session, str], None]
    form: str
    help: str


def run_command(session: Session, typed: str) -> None:
    """Raises ClientError: the server refused."""
    name, _, rest = typed[1:].partition(" ")
    command = COMMANDS.get(name.lower())
    if command is None:
        session.screen.line(f"There is no /{one_line(name)}; /help lists what there is.", BAD)
        return
    command.run(session, rest.strip())


def _help(session: Session, rest: str) -> None:
    session.screen.table(
        ["command", ""], [[command.form, command.help] for command in COMMANDS.values()]
    )


def _history(session: Session, rest: str) -> None:
    count = int(rest) if rest.isdecimal() else None
    interactions = session.wait(session.chat.history(state=False)).interactions
    for interaction in interactions if count is None else interactions[-count:]:
        tell_past(session.screen, interaction)


def _edit(session: Session, rest: str) -> None:
    last = _last(session)
    if last is None:
        return
    message = rest or session.keyboard.line("new message: ", last.user_message).strip()
    if not message:
        session.screen.line("(nothing was changed)", NOTE)
        return
    session.play(session.chat.edit(last.id, message))


def _regenerate(session: Session, rest: str) -> None:
    last = _last(session)
    if last is not None:
        session.play(session.chat.regenerate(last.id))


def _branches(session: Session, rest: str) -> None:
    known = session.wait(session.chat.branches())
    if not rest:
        session.screen.table(
            ["", "message", "status", "shown"],
            [
                [
                    str(number),
                    branch.user_message[:EXCERPT],
                    branch.status,
                    "yes" if branch.visible else "",
                ]
                for number, branch in enumerate(known.branches, 1)
            ],
        )
        session.screen.line("/branches N shows the branch that message N is on.", DIM)
        return
    number = int(rest) if rest.isdecimal() else 0
    if not 1 <= number <= len(known.branches):
        session.screen.line("There is no message of this number; /branches lists them.", BAD)
        return
    session.wait(session.chat.switch(known.branches[number - 1].interaction_id))
    _history(session, "")


def _agent(session: Session, rest: str) -> None:
    if not rest:
        rows = [
            [agent.name, agent.model or "", agent.description or ""] for agent in session.agents
        ]
        session.screen.table(["agent", "model", "description"], rows)
        return
    if rest not in {agent.name for agent in session.agents}:
        session.screen.line("There is no agent of this name; /agent lists them.", BAD)
        return
    session.agent = rest
    session.screen.line(f"({rest} answers from now on)", NOTE)


def _title(session: Session, rest: str) -> None:
    if rest:
        session.wait(session.chat.rename(rest))
    title = session.wait(session.chat.history(state=False)).title
    session.screen.line(f"Title: {one_line(title or '')}")


def _new(session: Session, rest: str) -> None:
    session.start_anew()
    session.screen.line(f"A new chat: {session.chat.id}", DIM)


def _quit(session: Session, rest: str) -> None:
    session.is_over = True


def _last(session: Session) -> Interaction | None:
    interactions = session.wait(session.chat.history(state=False)).interactions
    if not interactions:
        session.screen.line("(nothing was said yet)", NOTE)
        return None
    return interactions[-1]


COMMANDS: Mapping[str, Command] = {
    "help": Command(_help, "/help", "this list"),
    "history": Command(_history, "/history [N]", "what was said, or its last N messages"),
    "edit": Command(_edit, "/edit [TEXT]", "say something else instead of your last message"),
    "regenerate": Command(_regenerate, "/regenerate", "have your last message answered anew"),
    "branches": Command(_branches, "/branches [N]", "all messages, also edited ones; show one"),
    "agent": Command(_agent, "/agent [NAME]", "the agents; who answers from now on"),
    "title": Command(_title, "/title [TEXT]", "the chat's title; change it"),
    "new": Command(_new, "/new", "begin a new chat"),
    "quit": Command(_quit, "/quit", "leave; a running answer is not lost"),
}
