"""Fingerprints that a loader's worker processes make, and batches that are bit for bit those of the loader."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Dataset

import lineage
from lineage.capture import batch, in_worker

from .loop import Loop, attach, only


class Text(Dataset):  # type: ignore[type-arg]
    """Sequences of unequal length."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, i: int) -> dict[str, Any]:
        g = torch.Generator().manual_seed(i)
        return {"input_ids": torch.randint(1, 50, (8 + i % 5,), generator=g), "sample_id": i}


def collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Pad; tells which process it ran in."""
    width = max(len(s["input_ids"]) for s in samples)
    ids = torch.zeros(len(samples), width, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for i, s in enumerate(samples):
        ids[i, : len(s["input_ids"])], mask[i, : len(s["input_ids"])] = s["input_ids"], 1
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "sample_id": [s["sample_id"] for s in samples],
        "made_in": os.getpid(),
    }


def loader(**options: Any) -> DataLoader[Any]:
    return DataLoader(Text(), batch_size=4, shuffle=True, collate_fn=collate, **options)


def without_pid(b: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in b.items() if k != "made_in"}


@pytest.mark.slow
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_make_the_fingerprints_and_batches_are_those_of_the_loader(context: str) -> None:
    """Two workers, pinned memory where there is any; same order, same bits, no key more, no random number more."""
    options = {"num_workers": 2, "multiprocessing_context": context, "pin_memory": torch.cuda.is_available()}
    torch.manual_seed(1)
    plain = list(loader(**options))
    state = torch.get_rng_state()
    torch.manual_seed(1)
    fingerprinted = lineage.fingerprinted(loader(**options))
    seen = 0
    for want, b in zip(plain, fingerprinted, strict=True):
        made = in_worker.found(b)
        assert made is not None
        assert list(b) == list(want)
        assert torch.equal(b["input_ids"], want["input_ids"])
        assert torch.equal(b["attention_mask"], want["attention_mask"])
        assert (b["sample_id"], type(b)) == (want["sample_id"], dict)
        assert b["made_in"] != os.getpid()
        again = batch.fingerprint(b).facts()
        assert made.facts() == again
        seen += 1
    assert seen == len(fingerprinted) == 6
    assert torch.equal(torch.get_rng_state(), state)


def test_the_step_takes_what_the_worker_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No fingerprint is made in the training process, and the series has all of them, with the model's vocabulary."""
    loop = Loop()
    loop.model.add_module("wte", torch.nn.Embedding(40, 2))
    loop.loader = lineage.fingerprinted(loader(num_workers=2))
    monkeypatch.setattr(
        "lineage.recorder.batching.fingerprint", lambda *_, **__: pytest.fail("made in the step")
    )
    with attach(loop, tmp_path) as rec:
        for step, b in enumerate(loop.loader, 1):
            with rec.step(step, b) as st:
                st.loss(1.0)
    found = only(tmp_path).series("batches").to_pylist()
    assert [r["samples"] for r in found] == [4] * 6
    assert all(r["padding"] is not None for r in found)
    assert sum(r["out_of_range"] for r in found) > 0, "ids reach to 49, and the embedding has 40 rows"
    ids = [int(r["sample"]) for r in only(tmp_path).series("samples").to_pylist()]
    assert sorted(ids) == list(range(24))
    assert any(r.payload.code == "LIN-B007" for r in only(tmp_path).of("finding"))


def test_a_copy_or_a_changed_batch_gets_a_new_fingerprint() -> None:
    """The same object with other tensors, or with tensors written to, is not the batch that the worker saw."""
    b = next(iter(lineage.fingerprinted(loader())))
    assert in_worker.found(b) is not None
    assert in_worker.found(dict(b)) is None
    b["input_ids"][0, 0] += 1
    assert in_worker.found(b) is None
    c = next(iter(lineage.fingerprinted(loader())))
    c["input_ids"] = c["input_ids"].clone()
    assert in_worker.found(c) is None


def test_batches_are_not_kept_alive() -> None:
    """What is remembered of a batch does not hold its memory."""
    import gc
    from weakref import ref

    b = next(iter(lineage.fingerprinted(loader())))
    held = ref(b["input_ids"])
    del b
    gc.collect()
    assert held() is None


def test_the_loader_that_was_given_stays_as_it_is() -> None:
    """It gives plain batches, and what it knows is known of the other too."""
    given = loader()
    wrapped = lineage.fingerprinted(given)
    assert given.collate_fn is collate
    assert isinstance(next(iter(given)), dict)
    assert (len(wrapped), wrapped.batch_size, wrapped.dataset) == (6, 4, given.dataset)
    assert wrapped.sampler is given.sampler
    with pytest.raises(AttributeError):
        _ = wrapped.no_such_thing


def test_what_travels_is_pinned_as_the_batch_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pinning thread asks the parcel, which has its batch pinned by torch's own rules."""
    pinned: list[Any] = []

    def pin(data: Any, *device: Any) -> Any:
        pinned.append(data)
        return dict(data)

    import torch.utils.data._utils.pin_memory as module

    parcel = in_worker.Collate(collate)([Text()[i] for i in range(4)])
    inside = parcel.batch
    monkeypatch.setattr(module, "pin_memory", pin)
    assert parcel.pin_memory() is parcel
    assert pinned[0] is inside
    assert pickle.loads(pickle.dumps(parcel)).fingerprint.digest() == parcel.fingerprint.digest()


def test_loaders_without_a_collate_function_and_failures_pass_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A list of batches is a loader; a fingerprint that fails in a worker leaves the batch."""
    batches = [{"x": torch.ones(2)}, {"x": torch.zeros(2)}]
    assert list(lineage.fingerprinted(batches)) == batches
    monkeypatch.setattr(in_worker, "fingerprint", lambda *_: 1 / 0)
    b = next(iter(lineage.fingerprinted(loader())))
    assert in_worker.found(b) is None
    assert set(b) == {"input_ids", "attention_mask", "sample_id", "made_in"}
