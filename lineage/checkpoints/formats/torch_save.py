"""One file of torch.save that a training loop wrote: a dict with the components by their usual names, or a state_dict.

Layout of the file: see torch_file.py. What stands in it is the loop's choice: components are told by name.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from .. import optimizer, taking, torch_file, words
from ..contents import Contents
from ..folder import Folder
from ..pickle_values import Made

NAME = "torch_save"
_SAVE = "Save it too, or declare in the record that it is not restored."


def looks(folder: Folder) -> bool:
    """A file that begins as torch.save's do, or that bears the name of one and was never written."""
    name = folder.only
    if not name:
        return False
    head = torch_file.head_of(folder, name)
    if torch_file.looks(head) is not None:
        return True
    if name.endswith((".pt", ".pth", ".ckpt", ".pkl")):
        return head[8:9] != b"{"  # safetensors under another name
    pickled = head[:1] == b"\x80" or not any(head) or torch_file.pointer(head)
    return pickled and name.endswith((".bin", ".tar"))


def read(folder: Folder, c: Contents) -> None:
    """List tensors and components of the file."""
    name = str(folder.only)
    c.shards = [name]
    c.title = "a file of torch.save"
    made = taking.torch(c, folder, name, "weights")
    if made is None:
        c.part("weights", "partial", f"{name} cannot be read", name)
        return
    describe(folder, c, made)


def describe(folder: Folder, c: Contents, made: torch_file.TorchFile) -> None:
    """The same for a file that was taken apart already."""
    kind = "zip" if made.kind == "zip" else "form before torch 1.6"
    c.title = f"a file of torch.save ({kind})"
    value = made.value
    if isinstance(value, Made):
        value = value.state if isinstance(value.state, dict) else {**value.pairs}
        c.facts["object"] = made.value.of
    found = words.step_of(value)
    if found:
        c.step, c.step_from = found[0], f"the key {found[1]!r}"
    if optimizer.looks(value):
        _alone(folder, c, made, value)
        return
    module = isinstance(value, dict) and {"_parameters", "_modules"} <= value.keys()
    whole = module or words.mostly_tensors(value) or not isinstance(value, dict)
    parts = {"weights": value} if whole else _parts(value)
    if said := words.half(value):
        c.facts["fp16_said"] = said
    if not made.refs and not (isinstance(value, dict) and _parts(value)):
        _nothing(c, made)
        return
    _weights(c, made, parts.get("weights"))
    if module:
        _module(c, made)
    _optimizer(folder, c, made, parts.get("optimizer_state"), alone=whole)
    _rest(c, parts, alone=whole)


_INSIDE = re.compile(r"(?:^|\.)_(?:modules|parameters|buffers)(?=\.)")


def _module(c: Contents, made: torch_file.TorchFile) -> None:
    """A module that was pickled as it is (`torch.save(model)`): its tensors have the names of its state_dict."""
    c.tensors = [replace(t, name=_INSIDE.sub("", t.name).lstrip(".")) for t in c.tensors]
    c.title = f"a whole module in a file of torch.save ({c.facts['object']}; loading it imports its classes)"


def _nothing(c: Contents, made: torch_file.TorchFile) -> None:
    """A file without tensors is no checkpoint; what else it lacks need not be said."""
    c.part("weights", "missing", "no tensor")
    c.find(
        "LIN-K004",
        "fails",
        f"{made.name} holds no tensor: it is no checkpoint, or the file of another component",
        "Name the checkpoint's folder, or take another file.",
        "weights",
    )


def _parts(value: dict[Any, Any]) -> dict[str, Any]:
    """Component -> what stands under its name; several random states are put together."""
    out: dict[str, Any] = {}
    for key, v in value.items():
        of = words.component(key)
        if of is not None and v not in (None, {}, []):
            out[of] = {**out[of], str(key): v} if of == "rng" and of in out else {str(key): v}
    return {k: next(iter(v.values())) if len(v) == 1 else v for k, v in out.items()}


