"""Measurements, each beside a limit of the same run; see `make bench`."""
