"""What the layer costs a training thread, each figure beside the alternative that a user would pick.

`python -m benchmarks` runs all experiments; `python -m benchmarks blocking journal` runs some.
"""
