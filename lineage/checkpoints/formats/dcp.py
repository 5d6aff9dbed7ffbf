"""torch.distributed.checkpoint: `.metadata` and `__<rank>_<n>.distcp`.

torch 2.13, torch/distributed/checkpoint/metadata.py and filesystem.py. `.metadata` is a pickled `Metadata`:
state_dict_metadata (key -> TensorStorageMetadata with size and chunks, or BytesStorageMetadata) and storage_data
(MetadataIndex(key, offset) -> _StorageInfo(relative_path, offset, length)). It is written as `.metadata.tmp` and
renamed after all shards (`_finish`), so that it ends a save; a second save into the folder rewrites the shards under
the old one. Every entry is a small file of torch.save of its own.
"""

from __future__ import annotations

import re
from typing import Any

from .. import optimizer, pickles, taking, torch_file, words
from ..contents import Contents, Piece, Tensor
from ..errors import CheckpointError, CutOff, Damaged, Refused, TooBig
from ..folder import Folder
from ..pickle_values import Made, Named
from ..sources import Window
from . import dcp_ranks, ranks
from .dcp_chunks import covers, is_size

NAME = "dcp"
METADATA = ".metadata"
_SHARD = re.compile(r"__(\d+)_(\d+)\.distcp")
_SMALL = 1 << 16
_COUNTED = 8
"""Shards of which two step counters are read."""
_REMEDY = "Copy the missing files again from the nodes that wrote them, or take an earlier checkpoint."


def looks(folder: Folder) -> bool:
    """Its metadata, or shards of it."""
    return not folder.only and (folder.has(METADATA) or any(_SHARD.fullmatch(n) for n in folder.names()))


def read(folder: Folder, c: Contents, component: str | None = None) -> None:
    """List keys and shards; say what of them is missing. `component`: what all of it is, where the folder says so."""
    c.title = "torch.distributed.checkpoint"
    shards = [n for n in folder.names() if _SHARD.fullmatch(n)]
    c.shards = shards
    if shards:
        c.world = max(int(m[1]) for n in shards if (m := _SHARD.fullmatch(n))) + 1
    if not folder.has(METADATA):
        _unfinished(folder, c, shards)
        return
    c.facts["world_at_least"] = True  # a rank whose tensors are all replicas of others' may write no file
    state = taking.attempt(c, METADATA, "weights", lambda: _metadata(folder))
    if state is None:
        return
    stored = _stored(folder, c, state)
    _tensors(c, state, stored, component)
    _files(folder, c, stored)
    keys = c.facts["keys"] = [str(k) for k in state["state_dict_metadata"]]
    _step(folder, c, stored, keys)
    _components(c, keys, component)
    _counters(folder, c, stored, keys)
    if shards:
        ranks.times(c, folder, METADATA, shards)


def _unfinished(folder: Folder, c: Contents, shards: list[str]) -> None:
    own = [n for n in folder.names() if re.fullmatch(r"__\d+\.metadata", n)]
    if own:
        c.find(
            "LIN-K015",
            "differs",
            f"it was saved without coordination of ranks ({len(own)} files such as {own[0]}); these "
            "are not looked into",
            "Load it with the same number of ranks.",
        )
        c.part("weights", "unknown", f"{len(shards)} shards with a metadata file for each rank", *shards[:8])
        return
    tmp = ", and .metadata.tmp is there" if folder.has(".metadata.tmp") else ""
    c.part("weights", "missing", f"{len(shards)} shards without metadata", *shards[:8])
    c.find(
        "LIN-K010",
        "fails",
        f"{METADATA} is missing{tmp}: the save was not finished, and nothing can be loaded from the "
        f"{len(shards)} shards",
        "Take an earlier checkpoint.",
        "weights",
    )


