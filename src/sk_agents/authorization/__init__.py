"""Authorizers: they turn an `Authorization` header into a user id."""
