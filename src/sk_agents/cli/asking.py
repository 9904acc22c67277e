"""Asking a person about a call: what exactly would run, and what they say to it.

Deciding is not done here: the answer is a value, and what the server makes of it may lead to
another question.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sk_agents.cli.keyboard import Keyboard
from sk_agents.cli.neutral import one_line
from sk_agents.cli.screen import BAD, DIM, GOOD, NOTE, WARN, Screen
from sk_agents.cli.telling import pretty
from sk_agents.client import ApprovalRequired, PendingApproval
from sk_agents.client.decision import Choice, Verdict

CALL = ("yes", "no", "edit", "always")
UNKNOWN = ("done", "retry", "give up")
LENT = ("yes", "no", "wait")
CHOICES: dict[str, Choice] = {"d": "done", "r": "retry", "g": "give_up"}
DIGEST_LENGTH = 12
# More than a screen of a difference is for the page.
PREVIEW_LINES = 60
PREVIEW_STYLES = {"+": GOOD, "-": BAD}


@dataclass(frozen=True, slots=True)
class Decision:
    approved: bool
    verdict: Verdict = field(default_factory=Verdict)


def show(screen: Screen, approval: ApprovalRequired | PendingApproval) -> None:
    """Exactly what will run, and until when somebody may say so."""
    titles = {
        "tool": "wants to run",
        "outcome_unknown": "was cut off: nobody knows whether it took effect",
        "question": "asks",
        "auth": "acts in your name and needs your token again",
    }
    screen.line(f"⚠ {one_line(approval.tool_name)} {titles[approval.kind]}", WARN)
    for line in pretty(approval.tool_input).splitlines():
        screen.line(f"  {line}")
    _show_preview(screen, approval.preview or "")
    facts = [f"digest {approval.digest[:DIGEST_LENGTH]}"] if approval.digest else []
    if expiry := time_left(approval.expires_at):
        facts.append(expiry)
    if facts:
        screen.line(f"  {', '.join(facts)}", DIM)
    if isinstance(approval, PendingApproval) and approval.late_result is not None:
        screen.line(f"  its result came late: {one_line(approval.late_result)}", DIM)


def _show_preview(screen: Screen, difference: str) -> None:
    lines = difference.splitlines()
    for line in lines[:PREVIEW_LINES]:
        screen.line(f"  {line}", PREVIEW_STYLES.get(line[:1], DIM))
    if len(lines) > PREVIEW_LINES:
        screen.line(f"  ({len(lines) - PREVIEW_LINES} more lines would change)", NOTE)


class Asking:
    """The questions of one session. `None` as an answer: not decided now."""

    def __init__(self, screen: Screen, keyboard: Keyboard) -> None:
        self._screen = screen
        self._keyboard = keyboard

    def ask(self, approval: ApprovalRequired) -> Decision | None:
        match approval.kind:
            case "tool":
                return self._about_call(approval)
            case "outcome_unknown":
                key = self._key("What happened? [d]one / [r]etry / [g]ive up: ", UNKNOWN)
                return Decision(True, {"choice": CHOICES[key]})
            case "question":
                return self._question(approval)
            case "auth":
                key = self._key("Run it as you? [y]es / [n]o / [w]ait: ", LENT)
                return None if key == "w" else Decision(key == "y")

    def _about_call(self, approval: ApprovalRequired) -> Decision:
        while True:
            key = self._key("Run it? [y]es / [n]o / [e]dit / [a]lways in this chat: ", CALL)
            match key:
                case "y":
                    return Decision(True)
                case "a":
                    return Decision(True, {"remember": "thread"})
                case "n":
                    reason = self._line("Why not? (empty: no reason) ").strip()
                    return Decision(False, {"message": reason} if reason else {})
            if (arguments := self._edited(approval.tool_input)) is not None:
                return Decision(True, {"edited_arguments": arguments})

    def _edited(self, tool_input: str) -> dict[str, Any] | None:
        """Other arguments; `None` if they were left as they are or are no JSON object."""
        before = pretty(tool_input)
        try:
            text = self._keyboard.text("Arguments as JSON: ", before, suffix=".json")
            arguments = json.loads(text)
        except ValueError as error:
            self._screen.line(f"That is no JSON: {error}", BAD)
            return None
        except (OSError, subprocess.CalledProcessError) as error:
            self._screen.line(f"The editor failed: {error}", BAD)
            return None
        if not isinstance(arguments, dict):
            self._screen.line("Arguments are a JSON object.", BAD)
            return None
        if arguments == json.loads(before):
            self._screen.line("(nothing was changed)", NOTE)
            return None
        return arguments

    def _question(self, approval: ApprovalRequired) -> Decision:
        schema = approval.answer_schema or {}
        if schema:
            self._screen.line(f"  {json.dumps(schema, ensure_ascii=False)}", DIM)
        while True:
            text = self._line("Your answer (empty: none) ").strip()
            if not text:
                return Decision(False)
            if schema.get("type", "string") == "string":
                return Decision(True, {"answer": text})
            try:
                return Decision(True, {"answer": json.loads(text)})
            except ValueError as error:
                self._screen.line(f"That is no JSON: {error}", BAD)

    def _key(self, prompt: str, words: tuple[str, ...]) -> str:
        """The first letter of the chosen word. Whole sentences decide nothing."""
        while True:
            typed = self._line(prompt).strip().lower()
            for word in words:
                if typed in (word[0], word):
                    return word[0]

    def _line(self, prompt: str) -> str:
        self._screen.end_line()
        self._keyboard.discard_typed()
        typed = self._keyboard.line(prompt)
        if typed:
            self._keyboard.forget_last()
        return typed


def time_left(expires_at: str | None) -> str | None:
    if expires_at is None:
        return None
    try:
        seconds = (datetime.fromisoformat(expires_at) - datetime.now(UTC)).total_seconds()
    except (TypeError, ValueError):
        return None
    minutes = int(seconds // 60)
    if minutes < 0:
        return "expired"
    if minutes < 60:
        return f"expires in {minutes} min"
    return f"expires in {minutes // 60} h {minutes % 60} min"
