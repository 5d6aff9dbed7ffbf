"""What ran in which type: softmax, normalisation, loss, optimizer state, the scaler of fp16, the scales of fp8."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .._rooms import schemas
from .rung_answers import answer, some

SIXTEEN = ("float16", "bfloat16")
_SOFTMAX = ("_softmax", "_log_softmax", "softmax", "log_softmax", "logsumexp")
_STATISTICS = ("mean", "var", "var_mean", "std", "std_mean", "rsqrt", "pow", "linalg_vector_norm", "norm")
_NORMS = (
    "native_layer_norm",
    "native_group_norm",
    "native_batch_norm",
    "_native_batch_norm_legit",
    "cudnn_batch_norm",
    "_fused_rms_norm",
    "rms_norm",
)
_LOSSES = (
    "nll_loss_forward",
    "nll_loss2d_forward",
    "mse_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "smooth_l1_loss",
    "huber_loss",
    "kl_div",
)
_FUSED = re.compile(
    r"_scaled_dot_product_(flash|efficient|cudnn|fused)|flash_attn|_flash_attention|_efficient_attention"
)
_CASTS = (
    "_to_copy",
    "to",
    "detach",
    "alias",
    "clone",
    "view",
    "_unsafe_view",
    "t",
    "transpose",
    "expand",
    "copy_",
)
_AMAX = ("amax", "max", "aminmax")
SOURCE = {
    "types": "operators that autocast runs in float32: PyTorch, Automatic Mixed Precision, Op-Specific Behavior",
    "fused": "a fused kernel keeps its softmax in float32 by its authors' word; what runs within is not seen",
    "scaler": "P. Micikevicius et al., Mixed Precision Training (2018), section 3.2: fp16 gradients below 2^-24 "
    "are zeros",
    "state": "the same, section 3.1: an update below 2^-11 (fp16) or 2^-8 (bf16) of a weight is rounded away",
    "fp8": "P. Micikevicius et al., FP8 formats for deep learning (2022), section 3: it needs a scale for each tensor",
}


@dataclass(frozen=True)
class Ran:
    """One kind of operator in one module."""

    operator: str
    """without namespace and overload: `_softmax`"""
    module: str
    """clean name of the innermost module, `model` for the outermost, `loss` for what runs outside of it"""
    cls: str
    given: tuple[str, ...]
    """types of the floating-point tensors that went in"""
    made: tuple[str, ...]
    """of those that came out"""


@dataclass(frozen=True)
class Recipe:
    """What was looked at beside the operators."""

    ran: Sequence[Ran]
    loss: str
    """type of the loss"""
    scaler: bool | None
    """whether a gradient scaler is on; None: none was given"""
    state: Mapping[str, str] = field(default_factory=dict)
    """`exp_avg of head.weight` -> its type, after one update"""
    held: Mapping[str, str] = field(default_factory=dict)
    """trainable parameter -> its type, of those that the optimizer updates in place"""
    scales: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """module -> names of its buffers and parameters that are scales or amax histories"""
    saved: Collection[str] = ()
    """keys of the model's state_dict"""
    stepped: bool = False
    """whether an update was made"""


def answers(r: Recipe) -> list[schemas.Answer]:
    """Each question, with the modules that it names."""
    return [_softmax(r), _norms(r), _loss(r), _state(r), _master(r), _scaler(r), _fp8(r)]


MAIN = ("softmax_in_float32", "norm_in_float32", "loss_in_float32")


def _softmax(r: Recipe) -> schemas.Answer:
    ran = [x for x in r.ran if x.operator in _SOFTMAX and x.module != "loss"]
    fused = [x for x in r.ran if _FUSED.search(x.operator)]
    low = [x for x in ran if _low(x.made)]
    question = "softmax_in_float32"
    if low:
        return _fail(
            question,
            low,
            "a softmax gives",
            "types",
            ["softmax(x, -1, dtype=torch.float32); autocast does so on CUDA and not on the CPU"],
        )
    if ran:
        return _pass(question, f"{len(_modules(ran)):,} modules take their softmax in float32", "types")
    if fused:
        kernels = ", ".join(sorted({x.operator for x in fused}))
        text = f"{len(_modules(fused)):,} modules take it inside a fused kernel ({kernels}), where nothing is seen"
        return _cannot(question, text, "fused")
    return _pass(question, "no softmax ran in the model", "types")


def _norms(r: Recipe) -> schemas.Answer:
    """A fused norm by the types of its statistics, which it gives; a norm that is written out by those of its steps."""
    question = "norm_in_float32"
    fused = [x for x in r.ran if x.operator in _NORMS]
    own = [x for x in r.ran if "norm" in x.cls.lower() and x.operator in _STATISTICS]
    low = [x for x in fused if len(x.made) > 1 and _low(x.made[1:])] + [x for x in own if _low(x.made)]
    if low:
        return _fail(
            question,
            low,
            "the statistics of a norm are in",
            "types",
            ["x.float() at the beginning of the norm, and its result back; or the norm's weights in float32"],
        )
    seen = [*fused, *own]
    if not seen:
        return _pass(question, "no norm ran in the model", "types")
    return _pass(question, f"{len(_modules(seen)):,} norms take their statistics in float32", "types")


