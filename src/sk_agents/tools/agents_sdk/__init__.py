"""Agents of the OpenAI Agents SDK as tools."""
