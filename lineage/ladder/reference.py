"""Two models with the same weights on one batch, layer by layer in float32: the first layer that makes a difference."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch

from .._rooms import schemas
from ..capture.names import clean
from ..judge.layer_causes import kind
from ..judge.rung_answers import answer
from ..probes.deep import tensors
from . import recipe
from .answers import rung

APART = 1e-4
"""Relative difference by L2 norm from which on two values in float32 are not alike. Sums in another order differ by a
few 1e-7; a deep model adds them up to a few 1e-6."""
MOST = 64
WHOLE = "the model"
"""What the outermost module is called."""
SOURCE = "relative difference |a - b| / |b| by L2 norm, in float32; the bound is a convention of this check"
LIMITS = (
    "one batch in float32: a path that it does not take, and what lower precision does, are not compared",
    "what to look at is what commonly makes such a layer differ; none of it is shown to be the cause",
)


class NotComparable(ValueError):
    """The two cannot be held against each other; the text says why and what to give."""


@dataclass(frozen=True)
class Layer:
    """One pair of modules, in the order in which the reference finishes them."""

    ours: str
    theirs: str
    cls: str
    given: float | None
    """relative difference of what goes in; None where that cannot be compared"""
    made: float | None
    """of what comes out"""
    begun: int = 0
    ended: int = 0
    """when the reference began and finished it, counted together"""


@dataclass
class _Seen:
    given: list[Any] = field(default_factory=list)
    made: list[Any] = field(default_factory=list)
    cls: str = ""
    begun: int = 0
    ended: int = 0


def compare_models(
    model: Any,
    reference: Any,
    batch: Any,
    *,
    names: Mapping[str, str] | None = None,
    weights: Mapping[str, str] | None = None,
    call: Callable[[Any, Any], Any] | None = None,
    call_reference: Callable[[Any, Any], Any] | None = None,
    built_by: str | None = None,
) -> tuple[schemas.Rung, list[Layer]]:
    """Find the first layer of which the inputs are alike and the outputs are not.

    Args:
        model, reference: two modules. Copies of them run in eval mode and float32 on their device.
        batch: what both are called with: a dict goes as keywords, a tuple as arguments.
        names: module of `model` -> the same module of `reference`; by default modules of one name. A prefix stands for
            all below it: {"layers": "model.layers"}.
        weights: parameter of `model` -> that of `reference`; by default those of the modules named.
        call, call_reference: called with (copy, batch) in place of the model; give the output.

    Gives the rung, and a row for each pair. Raises `NotComparable`.
    """
    pairs = _pairs(model, reference, names)
    found = [_weights(model, reference, pairs, weights)]
    ours, out = _run(model, {a for a, _ in pairs}, batch, call or _call)
    theirs, out_reference = _run(reference, {b for _, b in pairs}, batch, call_reference or _call)
    mapped = {b: a for a, b in pairs}
    layers = [
        Layer(
            ours=mapped[b] or WHOLE,
            theirs=b or WHOLE,
            cls=seen.cls,
            given=_far(ours[mapped[b]].given, seen.given),
            made=_far(ours[mapped[b]].made, seen.made),
            begun=seen.begun,
            ended=seen.ended,
        )
        for b, seen in theirs.items()
        if mapped[b] in ours
    ]
    whole = _far(list(tensors(out)), list(tensors(out_reference)))
    found += [_first(layers), _output(whole)]
    wrong = [a.text for a in found if a.outcome == "fail"]
    made = rung(
        "reference",
        found,
        "; ".join(wrong) or f"{len(layers):,} layers are alike, up to {_largest(layers):.2g}",
        main=["weights_are_equal", "layers_are_alike", "output_is_alike"],
        recipe=recipe.of(model, None, None, built_by),
        device=str(next((p.device for p in model.parameters()), "cpu")),
        parameters={"reference": type(reference).__qualname__, "apart": APART},
        limits=LIMITS,
    )
    return made, layers


def _pairs(model: Any, reference: Any, names: Mapping[str, str] | None) -> list[tuple[str, str]]:
    """(ours, theirs) for each pair of modules. Raises `NotComparable` for a name that is not there."""
    own = [clean(n) for n, _ in model.named_modules()]
    other = {clean(n) for n, _ in reference.named_modules()}
    if names is None:
        return [(n, n) for n in own if n in other]
    for ours, theirs in names.items():
        for name, every, which in ((ours, own, "the model"), (theirs, other, "the reference")):
            if name not in every:
                raise NotComparable(
                    f"names: {which} has no module {name!r}; it has {', '.join(sorted(every)[1:7])}, ..."
                )
    out = {}
    for n in own:
        prefix = max((p for p in names if n == p or n.startswith(f"{p}.") or p == ""), key=len, default=None)
        if prefix is None:
            continue
        theirs = (names[prefix] + n[len(prefix) :]).lstrip(".") if n != prefix else names[prefix]
        if theirs in other and (n or prefix == ""):
            out[n] = theirs
    return list(out.items())


def _weights(
    model: Any, reference: Any, pairs: list[tuple[str, str]], weights: Mapping[str, str] | None
) -> schemas.Answer:
    """Whether parameters that belong together are equal: without that, no layer can be judged."""
    question = "weights_are_equal"
    own = {clean(n): p for n, p in model.named_parameters(remove_duplicate=False)}
    other = {clean(n): p for n, p in reference.named_parameters(remove_duplicate=False)}
    known = {_join(a, n): _join(b, n) for a, b in pairs for n, _ in _direct(model, a) if _join(b, n) in other}
    known |= dict(weights or {})
    missing = [
        n for pair in known.items() for n, held in zip(pair, (own, other), strict=True) if n not in held
    ]
    if missing:
        raise NotComparable(f"weights: there is no parameter {missing[0]!r}")
    differ = [a for a, b in known.items() if not _equal(own[a], other[b])]
    alone = [n for n in own if n not in known]
    values = {"compared": len(known), "ours_alone": len(alone)}
    rest = f"; {len(alone):,} of ours belong to none: {', '.join(alone[:3])}" if alone else ""
    if differ:
        text = f"{len(differ):,} of {len(known):,} parameters differ: {', '.join(differ[:4])}{rest}"
        look = [
            "a load that left them as they were made (strict=False)",
            "a weight that is stored transposed",
        ]
        return answer(question, "fail", text, names=differ, values=values, look_at=look)
    if not known:
        return answer(
            question,
            "cannot_tell",
            f"no parameter of one belongs to one of the other: names= or weights={rest}",
        )
    return answer(question, "pass", f"{len(known):,} parameters are equal{rest}", values=values)


def _direct(model: Any, name: str) -> list[tuple[str, Any]]:
    modules = {clean(n): m for n, m in model.named_modules()}
    return list(modules[name].named_parameters(recurse=False))


def _join(module: str, name: str) -> str:
    return f"{module}.{name}" if module else name


def _equal(a: Any, b: Any) -> bool:
    return a.shape == b.shape and bool(torch.equal(a.detach().float().cpu(), b.detach().float().cpu()))


def _call(model: Any, batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple) else model(batch)


def _run(
    model: Any, wanted: set[str], batch: Any, call: Callable[[Any, Any], Any]
) -> tuple[dict[str, _Seen], Any]:
    """Name -> what went into and came out of each module the first time it ran, in the order in which they ended."""
    copied = copy.deepcopy(model).float().eval()
    seen: dict[str, _Seen] = {}

    clock = count()
    begun: dict[str, int] = {}

    def before(name: str) -> Any:
        def hook(module: Any, args: Any) -> None:
            begun.setdefault(name, next(clock))

        return hook

    def after(name: str) -> Any:
        def hook(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            if name not in seen:  # a module that runs again is compared where it ran first
                given, made = _floats((args, kwargs)), _floats(output)
                seen[name] = _Seen(given, made, type(module).__name__, begun.get(name, 0), next(clock))

        return hook

    for n, module in copied.named_modules():
        if clean(n) in wanted:
            module.register_forward_pre_hook(before(clean(n)))
            module.register_forward_hook(after(clean(n)), with_kwargs=True)
    with torch.no_grad():
        return seen, call(copied, batch)


def _floats(values: Any) -> list[Any]:
    return [t.detach().clone() for t in tensors(values) if t.is_floating_point()]


def _far(ours: list[Any], theirs: list[Any]) -> float | None:
    """The relative difference of the first tensors; None where there are none, or of another shape."""
    if not ours or not theirs:
        return None
    a, b = ours[0].double(), theirs[0].double()
    if a.shape != b.shape:
        if a.numel() != b.numel():
            return None
        a = a.reshape(b.shape)
    size = float(torch.linalg.vector_norm(b))
    return float(torch.linalg.vector_norm(a - b)) / size if size else float(torch.linalg.vector_norm(a))


def _first(layers: list[Layer]) -> schemas.Answer:
    question = "layers_are_alike"
    compared = [layer for layer in layers if layer.made is not None]
    if not compared:
        text = (
            "no two modules with outputs of one shape: name them with names={'layers': 'model.layers', ...}"
        )
        return answer(question, "cannot_tell", text)
    values = {
        "layers": [layer.ours for layer in compared[:MOST]],
        "difference": [layer.made for layer in compared[:MOST]],
    }
    apart = [layer.ours for layer in compared if not _alike(layer.made)]
    begun = [(x.begun, x, True) for x in layers if x.given is not None and not _alike(x.given)]
    ended = [(x.ended, x, False) for x in compared if not _alike(x.made)]
    if not begun and not ended:
        text = f"{len(compared):,} layers are alike, up to {_largest(layers):.2g}"
        return answer(question, "pass", text, values=values, source=SOURCE)
    when, first, going_in = min([*begun, *ended], key=lambda event: event[0])
    within = ""
    if going_in:
        inside = [x for x in layers if x.begun < when < x.ended and x is not first and x.ours != WHOLE]
        around = [x for x in inside if _alike(x.given)]
        inner = max(around, key=lambda x: x.begun, default=None)
        if inner is not None:
            within, going_in = f"; within it, what goes into {first.ours} is the first that differs", False
            first = inner
    what, causes = kind(first.ours, first.cls)
    if going_in:
        done = max((x for x in layers if x.ended < when), key=lambda x: x.ended, default=None)
        since = f", and what came out of {done.ours} before it is alike" if done is not None else ""
        text = f"what goes into {first.ours} ({first.theirs}) differs by {first.given:.2g}{since}"
        causes = (
            "what stands between the two and is no module: a scale, a residual, positions that are added, a cast",
            "the order of the two",
        )
    else:
        into = f", of inputs that differ by {first.given:.2g}" if first.given is not None else ""
        made = "its output cannot be compared" if first.made is None else f"{first.made:.2g}"
        text = (
            f"the first {what} that makes a difference is {first.ours} ({first.theirs}): {made}{into}{within}"
        )
    return answer(question, "fail", text, names=apart, values=values, source=SOURCE, look_at=causes)


def _alike(difference: float | None) -> bool:
    return difference is not None and difference < APART


def _output(whole: float | None) -> schemas.Answer:
    question = "output_is_alike"
    if whole is None:
        return answer(question, "cannot_tell", "the outputs of the two have no shape in common")
    outcome: schemas.Outcome = "pass" if whole < APART else "fail"
    return answer(
        question, outcome, f"the outputs differ by {whole:.2g}", values={"difference": whole}, source=SOURCE
    )


def _largest(layers: list[Layer]) -> float:
    return max((layer.made for layer in layers if layer.made is not None), default=0.0)
