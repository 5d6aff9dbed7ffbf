"""A canary of a small GPT: compiler on and off, attention kernels, ranks, precision; and what is really broken."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention import SDPBackend, sdpa_kernel
from typer.testing import CliRunner

import schemas
from lineage.cli.app import app
from lineage.ladder import canary
from lineage.replay.building import Built
from tests.probes import ranks

VOCABULARY, WIDTH, LENGTH = 17, 32, 12


class Block(torch.nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.norm, self.qkv = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.out, self.scale = torch.nn.Linear(WIDTH, WIDTH), scale

    def forward(self, x: Any) -> Any:
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, 4, -1).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, -1))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale)
        return x + self.out(y.transpose(1, 2).reshape(b, t, WIDTH))


class GPT(torch.nn.Module):
    def __init__(self, scale: float = 8**-0.5) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = torch.nn.ModuleList(Block(scale) for _ in range(2))
        self.head = torch.nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: Any) -> Any:
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def batches(rank: int = 0, world: int = 1, offset: int = 0) -> Any:
    for step in range(40):
        generator = torch.Generator().manual_seed(step + offset)
        ids = torch.randint(VOCABULARY, (4, LENGTH), generator=generator)
        yield ids[rank::world]


def make(
    rank: int = 0,
    world: int = 1,
    *,
    lr: float = 3e-3,
    compiled: bool = False,
    dtype: Any = None,
    scale: float = 8**-0.5,
    offset: int = 0,
    betas: tuple[float, float] = (0.9, 0.95),
) -> Built:
    model: Any = GPT(scale)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=betas)
    if compiled:
        model = torch.compile(model, backend="aot_eager")
    if world > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)

    def loss(net: Any, ids: Any) -> Any:
        with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            logits = net(ids[:, :-1])
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())

    return Built(model, loss, optimizer, batches=functools.partial(batches, rank, world, offset))


@pytest.fixture(scope="module")
def before() -> schemas.Canary:
    with sdpa_kernel(SDPBackend.MATH):
        return canary.record(make, steps=8)


def sides(found: schemas.Rung) -> schemas.Answer:
    (one,) = [a for a in found.answers if a.question == "sides_agree"]
    return one


def kind(found: schemas.Rung) -> Any:
    held = sides(found).values.get("class")
    return held.plain() if held is not None else None


def test_the_same_job_is_equal_bit_for_bit(before: schemas.Canary) -> None:
    with sdpa_kernel(SDPBackend.MATH):
        found, _ = canary.check(before, make, bitwise=True)
    assert (found.outcome, kind(found)) == ("pass", "bitwise")
    assert sides(found).text == "equal bit for bit: 3 seeds, 8 steps, the state at 12 points"
    assert before.repeats is True


def test_the_other_attention_kernel_parts_in_the_bits_and_stays_within_the_spread(
    before: schemas.Canary,
) -> None:
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        found, _ = canary.check(before, make, conditions={"sdpa": "flash"})
        strict, _ = canary.check(before, make, bitwise=True)
    assert (found.outcome, kind(found)) == ("pass", "within the spread")
    assert sides(found).values["first_step"].plain() == 1
    assert "first at step 1" in sides(found).text
    assert strict.outcome == "fail"
    assert "bits were asked for" in strict.text


def test_the_compiler_is_judged_as_any_other_change(before: schemas.Canary) -> None:
    with sdpa_kernel(SDPBackend.MATH):
        found, after = canary.check(
            before, functools.partial(make, compiled=True), conditions={"compile": True}
        )
    assert found.outcome == "pass"
    assert kind(found) in ("bitwise", "within the spread")
    assert after.recipe.digest == before.recipe.digest


def test_bfloat16_stays_within_the_spread_and_says_by_how_much(before: schemas.Canary) -> None:
    with sdpa_kernel(SDPBackend.MATH):
        found, _ = canary.check(before, functools.partial(make, dtype=torch.bfloat16))
    assert (found.outcome, kind(found)) == ("pass", "within the spread")
    assert 1e-4 < sides(found).values["largest"].plain() < sides(found).values["spread"].plain()


@pytest.mark.parametrize(
    ("change", "step", "what"),
    [
        ({"scale": 30.0}, 1, "loss"),
        ({"offset": 500}, 1, "loss"),
    ],
)
def test_what_is_broken_is_different_and_told_where_first(
    before: schemas.Canary, change: dict[str, Any], step: int, what: str
) -> None:
    with sdpa_kernel(SDPBackend.MATH):
        found, _ = canary.check(before, functools.partial(make, **change))
    told = sides(found)
    assert (told.values["first_step"].plain(), told.values["first_what"].plain()) == (step, what)
    assert kind(found) != "bitwise"


def test_an_update_of_another_size_shows_in_the_weights_of_the_first_step(before: schemas.Canary) -> None:
    """The optimizer's settings are of the recipe: changed behind its back they are a change of code."""

    def behind(rank: int, world: int) -> Built:
        built = make(rank, world)
        step = built.optimizer.step

        def larger() -> None:
            for group in built.optimizer.param_groups:
                group["lr"] = 1.0
            step()

        built.optimizer.step = larger
        return built

    with sdpa_kernel(SDPBackend.MATH):
        found, _ = canary.check(before, behind)
    told = sides(found)
    assert (found.outcome, told.values["class"].plain()) == ("fail", "different")
    assert (told.values["first_step"].plain(), told.values["first_what"].plain()) == (1, "weight")
    assert "the optimizer's update" in told.text


