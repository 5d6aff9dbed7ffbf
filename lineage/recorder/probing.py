"""The probes of one process: what they give each step, as signals of the series, rows of tensors and findings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .._rooms import schemas
from ..judge import probed
from ..ledger.columns import Columns

if TYPE_CHECKING:
    from ..capture.watched import Watched
    from ..probes.frame import Frame, OnItsWay
    from .settings import Settings

TYPED = ("gradient", "activation")
"""Kinds of rows that say of which type the tensor was."""
PER_GROUP = ("lr", "weight_decay", "betas", "momentum", "eps")
"""Values of a parameter group that are signals of the series, written when they change."""


class Probing:
    """Holds the probes of a recorder. `send` after each step; `frame` when what was sent has arrived."""

    def __init__(self, watched: Watched, settings: Settings) -> None:
        from ..probes import probes  # torch, which a loop without a model need not have

        self.probes = probes.Probes(
            model=watched.model,
            optimizer=watched.optimizer,
            scaler=watched.scaler,
            settings=probes.Settings(
                activations=settings.activations,
                state_every=settings.state_every,
            ),
        )
        self._gate = _gate(watched) if settings.gate else None
        self.probes.start()
        self._groups: dict[str, Any] = {}
        self._clipped, self._unreached = probed.ClipRate(), probed.Unreached()
        self._said: set[str] = set()
        self._held: Any = None
        """how model and optimizer fit together, as it was judged last"""
        self.not_read: dict[str, set[str]] = {}
        """reason -> `kind name` of what was not read"""
        self.dropped = 0

    def first_gradient(self) -> float | None:
        """When the first gradient of this step arrived, by the process's monotonic clock."""
        return self.probes.gradients.first_at if self.probes.gradients is not None else None

    def send(self, step: int) -> OnItsWay | None:
        """At the end of a step: send its values on their way, and begin the next one."""
        if self._gate is not None and self._gate.flag is not None:
            flag = self._gate.flag
            self.probes.sheets.on(flag.device).scalar("gate", flag)
            self._gate.flag = None
        sent = self.probes.send(step)
        self.probes.start()
        return sent

    def frame(self, sent: OnItsWay) -> Frame:
        """The values of a step that have arrived; what could not be read is kept for the end."""
        frame = self.probes.frame(sent)
        for key, reason in frame.facts.not_read.items():
            self.not_read.setdefault(reason, set()).add(f"{key.kind} of {key.name}")
        self.dropped = frame.facts.dropped
        return frame

    def remove(self) -> None:
        """Take every hook off."""
        self.probes.remove()
        if self._gate is not None:
            self._gate.remove()

    def gaps(self) -> Iterator[str]:
        """What the probes did not give, in words."""
        for part, reason in self.probes.trouble.items():
            yield f"the probes' {part} failed: {reason}"
        for reason, what in self.not_read.items():
            names = sorted(what)
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            yield f"not read: {', '.join(names[:3])}{more}: {reason}"
        if self._gate is not None:
            for part, reason in self._gate.trouble.items():
                yield f"the gate's {part} failed: {reason}"
            if self._gate.unjudged:
                yield (
                    f"the gate let {self._gate.unjudged} steps through unjudged: ranks with shards need a norm that "
                    "all of them share"
                )
        if self.dropped:
            yield f"probe values of {self.dropped} steps were dropped: the host had not taken earlier ones in time"

    def signals(self, frame: Frame) -> dict[str, float]:
        """The signals of a step: norms over all tensors, the loss scale, and what changed in the groups."""
        found: dict[str, float] = {}
        if any(True for _ in frame.of("gradient")):
            found["grad_norm_local"] = frame.gradient_norm()
        for kind in ("weight", "moment1", "moment2", "update"):
            stats = [s for _, s in frame.of(kind)]
            if stats:
                found[f"{kind}_norm"] = _norm(s.norm for s in stats)
        if frame.facts.scaled:
            found["loss_scale"] = frame.scalars.get("loss_scale", frame.facts.first_scale)
            found["update_skipped"] = float(bool(frame.skipped))
        if "gate" in frame.scalars:
            found["update_held_back"] = frame.scalars["gate"]
        if frame.clip_rate is not None:
            found["clip_rate"] = frame.clip_rate
        if frame.facts.counters is not None:
            found["optimizer_step_min"], found["optimizer_step_max"] = frame.facts.counters
        return found | self._changed(_by_group(frame))

    def _changed(self, now: Mapping[str, float]) -> dict[str, float]:
        """Values of the groups that differ from what was written last: a value stands until the next one."""
        changed = {k: v for k, v in now.items() if self._groups.get(k) != v}
        self._groups.update(changed)
        return changed

    def findings(self, frame: Frame) -> list[schemas.Finding]:
        """What the checks find at this step, each once."""
        found: list[schemas.Finding] = []
        if self.probes.held is not self._held:  # it is made anew where parameters or the optimizer changed
            self._held = self.probes.held
            found += probed.holding(self._held)
        found += probed.state(frame.negative_moments(), _broken(frame))
        found += self._clipped.look(frame.clip_rate, frame.facts.clip_threshold)
        found += self._unreached.look(frame.facts.order, self._trainable)
        new = [f for f in found if f"{f.code} {f.names[:64]}" not in self._said]
        self._said.update(f"{f.code} {f.names[:64]}" for f in new)
        return new

    def _trainable(self) -> list[str]:
        return [n for n, p in self.probes.parameters() if p.requires_grad]


