"""The engine: commands in, an append-only log of events out.

It knows no HTTP, no storage technology, no model provider: only the ports in `ports.py`.
"""
