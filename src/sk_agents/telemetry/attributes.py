"""What spans and measurements say, in the words of OpenTelemetry's conventions.

Only ids, names from the configuration, numbers and codes: no message, argument, header or token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from sk_agents.engine.log.state import Run
from sk_agents.engine.models import Thread
from sk_agents.exceptions import TealError

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
# The name PROVIDER had before; some back-ends know only this one.
SYSTEM = "gen_ai.system"
REQUEST_MODEL = "gen_ai.request.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
TOKEN_TYPE = "gen_ai.token.type"
AGENT_NAME = "gen_ai.agent.name"
CONVERSATION_ID = "gen_ai.conversation.id"
TOOL_NAME = "gen_ai.tool.name"
TOOL_CALL_ID = "gen_ai.tool.call.id"
ERROR_TYPE = "error.type"
SESSION_ID = "session.id"
THREAD_ID = "teal.thread.id"
RUN_ID = "teal.run.id"
RUN_STATUS = "teal.run.status"
ROUND = "teal.model.round"
OUTCOME = "teal.outcome"
APPROVAL_ID = "teal.approval.id"
APPROVAL_KIND = "teal.approval.kind"
DECIDED_BY = "teal.approval.decided_by"
CORRELATION_ID = "teal.correlation_id"

# Ours on the left: the first part of a model's name.
PROVIDER_NAMES: Mapping[str, str] = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex_ai": "gcp.vertex_ai",
    "xai": "x_ai",
}

Attributes = dict[str, str | int | tuple[str, ...]]


def run_ids(thread: Thread, run_id: str) -> Attributes:
    ids: Attributes = {THREAD_ID: thread.thread_id, RUN_ID: run_id}
    if thread.session_id:
        ids[SESSION_ID] = thread.session_id
    return ids


def agent_name(thread: Thread, run: Run) -> str:
    return run.agent or thread.agent


def provider_and_model(name: str) -> tuple[str, str]:
    """`groq/llama` is groq's llama; a bare name is asked for in OpenAI's words."""
    provider, slash, model = name.partition("/")
    if not slash:
        return "openai", name
    return PROVIDER_NAMES.get(provider, provider), model


def error_code(error: BaseException) -> str:
    """A short stable word: the text of an error may hold anything."""
    match error:
        case TealError():
            return error.code
        case asyncio.CancelledError() | GeneratorExit():
            return "cancelled"
        case _:
            return type(error).__name__
