"""What runs in too few bits is named with its module, on real models."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import schemas
from lineage import ladder


class Attention(torch.nn.Module):
    def __init__(self, upcast: bool = True) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(8, 24)
        self.upcast = upcast

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(-1, -2)
        p = (
            torch.softmax(scores, -1, dtype=torch.float32).to(x.dtype)
            if self.upcast
            else torch.softmax(scores, -1)
        )
        return p @ v


class RMSNorm(torch.nn.Module):
    def __init__(self, upcast: bool = True) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(8))
        self.upcast = upcast

    def forward(self, x: Any) -> Any:
        y = x.float() if self.upcast else x
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight


class Float8(torch.nn.Module):
    """A linear layer that rounds its weight to float8, with or without a scale."""

    def __init__(self, scale: str = "saved") -> None:
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)
        self.how = scale
        if scale in ("saved", "unsaved"):
            self.register_buffer("weight_scale", torch.tensor(0.01), persistent=scale == "saved")

    def forward(self, x: Any) -> Any:
        w = self.inner.weight
        s = self.weight_scale if hasattr(self, "weight_scale") else 1
        if self.how == "anew":
            s = w.detach().abs().amax() / 448
        low = (w.detach() / s).to(torch.float8_e4m3fn).to(x.dtype) * s
        return x @ (w + (low - w).detach()).T


class Net(torch.nn.Module):
    def __init__(self, softmax: bool = True, norm: bool = True, fp8: str | None = None) -> None:
        super().__init__()
        self.attention = Attention(softmax)
        self.norm = RMSNorm(norm)
        self.last = Float8(fp8) if fp8 else torch.nn.Identity()
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        return self.head(self.last(self.norm(self.attention(x))))


def batch(dtype: Any = torch.float32) -> dict[str, Any]:
    return {
        "x": torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(0)).to(dtype),
        "y": torch.arange(8) % 5,
    }


def in_float32(net: Any, given: Any) -> Any:
    return torch.nn.functional.cross_entropy(net(given["x"]).flatten(0, 1).float(), given["y"])


def as_is(net: Any, given: Any) -> Any:
    return torch.nn.functional.cross_entropy(net(given["x"]).flatten(0, 1), given["y"])


def under(dtype: Any, enabled: bool = True) -> Any:
    def loss(net: Any, given: Any) -> Any:
        with torch.autocast("cpu", dtype=dtype, enabled=enabled):
            return as_is(net, given)

    return loss


def ask(
    net: Any, loss: Any = in_float32, dtype: Any = torch.float32, **more: Any
) -> dict[str, schemas.Answer]:
    net = net.to(dtype)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    found = ladder.precision_audit(net, loss, batch(dtype), optimizer=optimizer, **more)
    return {a.question: a for a in found.answers}


def failed(found: dict[str, schemas.Answer]) -> dict[str, list[str]]:
    return {q: a.names for q, a in found.items() if a.outcome == "fail"}


def test_float32_and_autocast_in_bfloat16_pass() -> None:
    assert failed(ask(Net())) == {}
    assert failed(ask(Net(softmax=False), under(torch.bfloat16))) == {
        "softmax_in_float32": ["attention"]
    }  # CPU
    assert failed(ask(Net(), under(torch.bfloat16))) == {}


def test_pure_bfloat16_is_named_part_by_part() -> None:
    found = failed(ask(Net(softmax=False, norm=False), as_is, torch.bfloat16))
    assert found["softmax_in_float32"] == ["attention"]
    assert found["norm_in_float32"] == ["norm"]
    assert found["loss_in_float32"] == ["loss"]
    assert "exp_avg_sq of head.weight" in found["optimizer_state_in_float32"]
    assert "attention.qkv.weight" in found["weights_updated_in_float32"]
    assert "fp16_has_a_scaler" not in found


@pytest.mark.parametrize(
    ("net", "question", "module"),
    [
        (lambda: Net(softmax=False), "softmax_in_float32", "attention"),
        (lambda: Net(norm=False), "norm_in_float32", "norm"),
    ],
)
def test_one_part_that_does_not_take_float32_is_the_only_one_named(
    net: Any, question: str, module: str
) -> None:
    found = failed(ask(net(), in_float32, torch.bfloat16))
    assert found.pop(question) == [module]
    assert set(found) == {"optimizer_state_in_float32", "weights_updated_in_float32"}


def test_fp16_without_a_scaler_is_named_and_with_one_is_not() -> None:
    found = ask(Net(), under(torch.float16))
    assert failed(found) == {"fp16_has_a_scaler": ["attention.qkv", "attention", "head"]}
    assert "no gradient scaler was given" in found["fp16_has_a_scaler"].text
    assert failed(ask(Net(), under(torch.float16), scaler=torch.amp.GradScaler("cpu"))) == {}
    off = ask(Net(), under(torch.float16), scaler=torch.amp.GradScaler("cpu", enabled=False))
    assert "the scaler that was given is off" in off["fp16_has_a_scaler"].text


@pytest.mark.parametrize(
    ("scale", "said"),
    [("saved", None), ("anew", None), ("none", "without a scale"), ("unsaved", "state_dict leaves out")],
)
def test_fp8_needs_a_scale_that_a_resume_finds_again(scale: str, said: str | None) -> None:
    found = ask(Net(fp8=scale))["fp8_has_its_scales"]
    assert (found.outcome, found.names) == (("pass", []) if said is None else ("fail", ["last"]))
    assert said is None or said in found.text


def test_a_fused_kernel_cannot_be_looked_into() -> None:
    class Fused(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = torch.nn.Linear(8, 24)
            self.head = torch.nn.Linear(8, 5)

        def forward(self, x: Any) -> Any:
            q, k, v = (t[:, None] for t in self.qkv(x).chunk(3, -1))
            return self.head(torch.nn.functional.scaled_dot_product_attention(q, k, v)[:, 0])

    found = ask(Fused())["softmax_in_float32"]
    assert (found.outcome, "inside a fused kernel" in found.text) == ("cannot_tell", True)


def test_a_compiled_model_is_looked_at_as_it_is_written_and_left_as_it_was() -> None:
    net = Net(softmax=False).to(torch.bfloat16)
    compiled = torch.compile(net, backend="eager")
    before = {n: t.clone() for n, t in net.state_dict().items()}
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    found = ladder.precision_audit(compiled, in_float32, batch(torch.bfloat16), optimizer=optimizer)
    assert failed({a.question: a for a in found.answers})["softmax_in_float32"] == ["attention"]
    assert all(torch.equal(before[n], t) for n, t in net.state_dict().items())


def test_a_llama_of_transformers_in_bfloat16_keeps_its_norms_and_softmax_in_float32() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=11,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        attn_implementation="eager",
    )
    net = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    ids = torch.arange(12).reshape(2, 6) % 11

    def loss(net: Any, given: Any) -> Any:
        return net(input_ids=given, labels=given).loss

    found = ladder.precision_audit(net, loss, ids, optimizer=torch.optim.AdamW(net.parameters()))
    assert set(failed({a.question: a for a in found.answers})) == {
        "optimizer_state_in_float32",
        "weights_updated_in_float32",
    }
