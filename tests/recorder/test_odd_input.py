"""Small mistakes in what training code gives lose no more than what is mistaken; and the last lines say what is."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import lineage
from lineage.ledger import layout
from lineage.ledger.reader import Ledger

from .loop import Loop, attach, only, parent_run


class Bad:
    """An object that raises at everything."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("bad object " + name)

    def __repr__(self) -> str:
        raise RuntimeError("bad repr")


def loud(loop: Loop, root: Path, **options: Any) -> lineage.Recorder:
    """A recorder that prints its lines at exit."""
    return lineage.attach(None, dir=root, report=False, **{**loop.objects, **options})


def test_a_loss_that_is_no_scalar_loses_the_loss_alone(tmp_path: Path, caplog: Any) -> None:
    """Said once; gradient norms and fingerprints of the step are kept."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        for step in (1, 2):
            batch = next(loop.loader)
            with rec.step(step, batch) as st:
                loss = loop.model(batch["x"]).pow(2)
                loss.mean().backward()
                torch.nn.utils.clip_grad_norm_(loop.model.parameters(), 1.0)
                loop.optimizer.step()
                st.loss(loss)
    ledger = only(tmp_path)
    rows = ledger.series("probes", ["step", "signal"]).to_pylist()
    got = {(r["step"], r["signal"]) for r in rows}
    assert {(1, "grad_norm"), (2, "grad_norm"), (2, "grad_norm_local")} <= got
    assert not any(signal == "loss" for _, signal in got)
    assert ledger.series("batches", ["step"]).num_rows == 2
    (told,) = [r.payload for r in ledger.of("degraded") if r.payload.part == "loss"]
    assert "no scalar" in told.error
    assert "(4, 1)" in told.error
    assert caplog.text.count("no scalar") == 1


def test_one_config_value_that_raises_keeps_all_others(tmp_path: Path) -> None:
    """At the top, within a section and within a list."""
    loop = Loop()
    with attach(loop, tmp_path, config={"lr": 0.1, "bad": Bad(), "o": {"x": 1, "y": Bad()}, "l": [2, Bad()]}):
        pass
    (config,) = [r.payload.values for r in only(tmp_path).of("config")]
    assert {k: v.value for k, v in config.items()} == {
        "lr": 0.1,
        "bad": "<could not be read: RuntimeError>",
        "o.x": 1,
        "o.y": "<could not be read: RuntimeError>",
        "l.0": 2,
        "l.1": "<could not be read: RuntimeError>",
    }
    assert config["bad"].type == "repr"


def test_a_mitigation_whose_value_cannot_be_read_is_still_declared(tmp_path: Path) -> None:
    """The other side and the reason are kept."""
    with attach(Loop(), tmp_path) as rec:
        assert rec.mitigate("grad_clip", before=Bad(), after=0.3, why="spikes")
    (found,) = [r.payload for r in only(tmp_path).of("mitigation")]
    assert found.before.value == "<could not be read: RuntimeError>"
    assert (found.after.value, found.why) == (0.3, "spikes")


def test_an_unknown_on_alarm_is_said_and_left_out(tmp_path: Path, caplog: Any) -> None:
    """Training goes on, and alarms are recorded."""
    loop = Loop()
    with attach(loop, tmp_path, on_alarm="stop") as rec:
        assert "a callback or 'request_stop'" in caplog.text
        loop.run(rec, 3, spoil=2)
        assert rec.should_stop is False
    assert only(tmp_path).of("alarm")


def test_objects_that_raise_at_everything_are_not_listed_as_recorded(tmp_path: Path, caplog: Any) -> None:
    """What the first step shows of the others is recorded all the same."""
    loop = Loop()
    with loud(loop, tmp_path, scheduler=Bad(), loader=Bad(), scaler=Bad()) as rec:
        loop.run(rec, 3)
    ledger = only(tmp_path)
    coverage = ledger.of("coverage")[-1].payload
    assert {"model", "optimizer", "loss"} <= {*coverage.recorded}
    assert not {"scheduler", "loader", "scaler"} & {*coverage.recorded}
    assert "RuntimeError" in coverage.missing["scheduler"]
    assert {"scheduler", "loader", "scaler"} <= {r.payload.part for r in ledger.of("degraded")}
    assert [r for r in ledger.of("effective") if r.payload.moment == "after_first_step"]


@pytest.mark.parametrize("pack", [lambda o: [o, o], lambda o: (o,), lambda o: {"first": o}])
def test_several_optimizers_in_a_list_are_left_out_and_the_rest_is_recorded(
    tmp_path: Path, caplog: Any, pack: Any
) -> None:
    """One is followed; steps, losses and the parent checkpoint of a resume do not hang on it."""
    loop = Loop()
    with loud(loop, tmp_path, run_id="r", optimizer=pack(loop.objects["optimizer"])) as rec:
        loop.run(rec, 3)
        rec.checkpoint(loop.save(tmp_path / "ck"), step=3)
    assert "where one optimizer is followed: give the one that counts" in caplog.text
    with loud(loop, tmp_path, run_id="r", optimizer=pack(loop.objects["optimizer"])) as rec:
        rec.resumed_from(tmp_path / "ck")
        loop.run(rec, 5)
    ledger = only(tmp_path)
    assert [r.payload.last_step for r in ledger.of("segment_end")] == [3, 5]
    assert [s.info.start for s in ledger.segments] == ["fresh", "resume"]
    assert all("loss" in r.payload.recorded for r in ledger.of("coverage"))
    assert not any("optimizer" in r.payload.recorded for r in ledger.of("coverage"))


def test_a_checkpoint_path_that_is_not_there_is_named(tmp_path: Path, caplog: Any) -> None:
    """No temporary file's name, no complete checkpoint, and none counted."""
    loop = Loop()
    with loud(loop, tmp_path / "runs") as rec:
        loop.run(rec, 2)
        rec.checkpoint(tmp_path / "no/such/path", step=2)
    assert f"{tmp_path}/no/such/path of step 2 does not exist" in caplog.text
    assert ".tmp" not in caplog.text
    assert "0 checkpoints" in caplog.text
    assert only(tmp_path / "runs").of("checkpoint")[-1].payload.status == "incomplete"


