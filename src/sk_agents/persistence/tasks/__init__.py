"""Teal's task interface over the stores, and a user's own task class as a store."""
