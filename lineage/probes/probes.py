"""All probes of one training process: what a recorder holds.

    probes = Probes(model=model, optimizer=optimizer, scaler=scaler)
    for step in ...:
        probes.start()
        ...                      # forward, backward, optimizer step
        probes.finish(step)      # queues the copy to the host, waits for nothing
        for frame in probes.arrived():
            ...                  # values of this step or of one before, see `frame.Frame`
    probes.remove()

Nothing here raises into the training loop; `trouble` keeps what failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ..capture import clip, flat_parts
from ..capture.names import clean
from . import activations, flat, fsdp, held
from .frame import Facts, Frame, Memory, OnItsWay
from .gradients import Gradients, Named
from .optimizer import OptimizerProbe
from .read import Reader, why
from .ring import Ring
from .sheet import Key, Sheet, Sheets

FIRST = 2
"""Steps at the beginning whose updates are read whatever `state_every` says: they show what a resume lost."""


@dataclass(frozen=True)
class Settings:
    """What is read."""

    gradients: bool = True
    """local gradients by parameter, at each backward pass"""
    activations: bool = False
    """outputs by block; opt-in, since it changes what a compiler fuses, see `activations`"""
    state_every: int = 10
    """steps between two reads of weights, moments and updates; 0 never. They move slowly, what is broken in them stays
    broken, and they are six times the bytes of bfloat16 gradients or more"""
    digest_every: int = 0
    """steps between two exact digests of gradients; 0 never. Digests of the state are taken apart"""
    follow_every: int = 50
    """steps between two looks at whether the model's parameters changed"""


