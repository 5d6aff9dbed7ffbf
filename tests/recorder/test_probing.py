"""What the probes give a run: rows by tensor, signals, findings, and no alarm for a search of the loss scale."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import lineage
from lineage.ledger import health

from .loop import Loop, attach, only


def rows(root: Path, table: str) -> list[dict[str, Any]]:
    """A table of the only ledger."""
    found: list[dict[str, Any]] = only(root).series(table).to_pylist()
    return found


def test_each_gradient_of_each_step_has_a_row_with_its_own_numbers(tmp_path: Path) -> None:
    """Sum of squares, largest magnitude and order of arrival equal those of the live gradient."""
    loop, seen = Loop(clip=None), {}
    with attach(loop, tmp_path) as rec:
        for step in range(1, 4):
            loop.run(rec, step)
            seen[step] = {n: p.grad.clone() for n, p in loop.model.named_parameters()}
    found = [r for r in rows(tmp_path, "tensors") if r["kind"] == "gradient"]
    assert len(found) == 3 * 4
    for r in found:
        gradient = seen[r["step"]][r["tensor"]]
        assert r["sumsq"] == pytest.approx(float(gradient.double().pow(2).sum()), rel=1e-5)
        assert r["largest"] == float(gradient.abs().max())
        assert (r["elements"], r["dtype"], r["scale"]) == (gradient.numel(), "float32", 1.0)
        assert (r["n_nan"], r["n_posinf"], r["n_neginf"]) == (0, 0, 0)
    first = sorted((r for r in found if r["step"] == 1), key=lambda r: r["order"])
    assert [r["order"] for r in first] == [0, 1, 2, 3]
    assert first[0]["tensor"].startswith("2."), "the last layer's gradient arrives first"


def test_weights_moments_and_updates_are_read_at_the_first_two_steps_and_each_tenth(tmp_path: Path) -> None:
    """At steps 1, 2, 11 and 21, and their norms are signals of those steps: the first two show what a resume lost."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 25)
    found = rows(tmp_path, "tensors")
    for kind in ("weight", "moment1", "moment2", "update"):
        assert sorted({r["step"] for r in found if r["kind"] == kind}) == [1, 2, 11, 21]
    signals = rows(tmp_path, "probes")
    norm = {r["step"]: r["value"] for r in signals if r["signal"] == "weight_norm"}
    assert sorted(norm) == [1, 2, 11, 21]
    at_end = [r for r in found if (r["kind"], r["step"]) == ("weight", 21)]
    assert norm[21] == pytest.approx(math.sqrt(sum(r["sumsq"] for r in at_end)))


def test_an_update_that_cannot_be_computed_has_a_proxy_that_says_so(tmp_path: Path) -> None:
    """RMSprop: learning rate times the norm of the gradient, beside the weight of the same step."""
    loop = Loop(clip=None)
    loop.optimizer = torch.optim.RMSprop(loop.model.parameters(), lr=0.25)
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 1)
        gradients = {n: float(p.grad.double().norm()) for n, p in loop.model.named_parameters()}
    found = rows(tmp_path, "tensors")
    assert not [r for r in found if r["kind"] == "update"]
    proxies = {r["tensor"]: r for r in found if r["kind"] == "update_proxy"}
    assert proxies.keys() == gradients.keys() == {r["tensor"] for r in found if r["kind"] == "weight"}
    for name, norm in gradients.items():
        assert math.sqrt(proxies[name]["sumsq"]) == pytest.approx(0.25 * norm, rel=1e-5)
        assert proxies[name]["largest"] is None


def test_state_every_is_a_setting(tmp_path: Path) -> None:
    """0 leaves the state alone, 2 reads it at the first two and at every other step."""
    for every, steps in ((0, []), (2, [1, 2, 3, 5])):
        loop = Loop()
        root = tmp_path / str(every)
        with attach(loop, root, state_every=every) as rec:
            loop.run(rec, 6)
        assert sorted({r["step"] for r in rows(root, "tensors") if r["kind"] == "weight"}) == steps


def test_values_of_the_groups_are_written_when_they_change(tmp_path: Path) -> None:
    """The rate follows the scheduler, eps stands once."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 5)
    signals = rows(tmp_path, "probes")
    assert [r["step"] for r in signals if r["signal"] == "eps of group 0"] == [1]
    assert [r["step"] for r in signals if r["signal"] == "lr of group 0"] == [1, 2, 3, 4, 5]


def test_a_nan_is_counted_where_it_is_and_the_norm_says_so(tmp_path: Path) -> None:
    """The row counts NaN, its sum of squares is of what is finite, and the alarm names the parameters."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 12, spoil=10)
    at = [r for r in rows(tmp_path, "tensors") if (r["kind"], r["step"]) == ("gradient", 10)]
    assert {r["n_nan"] for r in at} == {r["elements"] for r in at}
    assert {r["sumsq"] for r in at} == {0.0}
    alarm = next(r.payload for r in only(tmp_path).of("alarm") if r.payload.signal == "grad_norm_local")
    assert set(alarm.tensors) == {n for n, _ in loop.model.named_parameters()}


