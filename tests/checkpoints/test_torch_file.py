"""Files of torch.save, as torch itself wrote them."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from lineage.checkpoints import look, words

from .made import codes, cut, said, same_in_store, severity, stored

torch = pytest.importorskip("torch")


def state(*, steps: int = 3, dtype: object = None) -> dict[str, object]:
    """The state of a small training loop after some steps."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
    if dtype is not None:
        model = model.to(dtype)
    opt = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda i: 1.0)
    for _ in range(steps):
        model(torch.ones(2, 4, dtype=model[0].weight.dtype)).sum().backward()
        opt.step()
        schedule.step()
        opt.zero_grad()
    return {
        "model": model.state_dict(),
        "optimizer": opt.state_dict(),
        "scheduler": schedule.state_dict(),
        "rng": torch.get_rng_state(),
        "dataloader": {"position": 12},
        "step": steps,
    }


@pytest.fixture(params=[True, False], ids=["zip", "legacy"])
def new(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def save(value: object, path: Path, *, new: bool = True) -> Path:
    torch.save(value, path, _use_new_zipfile_serialization=new)
    return path


def test_tensors_have_the_dtype_shape_and_place_that_torch_gave_them(tmp_path: Path, new: bool) -> None:
    """The bytes at the told place are the tensor's."""
    values = {
        "f32": torch.randn(3, 5),
        "bf16": torch.randn(7).bfloat16(),
        "i64": torch.arange(4),
        "bool": torch.tensor([True, False]),
        "scalar": torch.tensor(2.5),
        "view": torch.arange(10.0)[4:8],
        "param": torch.nn.Parameter(torch.ones(2)),
        "empty": torch.empty(0, 3),
        "c64": torch.ones(2, dtype=torch.complex64),
        "f8": torch.ones(4).to(torch.float8_e4m3fn),
    }
    path = save(values, tmp_path / "x.pt", new=new)
    found = {t.name: t for t in look(path).tensors}
    data = path.read_bytes()
    for name, value in values.items():
        t = found[name]
        assert (t.dtype, t.shape) == (str(value.dtype).removeprefix("torch."), tuple(value.shape))
        raw = (
            value.detach().contiguous().view(torch.uint8).numpy().tobytes()
            if value.numel() and value.dim()
            else b""
        )
        place = t.pieces[0].offset
        assert place is not None
        assert data[place : place + len(raw)] == raw


def test_a_loop_that_saved_all_has_all(tmp_path: Path, new: bool) -> None:
    c = look(save(state(), tmp_path / "ckpt.pt", new=new))
    assert (c.format, c.step) == ("torch_save", 3)
    assert {k: p.status for k, p in c.parts.items() if k != "grad_scaler"} == dict.fromkeys(
        ["weights", "optimizer_state", "optimizer_step", "lr_scheduler", "rng", "loader_position"], "present"
    )
    assert c.findings == []


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("optimizer", "LIN-K005"),
        ("scheduler", "LIN-K006"),
        ("rng", "LIN-K008"),
        ("dataloader", "LIN-K009"),
    ],
)
def test_what_the_loop_left_out_is_named(key: str, code: str, tmp_path: Path) -> None:
    left = {k: v for k, v in state().items() if k != key}
    c = look(save(left, tmp_path / "ckpt.pt"))
    assert codes(c) == {code}
    assert severity(c, code) == {"differs"}


def test_an_optimizer_that_was_built_anew_before_the_save_is_named(tmp_path: Path) -> None:
    full = state()
    full["optimizer"] = torch.optim.AdamW(torch.nn.Linear(4, 2).parameters()).state_dict()
    c = look(save(full, tmp_path / "ckpt.pt"))
    assert "no state for any of its 2 parameters" in said(c, "LIN-K005")


def test_sgd_without_momentum_needs_no_moments(tmp_path: Path) -> None:
    full = state()
    full["optimizer"] = torch.optim.SGD(torch.nn.Linear(4, 2).parameters(), lr=0.1).state_dict()
    assert look(save(full, tmp_path / "ckpt.pt")).findings == []


def test_a_step_counter_of_zero_beside_moments_is_named(tmp_path: Path) -> None:
    full = state()
    for entry in full["optimizer"]["state"].values():  # type: ignore[index]
        entry["step"] = torch.tensor(0.0)
    assert "first update be too large" in said(look(save(full, tmp_path / "ckpt.pt")), "LIN-K005")


@pytest.mark.parametrize("counted", [2, 9])
def test_an_optimizer_of_another_step_is_a_mixture(counted: int, tmp_path: Path) -> None:
    full = state()
    full["optimizer"] = state(steps=counted)["optimizer"]
    c = look(save(full, tmp_path / "ckpt.pt"))
    assert f"counts {counted} updates, and the checkpoint says step 3" in said(c, "LIN-K012")


