"""An agent at run time: its model and prompt, its tools, rules and limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from sk_agents.engine.models import Message, Price
from sk_agents.engine.ports import Director, Model, Policy, Redaction, RoundPlan, Toolbox
from sk_agents.engine.run.context_window import ContextWindow
from sk_agents.engine.turns import ReplyLimits


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Seconds count running time, never time spent waiting for a human."""

    model_rounds: int = 25
    calls_per_round: int = 16
    invalid_rounds: int = 5
    run_seconds: float = 1_800.0
    approval_seconds: float = 86_400.0
    tool_result_bytes: int = 262_144
    # Of all attachments of one result, as they are kept: in base64.
    tool_attachment_bytes: int = 12 * 1024 * 1024
    cancel_grace_seconds: float = 5.0
    reply_bytes: int = 1_048_576
    # In one run, all rounds together; `None`: as many as the rounds allow.
    tool_calls: int | None = None

    reply: ReplyLimits = field(init=False, repr=False, compare=False)
    """A model that asks for too many calls gets an error to read; one that asks for far too many is
    read no further."""

    def __post_init__(self) -> None:
        reply = ReplyLimits(calls=4 * self.calls_per_round, text_bytes=self.reply_bytes)
        object.__setattr__(self, "reply", reply)


@dataclass(frozen=True, slots=True)
class TitleModel:
    """What names a conversation after its first answer: the agent's own model, or the one called
    `name`, which has a price of its own or none."""

    model: Model
    name: str | None = None
    price: Price | None = None


@dataclass(frozen=True, slots=True)
class Agent:
    name: str
    model: Model
    toolbox: Toolbox
    policy: Policy
    system_prompt: str = ""
    temperature: float | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    on_disconnect: Literal["cancel", "continue"] = "continue"
    on_reject: Literal["continue", "cancel"] = "continue"
    limits: RunLimits = field(default_factory=RunLimits)
    context_window: ContextWindow = field(default_factory=ContextWindow)
    price: Price | None = None
    redaction: Redaction | None = None
    titles: TitleModel | None = None
    is_attended: bool = True
    """Whether a person can be asked about its calls."""
    director: Director | None = None
    """Plans the rounds, if they are not all alike."""
    plan: RoundPlan = field(init=False)
    """Every round of an agent without a director. Its instructions are the system prompt as every
    prompt starts with it; one object, so that it is encoded once."""

    def __post_init__(self) -> None:
        prompt = self.system_prompt
        messages = (Message(role="system", content=prompt),) if prompt else ()
        plan = RoundPlan(
            self.model,
            instructions=messages,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            reasoning_effort=self.reasoning_effort,
        )
        object.__setattr__(self, "plan", plan)
