"""The tables of the series: their columns, and what a row is."""

from __future__ import annotations

import pyarrow as pa

PROBES = pa.schema(
    [
        ("segment", pa.string()),
        ("rank", pa.int32()),
        ("step", pa.int64()),
        ("signal", pa.string()),
        ("value", pa.float64()),
        ("n_nan", pa.int32()),
        ("n_posinf", pa.int32()),
        ("n_neginf", pa.int32()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
"""One row per step and signal: loss, grad_norm_local, lr, loss_scale, ... (see the glossary)."""

BATCHES = pa.schema(
    [
        ("segment", pa.string()),
        ("rank", pa.int32()),
        ("step", pa.int64()),
        ("micro", pa.int32()),
        ("digest", pa.string()),
        ("order_free", pa.string()),
        ("samples", pa.int64()),
        ("tokens", pa.int64()),
        ("documents", pa.int64()),
        ("target_tokens", pa.int64()),
        ("length_min", pa.int64()),
        ("length_mean", pa.float64()),
        ("length_max", pa.int64()),
        ("mask_density", pa.float64()),
        ("padding", pa.float64()),
        ("lowest", pa.int64()),
        ("highest", pa.int64()),
        ("out_of_range", pa.int64()),
        ("bos", pa.int64()),
        ("eos", pa.int64()),
        ("pad", pa.int64()),
        ("domain", pa.string()),
        ("shapes", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
"""One row per step and micro-batch: the fingerprint and statistics of this rank's batch. What the batch did not show
is null; `shapes` has the fields that are tensors. In `digest` the order of samples counts; `order_free` is the sum of
the samples' digests in two lanes modulo 2^64, so those of shards add up."""

SAMPLES = pa.schema(
    [
        ("segment", pa.string()),
        ("rank", pa.int32()),
        ("step", pa.int64()),
        ("micro", pa.int32()),
        ("place", pa.int32()),
        ("digest", pa.string()),
        ("sample", pa.string()),
        ("tokens", pa.int64()),
        ("domain", pa.string()),
        ("loss", pa.float64()),
        ("n_nan", pa.int32()),
        ("n_posinf", pa.int32()),
        ("n_neginf", pa.int32()),
    ]
)
"""One row per sample that was read, in its place of the micro-batch: `digest` of its content, `sample`, the id that the
loop or the data set gave it, and its own `loss` where the loop gave that. At most as many of a step as the setting
`samples` says, and the worst losses beyond them."""

METRICS = pa.schema(
    [
        ("segment", pa.string()),
        ("rank", pa.int32()),
        ("step", pa.int64()),
        ("tracker", pa.string()),
        ("key", pa.string()),
        ("value", pa.float64()),
        ("n_nan", pa.int32()),
        ("n_posinf", pa.int32()),
        ("n_neginf", pa.int32()),
        ("axis", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
"""One row per number that the training code logged to a tracker, as the observer saw it; `axis` tells what the
step was read from."""

TENSORS = pa.schema(
    [
        ("segment", pa.string()),
        ("rank", pa.int32()),
        ("step", pa.int64()),
        ("kind", pa.string()),
        ("tensor", pa.string()),
        ("order", pa.int32()),
        ("elements", pa.int64()),
        ("sumsq", pa.float64()),
        ("largest", pa.float64()),
        ("lowest", pa.float64()),
        ("n_nan", pa.int64()),
        ("n_posinf", pa.int64()),
        ("n_neginf", pa.int64()),
        ("scale", pa.float64()),
        ("dtype", pa.string()),
    ]
)
"""One row per step and tensor that a probe read: a local gradient, a weight, a moment, an update, a block's output.
`sumsq`, `largest` and `lowest` are of the finite elements as they were read; a gradient is `scale` times what it is
without the loss scale. `order` numbers gradients as they arrived. What was not read has no row."""

STATES = pa.schema(
    [
        ("segment", pa.string()),
        ("rank", pa.int32()),
        ("step", pa.int64()),
        ("kind", pa.string()),
        ("tensor", pa.string()),
        ("part", pa.string()),
        ("groups", pa.string()),
        ("lane1", pa.int64()),
        ("lane2", pa.int64()),
        ("whole", pa.string()),
        ("elements", pa.int64()),
        ("moment", pa.string()),
    ]
)
"""One row per tensor of the state that a rank digested after a step: a weight, a buffer, a moment. `part` is what of
the tensor this rank holds (`whole`, or its shard), `groups` the ids of the groups of ranks that must hold the same
(records of kind `agreement`), `lane1` and `lane2` what the part adds to the exact digest of the whole tensor, modulo
2^64: distinct parts add up. `whole` has type and shape of the whole tensor, null where the part's place in it is not
known; then the lanes are of the part alone. `elements` is what the part has. `moment` is `agree` after a step, `save`
at a checkpoint, `resume` before the first step after a load."""

SOURCES = pa.schema(
    [
        ("segment", pa.string()),
        ("rank", pa.int32()),
        ("step", pa.int64()),
        ("tracker", pa.string()),
        ("kind", pa.string()),
        ("file", pa.string()),
        ("place", pa.string()),
        ("line", pa.int64()),
    ]
)
"""One row per row of a log that was imported: `place` (line, entry, event) number `line` of `file` says something of
this step. `tracker` is the format's name, as in `metrics`; `kind` is train, eval or also."""

TABLES = {
    "probes": PROBES,
    "batches": BATCHES,
    "samples": SAMPLES,
    "metrics": METRICS,
    "tensors": TENSORS,
    "states": STATES,
    "sources": SOURCES,
}
COMPRESSED = ("tensors", "samples", "states")
"""Tables of many rows per step, whose stream is compressed while hot too."""
