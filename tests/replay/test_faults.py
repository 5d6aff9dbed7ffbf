"""Real faults, replayed: each flips with the condition that it hangs on, and with no other."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
from torch import nn
from torch.nn import functional as F

from .cases import BAD, Case, Half, Kernel, Net, at, replay, scaled, spoiled


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def outcome(bundle: Any, build: Any, change: str) -> tuple[str, str, str, bool | None]:
    """(result of the control, result of the change, whether it was in effect, whether it flips)."""
    control, changed = replay(bundle, build, change)
    return control.result, changed.result, changed.changes[0].in_effect, changed.flips


FLIPS = ("reproduced", "not_reproduced", "yes", True)
STAYS = ("reproduced", "reproduced", "yes", False)


def test_an_overflow_of_float16_goes_away_in_float32_and_with_nothing_else(tmp_path: Path) -> None:
    """The square of 300 is beyond 65,504. The module and the operator are named, with what went in."""
    case = Case(lambda: Net(Half(), autocast=True), batch=at(BAD, scaled(3e3)))
    bundle = case.train(tmp_path)
    assert bundle.step == BAD
    control, changed = replay(bundle, case.build, "fp32")
    assert (control.result, changed.result, changed.flips) == ("reproduced", "not_reproduced", True)
    assert [v.equal for v in control.values if v.signal == "loss"] == [True]
    assert control.tensors_compared == control.tensors_equal == len(list(Net(Half()).parameters()))
    module, forward = control.first_non_finite[:2]
    assert (module.phase, module.module, module.cls, module.place) == ("forward", "middle", "Half", 1)
    assert (forward.operation, forward.module) == ("aten.mul.Tensor", "middle")
    assert 256 < forward.largest_before < 65_504  # type: ignore[operator]
    assert any("middle.inner (Linear)" in text for text in control.before)
    raised = [(e.family, e.aspect, e.direction) for e in changed.effects]
    assert raised == [("numerics", "precision", "raises")]
    assert outcome(bundle, case.build, "without-sample:0") == STAYS
    assert outcome(bundle, case.build, "deterministic") == STAYS
    assert outcome(bundle, case.build, "eager-hooks") == STAYS
    assert outcome(bundle, case.build, "math-sdpa")[2:] == ("not_shown", False)
    assert outcome(bundle, case.build, "no-compile") == ("reproduced", "inconclusive", "no", None)
    assert outcome(bundle, case.build, "optimizer-reset")[1:] == ("reproduced", "yes", False)
    assert outcome(bundle, case.build, "single-device") == ("reproduced", "inconclusive", "no", None)


class Logs(Case):
    """A loss that takes the log of a probability which is zero at one step."""

    @staticmethod
    def loss(model: Any, batch: Any) -> Any:
        p = torch.sigmoid(model(batch["x"])) * batch["keep"]
        return -torch.log(p).mean()

    def given(self, step: int, micro: int, rank: int = 0) -> Any:
        batch = super().given(step, micro, rank)
        keep = torch.ones(8, 1)
        if step == BAD:
            keep[5] = 0.0
        return {**batch, "keep": keep}


def test_a_log_of_zero_is_named_and_goes_with_its_sample(tmp_path: Path) -> None:
    """It stands in the loss, outside of every module; float32 does not help, and without the sample it is gone."""
    case = Logs()
    bundle = case.train(tmp_path)
    assert (bundle.step, bundle.manifest.alarm.signal) == (BAD, "loss")
    assert outcome(bundle, case.build, "fp32") == ("reproduced", "inconclusive", "no", None)
    control, changed = replay(bundle, case.build, "without-sample:5")
    assert (control.result, changed.result, changed.flips) == ("reproduced", "not_reproduced", True)
    first = control.first_non_finite[0]
    assert (first.phase, first.operation) == ("loss", "aten.log.default")
    assert first.broken == 1
    backward = next(f for f in control.first_non_finite if f.node is not None)
    assert backward.node == "LogBackward0"
    assert outcome(bundle, case.build, "without-sample:4") == STAYS


def test_a_bad_sample_flips_with_it_and_with_no_other_one(tmp_path: Path) -> None:
    """A NaN among the numbers of sample 3. What comes in broken is named as the input."""
    case = Case(batch=at(BAD, spoiled(3)))
    bundle = case.train(tmp_path)
    assert outcome(bundle, case.build, "without-sample:3") == FLIPS
    assert outcome(bundle, case.build, "without-sample:2") == STAYS
    control, changed = replay(bundle, case.build, "without-sample:3")
    assert (control.first_non_finite[0].phase, control.first_non_finite[0].module) == ("input", "model")
    assert [(e.family, e.direction) for e in changed.effects] == [("data", "raises")]


def flash() -> bool:
    return bool(torch.backends.cuda.flash_sdp_enabled())


def test_a_custom_kernel_is_named_and_goes_away_where_the_plain_way_is_taken(tmp_path: Path) -> None:
    """A fused kernel that obeys torch's switch for fused attention gives NaN above 2."""
    case = Case(lambda: Net(Kernel(flash)), batch=at(BAD, scaled(30)))
    bundle = case.train(tmp_path)
    control, changed = replay(bundle, case.build, "math-sdpa")
    assert (control.result, changed.result, changed.flips) == ("reproduced", "not_reproduced", True)
    forward = next(f for f in control.first_non_finite if f.operation is not None)
    assert forward.operation == "lineage_tests.fused_square.default"
    assert (forward.module, forward.cls) == ("middle", "Kernel")
    assert {(e.family, e.aspect) for e in changed.effects} == {("numerics", "kernel"), ("hardware", "kernel")}
    assert outcome(bundle, case.build, "deterministic") == STAYS
    assert outcome(bundle, case.build, "eager-hooks") == STAYS