def _metadata(folder: Folder) -> dict[str, Any]:
    size = folder.entries[METADATA].size
    if size > folder.patience:
        raise TooBig(f"{METADATA} has {size:,} bytes")
    try:
        value = pickles.read(folder.read(METADATA)).value
    except (CutOff, Damaged) as e:
        raise type(e)(f"{METADATA}: {e}") from None
    if not isinstance(value, Made) or not value.of.endswith("checkpoint.metadata.Metadata"):
        raise Damaged(f"{METADATA} holds no Metadata of torch.distributed.checkpoint")
    state = value.state
    whole = isinstance(state, dict) and isinstance(state.get("state_dict_metadata"), dict)
    if not whole:
        raise Damaged(f"{METADATA} is of a form that this version does not know")
    return state  # type: ignore[no-any-return]


Stored = dict[tuple[str, tuple[int, ...] | None], Piece]


def _stored(folder: Folder, c: Contents, state: dict[str, Any]) -> Stored:
    """(key, offset in the tensor) -> where its bytes are."""
    out: Stored = {}
    files: dict[Any, str] = {}
    data = state.get("storage_data")
    for index, info in data.items() if isinstance(data, dict) else ():
        if not (isinstance(index, Made) and isinstance(info, Made)):
            continue
        of, at = index.state, info.state
        if not (isinstance(of, dict) and isinstance(at, dict)):
            continue
        named = at.get("relative_path")
        file = files.get(named) if isinstance(named, str) else None
        if file is None:
            try:
                file = files[named] = folder.named_inside(named)
            except Refused as e:
                taking.failed(c, Refused(f"{METADATA}: {e}"), METADATA, "weights")
                return {}
        start, length = words.whole(at.get("offset")), words.whole(at.get("length"))
        out[str(of.get("fqn")), _place(of.get("offset"))] = Piece(file, start, length)
    return out


def _place(offset: Any) -> tuple[int, ...] | None:
    """Where a chunk begins: a torch.Size, or None for what is no tensor. Raises `Damaged` for anything else."""
    if offset is None or is_size(offset):
        return offset  # type: ignore[no-any-return]
    raise Damaged(f"{METADATA} is damaged: a chunk begins at what is no place in a tensor")


def _tensors(c: Contents, state: dict[str, Any], stored: Stored, component: str | None) -> None:
    """Each tensor's chunks must cover it, and each must be stored."""
    lost, holes = [], []
    for key, meta in state["state_dict_metadata"].items():
        size: Any = meta.get("size") if isinstance(meta, Made) else None
        if not is_size(size):
            if (key, None) not in stored:
                lost.append(str(key))
            continue
        chunks = [k.state for k in meta.get("chunks") or () if isinstance(k, Made)]
        spans = [(_place(k.get("offsets")) or (), k.get("sizes")) for k in chunks if isinstance(k, dict)]
        pieces = []
        for at, _ in spans:
            piece = stored.get((key, at)) or stored.get((key, None))
            if piece is None:
                lost.append(f"{key} at {list(at)}")
            else:
                pieces.append(Piece(piece.file, piece.offset, piece.length, at))
        if not covers(size, spans):
            holes.append(key)
        of = component or _component(str(key)) or ("unknown" if _counts(str(key), size) else "weights")
        c.tensors.append(Tensor(str(key), _dtype(meta.get("properties")), size, of, tuple(pieces)))
    if lost:
        c.find(
            "LIN-K003",
            "fails",
            f"{len(lost):,} entries of {METADATA} are stored in no file: {', '.join(lost[:3])}",
            _REMEDY,
            "weights",
        )
    if holes:
        c.find(
            "LIN-K003",
            "fails",
            f"the chunks of {len(holes):,} tensors do not cover them once: {', '.join(holes[:3])}",
            "Take an earlier checkpoint: what is not covered keeps what the new process began with.",
            "weights",
        )


def _counts(key: str, size: Any) -> bool:
    """Whether a tensor is the loop's count of steps, such as `train_state.step`."""
    return not len(size) and key.rpartition(".")[2] in words.STEP_KEYS


def _dtype(properties: Any) -> str:
    state = properties.state if isinstance(properties, Made) else None
    if isinstance(state, dict):
        state = tuple(state.values())
    first = state[0] if isinstance(state, tuple) and state else None
    return first.name if isinstance(first, Named) else "unknown"


