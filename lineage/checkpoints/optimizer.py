"""What an optimizer's and a scheduler's state_dict hold, and whether a resume would find its moments.

torch/optim/optimizer.py, `state_dict`: {"state": {index: {...}}, "param_groups": [{..., "params": [index]}]}; with
FSDP and DCP the keys are names of parameters.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from .contents import Contents
from .folder import Folder
from .pickle_values import TensorRef
from .torch_file import TorchFile

_LOOKED = 4
"""Step counters that are read: a few bytes each."""


@dataclass
class State:
    """An optimizer at rest."""

    params: int
    held: int
    """parameters that have state"""
    moments: Counter[tuple[int, ...]] = field(default_factory=Counter)
    """shapes of the first moment, how often each"""
    kinds: set[str] = field(default_factory=set)
    """names of the tensors of a parameter, the step counter left out"""
    steps: list[float] = field(default_factory=list)
    needs: bool = True
    """False where the optimizer keeps nothing, as SGD without momentum"""


def looks(value: Any) -> bool:
    """Whether a value is an optimizer's state_dict."""
    return isinstance(value, dict) and isinstance(value.get("param_groups"), list) and "state" in value


def state(value: Any, file: TorchFile, folder: Folder) -> State:
    """Read a state_dict for which `looks` holds."""
    groups = [g for g in value["param_groups"] if isinstance(g, dict)]
    held = value["state"] if isinstance(value["state"], dict) else {}
    made = State(sum(len(g.get("params") or ()) for g in groups), 0)
    made.needs = not groups or not all(_keeps_nothing(g) for g in groups)
    numbers = []
    for entry in held.values():
        if not isinstance(entry, dict) or not entry:
            continue
        made.held += 1
        for key, v in entry.items():
            if key == "step":
                numbers.append(v)
            elif isinstance(v, TensorRef):
                made.kinds.add(str(key))
                if key in ("exp_avg", "momentum_buffer"):
                    made.moments[v.shape] += 1
    looked = numbers if len(numbers) <= _LOOKED else [*numbers[: _LOOKED - 1], numbers[-1]]
    found = [file.number(folder, v) for v in looked]
    made.steps = [float(n) for n in found if n is not None]
    return made


def _keeps_nothing(group: dict[str, Any]) -> bool:
    return group.get("momentum") == 0 and "betas" not in group


def check(c: Contents, made: State, what: str, *, skips: bool = False) -> None:
    """Say what is missing in an optimizer's state. `skips`: steps may have been skipped, as with a scaler."""
    remedy = (
        "Resume from a checkpoint that has the moments, or warm the learning rate up again and say so in "
        "the record."
    )
    started = c.step is None or c.step > 0
    if made.needs and started and made.params and not made.held:
        c.find(
            "LIN-K005",
            "differs",
            f"{what} holds no state for any of its {made.params:,} parameters: no moments, no step counters",
            remedy,
            "optimizer_state",
        )
        c.part("optimizer_state", "missing", f"{what} is there, without state")
        c.part("optimizer_step", "missing", "no step counter")
        return
    if made.needs and made.held and not made.kinds:
        c.find("LIN-K005", "differs", f"{what} holds step counters and no moments", remedy, "optimizer_state")
        c.part("optimizer_state", "missing", f"{what} has no moments")
    else:
        kinds = ", ".join(sorted(made.kinds)) or "nothing kept, as this optimizer needs"
        c.part("optimizer_state", "present", f"{what}: {made.held:,} of {made.params:,} parameters: {kinds}")
    counters(c, made.steps, what, moments=bool(made.kinds), skips=skips)


