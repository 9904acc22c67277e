"""Reading along with a run: live text, the log as it grows, waiting for the end."""
