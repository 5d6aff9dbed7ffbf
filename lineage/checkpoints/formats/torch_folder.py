"""A folder of files of torch.save that a training loop wrote: `state.pt` alone, or `model.pt` and `optimizer.pt`.

No framework lays it down. What each file is, its keys tell as in `torch_save`, else its name. Weights may lie in
safetensors beside them, the step in a small JSON file or in the folder's name. Files of ranks are told by `rank` in
their names; files that differ by another number, each with weights of its own, are checkpoints of several steps.
"""

from __future__ import annotations

import re
from typing import Any

from .. import optimizer, taking, torch_file, weights, words
from ..contents import COMPONENTS, Contents, Part
from ..folder import Folder
from ..sources import AHEAD
from . import opaque, ranks, torch_save

NAME = "torch_folder"
MOST = 512
"""Files that are taken apart; of a folder with more of them nothing is said."""
_ENDS = (".pt", ".pth", ".ckpt", ".bin", ".tar", ".pkl")
_OTHERS = {"training_args.bin"}
_RANK = re.compile(r"(?:^|[._-])(?:[a-z]{2}_)?rank[._-]?(\d+)", re.IGNORECASE)
_STEP = re.compile(r"(?:step|iter|iteration|update|checkpoint|ckpt)[-_=]?(\d+)", re.IGNORECASE)
_MISSING = {"LIN-K004", "LIN-K005", "LIN-K006", "LIN-K007", "LIN-K008", "LIN-K009"}
"""What one file lacks another one may have."""


def files(folder: Folder) -> list[str]:
    """The files of torch.save directly in a folder, by their names; those of other layouts left out."""
    found = [n for n in folder.names() if n.endswith(_ENDS) and n not in _OTHERS]
    other = set(weights.candidates(folder)) if found else set()
    return [n for n in found if n not in other]


def looks(folder: Folder) -> bool:
    """One of the first files with such a name begins as torch.save's do."""
    if folder.only:
        return False
    found = files(folder)
    return 0 < len(found) <= MOST and any(
        torch_file.looks(torch_file.head_of(folder, n)) is not None for n in found[:8]
    )


def read(folder: Folder, c: Contents) -> None:
    """Put together what the files hold; say what none of them does."""
    c.title = "files of torch.save in a folder"
    names = files(folder)
    folder.ahead(names, first=48, last=AHEAD)
    found: dict[str, Contents] = {}
    for name in names:
        if made := taking.torch(c, folder, name, words.component(_stem(name))):
            inner = found[name] = Contents(c.path, NAME, "")
            _describe(folder, inner, made, name)
    several = _several(found)
    if several:
        some = ", ".join(sorted(several, key=lambda n: (len(n), n))[-5:])
        c.find(
            "LIN-K016",
            "fine",
            f"this is a folder with {len(several)} checkpoints in it: {some}",
            "Name one of them.",
        )
        c.format = opaque.NAME
        return
    _step(folder, c, found)
    for inner in found.values():
        _take(c, inner)
    if c.parts.get("weights", Part("weights", "missing", "")).status == "missing" and weights.candidates(
        folder
    ):
        weights.read(c, folder)
    _ranks(c, names)
    _lacks(c, list(found))


def _stem(name: str) -> str:
    """A file's name without its end, rank and numbers: `optimizer_rank_3.pt` -> `optimizer`."""
    return re.sub(r"[._-]*\d*$", "", _RANK.sub("", name.rpartition(".")[0])) or name


def _describe(folder: Folder, c: Contents, made: torch_file.TorchFile, name: str) -> None:
    """What one file is, by its content, else by its name."""
    value = made.value
    of = words.component(_stem(name))
    alone = isinstance(value, dict) and not any(words.component(k) for k in value)
    if of in (None, "weights", "optimizer_state") or not (alone or not isinstance(value, dict)):
        torch_save.describe(folder, c, made)
        return
    c.shards = [name] if made.refs else []
    if of == "lr_scheduler":
        optimizer.scheduler(c, value, name, skips=True)
    else:
        c.part(str(of), "present", name, name)


