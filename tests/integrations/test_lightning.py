"""Lightning with the layer: the same training, what it records, and what a resume did not restore, named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("lightning")

from lineage.ledger import sidecars

from . import lightning_loops as loops
from .printed import Told, in_ranks, printed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::UserWarning:lightning.*", "ignore::FutureWarning:lightning.*"),
]
Resume = Callable[..., Told]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """What a run of a kind saved; each kind is trained once."""
    made: dict[str, Path] = {}

    def get(kind: str, **options: Any) -> Path:
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp(kind.replace(" ", "_"))
            loops.fit(made[kind], **options)
        return made[kind]

    return get


@pytest.fixture
def resume(base: Callable[..., Path], tmp_path: Path) -> Resume:
    """A resume from step 20 in a copy of the ledger that the run has by then."""

    def go(fault: str = "", kind: str = "run", saved: dict[str, Any] | None = None, **options: Any) -> Told:
        root = base(kind, **(saved or {}))
        runs = tmp_path / "runs"
        shutil.copytree(root / "runs", runs)
        loops.fit(root, start=loops.checkpoint(root, loops.SAVED), fault=fault, runs=runs, **options)
        return Told(runs)

    return go


def wrong(told: Told, rank: int = 0) -> set[str]:
    """The components that the newest segment did not restore."""
    return {name for name, status in told.statuses(rank).items() if status in ("differs", "absent")}


# -- nothing is wrong


def test_a_faithful_resume_is_found_faithful_and_nothing_is_named(resume: Resume) -> None:
    told = resume()
    assert set(told.statuses().values()) == {"restored"}
    assert {"weights", "buffers", "optimizer_state", "lr_scheduler", "rng", "loader_position"} <= set(
        told.statuses()
    )
    assert not told.changes().keys() - {"code"}
    assert told.segment_verdict().status == "holds"
    text = told.says("resume")
    assert "what was recorded is restored" in text
    assert "the loss of steps 21 to 23 is bit for bit that of the other branch" in text
    assert "fault" not in told.says("show")


def test_averaged_weights_of_lightnings_own_callback_are_found_restored(resume: Resume) -> None:
    told = resume(kind="averaged", saved={"callbacks": (loops.averaging(),)}, callbacks=(loops.averaging(),))
    assert told.statuses()["ema"] == "restored"
    assert wrong(told) == set()


# -- faults


@pytest.mark.parametrize(
    ("fault", "components", "words"),
    [
        ("moments", {"optimizer_state", "optimizer_step"}, "optimizer state │ NOT RESTORED"),
        ("scheduler", {"lr_scheduler"}, "last_epoch 20 -> 0"),
        ("loader from the start", {"loader_position"}, "batch 20 -> 0"),
        ("loader skips", {"loader_position"}, "batch 20 -> 22"),
        (
            "dtype",
            {"weights", "buffers", "optimizer_state"},
            "their type was changed by the load: float32 -> bfloat16",
        ),
        ("untied", {"weights"}, "tied before: embedding.weight = head.weight; tied now: none"),
    ],
)
def test_what_was_not_restored_is_named_and_nothing_else(
    fault: str, components: set[str], words: str, resume: Resume
) -> None:
    told = resume(fault)
    assert wrong(told) == components
    assert told.segment_verdict().status == "broken"
    assert words in squeezed(told.says("resume"))
    assert "segment 2: BROKEN" in told.says("show")


def squeezed(text: str) -> str:
    """Text of tables without the spaces that fill a column."""
    return " ".join(text.split())


def test_a_step_counter_that_begins_again_is_named_with_the_update_that_it_makes_too_large(
    resume: Resume,
) -> None:
    """Moments are kept: Adam's bias correction makes the first update 2.24 times too large, 2.45 so early."""
    told = resume("counter")
    assert wrong(told) == {"optimizer_step"}
    text = told.says("show")
    assert "optimizer step counter not as at the save (step 20 -> 0)" in text
    assert "LIN-C013" in text
    assert "make it 2.45 times as large (betas 0.9, 0.95)" in text


def test_a_stale_optimizer_is_named_as_one_that_trains_nothing_of_the_model(resume: Resume) -> None:
    """The optimizer was built before the modules were copied: Lightning restores it, and it moves tensors of nobody."""
    told = resume("stale optimizer")
    assert "optimizer_state" in wrong(told)
    text = told.says("show")
    assert "LIN-P001" in text
    assert "LIN-P002 optimizer: 3 held by the optimizer and no part of the model" in text
    assert "LIN-C008" not in text


def test_a_scale_that_begins_again_is_named(resume: Resume) -> None:
    told = resume("scaler", "scaled", {"plugins": (loops.scaled(),)}, plugins=(loops.scaled(),))
    assert wrong(told) == {"grad_scaler"}
    assert "gradient scaler state not as at the save (scale 4096 -> 4)" in told.says("show")


