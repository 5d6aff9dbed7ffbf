"""A folder of `Accelerator.save_state`.

accelerate 1.15, checkpointing.py and utils/constants.py, `save_accelerator_state`: model[_i].safetensors or
pytorch_model[_i].bin (sharded with an index), optimizer[_i].bin, scheduler[_i].bin, sampler[_i].bin (only for an
IterableDatasetShard with a seedable sampler), dl_state_dict[_i].bin (only use_stateful_dataloader), scaler.pt (only
fp16), random_states_<rank>.pkl with `step`, custom_checkpoint_<i>.pkl. `load_accelerator_state` stops for want of a
prepared optimizer's, scheduler's or scaler's file; random states that cannot be read are one line of info.
"""

from __future__ import annotations

import re

from .. import optimizer, taking, weights
from ..contents import Contents, Part
from ..folder import Folder
from . import fsdp, ranks

NAME = "accelerate"
_RANDOM = re.compile(r"random_states_(\d+)\.pkl")


def looks(folder: Folder) -> bool:
    """Random states in its names, or weights beside optimizer.bin."""
    if folder.only:
        return False
    names = folder.names()
    return any(_RANDOM.fullmatch(n) for n in names) or (
        folder.has("optimizer.bin") and (bool(weights.candidates(folder)) or folder.has("scheduler.bin"))
    )


def read(folder: Folder, c: Contents) -> None:
    """What is there of a saved state, and what a resume would do without the rest."""
    c.title = "Accelerate save_state"
    numbered = {int(m[1]): n for n in folder.names() if (m := _RANDOM.fullmatch(n))}
    c.world = max(numbered) + 1 if numbered else None
    _random(folder, c, numbered)
    done = fsdp.read(folder, c)
    if "weights" not in done:
        weights.read(c, folder)
        _models(folder, c)
        if c.parts["weights"].status == "missing":
            c.find(
                "LIN-K004",
                "fails",
                "there are no weights (model.safetensors or pytorch_model.bin): load_state stops",
                "Take an earlier checkpoint.",
                "weights",
            )
    if "optimizer_state" not in done:
        _optimizers(folder, c)
    _schedulers(folder, c)
    _scaler(folder, c)
    _position(folder, c)
    _registered(folder, c)


def _random(folder: Folder, c: Contents, numbered: dict[int, str]) -> None:
    if not numbered:
        c.part("rng", "missing", "no random_states_<rank>.pkl")
        c.find(
            "LIN-K008",
            "differs",
            "random_states_<rank>.pkl are missing for all ranks: other random numbers, and load_state says so in one "
            "line of info",
            "Copy them again from the nodes that wrote them, or declare that random states are not restored.",
            "rng",
        )
        return
    ranks.rng(
        c, numbered, max(numbered) + 1, "random_states_{}.pkl", "load_state says so in one line of info"
    )
    # `load_accelerator_state` takes whatever goes wrong with this file for a line of info.
    found = taking.each(c, folder, [numbered[r] for r in sorted(numbered)], "rng", "differs")
    made = found.get(numbered[min(numbered)])
    value = made.value if made and isinstance(made.value, dict) else {}
    step = value.get("step")
    if isinstance(step, int) and step > 0:
        # `Accelerator.step` counts calls of accumulate(), so it is no count of updates.
        c.facts["accumulate_calls"] = step
    named = re.search(r"(?:step|iter|update|checkpoint)[-_]?(\d+)", c.name)
    if named and not c.name.startswith("checkpoint_"):
        c.step, c.step_from = int(named[1]), f"the folder's name {c.name}"


def _models(folder: Folder, c: Contents) -> None:
    """model.safetensors is number 0; with shards under an index nothing is numbered so."""
    found = _numbered(folder, "(?:pytorch_)?model", "(?:safetensors|bin)")
    sharded = any(n.endswith(weights.INDEX) for n in folder.names())
    gone = [i for i in range(max(found) + 1) if i not in found] if found and not sharded else []
    if gone:
        name = f"model_{gone[0]}.safetensors" if gone[0] else "model.safetensors"
        c.find(
            "LIN-K004",
            "fails",
            f"{name} is missing, and {found[max(found)]} is there: load_state stops at it",
            "Copy it again, or take an earlier checkpoint.",
            "weights",
        )
        c.parts["weights"].status = "partial"


def _registered(folder: Folder, c: Contents) -> None:
    """custom_checkpoint_<i>.pkl: `load_state` stops where one cannot be read, or where there are more or fewer."""
    found = {int(m[1]): n for n in folder.names() if (m := re.fullmatch(r"custom_checkpoint_(\d+)\.pkl", n))}
    if not found:
        return
    c.facts["registered_objects"] = len(found)
    taking.each(c, folder, [found[i] for i in sorted(found)], None)
    gone = [i for i in range(max(found) + 1) if i not in found]
    if gone:
        c.find(
            "LIN-K001",
            "fails",
            f"custom_checkpoint_{gone[0]}.pkl is missing, and {found[max(found)]} is there: load_state counts the "
            "objects that were registered, and stops",
            "Copy it again, or take an earlier checkpoint.",
        )


