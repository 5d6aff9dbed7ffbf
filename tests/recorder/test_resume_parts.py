"""What a resume lost in ways that a loop does not notice: each is named by its component and by what is wrong in it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn

import lineage
import schemas
from lineage.ledger import resumes
from lineage.ledger.reader import Ledger
from lineage.ledger.resumes import Resumed

from .loop import only

BETAS = (0.9, 0.95)


class Tied(nn.Module):
    """A tied head, a buffer that no state_dict holds, and running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(11, 6), nn.BatchNorm1d(6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("seen", torch.zeros(1), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.norm(self.embedding(ids).mean(1)))
        return out


class Loop:
    """A loop of its own objects: AdamW, EMA; the batch of a step is a function of the step."""

    def __init__(self, **how: Any) -> None:
        torch.manual_seed(0)
        self.model: Any = Tied()
        self.optimizer: Any = torch.optim.AdamW(self.model.parameters(), lr=0.01, betas=BETAS)
        average = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        self.ema = torch.optim.swa_utils.AveragedModel(self.model, multi_avg_fn=average)
        self.counts, self.done, self.losses = bool(how.get("counts")), 0, []

    def run(self, rec: Any, until: int) -> None:
        for step in range(self.done + 1, until + 1):
            ids = torch.randint(0, 11, (8, 4), generator=torch.Generator().manual_seed(step))
            with rec.step(step, {"ids": ids}) as st:
                loss = nn.functional.cross_entropy(self.model(ids).float(), ids[:, 0])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                st.loss(loss)
            if self.counts:
                self.model.seen += 1
            if self.model.norm.weight.dtype == torch.float32:
                self.ema.update_parameters(self.model)
            self.losses.append(loss.item())
            self.done = step

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "ema": self.ema.state_dict(),
            "step": self.done,
        }

    def load(self, folder: Path, *, ema: bool = True) -> Loop:
        found = torch.load(folder / "state.pt", weights_only=True)
        self.model.load_state_dict(found["model"])
        self.optimizer.load_state_dict(found["optimizer"])
        if ema:
            self.ema.load_state_dict(found["ema"])
        self.done = found["step"]
        return self


def attach(loop: Loop, root: Path, **more: Any) -> lineage.Recorder:
    return lineage.attach(
        None,
        model=loop.model,
        optimizer=loop.optimizer,
        ema=loop.ema,
        dir=root,
        quiet=True,
        report=False,
        **more,
    )


def save(rec: Any, loop: Loop, folder: Path) -> Path:
    folder.mkdir()
    torch.save(loop.state(), folder / "state.pt")
    rec.checkpoint(folder, step=loop.done)
    return folder


def resumed(tmp_path: Path, change: Callable[[Loop], object], *, steps: int = 30, **how: Any) -> Resumed:
    """Train, save, load into a fresh loop, change something, train on; what `lineage resume` looks at."""
    root, ck = tmp_path / "runs", tmp_path / "ck"
    loop = Loop(**how)
    with attach(loop, root) as rec:
        loop.run(rec, steps)
        save(rec, loop, ck)
        loop.run(rec, steps + 3)
    again = Loop().load(ck)
    change(again)
    with attach(again, root, resumed_from=ck) as rec:
        again.run(rec, steps + 3)
    ledger = only(root)
    found = resumes.look(ledger, ledger.segments[-1])
    assert found is not None
    return found


def wrong(found: Resumed) -> dict[str, str]:
    """Component -> what is said of it, where it was not restored."""
    return {o.component: o.text for o in found.outcomes if o.status in ("differs", "absent")}


def printed(root: Path, code: int) -> str:
    result = subprocess.run(
        [sys.executable, "-m", "lineage", "resume", str(only(root).path)],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "300"},
        check=False,
    )
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout


