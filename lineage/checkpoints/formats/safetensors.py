"""safetensors alone: a file, or a folder with shards and their index. Weights only, by design."""

from __future__ import annotations

from .. import safetensors_file, taking, weights
from ..contents import Contents
from ..folder import Folder
from ..torch_file import head_of

NAME = "safetensors"


def looks(folder: Folder) -> bool:
    """A file that begins with a length and a brace, or a folder of weights in Hugging Face's names."""
    if folder.only:
        return folder.only.endswith(safetensors_file.EXTENSION) or head_of(folder, folder.only, 9)[8:] == b"{"
    return bool(weights.candidates(folder))


def read(folder: Folder, c: Contents) -> None:
    """List the tensors. There is nothing else to resume from."""
    c.title = "weights alone (safetensors, or Hugging Face's names)"
    if folder.only:
        header = taking.safetensors(c, folder, folder.only)
        c.tensors = header.tensors if header else []
        c.shards = [folder.only]
        text = f"{len(c.tensors):,} tensors in {folder.only}"
        c.part("weights", "present" if header else "partial", text, folder.only)
    else:
        weights.read(c, folder)
    for component in (
        "optimizer_state",
        "optimizer_step",
        "lr_scheduler",
        "grad_scaler",
        "rng",
        "loader_position",
    ):
        c.part(component, "by_design", "files of weights hold nothing else")
    c.find(
        "LIN-K004",
        "differs",
        "there are weights and nothing else: a resume would start with new moments, schedule, random "
        "numbers and data order",
        "Take it as a start for fine-tuning. To go on with a run, take the checkpoint that its trainer saved.",
        "optimizer_state",
    )
