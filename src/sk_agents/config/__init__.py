"""What the operator says: environment, agent files and the classes they name."""
