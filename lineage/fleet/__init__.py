"""Ledgers too big to be held in memory: the same judgement, with queries in front of the detectors.

A query reads all rows and gives few of them: those that a detector could flag, or that are not finite. The detectors
of `lineage.judge` then run over these, so that an answer does not depend on how big a ledger is. docs/fleet.md says
why nothing is lost on the way.
"""
