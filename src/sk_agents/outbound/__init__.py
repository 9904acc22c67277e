"""How requests leave this server: through which proxy, and which certificates count."""
