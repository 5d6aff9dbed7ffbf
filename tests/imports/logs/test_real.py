"""The real files beside the repository: each is read, or refused with a reason, and shows what its note says."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lineage.capture import config as config_
from lineage.imports import ImportTrouble, read
from lineage.imports.logs import import_logs, is_log, what_else
from lineage.judge import firstbad
from lineage.judge.firstbad import Point
from lineage.ledger import health, sources
from lineage.ledger.reader import Ledger

from .reading import codes, gaps, metric, signals

FILES = Path(__file__).resolve().parents[4] / "shared" / "files"
MANIFEST = FILES / "MANIFEST.json"
ENTRIES: list[dict[str, Any]] = json.loads(MANIFEST.read_text("utf-8")) if MANIFEST.is_file() else []
pytestmark = pytest.mark.skipif(not ENTRIES, reason=f"no real files in {FILES}")


def imported(tmp_path: Path, *names: str, run: str = "r") -> Ledger:
    """Import real logs as one run."""
    return Ledger(import_logs([FILES / n for n in names], run, tmp_path / "ledgers").ledger)


def first_bad(ledger: Ledger) -> tuple[int, str, str] | None:
    """(step, signal, text) of the first cell that detectors or alarms name."""
    rows = ledger.series("probes").to_pylist()
    points = [Point(r["segment"], r["rank"], r["step"], r["signal"], r["value"]) for r in rows]
    found = [*firstbad.cells(points), *firstbad.from_alarms(ledger.records)]
    order = {"loss": 0, "grad_norm": 2}
    cell = min(found, key=lambda c: (c.step, order[c.signal]), default=None)
    return (cell.step, cell.signal, cell.text) if cell else None


def checked(ledger: Ledger) -> dict[str, str]:
    """code -> what `lineage check` says of the only segment."""
    return {f.code: f.subject for f in health.check(ledger, ledger.segments[0]).findings}


def outcome(path: Path, where: Path) -> str:
    """What `lineage import` makes of a file: the format of a log, a logbook, a config, or the reason against it."""
    try:
        if is_log(path):
            made = import_logs([path], "r", where)
            assert made.rows == made.sources[0].told.recognised > 0
            return made.sources[0].format.name
        if (why := what_else(path)) is not None:
            if "--format configs" in why:
                found = config_.capture(path)
                held = path.name != "offline_g9dvvkua_config.yaml"  # W&B's own key and nothing else
                assert bool(found.values) == held, "the command that the reason names reads it"
                return "config"
            return f"refused: {why}"
        return f"book of {sum(len(b.entries) for b in read(path)):,} entries"
    except ImportTrouble as e:
        return f"refused: {e}"


def expected() -> Iterator[tuple[str, str]]:
    """File -> how its outcome begins."""
    by_folder = {
        "bigscience/": "megatron",
        "torchtitan/": "step-loss",
        "modded_nanogpt/": "modded-nanogpt",
        "paramgolf/": "modded-nanogpt",
        "olmo/": "config",
    }
    by_name = {
        "bigscience/tr11_176B_launch_args_history.json": "book of",
        "modded_nanogpt/2024-12-04_ValueEmbed_final_val_losses.csv": "refused: ",
        "olmo/OLMo-2-1124-7B_checkpoints.csv": "refused: it is a list of checkpoints",
        "m4/gpu.query.0.txt": "refused: it is the output of nvidia-smi",
        "nvrx/_dump_0": "refused: it is a dump of the NCCL flight recorder",
        "nvrx/fault_injection.log": "refused: it is a list of injected faults",
        "misc/1591160699.algo-1.json.corrupt": "refused: its lines are measurements of a machine by time, the last",
    }
    for entry in ENTRIES:
        file = entry["file"]
        if file in by_name:
            yield file, by_name[file]
        elif file.startswith("tb/"):
            yield file, ""  # by whether its reader is installed, see below
        elif file.startswith("hf/"):
            yield file, "trainer_state" if file.endswith(".json") else "refused: it is a Git-LFS pointer"
        elif file.startswith("wandb/"):
            yield file, "config" if file.endswith(".yaml") else "refused: it is "
        elif file.startswith("megatron/"):
            yield (
                file,
                "csv" if file.endswith(".csv") else "config" if file.endswith(".yaml") else "megatron-golden",
            )
        else:
            yield file, next((kind for start, kind in by_folder.items() if file.startswith(start)), "?")


@pytest.mark.parametrize(("file", "begins"), list(expected()))
def test_every_real_file_is_read_or_refused_with_a_reason(tmp_path: Path, file: str, begins: str) -> None:
    """By its content."""
    assert outcome(FILES / file, tmp_path).startswith(begins)


def test_bloom_goes_bad_near_31219_and_the_elided_steps_are_said(tmp_path: Path) -> None:
    """The norm grows by orders of magnitude two steps before the loss jumps."""
    ledger = imported(tmp_path, "bigscience/tr11_176B_spike_31214_31251.log")
    cell = first_bad(ledger)
    assert cell is not None
    assert cell[:2] == (31217, "grad_norm")
    alarms = {r.step: r.payload for r in ledger.of("alarm")}
    assert alarms.keys() == {31217, 31219}
    assert "5.098" in alarms[31219].text
    assert "line 6 of" in alarms[31219].text
    assert signals(ledger)["grad_norm"][31219] == 960.351
    assert signals(ledger)["loss"][31250] == 2.215699
    assert "steps 31,223-31,249 are not in the log" in gaps(ledger)
    assert "which node it is, is not shown" in gaps(ledger)
    assert {r.rank for r in ledger.of("alarm")} == {7}


def test_a_slow_node_changes_throughput_and_nothing_else(tmp_path: Path) -> None:
    """42,782: five percent slower, no drift, no alarm, though a key is written with two spaces."""
    ledger = imported(tmp_path, "bigscience/tr11_176B_throughput_drop_42780.log")
    tflops = metric(ledger, "TFLOPs")
    assert (tflops[42780], tflops[42784]) == (149.10, 141.09)
    assert signals(ledger)["lr"][42780] == 4.475e-05
    assert first_bad(ledger) is None
    assert not ledger.of("drift")
    assert not ledger.of("finding")


def test_the_overflow_chain_is_marked_step_by_step_against_its_own_counter(tmp_path: Path) -> None:
    """Seven bad steps from 17,062 on, six of them skipped; the scale falls, the norm repeats, the rate is per ms."""
    ledger = imported(tmp_path, "bigscience/tr8b_104B_embnorm7_overflow_17060.log")
    found = signals(ledger)
    assert [s for s, v in found["update_skipped"].items() if v] == [17062, 17063, 17064, 17065, 17067, 17068]
    assert (found["loss_scale"][17060], found["loss_scale"][17068]) == (1048576.0, 32768.0)
    cell = first_bad(ledger)
    assert cell is not None
    assert cell[:2] == (17062, "loss")
    assert "line 4 of" in cell[2]
    assert "6 lines say that a step was skipped" in codes(ledger)["LIN-S010"].text
    assert "per millisecond" in codes(ledger)["LIN-S011"].text
    assert checked(ledger) == {"LIN-S002": "grad norm"}
    uid = ledger.segments[0].uid
    assert sources.at(ledger.path, uid, 0, 17062) == ["line 4 of tr8b_104B_embnorm7_overflow_17060.log"]


def test_the_override_of_the_learning_rate_is_found_and_left_open(tmp_path: Path) -> None:
    """5.999E-05 -> 5.842E-05 at 12,001."""
    ledger = imported(tmp_path, "bigscience/tr8b_104B_bnb6_lr_override_12000.log")
    found = codes(ledger)["LIN-S013"]
    assert found.values["first_step"].plain() == 12001
    assert (found.values["before"].plain(), found.values["after"].plain()) == (5.999e-05, 5.842e-05)
    (drift,) = ledger.of("drift")
    assert drift.payload.from_step == 12001
    assert list(drift.payload.not_shown) == ["lr_schedule"]
    assert first_bad(ledger) is None


@pytest.mark.parametrize(
    ("file", "step", "missing"),
    [
        ("tr8_104B_exp1_spike_7000.log", 7010, "steps 7,011-7,219"),
        ("tr8_104B_exp2_spike_6900.log", 6930, None),
        ("tr1_13B_spike_29020.log", 29050, None),
    ],
)
def test_the_other_spikes_are_found_within_their_ten_logged_steps(
    tmp_path: Path, file: str, step: int, missing: str | None
) -> None:
    """The loss is a mean over ten steps, which is said."""
    ledger = imported(tmp_path, f"bigscience/{file}")
    cell = first_bad(ledger)
    assert cell is not None
    assert cell[:2] == (step, "loss")
    assert "logged every 10 steps; lm loss is the mean" in gaps(ledger)
    assert missing is None or missing in gaps(ledger)


def test_the_norm_of_the_13b_run_is_a_dead_probe_and_its_scale_falls(tmp_path: Path) -> None:
    """Always 0.000."""
    ledger = imported(tmp_path, "bigscience/tr1_13B_spike_29020.log")
    assert checked(ledger) == {"LIN-S001": "grad norm"}
    assert signals(ledger)["loss_scale"][29060] == 4096.0


def test_a_resumed_golden_run_begins_where_it_has_values(tmp_path: Path) -> None:
    """Steps 1 to 50 are written as nan in every key: not run, and no NaN loss."""
    ledger = imported(tmp_path, "megatron/resume_golden_values_dev_dgx_h100_2nd.json")
    loss = signals(ledger)["loss"]
    assert list(loss) == list(range(51, 101))
    assert not any(map(math.isnan, loss.values()))
    assert ledger.segments[0].info.start == "unknown"
    assert "(1 to 50): not run" in gaps(ledger)
    whole = imported(tmp_path, "megatron/resume_golden_values_dev_dgx_h100.json", run="whole")
    assert max(abs(v - signals(whole)["loss"][s]) for s, v in loss.items()) < 2e-4


def test_the_spikes_of_the_mixture_of_experts_are_the_first_bad_cells(tmp_path: Path) -> None:
    """4,538 points to step 22,685."""
    ledger = imported(tmp_path, "megatron/moe8x7b_release_golden_values_dev_dgx_h100.json")
    assert len(signals(ledger)["loss"]) == 4538
    rows = ledger.series("probes").to_pylist()
    cells = firstbad.cells(Point(r["segment"], r["rank"], r["step"], r["signal"], r["value"]) for r in rows)
    steps = {c.step for c in cells}
    assert min(steps) == 2360
    assert {2360, 2830, 3800, 3850, 4260} <= steps


@pytest.mark.parametrize("order", [(500, 1000, None), (None, 1000, 500)])
def test_histories_of_one_training_are_one_segment_in_any_order(
    tmp_path: Path, order: tuple[int | None, ...]
) -> None:
    """Each is the beginning of the next."""
    names = [f"hf/mistral_lora_{f'checkpoint-{n}' if n else 'final'}_trainer_state.json" for n in order]
    ledger = imported(tmp_path, *names)
    assert len(ledger.segments) == 1
    assert sorted(signals(ledger)["loss"]) == list(range(10, 8661, 10))
    assert ledger.series("sources").num_rows == 867


def test_the_learning_rate_of_the_whisper_run_and_its_evaluations_are_kept_apart(tmp_path: Path) -> None:
    """200 training rows; an evaluation's loss is no training loss."""
    ledger = imported(tmp_path, "hf/whisper_trainer_state.json")
    assert len(signals(ledger)["loss"]) == 200
    assert len(metric(ledger, "eval_loss")) == 5