def test_a_faithful_resume_is_found_faithful_and_its_losses_are_those_of_the_other_branch(
    tmp_path: Path,
) -> None:
    found = resumed(tmp_path, lambda loop: None)
    assert wrong(found) == {}
    assert found.faithful
    assert [f.code for f in found.findings] == []
    assert found.losses is not None
    assert found.losses.text() == (
        "the loss of steps 31 to 33 is bit for bit that of the other branch, on the same batch"
    )
    assert found.sizes is not None
    assert not found.sizes.odd
    assert "what was recorded is restored; not recorded: " in printed(tmp_path / "runs", 0)


def test_a_tie_that_the_load_broke_is_named_by_both_names(tmp_path: Path) -> None:
    def untie(loop: Loop) -> None:
        loop.model.head.weight = nn.Parameter(loop.model.embedding.weight.detach().clone())

    said = wrong(resumed(tmp_path, untie))
    assert "tied before: embedding.weight = head.weight; tied now: none" in said["weights"]
    assert "1 were not there at the save (head.weight)" in said["weights"]


def test_weights_that_the_load_gave_another_type_are_named_with_both_types(tmp_path: Path) -> None:
    def halve(loop: Loop) -> None:
        loop.model.to(torch.bfloat16)
        loop.optimizer.load_state_dict(loop.optimizer.state_dict())  # which casts the moments too

    said = wrong(resumed(tmp_path, halve))
    assert "their type was changed by the load: float32 -> bfloat16" in said["weights"]


def test_a_buffer_that_no_state_dict_holds_and_training_moves_is_lost_by_name(tmp_path: Path) -> None:
    said = wrong(resumed(tmp_path, lambda loop: None, counts=True))
    assert set(said) == {"buffers"}
    assert "no state_dict holds seen (persistent=False)" in said["buffers"]
    assert "1 of 2 tensors differ (seen)" in said["buffers"]


def test_running_statistics_that_are_lost_are_not_laid_on_a_buffer_that_came_back(tmp_path: Path) -> None:
    """`seen` is in no file and is as at the save: it is not named. That the statistics are others is."""

    def lose(loop: Loop) -> None:
        loop.model.norm.reset_running_stats()

    (said,) = wrong(resumed(tmp_path, lose)).values()
    assert (
        "the statistics of batch normalisation are others (norm.num_batches_tracked, norm.running_mean"
        in said
    )
    assert "seen" not in said


def test_averaged_weights_that_begin_again_are_named_and_break_evaluation_alone(tmp_path: Path) -> None:
    said = wrong(resumed(tmp_path, lambda loop: loop.ema.load_state_dict(Loop().ema.state_dict())))
    assert set(said) == {"ema"}
    verdict: schemas.Verdict = only(tmp_path / "runs").of("verdict")[-1].payload
    effects = {c.claim: {k.effect for k in c.chain if k.concept == "ema"} for c in verdict.claims}
    assert (effects["evaluation"], effects["ablation"], effects["loss_curve"]) == (
        {"broken"},
        {"caveat"},
        set(),
    )


def test_a_counter_that_begins_again_with_kept_moments_makes_the_first_update_2_24_times_too_large(
    tmp_path: Path,
) -> None:
    """The first loss is equal, bit for bit: the counter and the first update tell, and the loss does not."""

    def reset(loop: Loop) -> None:
        for state in loop.optimizer.state.values():
            state["step"] = torch.zeros(())

    found = resumed(tmp_path, reset, steps=200)
    assert set(wrong(found)) == {"optimizer_step"}
    assert "(step 200 -> 0)" in wrong(found)["optimizer_step"]
    assert found.losses is not None
    assert found.losses.equal == 1
    (finding,) = [f for f in found.findings if f.code == "LIN-C013"]
    assert finding.values["expected"].plain() == pytest.approx(0.05**0.5 / 0.1, abs=1e-4)
    assert finding.values["ratio"].plain() == pytest.approx(0.05**0.5 / 0.1, rel=0.25)
    assert "make it 2.24 times as large (betas 0.9, 0.95)" in finding.text
    said = printed(tmp_path / "runs", 1)
    assert "LIN-C013" in said
    assert (
        "first update: moments that are kept with a step counter that went from 200 to 0 make it 2.24 times"
        in said
    )


