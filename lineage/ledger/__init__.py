"""The ledger: an append-only folder that holds every record, and the reading and checking of it."""
