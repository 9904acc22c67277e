"""Threads as a whole: those kept in memory, and each user's catalog of them."""
