"""What logs do that misleads a reader: each trap is seen through, or said."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import pytest

from lineage.judge import graph
from lineage.ledger import health

from .reading import codes, done, gaps, megatron, metric, signals, titan, written

OVERFLOW = (
    "[2026-01-19 13:09:13,305] [INFO] [stage_1_and_2.py:1644:step] [deepspeed] OVERFLOW! Rank 0 Skipping step. "
    "Attempted loss scale: 1024.0, reducing to 512.0"
)


@pytest.mark.parametrize(
    ("prefix", "rank", "local"),
    [
        ("", 0, False),
        ("[rank3]: ", 3, False),
        ("[rank3]:", 3, False),
        ("[default7]:", 7, True),
        ("[trainer5]: ", 5, True),
        ("12: ", 12, False),
        ("12: [default4]:", 12, False),
        ("worker-3: [default4]:", 4, True),
    ],
)
def test_a_rank_is_read_from_what_the_launcher_puts_in_front(
    tmp_path: Path, prefix: str, rank: int, local: bool
) -> None:
    """srun, torchrun with and without a role, pdsh; a rank within a node is said to be no global one."""
    path = written(tmp_path, "a.log", prefix + megatron(5), prefix + megatron(6))
    _, ledger = done(tmp_path, path)
    assert {r["rank"] for r in ledger.series("metrics").to_pylist()} == {rank}
    assert ("which node it is, is not shown" in gaps(ledger)) == local


def test_lines_of_several_ranks_that_stand_among_each_other_are_one_segment(tmp_path: Path) -> None:
    """A late rank is no restart."""
    lines = ["[rank0]: " + titan(1, 8.0), "[rank1]: " + titan(1, 8.5), "[rank1]: " + titan(2, 7.5)]
    lines += ["[rank0]: " + titan(2, 7.0), "[rank0]: " + titan(3, 6.0), "[rank1]: " + titan(3, 6.5)]
    _, ledger = done(tmp_path, written(tmp_path, "t.log", *lines))
    assert len(ledger.segments) == 1
    assert metric(ledger, "loss", 0) == {1: 8.0, 2: 7.0, 3: 6.0}
    assert metric(ledger, "loss", 1) == {1: 8.5, 2: 7.5, 3: 6.5}
    assert ledger.segments[0].info.world_size == 2


@pytest.mark.parametrize("width", [40, 80, 111])
def test_a_line_that_a_terminal_wrapped_is_one_line(tmp_path: Path, width: int) -> None:
    """Cut anywhere, also inside a number or at a space that was lost."""
    whole = [megatron(s, 2.0 + s / 8) for s in (5, 6, 7)]
    wrapped = [
        part.rstrip() for line in whole for part in (line[i : i + width] for i in range(0, len(line), width))
    ]
    _, ledger = done(tmp_path, written(tmp_path, "a.log", *wrapped))
    assert metric(ledger, "lm loss") == {5: 2.625, 6: 2.75, 7: 2.875}
    assert set(metric(ledger, "number of nan iterations").values()) == {0.0}


def test_steps_that_lines_call_skipped_are_marked_and_the_counter_that_denies_them_is_named(
    tmp_path: Path,
) -> None:
    """The overflow is printed before the line of its step; the counter stays at 0 and the norm at the last one."""
    lines = [megatron(5, grad_norm="1.111")]
    for step in (6, 7):
        lines += [OVERFLOW, megatron(step, 4.0, grad_norm="1.111")]
    _, ledger = done(tmp_path, written(tmp_path, "a.log", *lines, megatron(8, 4.5, grad_norm="2.5")))
    assert signals(ledger)["update_skipped"] == {5: 0.0, 6: 1.0, 7: 1.0, 8: 0.0}
    found = codes(ledger)["LIN-S010"]
    assert "2 lines say that a step was skipped" in found.text
    assert "leaves out 2" in found.text
    assert "line 3 of a.log" in found.text


def test_a_counter_that_counts_what_the_lines_say_is_no_finding(tmp_path: Path) -> None:
    """The healthy twin."""
    lines = [megatron(5), OVERFLOW, megatron(6, None, number_of_skipped_iterations="  1"), megatron(7)]
    _, ledger = done(tmp_path, written(tmp_path, "a.log", *lines))
    assert signals(ledger)["update_skipped"] == {5: 0.0, 6: 1.0, 7: 0.0}
    assert "LIN-S010" not in codes(ledger)


def test_all_ranks_that_report_one_overflow_report_one(tmp_path: Path) -> None:
    """DeepSpeed's older releases printed it on each rank."""
    said = [OVERFLOW.replace("Rank 0", f"Rank {r}") for r in range(4)]
    lines = [megatron(5), *said, megatron(6, None, number_of_skipped_iterations="  1"), megatron(7)]
    _, ledger = done(tmp_path, written(tmp_path, "a.log", *lines))
    assert codes(ledger).keys() == {"LIN-S004"}


