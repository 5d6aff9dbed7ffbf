"""One training step, as the layer sees it."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..capture.batch import Fingerprint, fingerprint
from ..capture.later import Later
from .contain import contained

if TYPE_CHECKING:
    from .recorder import Recorder


class Step:
    """The `with rec.step(step, batch) as st:` block. Exceptions of the training code pass through it."""

    def __init__(self, recorder: Recorder, step: int, batch: Any) -> None:
        self.recorder, self.step = recorder, step
        self.batches: list[Fingerprint] = []
        self.losses: list[Any] = []
        self.lr: float | None = None
        self._first = batch

    def trouble(self, part: str, error: BaseException, consequence: str) -> None:
        """Hand a failure to the recorder."""
        self.recorder.trouble(part, error, consequence)

    def __enter__(self) -> Step:
        self.recorder.steps.enter(self)
        if self._first is not None:
            self.batch(self._first)
            self._first = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.recorder.steps.exit(self, error)

    @contained("fingerprints", "batches of some steps are not fingerprinted")
    def batch(self, batch: Any) -> None:
        """Record a micro-batch: its fingerprint, samples and tokens."""
        if self.recorder.live and self.recorder.settings.fingerprints:
            self.batches.append(fingerprint(batch))
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

    def take_loss(self) -> tuple[Later | None, float | None]:
        """The step's mean loss: on its way from the device, or as a number."""
        if not self.losses:
            return None, None
        if all(isinstance(v, float) for v in self.losses):
            return None, sum(self.losses) / len(self.losses)
        import torch

        parts = [v if hasattr(v, "detach") else torch.tensor(v) for v in self.losses]
        return Later(torch.stack([p.reshape(()).float() for p in parts])), None
