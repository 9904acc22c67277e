"""Model clients behind the engine's `Model` port; `providers` decides which one serves a name."""
