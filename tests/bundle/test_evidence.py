"""The evidence of a bad step: what a real loop leaves in a bundle at an alarm, and what it says it does not have."""

from __future__ import annotations

import errno
import json
import logging
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from lineage.bundle import around, reading, rng, verifying
from lineage.capture.batch import fingerprint
from lineage.capture.state import Lanes
from lineage.ledger import layout
from tests.recorder.loop import Loop, attach, only


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # so that no git repository that is being worked on is captured


def bundles(root: Path) -> list[reading.Bundle]:
    return reading.within(only(root).path)


def run(
    root: Path, *, steps: int = 12, spoil: int = 10, loop: Loop | None = None, **options: Any
) -> reading.Bundle:
    """A run whose loss is NaN at one step, and its one bundle."""
    loop = loop or Loop()
    with attach(loop, root, **options) as rec:
        loop.run(rec, steps, spoil=spoil)
    (found,) = bundles(root)
    return found


def test_an_alarm_leaves_one_bundle_that_verifies_and_is_on_record(tmp_path: Path) -> None:
    """Loss, local and reduced norm break at one step: one bundle, caused by the first of their alarms."""
    found = run(tmp_path, config={"lr": 0.1})
    ledger = only(tmp_path)
    (record,) = ledger.of("bundle")
    assert record.payload.root == found.root
    assert ledger.path / record.payload.location == found.path
    assert record.caused_by == (ledger.of("alarm")[0].id,)
    assert (record.payload.first_bad_step, record.step, found.step, found.manifest.done) == (10, 10, 10, 10)
    checked = verifying.verify(found.path)
    assert checked.whole
    assert checked.partial == []
    assert {p.suffix for p in found.path.rglob("*") if p.is_file()} == {".json", ".safetensors"}


def test_the_batches_are_those_that_were_fed_and_the_random_states_those_they_met(tmp_path: Path) -> None:
    """With three micro-batches and numbers drawn between them: each has its own state."""
    fed, after = [], []
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        for step in range(1, 7):
            with rec.step(step) as st:
                for _ in range(3):
                    batch = next(loop.loader)
                    torch.rand(1)
                    random.random()
                    st.batch(batch)
                    if step == 6:
                        fed.append(batch)
                        after.append((torch.rand(2).tolist(), random.random()))
                    st.loss(loop.model(batch["x"]).mean() * (float("nan") if step == 6 else 1.0))
    (found,) = bundles(tmp_path)
    kept = found.batches(6)
    assert [fingerprint(b).digest() for b in kept] == [fingerprint(b).digest() for b in fed]
    assert [b.fingerprint for b in found.manifest.steps[-1].batches] == [fingerprint(b).digest() for b in fed]
    assert all(b.same for b in found.manifest.steps[-1].batches)
    for micro, drawn in enumerate(after):
        state = found.rng(6, micro)
        assert state is not None
        assert rng.restore(state) == []
        assert (torch.rand(2).tolist(), random.random()) == drawn
    assert found.steps() == [1, 2, 3, 4, 5, 6]
    earlier = found.rng(5, 2)
    assert earlier is not None
    assert not torch.equal(earlier.torch, found.rng(5, 1).torch)  # type: ignore[union-attr]


def test_more_steps_are_kept_where_asked_for(tmp_path: Path) -> None:
    """So that a replay can begin at a checkpoint and make every update since again."""
    found = run(tmp_path, bundle_steps=5)
    assert found.steps() == [6, 7, 8, 9, 10]
    assert found.facts_of(6)["groups"][0]["lr"] < found.facts_of(10)["groups"][0]["lr"]


def test_what_stands_around_the_step_is_in_it(tmp_path: Path) -> None:
    """Signals, gradients, groups, clip threshold, environment, config, topology, loader and scheduler."""
    loop = Loop()
    with attach(loop, tmp_path, config={"lr": 0.1}) as rec:
        loop.run(rec, 6)
        rec.checkpoint(loop.save(tmp_path / "ck"), step=6)
        loop.run(rec, 12, spoil=10)
    (found,) = bundles(tmp_path)
    assert found.signals(9)["loss"] > 0
    assert found.signals(10)["loss"] != found.signals(10)["loss"]
    assert (
        found.gradients(9).keys()
        == found.gradients(10).keys()
        == {"0.weight", "0.bias", "2.weight", "2.bias"}
    )
    assert all(r["n_nan"] == r["elements"] for r in found.gradients(10).values())
    assert found.facts_of(10)["groups"][0]["betas"] == [0.9, 0.999]
    assert found.facts["at_alarm"]["clip_threshold"] == 1.0
    assert {"segment", "environment", "config", "effective", "code"} <= {k for k in KINDS if found.records(k)}
    state, updates = found.loop_state()
    assert (state["loader"], updates) == ({"position": 10, "seed": 0}, 0)
    assert state["scheduler"]["last_epoch"] == 10
    good = found.manifest.last_good
    assert good is not None
    assert good.step == 6
    assert good.path in (str(tmp_path / "ck"), None)  # its files may still be digested
    assert {c.component for c in good.live} >= {"weights", "optimizer_state", "rng"}


