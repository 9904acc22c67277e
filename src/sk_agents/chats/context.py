"""Prompts and resources of an agent's MCP servers, which users put into their messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol

from fastapi import Query

from sk_agents.chats.requests import ChatResources
from sk_agents.http.caller import RequestCaller
from sk_agents.wire.requests import MAX_NAME, FillPrompt, ReadResource
from sk_agents.wire.views import FilledPrompt, PromptList, ResourceItems, ResourceList

AgentName = Annotated[
    str | None, Query(max_length=MAX_NAME, description="Unset: the default agent.")
]


class ContextSource(Protocol):
    """What the servers of an agent have for a user.

    The last two raise InvalidInput: the agent has no such server, or what the server has cannot be
    part of a message; NotFound: there is no such prompt; UpstreamFailed: it cannot be reached.
    """

    async def prompts(self, agent: str, user_id: str) -> PromptList: ...

    async def resources(self, agent: str, user_id: str) -> ResourceList: ...

    async def filled(self, agent: str, user_id: str, wanted: FillPrompt) -> FilledPrompt: ...

    async def read(self, agent: str, user_id: str, wanted: ReadResource) -> ResourceItems: ...


@dataclass(frozen=True, slots=True)
class ContextEndpoints:
    resources: ChatResources
    source: ContextSource

    async def prompts(self, caller: RequestCaller, agent: AgentName = None) -> PromptList:
        """The prompts that the agent's MCP servers offer."""
        return await self.source.prompts(self.resources.agent(agent), caller.user_id)

    async def fill(self, caller: RequestCaller, body: FillPrompt) -> FilledPrompt:
        """Fill in a prompt: what comes back can be sent as a message."""
        return await self.source.filled(self.resources.agent(body.agent), caller.user_id, body)

    async def listing(self, caller: RequestCaller, agent: AgentName = None) -> ResourceList:
        """What the agent's MCP servers have to read."""
        return await self.source.resources(self.resources.agent(agent), caller.user_id)

    async def read(self, caller: RequestCaller, body: ReadResource) -> ResourceItems:
        """Read a resource: what comes back can be sent along with a message."""
        return await self.source.read(self.resources.agent(body.agent), caller.user_id, body)
