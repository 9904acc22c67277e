"""Wake-ups between those who write a log and those who wait for it. Each implements `Signals`."""