KINDS = ("segment", "environment", "config", "effective", "code")


def test_with_the_gate_the_state_that_the_step_began_with_is_in_it(tmp_path: Path) -> None:
    """The gate held the update back: weights and moments are those from before it, bit for bit."""
    loop, before = Loop(), {}

    def note(step: int) -> None:
        if step == 10:
            lanes = Lanes()
            before["weights"] = lanes.found(dict(loop.model.named_parameters()))[0]
            before["moments"] = [s["exp_avg"].clone() for s in loop.optimizer.state.values()]

    with attach(loop, tmp_path, gate=True) as rec:
        loop.run(rec, 12, before=note, spoil=10)
    (found,) = bundles(tmp_path)
    assert found.manifest.state is not None
    assert found.manifest.state.updates_after == 0
    assert {c.component: c.digest for c in found.manifest.state.live}["weights"] == before["weights"]
    state = found.state()
    assert state is not None
    weights, _, optimizer = state
    assert Lanes().found({n: weights[n] for n, _ in loop.model.named_parameters()})[0] == before["weights"]
    moments = [optimizer[n]["exp_avg"] for n, _ in loop.model.named_parameters()]
    assert all(map(torch.equal, moments, before["moments"]))


def test_a_loop_that_raises_before_its_update_leaves_the_state_too(tmp_path: Path) -> None:
    """The optimizer's counter has not moved, so the weights are those that the step began with."""
    loop = Loop()

    def train() -> None:
        with attach(loop, tmp_path) as rec:
            loop.run(rec, 9)
            with rec.step(10, next(loop.loader)) as st:
                st.loss(torch.tensor(float("inf")))
                raise FloatingPointError("loss is not finite")

    with pytest.raises(FloatingPointError):
        train()
    (found,) = bundles(tmp_path)
    assert found.manifest.state is not None
    assert found.manifest.done == 9


def test_without_the_gate_the_bundle_says_what_would_keep_the_state(tmp_path: Path) -> None:
    """The weights at the alarm are those after the bad update: they are not passed off as the ones before it."""
    found = run(tmp_path)
    assert found.manifest.state is None
    assert "gate=True" in found.manifest.absent["weights and optimizer state"]
    assert found.manifest.absent["last good checkpoint"] == "none is recorded before this step"


def test_a_bundle_keeps_to_its_size_and_says_what_was_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The most needed comes first: facts and random states, then the bad step's batch."""
    monkeypatch.setattr(around, "_files", lambda: iter(()))  # these tests' own output may go to a long file
    loop = Loop()
    with attach(loop, tmp_path, bundle_bytes=440_000, gate=True) as rec:
        for step in range(1, 7):
            batch = {
                "x": torch.randn(4, 3),
                "image": torch.randn(1, 250, 300) if step != 6 else torch.randn(60, 1000),
            }
            with rec.step(step, batch) as st:
                loss = loop.model(batch["x"]).mean() * (float("nan") if step == 6 else 1.0)
                loop.optimizer.zero_grad()
                loss.backward()
                loop.optimizer.step()
                st.loss(loss)
    (found,) = bundles(tmp_path)
    assert sum(p.stat().st_size for p in found.path.rglob("*") if p.is_file()) <= 440_000
    assert found.steps() == [6]
    assert set(found.manifest.left_out) == {"batches of step 5 and before"}
    assert "setting bundle_bytes" in found.manifest.left_out["batches of step 5 and before"]
    checked = verifying.verify(found.path)
    assert checked.whole
    assert len(checked.partial) == 1
    with pytest.raises(reading.BundleError, match=r"does not hold all batches of step 5 .*bundle_bytes"):
        found.batches(5)


