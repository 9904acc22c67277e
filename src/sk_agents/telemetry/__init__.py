"""Traces, metrics and logs: what operators see of the engine and the server."""
