"""What a replay begins with, what it makes again bit for bit, what it refuses, and what it leaves on record."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

import lineage
from lineage.bundle.reading import Bundle, BundleError
from lineage.ledger.reader import Ledger
from lineage.ledger.verify import verify
from lineage.replay import building, conditions
from lineage.replay.building import BuildError

from .cases import BAD, Case, Net, at, replay, spoiled

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def nan_at(step: int) -> Case:
    return Case(batch=at(step, spoiled(3)))


# -- the start, and equality to the last bit


def test_with_the_gate_the_step_is_made_from_its_own_state(tmp_path: Path) -> None:
    """Weights and moments are those from before the step, by their digests; dropout draws what it drew."""
    case = nan_at(BAD)
    control = replay(case.train(tmp_path, gate=True), case.build)[0]
    assert (control.start.source, control.start.updates_between, control.start.replayed_updates) == (
        "bundle",
        0,
        0,
    )
    equal = {c.component: c.equal for c in control.start.components}
    assert equal["weights"] is equal["optimizer_state"] is True
    assert control.result == "reproduced"
    assert control.tensors_equal == control.tensors_compared == 4


def test_updates_since_the_checkpoint_are_made_again_bit_for_bit(tmp_path: Path) -> None:
    """With dropout and three micro-batches: six updates, then the step's finite gradients too are the recorded ones."""
    case = Case(batch=at(BAD, lambda b: {**b, "y": b["y"] + 50}), micros=3)
    control = replay(case.train(tmp_path), case.build)[0]
    assert (control.start.source, control.start.step, control.start.replayed_updates) == ("checkpoint", 5, 6)
    assert control.start.updates_between == 0
    assert {c.component: c.equal for c in control.start.components}["weights"] is True
    equal = {v.signal: v.equal for v in control.values}
    assert equal["loss"] is equal["grad_norm_local"] is equal["grad_norm"] is True
    assert control.tensors_equal == control.tensors_compared == 4


def test_a_run_from_its_first_step_needs_no_checkpoint(tmp_path: Path) -> None:
    """The bundle has every batch since the beginning, and build gives the initial model."""
    case = nan_at(6)
    control = replay(case.train(tmp_path, save=None), case.build)[0]
    assert (control.start.source, control.start.replayed_updates, control.start.updates_between) == (
        "built",
        5,
        0,
    )
    assert (control.result, control.tensors_equal) == ("reproduced", 4)


def test_from_a_checkpoint_with_updates_missing_the_distance_is_told(tmp_path: Path) -> None:
    """Only three steps are kept: the replay is six updates away, and says nothing of arithmetic."""
    case = nan_at(BAD)
    control = replay(case.train(tmp_path, bundle_steps=3), case.build)[0]
    assert (control.start.updates_between, control.start.replayed_updates) == (6, 0)
    assert control.result == "reproduced"
    assert "6 updates away from the recorded state" in control.reason
    assert any("says nothing of arithmetic" in text for text in control.limits)
    assert not any(e.family == "hardware" and e.direction == "raises" for e in control.effects)


def test_a_batch_that_flips_from_another_start_still_flips(tmp_path: Path) -> None:
    """Control and change begin alike: whether the sample does it can be told from any state in which it does."""
    case = nan_at(BAD)
    bundle = case.train(tmp_path, bundle_steps=3)
    control, changed = replay(bundle, case.build, "without-sample:3")
    assert control.start.updates_between == 6
    assert (changed.result, changed.flips) == ("not_reproduced", True)
    assert [(e.family, e.direction) for e in changed.effects] == [("data", "raises")]


def test_a_checkpoint_that_was_loaded_wrongly_is_found_by_its_digest(tmp_path: Path) -> None:
    """build's load leaves one parameter as it was: the start differs, so a clean replay tells nothing."""
    case = nan_at(BAD)
    bundle = case.train(tmp_path, bundle_steps=3)

    def build() -> dict[str, Any]:
        parts = case.build()
        load, model = parts["load"], parts["model"]

        def half(path: Path) -> None:
            kept = model.first.bias.detach().clone()
            load(path)
            with torch.no_grad():
                model.first.bias.copy_(kept)

        return {**parts, "load": half}

    control = replay(bundle, build)[0]
    assert {c.component: c.equal for c in control.start.components}["weights"] is False


def test_a_checkpoint_that_is_gone_is_said_and_the_built_model_is_no_recorded_state(tmp_path: Path) -> None:
    """It then is not known how far the start is away."""
    case = nan_at(BAD)
    bundle = case.train(tmp_path, bundle_steps=3)
    shutil.rmtree(tmp_path / "ck")
    control = replay(bundle, case.build)[0]
    assert (control.start.source, control.start.updates_between) == ("built", None)
    assert "of step 5, is not there" in control.start.text


