"""The PostgreSQL store: one database, any number of instances."""
