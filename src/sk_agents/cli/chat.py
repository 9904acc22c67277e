"""`teal chat`: options and help; what it does is in `session` and `once`."""

from __future__ import annotations

import sys
from typing import Annotated, Literal, NoReturn

import typer

from sk_agents.cli.options import Json, Target, on_server

Answers = Literal["approve", "reject", "none"]
Output = Literal["text", "json", "events"]
CHAT_HELP = """Talk with an agent: stream its answer, decide about its tool calls.

    CHAT_ID goes on with a chat, also where it waits for you; without it a new one begins.
    Ctrl-C stops the answer, Ctrl-D leaves. With -m nobody is asked: one message is sent and the
    answer alone is printed.

    \b
    Examples:
      teal chat
      teal chat --agent assistant --fold-thinking
      teal chat chat_123 --server https://agents.example.org
      teal chat -m "What time is it?"
      cat letter.txt | teal chat -m - --json
      teal chat -m "Send a postcard to Ada" --yes

    \b
    Exit codes: 0 answered or left, 1 failed, cancelled or refused, 2 bad usage, 3 (with -m)
    waits for an approval, 69 no server at this address, 130 (with -m) interrupted.
    """


ChatId = Annotated[str | None, typer.Argument(metavar="CHAT_ID", help="A chat to go on with.")]
Message = Annotated[
    str | None,
    typer.Option("--message", "-m", metavar="TEXT", help="Say this only; - reads it."),
]
Agent = Annotated[
    str | None, typer.Option(metavar="NAME", help="Who answers; teal agents lists them.")
]
Fold = Annotated[bool, typer.Option("--fold-thinking", help="Show thoughts as one line.")]
Yes = Annotated[bool, typer.Option("--yes", help="With -m: approve every call that asks.")]
No = Annotated[bool, typer.Option("--no-approvals", help="With -m: reject every call that asks.")]
Events = Annotated[
    bool, typer.Option("--events", help="With -m: print each event as a line of JSON.")
]


@on_server
def chat(
    target: Target,
    chat_id: ChatId = None,
    message: Message = None,
    agent: Agent = None,
    fold_thinking: Fold = False,
    yes: Yes = False,
    no_approvals: No = False,
    as_json: Json = False,
    events: Events = False,
) -> None:
    if (yes and no_approvals) or (as_json and events):
        raise typer.BadParameter("--yes and --no-approvals, --json and --events exclude each other")
    if message is None:
        if yes or no_approvals or as_json or events:
            raise typer.BadParameter("--yes, --no-approvals, --json and --events need -m")
        _talk(target, chat_id, agent, fold_thinking)
    answers: Answers = "approve" if yes else "reject" if no_approvals else "none"
    output: Output = "json" if as_json else "events" if events else "text"
    # The client and what it needs take most of a start; --help does without them.
    from sk_agents.cli.once import ask_once  # noqa: PLC0415

    code = ask_once(target, chat_id, message, agent=agent, answers=answers, output=output)
    raise typer.Exit(code)


def _talk(target: Target, chat_id: str | None, agent: str | None, fold_thinking: bool) -> NoReturn:
    if not sys.stdin.isatty():
        raise typer.BadParameter("there is no terminal to talk at; -m TEXT or -m - sends a message")
    # As above.
    from sk_agents.cli.session import talk  # noqa: PLC0415

    raise typer.Exit(talk(target, chat_id, agent, fold_thinking=fold_thinking))
