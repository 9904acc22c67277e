"""Everything an approval is bound to, changed one by one after a person was asked.

`expected` is what becomes of a yes to what was asked before the change: it is refused with a code,
or it is taken and then not enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sk_agents.engine.log.canonical import approval_digest
from tests.chaos.engine_process import USER
from tests.chaos.tampering import StoredThread

ASKED_ANEW = "asked anew"
NO_SUCH_TOOL = "no such tool"
FAILED = "failed"
MISMATCH = "approval_mismatch"
NOT_FOUND = "approval_not_found"
EXPIRED = "approval_expired"
CORRUPT = "state_corrupt"
INVALID = "invalid_input"
MALLORY = "mallory"

Change = Callable[[StoredThread], None]


@dataclass(frozen=True, slots=True)
class Mutation:
    change: Change
    expected: tuple[str, ...] = (ASKED_ANEW,)
    decided_by: str = USER


def _arguments(stored: StoredThread) -> list[dict[str, Any]]:
    return [stored.proposed["arguments"], stored.asked["shown"]["arguments"]]


def put(*path: str | int, value: Any) -> Change:
    """Where it is kept to be run and where it was kept to be shown: only the digest can tell."""

    def change(stored: StoredThread) -> None:
        for place in _arguments(stored):
            holder: Any = place
            for step in path[:-1]:
                holder = holder[step]
            holder[path[-1]] = value

    return change


def drop(*path: str | int) -> Change:
    def change(stored: StoredThread) -> None:
        for place in _arguments(stored):
            holder: Any = place
            for step in path[:-1]:
                holder = holder[step]
            del holder[path[-1]]

    return change


def proposed(**fields: Any) -> Change:
    return lambda stored: stored.proposed.update(fields)


def asked(**fields: Any) -> Change:
    return lambda stored: stored.asked.update(fields)


def shown(**fields: Any) -> Change:
    return lambda stored: stored.asked["shown"].update(fields)


def row(**fields: Any) -> Change:
    return lambda stored: stored.approval.update(fields)


def head(**fields: Any) -> Change:
    return lambda stored: stored.head.update(fields)


def both(*changes: Change) -> Change:
    def change(stored: StoredThread) -> None:
        for one in changes:
            one(stored)

    return change


def all_arguments_gone(stored: StoredThread) -> None:
    for arguments in _arguments(stored):
        arguments.clear()


def key_renamed(stored: StoredThread) -> None:
    for arguments in _arguments(stored):
        arguments["To"] = arguments.pop("to")


def lines_reversed(stored: StoredThread) -> None:
    for arguments in _arguments(stored):
        arguments["lines"].reverse()


def last_line_twice(stored: StoredThread) -> None:
    for arguments in _arguments(stored):
        arguments["lines"].append(arguments["lines"][-1])


def digest_forged(stored: StoredThread) -> None:
    """Whoever changes the arguments may compute the digest of what they made of them."""
    put("amount", value=1)(stored)
    proposal = stored.proposed
    stored.asked["digest"] = approval_digest(
        thread_id=stored.thread_id,
        run_id=stored.run_id,
        call_id=proposal["call_id"],
        tool=f"{proposal['plugin_name']}-{proposal['function_name']}",
        definition_digest=proposal["definition_digest"],
        arguments=proposal["arguments"],
    )


def digest_respelled(stored: StoredThread) -> None:
    stored.asked["digest"] = stored.asked["digest"].upper()


def another_call(stored: StoredThread) -> None:
    stored.proposed["call_id"] = stored.asked["call_id"] = "call_other"


def another_run(stored: StoredThread) -> None:
    run_id = f"{stored.run_id}-other"
    for event in stored.events:
        event["run_id"] = run_id
    stored.head.update(active_run=run_id, head_run=run_id)
    stored.approval["run_id"] = run_id


def another_thread(stored: StoredThread) -> None:
    stored.thread_id = stored.head["thread_id"] = f"{stored.thread_id}-other"


def never_asked(stored: StoredThread) -> None:
    event = stored.asked
    run_id = event["run_id"]
    event.clear()
    event.update(type="thinking", run_id=run_id, round=1, content="")


NOW = datetime.now(UTC)
PAST = (NOW - timedelta(hours=1)).isoformat()
LATER = (NOW + timedelta(days=365)).isoformat()

ARGUMENTS: dict[str, Change] = {
    "another text": put("to", value="Zo\u00eb Miller \U0001f701"),
    "a text in another normal form": put("to", value="Zoe\u0308 M\u00fcller \U0001f701"),
    "a text with another letter that looks the same": put(
        "to", value="Zo\u00eb \u041c\u00fcller \U0001f701"
    ),
    "a text with an invisible letter": put("to", value="Zo\u00eb M\u00fcller \U0001f701\u200b"),
    "another sign of the astral planes": put("to", value="Zo\u00eb M\u00fcller \U0001f702"),
    "a blank for nothing": put("remark", value=" "),
    "another number": put("amount", value=1251),
    "a broken number": put("amount", value=1250.5),
    "a negative number": put("amount", value=-1250),
    "a number as text": put("amount", value="1250"),
    "a number too large for its kind": put("amount", value=1250 * 10**30),
    "a number in a list": put("amount", value=[1250]),
    "the next double": put("rate", value=0.10000000000000002),
    "an id that is the same double": put("account", value=9007199254740992),
    "zero for false": put("hold", value=0),
    "one for true": put("urgent", value=1),
    "false for null": put("note", value=False),
    "an empty text for null": put("note", value=""),
    "null dropped": drop("note"),
    "a member dropped": drop("amount"),
    "a member added": put("bcc", value="mallory"),
    "a member renamed": key_renamed,
    "a leaf in a list": put("lines", 0, "count", value=4),
    "a leaf of a list in a list": put("lines", 0, "tags", 1, value="c"),
    "a list in another order": lines_reversed,
    "an item dropped": drop("lines", 1),
    "an item repeated": last_line_twice,
    "a leaf three levels deep": put("terms", "net", "days", value=31),
    "a level dropped": put("terms", value={"days": 30, "from": "2026-01-31"}),
    "an object for a list": put("copies", value={}),
    "null for an object": put("extras", value=None),
    "all arguments gone": all_arguments_gone,
}

MUTATIONS: dict[str, Mutation] = {
    **{name: Mutation(change) for name, change in ARGUMENTS.items()},
    "a number that is none": Mutation(put("amount", value=float("nan")), (FAILED,)),
    "what runs, not what was shown": Mutation(proposed(arguments={"hold": False})),
    "another tool": Mutation(
        both(proposed(function_name="seal"), shown(tool_name="Ledger-seal")),
    ),
    "another tool than was shown": Mutation(proposed(function_name="seal")),
    "another plugin": Mutation(
        both(proposed(plugin_name="Other"), shown(tool_name="Other-sign")), (NO_SUCH_TOOL,)
    ),
    "the arguments shown": Mutation(shown(arguments={"hold": False})),
    "true shown as one": Mutation(
        lambda stored: stored.asked["shown"]["arguments"].update(urgent=1)
    ),
    "the tool shown": Mutation(shown(tool_name="Ledger-seal")),
    "nothing shown": Mutation(asked(shown={})),
    "a sign-in for a call": Mutation(asked(kind="auth"), (INVALID,)),
    "a question for a call": Mutation(asked(kind="question"), (INVALID,)),
    "an outcome for a call": Mutation(asked(kind="outcome_unknown"), (INVALID,)),
    "no digest": Mutation(asked(digest=""), (MISMATCH,)),
    "another digest": Mutation(asked(digest="0" * 64), (MISMATCH,)),
    "the digest in other letters": Mutation(digest_respelled, (MISMATCH,)),
    "another call with its digest": Mutation(digest_forged, (MISMATCH,)),
    "another call": Mutation(another_call),
    "another call than was proposed": Mutation(asked(call_id="call_other"), (CORRUPT,)),
    "another run": Mutation(another_run),
    "another run than was started": Mutation(asked(run_id="other"), (CORRUPT,)),
    "another run in the index": Mutation(row(run_id="other"), (NOT_FOUND,)),
    "another thread": Mutation(another_thread),
    "another approval": Mutation(asked(approval_id="approval_other"), (NOT_FOUND,)),
    "another approval in the index": Mutation(row(key="approval_indexed"), (NOT_FOUND,)),
    "never asked": Mutation(never_asked, (NOT_FOUND,)),
    "another user of the thread": Mutation(head(user_id=MALLORY), (CORRUPT,)),
    "another user of the approval": Mutation(row(user_id=MALLORY), (NOT_FOUND,)),
    "another user of the approval, who decides": Mutation(
        row(user_id=MALLORY), (NOT_FOUND,), decided_by=MALLORY
    ),
    "an end that has passed": Mutation(asked(expires_at=PAST), (MISMATCH,)),
    "a later end": Mutation(asked(expires_at=LATER), (MISMATCH,)),
    "no end": Mutation(lambda stored: stored.asked.pop("expires_at"), (MISMATCH,)),
    "an end that has passed in the index": Mutation(row(due_at=PAST), (MISMATCH, EXPIRED)),
    "a later end in the index": Mutation(row(due_at=LATER), (MISMATCH,)),
    "no end in the index": Mutation(row(due_at=None), (MISMATCH,)),
}


def untouched(stored: StoredThread) -> None:
    pass


def respelled(stored: StoredThread) -> None:
    """The same values in other words: members in another order, white space, 1250.0."""
    stored.indent = 3
    for arguments in _arguments(stored):
        members = list(reversed(arguments.items()))
        arguments.clear()
        arguments.update(members)
        arguments["amount"] = 1250.0
