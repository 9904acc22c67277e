"""Stores that forget when the process ends."""
