"""The health of real logs: the broken ones are named, the healthy ones raise nothing."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from benchmarks import curves, logged_series
from lineage.judge.series_health import Logged, check

public = pytest.mark.skipif(not curves.FILES.is_dir(), reason=f"no training logs in {curves.FILES}")

STALE = [453082.517, *[464441.887] * 5, *[879946.622] * 3]
LOSS = [2.665295, 2.667121, 4.374269, 4.365822, 4.391485, 4.404639, 4.398458, 4.096038, 4.137348]
"""A 104B run at steps 17,060 to 17,068: from 17,062 on each step was skipped, and the last finite norm printed."""


def test_the_last_finite_norm_over_skipped_steps_is_stale() -> None:
    steps = list(range(17060, 17069))
    found = [Logged("lm loss", steps, LOSS, by="log"), Logged("grad norm", steps, STALE, by="log")]
    (only,) = check(found).findings
    assert (only.code, only.subject) == ("LIN-S002", "grad norm")
    assert "464441.887 in 5 rows, steps 17,061-17,065, while lm loss moved" in only.text


def test_a_norm_printed_as_zero_while_the_loss_moves_is_dead() -> None:
    """A 13B run at step 29,020, printed every ten steps."""
    steps = list(range(29020, 29100, 10))
    loss = [2.775923, 2.772822, 2.768131, 7.345299, 6.9, 5.1, 3.2, 2.9]
    found = [Logged("lm loss", steps, loss, by="log"), Logged("grad norm", steps, [0.0] * 8, by="log")]
    assert [(f.code, f.subject) for f in check(found).findings] == [("LIN-S001", "grad norm")]


@public
def test_of_all_public_logs_only_the_broken_ones_are_named() -> None:
    """Coarse ones are notes: norms of two decimals, and a loss that has shrunk into its fourth."""
    said = {
        name: [(f.code, f.subject, f.severity) for f in check(found).findings]
        for name, found in logged_series.logs()
    }
    assert len(said) > 30
    assert {name: found for name, found in said.items() if found} == {
        "bigscience/tr1_13B_spike_29020": [("LIN-S001", "grad norm", "warning")],
        "bigscience/tr8b_104B_embnorm7_overflow_17060": [("LIN-S002", "grad norm", "warning")],
        "modded_nanogpt/llmc": [("LIN-S003", "grad norm", "note")],
        "hf/whisper_trainer_state": [("LIN-S003", "loss", "note")],
        "hf/whisper_last-checkpoint_trainer_state": [("LIN-S003", "loss", "note")],
    }


@public
def test_a_fault_put_into_a_healthy_public_log_is_found() -> None:
    """Twenty rows of the last value, and twenty rows that are left out, in each log of some length."""
    seen = 0
    for name, found in logged_series.logs():
        beside = [s for s in found if s.name is not None and s.name.main and len(s.values) > 200]
        for s in beside:
            if len(beside) < 2 or check(found).findings:
                continue
            stale = [*s.values[:120], *[s.values[119]] * 20, *s.values[140:]]
            others = [x for x in found if x is not s]
            assert ("LIN-S002", s.key) in _codes([*others, Logged(s.key, s.steps, stale, by=s.by)]), name
            steps, values = [*s.steps[:120], *s.steps[140:]], [*s.values[:120], *s.values[140:]]
            assert ("LIN-S004", s.key) in _codes([*others, Logged(s.key, steps, values, by=s.by)]), name
            seen += 1
    assert seen >= 2


def _codes(found: list[Logged]) -> list[tuple[str, str]]:
    return [(f.code, f.subject) for f in check(found).findings]


@public
def test_the_page_shows_what_the_checks_say_today() -> None:
    text = logged_series.PAGE.read_text(encoding="utf-8")
    assert logged_series.put(text) == text, "python -m benchmarks.logged_series --write"
