"""A todo list as an MCP server: tasks of many users in one database.

It is a program of its own and knows nothing of the agents that call it.
"""
