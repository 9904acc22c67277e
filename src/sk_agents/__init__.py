"""Teal Agents: a self-hosted agent server."""

__version__ = "0.1.0"
