"""Others' own test-suites, run without the observer and under it: `python -m tests.transparency`, and what tests that.

It stands among the tests, not among the benchmarks: what comes out is a pass or a failure, not a figure.
"""
