"""From rows to the engine's nouns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import Any

from sk_agents.engine.models import Entry


def entry(row: Sequence[Any]) -> Entry:
    kind, key, thread_id, user_id, run_id, is_open, due_at = row
    due = due_at.astimezone(UTC) if due_at is not None else None
    return Entry(kind, key, thread_id, user_id, run_id, is_open, due)
