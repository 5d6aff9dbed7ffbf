"""The values in effect, read from live objects: what the run does, whatever its config asks for."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .._rooms import schemas
from . import schedule
from .names import patterns
from .reason import reason
from .watched import LINES, Watched

Read = tuple[Any, str]
"""(value, where it was read from)"""


@dataclass
class Seen:
    """What only a step shows: filled while training runs."""

    clip_threshold: float | None = None
    clip_value: float | None = None
    """the largest magnitude of a gradient's element, where clipping is by value"""
    clip_calls: int = 0
    samples_per_micro: int | None = None
    micro_batches: int | None = None
    length: int | None = None
    """tokens per sample, where all batches so far had the same"""
    lengths_vary: bool = False
    world_size: int = 1
    autocast: str | None = None
    activation_probes: bool = False
    _last: tuple[int, int] | None = None
    lr: float | None = None
    """the first group's rate in the last update"""
    modes: dict[str, Read] = field(default_factory=dict)
    """what the modules' training mode made of them in the last update, see `mode.Modes`"""
    lr_moved: bool = False
    """whether that rate was ever another one in this segment"""

    def batch(self, samples: int, micro_batches: int, tokens: int) -> None:
        """Take note of the first micro-batch of a step.

        A size or count counts once it has come twice in a row: an epoch ends with a smaller batch.
        """
        length = tokens // samples if samples else 0
        self.lengths_vary = self.lengths_vary or (self.length is not None and length != self.length)
        self.length = length or None
        if self.samples_per_micro is None or (samples, micro_batches) == self._last:
            self.samples_per_micro, self.micro_batches = samples, micro_batches
        self._last = (samples, micro_batches)

    def rate(self, lr: float) -> None:
        """Take note of the rate of one update."""
        self.lr_moved = self.lr_moved or (self.lr is not None and lr != self.lr)
        self.lr = lr


def capture(watched: Watched, seen: Seen, moment: schemas.Moment, step: int) -> schemas.Effective:
    """Read every concept that the watched objects hold; what cannot be read is named with the reason."""
    values: dict[str, schemas.EffectiveValue] = {}
    unseen: dict[str, str] = {}
    for reader in _READERS:
        try:
            for concept, found in reader(watched, seen):
                if isinstance(found, str):
                    unseen[concept] = found
                else:
                    values[concept] = schemas.EffectiveValue(
                        value=schemas.Scalar.of(found[0]), read_from=found[1]
                    )
        except Exception as e:
            unseen[reader.__name__.strip("_")] = f"could not be read ({reason(e)})"
    ahead: dict[int, list[float]] = {}
    if watched.scheduler is not None:
        try:
            ahead = schedule.ahead(watched.scheduler, step)
        except Exception as e:
            unseen["lr_ahead"] = f"the schedule could not be predicted ({reason(e)})"
    return schemas.Effective(moment=moment, values=values, unseen=unseen, lr_ahead=ahead)


def hyperparameters(optimizer: Any, scheduler: Any = None) -> tuple[Any, ...]:
    """The plain values of all parameter groups that no schedule moves: cheap enough for every step."""
    moved = _MOVED + _CYCLED if cycles_momentum(scheduler) else _MOVED
    return tuple(
        tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in group.items() if k not in moved)
        for group in optimizer.param_groups
    )


_MOVED = ("params", "lr")
_CYCLED = ("betas", "momentum")
"""What a scheduler with `cycle_momentum` moves together with the learning rate."""


def cycles_momentum(scheduler: Any) -> bool:
    """Whether a scheduler moves momentum or the first beta too (OneCycleLR, CyclicLR)."""
    return bool(getattr(scheduler, "cycle_momentum", False))


_PLAIN = (
    "betas",
    "momentum",
    "eps",
    "weight_decay",
    "nesterov",
    "amsgrad",
    "dampening",
    "maximize",
    "decoupled_weight_decay",
)
_KERNEL = ("fused", "foreach", "capturable", "differentiable")
_LABELS = ("name", "group_name", "lr_scheduler")
"""Keys of a group that say what it is called, and not what it does."""