class Probes:
    """Hooks, reads, and values on their way. `start` and `finish` frame a step."""

    def __init__(
        self,
        *,
        model: Any = None,
        optimizer: Any = None,
        scaler: Any = None,
        settings: Settings | None = None,
        reader: Reader | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.sheets, self.reader = Sheets(), reader or Reader()
        self.trouble: dict[str, str] = {}
        """part -> what failed in it"""
        self.held: held.Held | None = None
        self.gradients: Gradients | None = None
        self.fsdp: fsdp.Fsdp | None = None
        self.flat: flat.Fsdp1 | None = None
        self._model, self._scaler = model, scaler
        self._names: dict[int, str] = {}
        self._optimizer: OptimizerProbe | None = None
        self._groups: Any = None
        """whose groups say which parameters are trained"""
        self._rings: dict[Sheet, Ring] = {}
        self._on_their_way: deque[OnItsWay] = deque()
        self._memory = Memory()
        self._count = 0
        self._clipping: tuple[float, Any] | None = None
        self._unwatch: Callable[[], None] = lambda: None
        self.activations: activations.Activations | None = None
        self._try("gradients", self._hook)
        if self.settings.activations and model is not None:
            self._try("activations", self._hook_blocks)
        if optimizer is not None:
            self.watch(optimizer)
        self._try("clipping", self._watch_clipping)

    def _try(self, part: str, action: Callable[[], Any]) -> Any:
        """Do something of ours; what fails is kept, and training goes on."""
        try:
            return action()
        except Exception as e:
            self.trouble[part] = why(e)
            return None

    def parameters(self) -> Named:
        """(clean name, parameter) of the model, each once."""
        if self._model is None:
            return []
        return [(clean(n), p) for n, p in self._model.named_parameters()]

    def _hook(self) -> None:
        parameters = self.parameters()
        self._names = {id(p): n for n, p in parameters}
        if self._model is None or not self.settings.gradients:
            return
        self.gradients = Gradients([], self.sheets, self.reader, model=self._model)
        if fsdp.is_fsdp2(self._model):
            self.fsdp = fsdp.Fsdp(self._model, self._names, self.gradients)
        self.flat = flat.Fsdp1(self._model, self.gradients)
        self.gradients.follow(self._unmanaged(parameters))

    def _hook_blocks(self) -> None:
        device = next(self._model.parameters()).device
        self.activations = activations.Activations(activations.blocks(self._model), device, self.sheets)

    def _unmanaged(self, parameters: Named) -> Named:
        managed = (self.fsdp.managed if self.fsdp else set()) | (self.flat.managed if self.flat else set())
        return [(n, p) for n, p in parameters if n not in managed]

    def watch(self, optimizer: Any) -> None:
        """Read this optimizer from now on."""
        self._try("optimizer", lambda: self._watch(optimizer))

    def _watch(self, optimizer: Any) -> None:
        def name_of(p: Any) -> str | None:
            return self._names.get(id(p)) or parts.get(id(p))

        self._optimizer = OptimizerProbe(optimizer, name_of, self.sheets, self.reader)
        groups = self._optimizer.optimizer.param_groups
        flat = flat_parts.held(dict(self.parameters()), groups)
        parts = {id(p): f"flat part {n} of this rank" for n, p in enumerate(flat)}
        self._groups = optimizer if flat_parts.tells(optimizer) else self._optimizer.optimizer
        if self._model is not None:
            self.held = held.look(self.parameters(), self._groups)

    def _watch_clipping(self) -> None:
        def seen(threshold: float, norm: Any) -> None:
            self._clipping = threshold, norm

        self._unwatch = clip.watch(seen)

    def start(self) -> None:
        """Before the first forward pass of a step."""
        self._try("start", self._start)

    def _start(self) -> None:
        self._clipping = None
        if self._optimizer is not None and self._reads_state():
            self._optimizer.note()
        if self.gradients is not None:
            self.gradients.start()
            every = self.settings.digest_every
            self.gradients.digest = bool(every) and self._count % every == 0
        scale = getattr(self._scaler, "_scale", None)
        if scale is not None:
            self.sheets.on(scale.device).scalar("loss_scale", scale)

    def thaw(self) -> None:
        """Before a step, where `start` was called earlier: hook what was made trainable since."""
        if self.gradients is not None:
            self._try("follow", self.gradients.thaw)

    def finish(self, step: int) -> None:
        """After the update of a step: read what the optimizer holds, and send all values on their way."""
        sent = self.send(step)
        if sent is not None:
            self._on_their_way.append(sent)

    def send(self, step: int) -> OnItsWay | None:
        """As `finish`, for a caller who keeps what is on its way himself, and gives it to `frame` in order."""
        found: OnItsWay | None = self._try("finish", lambda: self._send(step))
        return found

    def _send(self, step: int) -> OnItsWay | None:
        follow = self.settings.follow_every
        reads_state = self._optimizer is not None and self._reads_state()
        if reads_state and self._optimizer is not None:
            self._try("optimizer", self._optimizer.read)
        self._try("scalars", self._scalars)
        facts = self._facts(reads_state)
        pushed = [self._ring(sheet).push() for sheet in self.sheets.all()]
        slots = [slot for slot in pushed if slot is not None]
        self._count += 1
        if follow and self._count % follow == 0:
            self._try("follow", self._follow)
        if len(slots) == len(pushed):
            return OnItsWay(step, facts, slots)
        for slot in slots:
            slot.busy = False
        return None

    def _reads_state(self) -> bool:
        every = self.settings.state_every
        return bool(every) and (self._count < FIRST or self._count % every == 0)

    def _ring(self, sheet: Sheet) -> Ring:
        if sheet not in self._rings:
            self._rings[sheet] = Ring(sheet)
        return self._rings[sheet]

    def _scalars(self) -> None:
        """Numbers that lie on a device: the loss scale, the norm before clipping, hyperparameters."""
        scale = getattr(self._scaler, "_scale", None)
        if scale is not None:
            self.sheets.on(scale.device).scalar("loss_scale_next", scale)
        norm = self._clipping[1] if self._clipping else None
        if isinstance(norm, torch.Tensor) and not hasattr(norm, "placements"):
            # a distributed tensor's full value would take a collective, and we issue none
            self.sheets.on(norm.device).scalar("clip_norm", norm)
        if self._optimizer is not None:
            for name, value in held.tensors_on_device(self._optimizer.optimizer).items():
                self.sheets.on(value.device).scalar(name, value)

    def _facts(self, reads_state: bool) -> Facts:
        g, o = self.gradients, self._optimizer
        not_read: dict[Key, str] = {}
        for part in (g, self.fsdp, self.flat):
            found = part.not_read if part else {}
            not_read.update({Key("gradient", n): reason for n, reason in found.items()})
        for name, reason in (self.activations.not_read if self.activations else {}).items():
            not_read[Key("activation", name)] = reason
        not_read.update(o.not_read if o and reads_state else {})
        groups = tuple(held.effective(o.optimizer)) if o else ()
        scaler_on = self._scaler is not None and bool(self._scaler.is_enabled())
        return Facts(
            order=tuple(dict.fromkeys(g.order)) if g else (),
            dtypes={**(g.dtypes if g else {}), **(self.activations.dtypes if self.activations else {})},
            scaled=scaler_on,
            first_scale=float(getattr(self._scaler, "_init_scale", 1.0)) if scaler_on else 1.0,
            divided_by=self.fsdp.divided_by if self.fsdp else 1,
            groups=groups,
            lr_of=self._rates(groups) if o else {},
            clip_threshold=self._clipping[0] if self._clipping else None,
            counters=o.counters if o and reads_state else None,
            way=o.way if o else None,
            not_read=not_read,
            dropped=max((r.dropped for r in self._rings.values()), default=0),
            digests=bool(g and g.digest),
        )

    def _rates(self, groups: tuple[dict[str, Any], ...]) -> dict[str, float]:
        """Parameter -> its learning rate, where that is a number on the host."""
        assert self._optimizer is not None
        rates = {}
        for values, group in zip(groups, self._optimizer.optimizer.param_groups, strict=True):
            if isinstance(values.get("lr"), float | int):
                rates.update(
                    {self._names[id(p)]: values["lr"] for p in group["params"] if id(p) in self._names}
                )
        return rates

    def _follow(self) -> None:
        """Look whether parameters were added, replaced, taken away, frozen or given to the optimizer."""
        if self.fsdp is not None or (self.flat and self.flat.managed):
            return
        parameters = self.parameters()
        names = {id(p): n for n, p in parameters}
        if names != self._names:
            self._names = names
            if self.gradients is not None:
                self.gradients.follow(self._unmanaged(parameters))
        if self._optimizer is not None and self._model is not None:
            now = held.look(parameters, self._groups)
            if now != self.held:
                self.held = now

    def arrived(self, *, wait: bool = False) -> list[Frame]:
        """The steps whose values are on the host, in order. `wait` takes all of them, for the end of training."""
        found = []
        while self._on_their_way and (wait or self._on_their_way[0].ready()):
            oldest = self._on_their_way.popleft()
            if wait:
                oldest.synchronize()
            found.append(self.frame(oldest))
        return found

    def frame(self, sent: OnItsWay) -> Frame:
        """The values of a step that is `ready`. Steps must come in the order in which they were sent."""
        return self._memory.add(sent.frame())

    def remove(self) -> None:
        """Take every hook off."""
        self._unwatch()
        for part in (self.gradients, self.fsdp, self.flat, self.activations):
            if part is not None:
                self._try("remove", part.remove)
