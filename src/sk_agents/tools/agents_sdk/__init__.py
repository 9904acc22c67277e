"""Agents of the OpenAI Agents SDK, run by our engine.

The SDK is imported by the operator's own file and never by us; its objects are known by their
fields. Its runner is not used, so approvals, logs and streams are those of every agent. What an
agent asks for beyond what is taken over stops start-up: half of an agent is another agent.
"""