def order_free() -> bool:
    return not torch.are_deterministic_algorithms_enabled()


def test_a_kernel_without_a_fixed_order_goes_away_with_deterministic_ones(tmp_path: Path) -> None:
    """The switch chooses another way of the same arithmetic."""
    case = Case(lambda: Net(Kernel(order_free)), batch=at(BAD, scaled(30)))
    bundle = case.train(tmp_path)
    assert outcome(bundle, case.build, "deterministic") == FLIPS
    assert not torch.are_deterministic_algorithms_enabled()
    assert outcome(bundle, case.build, "math-sdpa")[3] is False


def broken_backend(graph: Any, inputs: Any) -> Any:
    """A compiler that is wrong where a value is above 20."""

    def run(*args: Any) -> Any:
        out = graph.forward(*args)
        large = any(isinstance(a, torch.Tensor) and bool((a > 20).any()) for a in args)
        return tuple(o * float("nan") for o in out) if large else out

    return run


def test_a_fault_of_the_compiler_goes_away_without_it(tmp_path: Path) -> None:
    """The graph is really compiled by dynamo, with a backend that breaks it."""
    case = Case(batch=at(BAD, scaled(30)), compile_with=broken_backend)
    bundle = case.train(tmp_path)
    assert bundle.step == BAD
    assert outcome(bundle, case.build, "no-compile") == FLIPS
    control, changed = replay(bundle, case.build, "eager-hooks")
    assert (control.result, changed.result, changed.flips) == ("reproduced", "not_reproduced", True)
    assert any("with every module looked at the loss is" in text for text in control.limits)
    changed = replay(bundle, case.build, "fp32")[1]
    assert changed.changes[0].in_effect == "not_shown"


class Moments(Case):
    """A second moment below zero: the next update makes a NaN of the weight."""

    def after(self, step: int, model: Any, optimizer: Any) -> None:
        if step == 5:
            optimizer.state[model.first.weight]["exp_avg_sq"].fill_(-1.0)