def _loss(r: Recipe) -> schemas.Answer:
    question = "loss_in_float32"
    ran = [x for x in r.ran if x.operator in _LOSSES or (x.module == "loss" and x.operator in _SOFTMAX)]
    low = [x for x in ran if _low(x.made)]
    if low or r.loss in SIXTEEN:
        text = "the loss is made in" if low else "the loss comes out in"
        found = low or [Ran("", "loss", "", (), (r.loss,))]
        return _fail(question, found, text, "types", ["logits.float() before the loss"])
    return _pass(question, f"the loss is in {r.loss}", "types")


def _state(r: Recipe) -> schemas.Answer:
    question = "optimizer_state_in_float32"
    if not r.stepped:
        return _cannot(question, "no optimizer was given, or it made no update", "state")
    low = {n: t for n, t in r.state.items() if t not in ("float32", "float64")}
    if not low:
        return _pass(question, f"{len(r.state):,} tensors of optimizer state are in float32", "state")
    types = ", ".join(sorted(set(low.values())))
    text = f"{len(low):,} of {len(r.state):,} tensors of optimizer state are in {types}: {some(low)}"
    look = [
        "parameters of 16 bits give state of 16 bits: float32 copies, or float32 parameters under autocast"
    ]
    return _made(question, "fail", text, "state", list(low), look)


def _master(r: Recipe) -> schemas.Answer:
    question = "weights_updated_in_float32"
    if not r.held:
        return _cannot(question, "no optimizer was given, or it holds copies of its own", "state")
    low = {n: t for n, t in r.held.items() if t in SIXTEEN or t.startswith("float8")}
    if not low:
        return _pass(question, f"{len(r.held):,} parameters are updated in float32", "state")
    types = ", ".join(sorted(set(low.values())))
    text = f"{len(low):,} of {len(r.held):,} parameters are updated in {types}: {some(low)}"
    look = [
        "small updates are rounded away: float32 parameters with autocast, float32 copies, or stochastic rounding"
    ]
    return _made(question, "fail", text, "state", list(low), look)


def _scaler(r: Recipe) -> schemas.Answer:
    question = "fp16_has_a_scaler"
    low = [x for x in r.ran if "float16" in x.made and x.operator not in _CASTS]
    if not low:
        return _pass(question, "nothing ran in float16", "scaler")
    if r.scaler:
        return _pass(
            question, f"{len(_modules(low)):,} modules run in float16, under a gradient scaler", "scaler"
        )
    why = "the scaler that was given is off" if r.scaler is False else "no gradient scaler was given"
    text = f"{len(_modules(low)):,} modules run in float16, and {why}: {some(_modules(low))}"
    return _made(question, "fail", text, "scaler", _modules(low), ["torch.amp.GradScaler, or bfloat16"])


def _fp8(r: Recipe) -> schemas.Answer:
    question = "fp8_has_its_scales"
    low = [x for x in r.ran if any(t.startswith("float8") for t in x.made)]
    if not low:
        return _pass(question, "nothing was made in float8", "fp8")
    anew = {x.module for x in r.ran if x.operator in _AMAX}
    none, unsaved = [], []
    for name in _modules(low):
        held = r.scales.get(name, ())
        if held and not any(_key(name, h) in r.saved for h in held):
            unsaved.append(name)
        elif not held and name not in anew:
            none.append(name)
    said = [
        f"{len(found):,} {words}: {some(found)}"
        for found, words in (
            (none, "modules cast to float8 without a scale, held or made anew"),
            (
                unsaved,
                "modules hold a scale that their state_dict leaves out, so that a resume begins without it",
            ),
        )
        if found
    ]
    if said:
        return _made(
            question, "fail", "; ".join(said), "fp8", none + unsaved, ["a persistent buffer for each scale"]
        )
    return _pass(question, f"{len(_modules(low)):,} modules that cast to float8 have their scales", "fp8")


def _key(module: str, name: str) -> str:
    return name if module == "model" else f"{module}.{name}"


def _low(types: Iterable[str]) -> bool:
    return any(t in SIXTEEN or t.startswith("float8") for t in types)


def _modules(ran: Iterable[Ran]) -> list[str]:
    return list(dict.fromkeys(x.module for x in ran))


def _fail(
    question: str, ran: Sequence[Ran], text: str, source: str, look_at: Sequence[str]
) -> schemas.Answer:
    types = ", ".join(sorted({t for x in ran for t in x.made if _low([t])}))
    names = _modules(ran)
    cls = sorted({x.cls for x in ran if x.cls})
    of = f" (class {', '.join(cls[:3])})" if cls else ""
    return _made(
        question,
        "fail",
        f"{text} {types} in {len(names):,} modules: {some(names)}{of}",
        source,
        names,
        look_at,
    )


def _pass(question: str, text: str, source: str) -> schemas.Answer:
    return _made(question, "pass", text, source)


def _cannot(question: str, text: str, source: str) -> schemas.Answer:
    return _made(question, "cannot_tell", text, source)


def _made(
    question: str,
    outcome: schemas.Outcome,
    text: str,
    source: str,
    names: Sequence[str] = (),
    look_at: Sequence[str] = (),
) -> schemas.Answer:
    return answer(question, outcome, text, names=names, source=SOURCE[source], look_at=look_at)
