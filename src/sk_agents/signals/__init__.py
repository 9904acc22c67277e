"""Wake-ups between the writers of a log and its readers. Each module implements `Signals`."""
