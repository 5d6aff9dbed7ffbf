"""Pseudonyms of nodes."""

from __future__ import annotations

import re

from lineage.capture import pseudonym


def test_a_node_keeps_its_pseudonym_within_a_run_and_loses_it_in_another() -> None:
    name = pseudonym.node("run-1", "gpu-node-17.example.org")
    assert re.fullmatch(r"n-[0-9a-f]{8}", name)
    assert name == pseudonym.node("run-1", "gpu-node-17.example.org")
    assert name != pseudonym.node("run-2", "gpu-node-17.example.org")


def test_two_thousand_nodes_of_a_run_have_pseudonyms_of_their_own() -> None:
    assert len({pseudonym.node("run-1", f"node{i}") for i in range(2000)}) == 2000
