"""Checkpoints that Lightning's Trainer wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from lineage.checkpoints import look

from .made import codes, cut, said, same_in_store, severity

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning")


class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def training_step(self, batch: object, index: int) -> object:
        return self.layer(batch).sum()

    def configure_optimizers(self) -> object:
        opt = torch.optim.AdamW(self.parameters())
        return [opt], [torch.optim.lr_scheduler.StepLR(opt, 1)]


def fit(path: Path, *, steps: int = 3, weights_only: bool = False) -> Path:
    trainer = lightning.Trainer(
        max_steps=steps,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=2))
    trainer.save_checkpoint(path, weights_only=weights_only)
    return path


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fit(tmp_path_factory.mktemp("lightning") / "epoch=0-step=3.ckpt")


@pytest.fixture
def spoilt(saved: Path, tmp_path: Path) -> tuple[dict[str, object], Path]:
    return torch.load(saved, weights_only=False), tmp_path / "x.ckpt"


def test_a_checkpoint_has_all_that_lightning_saves_and_says_what_it_does_not(saved: Path) -> None:
    c = look(saved)
    assert (c.format, c.step, codes(c)) == ("lightning", 3, {"LIN-K008", "LIN-K009"})
    assert c.parts["optimizer_step"].text == "step counter 3"
    assert {t.name for t in c.tensors if t.component == "weights"} == {"layer.weight", "layer.bias"}


def test_the_loader_is_no_matter_at_the_end_of_an_epoch(tmp_path: Path) -> None:
    """Four batches in the data, four steps."""
    assert severity(look(fit(tmp_path / "end.ckpt", steps=4)), "LIN-K009") == {"fine"}


def test_weights_only_stops_lightning(tmp_path: Path) -> None:
    path = fit(tmp_path / "w.ckpt", weights_only=True)
    c = look(path)
    assert severity(c, "LIN-K005") == {"fails"}
    trainer = lightning.Trainer(max_steps=5, accelerator="cpu", logger=False, enable_checkpointing=False)
    with pytest.raises(KeyError):
        trainer.fit(Module(), torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=2), ckpt_path=path)


@pytest.mark.parametrize(("key", "code"), [("optimizer_states", "LIN-K005"), ("lr_schedulers", "LIN-K006")])
def test_a_key_that_lightning_needs_is_named(
    key: str, code: str, spoilt: tuple[dict[str, object], Path]
) -> None:
    value, path = spoilt
    del value[key]
    torch.save(value, path)
    assert f"has no {key}" in said(look(path), code)


def test_moments_that_were_lost_and_weights_that_are_none_are_named(
    spoilt: tuple[dict[str, object], Path],
) -> None:
    value, path = spoilt
    value["optimizer_states"][0]["state"] = {}  # type: ignore[index]
    value["state_dict"] = {}
    torch.save(value, path)
    assert codes(look(path)) >= {"LIN-K004", "LIN-K005"}


def test_the_scaler_of_the_precision_plugin_is_found(spoilt: tuple[dict[str, object], Path]) -> None:
    """MixedPrecision keeps the state of torch's own scaler under its class name."""
    value, path = spoilt
    value["MixedPrecision"] = {"scale": 1024.0, "growth_factor": 2.0, "_growth_tracker": 3}
    torch.save(value, path)
    assert "1024" in look(path).parts["grad_scaler"].text


def test_a_checkpoint_cut_off_is_named(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.ckpt"
    path.write_bytes(saved.read_bytes())
    cut(path)
    assert "LIN-K002" in codes(look(path))


def test_in_a_store_it_reads_the_same(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert same_in_store(saved, monkeypatch)["step"] == 3