def test_broken_moments_in_the_checkpoint_go_away_with_a_fresh_optimizer(tmp_path: Path) -> None:
    """The checkpoint of step 5 has them; step 6 breaks the weight, step 7 shows it in the loss."""
    case = Moments()
    bundle = case.train(tmp_path)
    assert bundle.step == 7
    control, changed = replay(bundle, case.build, "optimizer-reset")
    assert control.start.replayed_updates == 1
    assert (control.result, changed.result, changed.flips) == ("reproduced", "not_reproduced", True)
    assert [(e.family, e.aspect, e.direction) for e in changed.effects] == [("optimizer", "state", "raises")]
    assert outcome(bundle, case.build, "without-sample:1") == STAYS


def test_a_loss_out_of_its_range_shows_again_by_the_detectors_own_bound(tmp_path: Path) -> None:
    """Wrong targets at one step: finite, and far above the rest."""
    case = Case(batch=at(BAD, lambda b: {**b, "y": b["y"] + 50}))
    bundle = case.train(tmp_path)
    alarm = bundle.manifest.alarm
    assert (alarm.signal, alarm.abnormal) == ("loss", "out_of_range")
    control = replay(bundle, case.build)[0]
    assert control.result == "reproduced"
    assert control.first_non_finite == []
    loss = next(v for v in control.values if v.signal == "loss")
    assert loss.replayed == [loss.recorded] == [alarm.value]


class Attention(nn.Module):
    """Attention by torch's own function, whose fused kernel is wrong for large values."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(4, 12)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(x).view(1, 1, x.shape[0], 12).chunk(3, -1)
        y = F.scaled_dot_product_attention(q, k, v)[0, 0]
        wrong = torch.backends.cuda.flash_sdp_enabled()
        return torch.where(x.abs() > 50, math.nan, y) if wrong else y


def test_a_fault_of_the_fused_attention_goes_away_with_the_plain_one(tmp_path: Path) -> None:
    case = Case(lambda: Net(Attention()), batch=at(BAD, scaled(1e3)))
    bundle = case.train(tmp_path)
    assert outcome(bundle, case.build, "math-sdpa") == FLIPS
    assert outcome(bundle, case.build, "deterministic") == STAYS


class Narrow(nn.Module):
    """Breaks where products of float32 are not made in float32."""

    def forward(self, x: Any) -> Any:
        narrow = torch.get_float32_matmul_precision() != "highest"
        return torch.where(x.abs() > 50, math.nan, x) if narrow else x


def test_float32_is_whole_where_the_run_had_tf32_and_the_switch_is_put_back(tmp_path: Path) -> None:
    torch.set_float32_matmul_precision("high")
    try:
        case = Case(lambda: Net(Narrow()), batch=at(BAD, scaled(1e3)))
        bundle = case.train(tmp_path)
        assert outcome(bundle, case.build, "fp32") == FLIPS
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


class Mask(nn.Module):
    """Returns minus infinities on purpose, as a module that makes an attention mask does."""

    def forward(self, x: Any) -> Any:
        above = torch.triu(torch.ones(x.shape[0], x.shape[0], dtype=torch.bool), 1)
        return torch.zeros(x.shape[0], x.shape[0]).masked_fill(above, -math.inf)


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mask, self.last = Mask(), nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        y = torch.softmax(x @ x.T + self.mask(x), -1) @ x
        return torch.log(torch.relu(self.last(y)) + (x.detach().abs().max() < 50))


def test_a_module_that_makes_a_mask_is_not_the_first_that_is_not_finite(tmp_path: Path) -> None:
    case = Case(lambda: Net(Masked()), batch=at(BAD, scaled(1e3)))
    bundle = case.train(tmp_path)
    (control,) = replay(bundle, case.build)
    module, forward = control.first_non_finite[:2]
    assert (module.module, module.cls) == ("middle", "Masked")
    assert (forward.module, forward.operation) == ("middle", "aten.log.default")
