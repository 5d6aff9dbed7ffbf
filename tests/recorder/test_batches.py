"""What a run records of its batches, in real loops, and what the checks find."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import lineage
from lineage.ledger import health
from lineage.ledger.reader import Ledger
from lineage.recorder.declared_mix import UNSEEN

from .loop import Loop, attach, only


class Tokens:
    """A loop over token batches that are given one by one."""

    def __init__(self, root: Path, vocabulary: int = 50, **options: Any) -> None:
        self.root = root
        self.model = torch.nn.Sequential()
        self.model.add_module("wte", torch.nn.Embedding(vocabulary, 4))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.rec = lineage.attach(
            None,
            dir=str(root),
            model=self.model,
            optimizer=self.optimizer,
            quiet=True,
            report=False,
            **options,
        )
        self.step = 0

    def train(self, *batches: Any, **said: Any) -> Tokens:
        """One step of some micro-batches; ids that no embedding has are clamped before the model."""
        self.step += 1
        with self.rec.step(self.step) as st:
            for b in batches:
                st.batch(b, **said)
                loss = self.model(b["input_ids"].clamp(0, 49)).pow(2).mean()
                loss.backward()
                st.loss(loss)
            self.optimizer.step()
            self.optimizer.zero_grad()
        return self

    def close(self) -> dict[str, Any]:
        """End the run; findings by code, the newest of each."""
        self.rec.close()
        return {r.payload.code: r for r in only(self.root).of("finding")}


def ids(seed: int, rows: int = 4, width: int = 16) -> dict[str, Any]:
    g = torch.Generator().manual_seed(seed)
    return {"input_ids": torch.randint(0, 50, (rows, width), generator=g)}


def rows(root: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = only(root).series(table).to_pylist()
    return found


def test_each_micro_batch_has_its_statistics_and_each_sample_a_row(tmp_path: Path) -> None:
    """Two micro-batches of different lengths, ids and domains of samples, in their places."""
    mask = torch.ones(4, 16, dtype=torch.int64)
    mask[1, 10:] = 0
    one = ids(1) | {
        "attention_mask": mask,
        "domain": ["web", "web", "code", "web"],
        "sample_id": [7, 8, 9, 10],
    }
    loop = Tokens(tmp_path)
    loop.train(one, ids(2, rows=2))
    assert loop.close() == {}
    first, second = rows(tmp_path, "batches")
    assert (first["micro"], first["samples"], first["tokens"], first["length_min"]) == (0, 4, 64, 10)
    assert first["padding"] == pytest.approx(6 / 64)
    assert (second["micro"], second["length_min"], second["padding"], second["out_of_range"]) == (
        1,
        None,
        None,
        0,
    )
    samples = rows(tmp_path, "samples")
    assert [(s["micro"], s["place"], s["sample"], s["tokens"], s["domain"]) for s in samples] == [
        (0, 0, "7", 16, "web"),
        (0, 1, "8", 10, "web"),
        (0, 2, "9", 16, "code"),
        (0, 3, "10", 16, "web"),
        (1, 0, None, 16, None),
        (1, 1, None, 16, None),
    ]
    total = sum(int(s["digest"][:16], 16) for s in samples[:4]) % 2**64
    assert first["order_free"][:16] == f"{total:016x}"


@pytest.mark.parametrize(("setting", "kept"), [(256, 8), (3, 3), (0, 0), (False, 0)])
def test_rows_of_samples_are_bounded_by_a_setting(tmp_path: Path, setting: Any, kept: int) -> None:
    """At most as many of a step, over its micro-batches."""
    loop = Tokens(tmp_path, samples=setting)
    loop.train(ids(1), ids(2))
    loop.close()
    assert len(rows(tmp_path, "samples")) == kept
    assert len(rows(tmp_path, "batches")) == 2


def test_duplicates_and_repeats_are_found_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A row that stands twice in a step, and two of four that come again five steps later, though both go on."""
    loop = Tokens(tmp_path)
    for step in range(1, 9):
        b = ids(step)
        if step in (3, 4):
            b["input_ids"][2] = b["input_ids"][0]
        if step >= 6:
            b["input_ids"][:2] = ids(step - 5)["input_ids"][:2]
        loop.train(b)
    found = loop.close()
    assert sorted(found) == ["LIN-B001", "LIN-B002"]
    assert (found["LIN-B001"].step, found["LIN-B002"].step) == (3, 6)
    assert found["LIN-B002"].payload.values["last_step"].value == 1
    digests = {r["digest"] for r in rows(tmp_path, "samples") if r["step"] == 1}
    assert set(found["LIN-B002"].payload.names) <= digests
    assert caplog.text.count("LIN-B001") == caplog.text.count("LIN-B002") == 1


