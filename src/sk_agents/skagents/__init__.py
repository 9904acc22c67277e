"""The stateless API: what is said before comes with every request, and nothing is kept."""