def _files(folder: Folder, c: Contents, stored: Stored) -> None:
    """Each file that the metadata names must be there, as long as its last entry needs. No file is opened."""
    ends: dict[str, int] = {}
    for piece in stored.values():
        ends[piece.file] = max(ends.get(piece.file, 0), (piece.offset or 0) + (piece.length or 0))
    gone = sorted(f for f in ends if not folder.has(f) and f not in folder.refused)
    if gone:
        lost = sorted({k for (k, _), p in stored.items() if p.file in set(gone)})
        of = sorted({int(m[1]) for f in gone if (m := _SHARD.fullmatch(f))})
        c.find(
            "LIN-K001",
            "fails",
            f"{len(gone)} of {len(ends)} files that {METADATA} names are missing ({', '.join(gone[:3])}; "
            f"{ranks.which(of)}), with parts of {len(lost):,} keys such as {lost[0]}",
            _REMEDY,
            "weights",
        )
    for file, end in sorted(ends.items()):
        size = folder.entries[file].size if folder.has(file) else end
        if size < end:
            c.find(
                "LIN-K002",
                "fails",
                f"{file} is cut off: {size:,} bytes, and {METADATA} needs {end:,}",
                _REMEDY,
                "weights",
            )
        elif size > end:
            c.find(
                "LIN-K012",
                "differs",
                f"{file} has {size:,} bytes and {METADATA} tells of {end:,}: it may be of another save",
                "Compare the file's time with the metadata's; take a checkpoint whose files are of one save.",
                "weights",
                certain=False,
            )
    dcp_ranks.zeros(
        folder, c, [f for f in sorted(ends) if folder.has(f) and folder.entries[f].size >= ends[f]]
    )
    more = [n for n in folder.names() if _SHARD.fullmatch(n) and n not in ends]
    if more and stored:
        c.find(
            "LIN-K012",
            "fine",
            f"{len(more)} shards are named by no entry of {METADATA} ({', '.join(more[:3])}): they "
            "are of another save, "
            "or empty; a resume passes over them",
            "Nothing, for a resume; save each step into a folder of its own.",
            certain=False,
        )
        c.world = max((int(m[1]) for n in ends if (m := _SHARD.fullmatch(n))), default=0) + 1


def _component(key: str) -> str | None:
    for part in key.split(".")[:2]:
        if found := words.component(part):
            return found
    return None


def _step(folder: Folder, c: Contents, stored: Stored, keys: list[str]) -> None:
    """The step, from small entries with such a name: each is a file of torch.save of a few hundred bytes."""
    if c.step is not None:
        return
    named = [k for k in keys if k.rpartition(".")[2] in words.STEP_KEYS and not _component(k)]
    for key in sorted(named, key=lambda k: (k.count("."), k))[:4]:
        piece = stored.get((key, None)) or stored.get((key, ()))
        found = entry(folder, piece)
        if found is not None:
            c.step, c.step_from = int(found), f"{METADATA}: {key}"
            return


def _counters(folder: Folder, c: Contents, stored: Stored, keys: list[str]) -> None:
    """Two step counters of some shards are read, and held against the step and against each other."""
    if c.parts.get("optimizer_step") is None:
        return
    by_file: dict[str, list[Piece]] = {}
    for key in keys:
        if key.endswith(".step") and (key, None) not in stored and (piece := stored.get((key, ()))):
            by_file.setdefault(piece.file, []).append(piece)
    files = sorted(by_file)
    files = files if len(files) <= _COUNTED else [*files[: _COUNTED - 1], files[-1]]
    counts = {}
    for name in files:
        both = dict.fromkeys((by_file[name][0], by_file[name][-1]))
        if found := [float(n) for n in (entry(folder, p) for p in both) if n is not None]:
            counts[name] = found
    if not counts:
        return
    held = c.parts["optimizer_state"].status in ("present", "partial")
    optimizer.counters(c, [n for found in counts.values() for n in found], "the optimizer", moments=held)
    alone = {name: found[0] for name, found in counts.items() if len(set(found)) == 1}
    if len(alone) == len(counts) and len(set(alone.values())) > 1:
        low, high = min(alone, key=alone.__getitem__), max(alone, key=alone.__getitem__)
        c.find(
            "LIN-K012",
            "differs",
            f"step counters in {low} are at {alone[low]:g}, and in {high} at {alone[high]:g}: the shards are of "
            "several saves, or hold parameters that were not always updated",
            "Do not resume from it, unless the run freezes parameters; take a checkpoint whose files are of one save.",
            "optimizer_step",
            certain=False,
        )