def test_the_factor_of_a_lost_counter_is_told_where_too_few_updates_are_known_to_measure_it(
    tmp_path: Path,
) -> None:
    """It follows from the betas. With moments that are lost too it does not, and is not told."""

    def reset(loop: Loop) -> None:
        for state in loop.optimizer.state.values():
            state["step"] = torch.zeros(())

    found = resumed(tmp_path / "counter", reset, steps=4)
    assert found.lost is not None
    assert found.lost.text().endswith("from 4 to 0 make it 1.93 times as large (betas 0.9, 0.95)")
    found = resumed(tmp_path / "both", lambda loop: loop.optimizer.state.clear(), steps=4)
    assert "optimizer_step" in wrong(found)
    assert found.lost is None


def test_moments_that_were_made_anew_as_zeros_are_told_as_that(tmp_path: Path) -> None:
    """torch's state_dict helpers make them so, and a load that then leaves them out looks like one that restored."""

    def anew(loop: Loop) -> None:
        for state in loop.optimizer.state.values():
            state["exp_avg"].zero_()
            state["exp_avg_sq"].zero_()

    said = wrong(resumed(tmp_path / "all", anew, steps=4))["optimizer_state"]
    assert "6 of 6 tensors differ (" in said
    assert said.endswith("all of these hold nothing but zeros now")

    def one(loop: Loop) -> None:
        for n, state in enumerate(loop.optimizer.state.values()):
            state["exp_avg_sq"].mul_(2.0 if n else 0.0)

    said = wrong(resumed(tmp_path / "one", one, steps=4))["optimizer_state"]
    assert said.endswith("1 of these hold nothing but zeros now")


