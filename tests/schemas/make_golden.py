"""Write the golden files: one journal with a line of every payload kind, and one sidecar.
The byte examples of docs/format.md are taken from them.

    python -m tests.schemas.make_golden

Ids and times are fixed, so the bytes are the same wherever it runs. Files of a version that was released are
never written again: their bytes are the test of every later reader.
"""

from __future__ import annotations

import hashlib
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import schemas
from schemas import Scalar
from tests.schemas.golden_payloads import SEGMENT, checkpoint, first_half, second_half, sidecar, uid

GOLDEN = Path(__file__).parent / "golden"
START = datetime(2026, 11, 29, 16, 0, 0, 125000, tzinfo=UTC)


def version() -> str:
    """MODEL-REVISION-ADDITION of what the writer emits now."""
    return schemas.RECORD_SCHEMA.rsplit("/", 1)[1]


class _Writer:
    """Chains lines as the journal does: `prev` is the sha256 of the raw line before."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def add(self, step: int | None, payload: Any, **fields: Any) -> None:
        n = len(self.lines)
        prev = "sha256:" + hashlib.sha256(self.lines[-1]).hexdigest() if self.lines else None
        envelope = schemas.Envelope(
            id=uid(0x100 + n),
            run="pretrain-7b",
            segment=SEGMENT,
            rank=0,
            step=step,
            at=START + timedelta(seconds=n),
            mono=4211.5 + n,
            seq=n,
            prev=prev,
            payload=payload,
            **fields,
        )
        self.lines.append(envelope.to_line())

    def head(self, file: str) -> schemas.Head:
        digest = "sha256:" + hashlib.sha256(self.lines[-1]).hexdigest()
        return schemas.Head(file=file, seq=len(self.lines) - 1, digest=digest)


def journal() -> bytes:
    """The golden journal: every line ends with a newline."""
    writer = _Writer()
    for step, payload in first_half():
        writer.add(step, payload)
    writer.add(2000, checkpoint("complete"), caused_by=[uid(0x104)], supersedes=None)
    for step, payload in second_half():
        writer.add(step, payload)
    loss = schemas.Alarm(
        code="LIN-A001",
        phase="change",
        signal="loss",
        scope="reduced",
        abnormal="non_finite",
        value=-math.inf,
        baseline=2.25,
        threshold=math.inf,
        tensors=[],
        detector={"name": Scalar.of("non_finite"), "limit": Scalar.of(math.nan)},
        text="the reduced loss went from NaN to minus infinity",
    )
    writer.add(
        2005,
        loss,
        caused_by=[uid(0x110)],
        supersedes=uid(0x111),
        facets={"acme_cluster": {"_schema": "https://acme.example/cluster/1-0-0", "rack": "r7"}},
    )
    from lineage.ledger.seal import seal

    sealed = seal([writer.head(f"{SEGMENT}/node1-00000-4242-1796054400000000.jsonl")], "incident")
    writer.add(2005, sealed)
    writer.add(2005, schemas.Anchor(root=sealed.root, tracker="mlflow", place="tag lineage/anchor.000001"))
    end = schemas.SegmentEnd(reason="exception", error="RuntimeError: loss is not finite", last_step=2005)
    writer.add(2005, end)
    return b"".join(line + b"\n" for line in writer.lines)


def files() -> dict[str, bytes]:
    """File name -> bytes of the golden files of the present version."""
    return {"journal.jsonl": journal(), "lineage.json": sidecar().model_dump_json(by_alias=True).encode()}


def write() -> list[Path]:
    """Write the golden files of the present version and return their paths."""
    folder = GOLDEN / version()
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files().items():
        (folder / name).write_bytes(data)
    return [folder / name for name in files()]


if __name__ == "__main__":
    from tests.schemas import format_examples

    for path in write():
        print(path)
    format_examples.update()
    print(format_examples.PAGE)