def _gate(watched: Watched) -> Any:
    from ..probes.gate import Gate

    return Gate(watched.optimizer, model=watched.model) if watched.optimizer is not None else None


def tensors(frame: Frame) -> list[str]:
    """The parameters whose gradient is not finite, in the order of arrival; a search for the loss scale is left out."""
    return [key.name for key in frame.non_finite() if key.kind == "gradient"]


def columns(segment: str, rank: int, frame: Frame) -> Columns | None:
    """The rows of all tensors of a step; None where nothing was read.

    A row of kind `update_proxy` has a norm alone: it stands for an update that cannot be computed.
    """
    if not frame.found:
        return None
    from ..probes.columns import Stats

    place = {name: i for i, name in enumerate(frame.facts.order)}
    proxies = frame.proxies()
    kinds = [*(key.kind for key in frame.found), *(["update_proxy"] * len(proxies))]
    gradient = [kind == "gradient" for kind in kinds]
    names = [*(key.name for key in frame.found), *proxies]
    stats = [
        *frame.found.values(),
        *(Stats(0, norm * norm, math.nan, 0.0, 0, 0, 0) for norm in proxies.values()),
    ]
    return {
        "segment": segment,
        "rank": rank,
        "step": frame.step,
        "kind": kinds,
        "tensor": names,
        "order": [place.get(n) if g else None for n, g in zip(names, gradient, strict=True)],
        "elements": [s.elements for s in stats],
        "sumsq": [s.sumsq for s in stats],
        "largest": [None if math.isnan(s.largest) else s.largest for s in stats],
        "lowest": [s.lowest if k == "moment2" else None for k, s in zip(kinds, stats, strict=True)],
        "n_nan": [s.n_nan for s in stats],
        "n_posinf": [s.n_posinf for s in stats],
        "n_neginf": [s.n_neginf for s in stats],
        "scale": [frame.scale if g else None for g in gradient],
        "dtype": [
            frame.facts.dtypes.get(n) if k in TYPED else None for n, k in zip(names, kinds, strict=True)
        ],
    }


def _by_group(frame: Frame) -> dict[str, float]:
    """`lr of group 0` -> value, for each parameter group in effect after the step."""
    out: dict[str, float] = {}
    for g, group in enumerate(frame.facts.groups):
        for name in PER_GROUP:
            value = group.get(name)
            each = value if isinstance(value, list) else [value]
            for i, v in enumerate(each):
                if isinstance(v, int | float):
                    label = f"beta{i + 1}" if name == "betas" else name
                    out[f"{label} of group {g}"] = float(v)
    on_device = {k: v for k, v in frame.scalars.items() if " of group " in k}
    return out | on_device


def _broken(frame: Frame) -> list[str]:
    return [f"{k.kind} of {k.name}" for k in frame.non_finite() if k.kind in ("weight", "moment1", "moment2")]


def _norm(norms: Iterable[float]) -> float:
    """L2 norm of a vector of norms, in float64; NaN and infinities come through."""
    found = list(norms)
    return math.nan if any(math.isnan(n) for n in found) else math.hypot(*found)
