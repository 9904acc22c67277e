"""From turns to what the client receives: every response names its session, source and request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from sk_agents.engine.models import Usage
from sk_agents.engine.ports import Ids
from sk_agents.ska_types import ExtraData, ExtraDataElement
from sk_agents.skagents.models import (
    IntermediateTaskResponse,
    InvokeResponse,
    PartialResponse,
    TokenUsage,
)
from sk_agents.skagents.turn import Finished


@dataclass(frozen=True, slots=True)
class Envelope:
    session_id: str
    source: str
    request_id: str

    @classmethod
    def of(cls, inputs: BaseModel, source: str, ids: Ids) -> Envelope:
        """The session is the client's own if its input names one."""
        named: Any = getattr(inputs, "session_id", None)
        return cls(str(named) if named else ids.new(), source, ids.new())

    def partial(self, text: str) -> PartialResponse:
        return PartialResponse(
            session_id=self.session_id,
            source=self.source,
            request_id=self.request_id,
            output_partial=text,
        )

    def intermediate(self, number: int, name: str, done: Finished) -> IntermediateTaskResponse:
        response = InvokeResponse[None](
            session_id=self.session_id,
            source=self.source,
            request_id=self.request_id,
            token_usage=_token_usage(done.usage),
            extra_data=_extra_data(done.extra_data),
            output_raw=done.text,
        )
        return IntermediateTaskResponse(task_no=number, task_name=name, response=response)

    def final(
        self, done: Finished, output: BaseModel | None = None
    ) -> InvokeResponse[BaseModel | None]:
        return InvokeResponse(
            session_id=self.session_id,
            source=self.source,
            request_id=self.request_id,
            token_usage=_token_usage(done.usage),
            extra_data=_extra_data(done.extra_data),
            output_raw=done.text,
            output_pydantic=output,
        )


def _token_usage(usage: Usage) -> TokenUsage:
    return TokenUsage(
        completion_tokens=usage.completion_tokens,
        prompt_tokens=usage.prompt_tokens,
        total_tokens=usage.total_tokens,
    )


def _extra_data(items: Iterable[ExtraDataElement]) -> ExtraData | None:
    kept = list(items)
    return ExtraData(items=kept) if kept else None
