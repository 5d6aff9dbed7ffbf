"""The commands of the ladder, on a `build` as a user writes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from typer.testing import CliRunner

from lineage.cli.app import app
from lineage.ledger.reader import open_ledger
from tests.packaging.conftest import REPOSITORY

EXAMPLES = REPOSITORY / "examples"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINEAGE_DIR", str(tmp_path / "runs"))
    monkeypatch.syspath_prepend(str(EXAMPLES))


def test_overfit_says_each_answer_writes_it_down_and_ends_with_its_exit_code(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["overfit", "--with", "ladder_build:build"])
    assert (done.exit_code, done.exception) == (0, None), done.output
    assert "pass  overfit: the loss of one batch went from" in done.output
    assert "pass  optimizer_holds_missing: every trainable parameter is held" in done.output
    (record,) = open_ledger(tmp_path / "runs" / "ladder").of("rung")
    assert (record.payload.outcome, record.payload.recipe.built_by) == ("pass", "ladder_build:build")


def test_a_failing_one_has_exit_code_1_and_its_json_is_the_record(tmp_path: Path) -> None:
    (tmp_path / "broken_build.py").write_text(
        "import ladder_build\n"
        "def build(given):\n"
        "    made = ladder_build.build(given)\n"
        "    made['optimizer'].param_groups[0]['params'].pop()\n"
        "    return made\n"
    )
    command = ["overfit", "--json", "--no-record", "--with", f"{tmp_path / 'broken_build.py'}:build"]
    done = CliRunner().invoke(app, command)
    found = json.loads(done.stdout)
    assert done.exit_code == 1
    (held,) = [a for a in found["answers"] if a["question"] == "optimizer_holds_missing"]
    assert (held["outcome"], held["names"]) == ("fail", ["2.bias"])
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("build", "said"),
    [
        ("", "--with names the function of yours"),
        ("no_such_module:build", "there is no module 'no_such_module'"),
        ("ladder_build:torch", "has no function 'torch'"),
    ],
)
def test_a_build_that_cannot_be_used_is_said(build: str, said: str) -> None:
    done = CliRunner().invoke(app, ["overfit", "--with", build])
    assert done.exit_code != 0
    assert said in str(done.exception) + done.output


def test_loss_normalisation_names_a_mean_of_means(tmp_path: Path) -> None:
    """The example's batches are of one length, which cannot tell; cut to different ones they can."""
    done = CliRunner().invoke(app, ["loss-normalisation", "--no-record", "--with", "ladder_build:build"])
    assert done.exit_code == 4, done.output
    assert "all micro-batches have 16 tokens" in done.output
    (tmp_path / "uneven_build.py").write_text(
        "import ladder_build\n"
        "def build(given):\n"
        "    made = ladder_build.build(given)\n"
        "    whole = made['batches']\n"
        "    made['batches'] = lambda: ({k: v[: 3 + 4 * i] for k, v in next(whole).items()} for i in range(3))\n"
        "    return made\n"
    )
    command = [
        "loss-normalisation",
        "--micro-batches",
        "3",
        "--with",
        f"{tmp_path / 'uneven_build.py'}:build",
    ]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 1, done.output
    assert (
        "a token of micro-batch 1 (3 tokens) counts 3.67 times as much as one of micro-batch 3 (11"
        in done.output
    )
    (record,) = open_ledger(tmp_path / "runs" / "ladder").of("rung")
    assert record.payload.rung == "loss_normalisation"


TOKENS = """
import torch

def build(given):
    ids = torch.arange(3, 19).reshape(2, 8)
    batch = {"input_ids": ids, "labels": ids.clone()}
    return {"model": torch.nn.Embedding(40, 4), "loss": lambda model, batch: None, "batches": [batch]}

def reads(ids):
    return " a\\n" + str(ids[0])
"""


def test_batch_prints_each_place_and_writes_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokens_build.py").write_text(TOKENS)
    monkeypatch.syspath_prepend(str(tmp_path))
    page = tmp_path / "batch.html"
    command = ["batch", "--with", "tokens_build:build", "--tokenizer", "tokens_build:reads", "--no-shifts"]
    done = CliRunner().invoke(app, [*command, "--html", str(page), "--width", "3"])
    assert done.exit_code == 1, done.output
    assert "·a⏎3" in done.output
    assert "and 5 further places: --width" in done.output
    assert (
        "FAIL  labels_shifted_once: labels equal the ids at their own place, and the model does not shift"
        in done.output
    )
    assert page.read_text().count("<tr") == 2 * (1 + 8)


def test_batch_names_where_a_batch_may_be() -> None:
    done = CliRunner().invoke(app, ["batch"])
    assert done.exit_code != 0
    assert "--bundle BUNDLE or a run" in str(done.exception) + done.output


def test_the_batch_of_a_recorded_bad_step_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    import lineage

    model = torch.nn.Embedding(40, 4)
    with lineage.attach(None, model=model, run_id="bad", quiet=True, report=False) as rec:
        for step in range(1, 4):
            ids = torch.full((2, 8), step) + torch.arange(8)
            with rec.step(step, {"input_ids": ids, "labels": ids}) as st:
                st.loss(float("nan") if step == 3 else 1.0)
    done = CliRunner().invoke(app, ["batch", "--bundle", "bad", "--run", "bad", "--shifts"])
    assert done.exit_code in (0, 4), done.output
    assert "0      3   3      3      3" in done.output
    (record,) = open_ledger(tmp_path / "runs" / "bad").of("rung")
    assert record.payload.rung == "batch"


TWO = """
import torch

class Net(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.first, self.last, self.f = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2), f
    def forward(self, x):
        return self.last(self.f(self.first(x)))

def build(given):
    ours, theirs = Net(torch.tanh), Net(torch.sigmoid)
    theirs.load_state_dict(ours.state_dict())
    return {"model": ours, "reference": theirs, "loss": lambda m, b: m(**b).sum(), "batches": [{"x": torch.ones(1, 4)}]}
"""


def test_reference_prints_each_pair_and_names_where_they_part(tmp_path: Path) -> None:
    (tmp_path / "two_build.py").write_text(TWO)
    done = CliRunner().invoke(app, ["reference", "--with", f"{tmp_path / 'two_build.py'}:build"])
    assert done.exit_code == 1, done.output
    assert "what goes into last (last) differs by" in done.output
    assert "what came out of first before it is alike" in done.output
    assert "weights_are_equal: 4 parameters are equal" in done.output
