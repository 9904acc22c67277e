"""Prints the events of an interaction as they come, and what a call that waits would run.

A preview is printed as it grows. The stored event that follows completes it, or prints the whole
text if the preview was different.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal

from sk_agents.cli.safe_text import one_line
from sk_agents.cli.terminal import BAD, DIM, GOOD, STRONG, WARN, Screen
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
    PendingApproval,
    Queued,
    Rejected,
    ReviewExtended,
    Steered,
    SteeringDelivered,
    Stopping,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolOutput,
    ToolResult,
    VoteCast,
    VoteWithdrawn,
)
from sk_agents.wire.events import (
    AudienceView,
    CostView,
    CutReason,
    Decider,
    ReviewView,
    TableView,
    UsageView,
)

Kind = Literal["answer", "thinking"]

# Why an answer is not complete.
CUT_NOTES: dict[CutReason, str] = {
    "length": "cut short: the model reached its bound on tokens",
    "content_filter": "cut short: the provider's content filter stopped it",
}
STYLES: dict[Kind, str] = {"answer": "", "thinking": DIM}
MAX_RESULT_LINES = 20
MAX_RESULT_CHARS = 4000
DIGEST_LENGTH = 12
# More than a screen of a difference is for the page.
PREVIEW_LINES = 60
PREVIEW_STYLES = {"+": GOOD, "-": BAD}
# What has decided where the event names no person.
DECIDERS: dict[Decider, str] = {
    "human": "a user",
    "policy": "policy",
    "timeout": "timeout: no decision came in time",
    "cancel": "the cancellation of the run",
    "failure": "the failure of the run",
}
APPROVAL_TITLES = {
    "tool": "wants to run",
    "outcome_unknown": "was cut off: it is unknown whether it took effect",
    "question": "asks",
    "auth": "acts in your name and needs your token again",
}


class EventPrinter:
    """`fold_thinking`: a thought is one line. Long results are cut unless `whole_results`.
    `with_costs`: the end says what the model has used."""

    def __init__(
        self,
        screen: Screen,
        *,
        fold_thinking: bool = False,
        whole_results: bool = False,
        with_costs: bool = False,
    ) -> None:
        self._screen = screen
        self._fold = fold_thinking
        self._whole = whole_results
        self._with_costs = with_costs
        self._answering = Answering()
        self._shown: dict[Kind, str] = {"answer": "", "thinking": ""}
        self._open: Kind | None = None
        self._outputs: dict[str, str] = {}
        # By its id, what the user has said and no call of the model has got yet.
        self._unheard: dict[str, str] = {}

    def print(self, event: Event) -> None:
        self._answering.add(event)
        match event:
            case AnswerDelta():
                self._grow("answer", self._answering.text)
            case ThinkingDelta() if not self._fold:
                self._grow("thinking", self._answering.thinking)
            case Thinking():
                self._print_thought(event.content)
            case Answer():
                self._complete("answer", event.content)
                if event.finish_reason is not None:
                    self._screen.line(f"✂ {CUT_NOTES[event.finish_reason]}", WARN)
            case ToolCall() | ToolOutput() | ToolResult():
                self._print_tool(event)
            case ApprovalRequired():
                self._clear()
            case VoteCast() | VoteWithdrawn():
                self._print_vote(event)
            case ReviewExtended():
                names = audience_text(event.audience)
                self._screen.note(f"the time is over; it waits on for {one_line(names)}")
            case Approved() | Rejected():
                self._print_decision(event)
            case Queued():
                self._screen.note(f"waits in the queue, number {event.position}")
            case Steered():
                self._unheard[event.message_id] = event.content
                self._clear()
                self._screen.line(f"> {one_line(event.content)}", STRONG)
                self._screen.note("the next step of the agent gets it")
            case SteeringDelivered():
                self._print_delivery(event)
            case Stopping():
                self._screen.note("it stops after this step; Ctrl-C stops it at once")
            case Cancelled():
                self._screen.note("cancelled")
            case Failed():
                self._screen.line(f"✗ {one_line(event.message or event.code)}", BAD)
                self._screen.line(f"  {event.code} {event.correlation_id or ''}".rstrip(), DIM)
            case Complete():
                self._screen.end_line()
                for text in self._unheard.values():
                    self._screen.note(f"not delivered: {one_line(text)}")
                self._unheard = {}
                if self._with_costs and event.usage.total_tokens:
                    self._screen.line(usage_text(event.usage, [event.cost]), DIM)
            case _:
                pass

    def _print_delivery(self, event: SteeringDelivered) -> None:
        self._clear()
        for message_id in event.message_ids:
            text = self._unheard.pop(message_id, None)
            self._screen.note("delivered" if text is None else f"delivered: {one_line(text)}")

    def _print_tool(self, event: ToolCall | ToolOutput | ToolResult) -> None:
        match event:
            case ToolCall():
                self._clear()
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
                    self._indented(output if self._whole else _shortened(output), DIM)

    def _grow(self, kind: Kind, text: str) -> None:
        if self._open != kind:
            self._screen.end_line()
            self._open = kind
        shown = self._shown[kind]
        if not text.startswith(shown):
            self._screen.note("the model starts its answer again")
            shown = ""
        if kind == "answer" and self._screen.shows_markdown:
            self._screen.grow_markdown(text, len(shown))
        else:
            self._screen.write(text[len(shown) :], STYLES[kind])
        self._shown[kind] = text

    def _complete(self, kind: Kind, text: str) -> None:
        if text != self._shown[kind]:
            self._grow(kind, text)
        self._screen.end_line()
        self._shown[kind] = ""
        self._open = None

    def _print_thought(self, content: str) -> None:
        if content == self._shown["answer"]:
            # The text beside a tool call; it was printed as an answer already.
            self._complete("answer", content)
        elif self._fold:
            self._screen.note(f"thought, {len(content.split())} words")
        else:
            self._complete("thinking", content)

    def _print_vote(self, event: VoteCast | VoteWithdrawn) -> None:
        who = one_line(event.voter_name or event.voter)
        said = "took the vote back"
        if isinstance(event, VoteCast):
            said = "says yes" if event.approved else "says no"
        self._screen.note(f"{who} {said}; {event.missing} missing")

    def _print_decision(self, event: Approved | Rejected) -> None:
        tool = one_line(event.tool_name)
        named = event.decided_by_name or event.decided_by
        who = DECIDERS[event.by] if named is None else one_line(named)
        reason = f": {one_line(event.message)}" if event.message else ""
        if isinstance(event, Approved):
            edited = " with other arguments" if event.edited_arguments is not None else ""
            self._screen.line(f"✓ {tool} approved by {who}{edited}{reason}", GOOD)
        else:
            self._screen.line(f"✗ {tool} refused by {who}{reason}", WARN)

    def _clear(self) -> None:
        self._screen.end_line()
        self._shown = {"answer": "", "thinking": ""}
        self._open = None

    def _indented(self, text: str, style: str) -> None:
        for line in text.splitlines():
            self._screen.line(f"  {line}", style)


def print_past(screen: Screen, interaction: Interaction) -> None:
    """The message and the answer of an interaction that is over, without its tools."""
    screen.line(f"> {interaction.user_message}", STRONG)
    print_told(screen, interaction)
    if interaction.answer is not None:
        screen.answer(interaction.answer)
    print_end(screen, interaction)


def print_told(screen: Screen, interaction: Interaction, place: int | None = None) -> None:
    """What the user said while it was at work; with `place`, just before that event of it."""
    for said in interaction.steering:
        if place not in (None, said.after_events):
            continue
        screen.line(f"> {said.content}", STRONG)
        if not said.delivered:
            screen.note("not delivered")


def print_end(screen: Screen, interaction: Interaction) -> None:
    """What was said before it stopped short of an answer, and why it did."""
    if interaction.partial:
        screen.answer(interaction.partial)
    if interaction.status != "COMPLETED":
        reason = f": {one_line(interaction.error.message)}" if interaction.error else ""
        screen.note(f"{interaction.status.lower()}{reason}")
    if interaction.feedback is not None:
        note = f": {one_line(interaction.feedback.note)}" if interaction.feedback.note else ""
        screen.note(f"rated {interaction.feedback.rating}{note}")


def print_approval(screen: Screen, approval: ApprovalRequired | PendingApproval) -> None:
    """Exactly what will run, and how long it can be decided."""
    screen.line(f"⚠ {one_line(approval.tool_name)} {APPROVAL_TITLES[approval.kind]}", WARN)
    if approval.budget:
        screen.line(f"  {one_line(approval.budget)}", WARN)
    for line in _asked(approval).splitlines():
        screen.line(f"  {line}")
    for number, choice in enumerate(approval.choices or (), 1):
        if approval.kind == "question":
            screen.line(f"  [{number}] {one_line(choice)}")
    if approval.redacted:
        screen.note("secrets in it are not shown; the tool gets what the model wrote")
    preview = (approval.preview or "").splitlines()
    for line in preview[:PREVIEW_LINES]:
        screen.line(f"  {line}", PREVIEW_STYLES.get(line[:1], DIM))
    if len(preview) > PREVIEW_LINES:
        screen.note(f"{len(preview) - PREVIEW_LINES} more lines would change")
    if approval.preview_table is not None:
        _print_table(screen, approval.preview_table)
    if approval.preview_picture is not None:
        screen.note("the tool shows a picture of what it would do: see the page")
    facts = [f"digest {approval.digest[:DIGEST_LENGTH]}"] if approval.digest else []
    if expiry := time_left(approval.expires_at):
        facts.append(expiry)
    if facts:
        screen.line(f"  {', '.join(facts)}", DIM)
    if approval.reason_required:
        screen.line("  a rule wants a reason for the decision", DIM)
    if approval.review is not None:
        _print_review(screen, approval.review)
    if isinstance(approval, PendingApproval) and approval.review is not None:
        screen.line(f"  asked for by {one_line(approval.requested_by)}", DIM)
    if isinstance(approval, PendingApproval) and approval.late_result is not None:
        screen.line(f"  its result came late: {one_line(approval.late_result)}", DIM)


def _asked(approval: ApprovalRequired | PendingApproval) -> str:
    """The arguments as JSON; a tool's question as its text, before the arguments of its call."""
    if approval.kind == "question":
        try:
            asked = json.loads(approval.tool_input)
        except ValueError:
            return approval.tool_input
        match asked:
            case {"question": str(question), "call": dict(arguments)}:
                call = json.dumps(arguments, ensure_ascii=False)
                return f"{question}\n(asked in a call with {call})" if arguments else question
    return pretty(approval.tool_input)