def test_a_long_manifest_does_not_cost_the_bundle(tmp_path: Path) -> None:
    """Hundreds of micro-batches fill it to its bound: the manifest has its room, and the bound holds with it."""
    loop = Loop()
    with attach(loop, tmp_path, bundle_bytes=180_000) as rec:
        for step in range(1, 8):
            with rec.step(step) as st:
                for _ in range(300):
                    batch = {"x": torch.randn(2, 3)}
                    st.batch(batch)
                    loss = loop.model(batch["x"]).sum()
                    st.loss(loss * float("nan") if step == 6 else loss)
    (found,) = bundles(tmp_path)
    manifest = (found.path / "manifest.json").stat().st_size
    assert manifest > 64 << 10
    assert sum(p.stat().st_size for p in found.path.rglob("*") if p.is_file()) <= 180_000
    kept = [b.kept for b in found.manifest.steps[-1].batches]
    assert any(kept)
    assert not all(kept)
    assert "random states" in found.manifest.left_out
    assert not any(b.rng for b in found.manifest.steps[-1].batches), "what is not there is not promised"
    checked = verifying.verify(found.path)
    assert (checked.wrong, bool(checked.partial)) == ([], True)


def test_a_batch_that_the_loop_wrote_into_is_not_passed_off_as_what_was_fed(tmp_path: Path) -> None:
    """A static buffer holds the next content by the time of the alarm."""
    loop, buffer = Loop(), torch.zeros(4, 3)
    with attach(loop, tmp_path) as rec:
        for step in range(1, 11):
            buffer.copy_(torch.randn(4, 3))
            with rec.step(step, {"x": buffer}) as st:
                st.loss(loop.model(buffer).mean() * (float("nan") if step == 10 else 1.0))
                buffer.zero_()
    (found,) = bundles(tmp_path)
    assert found.manifest.steps[-1].batches[0].same is False
    assert any("wrote into it" in why for why in found.manifest.left_out.values())


def test_without_batches_the_bundle_names_the_line_that_would_give_them(tmp_path: Path) -> None:
    """What else there is, is kept: states of the random generators at the step's beginning too."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        for step in range(1, 5):
            with rec.step(step) as st:
                st.loss(torch.tensor(float("nan") if step == 4 else 1.0))
    (found,) = bundles(tmp_path)
    assert "rec.step(step, batch)" in found.manifest.absent["batches of the step"]
    assert found.rng(4, None) is not None
    assert found.rng(4, 0) is None
    assert found.steps() == []


def test_log_tails_are_masked(tmp_path: Path) -> None:
    """The file of a log handler is known; a key in it is not kept, nor a digest of it."""
    log = logging.getLogger("train")
    handler = logging.FileHandler(tmp_path / "train.log")
    log.addHandler(handler)
    try:
        log.warning("step 9 is fine")
        log.warning("export WANDB_API_KEY=%s", "0123456789abcdef" * 2 + "01234567")
        found = run(tmp_path / "runs")
    finally:
        log.removeHandler(handler)
        handler.close()
    (tail,) = [t for t in found.json("log.json") if t["path"].endswith("train.log")]
    assert tail["lines"][0] == "step 9 is fine"
    assert tail["masked"] == 1
    assert "0123456789abcdef" not in (found.path / "log.json").read_text()


def test_an_end_without_a_disk_leaves_no_half_bundle_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when the folder is synced: said once, nothing left behind."""

    def full(path: Path) -> None:
        if "captured" in path.parts:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(layout, "fsync_folder", full)
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        assert len(loop.run(rec, 12, spoil=10)) == 12
    ledger = only(tmp_path)
    assert [r.payload.part for r in ledger.of("degraded")] == ["bundle"]
    assert ledger.of("bundle") == []
    assert [p for p in (ledger.path / "captured").rglob("*") if p.is_file()] == []


def test_bundles_do_not_go_on_without_end(tmp_path: Path) -> None:
    """A loss that is broken at every second step: eight of them, and the rest is in the series."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        for step in range(1, 90):
            with rec.step(step, next(loop.loader)) as st:
                st.loss(float("nan") if step % 5 == 0 else 1.0)
    assert [b.step for b in bundles(tmp_path)] == [5 * i for i in range(1, 9)]


def test_code_that_the_disk_refuses_holds_no_bundle_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the bundle waits for is over, also where it failed."""

    def refused(*a: Any, **k: Any) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr("lineage.ledger.blobs.put", refused)
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        rec.surroundings._keep(b"a difference of the code")
        writer = rec.begin()
        assert writer is not None
        assert writer.tasks.drain(60.0)
        assert rec.surroundings.wait_written(0)


