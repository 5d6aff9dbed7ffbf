"""A folder of Megatron: the run's folder with `latest_checkpointed_iteration.txt`, or one `iter_NNNNNNN`.

Megatron-LM, megatron/training/checkpointing.py and megatron/core/dist_checkpointing (serialization.py,
strategies/torch.py, core.py). `torch_dist`: metadata.json {sharded_backend, sharded_backend_version, common_backend},
common.pt (args, iteration, checkpoint_version, opt_param_scheduler, optimizer), and DCP's `.metadata` with shards;
random states stand under keys `rng_state/shard_...`, moments under `optimizer.state.exp_avg.<name>` (or
`chained_N.optimizer...`). `torch` (legacy): `mp_rank_TT[_PPP]/model_optim_rng.pt`, and `distrib_optim.pt` beside it
with the distributed optimizer. This reader was built from that layout. megatron-core 0.16 wrote
folders that it was held against (torch_dist, four ranks, on the CPU); Megatron's training loop was not run.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from .. import optimizer, taking, torch_file, words
from ..contents import Contents
from ..folder import Folder
from ..pickle_values import Made
from . import dcp, ranks

NAME = "megatron"
TRACKER = "latest_checkpointed_iteration.txt"
_LEGACY = re.compile(r"mp_rank_(\d+)(?:_(\d+))?(?:_(\d+))?")
_ITERATION = re.compile(r"iter_\d{7,}|release")
_FILE = "model_optim_rng.pt"
_REMEDY = "Take an earlier iteration, or declare in the record that this is not restored."


def one_looks(folder: Folder) -> bool:
    """Whether a folder is one iteration's."""
    if folder.has("metadata.json") and (folder.has("common.pt") or folder.has(dcp.METADATA)):
        return True
    return any(_LEGACY.fullmatch(n) and folder.has(f"{n}/{_FILE}") for n in folder.folders())


def looks(folder: Folder) -> bool:
    """An iteration's folder, or the run's with its tracker file or folders of iterations."""
    if folder.only:
        return False
    return folder.has(TRACKER) or one_looks(folder) or bool(_iterations(folder))


def _iterations(folder: Folder) -> list[str]:
    return sorted(n for n in folder.folders() if _ITERATION.fullmatch(n) and one_looks(folder.sub(n)))


def read(folder: Folder, c: Contents) -> None:
    """What is there of an iteration, and what a resume would do without the rest."""
    c.title = "Megatron"
    name = "" if one_looks(folder) else _latest(folder, c)
    if name is None:
        c.part("weights", "missing", "no iteration to look at")
        return
    sub = folder.sub(name) if name else folder
    c.facts["iteration_folder"] = name or c.name
    if any(_LEGACY.fullmatch(n) for n in sub.folders()):
        _legacy(sub, c)
    else:
        _distributed(sub, c)
    if sub is not folder:
        _outside(c, name)
        folder.opened += sub.opened
        folder.bytes_read += sub.bytes_read
    said = re.fullmatch(r"iter_(\d+)", c.facts["iteration_folder"])
    if said and c.step is None:
        c.step, c.step_from = int(said[1]), f"the folder's name {said[0]}"
    elif said and int(said[1]) != c.step:
        text = f"the folder is {said[0]}, and its files say iteration {c.step:,}"
        remedy = "Look which of the two is true; a resume believes the file."
        c.find("LIN-K012", "differs", text, remedy, certain=False)


def _outside(c: Contents, name: str) -> None:
    """Name the files of the iteration's folder from the run's folder."""
    c.tensors = [
        replace(t, pieces=tuple(p._replace(file=f"{name}/{p.file}") for p in t.pieces)) for t in c.tensors
    ]
    c.shards = [f"{name}/{s}" for s in c.shards]
    for part in c.parts.values():
        part.files = [f"{name}/{f}" for f in part.files]


