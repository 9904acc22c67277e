"""Tool calls and approvals: from what a model asks for to a result."""