def _several(found: dict[str, Contents]) -> list[str]:
    """Files of one name but for a number that is no rank, each with weights: checkpoints beside each other."""
    by: dict[str, list[str]] = {}
    for name, c in found.items():
        held = c.parts.get("weights")
        if held is not None and held.status == "present" and not _RANK.search(name):
            by.setdefault(re.sub(r"\d+", "*", name), []).append(name)
    return max((n for n in by.values() if len(n) > 1), key=len, default=[])


def _step(folder: Folder, c: Contents, found: dict[str, Contents]) -> None:
    steps = {inner.step: name for name, inner in found.items() if inner.step is not None}
    if steps:
        low = min(steps)
        c.step, c.step_from = low, f"{steps[low]}: {found[steps[low]].step_from}"
    if len(steps) > 1:
        said = ", ".join(f"{n} at {s:,}" for s, n in sorted(steps.items())[:3])
        c.find(
            "LIN-K012",
            "fails",
            f"the files are of several steps: {said}",
            "Take a checkpoint whose files are of one save.",
        )
    for name in folder.names() if c.step is None else ():
        if name.endswith(".json") and not name.startswith("lineage") and folder.entries[name].size < 1 << 20:
            told = words.step_of(taking.json(c, folder, name))
            if told is not None:
                c.step, c.step_from = told[0], f"{name}: {told[1]}"
                return
    if c.step is None and (m := _STEP.search(c.name)):
        c.step, c.step_from = int(m[1]), f"the folder's name {c.name}"


def _take(c: Contents, inner: Contents) -> None:
    """Add what one file holds; what it lacks is asked of all files together."""
    c.tensors += inner.tensors
    c.shards += inner.shards
    c.facts |= inner.facts
    for name, part in inner.parts.items():
        held = c.parts.get(name)
        if part.status not in ("missing", "unknown") or held is None:
            c.parts[name] = part
    for f in inner.findings:
        if f.code not in _MISSING or "no moments" in f.text or "no state for any" in f.text:
            c.find(f.code, f.severity, f.text, f.remedy, f.component, certain=f.certain)


def _ranks(c: Contents, names: list[str]) -> None:
    numbered = {int(m[1]): n for n in names if (m := _RANK.search(n))}
    if not numbered:
        return
    c.world = max(numbered) + 1
    gone = [r for r in range(c.world) if r not in numbered]
    if gone:
        c.find(
            "LIN-K001",
            "fails",
            f"there are files of {ranks.count(len(numbered))}, and those of {ranks.which(gone)} are missing",
            "Copy them again from the nodes of those ranks, or take an earlier checkpoint.",
        )


def _lacks(c: Contents, names: list[str]) -> None:
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    lost: dict[str, tuple[str, str, Any]] = {
        "weights": ("LIN-K004", "of a model", "fails"),
        "optimizer_state": ("LIN-K005", "of an optimizer", "differs"),
        "lr_scheduler": ("LIN-K006", "of a scheduler", "differs"),
        "rng": ("LIN-K008", "of random states", "differs"),
        "loader_position": ("LIN-K009", "of a loader's position", "differs"),
    }
    for component in COMPONENTS:
        held = c.parts.get(component)
        if held is not None and held.status not in ("missing", "unknown"):
            continue
        if held is None:
            c.part(component, "missing", "no file and no key")
        if component in lost and not any(f.component == component for f in c.findings):
            code, what, severity = lost[component]
            c.find(
                code,
                severity,
                f"there is no file and no key {what} in {shown}: a resume "
                + ("has nothing to load" if component == "weights" else "goes on without"),
                "Save it too, or declare in the record that it is not restored.",
                component,
                certain=component != "weights",
            )
    if c.parts["grad_scaler"].status in ("missing", "unknown"):
        torch_save.scaler(c, in_files=True)
