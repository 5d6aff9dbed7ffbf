"""Negative controls: what changes nothing stays silent, and its twin, which differs in one thing, does not."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import schemas
from lineage.judge import drift as d
from lineage.judge import regime, requested
from lineage.judge.validity import claim_verdict, tallies_of

from .builders import effective, environment, restore, side, uid

PAIRS: list[dict[str, Any]] = tomllib.loads(
    (Path(__file__).parents[1] / "data" / "configs" / "controls.toml").read_text(encoding="utf-8")
)["pair"]
NAMES = [p["name"] for p in PAIRS]


def config(values: dict[str, Any]) -> schemas.Config:
    """A config as a tracker or a launch script would give it."""
    held = {k: schemas.Scalar.of(v) for k, v in values.items()}
    return schemas.Config(source="dict", values=held, digest="sha256:00")


def judged(pair: dict[str, Any]) -> tuple[schemas.Drift, requested.Requested]:
    """The drift between two sides that differ in their configs only, and what the configs alone give."""
    before, after = config(pair["before"]), config(pair["after"])
    live = effective()
    found = d.drift(side(before, live), side(after, live), from_step=11, restore=restore(uid(1)))
    return found, requested.compare(before, after)


def verdicts(found: schemas.Drift) -> dict[str, schemas.ClaimVerdict]:
    """What a drift alone does to each claim."""
    tallies = tallies_of(found, uid(9))
    return {claim: claim_verdict(claim, tally, found.confounded) for claim, tally in tallies.items()}


def altering(found: schemas.Drift) -> list[str]:
    """Concepts whose change opens a regime."""
    return [c.concept for c in found.changes if c.cls in ("R", "C")]


@pytest.mark.parametrize("pair", PAIRS, ids=NAMES)
def test_a_control_opens_no_regime_and_leaves_every_claim_but_bitwise_standing(pair: dict[str, Any]) -> None:
    """No change of class R or C, nothing unclassified, nothing not shown: nobody is made to mute the tool."""
    found, asked = judged(pair["control"])
    assert {c.concept: c.cls for c in found.changes} == pair["control"].get("changes", {})
    assert (altering(found), found.unclassified, found.not_shown) == ([], [], {})
    assert sorted({c.concept for c in asked.aside}) == pair["control"].get("aside", [])
    standing = {c: v.status for c, v in verdicts(found).items() if c not in ("bitwise", "throughput")}
    assert set(standing.values()) == {"holds"}


@pytest.mark.parametrize("pair", PAIRS, ids=NAMES)
def test_the_twin_of_a_control_is_told(pair: dict[str, Any]) -> None:
    """What matters is found, with its class, or said to be not shown."""
    twin = pair["twin"]
    before, after = d.Side(config=config(twin["before"])), d.Side(config=config(twin["after"]))
    found = d.drift(before, after, from_step=11)
    unchanged = d.drift(before, before, from_step=11)
    assert {c.concept: c.cls for c in found.changes} == twin.get("changes", {})
    opened = {k for k, v in found.not_shown.items() if unchanged.not_shown.get(k) != v}
    assert opened == set(twin.get("open", []))
    assert twin.get("changes") or twin.get("open"), "a twin that nothing is expected of proves nothing"


def test_micro_batches_under_averaged_means_leave_a_caveat_and_under_token_normalisation_none() -> None:
    """Averaged micro-batch means weigh the tokens of short micro-batches otherwise."""
    pair = next(p for p in PAIRS if p["name"] == "other micro-batches of the same step, in Megatron")
    means, tokens = (verdicts(judged(pair[which])[0]) for which in ("twin", "control"))
    assert (means["loss_curve"].status, tokens["loss_curve"].status) == ("caveat", "holds")
    assert "averaged micro-batch means weigh the tokens of short micro-batches" in means["loss_curve"].reason
    assert (means["bitwise"].status, tokens["bitwise"].status) == ("broken", "broken")


def test_a_node_swap_on_the_same_topology_is_silent_and_another_gpu_model_is_not() -> None:
    """Which machine it is does not matter; which device it is does."""

    def on(name: str, uuid: str) -> schemas.Environment:
        devices = [schemas.Device(name=name, uuid=uuid)]
        return environment(torch="2.13").model_copy(update={"devices": devices, "world_size": 8})

    here = side(env=on("H100", "GPU-1"))
    swapped = d.drift(here, side(env=on("H100", "GPU-2")), from_step=1, restore=restore(uid(1)))
    other = d.drift(here, side(env=on("A100", "GPU-2")), from_step=1, restore=restore(uid(1)))
    assert (swapped.changes, swapped.not_shown) == ([], {})
    assert [(c.concept, c.cls) for c in other.changes] == [("hardware", "C")]


def test_no_control_opens_a_regime_by_its_id_either() -> None:
    """A regime's id is made of effective values of classes R and C, which none of the controls touches."""
    first = regime.regime(effective(micro_batch=4, grad_accum=8, world_size=16), 1)
    assert first is not None
    assert regime.regime(effective(micro_batch=8, grad_accum=4, world_size=16), 11, first) is None
    assert regime.regime(effective(world_size=8, dp_sharding="FSDP"), 11, first) is None
    assert regime.regime(effective(learning_rate=2e-3), 11, first) is not None
