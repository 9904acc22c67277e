"""`kind: Agent` of `skagents/v2alpha1`: answers as a Chat does, in a session its client names."""

from __future__ import annotations

from sk_agents.skagents.v1.chat import ChatHandler


class AgentHandler(ChatHandler):
    """Takes `INPUT_TYPE` of this version's `config`, whose `session_id` comes back."""