def _latest(folder: Folder, c: Contents) -> str | None:
    there = _iterations(folder)
    if not folder.has(TRACKER):
        c.find(
            "LIN-K011",
            "fails",
            f"{TRACKER} is missing: Megatron says so in one line and goes on from its first weights, or stops with "
            f"--exit-on-missing-checkpoint; there are {', '.join(there[-3:])}",
            "Write the number of an iteration that is whole into it, after looking at that one.",
            certain=False,  # a copy of some iterations has none
        )
        return there[-1]
    raw = taking.attempt(c, TRACKER, None, lambda: folder.read(TRACKER, most=4096))
    text = (raw or b"").decode("utf-8", "replace").strip()
    name = (
        "release"
        if text == "release"
        else f"iter_{int(text):07d}"
        if text.isascii() and text.isdigit()
        else None
    )
    if name in there:
        return name
    if name and any(n.startswith(name + "/") for n in folder.entries):
        c.find(
            "LIN-K001",
            "fails",
            f"{TRACKER} names {text!r}, and {name} has neither metadata.json nor files of ranks: it is not whole",
            "Copy it again from where it was written, or take an earlier iteration.",
        )
        return name
    what = f"names {text[:80]!r}" if text else "is empty"
    c.find(
        "LIN-K011",
        "fails",
        f"{TRACKER} {what}, and no such iteration is there"
        + (f"; there are {', '.join(there[-3:])}" if there else ""),
        "Write the number of an iteration that is whole into it, after looking at that one.",
    )
    return there[-1] if there else None


def _distributed(folder: Folder, c: Contents) -> None:
    data = taking.json(c, folder, "metadata.json") if folder.has("metadata.json") else None
    backend = data.get("sharded_backend") if isinstance(data, dict) else None
    c.title = f"Megatron dist-checkpoint ({backend or 'no metadata.json'})"
    if data is not None and backend not in ("torch_dist", "fsdp_dtensor"):
        text = f"metadata.json names the backend {backend!r}; only torch_dist is looked into"
        c.find("LIN-K016", "differs", text, "Convert it to torch_dist to have it looked into.")
    common = _common(folder, c)
    if isinstance(common.get("iteration"), int):
        c.step, c.step_from = common["iteration"], "common.pt: iteration"
    inner = Contents(c.path, dcp.NAME, "", step=c.step)
    dcp.read(folder, inner)
    # Optimizers, random states and the schedule have places of their own here; what dcp says of them is left out.
    own = ("LIN-K005", "LIN-K006", "LIN-K007", "LIN-K008", "LIN-K009")
    inner.findings = [f for f in inner.findings if f.code not in own]
    # Ranks that hold replicas write nothing, so that files tell of fewer ranks than ran.
    args = torch_file.plain_attribute(common, "args")
    c.world = words.whole(torch_file.plain_attribute(args, "world_size")) or inner.world
    c.facts["rng_by_rank"] = False  # of data-parallel ranks one keeps the states of all
    inner.tensors = [_named(t) for t in inner.tensors]
    ranks.absorb(c, inner, folder, "", {"weights"}, folder)
    if "keys" in inner.facts:
        _stored(c, common, inner.facts["keys"])
    if common:
        _common_parts(c, common, inner.facts.get("keys", []))


def _named(t: Any) -> Any:
    if re.match(r"(?:chained_\d+\.)?optimizer\.", t.name):
        return replace(t, component="optimizer_state")
    return t


def _common(folder: Folder, c: Contents) -> dict[str, Any]:
    if not folder.has("common.pt"):
        c.find(
            "LIN-K001",
            "fails",
            "common.pt is missing: it holds arguments, iteration and the schedule, and loading stops without it",
            "Copy it again, or take an earlier iteration.",
        )
        return {}
    made = taking.torch(c, folder, "common.pt", None)
    return made.value if made and isinstance(made.value, dict) else {}


