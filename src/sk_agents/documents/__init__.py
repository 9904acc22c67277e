"""What is in files that are no text."""