def test_a_log_of_nanogpt_style_counts_from_zero_and_has_all_its_steps(tmp_path: Path) -> None:
    """9,536 updates, of which the first is called 0; nothing of it is abnormal."""
    ledger = imported(tmp_path, "modded_nanogpt/2024-06-06_AdamW.log")
    assert list(signals(ledger)["loss"]) == list(range(1, 9537))
    assert signals(ledger)["loss"][1] == 10.965596
    assert metric(ledger, "test loss")[9536] == 3.275959
    assert first_bad(ledger) is None


def test_a_log_among_the_noise_of_launchers_gives_its_rows(tmp_path: Path) -> None:
    """NCCL warnings, banners and rank prefixes stand around 285 training rows."""
    ledger = imported(tmp_path, "paramgolf/NaiveBaseline_train.log")
    assert len(signals(ledger)["loss"]) == 285
    assert signals(ledger)["loss"][13750] == 1.9910
    assert "world size 8" in " ".join(ledger.of("coverage")[0].payload.recorded)


def test_two_seeds_of_one_recipe_are_two_runs_and_as_one_they_are_two_segments(tmp_path: Path) -> None:
    """Both start at step 1."""
    names = [f"paramgolf/LongContextSeq2048_train{x}.log" for x in ("", "_seed1338")]
    ledger = imported(tmp_path, *names)
    assert [s.info.start for s in ledger.segments] == ["fresh", "fresh"]


def test_the_event_file_is_read_or_the_install_line_is_said(tmp_path: Path) -> None:
    """17 batches, counted from 0."""
    path = FILES / "tb/events.out.tfevents.1585769947.cvp"
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        with pytest.raises(ImportTrouble, match=r'pip install "runlineage\[tensorboard\]"'):
            import_logs([path], "r", tmp_path)
        return
    ledger = imported(tmp_path, "tb/events.out.tfevents.1585769947.cvp")
    assert list(metric(ledger, "batch_loss")) == list(range(1, 18))
    assert metric(ledger, "batch_loss")[1] == pytest.approx(3.91357732)
    assert "hold no scalars" in gaps(ledger)
