"""Each format is told by its content, and gives the values, the signals and the places that stand in it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from lineage.imports.logs import registry
from lineage.ledger import sources

from .reading import done, gaps, megatron, metric, signals, titan, written

LLMC = [
    "step    1/19560 | loss 11.009100 (+nanz)| norm 15.3700 (+nanz)| lr 2.57e-06 | 3466.57 ms | 43.9% bf16 MFU | "
    "151244 tok/s",
    "step    2/19560 | loss 10.959800 (-1.20z)| norm 15.2400 (-0.80z)| lr 5.14e-06 | 3361.10 ms | 45.0% bf16 MFU | "
    "151002 tok/s",
    "val loss 10.9012",
]
NANOGPT = [
    "step 0: train loss 10.9874, val loss 10.9901",
    "iter 0: loss 10.9886, time 35024.61ms, mfu -100.00%",
    "iter 10: loss 9.8512, time 410.99ms, mfu 21.45%",
]
GOLF = [
    "world_size:8 grad_accum_steps:1",
    "warmup_step:1/20",
    "step:0/20000 val_loss:6.9357 val_bpb:4.1077 train_time:0ms step_avg:0.02ms",
    "step:1/20000 train_loss:6.9370 train_time:27ms step_avg:27.23ms",
    "step:2/20000 train_loss:6.7712 train_time:74ms step_avg:36.88ms",
    "stopping_early: wallclock_cap train_time:600038ms step:11564/20000",
]
SHORT = [
    "s:0 tel:11.0092",
    "s:0 trl:11.0091 lr:0.000001 norm:15.37",
    "s:1 trl:10.9598 lr:0.000002 norm:15.24",
]
STATE = {
    "global_step": 20,
    "log_history": [
        {"step": 10, "loss": 2.5, "grad_norm": 1.25, "learning_rate": 1e-5, "epoch": 0.1},
        {"step": 20, "loss": 2.0, "grad_norm": math.nan, "learning_rate": 2e-5, "epoch": 0.2},
        {"step": 20, "eval_loss": 2.1, "eval_runtime": 4.5},
    ],
}


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("megatron", [megatron(1), megatron(2)]),
        ("torchtitan", [titan(1, 8.1), titan(2, 7.8)]),
        ("llm.c", LLMC),
        ("nanogpt", NANOGPT),
        ("modded-nanogpt", GOLF),
        ("modded-nanogpt", SHORT),
        ("step-loss", ["1 8.1376", "2 7.841", "3 nan"]),
        ("csv", ["step,lm_loss", "1,12.98419", "5,12.93858"]),
        ("jsonl", ['{"step": 1, "train/loss": 3.5}', '{"step": 2, "train/loss": NaN}']),
        ("trainer_state", [json.dumps(STATE)]),
        (
            "megatron-golden",
            ['{"lm loss": {"start_step": 1, "step_interval": 1, "values": {"1": 9.5, "2": "nan"}}}'],
        ),
    ],
)
def test_a_format_is_told_by_what_stands_in_the_file_whatever_it_is_called(
    tmp_path: Path, name: str, lines: list[str]
) -> None:
    """The same bytes under a name of nothing."""
    found = registry.detect(written(tmp_path, "x", *lines))
    assert found is not None
    assert found.name == name


def test_megatron_gives_its_own_keys_and_the_signals_that_are_known(tmp_path: Path) -> None:
    """Key, value, tracker and axis in `metrics`; loss, norm, rate and scale in `probes`."""
    _, ledger = done(
        tmp_path, written(tmp_path, "a.log", megatron(5, 2.5), megatron(6, 2.25, loss_scale="512.0"))
    )
    row = next(r for r in ledger.series("metrics").to_pylist() if r["key"] == "lm loss")
    assert (row["tracker"], row["axis"], row["step"], row["value"]) == (
        "megatron",
        "iteration of the log",
        5,
        2.5,
    )
    found = signals(ledger)
    assert found["loss"] == {5: 2.5, 6: 2.25}
    assert found["loss_scale"] == {5: 1.0, 6: 512.0}
    assert found["lr"] == {5: 1e-4, 6: 1e-4}
    assert found["update_skipped"] == {5: 0.0, 6: 0.0}


def test_each_value_can_be_traced_to_its_line(tmp_path: Path) -> None:
    """A preamble, a blank line, and then the steps."""
    path = written(tmp_path, "a.log", "NCCL version 2.27.5", "", megatron(5), megatron(6))
    _, ledger = done(tmp_path, path)
    assert sources.at(ledger.path, ledger.segments[0].uid, 0, 6) == ["line 4 of a.log"]


def test_torchtitan_is_read_through_its_colours_thousands_and_percents(tmp_path: Path) -> None:
    """`tps: 12,345` is one number, the time of the line is kept and said to have no zone."""
    _, ledger = done(tmp_path, written(tmp_path, "t.log", titan(1, 8.1376), titan(10, 7.5, 2.25)))
    assert metric(ledger, "tps") == {1: 12345.0, 10: 12345.0}
    assert metric(ledger, "tflops")[1] == 1099.95
    assert signals(ledger)["grad_norm"] == {1: 1.5, 10: 2.25}
    assert ledger.series("metrics").to_pylist()[0]["at"].isoformat() == "2026-03-01T10:00:00.123000+00:00"
    assert "no zone" in gaps(ledger)


def test_a_log_that_counts_from_zero_is_counted_from_one_and_says_so(tmp_path: Path) -> None:
    """s:0 trl is the loss of the first update; the evaluation before any update stays at 0."""
    _, ledger = done(tmp_path, written(tmp_path, "m.log", *SHORT))
    assert signals(ledger)["loss"] == {1: 11.0091, 2: 10.9598}
    assert signals(ledger)["grad_norm"] == {1: 15.37, 2: 15.24}
    assert metric(ledger, "test loss") == {0: 11.0092}
    assert ledger.segments[0].info.step_base == 0
    assert "counts its first update as 0" in gaps(ledger)


def test_llm_c_gives_loss_norm_rate_and_a_validation_loss_without_a_step_of_its_own(tmp_path: Path) -> None:
    """Z-scores in brackets are no values."""
    _, ledger = done(tmp_path, written(tmp_path, "c.log", *LLMC))
    assert signals(ledger) == {
        "loss": {1: 11.0091, 2: 10.9598},
        "grad_norm": {1: 15.37, 2: 15.24},
        "lr": {1: 2.57e-06, 2: 5.14e-06},
    }
    assert metric(ledger, "time") == {1: 3466.57, 2: 3361.10}
    assert metric(ledger, "val loss") == {2: 10.9012}


def test_nanogpt_estimates_are_no_training_loss(tmp_path: Path) -> None:
    """`step 0: train loss` is an estimate over fresh batches."""
    _, ledger = done(tmp_path, written(tmp_path, "n.log", *NANOGPT))
    assert signals(ledger)["loss"] == {1: 10.9886, 11: 9.8512}
    assert metric(ledger, "eval: train loss") == {0: 10.9874}


def test_parameter_golf_lines_without_a_step_at_their_head_are_no_rows(tmp_path: Path) -> None:
    """Warm-up and the last words name a step too."""
    made, ledger = done(tmp_path, written(tmp_path, "g.log", *GOLF))
    assert signals(ledger)["loss"] == {1: 6.937, 2: 6.7712}
    assert made.rows == 3
    assert "train_time [ms]" in ledger.of("coverage")[0].payload.recorded[0]
    assert "world size 8" in " ".join(ledger.of("coverage")[0].payload.recorded)


def test_a_trainer_state_keeps_nan_and_says_what_its_filter_hides(tmp_path: Path) -> None:
    """Python writes a bare NaN, which strict JSON refuses."""
    _, ledger = done(tmp_path, written(tmp_path, "trainer_state.json", json.dumps(STATE)))
    assert signals(ledger)["loss"] == {10: 2.5, 20: 2.0}
    assert math.isnan(signals(ledger)["grad_norm"][20])
    assert metric(ledger, "eval_loss") == {20: 2.1}
    assert "logging_nan_inf_filter" in gaps(ledger)
    assert "logged every 10 steps; loss is the mean" in gaps(ledger)
    assert sources.at(ledger.path, ledger.segments[0].uid, 0, 10) == [
        "log_history entry 1 of trainer_state.json"
    ]


def test_golden_values_written_as_nan_everywhere_were_not_run_and_one_alone_is_a_value(
    tmp_path: Path,
) -> None:
    """Step 1 was not run; at step 3 the loss is NaN while another key has a number."""
    text = json.dumps(
        {
            "lm loss": {
                "start_step": 1,
                "end_step": 3,
                "step_interval": 1,
                "values": {"1": "nan", "2": 9, "3": "nan"},
            },
            "num-zeros": {
                "start_step": 1,
                "end_step": 3,
                "step_interval": 1,
                "values": {"1": "nan", "2": 5, "3": 7},
            },
        }
    )
    _, ledger = done(tmp_path, written(tmp_path, "golden.json", text))
    loss = signals(ledger)["loss"]
    assert list(loss) == [2, 3]
    assert math.isnan(loss[3])
    assert "1 steps are written as nan in every key (1 to 1): not run" in gaps(ledger)


def test_a_table_is_read_by_its_heads_and_a_row_with_too_few_cells_is_left_out(tmp_path: Path) -> None:
    """Semicolons, a thousands separator, a text column."""
    path = written(
        tmp_path,
        "a.csv",
        "step;train/loss;lr;note",
        "1;2.5;1e-4;warm",
        "1,000;2.25;2e-4;",
        "3;2",
        "4;nan;2e-4;bad",
    )
    _, ledger = done(tmp_path, path)
    found = signals(ledger)
    assert {k: v for k, v in found["loss"].items() if not math.isnan(v)} == {1: 2.5, 1000: 2.25}
    assert "has 2 of 4 cells: left out" in gaps(ledger)


def test_tensorboard_scalars_are_read_in_both_forms_and_a_cut_file_is_said(tmp_path: Path) -> None:
    """Written by the package's own writer; a graph is no scalar; the tail is torn off."""
    writer_ = pytest.importorskip("tensorboard.summary.writer.event_file_writer")
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.plugins.scalar.summary import scalar_pb

    writer = writer_.EventFileWriter(str(tmp_path / "tb"))
    for step, loss in ((1, 2.5), (2, 2.25), (3, math.nan)):
        old = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag="lr", simple_value=0.5)])
        writer.add_event(
            event_pb2.Event(wall_time=1.7e9 + step, step=step, summary=scalar_pb("train/loss", loss))
        )
        writer.add_event(event_pb2.Event(wall_time=1.7e9 + step, step=step, summary=old))
    writer.close()
    (path,) = (tmp_path / "tb").iterdir()
    _, ledger = done(tmp_path, path)
    loss = signals(ledger)["loss"]
    assert (loss[1], loss[2]) == (2.5, 2.25)
    assert math.isnan(loss[3])
    assert signals(ledger)["lr"] == {1: 0.5, 2: 0.5, 3: 0.5}
    cut = tmp_path / "cut"
    cut.write_bytes(path.read_bytes()[:-9])
    made, ledger = done(tmp_path, cut, run="cut")
    assert made.sources[0].told.torn
    assert "no whole record" in gaps(ledger)
