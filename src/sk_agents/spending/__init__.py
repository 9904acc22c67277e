"""What users and agents may spend, what they have spent, and how often they may call."""
