"""Token ids that the vocabulary does not have."""

from __future__ import annotations

from collections.abc import Sequence

from .._rooms import schemas
from .probed import finding
from .repeats import Once


class OutOfRange:
    """Tells ids that no embedding has a row for, once, and again after a hundred steps without any."""

    def __init__(self) -> None:
        self._once = Once()

    def look(
        self,
        step: int,
        micro: int,
        count: int | None,
        samples: Sequence[str],
        span: tuple[int | None, int | None],
        vocabulary: int | None,
    ) -> list[schemas.Finding]:
        """Take a micro-batch: how many of its ids and labels are out of range, and in which samples."""
        if not count or not self._once.new(step):
            return []
        lowest, highest = span
        limit = "below 0" if vocabulary is None else f"outside 0 to {vocabulary - 1:,}"
        found = finding(
            "LIN-B007",
            "ids/1",
            "fault",
            "batches",
            f"{count:,} token ids or labels at step {step:,} are {limit}; ids reach from {lowest} to {highest}",
            [],
            "tokenizer and model differ, or ids were damaged on the way; what stands for no token on purpose is "
            'declared: attach(batches={"placeholders": [...], "ignore_index": ...})',
        )
        shown = {"step": step, "micro": micro, "lowest": lowest, "highest": highest, "vocabulary": vocabulary}
        return [
            found.model_copy(
                update={
                    "names": list(samples[:64]),
                    "count": count,
                    "values": {k: schemas.Scalar.of(v) for k, v in shown.items()},
                }
            )
        ]
