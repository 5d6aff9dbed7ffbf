"""The W&B adapter against the real client."""
