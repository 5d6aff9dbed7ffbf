"""Hardware and software events while the run trains: GPUs by NVML, the kernel's log, the scheduler's nodes.

One process of each node watches, on threads of its own, never on the step path. What is found is written as the same
`event` records that `lineage events import` makes, when something begins, has doubled, and is over.
"""