@pytest.mark.parametrize(
    "lines",
    [
        ["s:0 trl:11.0091 lr:0.000001 norm:15.37", "s:1 trl:10.9598 lr:0.000002 norm:15.24"],
        [
            "step    1/19560 | loss 11.009 (+nanz)| norm 15.37 (+nanz)| lr 1.00e-06 | 350.1 ms",
            "step    2/19560 | loss 10.959 (+nanz)| norm 15.24 (+nanz)| lr 2.00e-06 | 350.2 ms",
        ],
        ["step,train_loss,grad norm,lr", "1,11.0,15.3,1e-6", "2,10.9,15.2,2e-6"],
    ],
    ids=["modded-nanogpt", "llm.c", "csv"],
)
def test_a_loss_under_another_key_than_megatrons_has_not_vanished(tmp_path: Path, lines: list[str]) -> None:
    """These print a norm under Megatron's key, and the loss under their own."""
    _, ledger = done(tmp_path, written(tmp_path, "a.log", *lines))
    assert len(signals(ledger)["loss"]) == 2
    assert "LIN-S004" not in codes(ledger)


def test_a_loss_field_that_vanishes_is_named_and_is_nan_where_the_log_counts_nan(tmp_path: Path) -> None:
    """Without the counter nothing says why, and no value is made up."""
    lines = [megatron(5), megatron(6, None, number_of_nan_iterations="  1"), megatron(7, None), megatron(8)]
    _, ledger = done(tmp_path, written(tmp_path, "a.log", *lines))
    loss = signals(ledger)["loss"]
    assert list(loss) == [5, 6, 8]
    assert math.isnan(loss[6])
    assert "absent from 2 training lines" in codes(ledger)["LIN-S004"].text
    assert "it was NaN" in codes(ledger)["LIN-S004"].text
    assert 6 not in metric(ledger, "lm loss"), "what was logged stays what was logged"


def test_a_norm_that_repeats_and_one_that_is_always_zero_are_told_by_the_checks_of_series(
    tmp_path: Path,
) -> None:
    """The findings of `lineage check` come from the imported values as from observed ones."""
    stale = [
        megatron(s, 2.5 - s / 1000, grad_norm=f"{453082.517 + s * 7919 % 1301:.3f}") for s in range(1, 9)
    ]
    stale += [megatron(s, 4 + s / 100, grad_norm="464441.887") for s in range(9, 17)]
    _, ledger = done(tmp_path, written(tmp_path, "stale.log", *stale), run="stale")
    assert "LIN-S002" in {f.code for f in health.check(ledger, ledger.segments[0]).findings}
    dead = [megatron(s, 2.5 + s / 100, grad_norm="0.000") for s in range(1, 9)]
    _, ledger = done(tmp_path, written(tmp_path, "dead.log", *dead), run="dead")
    assert {f.code for f in health.check(ledger, ledger.segments[0]).findings} == {"LIN-S001"}


def test_seconds_and_milliseconds_are_told_apart_and_a_rate_in_neither_is_named(tmp_path: Path) -> None:
    """64 samples in 1000 ms are 64 a second; 0.064 is per millisecond."""
    right = [megatron(s, samples_per_second="64.0") for s in (5, 6)]
    _, ledger = done(tmp_path, written(tmp_path, "right.log", *right), run="right")
    assert not codes(ledger)
    seconds = [line.replace("(ms): 1000.0", "(s): 1.0") for line in right]
    _, ledger = done(tmp_path, written(tmp_path, "s.log", *seconds), run="s")
    assert not codes(ledger)
    wrong = [megatron(s, samples_per_second="0.064") for s in (5, 6)]
    _, ledger = done(tmp_path, written(tmp_path, "wrong.log", *wrong), run="wrong")
    assert "per millisecond" in codes(ledger)["LIN-S011"].text


