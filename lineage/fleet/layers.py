"""Which layers a detector of families must see: its conditions for a first finding, over all steps at once.

Until a family has flagged a layer, each of its finite norms enters the layer's baseline. So where no layer jumps by
the rule's least jump over the median of its last norms (by itself, or a share of them together), there is nothing that
the detector flags at any step, whatever its thresholds are: these only widen the least jump.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..judge.cells_tensors import JUDGED
from ..judge.detect_family import LAYERS, VOTE
from ..judge.layers import layer_of

SLACK = 1e-9
"""Sums in another order differ in their last bits: bounds are lowered by this."""
_EXCHANGES = (
    (1, 2), (4, 5), (7, 8), (0, 1), (3, 4), (6, 7), (1, 2), (4, 5), (7, 8), (0, 3), (5, 8), (4, 7), (3, 6), (1, 4),
    (2, 5), (4, 7), (4, 2), (6, 4), (4, 2),
)  # fmt: skip
"""Exchanges after which the fifth of nine values is their median (N. Devillard, Fast median search, 1998)."""


def first_jumps(table: pa.Table) -> tuple[tuple[str, ...], dict[str, int]]:
    """The kinds of rows of one process, and of those where a layer may be flagged the first step at which it may.

    `table`: the rows of one process and rank, `tensor` and `kind` may be dictionaries.
    """
    out = {}
    kinds = pc.unique(table["kind"]).to_pylist()
    for kind in kinds:
        if kind in JUDGED:
            mine = table if len(kinds) == 1 else table.filter(pc.equal(table["kind"], kind))
            step = _first_jump(*norms(mine))
            if step is not None:
                out[kind] = step
    return tuple(kinds), out


def norms(table: pa.Table) -> tuple[Any, Any]:
    """The steps, and each layer's norm at each of them in nats, shape (steps, layers); NaN where it takes no part.

    As `lineage.ledger.tensors` sums them up: a layer's norm is that of all its tensors, without the loss scale.
    """
    tensor = table["tensor"].combine_chunks()
    if not pa.types.is_dictionary(tensor.type):
        tensor = tensor.dictionary_encode()
    if isinstance(tensor, pa.ChunkedArray):
        tensor = tensor.unify_dictionaries().combine_chunks()
    names = [layer_of(n) for n in tensor.dictionary.to_pylist()]
    layers = {n: i for i, n in enumerate(dict.fromkeys(names))}
    layer = np.array([layers[n] for n in names], dtype=np.int64)[
        tensor.indices.to_numpy(zero_copy_only=False)
    ]
    broken = sum(_filled(table[c], 0) for c in ("n_nan", "n_posinf", "n_neginf"))
    given = _filled(table["scale"], 1.0)
    sumsq = _filled(table["sumsq"], 0.0)
    step = table["step"].to_numpy()
    n = len(layers)
    if len(names) == n and len(step) % n == 0 and _regular(step.reshape(-1, n), layer.reshape(-1, n)):
        into = np.argsort(layer[:n])
        scale = np.where(np.isfinite(given) & (given != 0.0), given, 1.0)
        return step[::n], _in_nats(sumsq, broken > 0, scale).reshape(-1, n)[:, into]
    steps, at = np.unique(step, return_inverse=True)
    place = at * n + layer
    size = len(steps) * n
    there = np.bincount(place, minlength=size) > 0
    sums = np.bincount(place, weights=sumsq, minlength=size)
    bad = np.bincount(place, weights=broken, minlength=size) > 0
    scale = np.ones(size)
    if (given != 1.0).any():
        scale = np.full(size, -np.inf)
        np.maximum.at(scale, place, given)
    scale[~(np.isfinite(scale) & (scale != 0.0))] = 1.0
    return steps, _in_nats(sums, bad | ~there, scale).reshape(len(steps), n)


def _regular(step: Any, layer: Any) -> bool:
    """Whether each step has a row of each layer, always in one order, and the steps come in theirs."""
    return bool(
        (layer == layer[0]).all()
        and len(np.unique(layer[0])) == layer.shape[1]
        and (step == step[:, :1]).all()
        and (np.diff(step[:, 0]) > 0).all()
    )


def _in_nats(sumsq: Any, out: Any, scale: Any) -> Any:
    """The logarithm of norms; NaN where they are left out, are zero or are not finite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        x = 0.5 * np.log(sumsq) - np.log(scale)
    x[out | ~np.isfinite(x)] = np.nan
    return x


