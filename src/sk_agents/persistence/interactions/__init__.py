"""An operator's own class for interactions, beside the store."""
