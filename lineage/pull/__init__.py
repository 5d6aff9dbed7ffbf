"""From the tracker alone: a run's ledger, rebuilt from what its page has.

`pulling.pull` reads the chunks of the journal, the anchors and the logged values, and makes a ledger that is held
against the anchors; of a run that never had the layer it reads what the tracker has, as `lineage import` reads a log.
"""
