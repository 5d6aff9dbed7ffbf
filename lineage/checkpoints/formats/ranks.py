"""What several formats have alike: files of ranks, folders in folders, file times."""

from __future__ import annotations

from dataclasses import replace

from ..contents import Contents, Piece
from ..folder import Folder

SLACK = 60 * 10**9
"""Nanoseconds by which the files of one save may be written after its last one: ranks end at different times."""


def some(ranks: list[int]) -> str:
    """A few ranks in words."""
    return ", ".join(map(str, ranks[:5])) + (f" and {len(ranks) - 5} more" if len(ranks) > 5 else "")


def which(ranks: list[int]) -> str:
    """`rank 3`, or `ranks 3, 5`."""
    return f"rank{'' if len(ranks) == 1 else 's'} {some(ranks)}"


def span(first: int, last: int) -> str:
    """`rank 3`, or `ranks 3 to 5`."""
    return f"rank {first:,}" if first == last else f"ranks {first:,} to {last:,}"


def named(files: list[str]) -> str:
    """One file by its name, or how many and the first of them."""
    return files[0] if len(files) == 1 else f"{len(files):,} files, such as {files[0]},"


def count(number: int) -> str:
    """A number of ranks in words."""
    return f"{number:,} rank{'s' if number != 1 else ''}"


def rng(c: Contents, have: dict[int, str], world: int, form: str, silence: str) -> None:
    """Say which ranks of `world` have no file of random states."""
    gone = [r for r in range(world) if r not in have]
    status = "present" if not gone else "partial" if have else "missing"
    c.part("rng", status, f"{len(have):,} of {world:,} ranks", *list(have.values())[:8])  # type: ignore[arg-type]
    if gone:
        c.find(
            "LIN-K008",
            "differs",
            f"there are random states of {count(len(have))}, and {count(world)} ran: "
            f"{form.format(some(gone))} missing; "
            f"those ranks go on with other random numbers ({silence})",
            "Copy the files again from the nodes of those ranks, or declare that the random states are not restored.",
            "rng",
        )


def world(c: Contents, asked: int | None, *, sharded: bool = False) -> None:
    """Hold the world that a resume would have against the one that saved.

    `sharded`: ZeRO's shards are of one number of ranks; DeepSpeed raises on another one (runtime/engine.py,
    `_load_zero_checkpoint`: "The checkpoint being loaded used a DP world size of ...").
    """
    if asked is None or c.world is None or asked == c.world:
        return
    held = c.parts.get("rng")
    by_rank = c.facts.get("rng_by_rank", True)
    lost = asked > c.world and by_rank and held is not None and held.status in ("present", "partial")
    least = bool(c.facts.get("world_at_least")) and asked > c.world
    c.find(
        "LIN-K017",
        "fails" if sharded else "differs",
        f"{count(c.world)} {'wrote files of it' if least else 'saved it'}, and {asked:,} would resume"
        + (
            f": {span(c.world, asked - 1)} find{'s' if asked - c.world == 1 else ''} no random state"
            if lost
            else ""
        )
        + (": the optimizer's shards are of the old number of ranks" if sharded else ""),
        "Resume with as many ranks, or convert it first (for DeepSpeed: a universal checkpoint)."
        if sharded
        else "Random numbers and the order of the data differ from then on; declare the change of the world.",
        "rng" if lost else None,
        certain=not least,
    )


def absorb(
    c: Contents, inner: Contents, sub: Folder, prefix: str, components: set[str], folder: Folder
) -> None:
    """Take the contents of a folder in the folder, with its files named from the outer one."""
    lead = prefix + "/" if prefix else ""
    for t in inner.tensors:
        pieces = tuple(Piece(lead + p.file, p.offset, p.length, p.at) for p in t.pieces)
        c.tensors.append(replace(t, pieces=pieces))
    c.shards += [lead + s for s in inner.shards]
    for component, part in inner.parts.items():
        if component in components:
            c.parts[component] = replace(part, files=[lead + f for f in part.files])
    for f in inner.findings:
        c.findings.append(replace(f, text=f"{prefix}: {f.text}" if prefix else f.text))
    if sub is not folder:
        folder.opened += sub.opened
        folder.bytes_read += sub.bytes_read


def times(c: Contents, folder: Folder, marker: str, names: list[str]) -> None:
    """Say when some files are much newer than the file that ends a save, and others are not.

    A copy gives all files new times, so that this is never certain.
    """
    at = folder.entries[marker].mtime
    newer = [n for n in names if folder.entries[n].mtime > at + SLACK]
    if newer and len(newer) < len(names):
        c.find(
            "LIN-K012",
            "differs",
            f"{len(newer)} of {len(names)} files were written after {marker}, which ends a save "
            f"({', '.join(newer[:3])}): "
            "they may be of a later save that was cut short",
            "Compare with the run's log; if the folder was copied since, its times say nothing.",
            certain=False,
        )
