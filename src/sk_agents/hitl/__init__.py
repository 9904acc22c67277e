"""Humans in the loop: which calls are asked about, and how to wait for the answer."""
