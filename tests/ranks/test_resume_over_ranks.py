"""Resumes of several ranks: what all ranks show together, and the rank that holds what is not its own."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel

import lineage
import schemas
from lineage.ledger import resumes
from lineage.ledger.reader import Ledger
from lineage.ledger.resumes import Resumed
from tests.probes import ranks

from .test_resharded import FSDP2_ON_CPU, build, steps

OPTIONS: dict[str, Any] = {"quiet": True, "report": False, "run_id": "r"}


class Position:
    """A loader whose position is each rank's own."""

    def __init__(self, rank: int) -> None:
        self.shard, self.at = rank, 0

    def __next__(self) -> torch.Tensor:
        self.at += 1
        return torch.randn(4, 6, generator=torch.Generator().manual_seed(1000 * self.shard + self.at))

    def state_dict(self) -> dict[str, int]:
        return {"shard": self.shard, "at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.shard, self.at = state["shard"], state["at"]


def loop(rank: int) -> tuple[Any, Any, Position]:
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 2))
    model = DistributedDataParallel(net)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01), Position(rank)


def train(rec: Any, model: Any, optimizer: Any, loader: Position, first: int, last: int) -> None:
    for step in range(first, last + 1):
        x = next(loader)
        with rec.step(step, {"x": x}) as st:
            loss = model(x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            st.loss(loss)


def under_ddp(rank: int, world: int, root: str, fault: str = "") -> None:
    """Two saves, then a resume in the same processes with one thing wrong."""
    model, optimizer, loader = loop(rank)
    with lineage.attach(None, model=model, optimizer=optimizer, loader=loader, dir=root, **OPTIONS) as rec:
        for at in (3, 6):
            train(rec, model, optimizer, loader, at - 2, at)
            path = Path(root) / f"ck{at}"
            path.mkdir(exist_ok=True)
            if rank == 0:
                torch.save(
                    {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path / "state.pt"
                )
            torch.save({"loader": loader.state_dict(), "rng": torch.get_rng_state()}, path / f"rank{rank}.pt")
            torch.distributed.barrier()
            if fault == "counters" and rank == 1:
                for state in optimizer.state.values():
                    state["step"] -= 1
            rec.checkpoint(path, step=at)
    torch.distributed.barrier()
    model, optimizer, loader = loop(rank)
    path = Path(root) / ("ck3" if fault == "one rank elsewhere" and rank == 1 else "ck6")
    found = torch.load(path / "state.pt", weights_only=True)
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    own = torch.load(path / f"rank{0 if fault == 'one key' else rank}.pt", weights_only=True)
    loader.load_state_dict(own["loader"])
    torch.set_rng_state(own["rng"])
    if fault == "moments":
        optimizer.state.clear()
    with lineage.attach(
        None,
        model=model,
        optimizer=optimizer,
        loader=loader,
        dir=root,
        resumed_from=Path(root) / "ck6",
        **OPTIONS,
    ) as rec:
        train(rec, model, optimizer, loader, 7, 8)


def after(tmp_path: Path, body: Any, world: int) -> tuple[Ledger, Resumed]:
    ranks.run(body, world, tmp_path)
    ledger = Ledger(tmp_path / "r")
    found = resumes.look(ledger, ledger.segments[-1])
    assert found is not None
    return ledger, found


def wrong(found: Resumed) -> dict[str, tuple[int, ...]]:
    return {o.component: o.ranks for o in found.outcomes if o.status in ("differs", "absent")}


def ddp(tmp_path: Path, fault: str = "") -> tuple[Ledger, Resumed]:
    return after(tmp_path, functools.partial(under_ddp, root=str(tmp_path), fault=fault), 2)


def test_a_faithful_resume_under_ddp_is_found_faithful_though_batchnorm_differs_between_ranks(
    tmp_path: Path,
) -> None:
    """Rank 0's running statistics are given to all before each forward pass: what rank 1 had counts for nothing."""
    ledger, found = ddp(tmp_path)
    assert wrong(found) == {}
    assert found.faithful
    assert [f.code for f in found.findings] == []
    saves = resumes.saves(ledger, ledger.segments[0].uid)
    assert [(f.code, f.severity) for f in saves] == [("LIN-C010", "note")]
    assert "(alike: rank 0 | rank 1)" in saves[0].text
    verdict: schemas.Verdict = ledger.of("verdict")[-1].payload
    assert not [k.text for c in verdict.claims for k in c.chain if k.concept in schemas.COMPONENTS]


def test_one_rank_that_went_on_from_another_save_is_named_with_its_step(tmp_path: Path) -> None:
    _, found = ddp(tmp_path, "one rank elsewhere")
    (finding,) = [f for f in found.findings if f.code == "LIN-C008"]
    assert finding.text.startswith("rank 1 went on from the save of step 3, and step 6 was named: ")
    assert "data-loader position" in finding.text
    assert finding.values["rank"].plain() == 1
    assert finding.values["first_step"].plain() == 7
    assert found.faithful is False


def test_a_key_that_ranks_share_and_one_survives_gives_all_of_them_rank_0s_state(tmp_path: Path) -> None:
    _, found = ddp(tmp_path, "one key")
    (finding,) = [f for f in found.findings if f.code == "LIN-C009"]
    assert finding.text == "rank 1 holds what rank 0 saved: data-loader position"
    assert wrong(found)["loader_position"] == (1,)


def test_what_every_rank_lost_alike_is_told_once_with_its_tensors(tmp_path: Path) -> None:
    _, found = ddp(tmp_path, "moments")
    assert wrong(found) == {"optimizer_state": (), "optimizer_step": (0, 1)}
    (said,) = [o.text for o in found.outcomes if o.component == "optimizer_state"]
    assert said.startswith("optimizer state not restored (tensors 12 -> 0): 12 of 12 tensors are not there (")


def test_step_counters_that_differ_between_ranks_are_named_at_the_save(tmp_path: Path) -> None:
    ledger, _ = ddp(tmp_path, "counters")
    found = {f.code: f for f in resumes.saves(ledger, ledger.segments[0].uid)}
    assert found["LIN-C011"].severity == "fault"
    assert "save of step 3: rank 0: 3; rank 1: 2" in found["LIN-C011"].text


def sharded(rank: int, world: int, root: str, part: str) -> None:
    model, optimizer = build(world)
    options = {"dir": root, **OPTIONS}
    ck = f"{root}/ck"
    if part == "save":
        with lineage.attach(None, model=model, optimizer=optimizer, **options) as rec:
            steps(rec, model, optimizer, 1, 3)
            weights, moments = get_state_dict(model, optimizer)
            dcp.save({"model": weights, "optim": moments}, checkpoint_id=ck)
            rec.checkpoint(ck, step=3)
        return
    weights, moments = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optim": moments}, checkpoint_id=ck)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    if part == "damaged" and rank == world - 1:
        moment = optimizer.state[dict(model.named_parameters())["up.weight"]]["exp_avg_sq"]
        moment.to_local().view(torch.int32)[-1, 3] ^= 1
    with lineage.attach(None, model=model, optimizer=optimizer, resumed_from=ck, **options) as rec:
        steps(rec, model, optimizer, 4, 5)


@pytest.mark.skipif(not FSDP2_ON_CPU, reason="FSDP2 on the CPU asks for torch 2.7")
@pytest.mark.parametrize("part", ["resume", "damaged"])
def test_the_verdict_of_a_resume_on_two_ranks_rests_on_what_all_ranks_show_together(
    tmp_path: Path, part: str
) -> None:
    """No rank can tell by itself; together they find four ranks' state equal, or the moment with one other bit."""
    for name, world in (("save", 4), (part, 2)):
        (tmp_path / name).mkdir()
        ranks.run(functools.partial(sharded, root=str(tmp_path), part=name), world, tmp_path / name)
    ledger = Ledger(tmp_path / "r")
    (whole,) = [r.payload for r in ledger.of("restore") if r.payload.scope == "whole"]
    status = {c.component: c.status for c in whole.components}
    assert status["weights"] == "restored"
    drift: schemas.Drift = ledger.of("drift")[-1].payload
    missing = {
        k for c in ledger.of("verdict")[-1].payload.claims for k in [c.reason] if "model weights (" in k
    }
    assert missing == set()
    assert "weights" not in drift.not_shown
    changes = {c.concept: c.text for c in drift.changes}
    if part == "resume":
        assert status["optimizer_state"] == "restored"
        assert "optimizer_state" not in changes
    else:
        assert "1 of 10 tensors differ (up.weight.moment2)" in changes["optimizer_state"]
