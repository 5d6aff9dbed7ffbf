"""The contract of all adapters, on ours and on one that is written as a third party would."""
