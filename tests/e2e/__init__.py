"""The layer attached to real trackers: a real loop, the real clients, what stands on their pages afterwards."""
