"""What every surface shares on the wire: callers, errors, correlation, health."""
