"""Tools that come with the server, switched on agent by agent."""
