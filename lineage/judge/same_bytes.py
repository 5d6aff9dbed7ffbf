"""A save that wrote an earlier one's bytes again: the state had moved on, and the files had not.

It happens where an asynchronous save stages into a buffer that is filled once, or where a cached state dict is saved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .._rooms import schemas

CHECK = "same-bytes/1"
SHARE = 0.9
"""Share of a save's bytes that must stand in the earlier one: what else differs is counters and text."""
SMALLEST = 1024
"""Bytes below which a file says nothing: configs and tokenizers are the same in every save."""
STATE = ("weights", "master_weights", "optimizer_state")
BACK = 4
"""Earlier saves with which each is compared."""


def findings(records: Sequence[schemas.Record], segment: str) -> list[schemas.Finding]:
    """Saves of a segment whose files are an earlier one's, though the live state was another."""
    saves: dict[str, schemas.Checkpoint] = {}
    for r in records:
        if r.kind == "checkpoint" and r.rank == 0 and r.segment == segment:
            saves[r.payload.uid] = r.payload
    whole = [c for c in saves.values() if c.manifest is not None]
    out = []
    for n, checkpoint in enumerate(whole):
        for earlier in reversed(whole[max(0, n - BACK) : n]):
            found = _repeats(checkpoint, earlier)
            if found is not None:
                out.append(found)
                break
    return out


def repeated(checkpoint: schemas.Checkpoint, earlier: schemas.Checkpoint) -> float:
    """Share of a save's bytes that an earlier save's files hold too, by their digests; small files left out."""
    if checkpoint.manifest is None or earlier.manifest is None:
        return 0.0
    known = {f.digest for f in earlier.manifest.files}
    sizes = [(f.size, f.digest in known) for f in checkpoint.manifest.files if _holds_state(f)]
    total = sum(size for size, _ in sizes)
    return sum(size for size, same in sizes if same) / total if total else 0.0


def _holds_state(f: schemas.FileEntry) -> bool:
    """Whether a file may hold tensors. DCP's metadata has the same length in every save, and is never the same."""
    return f.size >= SMALLEST and not f.path.endswith((".metadata", ".json"))


def _repeats(checkpoint: schemas.Checkpoint, earlier: schemas.Checkpoint) -> schemas.Finding | None:
    moved = list(_moved(checkpoint, earlier))
    share = repeated(checkpoint, earlier)
    if not moved or share < SHARE:
        return None
    titles = ", ".join(schemas.catalogue().concept(c).title for c in moved)
    values: dict[str, object] = {
        "first_step": checkpoint.step,
        "earlier_step": earlier.step,
        "share": round(share, 4),
        "least_share": SHARE,
    }
    return schemas.Finding(
        code="LIN-C012",
        check=CHECK,
        severity="fault",
        subject="checkpoint",
        text=f"the files of the save at step {checkpoint.step:,} are those of step {earlier.step:,}, byte for byte "
        f"({share:.0%} of their bytes), though the live state had moved on ({titles})",
        names=[p for p in (checkpoint.path, earlier.path) if p],
        values={k: schemas.Scalar.of(v) for k, v in values.items()},
        remedy="do not resume from the later one; look at what the save stages: a cached state dict, or a buffer that "
        "is filled once. `lineage checkpoint verify --state` compares the tensors in the files with the live ones",
    )


def _moved(checkpoint: schemas.Checkpoint, earlier: schemas.Checkpoint) -> Iterator[str]:
    """Components whose live state was another at the two saves."""
    before = {c.component: c.digest for c in earlier.live}
    for c in checkpoint.live:
        known = before.get(c.component)
        if c.component in STATE and c.digest is not None and known is not None and c.digest != known:
            yield c.component
