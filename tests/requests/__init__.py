"""The worked examples of docs/requests.md run as they stand, and print what the page says."""