@pytest.mark.parametrize("breaks", [False, True])
def test_a_search_for_the_loss_scale_is_no_alarm_and_what_stays_broken_is(
    tmp_path: Path, breaks: bool
) -> None:
    """float16's scaler starts too high and halves; after 20 broken steps in a row it is no search any more."""
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**100)
    with lineage.attach(
        None, dir=str(tmp_path), model=model, optimizer=optimizer, scaler=scaler, quiet=True
    ) as rec:
        for step in range(1, 31):
            with rec.step(step, torch.ones(2, 4)) as st:
                loss = model(torch.ones(2, 4)).pow(2).mean() * (float("inf") if breaks else 1e10)
                optimizer.zero_grad()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                st.loss(loss.detach().clamp(max=1.0))
    alarms = [r for r in only(tmp_path).of("alarm") if r.payload.signal == "grad_norm_local"]
    signals = rows(tmp_path, "probes")
    skipped = [r["step"] for r in signals if r["signal"] == "update_skipped" and r["value"] == 1.0]
    assert skipped[0] == 1
    if breaks:
        assert [r.step for r in alarms] == [21]
    else:
        assert alarms == []
        assert 0 < len(skipped) <= 20
        norms = {r["step"]: r["value"] for r in signals if r["signal"] == "grad_norm_local"}
        assert math.isfinite(norms[30])
        assert norms[30] < 1e13, "without the loss scale"


