"""Humans in the loop: which calls are asked about, and waiting for the answer."""