def test_moments_of_another_model_are_named(tmp_path: Path) -> None:
    full = state()
    full["model"] = torch.nn.Linear(5, 5).state_dict()
    assert "moments of shapes that no weight here has" in said(
        look(save(full, tmp_path / "c.pt")), "LIN-K012"
    )


def test_a_file_cut_off_anywhere_is_never_taken_for_whole(tmp_path: Path, new: bool) -> None:
    path = save(state(), tmp_path / "ckpt.pt", new=new)
    size = path.stat().st_size
    for keep in {0, 1, 20, 60, size // 3, size // 2, size - 200, size - 1}:
        save(state(), path, new=new)
        cut(path, keep=keep)
        c = look(path)
        assert "LIN-K002" in codes(c), keep
        assert c.worst == "fails"


def test_a_file_of_zeros_as_after_a_loss_of_power_is_named(tmp_path: Path) -> None:
    (tmp_path / "ckpt.pt").write_bytes(bytes(5000))
    assert "never written to the disk" in said(look(tmp_path / "ckpt.pt"), "LIN-K002")


def test_a_file_of_a_future_torch_says_so(tmp_path: Path) -> None:
    """The version record is raised above what this release knows."""
    src = save(state(), tmp_path / "a.pt")
    future = tmp_path / "b.pt"
    with zipfile.ZipFile(src) as old, zipfile.ZipFile(future, "w") as made:
        for i in old.infolist():
            made.writestr(i.filename, b"99\n" if i.filename.endswith("/version") else old.read(i))
    assert "a later torch wrote it" in said(look(future), "LIN-K015")


def test_a_storage_that_is_too_short_for_its_tensors_is_named(tmp_path: Path) -> None:
    src = save(state(), tmp_path / "a.pt")
    short = tmp_path / "b.pt"
    with zipfile.ZipFile(src) as old, zipfile.ZipFile(short, "w") as made:
        for i in old.infolist():
            if i.filename.endswith("/data/1"):
                continue
            made.writestr(i.filename, b"ab" if i.filename.endswith("/data/0") else old.read(i))
    found = said(look(short), "LIN-K002")
    assert "has 2 bytes, and its tensors need 128" in found
    assert "no entry for the storage 1" in found


def test_files_with_a_few_bytes_changed_are_read_or_named_and_never_raise(tmp_path: Path) -> None:
    """Four hundred spoilt copies of a zip and of the older form, from a fixed seed."""
    import random

    r = random.Random(7)
    sources = [save(state(), tmp_path / "zip.pt"), save(state(), tmp_path / "old.pt", new=False)]
    for n in range(400):
        data = bytearray(sources[n % 2].read_bytes())
        for _ in range(r.choice((1, 5))):
            data[r.randrange(min(len(data), r.choice((300, 6000))))] = r.randrange(256)
        (tmp_path / "spoilt.pt").write_bytes(data)
        assert look(tmp_path / "spoilt.pt").format == "torch_save"


def test_a_zip_bomb_and_names_that_lead_out_are_refused(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.pt"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("archive/data.pkl", bytes(50 << 20))
    c = look(bomb)
    assert "is not unpacked" in said(c, "LIN-K014")
    assert c.bytes_read < 200_000
    out = tmp_path / "out.pt"
    with zipfile.ZipFile(out, "w") as z:
        z.writestr("archive/data.pkl", b"\x80\x02}.")
        z.writestr("../../etc/passwd", b"x")
    assert "leads out of its folder" in said(look(out), "LIN-K014")


def test_torchscript_is_a_program_and_is_not_looked_into(tmp_path: Path) -> None:
    module = torch.jit.script(torch.nn.Linear(2, 2))
    module.save(str(tmp_path / "m.pt"))
    assert "TorchScript" in said(look(tmp_path / "m.pt"), "LIN-K014")


def test_a_git_lfs_pointer_is_no_checkpoint(tmp_path: Path) -> None:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12347192855\n"
    (tmp_path / "optimizer.pt").write_text(text)
    assert "git lfs pull" in said(look(tmp_path / "optimizer.pt"), "LIN-K015")


def test_a_big_file_is_not_read_whole(tmp_path: Path) -> None:
    path = save({"model": {"w": torch.zeros(1 << 22)}, "step": 1}, tmp_path / "big.pt")
    c = look(path)
    assert path.stat().st_size > 16 << 20
    assert c.bytes_read < 100_000


def test_reading_works_where_torch_cannot_be_imported(tmp_path: Path) -> None:
    path = save(state(), tmp_path / "ckpt.pt")
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['numpy'] = None\n"
        f"from lineage.checkpoints import look; c = look({str(path)!r}); print(c.step, len(c.tensors), c.findings)"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout == "3 16 []\n"


def test_what_a_wrapped_object_holds_is_read_without_its_class(tmp_path: Path) -> None:
    """torch.save of a whole module: its class is named and not built."""
    torch.save(torch.nn.Linear(3, 2), tmp_path / "whole.pt")
    c = look(tmp_path / "whole.pt")
    assert c.facts["object"] == "torch.nn.modules.linear.Linear"
    assert {t.shape for t in c.tensors} == {(2, 3), (2,)}


def test_weights_of_16_bits_with_moments_of_32_and_no_masters_are_named(tmp_path: Path) -> None:
    """apex#180: O2 saves the 16-bit weights, and a resume rebuilds the float32 masters from them."""
    full = state()
    half = {k: v.bfloat16() for k, v in full["model"].items()}  # type: ignore[attr-defined]
    c = look(save({**full, "model": half}, tmp_path / "a.pt"))
    assert "master weights" in said(c, "LIN-K005")
    masters = {"fp32_groups": list(full["model"].values())}  # type: ignore[attr-defined]
    assert look(save({**full, "model": half, **masters}, tmp_path / "b.pt")).findings == []
    assert look(save(state(dtype=torch.bfloat16), tmp_path / "c.pt")).findings == []


def test_in_a_store_a_file_reads_the_same(tmp_path: Path, new: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert same_in_store(save(state(), tmp_path / "ckpt.pt", new=new), monkeypatch)["step"] == 3


def test_in_a_store_a_big_file_is_not_read_whole(tmp_path: Path) -> None:
    url = stored(save({"model": {"w": torch.zeros(1 << 22)}, "step": 1}, tmp_path / "big.pt"), "big")
    c = look(url)
    assert (c.step, c.bytes > 16 << 20) == (1, True)
    assert c.bytes_read < 400_000


@pytest.mark.parametrize(
    "setting",
    [
        {"config": {"dtype": "float16"}},
        {"args": argparse.Namespace(fp16=True)},
        {"hparams": {"amp_dtype": torch.float16}},
        {"precision": "16-mixed"},
    ],
)
def test_a_run_in_fp16_without_a_scaler_is_named_by_its_settings(
    setting: dict[str, object], tmp_path: Path
) -> None:
    """As nanoGPT's ckpt.pt: the weights are float32, and its config says float16."""
    model = torch.nn.Linear(2, 2)
    torch.save({"model": model.state_dict(), "step": 1, **setting}, tmp_path / "a.pt")
    assert severity(look(tmp_path / "a.pt"), "LIN-K007") == {"differs"}
    torch.save(
        {"model": model.state_dict(), "step": 1, "scaler": {"scale": 8.0}, **setting}, tmp_path / "b.pt"
    )
    assert severity(look(tmp_path / "b.pt"), "LIN-K007") == set()


def test_a_run_in_bf16_needs_no_scaler(tmp_path: Path) -> None:
    torch.save(
        {"model": torch.nn.Linear(2, 2).state_dict(), "config": {"dtype": "bfloat16"}}, tmp_path / "a.pt"
    )
    assert severity(look(tmp_path / "a.pt"), "LIN-K007") == set()


def test_a_whole_module_has_the_names_of_its_state_dict(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    torch.save(model, tmp_path / "model.pt")
    c = look(tmp_path / "model.pt")
    assert {t.name for t in c.tensors} == set(model.state_dict())
    assert c.parts["weights"].status == "present"
    assert "a whole module" in c.title


def test_a_file_without_tensors_is_said_to_be_no_checkpoint_and_no_more(tmp_path: Path) -> None:
    torch.save([1, 2, 3], tmp_path / "a.pt")
    assert [f.code for f in look(tmp_path / "a.pt").findings if f.severity != "fine"] == ["LIN-K004"]


@pytest.mark.parametrize(
    ("key", "of"),
    [
        ("rng_3", "rng"),
        ("torch_cuda_rng_state_all", "rng"),
        ("python_random_state", "rng"),
        ("dataloader_rank_2", "loader_position"),
        ("sampler_state_dict", "loader_position"),
        ("optimizer_1", "optimizer_state"),
        ("random_crop", None),
        ("step", None),
    ],
)
def test_components_are_known_by_names_with_a_number_or_state_behind_them(key: str, of: str | None) -> None:
    assert words.component(key) == of
