"""The recorder: what a training loop talks to. Nothing in here raises into training, or waits for anything."""