def test_the_scaler_the_rates_and_the_settings_are_the_recorded_ones(tmp_path: Path) -> None:
    """build gives a rate and a decay of its own: the recorded ones are used, and what differed is said."""
    case = Case(batch=at(BAD, lambda b: {**b, "y": b["y"] + 50}))
    bundle = case.train(tmp_path)

    def build() -> dict[str, Any]:
        parts = case.build()
        parts["optimizer"].param_groups[0].update(lr=1.0)
        load = parts["load"]

        def after(path: Path) -> None:
            load(path)
            parts["optimizer"].param_groups[0].update(lr=1.0, weight_decay=0.5)

        return {**parts, "load": after}

    control = replay(bundle, build)[0]
    assert control.tensors_equal == 4
    assert any(
        "weight_decay of group 0 was 0.5 in build, 0.01 was recorded" in text for text in control.limits
    )


def test_repeated_replays_give_the_spread_and_what_comes_and_goes_is_inconclusive(tmp_path: Path) -> None:
    """A kernel that is broken every other time is neither reproduced nor clean."""
    case = nan_at(BAD)
    bundle = case.train(tmp_path, gate=True)
    control = replay(bundle, case.build, repeat=3)[0]
    assert (control.runs, control.shown, control.result) == (3, 3, "reproduced")
    clean = Case(batch=at(BAD, lambda b: {**b, "y": b["y"] + 50}))
    bundle = clean.train(tmp_path / "other", gate=True)
    calls = iter(range(100))

    def build() -> dict[str, Any]:
        parts = clean.build()
        factor = 1.0 if next(calls) % 2 else 1e-3

        def loss(model: Any, batch: Any) -> Any:
            return clean.loss(model, batch) * factor

        return {**parts, "loss": loss}

    control = replay(bundle, build, repeat=4)[0]
    assert (control.result, control.shown, control.runs) == ("inconclusive", 2, 4)
    assert "comes and goes" in control.reason
    assert next(v for v in control.values if v.signal == "loss").spread > 0  # type: ignore[operator]
    assert control.effects == []


def test_random_states_that_are_missing_matter_only_where_numbers_are_drawn(tmp_path: Path) -> None:
    """Without dropout nothing is drawn; with it the replay is not the step."""
    for dropout, problem in ((0.0, False), (0.2, True)):

        def make(p: float = dropout) -> Any:
            model = Net()
            model.drop.p = p
            return model

        case = Case(make, batch=at(BAD, lambda b: {**b, "y": b["y"] + 50}))
        bundle = case.train(tmp_path / str(dropout), gate=True, save=None)
        for name in ("rng.json", "rng.safetensors"):
            (bundle.path / name).unlink()
            bundle._files.discard(name)
        bundle._files -= {f for f in bundle._files if f.startswith("batches/step") and "micro" not in f}
        kept = [s for s in bundle.manifest.steps if s.step == BAD]
        object.__setattr__(bundle.manifest, "steps", kept)
        control = replay(bundle, case.build)[0]
        assert any("random-number states are not in the bundle" in t for t in control.limits) is problem


def test_a_whole_update_of_ones_own_is_made_in_its_place(tmp_path: Path) -> None:
    """`update` gets the micro-batches and calls `before` for each: the losses are the recorded ones."""
    case = Case(batch=at(BAD, lambda b: {**b, "y": b["y"] + 50}), micros=2)
    bundle = case.train(tmp_path)

    def build() -> dict[str, Any]:
        parts = case.build()
        model, optimizer = parts["model"], parts["optimizer"]

        def update(batches: list[Any], before: Any) -> list[Any]:
            losses = []
            for i, batch in enumerate(batches):
                before(i)
                losses.append(case.loss(model, batch))
                (losses[-1] / 2).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return losses

        return {"model": model, "optimizer": optimizer, "update": update, "load": parts["load"]}

    control = replay(bundle, build)[0]
    assert control.result == "reproduced"
    assert control.tensors_equal == control.tensors_compared == 4


def test_a_loss_scaler_is_put_to_its_recorded_scale(tmp_path: Path) -> None:
    """Gradients are compared as they were read, times the scale."""
    torch.manual_seed(1)
    scale = 2.0**20

    def parts() -> tuple[Any, Any, Any]:
        torch.manual_seed(1)
        model = torch.nn.Linear(4, 1)
        return model, torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cpu", init_scale=65536.0)

    model, optimizer, scaler = parts()
    scaler.load_state_dict({**scaler.state_dict(), "scale": scale})
    with lineage.attach(
        None, model=model, optimizer=optimizer, scaler=scaler, dir=tmp_path / "runs", quiet=True, report=False
    ) as rec:
        for step in range(1, BAD + 1):
            batch = {"x": torch.ones(4, 4) * (1e4 if step == BAD else 1.0)}
            with rec.step(step, batch) as st:
                loss = model(batch["x"]).pow(2).mean()
                optimizer.zero_grad()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                st.loss(loss)
    bundle = Bundle(next((tmp_path / "runs").glob("*/captured/*/rank*")))

    def build() -> dict[str, Any]:
        model, optimizer, scaler = parts()
        return {
            "model": model,
            "optimizer": optimizer,
            "scaler": scaler,
            "loss": lambda m, b: m(b["x"]).pow(2).mean(),
        }

    control = replay(bundle, build)[0]
    assert next(v for v in control.values if v.signal == "loss_scale").replayed == [scale]
    assert control.tensors_equal == control.tensors_compared == 2


