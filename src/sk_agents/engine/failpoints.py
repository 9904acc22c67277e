"""Named points where a test can stop, kill or fail the process; nothing at all otherwise.

`TEAL_FAILPOINT=tool_started:kill` arms one; the actions are `kill`, `stop` (SIGSTOP), `raise`,
`break` (the store) and `block` (until the process is killed). An optional third part fires only at
the n-th passing.
The steps of a turn:

    request parsed               run_requested
    lease claimed                run_committed: one commit with the next
    message stored               run_committed
    start announced              run_announced
    model called                 model_called
    model streaming              model_streaming
    call proposed                calls_proposed
    approval asked for           approval_requested
    decision stored              approval_decided
    tool's start stored          tool_started
    tool dispatched              tool_dispatched
    effect done                  tool_effect_done
    result stored                tool_finished
    result announced             result_announced
    next model round             next_round
    answer about to be stored    before_answer
    end stored                   run_ended: one commit with the answer
    end announced                end_announced

and beside a turn: edit_requested, edit_committed, claimed for an orphan just taken, and committing
before any commit is sent to the store.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable

from sk_agents.exceptions import StoreBroken, TealError

TURN = (
    "run_requested",
    "run_committed",
    "run_announced",
    "model_called",
    "model_streaming",
    "calls_proposed",
    "approval_requested",
    "approval_decided",
    "tool_started",
    "tool_dispatched",
    "tool_effect_done",
    "tool_finished",
    "result_announced",
    "next_round",
    "before_answer",
    "run_ended",
    "end_announced",
)
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
