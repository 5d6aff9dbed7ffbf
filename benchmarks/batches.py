"""What the fingerprint of a batch costs in the step, beside the hashes that one would write oneself.

Eight sequences of 2,048 token ids, int64, on the CPU. The others hash the bytes and give one digest of the whole, in
which order, integer type and padding count; `lineage` gives that, one of each sample, one that is free of order, and
the statistics. What is read later, on arrival, is timed apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
import xxhash

from lineage.capture import digest
from lineage.capture.batch import fingerprint
from lineage.capture.batch_view import Known

from .table import SPREAD, Column, Table, Target
from .timing import Variant, summary, take_turns, timed

NAME = "batches"
COLUMNS = (
    Column("batch", "batch"),
    Column("what", "fingerprint by"),
    Column("samples", "each sample"),
    Column("waits", "reads off the device"),
    *SPREAD,
    Column("ratio", "time, sha256 = 1", "ratio"),
)
STEP, ARRIVAL = "lineage, in the step", "lineage, in the step and on arrival"
REFERENCE = "sha256 of .numpy().tobytes()"
KNOWN = Known(vocab_size=50_257, pad_id=0, bos_ids=(1,), eos_ids=(2,))


def batches(rows: int, length: int) -> dict[str, dict[str, torch.Tensor]]:
    """Token ids alone, and with labels and a mask."""
    ids = torch.randint(0, 50_257, (rows, length), generator=torch.Generator().manual_seed(1))
    whole = {"input_ids": ids, "labels": ids.clone(), "attention_mask": torch.ones_like(ids)}
    return {"ids": {"input_ids": ids}, "ids, labels, mask": whole}


def _bytes(batch: Mapping[str, torch.Tensor], into: Any) -> Any:
    for name in sorted(batch):
        into.update(batch[name].numpy().tobytes())
    return into.digest()


def _by_sample(batch: Mapping[str, torch.Tensor]) -> list[bytes]:
    """Each row of all tensors by itself."""
    rows = next(iter(batch.values())).shape[0]
    return [_bytes({k: v[i] for k, v in batch.items()}, hashlib.sha256()) for i in range(rows)]


def ways() -> dict[str, tuple[Callable[[Mapping[str, torch.Tensor]], Any], str, str]]:
    """Name -> what makes it, whether each sample has one, whether it reads off the device in the step."""
    return {
        STEP: (lambda b: fingerprint(b, KNOWN), "yes", "no"),
        ARRIVAL: (lambda b: fingerprint(b, KNOWN).facts(), "yes", "no"),
        REFERENCE: (lambda b: _bytes(b, hashlib.sha256()), "no", "yes"),
        "sha256 of each row": (_by_sample, "yes", "yes"),
        "blake2b of .numpy().tobytes()": (lambda b: _bytes(b, hashlib.blake2b()), "no", "yes"),
        "xxh3_128 of .numpy().tobytes()": (lambda b: _bytes(b, xxhash.xxh3_128()), "no", "yes"),
        ".cpu() and hash(tuple(.tolist()))": (
            lambda b: hash(tuple(tuple(v.cpu().reshape(-1).tolist()) for v in b.values())),
            "no",
            "yes",
        ),
        "lineage's exact digest of each tensor": (
            lambda b: [digest.lanes(v) for v in b.values()],
            "no",
            "no",
        ),
    }


def _turn(make: Callable[[Any], Any], batch: Any, calls: int) -> Variant:
    return lambda: [timed(lambda: make(batch)) for _ in range(calls)]


def run(*, rounds: int = 15, calls: int = 10, rows: int = 8, length: int = 2048, threads: int = 1) -> Table:
    """Fingerprint a batch of `rows` x `length` ids in every way."""
    torch.set_num_threads(threads)
    table = Table(
        NAME, f"a batch of {rows} x {length:,} int64 ids on the CPU, torch on {threads} thread(s)", COLUMNS
    )
    for name, batch in batches(rows, length).items():
        found = ways()
        for make, *_ in found.values():
            make(batch)  # tables of multipliers are made once
        samples = take_turns({k: _turn(way[0], batch, calls) for k, way in found.items()}, rounds, budget=8)
        reference = summary(samples[REFERENCE])["median"]
        for what, values in samples.items():
            s: dict[str, Any] = summary(values)
            table.add(
                batch=name,
                what=what,
                samples=found[what][1],
                waits=found[what][2],
                ratio=s["median"] / reference,
                **s,
            )
        median = summary(samples[STEP])["median"]
        ratio = summary(samples[STEP])["min"] / summary(samples["sha256 of each row"])["min"]
        table.targets.append(
            Target(f"{name}: under 1 ms in the step", f"{1e3 * median:.2f} ms (median)", median < 1e-3)
        )
        table.notes.append(f"{name}: {ratio:.2f}x the time of sha256 of each row, minimum against minimum")
    table.notes.append(
        "on a GPU the others wait for the device before they hash; lineage issues operators and goes on"
    )
    return table