def counters(c: Contents, steps: list[float], what: str, *, moments: bool, skips: bool = False) -> None:
    """Hold step counters that were read against the step of the checkpoint. `moments`: whether there are any."""
    if not steps:
        c.part("optimizer_step", "unknown", "no step counter was found")
        return
    low, high = min(steps), max(steps)
    said = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    c.part("optimizer_step", "present", f"step counter {said}")
    if c.step is None or not c.step:
        return
    if high > c.step:
        c.find(
            "LIN-K012",
            "differs",
            f"{what} counts {high:g} updates, and the checkpoint says step {c.step:,}: the optimizer "
            "is of a later save",
            "Do not resume from it; take a checkpoint whose files are of one save.",
            "optimizer_step",
        )
    elif low == 0 and moments:
        c.find(
            "LIN-K005",
            "differs",
            f"{what} has moments and a step counter of 0 at step {c.step:,}: bias correction would start anew, and the "
            "first update be too large",
            "Set the counters to the step, or resume from another checkpoint.",
            "optimizer_step",
        )
    elif high < c.step and not skips:
        c.find(
            "LIN-K012",
            "differs",
            f"{what} counts {high:g} updates, and the checkpoint says step {c.step:,}: the optimizer is of an earlier "
            "save, was built anew in between, or skipped updates",
            "Look whether the run built a new optimizer; if not, take a checkpoint whose files are of one save.",
            "optimizer_step",
            certain=False,
        )


def shapes(c: Contents, made: State, what: str) -> None:
    """Say when moments have shapes that no weight of the checkpoint has."""
    weights = Counter(t.shape for t in c.tensors if t.component == "weights")
    if not weights or not made.moments:
        return
    over = made.moments - weights
    odd = {s: n for s, n in over.items() if s not in weights}
    if odd:
        some = ", ".join(str(list(s)) for s in sorted(odd)[:3])
        c.find(
            "LIN-K012",
            "fails",
            f"{what} holds moments of shapes that no weight here has ({some}): it is another "
            "model's, or another save's",
            "Do not resume from it; take a checkpoint whose files are of one save.",
            "optimizer_state",
            certain=False,
        )


def masters(c: Contents, what: str) -> None:
    """Say when weights are of 16 bits, moments of 32, and no float32 copy of the weights is kept.

    torch's own optimizers keep moments in the dtype of the weights; moments in float32 come from mixed precision with
    float32 master weights (apex O2, Megatron, DeepSpeed), which are lost when the weights are rebuilt from 16 bits.
    """
    weights = [t for t in c.tensors if t.component == "weights" and "float" in t.dtype]
    moments = [t for t in c.tensors if t.name.endswith(".exp_avg") and t.component == "optimizer_state"]
    if not weights or not moments or any(t.dtype not in ("float16", "bfloat16") for t in weights):
        return
    kinds = {
        t.name.rpartition(".")[2] for t in c.tensors if t.dtype == "float32" and t.component != "weights"
    }
    copies = kinds - {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "step"}
    if all(t.dtype == "float32" for t in moments) and not copies:
        c.find(
            "LIN-K005",
            "differs",
            f"weights are {weights[0].dtype} and the moments in {what} are float32, and no float32 copy of them "
            "is kept: if the run had master weights, a resume rounds them",
            "Save the optimizer's master weights too (apex: amp.state_dict and the fp32 groups).",
            "optimizer_state",
            certain=False,
        )


def scheduler(c: Contents, value: Any, what: str, *, skips: bool = False, stride: int = 1) -> None:
    """Say what a scheduler's state holds; `stride`: steps of the scheduler for each update, where known."""
    at = value.get("last_epoch", value.get("num_steps")) if isinstance(value, dict) else None
    if not isinstance(at, int):
        c.part("lr_scheduler", "present", f"{what}")
        return
    c.part("lr_scheduler", "present", f"{what}: at {at:,}")
    if c.step is None:
        return
    due = c.step * stride
    if at > due or (at < due and not skips):
        c.find(
            "LIN-K012",
            "differs",
            f"{what} stands at {at:,}, and the checkpoint says step {c.step:,}: the scheduler is of another save, or "
            "was stepped otherwise",
            "Compare its learning rate with what the run logged at that step before resuming.",
            "lr_scheduler",
            certain=at > due,
        )
