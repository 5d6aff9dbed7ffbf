"""Which format a checkpoint is of, by what lies in it, and reading it."""

from __future__ import annotations

import logging
import re
import time
from pathlib import Path
from typing import Protocol

from . import taking
from .contents import SEVERITIES, Contents
from .errors import CheckpointError, Damaged
from .folder import MOST_PICKLE, Folder
from .formats import (
    accelerate,
    dcp,
    deepspeed,
    hf_trainer,
    lightning,
    megatron,
    opaque,
    ranks,
    safetensors,
    torch_folder,
    torch_save,
)
from .listing import open_place


class Format(Protocol):
    """A module of `formats`."""

    NAME: str

    def looks(self, folder: Folder) -> bool:
        """Whether the folder, or file, is of this format."""

    def read(self, folder: Folder, c: Contents) -> None:
        """Fill `c` with what is there."""


FORMATS: tuple[Format, ...] = (
    hf_trainer,
    megatron,
    lightning,
    accelerate,
    deepspeed,
    dcp,
    torch_save,
    torch_folder,
    safetensors,
)
"""In the order of asking: a trainer's folder may hold DeepSpeed's or DCP's files, and all may hold safetensors."""
PATIENCE = 1 << 20
"""Bytes of metadata that are read in a training process: a third of a second, in slices between its own work."""
_log = logging.getLogger("lineage")


def look(
    path: Path | str, *, world: int | None = None, digest: bool = False, patience: int = MOST_PICKLE
) -> Contents:
    """Look at a checkpoint: its format, components, tensors, step, and what a resume would miss.

    Args:
        path: a folder, a file, or a URL that fsspec reads.
        world: the number of ranks that would resume.
        digest: digest an unknown folder whatever its size.
        patience: bytes of one pickle above which it is left out, and `facts["left_out"]` says so.

    Raises `CheckpointError` where there is nothing that can be listed.
    """
    folder = open_place(path)
    folder.patience = patience
    return look_into(folder, path, world=world, digest=digest)


def look_into(
    folder: Folder, path: Path | str, *, world: int | None = None, digest: bool = False
) -> Contents:
    """The same of a folder that was listed."""
    place = folder.store.url if folder.store else str(Path(str(path).partition("://")[2] or path).absolute())
    c = Contents(place, opaque.NAME, "")
    chosen = next((f for f in FORMATS if _asked(f, folder)), None)
    if chosen is None:
        opaque.read(folder, c, inside=_inside(folder), digest=digest)
    else:
        c.format = chosen.NAME
        try:
            chosen.read(folder, c)
        except CheckpointError as e:
            taking.failed(c, e, c.name, None)
        except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError, RecursionError) as e:
            # Whatever stands where a number or a name is due, a look ends with words.
            told = f"what its files say of it does not fit together ({type(e).__name__}); nothing was run"
            taking.failed(c, Damaged(told), c.name, None)
        taking.torn(c)
        ranks.world(c, world, sharded=bool(c.facts.get("zero_stage")))
        _named(c)
        if c.step is None and chosen is not safetensors and c.format != opaque.NAME:
            c.find(
                "LIN-K018",
                "fine",
                "no file says which step it is of",
                "Record it with its step: rec.checkpoint(path, step=step).",
                certain=False,
            )
    taking.refusals(c, folder)
    c.findings.sort(key=lambda f: (-SEVERITIES.index(f.severity), f.code))
    c.files, c.bytes = len(folder.entries), sum(e.size for e in folder.entries.values())
    c.opened, c.bytes_read = folder.opened, folder.bytes_read
    return c


_NAMED = re.compile(r"(?:^|[-_=.])(?:global_?step|step|iter|iteration)[-_=]?(\d+)", re.IGNORECASE)


def _named(c: Contents) -> None:
    """Hold the step against the one in the checkpoint's name; off by one is a matter of where counting begins."""
    told = _NAMED.search(c.name)
    if told is None or c.step is None or abs(int(told[1]) - c.step) < 2:
        return
    if any(f.code == "LIN-K012" and c.name in f.text for f in c.findings):  # its reader said so already
        return
    c.find(
        "LIN-K012",
        "differs",
        f"its name is {c.name}, and it says step {c.step:,} ({c.step_from})",
        "Look which of the two is true of the weights; a resume believes the file.",
        certain=False,
    )


def _asked(form: Format, folder: Folder) -> bool:
    try:
        return form.looks(folder)
    except CheckpointError:
        return False


def _inside(folder: Folder) -> list[str]:
    """Folders directly in it that are of a known format."""
    subs = {n: folder.sub(n) for n in folder.folders()}
    found = [n for n, sub in subs.items() if any(_asked(f, sub) for f in FORMATS)]
    return sorted(found, key=lambda n: (len(n), n))


def lack_of(path: Path | str, *, wait: float = 2.0, patience: int = PATIENCE) -> list[str]:
    """What a resume would fail on for certain, one line each; for a training process, on its worker thread.

    What is missing is looked for again after `wait` seconds, since other ranks may still be writing. Nothing is said of
    checkpoints whose metadata is above `patience` bytes, which would hold the interpreter for long. Never raises.
    """
    for again in (True, False):
        try:
            c = look(path, patience=patience)
        except Exception as e:  # whatever a strange file does to a reader, a training run goes on
            _log.debug("lineage: %s could not be looked at: %s", path, e)
            return []
        found = [f"{f.text} ({f.code})" for f in c.findings if f.severity == "fails" and f.certain]
        if not found or c.format == opaque.NAME or "left_out" in c.facts:
            return []
        if again:
            time.sleep(wait)
    return found
