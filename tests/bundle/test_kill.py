"""SIGKILL while evidence is written: acknowledged records are there, and no half bundle passes for a whole one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.bundle import kills

KILLS = 25
"""`python -m tests.bundle.kills` does 200, spread over the time that a bundle takes on that machine."""
LONGEST = 0.5
"""Seconds from the end of the bad step to the kill: some times what a bundle takes beside a loop that never pauses."""


@pytest.mark.slow
def test_after_kills_every_acknowledged_record_is_there_and_every_bundle_verifies_or_is_unfinished(
    tmp_path: Path,
) -> None:
    """A recorded bundle is whole; one without its name says that it was never finished, and is no damage."""
    dice, seen = random.Random(20_261_130), set()
    with kills.loops() as process:
        for n in range(KILLS):
            root, early = tmp_path / str(n), n % 5 == 4
            life = kills.live(process, root, dice.uniform(0, LONGEST), early=early)
            seen.add(kills.judge(root, life))
    assert "on record" in seen
    assert any(stage.startswith("unfinished") for stage in seen), "no kill fell inside a bundle"
