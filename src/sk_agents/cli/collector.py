"""Python's garbage collector, set for a server: what was loaded at start is never looked at again.

A turn leaves no cycles behind, so there is little to find and no hurry to look for it.
"""

from __future__ import annotations

import gc

# Allocations before the youngest generation is looked at; Python's default is 700.
YOUNGEST = 20_000


def calm_collector() -> None:
    """Call once, when everything is loaded."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNGEST, 20, 20)