def _print_table(screen: Screen, table: TableView) -> None:
    """A hint of the tool's, after the arguments, which count."""
    for row in (table.columns, *table.rows[:PREVIEW_LINES]):
        screen.line(f"  {' | '.join(map(one_line, row))}", DIM)
    if more := table.more + max(0, len(table.rows) - PREVIEW_LINES):
        screen.note(f"{more} more rows")


def approval_place(approval: PendingApproval) -> str:
    """In which chat it was asked, and whose message led to it."""
    title = f' "{one_line(approval.chat_title)}"' if approval.chat_title else ""
    chat = f", in chat {approval.chat_id}{title}" if approval.chat_id else ""
    return f"{chat}, for {one_line(approval.requested_by)}" if approval.requested_by else chat


def _print_review(screen: Screen, review: ReviewView) -> None:
    """Who decides, who has voted, and how many are missing."""
    names = one_line(audience_text(review.audience))
    excluded = ", not the person who asked" if review.not_requester else ""
    screen.line(f"  decided by {names}{excluded}; {review.missing} of {review.quorum} missing", DIM)
    for vote in review.votes:
        reason = f": {one_line(vote.message)}" if vote.message else ""
        said = "yes" if vote.approved else "no"
        screen.line(f"  {one_line(vote.voter_name or vote.voter)} says {said}{reason}", DIM)


