"""The debugging ladder."""