def test_bundle_bytes_0_writes_none(tmp_path: Path) -> None:
    """It is a setting like every other, and costs the step nothing."""
    loop = Loop()
    with attach(loop, tmp_path, bundle_bytes=0) as rec:
        loop.run(rec, 12, spoil=10)
        assert rec.recent.of(12) == []  # and no batch is kept for one
    assert bundles(tmp_path) == []


def test_nothing_of_a_bundle_is_on_the_trackers_page(tmp_path: Path, mlflow_database: Any) -> None:
    """A real MLflow run: the text in the batch and the log is in the bundle, and nowhere in the tracker."""
    mlflow = pytest.importorskip("mlflow")
    secret = "the patient's name is Ada"
    client = mlflow.MlflowClient(mlflow_database(tmp_path))
    experiment = client.create_experiment("x", artifact_location=(tmp_path / "artifacts").as_uri())
    mlflow_run = client.create_run(experiment)
    loop = Loop()
    with attach(loop, tmp_path / "runs", run=(client, mlflow_run.info.run_id), report=True) as rec:
        for step in range(1, 6):
            batch = {"x": torch.randn(4, 3), "text": [secret] * 4}
            with rec.step(step, batch) as st:
                st.loss(loop.model(batch["x"]).mean() * (float("nan") if step == 5 else 1.0))
    (found,) = bundles(tmp_path / "runs")
    held = b"".join(p.read_bytes() for p in found.path.rglob("*.json"))
    assert secret.encode() in held
    shown = [p for p in (tmp_path / "artifacts").rglob("*") if p.is_file()]
    assert shown
    assert all(secret.encode() not in p.read_bytes() for p in shown)
    assert not any("captured" in str(p.relative_to(tmp_path)) or p.name == "manifest.json" for p in shown)
    assert secret.encode() not in (tmp_path / "mlflow.db").read_bytes()


def test_show_and_verify_say_it_in_words(tmp_path: Path) -> None:
    """The commands, as a person runs them."""
    found = run(tmp_path)

    def lineage(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-c", "from lineage.cli import main; main()", *words]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
        )
        return done.returncode, done.stdout + done.stderr

    code, text = lineage("bundle", "show", str(found.path))
    assert code == 0
    assert "rank 0, step 10: loss is NaN (LIN-A001)" in text
    assert "step 10: 1 of 1 micro-batches, random states before 1" in text
    assert "not there: last good checkpoint: none is recorded before this step" in text
    assert "steps 1 to 9: 1 of 1 micro-batches, random states before 1, each" in text
    size = sum(p.stat().st_size for p in found.path.rglob("*") if p.is_file())
    assert f"{size:,} bytes of at most 1,073,741,824 (setting bundle_bytes)" in " ".join(text.split())
    assert "step9.safetensors" not in text, "files of batches are not named one by one"
    code, text = lineage("bundle", "verify", str(only(tmp_path).path), "--json")
    assert code == 0
    assert [c["whole"] for c in json.loads(text)] == [True]
    file = found.path / "step.json"
    file.chmod(0o600)
    file.write_bytes(file.read_bytes().replace(b"true", b"fals", 1))
    code, text = lineage("bundle", "verify", str(found.path))
    assert code == 3
    assert "step.json has other content than was written" in text
    (found.path.parent / ".rank0-step11-99").mkdir()
    manifest = found.path / "manifest.json"
    manifest.chmod(0o600)
    whole = manifest.read_bytes()
    manifest.write_bytes(b"{" + whole)
    code, text = lineage("bundle", "show", str(only(tmp_path).path))
    text = " ".join(text.split())
    assert "not listed:" in text, "a damaged bundle is not passed over in silence"
    assert "manifest.json is no manifest of a bundle" in text
    assert "it was never finished: its process was killed" in text
    manifest.write_bytes(whole)
    code, text = lineage("verify", str(only(tmp_path).path))
    assert code == 3
    assert "LIN-J008" in text
    code, text = lineage("bundle", "verify", str(tmp_path / "nowhere"))
    assert code == 2