def _filled(column: Any, value: float) -> Any:
    return (pc.fill_null(column, value) if column.null_count else column).to_numpy()


def _first_jump(steps: Any, x: Any) -> int | None:
    """The first step at which a layer, or a share of them together, lies above its last norms by the least jump."""
    here = np.isfinite(x)
    some = here.any(axis=1)
    steps, x, here = steps[some], x[some], here[some]
    if len(steps) <= LAYERS.warmup:
        return None
    middle = np.median(x, axis=1) if here.all() else np.nanmedian(x, axis=1)
    relative = x - middle[:, None]
    with np.errstate(invalid="ignore"):
        span = np.fmax.reduce(relative, axis=0) - np.fmin.reduce(relative, axis=0)
        wide = np.flatnonzero(span > LAYERS.least_jump - SLACK)  # the others cannot jump so far
        alone = relative[:, wide]
        single = (alone - _last_medians(alone, here[:, wide]) > LAYERS.least_jump - SLACK).any(axis=1)
        together = _voted(x - _last_medians(x, here))
    found = np.flatnonzero(single | together)
    return int(steps[found[0]]) if len(found) else None


def _voted(jumps: Any) -> Any:
    """Steps at which the jump that a share of the layers exceeds lies above the median of its last values."""
    taking = np.isfinite(jumps)
    count = taking.sum(axis=1)
    needed = np.maximum(3, np.ceil(LAYERS.vote_share * count).astype(int))
    out: Any = np.zeros(len(jumps), dtype=bool)
    asked = np.flatnonzero(count >= needed)
    if len(asked) <= VOTE.warmup:
        return out
    falling = -np.sort(-np.where(taking[asked], jumps[asked], -np.inf), axis=1)
    votes = falling[np.arange(len(asked)), needed[asked] - 1]
    usual = _last_medians(votes[:, None], np.ones((len(votes), 1), dtype=bool), VOTE.warmup, VOTE.centre)[
        :, 0
    ]
    with np.errstate(invalid="ignore"):
        out[asked] = votes - usual > VOTE.absolute - SLACK
    return out


def _last_medians(x: Any, here: Any, warmup: int = LAYERS.warmup, centre: int = LAYERS.centre) -> Any:
    """For each value the median of the last `centre` ones before it in its column; NaN before `warmup` of them."""
    out = np.full(x.shape, np.nan)
    whole = here.all(axis=0)
    if whole.all():
        return _of_last(x, warmup, centre)
    if whole.any():
        out[:, whole] = _of_last(x[:, whole], warmup, centre)
    for column in np.flatnonzero(~whole & here.any(axis=0)):
        rows = np.flatnonzero(here[:, column])
        out[rows, column] = _of_last(x[rows, column][:, None], warmup, centre)[:, 0]
    return out


def _of_last(x: Any, warmup: int, centre: int) -> Any:
    n = len(x)
    out = np.full(x.shape, np.nan)
    if n <= warmup:
        return out
    if centre != 9:
        windows = np.lib.stride_tricks.sliding_window_view(x, centre, axis=0)[: n - centre]
        out[centre:] = np.median(windows, axis=-1)
    else:
        nine = [x[i : n - 9 + i] for i in range(9)]
        for a, b in _EXCHANGES:
            low, high = np.minimum(nine[a], nine[b]), np.maximum(nine[a], nine[b])
            nine[a], nine[b] = low, high
        out[9:] = nine[4]
    out[:warmup] = np.nan
    return out
