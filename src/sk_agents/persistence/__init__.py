"""Stores: where threads and their logs live. Each implements `engine.ports.Store`."""
