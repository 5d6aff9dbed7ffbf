"""The batches of one process: fingerprints as they are made, rows of the series, and what checks find in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._rooms import schemas
from ..capture import in_worker
from ..capture.batch import Fingerprint, fingerprint
from ..capture.batch_facts import BatchFacts
from ..capture.batch_view import Known
from ..capture.in_worker import Fingerprinted
from ..capture.vocabulary import known_of
from ..judge import batch_ids
from ..judge.repeats import Repeats
from . import declared_mix, sample_losses
from .contain import contained
from .domain_losses import MOST, Names
from .findings import say

if TYPE_CHECKING:
    from .recorder import Recorder
    from .step import Step
    from .streams import Pending
    from .writer import Writer


class Batching:
    """Follows a recorder's batches. `fingerprint` in the step, `arrived` when its numbers are on the host."""

    def __init__(self, rec: Recorder) -> None:
        self.rec = rec
        self.given: Mapping[str, Any] = {}
        """what `attach(batches=...)` said"""
        self.mix: Mapping[str, float] | None = None
        """what `attach(mix=...)` said"""
        self._known: Known | None = None
        self._repeats: Repeats | None = None
        self._ids = batch_ids.OutOfRange()
        self._mix = declared_mix.Followed(rec)
        self._domains, self._told = Names(), False
        self._seen = 0
        self._loader: Any = None
        self._length: int | None = None
        self._notes: set[str] = set()

    def declare(self, mix: Mapping[str, float] | None, batches: Mapping[str, Any] | None) -> None:
        """Take what `attach` was told. A loader that fingerprints in its workers is told what is known."""
        self.mix, self.given = mix, batches or {}
        if isinstance(self.rec.watched.loader, Fingerprinted):
            self.rec.watched.loader.known = self.known

    @property
    def known(self) -> Known:
        """What is known of token ids. Read from the model once, at the first batch."""
        if self._known is None:
            try:
                self._known = known_of(self.rec.watched.model, self.given)
            except Exception as e:
                self._known = Known()
                self.rec.trouble("batches", e, "what was said of the batches is not used")
        return self._known

    def fingerprint(self, batch: Any, ids: Any, domains: Any) -> Fingerprint:
        """The fingerprint that the loader's worker made of a batch, else a new one."""
        made = in_worker.found(batch) if ids is None and domains is None else None
        return made or fingerprint(batch, self.known, ids=ids, domains=domains)

    def trouble(self, part: str, error: BaseException, consequence: str) -> None:
        """Hand a failure to the recorder."""
        self.rec.trouble(part, error, consequence)

    @contained("loss", "losses of some domains are not recorded")
    def losses(self, step: Step, pending: Pending) -> None:
        """Put the losses by domain of a step on their way."""
        later, plain = step.domain_losses.take(self._domains)
        pending.later |= later
        pending.plain |= plain
        if self._domains.left_out and not self._told:
            self._told = True
            self.rec.gaps.append(f"losses of more than {MOST} domains: only the first ones are in the series")

    @contained("fingerprints", "fingerprints of some steps are not kept", list)
    def rows(
        self,
        w: Writer,
        step: int,
        at: Any,
        batches: Sequence[BatchFacts],
        losses: Sequence[Sequence[float]] = (),
    ) -> list[dict[str, Any]]:
        """The fingerprint rows of one step; those of its samples, with their losses, go their own way."""
        most = self.rec.settings.samples
        for micro in range(max(len(batches), len(losses)) if self.rec.settings.samples > 0 else 0):
            facts = batches[micro] if micro < len(batches) else None
            given = losses[micro] if micro < len(losses) else ()
            found = sample_losses.columns(w.ids.segment, self.rec.world.rank, step, micro, facts, given, most)
            if found is not None:
                w.columns("samples", found)
                most -= min(most, len(found["place"]))
        return batch_rows(w.ids.segment, self.rec.world.rank, step, at, batches)

    @contained("batches", "some batches were not checked")
    def judge(self, w: Writer, step: int, batches: Sequence[BatchFacts]) -> None:
        """Run the checks over one step, and write down what they find."""
        if not batches:
            return
        if self._repeats is None:
            self._repeats = Repeats(self.rec.settings.recent_samples)
        found: list[schemas.Finding] = []
        for micro, facts in enumerate(batches):
            self._say_notes(facts)
            names = [facts.rows.name(i) for i in facts.bad_rows if i < len(facts.rows)]
            found += self._ids.look(
                step, micro, facts.out_of_range, names, (facts.lowest, facts.highest), self.known.vocab_size
            )
        epoch = self._epoch(len(batches))
        self._seen += len(batches)
        if self.rec.settings.recent_samples:
            found += self._repeats.look(step, [f.rows for f in batches], epoch)
        counts: Counter[str] = Counter()
        for facts in batches:
            counts += facts.domain_counts()
        found += self._mix.look(step, counts, self.mix)
        for finding in found:
            say(w, finding, step)

    def _epoch(self, now: int) -> tuple[int, ...] | None:
        """How often the loader was gone through before this step, where that can be counted.

        After a resume of a loader that tells no position there are two counts: it began again, or it went on after
        as many micro-batches as the steps before have taken, if each took as many as this one (`now`).
        """
        loader = self.rec.watched.loader
        if loader is not self._loader:  # asked once: a loader's length may be no attribute
            self._loader, self._length = loader, self.rec.watched.epoch()
        length = self._length
        if not length:
            return None
        parent, told = self.rec.parent, getattr(loader, "batches_before", None)
        if told is not None:
            before = [told]
        elif parent is None:
            before = [0]
        elif parent.checkpoint is not None:
            before = [0, parent.checkpoint.step * now]
        else:
            return None
        return tuple((b + self._seen) // length for b in before)

    def _say_notes(self, facts: BatchFacts) -> None:
        for note in facts.notes:
            if note not in self._notes and len(self._notes) < 16:
                self._notes.add(note)
                self.rec.gaps.append(f"of batches is not recorded: {note}")


def batch_rows(
    segment: str, rank: int, step: int, at: Any, batches: Sequence[BatchFacts]
) -> list[dict[str, Any]]:
    """The fingerprint rows of one step."""
    return [
        {
            "segment": segment,
            "rank": rank,
            "step": step,
            "micro": micro,
            "digest": b.digest,
            "order_free": b.order_free,
            "samples": b.samples,
            "tokens": b.tokens,
            "documents": b.documents,
            "target_tokens": b.target_tokens,
            "length_min": b.length_min,
            "length_mean": b.length_mean,
            "length_max": b.length_max,
            "mask_density": b.mask_density,
            "padding": b.padding,
            "lowest": b.lowest,
            "highest": b.highest,
            "out_of_range": b.out_of_range,
            "bos": b.bos,
            "eos": b.eos,
            "pad": b.pad,
            "domain": b.whole_domain,
            "shapes": b.shapes,
            "at": at,
        }
        for micro, b in enumerate(batches)
    ]