def _one_or_all(values: list[Any]) -> Any:
    """One value where all groups agree, else the list."""
    plain = [list(v) if isinstance(v, tuple) else v for v in values]
    return plain[0] if all(v == plain[0] for v in plain) else plain


Found = Iterator[tuple[str, Read | str]]


def _optimizer(w: Watched, seen: Seen) -> Found:
    if w.optimizer is None:
        for concept in ("optimizer", "learning_rate", "weight_decay"):
            yield concept, f"not given: {LINES['optimizer']}"
        return
    groups = w.optimizer.param_groups
    yield "optimizer", (type(w.optimizer).__qualname__, "type(optimizer)")
    for key in _PLAIN:
        held = [g[key] for g in groups if key in g]
        if held and key in _CYCLED and cycles_momentum(w.scheduler):
            held = [(g.get("base_momentum"), g.get("max_momentum")) for g in groups]
        if held:
            concept = {"momentum": "betas"}.get(key, key)
            known = concept in schemas.catalogue().concepts
            yield (
                concept if known else f"optimizer.{key}",
                (_one_or_all(held), f"optimizer.param_groups[*][{key!r}]"),
            )
    yield from _own_switches(groups)
    switches = {k: _one_or_all([g.get(k) for g in groups]) for k in _KERNEL if any(g.get(k) for g in groups)}
    yield (
        "fused_kernels",
        (
            [f"{k}={v}" for k, v in sorted(switches.items())],
            "optimizer.param_groups[*]['fused', 'foreach', ...]",
        ),
    )


def _own_switches(groups: list[dict[str, Any]]) -> Found:
    """Switches of an optimizer's own, such as one that keeps an old fault for the sake of older runs.

    Only words and yes or no: numbers that are not known by name may be moved by the optimizer itself.
    """
    for key in dict.fromkeys(k for g in groups for k in g):
        held = [g.get(key) for g in groups]
        if key in (*_PLAIN, *_KERNEL, *_LABELS) or not all(isinstance(v, bool | str) for v in held):
            continue
        yield f"optimizer.{key}", (_one_or_all(held), f"optimizer.param_groups[*][{key!r}]")


def _groups(w: Watched, seen: Seen) -> Found:
    """What is trained under which rules: the groups of the optimizer, and what the model holds frozen."""
    found: list[str] = []
    if w.optimizer is not None:
        known = w.parameter_names()
        found += [_group(g["params"], known) for g in w.optimizer.param_groups]
    if w.model is not None:
        names = [n for n, p in w.parameters() if not p.requires_grad]
        sha = hashlib.sha256("\n".join(names).encode()).hexdigest()[:8]
        found += [f"{len(names)} tensors frozen ({sha})"] if names else [] if found else ["none frozen"]
    if found:
        yield "param_groups", (found, "optimizer.param_groups[*]['params'] and requires_grad of the model's")


def _group(parameters: list[Any], known: dict[int, str]) -> str:
    """A parameter group in words: how many tensors, and which, where all of them are the model's own."""
    counts = f"{len(parameters)} tensors, {sum(p.numel() for p in parameters)} values"
    names = sorted(known.get(id(p), "") for p in parameters)
    if not names or not names[0]:
        return counts
    sha = hashlib.sha256("\n".join(names).encode()).hexdigest()[:8]
    return f"{counts} ({sha}: {patterns(names)})"


