"""The weights of a folder in Hugging Face's names: one file, or shards under an index; safetensors or torch.save.

transformers/utils/__init__.py (WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME and the others), peft/utils/constants.py
(adapter_model). The index: {"metadata": {"total_size"}, "weight_map": {tensor: file}}.
"""

from __future__ import annotations

import re
from typing import Any

from . import safetensors_file, taking
from .contents import Contents, Tensor
from .errors import Refused
from .folder import Folder
from .sources import AHEAD

INDEX = ".index.json"
SINGLE = (
    *("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin"),
    *("diffusion_pytorch_model.safetensors", "diffusion_pytorch_model.bin", "pytorch_model_fsdp.bin"),
)
_SHARD = re.compile(r".*-(\d{5})-of-(\d{5})\.(safetensors|bin)$")
_REMEDY = "Copy the missing files again from where they were written, or take an earlier checkpoint."


def candidates(folder: Folder) -> list[str]:
    """The files directly in a folder that hold weights, or an index of them."""
    names = folder.names()
    found = [
        n for n in names if n in SINGLE or re.fullmatch(r"(pytorch_)?model_(fsdp_)?\d+\.(safetensors|bin)", n)
    ]
    found += [n for n in names if n.endswith((safetensors_file.EXTENSION + INDEX, ".bin" + INDEX))]
    found += [n for n in names if _SHARD.match(n) and n not in found]
    if not found:
        found = [n for n in names if n.endswith(safetensors_file.EXTENSION)]
    return found


def read(c: Contents, folder: Folder) -> None:
    """List the weights; say what of them is missing."""
    found, before = candidates(folder), len(c.shards)
    indexes = [n for n in found if n.endswith(INDEX)]
    listed: set[str] = set()
    for index in indexes:
        listed |= _indexed(c, folder, index)
    shards = [n for n in found if _SHARD.match(n) and n not in listed]
    if not indexes:
        _numbered(c, folder, shards)
    single = [n for n in found if n not in indexes and n not in listed and n not in shards]
    for name in single:
        c.tensors += tensors_of(c, folder, name)
        c.shards.append(name)
    if indexes and (shards or single):
        rest = [*shards, *single]
        c.find(
            "LIN-K012",
            "differs",
            f"{rest[0]}{f' and {len(rest) - 1} more' if len(rest) > 1 else ''} hold weights that {indexes[0]} does not "
            "name: they are of another save, and which ones are loaded depends on the loader",
            "Move the files that are not of this save away.",
            "weights",
            certain=False,
        )
    if not found:
        c.part("weights", "missing", "no file of weights")
        return
    lost = any(f.component == "weights" and f.severity == "fails" for f in c.findings)
    mine = c.shards[before:]
    many = f"{len(mine):,} files" if len(mine) != 1 else mine[0]
    text = f"{sum(t.component == 'weights' for t in c.tensors):,} tensors in {many}"
    c.part("weights", "partial" if lost else "present", text, *mine)


def tensors_of(c: Contents, folder: Folder, name: str) -> list[Tensor]:
    """The tensors of one file of weights; none and a finding where it cannot be read."""
    if name.endswith(safetensors_file.EXTENSION):
        header = taking.safetensors(c, folder, name)
        return header.tensors if header else []
    made = taking.torch(c, folder, name, "weights")
    return made.tensors("weights") if made else []


def _ahead(folder: Folder, names: list[str]) -> None:
    """Of safetensors the header stands first; of torch.save the directory last."""
    folder.ahead([n for n in names if n.endswith(safetensors_file.EXTENSION)], first=AHEAD)
    folder.ahead([n for n in names if not n.endswith(safetensors_file.EXTENSION)], first=48, last=AHEAD)


def _indexed(c: Contents, folder: Folder, index: str) -> set[str]:
    """Read the shards that an index names; return their names."""
    data = taking.json(c, folder, index, "weights")
    known = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(known, dict):
        if data is not None:
            c.find("LIN-K002", "fails", f"{index} has no weight_map", _REMEDY, "weights")
        return set()
    files: dict[str, set[str]] = {}
    for tensor, file in known.items():
        try:
            files.setdefault(folder.named_inside(file), set()).add(tensor)
        except Refused as e:
            taking.failed(c, Refused(f"{index}: {e}"), index, "weights")
            return set()
    gone = [f for f in files if not folder.has(f) and f not in folder.refused]
    if gone:
        lost = sum(len(files[f]) for f in gone)
        c.find(
            "LIN-K001",
            "fails",
            f"{len(gone)} of the {len(files)} files that {index} names are missing ({_some(sorted(gone))}), with "
            f"{lost:,} of {len(known):,} tensors",
            _REMEDY,
            "weights",
        )
    _ahead(folder, sorted(set(files) - set(gone)))
    for file in sorted(set(files) - set(gone)):
        before = len(c.findings)
        there = tensors_of(c, folder, file)
        c.tensors += there
        c.shards.append(file)
        if len(c.findings) == before:
            _same(c, index, file, files[file], {t.name for t in there})
    _total(c, index, data)
    return set(files)


def _same(c: Contents, index: str, file: str, named: set[str], there: set[str]) -> None:
    """An index and a file must list the same tensors."""
    if lost := sorted(named - there):
        c.find(
            "LIN-K003",
            "fails",
            f"{index} says that {file} holds {_some(lost)}{_more(lost)}, and it does not",
            _REMEDY,
            "weights",
        )
    if more := sorted(there - named):
        c.find(
            "LIN-K003",
            "differs",
            f"{file} holds {_some(more)}{_more(more)}, which {index} does not name: loaders pass over it",
            "Write the index again, or take a checkpoint whose files are of one save.",
            "weights",
        )


def _total(c: Contents, index: str, data: Any) -> None:
    """metadata.total_size counts bytes of tensors (huggingface_hub, save_torch_state_dict)."""
    meta = data.get("metadata")
    if isinstance(meta, dict) and isinstance(meta.get("total_size"), int | float):
        c.facts["total_size"] = int(meta["total_size"])


def _numbered(c: Contents, folder: Folder, shards: list[str]) -> None:
    """Shards without an index: their names say how many there are."""
    counts = {(m[2], m[3]) for n in shards if (m := _SHARD.match(n))}
    _ahead(folder, shards)
    for name in shards:
        c.tensors += tensors_of(c, folder, name)
        c.shards.append(name)
    for count, kind in counts:
        have = {int(m[1]) for n in shards if (m := _SHARD.match(n)) and (m[2], m[3]) == (count, kind)}
        gone = sorted(set(range(1, min(int(count), 100_000) + 1)) - have)
        text = f"the index of the {int(count)} shards is missing"
        if gone:
            text += f", and {len(gone)} of the shards: numbers {_some([str(n) for n in gone])}"
        c.find("LIN-K001", "fails", text, _REMEDY, "weights")


def _some(names: list[str]) -> str:
    return ", ".join(names[:3])


def _more(names: list[str]) -> str:
    return f" and {len(names) - 3} more" if len(names) > 3 else ""