def _stored(c: Contents, common: dict[str, Any], keys: list[str]) -> None:
    """Moments and random states, which stand among DCP's keys."""
    args = torch_file.plain_attribute(common, "args")
    moments = [t for t in c.tensors if t.component == "optimizer_state"]
    if moments:
        c.part("optimizer_state", "present", f"{len(moments):,} tensors")
        c.part("optimizer_step", "unknown", "kept in common.pt or beside the moments")
    else:
        c.part("optimizer_state", "missing", "no key of an optimizer")
        no_save = torch_file.plain_attribute(args, "no_save_optim")
        why = " (the run was set to --no-save-optim)" if no_save else ""
        text = (
            f"there are no moments{why}: --finetune or --no-load-optim is needed, and the moments start anew"
        )
        c.find("LIN-K005", "fails", text, _REMEDY, "optimizer_state")
    rng = [k for k in keys if k.startswith("rng_state")]
    if rng:
        c.part("rng", "present", f"{len(rng):,} shards of rng_state")
    else:
        c.part("rng", "missing", "no key rng_state")
        text = "there are no random states: loading stops unless --no-load-rng is given, and then they start anew"
        c.find("LIN-K008", "fails", text, _REMEDY, "rng")


def _common_parts(c: Contents, common: dict[str, Any], keys: list[str]) -> None:
    """Schedule, position and scaler, which stand in common.pt."""
    args = torch_file.plain_attribute(common, "args")
    _schedule(c, common)
    consumed = torch_file.plain_attribute(args, "consumed_train_samples")
    _position(c, consumed)
    half = torch_file.plain_attribute(args, "fp16") is True
    scaler = [k for k in keys if "grad_scaler" in k] or "grad_scaler" in str(list(_optimizer_keys(common)))
    if scaler:
        c.part("grad_scaler", "present", "grad_scaler")
    elif half:
        c.part("grad_scaler", "missing", "args say fp16, and no grad_scaler is kept")
        text = "args say fp16, and there is no grad_scaler: its scale starts anew"
        c.find("LIN-K007", "differs", text, _REMEDY, "grad_scaler")
    else:
        c.part("grad_scaler", "by_design", "only fp16 has one")


def _optimizer_keys(common: dict[str, Any]) -> list[str]:
    inner = common.get("optimizer")
    return [str(k) for k in inner] if isinstance(inner, dict) else []


def _schedule(c: Contents, value: dict[str, Any]) -> None:
    schedule = value.get("opt_param_scheduler")
    if schedule:
        at = schedule.get("num_steps") if isinstance(schedule, dict) else None
        c.part("lr_scheduler", "present", f"opt_param_scheduler at {at} samples")
        return
    c.part("lr_scheduler", "missing", "no opt_param_scheduler")
    text = "there is no opt_param_scheduler: the learning rate starts from the beginning of its schedule"
    c.find("LIN-K006", "differs", text, _REMEDY, "lr_scheduler")


def _position(c: Contents, consumed: Any) -> None:
    """The sampler starts from args.consumed_train_samples (megatron/legacy/data/data_samplers.py)."""
    if isinstance(consumed, int):
        c.part("loader_position", "present", f"consumed_train_samples {consumed:,}")
        return
    c.part("loader_position", "missing", "no consumed_train_samples in args")
    text = "args have no consumed_train_samples: the data begin anew"
    c.find("LIN-K009", "differs", text, _REMEDY, "loader_position")