def audience_text(audience: AudienceView) -> str:
    kinds = (("role", audience.roles), ("group", audience.groups), ("user", audience.users))
    return ", ".join(f"{kind} {name}" for kind, names in kinds for name in names)


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


def usage_text(usage: UsageView, costs: Iterable[CostView | None]) -> str:
    """How many tokens were read and written, and what that cost where there is a price."""
    text = f"{usage.prompt_tokens:,} tokens read, {usage.completion_tokens:,} written"
    money = money_text(costs)
    return f"{text}, {money}" if money else text


def money_text(costs: Iterable[CostView | None]) -> str:
    """The sums, one for each currency; empty without a cost."""
    sums: dict[str, float] = {}
    for cost in costs:
        if cost is not None:
            sums[cost.currency] = sums.get(cost.currency, 0.0) + cost.amount
    return ", ".join(f"{amount:.4f} {currency}" for currency, amount in sorted(sums.items()))


def pretty(tool_input: str) -> str:
    """JSON with line breaks and indents; any other text stays as it is."""
    try:
        return json.dumps(json.loads(tool_input), indent=2, ensure_ascii=False)
    except ValueError:
        return tool_input


def _shortened(text: str) -> str:
    lines = text[:MAX_RESULT_CHARS].splitlines()
    if len(lines) <= MAX_RESULT_LINES and len(text) <= MAX_RESULT_CHARS:
        return text
    rest = f"… {len(text)} characters in total; teal chats show prints them all"
    return "\n".join([*lines[:MAX_RESULT_LINES], rest])