def test_another_recipe_is_no_comparison(before: schemas.Canary) -> None:
    found, _ = canary.check(before, functools.partial(make, lr=1e-4))
    assert found.outcome == "fail"
    assert sides(found).outcome == "cannot_tell"
    assert "another recipe" in found.answers[0].text


def test_two_seeds_have_no_spread(before: schemas.Canary) -> None:
    few = before.model_copy(update={"runs": before.runs[:2]})
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        found, _ = canary.check(few, make)
    assert found.outcome == "cannot_tell"
    assert "2 seeds have no spread" in sides(found).text


def test_a_job_that_does_not_repeat_itself_says_so() -> None:
    draws = iter(range(1000))

    def noisy(rank: int, world: int) -> Built:
        return make(rank, world, offset=next(draws))

    made = canary.record(noisy, steps=2)
    assert made.repeats is False
    found, _ = canary.check(made, noisy)
    (repeats,) = [a for a in found.answers if a.question == "each_side_repeats_itself"]
    assert (repeats.outcome, "(before, now)" in repeats.text) == ("cannot_tell", True)


def _on_rank(rank: int, world: int, file: str) -> list[Any]:
    before = schemas.Canary.model_validate_json(Path(file).read_bytes())
    with sdpa_kernel(SDPBackend.MATH):
        found, _ = canary.check(before, make)
    return [found.outcome, kind(found), found.answers[0].text]


def test_two_ranks_in_place_of_one_stay_within_the_spread(before: schemas.Canary, tmp_path: Path) -> None:
    file = tmp_path / "canary.json"
    file.write_text(before.model_dump_json(by_alias=True))
    for outcome, which, text in ranks.run(functools.partial(_on_rank, file=str(file)), 2, tmp_path):
        assert (outcome, which) == ("pass", "within the spread")
        assert "ranks 1 -> 2" in text


BUILD = """
from tests.ladder.test_canary import make
def build(given):
    return make(lr=1e-2)
"""


def test_the_commands_record_and_check_and_end_with_an_exit_code_for_ci(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINEAGE_DIR", str(tmp_path / "runs"))
    (tmp_path / "job.py").write_text(BUILD)
    job, file = f"{tmp_path / 'job.py'}:build", str(tmp_path / "canary.json")
    done = CliRunner().invoke(app, ["canary", "record", file, "--with", job, "--steps", "3"])
    assert done.exit_code == 0, done.output
    assert "one seed run twice gives the same bits" in done.output
    done = CliRunner().invoke(
        app, ["canary", "check", file, "--with", job, "--bitwise", "--note", "driver=570"]
    )
    assert done.exit_code == 0, done.output
    assert "changed: driver not known -> 570" in done.output
    (tmp_path / "job.py").write_text(BUILD.replace("lr=1e-2", "lr=1e-2, scale=5.0"))
    done = CliRunner().invoke(app, ["canary", "check", file, "--with", job, "--bitwise"])
    assert done.exit_code == 1, done.output
    (tmp_path / "broken.json").write_text("{}")
    done = CliRunner().invoke(app, ["canary", "check", str(tmp_path / "broken.json"), "--with", job])
    assert "is no canary" in str(done.exception) + done.output