def _legacy(folder: Folder, c: Contents) -> None:
    """Each model-parallel rank has a folder; tensor ranks and pipeline ranks must form a grid."""
    c.title = "Megatron (torch, one folder for each model-parallel rank)"
    found = {
        tuple(int(g) for g in m.groups() if g): n for n in folder.folders() if (m := _LEGACY.fullmatch(n))
    }
    first: dict[str, Any] = {}
    steps: dict[int, str] = {}
    for _, name in sorted(found.items()):
        file = f"{name}/{_FILE}"
        if not folder.has(file):
            c.find("LIN-K001", "fails", f"{file} is missing", _REMEDY, "weights")
            continue
        made = taking.torch(c, folder, file, "weights")
        value = made.value if made and isinstance(made.value, dict) else {}
        first = first or value
        c.shards.append(file)
        step = words.whole(value.get("iteration"))
        if step is not None:
            steps.setdefault(step, file)
        if made:
            c.tensors += made.tensors(
                "weights", {k: v for k, v in value.items() if str(k).startswith("model")}
            )
            if optimizer.looks(value.get("optimizer")):
                c.tensors += made.tensors("optimizer_state", value["optimizer"]["state"])
    if steps:
        c.step, c.step_from = min(steps), f"{steps[min(steps)]}: iteration"
    if len(steps) > 1:
        said = ", ".join(f"{n} at {s:,}" for s, n in sorted(steps.items())[:3])
        c.find("LIN-K012", "fails", f"the ranks' files are of several iterations: {said}", _REMEDY, "weights")
    _grid(c, found, first)
    _legacy_parts(folder, c, found, first)


def _grid(c: Contents, found: dict[tuple[int, ...], str], first: dict[str, Any]) -> None:
    args = first.get("args")
    tp = words.whole(torch_file.plain_attribute(args, "tensor_model_parallel_size")) or 0
    pp = words.whole(torch_file.plain_attribute(args, "pipeline_model_parallel_size")) or 0
    tp, pp = (
        max(tp, max(k[0] for k in found) + 1),
        max(pp, max((k[1] for k in found if len(k) > 1), default=0) + 1),
    )
    c.world = words.whole(torch_file.plain_attribute(args, "world_size"))
    have = {(k[0], k[1] if len(k) > 1 else 0) for k in found}
    gone = [(t, p) for t in range(tp) for p in range(pp) if (t, p) not in have]
    if gone:
        said = ", ".join(f"tensor rank {t}, pipeline rank {p}" for t, p in gone[:3])
        text = f"folders of {len(gone)} of {tp * pp} model-parallel ranks are missing: {said}"
        c.find("LIN-K001", "fails", text, _REMEDY, "weights")
    c.part(
        "weights",
        "partial" if gone else "present",
        f"{len(found)} of {tp * pp} model-parallel ranks",
        *c.shards[:8],
    )


def _legacy_parts(
    folder: Folder, c: Contents, found: dict[tuple[int, ...], str], first: dict[str, Any]
) -> None:
    split = [n for n in found.values() if folder.has(f"{n}/distrib_optim.pt")]
    if first.get("optimizer") and (split or not isinstance(first["optimizer"], Made)):
        whole = not split or len(split) == len(found)
        text = f"distrib_optim.pt of {len(split)} ranks" if split else f"in {_FILE}"
        c.part("optimizer_state", "present" if whole else "partial", text)
        c.part("optimizer_step", "unknown", "not looked into")
        if not whole:
            lost = sorted(set(found.values()) - set(split))
            text = f"distrib_optim.pt is missing in {', '.join(lost[:3])}"
            c.find("LIN-K001", "fails", text, _REMEDY, "optimizer_state")
    else:
        c.part("optimizer_state", "missing", f"{_FILE} has no optimizer")
        text = (
            f"{_FILE} holds no optimizer: --finetune or --no-load-optim is needed, and the moments start anew"
        )
        c.find("LIN-K005", "fails", text, _REMEDY, "optimizer_state")
    _schedule(c, first)
    if first.get("rng_state") or first.get("random_rng_state"):
        c.part("rng", "present", f"rng_state in {_FILE}")
    else:
        c.part("rng", "missing", f"{_FILE} has no rng_state")
        text = f"{_FILE} holds no rng_state: loading stops unless --no-load-rng is given, and then they start anew"
        c.find("LIN-K008", "fails", text, _REMEDY, "rng")
    _position(c, torch_file.plain_attribute(first.get("args"), "consumed_train_samples"))
    c.part("grad_scaler", "unknown", "kept within the optimizer")
