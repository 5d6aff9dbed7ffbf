"""One training step, as the layer sees it."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..capture.batch import Fingerprint
from ..capture.later import Later
from .contain import contained
from .domain_losses import DomainLosses
from .sample_losses import Given

if TYPE_CHECKING:
    from .recorder import Recorder


class Step:
    """The `with rec.step(step, batch) as st:` block. Exceptions of the training code pass through it."""

    def __init__(self, recorder: Recorder, step: int, batch: Any) -> None:
        self.recorder, self.step = recorder, step
        self.batches: list[Fingerprint] = []
        self.losses: list[Any] = []
        self.domain_losses = DomainLosses()
        self.by_sample: list[Given] = []
        self.lr: float | None = None
        self._first = batch

    def trouble(self, part: str, error: BaseException, consequence: str) -> None:
        """Hand a failure to the recorder."""
        self.recorder.trouble(part, error, consequence)

    def __enter__(self) -> Step:
        self.recorder.steps.enter(self)
        self._keep()
        if self._first is not None:
            self.batch(self._first)
            self._first = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.recorder.steps.exit(self, error)

    @contained("bundle", "what steps begin with is not kept for evidence")
    def _keep(self) -> None:
        """Keep what the step begins with, so that an alarm finds it; nothing where no bundle is asked for."""
        if self.recorder.live and self.recorder.settings.bundle_bytes:
            follows = self._first is not None and bool(self.recorder.settings.fingerprints)
            self.recorder.recent.begin(self.recorder, self.step, batch_follows=follows)

    @contained("fingerprints", "batches of some steps are not fingerprinted")
    def batch(self, batch: Any, *, ids: Any = None, domains: Any = None) -> None:
        """Record a micro-batch: its fingerprint, statistics and samples.

        Args:
            batch: what the model is fed, in any container.
            ids: the id of each sample, where the batch holds none: a list or tensor of integers or texts.
            domains: the domain of each sample, or one text for the whole micro-batch.
        """
        if self.recorder.live and self.recorder.settings.fingerprints:
            self._give(batch)  # first: a batch that cannot be read is evidence all the same
            self.batches.append(self.recorder.steps.batching.fingerprint(batch, ids, domains))

    @contained("bundle", "batches of some steps are not kept for evidence")
    def _give(self, batch: Any) -> None:
        if self.recorder.settings.bundle_bytes:
            self.recorder.recent.add(self.step, batch)

    @contained("loss", "losses of some steps are not recorded")
    def loss(self, loss: Any) -> None:
        """Record this rank's loss, a 0-d tensor or a number. With accumulation, once per micro-batch.

        The tensor is read when it has arrived on the host; nothing waits for the device.
        """
        if self.recorder.live:
            if hasattr(loss, "detach") and loss.numel() != 1:
                raise ValueError(
                    f"the loss is no scalar: its shape is {tuple(loss.shape)}; give st.loss(loss.mean())"
                )
            self.losses.append(loss.detach().clone() if hasattr(loss, "detach") else float(loss))

    @contained("loss", "losses of some domains are not recorded")
    def domain_loss(self, losses: Mapping[Any, Any]) -> None:
        """Record this rank's loss of each domain that is in the batch: {"web": tensor or number, ...}.

        With accumulation, once per micro-batch; a domain's value is the mean over those that gave it. It stands in
        the series as the signal `loss of web`, for at most 64 domains of a run. Nothing waits for the device.
        """
        if self.recorder.live:
            self.domain_losses.add(losses)

    @contained("loss", "losses of some samples are not recorded")
    def sample_losses(self, losses: Any) -> None:
        """Record the loss of each sample of this rank's micro-batch, in their order: a 1-d tensor or numbers.

        With accumulation, once per micro-batch, in the order of `st.batch`. By them `lineage first-bad` names the
        sample where a loss breaks. Rows of the series `samples` hold them, at most as many of a step as the setting
        `samples` says and the worst beyond. Nothing waits for the device.
        """
        if self.recorder.live and self.recorder.settings.samples > 0:
            self.by_sample.append(Given(losses))

    def take_loss(self) -> tuple[Later | None, float | None]:
        """The step's mean loss: on its way from the device, or as a number."""
        if not self.losses:
            return None, None
        if all(isinstance(v, float) for v in self.losses):
            return None, sum(self.losses) / len(self.losses)
        import torch

        parts = [v if hasattr(v, "detach") else torch.tensor(v) for v in self.losses]
        return Later(torch.stack([p.reshape(()).float() for p in parts])), None