def test_a_second_epoch_of_a_loader_with_a_length_is_a_note(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Reading all of it again is what epochs are."""
    data = torch.utils.data.TensorDataset(ids(1, rows=12)["input_ids"])
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
    loop = Tokens(tmp_path, loader=loader)
    for _ in range(2):
        for (b,) in loader:
            loop.train({"input_ids": b})
    found = loop.close()
    assert {c: r.payload.severity for c, r in found.items()} == {"LIN-B002": "note"}
    assert found["LIN-B002"].step == 4
    assert "LIN-B002" not in caplog.text


def test_the_next_pass_after_a_resume_of_a_plain_loader_is_a_note(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It tells no position; a resume that went on where the save was ends its pass after the two batches left."""
    data = torch.utils.data.TensorDataset(ids(1, rows=12)["input_ids"])
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
    first = Tokens(tmp_path, loader=loader)
    passes = [[{"input_ids": b} for (b,) in loader] for _ in range(3)]
    for batch in [*passes[0], passes[1][0]]:
        first.train(batch)
    torch.save(first.model.state_dict(), tmp_path / "weights.pt")
    first.rec.checkpoint(tmp_path / "weights.pt", step=4)
    first.rec.close()
    again = Tokens(tmp_path, loader=loader, resumed_from=tmp_path / "weights.pt")
    again.model.load_state_dict(torch.load(tmp_path / "weights.pt"))
    again.step = 4
    caplog.clear()
    for batch in [*passes[1][1:], *passes[2]]:
        again.train(batch)
    found = again.close()
    assert (found["LIN-B002"].step, found["LIN-B002"].payload.severity) == (7, "note")
    assert "LIN-B002" not in caplog.text


def test_ids_that_the_embedding_lacks_are_a_fault(tmp_path: Path) -> None:
    """With the sample, the span of ids and the vocabulary, which is the model's own."""
    loop = Tokens(tmp_path)
    loop.train(ids(1))
    bad = ids(2)
    bad["input_ids"][3, 5] = 50
    loop.train(bad, ids=["a", "b", "c", "d"]).train(bad)
    found = loop.close()["LIN-B007"]
    assert (found.step, found.payload.severity, found.payload.names, found.payload.count) == (
        2,
        "fault",
        ["d"],
        1,
    )
    assert (found.payload.values["highest"].value, found.payload.values["vocabulary"].value) == (50, 50)


def test_placeholders_and_other_facts_are_taken_from_attach(tmp_path: Path) -> None:
    """An id that stands for an image is out of range on purpose; a word that nobody knows is said and harms nothing."""
    image = ids(1)
    image["input_ids"][0, 0] = -200
    good = Tokens(tmp_path / "good", batches={"placeholders": [-200], "eos_id": 3})
    good.train(image)
    assert good.close() == {}
    assert rows(tmp_path / "good", "batches")[0]["eos"] == int((image["input_ids"] == 3).sum())
    odd = Tokens(tmp_path / "odd", batches={"vocabsize": 9})
    odd.train(image)
    odd.close()
    (said,) = only(tmp_path / "odd").of("degraded")
    assert "not vocabsize" in said.payload.error
    assert rows(tmp_path / "odd", "batches")[0]["tokens"] == 64


class Described:
    """A loader that declares its mixture."""

    def lineage_data(self) -> dict[str, Any]:
        return {"data_mix": {"web": 0.75, "code": 0.25}}


@pytest.mark.parametrize(
    "declared",
    [
        {"mix": {"web": 3, "code": 1}},
        {"loader": Described()},
        {"config": {"lr": 0.1, "data": {"mixture": {"web": 0.75, "code": 0.25}}}},
    ],
    ids=["attach", "loader", "config"],
)
def test_another_mixture_than_the_declared_one_is_found(tmp_path: Path, declared: dict[str, Any]) -> None:
    """Wherever it was declared; the declared one is silent, and a domain without a weight is told."""
    for name, domains in (("as", ["web", "web", "code", "web"]), ("other", ["web", "code", "code", "web"])):
        loop = Tokens(tmp_path / name, recent_samples=0, **declared)
        for step in range(1, 80):
            loop.train(ids(step), domains=domains if step < 79 else ["web", "math", "web", "web"])
        found = loop.close()
        assert sorted(found) == (["LIN-B006"] if name == "as" else ["LIN-B005", "LIN-B006"])
        assert (found["LIN-B006"].payload.names, found["LIN-B006"].step) == (["math"], 79)
    assert found["LIN-B005"].payload.values["share of code"].value == pytest.approx(0.5)


def test_a_declared_mixture_that_batches_do_not_show_is_said(tmp_path: Path) -> None:
    """Nothing is compared without domains, and silence would look like a mixture that is as declared."""
    loop = Tokens(tmp_path, mix={"web": 0.7, "code": 0.3})
    for s in range(1, 4):
        loop.train(ids(s))
    assert [g for g in loop.rec.gaps if "mixture of domains" in g] == [UNSEEN]
    loop.close()


def test_losses_by_domain_are_signals(tmp_path: Path) -> None:
    """Means over the micro-batches that gave them, NaN comes through, 64 domains at most, and no alarm of their own."""
    loop = Loop()
    with attach(loop, tmp_path) as rec:
        with rec.step(1, ids(1)) as st:
            st.domain_loss({"web": torch.tensor(2.0), "code": 1.0})
            st.domain_loss({"web": torch.tensor(4.0, requires_grad=True)})
            st.loss(2.5)
        with rec.step(2, ids(2)) as st:
            st.domain_loss({"web": torch.tensor(float("nan"))})
            st.domain_loss({"odd": torch.ones(3)})
        with rec.step(3, ids(3)) as st:
            st.domain_loss({f"d{i}": float(i) for i in range(80)})
    found = {
        (r["step"], r["signal"]): r["value"] for r in rows(tmp_path, "probes") if "loss of" in r["signal"]
    }
    assert found[1, "loss of web"] == 3.0
    assert found[1, "loss of code"] == 1.0
    assert str(found[2, "loss of web"]) == "nan"
    assert (2, "loss of code") not in found
    assert len({signal for _, signal in found}) == 64
    assert any("more than 64 domains" in g for g in only(tmp_path).last("coverage").payload.gaps)
    assert "no scalar" in only(tmp_path).of("degraded")[0].payload.error
    assert only(tmp_path).of("alarm") == []


def test_training_is_bit_for_bit_the_same_with_and_without(tmp_path: Path) -> None:
    """Losses, weights and the random state, dropout included."""
    ends = []
    for name, options in (("on", {}), ("off", {"fingerprints": False})):
        torch.manual_seed(3)
        loop = Loop(seed=3)
        with attach(loop, tmp_path / name, **options) as rec:
            losses = loop.run(rec, 6)
        weights = [p.detach().clone() for p in loop.model.parameters()]
        ends.append((losses, weights, torch.get_rng_state()))
    assert ends[0][0] == ends[1][0]
    assert all(torch.equal(a, b) for a, b in zip(ends[0][1], ends[1][1], strict=True))
    assert torch.equal(ends[0][2], ends[1][2])
    assert rows(tmp_path / "off", "batches") == []


def test_a_failing_part_is_contained_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statistics that cannot be made leave digests and samples; a check that fails leaves the rows."""

    def broken(*_: Any) -> None:
        raise RuntimeError("no such operator")

    monkeypatch.setattr("lineage.capture.batch_stats._ids", broken)
    monkeypatch.setattr("lineage.judge.repeats.Repeats.look", broken)
    loop = Tokens(tmp_path)
    loop.train(ids(1)).train(ids(2))
    loop.close()
    found = rows(tmp_path, "batches")
    assert [r["tokens"] for r in found] == [64, 64]
    assert all(r["digest"] and r["order_free"] and r["highest"] is None for r in found)
    assert any("statistics: RuntimeError" in g for g in only(tmp_path).last("coverage").payload.gaps)
    assert [r.payload.part for r in only(tmp_path).of("degraded")] == ["batches"]


def test_a_recorder_that_is_off_takes_all_of_it() -> None:
    """No verb is missing where attaching failed."""
    from lineage.recorder.off import Off

    with Off().step(1, ids(1)) as st:
        st.batch(ids(1), ids=[1], domains="web")
        st.domain_loss({"web": 1.0})


@pytest.mark.slow
@pytest.mark.parametrize("shard", ["same", "own"])
def test_two_ranks_on_one_shard_are_found_afterwards(tmp_path: Path, shard: str) -> None:
    """A DistributedSampler with the same rank on both is found by `lineage show`; each with its own is silent."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    script = Path(__file__).with_name("ranks_reading.py")
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(tmp_path), shard],
            cwd=Path(__file__).parents[2],
            env=os.environ
            | {"RANK": str(r), "WORLD_SIZE": "2", "LOCAL_RANK": str(r), "MASTER_ADDR": "127.0.0.1"}
            | {
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": str(Path(__file__).parents[2]),
            },
        )
        for r in range(2)
    ]
    assert [p.wait(300) for p in ranks] == [0, 0]
    ledger = Ledger(tmp_path / "two")
    found = [f for f in health.findings(ledger) if f.payload.code.startswith("LIN-B")]
    if shard == "own":
        assert found == []
        return
    (one,) = found
    assert (one.payload.code, one.step) == ("LIN-B004", 1)
    assert one.payload.text == "ranks 0, 1 read the same samples in the same order, at the same steps"
    assert one.payload.names[0] in {r["digest"] for r in ledger.series("samples").to_pylist()}
    shown = subprocess.run(
        [sys.executable, "-m", "lineage", "show", str(tmp_path / "two")],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "LIN-B004 batches: ranks 0, 1 read the same samples" in " ".join(shown.stdout.split())
