"""Where a text was said in a chat, each place with the words around it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

from sk_agents.engine.log.state import Run, ThreadState
from sk_agents.wire.views import PassageView

AROUND = 60
# So many runs are searched before others get their turn.
AT_ONCE = 50


async def passages(state: ThreadState, text: str, limit: int) -> list[PassageView]:
    """At most `limit`, the newest first; what is shown before what was edited away."""
    visible = {run.run_id for run in state.branch()}
    runs = sorted(state.runs.values(), key=lambda run: (run.run_id in visible, run.first_seq))
    found: list[PassageView] = []
    for number, run in enumerate(reversed(runs), 1):
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
        for speaker, said in _said(run):
            if len(found) == limit:
                return found
            place = _place(said, text)
            if place is not None:
                found.append(_passage(run, speaker, said, place, run.run_id in visible))
    return found


def _said(run: Run) -> Iterator[tuple[str, str]]:
    if run.message is not None:
        yield "user", run.message.text
    for steering in run.steering:
        yield "user", steering.said.content
    for thought in run.thoughts:
        if thought.spoken:
            yield "agent", thought.content
    if run.last_words is not None:
        yield "agent", run.last_words


def _place(said: str, text: str) -> tuple[int, int] | None:
    """Without regard to case; in a few scripts a letter's other case has another length."""
    match = re.search(re.escape(text), said, re.IGNORECASE)
    if match is not None:
        return match.span()
    at = said.casefold().find(text.casefold())
    return (at, min(len(said), at + len(text))) if at >= 0 else None


def _passage(
    run: Run, speaker: str, said: str, place: tuple[int, int], visible: bool
) -> PassageView:
    start, end = place
    before, after = said[max(0, start - AROUND) : start], said[end : end + AROUND]
    return PassageView(
        interaction_id=run.run_id,
        speaker="user" if speaker == "user" else "agent",
        before=("…" if start > AROUND else "") + " ".join(before.split("\n")),
        match=said[start:end],
        after=" ".join(after.split("\n")) + ("…" if end + AROUND < len(said) else ""),
        visible=visible,
    )
