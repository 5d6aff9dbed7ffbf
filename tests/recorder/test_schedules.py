"""Healthy runs under every usual schedule: no drift while they go on, none at a faithful resume."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import schemas

from .loop import Loop, attach, only

S = torch.optim.lr_scheduler
SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "one cycle, with momentum": lambda o: S.OneCycleLR(o, max_lr=0.1, total_steps=40),
    "cosine": lambda o: S.CosineAnnealingLR(o, T_max=40),
    "cosine with restarts": lambda o: S.CosineAnnealingWarmRestarts(o, T_0=4),
    "sequential": lambda o: S.SequentialLR(
        o, [S.LinearLR(o, 0.1, 1.0, 4), S.CosineAnnealingLR(o, T_max=36)], milestones=[4]
    ),
    "step": lambda o: S.StepLR(o, step_size=3),
    "lambda": lambda o: S.LambdaLR(o, lambda done: 1.0 / (1 + done)),
}


class Scheduled(Loop):
    """The loop with a schedule of the test's choice (None: the rate is set by `by_hand` before each update)."""

    def __init__(
        self, make: Callable[[Any], Any] | None, by_hand: Callable[[int], float] | None = None
    ) -> None:
        super().__init__()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.scheduler = make(self.optimizer) if make else None
        self.by_hand = by_hand

    def run(self, rec: Any, steps: int, **_: Any) -> list[float]:
        for step in range(self.done + 1, steps + 1):
            batch = next(self.loader)
            with rec.step(step, batch) as st:
                if self.by_hand:
                    self.optimizer.param_groups[0]["lr"] = self.by_hand(step)
                loss = self.model(batch["x"]).pow(2).mean()
                self.optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                if self.scheduler:
                    self.scheduler.step()
                st.loss(loss)
            self.done = step
        return []

    def save(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        held = {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}
        state = {k: v.state_dict() for k, v in held.items() if v is not None}
        torch.save(
            {**state, "position": self.loader.position, "rng": torch.get_rng_state(), "step": self.done},
            folder / "s.pt",
        )
        return folder

    def load(self, folder: Path, **_: Any) -> Scheduled:
        state = torch.load(folder / "s.pt", weights_only=False)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler:
            self.scheduler.load_state_dict(state["scheduler"])
        self.loader.position, self.done = state["position"], state["step"]
        torch.set_rng_state(state["rng"])
        return self


CONFIG = {"lr": 0.1}


def story(
    tmp_path: Path, first: Scheduled, second: Scheduled, *, branch: int = 8, **changed: Any
) -> list[schemas.Record]:
    """Six updates, a save, some more; then a resume from the save. Returns the ledger's records."""
    root, ck = tmp_path / "runs", tmp_path / "ck"
    with attach(first, root, config=CONFIG) as rec:
        first.run(rec, 6)
        rec.checkpoint(first.save(ck), step=6)
        first.run(rec, branch)
    with attach(second.load(ck), root, config={**CONFIG, **changed}, resumed_from=ck) as rec:
        second.run(rec, 12)
    return only(root).records


def drifts(records: list[schemas.Record]) -> list[tuple[str, str]]:
    """Every change on record."""
    return [(c.concept, c.text) for r in records if r.kind == "drift" for c in r.payload.changes]


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_faithful_resume_under_a_schedule_is_silent_and_holds(tmp_path: Path, name: str) -> None:
    """Neither the rate, nor what the scheduler moves with it, is drift."""
    make = SCHEDULERS[name]
    records = story(tmp_path, Scheduled(make), Scheduled(make))
    assert drifts(records) == []
    last = [r.payload for r in records if r.kind == "verdict"][-1]
    assert {c.claim: c.status for c in last.claims} == dict.fromkeys(schemas.CLAIMS, "holds")
    assert len({r.payload.id for r in records if r.kind == "regime"}) == 1


def test_a_changed_peak_of_a_one_cycle_schedule_is_found(tmp_path: Path) -> None:
    """A schedule that was not restored and has another peak."""
    first = Scheduled(SCHEDULERS["one cycle, with momentum"])
    second = Scheduled(SCHEDULERS["one cycle, with momentum"])
    load = second.load

    def partly(folder: Path, **_: Any) -> Scheduled:
        load(folder)
        second.scheduler = S.OneCycleLR(second.optimizer, max_lr=0.05, total_steps=40)
        return second

    second.load = partly  # type: ignore[method-assign]
    assert {"learning_rate", "lr_schedule"} & {c for c, _ in drifts(story(tmp_path, first, second))}


def cosine(step: int) -> float:
    """A schedule by hand, as small training scripts write it."""
    return 0.1 * 0.5 * (1 + math.cos(math.pi * step / 40))


def test_a_rate_set_by_hand_is_no_drift_and_is_shown_by_the_other_branch(tmp_path: Path) -> None:
    """Step 7 had the same rate before: nothing changed, and it is shown."""
    records = story(tmp_path, Scheduled(None, cosine), Scheduled(None, cosine))
    assert drifts(records) == []
    drift = [r.payload for r in records if r.kind == "drift"][-1]
    assert not {"learning_rate", "lr_schedule"} & set(drift.not_shown)


def test_a_rate_set_by_hand_without_another_branch_is_not_shown(tmp_path: Path) -> None:
    """One update of a moving rate shows no schedule: not shown, and no false alarm."""
    records = story(tmp_path, Scheduled(None, cosine), Scheduled(None, cosine), branch=6)
    assert drifts(records) == []
    drift = [r.payload for r in records if r.kind == "drift"][-1]
    assert "learning_rate" in drift.not_shown


def test_a_lower_rate_by_hand_is_found_at_the_same_step(tmp_path: Path) -> None:
    """Step 7 has a third of the rate that it had on the other branch."""
    records = story(tmp_path, Scheduled(None, cosine), Scheduled(None, lambda s: cosine(s) / 3))
    assert [c for c, _ in drifts(records)] == ["learning_rate"]
    assert "on the other branch" in drifts(records)[0][1]


def test_a_constant_rate_without_a_scheduler_holds_and_its_change_is_found(tmp_path: Path) -> None:
    """The simplest loop of all."""
    same = story(tmp_path / "a", Scheduled(None), Scheduled(None))
    assert drifts(same) == []
    lower = story(tmp_path / "b", Scheduled(None), Scheduled(None, lambda step: 0.02), lr=0.02)
    assert [c for c, _ in drifts(lower)] == ["learning_rate"]


def test_a_value_that_moves_at_each_step_is_a_gap_and_no_flood(tmp_path: Path) -> None:
    """Weight decay by hand at each step: said once, not a regime per step."""
    loop = Scheduled(SCHEDULERS["step"])
    with attach(loop, tmp_path) as rec:
        for step in range(1, 21):
            loop.optimizer.param_groups[0]["weight_decay"] = 0.1 + step / 1000
            loop.run(rec, step)
    ledger = only(tmp_path)
    assert len(ledger.of("drift")) <= 1
    assert any(
        "weight_decay is moved by the training code" in g for g in ledger.last("coverage").payload.gaps
    )


def test_a_change_in_the_last_update_is_still_told(tmp_path: Path) -> None:
    """Nothing follows that it could stand for."""
    loop = Scheduled(SCHEDULERS["step"])
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 5)
        loop.optimizer.param_groups[0]["weight_decay"] = 0.0
        loop.run(rec, 6)
    assert [(c.concept) for r in only(tmp_path).of("drift") for c in r.payload.changes] == ["weight_decay"]
