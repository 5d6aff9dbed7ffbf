"""The page of a run of 100,000 steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lineage.ledger import series

from .story import Story

pytestmark = pytest.mark.slow

STEPS, BAD = 100_000, 77_777


def lengthen(ledger: Path) -> None:
    """Give a run's series 100,000 steps in the place of its own: noise around a curve that goes down, and one NaN."""
    short = series.read(ledger, "probes")
    names = [s for s in ("loss", "grad_norm", "grad_norm_local") if s in short["signal"].to_pylist()]
    noise = np.random.default_rng(0)
    steps = np.arange(1, STEPS + 1)
    parts = []
    for name in names:
        like = short.filter(pa.compute.equal(short["signal"], name)).slice(0, 1)
        rows = like.take(pa.array(np.zeros(STEPS, np.int64)))
        values = 2 + 100 / (steps + 50) + noise.normal(0, 0.05, STEPS)
        if name == "loss":
            values[BAD - 1] = np.nan
        for column, new in (("step", steps), ("value", values)):
            at = rows.schema.get_field_index(column)
            rows = rows.set_column(
                at, rows.schema.field(at), pa.array(new, rows.schema.field(at).type, from_pandas=False)
            )
        parts.append(rows)
    files = series.files(ledger, "probes")
    folder = files[0].parent
    target = folder / f"{files[0].name.partition('.')[0]}.probes.parquet"
    for file in files:
        file.unlink()
    series.write_sealed(pa.concat_tables(parts), files[0] if files[0].suffix == ".parquet" else target)


def test_a_run_of_100_000_steps_makes_a_page_under_3_mb_that_shows_the_bad_step(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.batch = lambda step, batch: batch
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        story.go(20)
    lengthen(Path(story.path))
    story.ok("incident", "open", story.path)
    story.postmortem(tmp_path / "out")
    sizes = {p.name: p.stat().st_size for p in (tmp_path / "out").iterdir()}
    assert all(0 < size < 3_000_000 for size in sizes.values()), sizes
    text = (tmp_path / "out" / "postmortem.html").read_text()
    assert f"step {BAD:,}, rank 0 of 1" in text
    assert "Loss of segment 1 close to the first bad step" in text
    assert f"Steps {BAD - 200:,} to {BAD + 50:,}; the first bad step is {BAD:,}." in text