# -- what is refused, and said


def test_what_build_returns_is_checked_and_the_error_says_what_is_due() -> None:
    """A typo is met with the name that was meant."""
    model = torch.nn.Linear(1, 1)
    for returned, words in (
        ({"model": model, "los": len}, "did you mean loss?"),
        ({"model": model}, "neither loss nor update"),
        ({"loss": len}, "without a model"),
        (3, "a int without a model"),
        ({"model": len, "loss": len}, "no torch module"),
    ):
        with pytest.raises(BuildError, match=words.replace("?", r"\?")):
            building.made(returned)
    wrong = {
        "nowhere:build": "there is no module",
        "json": "your_module:build",
        "json:dump_": "did you mean dump",
    }
    for spec, words in wrong.items():
        with pytest.raises(BuildError, match=words):
            building.find(spec)


def test_changes_are_read_and_wrong_ones_named() -> None:
    """With their arguments."""
    assert [(c.name, c.argument) for c in conditions.parse(["without-sample:5", "fp32"])] == [
        ("without-sample", "5"),
        ("fp32", None),
    ]
    for text, words in (
        ("fp23", "did you mean fp32"),
        ("fp32:1", "takes no argument"),
        ("without-sample", "say which sample"),
        ("other-rank-batch:x", "the rank is a number"),
    ):
        with pytest.raises(conditions.ConditionError, match=words):
            conditions.parse([text])


def test_a_sample_or_a_rank_that_is_not_there_is_said(tmp_path: Path) -> None:
    """With what there is."""
    case = nan_at(BAD)
    bundle = case.train(tmp_path)
    with pytest.raises(conditions.ConditionError, match="there is no sample 8; the micro-batch has 8"):
        replay(bundle, case.build, "without-sample:8")
    with pytest.raises(conditions.ConditionError, match="there is no micro-batch 1"):
        replay(bundle, case.build, "without-sample:1.0")
    with pytest.raises(conditions.ConditionError, match="no bundle of another rank"):
        replay(bundle, case.build, "other-rank-batch")


def test_a_checkpoint_without_a_load_is_refused_with_the_line_to_add(tmp_path: Path) -> None:
    """Starting from build's own weights instead would pass for the recorded state."""
    case = nan_at(BAD)
    bundle = case.train(tmp_path)

    def build() -> dict[str, Any]:
        return {k: v for k, v in case.build().items() if k != "load"}

    with pytest.raises(BundleError, match="build gave no load"):
        replay(bundle, build)


def test_a_model_of_another_shape_is_refused(tmp_path: Path) -> None:
    """The state in the bundle does not fit it."""
    case = nan_at(BAD)
    bundle = case.train(tmp_path, gate=True)
    with pytest.raises(BundleError, match="recorded and not in build's model: first"):
        replay(bundle, lambda: {"model": torch.nn.Linear(4, 1), "loss": len})


def test_an_error_of_the_users_code_is_inconclusive_and_named(tmp_path: Path) -> None:
    """Type, message and place; nothing is concluded from it."""
    case = nan_at(BAD)
    bundle = case.train(tmp_path, gate=True)

    def fail(model: Any, batch: Any) -> Any:
        raise KeyError("labels")

    control = replay(bundle, lambda: {**case.build(), "loss": fail})[0]
    assert control.result == "inconclusive"
    assert "KeyError: 'labels' (test_replay.py:" in control.reason
    assert control.effects == []


def test_anomaly_mode_names_the_node_of_the_backward_pass(tmp_path: Path) -> None:
    """torch stops at it; that is the symptom, and no failure of the replay."""

    class Root(Case):
        @staticmethod
        def loss(model: Any, batch: Any) -> Any:
            return (torch.sqrt(batch["zero"] * model(batch["x"]).pow(2)) + model(batch["x"]).pow(2)).mean()

        def given(self, step: int, micro: int, rank: int = 0) -> Any:
            return {
                **super().given(step, micro, rank),
                "zero": torch.full((8, 1), 0.0 if step == BAD else 1.0),
            }

    case = Root()
    bundle = case.train(tmp_path, gate=True)
    assert bundle.manifest.alarm.signal == "grad_norm_local"
    control, changed = replay(bundle, case.build, "anomaly-mode")
    assert (control.result, changed.result, changed.flips) == ("reproduced", "reproduced", False)
    assert "SqrtBackward0" in changed.reason or any(
        f.node == "SqrtBackward0" for f in control.first_non_finite
    )


