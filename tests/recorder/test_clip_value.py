"""Clipping by value: a mode of its own, recorded and compared as clipping by norm is."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import schemas

from .loop import Loop, attach, only, parent_run

READ_FROM = "the clip_value of torch.nn.utils.clip_grad_value_"


def resumed(root: Path, loop: Loop, ck: Path) -> schemas.Drift:
    """The drift of a resume from a checkpoint."""
    with attach(loop, root, resumed_from=ck, config={"lr": 0.1, "clip": 1.0}) as rec:
        loop.run(rec, 8)
    found: schemas.Drift = only(root).last("drift").payload
    return found


def held(root: Path) -> schemas.EffectiveValue:
    """The clipping in effect after the first step."""
    found = next(r.payload for r in only(root).of("effective") if r.payload.moment == "after_first_step")
    value: schemas.EffectiveValue = found.values["grad_clip"]
    return value


def test_clipping_by_value_is_in_effect_as_its_own_mode(tmp_path: Path) -> None:
    parent_run(tmp_path, tmp_path / "ck", clip=None, by_value=0.5)
    (tmp_path / "ck").rename(tmp_path.with_name(f"{tmp_path.name}-ck"))
    assert (held(tmp_path).value.plain(), held(tmp_path).read_from) == ("0.5 by value", READ_FROM)


def test_clipping_in_both_ways_at_once_shows_both(tmp_path: Path) -> None:
    parent_run(tmp_path / "runs", tmp_path / "ck", clip=1.0, by_value=0.5)
    assert held(tmp_path / "runs").value.plain() == "1 by norm and 0.5 by value"


@pytest.mark.parametrize(
    ("clip", "by_value", "text"),
    [
        (None, 0.5, None),
        (None, 0.1, "gradient clipping 0.5 by value -> 0.1 by value"),
        (0.5, None, "gradient clipping 0.5 by value -> 0.5"),
        (None, None, "gradient clipping 0.5 by value -> no clipping seen"),
    ],
    ids=["the same", "another threshold", "another mode", "none"],
)
def test_a_resume_compares_threshold_and_mode(
    tmp_path: Path, clip: float | None, by_value: float | None, text: str | None
) -> None:
    """Equal numbers in another mode are a change; the same mode and number are none."""
    root, ck = tmp_path / "runs", tmp_path / "ck"
    parent_run(root, ck, clip=None, by_value=0.5)
    drift = resumed(root, Loop(clip=clip, by_value=by_value).load(ck), ck)
    told = [c.text.partition(",")[0] for c in drift.changes if c.concept == "grad_clip"]
    assert told == ([text] if text else [])
    assert "grad_clip" not in drift.not_shown


def test_a_threshold_that_changes_within_a_segment_is_found_with_its_step(tmp_path: Path) -> None:
    loop = Loop(clip=None, by_value=0.5)

    def cut(step: int) -> None:
        if step == 5:
            loop.by_value = 0.1

    with attach(loop, tmp_path) as rec:
        loop.run(rec, 8, before=cut)
    drift = only(tmp_path).last("drift").payload
    assert (drift.moment, drift.from_step, [c.concept for c in drift.changes]) == ("in_run", 5, ["grad_clip"])


def test_a_declared_threshold_is_meant_in_the_mode_in_which_clipping_is_done(tmp_path: Path) -> None:
    """rec.mitigate("grad_clip", after=0.1), and clipping is by value: in effect, and not unproven."""
    loop = Loop(clip=None, by_value=0.5)

    def cut(step: int) -> None:
        if step == 5:
            rec.mitigate("grad_clip", after=0.1, why="spikes")
            loop.by_value = 0.1

    with attach(loop, tmp_path) as rec:
        loop.run(rec, 8, before=cut)
    ledger = only(tmp_path)
    effect = ledger.last("mitigation_effect").payload
    assert (effect.in_effect, effect.from_step, effect.to_step) == ("yes", 5, 8)
    assert ledger.last("drift").payload.unproven == []
    assert ledger.last("mitigation").payload.after.plain() == 0.1