def test_what_the_optimizer_does_not_hold_is_found_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A layer that was added after the optimizer was made."""
    loop = Loop()
    loop.model.append(torch.nn.Linear(1, 1))
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 12)
    found = [r.payload for r in only(tmp_path).of("finding") if r.payload.code == "LIN-P001"]
    assert [(f.names, f.severity) for f in found] == [(["3.weight", "3.bias"], "warning")]
    assert caplog.text.count("LIN-P001") == 1


def test_a_parameter_without_a_gradient_is_found_after_twenty_steps(tmp_path: Path) -> None:
    """Absent is not zero: a parameter that nothing uses has no row, and one finding."""
    loop = Loop()
    loop.model.unused = torch.nn.Parameter(torch.ones(3))
    del loop.model._parameters["unused"]
    loop.model[0].register_parameter("unused", torch.nn.Parameter(torch.ones(3)))
    loop.optimizer.add_param_group({"params": [loop.model[0].unused]})
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 25)
    (found,) = [r for r in only(tmp_path).of("finding") if r.payload.code == "LIN-P009"]
    assert (found.payload.names, found.step) == (["0.unused"], 20)
    assert not [r for r in rows(tmp_path, "tensors") if r["tensor"] == "0.unused" and r["kind"] == "gradient"]


def test_a_threshold_below_all_norms_is_found(tmp_path: Path) -> None:
    """Every step is clipped: told once, after a hundred steps, with rate and threshold."""
    loop = Loop(clip=1e-6)
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 130)
    (found,) = [r for r in only(tmp_path).of("finding") if r.payload.code == "LIN-P008"]
    assert found.step == 100
    assert found.payload.values["rate"].value == 1.0
    assert found.payload.values["threshold"].value == 1e-6


@pytest.mark.parametrize(("code", "name"), [("LIN-P006", "0.weight"), ("LIN-P007", "weight of 2.bias")])
def test_a_broken_optimizer_state_is_found(tmp_path: Path, code: str, name: str) -> None:
    """A negative second moment and a weight that is not a number are faults, at the next read of the state."""
    loop = Loop()
    with attach(loop, tmp_path, state_every=2) as rec:
        loop.run(rec, 4)
        with torch.no_grad():
            if code == "LIN-P006":
                loop.optimizer.state[loop.model[0].weight]["exp_avg_sq"][0, 0] = -1e9
            else:
                loop.model[2].bias.fill_(float("nan"))
        loop.run(rec, 6)
    found = {r.payload.code: r for r in only(tmp_path).of("finding")}
    assert name in found[code].payload.names
    assert (found[code].payload.severity, found[code].step) == ("fault", 5)


def test_probes_can_be_switched_off(tmp_path: Path) -> None:
    """No hook, no row; the rest is recorded."""
    loop = Loop()
    with attach(loop, tmp_path, probes=False) as rec:
        loop.run(rec, 3)
        assert not any(p._post_accumulate_grad_hooks for p in loop.model.parameters())
    assert rows(tmp_path, "tensors") == []
    assert {r["signal"] for r in rows(tmp_path, "probes")} == {
        *("loss", "lr", "grad_norm", "clip_threshold"),
        *("time_step", "time_between"),
    }


def test_the_gate_is_off_and_holds_a_broken_step_back_where_it_is_asked_for(tmp_path: Path) -> None:
    """Weights, moments and step counter stand after a NaN step; the series says which step was held back."""
    for gate in (False, True):
        loop = Loop()
        root = tmp_path / str(gate)
        with attach(loop, root, gate=gate) as rec:
            loop.run(rec, 4)
            before = [p.detach().clone() for p in loop.model.parameters()]
            loop.run(rec, 5, spoil=5)
            same = all(torch.equal(a, b) for a, b in zip(before, loop.model.parameters(), strict=True))
            assert same is gate
            loop.run(rec, 6)
            assert all(bool(p.isfinite().all()) for p in loop.model.parameters()) is gate
        held = {r["step"]: r["value"] for r in rows(root, "probes") if r["signal"] == "update_held_back"}
        assert held == ({1: 0.0, 2: 0.0, 3: 0.0, 4: 0.0, 5: 1.0, 6: 0.0} if gate else {})
        assert not loop.optimizer._optimizer_step_pre_hooks


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_the_gate_held_back_shows_no_update(tmp_path: Path, fused: bool) -> None:
    """Weights and moments are read at that step, and what they would give is the update of the one before."""
    loop = Loop()
    loop.optimizer = torch.optim.AdamW(loop.model.parameters(), fused=fused)
    loop.scheduler = torch.optim.lr_scheduler.ConstantLR(loop.optimizer)
    with attach(loop, tmp_path, gate=True, state_every=2) as rec:
        loop.run(rec, 6, spoil=5)
    found = rows(tmp_path, "tensors")
    assert {r["step"] for r in found if r["kind"] == "weight"} == {1, 2, 3, 5}
    assert {r["step"] for r in found if r["kind"] == "update"} == {1, 2, 3}


def test_a_layer_that_is_unfrozen_between_two_steps_is_read_in_the_next(tmp_path: Path) -> None:
    loop = Loop()
    loop.model[0].requires_grad_(False)
    with attach(loop, tmp_path) as rec:
        loop.run(rec, 2)
        loop.model[0].requires_grad_(True)
        loop.run(rec, 4)
    read = {(r["tensor"], r["step"]) for r in rows(tmp_path, "tensors") if r["kind"] == "gradient"}
    assert {step for name, step in read if name == "0.weight"} == {3, 4}


def test_a_model_can_be_saved_whole_from_the_start(tmp_path: Path) -> None:
    """Before the first forward pass, whose precision a hook looks at, and after it."""
    loop = Loop()
    with attach(loop, tmp_path / "runs", activations=True) as rec:
        for done in (0, 2):
            loop.run(rec, done)
            torch.save(loop.model, tmp_path / "model.pt")
            loaded = torch.load(tmp_path / "model.pt", weights_only=False)
            assert torch.equal(loaded[0].weight, loop.model[0].weight)


def test_activations_are_asked_for_and_each_block_has_a_row(tmp_path: Path) -> None:
    """Opt-in; the rows are of the blocks' outputs."""
    loop = Loop()
    with attach(loop, tmp_path, activations=True) as rec:
        loop.run(rec, 2)
    found = [r for r in rows(tmp_path, "tensors") if r["kind"] == "activation"]
    assert {r["tensor"] for r in found} == {"0", "1", "2"}
    assert {r["step"] for r in found} == {1, 2}


def test_a_finding_of_several_segments_stands_once(tmp_path: Path) -> None:
    """Decay on biases is told under the first segment, with the number of others."""
    for run in range(3):
        loop = Loop()
        with attach(loop, tmp_path, run_id="one") as rec:
            loop.run(rec, 2 + run)
    ledger = only(tmp_path)
    assert len([r for r in ledger.of("finding") if r.payload.code == "LIN-P005"]) == 3
    (one,) = [
        g
        for g in health.gathered(ledger, {s.uid for s in ledger.segments})
        if g.first.payload.code == "LIN-P005"
    ]
    assert (one.others, one.first.segment) == (2, ledger.segments[0].uid)