def test_float32_copies_that_were_made_anew_from_rounded_weights_are_named(tmp_path: Path) -> None:
    """The model is in bfloat16; what the optimizer updates is a float32 copy that the checkpoint did not hold."""
    root, ck = tmp_path / "runs", tmp_path / "ck"

    def build() -> tuple[Any, list[Any], Any]:
        torch.manual_seed(0)
        model = nn.Linear(5, 3).to(torch.bfloat16)
        masters = [p.detach().float().clone().requires_grad_() for p in model.parameters()]
        return model, masters, torch.optim.AdamW(masters, lr=0.01)

    def step(rec: Any, model: Any, masters: list[Any], optimizer: Any, number: int) -> None:
        x = torch.randn(4, 5, generator=torch.Generator().manual_seed(number)).to(torch.bfloat16)
        with rec.step(number, {"x": x}) as st:
            loss = model(x).float().pow(2).mean()
            model.zero_grad()
            loss.backward()
            for master, p in zip(masters, model.parameters(), strict=True):
                master.grad = p.grad.float()
            optimizer.step()
            with torch.no_grad():
                for master, p in zip(masters, model.parameters(), strict=True):
                    p.copy_(master)
            st.loss(loss)

    first = build()
    options: dict[str, Any] = {"dir": root, "quiet": True, "report": False}
    with lineage.attach(None, model=first[0], optimizer=first[2], **options) as rec:
        for n in (1, 2, 3):
            step(rec, *first, n)
        ck.mkdir()
        torch.save({"model": first[0].state_dict(), "optimizer": first[2].state_dict()}, ck / "state.pt")
        rec.checkpoint(ck, step=3)
    model, masters, optimizer = build()
    saved = torch.load(ck / "state.pt", weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    with torch.no_grad():
        for master, p in zip(masters, model.parameters(), strict=True):
            master.copy_(p)
    with lineage.attach(None, model=model, optimizer=optimizer, resumed_from=ck, **options) as rec:
        step(rec, model, masters, optimizer, 4)
    ledger = only(root)
    found = resumes.look(ledger, ledger.segments[-1])
    assert found is not None
    assert set(wrong(found)) == {"master_weights"}


def test_a_state_that_is_an_earlier_save_s_is_told_with_its_step(tmp_path: Path) -> None:
    """Step 20 was named, and the files of step 10 were loaded."""
    root = tmp_path / "runs"
    loop = Loop()
    with attach(loop, root) as rec:
        loop.run(rec, 10)
        ten = save(rec, loop, tmp_path / "ck10")
        loop.run(rec, 20)
        twenty = save(rec, loop, tmp_path / "ck20")
    again = Loop().load(ten)
    again.done = 20
    with attach(again, root, resumed_from=twenty) as rec:
        again.run(rec, 21)
    ledger = only(root)
    found = resumes.look(ledger, ledger.segments[-1])
    assert found is not None
    (finding,) = [f for f in found.findings if f.code == "LIN-C008"]
    assert finding.text.startswith(
        "rank 0 went on from the save of step 10, and step 20 was named: model weights, "
    )
    assert finding.values["named_step"].plain() == 20


def test_a_save_that_wrote_an_earlier_one_s_bytes_again_is_named_and_a_healthy_one_is_not(
    tmp_path: Path,
) -> None:
    """The state dict was cached at the first save, so that the second wrote it again."""
    root = tmp_path / "runs"
    loop = Loop()
    with attach(loop, root) as rec:
        loop.run(rec, 5)
        save(rec, loop, tmp_path / "ck5")
        staged = (tmp_path / "ck5" / "state.pt").read_bytes()
        loop.run(rec, 10)
        save(rec, loop, tmp_path / "ck10")
        loop.run(rec, 15)
        (tmp_path / "ck15").mkdir()
        (tmp_path / "ck15" / "state.pt").write_bytes(staged)
        rec.checkpoint(tmp_path / "ck15", step=15)
    ledger: Ledger = only(root)
    (finding,) = resumes.saves(ledger, ledger.segments[-1].uid)
    assert finding.code == "LIN-C012"
    assert finding.text.startswith(
        "the files of the save at step 15 are those of step 5, byte for byte (100% of"
    )
    assert "LIN-C012" in printed(root, 1)


def test_a_file_that_is_written_over_before_it_was_digested_is_no_copy_of_the_save_that_did_it(
    tmp_path: Path,
) -> None:
    """One file for all saves, each written over the one before at once: only the last is there to be digested."""
    root, path = tmp_path / "runs", tmp_path / "last.pt"
    loop = Loop()
    with attach(loop, root) as rec:
        held = threading.Event()
        rec.begin().tasks.put(held.wait)
        for until in (2, 4, 6):
            loop.run(rec, until)
            torch.save(loop.state(), path)
            rec.checkpoint(path, step=until)
        held.set()
    ledger = only(root)
    newest = {r.payload.step: r.payload for r in ledger.of("checkpoint")}
    assert {step: c.status for step, c in newest.items()} == {2: "incomplete", 4: "incomplete", 6: "complete"}
    assert newest[2].manifest is None
    assert newest[2].missing == ["overwritten or removed before its files were digested"]
    assert resumes.saves(ledger, ledger.segments[-1].uid) == []


def test_a_file_that_a_rotation_removed_before_it_was_digested_is_told_so_without_bad_advice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root, path = tmp_path / "runs", tmp_path / "step-2.pt"
    loop = Loop()
    with attach(loop, root) as rec:
        held = threading.Event()
        rec.begin().tasks.put(held.wait)
        loop.run(rec, 2)
        torch.save(loop.state(), path)
        rec.checkpoint(path, step=2)
        path.unlink()
        held.set()
    (saved,) = {r.payload.uid: r.payload for r in only(root).of("checkpoint")}.values()
    assert saved.missing == ["overwritten or removed before its files were digested"]
    assert "does not exist" not in caplog.text
