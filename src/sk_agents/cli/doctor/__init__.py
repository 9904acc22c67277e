"""`teal doctor`: what is wrong with a machine, a configuration or a server."""
