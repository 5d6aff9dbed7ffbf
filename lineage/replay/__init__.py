"""Replays: one recorded step made again from its bundle, with at most one thing changed.

`building` asks the user's code for model and loss, `start` brings the recorded state in, `step` makes the update and
reads it, `conditions` are what may be changed, `run` puts them together, `operations` finds the first value that is not
finite. The judgement is in `lineage.judge.replayed`.
"""
