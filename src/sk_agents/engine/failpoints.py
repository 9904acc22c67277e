"""Named points where a test can stop, kill or fail the process; nothing at all otherwise.

`TEAL_FAILPOINT=tool_started:kill` arms one; the actions are `kill`, `stop` (SIGSTOP), `raise`,
`break` (the store) and `block` (until the process is killed). An optional third part fires only at
the n-th passing.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable

from sk_agents.exceptions import StoreBroken, TealError

# The steps of a turn, in their order.
TURN = (
    "run_requested",  # the request is parsed
    "run_committed",  # the message is stored, and the lease claimed in the same commit
    "run_announced",  # a reader has got the start
    "model_called",
    "model_streaming",
    "calls_proposed",
    "approval_requested",
    "approval_decided",
    "tool_started",  # its start is stored
    "tool_dispatched",
    "tool_effect_done",
    "tool_finished",  # its result is stored
    "result_announced",  # a reader has got the result
    "next_round",
    "before_answer",  # the answer is about to be stored
    "run_ended",  # the end is stored, with the answer in the same commit
    "end_announced",  # a reader has got the end
)
# And beside a turn: an orphan was just claimed, and any commit is about to be sent to the store.
POINTS = (*TURN, "edit_requested", "edit_committed", "claimed", "committing")

_ANNOUNCED = {
    "run_started": "run_announced",
    "tool_finished": "result_announced",
    "run_ended": "end_announced",
}

_armed, _, _action = os.environ.get("TEAL_FAILPOINT", "").partition(":")
_action, _, _nth = _action.partition(":")
_left = int(_nth or 1)
_lock = threading.Lock()


def failpoint(name: str) -> None:
    """Do what the environment asks for at this point, if it names it."""
    if name != _armed:
        return
    global _left
    with _lock:
        _left -= 1
        if _left:
            return
    match _action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "raise":
            raise TealError(f"failpoint {name}")
        case "break":
            raise StoreBroken
        case "block":
            threading.Event().wait()


def announced(items: Iterable[object]) -> None:
    """The points of what a reader has just been given."""
    if not _armed:
        return
    for item in items:
        failpoint(_ANNOUNCED.get(getattr(item, "type", ""), "no point"))
