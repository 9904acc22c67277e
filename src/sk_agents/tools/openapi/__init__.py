"""Tools of OpenAPI services."""
