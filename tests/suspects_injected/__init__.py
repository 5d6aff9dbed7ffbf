"""Twelve faults in small real runs on three ranks, two of each family, and how `lineage suspects` ranks them."""