def entry(folder: Folder, piece: Piece | None) -> int | float | None:
    """The number in one small entry of a shard; None where it is none, or cannot be read."""
    if piece is None or not piece.length or piece.length > _SMALL or not folder.has(piece.file):
        return None
    try:
        with folder.open(piece.file) as f:
            window = Window(f, piece.offset or 0, piece.length)
            made = torch_file.read_from(window, piece.file)
            return made.number_by(window.piece, made.value)
    except CheckpointError:
        return None


def _components(c: Contents, keys: list[str], only: str | None) -> None:
    """Which components the keys tell of, and which they do not."""
    found: dict[str, list[str]] = {}
    for key in keys:
        found.setdefault(only or _component(key) or "", []).append(key)
    weights = found.get("weights") or [t.name for t in c.tensors if t.component == "weights"]
    lost = any(f.severity == "fails" for f in c.findings)
    if weights:
        c.part("weights", "partial" if lost else "present", f"{len(weights):,} keys", *c.shards[:8])
    elif not only:
        c.part("weights", "missing", "no key of a model")
        c.find(
            "LIN-K004", "fails", f"{METADATA} has no key of a model", "Take another checkpoint.", "weights"
        )
    if only in (None, "optimizer_state"):
        _optimizer(c, found.get("optimizer_state", []), lost)
    if only:
        return
    for component, code, what in (
        ("lr_scheduler", "LIN-K006", "a scheduler"),
        ("rng", "LIN-K008", "random states"),
        ("loader_position", "LIN-K009", "a loader's position"),
    ):
        mine = found.get(component, [])
        if mine:
            c.part(component, "present", f"{len(mine):,} keys")
            dcp_ranks.per_rank(c, component, code, mine)
        else:
            c.part(component, "missing", "no key")
            c.find(
                code,
                "differs",
                f"{METADATA} has no key of {what}: a resume goes on without",
                "Add it to the state that is saved, or declare in the record that it is not restored.",
                component,
            )
    if "grad_scaler" in found:
        c.part("grad_scaler", "present", f"{len(found['grad_scaler']):,} keys")
    else:
        half = any(t.dtype == "float16" for t in c.tensors)
        c.part("grad_scaler", "missing" if half else "unknown", "no key; only fp16 needs one")
        if half:
            c.find(
                "LIN-K007",
                "differs",
                f"tensors are float16 and {METADATA} has no key of a gradient scaler: its scale starts anew",
                "Save the scaler's state_dict with the rest.",
                "grad_scaler",
                certain=False,
            )


def _optimizer(c: Contents, keys: list[str], lost: bool) -> None:
    if not keys:
        c.part("optimizer_state", "missing", "no key")
        c.part("optimizer_step", "missing", "no key")
        c.find(
            "LIN-K005",
            "differs",
            f"{METADATA} has no key of an optimizer: a resume starts with new moments",
            "Take the checkpoint before it, if that has one (torchtitan saves its last one as the model alone).",
            "optimizer_state",
        )
        return
    moments = [t for t in c.tensors if t.component == "optimizer_state" and not t.name.endswith(".step")]
    steps = [k for k in keys if k.endswith(".step")]
    c.part("optimizer_step", "present" if steps else "missing", f"{len(steps):,} step counters")
    if moments:
        text = f"{len(moments):,} tensors of moments"
        c.part("optimizer_state", "partial" if lost else "present", text)
        return
    c.part("optimizer_state", "missing", f"{len(keys):,} keys, and no moments among them")
    c.find(
        "LIN-K005",
        "differs",
        "the optimizer's keys hold settings and no moments: its state was empty when it was saved",
        "Look whether the optimizer had gradients left when its state_dict was taken; resume from an "
        "earlier checkpoint.",
        "optimizer_state",
        certain=c.step is None or c.step > 0,
    )
