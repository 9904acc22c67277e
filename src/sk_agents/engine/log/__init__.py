"""The log: what a commit is, when it is admitted, and the state that its events fold to."""