def _learning_rate(w: Watched, seen: Seen) -> Found:
    if w.optimizer is None:
        return
    groups = w.optimizer.param_groups
    if w.scheduler is not None:
        yield "lr_schedule", (schedule.describe(w.scheduler), "scheduler")
    if w.scheduler is not None and hasattr(w.scheduler, "base_lrs"):
        yield "learning_rate", (_one_or_all([float(b) for b in w.scheduler.base_lrs]), "scheduler.base_lrs")
    elif all("initial_lr" in g for g in groups):
        rates = [float(g["initial_lr"]) for g in groups]
        yield "learning_rate", (_one_or_all(rates), "optimizer.param_groups[*]['initial_lr']")
    else:
        for concept, found in _rate_by_hand(groups, seen):
            if concept != "lr_schedule" or w.scheduler is None:
                yield concept, found


def _rate_by_hand(groups: Any, seen: Seen) -> Found:
    """No scheduler holds a peak: a rate that never moved is the rate; one that moves is not shown by one step."""
    if seen.lr_moved:
        why = f"the training code moves the rate itself; {LINES['scheduler']} would show the schedule"
        yield "learning_rate", why
        yield "lr_schedule", why
        return
    rates = [float(g["lr"]) for g in groups]
    yield (
        "learning_rate",
        (_one_or_all(rates), "optimizer.param_groups[*]['lr'], the same at every step so far"),
    )
    yield "lr_schedule", ("constant so far", "optimizer.param_groups[*]['lr']")


def _clip(w: Watched, seen: Seen) -> Found:
    """The threshold as a number where clipping is by norm, in words where it is by value or both."""
    norm, value = seen.clip_threshold, seen.clip_value
    if norm is None and value is None:
        yield (
            "grad_clip",
            "no clipping was seen in this segment so far; torch's clip_grad_norm_ and clip_grad_value_ are watched",
        )
    elif value is None:
        yield "grad_clip", (norm, "the max_norm of torch.nn.utils.clip_grad_norm_")
    elif norm is None:
        yield "grad_clip", (f"{value:.8g} by value", "the clip_value of torch.nn.utils.clip_grad_value_")
    else:
        both = f"{norm:.8g} by norm and {value:.8g} by value"
        yield "grad_clip", (both, "the calls of torch.nn.utils.clip_grad_norm_ and clip_grad_value_")


def _batch(w: Watched, seen: Seen) -> Found:
    if seen.samples_per_micro is None or seen.micro_batches is None:
        yield "global_batch", "no batch was seen: with rec.step(step, batch):"
        return
    size, source = seen.samples_per_micro, "the batches so far"
    told = getattr(w.loader, "batch_size", None)
    if isinstance(told, int) and not isinstance(told, bool):
        size, source = told, "loader.batch_size"  # the last batch of an epoch may be smaller
    yield "micro_batch", (size, source)
    yield "grad_accum", (seen.micro_batches, "micro-batches of a step")
    yield (
        "global_batch",
        (size * seen.micro_batches * seen.world_size, f"{source} x micro-batches x world size"),
    )
    if seen.lengths_vary:
        yield "seq_len", "batches have different lengths, so no one length is a setting"
    elif seen.length:
        yield "seq_len", (seen.length, "the batches so far")


def _model(w: Watched, seen: Seen) -> Found:
    if w.model is None:
        for concept in ("model", "precision"):
            yield concept, f"not given: {LINES['model']}"
        return
    sha = hashlib.sha256()
    count, dtypes = 0, Counter[str]()
    for name, p in w.parameters():
        sha.update(f"{name} {tuple(p.shape)}\n".encode())
        count += p.numel()
        dtypes[str(p.dtype).removeprefix("torch.")] += 1
    yield (
        "model",
        (f"{count:,} parameters, names and shapes {sha.hexdigest()[:16]}", "model.named_parameters()"),
    )
    precision = "+".join(sorted(dtypes)) + (f", autocast {seen.autocast}" if seen.autocast else "")
    yield "precision", (precision, "parameter dtypes and autocast")
    if seen.modes:
        yield from seen.modes.items()
    else:
        yield "dropout", "no step has shown yet whether the modules are in training mode"
    yield "compile", (compiled(w.model), "type(model) and its wrappers")
    if compiled(w.model):  # an operator that the compiler cannot look into changes what it fuses
        probes = "with activation probes" if seen.activation_probes else "as the compiler makes them"
        yield "fused_kernels", (probes, "lineage.attach(activations=...)")
    yield "dp_sharding", (_wrapper(w.model), "type(model)")