def test_a_time_whose_unit_changes_stays_in_its_first_unit(tmp_path: Path) -> None:
    """27ms, then 1.5s."""
    lines = [
        f"step:{s}/9 train_loss:2.5{s} train_time:{t}" for s, t in ((1, "27ms"), (2, "1.5s"), (3, "1700ms"))
    ]
    _, ledger = done(tmp_path, written(tmp_path, "g.log", *lines))
    assert metric(ledger, "train_time") == {1: 27.0, 2: 1500.0, 3: 1700.0}


def test_a_step_that_goes_back_begins_a_segment_and_leaves_the_rewound_part_as_a_branch(
    tmp_path: Path,
) -> None:
    """Steps 4 to 6 were made twice: once on the abandoned branch."""
    lines = [megatron(s, 3.0 - s / 10) for s in range(1, 7)] + [
        megatron(s, 2.0 - s / 10) for s in range(4, 9)
    ]
    _, ledger = done(tmp_path, written(tmp_path, "a.log", *lines))
    tree = graph.build(ledger.records, reached=ledger.reached)
    first, second = (s.uid for s in ledger.segments)
    assert tree.segments[second].start == "rewind"
    assert tree.segments[second].parent_step == 3
    assert tree.abandoned() == {first: 3}
    assert signals(ledger, 0)["loss"][5] == 2.5
    assert signals(ledger, 1)["loss"][5] == 1.5


def test_a_loaded_checkpoint_begins_a_segment_where_no_step_goes_back(tmp_path: Path) -> None:
    """Each rank says that it loaded: one restart. What the log does not say, the finder does not guess."""
    load = "  successfully loaded checkpoint from /ckpt [ t 0, p 0 ] at iteration 3"
    lines = [megatron(1), megatron(2), megatron(3), load, "[rank1]: " + load, megatron(4), megatron(5)]
    _, ledger = done(tmp_path, written(tmp_path, "a.log", *lines))
    assert [s.info.start for s in ledger.segments] == ["fresh", "resume"]
    assert ledger.segments[1].info.parent_step == 3
    assert ledger.segments[1].info.parent_evidence == "loaded"
    (parent,) = ledger.of("checkpoint")
    assert parent.payload.step == 3
    assert parent.payload.missing == [
        "known only because the log says that it was loaded: its files were not seen"
    ]


def test_two_runs_from_scratch_in_one_file_are_two_segments_without_a_parent(tmp_path: Path) -> None:
    """The second one starts at step 1 again."""
    lines = [megatron(s) for s in (1, 2, 3, 4)] + [megatron(s, 2.25) for s in (1, 2, 3)]
    _, ledger = done(tmp_path, written(tmp_path, "a.log", *lines))
    assert [s.info.start for s in ledger.segments] == ["fresh", "fresh"]
    assert not ledger.of("checkpoint")


def test_a_restart_between_sparse_rows_has_an_earliest_state_and_says_so(tmp_path: Path) -> None:
    """Rows every 10 steps: the state may be that of 20 to 29."""
    lines = [megatron(s) for s in (10, 20, 30, 40)] + [megatron(s, 2.25) for s in (30, 40, 50)]
    _, ledger = done(tmp_path, written(tmp_path, "a.log", *lines))
    assert ledger.segments[1].info.parent_step == 20
    assert "between step 20 and its first row" in gaps(ledger, 1)


