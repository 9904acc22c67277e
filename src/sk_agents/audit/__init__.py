"""Who did what: the server's own log, the trail through all logs, checkpoints, verification."""