def compiled(model: Any) -> bool:
    """Whether a model, or the one inside its data-parallel wrapper, is compiled."""
    inner = getattr(model, "module", None)
    return any(
        type(m).__name__ == "OptimizedModule" or getattr(m, "_compiled_call_impl", None) is not None
        for m in (model, inner)
        if m is not None
    )


def _wrapper(model: Any) -> str:
    name = type(model).__name__
    known = (
        "DistributedDataParallel",
        "FullyShardedDataParallel",
        "FSDPModule",
        "DataParallel",
        "DeepSpeedEngine",
    )
    bases = {c.__name__ for c in type(model).__mro__}
    return next((k for k in known if k == name or k in bases), "none")


def _process(w: Watched, seen: Seen) -> Found:
    yield "world_size", (seen.world_size, "the process group")
    torch = sys.modules.get("torch")
    if torch is None:
        return
    yield "seed", (int(torch.initial_seed()), "torch.initial_seed()")
    attn = torch.backends.cuda
    yield (
        "attn_kernel",
        (
            [
                f"{name}={bool(getattr(attn, f'{name}_sdp_enabled')())}"
                for name in ("flash", "mem_efficient", "math", "cudnn")
                if hasattr(attn, f"{name}_sdp_enabled")
            ],
            "torch.backends.cuda.*_sdp_enabled()",
        ),
    )
    yield (
        "determinism",
        (
            [
                f"algorithms={torch.are_deterministic_algorithms_enabled()}",
                f"cudnn.benchmark={torch.backends.cudnn.benchmark}",
                f"cudnn.deterministic={torch.backends.cudnn.deterministic}",
            ],
            "torch",
        ),
    )


def _data(w: Watched, seen: Seen) -> Found:
    if w.loader is None:
        for concept in ("data_mix", "data_order"):
            yield concept, f"not given: {LINES['loader']}"
        return
    described = getattr(w.loader, "lineage_data", None)
    if callable(described):  # a loader may say itself what it reads
        for concept, value in described().items():
            yield concept, (value, "loader.lineage_data()")
        return
    dataset = getattr(w.loader, "dataset", None)
    if dataset is not None:
        size = len(dataset) if hasattr(dataset, "__len__") else None
        yield "data_mix", (f"{type(dataset).__qualname__}, {size} samples", "loader.dataset")
    else:
        yield (
            "data_mix",
            "this loader names no dataset; give it a lineage_data() method that says what it reads",
        )
    sampler = getattr(w.loader, "sampler", None)
    if sampler is not None:
        facts = [type(sampler).__qualname__]
        facts += [
            f"{k}={getattr(sampler, k)}" for k in ("seed", "shuffle", "drop_last") if hasattr(sampler, k)
        ]
        yield "data_order", (", ".join(facts), "loader.sampler")
    else:
        yield "data_order", "this loader has no sampler; give it a lineage_data() method"


def _scaler(w: Watched, seen: Seen) -> Found:
    if w.scaler is not None:
        # not _init_scale: loading a scaler's state writes the loaded scale there, which is state, and no setting
        keys = ("_enabled", "_growth_factor", "_backoff_factor", "_growth_interval")
        facts = [f"{k.strip('_')}={getattr(w.scaler, k)}" for k in keys if hasattr(w.scaler, k)]
        yield "loss_scale", (facts, "scaler")


_READERS: tuple[Callable[[Watched, Seen], Found], ...] = (
    _optimizer,
    _groups,
    _learning_rate,
    _clip,
    _batch,
    _model,
    _process,
    _data,
    _scaler,
)