# -- the command, and the record


BUILD = """
from tests.replay.cases import BAD, Case, at, spoiled

case = Case(batch=at(BAD, spoiled(3)))
build = case.build
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from lineage.cli import main; main()", "replay", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "150"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_the_command_makes_it_again_says_what_that_does_and_writes_it_down(tmp_path: Path) -> None:
    """From a run's folder; the control stands before the change, and both are caused by the bundle."""
    bundle = nan_at(BAD).train(tmp_path)
    (tmp_path / "mine.py").write_text(BUILD)
    ledger = bundle.ledger
    assert ledger is not None
    done = run(tmp_path, str(ledger), "--with", "mine:build", "--change", "without-sample:3")
    assert done.returncode == 0, done.stderr[-3000:]
    said = " ".join(done.stdout.split())
    assert "with nothing changed: reproduced. the recorded loss (NaN, not finite) shows again" in said
    assert "with without-sample:3: not reproduced." in said
    assert "it flips: it shows in one of the two alone" in said
    assert "raises data (sample): it goes away without this sample [replay-sample-1]" in said
    records = Ledger(ledger).of("replay")
    assert [r.payload.result for r in records] == ["reproduced", "not_reproduced"]
    bundle_record = Ledger(ledger).of("bundle")[0].id
    assert records[0].caused_by == (bundle_record,)
    assert records[1].caused_by == (bundle_record, records[0].id)
    assert records[1].payload.control == records[0].payload.uid
    assert verify(ledger).whole
    assert verify(ledger).seals > 0
    done = run(tmp_path, str(bundle.path), "--with", "mine.py:build", "--json")
    assert done.returncode == 1
    assert [r["result"] for r in json.loads(done.stdout)] == ["reproduced"]


def test_several_changes_are_refused_unless_forced_and_then_confounded(tmp_path: Path) -> None:
    """Nothing is attributed, whatever comes of it."""
    bundle = nan_at(BAD).train(tmp_path)
    (tmp_path / "mine.py").write_text(BUILD)
    words = [
        str(bundle.path),
        "--with",
        "mine:build",
        "--change",
        "without-sample:3",
        "--change",
        "deterministic",
    ]
    done = run(tmp_path, *words)
    assert done.returncode == 2
    assert "no effect can be traced to one" in done.stderr
    assert bundle.ledger is not None
    assert Ledger(bundle.ledger).of("replay") == []
    done = run(tmp_path, *words, "--force")
    assert done.returncode == 0, done.stderr[-2000:]
    forced = Ledger(bundle.ledger).of("replay")[-1].payload
    assert forced.confounded
    assert [c.name for c in forced.changes] == ["without-sample", "deterministic"]
    assert forced.effects == []
    assert "confounded" in done.stdout


def test_a_damaged_bundle_is_refused_and_a_bundle_without_its_ledger_is_still_replayed(
    tmp_path: Path,
) -> None:
    """What is made from other bytes is not the recorded step."""
    bundle = nan_at(BAD).train(tmp_path)
    (tmp_path / "mine.py").write_text(BUILD)
    away = Path(shutil.copytree(bundle.path, tmp_path / "away" / bundle.path.name))
    done = run(tmp_path, str(away), "--with", "mine:build", "--no-deep")
    assert done.returncode == 1
    assert "not recorded: the bundle lies in no ledger" in done.stderr
    file = next((away / "batches").glob("step12-*.safetensors"))
    file.chmod(0o600)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    done = run(tmp_path, str(away), "--with", "mine:build")
    assert done.returncode == 3
    assert "is damaged (batches/step12-micro0.safetensors has other content" in done.stderr
    done = run(tmp_path, str(tmp_path / "away"), "--with", "")
    assert done.returncode == 2
    assert "examples/replay_build.py" in done.stderr


def test_a_replay_record_says_nothing_of_its_own_words_to_a_tracker(tmp_path: Path) -> None:
    """Messages of exceptions and how it was run stay on the machine."""
    case = nan_at(BAD)
    bundle = case.train(tmp_path, gate=True)
    from lineage.ledger.chunks import without_text
    from lineage.replay import recording

    def fail(model: Any, batch: Any) -> Any:
        raise ValueError("ada@example.org")

    assert bundle.ledger is not None
    recording.record(bundle.ledger, bundle, replay(bundle, lambda: {**case.build(), "loss": fail}))
    (record,) = Ledger(bundle.ledger).of("replay")
    assert b"ada@example.org" in record.raw
    assert b"ada@example.org" not in without_text(record.raw)
