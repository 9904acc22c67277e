"""Named points where a test can stop, kill or fail the process; nothing at all otherwise.

`TEAL_FAILPOINT=after_tool_started:kill` arms one; the actions are `kill`, `raise` and `block`
(until the process is killed). An optional third part fires only at the n-th passing.
"""

from __future__ import annotations

import os
import signal
import threading

from sk_agents.exceptions import TealError

POINTS = (
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
    "next_round",
    "before_answer",
    "run_ended",
    "edit_committed",
    "claimed",
)

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
        case "raise":
            raise TealError(f"failpoint {name}")
        case "block":
            threading.Event().wait()
