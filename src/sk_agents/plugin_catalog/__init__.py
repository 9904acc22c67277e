"""The plugin catalog under the names that the public Teal Agents project's users import."""
