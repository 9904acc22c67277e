"""One request, one answer: the stateless chat of a todo list."""