def test_a_buffer_that_no_state_dict_holds_is_named_as_lost(resume: Resume) -> None:
    options = {"net": {"lost_buffer": True}}
    told = resume(kind="buffer", saved=options, **options)
    assert wrong(told) == {"buffers"}
    assert "no state_dict holds usual (persistent=False)" in told.says("resume")


def test_averaged_weights_that_begin_again_are_named(resume: Resume) -> None:
    """Lightning says in a warning that it begins with the weights instead, and goes on."""
    told = resume("ema", "averaged", {"callbacks": (loops.averaging(),)}, callbacks=(loops.averaging(),))
    assert wrong(told) == {"ema"}
    assert "averaged weights (EMA) not as at the save" in told.says("show")
    assert "comparison of evaluations" in told.says("show")


def test_arguments_that_the_checkpoint_silently_puts_in_place_of_the_configs_are_named(
    resume: Resume,
) -> None:
    told = resume(net={"lr": 3e-2, "weight_decay": 0.3})
    text = told.says("show")
    assert "hparams.lr requested 0.01 -> 0.03, not in effect" in text
    assert "hparams.weight_decay requested 0.1 -> 0.3, not in effect" in text
    assert told.segment_verdict().status == "caveat"


def test_what_lightning_does_by_default_is_named_random_numbers_lost_and_data_read_again(
    resume: Resume, base: Callable[..., Path]
) -> None:
    """In the middle of an epoch: it saves no random state, and a DataLoader of torch's begins anew."""
    told = resume("plain loader", "plain", {"fault": "plain loader", "rng": False}, rng=False)
    assert wrong(told) == {"rng"}
    assert told.statuses()["loader_position"] == "not_recorded"
    text = told.says("show")
    assert "random-number state not as at the save (torch)" in text
    assert "the batch of step 21 is the one that step 1 had: data is read again" in text
    file = str(loops.checkpoint(base("plain"), loops.SAVED))
    assert "Lightning saves no random states" in printed("checkpoint", file)[1]


def test_weights_that_the_user_loads_alone_are_named_with_all_that_began_again(
    resume: Resume, base: Callable[..., Path], tmp_path: Path
) -> None:
    """`load_from_checkpoint` and a fit without `ckpt_path`; the callback is told where the weights came from."""
    root = base("run")
    path = loops.checkpoint(root, loops.SAVED)
    shutil.copytree(root / "runs", tmp_path / "runs")
    loops.fit(
        tmp_path,
        module=loops.Net.load_from_checkpoint(path),
        steps=3,
        rng=False,
        attach={"resumed_from": path},
    )
    told = Told(tmp_path / "runs")
    assert wrong(told) == {"optimizer_state", "optimizer_step", "lr_scheduler", "rng", "loader_position"}
    assert "BROKEN  Broken since step 1" in told.says("show")


# -- several ranks


@pytest.fixture(scope="module")
def on_two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run under DDP on two processes, and its resumes, each in a ledger of its own."""
    folder = tmp_path_factory.mktemp("ranks")
    in_ranks("tests.integrations.lightning_loops", 2, folder)
    return folder


def test_a_faithful_resume_under_ddp_is_found_faithful_on_both_ranks(on_two_ranks: Path) -> None:
    told = Told(on_two_ranks / "healthy")
    for rank in range(2):
        assert set(told.statuses(rank).values()) == {"restored"}
        assert "rng" in told.statuses(rank)
    assert told.segment_verdict().status == "holds"
    assert "what was recorded is restored" in told.says("resume")
    assert "fault" not in told.says("ranks") + told.says("show")


def test_random_numbers_that_only_rank_0_restored_are_named_on_rank_1(on_two_ranks: Path) -> None:
    told = Told(on_two_ranks / "rng_above_0")
    assert (wrong(told, 0), wrong(told, 1)) == (set(), {"rng"})
    assert "random-number state │ DIFFERS │ 1 │ not as at the save (torch)" in squeezed(told.says("resume"))
    assert told.segment_verdict().status == "caveat"


def test_random_numbers_of_another_rank_are_named_with_both_ranks(on_two_ranks: Path) -> None:
    told = Told(on_two_ranks / "rng_of_another_rank")
    for command in ("ranks", "show", "resume"):
        assert (
            "LIN-R006 random numbers: rank 1 has, after the load, the random numbers that rank 0 saved"
            in told.says(command)
        )


def test_a_rank_that_loaded_the_checkpoint_of_another_step_is_named(on_two_ranks: Path) -> None:
    """DDP then gives rank 0's weights to all, so that nothing shows but the optimizer, which nobody compares."""
    told = Told(on_two_ranks / "one_rank_from_another_step")
    words = (
        "LIN-R005 start: ranks started from different states: "
        "rank 0: the checkpoint of step 20; rank 1: the checkpoint of step 10"
    )
    assert words in told.says("ranks")
    assert words in told.says("show")
    assert told.segment_verdict().status == "broken"


# -- what it records, and what it leaves alone