def test_rows_that_stand_twice_count_once_and_steps_of_many_rows_cut_nothing(tmp_path: Path) -> None:
    """A line that two streams wrote; and a log with a line per micro-batch."""
    lines = [megatron(1), megatron(1), megatron(2), megatron(2)]
    made, ledger = done(tmp_path, written(tmp_path, "twice.log", *lines), run="twice")
    assert made.rows == 2
    assert "2 rows stand more than once with equal values" in gaps(ledger)
    micro = [titan(s, 8 - s - m / 10) for s in (1, 2, 3, 4) for m in (0, 1)]
    made, ledger = done(tmp_path, written(tmp_path, "micro.log", *micro), run="micro")
    assert made.rows == 8
    assert len(ledger.segments) == 1
    assert "4 steps stand more than once with other values" in gaps(ledger)


def test_elided_steps_are_named_and_another_rhythm_of_logging_is_none(tmp_path: Path) -> None:
    """31-39 were cut out; 1 to 5 and then every 100 is a rhythm."""
    _, ledger = done(tmp_path, written(tmp_path, "a.log", *map(megatron, [28, 29, 30, 40, 41])), run="a")
    assert "steps 31-39 are not in the log" in gaps(ledger)
    _, ledger = done(tmp_path, written(tmp_path, "b.log", *map(megatron, [1, 2, 3, 100, 200, 300])), run="b")
    assert "not in the log" not in gaps(ledger)
    assert "logged every" in gaps(ledger)


def test_a_last_line_that_is_torn_gives_what_is_whole(tmp_path: Path) -> None:
    """The number that the tear went through is left out, in a line of bars and in one of pairs."""
    whole = megatron(6, 2.25)
    torn = whole[: whole.index("lm loss: ") + len("lm loss: 2.2")]
    made, ledger = done(tmp_path, written(tmp_path, "a.log", megatron(5), torn, end=""), run="a")
    assert metric(ledger, "global batch size") == {5: 64.0, 6: 64.0}
    assert metric(ledger, "lm loss") == {5: 2.5}
    assert made.sources[0].told.torn
    pairs = ["step:1/9 train_loss:6.9370", "step:2/9 train_loss:6.8"]
    _, ledger = done(tmp_path, written(tmp_path, "b.log", *pairs, end=""), run="b")
    assert metric(ledger, "train_loss") == {1: 6.937}
    assert "other digits than before" in gaps(ledger)


