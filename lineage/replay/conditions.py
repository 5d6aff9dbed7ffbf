"""What a replay may change: one condition each, with the evidence that it was really changed."""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch

from .._rooms import schemas
from .building import Built
from .operations import Census


class ConditionError(ValueError):
    """A change that cannot be made; the text says which there are, or what is missing."""


@dataclass
class Shown:
    """What the runs showed of the machine: by this a change is told from a wish."""

    census: Census | None = None
    """of the changed run, None where something was compiled and operators cannot be counted"""
    control: Census | None = None
    """of the run with nothing changed"""
    compiled: int = 0
    """graphs that were compiled for the changed step"""
    compiled_control: int = 0
    """graphs that were compiled in the run with nothing changed"""
    facts: dict[str, Any] = field(default_factory=dict)
    """what the condition itself noted"""


Evidence = tuple[str, str]
"""(yes, no or not_shown; in words)"""


@dataclass(frozen=True)
class Condition:
    """One thing that may be changed."""

    name: str
    what: str
    """in words, for the help"""
    evidence: Callable[[Shown], Evidence]
    around: Callable[[dict[str, Any]], AbstractContextManager[Any]] = lambda facts: contextlib.nullcontext()
    """a context for the bad step; it may note facts"""
    model: Callable[[Built, dict[str, Any]], None] = lambda built, facts: None
    """done to the model just before the bad step"""
    start: Callable[[Built, dict[str, Any]], None] = lambda built, facts: None
    """done to what build gave when the state was brought in, before any update is made again"""
    batch: bool = False
    """whether it changes the batch, see `batches`"""
    argument: str | None = None
    """what stands after the colon, in words; None for none"""


@contextlib.contextmanager
def _no_autocast(facts: dict[str, Any]) -> Iterator[None]:
    """Autocast stays off wherever it is asked for: an outer `enabled=False` does not hold within the loop's own."""
    from torch.amp.autocast_mode import autocast

    forget_graphs()  # one that was compiled with autocast on would run on
    enter = autocast.__enter__

    def off(self: Any) -> Any:
        facts["autocast"] = facts.get("autocast", 0) + int(bool(self._enabled))
        self._enabled = False
        return enter(self)

    autocast.__enter__ = off
    try:
        yield
    finally:
        autocast.__enter__ = enter


@contextlib.contextmanager
def _full_width(facts: dict[str, Any]) -> Iterator[None]:
    """Products and convolutions of float32 in float32: TF32 has ten bits of mantissa, as float16 has."""
    cudnn = torch.backends.cudnn.allow_tf32
    products = torch.get_float32_matmul_precision()
    facts["narrow"] = [
        n for n, on in (("matrix products", products != "highest"), ("convolutions", cudnn)) if on
    ]
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = cudnn