def _weights(c: Contents, made: torch_file.TorchFile, value: Any) -> None:
    if value is None:
        c.part("weights", "missing", "no key of a model")
        if not made.refs:
            return
        c.find(
            "LIN-K004",
            "fails",
            f"{made.name} holds {len(made.refs):,} tensors, and none under a name of a model",
            "Look at --tensors: if the weights have another name there, the rest of this report stands.",
            "weights",
            certain=False,
        )
        c.tensors += made.tensors("unknown")
        return
    mine = made.tensors("weights", value)
    c.tensors += mine
    c.part(
        "weights",
        "present" if mine else "missing",
        f"{len(mine):,} tensor{'s' if len(mine) != 1 else ''}",
        made.name,
    )


def _optimizer(folder: Folder, c: Contents, made: torch_file.TorchFile, value: Any, *, alone: bool) -> None:
    states = value if isinstance(value, list) else list(value.values()) if _many(value) else [value]
    states = [s for s in states if optimizer.looks(s)]
    for i, s in enumerate(states):
        state = optimizer.state(s, made, folder)
        what = "the optimizer" if len(states) == 1 else f"optimizer {i}"
        optimizer.check(c, state, what)
        if len(states) == 1:
            optimizer.shapes(c, state, what)
        c.tensors += made.tensors("optimizer_state", s["state"])
    if states:
        c.tensors += made.tensors("unknown", _unnamed(made.value))
        optimizer.masters(c, made.name)
        return
    c.part("optimizer_state", "missing", "no key of an optimizer's state_dict")
    c.part("optimizer_step", "missing", "no optimizer")
    c.find(
        "LIN-K005",
        "differs",
        f"there {'are weights and nothing else' if alone else 'is no state of an optimizer'} in {made.name}: a resume "
        "starts with new moments and step counters",
        "Save optimizer.state_dict() too, or declare in the record that it is not restored.",
        "optimizer_state",
    )


def _unnamed(value: Any) -> Any:
    """What stands at the top of a saved dict under a name of no component."""
    return {k: v for k, v in value.items() if words.component(k) is None} if isinstance(value, dict) else {}


def _many(value: Any) -> bool:
    return (
        isinstance(value, dict) and not optimizer.looks(value) and any(map(optimizer.looks, value.values()))
    )


def _rest(c: Contents, parts: dict[str, Any], *, alone: bool) -> None:
    if "lr_scheduler" in parts:
        first = parts["lr_scheduler"]
        first = first[0] if isinstance(first, list) and first else first
        optimizer.scheduler(c, first, "the scheduler", skips=True)
    for component, code, what in (
        ("lr_scheduler", "LIN-K006", "a scheduler"),
        ("rng", "LIN-K008", "random states"),
        ("loader_position", "LIN-K009", "a loader's position"),
    ):
        if component in parts:
            if component not in c.parts:
                c.part(component, "present", "by its name")
            continue
        c.part(component, "missing", "no key")
        if not alone:
            c.find(code, "differs", f"there is no key of {what}: a resume goes on without", _SAVE, component)
    if "grad_scaler" in parts:
        c.part("grad_scaler", "present", "by its name")
    else:
        scaler(c, quiet=alone)


def scaler(c: Contents, *, quiet: bool = False, in_files: bool = False) -> None:
    """Say that there is no gradient scaler, and whether the run needs one as far as dtypes and settings tell."""
    by_dtype = "weights are float16" if any(t.dtype == "float16" for t in c.tensors) else None
    said = c.facts.get("fp16_said")
    why = f"{said} says fp16" if said else by_dtype
    where = "no file and no key" if in_files else "no key"
    c.part("grad_scaler", "missing" if why else "unknown", f"{where}; {why or 'only fp16 needs one'}")
    if why and not quiet:
        c.find(
            "LIN-K007",
            "differs",
            f"{why}, and there is {where} of a gradient scaler: its scale starts anew, and the first updates may be "
            "skipped",
            _SAVE,
            "grad_scaler",
            certain=False,
        )


def _alone(folder: Folder, c: Contents, made: torch_file.TorchFile, value: Any) -> None:
    """A file that is an optimizer's state_dict itself."""
    optimizer.check(c, optimizer.state(value, made, folder), made.name)
    c.tensors += made.tensors("optimizer_state", value["state"])
    c.part("weights", "missing", "the file is an optimizer's state alone")
    c.find(
        "LIN-K004",
        "differs",
        f"{made.name} is an optimizer's state alone",
        "Name the checkpoint's folder to see all of it.",
        "weights",
    )