def test_what_is_no_utf_8_or_compressed_or_utf_16_is_read_all_the_same(tmp_path: Path) -> None:
    """And a compressed file that is cut off gives the lines before the cut."""
    text = "\n".join(megatron(s) for s in range(1, 400)) + "\n"
    latin = tmp_path / "latin.log"
    latin.write_bytes(b"caf\xe9 \xff\n" + text.encode())
    made, ledger = done(tmp_path, latin, run="latin")
    assert made.rows == 399
    assert "1 lines are no UTF-8" in gaps(ledger)
    wide = tmp_path / "wide.log"
    wide.write_bytes(b"\xff\xfe" + text.encode("utf-16-le"))
    assert done(tmp_path, wide, run="wide")[0].rows == 399
    packed = gzip.compress(text.encode())
    (tmp_path / "a.log.gz").write_bytes(packed)
    assert done(tmp_path, tmp_path / "a.log.gz", run="gz")[0].rows == 399
    (tmp_path / "b.log.gz").write_bytes(packed[: len(packed) // 2])
    made, ledger = done(tmp_path, tmp_path / "b.log.gz", run="cut")
    assert 0 < made.rows < 399
    assert "cut off" in gaps(ledger)


def test_a_progress_bar_in_front_of_a_line_hides_nothing(tmp_path: Path) -> None:
    """tqdm writes over its line with carriage returns; the rest ends with that of Windows."""
    lines = [f" 10%|# | {s}/9\r 20%|## | {s}/9\rstep:{s}/9 train_loss:2.5{s}\r" for s in (1, 2)]
    _, ledger = done(tmp_path, written(tmp_path, "a.log", *lines))
    assert metric(ledger, "train_loss") == {1: 2.51, 2: 2.52}


def test_consumed_samples_that_steps_and_batch_do_not_explain_are_named(tmp_path: Path) -> None:
    """A ramp of the batch size between two rows explains what lies between both sizes."""
    ramp = [megatron(10), megatron(20, consumed_samples=str(640 + 800), global_batch_size="96")]
    _, ledger = done(tmp_path, written(tmp_path, "ramp.log", *ramp), run="ramp")
    assert "LIN-S012" not in codes(ledger)
    lost = [
        megatron(10),
        megatron(11, consumed_samples=str(64 * 11 + 1000)),
        megatron(12, consumed_samples="1768"),
    ]
    _, ledger = done(tmp_path, written(tmp_path, "lost.log", *lost), run="lost")
    assert "grow by 1,064 at step 11 (line 2 of lost.log), where steps and batch size give 64" in (
        codes(ledger)["LIN-S012"].text
    )


def test_a_learning_rate_that_jumps_is_named_and_a_schedule_is_not(tmp_path: Path) -> None:
    """Cosine, linear to zero, warm-up, coarse digits: none of these jumps."""

    def lines(rates: dict[int, str]) -> list[str]:
        return [megatron(s, learning_rate=r) for s, r in rates.items()]

    healthy = {
        "cosine": {s: f"{3e-5 + 3e-5 * math.cos(s / 1000 * math.pi):.3E}" for s in range(200, 1000, 5)},
        "linear": {s: f"{1e-4 * (1000 - s) / 800:.3E}" for s in range(200, 1001)},
        "warmup": {s: f"{1e-4 * min(s, 400) / 400:.3E}" for s in range(1, 600)},
        "coarse": {s: f"{5e-5 * (1000 - s) / 800:.6f}" for s in range(200, 990)},
    }
    for name, rates in healthy.items():
        _, ledger = done(tmp_path, written(tmp_path, f"{name}.log", *lines(rates)), run=name)
        assert "LIN-S013" not in codes(ledger), name
    jump = {s: f"{(6e-5 if s < 500 else 5.8e-5) * (2000 - s) / 1800:.3E}" for s in range(450, 550)}
    _, ledger = done(tmp_path, written(tmp_path, "jump.log", *lines(jump)), run="jump")
    assert codes(ledger)["LIN-S013"].values["first_step"].plain() == 500
    (drift,) = ledger.of("drift")
    assert drift.payload.from_step == 500
    assert drift.payload.changes == []
    assert "does not tell" in drift.payload.not_shown["lr_schedule"]


def test_a_batch_size_that_changes_opens_a_regime_and_one_that_ramps_does_not(tmp_path: Path) -> None:
    """What the log prints is in effect."""
    sizes = {s: 64 if s < 20 else 128 for s in range(15, 25)}
    consumed = {s: str(64 * min(s, 19) + 128 * max(0, s - 19)) for s in sizes}
    lines = [megatron(s, global_batch_size=str(b), consumed_samples=consumed[s]) for s, b in sizes.items()]
    _, ledger = done(tmp_path, written(tmp_path, "a.log", *lines), run="a")
    (regime,) = ledger.of("regime")
    assert (regime.payload.from_step, regime.payload.values["global_batch"].plain()) == (20, 128)
    ramp = [megatron(s, global_batch_size=str(16 * (s // 10)), consumed_samples=None) for s in range(10, 60)]
    _, ledger = done(tmp_path, written(tmp_path, "b.log", *(x.replace("|", "|", 1) for x in ramp)), run="b")
    assert not ledger.of("regime")


def test_an_excerpt_too_short_for_a_detector_is_judged_coarsely_with_the_line(tmp_path: Path) -> None:
    """A loss a third above what came before; the same rows at a run's first steps are not judged."""
    values = [2.2, 2.21, 2.19, 5.1, 3.4]
    late = [megatron(5000 + i, v) for i, v in enumerate(values)]
    _, ledger = done(tmp_path, written(tmp_path, "late.log", *late), run="late")
    (alarm,) = ledger.of("alarm")
    assert alarm.step == 5003
    assert "line 4 of late.log" in alarm.payload.text
    early = [megatron(1 + i, v) for i, v in enumerate(values)]
    _, ledger = done(tmp_path, written(tmp_path, "early.log", *early), run="early")
    assert not ledger.of("alarm")
    calm = [megatron(5000 + i, v) for i, v in enumerate([2.2, 2.3, 2.4, 2.25, 2.5])]
    _, ledger = done(tmp_path, written(tmp_path, "calm.log", *calm), run="calm")
    assert not ledger.of("alarm")
