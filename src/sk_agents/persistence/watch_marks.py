"""What a mark says that somebody reads a run: when that was, by a clock that starts with the host.

Marks are hints and never part of a log. A store may drop one as soon as it says nothing any more.
"""

from __future__ import annotations

# Far longer than anybody waits for a reader to come back.
KEPT_SECONDS = 3_600.0
# Processes read the clock before they get to write; a mark further ahead is of an earlier boot.
AHEAD_SECONDS = 60.0


def age(marked_at: float, now: float) -> float | None:
    """Seconds since the mark, or `None` if it says nothing."""
    if now - KEPT_SECONDS <= marked_at <= now + AHEAD_SECONDS:
        return max(0.0, now - marked_at)
    return None