@contextlib.contextmanager
def _all_float32(facts: dict[str, Any]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(_no_autocast(facts))
        try:
            stack.enter_context(_full_width(facts))
        except (
            RuntimeError
        ) as e:  # the code has set them by torch's newer switches, which do not mix with these
            facts["tf32_left"] = str(e).partition(".")[0]
        yield


def _narrow(s: Shown) -> list[str]:
    """What of float32 was made in TF32 or less before the change, as far as such operators ran."""
    ran = list(s.control.operators) if s.control is not None else []
    words = {"matrix products": ("mm", "matmul", "linear"), "convolutions": ("convolution",)}
    on_gpu = torch.cuda.is_initialized()
    return [
        name
        for name in s.facts.get("narrow", [])
        if (on_gpu or name == "matrix products") and any(w in op for op in ran for w in words[name])
    ]


def _to_float(built: Built, facts: dict[str, Any]) -> None:
    tensors = [*built.model.parameters(), *built.model.buffers()]
    facts["lower"] = sum(1 for t in tensors if t.dtype in (torch.float16, torch.bfloat16))
    built.model.float()
    states = built.optimizer.state.values() if built.optimizer is not None else ()
    for state in states:
        for key, value in state.items():
            if hasattr(value, "dtype") and value.dtype in (torch.float16, torch.bfloat16):
                state[key] = value.float()
    if built.scaler is not None:
        facts["scaler"] = True


def _fp32(s: Shown) -> Evidence:
    if s.census is None:
        return "not_shown", "a compiled graph ran, in which types are not looked at"
    if s.census.lower:
        some = ", ".join(list(s.census.lower)[:3])
        return "no", f"16-bit results all the same, of {some}: the code asks for that type by itself"
    if s.facts.get("tf32_left"):
        return "not_shown", f"whether TF32 is off is not known: {s.facts['tf32_left']}"
    if narrow := _narrow(s):
        return (
            "yes",
            f"no result was of a 16-bit type, and {' and '.join(narrow)} are not in TF32 any more",
        )
    if s.control is not None and not s.control.lower and not s.facts.get("lower"):
        return "no", "no result was of a 16-bit type before the change either"
    return "yes", "no result was of a 16-bit type"


@contextlib.contextmanager
def _math_attention(facts: dict[str, Any]) -> Iterator[None]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        yield


def _sdpa(s: Shown) -> Evidence:
    if s.census is None:
        return "not_shown", "a compiled graph ran, in which attention kernels are not looked at"
    if s.census.fused_attention:
        return "no", f"{s.census.fused_attention[0]} ran all the same: the code calls it by itself"
    if s.control is not None and not s.control.fused_attention:
        return (
            "not_shown",
            "no fused attention of torch ran before the change; a custom one may look at the switch",
        )
    return "yes", "no fused attention ran, and one did before the change"


@contextlib.contextmanager
def _eager(facts: dict[str, Any]) -> Iterator[None]:
    with torch.compiler.set_stance("force_eager"):
        yield


def _compile(s: Shown) -> Evidence:
    if not s.compiled_control:
        return "no", "nothing was compiled before the change either"
    if s.compiled:
        return "no", f"{s.compiled} graphs were compiled all the same"
    return "yes", f"nothing was compiled, and {s.compiled_control} graphs were before the change"


@contextlib.contextmanager
def _deterministic(facts: dict[str, Any]) -> Iterator[None]:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    was = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    cudnn = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    facts["was"] = was[0] and not was[1]
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            said_so = [str(w.message) for w in said if "deterministic" in str(w.message)]
            facts["without"] = sorted({text.partition(" ")[0] for text in said_so})
            torch.use_deterministic_algorithms(was[0], warn_only=was[1])
            torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = cudnn


def _determined(s: Shown) -> Evidence:
    if s.facts.get("was"):
        return "no", "deterministic kernels were on before the change"
    if s.facts.get("without"):
        return "not_shown", f"there is no deterministic kernel for {', '.join(s.facts['without'][:3])}"
    return "yes", "deterministic kernels were switched on, and every operator had one"


@contextlib.contextmanager
def _anomaly(facts: dict[str, Any]) -> Iterator[None]:
    with warnings.catch_warnings(record=True) as said, torch.autograd.set_detect_anomaly(True):
        warnings.simplefilter("always")
        yield
    facts["trace"] = [str(w.message) for w in said if "Traceback of forward call" in str(w.message)]


def _reset(built: Built, facts: dict[str, Any]) -> None:
    if built.optimizer is not None:
        facts["had"] = sum(1 for s in built.optimizer.state.values() if s)
        built.optimizer.state.clear()


def _was_reset(s: Shown) -> Evidence:
    had = s.facts.get("had", 0)
    if not had:
        return "no", "the optimizer had no state before the change either"
    if not s.facts.get("updates"):
        return "not_shown", (
            "loss and gradients come before the optimizer is used: it can only show in what the update leaves, or "
            "where updates before the step are made again"
        )
    return "yes", f"the state of {had} parameters was emptied before {s.facts['updates']} updates"


def _hooked(s: Shown) -> Evidence:
    n = s.facts.get("seen", 0)
    return ("yes", f"{n} values were looked at, in eager mode") if n else ("no", "no module was run")


def _one_device(s: Shown) -> Evidence:
    world = s.facts.get("world", 1)
    if world == 1:
        return "no", "the run had one rank"
    if s.facts.get("control") != world:
        return "no", (
            "what it is held against was made on one device too. Make it at the run's size first: torchrun "
            f"--nproc-per-node {world} -m lineage replay, without --change"
        )
    return "yes", f"one process, and {world} ranks made the replay that it is held against"


def _batch_changed(s: Shown) -> Evidence:
    return s.facts.get("evidence", ("not_shown", "the batch was not compared"))  # type: ignore[no-any-return]


CONDITIONS: Mapping[str, Condition] = {
    c.name: c
    for c in (
        Condition(
            "fp32", "weights and arithmetic in float32, autocast and TF32 off", _fp32, _all_float32, _to_float
        ),
        Condition("math-sdpa", "attention by plain operators, the fused kernels off", _sdpa, _math_attention),
        Condition("no-compile", "torch.compile off", _compile, _eager),
        Condition("deterministic", "deterministic kernels", _determined, _deterministic),
        Condition(
            "other-rank-batch",
            "the batches of another rank at the same step",
            _batch_changed,
            batch=True,
            argument="the rank; the next one that has a bundle by default",
        ),
        Condition(
            "without-sample",
            "the batch without one sample",
            _batch_changed,
            batch=True,
            argument="its place, as 5; with several micro-batches as 1.5",
        ),
        Condition("single-device", "one process in place of the run's ranks", _one_device),
        Condition("anomaly-mode", "torch's anomaly detection", lambda s: ("yes", "it was on"), _anomaly),
        Condition("eager-hooks", "in eager mode, every module and operator looked at", _hooked, _eager),
        Condition(
            "optimizer-reset", "the optimizer's moments and counters emptied", _was_reset, start=_reset
        ),
    )
}


@dataclass(frozen=True)
class Change:
    """A condition that was asked for, with its argument."""

    condition: Condition
    argument: str | None = None

    @property
    def name(self) -> str:
        """The condition's name."""
        return self.condition.name

    def record(self, shown: Shown) -> schemas.ReplayChange:
        """What is recorded of it."""
        in_effect, text = self.condition.evidence(shown)
        return schemas.ReplayChange(name=self.name, argument=self.argument, in_effect=in_effect, text=text)


def parse(asked: Sequence[str]) -> list[Change]:
    """Read what was asked for, as `fp32` or `without-sample:5`. Raises `ConditionError`."""
    out = []
    for text in asked:
        name, argument = _split(text)
        condition = CONDITIONS.get(name)
        if condition is None:
            near = difflib.get_close_matches(name, CONDITIONS, 1)
            meant = f"did you mean {near[0]}? " if near else ""
            raise ConditionError(f"--change {text}: {meant}there are {', '.join(CONDITIONS)}")
        if argument is not None and condition.argument is None:
            raise ConditionError(f"--change {text}: {name} takes no argument")
        if name == "without-sample" and (argument is None or not argument.replace(".", "", 1).isdigit()):
            raise ConditionError(
                f"--change {text}: say which sample: without-sample:5, or without-sample:1.5 for one of micro-batch 1"
            )
        if name == "other-rank-batch" and argument is not None and not argument.isdigit():
            raise ConditionError(f"--change {text}: the rank is a number, as other-rank-batch:3")
        out.append(Change(condition, argument))
    if len({c.name for c in out}) != len(out):
        raise ConditionError("the same change was asked for twice")
    return out


def _split(text: str) -> tuple[str, str | None]:
    for mark in (":", "=", " "):
        name, found, argument = text.strip().partition(mark)
        if found:
            return name, argument.strip()
    return text.strip(), None


@contextlib.contextmanager
def around(changes: Sequence[Change], facts: dict[str, dict[str, Any]]) -> Iterator[None]:
    """All changes in effect, for the bad step."""
    with contextlib.ExitStack() as stack:
        for change in changes:
            stack.enter_context(change.condition.around(facts.setdefault(change.name, {})))
        yield


def graphs() -> int:
    """Graphs that torch has compiled in this process so far."""
    utils = sys.modules.get("torch._dynamo.utils")
    return int(utils.counters["stats"].get("unique_graphs", 0)) if utils is not None else 0


def forget_graphs() -> None:
    """Drop what was compiled: each run builds a model of its own, and after eight of a kind torch compiles no more."""
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
