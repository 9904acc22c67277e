"""Traces, metrics and the ids in logs: what the engine and the server do, told to operators."""
