"""Folders that DeepSpeed wrote on two ranks: no ZeRO, and stages 1, 2 and 3."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lineage.checkpoints import look

from .made import codes, copy, cut, in_ranks, said, same_in_store, severity

torch = pytest.importorskip("torch")
pytest.importorskip("deepspeed")
pytestmark = pytest.mark.slow

SCRIPT = """
import sys, torch, deepspeed
deepspeed.init_distributed(dist_backend="gloo")
for stage in range(4):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4))
    opt = torch.optim.AdamW(model.parameters())
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": stage},
              "bf16": {"enabled": stage > 0}, "zero_allow_untested_optimizer": True}
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda i: 1.0)
    engine, *_ = deepspeed.initialize(model=model, optimizer=opt, lr_scheduler=schedule, config=config)
    for _ in range(3):
        x = torch.ones(1, 8, dtype=torch.bfloat16 if stage else torch.float32)
        engine.backward(engine(x).sum()); engine.step()
        if engine.global_steps >= 2:
            engine.save_checkpoint(f"{sys.argv[1]}/{stage}")
"""
LACKS = {"LIN-K008", "LIN-K009"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("deepspeed")
    in_ranks(SCRIPT, 2, base, str(base))
    return base


@pytest.fixture(params=["1", "2", "3"])
def run(request: pytest.FixtureRequest, saved: Path, tmp_path: Path) -> Path:
    return copy(saved / request.param, tmp_path / request.param)


@pytest.mark.parametrize("stage", range(4))
def test_each_stage_is_whole_and_lacks_what_deepspeed_never_saves(stage: int, saved: Path) -> None:
    c = look(saved / str(stage), world=2)
    assert (c.format, c.step, c.world, codes(c)) == ("deepspeed", 3, 2, LACKS)
    assert c.facts.get("zero_stage", 0) == stage
    assert c.parts["optimizer_step"].text == "step counter 3"
    assert {p.status for n, p in c.parts.items() if n in ("weights", "optimizer_state", "lr_scheduler")} == {
        "present"
    }


def test_a_tag_can_be_named_itself(run: Path) -> None:
    c = look(run / "global_step2")
    assert (c.format, c.step, codes(c)) == ("deepspeed", 2, LACKS)


def test_a_lost_shard_of_a_rank_is_named(run: Path) -> None:
    (run / "global_step3" / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    c = look(run)
    assert "optim_states of 1 of 2 ranks are missing (zero_pp_rank_1_mp_rank_00)" in said(c, "LIN-K001")
    assert c.parts["optimizer_state"].status == "partial"


def test_all_shards_lost_is_named(run: Path) -> None:
    for p in run.glob("global_step3/*optim_states.pt"):
        p.unlink()
    assert severity(look(run), "LIN-K001") == {"fails"}


def test_lost_model_states_of_a_rank_of_stage_3_are_named(saved: Path, tmp_path: Path) -> None:
    run = copy(saved / "3", tmp_path / "3")
    (run / "global_step3" / "zero_pp_rank_1_mp_rank_00_model_states.pt").unlink()
    assert "zero_pp_rank_1_mp_rank_00" in said(look(run), "LIN-K001")


def test_latest_that_is_missing_empty_or_names_nothing_is_named(run: Path) -> None:
    (run / "latest").write_text("global_step9")
    assert "names 'global_step9', and no such tag is there" in said(look(run), "LIN-K011")
    (run / "latest").write_text("")
    assert "`latest` is empty" in said(look(run), "LIN-K011")
    (run / "latest").unlink()
    assert "returns (None, None)" in said(look(run), "LIN-K011")
    (run / "latest").write_text("../../etc")
    assert "leads out of the checkpoint" in said(look(run), "LIN-K014")


def test_a_shard_of_another_save_is_a_mixture(run: Path) -> None:
    name = "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
    shutil.copy(run / "global_step2" / name, run / "global_step3" / name)
    c = look(run)
    assert "are of several steps" in said(c, "LIN-K012")
    assert severity(c, "LIN-K012") == {"fails"}


def test_model_states_of_another_save_are_a_mixture(run: Path) -> None:
    for p in run.glob("global_step2/*model_states.pt"):
        shutil.copy(p, run / "global_step3" / p.name)
    found = said(look(run), "LIN-K012")
    assert "the tag is global_step3 and its files say global_steps 2" in found
    assert "the optimizer counts 3 updates, and model_states says 2 were made" in found


def test_a_shard_cut_off_is_named(run: Path) -> None:
    cut(run / "global_step3" / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt")
    assert "bf16_zero_pp_rank_0" in said(look(run), "LIN-K002")


def test_another_number_of_ranks_is_named(run: Path) -> None:
    assert "2 ranks saved it, and 3 would resume" in said(look(run, world=3), "LIN-K017")


def test_a_tag_in_a_folder_of_hugging_faces_trainer_is_part_of_it(run: Path) -> None:
    """Trainer puts DeepSpeed's folder beside its own files; these are laid out by hand."""
    (run / "trainer_state.json").write_text('{"global_step": 3}')
    for rank in range(2):
        torch.save({"python": 1, "numpy": 1, "cpu": 1}, run / f"rng_state_{rank}.pth")
    c = look(run)
    assert (c.format, c.step, c.world, c.findings) == ("hf_trainer", 3, 2, [])
    assert c.parts["lr_scheduler"].text == "in model_states: at 3"
    (run / "global_step3" / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    assert severity(look(run, world=4), "LIN-K001") == {"fails"}
    assert severity(look(run, world=4), "LIN-K017") == {"fails"}


def test_of_thousands_of_shards_most_are_looked_at_by_their_end(saved: Path, tmp_path: Path) -> None:
    """Two thousand ranks, of which one is cut off: a few are taken apart, of the others 26 bytes are read."""
    tag = copy(saved / "1" / "global_step3", tmp_path / "global_step3")
    shard = tag / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"
    model = torch.load(tag / "mp_rank_00_model_states.pt", weights_only=False)
    model["dp_world_size"] = 2000
    torch.save(model, tag / "mp_rank_00_model_states.pt")
    data = shard.read_bytes()
    for rank in range(2000):
        (tag / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt").write_bytes(
            data[: -9 if rank == 777 else None]
        )
    c = look(tag)
    assert codes(c) == LACKS | {"LIN-K002"}
    assert "bf16_zero_pp_rank_777" in said(c, "LIN-K002")
    assert c.bytes_read < c.bytes / 20


@pytest.mark.parametrize("stage", range(4))
def test_in_a_store_it_reads_the_same(stage: int, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert same_in_store(saved / str(stage), monkeypatch)["step"] == 3


@pytest.mark.parametrize(("kept", "partial"), [("one", True), ("all", False)])
def test_random_states_that_one_rank_put_into_client_state_are_not_those_of_all(
    kept: str, partial: bool, saved: Path, tmp_path: Path
) -> None:
    """Below stage 3 model_states is written by one data-parallel rank."""
    run = copy(saved / "1", tmp_path / "1")
    file = run / "global_step3" / "mp_rank_00_model_states.pt"
    state = torch.load(file, weights_only=False)
    one = torch.get_rng_state()
    torch.save({**state, "rng_state": one if kept == "one" else [one, one]}, file)
    c = look(run)
    assert ("those of 1 rank, and 2 ranks ran" in said(c, "LIN-K008")) == partial
    assert c.parts["rng"].status == ("partial" if partial else "present")