def _numbered(folder: Folder, stem: str, end: str = "bin") -> dict[int, str]:
    """optimizer.bin is number 0, optimizer_1.bin number 1."""
    found = {}
    for n in folder.names():
        if m := re.fullmatch(rf"{stem}(?:_(\d+))?\.{end}", n):
            found[int(m[1] or 0)] = n
    return found


def _gap(c: Contents, found: dict[int, str], stem: str, code: str, component: str) -> None:
    gone = [i for i in range(max(found) + 1) if i not in found]
    if gone:
        name = f"{stem}.bin" if gone[0] == 0 else f"{stem}_{gone[0]}.bin"
        c.find(
            code,
            "fails",
            f"{name} is missing, and {found[max(found)]} is there: load_state stops at it",
            "Copy it again, or take an earlier checkpoint.",
            component,
        )


def _optimizers(folder: Folder, c: Contents) -> None:
    found = _numbered(folder, "optimizer")
    if not found:
        c.part("optimizer_state", "missing", "no optimizer.bin")
        c.part("optimizer_step", "missing", "no optimizer.bin")
        c.find(
            "LIN-K005",
            "fails",
            "optimizer.bin is missing: load_state stops when an optimizer was prepared",
            "Take an earlier checkpoint; without a prepared optimizer the weights alone would be loaded.",
            "optimizer_state",
            certain=False,
        )
        return
    _gap(c, found, "optimizer", "LIN-K005", "optimizer_state")
    states: list[Part] = []
    steps: list[Part] = []
    for _, name in sorted(found.items()):
        made = taking.torch(c, folder, name, "optimizer_state")
        if made is None or not optimizer.looks(made.value):
            states.append(Part("optimizer_state", "partial", f"{name} could not be read", [name]))
            continue
        state = optimizer.state(made.value, made, folder)
        optimizer.check(c, state, name, skips=folder.has("scaler.pt"))
        states.append(c.parts["optimizer_state"])
        steps.append(c.parts["optimizer_step"])
        if len(found) == 1:
            optimizer.shapes(c, state, name)
        c.tensors += made.tensors("optimizer_state", made.value["state"])
        c.shards.append(name)
    _together(c, "optimizer_state", states)
    _together(c, "optimizer_step", steps)


def _together(c: Contents, component: str, parts: list[Part]) -> None:
    """One line for several files: as bad as the worst of them, and all that they say."""
    if not parts:
        c.part(component, "unknown", "no file of it could be read")
        return
    told = [p for p in parts if p.status != "unknown"] or parts[:1]
    kinds = {p.status for p in told}
    status = told[0].status if len(kinds) == 1 else "partial"
    texts = dict.fromkeys(p.text for p in told)
    c.part(component, status, "; ".join(texts), *[f for p in parts for f in p.files])


def _schedulers(folder: Folder, c: Contents) -> None:
    found = _numbered(folder, "scheduler")
    if not found:
        c.part("lr_scheduler", "missing", "no scheduler.bin: none was prepared, or it is lost")
        c.find(
            "LIN-K006",
            "differs",
            "there is no scheduler.bin: load_state stops when a scheduler was prepared, and one that was not prepared "
            "starts anew",
            "Prepare or register the scheduler, so that save_state keeps it.",
            "lr_scheduler",
            certain=False,
        )
        return
    _gap(c, found, "scheduler", "LIN-K006", "lr_scheduler")
    told = []
    for _, name in sorted(found.items()):
        made = taking.torch(c, folder, name, "lr_scheduler")
        value = made.value if made and isinstance(made.value, dict) else {}
        # AcceleratedScheduler steps once for each process (scheduler.py), so that its count is no step.
        told.append(f"{name}: at {value.get('last_epoch')}" if made else f"{name} could not be read")
    c.part("lr_scheduler", "present", "; ".join(told), *found.values())


def _scaler(folder: Folder, c: Contents) -> None:
    if folder.has("scaler.pt"):
        made = taking.torch(c, folder, "scaler.pt", "grad_scaler")
        scale = made.value.get("scale") if made and isinstance(made.value, dict) else None
        c.part("grad_scaler", "present" if made else "partial", f"scaler.pt: scale {scale}", "scaler.pt")
        return
    half = any(t.dtype == "float16" for t in c.tensors)
    c.part("grad_scaler", "missing" if half else "unknown", "no scaler.pt; only fp16 has one")


def _position(folder: Folder, c: Contents) -> None:
    held = sorted(_numbered(folder, "dl_state_dict").values()) + sorted(_numbered(folder, "sampler").values())
    for name in held:
        taking.torch(c, folder, name, "loader_position")
    if held:
        c.part("loader_position", "present", ", ".join(held), *held)
        return
    c.part("loader_position", "missing", "no dl_state_dict.bin")
    c.find(
        "LIN-K009",
        "differs",
        "the loader's position is not saved: unless the loop calls skip_first_batches, the data begin anew",
        "Set use_stateful_dataloader=True, or skip the batches that were seen.",
        "loader_position",
    )
