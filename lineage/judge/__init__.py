"""Judgement: pure functions from records to records. No live run, file or tracker is touched here."""
