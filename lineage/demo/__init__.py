"""The demo: a small GPT on real text, a fault, two recoveries, and what may be concluded afterwards."""
