"""A loader that Accelerate prepared, as the layer watches it: what it reads, in which order, and how far it is.

Such a loader keeps no position of its own (unless it is a stateful one): a resume replays it and skips. Where it
stands follows from what it skipped at the start of this pass, and from the batches that were trained on since. The
loader that is gone through may be another object than the one that was prepared, since `skip_first_batches` makes a
new one; Accelerate's `GradientState` tells which one is.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


class LoaderPosition:
    """Stands for a prepared loader in `lineage.attach(loader=...)`. `state_dict` is there once it is known.

    Args:
        loader: the loader as `accelerator.prepare` gave it.
        done: how many batches this process has trained on; None where nobody counts them.
    """

    def __init__(self, loader: Any, done: Callable[[], int | None]) -> None:
        self.loader = loader
        self._done = done
        self._pass: tuple[Any, ...] | None = None
        """which pass through the data is under way"""
        self._base = 0
        """batches of the pass that were behind it when no batch had been counted, less those counted before"""
        self._epoch, self._order = 0, ""
        """the epoch of the pass, and what decided its order, in words"""
        self.batches_before: int | None = None
        """batches before the first one of this process, earlier epochs among them; None where that is not known"""

    def observe(self) -> None:
        """Notice that another pass through the data has begun. Call it before the batches of a step are counted."""
        active, nth = self._active()
        done = self._done()
        if active is None or done is None:
            return
        epoch = int(getattr(active, "iteration", 0))
        found = (id(active), nth, epoch)
        if found != self._pass:
            if self._pass is None and (length := _length(self.loader)) is not None:
                self.batches_before = epoch * length + _skipped(active)
            self._pass, self._epoch, self._base = found, epoch, _skipped(active) - done
            self._order = self._drawn()

    def __len__(self) -> int:
        """Batches of an epoch, for this rank. Raises `TypeError` where the data have no length."""
        return len(self.loader)

    @property
    def sampler(self) -> Any:
        """What chooses the samples; the loader's own attribute is a stand-in that torch makes."""
        found: Any = getattr(self.loader, "batch_sampler", None)
        if found is None:
            found = getattr(self.loader, "sampler", None)
        while found is not None and not hasattr(found, "sampler") and hasattr(found, "batch_sampler"):
            found = found.batch_sampler
        return getattr(found, "sampler", found)

    @property
    def dataset(self) -> Any:
        """The data set."""
        return getattr(self.loader, "dataset", None)

    @property
    def state_dict(self) -> Callable[[], Mapping[str, Any]]:
        """The position in the data: samples of all ranks since the pass began, and what decides its order.

        Raises `AttributeError` where it is not known: before the first batch, where batches were not counted, and where
        nothing tells the order, so that so many samples may be other ones.
        """
        if getattr(self.loader, "use_stateful_dataloader", False):
            return self.loader.state_dict  # type: ignore[no-any-return]
        found = self._at()
        if found is None:
            raise AttributeError("the position in the data is not known")
        return lambda: found

    @property
    def within_a_pass(self) -> bool:
        """Whether batches of this pass are behind it, so that the run that was saved was in the midst of one too."""
        done = self._done()
        return self._pass is not None and done is not None and self._base + done > 0

    def lineage_data(self) -> dict[str, str]:
        """Which data are read, and in which order, in words. The order is left out where nothing tells it.

        A sampler that draws from the process's random numbers leaves no trace of them, and a stream or a sampler of
        the user's own may do anything: the batches themselves tell then, where another branch has them.
        """
        data, sampler = self.dataset, self.sampler
        said = {}
        if data is not None:
            length = _length(data)
            size = "a stream" if length is None else f"{length} samples"
            done = getattr(data, "_fingerprint", None)  # of Hugging Face datasets: what was done to the data
            fingerprint = f", fingerprint {done}" if isinstance(done, str) else ""
            said["data_mix"] = f"{type(data).__qualname__}, {size}{fingerprint}"
        if sampler is not None and self._order_is_known():
            facts = [type(sampler).__qualname__]
            facts += [
                f"{k}={getattr(sampler, k)}"
                for k in ("initial_seed", "seed", "shuffle", "replacement", "drop_last")
                if isinstance(getattr(sampler, k, None), bool | int)
            ]
            said["data_order"] = ", ".join(facts)
        return said

    def _at(self) -> dict[str, Any] | None:
        done = self._done()
        if done is None or self._pass is None or not self._order_is_known():
            return None
        epoch, batches = self._epoch, self._base + done
        length = _length(self.loader)
        if length is not None and batches >= length:
            if batches > length:
                return None  # more than there are: the loop does something else than it seems
            if self._order:
                return None  # in which order the next pass goes is drawn when it begins
            epoch, batches = epoch + 1, 0
        at: dict[str, Any] = {"samples": batches * self._samples()}
        # in words: another epoch is another order, and not so many samples further on
        if self._ordered_by_epoch():
            at["order"] = f"of epoch {epoch}"
        elif self._order:
            at["order"] = self._order
        return at

    def _drawn(self) -> str:
        """The state of the sampler's own generator, where the order is drawn from one; "" else."""
        generator: Any = getattr(self.sampler, "generator", None)
        if self._ordered_by_epoch() or not hasattr(generator, "get_state"):
            return ""
        return "drawn as " + hashlib.sha256(generator.get_state().numpy().tobytes()).hexdigest()[:12]

    def _order_is_known(self) -> bool:
        if self._ordered_by_epoch():
            return True
        in_order = type(self.sampler).__name__ == "SequentialSampler"
        return not _streams(self.dataset) and (in_order or self._drawn() != "")

    def _active(self) -> tuple[Any, int]:
        """(the loader that is gone through now, how many passes through it are open); (None, 0) outside of any."""
        state = getattr(self.loader, "gradient_state", None)
        open_ = [
            x for x in getattr(state, "dataloader_references", ()) if x is not None and self._reads_same(x)
        ]
        return (open_[-1], len(open_)) if open_ else (None, 0)

    def _reads_same(self, other: Any) -> bool:
        """Whether a loader is this one, or one that skips in it: the same data in the same order."""
        if other is self.loader:
            return True
        if getattr(other, "dataset", None) is not self.dataset:
            return False
        mine, inner = getattr(self.loader, "batch_sampler", None), getattr(other, "batch_sampler", None)
        while inner is not None and inner is not mine:
            inner = getattr(inner, "batch_sampler", None)
        return inner is not None or _streams(self.dataset)

    def _samples(self) -> int:
        """Samples of one batch on all ranks."""
        try:
            return int(self.loader.total_batch_size)
        except (AttributeError, TypeError):
            return 1

    def _ordered_by_epoch(self) -> bool:
        data = self.dataset
        if not _streams(data):
            return hasattr(self.sampler, "set_epoch")
        while (
            type(data).__name__ == "IterableDatasetShard"
        ):  # it passes the epoch on, whether or not that is heard
            data = data.dataset
        return hasattr(data, "set_epoch")


def _length(sized: Any) -> int | None:
    """The length of a loader or data set; None where it has none, as a stream."""
    try:
        return len(sized)
    except Exception:
        return None


def _streams(data: Any) -> bool:
    """Whether a data set has an order of its own, which no sampler chooses."""
    return isinstance(data, getattr(sys.modules.get("torch.utils.data"), "IterableDataset", ()))


def _skipped(loader: Any) -> int:
    """Batches that a loader leaves out at its start."""
    total = int(getattr(loader, "skip_batches", 0) or 0)
    inner = getattr(loader, "batch_sampler", None)
    while inner is not None:
        total += int(getattr(inner, "skip_batches", 0) or 0)
        inner = getattr(inner, "batch_sampler", None)
    return total
