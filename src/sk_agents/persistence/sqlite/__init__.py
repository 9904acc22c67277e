"""The SQLite store: one file, several processes."""