def test_a_folder_that_cannot_be_written_is_said_with_where_records_are(
    tmp_path: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file stands where the folder of ledgers should be."""
    monkeypatch.setattr(layout, "fallback_root", lambda: tmp_path / "elsewhere")
    (tmp_path / "file").write_text("x")
    loop = Loop()
    with loud(loop, tmp_path / "file") as rec:
        loop.run(rec, 3)
    (kept,) = (tmp_path / "elsewhere").iterdir()
    assert f"{tmp_path / 'file' / kept.name} could not be written, so records are in {kept}" in caplog.text
    assert Ledger(kept).of("coverage")


def test_records_that_no_disk_took_are_said_to_be_lost(
    tmp_path: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the folder nor the one that stands in for it."""
    (tmp_path / "file").write_text("x")
    monkeypatch.setattr(layout, "fallback_root", lambda: tmp_path / "file" / "too")
    loop = Loop()
    with loud(loop, tmp_path / "file") as rec:
        loop.run(rec, 3)
    assert "NOTHING of rank 0 is on record" in caplog.text
    assert "steps 1-3 are lost" in caplog.text
    assert "recorded steps" not in caplog.text


def test_values_of_a_ledger_that_was_deleted_are_said_to_be_lost(tmp_path: Path, caplog: Any) -> None:
    """The journal is put back by its writer; the series are not."""
    loop = Loop()
    with loud(loop, tmp_path / "runs") as rec:
        loop.run(rec, 2)
        writer = rec.begin()
        assert writer is not None
        assert writer.tasks.drain(10.0)
        assert writer._lines.drain(10.0)  # what is written only afterwards is not lost
        shutil.rmtree(tmp_path / "runs", ignore_errors=True)  # the page is still being written
        loop.run(rec, 4)
    (line,) = [m for m in caplog.messages if m.startswith("lineage: recorded")]
    assert "loss" not in line
    assert "batch fingerprints" not in line
    assert "model" in line
    assert "LOST: loss, grad_norm_local, grad_norm, batch fingerprints of steps 1-4" in caplog.text


def test_going_on_in_a_damaged_ledger_is_said_once(tmp_path: Path, caplog: Any) -> None:
    """With the command that says more."""
    ledger = parent_run(tmp_path / "runs", tmp_path / "ck")
    (journal,) = (ledger.path / "journal").rglob("*.jsonl")
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[5] = lines[5].replace(b'"', b"'", 3)
    journal.chmod(0o600)
    journal.write_bytes(b"".join(lines))
    loop = Loop().load(tmp_path / "ck")
    with attach(loop, tmp_path / "runs", resumed_from=tmp_path / "ck") as rec:
        loop.run(rec, 7)
    (told,) = [m for m in caplog.messages if "is damaged in" in m]
    assert f"lineage verify {ledger.path}" in told
