"""Threads as a whole: what is known of each, and the list of them."""
