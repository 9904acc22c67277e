"""The seeds' sentences as data, one module a seed (S004 is split in two)."""
