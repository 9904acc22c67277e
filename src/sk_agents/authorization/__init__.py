"""Who is calling: authorizers turn an `Authorization` header into a user id."""