def test_losses_and_weights_with_the_layer_are_those_without_it_bit_for_bit(tmp_path: Path) -> None:
    """With dropout, clipping and accumulation, through a save and a resume."""
    options = {"accumulate_grad_batches": 2, "gradient_clip_val": 0.5}
    first = loops.fit(tmp_path / "on", **options)
    second = loops.fit(tmp_path / "off", layer=False, **options)
    assert first.losses == second.losses
    on = loops.fit(tmp_path / "on", start=loops.checkpoint(tmp_path / "on", 20), **options)
    off = loops.fit(tmp_path / "off", start=loops.checkpoint(tmp_path / "off", 20), layer=False, **options)
    assert len(on.losses) == 6
    assert on.losses == off.losses
    assert all(torch.equal(a, on.state_dict()[n]) for n, a in off.state_dict().items())


def test_a_step_is_an_update_with_all_its_micro_batches_and_their_mean_loss(tmp_path: Path) -> None:
    net = loops.fit(tmp_path, steps=4, accumulate_grad_batches=3, gradient_clip_val=1.0)
    told = Told(tmp_path / "runs")
    rows = told.ledger.series("batches", ["step", "micro"]).to_pylist()
    assert [(r["step"], r["micro"]) for r in rows] == [(s, m) for s in range(1, 5) for m in range(3)]
    values = told.ledger.series("probes", ["step", "signal", "value"]).to_pylist()
    losses = [r["value"] for r in values if r["signal"] == "loss"]
    assert losses == pytest.approx([sum(net.losses[n : n + 3]) / 3 for n in range(0, 12, 3)], rel=1e-6)
    assert [r["value"] for r in values if r["signal"] == "clip_threshold"] == [1.0] * 4
    (config,) = told.payloads("config")
    assert config.values["trainer.accumulate_grad_batches"].plain() == 3
    assert config.values["hparams.lr"].plain() == 1e-2


def test_an_update_of_two_optimizers_by_hand_keeps_lightnings_count_of_steps(tmp_path: Path) -> None:
    """Manual optimization: `global_step` counts the steps of both, so a batch is two of them."""

    class ByHand(loops.Net):
        automatic_optimization = False

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            loss = super().training_step(batch, index)
            for optimizer in self.optimizers():
                optimizer.zero_grad()
            self.manual_backward(loss)
            for optimizer in self.optimizers():
                optimizer.step()
            return loss

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(m.parameters(), lr=0.1) for m in (self.embedding, self.body)]

        def on_load_checkpoint(self, checkpoint: Any) -> None:
            pass

    loops.fit(tmp_path, module=ByHand(), steps=10)
    told = Told(tmp_path / "runs")
    rows = told.ledger.series("batches", ["step", "micro"]).to_pylist()
    assert [r["step"] for r in rows] == [1, 3, 5, 7, 9]
    assert "2 optimizers: only the first is followed" in told.payloads("coverage")[-1].gaps


def test_lightnings_own_mixed_precision_is_read_as_in_effect(tmp_path: Path) -> None:
    loops.fit(tmp_path, steps=2, precision="bf16-mixed")
    held = Told(tmp_path / "runs").payloads("effective")[-1]
    assert held.values["precision"].value.plain() == "float32, autocast bfloat16"


def test_an_exception_of_the_training_code_ends_the_record_with_it_and_goes_on_its_way(
    tmp_path: Path,
) -> None:
    """What ModelCheckpoint saves on the exception is on record too."""

    class Fails(loops.Net):
        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            if index == 3:
                raise ZeroDivisionError("no more")
            return super().training_step(batch, index)

    with pytest.raises(ZeroDivisionError):
        loops.fit(tmp_path, module=Fails(), saves={"save_on_exception": True})
    told = Told(tmp_path / "runs")
    (end,) = told.payloads("segment_end")
    assert (end.reason, end.last_step) == ("exception", 3)
    assert "ZeroDivisionError: no more" in end.error
    assert [c.step for c in told.payloads("checkpoint") if c.status == "complete"] == [3]


def test_a_layer_that_breaks_is_said_once_and_the_fit_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from lineage.integrations import _lightning_reading

    def broken(*_: Any) -> Any:
        raise OSError("the layer is broken on purpose")

    for name in ("loss_of", "loader_of", "resumed_from", "config_of"):
        monkeypatch.setattr(_lightning_reading, name, broken)
    net = loops.fit(tmp_path, steps=5)
    assert len(net.losses) == 5
    assert "Training goes on" in caplog.text


def test_a_save_by_hand_in_the_fit_is_recorded_with_its_sidecar(tmp_path: Path) -> None:
    class ByHand(loops.lightning.Callback):  # type: ignore[name-defined,misc]
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step == 2:
                trainer.save_checkpoint(tmp_path / "mine.ckpt")

    loops.fit(tmp_path, steps=4, callbacks=(ByHand(),))
    sidecar = sidecars.read(tmp_path / "mine.ckpt")
    assert sidecar is not None
    assert (sidecar.checkpoint.step, sidecar.checkpoint.status) == (2, "complete")
