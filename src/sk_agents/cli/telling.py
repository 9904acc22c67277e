"""The events of an interaction, told on the screen as they come.

A preview is printed as it grows; the stored event that follows completes it, or shows the whole
text if something else was seen.
"""

from __future__ import annotations

import json
from typing import Literal

from sk_agents.cli.neutral import one_line
from sk_agents.cli.screen import BAD, DIM, GOOD, NOTE, STRONG, WARN, Screen
from sk_agents.client import (
    Answer,
    AnswerDelta,
    Answering,
    ApprovalRequired,
    Approved,
    Cancelled,
    Complete,
    Event,
    Failed,
    Interaction,
    Queued,
    Rejected,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolOutput,
    ToolResult,
)

Kind = Literal["answer", "thinking"]

STYLES: dict[Kind, str] = {"answer": "", "thinking": DIM}
MAX_RESULT_LINES = 20
MAX_RESULT_CHARS = 4000


class Teller:
    """`fold_thinking` tells a thought as one line; long results are cut unless `whole_results`."""

    def __init__(
        self, screen: Screen, *, fold_thinking: bool = False, whole_results: bool = False
    ) -> None:
        self._screen = screen
        self._fold = fold_thinking
        self._whole = whole_results
        self._answering = Answering()
        self._shown: dict[Kind, str] = {"answer": "", "thinking": ""}
        self._open: Kind | None = None
        self._outputs: dict[str, str] = {}

    def tell(self, event: Event) -> None:
        self._answering.add(event)
        match event:
            case AnswerDelta():
                self._grow("answer", self._answering.text)
            case ThinkingDelta() if not self._fold:
                self._grow("thinking", self._answering.thinking)
            case Thinking():
                self._thought(event.content)
            case Answer():
                self._settle("answer", event.content)
            case ToolCall() | ToolOutput() | ToolResult():
                self._tell_tool(event)
            case ApprovalRequired():
                self._forget()
            case Approved() | Rejected():
                self._decided(event)
            case Queued():
                self._note(f"waits for its turn, number {event.position}")
            case Cancelled():
                self._note("cancelled")
            case Failed():
                self._screen.line(f"✗ {one_line(event.message or event.code)}", BAD)
                self._screen.line(f"  {event.code} {event.correlation_id or ''}".rstrip(), DIM)
            case Complete():
                self._screen.end_line()
            case _:
                pass

    def _tell_tool(self, event: ToolCall | ToolOutput | ToolResult) -> None:
        match event:
            case ToolCall():
                self._forget()
                self._screen.line(f"→ {one_line(event.tool_name)}", STRONG)
                self._indented(pretty(event.tool_input), DIM)
            case ToolOutput():
                self._outputs[event.call_id] = self._outputs.get(event.call_id, "") + event.chunk
                self._screen.write(event.chunk, DIM)
            case ToolResult():
                seen = self._outputs.pop(event.id, "")
                self._screen.line(f"← {one_line(event.tool_name)}", STRONG)
                if not seen or seen != event.tool_output:
                    output = event.tool_output
                    self._indented(output if self._whole else shortened(output), DIM)

    def _grow(self, kind: Kind, text: str) -> None:
        if self._open != kind:
            self._screen.end_line()
            self._open = kind
        shown = self._shown[kind]
        if not text.startswith(shown):
            self._note("the model begins anew")
            shown = ""
        self._screen.write(text[len(shown) :], STYLES[kind])
        self._shown[kind] = text

    def _settle(self, kind: Kind, text: str) -> None:
        if text != self._shown[kind]:
            self._grow(kind, text)
        self._screen.end_line()
        self._shown[kind] = ""
        self._open = None

    def _thought(self, content: str) -> None:
        if content == self._shown["answer"]:
            # It was said beside a tool call, and seen already.
            self._settle("answer", content)
        elif self._fold:
            self._note(f"thought, {len(content.split())} words")
        else:
            self._settle("thinking", content)

    def _decided(self, event: Approved | Rejected) -> None:
        tool = one_line(event.tool_name)
        who = event.by if event.decided_by is None else f"{event.by} {one_line(event.decided_by)}"
        reason = f": {one_line(event.message)}" if event.message else ""
        if isinstance(event, Approved):
            edited = " with other arguments" if event.edited_arguments is not None else ""
            self._screen.line(f"✓ {tool} approved by {who}{edited}{reason}", GOOD)
        else:
            self._screen.line(f"✗ {tool} refused by {who}{reason}", WARN)

    def _forget(self) -> None:
        self._screen.end_line()
        self._shown = {"answer": "", "thinking": ""}
        self._open = None

    def _note(self, text: str) -> None:
        self._screen.line(f"({text})", NOTE)

    def _indented(self, text: str, style: str) -> None:
        for line in text.splitlines():
            self._screen.line(f"  {line}", style)


def tell_past(screen: Screen, interaction: Interaction) -> None:
    """An interaction that is over, without its tools: what was said."""
    screen.line(f"> {interaction.user_message}", STRONG)
    if interaction.answer is not None:
        screen.line(interaction.answer)
    if interaction.status != "COMPLETED":
        reason = f": {one_line(interaction.error.message)}" if interaction.error else ""
        screen.line(f"({interaction.status.lower()}{reason})", NOTE)


def pretty(tool_input: str) -> str:
    """JSON laid out for reading; what is none stays as it is."""
    try:
        return json.dumps(json.loads(tool_input), indent=2, ensure_ascii=False)
    except ValueError:
        return tool_input


def shortened(text: str) -> str:
    lines = text[:MAX_RESULT_CHARS].splitlines()
    if len(lines) <= MAX_RESULT_LINES and len(text) <= MAX_RESULT_CHARS:
        return text
    kept = lines[:MAX_RESULT_LINES]
    return "\n".join([*kept, f"… {len(text)} characters in all; teal chats show has them"])
